//! The snapshots that the demo holds, as the live view and the summary show them.

use serde::Serialize;

use super::event_time::EventTime;

/// A snapshot that the demo holds, and what the engine's metrics say of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct HeldSnapshot {
    /// The month it was taken in.
    pub(crate) name: &'static str,
    /// Event time at which it was taken.
    pub(crate) taken_at: EventTime,
    /// Its sequence number.
    pub(crate) sequence: u64,
    /// How long it has been held.
    pub(crate) age_seconds: f64,
    /// Entries written since: the versions that they supersede are kept for the snapshot.
    pub(crate) entries_since: u64,
}

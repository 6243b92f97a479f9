//! Limits, each checked where input enters.

/// The longest key, in bytes.
pub const MAX_KEY_LEN: usize = 65_535;
/// The longest value, in bytes.
pub const MAX_VALUE_LEN: usize = 256 << 20;
/// The largest write batch, in bytes of its encoded form.
pub const MAX_BATCH_LEN: usize = 1 << 30;
/// The most bytes of memory that the entries which a write batch derives for indexes may take.
pub const MAX_DERIVED_BATCH_LEN: usize = 1 << 30;
/// The most levels a table may have.
pub const MAX_LEVELS: usize = 16;

//! What is measured of one table of one contender, by name.

use std::collections::BTreeMap;

/// The figures of one run by name: `<what>.<figure>`.
#[derive(Clone, Default, Debug)]
pub(super) struct Figures(pub(super) BTreeMap<String, f64>);

impl Figures {
    /// Adds one.
    pub(super) fn put(&mut self, name: &str, value: f64) {
        self.0.insert(name.to_owned(), value);
    }
}

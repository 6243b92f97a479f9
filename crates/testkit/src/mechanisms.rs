//! Which of a configuration's mechanisms ran during a history: a test that never met them says nothing of them.

use mycelium_engine::Metrics;

use crate::configurations::Configuration;

/// What was seen to happen, since the store was made. All tables count that have layouts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mechanisms {
    /// By level: whether it had files at some moment.
    pub levels_filled: Vec<bool>,
    /// Layouts set after the first.
    pub layout_changes: u64,
    /// Columns added.
    pub columns_added: u64,
    /// Rows that expired.
    pub rows_expired: u64,
    /// Locks that transactions were granted.
    pub locks_granted: u64,
    /// Those of them that made a transaction see newer rows.
    pub locks_that_moved: u64,
    /// Locks that were refused, as another transaction had them.
    pub locks_refused: u64,
    /// Whether a compaction changed column groups or formats.
    pub has_reshaped: bool,
    /// Whether one did while a snapshot was live.
    pub has_reshaped_under_snapshot: bool,
    /// Whether a compaction dropped a tombstone that nothing needed any more.
    pub has_dropped_tombstones: bool,
    /// Whether a compaction left values encoded, which only those of columns alone do.
    pub has_left_values_encoded: bool,
    /// Reshaping compactions since the database was opened.
    reshaped: u64,
}

impl Mechanisms {
    /// Nothing was seen yet of a database with this many levels.
    pub fn new(levels: usize) -> Self {
        Self { levels_filled: vec![false; levels], ..Self::default() }
    }

    /// Whether everything ran that a random configuration has.
    pub fn all_ran(&self, configuration: &Configuration) -> bool {
        self.missing(configuration).is_empty()
    }

    /// What did not run that a random configuration has.
    pub fn missing(&self, configuration: &Configuration) -> Vec<String> {
        let levels = self.levels_filled.iter().enumerate().filter(|(_, filled)| !**filled);
        let mut missing: Vec<String> = levels.map(|(level, _)| format!("level {level} filled")).collect();
        let others = [
            // A table with transformers has the layout that follows from them, for good: another one would pass by the
            // level where its rows are mapped. So it is no miss that the layout never changed.
            (self.layout_changes > 0 || configuration.transformers.is_some(), "a layout change"),
            // A map alone changes neither groups nor formats; that there were rows in level 1 says that they were
            // mapped.
            (self.has_reshaped || !configuration.reshapes(), "a transformation"),
            (self.has_reshaped_under_snapshot || !configuration.reshapes(), "a snapshot across a transformation"),
            (self.has_dropped_tombstones, "tombstones dropped"),
            (self.columns_added > 0 || !configuration.changing_columns, "a column added"),
            (self.rows_expired > 0 || !configuration.expiring, "rows that expired"),
        ];
        missing.extend(others.iter().filter(|(ran, _)| !ran).map(|(_, what)| (*what).to_owned()));
        missing
    }

    /// Takes in what the database has done since it was opened; `tables` are the names of those that have layouts.
    pub(crate) fn observe(&mut self, metrics: &Metrics, tables: &[String]) {
        for table in metrics.tables.iter().filter(|table| tables.contains(&table.name)) {
            for level in table.levels.iter().filter(|level| level.files > 0) {
                if let Some(filled) = self.levels_filled.get_mut(level.level) {
                    *filled = true;
                }
            }
        }
        let has_reshaped = metrics.reshaping_compactions > self.reshaped;
        self.reshaped = metrics.reshaping_compactions;
        self.has_reshaped |= has_reshaped;
        self.has_reshaped_under_snapshot |= has_reshaped && metrics.snapshots > 0;
        self.has_left_values_encoded |= metrics.compaction_entries_encoded > 0;
        self.has_dropped_tombstones |= metrics.compaction_entries.dropped_tombstones > 0;
    }

    /// The database is opened again: it counts from zero.
    pub(crate) fn reopened(&mut self) {
        self.reshaped = 0;
    }
}

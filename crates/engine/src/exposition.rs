//! Metrics as text in the exposition format of Prometheus (version 0.0.4), which most monitoring systems take in.
//!
//! ```text
//! # HELP mycelium_flushes_total Generations flushed.
//! # TYPE mycelium_flushes_total counter
//! mycelium_flushes_total 3
//! ...
//! mycelium_level_bytes{table="kv",level="0"} 8192
//! ```
//!
//! What ends in `_total` only grows while the database is open; anything else may fall. Samples are 64-bit floats, as
//! that format has them.

use crate::metrics::{LevelMetrics, Metrics, TableMetrics};

impl Metrics {
    /// The metrics in the text format of Prometheus, for whoever serves them: the engine opens no port.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mycelium_engine::{Database, Durability, Options, TableOptions};
    /// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
    /// let database = Database::open("example", options)?;
    /// let table = database.create_table("kv", TableOptions::default())?;
    /// table.put(b"key", b"value", Durability::Os)?;
    /// database.flush()?;
    /// let text = database.metrics().to_prometheus();
    /// assert!(text.contains("# TYPE mycelium_batches_total counter\nmycelium_batches_total 1\n"));
    /// assert!(text.contains("mycelium_level_files{table=\"kv\",level=\"0\"} 1\n"));
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    pub fn to_prometheus(&self) -> String {
        let mut page = Page::default();
        for (name, help, value) in self.of_database() {
            page.head(name, help);
            page.sample(name, &[], value);
        }
        for (name, help, values) in [
            (
                "compaction_read_bytes_total",
                "Bytes that compactions read, by output level.",
                &self.compaction_read_by_level,
            ),
            (
                "compaction_written_bytes_total",
                "Bytes that compactions wrote, by output level.",
                &self.compaction_written_by_level,
            ),
            (
                "invalidated_blocks_total",
                "Cached data blocks of files that compactions took out of a level.",
                &self.invalidated_blocks_by_level,
            ),
        ] {
            page.head(name, help);
            for (level, value) in values.iter().enumerate().filter(|(_, value)| **value > 0) {
                let number = level.to_string();
                page.sample(name, &[("level", number.as_str())], *value as f64);
            }
        }
        for (name, help, value) in OF_TABLES {
            page.head(name, help);
            for table in &self.tables {
                page.sample(name, &[("table", table.name.as_str())], value(table));
            }
        }
        for (name, help, value) in OF_LEVELS {
            page.head(name, help);
            for table in &self.tables {
                for level in &table.levels {
                    let number = level.level.to_string();
                    page.sample(name, &[("table", table.name.as_str()), ("level", number.as_str())], value(level));
                }
            }
        }
        page.0
    }

    /// Names, what they are, and values of what is one number for the database.
    fn of_database(&self) -> [(&'static str, &'static str, f64); 49] {
        let cache = &self.cache;
        [
            ("batches_total", "Batches committed.", self.batches as f64),
            ("operations_total", "Operations committed.", self.operations as f64),
            ("log_bytes_total", "Bytes appended to the log.", self.log_bytes as f64),
            ("flushes_total", "Generations flushed.", self.flushes as f64),
            ("flush_bytes_total", "Bytes that flushes wrote.", self.flush_bytes as f64),
            ("ingested_bytes_total", "Bytes of bulk-ingested files.", self.ingested_bytes as f64),
            ("compactions_total", "Compactions, trivial moves included.", self.compactions as f64),
            ("trivial_moves_total", "Compactions that only moved files.", self.trivial_moves as f64),
            (
                "reshaping_compactions_total",
                "Compactions that changed column groups or formats.",
                self.reshaping_compactions as f64,
            ),
            ("deferring_compactions_total", "Compactions that left that for later.", self.deferring_compactions as f64),
            ("compaction_cpu_seconds_total", "Seconds of CPU that compactions took.", self.compaction_cpu_seconds),
            (
                "most_compaction_memory_bytes",
                "Bytes of columns that a compaction held at most.",
                self.most_compaction_memory as f64,
            ),
            (
                "compaction_entries_in_total",
                "Entries that compactions read.",
                self.compaction_entries.entries_in as f64,
            ),
            (
                "compaction_entries_out_total",
                "Entries that compactions wrote.",
                self.compaction_entries.entries_out as f64,
            ),
            (
                "write_amplification",
                "Bytes of log, flushes and compactions over bytes of log.",
                self.write_amplification,
            ),
            ("slowdowns_total", "Pauses of slowed writers.", self.slowdowns as f64),
            ("slowdown_seconds_total", "Seconds that they took.", self.slowdown_seconds),
            ("stops_total", "Times that writers were stopped.", self.stops as f64),
            ("stop_seconds_total", "Seconds that they were.", self.stop_seconds),
            ("index_candidates_total", "Entries of indexes that lookups looked at.", self.index_candidates as f64),
            ("index_stale_total", "Those that were not their rows' any more.", self.index_stale as f64),
            ("expiry_passes_total", "Passes over tables whose rows expire.", self.expiry_passes as f64),
            ("expired_rows_total", "Rows that they deleted.", self.expired_rows as f64),
            ("row_locks", "Row locks that transactions hold.", self.row_locks as f64),
            ("row_lock_waiters", "Transactions that wait for one.", self.row_lock_waiters as f64),
            ("row_lock_waits_total", "Waits for row locks that are over.", self.row_lock_waits as f64),
            ("row_lock_wait_seconds_total", "Seconds that they took.", self.row_lock_wait_seconds),
            ("row_lock_deadlocks_total", "Waits refused as deadlocks.", self.row_lock_deadlocks as f64),
            ("row_lock_timeouts_total", "Waits that ended with their timeout.", self.row_lock_timeouts as f64),
            ("memtable_bytes", "Bytes of all memtables.", self.memtable_bytes as f64),
            ("sealed_generations", "Generations that wait for their flush.", self.sealed_generations as f64),
            ("running_compactions", "Compactions that run.", self.running_compactions as f64),
            ("snapshots", "Live snapshots.", self.snapshots as f64),
            ("oldest_snapshot_seconds", "Seconds that the oldest has been held.", self.oldest_snapshot_seconds),
            (
                "oldest_snapshot_lag",
                "Entries committed since the oldest snapshot was taken.",
                self.oldest_snapshot_lag as f64,
            ),
            ("pinned_bytes", "Bytes of replaced files that readers still hold.", self.pinned_bytes as f64),
            ("archived_segments_total", "Log segments archived.", self.archived_segments as f64),
            ("archived_bytes_total", "Bytes of log segments archived.", self.archived_bytes as f64),
            ("archive_failures_total", "Times that a log segment was not.", self.archive_failures as f64),
            ("unarchived_bytes", "Bytes of log that wait for the archive.", self.unarchived_bytes as f64),
            ("recovered_records_total", "Log records replayed at opening.", self.recovered_records as f64),
            ("cache_capacity_bytes", "The budget of the block cache.", cache.capacity as f64),
            ("cache_used_bytes", "Bytes of cached blocks.", cache.used as f64),
            ("cache_reserved_bytes", "Bytes of the budget that something else holds.", cache.reserved as f64),
            ("cache_hits_total", "Lookups that found their block.", cache.hits as f64),
            ("cache_misses_total", "Lookups that did not.", cache.misses as f64),
            ("cache_inserts_total", "Blocks added.", cache.inserts as f64),
            ("cache_evictions_total", "Blocks evicted or turned away.", cache.evictions as f64),
            ("cache_data_bytes", "Bytes of cached data blocks.", cache.data_bytes as f64),
        ]
    }
}

type OfTable = fn(&TableMetrics) -> f64;
type OfLevel = fn(&LevelMetrics) -> f64;

const OF_TABLES: [(&str, &str, OfTable); 8] = [
    ("table_memtable_bytes", "Bytes of a table's memtables.", |table| table.memtable_bytes as f64),
    ("table_memtable_entries", "Entries in a table's memtables.", |table| table.memtable_entries as f64),
    ("table_read_amplification", "Runs that a point read may look at.", |table| table.read_amplification as f64),
    ("table_space_amplification", "Bytes of all levels over those of the last.", |table| table.space_amplification),
    ("table_debt_bytes", "Bytes that compaction has yet to rewrite.", |table| table.debt_bytes as f64),
    ("table_deferred_bytes", "Bytes not in the column groups of their level.", |table| table.deferred_bytes as f64),
    ("table_dictionary_bytes", "Bytes of dictionaries and symbol tables.", |table| table.dictionary_bytes as f64),
    ("table_buffer_bytes", "Bytes of a table's compaction buffer.", |table| table.buffer.bytes as f64),
];

const OF_LEVELS: [(&str, &str, OfLevel); 5] = [
    ("level_runs", "Runs of a level.", |level| level.runs as f64),
    ("level_files", "Files of a level.", |level| level.files as f64),
    ("level_bytes", "Bytes of a level's files.", |level| level.bytes as f64),
    ("level_entries", "Entries in a level's files.", |level| level.entries as f64),
    ("level_score", "How urgent a level's compaction is; 1 is due.", |level| level.score),
];

/// The text so far.
#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, help: &str) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        self.0.push_str(&format!("# HELP mycelium_{name} {help}\n# TYPE mycelium_{name} {kind}\n"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escaped(text))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        self.0.push_str(&format!("mycelium_{name}{labels} {value}\n"));
    }
}

/// Names of tables may have quotes and backslashes, but no line feed.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_sample_follows_the_head_of_its_name() {
        let level = LevelMetrics { level: 3, files: 2, bytes: 1 << 40, score: 0.5, ..LevelMetrics::default() };
        let table = TableMetrics { name: "a \"b\" \\c".to_owned(), levels: vec![level], ..TableMetrics::default() };
        let metrics = Metrics {
            tables: vec![table],
            batches: 7,
            compaction_written_by_level: vec![0, 9],
            stop_seconds: 1.25,
            ..Metrics::default()
        };
        let text = metrics.to_prometheus();
        let mut names = BTreeSet::new();
        let mut current = "";
        for line in text.lines() {
            if let Some(head) = line.strip_prefix("# HELP ") {
                current = head.split(' ').next().unwrap();
                assert!(names.insert(current), "{current} comes twice");
            } else if !line.starts_with("# TYPE ") {
                let (sample, value) = line.rsplit_once(' ').unwrap();
                assert_eq!(sample.split('{').next(), Some(current));
                assert!(value.parse::<f64>().unwrap().is_finite());
            }
        }
        for line in [
            "mycelium_batches_total 7",
            "mycelium_stop_seconds_total 1.25",
            "mycelium_compaction_written_bytes_total{level=\"1\"} 9",
            "mycelium_level_bytes{table=\"a \\\"b\\\" \\\\c\",level=\"3\"} 1099511627776",
            "mycelium_level_score{table=\"a \\\"b\\\" \\\\c\",level=\"3\"} 0.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}

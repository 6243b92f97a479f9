//! What the experiment shows, for claims and for persons.
//!
//! ```text
//! /transformations/writes/protobuf/split/penalty_percent/median        by source format and contender
//! /transformations/reads/protobuf/q2-table/split/over_rocksdb/median   by source format, query and contender: of whole times
//! /transformations/reads/protobuf/q2-range/split/over_rocksdb_median/median    of median latencies
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::reads::ReadFigures;
use super::records::SourceFormat;
use super::variants::{AUGMENT, PLAIN, RIVAL};
use super::writes::WriteFigures;
use super::{TransformationSettings, plots};
use crate::plot::NamedPlot;
use crate::statistics::Spread;

/// All that the experiment showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TransformationReport {
    /// Bytes of a write buffer.
    pub buffer_bytes: u64,
    /// Write buffers that the records fill.
    pub buffers: u64,
    /// Rows of a range.
    #[serde(default)]
    pub range_rows: u64,
    /// Writes by source format and contender.
    pub writes: BTreeMap<String, BTreeMap<String, WriteFigures>>,
    /// Reads by source format, query and contender.
    pub reads: BTreeMap<String, BTreeMap<String, BTreeMap<String, ReadFigures>>>,
    /// The least of the medians of [`WriteFigures::transformed_percent`].
    pub least_transformed_percent: f64,
    /// By how much converted SSTs are smaller than those of the plain JSON table, in percent.
    pub convert_saves_percent: Option<f64>,
    /// Median latency of Q5 over that of Q7 in the table with a secondary index.
    pub index_point_over_primary: Option<f64>,
    /// Median latency of Q4 for each of its rows over that of Q7 in the same table.
    #[serde(default)]
    pub index_range_over_primary: Option<f64>,
    /// Median latency of Q4 in RocksDB without an index, which is that of Q2 over the table, over that by our index.
    #[serde(default)]
    pub index_range_over_scan: Option<f64>,
}

impl TransformationReport {
    /// Nothing yet.
    pub(super) fn new(settings: &TransformationSettings) -> Self {
        Self {
            buffer_bytes: settings.buffer_bytes,
            buffers: settings.buffers,
            range_rows: settings.range_rows,
            writes: BTreeMap::new(),
            reads: BTreeMap::new(),
            least_transformed_percent: 100.0,
            convert_saves_percent: None,
            index_point_over_primary: None,
            index_range_over_primary: None,
            index_range_over_scan: None,
        }
    }

    /// Derives what follows from the figures.
    pub(super) fn finish(mut self) -> Self {
        let transformed =
            self.writes.values().flat_map(BTreeMap::values).filter_map(|figures| figures.transformed_percent);
        self.least_transformed_percent = transformed.map(|spread| spread.median).fold(100.0, f64::min);
        let bytes = |name: &str| Some(self.writes.get(SourceFormat::Json.name())?.get(name)?.sst_bytes.median);
        let saved = bytes("convert").zip(bytes(PLAIN)).map(|(converted, plain)| (1.0 - converted / plain) * 100.0);
        self.convert_saves_percent = saved;
        let median = |query: &str, contender: &str| {
            Some(self.reads.get(SourceFormat::Protobuf.name())?.get(query)?.get(contender)?.p50_us)
        };
        let over = |index: &str, primary: &str| Some(median(index, AUGMENT)? / median(primary, AUGMENT)?);
        let of_range = over("q4", "q7").map(|ratio| ratio / self.range_rows.max(1) as f64);
        let over_scan = median("q2-table", RIVAL).zip(median("q4", AUGMENT)).map(|(scan, index)| scan / index);
        (self.index_point_over_primary, self.index_range_over_primary) = (over("q5", "q7"), of_range);
        self.index_range_over_scan = over_scan;
        self
    }

    /// The plots: see `plots`.
    pub(crate) fn plots(&self, machine: &str) -> Vec<NamedPlot> {
        plots::all(self, machine)
    }

    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let mut out = format!(
            "transformations inside compaction: {} write buffers of {} KiB, until idle\n",
            self.buffers,
            self.buffer_bytes >> 10
        );
        for (source, contenders) in &self.writes {
            for (name, figures) in contenders {
                out += &format!("  {source:<8} writes   {name:<21} {}\n", figures.line());
            }
        }
        if let Some(saved) = self.convert_saves_percent {
            out += &format!("  json     SSTs     converted     {saved:.1} % smaller\n");
        }
        if let Some(ratio) = self.index_point_over_primary {
            out += &format!("  protobuf q5       augment       p50 {ratio:.2}x that of q7\n");
        }
        if let Some(ratio) = self.index_range_over_primary {
            out += &format!("  protobuf q4       augment       p50 for a row {ratio:.2}x that of q7\n");
        }
        if let Some(ratio) = self.index_range_over_scan {
            out += &format!("  protobuf q4       augment       {ratio:.0}x as fast as {RIVAL} without an index\n");
        }
        for (source, queries) in &self.reads {
            for (query, contenders) in queries {
                for (name, figures) in contenders {
                    out += &format!("  {source:<8} {query:<8} {name:<13} {}\n", figures.line());
                }
            }
        }
        out
    }
}

impl WriteFigures {
    fn line(&self) -> String {
        let with = |spread: &Option<Spread>, tell: &dyn Fn(Spread) -> String| spread.map_or_else(String::new, tell);
        format!(
            "{:>9.0} records/s ({:.0} to {:.0})  {:>5.1} CPU s/GB  {:>6.0} MB{}{}{}{}",
            self.rate.median,
            self.rate.least,
            self.rate.greatest,
            self.cpu_seconds_per_gb.median,
            self.sst_bytes.median / 1e6,
            with(&self.penalty_percent, &|penalty| format!(
                "  penalty {:.1} % ({:.1} to {:.1})",
                penalty.median, penalty.least, penalty.greatest
            )),
            with(&self.over_rocksdb, &|ratio| format!(
                "  {:.2}x {RIVAL} ({:.2} to {:.2})",
                ratio.median, ratio.least, ratio.greatest
            )),
            with(&self.over_rocksdb_at_write, &|ratio| format!("  {:.2}x {RIVAL} at write", ratio.median)),
            with(&self.transformed_percent, &|share| format!("  transformed {:.1} %", share.median)),
        )
    }
}

//! Table 2 of the paper: what transformations inside compaction cost writers.
//!
//! 1. Every repetition runs all contenders of a source format, in turns forwards and backwards, so that a slow minute
//!    of the machine hits all; and the plain table so often that each of the others runs right before or after it
//!    ([`turns`]).
//! 2. A run inserts every record once, in random key order, and lasts from the first write until the store is idle: no
//!    compaction is left that would be due.
//!    Rivals that work when they write run once, in the last: they take ten times as long as others.
//! 3. A penalty is the share of the plain table's rate that is lost, by the run of it beside this one. Ratios to the
//!    rival are taken within a repetition.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::TransformationSettings;
use super::stores::{RowStore, Transformed};
use super::variants::{Contender, PLAIN, RIVAL};
use crate::measure::Counters;
use crate::statistics::Spread;
use crate::store::Result;

/// One run.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteRun {
    pub(super) contender: Contender,
    pub(super) repetition: u32,
    rate: f64,
    cpu_seconds_per_gb: f64,
    transformed: Option<Transformed>,
    sst_bytes: u64,
}

/// What the runs of one contender showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WriteFigures {
    /// Records a second, from the first write until the store is idle.
    pub rate: Spread,
    /// How much lower that is than the plain table's, in percent.
    pub penalty_percent: Option<Spread>,
    /// That over RocksDB's.
    pub over_rocksdb: Option<Spread>,
    /// That over RocksDB's whose client does the same work when it writes.
    pub over_rocksdb_at_write: Option<Spread>,
    /// CPU seconds of all threads per gigabyte of keys and values inserted.
    pub cpu_seconds_per_gb: Spread,
    /// Of the transforming compactions that all bytes have before them when they are flushed, those done when the store
    /// was idle. What the rate was measured with.
    pub transformed_percent: Option<Spread>,
    /// The bytes that have all of them behind them.
    pub final_percent: Option<Spread>,
    /// Bytes of its SSTs at the end.
    pub sst_bytes: Spread,
}

/// The order in which a repetition runs contenders: of each two the plain table comes between them, but for rivals that
/// work when they write, which come last and are compared with others.
pub(super) fn turns(contenders: &[Contender]) -> Vec<Contender> {
    let of = |wanted: &dyn Fn(&Contender) -> bool| contenders.iter().copied().filter(wanted).collect::<Vec<_>>();
    let is_at_write = |contender: &Contender| matches!(contender, Contender::RivalAtWrite(_));
    let plain = of(&|contender| contender.name() == PLAIN);
    let others = of(&|contender| contender.name() != PLAIN && !is_at_write(contender));
    if others.is_empty() {
        return [plain, of(&is_at_write)].concat();
    }
    let between = |pair: &[Contender]| {
        let (first, second) = pair.split_at(1);
        [first, &plain, second].concat()
    };
    others.chunks(2).flat_map(between).chain(of(&is_at_write)).collect()
}

/// Fills a store.
pub(super) fn fill(
    store: &mut dyn RowStore,
    contender: Contender,
    repetition: u32,
    records: u64,
    bytes: u64,
    settings: &TransformationSettings,
) -> Result<WriteRun> {
    let (before, started) = (Counters::now(), Instant::now());
    for index in 0..records {
        store.insert(index)?;
    }
    store.settle()?;
    let seconds = started.elapsed().as_secs_f64();
    let usage = Counters::now().since(&before);
    let run = WriteRun {
        contender,
        repetition,
        rate: records as f64 / seconds,
        cpu_seconds_per_gb: usage.cpu_seconds / (bytes as f64 / 1e9),
        transformed: store.transformed(),
        sst_bytes: store.sst_bytes(),
    };
    if settings.progress {
        eprintln!(
            "  repetition {}: {:<13} {:>9.0} records/s, {:>5.1} CPU s/GB, {:.2} times the bytes written{}",
            repetition + 1,
            contender.name(),
            run.rate,
            run.cpu_seconds_per_gb,
            usage.bytes_written as f64 / bytes as f64,
            run.transformed.map_or_else(String::new, |transformed| format!(
                ", transformed {:.1} % (all steps {:.1} %)",
                transformed.steps_percent, transformed.final_percent
            ))
        );
    }
    Ok(run)
}

/// The rate of the plain table right before or after a run.
fn plain_beside(runs: &[WriteRun], at: usize) -> Option<f64> {
    let beside = [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|at| runs.get(at));
    let mut plain = beside.filter(|run| run.contender.name() == PLAIN && run.repetition == runs[at].repetition);
    plain.next().map(|run| run.rate)
}

/// The figures of every contender, by name.
pub(super) fn figures(runs: &[WriteRun]) -> BTreeMap<String, WriteFigures> {
    let names: Vec<&str> = runs.iter().map(|run| run.contender.name()).collect();
    let figures = names.into_iter().filter_map(|name| {
        let own: Vec<usize> = (0..runs.len()).filter(|&at| runs[at].contender.name() == name).collect();
        let spread = |value: &dyn Fn(&WriteRun) -> Option<f64>| {
            Spread::of(own.iter().filter_map(|&at| value(&runs[at])).collect())
        };
        let rate_of = |wanted: Contender, repetition: u32| {
            runs.iter().find(|run| run.contender == wanted && run.repetition == repetition).map(|run| run.rate)
        };
        let is_transformed = matches!(runs[own[0]].contender, Contender::Ours(_)) && name != PLAIN;
        let penalty = |at: usize| Some((1.0 - runs[at].rate / plain_beside(runs, at)?) * 100.0);
        let over =
            |run: &WriteRun| Some(run.rate / rate_of(Contender::Rival, run.repetition).filter(|_| name != RIVAL)?);
        let over_at_write = |run: &WriteRun| match run.contender {
            Contender::Ours(variant) => Some(run.rate / rate_of(Contender::RivalAtWrite(variant), run.repetition)?),
            Contender::Rival | Contender::RivalAtWrite(_) => None,
        };
        let figures = WriteFigures {
            rate: spread(&|run| Some(run.rate))?,
            penalty_percent: Spread::of(own.iter().filter(|_| is_transformed).filter_map(|&at| penalty(at)).collect()),
            over_rocksdb: spread(&over),
            over_rocksdb_at_write: spread(&over_at_write),
            cpu_seconds_per_gb: spread(&|run| Some(run.cpu_seconds_per_gb))?,
            transformed_percent: spread(&|run| run.transformed.map(|transformed| transformed.steps_percent)),
            final_percent: spread(&|run| run.transformed.map(|transformed| transformed.final_percent)),
            sst_bytes: spread(&|run| Some(run.sst_bytes as f64))?,
        };
        Some((name.to_owned(), figures))
    });
    figures.collect()
}

#[cfg(test)]
mod tests {
    use super::super::records::SourceFormat;
    use super::*;

    /// Runs that were this fast, in order, of one repetition.
    fn runs(rates: &[(Contender, f64)]) -> Vec<WriteRun> {
        let run = |&(contender, rate)| WriteRun {
            contender,
            repetition: 0,
            rate,
            cpu_seconds_per_gb: 1.0,
            transformed: None,
            sst_bytes: 1,
        };
        rates.iter().map(run).collect()
    }

    #[test]
    fn each_runs_beside_the_plain_table() {
        for source in SourceFormat::ALL {
            for with_rival in [false, true] {
                let contenders = Contender::all(source, with_rival);
                let turns = turns(&contenders);
                assert!(contenders.iter().all(|contender| turns.contains(contender)));
                let rates: Vec<_> = turns.iter().map(|&contender| (contender, 1.0)).collect();
                let runs = runs(&rates);
                let is_plain = |at: usize| runs[at].contender.name() == PLAIN;
                let is_compared = |at: &usize| !matches!(runs[*at].contender, Contender::RivalAtWrite(_));
                let mut compared = (0..runs.len()).filter(is_compared);
                assert!(compared.all(|at| is_plain(at) != plain_beside(&runs, at).is_some()), "{turns:?}");
            }
        }
        let plain = Contender::all(SourceFormat::Json, false)[0];
        assert_eq!(turns(&[plain]), [plain]);
    }

    #[test]
    fn a_penalty_is_against_the_run_beside() {
        let all = Contender::all(SourceFormat::Protobuf, false);
        let rates: Vec<_> = turns(&all).into_iter().zip([90.0, 100.0, 80.0, 30.0, 50.0]).collect();
        let figures = figures(&runs(&rates));
        let penalty = |at: usize| figures[all[at].name()].penalty_percent.as_ref().map(|spread| spread.median.round());
        assert_eq!([0, 1, 2, 3].map(penalty), [None, Some(10.0), Some(20.0), Some(40.0)]);
    }
}

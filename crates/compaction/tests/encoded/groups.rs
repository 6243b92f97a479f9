//! Rows that come down to columnar groups: what they meet there stays encoded, and the files are those of a job that
//! looks at every value.

use std::sync::Arc;

use mycelium_base::{ColumnSet, Group, GroupFormat, RangeDelete, RangeDeleteSet, RowFormatKind, SequenceNumber};
use mycelium_compaction::shaped_job::{self, Making, OutputGroup, ShapedInput};
use mycelium_compaction::{GroupCursor, encoded_job};
use mycelium_encoding::{FragmentFormat, PackedLayout};
use mycelium_merge::Watch;
use mycelium_sst::{CursorOptions, EncodedCursor, RunCursor, SstFile, SstSummary, SstWriterOptions, StageTimings};
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{AtKeys, Context, Entry, Table, Told, key, open, write_run};

/// Runs of whole rows above those of columnar groups, newest first.
struct Case {
    whole: Table,
    groups: Vec<Table>,
    runs: Vec<(Option<usize>, Vec<Arc<SstFile>>)>,
    range_deletes: Arc<RangeDeleteSet>,
    snapshots: Vec<SequenceNumber>,
    cuts: Vec<Vec<u8>>,
    is_base: bool,
    is_watched: bool,
}

/// What a job made: its files, how many rows stayed encoded, and what the watches were told.
struct Made {
    files: Vec<Arc<SstFile>>,
    summaries: Vec<SstSummary>,
    encoded: u64,
    told: Vec<Vec<(&'static str, Entry)>>,
}

/// The table's columns `part` as a group of a format.
fn group_of(table: &Table, part: impl Iterator<Item = usize>, format: GroupFormat) -> Table {
    let columns: ColumnSet = part.collect();
    Table {
        schema: table.schema.clone(),
        layout: Arc::new(PackedLayout::of(table.schema.clone(), &columns)),
        group: Arc::new(Group::new(columns, format)),
        values: table.values.clone(),
        block_size: table.block_size,
    }
}

impl Case {
    fn random(rng: &mut SmallRng) -> Self {
        let table = Table::random(rng);
        let (columns, rows) = (table.values.len() - 1, [3_usize, 40, 300, 2000][rng.random_range(0..4)]);
        let border = rng.random_range(1..=columns);
        let whole = group_of(&table, 1..=columns, GroupFormat::Row(RowFormatKind::Packed));
        let parts = [1..border + 1, border + 1..columns + 1];
        let groups: Vec<Table> = parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(|part| group_of(&table, part, GroupFormat::Columnar))
            .collect();
        let (space, has) = (rng.random_range(rows..rows * 4), (rng.random_bool(0.5), rng.random_bool(0.5)));
        let above = rng.random_range(1..3);
        let mut runs = Vec::new();
        for run in 0..above {
            // As many new rows as old ones, or few.
            let rows = if rng.random() { rows } else { rows.div_ceil(20) };
            let from = ((4 - run) * 4 * rows.max(2000)) as SequenceNumber;
            runs.push((None, write_run(&whole, (run, rows), (space, false), from, has, rng)));
        }
        for (number, group) in groups.iter().enumerate() {
            let below = (rng.random_bool(0.3), rng.random_bool(0.3));
            runs.push((Some(number), write_run(group, (above, rows), (space, false), 1, below, rng)));
        }
        let snapshots = (0..rng.random_range(0..3)).map(|_| rng.random_range(0..40_000));
        let snapshots = std::collections::BTreeSet::from_iter(snapshots);
        let (from, to) = (rng.random_range(0..space), rng.random_range(0..space));
        let (start, end) = (key(from.min(to), false), key(from.max(to) + 1, false));
        let deletes = match rng.random_ratio(1, 4) {
            true => vec![RangeDelete { start, end, sequence: rng.random_range(0..40_000) }],
            false => Vec::new(),
        };
        let mut cuts: Vec<_> = (0..rng.random_range(0..4)).map(|_| key(rng.random_range(0..space), false)).collect();
        cuts.sort();
        Self {
            whole,
            groups,
            runs,
            range_deletes: Arc::new(RangeDeleteSet::new(&deletes)),
            snapshots: snapshots.into_iter().collect(),
            cuts,
            is_base: rng.random(),
            is_watched: rng.random_ratio(1, 4),
        }
    }

    fn compact(&self, is_encoded: bool) -> Made {
        let options = CursorOptions { fill_cache: false, read_ahead: 4 << 10, ..CursorOptions::default() };
        let (schema, disk) = (self.whole.schema.clone(), MemoryDisk::new());
        let mut context = Context { schema: schema.clone(), disk: disk.clone(), created: 0, is_base: self.is_base };
        let mut told: Vec<Told> = self.groups.iter().map(|_| Told::default()).collect();
        let values = |files: &Vec<Arc<SstFile>>| RunCursor::new(files.clone(), options);
        let mut partitioner = AtKeys(self.cuts.clone());
        let output = if is_encoded {
            let source = |(group, files): &(Option<usize>, Vec<Arc<SstFile>>)| match group {
                Some(group) => {
                    let layout = self.groups[*group].layout.clone();
                    GroupCursor::Cells(EncodedCursor::new(files.clone(), options, layout))
                }
                None => GroupCursor::Values(values(files)),
            };
            let sources = self.runs.iter().map(source).collect();
            encoded_job::run_shaped(self.input(sources, &mut told), &mut partitioner, &mut context).unwrap()
        } else {
            let sources = self.runs.iter().map(|(_, files)| values(files)).collect();
            shaped_job::run(self.input(sources, &mut told), &mut partitioner, &mut context).unwrap()
        };
        let timeless = |summary: &SstSummary| SstSummary { timings: StageTimings::default(), ..summary.clone() };
        Made {
            files: (1..=context.created).map(|number| open(&disk, number)).collect(),
            summaries: output.files.iter().map(|(_, summary)| timeless(summary)).collect(),
            encoded: output.entries_encoded,
            told: told.into_iter().map(|told| told.0).collect(),
        }
    }

    fn input<'w, C>(&self, sources: Vec<C>, told: &'w mut [Told]) -> ShapedInput<'w, C> {
        let format = |table: &Table| match table.group.format {
            GroupFormat::Columnar => FragmentFormat::columnar(table.schema.clone(), table.group.columns.clone()),
            GroupFormat::Row(_) => FragmentFormat::packed(table.schema.clone(), table.group.columns.clone()),
        };
        let (whole, groups) = (format(&self.whole), self.groups.iter().map(format).collect::<Vec<_>>());
        let output = |(number, told): (usize, &'w mut Told)| {
            let feed = |of: &Option<usize>| match of {
                None => Some(whole.reshape(&groups[number]).unwrap()),
                Some(group) => (*group == number).then(|| groups[number].reshape(&groups[number]).unwrap()),
            };
            OutputGroup {
                group: Some(self.groups[number].group.clone()),
                making: Making::Reshaped {
                    feeds: self.runs.iter().map(|(of, _)| feed(of)).collect(),
                    combiner: groups[number].combiner(),
                },
                fragments: Some(self.groups[number].layout.clone()),
                watch: self.is_watched.then_some(told as &mut dyn Watch),
                range_deletes: self.range_deletes.clone(),
                are_oldest: self.is_base,
                writer: SstWriterOptions { block_size: self.whole.block_size, ..SstWriterOptions::default() },
            }
        };
        let parts: Vec<_> = groups.iter().map(Some).collect();
        let splitter = |of: &Option<usize>| if of.is_none() { whole.splitter(&parts) } else { None };
        ShapedInput {
            sources,
            splitters: self.runs.iter().map(|(of, _)| splitter(of)).collect(),
            outputs: told.iter_mut().enumerate().map(output).collect(),
            snapshots: self.snapshots.clone(),
            lower: None,
            upper: None,
        }
    }
}

#[test]
fn rows_that_meet_columns_make_the_same_files_whether_these_stay_encoded_or_not() {
    let (mut encoded, mut entries) = (0, 0);
    for seed in 0..400 {
        let case = Case::random(&mut SmallRng::seed_from_u64(seed));
        let (by_rows, made) = (case.compact(false), case.compact(true));
        // Lengths, fences, counts, and the checksum of all bytes.
        assert_eq!(made.summaries, by_rows.summaries, "seed {seed}");
        assert_eq!(made.told, by_rows.told, "seed {seed}");
        assert_eq!(by_rows.encoded, 0, "seed {seed}");
        for file in &made.files {
            file.verify(|_| ()).unwrap();
        }
        encoded += made.encoded;
        entries += made.summaries.iter().map(|summary| summary.entry_count).sum::<u64>();
    }
    assert!(encoded > entries / 8 && encoded < entries, "{encoded} of {entries} entries stayed encoded");
}

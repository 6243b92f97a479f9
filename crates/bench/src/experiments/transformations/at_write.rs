//! A rival that does the work of a transformation when a row is written, as an application over a store of bytes has to
//! (the paper's baselines of table 2).
//!
//! Its client is our own code, so that only where the work is done differs: it cuts a Protobuf row into its groups with
//! one walk over it, converts a row with the parser that reads it, and puts all that comes of a row with one write.
//! What belongs together lies together: keys of the groups, and of the index, begin with a byte that says of which.
//!
//! The index is read, too (Q4, Q5): an entry's key has the number and the row's key, so that a range of numbers is one
//! of entries, and a point one entry and one row.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_base::ColumnSet;
use mycelium_encoding::row_format::{Cuts, RowScratch, RowSplitter};
use mycelium_encoding::{DatumRef, FragmentFormat, Reshape};

use super::queries::Query;
use super::records::{COLUMNS, QUERIED, Records};
use super::stores::{RowStore, Transformed, numbers_from, sst_bytes_in, weigh_text, weigh_value};
use super::variants::Variant;
use crate::store::{KeyValueStore, Result};

/// Columns of a group.
const GROUP: usize = 4;
/// What the keys of rows begin with where there is an index.
const OF_ROWS: u8 = 0;
/// What the keys of its entries begin with; the number follows, and the row's key.
const OF_ENTRIES: u8 = 1;

/// What is done with a row.
enum Work {
    /// It is cut into groups of columns.
    Split(RowSplitter),
    /// It is packed, and taken apart into groups.
    SplitConvert(Reshape, Vec<Reshape>),
    /// It is packed.
    Convert(Reshape),
    /// It gets an entry in an index.
    Augment,
}

impl Work {
    fn of(variant: Variant, records: &Records) -> Result<Self> {
        let (schema, all) = (records.rows().schema(), (1..=COLUMNS).collect::<ColumnSet>());
        let groups = || (1..=COLUMNS).step_by(GROUP).map(|first| (first..first + GROUP).collect::<ColumnSet>());
        let stored = FragmentFormat::new(all.clone(), records.rows());
        let packed = FragmentFormat::packed(schema.clone(), all);
        Ok(match variant {
            Variant::Split => {
                let parts: Vec<Option<ColumnSet>> = groups().map(Some).collect();
                Self::Split(RowSplitter::new(records.rows(), &parts).ok_or("rows of this format cannot be cut")?)
            }
            Variant::SplitConvert => {
                let of_group = |columns| packed.reshape(&FragmentFormat::packed(schema.clone(), columns));
                Self::SplitConvert(
                    stored.reshape(&packed)?,
                    groups().map(of_group).collect::<mycelium_base::Result<_>>()?,
                )
            }
            Variant::Convert => Self::Convert(stored.reshape(&packed)?),
            Variant::Augment => Self::Augment,
            Variant::NoTransform | Variant::Identity => return Err("there is nothing to do at write".into()),
        })
    }
}

/// The rival's store, and what its client reuses from row to row.
pub(super) struct RivalAtWrite {
    store: Box<dyn KeyValueStore>,
    directory: PathBuf,
    records: Arc<Records>,
    record_count: u64,
    work: Work,
    scratch: RowScratch,
    cuts: Cuts,
    value: Vec<u8>,
    packed: Vec<u8>,
    /// The pairs of a row; more were used before.
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl RivalAtWrite {
    /// `store`, which is empty, and whose files are in `directory`.
    pub(super) fn new(
        store: Box<dyn KeyValueStore>,
        directory: &Path,
        variant: Variant,
        records: Arc<Records>,
        record_count: u64,
    ) -> Result<Self> {
        let work = Work::of(variant, &records)?;
        let pairs = vec![<(Vec<u8>, Vec<u8>)>::default(); COLUMNS / GROUP];
        let (scratch, cuts, value, packed) = Default::default();
        let directory = directory.to_path_buf();
        Ok(Self { store, directory, records, record_count, work, scratch, cuts, value, packed, pairs })
    }

    /// Makes the pairs of a row, whose stored form is in `value`; how many they are.
    fn make_pairs(&mut self, key: &str, row: &[DatumRef<'_>]) -> Result<usize> {
        let Self { work, scratch, cuts, value, packed, pairs, .. } = self;
        for (group, (place, value)) in pairs.iter_mut().enumerate() {
            place.clear();
            place.push(group as u8);
            place.extend_from_slice(key.as_bytes());
            value.clear();
        }
        match work {
            Work::Split(splitter) => {
                let cut = splitter.split(value, cuts)?.ok_or("a row that cannot be cut")?;
                for (group, (_, out)) in pairs.iter_mut().enumerate() {
                    cut.append(group, out);
                }
                Ok(pairs.len())
            }
            Work::SplitConvert(pack, of_groups) => {
                packed.clear();
                pack.apply(value, scratch, packed)?;
                for (of_group, (_, out)) in of_groups.iter().zip(pairs.iter_mut()) {
                    of_group.apply(packed, scratch, out)?;
                }
                Ok(pairs.len())
            }
            Work::Convert(pack) => {
                pack.apply(value, scratch, &mut pairs[0].1)?;
                Ok(1)
            }
            Work::Augment => {
                pairs[0].1.extend_from_slice(value);
                let DatumRef::UInt64(number) = row[QUERIED] else {
                    return Err("the indexed column has numbers".into());
                };
                pairs[0].0[0] = OF_ROWS;
                let entry = &mut pairs[1].0;
                entry.clear();
                entry.extend_from_slice(&entry_bound(number));
                entry.extend_from_slice(key.as_bytes());
                Ok(2)
            }
        }
    }

    /// The row whose number is that of record `index`.
    fn point_by_number(&mut self, index: u64) -> Result<u64> {
        let number = numbers_from(&self.records, index, 0, self.record_count)[0];
        let bounds = [number, number.saturating_add(1)].map(entry_bound);
        let mut keys = Vec::new();
        let mut visit = |entry: &[u8], _: &[u8]| keys.push([&[OF_ROWS], &entry[bounds[0].len()..]].concat());
        self.store.scan_range(&bounds[0], &bounds[1], &mut visit)?;
        let [key] = keys.as_slice() else {
            return Err(format!("{} rows have the number of record {index}", keys.len()).into());
        };
        if !self.store.get(key, &mut self.value)? {
            return Err(format!("record {index} is not there").into());
        }
        let weight = weigh_value(&self.records, &self.value, &mut self.scratch)?;
        Ok(weight.wrapping_add(weigh_text(std::str::from_utf8(&key[1..])?)))
    }

    /// The largest of the numbers of [`numbers_from`].
    fn maximum_by_number(&self, index: u64, rows: u64) -> Result<u64> {
        let bounds = numbers_from(&self.records, index, rows, self.record_count).map(entry_bound);
        let mut last = None;
        let mut visit = |entry: &[u8], _: &[u8]| last = entry[1..].first_chunk().copied();
        self.store.scan_range(&bounds[0], &bounds[1], &mut visit)?;
        Ok(last.map_or(0, u64::from_be_bytes))
    }
}

/// What comes before the entries of `number` and of those above it.
fn entry_bound(number: u64) -> [u8; 9] {
    let mut bound = [OF_ENTRIES; 9];
    bound[1..].copy_from_slice(&number.to_be_bytes());
    bound
}

impl RowStore for RivalAtWrite {
    fn insert(&mut self, index: u64) -> Result<()> {
        let records = self.records.clone();
        records.with_row(index, |key, row| {
            records.encode(row, &mut self.scratch, &mut self.value)?;
            let count = self.make_pairs(key, row)?;
            match &self.pairs[..count] {
                [(key, value)] => self.store.put(key, value),
                pairs => {
                    let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect();
                    self.store.put_batch(&pairs)
                }
            }
        })
    }

    fn settle(&mut self) -> Result<()> {
        self.store.settle()
    }

    fn answers(&self, query: Query) -> bool {
        matches!(self.work, Work::Augment) && query.is_by_index()
    }

    fn answer(&mut self, query: Query, index: u64, rows: u64) -> Result<u64> {
        match query {
            Query::IndexPoint => self.point_by_number(index),
            Query::IndexRange => self.maximum_by_number(index, rows),
            _ => Err("only its writes and its index are measured".into()),
        }
    }

    fn transformed(&self) -> Option<Transformed> {
        None
    }

    fn sst_bytes(&self) -> u64 {
        sst_bytes_in(&self.directory)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.store.close()
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::SourceFormat;
    use super::*;
    use crate::StoreFactory;
    use crate::store::StoreOptions;

    /// What a client over a store of bytes writes is what our compactions write: the same groups, in the same bytes.
    #[test]
    fn a_row_is_written_as_it_ends_up_in_our_table() {
        let cases = [
            (SourceFormat::Protobuf, Variant::Split, 8),
            (SourceFormat::Protobuf, Variant::SplitConvert, 8),
            (SourceFormat::Protobuf, Variant::Augment, 2),
            (SourceFormat::Json, Variant::Convert, 1),
        ];
        for (source, variant, pairs) in cases {
            let directory = tempfile::tempdir().expect("temporary directory");
            let store = crate::MyceliumFactory.open(directory.path(), &StoreOptions::default()).expect("a store");
            let records = Arc::new(Records::new(source).expect("records"));
            let mut rival = RivalAtWrite::new(store, directory.path(), variant, records.clone(), 10).expect("a rival");
            (0..10).for_each(|index| rival.insert(index).expect("a row"));
            let (mut found, mut bytes) = (0, 0);
            let mut visit = |_: &[u8], value: &[u8]| {
                found += 1;
                bytes += value.len();
            };
            rival.store.scan_all(&mut visit).expect("pairs");
            assert_eq!(found, 10 * pairs, "{variant:?}");
            let packed = matches!(variant, Variant::Convert | Variant::SplitConvert);
            // Numbers of eight bytes and texts of twenty-four, in equal parts, and what stands around them.
            let row = 16 * 8 + 16 * 24;
            let around = if packed { row..row + 200 } else { row + 48..row + 300 };
            assert!(around.contains(&(bytes / 10)), "{variant:?}: {} bytes a row", bytes / 10);
        }
    }
}

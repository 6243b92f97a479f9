//! A rival that does the work of a transformation when a row is written, as an application over a store of bytes has to
//! (the paper's baselines of table 2).
//!
//! Its client is our own code, so that only where the work is done differs: it cuts a Protobuf row into its groups with
//! one walk over it, converts a row with the parser that reads it, and puts all that comes of a row with one write.
//! What belongs together lies together: keys of the groups, and of the index, begin with a byte that says of which.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_base::ColumnSet;
use mycelium_encoding::row_format::{Cuts, RowScratch, RowSplitter};
use mycelium_encoding::{DatumRef, FragmentFormat, Reshape};

use super::queries::Query;
use super::records::{COLUMNS, QUERIED, Records};
use super::stores::{RowStore, Transformed, sst_bytes_in};
use super::variants::Variant;
use crate::store::{KeyValueStore, Result};

/// Columns of a group.
const GROUP: usize = 4;

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
    ) -> Result<Self> {
        let work = Work::of(variant, &records)?;
        let pairs = vec![<(Vec<u8>, Vec<u8>)>::default(); COLUMNS / GROUP];
        let (scratch, cuts, value, packed) = Default::default();
        Ok(Self { store, directory: directory.to_path_buf(), records, work, scratch, cuts, value, packed, pairs })
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
                let entry = &mut pairs[1].0;
                entry.truncate(1);
                entry.extend_from_slice(&number.to_be_bytes());
                entry.extend_from_slice(key.as_bytes());
                Ok(2)
            }
        }
    }
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

    fn answers(&self, _: Query) -> bool {
        false
    }

    fn answer(&mut self, _: Query, _: u64, _: u64) -> Result<u64> {
        Err("only its writes are measured".into())
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
            let mut rival = RivalAtWrite::new(store, directory.path(), variant, records.clone()).expect("a rival");
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

//! What a salvage tells.

use std::fmt;

use mycelium_base::{Error, SequenceNumber};
use mycelium_encoding::Schema;
use mycelium_encoding::key::key_text;
use mycelium_manifest::KeyRange;
use mycelium_manifest::text::KeyBytes;

use super::OlderVersions;
use super::files::every_key;
use crate::verify::Problem;

/// Entries of a table that could not be read.
#[derive(Debug)]
pub struct LostRange {
    /// The table.
    pub table: String,
    /// The columns concerned, where they lie in a column group of their own.
    pub columns: Option<String>,
    /// No lost entry has a key outside it.
    pub range: KeyRange,
    /// Its ends in words: of a typed table the key's values, with commas between; else the bytes, as `\xNN` where
    /// they do not print, which the command line reads. Both empty if it may be any key.
    pub keys: (String, String),
    /// No lost entry has a larger sequence number.
    pub up_to: SequenceNumber,
    /// How many entries were lost, of all versions. 0 where only range deletes are: then rows that one of them deleted
    /// would be there again; and where a whole file is that nobody can say anything of.
    pub entries: u64,
    /// What became of older versions of these keys.
    pub older: OlderVersions,
    /// What is wrong, with file and offset, what was expected and what was found.
    pub error: Error,
}

impl LostRange {
    /// Whether it may be any key: a file is lost of which nothing is known but that there was one.
    pub fn may_be_any_key(&self) -> bool {
        self.range == every_key()
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, range, keys: (first, last), up_to, entries, error, .. } = self;
        let end = if range.largest_exclusive { "to before" } else { "to" };
        write!(f, "table {table}")?;
        if let Some(columns) = &self.columns {
            write!(f, ", columns {columns}")?;
        }
        match entries {
            _ if self.may_be_any_key() => f.write_str(": a file of any keys")?,
            0 => write!(f, ": range deletes of keys from {first} {end} {last}")?,
            _ => write!(f, ": {entries} entries of keys from {first} {end} {last}")?,
        }
        write!(f, ", of sequence numbers up to {up_to}, ")?;
        match self.older {
            OlderVersions::LeaveOut => f.write_str("with all older ones; ")?,
            OlderVersions::Keep => f.write_str("older ones may have returned; ")?,
        }
        error.fmt(f)
    }
}

/// Bytes by which the end of a block may be cut at most and still be told as values.
const MOST_CUT: usize = 16;

/// A key in words, see [`LostRange::keys`]. Ends of blocks are cut keys: what is missing of them is taken for zeros,
/// and every key that lies before or behind the cut one lies before or behind that. Others are told as bytes.
pub(super) fn key_in_words(schema: Option<&Schema>, key: &[u8]) -> String {
    let mut whole = key.to_vec();
    whole.resize(key.len() + MOST_CUT, 0);
    let values = |schema| (key.len()..=whole.len()).find_map(|len| key_text(schema, &whole[..len]).ok());
    schema.and_then(values).unwrap_or_else(|| KeyBytes(key).to_string())
}

/// What was saved of a damaged database, and what was not.
#[derive(Default, Debug)]
pub struct SalvageReport {
    /// Tables, indexes included.
    pub tables: u64,
    /// SSTs that the manifest names, or others in its place, those that are gone included.
    pub files: u64,
    /// SSTs that were copied as they were.
    pub copied_files: u64,
    /// SSTs that were written anew.
    pub rewritten_files: u64,
    /// Bytes of the SSTs of the new database.
    pub bytes: u64,
    /// Entries in them.
    pub entries: u64,
    /// Range deletes in them.
    pub range_deletes: u64,
    /// Entries that could be read and were left out, since they are older than lost ones, or lack a column group.
    pub left_out: u64,
    /// Records of the log that were saved.
    pub log_records: u64,
    /// The newest sequence number of the new database.
    pub sequence: SequenceNumber,
    /// What was lost, by table.
    pub lost: Vec<LostRange>,
    /// Whether records of the log were lost: writes that had been acknowledged, from one moment on.
    pub lost_log: bool,
    /// Whether version edits were lost: the new database may be older than the damaged one was, as if what was flushed,
    /// merged or created since had not been.
    pub lost_edits: bool,
    /// Where edits were lost: SSTs that they may have named.
    pub unplaced_files: Vec<String>,
    /// SSTs that say they are of another database. They are left alone.
    pub foreign_files: Vec<String>,
    /// Indexes that are to be built again from the rows that were saved, as `table/index`.
    pub emptied_indexes: Vec<String>,
    /// Unique indexes that are not there any more and are to be created again, as `table/index`.
    pub dropped_indexes: Vec<String>,
    /// Where the log ends in a torn record that was never acknowledged, as a crash leaves it: no loss.
    pub torn_tail: Option<String>,
    /// All that is damaged or gone, whether it cost anything or not; of an SST the first fault.
    pub damage: Vec<Problem>,
}

impl SalvageReport {
    /// Whether nothing was lost: no row, and no index.
    pub fn is_complete(&self) -> bool {
        self.lost.is_empty() && !self.lost_log && !self.lost_edits && self.dropped_indexes.is_empty()
    }

    /// Whether something was lost, and nothing but the tables' definitions was saved.
    pub fn is_empty(&self) -> bool {
        !self.is_complete() && self.entries == 0 && self.range_deletes == 0 && self.log_records == 0
    }

    pub(super) fn note(&mut self, table: Option<&str>, error: Error) {
        self.damage.push(Problem { table: table.map(str::to_owned), error });
    }
}

#[cfg(test)]
mod tests {
    use mycelium_encoding::DatumRef;
    use mycelium_encoding::key::encode_key;

    use super::*;

    #[test]
    fn keys_and_ends_of_blocks_are_told_as_values_and_others_as_bytes() {
        let schema = Schema::parse("a utf8 not null, b int32 not null, primary key (a, b)").unwrap();
        let mut key = Vec::new();
        encode_key(&schema, &[DatumRef::Utf8("JFK"), DatumRef::Int32(513)], &mut key).unwrap();
        assert_eq!(key_in_words(Some(&schema), &key), "JFK,513");
        assert_eq!(key_in_words(Some(&schema), &key[..key.len() - 1]), "JFK,512");
        assert_eq!(key_in_words(Some(&schema), b"\xff\xff"), r"\xff\xff");
        assert_eq!(key_in_words(None, b"JFK\n"), r"JFK\x0a");
    }
}

//! What a file says about itself.
//!
//! ```text
//! repeated, ascending by tag:
//!   varint   tag
//!   varint   length
//!   bytes    varint number, raw bytes for the two fences, a column group (tag 12, left out for whole rows), offset and
//!            length as varints (tag 13, of columnar files only: the directory of their columns), nothing (tag 14: the
//!            filter has no keys, but prefixes of keys alone), which prefixes of keys the filter has (tag 133, left
//!            out where it has none: `encoding::KeyPrefixes`), the marks as a varint (tag 134, left out where they are
//!            not known), or nothing (tag 136: no two entries have one key)
//! ```
//!
//! A reader skips unknown tags from 128 on and refuses a file with an unknown tag below.
//!
//! The file's origin (tag 132) is there if whoever wrote the file says where it belongs. What it says is opaque here,
//! may be long, and is of use only where a manifest is lost: [`Properties`] skips it.

use std::sync::Arc;

use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{Error, ErrorKind, Group, MAX_SEQUENCE_NUMBER, Result, SequenceNumber};
use mycelium_encoding::KeyPrefixes;

use crate::footer::BlockHandle;

/// Counts, fences and settings of a file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Properties {
    /// Entries in data blocks (range deletes are not among them).
    pub entry_count: u64,
    /// `Delete` entries among them.
    pub delete_count: u64,
    /// Range deletes.
    pub range_delete_count: u64,
    /// Data blocks.
    pub block_count: u64,
    /// Bytes of keys, uncompressed.
    pub raw_key_bytes: u64,
    /// Bytes of values, uncompressed.
    pub raw_value_bytes: u64,
    /// The smallest sequence number stored, range deletes included.
    pub min_sequence: SequenceNumber,
    /// The largest.
    pub max_sequence: SequenceNumber,
    /// The lower fence: no key and no range delete starts before it.
    pub smallest: Vec<u8>,
    /// The upper fence.
    pub largest: Vec<u8>,
    /// Whether `largest` itself is outside: the (exclusive) end of a range delete is the fence.
    pub largest_exclusive: bool,
    /// The column group that the file holds; `None` is whole rows.
    pub group: Option<Arc<Group>>,
    /// The directory of the columns; of length 0 for a file of rows.
    pub columns: BlockHandle,
    /// Its statistics; of length 0 for a file of rows, and one that was written before there were any.
    pub statistics: BlockHandle,
    /// Bloom filter bits per key (0: no keys in the filter).
    pub filter_bits_per_key: u64,
    /// The prefixes of keys that the filter has, too.
    pub prefixes: Option<KeyPrefixes>,
    /// Whether the filter, if there is one, has these alone, and no keys.
    pub filter_lacks_keys: bool,
    /// The writer's block size, in bytes.
    pub block_size: u64,
    /// The writer's restart interval, in entries.
    pub restart_interval: u64,
    /// The writer's compression in words.
    pub compression: String,
    /// What the entries say something of, as a set of bits that mean what the writer wants them to; `None` if that is
    /// not known.
    pub marks: Option<u64>,
    /// Whether no two entries have the same key. Files that were written before this was noted say nothing, which is
    /// `false`.
    pub distinct_keys: bool,
}

const SMALLEST: u64 = 9;
const LARGEST: u64 = 10;
const GROUP: u64 = 12;
const COLUMNS: u64 = 13;
/// Who does not know it would take the filter for one of keys.
const FILTER_LACKS_KEYS: u64 = 14;
const COMPRESSION: u64 = 128;
const ORIGIN: u64 = 132;
const PREFIXES: u64 = 133;
const MARKS: u64 = 134;
const STATISTICS: u64 = 135;
const DISTINCT_KEYS: u64 = 136;

/// Those below 128 that a file may do without.
const OPTIONAL: [u64; 3] = [GROUP, COLUMNS, FILTER_LACKS_KEYS];

/// The origin in the payload of a file's properties.
pub(crate) fn origin_in(payload: &[u8]) -> Result<Option<&[u8]>> {
    let mut reader = Reader::new(payload);
    while !reader.is_empty() {
        let tag = reader.varint()?;
        let bytes = reader.bytes()?;
        if tag == ORIGIN {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

impl Properties {
    fn numbers(&mut self) -> [(u64, &mut u64); 11] {
        [
            (1, &mut self.entry_count),
            (2, &mut self.delete_count),
            (3, &mut self.range_delete_count),
            (4, &mut self.block_count),
            (5, &mut self.raw_key_bytes),
            (6, &mut self.raw_value_bytes),
            (7, &mut self.min_sequence),
            (8, &mut self.max_sequence),
            (129, &mut self.filter_bits_per_key),
            (130, &mut self.block_size),
            (131, &mut self.restart_interval),
        ]
    }

    /// The block's payload, without an origin.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_with_origin(&[])
    }

    /// The block's payload; without an origin if that is empty.
    pub(crate) fn encode_with_origin(&self, origin: &[u8]) -> Vec<u8> {
        let mut copy = self.clone();
        let mut fields: Vec<(u64, Vec<u8>)> = copy
            .numbers()
            .into_iter()
            .map(|(tag, number)| {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, *number);
                (tag, bytes)
            })
            .collect();
        fields.push((SMALLEST, self.smallest.clone()));
        fields.push((LARGEST, self.largest.clone()));
        fields.push((11, vec![u8::from(self.largest_exclusive)]));
        if let Some(group) = &self.group {
            let mut bytes = Vec::new();
            group.encode(&mut bytes);
            fields.push((GROUP, bytes));
        }
        for (tag, part) in [(COLUMNS, self.columns), (STATISTICS, self.statistics)] {
            if part.len > 0 {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, part.offset);
                put_varint(&mut bytes, part.len);
                fields.push((tag, bytes));
            }
        }
        for (tag, flag) in [(FILTER_LACKS_KEYS, self.filter_lacks_keys), (DISTINCT_KEYS, self.distinct_keys)] {
            if flag {
                fields.push((tag, Vec::new()));
            }
        }
        fields.push((COMPRESSION, self.compression.as_bytes().to_vec()));
        if !origin.is_empty() {
            fields.push((ORIGIN, origin.to_vec()));
        }
        if let Some(prefixes) = &self.prefixes {
            let mut bytes = Vec::new();
            prefixes.encode(&mut bytes);
            fields.push((PREFIXES, bytes));
        }
        if let Some(marks) = self.marks {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, marks);
            fields.push((MARKS, bytes));
        }
        fields.sort_unstable();
        let mut out = Vec::new();
        for (tag, bytes) in fields {
            put_varint(&mut out, tag);
            put_bytes(&mut out, &bytes);
        }
        out
    }

    /// Parses a payload. `ErrorKind::Unsupported` for an unknown tag below 128.
    pub fn parse(payload: &[u8]) -> Result<Self> {
        let mut properties = Self::default();
        let mut reader = Reader::new(payload);
        let (mut last_tag, mut required) = (0, 0);
        while !reader.is_empty() {
            let at = reader.position() as u64;
            let tag = reader.varint()?;
            if tag <= last_tag {
                return Err(Error::corruption("properties out of order").at(at).expected(last_tag + 1, tag));
            }
            last_tag = tag;
            required += u32::from(tag < COMPRESSION && !OPTIONAL.contains(&tag));
            let bytes = reader.bytes()?;
            properties.set(tag, bytes).map_err(|e| e.at(at))?;
        }
        if required != 11 {
            return Err(Error::corruption("properties missing").expected(11, required));
        }
        properties.check()?;
        Ok(properties)
    }

    fn set(&mut self, tag: u64, bytes: &[u8]) -> Result<()> {
        match tag {
            SMALLEST => self.smallest = bytes.to_vec(),
            LARGEST => self.largest = bytes.to_vec(),
            11 => match bytes {
                [flag @ (0 | 1)] => self.largest_exclusive = *flag == 1,
                _ => {
                    return Err(
                        Error::corruption("malformed property").expected("0 or 1", format_args!("{bytes:02x?}"))
                    );
                }
            },
            GROUP => {
                let mut reader = Reader::new(bytes);
                self.group = Some(Arc::new(Group::decode(&mut reader)?));
                reader.finish()?;
            }
            COLUMNS => self.columns = part_at(bytes)?,
            STATISTICS => self.statistics = part_at(bytes)?,
            FILTER_LACKS_KEYS => self.filter_lacks_keys = flag(bytes)?,
            DISTINCT_KEYS => self.distinct_keys = flag(bytes)?,
            PREFIXES => self.prefixes = Some(KeyPrefixes::decode(bytes)?),
            MARKS => {
                let mut reader = Reader::new(bytes);
                self.marks = Some(reader.varint()?);
                reader.finish()?;
            }
            COMPRESSION => self.compression = String::from_utf8_lossy(bytes).into_owned(),
            _ => match self.numbers().into_iter().find(|(known, _)| *known == tag) {
                Some((_, number)) => {
                    let mut reader = Reader::new(bytes);
                    *number = reader.varint()?;
                    reader.finish()?;
                }
                None if tag > COMPRESSION => {}
                None => {
                    return Err(Error::new(
                        ErrorKind::Unsupported,
                        format!("the SST needs an unknown property, tag {tag}"),
                    ));
                }
            },
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let fits = self.min_sequence <= self.max_sequence
            && self.max_sequence <= MAX_SEQUENCE_NUMBER
            && self.smallest <= self.largest
            && self.smallest.len() <= MAX_KEY_LEN
            && self.largest.len() <= MAX_KEY_LEN
            && self.delete_count <= self.entry_count
            && self.block_count <= self.entry_count
            && (self.prefixes.is_some() || !self.filter_lacks_keys)
            && (self.entry_count > 0 || self.range_delete_count > 0);
        if fits { Ok(()) } else { Err(Error::corruption("properties contradict each other")) }
    }
}

/// A property that says what it says by being there.
fn flag(bytes: &[u8]) -> Result<bool> {
    match bytes {
        [] => Ok(true),
        _ => Err(Error::corruption("malformed property").expected("no bytes", bytes.len())),
    }
}

fn part_at(bytes: &[u8]) -> Result<BlockHandle> {
    let mut reader = Reader::new(bytes);
    let part = BlockHandle { offset: reader.varint()?, len: reader.varint()? };
    reader.finish()?;
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_group_is_read_back_and_left_out_for_whole_rows() {
        let rows = Properties { entry_count: 1, ..Properties::default() };
        let bytes = rows.encode();
        assert_eq!(Properties::parse(&bytes).unwrap(), rows);
        let group = Some(Arc::new("0-3,7/json".parse().unwrap()));
        let grouped = Properties { group, marks: Some(u64::MAX), ..rows };
        assert_eq!(Properties::parse(&grouped.encode()).unwrap(), grouped);
        assert!(grouped.encode().len() > bytes.len());
    }

    #[test]
    fn that_keys_are_distinct_is_said_by_a_tag_without_bytes() {
        let silent = Properties { entry_count: 1, ..Properties::default() };
        let distinct = Properties { distinct_keys: true, ..silent.clone() };
        let payload = distinct.encode();
        assert_eq!(payload, [&silent.encode()[..], b"\x88\x01\0"].concat());
        assert_eq!(Properties::parse(&payload).unwrap(), distinct);
        let damaged = [&silent.encode()[..], b"\x88\x01\x01\x01"].concat();
        assert!(Properties::parse(&damaged).unwrap_err().is_corruption());
    }

    #[test]
    fn an_origin_is_read_back_and_skipped_by_who_does_not_ask() {
        let properties = Properties { entry_count: 1, ..Properties::default() };
        assert_eq!(origin_in(&properties.encode()).unwrap(), None);
        let mut payload = properties.encode_with_origin(b"table 3");
        assert!(payload.starts_with(&properties.encode()));
        assert_eq!(origin_in(&payload).unwrap(), Some(&b"table 3"[..]));
        assert_eq!(Properties::parse(&payload).unwrap(), properties);
        payload.pop();
        assert!(origin_in(&payload).is_err() && Properties::parse(&payload).is_err());
    }

    #[test]
    fn a_malformed_column_group_is_refused() {
        let group = Some(Arc::new("0-3/json".parse().unwrap()));
        let bytes = Properties { entry_count: 1, group, ..Properties::default() }.encode();
        let at = bytes.windows(3).position(|window| window == [12, 6, 2]).unwrap();
        for (offset, byte) in [(2, 99), (3, 200), (5, 0)] {
            let mut damaged = bytes.clone();
            damaged[at + offset] = byte;
            assert!(Properties::parse(&damaged).is_err(), "byte {offset} as {byte}");
        }
    }

    #[test]
    fn prefixes_stand_behind_the_origin_and_are_read_back() {
        let plain = Properties { entry_count: 1, ..Properties::default() };
        let prefixes = KeyPrefixes::of_bytes(3);
        let with_prefixes = Properties { prefixes, ..plain.clone() };
        let payload = with_prefixes.encode_with_origin(b"table 3");
        assert_eq!(origin_in(&payload).unwrap(), Some(&b"table 3"[..]));
        assert_eq!(Properties::parse(&payload).unwrap(), with_prefixes);
        let bytes = [&plain.encode_with_origin(b"table 3")[..], b"\x85\x01\x02\0\x03"].concat();
        assert_eq!(payload, bytes);
        let alone = Properties { filter_lacks_keys: true, ..with_prefixes.clone() };
        assert_eq!(Properties::parse(&alone.encode()).unwrap(), alone);
        assert_eq!(alone.encode().len(), with_prefixes.encode().len() + 2);
        let without_prefixes = plain.encode();
        let contradictory = Properties { filter_lacks_keys: true, ..plain };
        assert!(Properties::parse(&contradictory.encode()).unwrap_err().is_corruption());
        for damaged in [&b"\x85\x01\0"[..], b"\x85\x01\x02\x02\x03", b"\x85\x01\x01\0"] {
            let payload = [&without_prefixes[..], damaged].concat();
            assert!(Properties::parse(&payload).unwrap_err().is_corruption(), "{damaged:x?}");
        }
    }
}

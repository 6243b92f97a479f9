//! What a file says about itself.
//!
//! ```text
//! repeated, ascending by tag:
//!   varint   tag
//!   varint   length
//!   bytes    varint number, raw bytes for the two fences, a column group (tag 12, left out for whole rows), or offset and
//!            length as varints (tag 13, of columnar files only: the directory of their columns)
//! ```
//!
//! A reader skips unknown tags from 128 on and refuses a file with an unknown tag below.
//!
//! Behind all of that stands the file's origin (tag 132), if whoever wrote the file says where it belongs. What it says
//! is opaque here, may be long, and is of use only where a manifest is lost: [`Properties`] skips it.

use std::sync::Arc;

use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{Error, ErrorKind, Group, MAX_SEQUENCE_NUMBER, Result, SequenceNumber};

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
    /// Bloom filter bits per key (0: no filter).
    pub filter_bits_per_key: u64,
    /// The writer's block size, in bytes.
    pub block_size: u64,
    /// The writer's restart interval, in entries.
    pub restart_interval: u64,
    /// The writer's compression in words.
    pub compression: String,
}

const SMALLEST: u64 = 9;
const LARGEST: u64 = 10;
const GROUP: u64 = 12;
const COLUMNS: u64 = 13;
const COMPRESSION: u64 = 128;
/// Above all others, so that it can be appended to a payload.
const ORIGIN: u64 = 132;

/// Appends a file's origin to the payload of its properties; nothing if there is none.
pub(crate) fn append_origin(payload: &mut Vec<u8>, origin: &[u8]) {
    if !origin.is_empty() {
        put_varint(payload, ORIGIN);
        put_bytes(payload, origin);
    }
}

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

    /// The block's payload.
    pub fn encode(&self) -> Vec<u8> {
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
        if self.columns.len > 0 {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, self.columns.offset);
            put_varint(&mut bytes, self.columns.len);
            fields.push((COLUMNS, bytes));
        }
        fields.push((COMPRESSION, self.compression.as_bytes().to_vec()));
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
            required += u32::from(tag < COMPRESSION && tag != GROUP && tag != COLUMNS);
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
            COLUMNS => {
                let mut reader = Reader::new(bytes);
                self.columns = BlockHandle { offset: reader.varint()?, len: reader.varint()? };
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
            && (self.entry_count > 0 || self.range_delete_count > 0);
        if fits { Ok(()) } else { Err(Error::corruption("properties contradict each other")) }
    }
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
        let grouped = Properties { group, ..rows };
        assert_eq!(Properties::parse(&grouped.encode()).unwrap(), grouped);
        assert!(grouped.encode().len() > bytes.len());
    }

    #[test]
    fn an_origin_is_read_back_and_skipped_by_who_does_not_ask() {
        let properties = Properties { entry_count: 1, ..Properties::default() };
        let mut payload = properties.encode();
        assert_eq!(origin_in(&payload).unwrap(), None);
        append_origin(&mut payload, b"");
        assert_eq!(payload, properties.encode());
        append_origin(&mut payload, b"table 3");
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
}

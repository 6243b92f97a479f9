//! What the texts of one column of one file are written with, if not as they are: held by whoever reads pages of the
//! file.

use std::ops::Range;
use std::sync::Arc;

use mycelium_base::Result;

use super::{Dictionary, SymbolTable};

/// The dictionary or the symbol table of a column. Cheap to clone; immutable; thread-safe.
#[derive(Clone, Debug)]
pub enum TextCoding {
    /// Texts that come again: pages hold their codes.
    Dictionary(Dictionary),
    /// Texts that hardly do: pages hold codes of parts of them.
    SymbolTable(SymbolTable),
}

impl TextCoding {
    /// Parses `bytes[payload]` and checks all of it. O(bytes).
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where it is malformed.
    pub fn parse(bytes: Arc<[u8]>, payload: Range<usize>) -> Result<Self> {
        match bytes.get(payload.clone()) {
            Some(body) if SymbolTable::begins(body) => SymbolTable::parse(body).map(Self::SymbolTable),
            _ => Dictionary::parse(bytes, payload).map(Self::Dictionary),
        }
    }

    /// As [`TextCoding::parse`] of bytes that it accepted before, and whose [`TextCoding::longest`] is known; see
    /// [`Dictionary::parse_checked`]. O(1).
    ///
    /// # Errors
    /// As [`TextCoding::parse`], as far as it is noticed.
    pub fn parse_checked(bytes: Arc<[u8]>, payload: Range<usize>, longest: usize) -> Result<Self> {
        match bytes.get(payload.clone()) {
            Some(body) if SymbolTable::begins(body) => SymbolTable::parse(body).map(Self::SymbolTable),
            _ => Dictionary::parse_checked(bytes, payload, longest).map(Self::Dictionary),
        }
    }

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Dictionary(dictionary) => dictionary.encode(out),
            Self::SymbolTable(table) => table.encode(out),
        }
    }

    /// The dictionary, if it is one.
    pub fn dictionary(&self) -> Option<&Dictionary> {
        match self {
            Self::Dictionary(dictionary) => Some(dictionary),
            Self::SymbolTable(_) => None,
        }
    }

    /// Bytes of the longest text of a dictionary; 0 of a symbol table, which has none.
    pub fn longest(&self) -> usize {
        self.dictionary().map_or(0, Dictionary::longest)
    }

    /// Bytes in memory.
    pub fn memory_usage(&self) -> usize {
        match self {
            Self::Dictionary(dictionary) => dictionary.memory_usage(),
            Self::SymbolTable(table) => table.memory_usage(),
        }
    }
}

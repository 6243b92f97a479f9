//! The symbol table of one column of text or bytes in one file whose texts hardly come twice: each text is written as
//! codes of the strings of up to eight bytes that are frequent in the file (FSST: Boncz, Neumann, Leis, "FSST: Fast
//! Random Access String Compression", VLDB 2020).
//!
//! ```text
//! u32            0xffffffff, which is no number of values of a dictionary
//! u8             symbols, up to 255
//! u8 per symbol  its length, 1 to 8
//! bytes          of the symbols
//! ```
//!
//! 1. The table is trained on texts from all over the file ([`TextCompressor::train`]); whether it is worth it is told
//!    by what these texts would take.
//! 2. A text becomes codes: one byte for each symbol, and 255 and the byte itself for a byte that none begins with.
//! 3. Any text is found and expanded by itself, at eight bytes a code and store; others are not touched.
//!
//! Equal texts have equal codes, but codes do not compare as texts do: tests look at expanded texts, and blocks are
//! left out by their zones as those of plain texts are.

use std::sync::Arc;

use mycelium_base::coding::Reader;
use mycelium_base::{Error, Result};

/// What a payload begins with.
const MARK: u32 = u32::MAX;

/// The code before a byte that is written as it is.
const ESCAPE: u8 = u8::MAX;

/// Bytes that a code stands for, at most.
pub(super) const LONGEST_SYMBOL: usize = 8;
/// Codes for which room is made at once.
const CODES_AT_ONCE: usize = 1024;

/// Texts that a table is trained on and judged by, about so many bytes of them.
const SAMPLE_BYTES: usize = 64 << 10;

/// Fewer bytes of text than this are not worth a table, which takes up to 2 KiB.
const FEWEST_BYTES: usize = 16 << 10;

fn malformed(what: &str) -> Error {
    Error::corruption(format!("malformed symbol table: {what}"))
}

/// A symbol table. Cheap to clone; immutable; thread-safe.
#[derive(Clone, Debug)]
pub struct SymbolTable(Arc<Symbols>);

#[derive(Debug)]
struct Symbols {
    /// By code: the bytes, zeros behind them.
    bytes: [[u8; LONGEST_SYMBOL]; ESCAPE as usize],
    /// By code: the length, 0 where there is no such symbol.
    lens: [u8; ESCAPE as usize],
}

impl SymbolTable {
    /// Whether a payload is a symbol table, and not a dictionary.
    pub(super) fn begins(payload: &[u8]) -> bool {
        payload.starts_with(&MARK.to_le_bytes())
    }

    /// Parses a payload and checks all of it.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where it is malformed.
    pub fn parse(payload: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(payload);
        if reader.u32()? != MARK {
            return Err(malformed("its mark is missing"));
        }
        let count = usize::from(reader.u8()?);
        if count > usize::from(ESCAPE) {
            return Err(malformed("symbols").expected(ESCAPE, count));
        }
        let lens = reader.take(count)?.to_vec();
        let mut symbols = Vec::with_capacity(count);
        for &len in &lens {
            if len == 0 || usize::from(len) > LONGEST_SYMBOL {
                return Err(malformed("length of a symbol").expected("1 to 8", len));
            }
            symbols.push(reader.take(usize::from(len))?);
        }
        reader.finish()?;
        Ok(Self::of(symbols.into_iter()))
    }

    /// Of up to 255 symbols of one to eight bytes.
    fn of<'s>(symbols: impl Iterator<Item = &'s [u8]>) -> Self {
        let mut table = Symbols { bytes: [[0; _]; _], lens: [0; _] };
        for ((bytes, len), symbol) in table.bytes.iter_mut().zip(&mut table.lens).zip(symbols) {
            bytes[..symbol.len()].copy_from_slice(symbol);
            *len = symbol.len() as u8;
        }
        Self(Arc::new(table))
    }

    fn symbols(&self) -> impl Iterator<Item = &[u8]> {
        let Symbols { bytes, lens } = &*self.0;
        bytes.iter().zip(lens).take_while(|(_, len)| **len > 0).map(|(bytes, len)| &bytes[..usize::from(*len)])
    }

    /// Symbols.
    pub fn len(&self) -> usize {
        self.symbols().count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in memory.
    pub fn memory_usage(&self) -> usize {
        size_of::<Symbols>()
    }

    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MARK.to_le_bytes());
        out.push(self.len() as u8);
        out.extend(self.symbols().map(|symbol| symbol.len() as u8));
        self.symbols().for_each(|symbol| out.extend_from_slice(symbol));
    }

    /// Appends the text that is written as these codes. At most eight bytes for each; room is made for some at a time.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` for a code that there is not.
    pub(super) fn expand(&self, codes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let Symbols { bytes, lens } = &*self.0;
        let mut end = out.len();
        let mut codes = codes.iter();
        while let Some(&code) = codes.next() {
            // Every symbol is written as eight bytes, and the next one over what is behind it.
            if end + LONGEST_SYMBOL > out.len() {
                out.resize(end + (codes.len() + 1).min(CODES_AT_ONCE) * LONGEST_SYMBOL, 0);
            }
            let (symbol, len) = match (bytes.get(usize::from(code)), lens.get(usize::from(code))) {
                (Some(symbol), Some(&len)) if len > 0 => (*symbol, usize::from(len)),
                (None, _) => {
                    let &byte = codes.next().ok_or_else(|| malformed("a text that ends with an escape"))?;
                    ([byte, 0, 0, 0, 0, 0, 0, 0], 1)
                }
                _ => {
                    return Err(
                        malformed("a code without a symbol").expected(format_args!("below {}", self.len()), code)
                    );
                }
            };
            out[end..end + LONGEST_SYMBOL].copy_from_slice(&symbol);
            end += len;
        }
        out.truncate(end);
        Ok(())
    }
}

/// Writes texts as codes of a symbol table. Not shared between threads.
pub(super) struct TextCompressor {
    fsst: fsst::Compressor,
    table: SymbolTable,
}

impl std::fmt::Debug for TextCompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TextCompressor").field(&self.table).finish()
    }
}

impl TextCompressor {
    /// Trains a table on some of these texts, spread over all of them; `None` if they would not take at most two thirds
    /// of their bytes then, the table and where they end included. O([`SAMPLE_BYTES`]).
    pub(super) fn train<'t>(count: usize, bytes: usize, text: impl Fn(usize) -> &'t [u8]) -> Option<Self> {
        if bytes < FEWEST_BYTES {
            return None;
        }
        let share = bytes.div_ceil(SAMPLE_BYTES);
        let sample: Vec<&[u8]> = (0..count).step_by(share).map(text).collect();
        let fsst = fsst::Compressor::train(&sample);
        let symbols = fsst.symbol_table().iter().zip(fsst.symbol_lengths());
        let symbols: Vec<Vec<u8>> =
            symbols.map(|(symbol, &len)| symbol.to_u64().to_le_bytes()[..usize::from(len)].to_vec()).collect();
        let table = SymbolTable::of(symbols.iter().map(Vec::as_slice));
        let compressor = Self { fsst, table };
        let plain: usize = sample.iter().map(|text| text.len()).sum();
        let compressed: usize = sample.iter().map(|text| compressor.compress(text).len()).sum();
        let table_share: usize = symbols.iter().map(|symbol| 1 + symbol.len()).sum::<usize>() / share;
        let ends = sample.len();
        ((compressed + table_share + ends) * 3 <= (plain + ends) * 2).then_some(compressor)
    }

    pub(super) fn table(&self) -> &SymbolTable {
        &self.table
    }

    /// The codes of a text.
    pub(super) fn compress(&self, text: &[u8]) -> Vec<u8> {
        self.fsst.compress(text)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn trained(texts: &[Vec<u8>]) -> Option<TextCompressor> {
        TextCompressor::train(texts.len(), texts.iter().map(Vec::len).sum(), |at| texts[at].as_slice())
    }

    fn addresses() -> Vec<Vec<u8>> {
        (0..4000_u32).map(|n| format!("https://example.org/flights/{}/N{:05}", n % 37, n * 7919).into_bytes()).collect()
    }

    #[test]
    fn texts_come_back_as_they_were() {
        let mut texts = addresses();
        let mut random = SmallRng::seed_from_u64(7);
        let compressor = trained(&texts).expect("addresses are worth it");
        texts
            .extend((0..2000).map(|_| (0..random.random_range(0..40)).map(|_| random.random::<u8>() & 0x83).collect()));
        texts.extend([vec![], vec![0; 30], vec![255; 30], b"h".to_vec(), b"https\0\0\0".to_vec()]);
        let mut payload = Vec::new();
        compressor.table().encode(&mut payload);
        let table = SymbolTable::parse(&payload).unwrap();
        let mut out = b"before".to_vec();
        for text in &texts {
            out.truncate(6);
            table.expand(&compressor.compress(text), &mut out).unwrap();
            assert_eq!(out, [b"before", text.as_slice()].concat());
        }
    }

    #[test]
    fn random_bytes_are_not_worth_it() {
        let mut random = SmallRng::seed_from_u64(11);
        let texts: Vec<Vec<u8>> = (0..4000).map(|_| (0..32).map(|_| random.random()).collect()).collect();
        assert!(trained(&texts).is_none());
        assert!(trained(&[]).is_none());
        assert!(trained(&[vec![], vec![]]).is_none());
    }

    #[test]
    fn a_damaged_table_is_refused_or_harmless() {
        let texts = addresses();
        let compressor = trained(&texts).expect("addresses are worth it");
        let mut payload = Vec::new();
        compressor.table().encode(&mut payload);
        for len in 0..payload.len() {
            assert!(SymbolTable::parse(&payload[..len]).is_err(), "{len}");
        }
        let codes = compressor.compress(&texts[17]);
        for at in 0..payload.len() {
            let mut damaged = payload.clone();
            damaged[at] ^= 0x41;
            if let Ok(table) = SymbolTable::parse(&damaged) {
                let mut out = Vec::new();
                table.expand(&codes, &mut out).unwrap_or_default();
                assert!(out.len() <= codes.len() * LONGEST_SYMBOL);
            }
        }
        let mut out = Vec::new();
        assert!(compressor.table().expand(&[ESCAPE], &mut out).is_err());
    }
}

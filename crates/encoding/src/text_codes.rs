//! The texts of one column of a record batch as views or as a dictionary, which are gathered as codes.
//!
//! 1. A text that comes by itself is kept, and its row has its place among those kept: its *code*.
//! 2. A dictionary that has no more texts than rows want is kept whole, once a batch. The codes of its rows are those
//!    of their page, moved by where it begins: no text is looked at (LSM-OPD §4.2).
//! 3. In the end each text that was kept is checked to be UTF-8, once however many rows have it. Of views every row
//!    takes that of its code; of a dictionary rows keep their codes.

use std::sync::Arc;

use arrow_array::{ArrayRef, DictionaryArray, StringArray, StringViewArray, UInt32Array};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use mycelium_base::{Error, Result};

use crate::page::{Dictionary, Page, PageRows};

/// The code of rows without a text.
const NO_TEXT: u32 = u32::MAX;

/// Gathers the texts of the rows of a batch.
#[derive(Debug)]
pub(crate) struct TextCodes {
    /// Of the texts kept, and where each begins and the last ends.
    bytes: Vec<u8>,
    ends: Vec<i32>,
    /// Of every row.
    codes: Vec<u32>,
    /// Those that are kept whole, and the code of their first text.
    dictionaries: Vec<(Dictionary, u32)>,
}

impl TextCodes {
    /// With room for so many rows.
    pub(crate) fn with_capacity(rows: usize) -> Self {
        Self { bytes: Vec::new(), ends: vec![0], codes: Vec::with_capacity(rows), dictionaries: Vec::new() }
    }

    /// Rows.
    pub(crate) fn len(&self) -> usize {
        self.codes.len()
    }

    /// Bytes of the texts kept.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The codes of all rows, to be put into another order.
    pub(crate) fn codes_mut(&mut self) -> &mut Vec<u32> {
        &mut self.codes
    }

    /// Appends a row.
    #[inline]
    pub(crate) fn push(&mut self, text: Option<&[u8]>) -> Result<()> {
        let code = text.map_or(Ok(NO_TEXT), |text| self.keep(text))?;
        self.codes.push(code);
        Ok(())
    }

    /// Appends rows of a page, of null ones anything; `None` if it holds no texts.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where a text is malformed.
    pub(crate) fn append(
        &mut self,
        page: &Page<'_>,
        rows: &PageRows<'_>,
        scratch: &mut Vec<u32>,
    ) -> Result<Option<()>> {
        let Some((codes, dictionary)) = page.codes() else { return page.each_text(rows, |text| self.push(Some(text))) };
        let Some(first) = self.keep_all(dictionary, rows.len())? else {
            return page.each_text(rows, |text| self.push(Some(text)));
        };
        let (before, texts) = (self.codes.len(), dictionary.len() as u64);
        let moved = |code: i64| if (code as u64) < texts { first + code as u32 } else { NO_TEXT };
        rows.append(codes, scratch, &mut self.codes, moved);
        if self.codes[before..].contains(&NO_TEXT) {
            rows.try_each(|row| match codes.get(row) {
                code if (code as u64) < texts || page.is_null(row) => Ok(()),
                code => Err(page.no_such_code(code)),
            })?;
        }
        Ok(Some(()))
    }

    /// The code of a text, which is kept.
    #[inline]
    fn keep(&mut self, text: &[u8]) -> Result<u32> {
        let code = self.kept();
        self.bytes.extend_from_slice(text);
        self.ends.push(i32::try_from(self.bytes.len()).map_err(|_| too_much_text())?);
        Ok(code)
    }

    /// Texts kept.
    #[inline]
    fn kept(&self) -> u32 {
        self.ends.len() as u32 - 1
    }

    /// The code of the first text of a dictionary, if that is kept, or is now, for so many rows.
    fn keep_all(&mut self, dictionary: &Dictionary, rows: usize) -> Result<Option<u32>> {
        if let Some((_, first)) = self.dictionaries.iter().find(|(whole, _)| whole.is_same(dictionary)) {
            return Ok(Some(*first));
        }
        if dictionary.len() > rows {
            return Ok(None);
        }
        let first = self.kept();
        for code in 0..dictionary.len() as u32 {
            self.keep(dictionary.value(code).unwrap_or_default())?;
        }
        self.dictionaries.push((dictionary.clone(), first));
        Ok(Some(first))
    }

    /// The rows as views; `nulls` are null.
    pub(crate) fn finish_views(self, nulls: Option<NullBuffer>) -> std::result::Result<ArrayRef, ArrowError> {
        let (codes, texts) = self.finish(nulls)?;
        arrow_select::take::take(&StringViewArray::from(&texts), &codes, None)
    }

    /// The rows as codes of a dictionary; `nulls` are null.
    pub(crate) fn finish_dictionary(self, nulls: Option<NullBuffer>) -> std::result::Result<ArrayRef, ArrowError> {
        let (codes, texts) = self.finish(nulls)?;
        Ok(Arc::new(DictionaryArray::try_new(codes, Arc::new(texts))?))
    }

    /// The codes of the rows, of which `nulls` are null, and the texts that were kept.
    fn finish(self, nulls: Option<NullBuffer>) -> std::result::Result<(UInt32Array, StringArray), ArrowError> {
        let Self { bytes, ends, codes, .. } = self;
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        let texts = StringArray::try_new(offsets, Buffer::from_vec(bytes), None)?;
        Ok((UInt32Array::try_new(ScalarBuffer::from(codes), nulls)?, texts))
    }
}

/// The error of a batch whose texts, or binaries, of one column have no place in 31 bits any more.
#[cold]
pub(crate) fn too_much_text() -> Error {
    Error::invalid("a batch holds over 2 GiB of text in one column; finish it when it is full")
}

//! Folding patches of a typed table: each column comes from the newest value that has it.

use std::sync::Arc;

use mycelium_base::{Combiner, Error, Result};

use crate::packed::{PackedLayout, PackedRow, RawColumn, Shape, Source};

/// Folds packed patches onto packed rows without decoding the columns. Thread-safe; O(columns x operands).
#[derive(Debug)]
pub struct PatchCombiner {
    layout: Arc<PackedLayout>,
}

impl PatchCombiner {
    /// The combiner of a table.
    pub fn new(layout: Arc<PackedLayout>) -> Self {
        Self { layout }
    }

    /// Folds `values`, newest first.
    ///
    /// 1. Read the headers.
    /// 2. Per column, take the bytes of the first value that has it.
    /// 3. Write them as one packed value.
    fn fold(&self, values: &mut dyn Iterator<Item = &[u8]>, complete: bool) -> Result<Vec<u8>> {
        let layout = &*self.layout;
        let mut rows: Vec<PackedRow<'_>> = Vec::with_capacity(values.size_hint().0);
        for value in values {
            rows.push(layout.row(value)?);
        }
        let mut columns = Vec::with_capacity(layout.len());
        for index in 0..layout.len() {
            let mut newest = RawColumn::Absent;
            for row in &rows {
                newest = row.raw(index)?;
                if newest != RawColumn::Absent {
                    break;
                }
            }
            if complete && newest == RawColumn::Absent {
                return Err(Error::corruption(format!("a whole row lacks column \"{}\"", layout.name(index))));
            }
            columns.push(newest);
        }
        let mut out = Vec::new();
        layout.encode_source(&Fold { layout, columns: &columns }, &mut out)?;
        Ok(out)
    }
}

/// Columns to be written as one value of a layout, by physical index.
pub(crate) struct Fold<'a> {
    pub(crate) layout: &'a PackedLayout,
    pub(crate) columns: &'a [RawColumn<'a>],
}

impl Source for Fold<'_> {
    fn shape(&self, index: usize) -> Shape {
        match self.columns[index] {
            RawColumn::Absent => Shape::Absent,
            RawColumn::Null => Shape::Null,
            RawColumn::Value(bytes) => Shape::Value(if self.layout.is_variable(index) { bytes.len() } else { 0 }),
        }
    }

    fn write(&self, index: usize, out: &mut Vec<u8>) {
        if let RawColumn::Value(bytes) = self.columns[index] {
            out.extend_from_slice(bytes);
        }
    }
}

impl Combiner for PatchCombiner {
    fn apply(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        let Some(base) = base else { return Ok(None) };
        self.fold(&mut operands.iter().rev().copied().chain([base]), true).map(Some)
    }

    fn fuse(&self, _key: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        self.fold(&mut operands.iter().rev().copied(), false).map(Some)
    }

    fn name(&self) -> &str {
        "mycelium.patch"
    }
}

//! The values of column groups: how a group's values are written, and how values of one group become those of another.
//!
//! A *fragment* is what one entry says of one column group. [`Reshape`] is what a compaction does to every fragment
//! that moves to a level of another layout: the map functions of Mycelium's split and convert (§4.2.2, §4.2.3) in one
//! step.
//!
//! 1. Of the same columns in the same format it is copied.
//! 2. From packed to packed, the wanted slots and bytes are copied ([`Projection`]).
//! 3. Otherwise the wanted columns are located, and their pieces copied or converted ([`RowFormat::convert`]). Where a
//!    value goes to several groups in the format that it has, all are located at once ([`RowSplitter`]).
//!
//! Where a user's transformer maps values on their way down, fragments of data that it has not seen yet are *unmapped*
//! ([`FragmentFormat::unmapped`]): whoever takes them elsewhere maps them first, so that they read as if they had
//! passed it.
//!
//! Where a table got columns after fragments were written, these *lack* them ([`FragmentFormat::lacking()`]): what they
//! say of such a column is that it has its default, or null, in every whole row. Whoever takes them elsewhere fills
//! that in.
//!
//! Where a table has columns no more that fragments were written with, these have them in them still
//! ([`FragmentFormat::with_dropped`]), and nobody takes them out.
//!
//! Columnar files take fragments apart into columns and put them together again, packed; of them a reader gets
//! fragments of just the columns that it wants.
//!
//! Packed fragments hold the group's columns as if the table had no others; the other formats write a value of the
//! whole schema in which all other columns are absent.

use std::fmt;
use std::sync::Arc;

use mycelium_base::{ColumnSet, Combiner, Error, Result};

use crate::projection::Widening;
use crate::row_format::{RowFormat, RowFormatKind, RowScratch, RowSplitter};
use crate::{PackedLayout, PatchCombiner, Projection, Schema};

/// Makes a value of some columns and format into another of the same: what is left of a user's transformer for one
/// value. Equal values give equal values. Thread-safe.
pub trait ValueMap: Send + Sync + fmt::Debug {
    /// Appends what becomes of `value`, a whole row or a patch.
    ///
    /// # Errors
    /// Those of the transformer.
    fn map(&self, value: &[u8], out: &mut Vec<u8>) -> Result<()>;
}

/// How the fragments of one column group are written. Cheap to clone; thread-safe.
#[derive(Clone, Debug)]
pub struct FragmentFormat {
    columns: ColumnSet,
    /// Those of the columns that are in no fragment.
    lacking: ColumnSet,
    /// Others that are in fragments.
    dropped: ColumnSet,
    rows: RowFormat,
    /// What must yet be done to them.
    map: Option<Arc<dyn ValueMap>>,
    /// Whether they lie in columnar files.
    is_columnar: bool,
}

impl FragmentFormat {
    /// Fragments of `columns` in the table's format of this kind, which `rows` is.
    pub fn new(columns: ColumnSet, rows: &RowFormat) -> Self {
        let rows = match rows.kind() {
            RowFormatKind::Packed => RowFormat::packed_columns(rows.schema().clone(), &columns),
            _ => rows.clone(),
        };
        Self { columns, lacking: ColumnSet::new(), dropped: ColumnSet::new(), rows, map: None, is_columnar: false }
    }

    /// Packed fragments of `columns`.
    pub fn packed(schema: Arc<Schema>, columns: ColumnSet) -> Self {
        let rows = RowFormat::packed_columns(schema, &columns);
        Self { columns, lacking: ColumnSet::new(), dropped: ColumnSet::new(), rows, map: None, is_columnar: false }
    }

    /// Fragments of `columns` in columnar files, which give them packed.
    pub fn columnar(schema: Arc<Schema>, columns: ColumnSet) -> Self {
        Self { is_columnar: true, ..Self::packed(schema, columns) }
    }

    /// Fragments that were written so before the table had the columns of `lacking`, which belong to them too: with
    /// their defaults, or null, in every whole row, in no patch. These must be packed.
    #[must_use]
    pub fn lacking(self, lacking: &ColumnSet) -> Self {
        Self { columns: self.columns.union(lacking), lacking: self.lacking.union(lacking), ..self }
    }

    /// The same fragments, of which the table has the columns of `dropped` no more.
    #[must_use]
    pub fn with_dropped(self, dropped: &ColumnSet) -> Self {
        Self { columns: self.columns.difference(dropped), dropped: self.dropped.union(dropped), ..self }
    }

    /// The same fragments, of which only the columns that are in `columns` too are read.
    #[must_use]
    pub fn narrowed(&self, columns: &ColumnSet) -> Self {
        let (columns, lacking) = (self.columns.intersection(columns), self.lacking.intersection(columns));
        Self { columns, lacking, ..self.clone() }
    }

    /// Whether they lie in columnar files.
    pub fn is_columnar(&self) -> bool {
        self.is_columnar
    }

    /// The same fragments before `map` is done to them.
    #[must_use]
    pub fn unmapped(self, map: Arc<dyn ValueMap>) -> Self {
        Self { map: Some(map), ..self }
    }

    /// The columns that they settle: those that are in them, and those that they lack.
    pub fn columns(&self) -> &ColumnSet {
        &self.columns
    }

    /// The columns that are in them, but for those that the table has no more.
    pub fn held(&self) -> ColumnSet {
        self.columns.difference(&self.lacking)
    }

    /// Columns that are in them and that the table has no more.
    pub fn dropped(&self) -> &ColumnSet {
        &self.dropped
    }

    /// Whether they lack one of `columns`.
    pub fn lacks(&self, columns: &ColumnSet) -> bool {
        self.lacking.overlaps(columns)
    }

    /// Which row format it is.
    pub fn kind(&self) -> RowFormatKind {
        self.rows.kind()
    }

    /// The format of the values.
    pub fn rows(&self) -> &RowFormat {
        &self.rows
    }

    /// The layout of the fragments, if they are packed.
    pub fn packed_layout(&self) -> Option<&Arc<PackedLayout>> {
        (self.rows.kind() == RowFormatKind::Packed).then(|| self.rows.layout())
    }

    /// The format of the values, if nothing must be done to them before they are read.
    pub fn plain_rows(&self) -> Option<&RowFormat> {
        Some(&self.rows).filter(|_| self.map.is_none())
    }

    /// The layout of the fragments, if they are packed, and nothing must be done to them before they are read.
    pub fn plain_layout(&self) -> Option<&Arc<PackedLayout>> {
        self.packed_layout().filter(|_| self.map.is_none())
    }

    /// Whether both write the same columns in the same way into files of the same kind, and nothing must be done to one
    /// that was done to the other.
    pub fn is_same(&self, other: &Self) -> bool {
        self.is_columnar == other.is_columnar && self.has_same_values(other)
    }

    fn has_same_values(&self, other: &Self) -> bool {
        let have_same_map = match (&self.map, &other.map) {
            (None, None) => true,
            (Some(a), Some(b)) => std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b)),
            _ => false,
        };
        let have_same_layout = match (self.packed_layout(), other.packed_layout()) {
            (Some(a), Some(b)) => a.is_same(b),
            _ => true,
        };
        let have_same_columns = self.columns == other.columns && self.lacking == other.lacking;
        have_same_map && have_same_layout && have_same_columns && self.rows.kind() == other.rows.kind()
    }

    /// What folds the patches of such fragments.
    pub fn combiner(&self) -> Arc<dyn Combiner> {
        match self.packed_layout() {
            Some(layout) => Arc::new(PatchCombiner::new(layout.clone())),
            None => Arc::new(OverlayCombiner { rows: self.rows.clone() }),
        }
    }

    /// The way from fragments of this format to those of `to`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) if `to` has a column that these lack.
    pub fn reshape(&self, to: &Self) -> Result<Reshape> {
        if self.has_same_values(to) {
            return Ok(Reshape(Step::Copy));
        }
        if let Some(map) = &self.map {
            let then = Self { map: None, ..self.clone() }.reshape(to)?;
            return Ok(Reshape(Step::Map { map: map.clone(), then: Box::new(then) }));
        }
        let lacking = to.columns.difference(&self.columns);
        if !lacking.is_empty() {
            return Err(Error::invalid(format!("fragments of {} have no columns {lacking}", self.columns)));
        }
        if self.lacks(&to.columns) {
            return self.widen(to);
        }
        Ok(Reshape(match (self.packed_layout(), to.packed_layout()) {
            (Some(from), Some(to)) => Step::Project(Projection::new(from.clone(), to.clone())?),
            _ => Step::Convert { from: self.rows.clone(), to: to.rows.clone(), columns: to.columns.clone() },
        }))
    }

    /// Takes fragments of this format apart into those of `outputs` at once, as far as they are written in it too;
    /// others are left to [`FragmentFormat::reshape`], as are those that are `None`. `None` if none is.
    pub fn splitter(&self, outputs: &[Option<&FragmentFormat>]) -> Option<RowSplitter> {
        let part = |to: &Option<&Self>| {
            let to = (*to)?;
            let is_part = to.columns.is_subset(&self.columns) && self.rows.is_same(&to.rows) && to.map.is_none();
            (is_part && !self.has_same_values(to)).then(|| to.columns.clone())
        };
        let parts: Vec<_> = outputs.iter().map(part).collect();
        let has_parts = self.map.is_none() && parts.iter().any(Option::is_some);
        if has_parts { RowSplitter::new(&self.rows, &parts) } else { None }
    }

    /// As [`FragmentFormat::reshape`], to columns of which these lack some.
    fn widen(&self, to: &Self) -> Result<Reshape> {
        let packed = Self::packed(self.rows.schema().clone(), to.columns.clone());
        let (Some(from), Some(wide)) = (self.packed_layout(), packed.packed_layout()) else {
            return Err(Error::invalid(format!("{} rows lack no columns", self.kind())));
        };
        let widening = Widening::new(from.clone(), wide.clone());
        Ok(Reshape(Step::Widen { widening, then: Box::new(packed.reshape(to)?) }))
    }
}

/// Makes fragments of one format into those of another. Thread-safe.
///
/// ```
/// use std::sync::Arc;
/// use mycelium_base::ColumnSet;
/// use mycelium_encoding::row_format::{Covers, RowFormat, RowScratch};
/// use mycelium_encoding::{DatumRef, FragmentFormat, Schema};
///
/// let schema = Arc::new(Schema::parse("id int64 not null, name utf8, score float64, primary key (id)")?);
/// let json = RowFormat::json(schema.clone());
/// let whole = FragmentFormat::new(ColumnSet::from_iter([1, 2]), &json);
/// let score = FragmentFormat::packed(schema, ColumnSet::from_iter([2]));
///
/// let (mut scratch, mut row, mut fragment) = (RowScratch::default(), Vec::new(), Vec::new());
/// json.store(br#"{"name": "spore", "score": 0.5}"#, Covers::Row, &ColumnSet::new(), &mut scratch, &mut row)?;
/// assert!(whole.reshape(&score)?.apply(&row, &mut scratch, &mut fragment)?);
/// assert_eq!(score.packed_layout().unwrap().row(&fragment)?.datum(2)?, Some(DatumRef::Float64(0.5)));
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Debug)]
pub struct Reshape(Step);

#[derive(Debug)]
enum Step {
    Copy,
    Project(Projection),
    Convert { from: RowFormat, to: RowFormat, columns: ColumnSet },
    Map { map: Arc<dyn ValueMap>, then: Box<Reshape> },
    Widen { widening: Widening, then: Box<Reshape> },
}

impl Reshape {
    /// Whether fragments stay as they are.
    pub fn is_copy(&self) -> bool {
        matches!(self.0, Step::Copy)
    }

    /// Appends the new fragment to `out`. `false` if `value` is a patch of other columns only: then there is none.
    /// Columns that it lacks are absent from it.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) for a malformed value.
    pub fn apply(&self, value: &[u8], scratch: &mut RowScratch, out: &mut Vec<u8>) -> Result<bool> {
        self.make(false, value, scratch, out)
    }

    /// As [`Reshape::apply`], of a whole row: columns that it lacks have their defaults, or null.
    ///
    /// # Errors
    /// As [`Reshape::apply`].
    pub fn apply_row(&self, row: &[u8], scratch: &mut RowScratch, out: &mut Vec<u8>) -> Result<bool> {
        self.make(true, row, scratch, out)
    }

    fn make(&self, is_row: bool, value: &[u8], scratch: &mut RowScratch, out: &mut Vec<u8>) -> Result<bool> {
        match &self.0 {
            Step::Copy => {
                out.extend_from_slice(value);
                Ok(true)
            }
            Step::Project(projection) => projection.project(value, out),
            Step::Convert { from, to, columns } => {
                let start = out.len();
                let says_something = from.convert(to, value, Some(columns), scratch, out)? || columns.is_empty();
                if !says_something {
                    out.truncate(start);
                }
                Ok(says_something)
            }
            Step::Map { map, then } => {
                let mut mapped = scratch.take_mapped();
                let result = map.map(value, &mut mapped).and_then(|()| then.make(is_row, &mapped, scratch, out));
                scratch.give_mapped(mapped);
                result
            }
            Step::Widen { widening, then } if then.is_copy() => widening.widen(value, is_row, out),
            Step::Widen { widening, then } => {
                let mut wide = Vec::new();
                Ok(widening.widen(value, is_row, &mut wide)? && then.make(is_row, &wide, scratch, out)?)
            }
        }
    }
}

/// Folds patches in a row format with a frame.
struct OverlayCombiner {
    rows: RowFormat,
}

impl OverlayCombiner {
    /// The values, oldest first, laid one over the other.
    fn lay(&self, values: &mut dyn Iterator<Item = &[u8]>) -> Result<Vec<u8>> {
        let mut scratch = RowScratch::default();
        let mut folded: Option<Vec<u8>> = None;
        for value in values {
            folded = Some(match folded {
                None => value.to_vec(),
                Some(older) => {
                    let mut out = Vec::with_capacity(older.len() + value.len());
                    self.rows.overlay(value, &older, &mut scratch, &mut out)?;
                    out
                }
            });
        }
        Ok(folded.unwrap_or_default())
    }
}

impl Combiner for OverlayCombiner {
    fn apply(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        let Some(base) = base else { return Ok(None) };
        self.lay(&mut std::iter::once(base).chain(operands.iter().copied())).map(Some)
    }

    fn fuse(&self, _key: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        self.lay(&mut operands.iter().copied()).map(Some)
    }

    fn name(&self) -> &str {
        "mycelium.patch"
    }
}

//! The kinds of table that histories use: their keys, values, and how patches and merge operands fold.
//!
//! The folds here are written apart from the engine's: a patch is unpacked into plain cells and packed again, and merge
//! operands are appended in order, which any misordering or double application changes.

use std::fmt;
use std::sync::{Arc, LazyLock};

use mycelium_base::{Combiner, Result};
use mycelium_encoding::{Column, ColumnState, ColumnType, Datum, DatumRef, PackedLayout, Schema, key};
use rand::Rng;
use rand::rngs::SmallRng;

/// The row after applying patches (oldest first) to a base.
pub type PatchFold = Arc<dyn Fn(&[u8], &[&[u8]]) -> Vec<u8> + Send + Sync>;
/// The row, if there is one, after applying merge operands (oldest first) to a base, if there is one.
pub type MergeFold = Arc<dyn Fn(Option<&[u8]>, &[&[u8]]) -> Option<Vec<u8>> + Send + Sync>;

/// How a table's incremental entries fold, and what changes of its columns do to its rows.
#[derive(Clone, Default)]
pub struct TableRules {
    /// `None`: the table takes no patches.
    pub patch: Option<PatchFold>,
    /// `None`: the table takes no merge operands.
    pub merge: Option<MergeFold>,
    /// `None`: the table has the columns that it was created with.
    pub growth: Option<Growth>,
    /// `None`: its rows have no time, and do not expire.
    pub time: Option<RowTime>,
}

/// Where the time of a row is, by which it may expire: nanoseconds from 1970 on.
#[derive(Clone, Copy, Debug)]
pub enum RowTime {
    /// In its key, which begins with it.
    OfKey(fn(&[u8]) -> i64),
    /// In its value.
    OfValue(fn(&[u8]) -> i64),
}

/// Changes of a table's columns: some come, some go. Values that are written, and those that fold, are packed with all
/// columns that there ever are.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// How many changes there are.
    pub changes: usize,
    /// A row or patch as it is written after so many of them: without the columns that are not there.
    pub write: fn(&[u8], usize) -> Vec<u8>,
    /// A row as it is read after so many of them, packed as by a table that has these columns and no others: those that
    /// it was written without have their defaults, or null.
    pub read: fn(&[u8], usize) -> Vec<u8>,
}

/// A change of a table's columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ColumnChange {
    /// This one comes, behind the others.
    Add(Column),
    /// That at this position goes.
    Drop(usize),
}

impl fmt::Debug for TableRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableRules")
            .field("patch", &self.patch.is_some())
            .field("merge", &self.merge.is_some())
            .field("growth", &self.growth.is_some())
            .field("time", &self.time)
            .finish()
    }
}

/// A kind of table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableKind {
    /// Puts and deletes.
    KeyValue,
    /// Puts, deletes and merge operands of [`AppendOperator`], under the name `append`.
    Merging,
    /// As `Merging`, with an operator that cannot fuse operands, under the name `append-apart`.
    MergingApart,
    /// Puts, deletes and merge operands of [`RemovingOperator`], some of which remove the row.
    Removing,
    /// As `Removing`, with an operator that cannot fuse operands.
    RemovingApart,
    /// Packed rows of [`TYPED_SCHEMA`], with patches.
    Typed,
    /// As `Typed`, created without the three columns that come later, of which one goes again. Histories write rows and
    /// patches of all columns, and what there is no column for is left out.
    Growing,
    /// Packed rows of [`KEYS_SCHEMA`], which have no columns outside the key; patches change nothing.
    KeysAlone,
    /// Rows of the format raw ([`RAW_SCHEMA`]): their one column is opaque, and there are no patches.
    Raw,
    /// As `Typed`, with keys that are numbers ([`NUMBERED_SCHEMA`]), all of one length. Values lie as those of `Typed`.
    Numbered,
    /// As `Typed`, with keys of a number and bytes ([`PAIRED_SCHEMA`]), many of which have the same number.
    Paired,
}

/// The schema of [`TableKind::Typed`]: one column of every width, and two of variable length.
pub const TYPED_SCHEMA: &str = "k binary not null, flag bool, small int16, count int64 not null, amount decimal(20, 4), \
     name utf8, blob binary, primary key (k)";

/// The schema of [`TableKind::Numbered`]: that of `Typed`, but for the type of the key.
pub const NUMBERED_SCHEMA: &str = "k int64 not null, flag bool, small int16, count int64 not null, \
     amount decimal(20, 4), name utf8, blob binary, primary key (k)";

/// The schema of [`TableKind::Paired`]: that of `Typed` with another key, whose second column is behind the others.
pub const PAIRED_SCHEMA: &str = "k int64 not null, flag bool, small int16, count int64 not null, \
     amount decimal(20, 4), name utf8, blob binary, part binary not null, primary key (k, part)";

/// The schema of [`TableKind::KeysAlone`].
pub const KEYS_SCHEMA: &str = "k binary not null, primary key (k)";

/// The schema of [`TableKind::Raw`].
pub const RAW_SCHEMA: &str = "k binary not null, value binary, primary key (k)";

/// The position of `count` in [`TYPED_SCHEMA`].
const COUNT: usize = 3;

static TYPED_LAYOUT: LazyLock<PackedLayout> = LazyLock::new(|| layout_of(TYPED_SCHEMA));
static KEYS_LAYOUT: LazyLock<PackedLayout> = LazyLock::new(|| layout_of(KEYS_SCHEMA));
static RAW_LAYOUT: LazyLock<PackedLayout> = LazyLock::new(|| layout_of(RAW_SCHEMA));
static NUMBERED_LAYOUT: LazyLock<PackedLayout> = LazyLock::new(|| layout_of(NUMBERED_SCHEMA));
static PAIRED_LAYOUT: LazyLock<PackedLayout> = LazyLock::new(|| layout_of(PAIRED_SCHEMA));

/// The columns that tables of [`TableKind::Growing`] get later, in this order: rows from before have null, a text and a
/// truth in them.
static LATER_COLUMNS: LazyLock<[Column; 3]> = LazyLock::new(|| {
    [
        Column::new("score", ColumnType::Int64),
        Column::new("note", ColumnType::Utf8).with_default(Datum::Utf8("later".to_owned())),
        Column::new("seen", ColumnType::Bool).not_null().with_default(Datum::Bool(true)),
    ]
});
/// What becomes of the columns of such tables: the first that came later goes before the last comes.
static CHANGES: LazyLock<[ColumnChange; 4]> = LazyLock::new(|| {
    let [score, note, seen] = LATER_COLUMNS.clone();
    let first = TYPED_LAYOUT.schema().columns().len();
    [ColumnChange::Add(score), ColumnChange::Add(note), ColumnChange::Drop(first), ColumnChange::Add(seen)]
});
/// How rows of such tables are packed, by the number of changes.
static GROWING_LAYOUTS: LazyLock<Vec<PackedLayout>> = LazyLock::new(|| layouts_after(CHANGES.iter()));
/// How rows with all columns that there ever are are packed.
static GROWN_LAYOUT: LazyLock<PackedLayout> = LazyLock::new(|| {
    let added = CHANGES.iter().filter(|change| matches!(change, ColumnChange::Add(_)));
    match layouts_after(added).pop() {
        Some(layout) => layout,
        None => unreachable!("there is one before the first change"),
    }
});

/// The layouts of a table before and after each of these changes.
fn layouts_after<'c>(changes: impl Iterator<Item = &'c ColumnChange>) -> Vec<PackedLayout> {
    let mut schemas = vec![TYPED_LAYOUT.schema().clone()];
    for change in changes {
        let before = &schemas[schemas.len() - 1];
        let after = match change {
            ColumnChange::Add(column) => before.with_column(column.clone()),
            ColumnChange::Drop(column) => before.without_column(&before.columns()[*column].name),
        };
        match after {
            Ok(schema) => schemas.push(Arc::new(schema)),
            Err(error) => unreachable!("the changes are constants: {error}"),
        }
    }
    schemas.into_iter().map(PackedLayout::new).collect()
}

/// How many changes a table of [`TableKind::Growing`] with these columns has gone through.
pub fn changes_of(schema: &Schema) -> usize {
    let shape = |schema: &Schema| (schema.columns().len(), schema.live_columns().count());
    GROWING_LAYOUTS.iter().position(|layout| shape(layout.schema()) == shape(schema)).unwrap_or(0)
}

fn layout_of(schema: &str) -> PackedLayout {
    match Schema::parse(schema) {
        Ok(schema) => PackedLayout::new(Arc::new(schema)),
        Err(error) => unreachable!("the schema is a constant: {error}"),
    }
}

impl TableKind {
    /// The rules of the model for such a table.
    pub fn rules(self) -> TableRules {
        match self {
            Self::KeyValue | Self::Raw => TableRules::default(),
            Self::Merging | Self::MergingApart => TableRules { merge: Some(Arc::new(append)), ..TableRules::default() },
            Self::Removing | Self::RemovingApart => {
                TableRules { merge: Some(Arc::new(append_or_remove)), ..TableRules::default() }
            }
            Self::Typed => {
                let time = Some(RowTime::OfValue(time_of_typed));
                TableRules { patch: Some(Arc::new(fold_typed)), time, ..TableRules::default() }
            }
            Self::Numbered | Self::Paired => {
                let time = Some(RowTime::OfKey(time_of_key));
                TableRules { patch: Some(Arc::new(fold_typed)), time, ..TableRules::default() }
            }
            Self::Growing => {
                let growth = Growth { changes: CHANGES.len(), write: without_missing, read: with_defaults };
                let time = Some(RowTime::OfValue(time_of_grown));
                TableRules { patch: Some(Arc::new(fold_grown)), growth: Some(growth), time, ..TableRules::default() }
            }
            Self::KeysAlone => TableRules { patch: Some(Arc::new(fold_nothing)), ..TableRules::default() },
        }
    }

    /// The merge operator the engine needs for such a table.
    pub fn merge_operator(self) -> Option<Arc<dyn Combiner>> {
        match self {
            Self::Merging => Some(Arc::new(AppendOperator { fuses: true })),
            Self::MergingApart => Some(Arc::new(AppendOperator { fuses: false })),
            Self::Removing => Some(Arc::new(RemovingOperator { fuses: true })),
            Self::RemovingApart => Some(Arc::new(RemovingOperator { fuses: false })),
            Self::KeyValue
            | Self::Typed
            | Self::Growing
            | Self::KeysAlone
            | Self::Raw
            | Self::Numbered
            | Self::Paired => None,
        }
    }

    /// How rows of a typed table are packed, of the columns that it is created with.
    fn layout(self) -> Option<&'static PackedLayout> {
        match self {
            Self::Typed | Self::Growing => Some(&*TYPED_LAYOUT),
            Self::KeysAlone => Some(&*KEYS_LAYOUT),
            Self::Raw => Some(&*RAW_LAYOUT),
            Self::Numbered => Some(&*NUMBERED_LAYOUT),
            Self::Paired => Some(&*PAIRED_LAYOUT),
            _ => None,
        }
    }

    /// Whether it is a typed table.
    pub fn is_typed(self) -> bool {
        self.layout().is_some()
    }

    /// Whether its rows can be patched.
    pub fn takes_patches(self) -> bool {
        self.is_typed() && self != Self::Raw
    }

    /// Whether all of its columns outside the key are one that nobody names.
    pub(crate) fn is_of_one_group(self) -> bool {
        matches!(self, Self::KeysAlone | Self::Raw)
    }

    /// Whether it is a table of which configurations name columns: those of [`TYPED_SCHEMA`].
    pub fn has_columns(self) -> bool {
        matches!(self, Self::Typed | Self::Growing | Self::Numbered | Self::Paired)
    }

    /// The position of a column by the name that it has when the table gets it,
    /// whether or not it is there yet or still.
    pub(crate) fn position_of(self, name: &str) -> Option<usize> {
        let layout = if self == Self::Growing { &*GROWN_LAYOUT } else { self.layout()? };
        layout.schema().index_of(name)
    }

    /// The schema that a typed table is created with.
    pub fn schema(self) -> Option<Arc<Schema>> {
        self.layout().map(|layout| layout.schema().clone())
    }

    /// The position of the column by which rows of such a table may expire, as nanoseconds from 1970 on: `count`, or
    /// the number that keys begin with.
    pub fn time_column(self) -> Option<usize> {
        match self {
            Self::Typed | Self::Growing => Some(COUNT),
            Self::Numbered | Self::Paired => Some(0),
            _ => None,
        }
    }

    /// What becomes of the columns next after so many changes, if anything does.
    pub fn next_change(self, changes: usize) -> Option<ColumnChange> {
        CHANGES.get(changes).filter(|_| self == Self::Growing).cloned()
    }

    /// A row or patch of a history as it is put into a table after so many changes of its columns.
    pub fn fitted(self, value: &[u8], changes: usize) -> Vec<u8> {
        if self != Self::Growing {
            return value.to_vec();
        }
        let layout = &GROWING_LAYOUTS[changes];
        pack(layout, &unpack(&GROWN_LAYOUT, value)[..layout.schema().columns().len()])
    }

    /// The key of such a table for a byte string; keeps order and prefixes apart from each other, but where it has a
    /// number: that of the last eight bytes, or one of a few before the bytes.
    pub fn key(self, bytes: &[u8]) -> Vec<u8> {
        let Some(layout) = self.layout() else { return bytes.to_vec() };
        let mut out = Vec::with_capacity(bytes.len() + 2);
        let values = match self {
            Self::Numbered => vec![DatumRef::Int64(number_of(bytes))],
            Self::Paired => vec![DatumRef::Int64(number_of(bytes) % 3), DatumRef::Binary(bytes)],
            _ => vec![DatumRef::Binary(bytes)],
        };
        match key::encode_key(layout.schema(), &values, &mut out) {
            Ok(()) => out,
            Err(error) => unreachable!("keys are short: {error}"),
        }
    }

    /// A random whole row of about `len` bytes.
    pub fn random_row(self, rng: &mut SmallRng, len: usize) -> Vec<u8> {
        match self {
            Self::Typed | Self::Numbered | Self::Paired => random_cells(rng, len, 0.0),
            Self::Growing => random_grown_cells(rng, len, 0.0),
            Self::KeysAlone => pack(&KEYS_LAYOUT, &[ColumnState::Absent]),
            Self::Raw if rng.random_bool(0.15) => pack(&RAW_LAYOUT, &[ColumnState::Absent, ColumnState::Null]),
            Self::Raw => {
                let value = random_bytes(rng, len);
                pack(&RAW_LAYOUT, &[ColumnState::Absent, ColumnState::Value(DatumRef::Binary(&value))])
            }
            _ => random_bytes(rng, len),
        }
    }

    /// A random patch (of a typed table) or merge operand of about `len` bytes.
    pub fn random_increment(self, rng: &mut SmallRng, len: usize) -> Vec<u8> {
        match self {
            Self::Typed | Self::Numbered | Self::Paired => random_cells(rng, len, 0.6),
            Self::Growing => random_grown_cells(rng, len, 0.6),
            Self::KeysAlone => pack(&KEYS_LAYOUT, &[ColumnState::Absent]),
            Self::Removing | Self::RemovingApart => {
                let mut operand = vec![*pick(rng, &[APPEND, APPEND, REPLACE, REMOVE])];
                if operand[0] != REMOVE {
                    operand.extend(random_bytes(rng, len));
                }
                operand
            }
            _ => random_bytes(rng, len),
        }
    }

    /// The same row or patch, of which half of the cells are at the edges of their types, of zones or of widths of
    /// integers.
    pub fn at_edges(self, rng: &mut SmallRng, value: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Typed | Self::Numbered | Self::Paired => cells_at_edges(rng, &TYPED_LAYOUT, &value),
            Self::Growing => cells_at_edges(rng, &GROWN_LAYOUT, &value),
            _ => value,
        }
    }
}

/// The number that the last eight bytes are, of fewer with zeros before them.
fn number_of(bytes: &[u8]) -> i64 {
    let last = &bytes[bytes.len().saturating_sub(8)..];
    let mut code = [0; 8];
    code[8 - last.len()..].copy_from_slice(last);
    i64::from_be_bytes(code)
}

/// The number that the key of a row begins with.
///
/// # Panics
/// On a key without one.
pub(crate) fn time_of_key(key: &[u8]) -> i64 {
    match key.first_chunk() {
        Some(code) => i64::from_be_bytes(*code) ^ i64::MIN,
        None => panic!("a key of {} bytes begins with no number", key.len()),
    }
}

fn time_of_typed(row: &[u8]) -> i64 {
    time_in(&TYPED_LAYOUT, row)
}

fn time_of_grown(row: &[u8]) -> i64 {
    time_in(&GROWN_LAYOUT, row)
}

/// # Panics
/// On a row without a `count`.
fn time_in(layout: &PackedLayout, row: &[u8]) -> i64 {
    match unpack(layout, row)[COUNT] {
        ColumnState::Value(DatumRef::Int64(count)) => count,
        ref other => panic!("every row has a count, not {other:?}"),
    }
}

/// Half compressible: a random head, then one repeated byte.
fn random_bytes(rng: &mut SmallRng, len: usize) -> Vec<u8> {
    let head = len.div_ceil(2);
    let mut bytes: Vec<u8> = (0..head).map(|_| rng.random()).collect();
    bytes.resize(len, rng.random());
    bytes
}

fn random_cells(rng: &mut SmallRng, len: usize, absent: f64) -> Vec<u8> {
    let blob = random_bytes(rng, len);
    let name: String = (0..rng.random_range(0..10)).map(|_| *pick(rng, &['\0', 'a', 'z', 'é'])).collect();
    let values = [
        DatumRef::Null,
        DatumRef::Bool(rng.random()),
        DatumRef::Int16(*pick(rng, &[i16::MIN, -1, 0, 7, i16::MAX])),
        DatumRef::Int64(rng.random()),
        DatumRef::Decimal128(i128::from(rng.random::<i64>())),
        DatumRef::Utf8(&name),
        DatumRef::Binary(&blob),
    ];
    let mut cells = Vec::with_capacity(values.len());
    for (column, value) in TYPED_LAYOUT.schema().columns().iter().zip(values) {
        let null = column.nullable && rng.random_bool(0.15);
        cells.push(if rng.random_bool(absent) {
            ColumnState::Absent
        } else if null {
            ColumnState::Null
        } else {
            ColumnState::Value(value)
        });
    }
    pack(&TYPED_LAYOUT, &cells)
}

/// The same with cells of all columns that come later.
fn random_grown_cells(rng: &mut SmallRng, len: usize, absent: f64) -> Vec<u8> {
    let value = random_cells(rng, len, absent);
    let mut cells = unpack(&TYPED_LAYOUT, &value);
    let note = *pick(rng, &["", "\0", "later", "much later"]);
    let values = [DatumRef::Int64(rng.random()), DatumRef::Utf8(note), DatumRef::Bool(rng.random())];
    for (column, later) in LATER_COLUMNS.iter().zip(values) {
        cells.push(match rng.random_bool(absent) {
            true => ColumnState::Absent,
            false if column.nullable && rng.random_bool(0.15) => ColumnState::Null,
            false => ColumnState::Value(later),
        });
    }
    pack(&GROWN_LAYOUT, &cells)
}

/// # Panics
/// On a value that is not packed so.
fn cells_at_edges(rng: &mut SmallRng, layout: &PackedLayout, value: &[u8]) -> Vec<u8> {
    let most = 10_i128.pow(20) - 1;
    let (low, high) = (i128::from(i64::MIN), i128::from(i64::MAX));
    // Zones keep 64 bytes.
    let shared = format!("{}{}", "é".repeat(40), rng.random_range(0..3));
    let greatest = "\u{10FFFF}".repeat(rng.random_range(15..19));
    let ones = vec![0xFF_u8; rng.random_range(62..70)];
    let name = *pick(rng, &["", "\0", shared.as_str(), greatest.as_str()]);
    let blob = *pick(rng, &[&b""[..], b"\0", ones.as_slice()]);
    let edges = [
        DatumRef::Null,
        DatumRef::Bool(rng.random()),
        DatumRef::Int16(*pick(rng, &[i16::MIN, i16::MAX, 0])),
        DatumRef::Int64(*pick(rng, &[i64::MIN, i64::MAX, -1, 0, 1, 255, 256, 65_535, 65_536, 1 << 32])),
        DatumRef::Decimal128(*pick(rng, &[-most, most, 0, low, low - 1, high, high + 1])),
        DatumRef::Utf8(name),
        DatumRef::Binary(blob),
    ];
    let mut cells = unpack(layout, value);
    for (cell, edge) in cells.iter_mut().zip(edges) {
        if matches!(cell, ColumnState::Value(_)) && rng.random_bool(0.5) {
            *cell = ColumnState::Value(edge);
        }
    }
    pack(layout, &cells)
}

pub(crate) fn pick<'a, T>(rng: &mut SmallRng, choices: &'a [T]) -> &'a T {
    &choices[rng.random_range(0..choices.len())]
}

fn pack(layout: &PackedLayout, cells: &[ColumnState<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    match layout.encode_patch(cells, &mut out) {
        Ok(()) => out,
        Err(error) => unreachable!("the cells fit the schema: {error}"),
    }
}

/// The cells of a value, by column; those of the primary key and of columns that were dropped are absent.
///
/// # Panics
/// On a value that is not packed so.
fn unpack<'v>(layout: &'v PackedLayout, value: &'v [u8]) -> Vec<ColumnState<'v>> {
    let schema = layout.schema();
    let cells = layout.row(value).and_then(|row| {
        let cell = |column: usize| match schema.is_primary_key(column) || !schema.has_column(column) {
            true => Ok(ColumnState::Absent),
            false => row.get(column),
        };
        (0..schema.columns().len()).map(cell).collect()
    });
    match cells {
        Ok(cells) => cells,
        Err(error) => panic!("not a packed row: {error}"),
    }
}

fn without_missing(value: &[u8], changes: usize) -> Vec<u8> {
    let schema = GROWING_LAYOUTS[changes].schema();
    let mut cells = unpack(&GROWN_LAYOUT, value);
    for (_, cell) in cells.iter_mut().enumerate().filter(|(column, _)| !schema.has_column(*column)) {
        *cell = ColumnState::Absent;
    }
    pack(&GROWN_LAYOUT, &cells)
}

fn with_defaults(row: &[u8], changes: usize) -> Vec<u8> {
    let columns = GROWING_LAYOUTS[changes].schema().columns();
    let mut cells = unpack(&GROWN_LAYOUT, row);
    cells.truncate(columns.len());
    for (cell, column) in cells.iter_mut().zip(columns).filter(|(cell, _)| matches!(cell, ColumnState::Absent)) {
        *cell = column.default_value().into();
    }
    pack(&GROWING_LAYOUTS[changes], &cells)
}

fn append(base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
    let mut row = base.unwrap_or_default().to_vec();
    for operand in operands {
        row.extend_from_slice(operand);
    }
    Some(row)
}

/// Does what each operand says, one by one.
fn append_or_remove(base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
    let mut row = base.map(<[u8]>::to_vec);
    for operand in operands {
        let Some((&what, rest)) = operand.split_first() else { continue };
        if what == REMOVE {
            row = None;
        } else if what == REPLACE {
            row = Some(rest.to_vec());
        } else {
            row.get_or_insert_default().extend_from_slice(rest);
        }
    }
    row
}

/// Of a row of keys alone there is nothing to change.
fn fold_nothing(base: &[u8], _patches: &[&[u8]]) -> Vec<u8> {
    base.to_vec()
}

fn fold_typed(base: &[u8], patches: &[&[u8]]) -> Vec<u8> {
    fold_cells(&TYPED_LAYOUT, base, patches)
}

fn fold_grown(base: &[u8], patches: &[&[u8]]) -> Vec<u8> {
    fold_cells(&GROWN_LAYOUT, base, patches)
}

/// Overwrites cells in order, oldest patch first.
///
/// # Panics
/// On values that are not packed so.
fn fold_cells(layout: &PackedLayout, base: &[u8], patches: &[&[u8]]) -> Vec<u8> {
    let mut cells = unpack(layout, base);
    for patch in patches {
        for (cell, state) in cells.iter_mut().zip(unpack(layout, patch)) {
            if !matches!(state, ColumnState::Absent) {
                *cell = state;
            }
        }
    }
    pack(layout, &cells)
}

/// A merge operator that appends operands to the row, so that order and multiplicity show.
#[derive(Clone, Copy, Debug)]
pub struct AppendOperator {
    /// Whether operands may be fused into one.
    pub fuses: bool,
}

impl Combiner for AppendOperator {
    fn apply(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        Ok(Some([base.unwrap_or_default(), &operands.concat()].concat()))
    }

    fn fuse(&self, _key: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        Ok(self.fuses.then(|| operands.concat()))
    }

    fn name(&self) -> &str {
        if self.fuses { "append" } else { "append-apart" }
    }
}

/// The first byte of an operand of [`RemovingOperator`]: the rest is appended, to nothing if there is no row.
const APPEND: u8 = 0;
/// The rest is the row, whatever it was before.
const REPLACE: u8 = 1;
/// There is no row any more; nothing follows.
const REMOVE: u8 = 2;

/// A merge operator that appends to the row, replaces or removes it, as the first byte of each operand says.
#[derive(Clone, Copy, Debug)]
pub struct RemovingOperator {
    /// Whether operands may be fused into one.
    pub fuses: bool,
}

impl RemovingOperator {
    /// The one operand that all of them come to.
    fn together(operands: &[&[u8]]) -> Vec<u8> {
        let mut all = vec![APPEND];
        for operand in operands {
            match operand.split_first() {
                Some((&APPEND, rest)) => {
                    // What is appended to a row that was removed is all of it.
                    if all[0] == REMOVE {
                        all[0] = REPLACE;
                    }
                    all.extend_from_slice(rest);
                }
                Some(_) => all = operand.to_vec(),
                None => {}
            }
        }
        all
    }
}

impl Combiner for RemovingOperator {
    fn apply(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        let all = Self::together(operands);
        Ok(match (all[0], base) {
            (REMOVE, _) => None,
            (APPEND, Some(base)) => Some([base, &all[1..]].concat()),
            _ => Some(all[1..].to_vec()),
        })
    }

    fn fuse(&self, _key: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        Ok(self.fuses.then(|| Self::together(operands)))
    }

    fn name(&self) -> &str {
        if self.fuses { "append-or-remove" } else { "append-or-remove-apart" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycelium_encoding::PatchCombiner;
    use rand::SeedableRng;

    #[test]
    fn the_independent_fold_agrees_with_the_combiner() {
        let combiner = PatchCombiner::new(Arc::new(PackedLayout::new(TYPED_LAYOUT.schema().clone())));
        for seed in 0..300 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let base = TableKind::Typed.random_row(&mut rng, 20);
            let patches: Vec<Vec<u8>> =
                (0..1 + seed % 4).map(|_| TableKind::Typed.random_increment(&mut rng, 300)).collect();
            let patches: Vec<&[u8]> = patches.iter().map(Vec::as_slice).collect();
            let folded = combiner.apply(b"", Some(&base), &patches).unwrap().unwrap();
            assert_eq!(folded, fold_typed(&base, &patches), "seed {seed}");
        }
    }

    #[test]
    fn cells_at_edges_leave_alone_what_is_null_and_what_a_patch_lacks() {
        let mut changed = 0;
        for seed in 0..100 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let patch = TableKind::Typed.random_increment(&mut rng, 20);
            let at_edges = TableKind::Typed.at_edges(&mut rng, patch.clone());
            let (before, after) = (TYPED_LAYOUT.row(&patch).unwrap(), TYPED_LAYOUT.row(&at_edges).unwrap());
            for column in 1..TYPED_LAYOUT.schema().columns().len() {
                let (before, after) = (before.get(column).unwrap(), after.get(column).unwrap());
                assert_eq!(std::mem::discriminant(&before), std::mem::discriminant(&after), "seed {seed}");
                changed += usize::from(before != after);
            }
        }
        assert!(changed > 50, "{changed}");
    }

    #[test]
    fn what_there_is_no_column_for_is_left_out_and_its_default_once_there_is() {
        let growth = TableKind::Growing.rules().growth.unwrap();
        let mut rng = SmallRng::seed_from_u64(1);
        for _ in 0..100 {
            let row = TableKind::Growing.random_row(&mut rng, 20);
            let cells = unpack(&GROWN_LAYOUT, &row);
            for written in 0..=growth.changes {
                let kept = (growth.write)(&row, written);
                assert_eq!((growth.read)(&kept, written), TableKind::Growing.fitted(&row, written));
                let before = GROWING_LAYOUTS[written].schema();
                assert_eq!(changes_of(before), written);
                for now in written..=growth.changes {
                    let read = (growth.read)(&kept, now);
                    let found = unpack(&GROWING_LAYOUTS[now], &read);
                    let after = GROWING_LAYOUTS[now].schema();
                    for column in after.value_columns().iter() {
                        let default = after.columns()[column].default_value().into();
                        let expected = if before.has_column(column) { cells[column] } else { default };
                        assert_eq!(
                            found[column], expected,
                            "column {column}, written after {written}, read after {now}"
                        );
                    }
                }
            }
        }
        assert_eq!(TableKind::Growing.next_change(2), Some(ColumnChange::Drop(7)));
        assert_eq!((TableKind::Growing.next_change(4), TableKind::Typed.next_change(0)), (None, None));
    }

    /// However operands are grouped, and also where they are fused, they come to what the model says, one by one.
    #[test]
    fn operands_that_remove_may_be_grouped_as_one_likes() {
        let operator = RemovingOperator { fuses: true };
        for seed in 0..300 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let base = TableKind::Removing.random_row(&mut rng, 3);
            let base = rng.random_bool(0.5).then_some(base.as_slice());
            let operands: Vec<Vec<u8>> = (0..6).map(|_| TableKind::Removing.random_increment(&mut rng, 3)).collect();
            let operands: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
            let expected = append_or_remove(base, &operands);
            assert_eq!(operator.apply(b"", base, &operands).unwrap(), expected, "seed {seed}");
            let (older, newer) = operands.split_at(rng.random_range(2..5));
            let row = operator.apply(b"", base, older).unwrap();
            assert_eq!(operator.apply(b"", row.as_deref(), newer).unwrap(), expected, "seed {seed}");
            let fused = operator.fuse(b"", older).unwrap().unwrap();
            let rest: Vec<&[u8]> = std::iter::once(fused.as_slice()).chain(newer.iter().copied()).collect();
            assert_eq!(operator.apply(b"", base, &rest).unwrap(), expected, "seed {seed}");
        }
    }

    #[test]
    fn keys_with_numbers_are_of_rows_as_typed_tables_have_them() {
        let texts = [&b""[..], b"a", b"tenant/00000001/orders/000007", &[0xff; 8]];
        assert!(texts.iter().all(|bytes| TableKind::Numbered.key(bytes).len() == 8));
        assert_eq!((number_of(b""), number_of(&[1, 2]), number_of(&[0xff; 9])), (0, 258, -1));
        for seed in 0..20 {
            let mut rng = SmallRng::seed_from_u64(seed);
            for (kind, layout) in [(TableKind::Numbered, &*NUMBERED_LAYOUT), (TableKind::Paired, &*PAIRED_LAYOUT)] {
                let row = kind.random_row(&mut rng, 20);
                let cells = unpack(layout, &row);
                assert_eq!(pack(layout, &cells), row, "seed {seed}");
                assert_eq!(cells[..TYPED_LAYOUT.schema().columns().len()], unpack(&TYPED_LAYOUT, &row), "seed {seed}");
            }
        }
    }

    #[test]
    fn rows_have_the_time_that_they_were_written_with() {
        for number in [i64::MIN, -1, 0, 7, i64::MAX] {
            let key = TableKind::Numbered.key(&number.to_be_bytes());
            assert_eq!(time_of_key(&key), number);
            assert_eq!(time_of_key(&TableKind::Paired.key(&number.to_be_bytes())), number % 3);
        }
        for seed in 0..20 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (row, grown) = (TableKind::Typed.random_row(&mut rng, 9), TableKind::Growing.random_row(&mut rng, 9));
            for (layout, row, time) in
                [(&*TYPED_LAYOUT, &row, time_of_typed(&row)), (&*GROWN_LAYOUT, &grown, time_of_grown(&grown))]
            {
                let count = layout.schema().index_of("count").unwrap();
                assert_eq!(unpack(layout, row)[count], ColumnState::Value(DatumRef::Int64(time)), "seed {seed}");
            }
        }
    }

    #[test]
    fn typed_keys_keep_order() {
        let keys: [&[u8]; 6] = [b"", b"\0", b"\0\xff", b"a", b"a\0", b"b"];
        let typed: Vec<Vec<u8>> = keys.iter().map(|key| TableKind::Typed.key(key)).collect();
        assert!(typed.is_sorted());
    }
}

//! Row formats: the columns outside the primary key of a row, or some of them, as the bytes a user writes and reads.
//!
//! A table takes rows in one format; a level of its tree may store them in another; whoever reads gets either the
//! user's format again, or typed values, or Arrow by way of `packed`. Three byte strings must be told apart:
//!
//! ```text
//! payload   what a user gives and gets: a JSON object, a Protobuf message, a FlatBuffers table, any bytes, a packed row
//! value     what is stored: a payload behind its frame (frame.rs), or a packed row, which needs none
//! piece     one column of a payload as its format writes it (span.rs)
//! ```
//!
//! | from \ to | how |
//! |---|---|
//! | payload to value | [`RowFormat::store`]: checks everything, keeps the payload's bytes |
//! | value to payload | [`RowFormat::to_user`] |
//! | value to typed values | [`RowFormat::read`]: finds the wanted columns, decodes each when asked for |
//! | typed values to value | [`RowFormat::encode_with`] |
//! | value to a value with some columns | [`RowFormat::project`] |
//! | value to values of all column groups | [`RowSplitter`]: the inner loop of the split transformer |
//! | value to a value in another format | [`RowFormat::convert`]: the inner loop of the convert transformer |
//! | patch over an older value | [`RowFormat::overlay`] |
//!
//! The transformers are Mycelium's m-routines (section 4.2.2 Split, 4.2.3 Convert). All of them run in the same steps:
//!
//! 1. *Locate*: one walk over the payload finds where the wanted columns stand. Nothing is decoded.
//! 2. Only if the format changes: decode each piece to a value and encode it as a piece of the other format.
//! 3. *Emit*: write the pieces behind a new frame.
//!
//! Rules that hold for all formats; each format's header has its own for unknown and duplicate fields and for numbers:
//!
//! - A payload holds no columns of the primary key; the key is given beside it.
//! - *Absent, null and default* are three things. Where a format cannot say which one is meant, the caller does
//!   ([`Covers`], and a set of nulls), and the frame keeps it.
//! - A whole row has every column. One that is missing from the payload is its field's default if the format leaves
//!   defaults out, else null, else (the column may not be null) the payload is refused.
//! - What is refused is an [`ErrorKind::InvalidArgument`] whose offset is the byte of the payload where the fault was
//!   found (a packed payload is refused without one), and nothing else was done. What is malformed in storage is an
//!   [`ErrorKind::Corruption`] that gives the byte in its message.
//!
//! Guarantees: no panic on any bytes; with a reused [`RowScratch`] and room in `out`, `project`, `overlay` and
//! `convert` allocate nothing per row but for dates, timestamps, decimals and long integers of floats that are read
//! from text. `out` is appended to, and left as it was on an error.

mod codec;
mod definition;
mod descriptor;
mod flat_buffers;
mod frame;
mod json;
mod json_members;
mod json_text;
mod number;
mod packed_form;
mod protobuf;
mod protobuf_wire;
mod raw;
mod read;
mod rewrite;
mod span;
mod split;
mod store;

use std::fmt;
use std::sync::Arc;

#[cfg(doc)]
use mycelium_base::ErrorKind;
pub use mycelium_base::RowFormatKind;
use mycelium_base::limits::MAX_VALUE_LEN;
use mycelium_base::{ColumnSet, Columns, Error, Result};

use self::codec::Codec;
pub(crate) use self::codec::Plain;
pub use self::definition::RowFormatDefinition;
use self::flat_buffers::FlatBuffers;
use self::frame::{Frame, FrameShape};
use self::json::Json;
use self::protobuf::Protobuf;
use self::raw::Raw;
pub use self::read::RowColumns;
use self::span::{Fault, Piece, Pieces, Scan, Span};
pub use self::split::{Cuts, RowSplitter, SplitRow};
use crate::packed::{PackedScratch, decode_datum, put_datum};
use crate::{ColumnState, DatumRef, PackedLayout, Schema};

/// Which columns a payload is about: what some formats cannot say themselves.
#[derive(Clone, Copy, Debug)]
pub enum Covers<'a> {
    /// All: the payload is a whole row.
    Row,
    /// Exactly these: the payload is a patch. One that the payload leaves out is its default or null, as in a whole
    /// row.
    Columns(&'a ColumnSet),
    /// Those that the payload has, and those said to be null: the payload is a patch. A field that Protobuf or
    /// FlatBuffers left out because it has its default is absent then; name it in [`Covers::Columns`] to set the
    /// default.
    Said,
}

/// What a payload does not say of itself; see [`RowFormat::to_user`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Presence {
    /// The columns in the value, null or not.
    pub columns: ColumnSet,
    /// Those of them that are null.
    pub nulls: ColumnSet,
}

/// Memory that calls use and keep: give each thread one, and reuse it for every row.
#[derive(Clone, Default, Debug)]
pub struct RowScratch {
    spans: Vec<Span>,
    older: Vec<Span>,
    /// Pieces in the format converted to.
    pieces: Vec<u8>,
    piece_spans: Vec<Span>,
    /// Text without escapes.
    text: Vec<u8>,
    packed: PackedScratch,
    mapped: Vec<u8>,
    /// The column that was read alone last.
    alone: ColumnSet,
}

impl RowScratch {
    /// An empty buffer for a value on its way; to be given back.
    pub(crate) fn take_mapped(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.mapped)
    }

    pub(crate) fn give_mapped(&mut self, mut mapped: Vec<u8>) {
        mapped.clear();
        self.mapped = mapped;
    }
}

/// The row format of a table or of a column group. Cheap to clone; thread-safe.
///
/// ```
/// use std::sync::Arc;
/// use mycelium_base::ColumnSet;
/// use mycelium_encoding::row_format::{Covers, RowFormat, RowScratch};
/// use mycelium_encoding::{ColumnState, DatumRef, Schema};
///
/// let schema = Arc::new(Schema::parse("id int64 not null, name utf8 not null, score float64, primary key (id)")?);
/// let (json, packed) = (RowFormat::json(schema.clone()), RowFormat::packed(schema));
/// let (mut scratch, mut value) = (RowScratch::default(), Vec::new());
///
/// let payload = br#"{"name": "spore", "score": 0.5}"#;
/// json.store(payload, Covers::Row, &ColumnSet::new(), &mut scratch, &mut value)?;
/// let score = ColumnSet::from_iter([2]);
/// let mut row = json.read(&value, Some(&score), &mut scratch)?;
/// assert_eq!(row.get(2)?, ColumnState::Value(DatumRef::Float64(0.5)));
///
/// let mut converted = Vec::new();
/// json.convert(&packed, &value, None, &mut scratch, &mut converted)?;
/// assert_eq!(packed.layout().row(&converted)?.datum(1)?, Some(DatumRef::Utf8("spore")));
///
/// let refused = json.check(br#"{"name": "spore", "scor": 0.5}"#, true).unwrap_err();
/// assert_eq!(refused.offset(), Some(18));
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone)]
pub struct RowFormat(Arc<Inner>);

struct Inner {
    kind: RowFormatKind,
    layout: Arc<PackedLayout>,
    /// `None` for packed rows.
    codec: Option<Box<dyn Codec>>,
    /// Schema positions of the columns outside the primary key, ascending.
    columns: Vec<usize>,
    /// By schema position the place of a column in `columns`; [`NO_ORDINAL`] for others.
    ordinals: Vec<u32>,
    definition: Box<[u8]>,
    root: Box<str>,
}

const NO_ORDINAL: u32 = u32::MAX;

/// See [`RowFormat::columns_of`].
enum ColumnsOf<'a> {
    All(std::iter::Enumerate<std::slice::Iter<'a, usize>>),
    Some(Columns<'a>, &'a [u32]),
}

impl Iterator for ColumnsOf<'_> {
    type Item = (usize, usize);

    #[inline]
    fn next(&mut self) -> Option<(usize, usize)> {
        match self {
            Self::All(columns) => columns.next().map(|(ordinal, &column)| (ordinal, column)),
            Self::Some(columns, ordinals) => loop {
                let column = columns.next()?;
                if let Some(&ordinal) = ordinals.get(column)
                    && ordinal != NO_ORDINAL
                {
                    return Some((ordinal as usize, column));
                }
            },
        }
    }
}

/// The places of `columns` by schema position.
fn ordinals_of(columns: &[usize], schema: &Schema) -> Vec<u32> {
    let mut ordinals = vec![NO_ORDINAL; schema.columns().len()];
    for (ordinal, &column) in columns.iter().enumerate() {
        ordinals[column] = ordinal as u32;
    }
    ordinals
}

impl fmt::Debug for RowFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowFormat({} {:?})", self.0.kind, self.0.root)
    }
}

impl RowFormat {
    /// The format of rows of `schema`. `definition` is the descriptor set (an encoded `FileDescriptorSet` with all
    /// imports) or the binary FlatBuffers schema, and `root` the full name of the message or table in it; both are
    /// empty for the other formats. O(columns).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] names the column and the field that do not fit, or says what is wrong with the
    /// definition.
    pub fn new(kind: RowFormatKind, schema: Arc<Schema>, definition: &[u8], root: &str) -> Result<Self> {
        if !kind.takes_definition() && (!definition.is_empty() || !root.is_empty()) {
            return Err(Error::invalid(format!("the row format {kind} takes no definition")));
        }
        let codec: Option<Box<dyn Codec>> = match kind {
            RowFormatKind::Packed => None,
            RowFormatKind::Json => Some(Box::new(Json::new(&schema))),
            RowFormatKind::Protobuf => Some(Box::new(Protobuf::new(&schema, definition, root)?)),
            RowFormatKind::FlatBuffers => Some(Box::new(FlatBuffers::new(&schema, definition, root)?)),
            RowFormatKind::Raw => Some(Box::new(Raw::new(&schema)?)),
        };
        Ok(Self::of(kind, schema, codec, definition, root))
    }

    fn of(
        kind: RowFormatKind,
        schema: Arc<Schema>,
        codec: Option<Box<dyn Codec>>,
        definition: &[u8],
        root: &str,
    ) -> Self {
        let columns: Vec<usize> = schema.value_columns().iter().collect();
        let ordinals = ordinals_of(&columns, &schema);
        let layout = Arc::new(PackedLayout::new(schema));
        let (definition, root) = (definition.into(), root.into());
        Self(Arc::new(Inner { kind, layout, codec, columns, ordinals, definition, root }))
    }

    /// Packed rows: every schema can be packed.
    pub fn packed(schema: Arc<Schema>) -> Self {
        Self::of(RowFormatKind::Packed, schema, None, &[], "")
    }

    /// Packed values of some columns, as if the table had no others: [`PackedLayout::of`].
    pub(crate) fn packed_columns(schema: Arc<Schema>, columns: &ColumnSet) -> Self {
        let layout = Arc::new(PackedLayout::of(schema, columns));
        let columns: Vec<usize> =
            (0..layout.schema().columns().len()).filter(|&column| layout.physical(column).is_some()).collect();
        Self(Arc::new(Inner {
            kind: RowFormatKind::Packed,
            ordinals: ordinals_of(&columns, layout.schema()),
            layout,
            codec: None,
            columns,
            definition: Box::default(),
            root: Box::default(),
        }))
    }

    /// JSON objects: every schema can be written as JSON.
    pub fn json(schema: Arc<Schema>) -> Self {
        let codec: Box<dyn Codec> = Box::new(Json::new(&schema));
        Self::of(RowFormatKind::Json, schema, Some(codec), &[], "")
    }

    /// Opaque bytes. See [`RowFormat::new`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] unless exactly one column is outside the primary key, and binary.
    pub fn raw(schema: Arc<Schema>) -> Result<Self> {
        Self::new(RowFormatKind::Raw, schema, &[], "")
    }

    /// Which format it is.
    pub fn kind(&self) -> RowFormatKind {
        self.0.kind
    }

    /// The schema.
    pub fn schema(&self) -> &Arc<Schema> {
        self.0.layout.schema()
    }

    /// The layout of the same rows when packed.
    pub fn layout(&self) -> &Arc<PackedLayout> {
        &self.0.layout
    }

    /// The definition and the name of the message or table, as given to [`RowFormat::new`].
    pub fn definition(&self) -> (&[u8], &str) {
        (&self.0.definition, &self.0.root)
    }

    /// Whether a table of this format takes patches; a part of an opaque value means nothing.
    pub fn takes_patches(&self) -> bool {
        self.0.kind != RowFormatKind::Raw
    }

    /// Whether both are the same format of a table, and not only equal to it. O(1).
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn frame(&self) -> FrameShape<'_> {
        FrameShape { kind: self.0.kind, schema_version: self.schema().version(), columns: &self.0.columns }
    }

    fn name(&self, column: usize) -> &str {
        &self.schema().columns()[column].name
    }

    /// The ordinals and positions of the columns in `wanted` that are outside the primary key (all of them if `None`).
    fn columns_of<'s>(&'s self, wanted: Option<&'s ColumnSet>) -> ColumnsOf<'s> {
        match wanted {
            Some(wanted) => ColumnsOf::Some(wanted.iter(), &self.0.ordinals),
            None => ColumnsOf::All(self.0.columns.iter().enumerate()),
        }
    }

    fn reset(&self, spans: &mut Vec<Span>) {
        spans.clear();
        spans.resize(self.schema().columns().len(), Span::Absent);
    }

    /// Finds the wanted columns of a stored value. Returns where its payload starts.
    fn locate(&self, value: &[u8], scan: Scan<'_>, spans: &mut Vec<Span>) -> Result<usize> {
        self.reset(spans);
        self.find(value, scan, spans)
    }

    /// As [`RowFormat::locate`], to spans of which those of the wanted columns are absent; others stay as they are.
    fn find(&self, value: &[u8], scan: Scan<'_>, spans: &mut [Span]) -> Result<usize> {
        let Some(codec) = &self.0.codec else {
            packed_form::locate(&self.0.layout, value, scan, spans)?;
            return Ok(0);
        };
        let frame = self.frame().parse(value)?;
        let payload = value.get(frame.payload_at..).unwrap_or_default();
        let are_found = codec.scan(payload, scan, spans).map_err(|fault| fault.corrupt(frame.payload_at))?;
        if !are_found {
            self.settle(&**codec, &frame, scan, payload, spans)?;
        }
        Ok(frame.payload_at)
    }

    /// Makes what a payload says of its columns and what its frame says one.
    fn settle(
        &self,
        codec: &dyn Codec,
        frame: &Frame<'_>,
        scan: Scan<'_>,
        payload: &[u8],
        spans: &mut [Span],
    ) -> Result<()> {
        let is_json = self.0.kind == RowFormatKind::Json;
        for (ordinal, column) in self.columns_of(scan.wanted()) {
            if is_json {
                match spans[column] {
                    Span::Absent if !frame.has_absent => spans[column] = Span::Null,
                    span if says_null(span, payload) => spans[column] = Span::Null,
                    _ => {}
                }
                continue;
            }
            let left_out = spans[column] == Span::Absent;
            spans[column] = match (frame.is_absent(ordinal), frame.is_null(ordinal)) {
                (true, false) if left_out => Span::Absent,
                (false, true) if left_out => Span::Null,
                (false, false) if !left_out => spans[column],
                (false, false) if codec.default_piece(column).is_some() => Span::Default,
                _ => {
                    let message = format!("its frame and its payload contradict in column \"{}\"", self.name(column));
                    return Err(Fault::new(0, message).corrupt(0));
                }
            };
        }
        Ok(())
    }

    /// Appends the stored value of `pieces`; `out` is left as it was on an error.
    fn emit(&self, pieces: &Pieces<'_>, out: &mut Vec<u8>) -> Result<()> {
        let Some(codec) = &self.0.codec else { return packed_form::emit(&self.0.layout, pieces, out) };
        let start = out.len();
        self.frame().write(pieces, out);
        codec.emit(pieces, out);
        let len = out.len() - start;
        if len > MAX_VALUE_LEN {
            out.truncate(start);
            return Err(Error::invalid(format!("the row has {len} bytes; at most {MAX_VALUE_LEN} are possible")));
        }
        Ok(())
    }

    /// What a piece says.
    fn state<'a>(&'a self, column: usize, piece: Piece<'a>, text: &'a mut Vec<u8>) -> Result<ColumnState<'a>, Fault> {
        let bytes = match (piece, &self.0.codec) {
            (Piece::Absent, _) => return Ok(ColumnState::Absent),
            (Piece::Null, _) => return Ok(ColumnState::Null),
            (Piece::Bytes(bytes), _) => bytes,
            (Piece::Default, codec) => match codec.as_ref().and_then(|codec| codec.default_piece(column)) {
                Some(bytes) => bytes,
                None => return Ok(ColumnState::Null),
            },
        };
        let decoded = match &self.0.codec {
            Some(codec) => codec.decode(column, bytes, text),
            None => decode_datum(&self.schema().columns()[column].ty, bytes).map_err(|e| Fault::new(0, e.to_string())),
        };
        match decoded {
            Ok(DatumRef::Decimal128(v)) if !DatumRef::Decimal128(v).is_of(&self.schema().columns()[column].ty) => {
                Err(Fault::new(0, "too many digits").in_column(self.name(column)))
            }
            decoded => decoded.map(ColumnState::Value).map_err(|fault| fault.in_column(self.name(column))),
        }
    }

    /// Appends the piece of a column to `pieces`, unless its payload leaves it out.
    fn put(&self, column: usize, state: ColumnState<'_>, pieces: &mut Vec<u8>) -> Span {
        let datum = match state {
            ColumnState::Absent => return Span::Absent,
            ColumnState::Null | ColumnState::Value(DatumRef::Null) => return Span::Null,
            ColumnState::Value(datum) => datum,
        };
        let start = pieces.len();
        let Some(codec) = &self.0.codec else {
            put_datum(datum, pieces);
            return Span::at(start, pieces.len());
        };
        codec.encode(column, datum, pieces);
        if codec.default_piece(column) == Some(&pieces[start..]) {
            pieces.truncate(start);
            return Span::Default;
        }
        Span::at(start, pieces.len())
    }
}

/// Whether the piece is JSON's `null`.
fn says_null(span: Span, payload: &[u8]) -> bool {
    match span {
        Span::At { start, end } => payload.get(start as usize..end as usize) == Some(b"null"),
        _ => false,
    }
}

fn start_of(span: Span) -> usize {
    match span {
        Span::At { start, .. } => start as usize,
        _ => 0,
    }
}

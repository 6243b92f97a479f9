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
//! | value to a value with some columns | [`RowFormat::project`]: the inner loop of the split transformer |
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

mod definition;
mod descriptor;
mod flat_buffers;
mod frame;
mod json;
mod json_text;
mod number;
mod packed_form;
mod protobuf;
mod protobuf_wire;
mod raw;
mod span;

pub use definition::RowFormatDefinition;
pub use mycelium_base::RowFormatKind;
use std::fmt;
use std::sync::Arc;

#[cfg(doc)]
use mycelium_base::ErrorKind;
use mycelium_base::limits::MAX_VALUE_LEN;
use mycelium_base::{ColumnSet, Columns, Error, Result};

use self::flat_buffers::FlatBuffers;
use self::frame::{Frame, FrameShape};
use self::json::Json;
use self::protobuf::Protobuf;
use self::raw::Raw;
use self::span::{Fault, Located, Piece, Pieces, Scan, Span};
use crate::packed::{Appended, PackedScratch, decode_datum, put_datum};
use crate::{ColumnState, DatumRef, PackedLayout, Schema};

/// What a format with a frame does with its payloads. Columns are schema positions.
trait Codec: Send + Sync + fmt::Debug {
    /// Finds the columns of a payload; `spans` has one entry per column, all absent. Says `Null` only if the payload
    /// does.
    fn scan(&self, payload: &[u8], scan: Scan<'_>, spans: &mut [Span]) -> Result<(), Fault>;

    /// The value of a piece, checked against the column's type; text may be built in `scratch`.
    fn decode<'a>(&self, column: usize, piece: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<DatumRef<'a>, Fault>;

    /// Appends the piece of a value, which is one of the column's type.
    fn encode(&self, column: usize, datum: DatumRef<'_>, out: &mut Vec<u8>);

    /// The piece that a column has if its payload leaves it out; `None` if leaving out does not mean a value.
    fn default_piece(&self, column: usize) -> Option<&[u8]>;

    /// Appends a payload of the columns that have bytes (for JSON: or are null).
    fn emit(&self, pieces: &Pieces<'_>, out: &mut Vec<u8>);

    /// Whether [`Codec::copy`] is worth trying.
    fn copies(&self) -> bool {
        false
    }

    /// Appends the payload of the wanted columns that `emit` would make of a payload that was checked when it was
    /// written, if all of them are in it and it is made of parts of it. Else says `false`, and may have appended
    /// something.
    fn copy(&self, _payload: &[u8], _wanted: &ColumnSet, _out: &mut Vec<u8>) -> bool {
        false
    }
}

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
/// let mut row = json.read(&value, Some(&ColumnSet::from_iter([2])), &mut scratch)?;
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
        let is_given = matches!(kind, RowFormatKind::Protobuf | RowFormatKind::FlatBuffers);
        if !is_given && (!definition.is_empty() || !root.is_empty()) {
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
    pub fn packed_columns(schema: Arc<Schema>, columns: &ColumnSet) -> Self {
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
        let Some(codec) = &self.0.codec else {
            packed_form::locate(&self.0.layout, value, scan, spans)?;
            return Ok(0);
        };
        let frame = self.frame().parse(value)?;
        let payload = value.get(frame.payload_at..).unwrap_or_default();
        codec.scan(payload, scan, spans).map_err(|fault| fault.corrupt(frame.payload_at))?;
        self.settle(&**codec, &frame, scan, payload, spans)?;
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

    /// Checks that `payload` is one that [`RowFormat::store`] takes as a whole row, or as a patch of the columns it
    /// has.
    ///
    /// # Errors
    /// As [`RowFormat::store`].
    pub fn check(&self, payload: &[u8], whole_row: bool) -> Result<()> {
        let covers = if whole_row { Covers::Row } else { Covers::Said };
        self.accept(payload, covers, &ColumnSet::new(), &mut RowScratch::default()).map(drop)
    }

    /// Appends the stored value of a user's payload, which is checked to the last byte and kept as it is. `nulls` are
    /// columns that are null though the format cannot say so, or does not need to; the payload has no value for them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] says what is wrong at which byte: see the rules above and those of the format.
    pub fn store(
        &self,
        payload: &[u8],
        covers: Covers<'_>,
        nulls: &ColumnSet,
        scratch: &mut RowScratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let nulls_filled_in = self.accept(payload, covers, nulls, scratch)?;
        let pieces = Pieces::one(&scratch.spans, payload);
        let has_absent = self.0.columns.iter().any(|&column| scratch.spans[column] == Span::Absent);
        match self.0.kind {
            RowFormatKind::Packed => out.extend_from_slice(payload),
            // A patch in JSON says its nulls in the text.
            RowFormatKind::Json if nulls_filled_in && has_absent => return self.emit(&pieces, out),
            _ => {
                self.frame().write(&pieces, out);
                out.extend_from_slice(payload);
            }
        }
        Ok(())
    }

    /// Checks a user's payload and finds its columns. Returns whether some column is null without the payload saying
    /// so.
    ///
    /// 1. The whole payload is read.
    /// 2. Every value is decoded.
    /// 3. Per column, what the payload and what the caller say are made one.
    fn accept(&self, payload: &[u8], covers: Covers<'_>, nulls: &ColumnSet, scratch: &mut RowScratch) -> Result<bool> {
        let header_bound = 16 + self.0.columns.len() / 4;
        if payload.len() + header_bound > MAX_VALUE_LEN {
            let message = format!("the row has {} bytes; at most {MAX_VALUE_LEN} are possible", payload.len());
            return Err(Error::invalid(message).at((MAX_VALUE_LEN - header_bound) as u64));
        }
        if !self.takes_patches() && !matches!(covers, Covers::Row) {
            return Err(Error::invalid("a table of raw rows takes no patches").at(0));
        }
        if let Some(column) = nulls.iter().find(|column| self.0.columns.binary_search(column).is_err()) {
            return Err(Error::invalid(format!("column {column}, said to be null, is not in the row")).at(0));
        }
        self.reset(&mut scratch.spans);
        match &self.0.codec {
            Some(codec) => codec.scan(payload, Scan::Strict, &mut scratch.spans).map_err(Fault::refused)?,
            None => self.accept_packed(payload, &mut scratch.spans)?,
        }
        let mut nulls_filled_in = false;
        for &column in &self.0.columns {
            let span = scratch.spans[column];
            let settled = self.settle_payload(column, span, payload, covers, nulls.contains(column))?;
            nulls_filled_in |= span == Span::Absent && settled == Span::Null;
            scratch.spans[column] = settled;
            let piece = Pieces::one(&scratch.spans, payload).get(column);
            if let (Span::At { start, .. }, Piece::Bytes(_)) = (settled, piece) {
                scratch.text.clear();
                self.state(column, piece, &mut scratch.text)
                    .map_err(|fault| fault.shifted(start as usize).refused())?;
            }
        }
        Ok(nulls_filled_in)
    }

    fn accept_packed(&self, payload: &[u8], spans: &mut [Span]) -> Result<()> {
        let refuse = |e: Error| {
            let refused = Error::invalid("malformed packed row");
            let refused = if let Some(offset) = e.offset() { refused.at(offset) } else { refused };
            refused.caused_by(e)
        };
        self.0.layout.validate(payload).map_err(refuse)?;
        packed_form::locate(&self.0.layout, payload, Scan::Strict, spans).map_err(refuse)
    }

    /// What a column of a user's payload is; see [`Covers`].
    fn settle_payload(
        &self,
        column: usize,
        span: Span,
        payload: &[u8],
        covers: Covers<'_>,
        said_null: bool,
    ) -> Result<Span> {
        let in_payload = span != Span::Absent;
        let is_null = span == Span::Null || (self.0.kind == RowFormatKind::Json && says_null(span, payload));
        let covered = match covers {
            Covers::Row => true,
            Covers::Columns(columns) => columns.contains(column),
            Covers::Said => in_payload || said_null,
        };
        let at = match span {
            Span::At { start, .. } => start as u64,
            _ => payload.len() as u64,
        };
        let nullable = self.schema().columns()[column].nullable;
        let default = self.0.codec.as_ref().and_then(|codec| codec.default_piece(column));
        let refused = match (in_payload, covered) {
            (_, false) if in_payload || said_null => "is in the payload or said to be null, but not covered",
            (false, false) => return Ok(Span::Absent),
            (true, _) if !is_null && said_null => "is said to be null, but has a value",
            (true, _) if !is_null => return Ok(span),
            _ if (is_null || said_null) && !nullable => "may not be null",
            _ if is_null || said_null => return Ok(Span::Null),
            _ if default.is_some() => return Ok(Span::Default),
            _ if nullable && self.0.kind != RowFormatKind::Packed => return Ok(Span::Null),
            _ => "is missing",
        };
        Err(Error::invalid(format!("column \"{}\" {refused}", self.name(column))).at(at))
    }

    /// Appends the payload of a stored value, and returns what the payload does not say: storing it with
    /// [`Covers::Columns`] and these nulls gives the value again.
    ///
    /// # Errors
    /// As [`RowFormat::read`].
    pub fn to_user(&self, value: &[u8], scratch: &mut RowScratch, out: &mut Vec<u8>) -> Result<Presence> {
        let payload_at = self.locate(value, Scan::Trusted(None), &mut scratch.spans)?;
        let mut presence = Presence::default();
        for &column in &self.0.columns {
            if scratch.spans[column] != Span::Absent {
                presence.columns.insert(column);
            }
            if scratch.spans[column] == Span::Null {
                presence.nulls.insert(column);
            }
        }
        out.extend_from_slice(&value[payload_at..]);
        Ok(presence)
    }

    /// The columns that are in a stored value, null or not. O(columns and, for JSON and Protobuf, bytes).
    ///
    /// # Errors
    /// As [`RowFormat::read`].
    pub fn present(&self, value: &[u8], scratch: &mut RowScratch) -> Result<ColumnSet> {
        self.locate(value, Scan::Trusted(None), &mut scratch.spans)?;
        Ok(self.0.columns.iter().copied().filter(|&column| scratch.spans[column] != Span::Absent).collect())
    }

    /// Finds the wanted columns of a stored value (`None`: all). Others read as absent, so reading one column of many
    /// builds nothing of the others: `packed` and `flatbuffers` go straight to it, `json` and `protobuf` walk up to it.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] if the value is malformed, [`ErrorKind::Unsupported`] if it is of another format or
    /// schema version.
    pub fn read<'a>(
        &'a self,
        value: &'a [u8],
        columns: Option<&ColumnSet>,
        scratch: &'a mut RowScratch,
    ) -> Result<RowColumns<'a>> {
        let payload_at = self.locate(value, Scan::Trusted(columns), &mut scratch.spans)?;
        Ok(RowColumns { format: self, value, payload_at, spans: &scratch.spans, text: &mut scratch.text })
    }

    /// Appends the stored value of typed columns; `state` is asked once for each column outside the primary key.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if a column cannot hold its value or the row is over [`MAX_VALUE_LEN`].
    pub fn encode_with<'d>(
        &self,
        mut state: impl FnMut(usize) -> ColumnState<'d>,
        scratch: &mut RowScratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.reset(&mut scratch.piece_spans);
        scratch.pieces.clear();
        for &column in &self.0.columns {
            let state = state(column);
            match state {
                ColumnState::Absent => {}
                ColumnState::Null => DatumRef::Null.check(&self.schema().columns()[column])?,
                ColumnState::Value(datum) => datum.check(&self.schema().columns()[column])?,
            }
            scratch.piece_spans[column] = self.put(column, state, &mut scratch.pieces);
        }
        self.emit(&Pieces::one(&scratch.piece_spans, &scratch.pieces), out)
    }

    /// Appends the stored value of only these columns of a stored value: what was null or absent stays so.
    ///
    /// # Errors
    /// As [`RowFormat::read`].
    pub fn project(
        &self,
        value: &[u8],
        columns: &ColumnSet,
        scratch: &mut RowScratch,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if self.copy(value, columns, out)? {
            return Ok(());
        }
        let payload_at = self.locate(value, Scan::Trusted(Some(columns)), &mut scratch.spans)?;
        self.emit(&Pieces::one(&scratch.spans, &value[payload_at..]), out)
    }

    /// Appends the stored value of a patch over an older value, whole or itself a patch: each column is the newer one's
    /// if it is in it.
    ///
    /// # Errors
    /// As [`RowFormat::read`].
    pub fn overlay(&self, newer: &[u8], older: &[u8], scratch: &mut RowScratch, out: &mut Vec<u8>) -> Result<()> {
        let all = Scan::Trusted(None);
        let newer_at = self.locate(newer, all, &mut scratch.spans)?;
        let older_at = self.locate(older, all, &mut scratch.older)?;
        let newer = Located { spans: &scratch.spans, bytes: &newer[newer_at..] };
        let older = Located { spans: &scratch.older, bytes: &older[older_at..] };
        self.emit(&Pieces { newer, older: Some(older) }, out)
    }

    /// Appends a stored value in the format `to` of these columns of a stored value (`None`: all of them). `to` must be
    /// of the same schema. Returns whether the value says anything of these columns: `false` for a patch of others.
    ///
    /// # Errors
    /// As [`RowFormat::read`]; [`ErrorKind::InvalidArgument`] if the schemas differ, or if the row is over
    /// [`MAX_VALUE_LEN`] in the other format.
    pub fn convert(
        &self,
        to: &Self,
        value: &[u8],
        columns: Option<&ColumnSet>,
        scratch: &mut RowScratch,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        if !Arc::ptr_eq(self.schema(), to.schema()) && self.schema() != to.schema() {
            return Err(Error::invalid("rows are converted between formats of one schema"));
        }
        let is_same = Arc::ptr_eq(&self.0, &to.0);
        if is_same
            && let Some(columns) = columns
            && self.copy(value, columns, out)?
        {
            return Ok(!columns.is_empty());
        }
        let payload_at = self.locate(value, Scan::Trusted(columns), &mut scratch.spans)?;
        let located = Located { spans: &scratch.spans, bytes: &value[payload_at..] };
        if is_same {
            self.emit(&Pieces { newer: located, older: None }, out)?;
            return Ok(scratch.spans.iter().any(|&span| span != Span::Absent));
        }
        if to.0.codec.is_none() {
            return self.pack(&to.0.layout, located, payload_at, (&mut scratch.text, &mut scratch.packed), out);
        }
        to.reset(&mut scratch.piece_spans);
        scratch.pieces.clear();
        let mut says_something = false;
        for (_, column) in self.columns_of(columns) {
            let state = self
                .state(column, located.piece(column), &mut scratch.text)
                .map_err(|fault| fault.corrupt(payload_at + start_of(located.spans[column])))?;
            let span = to.put(column, state, &mut scratch.pieces);
            says_something |= span != Span::Absent;
            scratch.piece_spans[column] = span;
        }
        to.emit(&Pieces::one(&scratch.piece_spans, &scratch.pieces), out)?;
        Ok(says_something)
    }

    /// Appends the packed value of the columns located. Returns whether there is one of them in it.
    fn pack(
        &self,
        layout: &PackedLayout,
        located: Located<'_>,
        payload_at: usize,
        (text, packed): (&mut Vec<u8>, &mut PackedScratch),
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let put = |index: usize, bytes: &mut Vec<u8>| {
            let column = layout.column(index);
            let state = self
                .state(column, located.piece(column), text)
                .map_err(|fault| fault.corrupt(payload_at + start_of(located.spans[column])))?;
            Ok(match state {
                ColumnState::Absent => Appended::Absent,
                ColumnState::Null | ColumnState::Value(DatumRef::Null) => Appended::Null,
                ColumnState::Value(datum) => {
                    put_datum(datum, bytes);
                    Appended::Value
                }
            })
        };
        layout.encode_once(put, packed, out)
    }

    /// Appends what [`RowFormat::project`] does where that is a frame and a copy of parts of the payload; else appends
    /// nothing and says `false`.
    fn copy(&self, value: &[u8], columns: &ColumnSet, out: &mut Vec<u8>) -> Result<bool> {
        let Some(codec) = self.0.codec.as_ref().filter(|codec| codec.copies()) else { return Ok(false) };
        let frame = self.frame().parse(value)?;
        let has = |ordinal| !frame.is_absent(ordinal) && !frame.is_null(ordinal);
        if !frame.has_all() && !self.columns_of(Some(columns)).all(|(ordinal, _)| has(ordinal)) {
            return Ok(false);
        }
        let start = out.len();
        self.frame().write_columns(self.columns_of(Some(columns)).map(|(ordinal, _)| ordinal), columns.len(), out);
        let is_done = codec.copy(value.get(frame.payload_at..).unwrap_or_default(), columns, out)
            && out.len() - start <= MAX_VALUE_LEN;
        if !is_done {
            out.truncate(start);
        }
        Ok(is_done)
    }

    /// Checks every byte of a stored value: its frame is canonical, and its payload one that [`RowFormat::store`]
    /// takes.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] or [`ErrorKind::Unsupported`] says what is wrong.
    pub fn validate(&self, value: &[u8]) -> Result<()> {
        let mut scratch = RowScratch::default();
        if self.0.codec.is_none() {
            return self.0.layout.validate(value);
        }
        let payload_at = self.locate(value, Scan::Strict, &mut scratch.spans)?;
        let payload = &value[payload_at..];
        let pieces = Pieces::one(&scratch.spans, payload);
        for &column in &self.0.columns {
            let at = payload_at + start_of(scratch.spans[column]);
            let state = self.state(column, pieces.get(column), &mut scratch.text).map_err(|fault| fault.corrupt(at))?;
            if state == ColumnState::Null && !self.schema().columns()[column].nullable {
                return Err(Fault::new(0, "may not be null").in_column(self.name(column)).corrupt(at));
            }
        }
        let mut frame = Vec::new();
        self.frame().write(&pieces, &mut frame);
        match frame.iter().zip(value).position(|(a, b)| a != b) {
            None if frame.len() == payload_at => Ok(()),
            at => Err(Fault::new(at.unwrap_or(payload_at), "its frame is not canonical").corrupt(0)),
        }
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

/// The columns found in a stored value; made by [`RowFormat::read`].
#[derive(Debug)]
pub struct RowColumns<'a> {
    format: &'a RowFormat,
    value: &'a [u8],
    payload_at: usize,
    spans: &'a [Span],
    text: &'a mut Vec<u8>,
}

impl RowColumns<'_> {
    /// What the value says about a column, given by its schema position. Decoded now; text with escapes and binary from
    /// JSON are kept until the next call.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the column is in the primary key or does not exist, [`ErrorKind::Corruption`]
    /// if its bytes are malformed.
    pub fn get(&mut self, column: usize) -> Result<ColumnState<'_>> {
        self.format.0.layout.physical_index(column)?;
        let located = Located { spans: self.spans, bytes: self.value.get(self.payload_at..).unwrap_or_default() };
        let at = self.payload_at + start_of(self.spans[column]);
        self.format.state(column, located.piece(column), self.text).map_err(|fault| fault.corrupt(at))
    }
}

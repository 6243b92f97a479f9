//! Schemas: the columns of a table, their types and the primary key.
//!
//! Byte form, which the manifest keeps (integers little-endian, `varint` and `bytes` as in [`mycelium_base::coding`]):
//!
//! ```text
//! u8      format version, 1
//! u8      schema version: 0 for a new table, stamped on every packed row
//! varint  column count
//! per column:
//!   bytes   name, UTF-8
//!   u8      type tag, see [`ColumnType`]
//!   ...     timestamp: u8 unit (0 s, 1 ms, 2 us, 3 ns), u8 1 if a time zone follows, then bytes
//!           decimal: u8 precision, i8 scale
//!   u8      flags: bit 0 nullable, bit 1 has a default, bit 2 was dropped, and has no name; the others 0
//!   bytes   the default if bit 1: its slot or its bytes in a packed row
//! varint  primary key column count, then a varint column index for each
//! ```
//!
//! A reader that does not know bits 1 and 2 refuses them. A column that was dropped keeps its position and its type, by
//! which rows are read that still have it.

use std::sync::Arc;

use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_base::{ColumnSet, Error, ErrorKind, Result};

use crate::packed::{decode_datum, put_datum};
use crate::{Datum, DatumRef, TextArrays};

/// The most columns a table may have.
pub const MAX_COLUMNS: usize = 4_096;
/// The longest column or time zone name, in bytes.
pub const MAX_NAME_LEN: usize = 255;
/// The most digits a decimal has.
pub const MAX_DECIMAL_PRECISION: u8 = 38;
/// The longest default of a column of text or bytes.
pub const MAX_DEFAULT_LEN: usize = 1_024;

const FORMAT_VERSION: u8 = 1;
const NULLABLE: u8 = 1;
const HAS_DEFAULT: u8 = 2;
const DROPPED: u8 = 4;

/// The tick of a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TimeUnit {
    /// 1 s
    Second,
    /// 1 ms
    Millisecond,
    /// 1 us
    Microsecond,
    /// 1 ns
    Nanosecond,
}

impl TimeUnit {
    pub(crate) const ALL: [Self; 4] = [Self::Second, Self::Millisecond, Self::Microsecond, Self::Nanosecond];

    /// Digits after the decimal point of a second.
    pub(crate) fn digits(self) -> u32 {
        3 * self as u32
    }
}

/// The type of a column. Names, tags and widths are part of the formats.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ColumnType {
    /// `bool`, tag 1
    Bool,
    /// `int8`, tag 2
    Int8,
    /// `int16`, tag 3
    Int16,
    /// `int32`, tag 4
    Int32,
    /// `int64`, tag 5
    Int64,
    /// `uint8`, tag 6
    UInt8,
    /// `uint16`, tag 7
    UInt16,
    /// `uint32`, tag 8
    UInt32,
    /// `uint64`, tag 9
    UInt64,
    /// `float32`, tag 10
    Float32,
    /// `float64`, tag 11
    Float64,
    /// `utf8`, tag 12: any text, NUL included, ordered by its bytes
    Utf8,
    /// `binary`, tag 13
    Binary,
    /// `date32`, tag 14: days since 1970-01-01
    Date32,
    /// `timestamp(us)` or `timestamp(us, "UTC")`, tag 15: ticks since 1970-01-01T00:00:00 (UTC where a time zone is
    /// given)
    Timestamp(TimeUnit, Option<Arc<str>>),
    /// `decimal(precision, scale)`, tag 16: an integer of at most `precision` digits, times 10^-scale
    Decimal128(u8, i8),
}

impl ColumnType {
    /// Bytes of a value in the packed format; `None` where the length varies (`utf8`, `binary`).
    pub fn fixed_width(&self) -> Option<usize> {
        Some(match self {
            Self::Bool | Self::Int8 | Self::UInt8 => 1,
            Self::Int16 | Self::UInt16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 | Self::Date32 => 4,
            Self::Int64 | Self::UInt64 | Self::Float64 | Self::Timestamp(..) => 8,
            Self::Decimal128(..) => 16,
            Self::Utf8 | Self::Binary => return None,
        })
    }

    fn tag(&self) -> u8 {
        match self {
            Self::Bool => 1,
            Self::Int8 => 2,
            Self::Int16 => 3,
            Self::Int32 => 4,
            Self::Int64 => 5,
            Self::UInt8 => 6,
            Self::UInt16 => 7,
            Self::UInt32 => 8,
            Self::UInt64 => 9,
            Self::Float32 => 10,
            Self::Float64 => 11,
            Self::Utf8 => 12,
            Self::Binary => 13,
            Self::Date32 => 14,
            Self::Timestamp(..) => 15,
            Self::Decimal128(..) => 16,
        }
    }

    fn check(&self) -> Result<()> {
        match self {
            Self::Decimal128(precision, scale) => {
                let wide = i16::from(*scale) > i16::from(*precision) || *scale < -(MAX_DECIMAL_PRECISION as i8);
                if *precision == 0 || *precision > MAX_DECIMAL_PRECISION || wide {
                    return Err(Error::invalid(format!(
                        "decimal({precision}, {scale}): the precision must be 1 to {MAX_DECIMAL_PRECISION} and the scale -{MAX_DECIMAL_PRECISION} to the precision"
                    )));
                }
                Ok(())
            }
            Self::Timestamp(_, Some(zone)) if zone.is_empty() || zone.len() > MAX_NAME_LEN => {
                Err(Error::invalid(format!("a time zone name must have 1 to {MAX_NAME_LEN} bytes")))
            }
            _ => Ok(()),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.tag());
        match self {
            Self::Timestamp(unit, zone) => {
                out.push(*unit as u8);
                out.push(u8::from(zone.is_some()));
                if let Some(zone) = zone {
                    put_bytes(out, zone.as_bytes());
                }
            }
            Self::Decimal128(precision, scale) => out.extend_from_slice(&[*precision, *scale as u8]),
            _ => {}
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self> {
        let at = input.position() as u64;
        Ok(match input.u8()? {
            1 => Self::Bool,
            2 => Self::Int8,
            3 => Self::Int16,
            4 => Self::Int32,
            5 => Self::Int64,
            6 => Self::UInt8,
            7 => Self::UInt16,
            8 => Self::UInt32,
            9 => Self::UInt64,
            10 => Self::Float32,
            11 => Self::Float64,
            12 => Self::Utf8,
            13 => Self::Binary,
            14 => Self::Date32,
            15 => Self::decode_timestamp(input)?,
            16 => Self::Decimal128(input.u8()?, input.u8()? as i8),
            tag => return Err(Error::new(ErrorKind::Unsupported, format!("unknown column type {tag}")).at(at)),
        })
    }

    fn decode_timestamp(input: &mut Reader<'_>) -> Result<Self> {
        let at = input.position() as u64;
        let unit = input.u8()?;
        let Some(&unit) = TimeUnit::ALL.get(usize::from(unit)) else {
            return Err(Error::new(ErrorKind::Unsupported, format!("unknown time unit {unit}")).at(at));
        };
        let at = input.position() as u64;
        let zone = match input.u8()? {
            0 => None,
            1 => Some(input.str()?.into()),
            other => return Err(Error::corruption("malformed time zone").at(at).expected("0 or 1", other)),
        };
        Ok(Self::Timestamp(unit, zone))
    }

    /// The Arrow type of this column in a record batch.
    pub fn to_arrow(&self) -> arrow_schema::DataType {
        use arrow_schema::DataType as Arrow;
        match self {
            Self::Bool => Arrow::Boolean,
            Self::Int8 => Arrow::Int8,
            Self::Int16 => Arrow::Int16,
            Self::Int32 => Arrow::Int32,
            Self::Int64 => Arrow::Int64,
            Self::UInt8 => Arrow::UInt8,
            Self::UInt16 => Arrow::UInt16,
            Self::UInt32 => Arrow::UInt32,
            Self::UInt64 => Arrow::UInt64,
            Self::Float32 => Arrow::Float32,
            Self::Float64 => Arrow::Float64,
            Self::Utf8 => Arrow::Utf8,
            Self::Binary => Arrow::Binary,
            Self::Date32 => Arrow::Date32,
            Self::Timestamp(unit, zone) => Arrow::Timestamp(unit.to_arrow(), zone.clone()),
            Self::Decimal128(precision, scale) => Arrow::Decimal128(*precision, *scale),
        }
    }

    /// The same in a record batch whose texts are such arrays.
    pub fn to_arrow_with(&self, texts: TextArrays) -> arrow_schema::DataType {
        match (self, texts) {
            (Self::Utf8, TextArrays::Views) => arrow_schema::DataType::Utf8View,
            (Self::Utf8, TextArrays::Dictionaries) => {
                let (codes, texts) = (arrow_schema::DataType::UInt32, arrow_schema::DataType::Utf8);
                arrow_schema::DataType::Dictionary(Box::new(codes), Box::new(texts))
            }
            (ty, _) => ty.to_arrow(),
        }
    }

    /// The column type that stores an Arrow type: text and binary of every layout and dictionaries of them map to
    /// `utf8` and `binary`. [`ErrorKind::Unsupported`] if there is none.
    pub fn from_arrow(arrow: &arrow_schema::DataType) -> Result<Self> {
        use arrow_schema::DataType as Arrow;
        Ok(match arrow {
            Arrow::Boolean => Self::Bool,
            Arrow::Int8 => Self::Int8,
            Arrow::Int16 => Self::Int16,
            Arrow::Int32 => Self::Int32,
            Arrow::Int64 => Self::Int64,
            Arrow::UInt8 => Self::UInt8,
            Arrow::UInt16 => Self::UInt16,
            Arrow::UInt32 => Self::UInt32,
            Arrow::UInt64 => Self::UInt64,
            Arrow::Float32 => Self::Float32,
            Arrow::Float64 => Self::Float64,
            Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View => Self::Utf8,
            Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView => Self::Binary,
            Arrow::Dictionary(_, value) => Self::from_arrow(value)?,
            Arrow::Date32 => Self::Date32,
            Arrow::Timestamp(unit, zone) => Self::Timestamp(TimeUnit::from_arrow(unit), zone.clone()),
            Arrow::Decimal128(precision, scale) => Self::Decimal128(*precision, *scale),
            other => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("no column type stores the Arrow type {other}"),
                ));
            }
        })
    }
}

impl TimeUnit {
    fn to_arrow(self) -> arrow_schema::TimeUnit {
        match self {
            Self::Second => arrow_schema::TimeUnit::Second,
            Self::Millisecond => arrow_schema::TimeUnit::Millisecond,
            Self::Microsecond => arrow_schema::TimeUnit::Microsecond,
            Self::Nanosecond => arrow_schema::TimeUnit::Nanosecond,
        }
    }

    fn from_arrow(arrow: &arrow_schema::TimeUnit) -> Self {
        match arrow {
            arrow_schema::TimeUnit::Second => Self::Second,
            arrow_schema::TimeUnit::Millisecond => Self::Millisecond,
            arrow_schema::TimeUnit::Microsecond => Self::Microsecond,
            arrow_schema::TimeUnit::Nanosecond => Self::Nanosecond,
        }
    }
}

/// One column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// 1 to [`MAX_NAME_LEN`] bytes, unique in its table, case-sensitive; empty where a column was dropped.
    pub name: String,
    /// The type.
    pub ty: ColumnType,
    /// Whether the column may be null.
    pub nullable: bool,
    /// What whole rows that say nothing of the column have in it: those from before the table had the column, and those
    /// given by other columns alone. `None` is null. It stays what it is for as long as the column is there: rows on
    /// disk are read by it.
    pub default: Option<Datum>,
}

impl Column {
    /// A column that may be null.
    pub fn new(name: impl Into<String>, ty: ColumnType) -> Self {
        Self { name: name.into(), ty, nullable: true, default: None }
    }

    /// The same column, never null.
    #[must_use]
    pub fn not_null(mut self) -> Self {
        self.nullable = false;
        self
    }

    /// The same column with a default; null is none.
    #[must_use]
    pub fn with_default(mut self, default: Datum) -> Self {
        self.default = Some(default).filter(|default| !default.borrowed().is_null());
        self
    }

    /// What whole rows that say nothing of the column have in it.
    pub fn default_value(&self) -> DatumRef<'_> {
        self.default.as_ref().map_or(DatumRef::Null, Datum::borrowed)
    }

    /// Whether the column was dropped: nothing but its position is left of it.
    pub fn is_dropped(&self) -> bool {
        self.name.is_empty()
    }

    fn check_default(&self) -> Result<()> {
        let Some(default) = &self.default else { return Ok(()) };
        let len = match default {
            Datum::Null => return Err(Error::invalid(format!("column \"{}\": null is no default", self.name))),
            Datum::Utf8(text) => text.len(),
            Datum::Binary(bytes) => bytes.len(),
            _ => 0,
        };
        if len > MAX_DEFAULT_LEN {
            return Err(Error::invalid(format!(
                "the default of column \"{}\" has {len} bytes; at most {MAX_DEFAULT_LEN} are possible",
                self.name
            )));
        }
        default.borrowed().check(self)
    }
}

/// The columns of a table and its primary key. Always valid: every constructor checks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schema {
    columns: Vec<Column>,
    primary_key: Vec<usize>,
    version: u8,
}

impl Schema {
    /// Checks the columns and the primary key (column indices, most significant first).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] says which column is wrong and why: too many columns, an empty, long or repeated
    /// name, a bad decimal, a default that the column cannot hold or that is longer than [`MAX_DEFAULT_LEN`]; an empty
    /// primary key, one naming an unknown column, the same column twice, or a column that may be null or has a default.
    pub fn new(columns: Vec<Column>, primary_key: Vec<usize>) -> Result<Self> {
        match columns.iter().any(Column::is_dropped) {
            true => Err(nameless()),
            false => Self::checked(columns, primary_key),
        }
    }

    /// As [`Schema::new`], where columns without a name were dropped.
    fn checked(columns: Vec<Column>, primary_key: Vec<usize>) -> Result<Self> {
        if columns.len() > MAX_COLUMNS {
            return Err(Error::invalid(format!("{} columns; at most {MAX_COLUMNS} are possible", columns.len())));
        }
        let mut names = std::collections::HashSet::new();
        for column in &columns {
            if column.name.len() > MAX_NAME_LEN {
                return Err(Error::invalid(format!(
                    "column name \"{}\" has {} bytes; 1 to {MAX_NAME_LEN} are possible",
                    column.name,
                    column.name.len()
                )));
            }
            if !column.is_dropped() && !names.insert(column.name.as_str()) {
                return Err(Error::invalid(format!("column \"{}\" appears twice", column.name)));
            }
            column.ty.check().map_err(|e| Error::invalid(format!("column \"{}\": {e}", column.name)))?;
            column.check_default()?;
        }
        if primary_key.is_empty() {
            return Err(Error::invalid("a table needs a primary key of at least one column"));
        }
        for (position, &index) in primary_key.iter().enumerate() {
            let Some(column) = columns.get(index) else {
                return Err(Error::invalid(format!(
                    "the primary key names column {index}, but there are only {}",
                    columns.len()
                )));
            };
            if column.nullable {
                return Err(Error::invalid(format!(
                    "primary key column \"{}\" may be null; declare it not null",
                    column.name
                )));
            }
            if column.is_dropped() {
                return Err(Error::invalid(format!("the primary key names column {index}, which was dropped")));
            }
            if column.default.is_some() {
                return Err(Error::invalid(format!(
                    "primary key column \"{}\" has a default, but every row says what its key is",
                    column.name
                )));
            }
            if primary_key[..position].contains(&index) {
                return Err(Error::invalid(format!("column \"{}\" is in the primary key twice", column.name)));
            }
        }
        Ok(Self { columns, primary_key, version: 0 })
    }

    /// The columns, in order; those that were dropped stand at their positions.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The column indices of the primary key, most significant first.
    pub fn primary_key(&self) -> &[usize] {
        &self.primary_key
    }

    /// Stamped on every packed row, so that rows written before columns were added can be told apart.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// The same with one more column behind the others, which may be null or has a default.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a column that may not be null and has no default, and as [`Schema::new`].
    pub fn with_column(&self, column: Column) -> Result<Self> {
        if !column.nullable && column.default.is_none() {
            let message = format!(
                "column \"{}\" must be one that may be null, or have a default: rows that are there have none",
                column.name
            );
            return Err(Error::invalid(message));
        }
        if self.index_of(&column.name).is_some() {
            return Err(name_is_taken(&column.name));
        }
        if self.columns.len() >= MAX_COLUMNS {
            let message = format!(
                "a table has at most {MAX_COLUMNS} columns, and those that were dropped keep their places: write its \
                 rows into a table without them"
            );
            return Err(Error::invalid(message));
        }
        let columns = self.columns.iter().cloned().chain([column]).collect();
        self.changed(columns)
    }

    /// The same columns but for some changes, of which none makes a name empty.
    fn changed(&self, columns: Vec<Column>) -> Result<Self> {
        let dropped = |columns: &[Column]| columns.iter().filter(|column| column.is_dropped()).count();
        if dropped(&columns) > dropped(&self.columns) {
            return Err(nameless());
        }
        Ok(Self::checked(columns, self.primary_key.clone())?.with_version(self.version))
    }

    /// The same without a column. Its position stays taken, so that the others keep theirs and rows that have it can be
    /// read: it has no name, may be null and has no default.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no column of this name; [`ErrorKind::InvalidArgument`] for one of the
    /// primary key, and for the last one outside of it.
    pub fn without_column(&self, name: &str) -> Result<Self> {
        let Some(at) = self.index_of(name) else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no column \"{name}\"")));
        };
        if self.is_primary_key(at) {
            let message = format!(
                "column \"{name}\" is in the primary key, and cannot be dropped: write the rows into a table with \
                 another key"
            );
            return Err(Error::invalid(message));
        }
        if self.value_columns().len() == 1 {
            let message = format!("column \"{name}\" is the last outside the primary key: add another one first");
            return Err(Error::invalid(message));
        }
        let mut columns = self.columns.clone();
        columns[at] = Column::new("", columns[at].ty.clone());
        Ok(Self::checked(columns, self.primary_key.clone())?.with_version(self.version))
    }

    /// The same where a column has another name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no column `from`; as [`Schema::new`].
    pub fn with_name(&self, from: &str, to: &str) -> Result<Self> {
        let Some(at) = self.index_of(from) else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no column \"{from}\"")));
        };
        if self.index_of(to).is_some_and(|other| other != at) {
            return Err(name_is_taken(to));
        }
        let mut columns = self.columns.clone();
        to.clone_into(&mut columns[at].name);
        self.changed(columns)
    }

    /// The same columns under another version number.
    #[must_use]
    pub fn with_version(mut self, version: u8) -> Self {
        self.version = version;
        self
    }

    /// The index of the column with this name. O(columns).
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.live_columns().find(|(_, column)| column.name == name).map(|(at, _)| at)
    }

    /// The columns that were not dropped, with their positions.
    pub fn live_columns(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(|(_, column)| !column.is_dropped())
    }

    /// Whether there is a column at this position that was not dropped.
    pub fn has_column(&self, position: usize) -> bool {
        self.columns.get(position).is_some_and(|column| !column.is_dropped())
    }

    /// The columns outside the primary key that were not dropped: what values and column groups are made of.
    /// O(columns).
    pub fn value_columns(&self) -> ColumnSet {
        self.live_columns().map(|(at, _)| at).filter(|&at| !self.is_primary_key(at)).collect()
    }

    /// Whether the column belongs to the primary key.
    pub fn is_primary_key(&self, column: usize) -> bool {
        self.primary_key.contains(&column)
    }

    /// Appends the byte form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[FORMAT_VERSION, self.version]);
        put_varint(out, self.columns.len() as u64);
        for column in &self.columns {
            put_bytes(out, column.name.as_bytes());
            column.ty.encode(out);
            let nullable = if column.nullable { NULLABLE } else { 0 };
            let dropped = if column.is_dropped() { DROPPED } else { 0 };
            out.push(nullable | dropped | if column.default.is_some() { HAS_DEFAULT } else { 0 });
            if let Some(default) = &column.default {
                let mut bytes = Vec::new();
                put_datum(default.borrowed(), &mut bytes);
                put_bytes(out, &bytes);
            }
        }
        put_varint(out, self.primary_key.len() as u64);
        for &index in &self.primary_key {
            put_varint(out, index as u64);
        }
    }

    /// Reads the byte form; all of `input` must be used.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a newer format or an unknown type, else [`ErrorKind::Corruption`].
    pub fn decode(input: &[u8]) -> Result<Self> {
        let mut input = Reader::new(input);
        let format = input.u8()?;
        if format != FORMAT_VERSION {
            return Err(Error::new(ErrorKind::Unsupported, format!("schema format {format} is unknown")).at(0));
        }
        let version = input.u8()?;
        let count = input.length(MAX_COLUMNS)?;
        let mut columns = Vec::new();
        for _ in 0..count {
            columns.push(Column::decode(&mut input)?);
        }
        let count = input.length(MAX_COLUMNS)?;
        let mut primary_key = Vec::new();
        for _ in 0..count {
            primary_key.push(input.length(MAX_COLUMNS)?);
        }
        input.finish()?;
        let schema = Self::checked(columns, primary_key)
            .map_err(|e| Error::corruption("the schema is not valid").caused_by(e))?;
        Ok(schema.with_version(version))
    }

    /// The Arrow schema of a full scan: of the columns that were not dropped.
    pub fn to_arrow(&self) -> arrow_schema::Schema {
        self.to_arrow_with(TextArrays::Plain)
    }

    /// The same of one with such arrays of text.
    pub fn to_arrow_with(&self, texts: TextArrays) -> arrow_schema::Schema {
        let fields = self.live_columns().map(|(_, column)| column.to_arrow_with(texts));
        arrow_schema::Schema::new(fields.collect::<Vec<_>>())
    }

    /// The schema of an Arrow schema; `primary_key` names columns, which become not null.
    ///
    /// # Errors
    /// As [`Schema::new`] and [`ColumnType::from_arrow`].
    pub fn from_arrow(arrow: &arrow_schema::Schema, primary_key: &[&str]) -> Result<Self> {
        let mut columns = Vec::with_capacity(arrow.fields().len());
        for field in arrow.fields() {
            let ty = ColumnType::from_arrow(field.data_type())
                .map_err(|e| Error::new(e.kind(), format!("column \"{}\": {e}", field.name())))?;
            let nullable = field.is_nullable() && !primary_key.contains(&field.name().as_str());
            columns.push(Column { name: field.name().clone(), ty, nullable, default: None });
        }
        let primary_key = primary_key_indices(&columns, primary_key)?;
        Self::new(columns, primary_key)
    }
}

impl Column {
    fn decode(input: &mut Reader<'_>) -> Result<Self> {
        let name = input.str()?.to_owned();
        let ty = ColumnType::decode(input)?;
        let at = input.position() as u64;
        let flags = input.u8()?;
        if flags & !(NULLABLE | HAS_DEFAULT | DROPPED) != 0 {
            return Err(Error::new(ErrorKind::Unsupported, format!("unknown column flags {flags:#04x}")).at(at));
        }
        if name.is_empty() != (flags & DROPPED != 0) {
            return Err(Error::corruption("a column has a name if it was not dropped, and else none").at(at));
        }
        let default = match flags & HAS_DEFAULT {
            0 => None,
            _ => {
                let malformed = |e: Error| Error::corruption("a column's default is malformed").at(at).caused_by(e);
                Some(decode_datum(&ty, input.bytes()?).map_err(malformed)?.to_datum())
            }
        };
        Ok(Self { name, ty, nullable: flags & NULLABLE != 0, default })
    }

    /// The column as a field of a record batch with such arrays of text.
    pub fn to_arrow_with(&self, texts: TextArrays) -> arrow_schema::Field {
        arrow_schema::Field::new(&self.name, self.ty.to_arrow_with(texts), self.nullable)
    }
}

#[cold]
fn nameless() -> Error {
    Error::invalid(format!("column name \"\" has 0 bytes; 1 to {MAX_NAME_LEN} are possible"))
}

#[cold]
fn name_is_taken(name: &str) -> Error {
    Error::invalid(format!("there is a column \"{name}\" already: choose another name, or rename that one first"))
}

/// Column indices of primary key column names.
pub(crate) fn primary_key_indices(columns: &[Column], names: &[&str]) -> Result<Vec<usize>> {
    names
        .iter()
        .map(|name| {
            columns
                .iter()
                .position(|c| c.name == *name)
                .ok_or_else(|| Error::invalid(format!("the primary key names \"{name}\", which is no column")))
        })
        .collect()
}

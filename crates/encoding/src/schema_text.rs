//! The text form of a schema: `id int64 not null, name utf8, primary key (id)`.
//!
//! Grammar (keywords in any case; a name is a bare word of letters, digits and `_` that does not start with a digit, or
//! anything in double quotes with `""` for a quote; the word `primary` must be quoted to be a name):
//!
//! ```text
//! schema := column { "," column } "," "primary" "key" "(" name { "," name } ")"
//! column := name type [ "not" "null" ] [ "default" value ]
//! type   := bool | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64 | utf8 | binary
//!         | date32 | timestamp "(" ("s" | "ms" | "us" | "ns") [ "," name ] ")" | decimal "(" integer "," integer ")"
//! value  := "null" | anything in single quotes with `''` for one | a bare word of letters, digits and `+-._`
//! ```
//!
//! What is within a value is as [`crate::datum`] prints it; text and binary must be quoted. The default `null` is none.

use std::fmt;
use std::str::FromStr;

use mycelium_base::{Error, Result};

use crate::schema::primary_key_indices;
use crate::{Column, ColumnType, Datum, Schema, TimeUnit};

const SIMPLE: [(&str, ColumnType); 14] = [
    ("bool", ColumnType::Bool),
    ("int8", ColumnType::Int8),
    ("int16", ColumnType::Int16),
    ("int32", ColumnType::Int32),
    ("int64", ColumnType::Int64),
    ("uint8", ColumnType::UInt8),
    ("uint16", ColumnType::UInt16),
    ("uint32", ColumnType::UInt32),
    ("uint64", ColumnType::UInt64),
    ("float32", ColumnType::Float32),
    ("float64", ColumnType::Float64),
    ("utf8", ColumnType::Utf8),
    ("binary", ColumnType::Binary),
    ("date32", ColumnType::Date32),
];

const UNITS: [&str; 4] = ["s", "ms", "us", "ns"];

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timestamp(unit, None) => write!(f, "timestamp({})", UNITS[*unit as usize]),
            Self::Timestamp(unit, Some(zone)) => {
                write!(f, "timestamp({}, ", UNITS[*unit as usize])?;
                write_quoted(f, zone)?;
                f.write_str(")")
            }
            Self::Decimal128(precision, scale) => write!(f, "decimal({precision}, {scale})"),
            simple => match SIMPLE.iter().find(|(_, ty)| ty == simple) {
                Some((name, _)) => f.write_str(name),
                None => Err(fmt::Error),
            },
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(f, &self.name)?;
        write!(f, " {}", self.ty)?;
        if !self.nullable {
            f.write_str(" not null")?;
        }
        let Some(default) = &self.default else { return Ok(()) };
        let text = default.borrowed().display_as(&self.ty).to_string();
        match is_quoted(&self.ty) {
            true => write!(f, " default '{}'", text.replace('\'', "''")),
            false => write!(f, " default {text}"),
        }
    }
}

/// Whether values of the type print in quotes.
fn is_quoted(ty: &ColumnType) -> bool {
    matches!(ty, ColumnType::Utf8 | ColumnType::Binary | ColumnType::Date32 | ColumnType::Timestamp(..))
}

/// Prints what [`Schema::parse`] reads (the schema version is not part of it, nor are columns that were dropped).
impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (_, column) in self.live_columns() {
            write!(f, "{column}, ")?;
        }
        f.write_str("primary key (")?;
        for (position, &index) in self.primary_key().iter().enumerate() {
            if position > 0 {
                f.write_str(", ")?;
            }
            write_name(f, &self.columns()[index].name)?;
        }
        f.write_str(")")
    }
}

fn is_bare(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.eq_ignore_ascii_case("primary")
}

fn write_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    if is_bare(name) { f.write_str(name) } else { write_quoted(f, name) }
}

fn write_quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    write!(f, "\"{}\"", text.replace('"', "\"\""))
}

impl Schema {
    /// Reads the text form.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] with the place in the text, or what [`Schema::new`] refuses.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parser = Parser { text, position: 0 };
        let mut columns = Vec::new();
        loop {
            if parser.keyword("primary") {
                break;
            }
            columns.push(parser.column()?);
            parser.symbol(',')?;
        }
        if !parser.keyword("key") {
            return Err(parser.error("expected \"key\""));
        }
        parser.symbol('(')?;
        let mut names = vec![parser.name()?];
        while parser.symbol_if(',') {
            names.push(parser.name()?);
        }
        parser.symbol(')')?;
        parser.end()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let primary_key = primary_key_indices(&columns, &names)?;
        Self::new(columns, primary_key)
    }
}

impl FromStr for Column {
    type Err = Error;

    /// Reads a column as it stands in the text form of a schema: `name utf8`, `id int64 not null`.
    fn from_str(text: &str) -> Result<Self> {
        let mut parser = Parser { text, position: 0 };
        let column = parser.column()?;
        parser.end()?;
        Ok(column)
    }
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn skip_space(&mut self) {
        self.position = self.text.len() - self.rest().trim_start().len();
    }

    fn end(&mut self) -> Result<()> {
        self.skip_space();
        if self.position == self.text.len() { Ok(()) } else { Err(self.error("expected the end")) }
    }

    fn error(&self, message: &str) -> Error {
        let near: String = self.rest().chars().take(20).collect();
        Error::invalid(format!("schema text: {message} at byte {} (\"{near}\")", self.position))
    }

    fn symbol_if(&mut self, symbol: char) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(symbol);
        if found {
            self.position += symbol.len_utf8();
        }
        found
    }

    fn symbol(&mut self, symbol: char) -> Result<()> {
        if self.symbol_if(symbol) { Ok(()) } else { Err(self.error(&format!("expected \"{symbol}\""))) }
    }

    fn peek_word(&mut self) -> &'a str {
        self.skip_space();
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        &rest[..end]
    }

    fn keyword(&mut self, keyword: &str) -> bool {
        let word = self.peek_word();
        let found = word.eq_ignore_ascii_case(keyword);
        if found {
            self.position += word.len();
        }
        found
    }

    fn name(&mut self) -> Result<String> {
        if self.symbol_if('"') {
            return self.quoted('"');
        }
        let word = self.peek_word();
        if !is_bare(word) {
            return Err(self.error("expected a name"));
        }
        self.position += word.len();
        Ok(word.to_owned())
    }

    /// The rest of a quoted name or value, after its opening quote.
    fn quoted(&mut self, quote: char) -> Result<String> {
        let mut text = String::new();
        loop {
            let Some(end) = self.rest().find(quote) else { return Err(self.error("a quote is not closed")) };
            text.push_str(&self.rest()[..end]);
            self.position += end + quote.len_utf8();
            if !self.rest().starts_with(quote) {
                return Ok(text);
            }
            text.push(quote);
            self.position += quote.len_utf8();
        }
    }

    /// The default of a column of type `ty`; null is none.
    fn default(&mut self, ty: &ColumnType) -> Result<Option<Datum>> {
        if self.keyword("null") {
            return Ok(None);
        }
        if self.symbol_if('\'') {
            return Datum::parse(&self.quoted('\'')?, ty).map(Some);
        }
        if matches!(ty, ColumnType::Utf8 | ColumnType::Binary) {
            return Err(self.error("expected a value in single quotes"));
        }
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-._".contains(c)).unwrap_or(rest.len());
        let value = Datum::parse(&rest[..end], ty).map_err(|e| self.error(&e.to_string()))?;
        self.position += end;
        Ok(Some(value))
    }

    fn integer(&mut self) -> Result<i8> {
        self.skip_space();
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '-')).unwrap_or(rest.len());
        let value = rest[..end].parse().map_err(|_| self.error("expected a small integer"))?;
        self.position += end;
        Ok(value)
    }

    fn column(&mut self) -> Result<Column> {
        let name = self.name()?;
        let ty = self.column_type()?;
        let nullable = !self.keyword("not");
        if !nullable && !self.keyword("null") {
            return Err(self.error("expected \"null\""));
        }
        let default = if self.keyword("default") { self.default(&ty)? } else { None };
        Ok(Column { name, ty, nullable, default })
    }

    fn column_type(&mut self) -> Result<ColumnType> {
        if self.keyword("timestamp") {
            self.symbol('(')?;
            let word = self.peek_word();
            let Some(unit) = UNITS.iter().position(|unit| word.eq_ignore_ascii_case(unit)) else {
                return Err(self.error("expected s, ms, us or ns"));
            };
            self.position += word.len();
            let zone = if self.symbol_if(',') { Some(self.name()?.into()) } else { None };
            self.symbol(')')?;
            return Ok(ColumnType::Timestamp(TimeUnit::ALL[unit], zone));
        }
        if self.keyword("decimal") {
            self.symbol('(')?;
            let precision = self.integer()?;
            self.symbol(',')?;
            let scale = self.integer()?;
            self.symbol(')')?;
            let precision = u8::try_from(precision).map_err(|_| self.error("a precision is positive"))?;
            return Ok(ColumnType::Decimal128(precision, scale));
        }
        for (name, ty) in &SIMPLE {
            if self.keyword(name) {
                return Ok(ty.clone());
            }
        }
        Err(self.error("expected a type"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DatumRef;
    use mycelium_base::ErrorKind;

    const ALL_TYPES: &str = "a bool not null, b int8, c int16, d int32, e int64, f uint8, g uint16, h uint32, i uint64, \
        j float32, k float64, l utf8 not null, m binary, n date32, o timestamp(s), p timestamp(ms), q timestamp(us), \
        r timestamp(ns, \"Europe/Zurich\"), s decimal(38, -38), t decimal(9, 9), \"primary\" int8, \"a \"\"b\"\"\" int8, \
        primary key (l, a)";

    #[test]
    fn text_and_bytes_and_arrow_round_trip() {
        let schema = Schema::parse(ALL_TYPES).unwrap();
        assert_eq!(schema.to_string(), ALL_TYPES);
        assert_eq!(schema.primary_key(), [11, 0]);
        let versioned = schema.clone().with_version(7);
        let mut bytes = Vec::new();
        versioned.encode(&mut bytes);
        assert_eq!(Schema::decode(&bytes).unwrap(), versioned);
        assert_eq!(Schema::from_arrow(&schema.to_arrow(), &["l", "a"]).unwrap(), schema);
        for cut in 0..bytes.len() {
            assert!(Schema::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn golden_bytes() {
        let schema = Schema::parse("id int64 not null, d decimal(10, -2), t timestamp(us, \"Z\"), primary key (id)");
        let mut bytes = Vec::new();
        schema.unwrap().encode(&mut bytes);
        assert_eq!(bytes, b"\x01\x00\x03\x02id\x05\x00\x01d\x10\x0a\xfe\x01\x01t\x0f\x02\x01\x01Z\x01\x01\x00");
    }

    /// A bit of the flags announces it, so that schemas without defaults lie as they did.
    #[test]
    fn golden_bytes_of_defaults() {
        let schema =
            Schema::parse("id int64 not null, a int16 default -2, b utf8 not null default 'x', primary key (id)");
        let mut bytes = Vec::new();
        schema.as_ref().unwrap().encode(&mut bytes);
        assert_eq!(bytes, b"\x01\x00\x03\x02id\x05\x00\x01a\x03\x03\x02\xfe\xff\x01b\x0c\x02\x01x\x01\x00");
        assert_eq!(Schema::decode(&bytes).unwrap(), schema.unwrap());
        let of_wrong_width = b"\x01\x00\x02\x02id\x05\x00\x01a\x03\x03\x01\xfe\x01\x00";
        assert_eq!(Schema::decode(of_wrong_width).unwrap_err().kind(), ErrorKind::Corruption);
    }

    #[test]
    fn damaged_bytes_are_errors() {
        let mut bytes = Vec::new();
        let text = ALL_TYPES.replace("h uint32,", "h uint32 default 7, dd utf8 not null default 'it', ");
        Schema::parse(&text).unwrap().encode(&mut bytes);
        for position in 0..bytes.len() {
            for flip in [0x01, 0x10, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[position] ^= flip;
                if let Ok(schema) = Schema::decode(&damaged) {
                    let mut again = Vec::new();
                    schema.encode(&mut again);
                    assert_eq!(again, damaged);
                }
            }
        }
        assert_eq!(Schema::decode(b"\x02").unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(Schema::decode(b"\x01\x00\x01\x01a\x63\x00\x01\x00").unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_column_is_read_by_itself() {
        for text in [
            "a int8",
            "b decimal(5, 2) not null",
            "\"a b\" timestamp(us, \"UTC\")",
            "a int8 not null default -7",
            "a float64 default NaN",
            "a decimal(5, 2) default -1.50",
            "a bool default true",
            "a utf8 default ''",
            "a utf8 not null default 'it''s, \"null\"'",
            "a binary default '\\x00ff'",
            "a date32 default '2024-02-29'",
            "a timestamp(ms, \"UTC\") default '2024-02-29T12:00:00.5Z'",
        ] {
            assert_eq!(text.parse::<Column>().unwrap().to_string(), text);
        }
        assert_eq!("a utf8 default null".parse::<Column>().unwrap(), Column::new("a", ColumnType::Utf8));
        for text in [
            "",
            "a",
            "a int8, b int8",
            "a int8 null",
            "primary int8",
            "a int8 default",
            "a int8 default 128",
            "a int8 default x",
            "a utf8 default x",
            "a utf8 default 'x",
            "a int8 default 1 not null",
        ] {
            assert_eq!(text.parse::<Column>().unwrap_err().kind(), ErrorKind::InvalidArgument, "{text}");
        }
    }

    #[test]
    fn a_schema_with_another_column_or_name_is_checked() {
        let schema = Schema::parse("id int64 not null, a int8, primary key (id)").unwrap();
        let wider = schema.with_column("b utf8".parse().unwrap()).unwrap();
        assert_eq!(wider.to_string(), "id int64 not null, a int8, b utf8, primary key (id)");
        assert_eq!(
            wider.with_name("id", "key").unwrap().to_string(),
            "key int64 not null, a int8, b utf8, primary key (key)"
        );
        let filled = schema.with_column("b utf8 not null default 'x'".parse().unwrap()).unwrap();
        assert_eq!(filled.to_string(), "id int64 not null, a int8, b utf8 not null default 'x', primary key (id)");
        assert_eq!(filled.columns()[2].default_value(), DatumRef::Utf8("x"));
        assert_eq!(filled.with_name("b", "c").unwrap().columns()[2].default, filled.columns()[2].default);
        for refused in ["a utf8", "b utf8 not null", "b decimal(39, 0)", "b utf8 not null default null"] {
            let refused = schema.with_column(refused.parse().unwrap()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(schema.with_name("c", "d").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(schema.with_name("a", "id").unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn a_column_that_was_dropped_leaves_its_position() {
        let schema = Schema::parse("id int64 not null, a int8 not null, b utf8, primary key (id)").unwrap();
        let without = schema.without_column("a").unwrap();
        assert_eq!(without.to_string(), "id int64 not null, b utf8, primary key (id)");
        assert_eq!((without.index_of("a"), without.index_of("b"), without.index_of("")), (None, Some(2), None));
        assert_eq!((without.value_columns().to_string(), without.to_arrow().fields().len()), ("2".into(), 2));
        let again = without.with_column("a utf8 not null default 'x'".parse().unwrap()).unwrap();
        assert_eq!((again.index_of("a"), again.columns()[1].is_dropped()), (Some(3), true));
        let mut bytes = Vec::new();
        again.encode(&mut bytes);
        assert_eq!(Schema::decode(&bytes).unwrap(), again);
        // Its name is empty, and nothing but the flag says so.
        let flags = b"\x01\x00\x02\x02id\x05\x00\x00\x02\x05\x01\x00";
        assert!(Schema::decode(flags).unwrap().columns()[1].is_dropped());
        for unsound in
            [&b"\x01\x00\x02\x02id\x05\x00\x00\x02\x01\x01\x00"[..], b"\x01\x00\x02\x02id\x05\x00\x01a\x02\x05\x01\x00"]
        {
            assert_eq!(Schema::decode(unsound).unwrap_err().kind(), ErrorKind::Corruption);
        }
        assert_eq!(schema.without_column("x").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(without.without_column("").unwrap_err().kind(), ErrorKind::NotFound);
        for (of, name) in [(&schema, "id"), (&without, "b")] {
            assert_eq!(of.without_column(name).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(without.with_name("b", "").unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(without.with_column(Column::new("", ColumnType::Int8)).is_err());
    }

    #[test]
    fn a_refused_change_says_what_is_in_the_way_and_what_to_do() {
        let schema = Schema::parse("id int64 not null, a int8, primary key (id)").unwrap();
        let full = (2..crate::schema::MAX_COLUMNS).map(|at| Column::new(format!("c{at}"), ColumnType::Bool));
        let full = Schema::new(schema.columns().iter().cloned().chain(full).collect(), vec![0]).unwrap();
        let without = full.without_column("a").unwrap();
        for (refused, [why, what]) in [
            (schema.with_column("a utf8".parse().unwrap()), ["a column \"a\" already", "another name"]),
            (schema.with_name("id", "a"), ["a column \"a\" already", "another name"]),
            (schema.with_column("b utf8 not null".parse().unwrap()), ["rows that are there", "have a default"]),
            (without.with_column("a utf8".parse().unwrap()), ["dropped keep their places", "into a table without"]),
            (schema.without_column("id"), ["in the primary key", "another key"]),
            (schema.without_column("a"), ["the last outside", "add another one first"]),
        ] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(why) && refused.contains(what), "{refused}");
        }
        assert_eq!(schema.with_name("a", "a").unwrap(), schema);
    }

    #[test]
    fn refused_schemas_say_why() {
        for (text, why) in [
            ("a int8 not null", "expected \",\""),
            ("a int8 not null,", "expected a name"),
            ("a int9, primary key (a)", "expected a type"),
            ("a int8 not null, primary key (b)", "\"b\", which is no column"),
            ("a int8, primary key (a)", "may be null"),
            ("a int8 not null, a int8, primary key (a)", "appears twice"),
            ("a int8 not null default 1, primary key (a)", "has a default"),
            ("a int8 not null, b decimal(3, 1) default 100, primary key (a)", "is not a value of type"),
            ("a int8 not null, primary key (a, a)", "twice"),
            ("a int8 not null, b decimal(39, 0), primary key (a)", "the precision must be"),
            ("a int8 not null, b decimal(5, 6), primary key (a)", "the precision must be"),
            ("a int8 not null, primary key ()", "expected a name"),
            ("a int8 not null, \"\" int8, primary key (a)", "0 bytes"),
            ("a int8 not null, \"b int8, primary key (a)", "not closed"),
            ("a int8 not null, primary key (a) x", "expected the end"),
            ("a int8 not null, b timestamp(h), primary key (a)", "expected s, ms"),
        ] {
            let error = Schema::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
        assert!(Schema::new(vec![], vec![]).is_err());
        assert!(Schema::new(vec![Column::new("a", ColumnType::Int8).not_null()], vec![1]).is_err());
        for default in [Datum::Null, Datum::Int8(1), Datum::Utf8("x".repeat(1025))] {
            let column = Column { default: Some(default), ..Column::new("b", ColumnType::Utf8) };
            assert!(Schema::new(vec![Column::new("a", ColumnType::Int8).not_null(), column], vec![0]).is_err());
        }
        let many = (0..5000).map(|i| Column::new(format!("c{i}"), ColumnType::Int8).not_null()).collect();
        assert!(Schema::new(many, vec![0]).is_err());
    }
}

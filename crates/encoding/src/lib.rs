//! How the rows of typed tables become bytes, by rows and by columns, and Arrow record batches.
//!
//! A typed table maps a row to one entry: the primary key columns become the key ([`key`]), all other columns become
//! the value ([`packed`], or another [`row_format`]). Nothing here performs I/O, and nothing panics on malformed bytes.
//!
//! | what | where |
//! |---|---|
//! | columns, their types and the primary key, also as text and as bytes | [`schema`] |
//! | single values, also as text | [`datum`] |
//! | primary keys as byte strings that sort as the values do | [`key`] |
//! | the first columns of keys, for filters | [`KeyPrefixes`] |
//! | rows and patches in our own format | [`packed`] |
//! | rows and patches as JSON, Protobuf, FlatBuffers or raw bytes | [`row_format`] |
//! | patches folded into rows | [`combiner`] |
//! | values of column groups: how they are written ([`FragmentFormat`]), taken out and put together | [`projection`] |
//! | the cells of a column of a block: encodings, dictionaries, symbol tables, filters, zones | [`page`] |
//! | rows grouped and aggregated, in parts: what materialised views are made of | [`aggregate`] |
//! | rows as Arrow record batches, texts as arrays, views or dictionaries ([`TextArrays`]) | [`batch`] |
//! | and back | [`BatchRows`] |
//!
//! ```
//! use std::sync::Arc;
//! use mycelium_encoding::{DatumRef, PackedLayout, Schema, key};
//!
//! let schema = Arc::new(Schema::parse("id int64 not null, name utf8, score float64, primary key (id)")?);
//! let layout = PackedLayout::new(schema.clone());
//! let row = [DatumRef::Int64(7), DatumRef::Utf8("spore"), DatumRef::Null];
//!
//! let (mut key, mut value) = (Vec::new(), Vec::new());
//! key::encode_row_key(&schema, &row, &mut key)?;
//! layout.encode_row(&row, &mut value)?;
//!
//! let packed = layout.row(&value)?;
//! assert_eq!(packed.datum(1)?, Some(DatumRef::Utf8("spore")));
//! assert_eq!(packed.datum(2)?, Some(DatumRef::Null));
//! assert_eq!(key::decode_key(&schema, &key)?[0].borrowed(), DatumRef::Int64(7));
//! # Ok::<(), mycelium_base::Error>(())
//! ```

pub mod aggregate;
pub mod batch;
mod batch_rows;
mod cell_moves;
pub mod combiner;
pub mod datum;
mod datum_text;
mod fragment;
pub mod key;
mod key_prefixes;
pub mod packed;
pub mod page;
pub mod projection;
pub mod row_format;
pub mod schema;
mod schema_text;
mod text_codes;

pub use aggregate::{Aggregate, Aggregation, GroupRow, Groups};
pub use batch::{RecordBatchBuilder, RowPart, TextArrays};
pub use batch_rows::BatchRows;
pub use combiner::PatchCombiner;
pub use datum::{Datum, DatumRef};
pub use fragment::{FragmentFormat, Reshape, ValueMap};
pub use key_prefixes::KeyPrefixes;
pub use packed::{ColumnState, PackedLayout, PackedRow, PackedScratch, PackedShape, marks_of};
pub use projection::{Projection, join, join_lacking};
pub use row_format::{RowFormat, RowFormatKind};
pub use schema::{Column, ColumnType, Schema, TimeUnit};

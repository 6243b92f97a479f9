//! Transformers: what reshapes data inside compactions (Mycelium §4.2).
//!
//! A table's definition names a set of transformers ([`TransformerSet`]). A [`Registry`] makes them and links them to
//! the table's columns and source format, which gives a [`Linked`]:
//!
//! - a [`mycelium_manifest::Layout`], in which splits and converts are groups and formats, level by level;
//! - the steps whose transformers must be called, which are users' own;
//! - the transformers that feed derived tables, secondary indexes say, from what leaves level 0;
//! - warnings where the paper's cost model does not hold.
//!
//! A compaction asks the [`Linked`] for a [`Job`], gives it the entries that survive, and writes what it makes of them.
//!
//! | module | what it is | paper |
//! |---|---|---|
//! | `transformer` | the trait | §4.2.1 |
//! | `built_in` | identity, split, convert, augment | §4.2.2-4.2.4 |
//! | `definition`, `registry` | transformers as text, and by name | (ours) |
//! | `link` | validate and sort, link, tierveling, the bound of the cost model | Algorithm 1, §4.2.5, §3.4, App. B |
//! | `job`, `outputs`, `staging` | one compaction's transformers at work, within a budget | Algorithm 2 |
//! | `derive`, `flat_map` | what a row derives, outside of a job; users' flat-maps | §4.2.1 |
//! | `gathered` | what is made of the entry in hand | (ours) |
//! | `group_values` | values of column groups, and from one group and format to another | §4.2.2, §4.2.3 |
//!
//! ```
//! use std::sync::Arc;
//! use mycelium_base::{GroupFormat, RowFormatKind};
//! use mycelium_encoding::Schema;
//! use mycelium_transform::{Formats, LinkOptions, Registry, TransformerSet};
//!
//! let schema = Schema::parse("id int64 not null, city utf8, year int32, note utf8, primary key (id)")?;
//! let formats = Arc::new(Formats::new(Arc::new(schema)));
//! let set = TransformerSet::parse(
//!     "convert json to packed
//!      split into 1-2 | 3
//!      augment by_city on 1",
//! )?;
//! let linked =
//!     Registry::built_in().link(&set, &formats, GroupFormat::Row(RowFormatKind::Json), &LinkOptions::default())?;
//! assert_eq!(
//!     linked.layout().to_string(),
//!     "L0 tiered: * json\nL1 tiered: 1-2 packed | 3 packed\nL2 leveled: 1-2 packed | 3 packed\n"
//! );
//! assert_eq!(linked.derived_tables(), ["by_city"]);
//! assert!(linked.warnings().is_empty());
//! # Ok::<(), mycelium_base::Error>(())
//! ```

mod built_in;
mod definition;
mod derive;
mod flat_map;
mod gathered;
mod group_values;
mod job;
mod link;
mod outputs;
mod registry;
mod staging;
mod transformer;

pub use built_in::{Augment, Convert, Identity, RowIndexer, RowValues, Split};
pub use definition::{MAX_LINE_LEN, MAX_NAME_LEN, MAX_TRANSFORMERS, TransformerDefinition, TransformerSet};
pub use derive::{Derived, Deriver};
pub use flat_map::FlatMap;
pub use gathered::{DerivedEntries, MAX_DERIVED_BYTES};
pub use group_values::{Formats, GroupValues};
pub use job::{Job, Progress};
pub use link::{LinkOptions, Linked, NamedTransformer, Step, Warning};
pub use outputs::Outputs;
pub use registry::Registry;
pub use staging::{DerivedEntry, Staged};
pub use transformer::{InputEntry, JobContext, Place, TransformState, Transformer};

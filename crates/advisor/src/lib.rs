//! The advisor: the papers' cost models as functions, traces of what a table is asked for, and column groups designed
//! from a trace.
//!
//! | module | what it is | paper |
//! |---|---|---|
//! | [`cost::laser`] | levels, amplification, point, range and update costs of a layout | LASER §2.2, §5, eq. 1-9 |
//! | [`cost::formats`] | the same for groups of rows and columnar groups, CPU time of scans included | (ours) |
//! | [`cost::mycelium`] | throughput, point, range and space costs of transformations | Mycelium App. B, eq. 3-5 |
//! | [`cost::lsm_opd`] | compactions and value filters with and without dictionaries | LSM-OPD §4.2 |
//! | [`trace`] | what was read and written, by level and projection | LASER §6.1 |
//! | [`design`] | column groups for every level | LASER §6.2-6.3, eq. 10 |
//! | [`proposal`] | the layout that a table should have, and what it costs beside others | LASER §6 |
//! | [`redesign`] | whether a proposed design is worth the rewriting | (ours; LASER §7.3 leaves it open) |
//!
//! Everything is a pure function of its arguments, but for [`trace::Recorder`], which counts from many threads.
//! Costs are in block I/Os unless an item says otherwise.
//!
//! ```
//! use mycelium_advisor::{Tree, Trace, advise};
//! use mycelium_base::ColumnSet;
//!
//! // Rows are read young, column 3 is scanned old.
//! let mut trace = Trace::new(4, 3)?;
//! trace.add_inserts(1_000);
//! trace.add_points(1, &ColumnSet::first(4), 500)?;
//! trace.add_scans(2, &"3".parse()?, 10, 1_000_000)?;
//!
//! let tree = Tree { size_ratio: 10.0, entries_per_block: 40.0, columns: 4 };
//! let advice = advise(&tree, &trace, &[2])?;
//! assert_eq!(advice.design.to_string(), "L0: 0-3\nL1: 0-3\nL2: 0-2 | 3\n");
//! # Ok::<(), mycelium_base::Error>(())
//! ```

pub mod cost;
pub mod design;
mod numbering;
pub mod proposal;
pub mod redesign;
pub mod trace;

pub use cost::formats::Formats;
pub use cost::laser::Tree;
pub use design::{Advice, Candidate, Design, DesignCost, advise, advise_formats, level_by_level};
pub use numbering::Numbering;
pub use proposal::{LayoutAdvice, TableFacts, advise_layout};
pub use redesign::{Hysteresis, Proposal, Verdict, decide};
pub use trace::{Access, Recorder, Trace};

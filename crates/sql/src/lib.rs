//! Read-only SQL over typed tables: Apache DataFusion parses, plans and executes, the engine finds the rows.
//!
//! [`Session`] takes statements and gives record batches; [`Catalog`] puts the tables into a DataFusion session of
//! one's own. Every statement reads one snapshot of all its tables.
//!
//! | module | what it is |
//! |---|---|
//! | `statement` | what may be said, and what is refused before DataFusion sees it |
//! | `passed_over` | clauses that DataFusion would pass over, which are refused |
//! | `with_clause` | queries of a `WITH` clause, which DataFusion plans wherever they are used |
//! | `written_decimal` | numbers as they were written, of more digits than a double has |
//! | `session` | a statement's life; snapshots under names |
//! | `column_names` | columns of a `SELECT` to which DataFusion gives one name |
//! | `catalog`, `table` | the tables as DataFusion finds and asks them |
//! | `pushdown` | splits predicates: key ranges, an index's ranges, and the rest |
//! | `column_test`, `literal` | predicates as tests of one column, literals as its values |
//! | `wider_test` | predicates that bound a column, and are no test of it |
//! | `key_range` | tests of leading key columns as disjoint ranges |
//! | `correlated` | subqueries that refer outside, where DataFusion would lose what they say |
//! | `exact` | comparisons that DataFusion would make with other values than were written |
//! | `alike` | sides of comparisons whose common type would lose something |
//! | `interval_length` | intervals as what they are compared by |
//! | `kept_cast` | casts that are not moved to the other side of a comparison |
//! | `moment` | moments as nanoseconds and as ticks |
//! | `null_lists` | lists beside lists, whose nulls DataFusion forgets |
//! | `checked_sum` | `sum` of integers and decimals, which fails where DataFusion's wraps around |
//! | `checked_arithmetic` | `+`, `-` and `*` of integers, likewise |
//! | `moving_frame` | sums, averages and statistics of floats over frames that move |
//! | `date_hours` | dates beside intervals of hours |
//! | `decimal_arithmetic` | arithmetic of decimals: literals with a point, quotients that keep their digits |
//! | `one_zero` | floats that are told apart by their bits, where SQL has one zero |
//! | `plan_rewrite` | what rules over a plan's expressions have in common |
//! | `deep_stack` | long chains of operators, which planning walks |
//! | `scan`, `read` | the leaf of the plan: partitions, order, statistics; what a partition reads |
//! | `last_rows` | the last rows by key, which are read from the end |
//! | `zone_aggregate` | counts, minima and maxima that need no scan of all rows |
//! | `sql_type` | columns as SQL has them, where Arrow's types do not do |
//! | `failure` | errors across the border |

mod alike;
mod catalog;
mod checked_arithmetic;
mod checked_sum;
mod column_names;
mod column_test;
mod correlated;
mod date_hours;
mod decimal_arithmetic;
mod deep_stack;
mod exact;
mod failure;
mod interval_length;
mod kept_cast;
mod key_range;
mod last_rows;
mod literal;
mod moment;
mod moving_frame;
mod null_lists;
mod one_zero;
mod passed_over;
mod plan_rewrite;
mod pushdown;
mod read;
mod scan;
mod session;
mod sql_type;
mod statement;
mod table;
mod wider_test;
mod with_clause;
mod written_decimal;
mod zone_aggregate;

pub use catalog::{CATALOG, Catalog, SCHEMA};
pub use datafusion;
pub use key_range::KeyRange;
pub use scan::MyceliumScan;
pub use session::{Answer, ReadSummary, Session};
pub use table::MyceliumTable;
pub use zone_aggregate::MyceliumAggregate;

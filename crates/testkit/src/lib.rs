//! What the tests share: the model, histories of actions, engine configurations and the driver that compares.
//!
//! The model answers every read by straight search through everything ever written. It is written from the semantics
//! alone and calls no engine code, so that a mistake has to be made twice to go unnoticed. A test draws a history from
//! a seed, runs it against a [`Store`] and the model at once, and every answer must be the same:
//!
//! ```
//! use mycelium_testkit::{HistoryOptions, ModelStore, TableKind, check_history, generate};
//!
//! let options = HistoryOptions { seed: 7, actions: 200, ..HistoryOptions::default() };
//! let mut store = ModelStore::new(&options.tables);
//! check_history(&mut store, &options.tables, &generate(&options)).unwrap();
//! ```

pub mod configurations;
pub mod crash;
pub mod driver;
mod engine_options;
pub mod engine_store;
pub mod failing;
pub mod fuzz;
mod fuzz_columns;
mod fuzz_rows;
mod index_checks;
pub mod kill_script;
pub mod mechanisms;
pub mod model;
pub mod open_transaction;
mod opened;
pub mod operations;
mod prefix_violation;
mod random_configurations;
mod row_definitions;
pub mod scale;
mod scan_checks;
pub mod shrink;
pub mod store;
mod stored_rows;
pub mod tables;
mod told_checks;
mod transformers;
mod view_checks;

pub use configurations::{Configuration, configurations};
pub use driver::{Mismatch, check_history};
pub use engine_store::EngineStore;
pub use mechanisms::Mechanisms;
pub use model::{
    Change, CrashKind, Direction, Durability, Model, Move, PrefixViolation, Row, ScanRange, State, TransactionRead,
    TransactionStep, Write, WriteKind, surviving_writes,
};
pub use open_transaction::{Fate, LockFate, OpenTransaction};
pub use operations::{Action, HistoryOptions, KeyShape, Weights, generate};
pub use scale::{Scale, grouped};
pub use shrink::shrink;
pub use store::{ModelStore, ModelTransaction, ModelWalk, Store};
pub use tables::{AppendOperator, RemovingOperator, TableKind, TableRules};
pub use transformers::transformers;

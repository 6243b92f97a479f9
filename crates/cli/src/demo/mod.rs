//! `mycelium demo`: a year of flights, replayed and analysed while it is loaded.

mod answers;
mod columns;
mod directory;
mod event_time;
mod flight;
mod held_snapshot;
mod oracle;
mod questions;
mod replay;
mod run;
mod store;
mod stream;
mod summary;
mod view;

pub(crate) use run::run;

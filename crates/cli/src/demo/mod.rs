//! `mycelium demo`: a year of flights, replayed and analysed while it is loaded.

mod answers;
mod event_time;
mod flight;
mod oracle;
mod stream;
mod summary;
mod view;

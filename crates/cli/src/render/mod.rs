//! Pictures for the terminal, as pure functions of what they show.

pub(crate) mod levels;
pub(crate) mod units;

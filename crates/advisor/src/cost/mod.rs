//! The cost models of the papers, equation by equation.
//!
//! Plain functions of numbers. None panics or checks its arguments: what lies outside a model (a size ratio of 1, a
//! block of no bytes) gives infinity or NaN, as the equation does. [`crate::design`] checks before it starts.

pub mod formats;
pub mod laser;
pub mod lsm_opd;
pub mod mycelium;

//! Row formats: properties from a seed, rules one by one, malformed input, golden bytes.
//!
//! `MYCELIUM_TEST_SEED=N` replaces the seed, which a failure prints.

#[cfg(test)]
mod definitions;
#[cfg(test)]
mod drawing;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod malformed;
#[cfg(test)]
mod other_writers;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod rules;

//! Properties of linking on layouts and of transformers on data, drawn from a seed; rules one by one.
//!
//! `MYCELIUM_TEST_SEED=N` replaces the seed, which a failure prints. Schemas, rows and definitions are drawn as for the
//! row formats, whose code this is.

#[cfg(test)]
mod budget;
#[cfg(test)]
mod data;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../encoding/tests/row_formats/definitions.rs"]
mod definitions;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../../encoding/tests/row_formats/drawing.rs"]
mod drawing;
#[cfg(test)]
mod indexes;
#[cfg(test)]
mod layouts;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod users;

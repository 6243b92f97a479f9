//! The numbers that traces and designs give to columns.
//!
//! The models of the papers number the columns besides the key from 0, without gaps; a schema has its key columns
//! anywhere among them. A [`Numbering`] translates: column `n` of a trace is the `n`-th of the columns that are not in
//! the key.

use mycelium_base::ColumnSet;

/// Positions in a schema, and the numbers 0, 1, 2, … that stand for them in traces and designs.
///
/// ```
/// use mycelium_advisor::Numbering;
///
/// // Columns 0 and 2 are the key.
/// let numbering = Numbering::new(&"1,3-5".parse()?);
/// assert_eq!(numbering.numbers(&"3,5".parse()?).to_string(), "1,3");
/// assert_eq!(numbering.positions(&"1,3".parse()?).to_string(), "3,5");
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbering {
    columns: ColumnSet,
    /// Ascending.
    positions: Vec<usize>,
}

impl Numbering {
    /// Numbers these positions in ascending order.
    pub fn new(columns: &ColumnSet) -> Self {
        Self { columns: columns.clone(), positions: columns.iter().collect() }
    }

    /// The positions that have numbers.
    pub fn columns(&self) -> &ColumnSet {
        &self.columns
    }

    /// The numbers of positions; those without one are left out.
    pub fn numbers(&self, positions: &ColumnSet) -> ColumnSet {
        positions.iter().filter_map(|position| self.positions.binary_search(&position).ok()).collect()
    }

    /// The positions of numbers; numbers that are not given are left out.
    pub fn positions(&self, numbers: &ColumnSet) -> ColumnSet {
        numbers.iter().filter_map(|number| self.positions.get(number).copied()).collect()
    }
}

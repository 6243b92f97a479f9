//! Databases outside of this process beside ours.
//!
//! 1. The rows are written to a Parquet file in the order of their key, from which each rival loads its table.
//! 2. Every question is asked of it in turn with ours. Its rows stay as they were loaded: its answers are compared with
//!    ours on the compacted table, cell by cell, numbers to a millionth, for an average of decimals is a decimal here
//!    and a float there.
//! 3. While rows are inserted here it is not asked, since it would share the cores with them: its times are those of
//!    before.
//!
//! A rival that fails has no figures from then on, and the report says why.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::ArrowWriter;

use super::data::{Data, Question};
use crate::store::Result;

/// A loaded rival.
pub trait AnalyticsRival {
    /// Asks a query.
    fn ask(&mut self, text: &str) -> Result<RivalAnswer>;
}

/// What a rival answered.
#[derive(Clone, PartialEq, Debug)]
pub struct RivalAnswer {
    /// From the query's arrival until the last row was there.
    pub seconds: f64,
    /// Its rows, each cell as text.
    pub rows: Vec<Vec<String>>,
}

/// Loads a table: from an empty directory for what the rival keeps, the table's name and a Parquet file of its rows, in
/// the order in which they are to lie.
pub type LoadAnalyticsTable<'a> = &'a dyn Fn(&Path, &str, &Path) -> Result<Box<dyn AnalyticsRival>>;

/// Another database.
pub struct AnalyticsRivalFactory<'a> {
    /// How reports call it.
    pub name: &'a str,
    /// Makes its table.
    pub load: LoadAnalyticsTable<'a>,
}

/// Rivals that have not failed, and why others have.
pub(super) struct Rivals {
    loaded: BTreeMap<String, Box<dyn AnalyticsRival>>,
    pub(super) failed: BTreeMap<String, String>,
}

impl Rivals {
    pub(super) fn load(directory: &Path, data: &dyn Data, factories: &[AnalyticsRivalFactory<'_>]) -> Result<Self> {
        let mut rivals = Self { loaded: BTreeMap::new(), failed: BTreeMap::new() };
        if factories.is_empty() {
            return Ok(rivals);
        }
        let file = directory.join("rows.parquet");
        write_parquet(&file, data.batches())?;
        for factory in factories {
            let own = directory.join(factory.name);
            fs::create_dir_all(&own)?;
            match (factory.load)(&own, data.name(), &file) {
                Ok(rival) => drop(rivals.loaded.insert(factory.name.to_owned(), rival)),
                Err(error) => rivals.fail(factory.name, &error.to_string()),
            }
        }
        fs::remove_file(file)?;
        Ok(rivals)
    }

    /// Seconds by rival; what is `expected`, if anything, is what each must answer.
    pub(super) fn ask(
        &mut self,
        question: &Question,
        expected: Option<&[RecordBatch]>,
    ) -> Result<BTreeMap<String, f64>> {
        let expected = expected.map(cells).transpose()?;
        let (mut seconds, mut failures) = (BTreeMap::new(), Vec::new());
        for (name, rival) in &mut self.loaded {
            match rival.ask(question.text).and_then(|answer| checked(answer, expected.as_deref())) {
                Ok(answer) => drop(seconds.insert(name.clone(), answer)),
                Err(error) => failures.push((name.clone(), format!("{}: {error}", question.name))),
            }
        }
        for (name, failure) in failures {
            self.fail(&name, &failure);
        }
        Ok(seconds)
    }

    fn fail(&mut self, name: &str, failure: &str) {
        self.loaded.remove(name);
        self.failed.insert(name.to_owned(), failure.to_owned());
    }
}

#[expect(clippy::disallowed_methods, reason = "the rivals' file, which the engine never touches")]
fn write_parquet(path: &Path, batches: &[RecordBatch]) -> Result<()> {
    let first = batches.first().ok_or("no rows")?;
    let mut writer = ArrowWriter::try_new(File::create(path)?, first.schema(), None)?;
    batches.iter().try_for_each(|batch| writer.write(batch))?;
    writer.close()?;
    Ok(())
}

/// The cells of an answer as text, row by row.
pub(super) fn cells(batches: &[RecordBatch]) -> Result<Vec<Vec<String>>> {
    let options = FormatOptions::default();
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        rows.extend(
            (0..batch.num_rows()).map(|row| columns.iter().map(|column| column.value(row).to_string()).collect()),
        );
    }
    Ok(rows)
}

fn checked(answer: RivalAnswer, expected: Option<&[Vec<String>]>) -> Result<f64> {
    match expected {
        Some(expected) if !same(&answer.rows, expected) => {
            Err(format!("it answers {:?}, not {expected:?}", answer.rows).into())
        }
        _ => Ok(answer.seconds),
    }
}

fn same(left: &[Vec<String>], right: &[Vec<String>]) -> bool {
    let rows = |(left, right): (&Vec<String>, &Vec<String>)| {
        left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same_cell(left, right))
    };
    left.len() == right.len() && left.iter().zip(right).all(rows)
}

fn same_cell(left: &str, right: &str) -> bool {
    match (left.parse::<f64>(), right.parse::<f64>()) {
        (Ok(left), Ok(right)) => (left - right).abs() <= 1e-6 * right.abs().max(1.0),
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_same_to_a_millionth_and_texts_exactly() {
        assert!(same_cell("0.049985", "0.04998529") && same_cell("37734107.00", "37734107") && same_cell("N", "N"));
        assert!(!same_cell("1", "1.00001") && !same_cell("N", "F") && !same_cell("", "0"));
        assert!(!same(&[vec!["1".to_owned()]], &[]));
    }
}

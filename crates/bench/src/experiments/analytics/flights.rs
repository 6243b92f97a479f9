//! Three million flights of 2001 in the order in which they left (US Department of Transportation, as in npm's
//! `vega-datasets`): rows that are appended, and asked for by time.
//!
//! The file has no key. A flight's is its minute and its number among those of this minute.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use mycelium_encoding::DatumRef;
use mycelium_engine::{Durability, Table};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::data::{Data, Question, cast_to};
use crate::fetch::Archived;
use crate::keys::mix;
use crate::store::Result;

const FILE: Archived = Archived {
    name: "flights-3m.parquet",
    url: "https://registry.npmjs.org/vega-datasets/-/vega-datasets-3.2.1.tgz",
    member: "package/data/flights-3m.parquet",
    sha256: "dbeb920c90f59b6ccaff823dcc3d08f25a97fa1ce128d93f40be4e931f5900b0",
};

const SCHEMA: &str = "date timestamp(us) not null, number int32 not null, delay int64, distance int64, origin utf8, \
                      destination utf8, primary key (date, number)";

const LAYOUT: &str = "L0 tiered: * packed\nL1 leveled: * columnar";

const DELAY: usize = 2;
const MICROSECONDS_A_MINUTE: i64 = 60_000_000;
const ROWS_IN_A_BATCH: usize = 64 << 10;

const QUESTIONS: [Question; 3] = [
    Question {
        name: "origins",
        text: "SELECT origin, count(*) AS flights, avg(delay) AS mean_delay FROM flights \
               GROUP BY origin ORDER BY mean_delay DESC, origin",
    },
    Question {
        name: "week",
        text: "SELECT count(*) AS flights, avg(delay) AS mean_delay, max(distance) AS farthest FROM flights \
               WHERE date >= TIMESTAMP '2001-03-01 00:00:00' AND date < TIMESTAMP '2001-03-08 00:00:00'",
    },
    Question {
        name: "late",
        text: "SELECT destination, count(*) AS late, max(delay) AS worst FROM flights \
               WHERE origin = 'ORD' AND delay > 60 GROUP BY destination ORDER BY late DESC, destination LIMIT 10",
    },
];

/// The table, or the first of its rows.
pub(super) struct Flights {
    batches: Vec<RecordBatch>,
    /// The minute of the last.
    end: i64,
}

impl Flights {
    /// The first `scale` of the rows, fetched into `directory` if they are not there.
    #[expect(clippy::disallowed_methods, reason = "a file of input, which the engine never touches")]
    pub(super) fn fetch(directory: &Path, scale: f64) -> Result<Self> {
        let file = std::fs::File::open(FILE.fetch(directory)?)?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(file)?;
        let rows = (reader.metadata().file_metadata().num_rows() as f64 * scale.min(1.0)) as usize;
        let batches = reader.with_batch_size(ROWS_IN_A_BATCH).with_limit(rows.max(1)).build()?;
        Self::numbered(&batches.collect::<std::result::Result<Vec<_>, _>>()?)
    }

    /// From the file's batches: date, delay, distance, origin, destination.
    fn numbered(batches: &[RecordBatch]) -> Result<Self> {
        let (mut end, mut number) = (i64::MIN, 0);
        let numbered = batches.iter().map(|batch| {
            let dates = batch.column(0).as_primitive::<TimestampMicrosecondType>();
            let numbers = dates.values().iter().map(|&date| {
                number = if date == end { number + 1 } else { 0 };
                end = date;
                number
            });
            let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(numbers));
            let of_key = [("date", batch.column(0).clone()), ("number", numbers)];
            let others = batch.columns()[1..].iter().map(|column| ("", column.clone()));
            cast_to(SCHEMA, &RecordBatch::try_from_iter(of_key.into_iter().chain(others))?)
        });
        let batches = numbered.collect::<Result<_>>()?;
        Ok(Self { batches, end })
    }
}

/// The delay that an update gives a row, in minutes.
fn new_delay(row: u64) -> i64 {
    (mix(row) % 200) as i64 - 20
}

impl Data for Flights {
    fn name(&self) -> &'static str {
        "flights"
    }

    fn schema(&self) -> &'static str {
        SCHEMA
    }

    fn layout(&self) -> &'static str {
        LAYOUT
    }

    fn questions(&self) -> &'static [Question] {
        &QUESTIONS
    }

    fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    fn update(&self, table: &Table, batch: &RecordBatch, at: usize, row: u64) -> Result<()> {
        let key = [
            DatumRef::Timestamp(batch.column(0).as_primitive::<TimestampMicrosecondType>().value(at)),
            DatumRef::Int32(batch.column(1).as_primitive::<Int32Type>().value(at)),
        ];
        table.patch_row(&key, &[("delay", DatumRef::Int64(new_delay(row)))], Durability::Buffered)?;
        Ok(())
    }

    fn updated(&self, batch: &RecordBatch, rows: &[(usize, u64)]) -> Result<RecordBatch> {
        let mut delays = batch.column(DELAY).as_primitive::<Int64Type>().values().to_vec();
        for &(at, row) in rows {
            delays[at] = new_delay(row);
        }
        let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
        columns[DELAY] = Arc::new(Int64Array::from(delays));
        Ok(RecordBatch::try_new(batch.schema(), columns)?)
    }

    fn insert(&self, table: &Table, row: u64) -> Result<()> {
        const IN_A_MINUTE: u64 = 20;
        let airports = ["ATL", "DFW", "JFK", "LAX", "ORD", "SFO"];
        let airport = |draw: u64| DatumRef::Utf8(airports[(draw % airports.len() as u64) as usize]);
        let row = [
            DatumRef::Timestamp(self.end + (1 + row / IN_A_MINUTE) as i64 * MICROSECONDS_A_MINUTE),
            DatumRef::Int32((row % IN_A_MINUTE) as i32),
            DatumRef::Int64(new_delay(row)),
            DatumRef::Int64(100 + (mix(row) % 2000) as i64),
            airport(mix(row)),
            airport(mix(row + 1)),
        ];
        table.insert_row(&row, Durability::Buffered)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{StringArray, TimestampMicrosecondArray};

    use super::*;

    /// Rows as the file has them, a few a minute over ten weeks around the first of March.
    fn flights(rows: i64) -> RecordBatch {
        let start = 980_985_600 * 1_000_000;
        let dates = TimestampMicrosecondArray::from_iter_values((0..rows).map(|row| start + row / 3 * 600_000_000));
        let delays = Int64Array::from_iter_values((0..rows).map(|row| new_delay(row as u64)));
        let distances = Int64Array::from_iter_values((0..rows).map(|row| 50 + row % 900));
        let text = |texts: [&str; 3]| -> ArrayRef {
            Arc::new(StringArray::from_iter_values((0..rows).map(|row| texts[(mix(row as u64) % 3) as usize])))
        };
        let columns: [(&str, ArrayRef); 5] = [
            ("date", Arc::new(dates)),
            ("delay", Arc::new(delays)),
            ("distance", Arc::new(distances)),
            ("origin", text(["ORD", "SFO", "JFK"])),
            ("destination", text(["LAX", "ATL", "DFW"])),
        ];
        RecordBatch::try_from_iter(columns).expect("batch")
    }

    #[test]
    fn flights_of_a_minute_are_numbered_across_batches_and_answer_as_arrow_does() {
        let rows = flights(30_001);
        let data = Flights::numbered(&[rows.slice(0, 10_000), rows.slice(10_000, 20_001)]).expect("flights");
        let second = data.batches()[1].column(1).as_primitive::<Int32Type>();
        assert_eq!(second.values()[..5], [1, 2, 0, 1, 2]);
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = super::super::AnalyticsSettings {
            progress: false,
            ..super::super::AnalyticsSettings::new(directory.path())
        };
        let report = super::super::run(&settings, &data, &[]).expect("experiment");
        assert_eq!((report.rows, report.questions.len()), (30_001, 9), "{}", report.table());
    }
}

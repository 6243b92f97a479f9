//! Record batches of the table `flights` with texts as views, taken apart. Columns are found by name; `None` says that
//! one is missing or is not of its type.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int32Type, TimestampSecondType};
use arrow_array::{Array, BooleanArray, PrimitiveArray, RecordBatch, StringViewArray};

use super::event_time::EventTime;
use super::flight::{Code, FlightKey, FlightRow};

/// A column of numbers.
pub(super) fn numbers<'a, T: ArrowPrimitiveType>(batch: &'a RecordBatch, name: &str) -> Option<&'a PrimitiveArray<T>> {
    batch.column_by_name(name)?.as_primitive_opt()
}

/// A column of 32-bit integers.
pub(super) fn ints<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a PrimitiveArray<Int32Type>> {
    numbers(batch, name)
}

/// A column of texts.
pub(super) fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a StringViewArray> {
    batch.column_by_name(name)?.as_string_view_opt()
}

fn number(column: &PrimitiveArray<Int32Type>, row: usize) -> Option<i32> {
    column.is_valid(row).then(|| column.value(row))
}

/// The key columns of a record batch.
pub(super) struct KeyColumns<'a> {
    numbers: [&'a PrimitiveArray<Int32Type>; 5],
    carrier: &'a StringViewArray,
    origin: &'a StringViewArray,
}

impl<'a> KeyColumns<'a> {
    /// Those of a batch.
    pub(super) fn of(batch: &'a RecordBatch) -> Option<Self> {
        let [year, month, day, flight, time] =
            ["year", "month", "day", "flight", "sched_dep_time"].map(|name| ints(batch, name));
        Some(Self {
            numbers: [year?, month?, day?, flight?, time?],
            carrier: texts(batch, "carrier")?,
            origin: texts(batch, "origin")?,
        })
    }

    /// The key of a row.
    pub(super) fn key(&self, row: usize) -> Option<FlightKey> {
        let [year, month, day, flight, sched_dep_time] = self.numbers.map(|column| column.value(row));
        let carrier = Code::new(self.carrier.value(row))?;
        let origin = Code::new(self.origin.value(row))?;
        Some(FlightKey { year, month, day, carrier, flight, sched_dep_time, origin })
    }
}

/// The columns of a record batch of whole rows of `flights`.
pub(super) struct Columns<'a> {
    key: KeyColumns<'a>,
    nullable: [&'a PrimitiveArray<Int32Type>; 5],
    numbers: [&'a PrimitiveArray<Int32Type>; 4],
    tailnum: &'a StringViewArray,
    dest: &'a StringViewArray,
    time_hour: &'a PrimitiveArray<TimestampSecondType>,
    cancelled: &'a BooleanArray,
}

impl<'a> Columns<'a> {
    /// Those of a batch.
    pub(super) fn of(batch: &'a RecordBatch) -> Option<Self> {
        let [dep_time, dep_delay, arr_time, arr_delay, air_time] =
            ["dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"].map(|name| ints(batch, name));
        let [sched_arr_time, distance, hour, minute] =
            ["sched_arr_time", "distance", "hour", "minute"].map(|name| ints(batch, name));
        Some(Self {
            key: KeyColumns::of(batch)?,
            nullable: [dep_time?, dep_delay?, arr_time?, arr_delay?, air_time?],
            numbers: [sched_arr_time?, distance?, hour?, minute?],
            tailnum: texts(batch, "tailnum")?,
            dest: texts(batch, "dest")?,
            time_hour: numbers(batch, "time_hour")?,
            cancelled: batch.column_by_name("cancelled")?.as_boolean_opt()?,
        })
    }

    /// `None` if a code is longer than any that was written.
    pub(super) fn row(&self, row: usize) -> Option<FlightRow> {
        let [dep_time, dep_delay, arr_time, arr_delay, air_time] = self.nullable.map(|column| number(column, row));
        let [sched_arr_time, distance, hour, minute] = self.numbers.map(|column| column.value(row));
        Some(FlightRow {
            key: self.key.key(row)?,
            dep_time,
            dep_delay,
            arr_time,
            sched_arr_time,
            arr_delay,
            tailnum: if self.tailnum.is_valid(row) { Some(Code::new(self.tailnum.value(row))?) } else { None },
            dest: Code::new(self.dest.value(row))?,
            air_time,
            distance,
            hour,
            minute,
            time_hour: EventTime(self.time_hour.value(row) / 60),
            cancelled: self.cancelled.value(row),
        })
    }
}

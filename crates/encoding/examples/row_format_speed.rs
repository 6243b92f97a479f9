//! How fast JSON rows are taken and read, beside a parser that many use:
//! `cargo run --release -p mycelium-encoding --example row_format_speed`.
//!
//! 1. Rows like those of the demo, thirteen members in the order of their names, each row with other values.
//! 2. Taking a row is to check it to the last byte and every value against its column, and to keep it. `serde_json`
//!    reads the same text into a struct of these types; its instants stay text.
//! 3. Reading is to find one column of a stored row, and its value. `serde_json` reads the struct of this one member.
//! 4. Both take turns; the figures are medians of the turns, those of ratios, too.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use mycelium_base::ColumnSet;
use mycelium_encoding::Schema;
use mycelium_encoding::row_format::{Covers, RowFormat, RowScratch};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Deserialize;

const ROWS: usize = 2_000;
const TURNS: usize = 101;

const SCHEMA: &str = "\
    id int64 not null, dep_time int32, dep_delay int32, arr_time int32, sched_arr_time int32 not null, \
    arr_delay int32, tailnum utf8, dest utf8 not null, air_time int32, distance int32 not null, hour int32 not null, \
    minute int32 not null, time_hour timestamp(s, \"UTC\") not null, cancelled bool not null, primary key (id)";

/// The position of `dest`, the seventh member of a row.
const READ: usize = 7;

#[derive(Deserialize)]
#[allow(dead_code)]
struct Flight<'a> {
    dep_time: Option<i32>,
    dep_delay: Option<i32>,
    arr_time: Option<i32>,
    sched_arr_time: i32,
    arr_delay: Option<i32>,
    tailnum: Option<&'a str>,
    dest: &'a str,
    air_time: Option<i32>,
    distance: i32,
    hour: i32,
    minute: i32,
    time_hour: &'a str,
    cancelled: bool,
}

#[derive(Deserialize)]
struct Destination<'a> {
    dest: &'a str,
}

/// The text of a row.
fn row(rng: &mut SmallRng) -> String {
    let has_arrived = rng.random_ratio(2, 3);
    let mut number = |from: i32, to: i32| match has_arrived {
        true => rng.random_range(from..to).to_string(),
        false => "null".to_owned(),
    };
    let (air_time, arr_delay, arr_time) = (number(20, 700), number(-60, 300), number(1, 2400));
    let (dep_delay, dep_time) = (number(-20, 300), number(1, 2400));
    let (month, day) = (rng.random_range(1..13), rng.random_range(1..29));
    let (hour, minute) = (rng.random_range(0..24), rng.random_range(0..60));
    let members = [
        format!(r#""air_time":{air_time},"arr_delay":{arr_delay},"arr_time":{arr_time},"cancelled":false"#),
        format!(r#""dep_delay":{dep_delay},"dep_time":{dep_time}"#),
        format!(r#""dest":"{}""#, ["IAH", "MIA", "BQN", "ATL"][rng.random_range(0..4)]),
        format!(r#""distance":{},"hour":{hour},"minute":{minute}"#, rng.random_range(80..5000)),
        format!(r#""sched_arr_time":{}"#, rng.random_range(1..2400)),
        format!(r#""tailnum":"N{}""#, rng.random_range(100..99_999)),
        format!(r#""time_hour":"2013-{month:02}-{day:02}T{hour:02}:00:00Z""#),
    ];
    format!("{{{}}}", members.join(","))
}

/// Nanoseconds for each row.
fn time(mut round: impl FnMut()) -> f64 {
    let began = Instant::now();
    round();
    began.elapsed().as_nanos() as f64 / ROWS as f64
}

/// Prints how long both take, and how many times as fast as the other the first is.
fn report(what: &str, mut ours: impl FnMut(), mut other: impl FnMut()) {
    let mut turns: Vec<(f64, f64)> = (0..TURNS).map(|_| (time(&mut ours), time(&mut other))).collect();
    let mut median = |of: fn(&(f64, f64)) -> f64| {
        turns.sort_by(|a, b| of(a).total_cmp(&of(b)));
        of(&turns[TURNS / 2])
    };
    let (ours, other, ratio) = (median(|turn| turn.0), median(|turn| turn.1), median(|turn| turn.1 / turn.0));
    println!("{what}: {ours:.0} ns a row, serde_json {other:.0} ns");
    println!("{what}, over serde_json: {ratio:.2}");
}

fn main() {
    let json = RowFormat::json(Arc::new(Schema::parse(SCHEMA).unwrap()));
    let mut rng = SmallRng::seed_from_u64(1);
    let rows: Vec<String> = (0..ROWS).map(|_| row(&mut rng)).collect();
    println!("{ROWS} rows of {} bytes", rows.iter().map(String::len).sum::<usize>() / ROWS);
    let (mut scratch, nulls) = (RowScratch::default(), ColumnSet::new());
    let mut stored = |row: &str| {
        let mut value = Vec::new();
        json.store(row.as_bytes(), Covers::Row, &nulls, &mut scratch, &mut value).unwrap();
        value
    };
    let values: Vec<Vec<u8>> = rows.iter().map(|row| stored(row)).collect();
    let mut out = Vec::new();
    let take = || {
        for row in &rows {
            out.clear();
            json.store(black_box(row.as_bytes()), Covers::Row, &nulls, &mut scratch, &mut out).unwrap();
            black_box(&out);
        }
    };
    report("taking a row", take, || {
        for row in &rows {
            black_box(serde_json::from_slice::<Flight<'_>>(black_box(row.as_bytes())).unwrap());
        }
    });
    let wanted = ColumnSet::from_iter([READ]);
    let mut scratch = RowScratch::default();
    let read = || {
        for value in &values {
            let mut row = json.read(black_box(value), Some(&wanted), &mut scratch).unwrap();
            let _ = black_box(row.get(READ).unwrap());
        }
    };
    report("reading one column", read, || {
        for row in &rows {
            black_box(serde_json::from_slice::<Destination<'_>>(black_box(row.as_bytes())).unwrap().dest);
        }
    });
}

//! Prints what patches cost a scan of columns on this machine, what runs that interleave cost it, which plan of a
//! filtered scan is the cheaper one, and what columns below rows cost and gain: `cargo run --release -p mycelium-engine
//! --example scan_speed -- patches|texts|runs|plans|layouts|points [rows] [directory]`.
//!
//! - `patches`: the sums of ten columns over a twentieth of the keys (LASER's Q4), in one thread, and the sum of a
//!   column over the seventh of the rows that pass tests of four others (as TPC-H's Q6): compacted, after a tenth of
//!   the rows had one of these columns changed, and after a twentieth of the rows came anew at random keys; both before
//!   and after they were flushed.
//! - `texts`: a text and a number of all rows, in one thread: compacted, and after a hundredth and a twentieth of the
//!   rows came anew at random keys (decision 0107).
//! - `runs`: the sum of a column of all rows, in one thread, of runs of random keys that interleave, each row in a
//!   tenth of the keys of the younger runs replacing one of an older run, and of the same rows compacted (decision
//!   0055).
//! - `plans`: the sum of a column over rows that pass a test of another, of runs of random keys that interleave; each
//!   row in a tenth of the keys of the younger runs replaces one of an older run (decision 0036).
//! - `layouts`: rows at every level beside the default, columns below rows: CPU time of loads in random order until no
//!   compaction is due, of reads of whole rows and of scans, and what is written and stored (decision 0041). Medians of
//!   the ratios of five turns at the end.
//! - `points`: CPU time of reads of whole rows by key, from levels of three columnar groups and from levels of rows,
//!   both compacted and cached: turns, and the median of their ratios. A directory that is there is read as it is.

use std::ops::{Bound, Range};
use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use mycelium_base::ColumnSet;
use mycelium_base::hash::mix;
use mycelium_encoding::page::{ColumnTest, Filter, Test};
use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{
    Background, Database, Durability, Error, FilterPlan, Layout, Options, ReadCounters, ReadOptions, Result,
    ScanOptions, Table, TableOptions,
};
use rustix::time::{ClockId, clock_gettime};

const COLUMNS: usize = 30;
/// Times that a scan is measured.
const SCANS: usize = 11;
/// Times that layouts take turns.
const TURNS: usize = 5;
/// Times that reads by key are measured, and how many at a time.
const POINT_TURNS: u64 = 9;
const POINTS: u64 = 300_000;
/// Values of the column that is tested.
const KINDS: i32 = 1000;

/// Nanoseconds that the thread has had a processor.
fn own_time() -> u64 {
    let clock = clock_gettime(ClockId::ThreadCPUTime);
    clock.tv_sec as u64 * 1_000_000_000 + clock.tv_nsec as u64
}

/// The median and the least of the nanoseconds that a scan takes, and what the last one gave.
fn measure<T>(mut scan: impl FnMut() -> Result<T>) -> Result<(f64, f64, T)> {
    let mut found = scan()?;
    let mut times = Vec::new();
    for _ in 0..SCANS {
        let start = own_time();
        found = scan()?;
        times.push((own_time() - start) as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[SCANS / 2], times[0], found))
}

/// The columns of LASER's narrow table in three groups.
const GROUPS: &str = "1-3 columnar | 4-13 columnar | 14-30 columnar";

/// LASER's narrow table, with these groups below level 0.
fn narrow_table(database: &Database, name: &str, groups: &str) -> Result<Table> {
    let columns: String = (1..=COLUMNS).map(|column| format!("a{column} int32 not null, ")).collect();
    let schema = Schema::parse(&format!("a0 uint64 not null, {columns}primary key (a0)"))?;
    let layout = format!("L0 tiered: * packed\nL1 leveled: {groups}");
    let layout = Some(Layout::parse(&layout, &ColumnSet::from_iter(1..=COLUMNS))?);
    database.create_typed_table(name, schema, TableOptions { layout, ..TableOptions::default() })
}

fn fill_narrow(database: &Database, table: &Table, rows: u64) -> Result<()> {
    insert_narrow(table, 0..rows)?;
    database.compact(table)
}

fn insert_narrow(table: &Table, rows: Range<u64>) -> Result<()> {
    for index in rows {
        let mut row = [DatumRef::UInt64(mix(index)); COLUMNS + 1];
        for (column, cell) in row.iter_mut().enumerate().skip(1) {
            *cell = DatumRef::Int32(narrow_value(index, column));
        }
        table.insert_row(&row, Durability::Buffered)?;
    }
    Ok(())
}

fn narrow_value(index: u64, column: usize) -> i32 {
    mix(mix(index) ^ column as u64) as i32
}

/// Rows and sums of ten columns of a twentieth of the keys.
fn sums(table: &Table) -> Result<(u64, i64)> {
    let from = u64::MAX / 4;
    let scan = table.scan_batches(ScanOptions {
        projection: Some((4..=13).collect()),
        lower: Bound::Included(vec![Datum::UInt64(from)]),
        upper: Bound::Excluded(vec![Datum::UInt64(from + u64::MAX / 20)]),
        ..ScanOptions::default()
    })?;
    let (mut rows, mut sum) = (0, 0);
    for batch in scan {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        for column in batch.columns() {
            sum += column.as_primitive::<Int32Type>().values().iter().map(|&value| i64::from(value)).sum::<i64>();
        }
    }
    Ok((rows, sum))
}

/// Rows and sum of a column where four others pass.
fn sum_of_passing(table: &Table) -> Result<(u64, i64)> {
    let test = |column, lower: i32, upper: i32| {
        let (lower, upper) = (Bound::Included(Datum::Int32(lower)), Bound::Excluded(Datum::Int32(upper)));
        ColumnTest { column, test: Test::Range { lower, upper } }
    };
    let half = i32::MAX / 2;
    let conjuncts = vec![test(4, -half, half), test(5, 0, i32::MAX), test(6, i32::MIN, half), test(7, -half, i32::MAX)];
    let (projection, filter) = (Some(vec![8]), Some(Filter { conjuncts }));
    let scan = table.scan_batches(ScanOptions { projection, filter, ..ScanOptions::default() })?;
    let (mut rows, mut sum) = (0, 0);
    for batch in scan {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        sum += batch.column(0).as_primitive::<Int32Type>().values().iter().map(|&value| i64::from(value)).sum::<i64>();
    }
    Ok((rows, sum))
}

fn patches(database: &Database, rows: u64) -> Result<()> {
    let table = narrow_table(database, "narrow", GROUPS)?;
    fill_narrow(database, &table, rows)?;
    let (compacted, least_compacted, (found, _)) = measure(|| sums(&table))?;
    let (filtered, _, _) = measure(|| sum_of_passing(&table))?;
    for draw in 0..rows / 10 {
        let index = mix(draw + 1) % rows;
        let change = [("a5", DatumRef::Int32(index as i32))];
        table.patch_row(&[DatumRef::UInt64(mix(index))], &change, Durability::Buffered)?;
    }
    println!("compacted  {:>8.2} ms, least {:.2} ms: {found} rows", compacted / 1e6, least_compacted / 1e6);
    let tell = |what: &str, touched: u64| {
        let (time, least, _) = measure(|| sums(&table))?;
        let of_a_key = |more: f64| more / touched as f64;
        println!(
            "{what:<20} {:>8.2} ms, least {:.2} ms: {:.2} times, least {:.2}; {:.0} ns a key, least {:.0}",
            time / 1e6,
            least / 1e6,
            time / compacted,
            least / least_compacted,
            of_a_key(time - compacted),
            of_a_key(least - least_compacted)
        );
        Ok(())
    };
    let found_all = found;
    tell("patched", found_all / 10)?;
    let (filtered_patched, _, (found, sum)) = measure(|| sum_of_passing(&table))?;
    println!(
        "filtered   {:>8.2} ms, patched {:.2} ms: {:.2} times, {:.0} ns a patch ({found} rows, {sum})",
        filtered / 1e6,
        filtered_patched / 1e6,
        filtered_patched / filtered,
        (filtered_patched - filtered) * 10.0 / rows as f64
    );
    database.flush()?;
    tell("patched, flushed", found_all / 10)?;
    insert_narrow(&table, rows..rows + rows / 20)?;
    tell("and new", found_all * 3 / 20)?;
    database.flush()?;
    tell("and new, flushed", found_all * 3 / 20)
}

/// Rows, and the sums of their amounts and of the bytes of their texts.
fn texts_and_amounts(table: &Table) -> Result<(u64, i64)> {
    let scan = table.scan_batches(ScanOptions { projection: Some(vec![1, 2]), ..ScanOptions::default() })?;
    let (mut rows, mut sum) = (0, 0);
    for batch in scan {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        sum += batch.column(0).as_string::<i32>().values().len() as i64;
        sum += batch.column(1).as_primitive::<Int32Type>().values().iter().map(|&value| i64::from(value)).sum::<i64>();
    }
    Ok((rows, sum))
}

fn texts(database: &Database, rows: u64) -> Result<()> {
    let schema = Schema::parse("id uint64 not null, kind utf8 not null, amount int32 not null, primary key (id)")?;
    let layout = Layout::parse("L0 tiered: * packed\nL1 leveled: * columnar", &ColumnSet::from_iter([1, 2]))?;
    let table =
        database.create_typed_table("t", schema, TableOptions { layout: Some(layout), ..Default::default() })?;
    let insert = |rows: Range<u64>| {
        rows.into_iter().try_for_each(|index| {
            let (key, kind) = (mix(index), format!("kind {}", mix(index ^ 1) % 100));
            let row = [DatumRef::UInt64(key), DatumRef::Utf8(&kind), DatumRef::Int32(index as i32)];
            table.insert_row(&row, Durability::Buffered).map(drop)
        })
    };
    insert(0..rows)?;
    database.compact(&table)?;
    let (compacted, least_compacted, _) = measure(|| texts_and_amounts(&table))?;
    println!("compacted   {:>8.2} ms, least {:.2} ms", compacted / 1e6, least_compacted / 1e6);
    let mut new = 0;
    for (of, name) in [(100, "a hundredth"), (20, "a twentieth")] {
        insert(rows + new..rows + rows / of)?;
        new = rows / of;
        let (time, least, _) = measure(|| texts_and_amounts(&table))?;
        println!(
            "{name} {:>8.2} ms, least {:.2} ms: {:.2} times; {:.0} ns a new row, least {:.0}",
            time / 1e6,
            least / 1e6,
            time / compacted,
            (time - compacted) / new as f64,
            (least - least_compacted) / new as f64
        );
    }
    Ok(())
}

/// A table of so many flushed runs.
fn interleaving_runs(database: &Database, rows: u64, runs: u64) -> Result<Table> {
    let schema = "id uint64 not null, kind int32 not null, amount int32 not null, primary key (id)";
    let layout = "L0 tiered: * columnar\nL1 leveled: * columnar";
    let layout = Some(Layout::parse(layout, &ColumnSet::from_iter(1..=2))?);
    let options = TableOptions { layout, ..TableOptions::default() };
    let table = database.create_typed_table(&format!("runs{runs}"), Schema::parse(schema)?, options)?;
    for run in 0..runs {
        for at in 0..rows / runs {
            let own = run * (rows / runs) + at;
            let index = if at % 10 == 0 { mix(own) % (own + 1) } else { own };
            let (kind, amount) = (mix(own + 1) % KINDS as u64, mix(own) as i32);
            let row = [DatumRef::UInt64(mix(index)), DatumRef::Int32(kind as i32), DatumRef::Int32(amount)];
            table.insert_row(&row, Durability::Buffered)?;
        }
        database.flush()?;
    }
    Ok(table)
}

/// Rows and sum of a column where another is less than a bound.
fn sum_below(table: &Table, bound: i32, filter_plan: FilterPlan) -> Result<(u64, i64)> {
    let upper = Bound::Excluded(Datum::Int32(bound));
    let conjuncts = vec![ColumnTest { column: 1, test: Test::Range { lower: Bound::Unbounded, upper } }];
    let filter = Some(Filter { conjuncts });
    let scan =
        table.scan_batches(ScanOptions { projection: Some(vec![2]), filter, filter_plan, ..ScanOptions::default() })?;
    let (mut rows, mut sum) = (0, 0);
    for batch in scan {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        let amounts = batch.column(0).as_primitive::<Int32Type>();
        sum += amounts.values().iter().map(|&value| i64::from(value)).sum::<i64>();
    }
    Ok((rows, sum))
}

/// Nanoseconds that a scan of all rows takes for each of them.
fn time_of_row(table: &Table) -> Result<f64> {
    let all = || sum_below(table, KINDS, FilterPlan::MergeFirst);
    let (median, _, (rows, _)) = measure(all)?;
    Ok(median / rows as f64)
}

fn runs(database: &Database, rows: u64) -> Result<()> {
    println!("runs  ns a row  compacted");
    for count in [2, 3, 6, 12] {
        let table = interleaving_runs(database, rows, count)?;
        let interleaved = time_of_row(&table)?;
        database.compact(&table)?;
        println!("{count:>4}  {interleaved:>8.2}  {:>9.2}", time_of_row(&table)?);
        if count == 6 {
            println!("a row of six runs in ns: {interleaved:.3}");
        }
    }
    Ok(())
}

fn plans(database: &Database, rows: u64) -> Result<()> {
    println!("runs  passing %  merge first ms  filter first ms  automatic ms");
    for runs in [1, 3, 6] {
        let table = interleaving_runs(database, rows, runs)?;
        for bound in [1, 10, 100, 500] {
            let (_, merging, expected) = measure(|| sum_below(&table, bound, FilterPlan::MergeFirst))?;
            let (_, filtering, filtered) = measure(|| sum_below(&table, bound, FilterPlan::FilterFirst))?;
            let (_, automatic, found) = measure(|| sum_below(&table, bound, FilterPlan::Automatic))?;
            if filtered != expected || found != expected {
                return Err(Error::invalid("the plans differ in what they give"));
            }
            let percent = f64::from(bound) * 100.0 / f64::from(KINDS);
            let [merging, filtering, automatic] = [merging, filtering, automatic].map(|time| time / 1e6);
            println!("{runs:>4}  {percent:>9.1}  {merging:>14.2}  {filtering:>15.2}  {automatic:>12.2}");
        }
    }
    Ok(())
}

/// What a layout costs: microseconds of CPU a row loaded and a row read, milliseconds of CPU of a scan of one column
/// and of all, bytes written by flushes and compactions and stored, of a row.
type Costs = [f64; 6];

/// Columns as those of a table of events: a random key, integers, a double and two texts of few values.
fn events(database: &Database, name: &str, layout: Option<&str>, rows: u64) -> Result<Costs> {
    let schema = Schema::parse(
        "id uint64 not null, at timestamp(us) not null, carrier utf8 not null, origin utf8 not null, delay int32, distance int32 \
         not null, fare float64 not null, seats int32 not null, primary key (id)",
    )?;
    let layout = layout.map(|text| Layout::parse(text, &ColumnSet::from_iter(1..=7))).transpose()?;
    let table = database.create_typed_table(name, schema, TableOptions { layout, ..TableOptions::default() })?;
    let written = || {
        let metrics = database.metrics();
        metrics.flush_bytes + metrics.compaction_written_by_level.iter().sum::<u64>()
    };
    let (before, start) = (written(), time_of_all());
    let text = |draw: u64, count: u64| format!("{:03}", mix(draw) % count);
    for index in 0..rows {
        let draw = mix(index);
        let (carrier, origin) = (text(draw, 20), text(draw ^ 1, 300));
        table.insert_row(
            &[
                DatumRef::UInt64(draw),
                DatumRef::Timestamp(1_700_000_000_000_000 + index as i64 * 1000),
                DatumRef::Utf8(&carrier),
                DatumRef::Utf8(&origin),
                if draw.is_multiple_of(50) { DatumRef::Null } else { DatumRef::Int32((draw % 500) as i32 - 60) },
                DatumRef::Int32((draw >> 8) as i32 % 5000),
                DatumRef::Float64((draw % 100_000) as f64 / 100.0),
                DatumRef::Int32((draw >> 20) as i32 % 300),
            ],
            Durability::Buffered,
        )?;
    }
    database.flush()?;
    database.wait_idle()?;
    let loaded = (time_of_all() - start) as f64 / 1e3 / rows as f64;
    let scan = |projection: Option<Vec<usize>>| {
        let batches = table.scan_batches(ScanOptions { projection, ..ScanOptions::default() })?;
        batches.map(|batch| batch.map(|batch| batch.num_rows())).sum::<Result<usize>>()
    };
    let (one, _, found) = measure(|| scan(Some(vec![5])))?;
    let (all, ..) = measure(|| scan(None))?;
    assert_eq!(found as u64, rows, "rows found");
    let (reads, start) = (200_000, own_time());
    for draw in 0..reads {
        let id = DatumRef::UInt64(mix(mix(draw) % rows));
        assert!(table.get_row(&[id], None, &ReadOptions::default())?.is_some(), "a row is not there");
    }
    let read = (own_time() - start) as f64 / 1e3 / reads as f64;
    let levels =
        database.metrics().tables.into_iter().filter(|other| other.name == name).flat_map(|table| table.levels);
    let stored: u64 = levels.map(|level| level.bytes).sum();
    let of_a_row = |bytes: u64| bytes as f64 / rows as f64;
    let costs = [loaded, read, one / 1e6, all / 1e6, of_a_row(written() - before), of_a_row(stored)];
    database.drop_table(name)?;
    Ok(costs)
}

/// Nanoseconds that all threads have had a processor.
fn time_of_all() -> u64 {
    let clock = clock_gettime(ClockId::ProcessCPUTime);
    clock.tv_sec as u64 * 1_000_000_000 + clock.tv_nsec as u64
}

fn layouts(database: &Database, rows: u64) -> Result<()> {
    let layouts = [("rows", Some("L0 tiered: * packed\nL1 leveled: * packed")), ("default", None)];
    let mut all: [Vec<Costs>; 2] = Default::default();
    println!("          us a row: load  read   ms a scan: one   all   bytes a row: written  stored");
    for turn in 0..TURNS {
        for ((name, layout), all) in layouts.iter().zip(&mut all) {
            let costs = events(database, &format!("{name}{turn}"), *layout, rows)?;
            let [load, read, one, all_columns, written, stored] = costs;
            println!("{name:<17} {load:>8.2} {read:>5.2} {one:>15.2} {all_columns:>5.1} {written:>22.0} {stored:>7.0}");
            all.push(costs);
        }
    }
    let what = ["load", "read", "one-column scan", "scan", "written", "stored"];
    for (at, what) in what.into_iter().enumerate() {
        let mut ratios: Vec<f64> = all[0].iter().zip(&all[1]).map(|(rows, default)| default[at] / rows[at]).collect();
        ratios.sort_by(f64::total_cmp);
        println!("{what} over rows: {:.3}", ratios[TURNS / 2]);
    }
    Ok(())
}

/// Nanoseconds of CPU of a read of a whole row at random.
fn point_time(table: &Table, rows: u64, reads: Range<u64>) -> Result<f64> {
    let (count, start) = (reads.end - reads.start, own_time());
    for draw in reads {
        let index = mix(draw) % rows;
        let key = table.row_key(&[DatumRef::UInt64(mix(index))])?;
        let row = table.get_packed(&key, None, &ReadOptions::default(), &mut ReadCounters::default())?;
        let (layout, row) = row.ok_or_else(|| Error::invalid("a row is not there"))?;
        let found = layout.row(&row)?.datum(COLUMNS)?;
        assert_eq!(found, Some(DatumRef::Int32(narrow_value(index, COLUMNS))), "of row {index}");
    }
    Ok((own_time() - start) as f64 / count as f64)
}

fn points(database: &Database, rows: u64) -> Result<()> {
    let tables = [("rows", "* packed"), ("groups", GROUPS)].map(|(name, groups)| {
        if let Ok(table) = database.table(name) {
            return Ok(table);
        }
        let table = narrow_table(database, name, groups)?;
        fill_narrow(database, &table, rows).map(|()| table)
    });
    let [of_rows, of_groups] = tables;
    let tables = [of_rows?, of_groups?];
    for table in &tables {
        point_time(table, rows, 0..rows)?;
    }
    let mut ratios = Vec::new();
    for turn in 1..=POINT_TURNS {
        let reads = rows * turn..rows * turn + POINTS;
        let (from_rows, from_groups) =
            (point_time(&tables[0], rows, reads.clone())?, point_time(&tables[1], rows, reads)?);
        println!("rows {from_rows:>6.0} ns  groups {from_groups:>6.0} ns  {:.3}", from_groups / from_rows);
        ratios.push(from_groups / from_rows);
    }
    ratios.sort_by(f64::total_cmp);
    println!("groups over rows: {:.3}", ratios[ratios.len() / 2]);
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let rows = arguments.next().and_then(|rows| rows.parse().ok()).unwrap_or(1_000_000);
    let directory = arguments.next().map_or_else(|| std::env::temp_dir().join("mycelium-scan-speed"), PathBuf::from);
    if directory.exists() && what != "points" {
        std::fs::remove_dir_all(&directory).map_err(|e| Error::io("remove", &directory, e))?;
    }
    // Runs are to stay as they are flushed.
    let background =
        if ["plans", "runs"].contains(&what.as_str()) { Background::Manual } else { Background::Threads(2) };
    // Small enough that rows go down to levels below.
    let memory_budget = if what == "layouts" { 4 << 20 } else { 64 << 20 };
    let options = Options { memory_budget, cache_bytes: 4 << 30, background, ..Options::default() };
    let database = Database::open(&directory, options)?;
    match what.as_str() {
        "patches" => patches(&database, rows)?,
        "texts" => texts(&database, rows)?,
        "runs" => runs(&database, rows)?,
        "plans" => plans(&database, rows)?,
        "layouts" => layouts(&database, rows)?,
        "points" => points(&database, rows)?,
        _ => return Err(Error::invalid("patches, texts, runs, plans, layouts or points?")),
    }
    database.close()
}

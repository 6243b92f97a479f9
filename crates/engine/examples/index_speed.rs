//! Prints what point lookups through an index cost, as its levels fill: `cargo run --release -p mycelium-engine
//! --example index_speed -- [rows] [directory]`.
//!
//! Rows of about 100 bytes, written in random order; an index on a number that about one row has. Looked up are numbers
//! that a row has and numbers that none has, with levels as writing leaves them and with one run in the table and in
//! the index, all blocks cached and nearly none; no background work meanwhile. What no filter could save is the
//! difference: a filter on the indexed values would let a lookup pass by all runs but the one with the entry.

use std::time::Instant;

use mycelium_base::hash::mix;
use mycelium_encoding::{DatumRef, Schema};
use mycelium_engine::{
    Background, Database, Durability, Index, IndexOptions, LeveledOptions, Options, Policy, Result, TableOptions,
    WriteBatch,
};

const LOOKUPS: u64 = 100_000;

fn look_up(what: &str, index: &Index, rows: u64, is_there: bool) -> Result<()> {
    let (mut nanoseconds, mut found, mut blocks, mut hits) = (f64::INFINITY, 0, 0, 0);
    for _ in 0..2 {
        let start = Instant::now();
        (found, blocks, hits) = (0, 0, 0);
        for n in 0..LOOKUPS {
            // Numbers are even.
            let number = (mix(mix(n) % rows) << 1) as i64 | i64::from(!is_there);
            let mut lookup = index.get(&[DatumRef::Int64(number)], Some(&[0]), None)?;
            while lookup.next().transpose()?.is_some() {
                found += 1;
            }
            let counters = lookup.counters();
            blocks += counters.blocks_read;
            hits += counters.block_cache_hits;
        }
        nanoseconds = f64::min(nanoseconds, start.elapsed().as_nanos() as f64 / LOOKUPS as f64);
    }
    let each = |count: u64| count as f64 / LOOKUPS as f64;
    let (found, read, cached) = (each(found), each(blocks), each(hits));
    println!("{what:<28} {nanoseconds:>8.0} ns a lookup, {found:.2} rows, {read:.2} blocks read, {cached:.2} cached");
    Ok(())
}

fn report(what: &str, database: &Database, index: &Index, rows: u64) -> Result<()> {
    for table in database.metrics().tables {
        let levels: Vec<String> =
            table.levels.iter().map(|level| format!("{}x{}", level.runs, level.entries)).collect();
        println!("{what}: {:<16} runs x entries by level: {}", table.name, levels.join(" "));
    }
    look_up(&format!("{what}, there"), index, rows, true)?;
    look_up(&format!("{what}, not there"), index, rows, false)
}

/// Without threads nothing is compacted meanwhile.
fn options(cache_bytes: u64, background: Background) -> Options {
    Options { memory_budget: 8 << 20, cache_bytes, background, ..Options::default() }
}

fn report_both(what: &str, directory: &str, rows: u64) -> Result<()> {
    for (cache, bytes) in [("cached", 1 << 30), ("little cache", 1 << 20)] {
        let database = Database::open(directory, options(bytes, Background::Manual))?;
        let index = database.table("rows")?.index("by_number")?;
        report(&format!("{what}, {cache}"), &database, &index, rows)?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rows: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(2_000_000);
    let directory = arguments.next().unwrap_or_else(|| "index-speed".into());
    let schema = Schema::parse("id int64 not null, number int64, note utf8, primary key (id)")?;
    let small = LeveledOptions { base_level_bytes: 2 << 20, target_file_size: 1 << 20, ..LeveledOptions::default() };
    let table_options = TableOptions { policy: Policy::Leveled(small), ..TableOptions::default() };
    let by_number = IndexOptions { name: "by_number".into(), on: vec!["number".into()], ..IndexOptions::default() };
    {
        let database = Database::open(&directory, options(1 << 30, Background::Threads(2)))?;
        let table = database.create_typed_table("rows", schema, table_options)?;
        database.create_index(&table, &by_number)?;
        // The last of them stay where they are written.
        for part in [0..rows - rows / 20, rows - rows / 20..rows] {
            database.wait_idle()?;
            for chunk in part.collect::<Vec<_>>().chunks(500) {
                let mut batch = WriteBatch::new();
                for &n in chunk {
                    let (id, number) = ((mix(!n) >> 1) as i64, (mix(n) << 1) as i64);
                    let note = "eighty bytes that no lookup reads, but that lie in every row and make it as long";
                    let row = [DatumRef::Int64(id), DatumRef::Int64(number), DatumRef::Utf8(note)];
                    batch.insert_row(&table, &row)?;
                }
                database.write(&batch, Durability::Buffered)?;
            }
        }
        database.close()?;
    }
    report_both("levels", &directory, rows)?;
    {
        let database = Database::open(&directory, options(1 << 30, Background::Threads(2)))?;
        database.compact(&database.table("rows")?)?;
        database.close()?;
    }
    report_both("one run", &directory, rows)
}

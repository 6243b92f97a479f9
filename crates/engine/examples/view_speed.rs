//! Prints how long a materialised view takes to read beside a scan that computes the same: `cargo run --release -p
//! mycelium-engine --example view_speed -- [rows] [directory]`.
//!
//! Rows of about 100 bytes, a view by one of 100 cities with a count, a sum, a minimum and a maximum; first with
//! everything in one run, then with one row in a thousand and one in a hundred written again, at random places.

use std::time::Instant;

use mycelium_base::hash::mix;
use mycelium_encoding::{DatumRef, Schema};
use mycelium_engine::{
    Database, Durability, Options, ReadOptions, Result, Table, TableOptions, View, ViewOptions, WriteBatch,
};

fn add(batch: &mut WriteBatch, table: &Table, id: u64) -> Result<()> {
    let noise = mix(id);
    let city = format!("city {:02}", noise % 100);
    let row = [
        DatumRef::Int64(id as i64),
        DatumRef::Utf8(&city),
        DatumRef::Decimal128(i128::from(noise >> 40)),
        DatumRef::Int32((noise >> 8) as i32),
        DatumRef::Utf8("sixty bytes that no view reads, but that lie in every row"),
    ];
    batch.insert_row(table, &row).map(drop)
}

/// Reads the view a few times, and once as a scan; prints both.
fn report(what: &str, view: &View) -> Result<()> {
    let mut best = f64::INFINITY;
    let mut counters = Default::default();
    for _ in 0..5 {
        let start = Instant::now();
        counters = view.read(&ReadOptions::default())?.counters;
        best = best.min(start.elapsed().as_secs_f64());
    }
    let start = Instant::now();
    let (table, aggregation) = (view.table(), view.aggregation());
    let columns: Vec<usize> = aggregation.columns_read().iter().collect();
    let (mut rows, layout) = table.iter_packed(Some(&columns), &ReadOptions::default())?;
    let mut input = aggregation.packed_input(&layout);
    let mut groups = mycelium_encoding::Groups::new(std::sync::Arc::new(aggregation.clone()));
    rows.seek_to_first()?;
    let mut count = 0_u64;
    while rows.valid() {
        input.add(rows.key(), rows.value(), &mut groups)?;
        count += 1;
        rows.next()?;
    }
    let scan = start.elapsed().as_secs_f64();
    println!(
        "{what:<28} view {:>9.3} ms  scan {:>9.3} ms  ({:.1} times)  files {}, pages {}, blocks {}, rows {} of {count}",
        best * 1e3,
        scan * 1e3,
        scan / best,
        counters.files,
        counters.pages,
        counters.blocks,
        counters.rows,
    );
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rows = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(1_000_000_u64);
    let directory = arguments.next().map_or_else(|| std::env::temp_dir().join("mycelium-view-speed"), Into::into);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).map_err(|e| mycelium_engine::Error::io("remove", &directory, e))?;
    }
    let database = Database::open(&directory, Options { cache_bytes: 1 << 30, ..Options::default() })?;
    let schema =
        Schema::parse("id int64 not null, city utf8, amount decimal(20, 2), level int32, note utf8, primary key (id)")?;
    let table = database.create_typed_table("sales", schema, TableOptions::default())?;
    let options = ViewOptions {
        name: "by_city".into(),
        group_by: vec!["city".into()],
        aggregates: ["count(*)", "sum(amount)", "min(level)", "max(level)"].map(str::to_owned).to_vec(),
    };
    let view = database.create_view(&table, &options)?;
    let start = Instant::now();
    for first in (0..rows).step_by(1_000) {
        let mut batch = WriteBatch::new();
        (first..rows.min(first + 1_000)).try_for_each(|id| add(&mut batch, &table, id))?;
        database.write(&batch, Durability::Os)?;
    }
    println!("loaded {rows} rows in {:.2} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    database.compact(&table)?;
    println!("compacted in {:.2} s", start.elapsed().as_secs_f64());
    report("one run", &view)?;
    for (what, share) in [("one row in 1,000 younger", 1_000), ("one row in 100 younger", 100)] {
        let mut batch = WriteBatch::new();
        (0..rows / share).try_for_each(|n| add(&mut batch, &table, mix(n) % rows))?;
        database.write(&batch, Durability::Os)?;
        report(what, &view)?;
    }
    database.close()
}

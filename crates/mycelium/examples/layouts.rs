//! Layouts: a table as rows, then in column groups, then as what it was asked for advises. What it answers is the same
//! all the while; what changes is how much must be read for it.
//!
//! ```sh
//! cargo run --example layouts
//! ```

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use mycelium::{
    Database, Datum, DatumRef, Durability, GroupMetrics, Layout, Options, ReadOptions, Result, ScanOptions, Schema,
    Table, TableOptions, WriteBatch,
};

const SCHEMA: &str = "id int64 not null, name utf8, mail utf8, city utf8, visits int64, cents int64, primary key (id)";
const NAME: usize = 1;
const MAIL: usize = 2;
const CENTS: usize = 5;
const PEOPLE: i64 = 2_000;

/// Level 0 has whole rows, as they are written; all levels below are as the last line says. `*` is all columns outside
/// the key, which every group has beside its columns.
const ROWS: &str = "L0 tiered: * packed\nL1 leveled: * packed";
const GROUPS: &str = "L0 tiered: * packed\nL1 leveled: 1-3 packed | 4-5 columnar";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path().join("db"), Options::default())?;
    let schema = Schema::parse(SCHEMA)?;
    let columns = schema.value_columns();
    let layout = Some(Layout::parse(ROWS, &columns)?);
    let people = database.create_typed_table("people", schema, TableOptions { layout, ..TableOptions::default() })?;
    fill(&database, &people)?;
    database.compact(&people)?;
    let answers = ask(&people)?;
    show("as rows", &database);

    // Durable at once, and files follow with the compactions to come. This is one, of all files.
    database.set_layout(&people, Layout::parse(GROUPS, &columns)?)?;
    database.compact(&people)?;
    assert_eq!(ask(&people)?, answers);
    show("in column groups", &database);

    // What the table was asked for is counted, and says which layout that calls for. So little changes none by itself.
    let advice = people.advise(None)?;
    println!("advised after {} operations ({}):", people.trace()?.operations(), advice.verdict.reason);
    print!("{}", advice.layout);
    database.set_layout(&people, advice.layout)?;
    database.compact(&people)?;
    assert_eq!(ask(&people)?, answers);

    // Or the table follows its workload by itself, and tells of it (`Event::LayoutChanged`).
    let follows = TableOptions { layout_auto: true, ..TableOptions::default() };
    database.create_typed_table("visits", Schema::parse(SCHEMA)?, follows)?;
    database.close()?;
    Ok(())
}

fn fill(database: &Database, people: &Table) -> Result<()> {
    let mut batch = WriteBatch::new();
    for id in 0..PEOPLE {
        let (name, mail) = (format!("name {id}"), format!("{id}@example.com"));
        let city = ["Graz", "Linz", "Wien"][id as usize % 3];
        batch.insert_row(
            people,
            &[
                DatumRef::Int64(id),
                DatumRef::Utf8(&name),
                DatumRef::Utf8(&mail),
                DatumRef::Utf8(city),
                DatumRef::Int64(id % 7),
                DatumRef::Int64(id * 100),
            ],
        )?;
    }
    database.write(&batch, Durability::Os).map(drop)
}

/// Two columns of single rows, and the sum of another over all: the row, and the sum.
fn ask(people: &Table) -> Result<(Option<Vec<Datum>>, i64)> {
    let mut last = None;
    for id in 0..100 {
        last = people.get_row(&[DatumRef::Int64(id)], Some(&[NAME, MAIL]), &ReadOptions::default())?;
    }
    let mut sum = 0;
    for batch in people.scan_batches(ScanOptions { projection: Some(vec![CENTS]), ..ScanOptions::default() })? {
        sum += batch?.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>();
    }
    Ok((last, sum))
}

/// What the levels hold, by column group.
fn show(what: &str, database: &Database) {
    println!("{what}:");
    for level in database.metrics().tables.iter().flat_map(|table| &table.levels) {
        if level.groups.is_empty() && level.files > 0 {
            println!("  level {}: whole rows, {} entries", level.level, level.entries);
        }
        for GroupMetrics { group, entries, .. } in &level.groups {
            let columns = group.as_ref().map_or_else(|| "whole rows".into(), ToString::to_string);
            println!("  level {}: {columns}, {entries} entries", level.level);
        }
    }
}

#[test]
fn answers_are_the_same_under_every_layout() -> Result<(), Box<dyn std::error::Error>> {
    main()
}

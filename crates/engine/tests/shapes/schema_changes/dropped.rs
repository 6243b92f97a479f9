//! Columns that are dropped: what of them is still in files is nobody's.

use mycelium_encoding::PackedLayout;

use super::*;

/// What is in the files of a column that was dropped is nobody's: not one's that has its name later, not one's that is
/// lacking in the same files, and not of older snapshots.
#[test]
fn a_column_of_the_same_name_as_one_that_was_dropped_is_another() {
    for layout in [
        "L0 tiered: * packed\nL1 leveled: * packed",
        "L0 tiered: * columnar\nL1 leveled: * columnar",
        "L0 tiered: * packed\nL1 leveled: * columnar",
    ] {
        for is_compacted in [false, true] {
            let disk = MemoryDisk::new();
            let database = open(&disk);
            let table = ten_rows(&database, layout);
            // Of the column that goes alone.
            table.patch_row(&[DatumRef::Int64(1)], &[("a", DatumRef::Int32(-1))], Durability::Os).unwrap();
            table.patch_row(&[DatumRef::Int64(99)], &[("a", DatumRef::Int32(-1))], Durability::Os).unwrap();
            if is_compacted {
                database.compact(&table).unwrap();
            }
            let snapshot = database.snapshot();
            let table = database.drop_column(&table, "a").unwrap();
            let batch = table.scan_batches(ScanOptions::default()).unwrap().next().unwrap().unwrap();
            assert_eq!((batch.num_columns(), batch.schema().field(1).name().as_str()), (2, "b"), "{layout}");
            let text = |id: i64| Datum::Utf8(id.to_string());
            assert_eq!(row(&table, 3), Some(vec![Datum::Int64(3), Datum::Null, text(3)]), "{layout}");
            let of_dropped = ScanOptions { projection: Some(vec![1]), ..ScanOptions::default() };
            assert_eq!(kind_of(table.scan_batches(of_dropped)), ErrorKind::InvalidArgument);
            let key = [DatumRef::Int64(3)];
            assert_eq!(kind_of(table.get_row(&key, Some(&[1]), &ReadOptions::default())), ErrorKind::InvalidArgument);
            let transaction = database.begin_with(TransactionOptions::default());
            assert_eq!(kind_of(transaction.get_row(&table, &key, Some(&[1]))), ErrorKind::InvalidArgument);
            assert_eq!(transaction.get_row(&table, &key, None).unwrap(), row(&table, 3));
            drop(transaction);
            let patched = table.patch_row(&key, &[("a", DatumRef::Int32(1))], Durability::Os);
            assert_eq!(kind_of(patched), ErrorKind::InvalidArgument);

            let table = database.add_column(&table, "a int32 default 5".parse().unwrap()).unwrap();
            table.patch_row(&[DatumRef::Int64(2)], &[("a", DatumRef::Int32(6))], Durability::Os).unwrap();
            let given = [DatumRef::Int64(10), DatumRef::Int32(1), DatumRef::Utf8("10"), DatumRef::Int32(7)];
            table.insert_row(&given, Durability::Os).unwrap();
            drop((table, snapshot));
            database.close().unwrap();
            let database = open(&disk);
            let table = database.table("t").unwrap();
            for step in 0..3 {
                for (id, a) in [(0, 5), (1, 5), (2, 6), (10, 7)] {
                    let expected = vec![Datum::Int64(id), Datum::Null, text(id), Datum::Int32(a)];
                    assert_eq!(row(&table, id), Some(expected), "{layout}, step {step}");
                }
                assert_eq!(ids(&table, 3, Test::Equal(Datum::Int32(5)), None), [0, 1, 3, 4, 5, 6, 7, 8, 9]);
                assert_eq!(ids(&table, 2, Test::Equal(text(4)), None), [4]);
                assert_eq!(row(&table, 99), None, "{layout}, step {step}");
                if step == 0 { database.flush().unwrap() } else { database.compact(&table).unwrap() }
            }
            assert_verified(&database);
        }
    }
}

/// Nobody reads it, and everybody's files go when the last reader of before has gone.
#[test]
fn what_was_open_when_a_column_was_dropped_goes_on_with_it() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let before = ten_rows(&database, "L0 tiered: * packed\nL1 leveled: * columnar");
    database.compact(&before).unwrap();
    let mut rows = before.iter(&ReadOptions::default()).unwrap();
    rows.seek_to_first().unwrap();
    let table = database.drop_column(&before, "a").unwrap();
    assert_eq!(kind_of(before.delete_row(&[DatumRef::Int64(3)], Durability::Os)), ErrorKind::NotFound);
    table.delete_row(&[DatumRef::Int64(3)], Durability::Os).unwrap();
    database.compact(&table).unwrap();
    for id in 0..10 {
        let row = before.packed_layout().unwrap().row(rows.value()).unwrap();
        assert_eq!(row.datum(1).unwrap(), Some(DatumRef::Int32(id)));
        rows.next().unwrap();
    }
    assert!(!rows.valid());
    drop((rows, before));
    database.wait_idle().unwrap();
    assert_eq!(ids(&table, 2, Test::IsNotNull, None).len(), 9);
    assert_nothing_is_kept(&disk, &database);
    assert_verified(&database);
}

#[test]
fn what_a_dropped_column_held_leaves_when_its_files_are_compacted() {
    for layout in ["L0 tiered: * packed\nL1 leveled: * packed", "L0 tiered: * packed\nL1 leveled: * columnar"] {
        let disk = MemoryDisk::new();
        let database = open(&disk);
        let table = ten_rows(&database, layout);
        let mut rng = SmallRng::seed_from_u64(1);
        for id in 0..10 {
            let text: String = (0..1_000).map(|_| char::from(rng.random_range(b' '..b'~'))).collect();
            table.patch_row(&[DatumRef::Int64(id)], &[("b", DatumRef::Utf8(&text))], Durability::Os).unwrap();
        }
        database.compact(&table).unwrap();
        let bytes = || -> u64 {
            let metrics = database.metrics();
            metrics.tables.iter().flat_map(|table| &table.levels).map(|level| level.bytes).sum()
        };
        let before = bytes();
        assert!(before > 5_000);
        let table = database.drop_column(&table, "b").unwrap();
        database.compact(&table).unwrap();
        database.wait_idle().unwrap();
        assert!(bytes() < before / 2, "{layout}: {} of {before} bytes", bytes());
        assert_nothing_is_kept(&disk, &database);
        assert_eq!(row(&table, 3), Some(vec![Datum::Int64(3), Datum::Int32(3), Datum::Null]));
        assert_verified(&database);
    }
}

/// A file of whole rows names no group, and is one of whole rows again.
#[test]
fn a_column_that_goes_before_any_file_has_it_leaves_files_as_they_were() {
    for layout in
        ["L0 tiered: * packed\nL1 leveled: * packed", "L0 tiered: * packed\nL1 leveled: 1 packed | 2 columnar"]
    {
        let disk = MemoryDisk::new();
        let database = open(&disk);
        let table = ten_rows(&database, layout);
        database.compact(&table).unwrap();
        table.patch_row(&[DatumRef::Int64(4)], &[("a", DatumRef::Int32(-4))], Durability::Os).unwrap();
        let table = database.add_column(&table, "c int32 default 7".parse().unwrap()).unwrap();
        drop(database.drop_column(&table, "c").unwrap());
        database.close().unwrap();
        let database = open(&disk);
        let table = database.table("t").unwrap();
        for _ in 0..2 {
            let expected = vec![Datum::Int64(4), Datum::Int32(-4), Datum::Utf8("4".into()), Datum::Null];
            assert_eq!(row(&table, 4), Some(expected), "{layout}");
            assert_eq!(ids(&table, 2, Test::IsNotNull, None).len(), 10, "{layout}");
            assert_verified(&database);
            database.compact(&table).unwrap();
        }
    }
}

/// What others wrote meanwhile was written to a table of another id.
#[test]
fn a_transaction_from_before_a_change_meets_what_was_written_before_it() {
    let database = open(&MemoryDisk::new());
    let before = ten_rows(&database, "L0 tiered: * packed\nL1 leveled: * columnar");
    let [mut first, mut second] = [0; 2].map(|_| database.begin_with(TransactionOptions::default()));
    let change = [("b", DatumRef::Utf8("other"))];
    before.patch_row(&[DatumRef::Int64(3)], &change, Durability::Os).unwrap();
    let table = database.drop_column(&before, "a").unwrap();
    database.compact(&table).unwrap();
    let change = [("b", DatumRef::Utf8("mine"))];
    first.patch_row(&table, &[DatumRef::Int64(3)], &change).unwrap();
    assert_eq!(kind_of(first.commit(Durability::Os)), ErrorKind::Conflict);
    second.patch_row(&table, &[DatumRef::Int64(4)], &change).unwrap();
    second.commit(Durability::Os).unwrap();
    for (id, text) in [(3, "other"), (4, "mine")] {
        assert_eq!(row(&table, id), Some(vec![Datum::Int64(id), Datum::Null, Datum::Utf8(text.into())]));
    }
}

#[test]
fn a_reader_has_the_column_until_it_catches_up() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = ten_rows(&database, "L0 tiered: * packed\nL1 leveled: 1 packed | 2 columnar");
    let reader = Database::open("db", Options { read_only: true, ..small_options(&disk) }).unwrap();
    let before = reader.table("t").unwrap();
    let table = database.drop_column(&table, "a").unwrap();
    let table = database.add_column(&table, "a utf8 default 'new'".parse().unwrap()).unwrap();
    database.compact(&table).unwrap();
    let text = |text: &str| Datum::Utf8(text.into());
    assert_eq!(row(&before, 3), Some(vec![Datum::Int64(3), Datum::Int32(3), text("3")]));
    reader.catch_up().unwrap();
    let key = before.row_key(&[DatumRef::Int64(3)]).unwrap();
    assert_eq!(kind_of(before.get(&key)), ErrorKind::NotFound);
    let after = reader.table("t").unwrap();
    assert_eq!(row(&after, 3), Some(vec![Datum::Int64(3), Datum::Null, text("3"), text("new")]));
    assert_eq!(ids(&after, 3, Test::Equal(text("new")), None).len(), 10);
}

/// Nothing lies in such a group yet. It was refused.
#[test]
fn a_column_that_only_the_layout_has_alone_is_dropped() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = ten_rows(&database, "L0 tiered: * packed\nL1 leveled: 1 packed | 2 columnar");
    database.flush().unwrap();
    table.patch_row(&[DatumRef::Int64(1)], &[("a", DatumRef::Int32(-1))], Durability::Os).unwrap();
    let table = database.drop_column(&table, "a").unwrap();
    assert_eq!(table.layout().to_string(), "L0 tiered: * packed\nL1 leveled: * columnar\n");
    drop(database.add_column(&table, "a int32 default 5".parse().unwrap()).unwrap());
    drop(table);
    database.close().unwrap();
    let database = open(&disk);
    let table = database.table("t").unwrap();
    for _ in 0..2 {
        for id in 0..10 {
            let expected = vec![Datum::Int64(id), Datum::Null, Datum::Utf8(id.to_string()), Datum::Int32(5)];
            assert_eq!(row(&table, id), Some(expected));
        }
        assert_eq!(ids(&table, 3, Test::Equal(Datum::Int32(5)), None).len(), 10);
        database.compact(&table).unwrap();
    }
    assert_verified(&database);
}

/// It said that another layout was to be set, and not which.
#[test]
fn a_column_that_files_have_alone_is_dropped_once_the_layout_of_the_refusal_is_set() {
    for (levels, column) in [("L1 leveled: 1 packed | 2 columnar", "a"), ("L1-2 leveled: 1 columnar | 2 packed", "b")] {
        let database = open(&MemoryDisk::new());
        let table = ten_rows(&database, &format!("L0 tiered: * packed\n{levels}"));
        database.compact(&table).unwrap();
        let refused = database.drop_column(&table, column).unwrap_err().to_string();
        let (_, layout) = refused.split_once("layout is\n").unwrap();
        database.set_layout(&table, Layout::parse(layout, &"1-2".parse().unwrap()).unwrap()).unwrap();
        let refused = database.drop_column(&table, column).unwrap_err().to_string();
        assert!(refused.contains("of an older layout: compact the table first"), "{refused}");
        database.compact(&table).unwrap();
        let table = database.drop_column(&table, column).unwrap();
        let left = |name: &str, value: Datum| if name == column { Datum::Null } else { value };
        let expected = [Datum::Int64(3), left("a", Datum::Int32(3)), left("b", Datum::Utf8("3".into()))];
        assert_eq!(row(&table, 3).as_deref(), Some(&expected[..]), "{levels}");
        assert_verified(&database);
    }
}

#[test]
fn columns_that_something_stands_on_are_not_dropped() {
    let database = open(&MemoryDisk::new());
    let table = ten_rows(&database, "L0 tiered: * packed\nL1 leveled: 1 packed | 2 packed");
    database.compact(&table).unwrap();
    let table = database.add_column(&table, Column::new("c", ColumnType::Int32)).unwrap();
    let refused = |table: &Table, name: &str, why: &str| {
        let error = database.drop_column(table, name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(why), "{error}");
    };
    assert_eq!(kind_of(database.drop_column(&table, "x")), ErrorKind::NotFound);
    refused(&table, "id", "primary key");
    refused(&table, "a", "alone in a column group");
    let on = |name: &str, on: &str, cover: &[&str]| IndexOptions {
        name: name.to_owned(),
        on: vec![on.to_owned()],
        cover: cover.iter().map(|name| (*name).to_owned()).collect(),
        ..IndexOptions::default()
    };
    database.create_index(&table, &on("by_b", "b", &["c"])).unwrap();
    database.create_index(&table, &on("by_id", "id", &[])).unwrap();
    database.wait_idle().unwrap();
    refused(&table, "b", "index by_b");
    refused(&table, "c", "index by_b");
    refused(&table, "a", "index by_id");
    database.drop_index(&table, "by_b").unwrap();
    let view = ViewOptions { name: "v".into(), group_by: vec!["b".into()], aggregates: vec!["count(*)".into()] };
    database.create_view(&table, &view).unwrap();
    refused(&table, "b", "view v");
    let table = database.drop_column(&table, "c").unwrap();
    assert_eq!(table.view("v").unwrap().read(&ReadOptions::default()).unwrap().rows.len(), 10);
    let index = table.index("by_id").unwrap();
    let found = index.get(&[DatumRef::Int64(4)], None, None).unwrap();
    let expected = [Datum::Int64(4), Datum::Int32(4), Datum::Utf8("4".into()), Datum::Null];
    assert_eq!(found.map(|row| row.unwrap().values).collect::<Vec<_>>(), [expected]);
    assert_verified(&database);
}

/// They were taken for rows of the columns that there are now, where their bytes happened to be such.
#[test]
fn rows_packed_by_a_layout_from_before_a_change_are_refused() {
    let packed_by = |layout: &PackedLayout, row: &[Datum]| {
        let mut packed = Vec::new();
        layout.encode_row(&row.iter().map(Datum::borrowed).collect::<Vec<_>>(), &mut packed).unwrap();
        packed
    };
    let changes: [fn(&Database, &Table) -> Table; 2] = [
        |database, table| database.add_column(table, Column::new("c", ColumnType::Int32)).unwrap(),
        |database, table| database.drop_column(table, "a").unwrap(),
    ];
    let database = open(&MemoryDisk::new());
    let mut table = ten_rows(&database, "L0 tiered: * packed\nL1 leveled: * packed");
    let key = table.row_key(&[DatumRef::Int64(3)]).unwrap();
    for change in changes {
        let old = table.packed_layout().unwrap().clone();
        let of_before = packed_by(&old, &row(&table, 3).unwrap());
        table = change(&database, &table);
        let expected = row(&table, 3).unwrap();
        let mut batch = WriteBatch::new();
        assert_eq!(kind_of(batch.put_packed(&table, &old, &key, &of_before)), ErrorKind::InvalidArgument);
        assert_eq!(kind_of(table.ingest_packed(&old, [Ok((&key, &of_before))])), ErrorKind::InvalidArgument);
        // One that places columns alike is as good as the table's.
        let new = PackedLayout::new(table.schema().unwrap().clone());
        let of_now = packed_by(&new, &expected);
        batch.put_packed(&table, &new, &key, &of_now).unwrap();
        database.write(&batch, Durability::Os).unwrap();
        assert_eq!(row(&table, 3).unwrap(), expected);
        assert_eq!(table.ingest_packed(&new, [Ok((&key, &of_now))]).unwrap().rows, 1);
        assert_eq!(row(&table, 3).unwrap(), expected);
        database.compact(&table).unwrap();
    }
    assert_verified(&database);
}

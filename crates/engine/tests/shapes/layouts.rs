//! Tables with row formats and layouts: what must not get in, and that layouts change nothing but files.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use mycelium_base::{ColumnSet, Group, RowFormatKind, TableId};
use mycelium_encoding::row_format::{Covers, RowFormat, RowScratch};
use mycelium_encoding::{Column, ColumnType, Datum, DatumRef, Schema};
use mycelium_engine::events::{Event, EventListener};
use mycelium_engine::{
    Background, Database, Durability, ErrorKind, IndexOptions, Layout, LeveledOptions, Options, Policy, ReadOptions,
    RowFormatDefinition, ScanOptions, Table, TableOptions, WriteBatch,
};
use mycelium_transform::TransformerSet;
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn schema() -> Schema {
    Schema::parse("id int64 not null, name utf8, score float64, primary key (id)").unwrap()
}

fn table(kind: RowFormatKind, layout: &str) -> (Database, Table) {
    let options = Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let options = TableOptions {
        row_format: RowFormatDefinition { kind, ..RowFormatDefinition::default() },
        layout: Some(Layout::parse(layout, &ColumnSet::from_iter([1, 2])).unwrap()),
        ..TableOptions::default()
    };
    let table = database.create_typed_table("t", schema(), options).unwrap();
    (database, table)
}

/// A stored value that has only one of the columns, put as if it were a whole row.
#[test]
fn a_json_row_without_all_columns_was_taken_for_a_whole_one() {
    let (database, table) = table(RowFormatKind::Json, "L0 tiered: * json\nL1 leveled: 1 packed | 2 packed");
    let json = RowFormat::json(Arc::new(schema()));
    let mut patch = Vec::new();
    let nulls = ColumnSet::new();
    json.store(br#"{"name": "Ada"}"#, Covers::Said, &nulls, &mut RowScratch::default(), &mut patch).unwrap();
    let key = table.row_key(&[DatumRef::Int64(1)]).unwrap();
    let refused = table.put(&key, &patch, Durability::Os).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert_eq!(database.last_sequence(), 0, "nothing of it was written");
    table.patch(&key, &patch, Durability::Os).unwrap();
    assert_eq!(table.get(&key).unwrap(), None, "a patch makes no row");
}

#[test]
fn malformed_values_do_not_reach_the_log() {
    for (kind, layout) in [
        (RowFormatKind::Json, "L0 tiered: * json\nL1 leveled: * json"),
        (RowFormatKind::Packed, "L0 tiered: * packed\nL1 leveled: * packed"),
    ] {
        let (database, table) = table(kind, layout);
        let key = table.row_key(&[DatumRef::Int64(1)]).unwrap();
        for value in [&b""[..], b"{}", b"\xff\xff\xff\xff", &[0; 40]] {
            assert_eq!(table.put(&key, value, Durability::Os).unwrap_err().kind(), ErrorKind::InvalidArgument);
            assert_eq!(table.patch(&key, value, Durability::Os).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        if kind == RowFormatKind::Json {
            let wrong =
                [(r#"{"name": 7}"#, 9), (r#"{"name": "a", "score": "b"}"#, 23), (r#"{"score": 1.5, "name": "c"]"#, 26)];
            for (payload, at) in wrong {
                let error = table.put_payload(&[DatumRef::Int64(1)], payload.as_bytes(), Durability::Os).unwrap_err();
                assert_eq!(
                    (error.kind(), error.offset()),
                    (ErrorKind::InvalidArgument, Some(at)),
                    "{payload}: {error}"
                );
            }
        }
        assert_eq!((database.last_sequence(), table.get(&key).unwrap()), (0, None));
    }
}

/// Where each fault is, in payloads of formats that are defined at run time.
#[test]
fn malformed_payloads_are_refused_at_their_byte() {
    let (text, unknown, twice) = ([8, 5, 18, 1, 0xff], [8, 5, 24, 1], [18, 1, b'a', 18, 1, b'b']);
    let flat_buffers = RowFormatDefinition {
        kind: RowFormatKind::FlatBuffers,
        definition: include_bytes!("../../../encoding/tests/golden/row-1.bfbs").to_vec(),
        root: "test.Row".into(),
    };
    let columns = "k int64 not null, i int32 not null, u uint64, f float64, s utf8, b binary, d decimal(10, 2), \
                   t timestamp(us, \"UTC\"), o bool, primary key (k)";
    let raw = RowFormatDefinition { kind: RowFormatKind::Raw, ..RowFormatDefinition::default() };
    type Payloads<'p> = Vec<(&'p [u8], u64)>;
    let cases: [(&str, RowFormatDefinition, Payloads<'_>); 3] = [
        (
            "id int64 not null, n int32, s utf8, primary key (id)",
            protobuf(),
            vec![(&text, 4), (&unknown, 2), (&twice, 3), (&[8, 5, 18, 9], 3)],
        ),
        (columns, flat_buffers, vec![(&[0xff; 8], 8), (&[], 0)]),
        ("id int64 not null, bytes binary not null, primary key (id)", raw, Vec::new()),
    ];
    for (schema, row_format, payloads) in cases {
        let disk = Arc::new(MemoryDisk::new());
        let options = Options { disk, background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let (kind, options) = (row_format.kind, TableOptions { row_format, ..TableOptions::default() });
        let table = database.create_typed_table("t", Schema::parse(schema).unwrap(), options).unwrap();
        for (payload, at) in payloads {
            let error = table.put_payload(&[DatumRef::Int64(1)], payload, Durability::Os).unwrap_err();
            let found = (error.kind(), error.offset());
            assert_eq!(found, (ErrorKind::InvalidArgument, Some(at)), "{kind} {payload:?}: {error}");
        }
        assert_eq!(database.last_sequence(), 0, "{kind}: nothing was written");
        // No bytes are malformed where any are taken.
        assert_eq!(
            table.put_payload(&[DatumRef::Int64(1)], &[0xff], Durability::Os).is_ok(),
            kind == RowFormatKind::Raw
        );
    }
}

#[test]
fn rows_are_handed_out_in_any_format_wherever_they_lie() {
    let (database, table) = table(RowFormatKind::Json, "L0 tiered: * json\nL1 leveled: 1 packed | 2 json");
    let key = [DatumRef::Int64(7)];
    table.put_payload(&key, br#"{ "score": 2.5, "name": null }"#, Durability::Os).unwrap();
    for step in 0..3 {
        let json = table.get_payload(&key, RowFormatKind::Json, &ReadOptions::default()).unwrap().unwrap().bytes;
        // As it was written, until a compaction has taken it apart.
        let expected =
            if step < 2 { &br#"{ "score": 2.5, "name": null }"#[..] } else { br#"{"name":null,"score":2.5}"# };
        assert_eq!(json, expected, "step {step}");
        let packed = table.get_payload(&key, RowFormatKind::Packed, &ReadOptions::default()).unwrap().unwrap().bytes;
        let row = table.packed_layout().unwrap().row(&packed).unwrap();
        assert_eq!(
            (row.datum(1).unwrap(), row.datum(2).unwrap()),
            (Some(DatumRef::Null), Some(DatumRef::Float64(2.5)))
        );
        let unknown = table.get_payload(&key, RowFormatKind::Protobuf, &ReadOptions::default()).unwrap_err();
        assert!(unknown.to_string().contains("protobuf"), "{unknown}");
        if step == 0 { database.flush().unwrap() } else { database.compact(&table).unwrap() }
    }
}

/// A descriptor set with `message Row { int32 n = 1; string s = 2; }`.
fn protobuf() -> RowFormatDefinition {
    let bytes = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8][..], bytes].concat();
    let field = |name: &[u8], number: u8, kind: u8| [bytes(1, name), vec![24, number, 32, 1, 40, kind]].concat();
    let fields = [bytes(2, &field(b"n", 1, 5)), bytes(2, &field(b"s", 2, 9))].concat();
    let message = [bytes(1, b"Row"), fields].concat();
    let file = [bytes(2, b"t"), bytes(4, &message), bytes(12, b"proto3")].concat();
    RowFormatDefinition { kind: RowFormatKind::Protobuf, definition: bytes(1, &file), root: "t.Row".into() }
}

/// A table had the definition of its own row format only, so that JSON could become packed rows and no others.
#[test]
fn rows_could_be_converted_to_packed_ones_only() {
    let disk = Arc::new(MemoryDisk::new());
    let options = || Options { disk: disk.clone(), background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options()).unwrap();
    let schema = Schema::parse("id int64 not null, n int32, s utf8, primary key (id)").unwrap();
    let of = |group_formats: Vec<RowFormatDefinition>, set: &str| TableOptions {
        row_format: RowFormatDefinition { kind: RowFormatKind::Json, ..RowFormatDefinition::default() },
        transformers: Some(TransformerSet::parse(set).unwrap()),
        group_formats,
        ..TableOptions::default()
    };
    let convert = "convert json to protobuf";
    let refused = database.create_typed_table("t", schema.clone(), of(Vec::new(), convert)).unwrap_err();
    assert!(refused.to_string().contains("no definition of its rows in protobuf"), "{refused}");
    for unfit in [vec![protobuf(), protobuf()], vec![RowFormatDefinition::default()]] {
        let refused = database.create_typed_table("t", schema.clone(), of(unfit, convert)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    }
    let of_bytes = TableOptions { group_formats: vec![protobuf()], ..TableOptions::default() };
    assert_eq!(database.create_table("bytes", of_bytes).unwrap_err().kind(), ErrorKind::InvalidArgument);

    let table = database.create_typed_table("t", schema, of(vec![protobuf()], convert)).unwrap();
    let rows: [(&[u8], &[u8]); 3] = [
        (br#"{"n":5,"s":"a"}"#, &[8, 5, 18, 1, b'a']),
        (br#"{"n":null,"s":"b"}"#, &[18, 1, b'b']),
        (br#"{"n":0,"s":null}"#, &[]),
    ];
    let key = |id: usize| [DatumRef::Int64(id as i64)];
    for (id, (json, _)) in rows.iter().enumerate() {
        table.put_payload(&key(id), json, Durability::Os).unwrap();
    }
    let check = |table: &Table| {
        for (id, (json, message)) in rows.iter().enumerate() {
            let get = |kind| table.get_payload(&key(id), kind, &ReadOptions::default()).unwrap().unwrap();
            assert_eq!(get(RowFormatKind::Json).bytes, *json);
            assert_eq!(get(RowFormatKind::Protobuf).bytes, *message);
            // What proto3 cannot tell apart is said beside the message.
            assert_eq!(get(RowFormatKind::Protobuf).nulls.len(), usize::from(id > 0));
        }
    };
    check(&table);
    database.compact(&table).unwrap();
    check(&table);
    let levels = &database.metrics().tables[0].levels;
    let held: Vec<String> =
        levels.iter().flat_map(|level| &level.groups).flat_map(|group| &group.group).map(Group::to_string).collect();
    assert_eq!(held, ["1-2/protobuf"]);
    let added = database.add_column(&table, Column::new("later", ColumnType::Int32)).unwrap_err();
    assert_eq!(added.kind(), ErrorKind::Unsupported);
    drop((table, database));
    check(&Database::open("db", options()).unwrap().table("t").unwrap());
}

/// A Protobuf writer leaves out a field of proto3 that it sets to 0, and there was no way to patch a column so.
#[test]
fn a_patch_sets_columns_to_defaults_that_its_payload_leaves_out() {
    let row_format = protobuf();
    let options = Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let schema = Schema::parse("id int64 not null, n int32, s utf8, primary key (id)").unwrap();
    let table =
        database.create_typed_table("t", schema, TableOptions { row_format, ..TableOptions::default() }).unwrap();
    let key = [DatumRef::Int64(1)];
    let row = || table.get_row(&key, Some(&[1, 2]), &ReadOptions::default()).unwrap().unwrap();
    table.put_payload(&key, &[8, 5, 18, 1, b'a'], Durability::Os).unwrap();
    let mut batch = WriteBatch::new();
    batch.patch_payload(&table, &key, &[]).unwrap();
    database.write(&batch, Durability::Os).unwrap();
    assert_eq!(row(), [Datum::Int32(5), Datum::Utf8("a".into())]);
    let mut batch = WriteBatch::new();
    batch.patch_payload_columns(&table, &key, &["n"], &[]).unwrap();
    for (columns, payload) in [(&["id"][..], &b""[..]), (&["x"][..], &b""[..]), (&["s"][..], &b"\x08\x01"[..])] {
        assert!(batch.patch_payload_columns(&table, &key, columns, payload).is_err(), "{columns:?}");
    }
    database.write(&batch, Durability::Os).unwrap();
    for _ in 0..2 {
        assert_eq!(row(), [Datum::Int32(0), Datum::Utf8("a".into())]);
        database.compact(&table).unwrap();
    }
}

/// A raw null was handed out, and could be given, as no bytes only.
#[test]
fn null_was_handed_out_as_what_is_empty() {
    let schema = Schema::parse("id int64 not null, bytes binary, primary key (id)").unwrap();
    for kind in [RowFormatKind::Raw, RowFormatKind::Json, RowFormatKind::Packed] {
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let layout = format!("L0 tiered: * {kind}\nL1 leveled: * {kind}");
        let options = TableOptions {
            row_format: RowFormatDefinition { kind, ..RowFormatDefinition::default() },
            layout: Some(Layout::parse(&layout, &ColumnSet::from_iter([1])).unwrap()),
            ..TableOptions::default()
        };
        let table = database.create_typed_table("t", schema.clone(), options).unwrap();
        let values = [DatumRef::Null, DatumRef::Binary(b""), DatumRef::Binary(b"\0")];
        let all = ReadOptions::default();
        for (id, value) in (0..).zip(values) {
            table.insert_row(&[DatumRef::Int64(id), value], Durability::Os).unwrap();
        }
        for step in 0..3 {
            for id in 0..3 {
                let payload = table.get_payload(&[DatumRef::Int64(id)], kind, &all).unwrap().unwrap();
                let expected = if id == 0 { ColumnSet::from_iter([1]) } else { ColumnSet::new() };
                assert_eq!(payload.nulls, expected, "{kind}, row {id}, step {step}");
                // What is handed out can be given back.
                let mut batch = WriteBatch::new();
                let key = [DatumRef::Int64(10 + id)];
                batch.put_payload_with_nulls(&table, &key, &payload.bytes, &payload.nulls).unwrap();
                database.write(&batch, Durability::Os).unwrap();
                let row = |id| table.get_row(&[DatumRef::Int64(id)], Some(&[1]), &all).unwrap();
                assert_eq!(row(10 + id), row(id), "{kind}, row {id}, step {step}");
            }
            if step == 0 { database.flush().unwrap() } else { database.compact(&table).unwrap() }
        }
    }
}

/// No key comes after one whose code is all ones: such a bound was taken for none.
#[test]
fn a_scan_past_the_last_key_there_can_be_is_empty() {
    let options = Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let schema = Schema::parse("id uint8 not null, name utf8, primary key (id)").unwrap();
    let table = database.create_typed_table("t", schema, TableOptions::default()).unwrap();
    for id in [0, 254, 255] {
        table.insert_row(&[DatumRef::UInt8(id), DatumRef::Null], Durability::Os).unwrap();
    }
    let rows = |lower| {
        let options = ScanOptions { lower: Bound::Excluded(vec![Datum::UInt8(lower)]), ..ScanOptions::default() };
        table.scan_batches(options).unwrap().map(|batch| batch.unwrap().num_rows()).sum::<usize>()
    };
    assert_eq!((rows(0), rows(254), rows(255)), (2, 1, 0));
}

#[test]
fn retrieving_column_groups_is_a_stage_of_its_own() {
    for (layout, retrieves) in [
        ("L0 tiered: * packed\nL1 leveled: 1 packed | 2 packed", true),
        ("L0 tiered: * packed\nL1 leveled: * packed", false),
    ] {
        let (database, table) = table(RowFormatKind::Packed, layout);
        for id in 0..2000 {
            table.insert_row(&[DatumRef::Int64(id), DatumRef::Null, DatumRef::Float64(0.5)], Durability::Os).unwrap();
        }
        // The second pass has something to merge with.
        for id in 0..2 {
            database.compact(&table).unwrap();
            table.insert_row(&[DatumRef::Int64(1000 * id), DatumRef::Null, DatumRef::Null], Durability::Os).unwrap();
        }
        let stages = database.metrics().compaction_stages;
        assert_eq!(stages.retrieve > 0, retrieves, "{stages:?}");
        let known =
            [stages.retrieve, stages.read, stages.decode, stages.merge, stages.encode, stages.compress, stages.filter];
        assert!(known.iter().sum::<u64>() + stages.write <= stages.total, "{stages:?}");
    }
}

/// Holds the first compaction of a table into level 2 up until another one runs as well.
#[derive(Default)]
struct Siblings {
    table: OnceLock<TableId>,
    /// Running into level 2, and the most of them that ever did.
    running: Mutex<(usize, usize)>,
    begun: Condvar,
}

impl EventListener for Siblings {
    fn on_event(&self, event: &Event) {
        match event {
            Event::CompactionBegin { table, output_level: 2, .. } if self.table.get() == Some(table) => {
                let mut running = self.running.lock().unwrap();
                running.0 += 1;
                running.1 = running.1.max(running.0);
                self.begun.notify_all();
                let alone = |running: &mut (usize, usize)| running.1 < 2;
                drop(self.begun.wait_timeout_while(running, Duration::from_secs(20), alone).unwrap());
            }
            Event::CompactionEnd { table, output_level: 2, .. } if self.table.get() == Some(table) => {
                self.running.lock().unwrap().0 -= 1;
            }
            _ => {}
        }
    }
}

/// Each group of a level is one file with all keys, so that only sibling groups can be compacted at the same time.
#[test]
fn sibling_groups_are_compacted_at_the_same_time() {
    let siblings = Arc::new(Siblings::default());
    let options = Options {
        background: Background::Threads(4),
        listener: Some(siblings.clone()),
        ..crate::common::small_options(&MemoryDisk::new())
    };
    let database = Database::open("db", options).unwrap();
    let layout = "L0 tiered: * packed\nL1 leveled: 1 packed | 2 packed";
    let policy = LeveledOptions {
        level0_trigger: 2,
        level_count: 4,
        base_level_bytes: 32 << 10,
        fanout: 4.0,
        target_file_size: 1 << 30,
        ..LeveledOptions::default()
    };
    let options = TableOptions {
        layout: Some(Layout::parse(layout, &ColumnSet::from_iter([1, 2])).unwrap()),
        policy: Policy::Leveled(policy),
        ..crate::common::small_table()
    };
    let table = database.create_typed_table("t", schema(), options).unwrap();
    siblings.table.set(table.id()).unwrap();
    let on_score = IndexOptions { name: "by_score".into(), on: vec!["score".into()], ..IndexOptions::default() };
    database.create_index(&table, &on_score).unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    let mut model: BTreeMap<i64, (String, f64)> = BTreeMap::new();
    for _ in 0..20_000 {
        let id = rng.random_range(0..3_000);
        let key = [DatumRef::Int64(id)];
        let score = f64::from(rng.random_range(0..100));
        match (rng.random_range(0..10), model.get_mut(&id)) {
            (0, _) => {
                table.delete_row(&key, Durability::Buffered).unwrap();
                model.remove(&id);
            }
            (1..=4, Some(row)) => {
                table.patch_row(&key, &[("score", DatumRef::Float64(score))], Durability::Buffered).unwrap();
                row.1 = score;
            }
            _ => {
                let name = format!("name {:032}", rng.random_range(0..u64::MAX));
                let row = [DatumRef::Int64(id), DatumRef::Utf8(&name), DatumRef::Float64(score)];
                table.insert_row(&row, Durability::Buffered).unwrap();
                model.insert(id, (name, score));
            }
        }
    }
    database.flush().unwrap();
    database.wait_idle().unwrap();
    assert!(siblings.running.lock().unwrap().1 >= 2, "one after the other");
    for id in 0..3_000 {
        let row = table.get_row(&[DatumRef::Int64(id)], None, &ReadOptions::default()).unwrap();
        let expected = model
            .get(&id)
            .map(|(name, score)| vec![Datum::Int64(id), Datum::Utf8(name.clone()), Datum::Float64(*score)]);
        assert_eq!(row, expected, "row {id}");
    }
    crate::common::assert_verified(&database);
}

/// Columns 1 and 3 lie together in level 2, and, since the layout changed, 2 and 3 of other rows. The group of column 1
/// goes down, with its copy of a range delete, and all of these are joined anew; the copy for columns 2 and 3 is still
/// above.
#[test]
fn a_range_delete_of_another_group_hid_a_column_of_joined_rows() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", crate::common::small_options(&disk)).unwrap();
    let schema = Schema::parse("id int64 not null, a utf8, b utf8, c int32, primary key (id)").unwrap();
    let columns = ColumnSet::from_iter([1, 2, 3]);
    let layout = |text: &str| Layout::parse(text, &columns).unwrap();
    let policy = LeveledOptions {
        level0_trigger: 2,
        level_count: 3,
        base_level_bytes: 2 << 10,
        fanout: 2.0,
        target_file_size: 1 << 30,
        ..LeveledOptions::default()
    };
    let options = TableOptions {
        layout: Some(layout("L0 tiered: * packed\nL1 leveled: 2 packed | 1,3 packed")),
        policy: Policy::Leveled(policy),
        ..crate::common::small_table()
    };
    let table = database.create_typed_table("t", schema, options).unwrap();
    let long = "a".repeat(200);
    let key = |id: i64| table.row_key(&[DatumRef::Int64(id)]).unwrap();
    // More than level 1 may hold.
    let fill = |ids: Range<i64>| {
        for id in ids.clone() {
            let row = [DatumRef::Int64(id), DatumRef::Utf8(&long), DatumRef::Utf8(&long), DatumRef::Int32(2)];
            table.insert_row(&row, Durability::Os).unwrap();
        }
        database.compact_range(&table, Some(&key(ids.start)), Some(&key(ids.end))).unwrap();
        while database.step().unwrap() {}
    };
    fill(0..40);
    database.set_layout(&table, layout("L0 tiered: * packed\nL1 leveled: 2,3 packed | 1 packed")).unwrap();
    fill(100..120);
    table.delete_range(&key(0), &key(5), Durability::Os).unwrap();
    // Now only column 1 has.
    for round in 0..4 {
        for id in (10..40).chain(100..120) {
            let text = format!("{round} {long}");
            table.patch_row(&[DatumRef::Int64(id)], &[("a", DatumRef::Utf8(&text))], Durability::Os).unwrap();
        }
        database.flush().unwrap();
        while database.step().unwrap() {}
        let is_there =
            |id: &i64| table.get_row(&[DatumRef::Int64(*id)], None, &ReadOptions::default()).unwrap().is_some();
        assert_eq!((0..120).filter(is_there).count(), 55, "round {round}");
    }
    crate::common::assert_verified(&database);
}

/// What lay in a two-phase level in the old groups was united with what came in the new one, and so taken apart again:
/// after every compaction into the level, which held up all others of the table.
#[test]
fn a_two_phase_level_never_reached_a_coarser_layout() {
    let layout = |text: &str| Layout::parse(text, &ColumnSet::from_iter([1, 2])).unwrap();
    let policy = LeveledOptions {
        level0_trigger: 2,
        level_count: 4,
        base_level_bytes: 32 << 10,
        fanout: 4.0,
        target_file_size: 8 << 10,
        ..LeveledOptions::default()
    };
    let options = TableOptions {
        layout: Some(layout("L0 tiered: * packed\nL1-2 two-phase: 1 packed | 2 packed")),
        policy: Policy::Leveled(policy),
        compression: vec![],
        ..crate::common::small_table()
    };
    let database = Database::open("db", crate::common::small_options(&MemoryDisk::new())).unwrap();
    let table = database.create_typed_table("t", schema(), options).unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    let mut model: BTreeMap<i64, (String, f64)> = BTreeMap::new();
    // Two files for level 0, which is due then.
    let mut write = |rows: usize| {
        for row in 0..2 * rows {
            let (id, score) = (rng.random_range(0..1_500), f64::from(rng.random_range(0..100)));
            let key = [DatumRef::Int64(id)];
            match (rng.random_range(0..10), model.get_mut(&id)) {
                (0, _) => {
                    table.delete_row(&key, Durability::Buffered).unwrap();
                    model.remove(&id);
                }
                (1..=2, Some(row)) => {
                    table.patch_row(&key, &[("score", DatumRef::Float64(score))], Durability::Buffered).unwrap();
                    row.1 = score;
                }
                _ => {
                    let name = format!("name {:064}", rng.random_range(0..u64::MAX));
                    let row = [DatumRef::Int64(id), DatumRef::Utf8(&name), DatumRef::Float64(score)];
                    table.insert_row(&row, Durability::Buffered).unwrap();
                    model.insert(id, (name, score));
                }
            }
            if row % rows == rows - 1 {
                database.flush().unwrap();
            }
        }
        while database.step().unwrap() {}
        for id in 0..1_500 {
            let row = table.get_row(&[DatumRef::Int64(id)], None, &ReadOptions::default()).unwrap();
            let expected = model
                .get(&id)
                .map(|(name, score)| vec![Datum::Int64(id), Datum::Utf8(name.clone()), Datum::Float64(*score)]);
            assert_eq!(row, expected, "row {id}");
        }
        let levels = database.metrics().tables.remove(0).levels;
        levels.into_iter().find(|level| level.level == 1).map(|level| (level.files, level.groups.len()))
    };
    // Deeper levels hold older data: rows of several groups cannot be joined in level 1.
    for _ in 0..20 {
        write(200);
    }
    assert!(write(200).is_some_and(|(files, groups)| files > 0 && groups == 2));
    database.set_layout(&table, layout("L0 tiered: * packed\nL1-2 two-phase: * packed")).unwrap();
    assert!((0..12).any(|_| write(200).is_some_and(|(files, groups)| files > 0 && groups == 0)));
    crate::common::assert_verified(&database);
}

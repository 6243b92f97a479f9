//! The real binary, command by command, on databases of its own. Assertions are on `--json` output.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

#[path = "commands/columns.rs"]
mod columns;
#[path = "commands/formats.rs"]
mod formats;

struct Shell {
    home: tempfile::TempDir,
}

impl Shell {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        std::fs::write(self.path(name), bytes).unwrap();
        name.to_owned()
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_mycelium"))
            .args(args)
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// The JSON lines of a command that must succeed.
    fn json(&self, args: &[&str]) -> Vec<Value> {
        let output = self.run(&[args, &["--json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        lines(&output)
    }

    fn one(&self, args: &[&str]) -> Value {
        let mut lines = self.json(args);
        assert_eq!(lines.len(), 1, "{args:?}: {lines:?}");
        lines.remove(0)
    }

    /// The exit code and the message of a command that must fail.
    fn failure(&self, args: &[&str]) -> (i32, String) {
        let output = self.run(args);
        assert!(!output.status.success(), "{args:?} succeeded");
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn lines(output: &Output) -> Vec<Value> {
    String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const SCHEMA: &str = "id int64 not null, name utf8, score float64, primary key (id)";

/// A table `people` with three rows, written by `put`.
fn people(shell: &Shell) {
    shell.one(&["create", "db", "people", "--schema", SCHEMA]);
    shell.one(&["put", "db", "people", "id=1", "name=Ada", "score=1.5"]);
    shell.one(&["put", "db", "people", "id=-2", "name=\"null\"", "--durability", "os"]);
    shell.one(&["put", "db", "people", "id=3", "name=null", "score=-inf"]);
}

#[test]
fn typed_rows_are_put_patched_scanned_and_deleted() {
    let shell = Shell::new();
    people(&shell);
    let row = shell.one(&["get", "db", "people", "1"]);
    assert_eq!(row, serde_json::json!({ "id": 1, "name": "Ada", "score": 1.5 }));
    assert_eq!(shell.one(&["get", "db", "people", "-2", "--columns", "name"])["name"], "null");

    shell.one(&["put", "db", "people", "--patch", "id=1", "name=null"]);
    // It was said to be written.
    let (code, message) = shell.failure(&["put", "db", "people", "--patch", "id=99", "name=nobody"]);
    assert!(code == 1 && message.contains("there is no such row"), "{code}: {message}");
    let patched = lines(&shell.run(&["put", "db", "people", "--patch", "id=99", "name=nobody", "--json"]));
    assert_eq!(patched, [serde_json::json!({ "sequence": null, "found": false })]);
    assert_eq!(shell.one(&["get", "db", "people", "1"]), serde_json::json!({ "id": 1, "name": null, "score": 1.5 }));
    assert_eq!(shell.failure(&["get", "db", "people", "99"]).0, 1, "a patch makes no row");

    let ids = |args: &[&str]| -> Vec<i64> {
        let rows = shell.json(&[&["scan", "db", "people"], args].concat());
        rows.iter().map(|row| row["id"].as_i64().unwrap()).collect()
    };
    assert_eq!(ids(&[]), [-2, 1, 3]);
    assert_eq!(ids(&["--reverse", "--limit", "2"]), [3, 1]);
    assert_eq!(ids(&["--from", "-1", "--to", "3"]), [1]);
    assert_eq!(shell.one(&["scan", "db", "people", "--count"])["rows"], 3);

    shell.one(&["delete", "db", "people", "1"]);
    assert_eq!(ids(&[]), [-2, 3]);
    shell.one(&["delete", "db", "people", "--from", "0"]);
    assert_eq!(ids(&[]), [-2]);
    let counted = shell.json(&["get", "db", "people", "-2", "--counters"]);
    assert!(counted[1]["counters"]["files_considered"].as_u64().unwrap() > 0);
}

#[test]
fn a_table_changes_its_layout_and_gives_the_same_rows() {
    let shell = Shell::new();
    let json = ["--row-format", "json", "--transform", "convert json to packed", "--transform", "split into 1 | 2"];
    let augment = ["--transform", "augment by_name on 1"];
    shell.one(&[&["create", "db", "people", "--schema", SCHEMA], &json[..], &augment].concat());
    assert_eq!(shell.one(&["index", "list", "db", "people"])["index"], "by_name");
    shell.one(&["put", "db", "people", "id=1", "name=Ada", "score=1.5"]);
    shell.one(&["put", "db", "people", "id=2", "name=Grace"]);
    shell.one(&["put", "db", "people", "--patch", "id=2", "score=2.5"]);
    let shown = shell.one(&["layout", "db", "people"]);
    assert_eq!(shown["auto"], false);
    shell.one(&["create", "db", "auto", "--schema", SCHEMA, "--layout-auto"]);
    assert_eq!(shell.one(&["layout", "db", "auto"])["auto"], true);
    assert_eq!(shell.failure(&["create", "db", "bytes", "--layout-auto"]).0, 2);
    let text = shown["layout"].as_str().unwrap();
    assert!(text.starts_with("L0 tiered: * json\n") && text.ends_with("leveled: 1 packed | 2 packed\n"), "{text}");

    let before = shell.json(&["scan", "db", "people"]);
    for layout in ["L0 tiered: * json\nL1 leveled: 1 packed | 2 json", "L0 tiered: * json\nL1 leveled: * packed"] {
        let shown = shell.one(&["layout", "db", "people", "--set", layout, "--compact"]);
        let held: Vec<&Value> =
            shown["levels"].as_array().unwrap().iter().flat_map(|level| level["groups"].as_array().unwrap()).collect();
        let groups: Vec<&str> = held.iter().map(|group| group["group"].as_str().unwrap()).collect();
        let wanted = if layout.contains('|') { vec!["1 packed", "2 json"] } else { vec!["1-2 packed"] };
        assert_eq!(groups, wanted, "{shown}");
        assert_eq!(shown["deferred_bytes"], 0, "{shown}");
        assert_eq!(shell.json(&["scan", "db", "people"]), before);
        assert_eq!(shell.one(&["get", "db", "people", "2"])["score"], 2.5);
        assert_eq!(shell.one(&["scan", "db", "people", "--count"])["rows"], 2);
    }
    shell.one(&["verify", "db"]);

    let (_, message) = shell.failure(&["layout", "db", "people", "--set", "L0 tiered: * packed\nL1 leveled: * packed"]);
    assert!(message.contains("level 0"), "{message}");
    let (_, message) = shell.failure(&["layout", "db", "people", "--set", "L0 tiered: * json\nL1 leveled: 1 packed"]);
    assert!(message.contains("columns 2"), "{message}");
    let (_, message) = shell.failure(&["create", "db", "bytes", "--row-format", "json"]);
    assert!(message.contains("typed"), "{message}");
}

#[test]
fn instants_of_any_zone_are_read_and_printed_in_utc() {
    let shell = Shell::new();
    let schema =
        "id int64 not null, at timestamp(s, \"UTC\"), there timestamp(ms, \"Europe/Berlin\"), primary key (id)";
    let csv = shell
        .write("t.csv", b"id,at,there\n1,2013-07-15T16:00:00Z,2013-07-15T18:00:00.5+02:00\n2,2013-07-15 16:00:00,\n");
    shell.one(&["load", "db", &csv, "--table", "t", "--schema", schema]);
    shell.one(&["put", "db", "t", "id=3", "at=2013-07-15T18:00:00+02:00"]);
    let rows = shell.json(&["scan", "db", "t"]);
    assert!(rows.iter().all(|row| row["at"] == "2013-07-15T16:00:00Z"), "{rows:?}");
    assert_eq!(rows[0]["there"], "2013-07-15T16:00:00.500Z");
    assert!(shell.run(&["get", "db", "t", "3"]).status.success());
}

#[test]
fn byte_tables_take_any_bytes() {
    let shell = Shell::new();
    shell.one(&["create", "db", "cache"]);
    shell.one(&["put", "db", "cache", "a\\x00b", "\\xff\\\\"]);
    let row = shell.one(&["get", "db", "cache", "a\\x00b"]);
    assert_eq!(row, serde_json::json!({ "key": "a\\x00b", "value": "\\xff\\\\" }));
    assert_eq!(shell.json(&["scan", "db", "cache", "--prefix", "a"]).len(), 1);
    assert_eq!(shell.json(&["scan", "db", "cache", "--prefix", "b"]).len(), 0);
    let (code, message) = shell.failure(&["put", "db", "cache", "only-a-key"]);
    assert_eq!(code, 2);
    assert!(message.contains("KEY VALUE"), "{message}");
}

/// Rows in all three forms of input.
fn inputs(shell: &Shell, rows: i64) -> [String; 3] {
    let mut csv = String::from("id,name,score\n");
    let mut json = String::new();
    for id in 0..rows {
        let score = id as f64 / 4.0;
        csv.push_str(&format!("{id},n{id},{score}\n"));
        json.push_str(&format!("{{\"id\":{id},\"name\":\"n{id}\",\"score\":{score}}}\n"));
    }
    let (schema, _) = arrow_json::reader::infer_json_schema(json.as_bytes(), None).unwrap();
    let reader = arrow_json::ReaderBuilder::new(schema.into()).build(json.as_bytes()).unwrap();
    let batches: Vec<_> = reader.map(Result::unwrap).collect();
    let mut arrow = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| arrow.write(batch).unwrap());
    [
        shell.write("rows.csv.zst", &zstd::encode_all(csv.as_bytes(), 1).unwrap()),
        shell.write("rows.jsonl", json.as_bytes()),
        shell.write("rows.arrow", &arrow.into_inner().unwrap()),
    ]
}

#[test]
fn csv_json_and_arrow_load_alike() {
    let shell = Shell::new();
    let files = inputs(&shell, 3000);
    for (file, sorted) in files.iter().flat_map(|file| [(file, false), (file, true)]) {
        let table = format!("{}-{sorted}", file.replace('.', "-"));
        let mut args = vec!["load", "db", file, "--table", &table, "--key", "id"];
        args.extend(sorted.then_some("--sorted"));
        let loaded = shell.one(&args);
        assert_eq!(loaded["rows"], 3000, "{table}");
        assert_eq!(shell.one(&["scan", "db", &table, "--count"])["rows"], 3000);
        let row = shell.one(&["get", "db", &table, "2999"]);
        assert_eq!(row, serde_json::json!({ "id": 2999, "name": "n2999", "score": 749.75 }), "{table}");
    }
    let tables = shell.json(&["tables", "db"]);
    assert_eq!(tables.len(), 6);
    assert!(tables.iter().all(|table| table["schema"].as_str().unwrap().contains("primary key (id)")));
    // Rows of the same keys replace; another schema is refused.
    let again = shell.one(&["load", "db", &files[1], "--table", "rows-csv-zst-false"]);
    assert_eq!(again["rows"], 3000);
    assert_eq!(shell.one(&["scan", "db", "rows-csv-zst-false", "--count"])["rows"], 3000);
    let (code, message) =
        shell.failure(&["load", "db", &files[1], "--table", "rows-csv-zst-false", "--schema", SCHEMA, "--key", "name"]);
    assert_eq!(code, 2);
    assert!(message.contains("exists with another"), "{message}");
    assert_eq!(shell.one(&["verify", "db"])["ok"], true);
}

#[test]
fn wrong_input_makes_no_database() {
    let shell = Shell::new();
    let bad = shell.write("bad.csv", b"id,name\n1,a\n,b\n");
    assert_eq!(shell.failure(&["load", "db", "missing.csv", "--table", "t", "--key", "id"]).0, 3);
    assert_eq!(shell.failure(&["load", "db", &bad, "--table", "t", "--key", "nope"]).0, 2);
    assert!(!shell.path("db").exists());
    let (code, message) = shell.failure(&["load", "db", &bad, "--table", "t", "--key", "id", "--batch-rows", "1"]);
    assert_eq!(code, 3);
    assert!(message.contains("must not be null"), "{message}");
    let unsorted = shell.write("unsorted.csv", b"id\n2\n1\n");
    let (code, message) = shell.failure(&["load", "db", &unsorted, "--table", "u", "--key", "id", "--sorted"]);
    assert_eq!(code, 2);
    assert!(message.contains("ascending"), "{message}");
    for args in
        [&["tables", "none"][..], &["inspect", "levels", "none"], &["get", "none", "t", "1"], &["verify", "none"]]
    {
        assert_eq!(shell.failure(args).0, 1, "{args:?}");
    }
    assert!(!shell.path("none").exists());
}

fn only_file(directory: &Path, extension: &str) -> String {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(extension))
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    names.remove(0)
}

#[test]
fn inspect_shows_what_the_columns_of_a_columnar_file_take() {
    let shell = Shell::new();
    let rows =
        (0..3000).map(|id| format!("{id},kind {},{},{}\n", id % 5, f64::from(id) / 4.0, if id < 7 { "" } else { "x" }));
    let csv = shell.write("rows.csv", format!("id,kind,score,mark\n{}", rows.collect::<String>()).as_bytes());
    shell.one(&["load", "db", &csv, "--table", "t", "--key", "id"]);
    shell.one(&["layout", "db", "t", "--set", "L0 tiered: * packed\nL1 leveled: * columnar", "--compact"]);
    let file = shell.one(&["inspect", "run", "db", "t", "1"]);
    let sst = format!("db/{:06}.sst", file["file"].as_u64().unwrap());

    let parts = shell.json(&["inspect", "sst", &sst]);
    let blocks = parts[0]["blocks"].as_u64().unwrap();
    assert_eq!((&parts[1]["part"], &parts[2]["part"]), (&"keys".into(), &"sequence numbers".into()));
    assert_eq!(parts[0]["distinct_keys"], true);
    let [kind, score, mark] = [3, 4, 5].map(|at| &parts[at]);
    assert_eq!((&kind["column"], &score["column"], &mark["column"]), (&"kind".into(), &"score".into(), &"mark".into()));
    assert_eq!((kind["dictionary_values"].as_u64(), kind["encodings"]["dictionary"].as_u64()), (Some(5), Some(blocks)));
    assert_eq!((&kind["least"], &kind["greatest"]), (&"kind 0".into(), &"kind 4".into()));
    // Three bits for five texts, and the headers of pages.
    let bits = kind["bits_per_row"].as_f64().unwrap();
    assert!((3.0..4.0).contains(&bits), "{kind}");
    assert_eq!(bits, (kind["bytes"].as_f64().unwrap() * 8.0 / 3000.0 * 1000.0).round() / 1000.0);
    assert_eq!((score["encodings"]["decimal"].as_u64(), &score["dictionary_values"]), (Some(blocks), &Value::Null));
    assert_eq!((&score["least"], &score["greatest"], &score["nulls"]), (&"0".into(), &"749.75".into(), &0.into()));
    assert_eq!((mark["nulls"].as_u64(), mark["dictionary_values"].as_u64()), (Some(7), Some(1)), "{mark}");
    assert_eq!(parts.len() as u64, 6 + blocks);

    let entries = shell.json(&["inspect", "sst", &sst, "--entries", "2"]);
    assert_eq!(entries[1]["value"], "kind=kind 1 score=0.25 mark=null");
    let history = shell.one(&["inspect", "key", "db", "t", "2999"]);
    assert_eq!(history["value"], "kind=kind 4 score=749.75 mark=x");
    let text = String::from_utf8(shell.run(&["inspect", "sst", &sst]).stdout).unwrap();
    assert!(text.contains("one entry of each key") && text.contains("dictionary of 5 in"), "{text}");
    assert!(text.contains("kind 0 to kind 4, 0 nulls, about 5 different"), "{text}");
    assert_eq!(kind["distinct_estimate"], 5);
}

#[test]
fn blocks_have_the_size_of_their_level() {
    let shell = Shell::new();
    let rows = (0..9000).map(|id| format!("{id},text {id}\n")).collect::<String>();
    let csv = shell.write("rows.csv", format!("id,name\n{rows}").as_bytes());
    let layout = "L0 tiered: * packed\nL1 leveled: * columnar";
    shell.one(&["load", "db", &csv, "--table", "t", "--key", "id", "--block-size", "512,2048", "--layout", layout]);
    let block_size = |level: &str| {
        let file = shell.one(&["inspect", "run", "db", "t", level])["file"].as_u64().unwrap();
        shell.json(&["inspect", "sst", &format!("db/{file:06}.sst")])[0]["block_size"].as_u64()
    };
    assert_eq!(block_size("0"), Some(512));
    shell.one(&["compact", "db", "t"]);
    assert_eq!(block_size("1"), Some(8 * 2048), "columnar blocks are larger");
    let (code, message) = shell.failure(&["load", "db", &csv, "--table", "u", "--key", "id", "--block-size", "1"]);
    assert_eq!(code, 2, "{message}");
}

#[test]
fn inspect_shows_files_of_a_database_at_rest() {
    let shell = Shell::new();
    let [csv, ..] = inputs(&shell, 2000);
    shell.one(&["load", "db", &csv, "--table", "t", "--key", "id", "--prefix-filter", "1"]);
    let sst = format!("db/{}", only_file(&shell.path("db"), ".sst"));

    let levels = shell.one(&["inspect", "levels", "db", "t"]);
    assert_eq!(levels["levels"][0]["entries"], 2000);
    let file = shell.one(&["inspect", "run", "db", "t", "0"]);
    assert_eq!((file["entries"].as_u64(), file["smallest"].as_str()), (Some(2000), Some("0")));
    assert_eq!(file["largest"], "1999");
    assert_eq!(shell.failure(&["inspect", "run", "db", "t", "3"]).0, 1);

    let parts = shell.json(&["inspect", "sst", &sst]);
    assert_eq!((parts[0]["entries"].as_u64(), parts[0]["in_manifest"].as_bool()), (Some(2000), Some(true)));
    assert_eq!(parts[0]["filter_prefixes"], "8 bytes");
    let in_blocks: u64 = parts[1..].iter().map(|block| block["entries"].as_u64().unwrap()).sum();
    assert_eq!(in_blocks, 2000);
    let entries = shell.json(&["inspect", "sst", &sst, "--entries", "2"]);
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[1]["value"], "name=n1 score=0.25");

    shell.one(&["put", "db", "t", "--patch", "id=7", "name=seven"]);
    let record = shell.one(&["inspect", "wal", "db", "--limit", "1"]);
    assert_eq!(record["by_kind"]["patch t"], 1);
    let history = shell.json(&["inspect", "key", "db", "t", "7"]);
    let operations: Vec<_> = history.iter().map(|entry| entry["operation"].as_str().unwrap()).collect();
    assert_eq!(operations, ["patch", "put"]);
    assert_eq!(history[0]["value"], "name=seven");
    assert!(history[0]["place"].as_str().unwrap().starts_with("log "));
    assert!(history[1]["place"].as_str().unwrap().starts_with("L0 run 0"));
    assert_eq!(shell.failure(&["inspect", "key", "db", "t", "5000"]).0, 1);

    let manifest = shell.json(&["inspect", "manifest", "db"]);
    let state = &manifest.last().unwrap()["state"];
    assert_eq!(state["tables"][0]["name"], "t");
    assert!(manifest.len() > 1);
    // The text forms print as well.
    for args in [
        &["inspect", "levels", "db"][..],
        &["inspect", "run", "db", "t", "0"],
        &["inspect", "sst", &sst],
        &["inspect", "wal", "db"],
        &["inspect", "manifest", "db"],
        &["inspect", "key", "db", "t", "7"],
        &["tables", "db"],
        &["scan", "db", "t", "--limit", "3", "--counters"],
        &["verify", "db"],
    ] {
        let output = shell.run(args);
        assert!(output.status.success() && !output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_checkpoint_opens_on_its_own_and_damage_is_found() {
    let shell = Shell::new();
    people(&shell);
    let copy = shell.one(&["checkpoint", "db", "copy"]);
    assert!(copy["files"].as_u64().unwrap() > 0);
    assert_eq!(shell.failure(&["checkpoint", "db", "copy"]).0, 2, "it must not exist");
    shell.one(&["delete", "db", "people", "1"]);
    assert_eq!(shell.one(&["scan", "copy", "people", "--count"])["rows"], 3);
    assert_eq!(shell.one(&["verify", "copy"])["ok"], true);

    let file = std::fs::read_dir(shell.path("copy"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "sst"))
        .unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let (code, message) = shell.failure(&["verify", "copy"]);
    assert_eq!(code, 4, "{message}");
}

#[test]
fn a_checkpoint_is_made_while_another_process_writes() {
    use mycelium::{Database, DatumRef, Durability, Options};
    let shell = Shell::new();
    people(&shell);
    let database = Database::open(shell.path("db"), Options::default()).unwrap();
    let table = database.table("people").unwrap();
    for id in 100..200 {
        table.insert_row(&[DatumRef::Int64(id), DatumRef::Null, DatumRef::Null], Durability::Os).unwrap();
    }
    shell.one(&["checkpoint", "db", "copy"]);
    assert_eq!(shell.one(&["scan", "copy", "people", "--count"])["rows"], 103);
    table.insert_row(&[DatumRef::Int64(200), DatumRef::Null, DatumRef::Null], Durability::Os).unwrap();
    database.close().unwrap();
    assert_eq!(shell.one(&["scan", "db", "people", "--count"])["rows"], 104);
    assert_eq!(shell.one(&["verify", "copy"])["ok"], true);
}

#[test]
fn backups_are_made_listed_verified_restored_and_deleted() {
    let shell = Shell::new();
    people(&shell);
    let one = shell.one(&["backup", "create", "db", "backups"]);
    assert_eq!((&one["backup"], &one["copied"]), (&1.into(), &one["files"]));
    shell.one(&["compact", "db", "people"]);
    shell.one(&["delete", "db", "people", "1"]);
    assert_eq!(shell.one(&["backup", "create", "db", "backups"])["backup"], 2);
    // What only the log has is written again, and is the same.
    let three = shell.one(&["backup", "create", "db", "backups"]);
    assert_eq!((&three["backup"], &three["copied"], &three["copied_bytes"]), (&3.into(), &0.into(), &0.into()));
    let list = shell.json(&["backup", "list", "backups"]);
    assert_eq!(list.iter().map(|backup| backup["backup"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(list.iter().all(|backup| backup["damage"].is_null() && backup["time"].as_str().unwrap().ends_with('Z')));
    assert_eq!((&list[0]["own_bytes"], &list[1]["own_bytes"]), (&list[0]["bytes"], &0.into()));
    let text = shell.run(&["backup", "list", "backups"]);
    assert!(text.status.success() && String::from_utf8(text.stdout).unwrap().contains("own_bytes"));
    assert_eq!(shell.one(&["backup", "verify", "backups"])["ok"], true);

    assert_eq!(shell.one(&["backup", "restore", "backups", "newest"])["backup"], 3);
    assert_eq!(shell.one(&["scan", "newest", "people", "--count"])["rows"], 2);
    shell.one(&["backup", "restore", "backups", "oldest", "--number", "1"]);
    assert_eq!(shell.one(&["scan", "oldest", "people", "--count"])["rows"], 3);
    assert_eq!(shell.failure(&["backup", "restore", "backups", "newest"]).0, 2, "it must not exist");
    shell.one(&["create", "other", "t"]);
    assert_eq!(shell.failure(&["backup", "create", "other", "backups"]).0, 2, "backups of another database");
    assert_eq!(shell.failure(&["backup", "restore", "backups", "none", "--number", "9"]).0, 1);
    assert_eq!(shell.failure(&["backup", "list", "none"]).0, 1);

    assert_eq!(shell.one(&["backup", "delete", "backups", "--keep", "1"])["backups"], serde_json::json!([1, 2]));
    assert_eq!(shell.failure(&["backup", "delete", "backups", "1"]).0, 1);
    let mut files = std::fs::read_dir(shell.path("backups")).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|path| path.extension().is_some_and(|extension| extension == "sst")).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    for args in [&["backup", "verify", "backups"][..], &["backup", "restore", "backups", "damaged"]] {
        let (code, message) = shell.failure(args);
        assert!(code == 4 && message.contains("backup"), "{args:?}: {code}: {message}");
    }
}

/// A database whose table `t` was read whole by key, and by scans of its last column.
fn asked_for(shell: &Shell) {
    use mycelium::{Database, DatumRef, Durability, Layout, Options, ReadOptions, ScanOptions, Schema, TableOptions};
    let database = Database::open(shell.path("db"), Options::default()).unwrap();
    let schema = Schema::parse("a int64, id int64 not null, b int64, c int64, d int64, primary key (id)").unwrap();
    let rows = "L0 tiered: * packed\nL1 leveled: * packed";
    let layout = Some(Layout::parse(rows, &"0,2-4".parse().unwrap()).unwrap());
    let table = database.create_typed_table("t", schema, TableOptions { layout, ..TableOptions::default() }).unwrap();
    database.create_table("bytes", TableOptions::default()).unwrap();
    for id in 0..2000 {
        let value = DatumRef::Int64(id);
        table.insert_row(&[value; 5], Durability::Buffered).unwrap();
    }
    database.compact(&table).unwrap();
    for id in 0..10 {
        assert!(table.get_row(&[DatumRef::Int64(id)], None, &ReadOptions::default()).unwrap().is_some());
    }
    for _ in 0..50 {
        let options = ScanOptions { projection: Some(vec![4]), ..ScanOptions::default() };
        let rows: usize = table.scan_batches(options).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows, 2000);
    }
    drop(table);
    database.close().unwrap();
}

#[test]
fn layouts_are_advised_of_a_database_and_of_a_trace() {
    let shell = Shell::new();
    asked_for(&shell);
    let advice = shell.one(&["advise", "db", "--table", "t", "--widths", "3"]);
    let counts = ["writes", "points", "scans", "scanned_entries"].map(|name| advice[name].as_u64().unwrap());
    assert_eq!(counts, [2000, 10, 50, 100_000]);
    assert!(advice["layout"].as_str().unwrap().contains("| 4 columnar"), "{advice}");
    let designs = advice["designs"].as_array().unwrap();
    let names: Vec<_> = designs.iter().map(|design| design["name"].as_str().unwrap()).collect();
    let compared = ["level by level", "from the last level up", "rows", "columns", "width 3", "columnar"];
    assert_eq!(names, [&["advised", "present"][..], &compared].concat());
    let blocks = |at: usize| designs[at]["blocks"].as_f64().unwrap();
    assert!((1..designs.len()).all(|at| blocks(0) <= blocks(at)), "{advice}");
    assert_eq!(blocks(1), blocks(4), "the present layout is rows");
    assert!(advice["predicted_saving"].as_f64().unwrap() > 0.1);
    assert_eq!(shell.one(&["advise", "db"])["table"], "t", "a table of bytes is not traced");

    let text = shell.run(&["advise", "db"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for part in ["t: 2,000 writes", "columns: 0 a, 2 b, 3 c, 4 d", "|0,2-3|4|", "of present", "L0 tiered: * packed"] {
        assert!(text.contains(part), "{part}: {text}");
    }

    let path = std::fs::read_dir(shell.path("db")).unwrap().map(|entry| entry.unwrap().path());
    let path = path.into_iter().find(|path| path.to_string_lossy().contains("TRACE-")).unwrap();
    let path = path.to_str().unwrap();
    let alone = shell.one(&["advise", path, "--size-ratio", "2"]);
    assert_eq!((alone["table"].is_null(), alone["scans"].as_u64()), (true, Some(50)));
    assert!(alone["layout"].as_str().unwrap().contains("| 3 columnar"), "{alone}");
    let warnings = |advice: &Value| advice["warnings"].as_array().unwrap().len();
    assert_eq!((warnings(&alone), warnings(&advice)), (1, 0), "one transforming compaction: {alone}");
    assert_eq!(shell.failure(&["advise", path, "--table", "t"]).0, 2);
    let (code, message) = shell.failure(&["advise", &shell.write("wrong", b"mycelium-trace 1\ncolumns x\n")]);
    assert!(code == 3 && message.contains("line 2"), "{code} {message}");
    assert_eq!(shell.failure(&["advise", "nowhere"]).0, 1);
    assert_eq!(shell.failure(&["advise", "db", "--table", "bytes"]).0, 2);
    assert_eq!(shell.failure(&["advise", "db", "--widths", "0"]).0, 2);
}

/// What several levels served was added up beyond the largest number.
#[test]
fn a_trace_of_as_many_operations_as_can_be_counted_is_advised_on() {
    let shell = Shell::new();
    let most = u64::MAX;
    let counters = format!("points={most} scans={most} entries={most} updates={most}");
    let trace = format!(
        "mycelium-trace 1\ncolumns 3\nlevels 3\ninserts {most}\noverflowed {most}\nprojection 0-2\n\
         L1: {counters}\nL2: {counters}\nprojection 1\nL2: {counters}\nend\n"
    );
    let path = shell.write("trace", trace.as_bytes());
    let advice = shell.one(&["advise", &path]);
    for name in ["writes", "updates", "points", "scans", "scanned_entries"] {
        assert_eq!(advice[name].as_u64(), Some(most), "{name}");
    }
    assert!(shell.run(&["advise", &path]).status.success());
}

#[test]
fn indexes_are_created_read_listed_and_dropped() {
    let shell = Shell::new();
    shell.json(&["create", "db", "t", "--schema", "id int64 not null, city utf8, year int32, primary key (id)"]);
    for (id, city, year) in [(1, "Graz", 1128), (2, "Linz", 799), (3, "Graz", 2003)] {
        let values = [format!("id={id}"), format!("city={city}"), format!("year={year}")];
        shell.json(&["put", "db", "t", &values[0], &values[1], &values[2]]);
    }
    shell.one(&["index", "create", "db", "t", "by_city", "--on", "city,year"]);
    let listed = shell.one(&["index", "list", "db", "t"]);
    assert_eq!(listed["on"], serde_json::json!(["city", "year"]));
    assert_eq!((&listed["built"], &listed["unique"]), (&Value::Bool(true), &Value::Bool(false)));
    let ids = |args: &[&str]| -> Vec<i64> {
        let rows = shell.json(&[&["scan", "db", "t", "--index", "by_city"], args].concat());
        rows.iter().map(|row| row["id"].as_i64().unwrap()).collect()
    };
    assert_eq!(ids(&[]), [1, 3, 2]);
    assert_eq!(ids(&["--prefix", "Graz"]), [1, 3]);
    assert_eq!(ids(&["--from", "Graz,1200", "--to", "Linz"]), [3]);
    assert_eq!(shell.one(&["scan", "db", "t", "--index", "by_city", "--prefix", "Linz", "--count"])["rows"], 1);
    assert_eq!(shell.one(&["verify", "db"])["derived"], 1);
    let (code, message) = shell.failure(&["index", "create", "db", "t", "one_each", "--on", "city", "--unique"]);
    assert!(code == 1 && message.contains("Graz"), "{code}: {message}");
    shell.one(&["index", "drop", "db", "t", "by_city"]);
    assert!(shell.json(&["index", "list", "db", "t"]).is_empty());
    assert_eq!(shell.json(&["tables", "db"]).len(), 1);
}

#[test]
fn views_are_created_read_listed_and_dropped() {
    let shell = Shell::new();
    let schema = "id int64 not null, city utf8, amount decimal(10, 2), primary key (id)";
    shell.json(&["create", "db", "t", "--schema", schema]);
    for (id, city, amount) in [(1, "Graz", "1.50"), (2, "Linz", "9.99"), (3, "Graz", "2.50")] {
        let values = [format!("id={id}"), format!("city={city}"), format!("amount={amount}")];
        shell.json(&["put", "db", "t", &values[0], &values[1], &values[2]]);
    }
    let compute = "count(*),sum(amount),max(id)";
    shell.one(&["view", "create", "db", "t", "by_city", "--by", "city", "--compute", compute, "--compact"]);
    let listed = shell.one(&["view", "list", "db", "t"]);
    assert_eq!(listed["by"], serde_json::json!(["city"]));
    assert_eq!(listed["compute"], serde_json::json!(["count(*)", "sum(amount)", "max(id)"]));
    let rows = shell.json(&["view", "read", "db", "t", "by_city", "--counters"]);
    assert_eq!((&rows[0]["city"], &rows[0]["count(*)"]), (&Value::from("Graz"), &Value::from(2)));
    let text = shell.run(&["view", "read", "db", "t", "by_city", "--json"]).stdout;
    assert!(String::from_utf8_lossy(&text).contains(r#""sum(amount)":4.00"#), "{rows:?}");
    assert_eq!((rows.len(), &rows[2]["counters"]["rows"]), (3, &Value::from(0)), "{rows:?}");
    assert_eq!(shell.json(&["view", "read", "db", "t", "by_city", "--from", "2"])[0]["max(id)"], 3);
    assert_eq!(shell.one(&["verify", "db"])["derived"], 1);
    let (code, message) = shell.failure(&["view", "create", "db", "t", "bad", "--compute", "sum(city)"]);
    assert!(code == 2 && message.contains("city"), "{code}: {message}");
    let (_, message) = shell.failure(&["view", "read", "db", "t", "gone"]);
    assert!(message.contains("by_city"), "{message}");
    shell.one(&["view", "drop", "db", "t", "by_city"]);
    assert!(shell.json(&["view", "list", "db", "t"]).is_empty());
}

#[test]
fn rows_expire_when_a_command_says_so() {
    let shell = Shell::new();
    let schema = "id int64 not null, seen timestamp(s), n int64, primary key (id)";
    shell.json(&["create", "db", "t", "--schema", schema]);
    for (id, seen) in
        [("id=1", "seen=2001-02-03T04:05:06"), ("id=2", "seen=2999-01-01T00:00:00"), ("id=3", "seen=null")]
    {
        shell.json(&["put", "db", "t", id, seen, "n=5"]);
    }
    let (code, message) = shell.failure(&["expire", "db", "t"]);
    assert!(code == 2 && message.contains("--after"), "{code}: {message}");
    let (_, message) = shell.failure(&["expire", "db", "t", "--by", "seen", "--after", "soon"]);
    assert!(message.contains("30d"), "{message}");
    let (code, message) = shell.failure(&["expire", "db", "t", "--by", "n", "--after", "1d"]);
    assert!(code == 2 && message.contains("unit"), "{code}: {message}");
    let expired = shell.one(&["expire", "db", "t", "--by", "seen", "--after", "30d"]);
    assert_eq!(expired["deleted"], 1);
    let expiry = serde_json::json!({ "column": "seen", "unit": null, "age_seconds": 2_592_000.0 });
    assert_eq!(expired["expiry"], expiry);
    assert_eq!(shell.one(&["tables", "db"])["expiry"], expiry);
    let state = shell.json(&["inspect", "manifest", "db"]).pop().unwrap();
    assert_eq!(state["state"]["tables"][0]["expiry"], expiry);
    let text = shell.run(&["inspect", "manifest", "db"]).stdout;
    assert!(String::from_utf8_lossy(&text).contains("rows expire 30d after seen"));
    shell.json(&["put", "db", "t", "id=4", "seen=1999-01-01T00:00:00", "n=5"]);
    assert_eq!(shell.one(&["scan", "db", "t", "--prefix", "2", "--count"])["rows"], 1);
    shell.one(&["expire", "db", "t"]);
    assert_eq!(shell.one(&["scan", "db", "t", "--count"])["rows"], 2);
    assert_eq!(shell.one(&["expire", "db", "t", "--by", "n", "--unit", "ms", "--after", "0s"])["deleted"], 2);
    assert_eq!(shell.one(&["expire", "db", "t", "--never"])["expiry"], Value::Null);
    assert_eq!(shell.one(&["tables", "db"])["expiry"], Value::Null);
}

#[test]
fn sql_answers_as_text_json_and_csv_and_refuses_to_write() {
    let shell = Shell::new();
    people(&shell);
    let sql = |args: &[&str]| shell.json(&[&["sql", "db"], args].concat());
    let found = sql(&["-c", "SELECT name, score FROM people WHERE id > 0 ORDER BY id"]);
    assert_eq!(found[0], serde_json::json!({ "name": "Ada", "score": 1.5 }));
    assert_eq!(found.len(), 2);
    let several = sql(&["-c", "SELECT 1 AS a; SELECT 2 AS a", "-c", "SELECT count(*) AS a FROM people"]);
    assert_eq!(several.iter().map(|row| row["a"].as_i64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    let text = |args: &[&str]| String::from_utf8(shell.run(&[&["sql", "db"], args].concat()).stdout).unwrap();
    assert_eq!(
        text(&["--csv", "-c", "SELECT id, name FROM people WHERE id < 2 ORDER BY id"]),
        "id,name\n-2,null\n1,Ada\n"
    );
    let plan = text(&["-c", "EXPLAIN ANALYZE SELECT name FROM people WHERE id = 1 AND score > 1"]);
    assert!(plan.contains("1 look-ups=(1), filter=score > 1") && plan.contains("blocks_skipped="), "{plan}");
    for (statement, code) in [("DELETE FROM people", 2), ("SELECT * FROM nobody", 2), ("SELEC 1", 2)] {
        assert_eq!(shell.failure(&["sql", "db", "-c", statement]).0, code, "{statement}");
    }
    assert_eq!(shell.failure(&["sql", "db", "--csv", "--json", "-c", "SELECT 1"]).0, 2);
    assert_eq!(shell.one(&["scan", "db", "people", "--count"])["rows"], 3);
}

#[test]
fn a_bound_with_a_line_break_is_not_cut_short() {
    let shell = Shell::new();
    shell.one(&["create", "db", "t", "--schema", "k utf8 not null, v int32, primary key (k)"]);
    shell.one(&["put", "db", "t", "k=a", "v=1"]);
    shell.one(&["put", "db", "t", "k=a\nb", "v=2"]);
    for prefix in ["a\nb", "\n", "a\n", ""] {
        assert_eq!(shell.failure(&["delete", "db", "t", "--prefix", prefix]).0, 2, "{prefix:?}");
    }
    assert_eq!(shell.json(&["scan", "db", "t"]).len(), 2);
    shell.one(&["delete", "db", "t", "--prefix", "\"a\nb\""]);
    assert_eq!(shell.one(&["scan", "db", "t"])["k"], "a");
}

#[test]
fn columns_of_one_name_have_each_a_key_in_json() {
    let shell = Shell::new();
    people(&shell);
    let query = "SELECT x.id, y.id, x.id AS id_2 FROM people x JOIN people y ON x.id < y.id WHERE y.id = 1";
    let row = &shell.json(&["sql", "db", "-c", query])[0];
    assert_eq!(*row, serde_json::json!({ "id": -2, "id_3": 1, "id_2": -2 }));
}

/// It was told that there is no database, and how to make one.
#[test]
fn a_database_that_lacks_a_file_is_damaged_and_not_missing() {
    let shell = Shell::new();
    people(&shell);
    let manifest =
        std::fs::read_dir(shell.path("db")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let manifest = manifest.into_iter().find(|name| name.to_uppercase().contains("MANIFEST")).unwrap();
    std::fs::remove_file(shell.path("db").join(&manifest)).unwrap();
    for command in [&["scan", "db", "people"][..], &["put", "db", "people", "id=4", "name=x"]] {
        let (code, message) = shell.failure(command);
        assert_eq!(code, 4, "{message}");
        assert!(message.contains(&manifest) && message.contains("verify"), "{message}");
    }
    assert_eq!(shell.failure(&["scan", "elsewhere", "people"]).0, 1);
}

#[test]
fn rows_without_columns_are_printed() {
    let shell = Shell::new();
    people(&shell);
    assert_eq!(shell.json(&["sql", "db", "-c", "SELECT FROM people"]).len(), 3);
}

/// Columns that the input lacks were null without a word.
#[test]
fn columns_that_a_load_passes_over_or_leaves_null_are_said() {
    let shell = Shell::new();
    people(&shell);
    let file = shell.write("more.csv", b"id,Name\n7,x\n");
    let output = shell.run(&["load", "db", &file, "--table", "people"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && told.contains("null: name, score") && told.contains("passed over: Name"),
        "{told}"
    );
}

/// Of a table that was made by mistake nothing could be done but to delete its rows.
#[test]
fn a_table_is_dropped_only_with_yes() {
    let shell = Shell::new();
    people(&shell);
    shell.one(&["index", "create", "db", "people", "by_name", "--on", "name"]);
    let (code, message) = shell.failure(&["drop", "db", "people"]);
    assert!(code == 2 && message.contains("1 indexes, 0 views") && message.contains("--yes"), "{code}: {message}");
    assert_eq!(shell.one(&["scan", "db", "people", "--count"])["rows"], 3);
    let dropped = shell.one(&["drop", "db", "people", "--yes"]);
    assert_eq!((&dropped["table"], &dropped["indexes"]), (&"people".into(), &1.into()));
    assert!(shell.json(&["tables", "db"]).is_empty());
    assert_eq!(shell.failure(&["drop", "db", "people", "--yes"]).0, 1);
    assert_eq!(shell.one(&["verify", "db"])["ok"], true);
}

#[test]
fn tables_are_compacted_one_or_all() {
    let shell = Shell::new();
    people(&shell);
    shell.one(&["create", "db", "cache"]);
    let one = shell.one(&["compact", "db", "people"]);
    assert_eq!((&one["table"], &one["files"]), (&"people".into(), &1.into()));
    shell.one(&["delete", "db", "people", "1"]);
    let all = shell.json(&["compact", "db"]);
    assert_eq!(all.iter().map(|table| table["table"].as_str().unwrap()).collect::<Vec<_>>(), ["people", "cache"]);
    assert_eq!(shell.one(&["scan", "db", "people", "--count"])["rows"], 2);
    assert_eq!(shell.failure(&["compact", "db", "nobody"]).0, 1);
}

/// Its empty table was there with the schema of the wrong input, and the next load was refused.
#[test]
fn a_load_that_fails_leaves_no_empty_table() {
    let shell = Shell::new();
    shell.one(&["create", "db", "other"]);
    let bad = shell.write("bad.csv", b"id,name\n1,a\n,b\n");
    for sorted in [&[][..], &["--sorted"]] {
        assert_eq!(shell.failure(&[&["load", "db", &bad, "--table", "t", "--key", "id"], sorted].concat()).0, 3);
        assert_eq!(shell.one(&["tables", "db"])["table"], "other");
    }
    let (code, message) = shell.failure(&["load", "db", &bad, "--table", "t", "--key", "id", "--batch-rows", "1"]);
    assert!(code == 3 && message.contains("1 rows before it are in table t"), "{code}: {message}");
    assert_eq!(shell.one(&["scan", "db", "t", "--count"])["rows"], 1);
}

/// It said that it had loaded 0 rows.
#[test]
fn wrong_input_without_rows_is_refused() {
    let shell = Shell::new();
    people(&shell);
    for (name, bytes, told) in [
        ("array.txt", &b"[{\"id\":4}]"[..], "a JSON array"),
        ("foreign.csv", b"nr,title\n", "it has no column \"id\""),
        ("empty.csv", b"", "it has no columns"),
    ] {
        let (code, message) = shell.failure(&["load", "db", &shell.write(name, bytes), "--table", "people"]);
        assert!(code == 3 && message.contains(told), "{name}: {code}: {message}");
    }
    let header = shell.write("header.csv", b"id,title\n");
    let output = shell.run(&["load", "db", &header, "--table", "people"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && told.contains("passed over: title"), "{told}");
}

/// Misspelled fields of JSON lines were dropped without a word.
#[test]
fn fields_of_json_that_a_load_passes_over_are_said_once() {
    let shell = Shell::new();
    people(&shell);
    let file = shell.write("more.jsonl", b"{\"id\":7,\"Name\":\"x\"}\n{\"id\":8,\"Name\":\"y\",\"age\":{\"id\":1}}\n");
    let output = shell.run(&["load", "db", &file, "--table", "people", "--batch-rows", "1"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    assert_eq!(told, "mycelium: columns of the input that the table lacks are passed over: Name, age\n");
}

/// A join went on, for all that Ctrl-C said.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_join() {
    use std::io::{BufRead, BufReader};
    let shell = Shell::new();
    let [csv, ..] = inputs(&shell, 3000);
    shell.one(&["load", "db", &csv, "--table", "t", "--key", "id"]);
    let join = "SELECT count(*) FROM t a, t b, t c WHERE a.score + b.score < c.score";
    let mut child = Command::new(env!("CARGO_BIN_EXE_mycelium"))
        .args(["sql", "db", "-c", "SELECT 1 AS a", "-c", join, "--json"])
        .current_dir(shell.home.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // From then on Ctrl-C is waited for.
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "{\"a\":1}\n");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// A row is put while the first statement waits for its rows to be taken, which are more than a pipe holds.
#[test]
fn sql_that_follows_sees_what_another_process_wrote_since_it_began() {
    use std::io::Read;
    let shell = Shell::new();
    people(&shell);
    let columns: Vec<String> = (0..8).map(|n| format!("p{n}.id AS c{n}")).collect();
    let tables: Vec<String> = (0..8).map(|n| format!("people p{n}")).collect();
    let many = format!("SELECT {} FROM {}", columns.join(", "), tables.join(", "));
    for (follow, id) in [(&["--follow"][..], "id=4"), (&[], "id=5")] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mycelium"))
            .args(["sql", "db", "--csv", "-c", &many, "-c", "SELECT count(*) AS n FROM people"])
            .args(follow)
            .current_dir(shell.home.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut begun = [0];
        output.read_exact(&mut begun).unwrap();
        shell.one(&["put", "db", "people", id, "name=Edsger"]);
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(rest.lines().next_back(), Some("4"), "{follow:?}");
    }
}

/// A statement that began with a comment was taken for an unknown argument; and there was no other way to give long
/// ones.
#[test]
fn sql_is_read_from_arguments_that_begin_with_a_comment_and_from_files() {
    let shell = Shell::new();
    people(&shell);
    let statements = "-- note\nSELECT 1 AS a; SELECT 2 AS a";
    let file = shell.write("questions.sql", statements.as_bytes());
    for args in [["-c", statements], ["--file", &file]] {
        let rows = shell.json(&[&["sql", "db"], &args[..]].concat());
        assert_eq!(rows.iter().map(|row| row["a"].as_i64().unwrap()).collect::<Vec<_>>(), [1, 2], "{args:?}");
    }
    assert!(shell.json(&["sql", "db", "--file", "-"]).is_empty(), "standard input is empty");
    assert_eq!(shell.failure(&["sql", "db", "--file", "missing.sql"]).0, 3);
}

#[test]
fn a_tab_is_given_as_people_write_it() {
    let shell = Shell::new();
    let file = shell.write("rows.tsv", b"id\tname\n1\tAda\n");
    shell.one(&["load", "db", &file, "--table", "t", "--key", "id", "--delimiter", "\\t"]);
    assert_eq!(shell.one(&["get", "db", "t", "1"])["name"], "Ada");
}

/// The disk was said to have failed.
#[test]
fn a_file_is_no_database() {
    let shell = Shell::new();
    let file = shell.write("file.csv", b"id\n1\n");
    for args in [&["tables", &file][..], &["verify", &file], &["inspect", "levels", &file], &["sql", &file, "-c", "x"]]
    {
        let (code, message) = shell.failure(args);
        assert!(code == 1 && message.contains("it is a file"), "{args:?}: {code}: {message}");
    }
}

/// It was told that there is no database, and how to make one.
#[test]
fn a_database_without_current_is_damaged_and_not_missing() {
    let shell = Shell::new();
    people(&shell);
    shell.one(&["compact", "db", "people"]);
    // Its only row is in the log.
    shell.one(&["create", "log", "people", "--schema", SCHEMA]);
    shell.one(&["put", "log", "people", "id=1", "name=Ada", "score=1.5"]);
    for db in ["db", "log"] {
        std::fs::remove_file(shell.path(db).join("CURRENT")).unwrap();
        for args in [&["tables", db][..], &["verify", db], &["inspect", "levels", db], &["sql", db, "-c", "x"]] {
            let (code, message) = shell.failure(args);
            assert!(code == 4 && message.contains("CURRENT is missing"), "{args:?}: {code}: {message}");
        }
    }
    assert_eq!(shell.failure(&["put", "log", "people", "id=2", "name=Bob", "score=1"]).0, 4);
}

/// It was said to be corrupt.
#[cfg(unix)]
#[test]
fn a_file_that_cannot_be_read_is_not_called_corrupt() {
    let shell = Shell::new();
    people(&shell);
    shell.one(&["compact", "db", "people"]);
    let file = shell.path("db").join(only_file(&shell.path("db"), ".sst"));
    std::fs::remove_file(&file).unwrap();
    // Opening it fails, whoever asks.
    std::os::unix::fs::symlink(&file, &file).unwrap();
    let (code, message) = shell.failure(&["verify", "db"]);
    assert!(code == 6 && message.contains("1 files could not be read"), "{code}: {message}");
}

/// Whatever the quotes, the bound was null.
#[test]
fn the_text_null_is_a_bound_in_quotes() {
    let shell = Shell::new();
    shell.one(&["create", "db", "t", "--schema", "k utf8 not null, v int32, primary key (k)"]);
    shell.one(&["put", "db", "t", "k=\"null\"", "v=1"]);
    shell.one(&["put", "db", "t", "k=other", "v=2"]);
    assert_eq!(shell.one(&["scan", "db", "t", "--prefix", "\"null\""])["v"], 1);
    assert_eq!(shell.one(&["scan", "db", "t", "--from", "\"null\"", "--to", "other"])["v"], 1);
}

/// Empty text was printed as null is.
#[test]
fn sql_prints_empty_text_and_null_apart_in_csv() {
    let shell = Shell::new();
    people(&shell);
    let printed = shell.run(&["sql", "db", "--csv", "-c", "SELECT '' AS a, NULL AS b, 'x,y' AS c, 1.5 AS d"]);
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), "a,b,c,d\n\"\",,\"x,y\",1.5\n");
}

#[test]
fn what_is_left_of_a_damaged_database_is_saved_and_what_is_lost_is_told() {
    let shell = Shell::new();
    people(&shell);
    shell.one(&["compact", "db", "people"]);
    let saved = shell.one(&["salvage", "db", "saved"]);
    assert_eq!(saved["complete"], true, "{saved}");
    assert_eq!(saved["damage"], serde_json::json!([]));
    assert_eq!(shell.one(&["scan", "saved", "people", "--count"])["rows"], 3);
    assert_eq!(shell.failure(&["salvage", "db", "saved"]).0, 2, "it must not exist");
    assert_eq!(shell.failure(&["salvage", "elsewhere", "nothing"]).0, 1);

    let file = shell.path("db").join(only_file(&shell.path("db"), ".sst"));
    shell.one(&["put", "db", "people", "id=4", "name=Eve", "score=4"]);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let output = shell.run(&["salvage", "db", "rest", "--json"]);
    let report = &lines(&output)[0];
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert_eq!(report["complete"], false);
    assert_eq!(report["lost"][0]["table"], "people");
    assert_eq!(report["lost"][0]["entries"], 3);
    assert_eq!((&report["lost"][0]["first_key"], &report["lost"][0]["last_key"]), (&"-2".into(), &"3".into()));
    assert!(report["lost"][0]["error"].as_str().unwrap().contains(".sst at offset 0: expected"), "{report}");
    assert_eq!(shell.one(&["scan", "rest", "people"])["id"], 4);
    let (code, message) = shell.failure(&["salvage", "db", "again", "--older", "keep"]);
    assert!(code == 1 && message.contains("not everything"), "{code}: {message}");

    let names = std::fs::read_dir(shell.path("db")).unwrap().map(|entry| entry.unwrap().path());
    let manifest = names.into_iter().find(|path| path.to_string_lossy().contains("MANIFEST")).unwrap();
    std::fs::remove_file(manifest).unwrap();
    let (code, message) = shell.failure(&["salvage", "db", "files", "--older", "keep"]);
    assert!(code == 1 && message.contains("not everything"), "{code}: {message}");
    assert_eq!(shell.one(&["scan", "files", "people"])["id"], 4);
    std::fs::remove_file(file).unwrap();
    let (code, message) = shell.failure(&["salvage", "db", "nothing"]);
    assert!(code == 4 && message.contains("no manifest") && message.contains("backup"), "{code}: {message}");
}

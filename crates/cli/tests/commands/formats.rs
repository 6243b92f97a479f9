//! Tables whose rows are in a format that is defined at run time.

use super::*;

/// The columns of the definitions, which are the golden ones of the crate that reads them.
const COLUMNS: &str = "k int64 not null, i int32 not null, u uint64, f float64, s utf8, b binary, d decimal(10, 2), \
                       t timestamp(us, \"UTC\"), o bool, primary key (k)";

#[test]
fn rows_of_defined_formats_are_written_reshaped_and_read() {
    let protobuf = include_bytes!("../../../encoding/tests/golden/row-1.protoset");
    let flat_buffers = include_bytes!("../../../encoding/tests/golden/row-1.bfbs");
    for (format, definition) in [("protobuf", &protobuf[..]), ("flatbuffers", &flat_buffers[..])] {
        let shell = Shell::new();
        shell.write("definition", definition);
        let create = ["create", "db", "t", "--schema", COLUMNS, "--row-format", format];
        let defined = ["--definition", "definition", "--message", "test.Row"];
        let convert = format!("convert {format} to columnar");
        let transformers = ["--transform", convert.as_str(), "--transform", "split into 1-4 | 5-8"];
        assert_eq!(shell.failure(&create).0, 2, "{format} without a definition");
        let wrong = ["--definition", "definition", "--message", "test.Other"];
        assert!(shell.failure(&[&create[..], &wrong].concat()).1.contains("test.Other"), "{format}");
        shell.one(&[&create[..], &defined, &transformers].concat());
        shell.one(&["put", "db", "t", "k=1", "i=-5", "s=text \"quoted\"", "d=123.45", "o=true"]);
        shell.one(&["put", "db", "t", "k=2", "i=0", "u=18446744073709551615", "f=0.1"]);
        shell.one(&["put", "db", "t", "--patch", "k=2", "s="]);
        let before = shell.json(&["scan", "db", "t"]);
        assert_eq!(
            (&before[0]["s"], &before[0]["d"], &before[0]["u"]),
            (&"text \"quoted\"".into(), &123.45.into(), &Value::Null)
        );
        assert_eq!((&before[1]["i"], &before[1]["s"], &before[1]["o"]), (&0.into(), &"".into(), &Value::Null));
        for _ in 0..2 {
            shell.json(&["compact", "db", "t"]);
            assert_eq!(shell.json(&["scan", "db", "t"]), before, "{format}");
        }
        let groups = shell.one(&["layout", "db", "t"]);
        let last = groups["levels"].as_array().unwrap().last().unwrap()["groups"].as_array().unwrap().clone();
        let names: Vec<&str> = last.iter().map(|group| group["group"].as_str().unwrap()).collect();
        assert_eq!(names, ["1-4 columnar", "5-8 columnar"], "{format}");
        assert_eq!(shell.one(&["sql", "db", "-c", "select sum(i) as i from t where s <> ''"])["i"], -5, "{format}");
        shell.one(&["verify", "db"]);
    }
}

#[test]
fn groups_have_other_formats_than_the_rows_that_come() {
    let shell = Shell::new();
    shell.write("row.protoset", include_bytes!("../../../encoding/tests/golden/row-1.protoset"));
    shell.write("row.bfbs", include_bytes!("../../../encoding/tests/golden/row-1.bfbs"));
    let (protobuf, flat_buffers) = ("protobuf:test.Row:row.protoset", "flatbuffers:test.Row:row.bfbs");
    let layout = "L0 tiered: * json\nL1 leveled: 1-4 protobuf | 5-8 flatbuffers";
    let create = ["create", "db", "t", "--schema", COLUMNS, "--row-format", "json", "--layout", layout];
    assert!(shell.failure(&create).1.contains("no definition of its rows in protobuf"));
    let (code, message) = shell.failure(&[&create[..], &["--group-format", "protobuf:test.Row"]].concat());
    assert!(code == 2 && message.contains("three parts"), "{code}: {message}");
    let needless = ["--group-format", protobuf, "--group-format", "json::row.bfbs"];
    assert!(shell.failure(&[&create[..], &needless].concat()).1.contains("json"));
    shell.one(&[&create[..], &["--group-format", protobuf, "--group-format", flat_buffers]].concat());
    shell.one(&["put", "db", "t", "k=1", "i=-5", "s=text \"quoted\"", "d=123.45", "o=true"]);
    shell.one(&["put", "db", "t", "k=2", "i=0", "u=18446744073709551615", "f=0.1"]);
    let before = shell.json(&["scan", "db", "t"]);
    shell.json(&["compact", "db", "t"]);
    assert_eq!(shell.json(&["scan", "db", "t"]), before);
    let levels = shell.one(&["layout", "db", "t"])["levels"].as_array().unwrap().clone();
    let names: Vec<_> =
        levels.last().unwrap()["groups"].as_array().unwrap().iter().map(|group| group["group"].clone()).collect();
    assert_eq!(names, ["1-4 protobuf", "5-8 flatbuffers"]);
    shell.one(&["verify", "db"]);
}

//! Columns that come, go and get other names, and rows that lack them.

use super::*;

#[test]
fn a_table_gets_a_column_and_another_name_for_one() {
    let shell = Shell::new();
    people(&shell);
    shell.one(&["compact", "db", "people"]);
    let added = shell.one(&["column", "add", "db", "people", "visits int32"]);
    assert_eq!(added["schema"], "id int64 not null, name utf8, score float64, visits int32, primary key (id)");
    shell.one(&["put", "db", "people", "--patch", "id=1", "visits=7"]);
    let renamed = shell.one(&["column", "rename", "db", "people", "score", "points"]);
    assert_eq!(renamed["schema"], "id int64 not null, name utf8, points float64, visits int32, primary key (id)");
    let row = shell.one(&["get", "db", "people", "1"]);
    assert_eq!(row, serde_json::json!({ "id": 1, "name": "Ada", "points": 1.5, "visits": 7 }));
    let row =
        shell.one(&["sql", "db", "-c", "select count(*) as n, count(visits) as v from people where visits is null"]);
    assert_eq!(row, serde_json::json!({ "n": 2, "v": 0 }));
    shell.one(&["index", "create", "db", "people", "by_visits", "--on", "visits"]);
    assert_eq!(shell.one(&["sql", "db", "-c", "select name from people where visits = 7"])["name"], "Ada");
    shell.json(&["inspect", "levels", "db", "people"]);
    shell.json(&["inspect", "manifest", "db"]);
    shell.json(&["verify", "db"]);
    for (args, code) in [
        (&["column", "add", "db", "people", "visits int8"][..], 2),
        (&["column", "add", "db", "people", "more int8 not null"][..], 2),
        (&["column", "add", "db", "people", "more"][..], 2),
        (&["column", "rename", "db", "people", "nothing", "more"][..], 1),
    ] {
        assert_eq!(shell.failure(args).0, code, "{args:?}");
    }
}

/// Rows from before the columns have their defaults, and so have rows that are given without them.
#[test]
fn a_table_gets_columns_with_defaults() {
    let shell = Shell::new();
    people(&shell);
    shell.one(&["compact", "db", "people"]);
    shell.one(&["column", "add", "db", "people", "visits int32 not null default 3"]);
    let added = shell.one(&["column", "add", "db", "people", "home utf8 default 'Graz'"]);
    let schema = "id int64 not null, name utf8, score float64, visits int32 not null default 3, \
                  home utf8 default 'Graz', primary key (id)";
    assert_eq!(added["schema"], schema);
    let before = shell.json(&["scan", "db", "people"]).len();
    shell.one(&["put", "db", "people", "id=7", "visits=4", "home=null"]);
    shell.one(&["put", "db", "people", "id=8", "name=Kurt"]);
    let csv = shell.write("more.csv", b"id,name\n9,Ida\n");
    shell.one(&["load", "db", &csv, "--table", "people"]);
    let row = shell.one(&["get", "db", "people", "9"]);
    assert_eq!((&row["name"], &row["visits"], &row["home"]), (&"Ida".into(), &3.into(), &"Graz".into()));
    for (condition, rows) in [
        ("visits = 3", before + 2),
        ("visits <> 3", 1),
        ("visits is null", 0),
        ("home = 'Graz'", before + 2),
        ("home is null", 1),
        ("visits between 3 and 4", before + 3),
    ] {
        let found = shell.one(&["sql", "db", "-c", &format!("select count(*) as n from people where {condition}")]);
        assert_eq!(found["n"], rows, "{condition}");
    }
    let found =
        shell.one(&["sql", "db", "-c", "select min(visits) as a, max(visits) as b, min(home) as c from people"]);
    assert_eq!(found, serde_json::json!({ "a": 3, "b": 4, "c": "Graz" }));
    assert_eq!(shell.failure(&["put", "db", "people", "--patch", "id=1", "visits=null"]).0, 2);
    assert_eq!(shell.failure(&["column", "add", "db", "people", "more int8 default x"]).0, 2);
    shell.json(&["verify", "db"]);
}

#[test]
fn a_table_loses_a_column() {
    let shell = Shell::new();
    people(&shell);
    shell.one(&["compact", "db", "people"]);
    let dropped = shell.one(&["column", "drop", "db", "people", "name"]);
    assert_eq!(dropped["schema"], "id int64 not null, score float64, primary key (id)");
    assert_eq!(shell.one(&["get", "db", "people", "1"]), serde_json::json!({ "id": 1, "score": 1.5 }));
    shell.one(&["column", "add", "db", "people", "name utf8 default 'new'"]);
    shell.one(&["put", "db", "people", "id=4", "score=2.5"]);
    let csv = shell.write("more.csv", b"id,score\n5,3.5\n");
    shell.one(&["load", "db", &csv, "--table", "people"]);
    let query = "select * from people where score > 2 and name = 'new' order by id";
    let rows = shell.json(&["sql", "db", "-c", query]);
    let expected =
        [(4, 2.5), (5, 3.5)].map(|(id, score)| serde_json::json!({ "id": id, "score": score, "name": "new" }));
    assert_eq!(rows, expected);
    assert_eq!(shell.json(&["scan", "db", "people"]).len(), 5);
    assert_eq!(shell.one(&["layout", "db", "people"])["columns"], serde_json::json!(["id", null, "score", "name"]));
    shell.json(&["inspect", "levels", "db", "people"]);
    shell.one(&["compact", "db", "people"]);
    assert_eq!(shell.json(&["sql", "db", "-c", query]), expected);
    assert_eq!(shell.failure(&["column", "drop", "db", "people", "id"]).0, 2);
    assert_eq!(shell.failure(&["column", "drop", "db", "people", "home"]).0, 1);
    shell.json(&["verify", "db"]);
}

/// Of a group whose columns were all dropped, or came later, nothing but a dash was shown.
#[test]
fn a_column_group_of_which_no_column_is_left_says_so() {
    let shell = Shell::new();
    people(&shell);
    let apart = "L0 tiered: * packed\nL1 leveled: 1 packed | 2 packed";
    shell.one(&["layout", "db", "people", "--set", apart, "--compact"]);
    shell.one(&["column", "add", "db", "people", "visits int32"]);
    shell.one(&["column", "drop", "db", "people", "score"]);
    let names = |shown: &Value| -> Vec<String> {
        let levels = shown["levels"].as_array().unwrap().iter();
        let groups = levels.flat_map(|level| level["groups"].as_array().unwrap());
        let mut names: Vec<String> = groups.map(|group| group["group"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&shell.one(&["layout", "db", "people"])), ["1 packed", "dropped 2 packed"]);
    assert_eq!(names(&shell.one(&["inspect", "levels", "db", "people"])), ["1 packed", "dropped 2 packed"]);
    shell.one(&["compact", "db", "people"]);
    assert_eq!(names(&shell.one(&["layout", "db", "people"])), ["1 packed", "3 packed"]);
}

/// They were null, or the load was refused where that may not be.
#[test]
fn rows_of_json_are_loaded_with_defaults_where_a_member_is_missing() {
    let shell = Shell::new();
    people(&shell);
    shell.one(&["column", "add", "db", "people", "visits int32 not null default 3"]);
    shell.one(&["column", "add", "db", "people", "home utf8 default 'Graz'"]);
    let seen = "seen timestamp(s, \"UTC\") default '2026-11-27T12:00:00Z'";
    let schema = shell.one(&["column", "add", "db", "people", seen])["schema"].clone();
    shell.one(&["create", "db", "others", "--schema", schema.as_str().unwrap()]);
    let json = shell.write(
        "more.jsonl",
        b"{\"id\":11,\"name\":\"Ida\"}\n{\"id\":12,\"visits\":4,\"home\":null,\"seen\":null}\n\
          {\"id\":13,\"home\":\"Linz\"}\n",
    );
    for (table, sorted) in [("people", &[][..]), ("others", &["--sorted"][..])] {
        shell.one(&[&["load", "db", &json, "--table", table, "--batch-rows", "2"], sorted].concat());
        let seen = |id: &str| shell.one(&["get", "db", table, id])["seen"].clone();
        for (id, visits, home) in [("11", 3, Value::from("Graz")), ("12", 4, Value::Null), ("13", 3, "Linz".into())] {
            let row = shell.one(&["get", "db", table, id]);
            assert_eq!((&row["visits"], &row["home"]), (&visits.into(), &home), "{table}, {id}");
        }
        assert_eq!((seen("11") == seen("13"), seen("11").is_null(), seen("12").is_null()), (true, false, true));
    }
    let null = shell.write("null.jsonl", b"{\"id\":14,\"visits\":null}\n");
    let (code, message) = shell.failure(&["load", "db", &null, "--table", "people"]);
    assert!(code == 3 && message.contains("\"visits\" must not be null"), "{code}: {message}");
    shell.json(&["verify", "db"]);
}

/// What was dropped is in no text of a schema: the one that was asked for was shown as the one that there is.
#[test]
fn a_schema_is_given_for_a_table_that_lost_a_column() {
    let shell = Shell::new();
    people(&shell);
    let schema = shell.one(&["column", "drop", "db", "people", "name"])["schema"].clone();
    let csv = shell.write("more.csv", b"id,score\n5,3.5\n");
    let loaded = shell.one(&["load", "db", &csv, "--table", "people", "--schema", schema.as_str().unwrap()]);
    assert_eq!(loaded["rows"], 1);
    let other = shell.failure(&["load", "db", &csv, "--table", "people", "--schema", SCHEMA]);
    assert!(other.0 == 2 && other.1.contains("with another schema"), "{other:?}");
}

#[test]
fn a_refused_change_of_columns_says_what_to_do() {
    let shell = Shell::new();
    people(&shell);
    shell.one(&["index", "create", "db", "people", "by_name", "--on", "name"]);
    shell.one(&["view", "create", "db", "people", "scores", "--compute", "max(score)"]);
    for (change, code, expected) in [
        (&["drop", "nothing"][..], 1, "its columns: id, name, score"),
        (&["rename", "nothing", "more"][..], 1, "its columns: id, name, score"),
        (&["rename", "name", "score"][..], 2, "choose another name"),
        (&["add", "name int8"][..], 2, "choose another name"),
        (&["add", "more int8 not null"][..], 2, "have a default"),
        (&["drop", "id"][..], 2, "a table with another key"),
        (&["drop", "name"][..], 2, "index by_name reads it: drop that first"),
        (&["drop", "score"][..], 2, "view scores reads it: drop that first"),
    ] {
        let found = shell.failure(&[&["column", change[0], "db", "people"], &change[1..]].concat());
        assert!(found.0 == code && found.1.contains(expected), "{change:?}: {found:?}");
    }
}

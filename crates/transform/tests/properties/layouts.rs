//! Linking on layouts: the paper's examples, its rules, and that neither order nor grouping of a set matters.

use mycelium_base::{ErrorKind, Result, RowFormatKind};
use mycelium_manifest::{Layout, Merge};
use mycelium_transform::{LinkOptions, Linked, Registry, TransformerSet};
use rand::Rng;
use rand::seq::{IndexedRandom, IteratorRandom, SliceRandom};

use crate::drawing::for_seeds;
use crate::tables::{ROOMY, Table, any_set, valid_set};

const CASES: u64 = 300;

/// All that can be told apart of a linked set.
fn told(linked: &Result<Linked>) -> String {
    let linked = match linked {
        Ok(linked) => linked,
        Err(error) => return format!("{:?}", error.kind()),
    };
    let mut told = linked.layout().to_string();
    for step in linked.steps() {
        told += &format!("{} {} {}\n", step.level, step.round, step.named.definition);
    }
    for named in linked.beside() {
        told += &format!("beside {}\n", named.definition);
    }
    told + &format!("{:?}", linked.warnings())
}

fn columns(count: usize) -> Table {
    let columns: Vec<String> = (1..=count).map(|column| format!("c{column} int32")).collect();
    Table::parse(&format!("id int64 not null, {}, primary key (id)", columns.join(", ")))
}

#[test]
fn the_order_of_a_set_does_not_matter() {
    for_seeds(CASES, |rng| {
        let table = Table::draw(rng);
        let mut lines = any_set(rng, &table);
        let source = table.kinds(rng)[0];
        let expected = told(&table.link(&lines.join("\n"), source, &ROOMY));
        for _ in 0..6 {
            lines.shuffle(rng);
            assert_eq!(told(&table.link(&lines.join("\n"), source, &ROOMY)), expected, "{lines:?}");
        }
    });
}

#[test]
fn the_grouping_of_a_set_does_not_matter() {
    for_seeds(CASES, |rng| {
        let table = Table::draw(rng);
        let source = table.kinds(rng)[0];
        let [a, b, c] = [0, 1, 2].map(|_| TransformerSet::parse(&any_set(rng, &table).join("\n")).unwrap());
        let link = |set: TransformerSet| told(&table.link(&set.to_string(), source, &ROOMY));
        assert_eq!(link(a.union(&b).union(&c)), link(a.union(&b.union(&c))));
        assert_eq!(link(a.union(&b).union(&c)), link(c.union(&a).union(&b)));
    });
}

/// Linking the first transformers of a set, and those that follow on what they left, is linking all of them.
#[test]
fn a_linked_set_is_the_linked_parts_one_after_the_other() {
    for_seeds(CASES, |rng| {
        let table = Table::draw(rng);
        let (text, kinds) = valid_set(rng, &table);
        let whole = table.link(&text, kinds[0], &ROOMY).unwrap();
        let mut order: Vec<String> = whole.steps().iter().map(|step| step.named.definition.to_string()).collect();
        order.dedup();
        for cut in 0..=order.len() {
            let first = table.link(&order[..cut].join("\n"), kinds[0], &ROOMY).unwrap();
            // A convert shares the level of the last split before it, if they are linked together.
            let shared = usize::from(cut > 0 && cut < order.len() && order[cut - 1].starts_with("split"));
            let entered = first.last_entered() - shared;
            assert_eq!(first.layout().levels()[..=entered], whole.layout().levels()[..=entered]);
            let converts = order[..cut].iter().filter(|line| line.starts_with("convert")).count();
            let rest = table.link(&order[cut..].join("\n"), kinds[converts], &ROOMY).unwrap();
            assert_eq!(rest.steps().len() + first.steps().len(), whole.steps().len());
            assert_eq!(rest.last_entered() + entered, whole.last_entered());
            for level in shared..16 {
                let below = whole.layout().level(level + entered);
                assert_eq!(rest.layout().level(level).groups[0].format, below.groups[0].format);
                let is_tiered = rest.layout().level(level).merge == Merge::Tiered;
                assert_eq!(is_tiered, below.merge == Merge::Tiered);
                if cut == 0 || converts == cut {
                    assert_eq!(rest.layout().level(level).groups, below.groups);
                }
            }
        }
    });
}

#[test]
fn rules_and_tierveling_hold_for_every_set() {
    for_seeds(CASES, |rng| {
        let table = Table::draw(rng);
        let source = table.kinds(rng)[0];
        let text = any_set(rng, &table).join("\n");
        let Ok(linked) = table.link(&text, source, &ROOMY) else { return };
        let steps = linked.steps();
        for (above, step) in steps.iter().zip(steps.iter().skip(1)) {
            let ends_split = above.named.definition.name() == "split" && step.named.definition.name() == "convert";
            assert_eq!(step.level, above.level + usize::from(!ends_split), "rule 1: {text}");
        }
        assert!(steps.first().is_none_or(|step| step.level == 0), "{text}");
        let gradual = steps.iter().filter(|step| step.named.definition.name() == "split").count();
        assert!(steps[..gradual].iter().all(|step| step.named.definition.name() == "split"), "rule 3: {text}");
        let last_entered = linked.last_entered().max(usize::from(!linked.beside().is_empty()));
        for level in 0..16 {
            let is_tiered = linked.layout().level(level).merge == Merge::Tiered;
            assert_eq!(is_tiered, level <= last_entered, "level {level} of {text}");
        }
        let reparsed = Layout::parse(&linked.layout().to_string(), table.formats.columns()).unwrap();
        assert_eq!(&reparsed, linked.layout());
        assert_eq!(told(&table.link(&format!("{text}\nidentity"), source, &ROOMY)), told(&Ok(linked)));
    });
}

#[test]
fn no_transformers_are_plain_rows() {
    let table = columns(3);
    for text in ["", "identity", "identity\nidentity", "split by 2 down to 3"] {
        let linked = table.link(text, RowFormatKind::Json, &ROOMY).unwrap();
        let whole = table.whole(RowFormatKind::Json);
        assert_eq!(linked.layout(), &Layout::rows(&whole.columns, whole.format), "{text}");
        assert!(linked.steps().is_empty() && linked.is_said_by_layout(&(0..7)));
    }
}

/// Table 1 as printed: the convert leads from four groups to eight.
#[test]
fn table_1() {
    let table = columns(8);
    let options = LinkOptions { level_count: 6, ..LinkOptions::default() };
    let linked = table.link("convert json to packed\nsplit by 2 rounds 3", RowFormatKind::Json, &options).unwrap();
    assert_eq!(
        linked.layout().to_string(),
        "L0 tiered: * json\n\
         L1 tiered: 1-4 json | 5-8 json\n\
         L2 tiered: 1-2 json | 3-4 json | 5-6 json | 7-8 json\n\
         L3 tiered: 1 packed | 2 packed | 3 packed | 4 packed | 5 packed | 6 packed | 7 packed | 8 packed\n\
         L4 leveled: 1 packed | 2 packed | 3 packed | 4 packed | 5 packed | 6 packed | 7 packed | 8 packed\n"
    );
    let names: Vec<_> = linked.steps().iter().map(|step| (step.level, step.named.definition.name())).collect();
    assert_eq!(names, [(0, "split"), (1, "split"), (2, "split"), (2, "convert")]);
}

/// Only the first convert is made with the split. The next has a level of its own.
#[test]
fn converts_after_the_first_take_levels_of_their_own() {
    let table = columns(2);
    let text = "convert packed to columnar\nsplit by 2\nconvert json to packed";
    let linked = table.link(text, RowFormatKind::Json, &ROOMY).unwrap();
    assert_eq!(
        linked.layout().to_string(),
        "L0 tiered: * json\n\
         L1 tiered: 1 packed | 2 packed\n\
         L2 tiered: 1 columnar | 2 columnar\n\
         L3 leveled: 1 columnar | 2 columnar\n"
    );
    let unsplit = table.link("split by 2 down to 2\nconvert json to packed", RowFormatKind::Json, &ROOMY).unwrap();
    assert_eq!(unsplit.layout().to_string(), "L0 tiered: * json\nL1 tiered: * packed\nL2 leveled: * packed\n");
}

/// Section 5.2.2: 32 columns, each time in two, down to 4.
#[test]
fn mycelium_splitting() {
    let table = columns(32);
    let linked = table.link("split by 2 down to 4", RowFormatKind::Packed, &LinkOptions::default()).unwrap();
    let groups: Vec<usize> = linked.layout().levels().iter().map(|level| level.groups.len()).collect();
    assert_eq!(groups, [1, 2, 4, 8, 8]);
    assert!(linked.layout().level(3).groups.iter().all(|group| group.columns.len() == 4));
    assert!(linked.warnings().is_empty());
}

#[test]
fn an_augment_changes_no_group_and_enters_level_1() {
    let table = columns(4);
    let linked = table.link("augment by_c2 on 2", RowFormatKind::Packed, &LinkOptions::default()).unwrap();
    assert_eq!(linked.layout().to_string(), "L0-1 tiered: * packed\nL2 leveled: * packed\n");
    assert!(linked.steps().is_empty() && !linked.is_said_by_layout(&(0..1)) && linked.is_said_by_layout(&(1..2)));
    let with_split = table.link("augment b on 2\nsplit by 2\naugment a on 1", RowFormatKind::Packed, &ROOMY).unwrap();
    let split = table.link("split by 2", RowFormatKind::Packed, &ROOMY).unwrap();
    assert_eq!(with_split.layout(), split.layout());
    assert_eq!(with_split.derived_tables(), ["a", "b"]);
}

#[test]
fn patches_are_completed_for_the_tables_that_they_touch() {
    let table = columns(6);
    let text = "augment a on 1 cover 2\naugment b on 2,3\naugment c on 5";
    let linked = table.link(text, RowFormatKind::Packed, &ROOMY).unwrap();
    for (touched, completed) in [("1", "1-3"), ("3", "1-3"), ("4", "4"), ("4-5", "4-5"), ("1,6", "1-3,6"), ("-", "-")] {
        assert_eq!(linked.completed(&touched.parse().unwrap()).to_string(), completed, "{touched}");
    }
}

#[test]
fn the_bound_of_the_cost_model_is_told() {
    let table = columns(32);
    for (text, size_ratio, warns) in [
        ("split by 2 rounds 4", 10.0, false),
        ("split by 2 rounds 5", 10.0, true),
        ("split by 2 rounds 1", 2.0, true),
        ("split by 2 rounds 1", f64::NAN, true),
        ("augment a on 1", 2.0, true),
        ("identity", 2.0, false),
    ] {
        let linked = table.link(text, RowFormatKind::Json, &LinkOptions { size_ratio, ..ROOMY }).unwrap();
        assert_eq!(!linked.warnings().is_empty(), warns, "{text} with {size_ratio}");
    }
    let linked =
        table.link("split by 2 rounds 5", RowFormatKind::Json, &LinkOptions { size_ratio: 8.0, ..ROOMY }).unwrap();
    let warning = linked.warnings()[0].to_string();
    assert!(warning.contains("5 transforming compactions") && warning.contains("fewer than 4"), "{warning}");
}

fn refused(text: &str, options: &LinkOptions) -> (ErrorKind, String) {
    let error = columns(4).link(text, RowFormatKind::Json, options).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn sets_with_two_orders_or_none_are_refused() {
    for (text, expected) in [
        ("split by 2\nsplit by 4", "at most one gradual"),
        ("split into 1-2 | 3-4\nsplit into 1 | 2 | 3 | 4", "at most one gradual"),
        ("convert json to packed\nconvert json to packed", "which comes first"),
        ("convert packed to json", "never come to it"),
        ("convert json to packed\nconvert packed to json", "goes back to json"),
        ("convert json to protobuf", "no definition"),
        ("convert json to raw", "exactly one column"),
        ("convert json to json", "the same"),
        ("convert columnar to json", "stay columnar"),
        ("convert json", "malformed convert"),
        ("identity 1", "malformed identity"),
        ("split at 2", "malformed split"),
        ("split into 1-2 | 3", "in no group"),
        ("augment x on 1\naugment x on 2", "fed already"),
        ("augment x on 9", "no column 9"),
        ("augment x on 1,1", "each once"),
        ("augment x on 1 cover 0", "primary key"),
        ("augment x", "malformed augment"),
        ("augment x on a", "not a column position"),
        ("nonsense\u{7f}", "malformed name"),
    ] {
        let (kind, message) = refused(text, &ROOMY);
        assert_eq!(kind, ErrorKind::InvalidArgument, "{text}: {message}");
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn sets_that_do_not_fit_the_table_are_refused() {
    let (_, message) = refused("split by 2", &LinkOptions { level_count: 3, ..ROOMY });
    assert!(message.contains("need 4 levels, of 3"), "{message}");
    let table = columns(40);
    let users = "split by 2 rounds 6\nconvert json to packed";
    assert!(table.link(users, RowFormatKind::Json, &LinkOptions { level_count: 7, ..ROOMY }).is_err());
    assert!(table.link(users, RowFormatKind::Json, &LinkOptions { level_count: 8, ..ROOMY }).is_ok());
    let columnar = columns(4).link("convert json to columnar\nsplit by 4", RowFormatKind::Json, &ROOMY).unwrap();
    assert!(columnar.layout().to_string().ends_with("L2 leveled: 1 columnar | 2 columnar | 3 columnar | 4 columnar\n"));
}

#[test]
fn a_transformer_that_is_not_registered_is_named() {
    let (kind, message) = refused("split by 2\nexample.vectors on 3", &ROOMY);
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(message.contains("example.vectors"), "{message}");
    let mut registry = Registry::built_in();
    assert!(registry.register("split", |_, _| unreachable!("it is not made")).is_err());
    assert!(registry.register("Not a name", |_, _| unreachable!("it is not made")).is_err());
}

#[test]
fn any_text_is_linked_or_refused() {
    for_seeds(2_000, |rng| {
        let table = columns(rng.random_range(1..12));
        let mut text = any_set(rng, &table).join("\n");
        for _ in 0..rng.random_range(0..4) {
            let at = (0..=text.len()).filter(|&at| text.is_char_boundary(at)).choose(rng).unwrap();
            let inserted = ["-", "9", "|", " ", "\n", "then", "65535", "é", "0-65535", "split by 99999999999999999999"];
            text.insert_str(at, inserted.choose(rng).unwrap());
            if rng.random() {
                text.truncate((0..=text.len()).filter(|&at| text.is_char_boundary(at)).choose(rng).unwrap());
            }
        }
        if let Ok(set) = TransformerSet::parse(&text) {
            assert_eq!(TransformerSet::parse(&set.to_string()).unwrap(), set);
            let linked = table.link(&set.to_string(), RowFormatKind::Json, &ROOMY);
            assert_eq!(told(&linked), told(&table.link(&text, RowFormatKind::Json, &ROOMY)));
        }
    });
}

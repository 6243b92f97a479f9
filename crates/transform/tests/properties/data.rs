//! Built-in transformers on data: whichever way an entry takes, and however many compactions, it becomes the same
//! fragments.

use mycelium_base::{ColumnSet, ErrorKind, Group, GroupFormat, Operation, RowFormatKind};
use mycelium_encoding::row_format::RowScratch;
use mycelium_encoding::{PackedLayout, join};
use mycelium_transform::Linked;
use rand::Rng;
use rand::rngs::SmallRng;

use crate::drawing::for_seeds;
use crate::tables::{ROOMY, Table, entry, transformed, valid_set};

const CASES: u64 = 300;

/// An entry's fragments at level `to`, from one of level `from`'s groups, in random stages.
fn in_stages(
    rng: &mut SmallRng,
    linked: &Linked,
    (from, to): (usize, usize),
    source: &Group,
    entry: (Operation, &[u8]),
) -> Vec<(Group, Option<Vec<u8>>)> {
    let next = if from < to { rng.random_range(from + 1..=to) } else { to };
    let within = |group: &&Group| group.columns.is_subset(&source.columns);
    let groups: Vec<Group> = linked.layout().level(next).groups.iter().filter(within).cloned().collect();
    let values = transformed(linked, (from, next), source, &groups, entry);
    let mut fragments = Vec::new();
    for (group, value) in groups.into_iter().zip(values) {
        match value {
            Some(value) if next < to => {
                fragments.extend(in_stages(rng, linked, (next, to), &group, (entry.0, &value)));
            }
            None if next < to => {
                let lowest = linked.layout().level(to).groups.iter().filter(|g| g.columns.is_subset(&group.columns));
                fragments.extend(lowest.map(|group| (group.clone(), None)));
            }
            value => fragments.push((group, value)),
        }
    }
    fragments
}

#[test]
fn however_many_compactions_it_takes_the_fragments_are_the_same() {
    for_seeds(CASES, |rng| {
        let table = Table::draw(rng);
        let (text, kinds) = valid_set(rng, &table);
        let linked = table.link(&text, kinds[0], &ROOMY).unwrap();
        let (operation, _, value) = entry(rng, &table, table.format(kinds[0]));
        let last = linked.last_entered();
        let source = table.whole(kinds[0]);
        let groups = &linked.layout().level(last).groups;
        let at_once = transformed(&linked, (0, last), &source, groups, (operation, &value));
        for _ in 0..3 {
            let mut staged = in_stages(rng, &linked, (0, last), &source, (operation, &value));
            for (group, value) in groups.iter().zip(&at_once) {
                let at = staged.iter().position(|(other, _)| other == group).unwrap();
                assert_eq!(&staged.swap_remove(at).1, value, "{group} of\n{text}");
            }
            assert!(staged.is_empty());
        }
    });
}

#[test]
fn fragments_join_to_the_row_they_came_from() {
    for_seeds(CASES, |rng| {
        let table = Table::draw(rng);
        let (text, kinds) = valid_set(rng, &table);
        let linked = table.link(&text, kinds[0], &ROOMY).unwrap();
        let (operation, cells, value) = entry(rng, &table, table.format(kinds[0]));
        let last = linked.last_entered();
        let groups = &linked.layout().level(last).groups;
        let fragments = transformed(&linked, (0, last), &table.whole(kinds[0]), groups, (operation, &value));

        let mut parts: Vec<(PackedLayout, Vec<u8>)> = Vec::new();
        for (group, fragment) in groups.iter().zip(fragments) {
            let touched = operation == Operation::Put || group.columns.iter().any(|column| cells[column].is_some());
            assert_eq!(fragment.is_some(), touched, "{group}");
            let Some(fragment) = fragment else { continue };
            let packed = Group::new(group.columns.clone(), GroupFormat::default());
            let value = transformed(&linked, (last, last), group, &[packed], (operation, &fragment)).remove(0).unwrap();
            parts.push((PackedLayout::of(table.schema().clone(), &group.columns), value));
        }
        let rows: Vec<_> = parts.iter().map(|(layout, value)| layout.row(value).unwrap()).collect();
        let packed = table.format(RowFormatKind::Packed);
        let (mut joined, mut expected) = (Vec::new(), Vec::new());
        join(packed.layout(), &rows, &mut joined).unwrap();
        table.format(kinds[0]).convert(packed, &value, None, &mut RowScratch::default(), &mut expected).unwrap();
        assert_eq!(joined, expected, "{text}");
    });
}

#[test]
fn splitting_and_converting_may_be_swapped() {
    for_seeds(CASES, |rng| {
        let table = Table::draw(rng);
        let plain = table.link("", RowFormatKind::Packed, &ROOMY).unwrap();
        let kinds = table.kinds(rng);
        let (from, to) = (kinds[0], kinds[kinds.len() - 1]);
        let (operation, _, value) = entry(rng, &table, table.format(from));
        let (source, converted) = (table.whole(from), table.whole(to));
        let in_format = |groups: &[ColumnSet], kind| -> Vec<Group> {
            groups.iter().map(|set| Group::new(set.clone(), GroupFormat::Row(kind))).collect()
        };
        let groups = table.groups(rng);
        let (narrow, narrow_converted) = (in_format(&groups, from), in_format(&groups, to));

        let split = transformed(&plain, (0, 1), &source, &narrow, (operation, &value));
        let whole = transformed(&plain, (0, 1), &source, std::slice::from_ref(&converted), (operation, &value));
        let at_once = transformed(&plain, (0, 1), &source, &narrow_converted, (operation, &value));
        let whole = whole.into_iter().next().flatten();
        let convert_then_split = match &whole {
            Some(whole) => transformed(&plain, (1, 2), &converted, &narrow_converted, (operation, whole)),
            None => vec![None; groups.len()],
        };
        for (number, fragment) in split.into_iter().enumerate() {
            let destination = std::slice::from_ref(&narrow_converted[number]);
            let split_then_convert = fragment.and_then(|fragment| {
                transformed(&plain, (1, 2), &narrow[number], destination, (operation, &fragment)).remove(0)
            });
            assert_eq!(split_then_convert, convert_then_split[number], "{from} to {to}");
            assert_eq!(split_then_convert, at_once[number], "{from} to {to}");
        }
    });
}

#[test]
fn a_job_between_groups_that_do_not_lie_within_is_refused() {
    let table = Table::parse("id int64 not null, a int32, b utf8, c int32, primary key (id)");
    let linked = table.link("", RowFormatKind::Packed, &ROOMY).unwrap();
    let group = |text: &str| text.parse::<Group>().unwrap();
    let refused = |from: &str, to: &str| linked.job(0..1, &group(from), &[group(to)], 0).unwrap_err().kind();
    assert_eq!(refused("1-2/packed", "2-3/packed"), ErrorKind::InvalidArgument);
    assert_eq!(refused("0-2/packed", "1-2/packed"), ErrorKind::InvalidArgument);
    assert_eq!(refused("1-3/protobuf", "1-3/packed"), ErrorKind::InvalidArgument);
}

#[test]
fn values_of_columnar_groups_are_packed_fragments() {
    let table = Table::parse("id int64 not null, a int32, b utf8, c int32, primary key (id)");
    let group = |text: &str| table.formats.values(&text.parse::<Group>().unwrap()).unwrap();
    let (columnar, packed) = (group("1-3/columnar"), group("1-3/packed"));
    assert!(packed.fragment().reshape(columnar.fragment()).unwrap().is_copy());
    assert!(columnar.fragment().reshape(packed.fragment()).unwrap().is_copy());
    assert!(!columnar.fragment().is_same(packed.fragment()), "their files are read differently");
}

#[test]
fn malformed_values_are_errors() {
    for_seeds(CASES, |rng| {
        let table = Table::draw(rng);
        let (text, kinds) = valid_set(rng, &table);
        let linked = table
            .link(&format!("{text}\naugment x on {}", table.formats.columns().iter().next().unwrap()), kinds[0], &ROOMY)
            .unwrap();
        let (operation, _, mut value) = entry(rng, &table, table.format(kinds[0]));
        match rng.random_range(0..3) {
            0 => value.truncate(rng.random_range(0..=value.len())),
            1 => value.extend([rng.random::<u8>(); 3]),
            _ if value.is_empty() => {}
            _ => {
                let at = rng.random_range(0..value.len());
                value[at] = rng.random();
            }
        }
        let last = linked.last_entered().max(1);
        let groups = &linked.layout().level(last).groups;
        let mut job = linked.job(0..last, &table.whole(kinds[0]), groups, 1 << 20).unwrap();
        let trailer = mycelium_base::Trailer::new(1, operation);
        // Whatever comes of it, it is no panic.
        drop(job.transform(mycelium_base::EntryRef { key: b"k", trailer, value: &value }));
    });
}

//! Transformers of users: called once per entry whatever the number of compactions, and held to the rules.

use std::sync::Arc;

use mycelium_base::{
    ColumnSet, EntryRef, Error, ErrorKind, Group, GroupFormat, Operation, Result, RowFormatKind, Trailer,
};
use mycelium_encoding::row_format::RowScratch;
use mycelium_encoding::{ColumnState, Datum};
use mycelium_transform::{
    GroupValues, InputEntry, JobContext, Linked, Outputs, Place, Progress, Registry, TransformState, Transformer,
    TransformerSet,
};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::drawing::for_seeds;
use crate::tables::{MUCH, ROOMY, Table, transformed};

const SCHEMA: &str = "id int64 not null, a int32, b utf8, c int32, d utf8 not null, primary key (id)";

/// Adds one to column 1, which a second call would show.
#[derive(Debug)]
struct AddOne {
    format: GroupFormat,
}

impl Transformer for AddOne {
    fn place(&self) -> Place {
        Place::Chain { from: self.format, to: self.format }
    }

    fn prepare(&self, job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
        let [destination] = job.destinations else { return Err(Error::invalid("one group to one group")) };
        let (source, destination) = (job.formats.values(job.source)?, job.formats.values(destination)?);
        Ok(Box::new(Adding { source, destination, scratch: RowScratch::default() }))
    }
}

struct Adding {
    source: GroupValues,
    destination: GroupValues,
    scratch: RowScratch,
}

impl TransformState for Adding {
    fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()> {
        let Self { source, destination, scratch } = self;
        let mut row: Vec<Option<Datum>> = vec![None; source.schema().columns().len()];
        source.visit(entry.value, entry.columns, scratch, &mut |column, state| {
            row[column] = match state {
                ColumnState::Absent => None,
                ColumnState::Null => Some(Datum::Null),
                ColumnState::Value(datum) => Some(datum.to_datum()),
            };
            Ok(())
        })?;
        if let Some(Datum::Int32(number)) = &mut row[1] {
            *number = number.wrapping_add(1);
        }
        let state = |column: usize| row[column].as_ref().map_or(ColumnState::Absent, |datum| datum.borrowed().into());
        outputs.map_with(0, |out| destination.encode(state, scratch, out))
    }
}

fn registry() -> Registry {
    let mut registry = Registry::built_in();
    registry.register("test.add-one", |arguments, _| Ok(Arc::new(AddOne { format: arguments.parse()? }))).unwrap();
    registry
        .register("test.misbehave", |arguments, _| Ok(Arc::new(Misbehaving { how: arguments.to_owned() })))
        .unwrap();
    registry
}

fn link(table: &Table, text: &str, source: RowFormatKind) -> Result<Linked> {
    registry().link(&TransformerSet::parse(text).unwrap(), &table.formats, GroupFormat::Row(source), &ROOMY)
}

/// Takes an entry down by random jobs, and collects the columns of its fragments.
fn taken_down(
    rng: &mut SmallRng,
    table: &Table,
    linked: &Linked,
    operation: Operation,
    value: &[u8],
) -> Vec<Option<Datum>> {
    let last = linked.last_entered();
    let mut fragments = vec![(0, linked.layout().level(0).groups[0].clone(), value.to_vec())];
    let mut row = vec![None; table.schema().columns().len()];
    while let Some((level, group, value)) = fragments.pop() {
        if level < last {
            let next = rng.random_range(level + 1..=last);
            let within = |other: &&Group| other.columns.is_subset(&group.columns);
            let groups: Vec<Group> = linked.layout().level(next).groups.iter().filter(within).cloned().collect();
            let values = transformed(linked, (level, next), &group, &groups, (operation, &value));
            fragments.extend(groups.into_iter().zip(values).filter_map(|(group, value)| Some((next, group, value?))));
            continue;
        }
        let values = table.formats.values(&group).unwrap();
        values
            .visit(&value, &group.columns, &mut RowScratch::default(), &mut |column, state| {
                row[column] = match state {
                    ColumnState::Absent => None,
                    ColumnState::Null => Some(Datum::Null),
                    ColumnState::Value(datum) => Some(datum.to_datum()),
                };
                Ok(())
            })
            .unwrap();
    }
    row
}

#[test]
fn a_map_is_called_once_whatever_the_number_of_compactions() {
    for_seeds(200, |rng| {
        let table = Table::parse(SCHEMA);
        let mut lines = ["convert json to packed", "split by 2", "test.add-one json", "test.add-one packed"];
        lines.shuffle(rng);
        let taken = rng.random_range(1..=lines.len());
        let lines = &lines[..taken];
        let adds = lines.iter().filter(|line| line.starts_with("test")).count() as i32;
        let Ok(linked) = link(&table, &lines.join("\n"), RowFormatKind::Json) else {
            assert!(lines.contains(&"test.add-one packed") && !lines.contains(&"convert json to packed"));
            return;
        };
        let operation = if rng.random() { Operation::Put } else { Operation::Patch };
        let number = rng.random::<i32>();
        let cells = vec![
            None,
            Some(Datum::Int32(number)),
            (operation == Operation::Put).then_some(Datum::Null),
            (operation == Operation::Put).then_some(Datum::Int32(3)),
            Some(Datum::Utf8("d".into())),
        ];
        let value = crate::drawing::stored(table.format(RowFormatKind::Json), &cells);
        let mut expected = cells;
        expected[1] = Some(Datum::Int32(number.wrapping_add(adds)));
        for _ in 0..4 {
            assert_eq!(taken_down(rng, &table, &linked, operation, &value), expected, "{lines:?}");
        }
    });
}

#[test]
fn a_map_stands_before_the_convert_that_leaves_its_format() {
    let table = Table::parse(SCHEMA);
    let linked = link(&table, "convert json to packed\ntest.add-one json\nsplit by 4", RowFormatKind::Json).unwrap();
    let order: Vec<String> = linked.steps().iter().map(|step| step.named.definition.to_string()).collect();
    assert_eq!(order, ["split by 4", "test.add-one json", "convert json to packed"]);
    assert!(linked.is_said_by_layout(&(0..1)) && !linked.is_said_by_layout(&(0..2)));
    assert!(linked.is_said_by_layout(&(2..5)));
    for text in ["test.add-one json\ntest.add-one json", "test.add-one packed"] {
        assert!(link(&table, text, RowFormatKind::Json).is_err(), "{text}");
    }
}

/// Does what its argument says, and should not.
#[derive(Debug)]
struct Misbehaving {
    how: String,
}

impl Transformer for Misbehaving {
    fn place(&self) -> Place {
        match self.how.starts_with("derive") {
            true => Place::Beside,
            false => Place::Chain { from: GroupFormat::default(), to: GroupFormat::default() },
        }
    }

    fn destinations(&self, source: &Group, _round: usize) -> Result<Vec<Group>> {
        let format = if self.how == "link format" { GroupFormat::Columnar } else { source.format };
        let columns = if self.how == "link columns" { ColumnSet::from_iter([1]) } else { source.columns.clone() };
        Ok(vec![Group::new(columns, format)])
    }

    fn rounds(&self, _source: &Group) -> usize {
        if self.how == "link rounds" { usize::MAX } else { 1 }
    }

    fn derived_tables(&self) -> Vec<String> {
        if self.how == "derive tables" { Vec::new() } else { vec!["derived".into()] }
    }

    fn reads(&self) -> ColumnSet {
        if self.how == "derive reads" { ColumnSet::from_iter([0]) } else { ColumnSet::from_iter([1]) }
    }

    fn prepare(&self, _job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
        Ok(Box::new(Mischief { how: self.how.clone() }))
    }
}

struct Mischief {
    how: String,
}

impl TransformState for Mischief {
    fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()> {
        match self.how.as_str() {
            "map twice" => {
                outputs.map(0, entry.value)?;
                outputs.map(0, entry.value)
            }
            "map beyond" => outputs.map(1, entry.value),
            "map backwards" => outputs.map_with(0, |out| {
                out.clear();
                out.shrink_to_fit();
                Err(Error::invalid("took away"))
            }),
            "map and derive" => outputs.derive(0, b"k", Operation::Put, b"").map(drop),
            "derive and map" => outputs.map(0, entry.value),
            "derive delete" => outputs.derive(0, b"k", Operation::Delete, b"").map(drop),
            "derive beyond" => outputs.derive(1, b"k", Operation::Put, b"").map(drop),
            "derive long" => outputs.derive(0, &[0; 1 << 16], Operation::Put, b"").map(drop),
            _ => Ok(()),
        }
    }
}

#[test]
fn misbehaviour_is_an_error() {
    let table = Table::parse(SCHEMA);
    for how in ["link format", "link columns", "link rounds", "derive tables", "derive reads"] {
        let error = link(&table, &format!("test.misbehave {how}"), RowFormatKind::Packed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{how}: {error}");
    }
    let whole = table.whole(RowFormatKind::Packed);
    let cells = vec![None, Some(Datum::Null), Some(Datum::Null), Some(Datum::Null), Some(Datum::Utf8(String::new()))];
    let value = crate::drawing::stored(table.format(RowFormatKind::Packed), &cells);
    for (how, expected) in [
        ("map nothing", "gave 0 values"),
        ("map twice", "out of turn"),
        ("map beyond", "no destination 1"),
        ("map backwards", "took away"),
        ("map and derive", "only a transformer beside the order"),
        ("derive and map", "maps nothing"),
        ("derive delete", "cannot derive a delete"),
        ("derive beyond", "no derived table 1"),
        ("derive long", "65535"),
    ] {
        let linked = link(&table, &format!("test.misbehave {how}"), RowFormatKind::Packed).unwrap();
        let mut job = linked.job(0..1, &whole, std::slice::from_ref(&whole), MUCH).unwrap();
        let entry = EntryRef { key: b"k", trailer: Trailer::new(1, Operation::Put), value: &value };
        let error = job.transform(entry).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{how}: {error}");
        assert!(error.to_string().contains(expected), "{how}: {error}");
    }
}

#[test]
fn a_map_that_drops_a_patch_is_let_be() {
    let table = Table::parse(SCHEMA);
    let linked = link(&table, "test.misbehave map nothing", RowFormatKind::Packed).unwrap();
    let whole = table.whole(RowFormatKind::Packed);
    let mut job = linked.job(0..1, &whole, std::slice::from_ref(&whole), MUCH).unwrap();
    let cells = vec![None, Some(Datum::Null), None, None, None];
    let value = crate::drawing::stored(table.format(RowFormatKind::Packed), &cells);
    let entry = EntryRef { key: b"k", trailer: Trailer::new(1, Operation::Patch), value: &value };
    assert_eq!(job.transform(entry).unwrap(), Progress::Done);
    assert_eq!(job.mapped().count(), 0);
}

/// After a change of layout: files of narrower groups come to a step, and outputs are narrower than the layout's
/// groups.
#[test]
fn groups_may_be_narrower_than_the_layout() {
    let table = Table::parse(SCHEMA);
    let linked = link(&table, "split into 1-2 | 3-4\ntest.add-one packed", RowFormatKind::Packed).unwrap();
    let group = |text: &str| text.parse::<Group>().unwrap();
    let cells = vec![None, Some(Datum::Int32(4)), None, Some(Datum::Int32(5)), Some(Datum::Utf8("d".into()))];
    let whole = table.whole(RowFormatKind::Packed);
    let value = crate::drawing::stored(table.format(RowFormatKind::Packed), &cells);
    let narrow = [group("1,3/packed"), group("4/packed")];
    let narrowed = transformed(&linked, (0, 0), &whole, &narrow, (Operation::Patch, &value));

    let singles = [group("3/json"), group("1/packed")];
    let fragment = narrowed[0].as_ref().unwrap();
    let values = transformed(&linked, (0, 2), &narrow[0], &singles, (Operation::Patch, fragment));
    for (group, value, expected) in [(&singles[0], &values[0], 5), (&singles[1], &values[1], 5)] {
        let show = &mut |_: usize, state: ColumnState<'_>| {
            assert_eq!(state, ColumnState::Value(mycelium_encoding::DatumRef::Int32(expected)), "{group}");
            Ok(())
        };
        let values = table.formats.values(group).unwrap();
        values.visit(value.as_ref().unwrap(), &group.columns, &mut RowScratch::default(), show).unwrap();
        assert!(values.visit(value.as_ref().unwrap(), &whole.columns, &mut RowScratch::default(), show).is_err());
    }
    // Wider than what passes through the step.
    let straddling = linked.job(0..2, &whole, &[group("2-3/packed")], MUCH).unwrap_err();
    assert_eq!(straddling.kind(), ErrorKind::InvalidArgument);
    assert!(straddling.to_string().contains("pass through"), "{straddling}");
}

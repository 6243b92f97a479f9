//! What the manifest keeps of a table's views.

use std::sync::Arc;

use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_base::{ColumnSet, Error, Result};
use mycelium_encoding::{Aggregation, Schema};

/// The most views of a table.
pub(super) const MAX_VIEWS: usize = 32;
/// The longest name, in bytes.
pub(super) const LONGEST_NAME: usize = 200;

/// A view of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct ViewDefinition {
    /// Names its partial aggregates in files. Never reused in its table, so that what a dropped view left is nobody's.
    pub id: u64,
    /// Its name, unique among the table's views.
    pub name: String,
    /// What is grouped and computed.
    pub aggregation: Arc<Aggregation>,
}

/// The views of a table. Stored form:
///
/// ```text
/// varint  the id of the next view
/// varint  count
/// per view, ids ascending:
///   varint  id
///   bytes   name
///   ...     aggregation, see `mycelium_encoding::Aggregation::encode`
/// ```
#[derive(Clone, PartialEq, Default, Debug)]
pub struct ViewSet {
    next_id: u64,
    views: Vec<Arc<ViewDefinition>>,
}

impl ViewSet {
    /// The views, in order of creation.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ViewDefinition>> {
        self.views.iter()
    }

    /// Whether the table has a view.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// Whether there never was one.
    pub(crate) fn is_unused(&self) -> bool {
        self.next_id == 0
    }

    /// The view with this name.
    pub fn named(&self, name: &str) -> Option<&Arc<ViewDefinition>> {
        self.views.iter().find(|view| view.name == name)
    }

    /// The columns that each view reads beside the key.
    pub(crate) fn columns_read(&self) -> impl Iterator<Item = ColumnSet> {
        self.views.iter().map(|view| view.aggregation.columns_read().clone())
    }

    /// Adds a view, with an id that none had before.
    pub(super) fn add(&mut self, name: &str, aggregation: Arc<Aggregation>) -> Arc<ViewDefinition> {
        let view = Arc::new(ViewDefinition { id: self.next_id, name: name.to_owned(), aggregation });
        self.next_id += 1;
        self.views.push(view.clone());
        view
    }

    /// Removes the view with this name; whether there was one.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let before = self.views.len();
        self.views.retain(|view| view.name != name);
        self.views.len() < before
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.next_id);
        put_varint(out, self.views.len() as u64);
        for view in &self.views {
            put_varint(out, view.id);
            put_bytes(out, view.name.as_bytes());
            view.aggregation.encode(out);
        }
    }

    pub(crate) fn decode(schema: &Schema, bytes: &[u8]) -> Result<Self> {
        let schema = Arc::new(schema.clone());
        let mut reader = Reader::new(bytes);
        let next_id = reader.varint()?;
        let count = reader.length(MAX_VIEWS)?;
        let mut views: Vec<Arc<ViewDefinition>> = Vec::with_capacity(count);
        for _ in 0..count {
            let id = reader.varint()?;
            let name = reader.str()?.to_owned();
            let aggregation = Arc::new(Aggregation::decode(schema.clone(), &mut reader)?);
            let ascends = views.last().is_none_or(|last| last.id < id) && id < next_id;
            if !ascends || name.is_empty() || views.iter().any(|view| view.name == name) {
                return Err(Error::corruption("the definition of a table's views contradicts itself"));
            }
            views.push(Arc::new(ViewDefinition { id, name, aggregation }));
        }
        reader.finish()?;
        Ok(Self { next_id, views })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycelium_encoding::Aggregate;

    /// The bytes that version 1 of a table's definition holds of views.
    const GOLDEN: &[u8] =
        b"\x03\x02\x00\x03all\x00\x01\x00\x00\x02\x04by_a\x02\x01\x00\x04\x00\x00\x01\x01\x02\x02\x03\x01";

    fn views() -> (Schema, ViewSet) {
        let schema = Schema::parse("id int64 not null, a utf8, b int32, primary key (id)").unwrap();
        let of = |group_by: &[usize], aggregates: &[Aggregate]| {
            Arc::new(Aggregation::new(Arc::new(schema.clone()), group_by.to_vec(), aggregates.to_vec()).unwrap())
        };
        let mut views = ViewSet::default();
        views.add("all", of(&[], &[Aggregate::CountRows]));
        views.add("gone", of(&[1], &[Aggregate::CountRows]));
        let aggregates = [Aggregate::CountRows, Aggregate::Count(1), Aggregate::Sum(2), Aggregate::Min(1)];
        views.add("by_a", of(&[1, 0], &aggregates));
        assert!(views.remove("gone") && !views.remove("gone"));
        (schema, views)
    }

    #[test]
    fn definitions_are_written_and_read_as_ever() {
        let (schema, views) = views();
        let mut bytes = Vec::new();
        views.encode(&mut bytes);
        assert_eq!(bytes, GOLDEN, "{bytes:02x?}");
        assert_eq!(ViewSet::decode(&schema, GOLDEN).unwrap(), views);
        for len in 0..bytes.len() {
            assert!(ViewSet::decode(&schema, &bytes[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn an_id_is_never_used_again() {
        let (_, mut views) = views();
        let aggregation = views.named("all").unwrap().aggregation.clone();
        assert!(views.remove("by_a"));
        assert_eq!(views.add("by_a", aggregation).id, 3);
    }
}

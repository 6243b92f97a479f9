//! Indexes and views of the tables of histories: created, and, turn by turn, dropped and created again. Those of
//! columns that come later are there once these have come, and until one of these goes.

use mycelium_base::Result;
use mycelium_engine::{IndexOptions, ViewOptions};
use mycelium_transform::Augment;

use super::EngineStore;

impl EngineStore {
    /// Creates an index of a typed table: `small on 2`, or `letters by test.letters`; none of a column that has not
    /// come yet.
    pub(super) fn create_index(&self, table: usize, augment: &str) -> Result<()> {
        let (table, has_columns) = (self.table(table)?, self.kinds[table].has_columns());
        let Some(schema) = table.schema().filter(|_| has_columns) else { return Ok(()) };
        if !columns_named(augment).all(|column| schema.has_column(column)) {
            return Ok(());
        }
        if let Some((name, transformer)) = augment.split_once(" by ") {
            let flat_map = Some(transformer.parse()?);
            let options = IndexOptions { name: name.to_owned(), flat_map, ..IndexOptions::default() };
            return self.database()?.create_index(table, &options).map(drop);
        }
        let augment = Augment::parse(augment, schema)?;
        let name = |column: usize| schema.columns()[column].name.clone();
        let options = IndexOptions {
            name: augment.name().to_owned(),
            on: augment.on().iter().copied().map(name).collect(),
            cover: augment.cover().iter().map(name).collect(),
            ..IndexOptions::default()
        };
        self.database()?.create_index(table, &options).map(drop)
    }

    /// Drops an index, or creates it again if it is not there.
    pub(super) fn turn_index(&self) -> Result<()> {
        let augments = self.configuration.indexes_in_turn();
        let augment = augments[self.flushes % augments.len()];
        let name = augment.split_whitespace().next().unwrap_or_default();
        for index in 0..self.kinds.len() {
            match self.table(index) {
                Ok(table) if table.index(name).is_ok() => self.database()?.drop_index(table, name)?,
                Ok(_) => self.create_index(index, augment)?,
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Creates a view of a typed table: `small: flag: count(*), sum(count)`; none of a column that is not there.
    pub(super) fn create_view(&self, table: usize, text: &str) -> Result<()> {
        let (table, kind) = (self.table(table)?, self.kinds[table]);
        let Some(schema) = table.schema().filter(|_| kind.has_columns()) else { return Ok(()) };
        // Columns may have got other names.
        let position = |name: &str| kind.position_of(name).filter(|&at| schema.has_column(at));
        let column = |name: &str| Some(schema.columns()[position(name)?].name.clone());
        let aggregate = |text: &str| match text.trim_end_matches(')').split_once('(') {
            Some((_, "*")) | None => Some(text.to_owned()),
            Some((function, name)) => Some(format!("{function}({})", column(name)?)),
        };
        let list = |part: Option<&str>, item: &dyn Fn(&str) -> Option<String>| -> Option<Vec<String>> {
            let texts = part.unwrap_or_default().split(',').map(str::trim);
            texts.filter(|text| !text.is_empty()).map(item).collect()
        };
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default().to_owned();
        let (Some(group_by), Some(aggregates)) = (list(parts.next(), &column), list(parts.next(), &aggregate)) else {
            return Ok(());
        };
        self.database()?.create_view(table, &ViewOptions { name, group_by, aggregates }).map(drop)
    }

    /// Drops the indexes and views of a column.
    pub(super) fn drop_derived_of(&self, table: usize, column: usize) -> Result<()> {
        let (table, kind) = (self.table(table)?, self.kinds[table]);
        for augment in self.configuration.indexes_in_turn() {
            let name = augment.split_whitespace().next().unwrap_or_default();
            if columns_named(augment).any(|named| named == column) && table.index(name).is_ok() {
                self.database()?.drop_index(table, name)?;
            }
        }
        for view in self.configuration.views_in_turn() {
            let (name, of) = view.split_once(':').unwrap_or_default();
            let mut words = of.split(|c: char| !c.is_alphanumeric());
            if words.any(|word| kind.position_of(word) == Some(column)) && table.view(name).is_ok() {
                self.database()?.drop_view(table, name)?;
            }
        }
        Ok(())
    }

    /// Drops a view, or creates it again if it is not there.
    pub(super) fn turn_view(&self) -> Result<()> {
        let views = self.configuration.views_in_turn();
        let view = views[self.flushes % views.len()];
        let name = view.split(':').next().unwrap_or_default();
        for index in 0..self.kinds.len() {
            match self.table(index) {
                Ok(table) if table.view(name).is_ok() => self.database()?.drop_view(table, name)?,
                Ok(_) => self.create_view(index, view)?,
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// The columns that an augment names.
fn columns_named(augment: &str) -> impl Iterator<Item = usize> {
    augment.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configurations::Configuration;
    use crate::store::Store;
    use crate::tables::TableKind;

    /// A text that is malformed would be passed over as one of columns that have not come.
    #[test]
    fn indexes_and_views_of_later_columns_come_with_them() {
        let configuration = Configuration::named("views-indexes-changing-layouts").unwrap();
        let configuration = Configuration { changing_indexes: true, ..configuration };
        let (indexes, views) = (configuration.indexes_in_turn(), configuration.views_in_turn());
        let mut store = EngineStore::in_memory(&configuration, &[TableKind::Growing]).unwrap();
        let table = store.table(0).unwrap();
        assert_eq!((table.indexes().len(), table.views().len()), (indexes.len() - 2, views.len() - 2));
        for _ in 0..2 {
            store.change_columns(0).unwrap();
        }
        // The turn of each comes, and that of the first ones again.
        for _ in 0..indexes.len().max(views.len()) {
            store.flush().unwrap();
        }
        let has_index =
            |store: &EngineStore, text: &str| store.table(0).unwrap().index(text.split(' ').next().unwrap()).is_ok();
        let has_view =
            |store: &EngineStore, text: &str| store.table(0).unwrap().view(text.split(':').next().unwrap()).is_ok();
        let (later_index, latest_index) = (indexes[indexes.len() - 2], indexes[indexes.len() - 1]);
        let (later_view, latest_view) = (views[views.len() - 2], views[views.len() - 1]);
        assert!(has_index(&store, later_index) && has_index(&store, latest_index));
        assert!(has_view(&store, later_view) && !has_view(&store, latest_view));
        for _ in 0..2 {
            store.change_columns(0).unwrap();
        }
        assert!(!has_index(&store, later_index) && has_index(&store, latest_index), "one has lost a column");
        assert!(!has_view(&store, later_view));
        for _ in 0..views.len() {
            store.flush().unwrap();
        }
        assert!(!has_view(&store, later_view) && has_view(&store, latest_view));
    }
}

//! Which column a member of a JSON row is of.
//!
//! Who writes rows mostly writes them alike, so that a member tells which one comes next:
//!
//! 1. What followed the member before in the first whole row that was read is compared with the text: name, quotes and
//!    colon at once.
//! 2. Then what follows it in the schema, the order in which rows are written here.
//! 3. Else the name is read, and looked for in a map by its bytes, as they are usually written.
//! 4. Else it is escaped in another way, or there is no such column in a row.
//!
//! Which row was the first decides nothing but how many comparisons it takes.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use super::json_text::{JsonReader, Prefix, put_string, unescape};
use super::span::Fault;
use crate::Schema;

/// The members that rows of a schema may have.
#[derive(Debug)]
pub(super) struct Members {
    members: Vec<Member>,
    /// Columns that were not dropped by their names with quotes, written as [`put_string`] writes them.
    by_name: FxHashMap<Box<[u8]>, usize>,
    /// Of the schema.
    written: Order,
    /// Of the first whole row that was read.
    seen: OnceLock<Order>,
}

#[derive(Debug)]
struct Member {
    name: Box<str>,
    /// The name as a string and the colon.
    prefix: Prefix,
    /// Neither in the primary key nor dropped.
    is_in_row: bool,
}

/// Where a scan stands: behind the member of a column, or before the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct After(usize);

/// By the place of [`After`] the column of the next member.
type Order = Box<[usize]>;

/// An order from the columns of a row. What none follows is followed by itself, which is not there twice.
fn order_of(columns: &[usize], schema_len: usize) -> Order {
    let mut order: Order = (0..=schema_len).collect();
    let mut after = schema_len;
    for &column in columns {
        order[after] = column;
        after = column;
    }
    order
}

impl Members {
    pub(super) fn new(schema: &Schema) -> Self {
        let columns: Vec<usize> = schema.value_columns().iter().collect();
        let mut by_name = FxHashMap::default();
        let member = |(position, column): (usize, &crate::Column)| {
            let mut quoted = Vec::new();
            put_string(&mut quoted, &column.name);
            if !column.is_dropped() {
                by_name.insert(quoted.clone().into(), position);
            }
            quoted.push(b':');
            let is_in_row = columns.binary_search(&position).is_ok();
            Member { name: column.name.as_str().into(), prefix: Prefix::new(quoted), is_in_row }
        };
        let members: Vec<Member> = schema.columns().iter().enumerate().map(member).collect();
        let written = order_of(&columns, members.len());
        Self { members, by_name, written, seen: OnceLock::new() }
    }

    pub(super) fn name(&self, column: usize) -> &str {
        &self.members[column].name
    }

    /// The name of a column as a string, and the colon.
    pub(super) fn prefix(&self, column: usize) -> &[u8] {
        self.members[column].prefix.as_bytes()
    }

    /// Before the first member.
    pub(super) fn start(&self) -> After {
        After(self.members.len())
    }

    /// Steps over the name of a member, and the colon and the space after it; its column.
    #[inline]
    pub(super) fn next(&self, reader: &mut JsonReader<'_>, after: &mut After) -> Result<usize, Fault> {
        let column = match self.guess(reader, *after) {
            Some(column) => column,
            None => self.read(reader)?,
        };
        *after = After(column);
        reader.skip_space();
        Ok(column)
    }

    #[inline]
    fn guess(&self, reader: &mut JsonReader<'_>, After(after): After) -> Option<usize> {
        let seen = self.seen.get().unwrap_or(&self.written);
        [seen[after], self.written[after]].into_iter().find(|&column| {
            let member = self.members.get(column);
            member.is_some_and(|member| member.is_in_row && reader.accept_prefix(&member.prefix))
        })
    }

    fn read(&self, reader: &mut JsonReader<'_>) -> Result<usize, Fault> {
        let name = reader.string()?;
        let quoted = reader.token(name);
        let column = match self.by_name.get(quoted) {
            Some(&column) if self.members[column].is_in_row => column,
            _ => self.read_other(quoted).map_err(|fault| fault.shifted(name.start - 1))?,
        };
        reader.skip_space();
        reader.expect(b':')?;
        Ok(column)
    }

    #[cold]
    fn read_other(&self, quoted: &[u8]) -> Result<usize, Fault> {
        let (mut scratch, mut usual) = (Vec::new(), Vec::new());
        let name = unescape(quoted, &mut scratch)?;
        put_string(&mut usual, name);
        match self.by_name.get(usual.as_slice()) {
            Some(&column) if self.members[column].is_in_row => Ok(column),
            Some(_) => Err(Fault::new(0, format!("column \"{name}\" is in the primary key, not in the row"))),
            None => Err(Fault::new(0, format!("there is no column \"{name}\""))),
        }
    }

    /// Where the columns of a row are to be noted that is read to its end, if none was so far.
    pub(super) fn to_note(&self) -> Option<Vec<usize>> {
        if self.seen.get().is_some() { None } else { Some(Vec::new()) }
    }

    /// Takes notice of the columns of a row, each once, if all are there.
    #[cold]
    pub(super) fn note(&self, columns: &[usize]) {
        if columns.len() == self.members.iter().filter(|member| member.is_in_row).count() {
            // Another one was first, then.
            self.seen.set(order_of(columns, self.members.len())).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns_of(members: &Members, row: &str) -> Vec<usize> {
        let mut reader = JsonReader::new(row.as_bytes());
        let (mut after, mut columns) = (members.start(), Vec::new());
        reader.expect(b'{').unwrap();
        loop {
            columns.push(members.next(&mut reader, &mut after).unwrap());
            reader.value().unwrap();
            if !reader.accept(b',') {
                return columns;
            }
        }
    }

    #[test]
    fn members_are_found_in_any_order_whichever_row_was_first() {
        let schema =
            Schema::parse("a int8, key int8 not null, b int8, ab int8, \"ö\" int8, primary key (key)").unwrap();
        let rows = [
            (r#"{"a":1,"b":2,"ab":3,"ö":4}"#, vec![0, 2, 3, 4]),
            (r#"{"ö":1,"ab":2,"b":3,"a":4}"#, vec![4, 3, 2, 0]),
            (r#"{"ab":1,"b" : 2}"#, vec![3, 2]),
            (r#"{"\u0061\u0062":1,"\u00f6":2,"a":3}"#, vec![3, 4, 0]),
        ];
        for (_, first) in &rows {
            let members = Members::new(&schema);
            members.note(first);
            for (row, columns) in &rows {
                assert_eq!(&columns_of(&members, row), columns, "{row} after {first:?}");
            }
        }
    }
}

//! Writes of one operation, whose batch is the thread's own: what it was encoded in is there for the next one.
//!
//! A row's key, its value, what its format needs beside them and its batch would grow from nothing each time. Every
//! thread that writes keeps some kilobytes.

use std::cell::Cell;

use mycelium_base::{Result, SequenceNumber};

use crate::batch::WriteBatch;
use crate::options::Durability;
use crate::table::Table;

/// A batch that grew beyond so many bytes is not kept. What encodes a row takes a few times the row at most.
const MOST_KEPT: usize = 64 << 10;

thread_local! {
    static KEPT: Cell<Option<Box<WriteBatch>>> = const { Cell::new(None) };
}

/// The thread's batch, which is empty; another one while that is in use, as by a listener that writes, or when the
/// thread ends.
fn take() -> Box<WriteBatch> {
    KEPT.try_with(Cell::take).ok().flatten().unwrap_or_default()
}

fn keep(mut batch: Box<WriteBatch>) {
    if batch.encoded_len().max(batch.derived().memory_usage()) <= MOST_KEPT {
        batch.clear();
        // A thread that ends keeps nothing.
        KEPT.try_with(|kept| kept.set(Some(batch))).ok();
    }
}

impl Table {
    /// Writes what `fill` adds to an empty batch.
    pub(crate) fn write_with(
        &self,
        durability: Durability,
        fill: impl FnOnce(&mut WriteBatch) -> Result<&mut WriteBatch>,
    ) -> Result<SequenceNumber> {
        let mut batch = take();
        // What was refused may have been large, and is not seen in the batch.
        fill(&mut batch)?;
        let written = self.database.write(&batch, durability);
        keep(batch);
        written
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mycelium_encoding::{DatumRef, Schema};
    use mycelium_vfs::MemoryDisk;

    use super::*;
    use crate::{Background, Database, Options, ReadOptions, TableOptions};

    #[test]
    fn a_write_finds_nothing_of_the_one_before_and_large_ones_leave_nothing() {
        let disk = Arc::new(MemoryDisk::new());
        let database =
            Database::open("db", Options { disk, background: Background::Manual, ..Options::default() }).unwrap();
        let schema = Schema::parse("id int64 not null, text utf8, primary key (id)").unwrap();
        let table = database.create_typed_table("t", schema, TableOptions::default()).unwrap();
        let insert =
            |id, text: &str| table.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8(text)], Durability::Buffered);
        let text = |id| {
            let row = table.get_row(&[DatumRef::Int64(id)], Some(&[1]), &ReadOptions::default()).unwrap();
            row.map(|row| match row[0].borrowed() {
                DatumRef::Utf8(text) => text.to_owned(),
                other => panic!("{other:?}"),
            })
        };
        insert(1, "first").unwrap();
        assert!(KEPT.take().is_some_and(|batch| batch.is_empty()));
        insert(1, "second").unwrap();
        table.insert_row(&[DatumRef::Int64(2)], Durability::Buffered).unwrap_err();
        table.put(b"no key", b"no row", Durability::Buffered).unwrap_err();
        insert(3, "").unwrap();
        assert_eq!([text(1).as_deref(), text(2).as_deref(), text(3).as_deref()], [Some("second"), None, Some("")]);
        insert(4, &"large".repeat(MOST_KEPT)).unwrap();
        assert!(KEPT.take().is_none());
        table.patch_row(&[DatumRef::Int64(4)], &[("text", DatumRef::Utf8("small"))], Durability::Buffered).unwrap();
        assert_eq!(text(4).as_deref(), Some("small"));
    }
}

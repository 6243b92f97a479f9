//! Histories as text, as a failing test prints them.

use std::fmt;
use std::ops::Bound;

use super::{Action, SnapshotId};
use crate::model::{Move, ScanRange, TransactionRead, TransactionStep, Write, WriteKind, show};

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(batch, durability) => {
                write!(f, "write {durability:?}:")?;
                batch.iter().try_for_each(|write| write!(f, " {write}"))
            }
            Self::Get { table, keys, snapshot } => {
                write!(f, "get table {table}{}:", At(*snapshot))?;
                keys.iter().try_for_each(|key| write!(f, " \"{}\"", show(key)))
            }
            Self::Scan { table, range, direction, limit, snapshot } => {
                write!(f, "scan table {table}{} {direction:?} {range} limit {limit:?}", At(*snapshot))
            }
            Self::Walk { table, range, moves, snapshot } => {
                write!(f, "walk table {table}{} {range}:", At(*snapshot))?;
                moves.iter().try_for_each(|step| write!(f, " {step}"))
            }
            Self::Transact { steps, commit } => {
                f.write_str("transact:")?;
                steps.iter().try_for_each(|step| write!(f, " {step}"))?;
                match commit {
                    Some(durability) => write!(f, " commit {durability:?}"),
                    None => f.write_str(" rollback"),
                }
            }
            Self::Hold { id, table, range, snapshot } => {
                write!(f, "hold {id}: table {table}{}", At(*snapshot))?;
                match range {
                    Some(range) => write!(f, " {range}"),
                    None => f.write_str(" columns"),
                }
            }
            Self::GoOn { id, moves } => {
                write!(f, "go-on {id}:")?;
                moves.iter().try_for_each(|step| write!(f, " {step}"))
            }
            Self::LetGo(id) => write!(f, "let-go {id}"),
            Self::Begin { id, is_serializable } => write!(f, "begin {id} serializable {is_serializable}"),
            Self::Within { id, steps, reads } => {
                write!(f, "within {id}:")?;
                steps.iter().try_for_each(|step| write!(f, " {step}"))?;
                reads.iter().try_for_each(|read| write!(f, " {read}"))
            }
            Self::End { id, commit: Some(durability) } => write!(f, "end {id}: commit {durability:?}"),
            Self::End { id, commit: None } => write!(f, "end {id}: rollback"),
            Self::Ingest { table, rows } => {
                write!(f, "ingest table {table}:")?;
                rows.iter().try_for_each(|(key, value)| write!(f, " \"{}\" \"{}\"", show(key), show(value)))
            }
            Self::Recreate(table) => write!(f, "recreate table {table}"),
            Self::ChangeColumns(table) => write!(f, "change-columns table {table}"),
            Self::RenameColumn(table, column) => write!(f, "rename-column table {table} column {column}"),
            Self::SetExpiry { table, age: Some(age) } => write!(f, "set-expiry table {table} age {age:?}"),
            Self::SetExpiry { table, age: None } => write!(f, "set-expiry table {table} none"),
            Self::Expire { table, now } => write!(f, "expire table {table} at {now:?}"),
            Self::TakeSnapshot(id) => write!(f, "take snapshot {id}"),
            Self::ReleaseSnapshot(id) => write!(f, "release snapshot {id}"),
            Self::Compact(table) => write!(f, "compact table {table}"),
            Self::CompactPart { table, lower, upper } => {
                let bound =
                    |key: &Option<Vec<u8>>| key.as_ref().map_or(String::new(), |key| format!("\"{}\"", show(key)));
                write!(f, "compact-part table {table} [{}..{})", bound(lower), bound(upper))
            }
            other => write!(f, "{}", format!("{other:?}").to_lowercase()),
        }
    }
}

struct At(Option<SnapshotId>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |id| write!(f, " at snapshot {id}"))
    }
}

impl fmt::Display for TransactionStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(write) => write!(f, "{write}"),
            Self::Savepoint => f.write_str("savepoint"),
            Self::RollbackTo(index) => write!(f, "rollback-to {index}"),
            Self::Release(index) => write!(f, "release {index}"),
        }
    }
}

impl fmt::Display for TransactionRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get(table, key) => write!(f, "[get {table} \"{}\"]", show(key)),
            Self::GetForUpdate(table, key) => write!(f, "[get-for-update {table} \"{}\"]", show(key)),
            Self::Scan(table, range, direction) => write!(f, "[scan {table} {direction:?} {range}]"),
            Self::Walk(table, range, moves) => {
                write!(f, "[walk {table} {range}:")?;
                moves.iter().try_for_each(|step| write!(f, " {step}"))?;
                f.write_str("]")
            }
        }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, key, value) = match &self.kind {
            WriteKind::Put(key, value) => ("put", key, Some(value)),
            WriteKind::Patch(key, value) => ("patch", key, Some(value)),
            WriteKind::Merge(key, value) => ("merge", key, Some(value)),
            WriteKind::Delete(key) => ("delete", key, None),
            WriteKind::DeleteRange(start, end) => ("delete-range", start, Some(end)),
        };
        write!(f, "[{word} {} \"{}\"", self.table, show(key))?;
        value.map_or(Ok(()), |value| write!(f, " \"{}\"", show(value)))?;
        f.write_str("]")
    }
}

impl fmt::Display for ScanRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lower {
            Bound::Included(key) => write!(f, "[\"{}\"", show(key))?,
            Bound::Excluded(key) => write!(f, "(\"{}\"", show(key))?,
            Bound::Unbounded => f.write_str("(")?,
        }
        f.write_str("..")?;
        match &self.upper {
            Bound::Included(key) => write!(f, "\"{}\"]", show(key))?,
            Bound::Excluded(key) => write!(f, "\"{}\")", show(key))?,
            Bound::Unbounded => f.write_str(")")?,
        }
        self.prefix.as_ref().map_or(Ok(()), |prefix| write!(f, " prefix \"{}\"", show(prefix)))
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seek(key) => write!(f, "seek(\"{}\")", show(key)),
            Self::SeekForPrev(key) => write!(f, "seek-for-prev(\"{}\")", show(key)),
            other => write!(f, "{}", format!("{other:?}").to_lowercase()),
        }
    }
}

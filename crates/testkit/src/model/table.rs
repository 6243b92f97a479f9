//! The versions of one table, and the rows that they add up to: the semantics of the model (see there, 2 and 3).

use std::borrow::Cow;
use std::collections::BTreeMap;

use mycelium_base::SequenceNumber;

use super::{Row, ScanRange, WriteKind};
use crate::tables::TableRules;

#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) sequence: SequenceNumber,
    pub(super) kind: VersionKind,
}

#[derive(Clone, Debug)]
pub(super) enum VersionKind {
    Put(Vec<u8>),
    Patch(Vec<u8>),
    Merge(Vec<u8>),
    Delete,
}

#[derive(Clone, Debug)]
pub(super) struct RangeDelete {
    pub(super) start: Vec<u8>,
    pub(super) end: Vec<u8>,
    pub(super) sequence: SequenceNumber,
}

#[derive(Clone)]
pub(super) struct Table {
    pub(super) rules: TableRules,
    /// One for each time it was created, oldest first; never empty.
    pub(super) lives: Vec<Life>,
}

/// What was written to a table between its creation and its end.
#[derive(Clone, Default)]
pub(super) struct Life {
    /// Commits there were when it began, that which ended the life before included.
    pub(super) since: usize,
    /// For each change of its columns: commits there were then, its own included.
    pub(super) changes: Vec<usize>,
    /// Oldest first.
    pub(super) versions: BTreeMap<Vec<u8>, Vec<Version>>,
    pub(super) range_deletes: Vec<RangeDelete>,
}

impl Life {
    pub(super) fn add(&mut self, sequence: SequenceNumber, kind: &WriteKind) {
        let (key, kind) = match kind {
            WriteKind::Put(key, value) => (key, VersionKind::Put(value.clone())),
            WriteKind::Patch(key, value) => (key, VersionKind::Patch(value.clone())),
            WriteKind::Merge(key, value) => (key, VersionKind::Merge(value.clone())),
            WriteKind::Delete(key) => (key, VersionKind::Delete),
            WriteKind::DeleteRange(start, end) => {
                self.range_deletes.push(RangeDelete { start: start.clone(), end: end.clone(), sequence });
                return;
            }
        };
        self.versions.entry(key.clone()).or_default().push(Version { sequence, kind });
    }

    /// Undoes the last write.
    pub(super) fn take_back(&mut self, kind: &WriteKind) {
        let (WriteKind::Put(key, _) | WriteKind::Patch(key, _) | WriteKind::Merge(key, _) | WriteKind::Delete(key)) =
            kind
        else {
            self.range_deletes.pop();
            return;
        };
        if let Some(versions) = self.versions.get_mut(key) {
            versions.pop();
            if versions.is_empty() {
                self.versions.remove(key);
            }
        }
    }
}

impl Table {
    /// The present life.
    pub(super) fn life(&self) -> &Life {
        &self.lives[self.lives.len() - 1]
    }

    pub(super) fn life_mut(&mut self) -> &mut Life {
        let last = self.lives.len() - 1;
        &mut self.lives[last]
    }

    pub(super) fn add(&mut self, sequence: SequenceNumber, kind: &WriteKind) {
        let written = self.written(kind);
        self.life_mut().add(sequence, &written);
    }

    /// The write without what there is no column for.
    pub(super) fn written<'k>(&self, kind: &'k WriteKind) -> Cow<'k, WriteKind> {
        let Some(growth) = self.rules.growth else { return Cow::Borrowed(kind) };
        let fitted = |value: &[u8]| (growth.write)(value, self.life().changes.len());
        match kind {
            WriteKind::Put(key, row) => Cow::Owned(WriteKind::Put(key.clone(), fitted(row))),
            WriteKind::Patch(key, patch) => Cow::Owned(WriteKind::Patch(key.clone(), fitted(patch))),
            other => Cow::Borrowed(other),
        }
    }

    /// A row after so many changes of the columns.
    pub(super) fn shown(&self, row: Vec<u8>, changes: usize) -> Vec<u8> {
        match self.rules.growth {
            Some(growth) => (growth.read)(&row, changes),
            None => row,
        }
    }

    pub(super) fn shown_rows(
        &self,
        life: &Life,
        changes: usize,
        range: &ScanRange,
        snapshot: SequenceNumber,
    ) -> Vec<Row> {
        let rows = self.scan(life, range, snapshot).into_iter();
        rows.map(|(key, row)| (key, self.shown(row, changes))).collect()
    }

    /// The life after so many commits.
    pub(super) fn life_after(&self, commits: usize) -> &Life {
        &self.lives[self.lives.partition_point(|life| life.since <= commits) - 1]
    }

    pub(super) fn scan(&self, life: &Life, range: &ScanRange, snapshot: SequenceNumber) -> Vec<(Vec<u8>, Vec<u8>)> {
        let keys = life.versions.keys().filter(|key| range.contains(key));
        keys.filter_map(|key| Some((key.clone(), self.get(life, key, snapshot)?))).collect()
    }

    pub(super) fn get(&self, life: &Life, key: &[u8], snapshot: SequenceNumber) -> Option<Vec<u8>> {
        let covering = |delete: &&RangeDelete| {
            delete.sequence <= snapshot && delete.start.as_slice() <= key && key < delete.end.as_slice()
        };
        let deleted = life.range_deletes.iter().filter(covering).map(|delete| delete.sequence).max().unwrap_or(0);
        let versions = life.versions.get(key).map_or(&[][..], Vec::as_slice);
        let (mut patches, mut operands) = (Vec::new(), Vec::new());
        let mut base = None;
        for version in versions.iter().rev().filter(|v| v.sequence <= snapshot && v.sequence > deleted) {
            match &version.kind {
                VersionKind::Put(value) => {
                    base = Some(value);
                    break;
                }
                VersionKind::Delete => break,
                VersionKind::Patch(patch) => patches.insert(0, patch.as_slice()),
                VersionKind::Merge(operand) => operands.insert(0, operand.as_slice()),
            }
        }
        if !operands.is_empty() {
            return (self.rules.merge.as_ref()?)(base.map(Vec::as_slice), &operands);
        }
        match base {
            Some(base) if !patches.is_empty() => Some((self.rules.patch.as_ref()?)(base, &patches)),
            base => base.cloned(),
        }
    }
}

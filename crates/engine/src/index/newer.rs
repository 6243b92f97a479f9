//! Whether a table has something newer for a row than an entry of an index says.
//!
//! 1. Memtables are asked for the row, those that hold nothing as new as the entry left out.
//! 2. Of each run that has columns of the index the file whose fences hold the key: range deletes, then the Bloom
//!    filter. The files that it lets pass may hold the row.
//! 3. Where the version that the entry is of is known to be in the table, but in no memtable, its columns of the index
//!    are in one of these, unless they lie in several column groups. If there is one alone, and no key has two entries
//!    in it, then it has that version and nothing newer: no block is read.
//! 4. Otherwise those are searched whose largest number is above the entry's, a snapshot filter from below; blocks are
//!    passed over alike, by the file's index.

use std::ops::ControlFlow;

use mycelium_base::hash::hash_key;
use mycelium_base::{ColumnSet, ReadCounters, Result, SequenceNumber, Trailer};
use mycelium_sst::{GetScratch, KeyBits};

use crate::table::{TableShared, TableState};
use crate::tree::{OpenFile, OpenRun, Tree};

/// Which files of a table feed an index.
pub(super) struct Feeds {
    /// By the format of a run.
    has_columns: Vec<bool>,
    /// Whether each file that has some of the index's columns has all of them.
    are_together: bool,
}

impl Feeds {
    /// Of an index that is fed by these columns.
    pub(super) fn new(tree: &Tree, fed_by: &ColumnSet) -> Self {
        let has_columns: Vec<bool> = tree.formats.iter().map(|it| it.columns().shares_entries(fed_by)).collect();
        let are_together =
            tree.formats.iter().zip(&has_columns).all(|(it, has)| !has || fed_by.is_subset(it.columns()));
        Self { has_columns, are_together }
    }

    fn has(&self, run: &OpenRun) -> bool {
        self.has_columns.get(run.format).copied().unwrap_or(true)
    }
}

/// The sequence numbers in `(after, upto]`.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) after: SequenceNumber,
    pub(super) upto: SequenceNumber,
    /// The table has a version of the row with the number `after`, or had it before numbers were dropped.
    pub(super) has_version: bool,
}

/// Whether what feeds an index has an entry for `key`, or a range delete over it, with a sequence number in `span`.
pub(super) fn has_newer(
    table: &TableShared,
    (state, feeds): (&TableState, &Feeds),
    key: &[u8],
    span: Span,
    scratch: &mut GetScratch,
    counters: &mut ReadCounters,
) -> Result<bool> {
    let hash = hash_key(key);
    let in_memtables = newest_in_memtables(state, key, hash, span, counters);
    if in_memtables.is_some_and(|newest| newest > span.after) {
        return Ok(true);
    }
    // What a memtable holds need not be in a file.
    let is_in_one_file = span.has_version && in_memtables.is_none() && feeds.are_together;
    let span = Span { has_version: is_in_one_file, ..span };
    has_newer_in_files(table, (&state.tree, feeds), (key, hash), span, scratch, counters)
}

/// Step 1: the newest number of the row, or of a range delete over it, that memtables have, as far as it matters.
fn newest_in_memtables(
    state: &TableState,
    key: &[u8],
    hash: u64,
    Span { after, upto, .. }: Span,
    counters: &mut ReadCounters,
) -> Option<SequenceNumber> {
    let mut newest = None;
    for memtable in state.memtables() {
        if memtable.sequence_range().is_none_or(|(oldest, newest)| newest < after || oldest > upto) {
            continue;
        }
        counters.memtables_searched += 1;
        let entry = memtable.get_hashed(key, hash, upto).next().map(|(trailer, _)| trailer.sequence());
        newest = newest.max(entry).max(memtable.covering_range_delete(key, upto));
    }
    newest
}

/// Steps 2 to 4.
fn has_newer_in_files(
    table: &TableShared,
    (tree, feeds): (&Tree, &Feeds),
    (key, hash): (&[u8], u64),
    Span { after, upto, has_version }: Span,
    scratch: &mut GetScratch,
    counters: &mut ReadCounters,
) -> Result<bool> {
    let (snapshot_filter, mut bits) = (table.definition.options.snapshot_filter, KeyBits::new(hash));
    // Whether no file was found so far that may hold the row; and the one that may, as long as it is the only one.
    let (mut may_be_first, mut only) = (has_version, None);
    for ((_, run), fences) in tree.fenced_runs().filter(|((_, run), _)| feeds.has(run)) {
        counters.files_considered += 1;
        let Some((at, filters)) = run.find(&fences, key) else {
            counters.files_skipped_by_fence += 1;
            continue;
        };
        let file = &run.files[at];
        let matters = file.meta.max_sequence > after || may_be_first || only.is_some();
        if !matters || (snapshot_filter && filters.oldest() > upto) {
            counters.files_skipped_by_snapshot += 1;
            continue;
        }
        if filters.has_range_deletes()
            && file.sst.range_deletes().covering(key, upto).is_some_and(|sequence| sequence > after)
        {
            return Ok(true);
        }
        if !filters.may_contain(&mut bits, |hash| file.sst.may_contain(hash)) {
            counters.files_skipped_by_bloom += 1;
            continue;
        }
        if std::mem::take(&mut may_be_first) && file.sst.properties().distinct_keys {
            only = Some(file);
            continue;
        }
        for file in only.take().into_iter().chain([file]) {
            if holds_newer(file, key, (after, upto), scratch, counters)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether a file has an entry for `key` with a number in `(after, upto]`.
fn holds_newer(
    file: &OpenFile,
    key: &[u8],
    (after, upto): (SequenceNumber, SequenceNumber),
    scratch: &mut GetScratch,
    counters: &mut ReadCounters,
) -> Result<bool> {
    // Rows that were loaded at once, or that nobody changed since their numbers were dropped, share a number with
    // their whole block.
    if file.meta.max_sequence <= after || file.sst.is_unchanged_since(key, after)? {
        return Ok(false);
    }
    counters.files_searched += 1;
    let mut is_newer = false;
    file.sst.get(key, upto, scratch, counters, &mut |trailer: Trailer, _: &[u8]| {
        is_newer = trailer.sequence() > after;
        ControlFlow::Break(())
    })?;
    Ok(is_newer)
}

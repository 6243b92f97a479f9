//! The memtable and its writer.

use std::fmt;
use std::sync::Arc;

use crate::filter::Filter;
use crate::node::NodeRef;
use crate::recent::Recent;
use crate::skiplist::{Inserter, Skiplist};
use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering};
use arc_swap::{ArcSwap, Guard};
use mycelium_base::hash::hash_key;
use mycelium_base::key_prefix::{KeyPrefix, common_prefix};
use mycelium_base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use mycelium_base::{RangeDelete, RangeDeleteSet, RangeDeleteSets, SequenceNumber, Trailer};

/// How a memtable is set up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemtableOptions {
    /// Bytes of the Bloom filter of keys; 0 for none. Memory that no key maps to is not touched. 10 bits for each key
    /// expected let about one absent key in a hundred pass.
    pub filter_bytes: usize,
}

/// Sorted entries in memory. Any number of threads read it, without locks, while its [`MemtableWriter`] inserts.
pub struct Memtable {
    list: Skiplist,
    filter: Filter,
    recent: Recent,
    entries: AtomicU64,
    min_sequence: AtomicU64,
    max_sequence: AtomicU64,
    marks: AtomicU64,
    range_deletes: RangeDeletes,
}

impl Memtable {
    /// An empty memtable and its one writer.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(options: MemtableOptions) -> (MemtableWriter, Arc<Self>) {
        Self::with_prefixes(options, KeyPrefix::default())
    }

    /// An empty memtable and its one writer, for keys of which most are likely to begin as both of these do. Any may
    /// come; those that do are found at less cost. One byte of what they have in common is not counted on, since it
    /// changes where keys ascend.
    pub fn for_keys_like(options: MemtableOptions, key: &[u8], other: &[u8]) -> (MemtableWriter, Arc<Self>) {
        let shared = common_prefix(key, other).saturating_sub(1);
        let mut prefixes = KeyPrefix::default();
        prefixes.choose(key, &key[..shared]);
        Self::with_prefixes(options, prefixes)
    }

    fn with_prefixes(options: MemtableOptions, prefixes: KeyPrefix) -> (MemtableWriter, Arc<Self>) {
        let (list, inserter) = Skiplist::new(prefixes);
        let memtable = Arc::new(Self {
            list,
            filter: Filter::new(options.filter_bytes),
            recent: Recent::new(),
            entries: AtomicU64::new(0),
            min_sequence: AtomicU64::new(u64::MAX),
            max_sequence: AtomicU64::new(0),
            marks: AtomicU64::new(0),
            range_deletes: RangeDeletes::new(),
        });
        (MemtableWriter { memtable: Arc::clone(&memtable), inserter }, memtable)
    }

    /// The versions of exactly `key` with sequence numbers at or below `snapshot`, newest first.
    ///
    /// Range deletes are not applied; see [`Memtable::covering_range_delete`]. Absent keys are mostly ruled out by the
    /// filter, with one cache miss; else O(log n), and O(1) for each further version. Allocates nothing.
    #[inline]
    pub fn get(&self, key: &[u8], snapshot: SequenceNumber) -> Versions<'_> {
        self.get_hashed(key, hash_key(key), snapshot)
    }

    /// As [`Memtable::get`], for a caller that has the key's [`hash_key`] already.
    #[inline]
    pub fn get_hashed(&self, key: &[u8], key_hash: u64, snapshot: SequenceNumber) -> Versions<'_> {
        if !self.filter.may_contain(key_hash) {
            return Versions { node: None };
        }
        let found = self.list.at_or_after(key, Trailer::seek_at(snapshot));
        Versions { node: found.filter(|node| node.key() == key) }
    }

    /// Whether the filter admits a key with this [`hash_key`]. One cache miss.
    #[inline]
    pub fn may_contain(&self, key_hash: u64) -> bool {
        self.filter.may_contain(key_hash)
    }

    /// The newest range delete at or below `snapshot` that covers `key`. O(log^3 n), and, for each range delete
    /// inserted since the last lookup, amortised O(log^2 n).
    #[inline]
    pub fn covering_range_delete(&self, key: &[u8], snapshot: SequenceNumber) -> Option<SequenceNumber> {
        self.range_deletes.sets().covering(key, snapshot)
    }

    /// The range deletes, ready for lookups, in O(log n) sets. Those inserted since the last lookup cost as much as in
    /// [`Memtable::covering_range_delete`].
    pub fn range_delete_sets(&self) -> Arc<RangeDeleteSets> {
        Arc::clone(&self.range_deletes.sets())
    }

    /// The range deletes in one set, for a reader of all of them. O(n log n) on the first call after a change.
    pub fn range_deletes(&self) -> Arc<RangeDeleteSet> {
        self.range_deletes.one_set()
    }

    /// Whether there are range deletes: one atomic load.
    #[inline]
    pub fn has_range_deletes(&self) -> bool {
        self.range_deletes.count() != 0
    }

    /// The range deletes as they were inserted, in that order.
    pub fn range_delete_list(&self) -> Vec<RangeDelete> {
        self.range_deletes.all.lock().clone()
    }

    /// Bytes of memory held: chunks (whole), filter, nodes inserted last, and range deletes.
    pub fn memory_usage(&self) -> usize {
        self.list.bytes() + self.filter.bytes() + self.recent.bytes() + self.range_deletes.bytes.load(Ordering::Relaxed)
    }

    /// Entries inserted, range deletes not included.
    #[inline]
    pub fn entry_count(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Whether nothing was inserted, neither an entry nor a range delete.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entry_count() == 0 && !self.has_range_deletes()
    }

    /// The smallest and the largest sequence number, range deletes included; `None` if empty. A read at a snapshot
    /// below the smallest can skip this memtable.
    #[inline]
    pub fn sequence_range(&self) -> Option<(SequenceNumber, SequenceNumber)> {
        let min = self.min_sequence.load(Ordering::Relaxed);
        (min != u64::MAX).then(|| (min, self.max_sequence.load(Ordering::Relaxed).max(min)))
    }

    /// The marks of all entries together ([`MemtableWriter::insert_marked`]). Who sees an entry sees its marks.
    #[inline]
    pub fn marks(&self) -> u64 {
        self.marks.load(Ordering::Relaxed)
    }

    /// The smallest key of an entry; range deletes do not count.
    pub fn first_key(&self) -> Option<&[u8]> {
        self.list.first().map(NodeRef::key)
    }

    /// The largest key of an entry; range deletes do not count. O(log n).
    pub fn last_key(&self) -> Option<&[u8]> {
        self.list.last().map(NodeRef::key)
    }

    /// Keys of entries, ascending, with about as many entries from one to the next: about `count` of them, or some
    /// times as many; all, if there are no more. Range deletes do not count. O(keys).
    pub fn sample_keys(&self, count: usize) -> impl Iterator<Item = &[u8]> {
        let (entries, count) = (self.entry_count(), count.max(1) as u64);
        // Level 0 has all, each one above half of those below.
        let level = (entries / count).checked_ilog2().unwrap_or_default().saturating_sub(1);
        let level = if entries < 4 * count { 0 } else { level as usize };
        self.list.of_level(level).map(NodeRef::key)
    }

    /// Entries inserted: whoever sees one that is counted sees it linked.
    pub(crate) fn published_count(&self) -> u64 {
        self.entries.load(Ordering::Acquire)
    }

    pub(crate) fn recent_nodes(&self) -> &Recent {
        &self.recent
    }

    pub(crate) fn list(&self) -> &Skiplist {
        &self.list
    }

    /// Adds marks; for the writer only.
    #[inline]
    fn note_marks(&self, marks: u64) {
        let known = self.marks.load(Ordering::Relaxed);
        if known | marks != known {
            self.marks.store(known | marks, Ordering::Relaxed);
        }
    }

    /// Widens the sequence range; for the writer only.
    #[inline]
    fn note_sequence(&self, sequence: SequenceNumber) {
        if sequence < self.min_sequence.load(Ordering::Relaxed) {
            self.min_sequence.store(sequence, Ordering::Relaxed);
        }
        let max = self.max_sequence.load(Ordering::Relaxed);
        if sequence > max {
            self.max_sequence.store(sequence, Ordering::Relaxed);
        } else if sequence < max {
            self.recent.note_disorder();
        }
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable")
            .field("entries", &self.entry_count())
            .field("range_deletes", &self.range_deletes.count())
            .field("sequence_range", &self.sequence_range())
            .field("memory_usage", &self.memory_usage())
            .finish()
    }
}

/// Inserts into its memtable. There is one for each, and inserting needs `&mut`: that makes it the only writer.
pub struct MemtableWriter {
    memtable: Arc<Memtable>,
    inserter: Inserter,
}

impl MemtableWriter {
    /// Inserts an entry. Readers may find it from now on, before the call returns even.
    ///
    /// O(log n); O(1) right after the entry inserted last. No two entries may have the same key and trailer.
    ///
    /// # Panics
    /// If the key or value is longer than [`MAX_KEY_LEN`] and [`MAX_VALUE_LEN`]. (Callers check where input enters.)
    #[inline]
    pub fn insert(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        self.insert_marked(key, trailer, value, u64::MAX);
    }

    /// As [`MemtableWriter::insert`], of an entry with these marks: bits that mean what the caller wants them to. Other
    /// entries have all of them.
    ///
    /// # Panics
    /// As that.
    #[inline]
    pub fn insert_marked(&mut self, key: &[u8], trailer: Trailer, value: &[u8], marks: u64) {
        assert!(key.len() <= MAX_KEY_LEN && value.len() <= MAX_VALUE_LEN, "entry exceeds the limits");
        let memtable = &*self.memtable;
        let hash = hash_key(key);
        memtable.filter.prefetch(hash);
        // SAFETY: list and inserter were made together; `seek` comes right before `insert_here`, with the same entry.
        let node = unsafe {
            self.inserter.seek(&memtable.list, key, trailer);
            memtable.filter.insert(hash);
            memtable.note_sequence(trailer.sequence());
            memtable.note_marks(marks);
            self.inserter.insert_here(&memtable.list, key, trailer, value)
        };
        let number = memtable.entries.load(Ordering::Relaxed);
        memtable.recent.keep(number, node);
        memtable.entries.store(number + 1, Ordering::Release);
    }

    /// Inserts a range delete. One that covers nothing (`start >= end`) is kept, too, but changes nothing.
    pub fn insert_range_delete(&mut self, delete: RangeDelete) {
        self.memtable.note_sequence(delete.sequence);
        self.memtable.note_marks(u64::MAX);
        self.memtable.range_deletes.push(delete);
    }

    /// The memtable written to.
    pub fn memtable(&self) -> &Arc<Memtable> {
        &self.memtable
    }
}

impl fmt::Debug for MemtableWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemtableWriter").field(&self.memtable).finish()
    }
}

/// The versions of one key, newest first: sequence number with operation, and value.
pub struct Versions<'a> {
    node: Option<NodeRef<'a>>,
}

impl<'a> Iterator for Versions<'a> {
    type Item = (Trailer, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let node = self.node?;
        self.node = node.next().filter(|next| next.same_key(node));
        Some((node.trailer(), node.value()))
    }
}

impl std::iter::FusedIterator for Versions<'_> {}

/// The range deletes, and what is ready for lookups of the first so many of them.
struct RangeDeletes {
    all: Mutex<Vec<RangeDelete>>,
    count: AtomicUsize,
    bytes: AtomicUsize,
    /// Stored with `all` locked, so that their count never falls.
    sets: ArcSwap<RangeDeleteSets>,
}

impl RangeDeletes {
    fn new() -> Self {
        Self {
            all: Mutex::new(Vec::new()),
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            sets: ArcSwap::from_pointee(RangeDeleteSets::default()),
        }
    }

    #[inline]
    fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    fn push(&self, delete: RangeDelete) {
        let mut all = self.all.lock();
        // Twice: once as given, once in the fragments, and there its sequence number in as many nodes as it may take.
        let nodes = 2 * (usize::BITS - all.len().leading_zeros()) as usize;
        let bytes = 2 * (size_of::<RangeDelete>() + delete.start.len() + delete.end.len());
        self.bytes.fetch_add(bytes + nodes * size_of::<SequenceNumber>(), Ordering::Relaxed);
        all.push(delete);
        self.count.store(all.len(), Ordering::Release);
    }

    /// Includes at least what was pushed before the call.
    #[inline]
    fn sets(&self) -> Guard<Arc<RangeDeleteSets>> {
        let count = self.count();
        let current = self.sets.load();
        if current.count() >= count {
            return current;
        }
        self.change_sets(RangeDeleteSets::grow);
        self.sets.load()
    }

    /// As [`RangeDeletes::sets`], all in the first.
    fn one_set(&self) -> Arc<RangeDeleteSet> {
        if self.sets().iter().len() > 1 {
            self.change_sets(|sets, all| *sets = RangeDeleteSets::single(all));
        }
        self.sets().iter().next().cloned().unwrap_or_default()
    }

    #[cold]
    fn change_sets(&self, change: impl FnOnce(&mut RangeDeleteSets, &[RangeDelete])) {
        let all = self.all.lock();
        let mut sets = RangeDeleteSets::clone(&self.sets.load());
        change(&mut sets, &all[..]);
        self.sets.store(Arc::new(sets));
    }
}

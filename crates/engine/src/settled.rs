//! Up to where scans take a memtable for settled, so that what it changes in blocks below is found out once for many of
//! them (`block_scan::deltas`).
//!
//! 1. A scan that finds a memtable of more than [`FEW`] entries, of which the scan before saw all but few, settles it:
//!    what its snapshot sees is the same for all younger snapshots.
//! 2. Scans that follow take this part for settled, and merge what was inserted since, as long as that is little.
//!    Then they settle it anew.
//!
//! Only the oldest memtable that a scan reads is: what is settled must be older than what is not.

use mycelium_base::SequenceNumber;
use mycelium_memtable::Memtable;

use crate::sync::Mutex;

/// Entries that are merged by each scan rather than settled.
const FEW: u64 = 8192;

/// Of a table. Shared by all threads; the lock is held for no longer than a look at what was inserted last takes.
#[derive(Default)]
pub(crate) struct SettledMemtable(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// The first sequence number of the memtable, by which it is known.
    first: SequenceNumber,
    /// The entries that the last scan found.
    count: u64,
    settled: Option<Settled>,
}

/// A part of a memtable that does not change any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Settled {
    /// The first sequence number of the memtable.
    pub(crate) first: SequenceNumber,
    /// The part is what this snapshot sees of it.
    pub(crate) snapshot: SequenceNumber,
    /// Which is so many entries, in the order in which they were inserted.
    pub(crate) count: u64,
}

impl SettledMemtable {
    /// The settled part of a memtable for a scan at a snapshot, if there is one.
    pub(crate) fn part_of(&self, memtable: &Memtable, snapshot: SequenceNumber) -> Option<Settled> {
        let (first, _) = memtable.sequence_range()?;
        let count = memtable.entry_count();
        let mut seen = self.0.lock();
        if seen.first != first {
            *seen = Seen { first, ..Seen::default() };
        }
        let last_count = std::mem::replace(&mut seen.count, count);
        if let Some(settled) = seen.settled {
            let is_usable = settled.snapshot <= snapshot && count.saturating_sub(settled.count) <= FEW;
            if is_usable || settled.snapshot > snapshot {
                return is_usable.then_some(settled);
            }
        }
        if count <= FEW || last_count == 0 || count.saturating_sub(last_count) > FEW {
            return None;
        }
        let settled = Settled { first, snapshot, count: memtable.count_at(snapshot)? };
        seen.settled = Some(settled);
        Some(settled)
    }
}

#[cfg(test)]
mod tests {
    use mycelium_base::{Operation, Trailer};
    use mycelium_memtable::MemtableOptions;

    use super::*;

    #[test]
    fn a_memtable_is_settled_when_a_scan_finds_little_that_the_last_did_not() {
        let (mut writer, memtable) = Memtable::new(MemtableOptions { filter_bytes: 0 });
        let mut sequence = 0_u64;
        let mut insert = |count: u64| {
            for _ in 0..count {
                sequence += 1;
                writer.insert(&(sequence * 7919 % 65_536).to_be_bytes(), Trailer::new(sequence, Operation::Put), b"");
            }
            sequence
        };
        let settled = SettledMemtable::default();
        let part_of = |snapshot| settled.part_of(&memtable, snapshot).map(|part| (part.snapshot, part.count));
        let now = insert(FEW);
        assert_eq!((part_of(now), part_of(now)), (None, None), "few");
        let now = insert(2 * FEW);
        assert_eq!(part_of(now), None, "all of it is new to this scan");
        assert_eq!(part_of(now - 10), Some((now - 10, now - 10)), "and not to the next");
        assert_eq!(part_of(now - 11), None, "to which part of it is not there");
        assert_eq!(part_of(now), Some((now - 10, now - 10)));
        let now = insert(FEW - 10);
        assert_eq!(part_of(now), Some((now - FEW, now - FEW)));
        let now = insert(1);
        assert_eq!(part_of(now), Some((now, now)), "too much came since");
        let now = insert(FEW + 1);
        assert_eq!(part_of(now), None);
    }
}

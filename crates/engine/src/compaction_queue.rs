//! Which tables have a compaction that can start, the most urgent first.
//!
//! A table's entry is what its policy said when it was asked last. It is asked again when its table has changed, and
//! when a compaction is taken from it; so the queue is as a walk through all tables would find it, and costs O(log
//! tables) for each that changed.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use mycelium_base::TableId;

/// See the module.
#[derive(Default)]
pub(crate) struct CompactionQueue {
    due: BTreeSet<(Urgency, TableId)>,
    urgencies: BTreeMap<TableId, Urgency>,
    /// Tables with a compaction for times of rest.
    at_rest: BTreeSet<TableId>,
}

/// The score of a plan.
#[derive(Clone, Copy, Debug)]
struct Urgency(f64);

impl Ord for Urgency {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Urgency {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Urgency {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Urgency {}

/// What the policy of a table says.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Prospects {
    /// The score of the compaction that is due, if one is.
    pub(crate) due: Option<f64>,
    /// Whether there is one for times of rest.
    pub(crate) at_rest: bool,
}

impl CompactionQueue {
    /// Forgets what was known of a table, and puts it where it belongs now.
    pub(crate) fn set(&mut self, id: TableId, prospects: Prospects) {
        if let Some(urgency) = self.urgencies.remove(&id) {
            self.due.remove(&(urgency, id));
        }
        self.at_rest.remove(&id);
        if let Some(urgency) = prospects.due.map(Urgency) {
            self.urgencies.insert(id, urgency);
            self.due.insert((urgency, id));
        }
        if prospects.at_rest {
            self.at_rest.insert(id);
        }
    }

    /// The tables in which a compaction is due: the most urgent first, and of equals the one that was made last.
    pub(crate) fn due(&self) -> impl Iterator<Item = TableId> {
        self.due.iter().rev().map(|(_, id)| *id)
    }

    /// The tables with a compaction for times of rest, ascending.
    pub(crate) fn at_rest(&self) -> impl Iterator<Item = TableId> {
        self.at_rest.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(queue: &CompactionQueue) -> Vec<u32> {
        queue.due().map(|id| id.0).collect()
    }

    #[test]
    fn the_most_urgent_comes_first_and_of_equals_the_last() {
        let mut queue = CompactionQueue::default();
        let set = |queue: &mut CompactionQueue, id: u32, due: Option<f64>| {
            queue.set(TableId(id), Prospects { due, at_rest: due.is_none() });
        };
        for (id, score) in [(0, 1.0), (1, 3.5), (2, 1.0), (3, 1.25), (4, 2.0)] {
            set(&mut queue, id, Some(score));
        }
        assert_eq!(due(&queue), [1, 4, 3, 2, 0]);
        set(&mut queue, 1, None);
        set(&mut queue, 0, Some(9.0));
        assert_eq!(due(&queue), [0, 4, 3, 2]);
        assert_eq!(queue.at_rest().collect::<Vec<_>>(), [TableId(1)]);
        (0..5).for_each(|id| queue.set(TableId(id), Prospects::default()));
        assert_eq!((due(&queue), queue.at_rest().count()), (vec![], 0));
    }
}

//! Makes a failing history short.
//!
//! 1. Take out runs of actions, half of the history at first, keeping each removal that leaves the history failing.
//! 2. When no run of a length can go, halve the length; stop after single actions.
//! 3. Take single writes out of the batches that are left in the same way.

use crate::operations::Action;

/// A part of `history` for which `fails` still holds and from which no single action or write can be taken. Needs `fails`
/// to be deterministic and to hold for the whole; calls it O(n log n) times, or more where little can go.
pub fn shrink(history: &[Action], mut fails: impl FnMut(&[Action]) -> bool) -> Vec<Action> {
    let mut history = remove_runs(history.to_vec(), &mut fails);
    for index in 0..history.len() {
        let Action::Write(batch, durability) = &history[index] else { continue };
        let durability = *durability;
        let batch = remove_runs(batch.clone(), &mut |part| {
            let mut changed = history.clone();
            changed[index] = Action::Write(part.to_vec(), durability);
            fails(&changed)
        });
        history[index] = Action::Write(batch, durability);
    }
    history
}

fn remove_runs<T: Clone>(mut items: Vec<T>, fails: &mut dyn FnMut(&[T]) -> bool) -> Vec<T> {
    let mut len = items.len() / 2;
    while len > 0 {
        let mut removed = false;
        let mut start = 0;
        while start < items.len() {
            let end = (start + len).min(items.len());
            let rest = [&items[..start], &items[end..]].concat();
            if fails(&rest) {
                items = rest;
                removed = true;
            } else {
                start = end;
            }
        }
        if !removed || len > 1 {
            len /= 2;
        }
    }
    items
}

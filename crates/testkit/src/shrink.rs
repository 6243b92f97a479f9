//! Makes a failing history short.
//!
//! 1. Take out runs of actions, half of the history at first, keeping each removal that leaves the history failing.
//! 2. When no run of a length can go, halve the length; stop after single actions.
//! 3. Take single writes, steps of transactions, moves and loaded rows out of the actions that are left in the same
//!    way.

use crate::operations::Action;

/// A part of `history` for which `fails` still holds and from which no single action or part of one can be taken. Needs
/// `fails` to be deterministic and to hold for the whole; calls it O(n log n) times, or more where little can go.
pub fn shrink(history: &[Action], mut fails: impl FnMut(&[Action]) -> bool) -> Vec<Action> {
    let mut history = remove_runs(history.to_vec(), &mut fails);
    for index in 0..history.len() {
        let shorter = match &history[index] {
            Action::Write(batch, durability) => {
                shorten(&history, index, batch, |batch| Action::Write(batch, *durability), &mut fails)
            }
            Action::Transact { steps, commit } => {
                shorten(&history, index, steps, |steps| Action::Transact { steps, commit: *commit }, &mut fails)
            }
            Action::Within { id, steps, reads } => {
                let build = |steps| Action::Within { id: *id, steps, reads: reads.clone() };
                shorten(&history, index, steps, build, &mut fails)
            }
            Action::GoOn { id, moves } => {
                shorten(&history, index, moves, |moves| Action::GoOn { id: *id, moves }, &mut fails)
            }
            Action::Ingest { table, rows } => {
                shorten(&history, index, rows, |rows| Action::Ingest { table: *table, rows }, &mut fails)
            }
            _ => continue,
        };
        history[index] = shorter;
    }
    history
}

/// The action at `index`, made of as few of its parts as still fail.
fn shorten<T: Clone>(
    history: &[Action],
    index: usize,
    parts: &[T],
    build: impl Fn(Vec<T>) -> Action,
    fails: &mut dyn FnMut(&[Action]) -> bool,
) -> Action {
    let left = remove_runs(parts.to_vec(), &mut |part: &[T]| {
        let mut changed = history.to_vec();
        changed[index] = build(part.to_vec());
        fails(&changed)
    });
    build(left)
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

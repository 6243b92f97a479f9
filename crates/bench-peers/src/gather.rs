//! Puts gathered for one commit of a B-tree.

use mycelium_bench::store::Pair;

const COMMIT: usize = 1000;

/// A put, or with `None` a delete.
pub(crate) type Change = (Vec<u8>, Option<Vec<u8>>);

#[derive(Default)]
pub(crate) struct Gathered(Vec<Change>);

impl Gathered {
    pub(crate) fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.0.push((key.to_vec(), value.map(<[u8]>::to_vec)));
    }

    pub(crate) fn add_all(&mut self, pairs: &[Pair<'_>]) {
        for (key, value) in pairs {
            self.add(key, Some(value));
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= COMMIT
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Change> {
        self.0.drain(..)
    }
}

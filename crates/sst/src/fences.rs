//! The fences of files that do not overlap, searched without touching the files.
//!
//! Whoever looks for a key in a run asks which file may hold it, in every run of a tree. With the fences where they
//! are, each step of a binary search would wait for memory three times: the file, what is known of it, the key. Here
//! they lie side by side as numbers, like the separators of an [index](crate::Index):
//!
//! 1. All fences begin with the same bytes, which the first and the last of them tell. A key that does not lies before
//!    all or behind all. The first eight of these bytes are compared as a number.
//! 2. A *head* is the eight bytes after these, as a big-endian number, zero-padded. Heads order as fences do, but may
//!    be equal.
//! 3. The heads of upper fences are searched. Only of files whose upper fence has the key's head the caller is asked,
//!    who compares whole keys; the same goes for the lower fence of the file found.
//!
//! Beside a file's heads lies what is looked at next of the file found: for lookups its [filters](crate::FileFilters),
//! so that one which these end touches nothing else of the file. A search touches as many lines as it takes steps.
//!
//! A lookup asks many lists of files, most of which are short: the files of level 0 are one each. The fences of these
//! lie one behind the other ([`FenceLists`]), so that the processor fetches the next while it looks at one. A long list
//! ([`FenceList`]) is made once, and shared by all who look for keys in its files, whatever other files there are.

use std::ops::{Deref, Range};
use std::sync::Arc;

use mycelium_base::key_prefix::{common_prefix, head};

use crate::reader::SstFile;

/// See the module; `T` is what is looked at next of a file. Thread-safe.
///
/// ```
/// use mycelium_sst::FenceLists;
///
/// let files = [("apple", "cherry"), ("fig", "grape")];
/// let colors = ["red", "purple"];
/// let mut fences = FenceLists::default();
/// fences.push(files.iter().zip(colors).map(|((smallest, largest), color)| (smallest.as_bytes(), largest.as_bytes(), color)));
/// let find = |key: &str| fences.lists().next()?.find(key.as_bytes(), |file| files[file].1 < key, |file| files[file].0 > key);
/// assert_eq!(find("banana"), Some((0, &"red")));
/// assert_eq!(find("date"), None);
/// assert_eq!(find("grape"), Some((1, &"purple")));
/// ```
#[derive(Debug)]
pub struct FenceLists<T> {
    lists: Vec<List<T>>,
    /// Of the files of short lists.
    gates: Vec<Gate<T>>,
}

#[derive(Debug)]
enum List<T> {
    Short {
        prefix: Prefix,
        /// Where its files end among those of all short lists.
        end: usize,
    },
    Long(Arc<FenceList<T>>),
}

/// The fences of a long list of files.
#[derive(Debug)]
pub struct FenceList<T> {
    prefix: Prefix,
    gates: Box<[Gate<T>]>,
}

impl<T> FenceList<T> {
    /// Of the smallest and the largest key of each file, ascending, each with what is looked at next.
    pub fn new<'k>(files: impl Iterator<Item = (&'k [u8], &'k [u8], T)> + Clone) -> Self {
        let (prefix, gates) = gates(files);
        Self { gates: gates.collect(), prefix }
    }
}

impl<T> Default for FenceLists<T> {
    fn default() -> Self {
        Self { lists: Vec::new(), gates: Vec::new() }
    }
}

/// What the fences of these files begin with, and the gates of each.
fn gates<'k, T>(
    files: impl Iterator<Item = (&'k [u8], &'k [u8], T)> + Clone,
) -> (Prefix, impl Iterator<Item = Gate<T>>) {
    let ends = files.clone().next().zip(files.clone().last());
    let prefix = ends.map_or(&[][..], |((first, ..), (_, last, _))| &first[..common_prefix(first, last)]);
    let head = |key: &[u8]| head(key.get(prefix.len()..).unwrap_or_default());
    let gate = move |(smallest, largest, next)| Gate { largest: head(largest), smallest: head(smallest), next };
    (Prefix::new(prefix), files.map(gate))
}

impl<T> FenceLists<T> {
    /// Adds a list, of the smallest and the largest key of each file, ascending, each with what is looked at next.
    pub fn push<'k>(&mut self, files: impl Iterator<Item = (&'k [u8], &'k [u8], T)> + Clone) {
        let (prefix, gates) = gates(files);
        self.gates.extend(gates);
        self.lists.push(List::Short { prefix, end: self.gates.len() });
    }

    /// Adds a list that is shared with others.
    pub fn push_long(&mut self, list: Arc<FenceList<T>>) {
        self.lists.push(List::Long(list));
    }

    /// The lists, in the order in which they were added.
    #[inline]
    pub fn lists(&self) -> impl Iterator<Item = Fences<'_, T>> {
        let mut start = 0;
        self.lists.iter().map(move |list| match list {
            List::Short { prefix, end } => {
                let gates = &self.gates[std::mem::replace(&mut start, *end)..*end];
                Fences { prefix, gates }
            }
            List::Long(list) => Fences { prefix: &list.prefix, gates: &list.gates },
        })
    }
}

/// Those of one list.
#[derive(Debug)]
pub struct Fences<'f, T> {
    prefix: &'f Prefix,
    gates: &'f [Gate<T>],
}

/// The heads of a file's fences, and what is looked at next.
#[derive(Debug)]
struct Gate<T> {
    largest: u64,
    smallest: u64,
    next: T,
}

/// What all fences begin with.
#[derive(Default, Debug)]
struct Prefix {
    /// Its head, and which bits of that are its own.
    head: u64,
    mask: u64,
    bytes: Box<[u8]>,
}

impl Prefix {
    fn new(bytes: &[u8]) -> Self {
        let mask = !u64::MAX.checked_shr(8 * bytes.len() as u32).unwrap_or(0);
        Self { head: head(bytes), mask, bytes: bytes.into() }
    }

    /// What follows it in a key that begins with it.
    #[inline]
    fn rest_of<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        if (head(key) ^ self.head) & self.mask != 0 {
            return None;
        }
        if self.bytes.len() <= 8 { key.get(self.bytes.len()..) } else { key.strip_prefix(&*self.bytes) }
    }
}

/// Where a key lies as far as its head says.
enum Place {
    /// Before the lower fence of the file with this number, behind all before it.
    Outside(usize),
    /// Behind all before the file with this number, and with this head.
    From(usize, u64),
}

impl<'f, T> Fences<'f, T> {
    /// The number of the file that may hold `key`, and what is looked at next of it. Where heads do not tell,
    /// `ends_before` says whether all that a file holds lies before the key, and `starts_after` whether all of it lies
    /// behind. O(log files).
    #[inline]
    pub fn find(
        &self,
        key: &[u8],
        ends_before: impl Fn(usize) -> bool,
        starts_after: impl Fn(usize) -> bool,
    ) -> Option<(usize, &'f T)> {
        let Place::From(at, head) = self.place(key, ends_before) else { return None };
        let Gate { smallest, next, .. } = self.gates.get(at)?;
        (*smallest < head || (*smallest == head && !starts_after(at))).then_some((at, next))
    }

    /// The number of the first file that does not lie before `key`; that of files if there is none. O(log files).
    #[inline]
    pub fn first_not_before(&self, key: &[u8], ends_before: impl Fn(usize) -> bool) -> usize {
        match self.place(key, ends_before) {
            Place::Outside(at) | Place::From(at, _) => at,
        }
    }

    #[inline]
    fn place(&self, key: &[u8], ends_before: impl Fn(usize) -> bool) -> Place {
        let Some(rest) = self.prefix.rest_of(key) else {
            let is_before = key < &*self.prefix.bytes;
            return Place::Outside(if is_before { 0 } else { self.gates.len() });
        };
        let head = head(rest);
        let at = self.gates.partition_point(|gate| gate.largest < head);
        match self.gates.get(at) {
            Some(gate) if gate.largest == head => Place::From(self.among_equals(at, head, ends_before), head),
            _ => Place::From(at, head),
        }
    }

    /// The first file from `at` on that does not lie before a key with this head. Heads of upper fences are equal from
    /// `at` on.
    #[cold]
    fn among_equals(&self, at: usize, head: u64, ends_before: impl Fn(usize) -> bool) -> usize {
        let equal = self.gates[at..].partition_point(|gate| gate.largest == head);
        let (mut low, mut high) = (at, at + equal);
        while low < high {
            let middle = low + (high - low) / 2;
            if ends_before(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Files that do not overlap, ascending, with their fences beside them: what cursors over a run share.
#[derive(Debug)]
pub struct SortedFiles {
    files: Vec<Arc<SstFile>>,
    prefix: Prefix,
    gates: Vec<Gate<()>>,
}

impl SortedFiles {
    #[inline]
    fn fences(&self) -> Fences<'_, ()> {
        Fences { prefix: &self.prefix, gates: &self.gates }
    }

    /// The file that may hold `key`, by its fences. O(log files).
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<&Arc<SstFile>> {
        let found =
            self.fences().find(key, |file| self.ends_before(file, key), |file| self.files[file].smallest() > key);
        found.map(|(file, ())| &self.files[file])
    }

    /// The first file of `part` that does not lie before `key`; its end if there is none. O(log files).
    #[inline]
    pub fn first_not_before(&self, key: &[u8], part: &Range<usize>) -> usize {
        let first = self.fences().first_not_before(key, |file| self.ends_before(file, key));
        first.clamp(part.start, part.end)
    }

    fn ends_before(&self, file: usize, key: &[u8]) -> bool {
        self.files[file].ends_before(key)
    }
}

impl Deref for SortedFiles {
    type Target = [Arc<SstFile>];

    fn deref(&self) -> &Self::Target {
        &self.files
    }
}

impl From<Vec<Arc<SstFile>>> for SortedFiles {
    fn from(files: Vec<Arc<SstFile>>) -> Self {
        let (prefix, gates) = gates(files.iter().map(|file| (file.smallest(), file.largest(), ())));
        let gates = gates.collect();
        Self { files, prefix, gates }
    }
}

impl<const N: usize> From<[Arc<SstFile>; N]> for SortedFiles {
    fn from(files: [Arc<SstFile>; N]) -> Self {
        Self::from(Vec::from(files))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Keys that often share their beginning, and more than eight bytes of it.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let beginnings = prop_oneof![Just(&b""[..]), Just(&b"shared"[..]), Just(&b"shared by many keys "[..])];
        let ends = proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(b'k'), Just(255)], 0..4);
        (beginnings, ends).prop_map(|(beginning, end)| [beginning, &end].concat())
    }

    proptest! {
        #[test]
        fn a_search_finds_what_comparing_whole_keys_finds(
            mut keys in proptest::collection::vec(key(), 0..40),
            asked in proptest::collection::vec(key(), 1..20),
        ) {
            keys.sort();
            // A file may begin with the key that the one before it ends with.
            let files: Vec<(&[u8], &[u8])> = keys.chunks_exact(2).map(|pair| (&*pair[0], &*pair[1])).collect();
            // Behind another list, and as one of its own.
            let numbered = files.iter().enumerate().map(|(at, &(smallest, largest))| (smallest, largest, at));
            let mut lists = FenceLists::default();
            lists.push([(&b"a"[..], &b"b"[..], 0)].into_iter());
            lists.push_long(Arc::new(FenceList::new(numbered.clone())));
            lists.push(numbered);
            let both: Vec<_> = lists.lists().skip(1).collect();
            let pairs = both.iter().flat_map(|fences| asked.iter().chain(&keys).map(move |key| (fences, key)));
            for (fences, key) in pairs {
                let key = key.as_slice();
                let first = files.iter().position(|(_, largest)| *largest >= key);
                prop_assert_eq!(fences.first_not_before(key, |file| files[file].1 < key), first.unwrap_or(files.len()));
                let found = first.filter(|&file| files[file].0 <= key);
                let asked = fences.find(key, |file| files[file].1 < key, |file| files[file].0 > key);
                prop_assert_eq!(asked, found.as_ref().map(|file| (*file, file)));
            }
        }

        #[test]
        fn an_upper_fence_that_lies_outside_its_file_ends_it(keys in proptest::collection::btree_set(key(), 2..20)) {
            let keys: Vec<Vec<u8>> = keys.into_iter().collect();
            let files: Vec<(&[u8], &[u8])> = keys.windows(2).map(|pair| (&*pair[0], &*pair[1])).collect();
            let mut lists = FenceLists::default();
            lists.push(files.iter().map(|&(smallest, largest)| (smallest, largest, ())));
            let fences = lists.lists().next().expect("a list");
            for (at, key) in keys[..files.len()].iter().enumerate() {
                let key = key.as_slice();
                let found = fences.find(key, |file| files[file].1 <= key, |file| files[file].0 > key);
                prop_assert_eq!(found, Some((at, &())));
            }
        }
    }
}

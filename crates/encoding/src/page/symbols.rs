//! The texts of a file that is being gathered: a symbol for each row.
//!
//! 1. A text that is pushed is looked for among those already seen (*interned*). After 2,048 texts, and at every
//!    doubling, it is guessed from how many of them came again how many different ones there are: were these drawn
//!    alike, n texts of D different ones have about n^2 / 2D that came before. Where a dictionary of so many would be
//!    too large, looking does not pay, and each text gets a symbol of its own from then on.
//! 2. A code of an input's dictionary is a symbol as it is, counted on from where the dictionary's symbols begin; the
//!    text is not touched (LSM-OPD §4.2.1). A bit for each tells which of them some row has: the texts *alive*.
//! 3. At the end the symbols alive are brought into the order of their texts: one merge of the inputs' dictionaries,
//!    which are sorted already, and of what was interned (algorithm 1, `STReIndex` and `UpdateOPD`). What no row has
//!    leaves.
//! 4. Each row's symbol is looked up in a table of the new codes (algorithm 1, `EVtable`): one load a row.
//!
//! Memory: 4 bytes a row, 8 a text of the inputs, and the inputs' dictionaries, which are let go when together they
//! exceed [`HELD_BYTES`]: what is alive of them is then interned as if it had been pushed.

use std::sync::Arc;

use mycelium_base::hash::hash_key;

use super::dictionary::Dictionary;

/// Where a row's text is: in a dictionary of the inputs, or among the texts pushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Symbol(u32);

/// Marks the symbols of texts that were pushed.
const PUSHED: u32 = 1 << 31;

impl Symbol {
    /// Of a row without a text, and of a code that its dictionary lacks.
    pub(super) const NONE: Self = Self(u32::MAX);

    fn pushed(place: u32) -> Self {
        Self(PUSHED | place)
    }
}

/// After so many texts it is first guessed how many different ones there are.
const TRIAL: usize = 2048;

/// Bytes of the largest dictionary: readers hold all of it. A file with more texts has them plain.
pub(super) const LARGEST_DICTIONARY: usize = 16 << 20;

/// Bytes of the inputs' dictionaries that one column of one file holds on to.
const HELD_BYTES: usize = 64 << 20;

/// Marks, among the lengths of the inputs' texts, those that some row has.
const ALIVE: u32 = 1 << 31;

#[derive(Debug)]
pub(super) struct Symbols {
    rows: Vec<Symbol>,
    pushed: Texts,
    /// Pushes up to now.
    push_count: usize,
    /// Place in `pushed` and one, or 0: open addressing by the hash of the text.
    slots: Vec<u32>,
    interns: bool,
    inputs: Vec<Input>,
    /// By symbol of the inputs: the length of its text, and whether it is alive.
    lens: Vec<u32>,
    /// Bytes of the inputs' texts that are alive.
    alive_bytes: usize,
    /// Bytes of all rows' texts.
    bytes: usize,
}

/// A dictionary of the inputs.
#[derive(Debug)]
struct Input {
    dictionary: Dictionary,
    /// The symbol of its first text.
    first: u32,
}

#[derive(Default, Debug)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    fn get(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[at]]
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn push(&mut self, text: &[u8]) -> u32 {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
        self.ends.len() as u32 - 1
    }
}

/// A text that some row has, ready to be ordered.
struct Living<'t> {
    /// The first bytes of the text: most comparisons need no more.
    prefix: u64,
    text: &'t [u8],
    /// Its place in the table of new codes.
    place: usize,
}

impl Symbols {
    pub(super) fn new(interns: bool) -> Self {
        Self {
            rows: Vec::new(),
            pushed: Texts::default(),
            push_count: 0,
            slots: Vec::new(),
            interns,
            inputs: Vec::new(),
            lens: Vec::new(),
            alive_bytes: 0,
            bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of all rows' texts.
    pub(super) fn text_bytes(&self) -> usize {
        self.bytes
    }

    /// Whether texts are still looked for, so that equal ones have equal symbols.
    pub(super) fn interns(&self) -> bool {
        self.interns
    }

    /// Bytes of distinct texts; those of two inputs count twice.
    pub(super) fn distinct_bytes(&self) -> usize {
        self.pushed.bytes.len() + self.alive_bytes
    }

    pub(super) fn memory_usage(&self) -> usize {
        size_of::<Symbol>() * self.rows.capacity()
            + self.pushed.bytes.capacity()
            + 8 * self.pushed.ends.capacity()
            + 4 * (self.slots.capacity() + self.lens.capacity())
            + self.held_bytes()
    }

    /// Bytes of the inputs' dictionaries.
    pub(super) fn held_bytes(&self) -> usize {
        self.inputs.iter().map(|input| input.dictionary.memory_usage()).sum()
    }

    /// The text of the next row.
    pub(super) fn push(&mut self, text: &[u8]) {
        let place = if self.interns { self.intern(text) } else { self.pushed.push(text) };
        self.rows.push(Symbol::pushed(place));
        self.bytes += text.len();
        self.push_count += 1;
        if self.interns && self.push_count >= TRIAL && self.push_count.is_power_of_two() && !self.fits() {
            self.interns = false;
            self.slots = Vec::new();
        }
    }

    /// Whether a dictionary of all different texts, as many as step 1 guesses, is one that readers can hold.
    fn fits(&self) -> bool {
        let (count, different) = (self.push_count as u64, self.pushed.len() as u64);
        let guessed = count * count / (2 * count.saturating_sub(different).max(1));
        let mean = self.pushed.bytes.len() as u64 / different.max(1);
        guessed.max(different) * (mean + 4) <= LARGEST_DICTIONARY as u64
    }

    /// A row without a text; what it has does not matter.
    pub(super) fn push_nothing(&mut self) {
        self.rows.push(self.rows.last().copied().unwrap_or(Symbol::NONE));
    }

    /// The next row's text is one of an input; its length, or `None` if there is no such text.
    #[inline]
    pub(super) fn push_symbol(&mut self, symbol: Symbol) -> Option<u32> {
        let marked = self.lens.get_mut(symbol.0 as usize)?;
        let len = *marked & !ALIVE;
        if *marked & ALIVE == 0 {
            *marked |= ALIVE;
            self.alive_bytes += len as usize;
        }
        self.bytes += len as usize;
        self.rows.push(symbol);
        Some(len)
    }

    /// The symbol of the first text of an input's dictionary; the others follow in the order of their codes. Each
    /// dictionary is walked through once, and refused where a text does not pass.
    pub(super) fn input(&mut self, dictionary: &Dictionary, passes: impl Fn(&[u8]) -> bool) -> Option<u32> {
        // The latest are asked for the most.
        if let Some(known) = self.inputs.iter().rev().find(|known| known.dictionary.is_same(dictionary)) {
            return Some(known.first);
        }
        if !dictionary.values().all(passes) {
            return None;
        }
        let first = self.lens.len() as u32;
        self.lens.extend(dictionary.values().map(|text| text.len() as u32));
        self.inputs.push(Input { dictionary: dictionary.clone(), first });
        Some(first)
    }

    /// The symbol of a code of the dictionary with this first symbol and so many texts.
    #[inline]
    pub(super) fn symbol(first: u32, len: u32, code: i64) -> Symbol {
        if (code as u64) < u64::from(len) { Symbol(first + code as u32) } else { Symbol::NONE }
    }

    /// Lets the inputs' dictionaries go if they take too much memory. Symbols that were not pushed yet are void then.
    pub(super) fn bound_memory(&mut self) {
        if self.held_bytes() > HELD_BYTES {
            self.let_go();
        }
    }

    /// What is alive of the inputs' dictionaries becomes as if it had been pushed.
    pub(super) fn let_go(&mut self) {
        if self.inputs.is_empty() {
            return;
        }
        let mut moved = vec![Symbol::NONE; self.lens.len()];
        for Input { dictionary, first } in std::mem::take(&mut self.inputs) {
            for (place, text) in (first as usize..).zip(dictionary.values()) {
                if self.lens[place] & ALIVE != 0 {
                    moved[place] = Symbol::pushed(self.intern(text));
                }
            }
        }
        for row in &mut self.rows {
            *row = moved.get(row.0 as usize).copied().unwrap_or(*row);
        }
        self.lens.clear();
        self.alive_bytes = 0;
    }

    fn intern(&mut self, text: &[u8]) -> u32 {
        if self.slots.len() <= 2 * self.pushed.len() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut at = hash_key(text) as usize & mask;
        loop {
            match self.slots[at] {
                0 => {
                    let code = self.pushed.push(text);
                    self.slots[at] = code + 1;
                    return code;
                }
                place if self.pushed.get(place as usize - 1) == text => return place - 1,
                _ => at = (at + 1) & mask,
            }
        }
    }

    fn grow(&mut self) {
        let len = (4 * self.pushed.len()).next_power_of_two().max(64);
        self.slots.clear();
        self.slots.resize(len, 0);
        for place in 0..self.pushed.len() {
            let mut at = hash_key(self.pushed.get(place)) as usize & (len - 1);
            while self.slots[at] != 0 {
                at = (at + 1) & (len - 1);
            }
            self.slots[at] = place as u32 + 1;
        }
    }

    /// The text of a row; of one without a text any that another has, or an empty one.
    pub(super) fn of_row(&self, row: usize) -> &[u8] {
        let Symbol(symbol) = self.rows[row];
        if symbol == Symbol::NONE.0 {
            return &[];
        }
        if symbol & PUSHED != 0 {
            return self.pushed.get((symbol & !PUSHED) as usize);
        }
        let after = self.inputs.partition_point(|input| input.first <= symbol);
        let input = after.checked_sub(1).and_then(|input| self.inputs.get(input));
        input.and_then(|input| input.dictionary.value(symbol - input.first)).unwrap_or_default()
    }

    /// Whether rows surely have more than so many texts, found without bringing them into order. O(rows) at most.
    pub(super) fn has_more_than(&self, limit: usize) -> bool {
        let alive_of = |input: &Input| {
            let of_input = &self.lens[input.first as usize..][..input.dictionary.len()];
            of_input.iter().filter(|&&len| len & ALIVE != 0).count()
        };
        if self.inputs.iter().any(|input| alive_of(input) > limit) {
            return true;
        }
        if self.interns || self.pushed.len() <= limit {
            return self.interns && self.pushed.len() > limit;
        }
        let texts = (0..self.pushed.len()).map(|place| hash_key(self.pushed.get(place)));
        has_more_distinct(texts, limit)
    }

    /// The texts alive, by symbol.
    fn living(&self) -> Vec<Living<'_>> {
        let mut living = Vec::with_capacity(self.pushed.len());
        let mut push = |text, place| living.push(Living { prefix: prefix(text), text, place });
        for input in &self.inputs {
            for (place, text) in (input.first as usize..).zip(input.dictionary.values()) {
                if self.lens[place] & ALIVE != 0 {
                    push(text, place);
                }
            }
        }
        (0..self.pushed.len()).for_each(|place| push(self.pushed.get(place), self.lens.len() + place));
        living
    }

    /// The texts that rows have, ascending, and of every row its place among them; rows without a text have any. `None`
    /// if they are too many for a dictionary, whose ends have 32 bits: it is not made then.
    pub(super) fn ordered(&self) -> Option<(Dictionary, Arc<[u32]>)> {
        let mut living = self.living();
        // The inputs' dictionaries are ascending runs, which this sort merges.
        living.sort_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| a.text.cmp(b.text)));
        let mut codes = vec![u32::MAX; self.lens.len() + self.pushed.len()];
        let mut distinct: Vec<&[u8]> = Vec::new();
        for Living { text, place, .. } in living {
            if distinct.last() != Some(&text) {
                distinct.push(text);
            }
            codes[place] = distinct.len() as u32 - 1;
        }
        if Dictionary::len_of(distinct.iter().copied()) > LARGEST_DICTIONARY {
            return None;
        }
        let dictionary = Dictionary::of(distinct.iter().copied());
        let last = dictionary.len().saturating_sub(1) as u32;
        let code_of = |&Symbol(symbol): &Symbol| {
            let place = if symbol & PUSHED == 0 { 0 } else { self.lens.len() } + (symbol & !PUSHED) as usize;
            codes.get(place).map_or(last, |&code| code.min(last))
        };
        let codes = self.rows.iter().map(code_of).collect();
        Some((dictionary, codes))
    }
}

/// The first eight bytes, big-endian, zeros behind them: if that of one text is less than another's, so is the text.
fn prefix(text: &[u8]) -> u64 {
    let mut padded = [0; 8];
    let len = text.len().min(8);
    padded[..len].copy_from_slice(&text[..len]);
    u64::from_be_bytes(padded)
}

/// Whether there are more than so many different hashes; looks at no more of them than it must.
fn has_more_distinct(hashes: impl Iterator<Item = u64>, limit: usize) -> bool {
    let mask = (2 * limit + 2).next_power_of_two() - 1;
    let mut seen = vec![0_u64; mask + 1];
    let mut count = 0;
    for hash in hashes {
        // 0 is an empty place.
        let hash = hash.max(1);
        let mut at = hash as usize & mask;
        while seen[at] != 0 && seen[at] != hash {
            at = (at + 1) & mask;
        }
        count += usize::from(seen[at] == 0);
        if count > limit {
            return true;
        }
        seen[at] = hash;
    }
    false
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn texts_from_everywhere_are_ordered_and_counted() {
        for seed in 0..200 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let text = |number: u32| format!("{}text {number}", "x".repeat(number as usize % 12)).into_bytes();
            let (mut symbols, mut expected) = (Symbols::new(rng.random_bool(0.7)), Vec::new());
            for _ in 0..rng.random_range(1..4) {
                let from = rng.random_range(0..60);
                let values: BTreeSet<Vec<u8>> = (from..from + rng.random_range(1..40)).map(text).collect();
                let dictionary = Dictionary::of(values.iter().map(Vec::as_slice));
                let first = symbols.input(&dictionary, |_| true).unwrap();
                assert_eq!(symbols.input(&dictionary, |_| true), Some(first));
                for _ in 0..rng.random_range(0..60) {
                    let code = rng.random_range(0..dictionary.len() as u32);
                    let (value, len) = (dictionary.value(code).unwrap(), dictionary.len() as u32);
                    match rng.random_range(0..4) {
                        0 => symbols.push(value),
                        _ => {
                            let pushed = symbols.push_symbol(Symbols::symbol(first, len, i64::from(code)));
                            assert_eq!(pushed, Some(value.len() as u32));
                        }
                    }
                    expected.push(value.to_vec());
                }
                assert_eq!(symbols.push_symbol(Symbols::symbol(first, 0, 0)), None);
                if rng.random_bool(0.3) {
                    symbols.let_go();
                    assert_eq!(symbols.held_bytes(), 0);
                }
            }
            let distinct: BTreeSet<&[u8]> = expected.iter().map(Vec::as_slice).collect();
            assert!(!symbols.has_more_than(distinct.len()), "seed {seed}");
            if symbols.inputs.is_empty() && !distinct.is_empty() {
                assert!(symbols.has_more_than(distinct.len() - 1), "seed {seed}");
            }
            let (dictionary, codes) = symbols.ordered().unwrap();
            assert!(dictionary.values().eq(distinct.iter().copied()), "seed {seed}");
            for (row, text) in expected.iter().enumerate() {
                assert_eq!(dictionary.value(codes[row]), Some(text.as_slice()), "seed {seed}, row {row}");
                assert_eq!(symbols.of_row(row), text.as_slice(), "seed {seed}, row {row}");
            }
            assert_eq!(symbols.text_bytes(), expected.iter().map(Vec::len).sum::<usize>());
        }
    }

    /// It was made, and let go: beyond 4 GiB its ends ran over.
    #[test]
    fn texts_that_are_too_many_for_a_dictionary_are_not_made_one() {
        let mut symbols = Symbols::new(true);
        for at in 0..4 {
            symbols.push(&vec![at; LARGEST_DICTIONARY / 4 - 8]);
            assert!(symbols.ordered().is_some(), "{at}");
        }
        // With its end it takes the last bytes that there are.
        symbols.push(&[4; 8]);
        assert!(symbols.ordered().is_some());
        symbols.push(&[5]);
        assert!(symbols.ordered().is_none());
    }

    #[test]
    fn a_dictionary_with_a_text_that_does_not_pass_is_refused() {
        let dictionary = Dictionary::of([&b"a"[..], b"\xff"].into_iter());
        assert_eq!(Symbols::new(true).input(&dictionary, |text| std::str::from_utf8(text).is_ok()), None);
    }
}

//! The texts of a file that is being gathered: a symbol for each row.
//!
//! 1. A text that is pushed is looked for among those already seen (*interned*), unless most of the first ones were new: then
//!    looking does not pay, and each gets a symbol of its own.
//! 2. A cell of a page with codes becomes the pair of its dictionary and its code; the text is not touched (LSM-OPD §4.2.1).
//! 3. At the end the symbols that some row has are brought into the order of their texts: one merge of the inputs'
//!    dictionaries, which are sorted already, and of what was interned. What no row has leaves (algorithm 1, `STReIndex`).

use std::sync::Arc;

use mycelium_base::hash::hash_key;

use super::dictionary::Dictionary;

/// Where a row's text is: in a dictionary of the inputs, or among the texts pushed, which come as the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Symbol {
    source: u32,
    code: u32,
}

const PUSHED: u32 = 0;

/// After so many texts it is seen whether they repeat.
const TRIAL: usize = 2048;

#[derive(Debug)]
pub(super) struct Symbols {
    rows: Vec<Symbol>,
    pushed: Texts,
    /// Place in `pushed` and one, or 0: open addressing by the hash of the text.
    slots: Vec<u32>,
    interns: bool,
    inputs: Vec<Dictionary>,
    /// Bytes of all rows' texts.
    bytes: usize,
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

    fn push(&mut self, text: &[u8]) -> u32 {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
        self.ends.len() as u32 - 1
    }
}

impl Symbols {
    pub(super) fn new(interns: bool) -> Self {
        Self { rows: Vec::new(), pushed: Texts::default(), slots: Vec::new(), interns, inputs: Vec::new(), bytes: 0 }
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

    /// Bytes of distinct texts pushed.
    pub(super) fn distinct_bytes(&self) -> usize {
        self.pushed.bytes.len()
    }

    pub(super) fn memory_usage(&self) -> usize {
        size_of::<Symbol>() * self.rows.capacity()
            + self.pushed.bytes.capacity()
            + 8 * self.pushed.ends.capacity()
            + 4 * self.slots.capacity()
    }

    /// The text of the next row.
    pub(super) fn push(&mut self, text: &[u8]) {
        let code = if self.interns { self.intern(text) } else { self.pushed.push(text) };
        self.rows.push(Symbol { source: PUSHED, code });
        self.bytes += text.len();
        if self.rows.len() == TRIAL && self.pushed.ends.len() > TRIAL / 2 {
            self.interns = false;
            self.slots = Vec::new();
        }
    }

    /// A row without a text; what it has does not matter.
    pub(super) fn push_nothing(&mut self) {
        let symbol =
            self.rows.last().copied().unwrap_or_else(|| Symbol { source: PUSHED, code: self.pushed.push(b"") });
        self.rows.push(symbol);
    }

    /// The next row's text is one of a dictionary, which [`Symbols::input`] knows.
    pub(super) fn push_code(&mut self, source: u32, code: u32, len: usize) {
        self.rows.push(Symbol { source, code });
        self.bytes += len;
    }

    /// How a dictionary of the inputs is called.
    pub(super) fn input(&mut self, dictionary: &Dictionary) -> u32 {
        let known = self.inputs.iter().position(|known| known.is_same(dictionary));
        known.unwrap_or_else(|| {
            self.inputs.push(dictionary.clone());
            self.inputs.len() - 1
        }) as u32
            + 1
    }

    fn intern(&mut self, text: &[u8]) -> u32 {
        if self.slots.len() <= 2 * self.pushed.ends.len() {
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
        let len = (4 * self.pushed.ends.len()).next_power_of_two().max(64);
        self.slots.clear();
        self.slots.resize(len, 0);
        for place in 0..self.pushed.ends.len() {
            let mut at = hash_key(self.pushed.get(place)) as usize & (len - 1);
            while self.slots[at] != 0 {
                at = (at + 1) & (len - 1);
            }
            self.slots[at] = place as u32 + 1;
        }
    }

    /// The text of a symbol.
    fn text(&self, symbol: Symbol) -> &[u8] {
        match symbol.source.checked_sub(1) {
            None => self.pushed.get(symbol.code as usize),
            Some(input) => self.inputs[input as usize].value(symbol.code).unwrap_or_default(),
        }
    }

    /// The text of a row.
    pub(super) fn of_row(&self, row: usize) -> &[u8] {
        self.text(self.rows[row])
    }

    /// The texts that rows have, ascending, and of every row its place among them. Rows that `has_text` does not name have none.
    pub(super) fn ordered(&self, has_text: impl Fn(usize) -> bool) -> (Dictionary, Arc<[u32]>) {
        let lens = std::iter::once(self.pushed.ends.len()).chain(self.inputs.iter().map(Dictionary::len));
        let mut places: Vec<Vec<u32>> = lens.map(|len| vec![u32::MAX; len]).collect();
        let mut used: Vec<Symbol> = Vec::new();
        for (row, &symbol) in self.rows.iter().enumerate() {
            let place = &mut places[symbol.source as usize][symbol.code as usize];
            if *place == u32::MAX && has_text(row) {
                *place = 0;
                used.push(symbol);
            }
        }
        // By source and code first: the inputs' dictionaries then are ascending runs, which the sort by text merges.
        used.sort_unstable_by_key(|symbol| (symbol.source, symbol.code));
        used.sort_by(|a, b| self.text(*a).cmp(self.text(*b)));
        let mut distinct: Vec<Symbol> = Vec::new();
        for &symbol in &used {
            if distinct.last().is_none_or(|&last| self.text(last) != self.text(symbol)) {
                distinct.push(symbol);
            }
            places[symbol.source as usize][symbol.code as usize] = distinct.len() as u32 - 1;
        }
        let dictionary = Dictionary::of(distinct.iter().map(|&symbol| self.text(symbol)));
        let last = dictionary.len().saturating_sub(1) as u32;
        let codes = self.rows.iter().map(|symbol| places[symbol.source as usize][symbol.code as usize].min(last));
        (dictionary, codes.collect())
    }
}

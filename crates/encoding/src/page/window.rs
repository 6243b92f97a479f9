//! Sixteen neighbouring integers of a page at once: with AVX2 where the processor has it, and in portable code that
//! gives the same.
//!
//! 1. Packed offsets come in groups of eight, which begin on a byte whatever the width. Of up to 56 bits, or of 64, two
//!    lie within sixteen bytes: a load, a shuffle that brings the eight bytes that hold an offset into its lane, a
//!    shift by lane, a mask.
//! 2. The line that offsets count from is `slope * row >> 16`, of 128 bits. With the slope as `whole * 65,536 +
//!    fraction` that is `whole * row + (fraction * row >> 16)`, of 64. The products of a row are those of the first row
//!    of its group and those of its lane, which are the same for all groups.
//! 3. What the lanes have in common is found out once a page, and only after some windows: a single one costs less
//!    without.

use std::array;
use std::ops::Range;

use super::integers::{Integers, Kind, on_line};

/// Rows of a window.
pub(super) const ROWS: usize = 16;

/// A window begins at a multiple of so many.
pub(super) const GROUP: usize = 8;

/// Windows of a page that are read without the lanes.
const FEW: u32 = 3;

/// So many rows are read with the lanes from the first window on.
const MANY: usize = 64;

/// Shows `each` the integers of rows of a page of so many, some at a time.
pub(super) fn for_each_window(
    integers: Integers<'_>,
    page_rows: usize,
    rows: Range<usize>,
    mut each: impl FnMut(&[i64]),
) {
    let mut window = Window { integers, rows: page_rows, start: 0, values: [0; ROWS], moves: 0, lanes: None };
    if rows.len() >= MANY {
        window.lanes = window.find_lanes();
    }
    for start in (rows.start - rows.start % GROUP..rows.end).step_by(ROWS) {
        window.move_to(start, i64::MAX);
        each(&window.values[rows.start.saturating_sub(start)..(rows.end - start).min(ROWS)]);
    }
}

/// A window of one page, which is moved.
#[derive(Debug)]
pub(super) struct Window<'a> {
    integers: Integers<'a>,
    /// Rows of the page.
    rows: usize,
    /// The first row.
    start: usize,
    /// Behind the last row of the page the greatest integer that there is.
    values: [i64; ROWS],
    moves: u32,
    lanes: Option<simd::Lanes<'a>>,
}

impl<'a> Window<'a> {
    /// One that has the row, of so many.
    pub(super) fn new(integers: Integers<'a>, row: usize, rows: usize) -> Self {
        let start = row - row % GROUP;
        let mut window = Self { integers, rows, start, values: [0; ROWS], moves: 0, lanes: None };
        window.read_portably();
        window
    }

    /// The first row, a multiple of [`GROUP`].
    #[inline]
    pub(super) fn start(&self) -> usize {
        self.start
    }

    /// The row behind the last.
    #[inline]
    pub(super) fn end(&self) -> usize {
        self.start + ROWS
    }

    /// The integer of the row at this place of the window.
    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<i64> {
        self.values.get(place).copied()
    }

    /// That of the last row.
    #[inline]
    pub(super) fn last(&self) -> i64 {
        self.values[ROWS - 1]
    }

    /// How many of ascending integers are below a value, those first.
    #[inline]
    pub(super) fn below(&self, value: i64) -> usize {
        let before = if self.values[GROUP - 1] < value { GROUP } else { 0 };
        let group = &self.values[before..before + GROUP];
        before + group.iter().map(|&integer| usize::from(integer < value)).sum::<usize>()
    }

    /// Moves it to where it has the row, and at least a group of rows behind that; how many of its ascending integers
    /// are then below a value.
    #[inline]
    pub(super) fn move_to(&mut self, row: usize, value: i64) -> usize {
        self.start = row - row % GROUP;
        if let Some(lanes) = self.lanes.as_ref().filter(|lanes| self.start <= lanes.last_start()) {
            return lanes.read(self.start, &mut self.values, value);
        }
        self.read_portably();
        self.below(value)
    }

    #[inline(never)]
    fn read_portably(&mut self) {
        for group in 0..ROWS / GROUP {
            let integers = self.group(self.start + group * GROUP);
            self.values[group * GROUP..][..GROUP].copy_from_slice(&integers);
        }
        for at in self.rows.saturating_sub(self.start).min(ROWS)..ROWS {
            self.values[at] = i64::MAX;
        }
        self.moves += 1;
        if self.moves == FEW {
            self.lanes = self.find_lanes();
        }
    }

    fn find_lanes(&self) -> Option<simd::Lanes<'a>> {
        match &self.integers.kind {
            Kind::Packed(line) => simd::Lanes::new(line, 0, self.rows),
            Kind::Linear { line, slope } => simd::Lanes::new(line, *slope, self.rows),
            Kind::Constant(_) | Kind::Runs { .. } => None,
        }
    }

    /// Eight integers, the first of which is that of a multiple of eight; of rows that there are not, anything.
    fn group(&self, first: usize) -> [i64; GROUP] {
        match self.integers.kind {
            Kind::Packed(line) => line.map_eight(first, |_, integer| integer),
            Kind::Linear { line, slope } => {
                line.map_eight(first, |row, integer| integer.wrapping_add(on_line(slope, row)))
            }
            Kind::Constant(value) => [value; GROUP],
            Kind::Runs { .. } => array::from_fn(|at| self.integers.get((first + at).min(self.rows - 1))),
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod simd {
    use std::arch::x86_64::*;

    use super::{GROUP, ROWS};
    use crate::page::integers::{Line, SLOPE_BITS};
    use crate::page::kernels;

    /// Bytes of a load, in which two offsets lie.
    const LOAD: usize = 16;

    /// The offsets of a page, and what the lanes of all their groups have in common. The lanes of a group are in two
    /// halves, four in each.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Lanes<'a> {
        bits: &'a [u8],
        base: i64,
        width: usize,
        /// Where the last window begins that is within the rows and the bits.
        last_start: usize,
        /// Where a group's loads begin, a pair of lanes each.
        loads: [usize; GROUP / 2],
        shuffle: [__m256i; 2],
        shift: [__m256i; 2],
        mask: __m256i,
        /// The slope, and how much it gives a lane more than the first.
        whole: i64,
        fraction: i64,
        whole_of_lane: [__m256i; 2],
        fraction_of_lane: [__m256i; 2],
    }

    impl<'a> Lanes<'a> {
        /// Those of so many rows; `None` if not even one window is within them, or the processor lacks what they need.
        #[cold]
        pub(super) fn new(line: &Line<'a>, slope: i64, rows: usize) -> Option<Self> {
            let is_able = kernels::has_avx2() && is_x86_feature_detected!("popcnt");
            // The last load of a window's second group, from the first group's.
            let width = line.width as usize;
            let end = width + (GROUP - 2) * width / 8 + LOAD;
            let within = line.bits.len().checked_sub(end).filter(|_| is_able && width > 0)?;
            let last_start = (within / width * GROUP).min(rows.checked_sub(ROWS)?);
            // SAFETY: the processor has AVX2.
            Some(unsafe { Self::of(line, slope, last_start) })
        }

        /// Where the last window begins that can be read.
        #[inline]
        pub(super) fn last_start(&self) -> usize {
            self.last_start
        }

        #[target_feature(enable = "avx2")]
        fn of(line: &Line<'a>, slope: i64, last_start: usize) -> Self {
            let &Line { bits, base, width } = line;
            let (width, mask) = (width as usize, kernels::mask(width) as i64);
            let (whole, fraction) = (slope >> SLOPE_BITS, slope & ((1 << SLOPE_BITS) - 1));
            let loads: [usize; GROUP / 2] = std::array::from_fn(|pair| 2 * pair * width / 8);
            let (mut shuffle, mut shift) = ([[0_i8; 32]; 2], [[0_i64; 4]; 2]);
            let (mut whole_of_lane, mut fraction_of_lane) = ([[0_i64; 4]; 2], [[0_i64; 4]; 2]);
            for lane in 0..GROUP {
                let (half, place, bit) = (lane / 4, lane % 4, lane * width);
                shift[half][place] = (bit % 8) as i64;
                for byte in 0..8 {
                    shuffle[half][8 * place + byte] = (bit / 8 - loads[lane / 2] + byte) as i8;
                }
                whole_of_lane[half][place] = whole.wrapping_mul(lane as i64);
                fraction_of_lane[half][place] = fraction * lane as i64;
            }
            Self {
                bits,
                base,
                width,
                last_start,
                loads,
                shuffle: shuffle.map(|bytes| vector_of(&bytes)),
                shift: shift.map(|lanes| vector_of(&lanes)),
                mask: _mm256_set1_epi64x(mask),
                whole,
                fraction,
                whole_of_lane: whole_of_lane.map(|lanes| vector_of(&lanes)),
                fraction_of_lane: fraction_of_lane.map(|lanes| vector_of(&lanes)),
            }
        }

        /// Makes `window` the integers of the rows from `start` on, a multiple of eight that is at most the
        /// [last](Self::last_start); how many of them are below a value.
        #[inline]
        pub(super) fn read(&self, start: usize, window: &mut [i64; ROWS], value: i64) -> usize {
            assert!(start <= self.last_start);
            // SAFETY: there are lanes only if the processor has what they need; the window is within the bits.
            unsafe { self.read_within(start, window, value) }
        }

        /// # Safety
        /// `start` is at most `last_start`: the last load of the window's last group ends within the bits.
        #[target_feature(enable = "avx2,popcnt")]
        unsafe fn read_within(&self, start: usize, window: &mut [i64; ROWS], value: i64) -> usize {
            let (value, mut below) = (_mm256_set1_epi64x(value), 0);
            for (group, integers) in window.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
                let row = start + group * GROUP;
                let at = row / GROUP * self.width;
                let whole = _mm256_set1_epi64x(self.base.wrapping_add(self.whole.wrapping_mul(row as i64)));
                let fraction = _mm256_set1_epi64x(self.fraction.wrapping_mul(row as i64));
                for half in 0..2 {
                    // SAFETY: the caller's.
                    let (low, high) = unsafe {
                        let load = |pair: usize| _mm_loadu_si128(self.bits.as_ptr().add(at + self.loads[pair]).cast());
                        (load(2 * half), load(2 * half + 1))
                    };
                    let words = _mm256_shuffle_epi8(_mm256_set_m128i(high, low), self.shuffle[half]);
                    let offsets = _mm256_and_si256(_mm256_srlv_epi64(words, self.shift[half]), self.mask);
                    let fraction = _mm256_add_epi64(fraction, self.fraction_of_lane[half]);
                    let line = _mm256_add_epi64(whole, self.whole_of_lane[half]);
                    let line = _mm256_add_epi64(line, _mm256_srli_epi64::<{ SLOPE_BITS as i32 }>(fraction));
                    let four = _mm256_add_epi64(line, offsets);
                    // SAFETY: four of eight integers; an unaligned store.
                    unsafe { _mm256_storeu_si256(integers.as_mut_ptr().add(4 * half).cast(), four) };
                    let are_below = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(value, four)));
                    below |= are_below << (GROUP * group + 4 * half);
                }
            }
            below.count_ones() as usize
        }
    }

    /// The bytes of these.
    #[target_feature(enable = "avx2")]
    fn vector_of<T: Copy, const N: usize>(lanes: &[T; N]) -> __m256i {
        const { assert!(size_of::<[T; N]>() == size_of::<__m256i>()) };
        // SAFETY: as many bytes, of integers; an unaligned load.
        unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod simd {
    use std::convert::Infallible;
    use std::marker::PhantomData;

    use crate::page::integers::Line;

    /// There are none.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Lanes<'a>(Infallible, PhantomData<&'a [u8]>);

    impl<'a> Lanes<'a> {
        pub(super) fn new(_line: &Line<'a>, _slope: i64, _rows: usize) -> Option<Self> {
            None
        }

        pub(super) fn last_start(&self) -> usize {
            match self.0 {}
        }

        pub(super) fn read(&self, _start: usize, _window: &mut [i64; super::ROWS], _value: i64) -> usize {
            match self.0 {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::page::integers::{Form, encode};

    /// All widths that pages have, above a base and above a line that rises or falls, up to the last rows.
    #[test]
    fn windows_are_the_integers_of_their_rows() {
        let mut rng = SmallRng::seed_from_u64(7);
        let mut forms = Vec::new();
        for bits in (0..=64).step_by(if cfg!(miri) { 16 } else { 1 }) {
            for slope in [0, 3, -70_000, i64::MAX / 300, i64::MIN / 300] {
                let rows = rng.random_range(1..150);
                let offset = |rng: &mut SmallRng| rng.random::<u64>().checked_shr(64 - bits).unwrap_or(0) as i64;
                let of_row = |row: i64| slope.wrapping_mul(row).wrapping_add(offset(&mut rng));
                let mut values: Vec<i64> = (0..rows).map(of_row).collect();
                forms.push(check(&values, &mut rng));
                values.sort_unstable();
                forms.push(check(&values, &mut rng));
            }
        }
        for form in [Form::Constant, Form::Packed, Form::Linear] {
            assert!(forms.contains(&form), "{form:?}");
        }
    }

    /// Moves a window over all of them, twice, for the lanes; which form they have.
    fn check(values: &[i64], rng: &mut SmallRng) -> Form {
        let mut bytes = Vec::new();
        encode(values, &mut bytes);
        let integers = Integers::parse(&bytes, values.len()).unwrap();
        let mut window = Window::new(integers, 0, values.len());
        for row in (0..values.len()).chain(0..values.len()) {
            let value = values[rng.random_range(0..values.len())].saturating_add(rng.random_range(-1..=1));
            let (below, start) = (window.move_to(row, value), row - row % GROUP);
            let of_row = |row: usize| values.get(row).copied().unwrap_or(i64::MAX);
            let expected: Vec<i64> = (start..start + ROWS).map(of_row).collect();
            assert_eq!(window.values, *expected, "row {row} of {values:?}");
            if values.is_sorted() {
                let expected = expected.iter().filter(|&&other| other < value).count();
                assert_eq!((below, window.below(value)), (expected, expected), "{value} at row {row} of {values:?}");
            }
        }
        integers.form()
    }
}

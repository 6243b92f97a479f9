//! Unpacking and comparing packed offsets: with AVX2 where the processor has it, and in portable code that gives the
//! same.
//!
//! Offsets of `width` bits lie one after the other, lowest bit first, so that eight of them fill `width` bytes and
//! every group of eight begins at a byte. For widths up to 25 a group is unpacked with two loads of 16 bytes, four
//! offsets each: a byte shuffle brings the four bytes that hold an offset into its lane, a shift by lane drops what
//! lies before it, a mask what lies behind. To be compared, those of up to nine bits are unpacked sixteen at a time:
//! two bytes hold an offset, a multiplication by lane takes the place of the shift. Offsets of 8, 16 and 32 bits are
//! compared as they are.
//!
//! A comparison asks whether `offset - least <= span`, unsigned: one range, whichever bounds it has.

use super::bitmap::Bitmap;

/// The offset at `index`; 0 past the end of the bits.
#[inline]
pub(crate) fn get(bits: &[u8], width: u32, index: usize) -> u64 {
    let at = index * width as usize;
    let (byte, shift) = (at / 8, at % 8);
    let word = match bits.get(byte..).and_then(|rest| rest.first_chunk::<8>()) {
        Some(&chunk) => u64::from_le_bytes(chunk),
        None => u64::from_le_bytes(padded(bits.get(byte..).unwrap_or_default())),
    };
    word >> shift & mask(width)
}

/// What `of` makes of each of eight indexes, the first of which is a multiple of eight, and its offset, 0 past the end
/// of the bits. They begin on a byte, whatever the width.
#[inline(always)]
pub(crate) fn map_eight<T>(bits: &[u8], width: u32, first: usize, of: impl Fn(usize, u64) -> T) -> [T; 8] {
    let rest = bits.get(first / 8 * width as usize..).unwrap_or_default();
    let near_end;
    let bytes = match rest.first_chunk() {
        Some(bytes) => bytes,
        None => {
            near_end = padded(rest);
            &near_end
        }
    };
    let mask = mask(width);
    std::array::from_fn(|index| {
        let at = index * width as usize;
        of(first + index, word_at(bytes, at / 8) >> (at % 8) & mask)
    })
}

/// As many bytes as eight offsets are in, and a word may reach beyond them.
const EIGHT: usize = 8 * 8 + 8;

/// The word at a byte, one of the first 64.
#[inline]
fn word_at(bytes: &[u8; EIGHT], byte: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[byte & 63..][..8]);
    u64::from_le_bytes(word)
}

/// The first of these bytes, which lie near the end, with zeros behind them.
#[cold]
fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut padded = [0; N];
    padded.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
    padded
}

#[inline]
pub(crate) fn mask(width: u32) -> u64 {
    u64::MAX.checked_shr(64 - width).unwrap_or(0)
}

/// Bytes of so many offsets.
pub(crate) fn packed_len(width: u32, count: usize) -> usize {
    (width as usize * count).div_ceil(8)
}

/// Appends offsets, packed; `width` is at most 56, or 64.
pub(crate) fn pack(offsets: impl Iterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    if width == 64 {
        offsets.for_each(|offset| out.extend_from_slice(&offset.to_le_bytes()));
        return;
    }
    let (mut word, mut filled) = (0_u64, 0);
    for offset in offsets {
        word |= offset << filled;
        filled += width;
        if filled >= u64::BITS {
            out.extend_from_slice(&word.to_le_bytes());
            filled -= u64::BITS;
            // What of the offset had no room.
            word = offset >> (width - filled);
        }
    }
    out.extend_from_slice(&word.to_le_bytes()[..filled.div_ceil(8) as usize]);
}

/// Appends the offsets from `start` on, `count` of them, of up to 32 bits.
pub(crate) fn unpack(bits: &[u8], width: u32, start: usize, count: usize, out: &mut Vec<u32>) {
    let first = out.len();
    out.resize(first + count, 0);
    let target = &mut out[first..];
    let within = |len: usize| bits.get(start * len..(start + count) * len);
    match width {
        0 => {}
        8 => within(1).into_iter().flatten().zip(target).for_each(|(&byte, out)| *out = u32::from(byte)),
        16 => {
            within(2).map_or(&[][..], |bytes| bytes.as_chunks::<2>().0).iter().zip(target).for_each(|(&chunk, out)| {
                *out = u32::from(u16::from_le_bytes(chunk));
            })
        }
        32 => {
            within(4).map_or(&[][..], |bytes| bytes.as_chunks::<4>().0).iter().zip(target).for_each(|(&chunk, out)| {
                *out = u32::from_le_bytes(chunk);
            })
        }
        _ => unpack_bits(bits, width, start, target),
    }
}

fn unpack_bits(bits: &[u8], width: u32, start: usize, out: &mut [u32]) {
    let head = (start.next_multiple_of(8) - start).min(out.len());
    let (before, rest) = out.split_at_mut(head);
    before.iter_mut().enumerate().for_each(|(at, out)| *out = get(bits, width, start + at) as u32);
    let first = start + head;
    let done = simd::unpack(bits, width, first, rest);
    let (last, rest) = (first + done, &mut rest[done..]);
    match bits.get(last / 8 * width as usize..) {
        Some(left) if left.len() <= TAIL => unpack_tail(left, width, rest),
        _ => rest.iter_mut().enumerate().for_each(|(at, out)| *out = get(bits, width, last + at) as u32),
    }
}

/// Bytes that are unpacked from a copy with zeros behind it, for a group loads more than its bytes: more than are left
/// where that would be past the end.
const TAIL: usize = 32;

fn unpack_tail(bits: &[u8], width: u32, out: &mut [u32]) {
    let mut padded = [0; 2 * TAIL];
    padded[..bits.len()].copy_from_slice(bits);
    let done = simd::unpack(&padded, width, 0, out);
    out.iter_mut().enumerate().skip(done).for_each(|(at, out)| *out = get(&padded, width, at) as u32);
}

/// Whether the processor has AVX2.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_avx2() -> bool {
    simd::is_available()
}

/// Which code compares packed offsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernel {
    /// What pages take: AVX2 where the processor has it, else the portable one.
    Fastest,
    /// The portable one.
    Portable,
}

impl Kernel {
    /// What it is on this machine.
    pub fn name(self) -> &'static str {
        if self == Self::Fastest && simd::is_available() { "AVX2" } else { "portable" }
    }

    /// Clears in `selection` the rows whose offset is not within `least..=least + span`. Offsets of up to 32 bits, one
    /// after the other, lowest bit first; those past the end of `bits` are 0.
    pub fn filter(self, bits: &[u8], width: u32, range: (u32, u32), selection: &mut Bitmap) {
        let rows = selection.len();
        match self {
            Self::Fastest => filter(bits, width, range, selection.words_mut(), rows),
            Self::Portable => filter_portable(bits, width, range, selection.words_mut(), 0..rows),
        }
    }
}

/// Clears in `selection`, a bit per row in words of 64, the rows whose offset is not within `least..=least + span`.
/// Offsets of up to 32 bits.
pub(crate) fn filter(bits: &[u8], width: u32, range: (u32, u32), selection: &mut [u64], rows: usize) {
    let words = &mut selection[..rows.div_ceil(64)];
    let done = simd::filter(bits, width, range, words);
    if let Some(last) = words[..done].last_mut().filter(|_| rows < 64 * done) {
        *last &= mask(rows as u32 % 64);
    }
    filter_portable(bits, width, range, selection, done * 64..rows);
}

fn filter_portable(
    bits: &[u8],
    width: u32,
    (least, span): (u32, u32),
    selection: &mut [u64],
    rows: std::ops::Range<usize>,
) {
    for (at, word) in selection.iter_mut().enumerate().skip(rows.start / 64) {
        let mut passed = 0;
        for bit in 0..64.min(rows.end.saturating_sub(at * 64)) {
            let offset = get(bits, width, at * 64 + bit) as u32;
            passed |= u64::from(offset.wrapping_sub(least) <= span) << bit;
        }
        *word &= passed;
    }
}

#[cfg(target_arch = "x86_64")]
mod simd {
    use std::arch::x86_64::*;

    /// The widest offsets that are unpacked here: with up to seven bits before them they fit four bytes.
    const MAX_SHUFFLED: u32 = 25;

    /// The widest offsets that fit two bytes with up to seven bits before them.
    const MAX_NARROW: u32 = 9;

    /// Unpacks groups of eight from `start`, which is a multiple of eight, on; how many offsets it did.
    pub(super) fn unpack(bits: &[u8], width: u32, start: usize, out: &mut [u32]) -> usize {
        if !(1..=MAX_SHUFFLED).contains(&width) || !is_available() {
            return 0;
        }
        // SAFETY: the processor has AVX2.
        unsafe { unpack_groups(bits, width, start / 8, out) }
    }

    pub(super) fn is_available() -> bool {
        is_x86_feature_detected!("avx2")
    }

    /// Filters all words, or none; how many it did. Offsets past the end of `bits` are 0.
    ///
    /// The last words are filtered from a copy with zero bytes behind it, for a kernel loads more than the bytes of a
    /// word.
    pub(super) fn filter(bits: &[u8], width: u32, range: (u32, u32), selection: &mut [u64]) -> usize {
        if !is_available() || !(1..=MAX_SHUFFLED).contains(&width) && width != 32 {
            return 0;
        }
        // SAFETY: the processor has AVX2.
        let done = unsafe { filter_words(bits, width, range, selection) };
        let word_len = 8 * width as usize;
        for (number, word) in selection.iter_mut().enumerate().skip(done) {
            let rest = bits.get(number * word_len..).unwrap_or_default();
            let len = rest.len().min(word_len);
            let mut padded = [0; LOADED];
            padded[..len].copy_from_slice(&rest[..len]);
            // SAFETY: as above.
            unsafe { filter_words(&padded, width, range, std::slice::from_mut(word)) };
        }
        selection.len()
    }

    /// Bytes that a kernel loads for one word, at most: 64 offsets of 32 bits. Of groups of 25 bits they are 7 * 25 +
    /// 28.
    const LOADED: usize = 256;

    /// Filters the words whose loads lie within `bits`; how many these are, from the first on.
    #[target_feature(enable = "avx2")]
    fn filter_words(bits: &[u8], width: u32, range: (u32, u32), selection: &mut [u64]) -> usize {
        match width {
            8 => filter8(bits, range, selection),
            16 => filter16(bits, range, selection),
            32 => filter32(bits, range, selection),
            1..=MAX_NARROW => filter_narrow(bits, width, range, selection),
            _ => filter_groups(bits, width, range, selection),
        }
    }

    /// Sixteen bytes at `bits` and sixteen at `second` bytes behind it.
    ///
    /// # Safety
    /// `bits` has at least `second + 16` bytes.
    #[target_feature(enable = "avx2")]
    unsafe fn load_halves(bits: *const u8, second: usize) -> __m256i {
        // SAFETY: the caller's.
        let (low, high) = unsafe { (_mm_loadu_si128(bits.cast()), _mm_loadu_si128(bits.add(second).cast())) };
        _mm256_set_m128i(high, low)
    }

    /// How a group of eight offsets is unpacked.
    #[derive(Clone, Copy)]
    struct Group {
        shuffle: __m256i,
        shift: __m256i,
        mask: __m256i,
        /// Bytes from the first to the second load.
        second: usize,
    }

    impl Group {
        #[target_feature(enable = "avx2")]
        fn new(width: u32) -> Self {
            let (mut shuffle, mut shift) = ([0_i8; 32], [0_i32; 8]);
            for lane in 0..8 {
                // The second half begins in the middle of a byte if the width is odd.
                let bit = lane % 4 * width + if lane < 4 { 0 } else { 4 * width % 8 };
                shift[lane as usize] = (bit % 8) as i32;
                for byte in 0..4 {
                    shuffle[(4 * lane + byte) as usize] = (bit / 8 + byte) as i8;
                }
            }
            // SAFETY: both arrays have 32 bytes; unaligned loads.
            let (shuffle, shift) =
                unsafe { (_mm256_loadu_si256(shuffle.as_ptr().cast()), _mm256_loadu_si256(shift.as_ptr().cast())) };
            Self { shuffle, shift, mask: _mm256_set1_epi32(super::mask(width) as i32), second: width as usize / 2 }
        }

        /// Bytes that unpacking a group at `at` reads end here.
        fn end(&self, at: usize) -> usize {
            at + self.second + 16
        }

        /// # Safety
        /// `bits` has at least `end(0)` bytes.
        #[target_feature(enable = "avx2")]
        unsafe fn unpack(&self, bits: *const u8) -> __m256i {
            // SAFETY: the caller's.
            let bytes = _mm256_shuffle_epi8(unsafe { load_halves(bits, self.second) }, self.shuffle);
            _mm256_and_si256(_mm256_srlv_epi32(bytes, self.shift), self.mask)
        }
    }

    /// How two groups of eight narrow offsets are unpacked.
    #[derive(Clone, Copy)]
    struct NarrowGroups {
        shuffle: __m256i,
        /// Brings each offset to [`Self::PLACE`].
        factor: __m256i,
        mask: __m256i,
        /// Bytes from the first to the second group.
        second: usize,
    }

    impl NarrowGroups {
        /// The bit at which all offsets begin, before they are shifted down together.
        const PLACE: i32 = 7;

        #[target_feature(enable = "avx2")]
        fn new(width: u32) -> Self {
            let (mut shuffle, mut factor) = ([0_i8; 32], [0_i16; 16]);
            for lane in 0..16 {
                // A group is `width` bytes, so that both begin at a byte.
                let bit = lane % 8 * width as usize;
                factor[lane] = 1 << (Self::PLACE as usize - bit % 8);
                (shuffle[2 * lane], shuffle[2 * lane + 1]) = ((bit / 8) as i8, (bit / 8 + 1) as i8);
            }
            // SAFETY: both arrays have 32 bytes; unaligned loads.
            let (shuffle, factor) =
                unsafe { (_mm256_loadu_si256(shuffle.as_ptr().cast()), _mm256_loadu_si256(factor.as_ptr().cast())) };
            Self { shuffle, factor, mask: _mm256_set1_epi16(super::mask(width) as i16), second: width as usize }
        }

        /// Bytes that unpacking two groups at `at` reads end here.
        fn end(&self, at: usize) -> usize {
            at + self.second + 16
        }

        /// # Safety
        /// `bits` has at least `end(0)` bytes.
        #[target_feature(enable = "avx2")]
        unsafe fn unpack(&self, bits: *const u8) -> __m256i {
            // SAFETY: the caller's.
            let pairs = _mm256_shuffle_epi8(unsafe { load_halves(bits, self.second) }, self.shuffle);
            let placed = _mm256_mullo_epi16(pairs, self.factor);
            _mm256_and_si256(_mm256_srli_epi16::<{ Self::PLACE }>(placed), self.mask)
        }
    }

    #[target_feature(enable = "avx2")]
    fn filter_narrow(bits: &[u8], width: u32, (least, span): (u32, u32), selection: &mut [u64]) -> usize {
        let Some((least, span)) = narrowed(least, span, super::mask(width) as u32) else {
            selection.fill(0);
            return selection.len();
        };
        let groups = NarrowGroups::new(width);
        let (least, span) = (_mm256_set1_epi16(least as i16), _mm256_set1_epi16(span as i16));
        let two = 2 * width as usize;
        for (number, word) in selection.iter_mut().enumerate() {
            let at = number * 4 * two;
            if groups.end(at + 3 * two) > bits.len() {
                return number;
            }
            let passes = |pair: usize| {
                // SAFETY: the bytes of the word's last two groups lie within `bits`.
                let value = unsafe { groups.unpack(bits.as_ptr().add(at + pair * two)) };
                within16(value, least, span)
            };
            *word &= bits_of(passes(0), passes(1)) | bits_of(passes(2), passes(3)) << 32;
        }
        selection.len()
    }

    /// Lanes of ones where `value - least <= span`, unsigned.
    #[target_feature(enable = "avx2")]
    fn within16(value: __m256i, least: __m256i, span: __m256i) -> __m256i {
        let distance = _mm256_sub_epi16(value, least);
        _mm256_cmpeq_epi16(_mm256_min_epu16(distance, span), distance)
    }

    /// A bit for each of these 32 lanes.
    #[target_feature(enable = "avx2")]
    fn bits_of(low: __m256i, high: __m256i) -> u64 {
        // Packing works in each half of the register: the quarters come out as 0, 2, 1, 3.
        let packed = _mm256_packs_epi16(low, high);
        u64::from(_mm256_movemask_epi8(_mm256_permute4x64_epi64::<0b11_01_10_00>(packed)) as u32)
    }

    #[target_feature(enable = "avx2")]
    fn unpack_groups(bits: &[u8], width: u32, first: usize, out: &mut [u32]) -> usize {
        let group = Group::new(width);
        let mut done = 0;
        for (number, chunk) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let at = (first + number) * width as usize;
            if group.end(at) > bits.len() {
                break;
            }
            // SAFETY: the group's bytes lie within `bits`; the chunk has 32 bytes.
            unsafe { _mm256_storeu_si256(chunk.as_mut_ptr().cast(), group.unpack(bits.as_ptr().add(at))) };
            done += 8;
        }
        done
    }

    /// A bit for each of eight lanes: whether `value - least <= span`, unsigned.
    #[target_feature(enable = "avx2")]
    fn within32(value: __m256i, least: __m256i, span: __m256i) -> u64 {
        let distance = _mm256_sub_epi32(value, least);
        let passes = _mm256_cmpeq_epi32(_mm256_min_epu32(distance, span), distance);
        u64::from(_mm256_movemask_ps(_mm256_castsi256_ps(passes)) as u32)
    }

    #[target_feature(enable = "avx2")]
    fn filter_groups(bits: &[u8], width: u32, (least, span): (u32, u32), selection: &mut [u64]) -> usize {
        let group = Group::new(width);
        let (least, span) = (_mm256_set1_epi32(least as i32), _mm256_set1_epi32(span as i32));
        for (number, word) in selection.iter_mut().enumerate() {
            let at = number * 8 * width as usize;
            if group.end(at + 7 * width as usize) > bits.len() {
                return number;
            }
            let mut passed = 0;
            for eight in 0..8 {
                // SAFETY: the bytes of the word's last group lie within `bits`.
                let value = unsafe { group.unpack(bits.as_ptr().add(at + eight * width as usize)) };
                passed |= within32(value, least, span) << (8 * eight);
            }
            *word &= passed;
        }
        selection.len()
    }

    #[target_feature(enable = "avx2")]
    fn filter32(bits: &[u8], (least, span): (u32, u32), selection: &mut [u64]) -> usize {
        let (least, span) = (_mm256_set1_epi32(least as i32), _mm256_set1_epi32(span as i32));
        let mut done = 0;
        for (word, chunk) in selection.iter_mut().zip(bits.as_chunks::<256>().0) {
            let mut passed = 0;
            for eight in 0..8 {
                // SAFETY: eight loads of 32 bytes from a chunk of 256.
                let value = unsafe { _mm256_loadu_si256(chunk.as_ptr().add(32 * eight).cast()) };
                passed |= within32(value, least, span) << (8 * eight);
            }
            *word &= passed;
            done += 1;
        }
        done
    }

    #[target_feature(enable = "avx2")]
    fn filter16(bits: &[u8], (least, span): (u32, u32), selection: &mut [u64]) -> usize {
        let Some((least, span)) = narrowed(least, span, u32::from(u16::MAX)) else {
            selection.fill(0);
            return selection.len();
        };
        let (least, span) = (_mm256_set1_epi16(least as i16), _mm256_set1_epi16(span as i16));
        let mut done = 0;
        for (word, chunk) in selection.iter_mut().zip(bits.as_chunks::<128>().0) {
            let passes = |at: usize| {
                // SAFETY: loads of 32 bytes at 0, 32, 64 and 96 of a chunk of 128.
                let value = unsafe { _mm256_loadu_si256(chunk.as_ptr().add(at).cast()) };
                within16(value, least, span)
            };
            *word &= bits_of(passes(0), passes(32)) | bits_of(passes(64), passes(96)) << 32;
            done += 1;
        }
        done
    }

    #[target_feature(enable = "avx2")]
    fn filter8(bits: &[u8], (least, span): (u32, u32), selection: &mut [u64]) -> usize {
        let Some((least, span)) = narrowed(least, span, u32::from(u8::MAX)) else {
            selection.fill(0);
            return selection.len();
        };
        let (least, span) = (_mm256_set1_epi8(least as i8), _mm256_set1_epi8(span as i8));
        let mut done = 0;
        for (word, chunk) in selection.iter_mut().zip(bits.as_chunks::<64>().0) {
            let half = |at: usize| {
                // SAFETY: loads of 32 bytes at 0 and 32 of a chunk of 64.
                let value = unsafe { _mm256_loadu_si256(chunk.as_ptr().add(at).cast()) };
                let distance = _mm256_sub_epi8(value, least);
                let passes = _mm256_cmpeq_epi8(_mm256_min_epu8(distance, span), distance);
                u64::from(_mm256_movemask_epi8(passes) as u32)
            };
            *word &= half(0) | half(32) << 32;
            done += 1;
        }
        done
    }

    /// The range among values of at most `most`; `None` if it has none of them.
    fn narrowed(least: u32, span: u32, most: u32) -> Option<(u32, u32)> {
        (least <= most).then(|| (least, span.min(most - least)))
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod simd {
    pub(super) fn is_available() -> bool {
        false
    }

    pub(super) fn unpack(_bits: &[u8], _width: u32, _start: usize, _out: &mut [u32]) -> usize {
        0
    }

    pub(super) fn filter(_bits: &[u8], _width: u32, _range: (u32, u32), _selection: &mut [u64]) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Bits, and the offsets that they were packed from, at random and at both ends of the width.
    fn packed(rng: &mut SmallRng, width: u32, rows: usize) -> (Vec<u8>, Vec<u64>) {
        let offset = |rng: &mut SmallRng| match rng.random_range(0..4) {
            0 => 0,
            1 => mask(width),
            _ => rng.random::<u64>() & mask(width),
        };
        let values: Vec<u64> = (0..rows).map(|_| offset(rng)).collect();
        let mut bits = Vec::new();
        pack(values.iter().copied(), width, &mut bits);
        assert_eq!(bits.len(), packed_len(width, rows));
        (bits, values)
    }

    /// Numbers of rows around the edges of bytes, groups, words and registers.
    fn lengths() -> Vec<usize> {
        if cfg!(miri) {
            return vec![0, 1, 7, 8, 9, 63, 64, 65, 130];
        }
        (0..=200).chain([255, 256, 257, 511, 513, 1000]).collect()
    }

    fn widths(all: impl Iterator<Item = u32>) -> impl Iterator<Item = u32> {
        all.filter(|&width| !cfg!(miri) || matches!(width, 0 | 1 | 3 | 8 | 16 | 17 | 25 | 26 | 32 | 56 | 64))
    }

    #[test]
    fn what_was_packed_is_found_at_every_width() {
        let mut rng = SmallRng::seed_from_u64(8);
        for width in widths((0..=56).chain([64])) {
            for rows in [0, 1, 2, 7, 8, 9, 100] {
                let (bits, values) = packed(&mut rng, width, rows);
                assert!((0..rows).all(|at| get(&bits, width, at) == values[at]), "width {width}, {rows} rows");
                assert_eq!(get(&bits, width, rows + 64), 0, "past the end");
            }
        }
    }

    #[test]
    fn what_was_packed_is_unpacked_from_every_start() {
        let mut rng = SmallRng::seed_from_u64(7);
        for width in widths(0..=32) {
            for rows in lengths() {
                let (bits, values) = packed(&mut rng, width, rows);
                let drawn = rng.random_range(0..=rows);
                for start in (0..=rows.min(if cfg!(miri) { 2 } else { 17 })).chain([drawn]) {
                    let count = rng.random_range(0..=rows - start);
                    for count in [count, rows - start] {
                        let mut found = vec![7];
                        unpack(&bits, width, start, count, &mut found);
                        let expected = &values[start..start + count];
                        assert_eq!(found[0], 7);
                        assert!(
                            found[1..].iter().map(|&found| u64::from(found)).eq(expected.iter().copied()),
                            "width {width}, {count} of {rows} rows from {start}"
                        );
                    }
                }
            }
        }
    }

    /// Ranges of offsets of a width: none, one, all, those that no offset is in, and drawn ones.
    fn ranges(rng: &mut SmallRng, width: u32) -> Vec<(u32, u32)> {
        let most = mask(width) as u32;
        let least = rng.random::<u32>() & most;
        let mut ranges = vec![(0, 0), (0, most), (0, u32::MAX), (most, 0), (least, 0), (least, u32::MAX - least)];
        ranges.push((least, (rng.random::<u32>() & most).min(u32::MAX - least)));
        ranges.extend(most.checked_add(1).map(|above| (above, u32::MAX - above)));
        ranges
    }

    #[test]
    fn every_kernel_passes_what_lies_in_the_range() {
        let mut rng = SmallRng::seed_from_u64(9);
        for width in widths(0..=32) {
            for rows in lengths() {
                let (bits, values) = packed(&mut rng, width, rows);
                for (least, span) in ranges(&mut rng, width) {
                    let mut before = Bitmap::new(rows, true);
                    (0..rows)
                        .filter(|_| rng.random_ratio(1, 9))
                        .collect::<Vec<_>>()
                        .iter()
                        .for_each(|&r| before.clear(r));
                    let passes = |&row: &usize| {
                        let value = values[row];
                        before.get(row) && u64::from(least) <= value && value <= u64::from(least) + u64::from(span)
                    };
                    let expected: Vec<usize> = (0..rows).filter(passes).collect();
                    for kernel in [Kernel::Fastest, Kernel::Portable] {
                        let mut selection = before.clone();
                        kernel.filter(&bits, width, (least, span), &mut selection);
                        assert!(
                            selection.rows().eq(expected.iter().copied()) && selection.count() == expected.len(),
                            "{}: width {width}, {rows} rows, {span} from {least}",
                            kernel.name()
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn offsets_past_the_end_of_the_bits_are_zero_to_every_kernel() {
        let mut rng = SmallRng::seed_from_u64(10);
        for width in widths(1..=32) {
            let (bits, _) = packed(&mut rng, width, 300);
            for len in [0, 1, bits.len() / 2, bits.len() - 1] {
                for range in [(0, 0), (1, u32::MAX - 1), (mask(width) as u32 / 2, mask(width) as u32 / 4)] {
                    let selections = [Kernel::Fastest, Kernel::Portable].map(|kernel| {
                        let mut selection = Bitmap::new(300, true);
                        kernel.filter(&bits[..len], width, range, &mut selection);
                        selection
                    });
                    assert_eq!(selections[0], selections[1], "width {width}, {len} bytes");
                }
            }
        }
    }
}

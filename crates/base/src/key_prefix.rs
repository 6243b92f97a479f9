//! Beginnings of keys: what two have in common, and the first eight bytes as a number.

/// The length of the common prefix of two byte strings. O(length).
///
/// ```
/// assert_eq!(mycelium_base::key_prefix::common_prefix(b"user:01", b"user:02"), 6);
/// ```
#[inline]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut n = 0;
    let words = a.chunks_exact(8).zip(b.chunks_exact(8));
    for (x, y) in words {
        let (mut p, mut q) = ([0; 8], [0; 8]);
        p.copy_from_slice(x);
        q.copy_from_slice(y);
        let differing = u64::from_le_bytes(p) ^ u64::from_le_bytes(q);
        if differing != 0 {
            return n + differing.trailing_zeros() as usize / 8;
        }
        n += 8;
    }
    n + a[n..].iter().zip(&b[n..]).take_while(|(x, y)| x == y).count()
}

/// The first eight bytes as a big-endian number, zero-padded: `head(a) < head(b)` implies `a < b`.
///
/// ```
/// assert!(mycelium_base::key_prefix::head(b"a") < mycelium_base::key_prefix::head(b"b"));
/// ```
#[inline(always)]
pub fn head(bytes: &[u8]) -> u64 {
    if let Some(bytes) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*bytes);
    }
    // Bytes loaded twice are the same ones. Copying so few would be a call.
    let padding = 8 * (8 - bytes.len() as u32);
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        return u64::from(u32::from_be_bytes(*first)) << 32 | u64::from(u32::from_be_bytes(*last)) << padding;
    }
    bytes.iter().zip([56, 48, 40]).fold(0, |head, (byte, shift)| head | u64::from(*byte) << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_the_beginning_padded_with_zeros() {
        let bytes = [0x81, 0x02, 0xfe, 0x04, 0x85, 0x06, 0x87, 0xf8, 0x09];
        for len in 0..=bytes.len() {
            let mut padded = [0; 8];
            padded[..len.min(8)].copy_from_slice(&bytes[..len.min(8)]);
            assert_eq!(head(&bytes[..len]), u64::from_be_bytes(padded), "{len} bytes");
        }
    }

    #[test]
    fn common_prefixes_end_at_the_first_byte_that_differs() {
        let bytes: Vec<u8> = (0..20).collect();
        for len in 0..=bytes.len() {
            for other in 0..=bytes.len() {
                assert_eq!(common_prefix(&bytes[..len], &bytes[..other]), len.min(other));
            }
            let mut changed = bytes.clone();
            changed.iter_mut().skip(len).for_each(|byte| *byte ^= 0x80);
            assert_eq!(common_prefix(&bytes, &changed), len);
        }
    }
}

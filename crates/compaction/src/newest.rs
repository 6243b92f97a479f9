//! How many of the newest runs are worth merging in their place, where they are not to go down.
//!
//! The functions take the runs' bytes, newest first, and return how many of them to merge; less than 2 is none.

/// As many as lower the bytes written per run saved: for who wants fewer runs at the least cost. They have at most
/// `limit` bytes together. O(runs).
pub(crate) fn cheapest(sizes: &[u64], limit: u64) -> usize {
    let (mut bytes, mut best_per_run, mut count) = (0u64, u64::MAX, 0);
    for (saved, &size) in sizes.iter().enumerate() {
        bytes = bytes.saturating_add(size);
        let per_run = if saved == 0 { u64::MAX } else { bytes / saved as u64 };
        if per_run > best_per_run || bytes > limit {
            break;
        }
        best_per_run = per_run;
        count = saved + 1;
    }
    count
}

/// The most whose oldest is at most a quarter larger than the others together, which have at most `limit` bytes: what
/// is merged again has nearly doubled in between, so that an entry is merged as often as its level doubles. O(runs).
pub(crate) fn nearly_doubling(sizes: &[u64], limit: u64) -> usize {
    let (mut newer, mut count) = (0u64, 0);
    for (at, &size) in sizes.iter().enumerate() {
        if at > 0 && size <= newer.saturating_add(newer / 4) {
            count = at + 1;
        }
        newer = newer.saturating_add(size);
        if newer > limit {
            break;
        }
    }
    count
}

/// As many as both say, whichever are more: for who must have fewer runs now, and again and again. The cheapest alone
/// are soon two new ones before larger ones, and each pair a merge of its own. Of 300 small files that wait in level 0,
/// eight at most, until they pay below, the cheapest take 0.36 merges a file and write each byte 4.0 times, these 0.15
/// and 3.8. O(runs).
pub(crate) fn most_worth(sizes: &[u64], limit: u64) -> usize {
    cheapest(sizes, limit).max(nearly_doubling(sizes, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_are_small_ones_before_a_large_one() {
        assert_eq!(cheapest(&[1, 1, 1, 1, 90], 1_000), 4);
        assert_eq!(cheapest(&[1, 5, 30, 100], 1_000), 2);
        assert_eq!(cheapest(&[10, 10, 10], 25), 2);
        assert_eq!(cheapest(&[10], 100), 1);
    }

    #[test]
    fn who_is_merged_at_rest_has_nearly_doubled() {
        assert_eq!(nearly_doubling(&[1, 2, 4], 1_000), 0);
        assert_eq!(nearly_doubling(&[10, 10, 25], 1_000), 3);
        assert_eq!(nearly_doubling(&[10, 10, 26], 1_000), 2);
        assert_eq!(nearly_doubling(&[1, 10, 11], 1_000), 3);
        assert_eq!(nearly_doubling(&[10, 10, 10], 15), 2);
    }

    /// Merges a new file, and bytes written per byte, of files of one size that come one by one into a level of at most
    /// eight, which goes down once the level below has at most twice its bytes.
    fn small_files(count: impl Fn(&[u64]) -> usize) -> (f64, f64) {
        const FILES: u32 = 300;
        const SIZE: u64 = 1 << 20;
        let (mut level0, mut below) = (Vec::new(), 0);
        let (mut merges, mut written) = (0, 0);
        for _ in 0..FILES {
            level0.insert(0, SIZE);
            if level0.len() < 8 {
                continue;
            }
            let bytes: u64 = level0.iter().sum();
            merges += 1;
            if below <= 2 * bytes {
                below += bytes;
                written += below;
                level0.clear();
            } else {
                let merged = level0.drain(..count(&level0).max(2)).sum();
                written += merged;
                level0.insert(0, merged);
            }
        }
        (f64::from(merges) / f64::from(FILES), written as f64 / (f64::from(FILES) * SIZE as f64))
    }

    #[test]
    fn small_files_are_not_merged_pair_by_pair() {
        let (cheapest_merges, cheapest_written) = small_files(|sizes| cheapest(sizes, u64::MAX));
        let (merges, written) = small_files(|sizes| most_worth(sizes, u64::MAX));
        assert!(merges < 0.16 && written < 3.8, "{merges} {written}");
        assert!(merges < cheapest_merges / 2.0 && written < cheapest_written, "{cheapest_merges} {cheapest_written}");
    }
}

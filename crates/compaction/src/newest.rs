//! How many of the newest runs are worth merging in their place, where they are not to go down.
//!
//! Both functions take the runs' bytes, newest first, and return how many of them to merge; less than 2 is none.

/// As many as lower the bytes written per run saved: for who wants fewer runs at the least cost. They have at most `limit`
/// bytes together. O(runs).
pub(crate) fn cheapest(sizes: impl Iterator<Item = u64>, limit: u64) -> usize {
    let (mut bytes, mut best_per_run, mut count) = (0u64, u64::MAX, 0);
    for (saved, size) in sizes.enumerate() {
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

/// The most whose oldest is at most a quarter larger than the others together, which have at most `limit` bytes: what is
/// merged again has nearly doubled in between, so that an entry is merged as often as its level doubles. O(runs).
pub(crate) fn nearly_doubling(sizes: impl Iterator<Item = u64>, limit: u64) -> usize {
    let (mut newer, mut count) = (0u64, 0);
    for (at, size) in sizes.enumerate() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_are_small_ones_before_a_large_one() {
        assert_eq!(cheapest([1, 1, 1, 1, 90].into_iter(), 1_000), 4);
        assert_eq!(cheapest([1, 5, 30, 100].into_iter(), 1_000), 2);
        assert_eq!(cheapest([10, 10, 10].into_iter(), 25), 2);
        assert_eq!(cheapest([10].into_iter(), 100), 1);
    }

    #[test]
    fn who_is_merged_at_rest_has_nearly_doubled() {
        assert_eq!(nearly_doubling([1, 2, 4].into_iter(), 1_000), 0);
        assert_eq!(nearly_doubling([10, 10, 25].into_iter(), 1_000), 3);
        assert_eq!(nearly_doubling([10, 10, 26].into_iter(), 1_000), 2);
        assert_eq!(nearly_doubling([1, 10, 11].into_iter(), 1_000), 3);
        assert_eq!(nearly_doubling([10, 10, 10].into_iter(), 15), 2);
    }
}

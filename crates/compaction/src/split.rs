//! How a compaction is cut into parts that run side by side.
//!
//! 1. Merge the key samples of all inputs in key order: an approximate distribution of the bytes over the keys.
//! 2. As many parts as wanted, but none smaller than a minimum, so that parts do not litter the output with small
//!    files.
//! 3. The i-th cut is the sample at which i/n of the bytes are reached, moved to the nearest border of a grandparent if
//!    that shifts it by less than a quarter of a part: there the outputs end anyway.

/// A key of an input and the bytes of that input between the sample before and this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeySample {
    /// A key of the input.
    pub key: Vec<u8>,
    /// Bytes since the input's previous sample.
    pub bytes: u64,
}

/// At most `max_parts - 1` ascending keys that cut the inputs into parts of about equal bytes, none below
/// `min_part_bytes` on average. Part i holds the keys from cut i-1 (included) to cut i (excluded). `borders` are keys
/// at which cuts cost nothing, ascending. O(samples log samples).
pub fn subcompaction_cuts(
    mut samples: Vec<KeySample>,
    max_parts: usize,
    min_part_bytes: u64,
    borders: &[&[u8]],
) -> Vec<Vec<u8>> {
    samples.sort_by(|a, b| a.key.cmp(&b.key));
    let total: u64 = samples.iter().map(|s| s.bytes).sum();
    let parts = (total / min_part_bytes.max(1)).min(max_parts as u64);
    if parts < 2 {
        return Vec::new();
    }
    let mut reached = 0;
    let ends: Vec<(u64, &[u8])> = samples
        .iter()
        .map(|s| {
            reached += s.bytes;
            (reached, s.key.as_slice())
        })
        .collect();
    let bytes_before = |key: &[u8]| ends[..ends.partition_point(|e| e.1 < key)].last().map_or(0, |e| e.0);
    let part = total / parts;
    let mut cuts: Vec<Vec<u8>> = Vec::new();
    for i in 1..parts {
        let wanted = part * i;
        let Some(&(_, sample)) = ends.get(ends.partition_point(|e| e.0 < wanted)) else { break };
        let after = borders.partition_point(|b| *b < sample);
        let nearest = borders[after.saturating_sub(1)..borders.len().min(after + 1)]
            .iter()
            .min_by_key(|border| bytes_before(border).abs_diff(wanted));
        let cut = match nearest {
            Some(border) if bytes_before(border).abs_diff(wanted) < part / 4 => border,
            _ => sample,
        };
        let is_new = cuts.last().is_none_or(|last| last.as_slice() < cut);
        if is_new && bytes_before(cut) > 0 {
            cuts.push(cut.to_vec());
        }
    }
    cuts
}

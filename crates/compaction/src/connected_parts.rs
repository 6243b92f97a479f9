//! Runs of level 0 that lie beside each other, as those of a bulk load do, go down part by part.
//!
//! 1. Runs that overlap in keys, directly or by way of others, are one part.
//! 2. The part with the oldest run goes, and of its neighbours in key order as many as stay within the bytes of one
//!    job.

use std::collections::HashSet;

use mycelium_manifest::KeyRange;

use crate::plan::PlanInput;

/// Of runs of level 0, the oldest last, those that go down at once: all, or if they have more than `limit` bytes those
/// that overlap the oldest, directly or by way of others, and as many of their neighbours as stay within the limit.
pub(crate) fn worth_one_job(inputs: Vec<PlanInput>, limit: u64) -> Vec<PlanInput> {
    let parts = connected_parts(&inputs);
    let oldest = parts.iter().position(|part| part.runs.contains(&(inputs.len() - 1)));
    let Some(oldest) = oldest.filter(|_| parts.iter().map(|part| part.bytes).sum::<u64>() > limit) else {
        return inputs;
    };
    let (mut from, mut to, mut bytes) = (oldest, oldest + 1, parts[oldest].bytes);
    let fits = |bytes: u64, part: &ConnectedPart| bytes.saturating_add(part.bytes) <= limit;
    while let Some(next) = parts.get(to).filter(|next| fits(bytes, next)) {
        (to, bytes) = (to + 1, bytes + next.bytes);
    }
    while let Some(before) = parts[..from].last().filter(|before| fits(bytes, before)) {
        (from, bytes) = (from - 1, bytes + before.bytes);
    }
    let taken: HashSet<usize> = parts[from..to].iter().flat_map(|part| part.runs.iter().copied()).collect();
    let inputs = inputs.into_iter().enumerate().filter(|(at, _)| taken.contains(at));
    inputs.map(|(_, input)| input).collect()
}

/// Runs that overlap in keys, directly or by way of others.
struct ConnectedPart {
    range: KeyRange,
    /// Their places among the inputs.
    runs: Vec<usize>,
    bytes: u64,
}

/// The parts of the inputs that lie beside each other, in key order.
fn connected_parts(inputs: &[PlanInput]) -> Vec<ConnectedPart> {
    let part = |(at, input): (usize, &PlanInput)| {
        let range = KeyRange::hull(input.files.iter().map(|file| &**file))?;
        Some(ConnectedPart { range, runs: vec![at], bytes: input.files.iter().map(|file| file.size).sum() })
    };
    let mut single: Vec<ConnectedPart> = inputs.iter().enumerate().filter_map(part).collect();
    single.sort_by(|a, b| a.range.smallest.cmp(&b.range.smallest));
    let mut parts: Vec<ConnectedPart> = Vec::new();
    for next in single {
        match parts.last_mut().filter(|last| !last.range.ends_before(&next.range.smallest)) {
            Some(last) => {
                last.range.include_range(&next.range);
                last.runs.extend(next.runs);
                last.bytes = last.bytes.saturating_add(next.bytes);
            }
            None => parts.push(next),
        }
    }
    parts
}

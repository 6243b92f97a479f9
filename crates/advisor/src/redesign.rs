//! Online redesign: whether a proposed design is worth the rewriting.
//!
//! LASER leaves a tree that configures itself to later work (§7.3). A new design costs: what lies under the old one is
//! rewritten. And traces fluctuate: without inertia a tree would swing between two designs of nearly equal cost. With
//! the costs `c` (current) and `p` (proposed) of the same trace by equation 9, the cost `r` of rewriting
//! ([`rewrite_cost`]), and the [`Hysteresis`] `g` (gain), `h` (horizon), `s` (safety), [`decide`] switches if and only
//! if
//!
//! ```text
//! the trace has at least `min_operations` operations,
//! (c - p) / c  >=  g            the gain is no noise, and
//! (c - p) * h  >=  s * r        what is saved in the next h traces like this one pays for the rewriting s times.
//! ```
//!
//! Two designs do not alternate while the ratio of their costs stays within `1-g` and `1/(1-g)` from trace to trace: a
//! switch one way needs a ratio of at most `1-g`, the way back one of at least `1/(1-g)`. With `g > 0` the same trace
//! never switches there and back.
//!
//! Where a redesign takes effect run by run as compactions rewrite data anyway, `r` is what is written beyond that:
//! 0 for levels that compaction rewrites soon, the whole for a last level that hardly changes.

use mycelium_base::ColumnSet;

use crate::design::Design;

/// How much inertia a redesign meets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hysteresis {
    /// The fewest operations of a trace that is believed.
    pub min_operations: u64,
    /// `g`: the least gain, as a share of the current cost; above 0 and below 1.
    pub min_gain: f64,
    /// `h`: for how many traces like this one, back to back, the workload is expected to stay.
    pub horizon: f64,
    /// `s`: how many times over the rewriting must be paid for.
    pub safety: f64,
}

impl Default for Hysteresis {
    /// 10,000 operations, a gain of a tenth, ten traces, paid for twice. Chosen, not measured.
    fn default() -> Self {
        Self { min_operations: 10_000, min_gain: 0.1, horizon: 10.0, safety: 2.0 }
    }
}

/// A redesign to be decided on.
#[derive(Clone, Copy, Debug)]
pub struct Proposal<'a> {
    /// The design in force.
    pub current: &'a Design,
    /// The design to switch to.
    pub proposed: &'a Design,
    /// `c`: what the trace costs under the design in force, in blocks.
    pub current_cost: f64,
    /// `p`: what it costs under the proposed one, in blocks.
    pub proposed_cost: f64,
    /// `r`: what switching costs, in blocks; see [`rewrite_cost`].
    pub rewrite_cost: f64,
    /// Operations in the trace.
    pub operations: u64,
}

/// Whether to switch, and why.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// Whether to switch.
    pub switch: bool,
    /// `(c-p)/c`: what is gained, as a share; 0 where nothing costs anything.
    pub gain: f64,
    /// `r/(c-p)`: after how many traces like this one the rewriting is paid for; infinite without a gain.
    pub break_even: f64,
    /// The reason in words.
    pub reason: String,
}

/// Whether to switch to the proposed design, by the formula of the module. Costs that are no numbers never switch.
///
/// ```
/// use mycelium_advisor::{Design, Hysteresis, Proposal, decide};
///
/// let (rows, columns) = (Design::rows(4, 3)?, Design::columns(4, 3)?);
/// let proposal = Proposal {
///     current: &rows,
///     proposed: &columns,
///     current_cost: 1_000.0,
///     proposed_cost: 600.0,
///     rewrite_cost: 1_500.0,
///     operations: 50_000,
/// };
/// // 400 blocks are saved per trace: 4,000 in ten, more than twice 1,500.
/// assert!(decide(&proposal, &Hysteresis::default()).switch);
/// let dear = Proposal { rewrite_cost: 2_500.0, ..proposal };
/// assert!(!decide(&dear, &Hysteresis::default()).switch);
/// # Ok::<(), mycelium_base::Error>(())
/// ```
pub fn decide(proposal: &Proposal<'_>, hysteresis: &Hysteresis) -> Verdict {
    let saved = proposal.current_cost - proposal.proposed_cost;
    let gain = if proposal.current_cost > 0.0 { saved / proposal.current_cost } else { 0.0 };
    let break_even = if saved > 0.0 { proposal.rewrite_cost / saved } else { f64::INFINITY };
    let verdict = |switch, reason: String| Verdict { switch, gain, break_even, reason };
    if proposal.current == proposal.proposed {
        return verdict(false, "the design is in force already".to_owned());
    }
    if proposal.operations < hysteresis.min_operations {
        let (seen, needed) = (proposal.operations, hysteresis.min_operations);
        return verdict(false, format!("{seen} operations seen, {needed} needed"));
    }
    let percent = 100.0 * gain;
    let pays = saved * hysteresis.horizon >= hysteresis.safety * proposal.rewrite_cost;
    if !(saved > 0.0 && gain >= hysteresis.min_gain) {
        let needed = 100.0 * hysteresis.min_gain;
        return verdict(false, format!("a gain of {percent:.1}%, {needed:.1}% needed"));
    }
    if !pays {
        let within = hysteresis.horizon / hysteresis.safety;
        return verdict(false, format!("the rewriting is paid for after {break_even:.1} traces, {within:.1} allowed"));
    }
    verdict(true, format!("a gain of {percent:.1}%, the rewriting is paid for after {break_even:.1} traces"))
}

/// What rewriting the changed groups costs, in blocks: every changed group is read and written once.
///
/// `level_bytes[i]` are the bytes at level `i` (a level without a figure counts as empty), of which a group is taken to
/// hold its share of the columns; `block_bytes` a block, which is 1 or more. A group of the proposed design that the
/// current one has at the same level, in the same format, costs nothing.
///
/// ```
/// use mycelium_advisor::{Design, redesign::rewrite_cost};
///
/// let (rows, halves) = (Design::rows(4, 2)?, Design::fixed_width(4, 2, 2)?);
/// assert_eq!(rewrite_cost(&rows, &halves, &[4_096, 409_600], 4_096), 2.0 * 100.0);
/// assert_eq!(rewrite_cost(&halves, &halves, &[4_096, 409_600], 4_096), 0.0);
/// # Ok::<(), mycelium_base::Error>(())
/// ```
pub fn rewrite_cost(current: &Design, proposed: &Design, level_bytes: &[u64], block_bytes: u64) -> f64 {
    let mut blocks = 0.0;
    for (level, groups) in proposed.levels.iter().enumerate() {
        let old = current.levels.get(level).map_or(&[][..], Vec::as_slice);
        let columns: usize = groups.iter().map(|group| group.len()).sum();
        let is_kept = |group: &ColumnSet| {
            old.contains(group) && current.is_columnar(level, group) == proposed.is_columnar(level, group)
        };
        let changed: usize = groups.iter().filter(|group| !is_kept(group)).map(|group| group.len()).sum();
        let bytes = level_bytes.get(level).copied().unwrap_or_default() as f64;
        blocks += 2.0 * bytes / block_bytes.max(1) as f64 * changed as f64 / columns.max(1) as f64;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Hysteresis = Hysteresis { min_operations: 100, min_gain: 0.2, horizon: 4.0, safety: 2.0 };

    fn verdict(current_cost: f64, proposed_cost: f64, rewrite_cost: f64, operations: u64) -> Verdict {
        let (current, proposed) = (Design::rows(4, 2).unwrap(), Design::columns(4, 2).unwrap());
        let (current, proposed) = (&current, &proposed);
        decide(&Proposal { current, proposed, current_cost, proposed_cost, rewrite_cost, operations }, &CALM)
    }

    #[test]
    fn each_condition_is_needed() {
        assert!(verdict(100.0, 80.0, 40.0, 100).switch);
        let cases = [
            (verdict(100.0, 80.0, 40.0, 99), "99 operations seen, 100 needed"),
            (verdict(100.0, 80.1, 0.0, 100), "a gain of 19.9%, 20.0% needed"),
            (verdict(100.0, 80.0, 40.1, 100), "the rewriting is paid for after 2.0 traces, 2.0 allowed"),
            (verdict(100.0, 130.0, 0.0, 100), "a gain of -30.0%"),
            (verdict(0.0, 0.0, 0.0, 100), "a gain of 0.0%"),
            (verdict(f64::NAN, 1.0, 0.0, 100), "a gain of 0.0%"),
            (verdict(100.0, f64::NAN, 0.0, 100), "a gain of NaN%"),
            (verdict(100.0, 10.0, f64::NAN, 100), "paid for after NaN"),
        ];
        for (verdict, reason) in cases {
            assert!(!verdict.switch && verdict.reason.contains(reason), "{verdict:?}");
        }
        let rows = Design::rows(4, 2).unwrap();
        let (current, proposed) = (&rows, &rows);
        let same =
            Proposal { current, proposed, current_cost: 9.0, proposed_cost: 1.0, rewrite_cost: 0.0, operations: 999 };
        assert_eq!(decide(&same, &CALM).reason, "the design is in force already");
    }

    /// Costs that swing within the band switch at most once, whichever design they begin with.
    #[test]
    fn designs_do_not_alternate_within_the_band() {
        let designs = [Design::rows(4, 2).unwrap(), Design::columns(4, 2).unwrap()];
        let mut in_force = 0;
        let mut switches = 0;
        for round in 0..100 {
            // The other design is now 15% cheaper, now 15% dearer: less than the 20% needed.
            let ratio = if round % 2 == 0 { 0.85 } else { 1.0 / 0.85 };
            let costs = [100.0, 100.0 * ratio];
            let verdict = decide(
                &Proposal {
                    current: &designs[in_force],
                    proposed: &designs[1 - in_force],
                    current_cost: costs[in_force],
                    proposed_cost: costs[1 - in_force],
                    rewrite_cost: 0.0,
                    operations: 1_000,
                },
                &CALM,
            );
            if verdict.switch {
                in_force = 1 - in_force;
                switches += 1;
            }
        }
        assert_eq!(switches, 0);
    }

    #[test]
    fn only_changed_groups_are_rewritten() {
        let mut current = Design::fixed_width(4, 3, 2).unwrap();
        let mut proposed = current.clone();
        proposed.levels[2] = vec!["0-1".parse().unwrap(), "2".parse().unwrap(), "3".parse().unwrap()];
        let bytes = [4_096, 40_960, 409_600];
        assert_eq!(rewrite_cost(&current, &proposed, &bytes, 4_096), 2.0 * 100.0 / 2.0);
        assert_eq!(rewrite_cost(&proposed, &current, &bytes, 4_096), 2.0 * 100.0 / 2.0);
        assert_eq!(rewrite_cost(&current, &proposed, &bytes[..2], 4_096), 0.0);
        current.levels.truncate(1);
        assert_eq!(rewrite_cost(&current, &proposed, &bytes, 4_096), 2.0 * 110.0);
        assert_eq!(rewrite_cost(&Design::default(), &Design::default(), &[], 0), 0.0);
    }
}

//! The layout that a table should have: from its trace and its files to a layout that can be set (LASER §6).
//!
//! 1. The tree of the model is read off the files: level 0 and those that hold any (at least 2), the size ratio that
//!    the table's policy aims at, and `B` from the width of its entries ([`entries_per_block`]). Where the targets of
//!    levels follow from the last one, those between level 0 and the base level are empty: nothing is written to them
//!    on the way down.
//! 2. The trace is folded to these levels; [`advise_formats`] finds a design, groups of rows and columnar groups, and
//!    compares it with the usual ones. What encoding saves is read off the files where they are of both formats. Groups
//!    that part columns which are to stay together are joined then, in whichever format costs less; what follows is
//!    about the design as it is after that.
//! 3. The present layout is priced by the same trace. [`decide`] says whether the difference is worth the rewriting.
//!    What is rewritten beyond what compactions rewrite anyway is taken to be the last level: those above it are
//!    replaced within one turn of the tree. As long as no files tell what encoding saves, a design must not cost more
//!    than the present one if it saves nothing: else a table whose values do not shrink would become columns, be
//!    measured, become rows, and as soon as the last columns are gone become columns again.
//! 4. The design becomes a layout: a group of rows has the row format that the present layout gives its first column at
//!    that level, or where that is columnar the one of level 0; level 0 stays as it is, every level merges as it did,
//!    levels that are empty are like the next that is not, and deeper ones like the last.

use mycelium_base::limits::MAX_LEVELS;
use mycelium_base::{ColumnSet, Group, GroupFormat, Result};
use mycelium_manifest::{Layout, LevelLayout, Run, Version};
use mycelium_transform::Warning;

use crate::cost::formats::{Formats, group_cost};
use crate::cost::laser::Tree;
use crate::design::{Advice, Candidate, Design, advise_formats};
use crate::numbering::Numbering;
use crate::redesign::{Hysteresis, Proposal, Verdict, decide, rewrite_cost};
use crate::trace::{Access, Trace};

/// What is taken for the width of a value, or key, while there are no files to tell.
const VALUE_BYTES: f64 = 8.0;

/// What is known of a table besides what it was asked for.
#[derive(Clone, Copy, Debug)]
pub struct TableFacts<'a> {
    /// Its present layout.
    pub layout: &'a Layout,
    /// Its files; none if they are not known.
    pub version: &'a Version,
    /// `T`: how many times larger each level is to be than the one above; above 1.
    pub size_ratio: f64,
    /// Bytes of a data block.
    pub block_bytes: u64,
    /// Columns of which each set is to stay in one group, by position in the schema: those of an index, or of a view.
    pub together: &'a [ColumnSet],
}

/// The layout that a table should have, and why.
#[derive(Clone, PartialEq, Debug)]
pub struct LayoutAdvice {
    /// What the model knows of the tree.
    pub tree: Tree,
    /// The levels of the table that those of trace and designs stand for.
    pub levels: Vec<usize>,
    /// What it knows of columnar groups.
    pub formats: Formats,
    /// What the table was asked for, folded to the levels of the tree.
    pub trace: Trace,
    /// The present layout (`present`) and what it costs.
    pub present: Candidate,
    /// The advised design and what it was compared with, which may be cheaper where columns are to stay together.
    /// Columns are numbered as in the trace.
    pub advice: Advice,
    /// The advised design as a layout of the table.
    pub layout: Layout,
    /// Whether it is worth the rewriting.
    pub verdict: Verdict,
    /// What of the advised layout is outside the cost model of transforming compactions (Mycelium App. B).
    pub warnings: Vec<Warning>,
    numbering: Numbering,
}

impl LayoutAdvice {
    /// The advised design with columns by their positions in the schema.
    pub fn design(&self) -> Design {
        let Design { levels, columnar } = &self.advice.design;
        let level = |groups: &Vec<ColumnSet>| groups.iter().map(|group| self.numbering.positions(group)).collect();
        Design { levels: levels.iter().map(level).collect(), columnar: level(columnar) }
    }

    /// The advised design, the present one, and what else was compared, in this order.
    pub fn candidates(&self) -> Vec<Candidate> {
        let (design, cost) = (self.advice.design.clone(), self.advice.cost.clone());
        let advised = Candidate { name: "advised".to_owned(), design, cost };
        [advised, self.present.clone()].into_iter().chain(self.advice.candidates.iter().cloned()).collect()
    }
}

/// The layout that a table should have. See the module for the algorithm. `widths` are those of the fixed designs to
/// compare with ([`usual_widths`] where there are none to ask for).
///
/// Fails if the trace is of other columns than the layout, or the facts are outside the model.
///
/// ```
/// use mycelium_advisor::{Hysteresis, TableFacts, Trace, advise_layout};
/// use mycelium_base::ColumnSet;
/// use mycelium_manifest::{Layout, Version};
///
/// // Column 0 is the key.
/// let layout = Layout::parse("L0 tiered: * packed\nL1 leveled: * packed", &"1-4".parse()?)?;
/// let mut trace = Trace::new(4, 3)?;
/// trace.add_points(1, &ColumnSet::first(4), 20_000)?;
/// trace.add_scans(2, &"3".parse()?, 10, 10_000_000)?;
/// let version = Version::new();
/// let facts = TableFacts { layout: &layout, version: &version, size_ratio: 10.0, block_bytes: 4096, together: &[] };
/// let advice = advise_layout(&facts, &trace, &[2], &Hysteresis::default())?;
/// assert_eq!(
///     advice.layout.to_string(),
///     "L0 tiered: * packed\nL1 leveled: * packed\nL2 leveled: 1-3 packed | 4 columnar\n"
/// );
/// assert!(advice.verdict.switch);
/// # Ok::<(), mycelium_base::Error>(())
/// ```
pub fn advise_layout(
    facts: &TableFacts<'_>,
    trace: &Trace,
    widths: &[usize],
    hysteresis: &Hysteresis,
) -> Result<LayoutAdvice> {
    let TableFacts { layout, version, size_ratio, block_bytes, .. } = *facts;
    let numbering = Numbering::new(&layout.level(0).groups[0].columns);
    let columns = numbering.columns().len();
    let levels = levels_of(version, trace);
    // As they were counted while the table worked, which is what asks for advice.
    let operations = trace.operations();
    let trace = trace.of_levels(&levels)?;
    let tree = Tree { size_ratio, entries_per_block: entries_per_block(version, columns, block_bytes), columns };
    let measured = measured_encoding(version, columns);
    let formats = formats_with(measured);
    let mut advice = advise_formats(&tree, &formats, &trace, widths)?;
    keep_together(&mut advice, facts, (&levels, &numbering), (&tree, &formats, &trace))?;
    let design = design_of(layout, &levels, &numbering);
    let cost = design.cost_of_formats(&tree, &formats, &trace)?;
    let present = Candidate { name: "present".to_owned(), design, cost };
    let mut level_bytes = vec![0; levels.len()];
    if let (Some(bytes), Some(last)) = (level_bytes.last_mut(), levels.last()) {
        *bytes = version.level_bytes(*last);
    }
    let proposal = Proposal {
        current: &present.design,
        proposed: &advice.design,
        current_cost: present.cost.total,
        proposed_cost: advice.cost.total,
        rewrite_cost: rewrite_cost(&present.design, &advice.design, &level_bytes, block_bytes),
        operations: evidence(operations, trace.scanned_entries(), tree.entries_per_block),
    };
    let mut verdict = decide(&proposal, hysteresis);
    if verdict.switch && measured.is_none() {
        let unencoded = Formats { encoded: 1.0, ..formats };
        let cost = |design: &Design| design.cost_of_formats(&tree, &unencoded, &trace).map(|cost| cost.total);
        if cost(&advice.design)? > cost(&present.design)? {
            verdict.switch = false;
            "what is gained is what encoding is guessed to save, and no files tell it".clone_into(&mut verdict.reason);
        }
    }
    let layout = match advice.design == present.design {
        true => layout.clone(),
        false => layout_of(&advice.design, &levels, layout, &numbering)?,
    };
    let warnings = Warning::of_steps(transforming_steps(&layout), size_ratio).into_iter().collect();
    Ok(LayoutAdvice { tree, levels, formats, trace, present, advice, layout, verdict, warnings, numbering })
}

/// The levels whose entries a compaction transforms on their way to the next one.
fn transforming_steps(layout: &Layout) -> usize {
    layout.levels().windows(2).filter(|pair| pair[0].groups != pair[1].groups).count()
}

/// Joins the groups of the advised design that part columns which are to stay together, and prices what comes of it.
fn keep_together(
    advice: &mut Advice,
    facts: &TableFacts<'_>,
    (levels, numbering): (&[usize], &Numbering),
    (tree, formats, trace): (&Tree, &Formats, &Trace),
) -> Result<()> {
    let free = layout_of(&advice.design, levels, facts.layout, numbering)?;
    let kept = free.keeping_together(facts.together);
    if kept == free {
        return Ok(());
    }
    let accesses: Vec<Vec<Access>> = (0..levels.len()).map(|level| trace.accesses(level)).collect();
    let is_columnar = |level: usize, group: &ColumnSet| {
        let cost = |is_columnar| group_cost(tree, formats, trace.writes(), &accesses[level], group, is_columnar);
        level > 0 && cost(true) < cost(false)
    };
    advice.design = design_of(&kept, levels, numbering).with_columnar(is_columnar);
    advice.cost = advice.design.cost_of_formats(tree, formats, trace)?;
    Ok(())
}

/// How much a trace says: its operations, and the blocks that its scans went through. One long scan says as much as
/// many point reads that fetch as many blocks.
pub fn evidence(operations: u64, scanned_entries: u64, entries_per_block: f64) -> u64 {
    operations.saturating_add((scanned_entries as f64 / entries_per_block.max(1.0)) as u64)
}

/// A half, a quarter and an eighth of the columns, as far as these are widths between one column and all.
pub fn usual_widths(columns: usize) -> Vec<usize> {
    let mut widths: Vec<usize> = [2, 4, 8].iter().map(|share| columns.div_ceil(*share)).collect();
    widths.retain(|&width| width > 1 && width < columns);
    widths.dedup();
    widths
}

/// `B`: entries of a whole row in a block, from the bytes and entries of the largest level. Where it has column groups,
/// their entries are widened by equation 3, and encoded bytes count as those of rows; compressed blocks count as they
/// are stored.
pub fn entries_per_block(version: &Version, columns: usize, block_bytes: u64) -> f64 {
    let encoded = formats_of(version, columns).encoded;
    let largest = version.levels.iter().max_by_key(|level| level.bytes());
    let mut sizes = Sizes::default();
    for run in largest.iter().flat_map(|level| &level.runs) {
        sizes.add(run, columns, if is_columnar(run) { encoded } else { 1.0 });
    }
    let value_bytes = sizes.value_bytes().unwrap_or(VALUE_BYTES);
    (block_bytes as f64 / (value_bytes * (1 + columns) as f64)).max(f64::MIN_POSITIVE)
}

/// What is known of columnar groups.
fn formats_of(version: &Version, columns: usize) -> Formats {
    formats_with(measured_encoding(version, columns))
}

/// All as usual, but for what files tell.
fn formats_with(measured: Option<f64>) -> Formats {
    let usual = Formats::default();
    Formats { encoded: measured.unwrap_or(usual.encoded), ..usual }
}

/// `e`, from the bytes of a value, or key, in files of both formats, where both hold the same columns: values of others
/// say nothing of it.
fn measured_encoding(version: &Version, columns: usize) -> Option<f64> {
    let [mut rows, mut columnar] = [Sizes::default(), Sizes::default()];
    let [mut of_rows, mut of_columnar] = [ColumnSet::new(), ColumnSet::new()];
    let mut has_whole_rows = false;
    for run in version.levels.iter().flat_map(|level| &level.runs) {
        let (sizes, held) =
            if is_columnar(run) { (&mut columnar, &mut of_columnar) } else { (&mut rows, &mut of_rows) };
        sizes.add(run, columns, 1.0);
        match run.group() {
            Some(group) => *held = held.union(&group.columns),
            None => has_whole_rows = true,
        }
    }
    let encoded = columnar.value_bytes().zip(rows.value_bytes()).filter(|_| match has_whole_rows {
        true => of_columnar.len() == columns,
        false => of_rows == of_columnar,
    });
    // Patches and deletes have fewer values than they are counted with, and files of a few rows are mostly footers.
    // Encoding never makes values longer than rows have them, and hardly ever to a twentieth.
    encoded.map(|(columnar, rows)| (columnar / rows).clamp(0.05, 1.0))
}

fn is_columnar(run: &Run) -> bool {
    run.group().is_some_and(|group| group.format == GroupFormat::Columnar)
}

/// Bytes of files, and the values and keys that they hold.
#[derive(Clone, Copy, Default)]
struct Sizes {
    bytes: f64,
    values: f64,
}

impl Sizes {
    /// Adds a run whose bytes are so much of what rows would take.
    fn add(&mut self, run: &Run, columns: usize, encoded: f64) {
        let entries: f64 = run.files.iter().map(|file| file.entry_count as f64).sum();
        let width = 1 + run.group().map_or(columns, |group| group.columns.len());
        self.bytes += run.bytes() as f64 / encoded;
        self.values += entries * width as f64;
    }

    fn value_bytes(self) -> Option<f64> {
        (self.bytes > 0.0 && self.values > 0.0).then(|| self.bytes / self.values)
    }
}

/// Step 1: level 0 and those that hold files; as far as the trace says where there are none.
fn levels_of(version: &Version, trace: &Trace) -> Vec<usize> {
    let deepest_file = version.last_level();
    let last = deepest_file.unwrap_or_else(|| deepest(trace)).clamp(1, MAX_LEVELS - 1);
    let is_there =
        |level: &usize| *level == 0 || *level == last || deepest_file.is_none() || version.level_bytes(*level) > 0;
    (0..=last).filter(is_there).collect()
}

/// The last level that served anything.
fn deepest(trace: &Trace) -> usize {
    (0..trace.level_count()).rev().find(|&level| !trace.accesses(level).is_empty()).unwrap_or_default()
}

/// The groups of a layout at these levels.
fn design_of(layout: &Layout, levels: &[usize], numbering: &Numbering) -> Design {
    let groups = |level: &usize| -> Vec<ColumnSet> {
        layout.level(*level).groups.iter().map(|group| numbering.numbers(&group.columns)).collect()
    };
    let design = Design { levels: levels.iter().map(groups).collect(), ..Design::default() };
    design.with_columnar(|at, group| {
        let columnar = layout.level(levels[at]).groups.iter().filter(|group| group.format == GroupFormat::Columnar);
        at > 0 && columnar.map(|columnar| numbering.numbers(&columnar.columns)).any(|columns| columns == *group)
    })
}

/// Step 4; the levels of the design stand for these.
fn layout_of(design: &Design, of_levels: &[usize], like: &Layout, numbering: &Numbering) -> Result<Layout> {
    let mut levels: Vec<LevelLayout> = vec![like.level(0).clone()];
    let count = of_levels.last().map_or(1, |last| last + 1).max(like.levels().len());
    for level in 1..count {
        let designed = of_levels.partition_point(|known| *known < level).min(design.levels.len().saturating_sub(1));
        let Some(groups) = design.levels.get(designed) else { break };
        let group = |numbers: &ColumnSet| {
            let columns = numbering.positions(numbers);
            let format = match design.is_columnar(designed, numbers) {
                true => GroupFormat::Columnar,
                false => row_format(like, level, &columns),
            };
            Group::new(columns, format)
        };
        levels.push(LevelLayout { groups: groups.iter().map(group).collect(), merge: like.level(level).merge });
    }
    while levels.len() > 2 && levels.last() == levels.get(levels.len() - 2) {
        levels.pop();
    }
    Layout::new(levels, numbering.columns())
}

/// The row format that a layout gives the first of these columns at a level, or else at level 0, or else packed.
fn row_format(layout: &Layout, level: usize, columns: &ColumnSet) -> GroupFormat {
    let first = columns.iter().next();
    let holds = |group: &&Group| first.is_some_and(|first| group.columns.contains(first));
    let formats = [level, 0].into_iter().filter_map(|level| layout.level(level).groups.iter().find(holds));
    formats.map(|group| group.format).find(|format| *format != GroupFormat::Columnar).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mycelium_manifest::{FileMeta, Level, Run};

    use super::*;

    fn layout(text: &str) -> Layout {
        Layout::parse(text, &"1-4".parse().unwrap()).unwrap()
    }

    fn run(group: Option<&str>, bytes: u64, entries: u64) -> Run {
        let group = group.map(|columns| Arc::new(Group::new(columns.parse().unwrap(), GroupFormat::default())));
        let file = FileMeta { size: bytes, entry_count: entries, group, ..FileMeta::default() };
        Run { files: vec![Arc::new(file)] }
    }

    fn version(levels: Vec<Vec<Run>>) -> Version {
        let mut version = Version::new();
        version.levels =
            levels.into_iter().map(|runs| Level { runs: runs.into_iter().map(Arc::new).collect() }).collect();
        version
    }

    /// Of one transforming compaction, with size ratios that the model holds for and that it does not (n < T/2).
    #[test]
    fn advice_outside_the_cost_model_is_warned_of() {
        let rows = layout("L0 tiered: * packed\nL1 leveled: * packed");
        let mut trace = Trace::new(4, 3).unwrap();
        trace.add_points(1, &ColumnSet::first(4), 20_000).unwrap();
        trace.add_scans(2, &"3".parse().unwrap(), 10, 10_000_000).unwrap();
        let version = Version::new();
        for (size_ratio, warns) in [(2.0, true), (2.5, false), (10.0, false)] {
            let facts = TableFacts { layout: &rows, version: &version, size_ratio, block_bytes: 4096, together: &[] };
            let advice = advise_layout(&facts, &trace, &[], &Hysteresis::default()).unwrap();
            assert_eq!(transforming_steps(&advice.layout), 1, "{}", advice.layout);
            assert_eq!(advice.warnings.len(), usize::from(warns), "{size_ratio}: {:?}", advice.warnings);
        }
        assert_eq!(
            transforming_steps(&layout(
                "L0 tiered: * packed\nL1 leveled: 1-2 packed | 3-4 packed\nL2 leveled: 1-2 packed | 3 packed | 4 packed"
            )),
            2
        );
    }

    #[test]
    fn entries_of_groups_are_widened() {
        // 100 rows of 50 bytes, 10 for the key and each column.
        let rows = version(vec![vec![], vec![run(None, 5_000, 100)]]);
        assert_eq!(entries_per_block(&rows, 4, 4_000), 80.0);
        let groups =
            version(vec![vec![run(None, 50, 1)], vec![run(Some("1"), 2_000, 100), run(Some("2-4"), 4_000, 100)]]);
        assert_eq!(entries_per_block(&groups, 4, 4_000), 80.0);
        assert_eq!(entries_per_block(&Version::new(), 4, 4_000), 100.0);
    }

    /// Rows of 50 bytes above, the same columnar in 20 below: encoded values take 0.4 of their bytes, and a block is as
    /// many rows as before.
    #[test]
    fn encoding_is_read_off_the_files() {
        let group = Group::new("1-4".parse().unwrap(), GroupFormat::Columnar);
        let file = FileMeta { size: 20_000, entry_count: 1_000, group: Some(Arc::new(group)), ..FileMeta::default() };
        let both = version(vec![vec![run(None, 5_000, 100)], vec![Run { files: vec![Arc::new(file)] }]]);
        assert_eq!(formats_of(&both, 4).encoded, 0.4);
        assert!((entries_per_block(&both, 4, 4_000) - 80.0).abs() < 1e-9);
        assert_eq!(formats_of(&Version::new(), 4), Formats::default());
    }

    /// Level 0 has patches of one column in 30 alone: they made columns seem to take five times the bytes of rows, and
    /// a table that is scanned was to become rows, until the next patches.
    #[test]
    fn patches_do_not_make_encoding_seem_to_lengthen_values() {
        let group = Group::new("1-30".parse().unwrap(), GroupFormat::Columnar);
        let file =
            FileMeta { size: 124_000_000, entry_count: 1_000_000, group: Some(Arc::new(group)), ..FileMeta::default() };
        let patched = version(vec![vec![run(None, 25_000, 1_000)], vec![Run { files: vec![Arc::new(file)] }]]);
        assert_eq!(formats_of(&patched, 30).encoded, 1.0);
    }

    /// A long text in rows and numbers in columns say nothing of what encoding either would save.
    #[test]
    fn encoding_is_not_read_off_files_of_other_columns() {
        let numbers = Group::new("2-4".parse().unwrap(), GroupFormat::Columnar);
        let file = FileMeta { size: 8_000, entry_count: 1_000, group: Some(Arc::new(numbers)), ..FileMeta::default() };
        let apart = vec![vec![], vec![run(Some("1"), 1_000_000, 1_000), Run { files: vec![Arc::new(file)] }]];
        assert_eq!(formats_of(&version(apart), 4), Formats::default());
    }

    /// Values that do not shrink: written a lot, and read by key. Columns were advised by what encoding saves of
    /// others; once they were there and told that it saves nothing, rows were; and when the last columns were gone it
    /// began anew.
    #[test]
    fn a_table_that_encoding_does_not_shorten_does_not_swing() {
        let mut trace = Trace::new(4, 6).unwrap();
        // By the model a level costs 15,625 blocks for the inserts, as rows or unencoded, and 1 or 2.2 for each point
        // read.
        trace.add_inserts(100_000);
        (1..6).for_each(|level| trace.add_points(level, &ColumnSet::first(4), 2_000).unwrap());
        let group = Group::new("1-4".parse().unwrap(), GroupFormat::Columnar);
        let file = FileMeta { size: 50_000, entry_count: 1_000, group: Some(Arc::new(group)), ..FileMeta::default() };
        let above = || (0..5).map(|_| vec![run(None, 50, 1)]).collect::<Vec<_>>();
        let as_rows = version([above(), vec![vec![run(None, 50_000, 1_000)]]].concat());
        let as_columns = version([above(), vec![vec![Run { files: vec![Arc::new(file)] }]]].concat());
        let advise = |text: &str, version: &Version| {
            let layout = layout(text);
            let facts = TableFacts { layout: &layout, version, size_ratio: 10.0, block_bytes: 4_000, together: &[] };
            advise_layout(&facts, &trace, &[], &Hysteresis::default()).unwrap()
        };
        let of_rows = advise("L0 tiered: * packed\nL1 leveled: * packed", &as_rows);
        assert_eq!(of_rows.formats, Formats::default(), "no files tell");
        assert!(of_rows.verdict.gain > 0.1, "by the guess it gains: {:?}", of_rows.verdict);
        assert!(!of_rows.verdict.switch && of_rows.verdict.reason.contains("guessed"), "{:?}", of_rows.verdict);
        let of_columns = advise("L0 tiered: * packed\nL1 leveled: * columnar", &as_columns);
        assert_eq!(of_columns.formats.encoded, 1.0);
        assert!(of_columns.verdict.switch, "{:?}", of_columns.verdict);
        assert_eq!(of_columns.layout.to_string(), "L0 tiered: * packed\nL1 leveled: * packed\n");
    }

    #[test]
    fn formats_and_merging_stay_as_they_are() {
        let like = layout("L0 tiered: * packed\nL1 tiered: * json\nL2 leveled: 1-2 json | 3-4 packed");
        let numbering = Numbering::new(&"1-4".parse().unwrap());
        let design = Design::fixed_width(4, 2, 2).unwrap();
        let text = "L0 tiered: * packed\nL1 tiered: 1-2 json | 3-4 json\nL2 leveled: 1-2 json | 3-4 packed\n";
        assert_eq!(layout_of(&design, &[0, 1], &like, &numbering).unwrap().to_string(), text);
        let same = design_of(&like, &[0, 1, 2], &numbering);
        assert_eq!(layout_of(&same, &[0, 1, 2], &like, &numbering).unwrap(), like);
        let levels = [0, 1, 2, 3, 4, 5, 6];
        let deeper = design_of(&like, &levels, &numbering);
        assert_eq!(layout_of(&deeper, &levels, &like, &numbering).unwrap(), like);

        let like = layout(
            "L0 tiered: * packed\nL1 leveled: 1-2 columnar | 3-4 packed\nL2 leveled: 1 columnar | 2 columnar | 3-4 json",
        );
        let same = design_of(&like, &[0, 1, 2], &numbering);
        assert_eq!(same.to_string(), "L0: 0-3\nL1: 0-1 columnar | 2-3\nL2: 0 columnar | 1 columnar | 2-3\n");
        assert_eq!(layout_of(&same, &[0, 1, 2], &like, &numbering).unwrap(), like);
        // Rows where there were columns have the format of level 0.
        let rows = "L0 tiered: * packed\nL1 leveled: 1-2 packed | 3-4 packed\nL2 leveled: 1-2 packed | 3-4 json\n";
        assert_eq!(layout_of(&design, &[0, 1], &like, &numbering).unwrap().to_string(), rows);
    }

    /// Columns of an index were joined after the verdict, in the format of the first of their groups: a columnar table
    /// whose scans and point reads wanted one column apart became rows, of which they cost more than twice as much.
    #[test]
    fn a_design_is_judged_with_the_columns_together_that_are_to_stay_so() {
        let layout = layout("L0 tiered: * packed\nL1 leveled: * columnar");
        let mut trace = Trace::new(4, 2).unwrap();
        // By the model: apart 5 blocks a point read, columnar 6.1, rows 16.
        trace.add_points(1, &ColumnSet::first(4), 20_000).unwrap();
        trace.add_scans(1, &"3".parse().unwrap(), 8, 8_000_000).unwrap();
        let version = Version::new();
        let advise = |together: &[ColumnSet]| {
            let facts =
                TableFacts { layout: &layout, version: &version, size_ratio: 10.0, block_bytes: 4_000, together };
            advise_layout(&facts, &trace, &[], &Hysteresis::default()).unwrap()
        };
        let free = advise(&[]);
        assert_eq!(free.layout.to_string(), "L0 tiered: * packed\nL1 leveled: 1-3 packed | 4 columnar\n");
        assert!(free.verdict.switch, "{:?}", free.verdict);
        let kept = advise(&["2,4".parse().unwrap()]);
        assert_eq!(kept.layout, layout);
        assert!(!kept.verdict.switch && kept.advice.cost == kept.present.cost, "{:?}", kept.verdict);
        assert_eq!(advise(&["2-3".parse().unwrap()]), free, "they are together");
    }

    /// Levels below the files fold into the last; only the last level's bytes stand against a change.
    #[test]
    fn advice_follows_the_files() {
        let rows = layout("L0 tiered: * packed\nL1 leveled: * packed");
        let mut trace = Trace::new(4, 7).unwrap();
        trace.add_scans(6, &"3".parse().unwrap(), 3, 1_000_000).unwrap();
        let small = version(vec![vec![], vec![run(None, 50_000, 1_000)]]);
        let facts = TableFacts { layout: &rows, version: &small, size_ratio: 10.0, block_bytes: 4_000, together: &[] };
        let advice = advise_layout(&facts, &trace, &usual_widths(4), &Hysteresis::default()).unwrap();
        assert_eq!(advice.trace.level_count(), 2);
        assert_eq!(advice.layout.to_string(), "L0 tiered: * packed\nL1 leveled: 1-3 packed | 4 columnar\n");
        assert_eq!(advice.design().levels[1].len(), 2);
        assert!(advice.verdict.switch, "{:?}", advice.verdict);
        assert_eq!(
            advice.candidates()[..2].iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
            ["advised", "present"]
        );

        let large = version(vec![vec![], vec![run(None, 50_000_000_000, 1_000_000_000)]]);
        let facts = TableFacts { version: &large, ..facts };
        let advice = advise_layout(&facts, &trace, &[], &Hysteresis::default()).unwrap();
        assert!(!advice.verdict.switch && advice.verdict.reason.contains("paid for"), "{:?}", advice.verdict);
        let other = Trace::new(5, 7).unwrap();
        assert!(advise_layout(&facts, &other, &[], &Hysteresis::default()).is_err());
    }

    /// Between level 0 and the base level, where targets follow from the last level. Inserts and updates were charged
    /// for each of them, so that what scans and reads cost seemed a third of what it is.
    #[test]
    fn levels_without_files_cost_nothing() {
        let layout = layout("L0 tiered: * packed\nL1 leveled: * packed");
        let mut trace = Trace::new(4, 7).unwrap();
        trace.add_inserts(100_000);
        (0..7).for_each(|level| trace.add_updates(level, &"0".parse().unwrap(), 500).unwrap());
        trace.add_scans(6, &"3".parse().unwrap(), 3, 1_000_000).unwrap();
        let (top, bottom) = (|| vec![run(None, 50, 1)], || vec![run(None, 50_000, 1_000)]);
        let deep = version(vec![top(), vec![], vec![], vec![], vec![], vec![], bottom()]);
        let flat = version(vec![top(), bottom()]);
        let [deep, flat] = [&deep, &flat].map(|version| {
            let facts = TableFacts { layout: &layout, version, size_ratio: 10.0, block_bytes: 4_000, together: &[] };
            advise_layout(&facts, &trace, &[], &Hysteresis::default()).unwrap()
        });
        assert_eq!((deep.levels, flat.levels), (vec![0, 6], vec![0, 1]));
        assert_eq!((&deep.trace, &deep.present, &deep.layout), (&flat.trace, &flat.present, &flat.layout));
        assert_eq!(deep.verdict, flat.verdict);
        assert_eq!(deep.trace.accesses(1).iter().map(|access| access.updates).max(), Some(500));
        assert_eq!(deep.layout.levels().len(), 2, "{}", deep.layout);
    }

    #[test]
    fn widths_lie_between_a_column_and_all() {
        assert_eq!(usual_widths(30), [15, 8, 4]);
        assert_eq!(usual_widths(4), [2]);
        assert!(usual_widths(1).is_empty() && usual_widths(2).is_empty());
    }
}

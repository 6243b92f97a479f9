//! Linking: a set of transformers and a table become a layout (Mycelium Algorithm 1, §4.2.5, §3.4).
//!
//! 1. *Validate and sort.* Neutral transformers are left out. A gradual one comes first (rule 3), and there is at most
//!    one (rule 2). Then comes the chain of formats: it starts with the format of level 0, each transformer takes the
//!    format that the one before it gives, and no format is entered twice. Whoever stands beside the order is sorted by
//!    its tables. A set with two possible orders is refused.
//! 2. *Link.* Level 0 is one group of all columns. For every transformer in order, and every round of it: each group of
//!    the lowest level so far becomes its destinations, and these are the next level: the paper's internal column
//!    families of one local level 0 are our groups of one level. So a level has at most one transformer (rule 1), but
//!    for the format that follows a split: it is written by the last round of the split, as table 1 has it, whose
//!    convert leads from four groups to eight (docs/decisions/0037). Both must be said by the groups that they lead to.
//! 3. *Tierveling.* A level that a transformation leaves or enters is tiered: what crosses it is never merged with what
//!    it meets there, so that every entry is transformed once. All others are leveled.
//! 4. Warn where the cost model does not hold (Appendix B: `1 <= n < T/2` for n transforming compactions and size ratio
//!    T).
//!
//! What stands beside the order takes effect where data leave level 0, the only level where all columns are surely
//! together. It changes nothing of the table and so takes no level of its own; but level 1 is then one that a
//! transformation enters, and tiered.
//!
//! The order of a set does not depend on the order in which it is given (commutativity), nor on how it was put together
//! (associativity); `identity` adds nothing.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use mycelium_base::limits::MAX_LEVELS;
use mycelium_base::{ColumnSet, Error, Group, GroupFormat, Result};
use mycelium_manifest::{Layout, LevelLayout, Merge};

use crate::{Formats, Place, Transformer, TransformerDefinition};

/// What linking must know of a table beside its columns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkOptions {
    /// Levels of the table, level 0 included. Default: 7.
    pub level_count: usize,
    /// How many times larger each level is than the one above. Default: 10.
    pub size_ratio: f64,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self { level_count: 7, size_ratio: 10.0 }
    }
}

/// Something that works but may be unwise.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Warning {
    /// So many compactions transform that the cost model no longer holds: writes may cost more than it predicts.
    OutsideCostModel {
        /// Compactions that transform an entry on its way down: n.
        steps: usize,
        /// T.
        size_ratio: f64,
    },
}

impl Warning {
    /// What there is to be said of `steps` transforming compactions (`n`) with the size ratio `size_ratio` (`T`): the
    /// cost model holds for `1 <= n < T/2` (Mycelium App. B, after eq. 4). Nothing of a table that transforms nothing.
    pub fn of_steps(steps: usize, size_ratio: f64) -> Option<Self> {
        let within_model = (steps as f64) < size_ratio / 2.0;
        (steps > 0 && !within_model).then_some(Self::OutsideCostModel { steps, size_ratio })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::OutsideCostModel { steps, size_ratio } = self;
        write!(
            f,
            "{steps} transforming compactions with a size ratio of {size_ratio}: the cost model holds for fewer than {}; \
             writes may cost more than predicted",
            size_ratio / 2.0
        )
    }
}

/// A transformer and how the table's definition names it.
#[derive(Clone, Debug)]
pub struct NamedTransformer {
    /// Its line in the definition.
    pub definition: TransformerDefinition,
    /// What was made of it.
    pub transformer: Arc<dyn Transformer>,
}

/// One round of a transformer: what happens to data that leave a level for the next.
#[derive(Clone, Debug)]
pub struct Step {
    /// The level that they leave.
    pub level: usize,
    /// Which of the transformer's rounds, from 0.
    pub round: usize,
    /// The transformer.
    pub named: NamedTransformer,
}

/// A linked set of transformers. Immutable; shared by all jobs of the table.
///
/// ```
/// use std::sync::Arc;
/// use mycelium_base::{GroupFormat, RowFormatKind};
/// use mycelium_encoding::Schema;
/// use mycelium_transform::{Formats, LinkOptions, Registry, TransformerSet};
///
/// let schema = Schema::parse("id int64 not null, a int32, b int32, c utf8, d utf8, primary key (id)")?;
/// let formats = Arc::new(Formats::new(Arc::new(schema)));
/// let set = TransformerSet::parse("convert json to packed\nsplit by 2")?;
/// let source = GroupFormat::Row(RowFormatKind::Json);
/// let linked = Registry::built_in().link(&set, &formats, source, &LinkOptions::default())?;
/// assert_eq!(
///     linked.layout().to_string(),
///     "L0 tiered: * json\n\
///      L1 tiered: 1-2 json | 3-4 json\n\
///      L2 tiered: 1 packed | 2 packed | 3 packed | 4 packed\n\
///      L3 leveled: 1 packed | 2 packed | 3 packed | 4 packed\n"
/// );
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Linked {
    formats: Arc<Formats>,
    layout: Layout,
    steps: Vec<Step>,
    beside: Vec<NamedTransformer>,
    warnings: Vec<Warning>,
}

impl Linked {
    /// What the table's levels look like.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The steps from level 0 down: one per level, but for a convert in the last round of a split.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The lowest level that a step leads to; 0 without steps.
    pub fn last_entered(&self) -> usize {
        self.steps.last().map_or(0, |step| step.level + 1)
    }

    /// The transformers that feed derived tables from what leaves level 0, by the names of their tables.
    pub fn beside(&self) -> &[NamedTransformer] {
        &self.beside
    }

    /// The derived tables, in the order in which [`DerivedEntry::table`](crate::DerivedEntry::table) counts them.
    pub fn derived_tables(&self) -> Vec<String> {
        self.beside.iter().flat_map(|named| named.transformer.derived_tables()).collect()
    }

    /// What may be unwise about it.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The columns and formats that it was linked for.
    pub fn formats(&self) -> &Arc<Formats> {
        &self.formats
    }

    /// The columns that a patch of `touched` must have for the derived tables' sake, `touched` included. The writer
    /// completes the patch with the row's present values of the others, under the key's latch; then no compaction has
    /// to look for them.
    pub fn completed(&self, touched: &ColumnSet) -> ColumnSet {
        let reads: Vec<ColumnSet> = self.beside.iter().map(|named| named.transformer.reads()).collect();
        let mut completed = touched.clone();
        // What completes a patch for one table may touch another. Each round but the last adds a column.
        loop {
            let before = completed.len();
            for read in &reads {
                if read.overlaps(&completed) {
                    completed = completed.union(read);
                }
            }
            if completed.len() == before {
                return completed;
            }
        }
    }

    /// Whether data that leave the levels of `crossing` need no call: the groups that they are written to say all that
    /// happens to them. The compaction may then reshape them as it likes.
    pub fn is_said_by_layout(&self, crossing: &Range<usize>) -> bool {
        self.called(crossing).next().is_none() && (self.beside.is_empty() || !crossing.contains(&0))
    }

    /// The steps within `crossing` whose transformers must be called.
    pub(crate) fn called(&self, crossing: &Range<usize>) -> impl Iterator<Item = &Step> {
        self.steps
            .iter()
            .filter(move |step| crossing.contains(&step.level) && !step.named.transformer.is_said_by_layout())
    }
}

/// The steps at the head of this module.
pub(crate) fn link(
    set: Vec<NamedTransformer>,
    formats: &Arc<Formats>,
    source: GroupFormat,
    options: &LinkOptions,
) -> Result<Linked> {
    let sorted = validate_and_sort(set, formats, source)?;
    let whole = Group::new(formats.columns().clone(), source);
    let (mut levels, steps) = link_levels(&sorted.in_order, whole)?;
    if !sorted.beside.is_empty() && steps.is_empty() {
        levels.extend(levels.last().cloned());
    }
    let transforming = levels.len() - 1;
    if transforming + 2 > options.level_count.min(MAX_LEVELS) {
        return Err(Error::invalid(format!(
            "the transformers need {} levels, of {} that the table has: one for each of {transforming} rounds, the one \
             that the last of them enters, and one below",
            transforming + 2,
            options.level_count.min(MAX_LEVELS)
        )));
    }
    for group in levels.iter().flatten() {
        check_format(group.format, formats)?;
    }
    let layout = lay_out(levels, formats.columns())?;
    let warnings = Warning::of_steps(transforming, options.size_ratio).into_iter().collect();
    Ok(Linked { formats: formats.clone(), layout, steps, beside: sorted.beside, warnings })
}

/// Step 2: the groups of every level down to the last that is entered, and what happens between them.
fn link_levels(in_order: &[NamedTransformer], whole: Group) -> Result<(Vec<Vec<Group>>, Vec<Step>)> {
    let mut levels = vec![vec![whole]];
    let mut steps = Vec::new();
    for named in in_order {
        let lowest = levels.last().map(Vec::as_slice).unwrap_or_default();
        let rounds = lowest.iter().map(|group| named.transformer.rounds(group)).max().unwrap_or(0);
        for round in 0..rounds {
            let sources = levels.last().map(Vec::as_slice).unwrap_or_default();
            let mut entered = Vec::with_capacity(sources.len());
            for source in sources {
                entered.extend(destinations(named, source, round)?);
            }
            if steps.last().is_some_and(|last| ends_split(last, named)) {
                levels.pop();
            }
            if levels.len() >= MAX_LEVELS {
                let message = format!("`{}` would need more than {MAX_LEVELS} levels", named.definition);
                return Err(Error::invalid(message));
            }
            steps.push(Step { level: levels.len() - 1, round, named: named.clone() });
            levels.push(entered);
        }
    }
    Ok((levels, steps))
}

/// Whether `next` is the convert that is made in the last round of a split.
fn ends_split(last: &Step, next: &NamedTransformer) -> bool {
    let is_said = |named: &NamedTransformer| named.transformer.is_said_by_layout();
    last.named.transformer.place() == Place::Gradual
        && matches!(next.transformer.place(), Place::Chain { .. })
        && is_said(&last.named)
        && is_said(next)
}

/// The destinations of one group, checked against the transformer's place.
fn destinations(named: &NamedTransformer, source: &Group, round: usize) -> Result<Vec<Group>> {
    let format = match named.transformer.place() {
        Place::Chain { to, .. } => to,
        _ => source.format,
    };
    let destinations = named.transformer.destinations(source, round)?;
    if let Some(group) = destinations.iter().find(|group| group.format != format) {
        let message = format!("`{}` takes group {source} to {group}, but should keep to {format}", named.definition);
        return Err(Error::invalid(message));
    }
    Ok(destinations)
}

fn check_format(format: GroupFormat, formats: &Formats) -> Result<()> {
    match format {
        GroupFormat::Row(kind) => formats.get(kind).map(drop),
        GroupFormat::Columnar => Ok(()),
    }
}

/// Step 3.
fn lay_out(levels: Vec<Vec<Group>>, columns: &ColumnSet) -> Result<Layout> {
    let below = levels.last().cloned().unwrap_or_default();
    let mut levels: Vec<LevelLayout> =
        levels.into_iter().map(|groups| LevelLayout { groups, merge: Merge::Tiered }).collect();
    levels.push(LevelLayout { groups: below, merge: Merge::Leveled });
    Layout::new(levels, columns)
}

#[derive(Debug)]
struct Sorted {
    in_order: Vec<NamedTransformer>,
    beside: Vec<NamedTransformer>,
}

/// One that stands in the chain, with the formats it says it takes and gives.
#[derive(Debug)]
struct Link {
    named: NamedTransformer,
    from: GroupFormat,
    to: GroupFormat,
}

/// Step 1.
fn validate_and_sort(set: Vec<NamedTransformer>, formats: &Formats, source: GroupFormat) -> Result<Sorted> {
    let (mut gradual, mut links, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    for named in set {
        match named.transformer.place() {
            Place::Neutral => {}
            Place::Gradual => gradual.push(named),
            Place::Chain { from, to } => links.push(Link { named, from, to }),
            Place::Beside => beside.push(named),
        }
    }
    if let [first, second, ..] = gradual.as_slice() {
        return Err(Error::invalid(format!(
            "a table has at most one gradual transformer, not both `{}` and `{}`",
            first.definition, second.definition
        )));
    }
    gradual.extend(sort_chain(links, source)?);
    check_derived_tables(&beside, formats)?;
    beside.sort_by_cached_key(|named| named.transformer.derived_tables());
    Ok(Sorted { in_order: gradual, beside })
}

/// The one order in which each takes what the one before it gives.
fn sort_chain(mut links: Vec<Link>, source: GroupFormat) -> Result<Vec<NamedTransformer>> {
    let mut sorted = Vec::with_capacity(links.len());
    let mut formats = vec![source];
    let mut format = source;
    loop {
        sorted.extend(take_only(&mut links, |link| link.from == format && link.to == format)?.map(|link| link.named));
        let Some(next) = take_only(&mut links, |link| link.from == format && link.to != format)? else { break };
        if formats.contains(&next.to) {
            let message =
                format!("`{}` goes back to {}, which the table was in before", next.named.definition, next.to);
            return Err(Error::invalid(message));
        }
        format = next.to;
        formats.push(format);
        sorted.push(next.named);
    }
    let Some(left) = links.first() else { return Ok(sorted) };
    let chain: Vec<String> = formats.iter().map(ToString::to_string).collect();
    let message = format!("`{}` takes values in {}, which never come to it", left.named.definition, left.from);
    Err(Error::invalid(message).expected(left.from, format_args!("the formats {}", chain.join(", then "))))
}

/// Takes out the one link that is wanted. Two would be two possible orders.
fn take_only(links: &mut Vec<Link>, is_wanted: impl Fn(&Link) -> bool) -> Result<Option<Link>> {
    let mut found = links.extract_if(.., |link| is_wanted(link));
    let (first, second) = (found.next(), found.next());
    drop(found);
    match (first, second) {
        (Some(first), Some(second)) => Err(Error::invalid(format!(
            "`{}` and `{}` both take values in {}: which comes first would be left open",
            first.named.definition, second.named.definition, first.from
        ))),
        (first, _) => Ok(first),
    }
}

/// Every derived table is fed by one transformer, from columns that exist.
fn check_derived_tables(beside: &[NamedTransformer], formats: &Formats) -> Result<()> {
    let mut tables = BTreeSet::new();
    for NamedTransformer { definition, transformer } in beside {
        let refused = |what: String| Err(Error::invalid(format!("`{definition}`: {what}")));
        let unknown = transformer.reads().difference(formats.columns());
        if !unknown.is_empty() {
            return refused(format!("the table has no columns {unknown} outside its key"));
        }
        let fed = transformer.derived_tables();
        if fed.is_empty() {
            return refused("it feeds no derived table".into());
        }
        for table in fed {
            if tables.contains(&table) {
                return refused(format!("the derived table {table} is fed already"));
            }
            tables.insert(table);
        }
    }
    Ok(())
}

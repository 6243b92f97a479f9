//! What the transformers do within one compaction (Mycelium Algorithm 2).
//!
//! For one entry, [`Job::transform`]:
//! 1. Find which columns the value has; a `Put` has all.
//! 2. Which derived tables does it concern? All, if it is a `Put`; those that read a column that a `Patch` touches. If
//!    the patch lacks a column that one of them reads, stop here and say so: the caller completes the patch.
//! 3. Have the derived entries staged. If the staging area becomes full, stop here and say so: the caller retrieves,
//!    and gives the same entry again.
//! 4. Map: for every transformer that must be called, in order, into the groups and the format that it works on, and
//!    through it; last, into those of the destinations. However many splits and converts lie between, that is one step.
//!
//! Memory: the staging area within its budget (or one derived entry, if that alone is larger), and the outputs of the
//! one entry in hand.

use std::ops::Range;

use mycelium_base::{ColumnSet, EntryRef, Error, Group, Operation, Result};
use mycelium_encoding::row_format::RowScratch;

use crate::built_in::reshaping;
use crate::gathered::Mapped;
use crate::link::{Linked, NamedTransformer, Step};
use crate::staging::{Resume, Staging};
use crate::{Formats, GroupValues, InputEntry, JobContext, Outputs, Staged, TransformState};

/// What became of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Progress {
    /// All was done; [`Job::mapped`] has its values.
    Done,
    /// The staging area is full. Call [`Job::retrieve`], then transform the same entry again.
    Full,
    /// The patch touches a derived table, but lacks these columns that it reads. Nothing was done. Complete the patch
    /// from the row below it ([`Linked::completed`] says how to avoid this at write time), then transform it.
    Needs(ColumnSet),
}

/// The transformers at work in one compaction, or one part of it. Made by [`Linked::job`]; for one thread.
///
/// An index on a column, and the columns apart:
///
/// ```
/// use std::sync::Arc;
/// use mycelium_base::{EntryRef, Group, GroupFormat, Operation, Trailer};
/// use mycelium_encoding::{DatumRef, PackedLayout, Schema};
/// use mycelium_transform::{Formats, LinkOptions, Progress, Registry, TransformerSet};
///
/// let schema = Arc::new(Schema::parse("id int64 not null, city utf8, year int32, primary key (id)")?);
/// let formats = Arc::new(Formats::new(schema.clone()));
/// let set = TransformerSet::parse("split by 2\naugment by_city on 1")?;
/// let linked = Registry::built_in().link(&set, &formats, GroupFormat::default(), &LinkOptions::default())?;
///
/// let source = &linked.layout().level(0).groups[0];
/// let destinations = &linked.layout().level(1).groups;
/// let mut job = linked.job(0..1, source, destinations, 1 << 20)?;
/// let mut value = Vec::new();
/// let row = [DatumRef::Int64(1), DatumRef::Utf8("Graz"), DatumRef::Int32(1128)];
/// PackedLayout::new(schema.clone()).encode_row(&row, &mut value)?;
///
/// let entry = EntryRef { key: b"row key", trailer: Trailer::new(42, Operation::Put), value: &value };
/// assert_eq!(job.transform(entry)?, Progress::Done);
/// for (destination, fragment) in job.mapped() {
///     let layout = PackedLayout::of(schema.clone(), &destinations[destination].columns);
///     assert!(layout.row(fragment)?.is_complete());
/// }
/// let staged = job.retrieve()?;
/// let derived = staged.iter().next().unwrap();
/// assert_eq!((derived.sequence, derived.operation), (42, Operation::Put));
/// assert!(derived.key.ends_with(b"row key"));
/// # Ok::<(), mycelium_base::Error>(())
/// ```
pub struct Job {
    source: GroupValues,
    beside: Vec<Derivation>,
    map: Option<Stage>,
    mapped: Mapped,
    staging: Staging,
    resume: Resume,
    scratch: RowScratch,
}

/// One transformer beside the order.
struct Derivation {
    state: Box<dyn TransformState>,
    reads: ColumnSet,
    /// Its tables among those of the job.
    tables: Range<u32>,
}

impl Derivation {
    fn concerns(&self, entry: &InputEntry<'_>) -> bool {
        entry.operation == Operation::Put || self.reads.overlaps(entry.columns)
    }
}

/// A transformer that maps, and what becomes of its outputs.
struct Stage {
    name: String,
    state: Box<dyn TransformState>,
    destinations: Vec<Group>,
    /// The numbers of its destinations where its values go: those of the job, or its own if stages follow.
    targets: Vec<usize>,
    /// One per destination, or none if its values are the job's.
    next: Vec<Stage>,
    /// Its values, if stages follow.
    between: Mapped,
}

impl Linked {
    /// What one compaction (or one part of it) does to entries of a group `source` that leave the levels of `crossing`:
    /// those of level 3 on their way to level 5 leave `3..5`. They go to `destinations`, which lie within the source;
    /// the groups of the layout, or narrower ones. None: only derived tables are fed, as a bulk load past level 0 needs
    /// it.
    ///
    /// `budget` bounds the derived entries that it holds, in bytes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) if a destination is not within the source, or the
    /// source lacks columns of a derived table; [`ErrorKind::Unsupported`](mycelium_base::ErrorKind) for a columnar
    /// group; those of [`Transformer::prepare`](crate::Transformer::prepare).
    pub fn job(&self, crossing: Range<usize>, source: &Group, destinations: &[Group], budget: usize) -> Result<Job> {
        Job::new(self, &crossing, source, destinations, budget)
    }
}

impl Job {
    fn new(
        linked: &Linked,
        crossing: &Range<usize>,
        source: &Group,
        destinations: &[Group],
        budget: usize,
    ) -> Result<Self> {
        let formats = &**linked.formats();
        let beside = match crossing.contains(&0) {
            true => derivations(linked.beside(), formats, source)?,
            false => Vec::new(),
        };
        let called: Vec<&Step> = linked.called(crossing).collect();
        let numbered: Vec<(usize, &Group)> = destinations.iter().enumerate().collect();
        let planner = Planner { linked, formats, called: &called };
        let map = match destinations.is_empty() {
            true => None,
            false => Some(planner.stage(0, source, &numbered)?),
        };
        Ok(Self {
            source: formats.values(source)?,
            beside,
            map,
            mapped: Mapped::default(),
            staging: Staging::new(budget),
            resume: Resume::default(),
            scratch: RowScratch::default(),
        })
    }

    /// Transforms one entry, a `Put` or a `Patch` of the source group, in its format. Entries come in key order, newest
    /// first, each once, but for what [`Progress`] says.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) for another operation, which the engine routes itself,
    /// or for another entry than the one that must come again; [`ErrorKind::Corruption`](mycelium_base::ErrorKind) for
    /// a malformed value; those of the transformers. The job is of no use after an error.
    pub fn transform(&mut self, entry: EntryRef<'_>) -> Result<Progress> {
        self.mapped.clear();
        let operation = entry.trailer.operation();
        let in_patch;
        let columns = match operation {
            Operation::Put => &self.source.group().columns,
            Operation::Patch => {
                in_patch = self.source.present(entry.value, &mut self.scratch)?;
                &in_patch
            }
            other => return Err(Error::invalid(format!("a {} is not transformed", other.name()))),
        };
        let sequence = entry.trailer.sequence();
        let input = InputEntry { key: entry.key, sequence, operation, columns, value: entry.value };
        let missing = missing_columns(&self.beside, &input);
        if !missing.is_empty() {
            return Ok(Progress::Needs(missing));
        }
        self.resume.begin(entry.key, sequence)?;
        for derivation in self.beside.iter_mut().filter(|derivation| derivation.concerns(&input)) {
            let tables = derivation.tables.clone();
            let mut outputs = Outputs::deriving(&mut self.staging, &mut self.resume, tables, sequence);
            derivation.state.transform(&input, &mut outputs)?;
            if self.resume.is_full() {
                self.resume.suspend(entry.key, sequence);
                return Ok(Progress::Full);
            }
        }
        if let Some(stage) = &mut self.map {
            stage.run(&input, &mut self.mapped)?;
        }
        Ok(Progress::Done)
    }

    /// The values of the entry transformed last, with the numbers of their destinations. A `Put` has one in each, a
    /// `Patch` in those whose columns it touches.
    pub fn mapped(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.mapped.iter()
    }

    /// Takes the derived entries out, sorted; the staging area is empty then. Call it when it is full, and at the end.
    /// What is retrieved at one time is one run of each derived table; several overlap.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) if a transformer derived two values of one version.
    pub fn retrieve(&mut self) -> Result<Staged> {
        self.staging.retrieve()
    }

    /// Whether no derived entry waits to be retrieved.
    pub fn is_drained(&self) -> bool {
        self.staging.is_empty()
    }

    /// Bytes that derived entries hold now.
    pub fn staged_bytes(&self) -> usize {
        self.staging.held()
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("source", self.source.group())
            .field("staging", &self.staging)
            .finish_non_exhaustive()
    }
}

fn derivations(beside: &[NamedTransformer], formats: &Formats, source: &Group) -> Result<Vec<Derivation>> {
    let mut derivations = Vec::with_capacity(beside.len());
    let mut first_table = 0;
    for NamedTransformer { definition, transformer } in beside {
        let reads = transformer.reads();
        let missing = reads.difference(&source.columns);
        if !missing.is_empty() {
            let message = format!("`{definition}` reads columns {missing}, which group {source} does not have");
            return Err(Error::invalid(message));
        }
        let state = transformer.prepare(&JobContext { formats, source, destinations: &[] })?;
        let tables = first_table..first_table + transformer.derived_tables().len() as u32;
        first_table = tables.end;
        derivations.push(Derivation { state, reads, tables });
    }
    Ok(derivations)
}

/// What a patch lacks for the derived tables that it concerns.
fn missing_columns(beside: &[Derivation], entry: &InputEntry<'_>) -> ColumnSet {
    let mut missing = ColumnSet::new();
    if entry.operation == Operation::Patch {
        for derivation in beside.iter().filter(|derivation| derivation.concerns(entry)) {
            missing = missing.union(&derivation.reads.difference(entry.columns));
        }
    }
    missing
}

/// Builds the stages of a job.
struct Planner<'a> {
    linked: &'a Linked,
    formats: &'a Formats,
    called: &'a [&'a Step],
}

/// Destinations of the job and their numbers.
type Numbered<'a> = [(usize, &'a Group)];

impl Planner<'_> {
    /// The stage that takes data of `source` through the transformers from number `at` on, to these destinations: first
    /// into the groups and the format that the next one works on.
    fn stage(&self, at: usize, source: &Group, destinations: &Numbered<'_>) -> Result<Stage> {
        let Some(step) = self.called.get(at) else { return self.last_stage(source, destinations) };
        let groups = groups_within(&self.linked.layout().level(step.level).groups, source);
        if groups.as_slice() == std::slice::from_ref(source) {
            return self.called_stage(at, step, source, destinations);
        }
        let next = self.branches(&groups, destinations, |group, within| self.called_stage(at, step, group, within))?;
        let state = reshaping(&self.context(source, &groups))?;
        Ok(Stage::followed("reshape".to_owned(), state, groups, next))
    }

    /// The stage that calls transformer number `at`.
    fn called_stage(&self, at: usize, step: &Step, source: &Group, destinations: &Numbered<'_>) -> Result<Stage> {
        let groups = groups_within(&self.linked.layout().level(step.level + 1).groups, source);
        let next = self.branches(&groups, destinations, |group, within| self.stage(at + 1, group, within))?;
        let state = step.named.transformer.prepare(&self.context(source, &groups))?;
        Ok(Stage::followed(step.named.definition.to_string(), state, groups, next))
    }

    /// What follows for each of the groups, with the destinations that lie within it.
    fn branches(
        &self,
        groups: &[Group],
        destinations: &Numbered<'_>,
        follow: impl Fn(&Group, &Numbered<'_>) -> Result<Stage>,
    ) -> Result<Vec<Stage>> {
        let mut next = Vec::with_capacity(groups.len());
        let mut reached = 0;
        for group in groups {
            let is_within = |(_, destination): &&(usize, &Group)| destination.columns.is_subset(&group.columns);
            let within: Vec<(usize, &Group)> = destinations.iter().filter(is_within).copied().collect();
            reached += within.len();
            next.push(follow(group, &within)?);
        }
        if reached == destinations.len() {
            return Ok(next);
        }
        Err(Error::invalid("a destination lies within no group of a level that the data pass through"))
    }

    /// The stage that only reshapes.
    fn last_stage(&self, source: &Group, destinations: &Numbered<'_>) -> Result<Stage> {
        let groups: Vec<Group> = destinations.iter().map(|(_, group)| (*group).clone()).collect();
        let state = reshaping(&self.context(source, &groups))?;
        let mut stage = Stage::followed("reshape".to_owned(), state, groups, Vec::new());
        stage.targets = destinations.iter().map(|(number, _)| *number).collect();
        Ok(stage)
    }

    fn context<'a>(&'a self, source: &'a Group, destinations: &'a [Group]) -> JobContext<'a> {
        JobContext { formats: self.formats, source, destinations }
    }
}

/// The parts of `groups` that lie within `source`: under an older layout it may be narrower than they are.
fn groups_within(groups: &[Group], source: &Group) -> Vec<Group> {
    if source.columns.is_empty() {
        return groups.iter().filter(|group| group.columns.is_empty()).cloned().collect();
    }
    let part = |group: &Group| Group::new(group.columns.intersection(&source.columns), group.format);
    groups.iter().map(part).filter(|group| !group.columns.is_empty()).collect()
}

impl Stage {
    /// A stage whose destinations are numbered as they stand, each followed by one of `next`.
    fn followed(name: String, state: Box<dyn TransformState>, destinations: Vec<Group>, next: Vec<Self>) -> Self {
        let targets = (0..destinations.len()).collect();
        Self { name, state, destinations, targets, next, between: Mapped::default() }
    }

    /// Transforms an entry, and its values through the stages that follow, into `mapped`.
    fn run(&mut self, entry: &InputEntry<'_>, mapped: &mut Mapped) -> Result<()> {
        if self.next.is_empty() {
            let before = mapped.len();
            self.state.transform(entry, &mut Outputs::mapping(mapped, &self.targets))?;
            return self.check(entry, mapped.len() - before);
        }
        self.between.clear();
        self.state.transform(entry, &mut Outputs::mapping(&mut self.between, &self.targets))?;
        self.check(entry, self.between.len())?;
        for (destination, value) in self.between.iter() {
            let (Some(stage), Some(group)) = (self.next.get_mut(destination), self.destinations.get(destination))
            else {
                continue;
            };
            let columns = entry.columns.intersection(&group.columns);
            stage.run(&InputEntry { columns: &columns, value, ..*entry }, mapped)?;
        }
        Ok(())
    }

    /// Every group is a complete history of its own: a `Put` goes to all of them. Destinations have their turn in
    /// ascending order, so that their number says whether one is missing.
    fn check(&self, entry: &InputEntry<'_>, values: usize) -> Result<()> {
        if entry.operation != Operation::Put || values == self.destinations.len() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "`{}` gave {values} values of a whole row for {} groups",
            self.name,
            self.destinations.len()
        )))
    }
}

//! The trait of transformers (Mycelium §4.2.1), built in or a user's.
//!
//! The paper's three functions, and where they are here:
//!
//! | paper | here |
//! |---|---|
//! | Prepare: lock the transformer for one job, clear the staging area | [`Transformer::prepare`] makes the [`TransformState`] of one job. Jobs share nothing, so nothing is locked and jobs run side by side |
//! | Transform: one entry in, outputs out | [`TransformState::transform`], which hands its outputs to [`Outputs`] |
//! | Retrieve: the staged outputs | [`Job::retrieve`](crate::Job::retrieve). The staging area belongs to the job and not to the transformer, so no transformer can hold more than its budget |
//!
//! A transformer *maps* (one entry in, a value per output group out) or *derives* (one entry in, any number of entries
//! for derived tables out: the paper's flat-map). Which one, says its [`Place`].
//!
//! What every transformer keeps to:
//! 1. It is called once per retained entry, in key order, newest first; entries keep their sequence numbers.
//! 2. It is pure in that entry: equal entries give equal outputs in equal order, whatever came before, whichever job
//!    asks, and however often. A state may keep memory for reuse, but nothing that an output depends on.
//! 3. It never sees a `Delete`, a range delete or an operand: the engine routes them to every group.
//! 4. A whole row stays a whole row in every group. A patch gives nothing to a group whose columns it does not touch.

use std::fmt;

use mycelium_base::{ColumnSet, Group, GroupFormat, Operation, Result, SequenceNumber};

use crate::{Formats, Outputs};

/// Where a transformer stands in the order of a set, and what it may output.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// It changes nothing, and needs no level: linking leaves it out.
    Neutral,
    /// It reshapes step by step, before all transformers of the chain. A set has at most one (rules 2 and 3 of §4.2.5).
    /// Maps.
    Gradual,
    /// It takes values of one format to another, and stands in the chain of formats that starts with the format of
    /// level 0. Where both are the same, it comes before the transformer that leaves that format. Maps.
    Chain {
        /// The format it takes.
        from: GroupFormat,
        /// The format it gives.
        to: GroupFormat,
    },
    /// It leaves the table as it is and feeds derived tables from what leaves level 0, where all columns are together.
    /// It has no place in the order: any number of them work at once. Derives.
    Beside,
}

/// A transformer as it stands in a table's definition: shared by all jobs, immutable.
///
/// A transformer that writes one text column in capital letters when rows leave level 0:
///
/// ```
/// use std::sync::Arc;
/// use mycelium_base::{EntryRef, Group, GroupFormat, Operation, Result, Trailer};
/// use mycelium_encoding::row_format::RowScratch;
/// use mycelium_encoding::{ColumnState, Datum, DatumRef, Schema};
/// use mycelium_transform::{
///     Formats, GroupValues, InputEntry, JobContext, LinkOptions, Outputs, Place, Progress, Registry, Transformer,
///     TransformState, TransformerSet,
/// };
///
/// #[derive(Debug)]
/// struct Capitals {
///     column: usize,
/// }
///
/// impl Transformer for Capitals {
///     fn place(&self) -> Place {
///         Place::Chain { from: GroupFormat::default(), to: GroupFormat::default() }
///     }
///
///     fn prepare(&self, job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
///         // Without a split before it there is one group.
///         Ok(Box::new(State { column: self.column, values: job.formats.values(job.source)?, scratch: RowScratch::default() }))
///     }
/// }
///
/// struct State {
///     column: usize,
///     values: GroupValues,
///     scratch: RowScratch,
/// }
///
/// impl TransformState for State {
///     fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()> {
///         let Self { column, values, scratch } = self;
///         let mut row: Vec<Option<Datum>> = vec![None; values.schema().columns().len()];
///         values.visit(entry.value, entry.columns, scratch, &mut |position, state| {
///             row[position] = match state {
///                 ColumnState::Value(DatumRef::Utf8(text)) if position == *column => Some(Datum::Utf8(text.to_uppercase())),
///                 ColumnState::Value(datum) => Some(datum.to_datum()),
///                 ColumnState::Null => Some(Datum::Null),
///                 ColumnState::Absent => None,
///             };
///             Ok(())
///         })?;
///         let state = |position: usize| row[position].as_ref().map_or(ColumnState::Absent, |datum| datum.borrowed().into());
///         outputs.map_with(0, |out| values.encode(state, scratch, out))
///     }
/// }
///
/// let mut registry = Registry::built_in();
/// registry.register("example.capitals", |arguments, _| {
///     let column = arguments.parse().map_err(|_| mycelium_base::Error::invalid("expected a column"))?;
///     Ok(Arc::new(Capitals { column }))
/// })?;
/// let formats = Arc::new(Formats::new(Arc::new(Schema::parse("id int64 not null, name utf8, primary key (id)")?)));
/// let set = TransformerSet::parse("example.capitals 1")?;
/// let linked = registry.link(&set, &formats, GroupFormat::default(), &LinkOptions::default())?;
///
/// let group = Group::new("1".parse()?, GroupFormat::default());
/// let mut job = linked.job(0..1, &group, &[group.clone()], 1 << 20)?;
/// let values = formats.values(&group)?;
/// let (mut scratch, mut value) = (RowScratch::default(), Vec::new());
/// values.encode(|_| ColumnState::Value(DatumRef::Utf8("spore")), &mut scratch, &mut value)?;
/// let progress = job.transform(EntryRef { key: b"k", trailer: Trailer::new(7, Operation::Put), value: &value })?;
/// assert_eq!(progress, Progress::Done);
/// for (_, mapped) in job.mapped() {
///     values.visit(mapped, &"1".parse()?, &mut scratch, &mut |_, state| {
///         assert_eq!(state, ColumnState::Value(DatumRef::Utf8("SPORE")));
///         Ok(())
///     })?;
/// }
/// # Ok::<(), mycelium_base::Error>(())
/// ```
pub trait Transformer: fmt::Debug + Send + Sync {
    /// Where it stands in the order of a set.
    fn place(&self) -> Place;

    /// How many levels it takes to be through with the data of `source`: as many compactions call it, one after the
    /// other. Not asked of a transformer beside the order.
    fn rounds(&self, _source: &Group) -> usize {
        1
    }

    /// The groups that data of `source` are in after round `round` (from 0), in the order in which
    /// [`Outputs::map`] counts them: together they have the columns of `source`. The paper's `CreateInternalCFs`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) if it cannot take this group.
    fn destinations(&self, source: &Group, _round: usize) -> Result<Vec<Group>> {
        let format = match self.place() {
            Place::Chain { to, .. } => to,
            _ => source.format,
        };
        Ok(vec![Group::new(source.columns.clone(), format)])
    }

    /// Whether the groups of its destinations say all that it does, so that any job that writes those groups has done
    /// it. Such a transformer may be passed over, be applied with others in one go, or be applied to data that have
    /// been through it: split and convert. All others are called exactly once for every entry.
    fn is_said_by_layout(&self) -> bool {
        false
    }

    /// Whether its map may be done to a value alone, before it crosses the transformer's level: then the engine does it
    /// for readers, so that they see rows as if they had been mapped when they were written. By saying so it promises
    /// that it looks at neither key nor sequence number (they are empty and 0), and gives the group and format that it
    /// takes. The engine refuses maps of one's own that do not promise it.
    fn maps_values(&self) -> bool {
        false
    }

    /// Whether a patch may be mapped apart from its row: what becomes of a patch over what becomes of a row is what
    /// becomes of the patched row. So it is where every column is mapped by itself. Else the table takes no patches.
    /// Asked of transformers that [map values](Transformer::maps_values).
    fn maps_patches(&self) -> bool {
        false
    }

    /// The derived tables that it feeds, if it stands beside the order; [`Outputs::derive`] counts them in this order.
    /// No other transformer of the set feeds them.
    fn derived_tables(&self) -> Vec<String> {
        Vec::new()
    }

    /// The columns outside the primary key that its derived entries are made of. It is not called for a patch that
    /// touches none of them, and for one that touches some it is called with all of them.
    fn reads(&self) -> ColumnSet {
        ColumnSet::new()
    }

    /// Makes what one job needs. Called once per job; the state stays in the job's thread.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) if it cannot work between these groups. After a change
    /// of layout they may be narrower than its destinations.
    fn prepare(&self, job: &JobContext<'_>) -> Result<Box<dyn TransformState>>;
}

/// What a transformer holds for one job.
pub trait TransformState: Send {
    /// Transforms one entry.
    ///
    /// # Errors
    /// An error ends the job; nothing of it is installed, and the state is not called again. Of what feeds a derived
    /// table it refuses the row.
    fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()>;
}

/// What a state is made for.
#[derive(Clone, Copy, Debug)]
pub struct JobContext<'a> {
    /// The table's columns and formats.
    pub formats: &'a Formats,
    /// The group that entries come from.
    pub source: &'a Group,
    /// The groups that they go to, by the numbers that [`Outputs::map`] takes; none for a transformer beside the order.
    pub destinations: &'a [Group],
}

/// One retained entry.
#[derive(Clone, Copy, Debug)]
pub struct InputEntry<'a> {
    /// The key of the row.
    pub key: &'a [u8],
    /// The entry's place in the order of commits. Everything made of the entry has it too.
    pub sequence: SequenceNumber,
    /// [`Operation::Put`] or [`Operation::Patch`].
    pub operation: Operation,
    /// The columns that the value has, null or not: for a `Put` all of the source group, for a `Patch` some.
    pub columns: &'a ColumnSet,
    /// The value, of the source group and in its format: see [`GroupValues`](crate::GroupValues).
    pub value: &'a [u8],
}

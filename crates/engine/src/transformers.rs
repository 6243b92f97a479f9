//! A table's transformers: linked to a layout when the table is made and when it is opened, and users' own maps called.
//!
//! Splits and converts are said by the layout, and done by whoever writes its levels. A user's map changes values; the
//! rule is that *rows read as if they had been mapped when they were written*, wherever their entries lie:
//!
//! 1. The map stands at a level. A compaction that takes entries past it maps every one that survives, once: the level
//!    below is tiered, so nothing there is mapped again, and outputs come and inputs go in one edit.
//! 2. What lies above, memtables included, is mapped when it is read: its format is an unmapped one
//!    ([`FragmentFormat::unmapped`]), from which every reader and every merge plan goes through the map.
//! 3. Both give a map the value alone, so both get the same from it.
//!
//! Versions keep their sequence numbers, and snapshots see what they saw. What would not come out exact is refused:
//! maps that promise nothing ([`Transformer::maps_values`]), maps below a split, patches where a map does not take them
//! apart from their row, and whatever looks at values as they were written (indexes, transactions' own writes).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use mycelium_base::{EntryRef, Error, ErrorKind, Group, Operation, Result, Trailer};
use mycelium_encoding::row_format::RowScratch;
use mycelium_encoding::{FragmentFormat, ValueMap};
use mycelium_manifest::Layout;
use mycelium_transform::{Formats, GroupValues, Job, LinkOptions, Linked, Progress, Registry, TransformerSet};

use mycelium_compaction::Buffering;

use crate::options::{Policy, TableOptions, sizes};
use crate::sync::Mutex;

/// A table's set of transformers, linked.
#[derive(Debug)]
pub(crate) struct TableTransformers {
    linked: Arc<Linked>,
    whole: Group,
    /// Levels above this one hold values that are not mapped yet.
    mapped_from: usize,
    /// By level above it: what readers do to its values.
    pending: Vec<Arc<dyn ValueMap>>,
    takes_patches: bool,
}

impl TableTransformers {
    /// Links `set` for a table of these formats, whose own is `whole`'s.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] names a transformer that is not registered, or that cannot be called here;
    /// [`ErrorKind::InvalidArgument`] if the set breaks a rule of linking.
    pub(crate) fn link(
        registry: &Registry,
        set: &TransformerSet,
        formats: &Formats,
        whole: Group,
        options: &TableOptions,
    ) -> Result<Self> {
        let levels = sizes(options);
        let link = LinkOptions { level_count: levels.level_count, size_ratio: levels.fanout };
        let linked = Arc::new(registry.link(set, &Arc::new(formats.clone()), whole.format, &link)?);
        if let Some(named) = linked.beside().first() {
            let message = format!("`{}` feeds a derived table: create an index instead", named.definition);
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        linked.warnings().iter().for_each(|warning| tracing::warn!(%warning, "the table's transformers"));
        let (mapped_from, takes_patches) = check_maps(&linked, &whole)?;
        let pending =
            |level| -> Arc<dyn ValueMap> { Arc::new(Mapping::new(linked.clone(), level..mapped_from, whole.clone())) };
        let pending = (0..mapped_from).map(pending).collect();
        Ok(Self { linked, whole, mapped_from, pending, takes_patches })
    }

    /// The layout that the set stands for.
    pub(crate) fn layout(&self) -> &Layout {
        self.linked.layout()
    }

    /// Whether a map must be called somewhere.
    pub(crate) fn has_maps(&self) -> bool {
        self.mapped_from > 0
    }

    /// The first level whose values are all mapped.
    pub(crate) fn mapped_from(&self) -> usize {
        self.mapped_from
    }

    /// Whether the table takes patches.
    pub(crate) fn takes_patches(&self) -> bool {
        self.takes_patches
    }

    /// The table's own format as values of a level, or of memtables (level 0), have it.
    pub(crate) fn format_at(&self, level: usize, whole: &FragmentFormat) -> FragmentFormat {
        match self.pending.get(level) {
            Some(map) => whole.clone().unmapped(map.clone()),
            None => whole.clone(),
        }
    }

    /// What a job, or one part of it, does to values that leave these levels; its own, shared with no other job. `None`
    /// if it does nothing.
    pub(crate) fn map(&self, crossing: Range<usize>) -> Option<Arc<dyn ValueMap>> {
        let crossing = crossing.start..crossing.end.min(self.mapped_from);
        (!crossing.is_empty())
            .then(|| Arc::new(Mapping::checked(self.linked.clone(), crossing, self.whole.clone())) as Arc<dyn ValueMap>)
    }
}

/// The level from which on everything is mapped, and whether all maps take patches.
fn check_maps(linked: &Linked, whole: &Group) -> Result<(usize, bool)> {
    let called = || linked.steps().iter().filter(|step| !step.named.transformer.is_said_by_layout());
    let mapped_from = called().map(|step| step.level + 1).max().unwrap_or(0);
    let refuse = |definition: &dyn fmt::Display, why: &str| {
        Err(Error::new(ErrorKind::Unsupported, format!("the transformer `{definition}` {why}")))
    };
    for step in called() {
        let is_above_all = (0..=step.level + 1).all(|level| linked.layout().level(level).groups == [whole.clone()]);
        if !is_above_all {
            return refuse(&step.named.definition, "maps values, which must be whole rows in the table's own format");
        }
        if !step.named.transformer.maps_values() {
            return refuse(&step.named.definition, "does not say that it maps values (Transformer::maps_values)");
        }
    }
    Ok((mapped_from, called().all(|step| step.named.transformer.maps_patches())))
}

/// The maps between two levels. Jobs are prepared as threads need them, and kept.
struct Mapping {
    linked: Arc<Linked>,
    crossing: Range<usize>,
    whole: Group,
    /// Whether what maps give is checked: where it becomes durable.
    is_checked: bool,
    idle: Mutex<Vec<Prepared>>,
}

struct Prepared {
    job: Job,
    values: GroupValues,
    scratch: RowScratch,
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({:?})", self.crossing)
    }
}

impl Mapping {
    fn new(linked: Arc<Linked>, crossing: Range<usize>, whole: Group) -> Self {
        Self { linked, crossing, whole, is_checked: false, idle: Mutex::default() }
    }

    fn checked(linked: Arc<Linked>, crossing: Range<usize>, whole: Group) -> Self {
        Self { is_checked: true, ..Self::new(linked, crossing, whole) }
    }

    fn named(&self, error: Error) -> Error {
        let called = self.linked.steps().iter().filter(|step| self.crossing.contains(&step.level));
        let names: Vec<String> = called.map(|step| format!("`{}`", step.named.definition)).collect();
        Error::new(error.kind(), format!("the transformer {} failed", names.join(", "))).caused_by(error)
    }

    fn prepare(&self) -> Result<Prepared> {
        let job = self.linked.job(self.crossing.clone(), &self.whole, std::slice::from_ref(&self.whole), 0)?;
        Ok(Prepared { job, values: self.linked.formats().values(&self.whole)?, scratch: RowScratch::default() })
    }

    fn map_with(&self, prepared: &mut Prepared, value: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let Prepared { job, values, scratch } = prepared;
        let present = values.present(value, scratch)?;
        if present.is_empty() {
            // A patch of no columns: there is nothing to be mapped.
            out.extend_from_slice(value);
            return Ok(());
        }
        let operation = if present == self.whole.columns { Operation::Put } else { Operation::Patch };
        let progress = job.transform(EntryRef { key: &[], trailer: Trailer::new(0, operation), value })?;
        let mapped = job.mapped().next().map(|(_, mapped)| mapped);
        let (Progress::Done, Some(mapped)) = (progress, mapped) else {
            return Err(Error::invalid("a transformer made nothing of a value"));
        };
        if self.is_checked {
            let rows = values.fragment().rows();
            rows.validate(mapped).map_err(|e| Error::invalid("a transformer made a malformed value").caused_by(e))?;
            let made = values.present(mapped, scratch)?;
            if made != present {
                let message = format!("a transformer made a value of the columns {made} out of one of {present}");
                return Err(Error::invalid(message));
            }
        }
        out.extend_from_slice(mapped);
        Ok(())
    }
}

impl ValueMap for Mapping {
    fn map(&self, value: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let idle = self.idle.lock().pop();
        let mut prepared = match idle {
            Some(prepared) => prepared,
            None => self.prepare().map_err(|error| self.named(error))?,
        };
        // A job is of no use after an error.
        self.map_with(&mut prepared, value, out).map_err(|error| self.named(error))?;
        self.idle.lock().push(prepared);
        Ok(())
    }
}

/// The set in the options as the manifest keeps it, checked against what cannot stand beside it.
pub(crate) fn check_options(options: &TableOptions) -> Result<()> {
    let Some(_) = &options.transformers else { return Ok(()) };
    if options.buffer != Buffering::Off {
        return Err(Error::invalid("a table with transformers has no compaction buffer"));
    }
    if options.layout.is_some() {
        return Err(Error::invalid("a table has a layout or transformers that make it, not both"));
    }
    if !matches!(options.policy, Policy::Leveled(_)) {
        return Err(Error::invalid("the levels of transformers are merged as their layout says, not as a policy"));
    }
    Ok(())
}

/// Refuses what looks at values as they were written, in a table whose transformers map them.
pub(crate) fn refuse_with_maps(what: &str, table: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("table {table} has a transformer that maps values: {what}"))
}

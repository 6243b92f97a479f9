//! SSTs in a salvage.
//!
//! [`Salvage::examine`], for every file that the table's version names:
//! 1. Copy it under its name. Where it cannot be read, in pieces of 4 KiB; pieces that cannot be read either become
//!    zeros.
//! 2. Verify the copy as `verify` does. If it is not what it should be, walk what can be read of it
//!    ([`mycelium_sst::Remains`]): blocks that cannot be read are lost, and so are their keys. If its range deletes
//!    cannot be read, all that it holds may have been deleted; if it is gone, or another file, all of it is lost.
//!
//! [`Salvage::save`] then makes the new version, run by run, of copies that are as they were and need nothing left out
//! of them, and of what is left of the others, written anew.
//!
//! What is left out of keys that something is lost of, where older versions are:
//!
//! - Of whole rows, in the run that lost something and in all below it: entries that are not newer than the newest lost
//!   one. A newer one lies there only if nothing of its key was lost.
//! - Of a column group, in all runs: everything. A row lacks what is lost of it whatever lies above, and sequence
//!   numbers do not tell which entries are of that row: a patch that is folded into one group makes it look newer than
//!   the others.
//! - Of whole rows below column groups, as a change of the layout leaves them: everything. What was above them, parts
//!   of newer rows, patches and deletes, is left out.
//! - Of a table with a merge operator, in all runs and in the log: everything. Newer operands may lack what they are
//!   applied to.
//!
//! Patches without a row below change nothing, so that they need not be looked for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{
    Error, ErrorKind, FileKind, FileNumber, Group, GroupFormat, MAX_SEQUENCE_NUMBER, Result, SequenceNumber,
};
use mycelium_cache::BlockCache;
use mycelium_encoding::Schema;
use mycelium_manifest::{FileMeta, KeyRange, Level, Round, Run, Version};
use mycelium_sst::{LostKeys, OpenOptions, Properties, Remains, Remnant, SstFile, SstWriter, SstWriterOptions};
use mycelium_vfs::{AccessPattern, ReadableFile};

use super::report::key_in_words;
use super::statements::GoneFile;
use super::{LostRange, OlderVersions, Salvage};
use crate::copy::copy_pieces;
use crate::database::{check_identity, open_options};
use crate::output_files::{file_meta, writer_options};
use crate::table::TableDefinition;
use crate::verify::compare_with_manifest;

/// Bytes that are given up together where the disk cannot read them.
const GIVEN_UP_AT_ONCE: usize = 4 << 10;

/// A run: its level, and its place there, 0 the newest. Of runs that hold a common column the younger is the smaller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    level: usize,
    run: usize,
}

/// Entries of a file that cannot be read.
pub(super) struct Loss {
    place: Place,
    /// The column group, if a row has more than that.
    part: Option<Arc<Group>>,
    pub(super) range: KeyRange,
    up_to: SequenceNumber,
    entries: u64,
    error: Error,
}

impl Loss {
    pub(super) fn told(self, table: &str, schema: Option<&Schema>, older: OlderVersions) -> LostRange {
        let Self { part, range, up_to, entries, error, .. } = self;
        let keys = match range == every_key() {
            true => (String::new(), String::new()),
            false => (key_in_words(schema, &range.smallest), key_in_words(schema, &range.largest)),
        };
        LostRange {
            keys,
            table: table.to_owned(),
            columns: part.map(|group| group.columns.to_string()),
            range,
            up_to,
            entries,
            older,
            error,
        }
    }
}

/// What a file may hold of which nothing is known.
pub(super) fn every_key() -> KeyRange {
    KeyRange::inclusive(Vec::new(), vec![u8::MAX; MAX_KEY_LEN])
}

/// What was found of the files of a table.
#[derive(Default)]
pub(super) struct Examined {
    pub(super) losses: Vec<Loss>,
    /// Files whose copies are not what they should be.
    damaged: BTreeSet<FileNumber>,
    /// Files of which there is no copy that anything can be read of.
    gone: BTreeSet<FileNumber>,
    /// Files of column groups, and where they are.
    parts: Vec<(Place, Arc<FileMeta>)>,
}

impl Examined {
    /// Whether all files are what they should be.
    pub(super) fn is_sound(&self) -> bool {
        self.damaged.is_empty() && self.gone.is_empty()
    }

    /// A file is missed of which nothing is known but its place.
    pub(super) fn miss(&mut self, file: GoneFile, definition: &TableDefinition) {
        let GoneFile { level, group, up_to, error } = file;
        let part = group.filter(|group| !is_whole(definition, group));
        self.losses.push(Loss { place: Place { level, run: 0 }, part, range: every_key(), up_to, entries: 0, error });
    }

    /// Whether files of column groups above this place hold some of these keys.
    fn has_parts_above(&self, place: Place, range: &KeyRange) -> bool {
        self.parts.iter().any(|(above, part)| *above < place && part.overlaps_range(range))
    }
}

/// What is left out of a file, by key: entries with sequence numbers up to this one. Ascending by the first key.
struct Hidden {
    ranges: Vec<(KeyRange, SequenceNumber)>,
    /// All before it end before the last key that was asked for.
    first: usize,
}

impl Hidden {
    /// Keys must come in order.
    fn hides(&mut self, key: &[u8], sequence: SequenceNumber) -> bool {
        while self.ranges.get(self.first).is_some_and(|(range, _)| range.ends_before(key)) {
            self.first += 1;
        }
        let mut begun = self.ranges[self.first..].iter().take_while(|(range, _)| range.smallest.as_slice() <= key);
        begun.any(|(range, up_to)| sequence <= *up_to && range.contains(key))
    }
}

impl Salvage<'_> {
    /// Copies all files of a table and finds out what is lost of them. Damage is noted under the table's name.
    pub(super) fn examine(&mut self, name: &str, version: &Version, definition: &TableDefinition) -> Result<Examined> {
        let mut examined = Examined::default();
        for (level, run, meta) in version.files() {
            let place = Place { level, run };
            let part = meta.group.clone().filter(|group| !is_whole(definition, group));
            if part.is_some() {
                examined.parts.push((place, meta.clone()));
            }
            let found = examined.losses.len();
            if let Some(fault) = self.fetch(meta)? {
                self.find_losses(meta, fault.duplicate(), &mut examined, |range, up_to, entries, error| Loss {
                    place,
                    part: part.clone(),
                    range,
                    up_to,
                    entries,
                    error,
                })?;
                tracing::warn!(table = name, error = %fault, losses = examined.losses.len() - found, "a damaged file");
                self.report.note(Some(name), fault);
            }
            self.progress.advance(meta.size);
        }
        Ok(examined)
    }

    /// Steps 1 and 2 for a file: what is wrong with it, if something is.
    fn fetch(&mut self, meta: &FileMeta) -> Result<Option<Error>> {
        let path = self.source_of(meta.number);
        let source = match self.disk.open(&path, AccessPattern::Sequential) {
            Ok(source) => source,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let error = Error::corruption("a file that the manifest names is missing").in_file(path).at(0);
                return Ok(Some(error.expected(format_args!("{} bytes", meta.size), "no file")));
            }
            Err(error) => return Ok(Some(error)),
        };
        let (unreadable, checksum) = self.copy(&*source, &path, &self.copy_of(meta.number))?;
        if self.unchecked.contains(&meta.number) {
            self.checksums.insert(meta.number, checksum);
        }
        let copy = self.disk.open(&self.copy_of(meta.number), AccessPattern::Sequential)?;
        let options = self.options_of(meta);
        let verified = SstFile::open(copy, &path, meta.number, cache_for(meta), options).and_then(|file| {
            check_identity(&file, meta)?;
            file.verify(|_| {})?;
            compare_with_manifest(&file, meta)
        });
        Ok(verified.err().map(|fault| unreadable.unwrap_or(fault)))
    }

    fn options_of(&self, meta: &FileMeta) -> OpenOptions {
        let is_checked = !self.unchecked.contains(&meta.number);
        OpenOptions { expected_checksum: is_checked.then_some(meta.checksum), ..open_options(meta) }
    }

    /// Copies a file, durably but for its name. The first failure to read it, if there is one, and the checksum
    /// of the copy.
    fn copy(&self, source: &dyn ReadableFile, path: &Path, to: &Path) -> Result<(Option<Error>, u64)> {
        let mut unreadable = None;
        let read = |at: u64, bytes: &mut [u8]| {
            if source.read_at(at, bytes).is_err() {
                for (n, piece) in bytes.chunks_mut(GIVEN_UP_AT_ONCE).enumerate() {
                    let offset = at + (n * GIVEN_UP_AT_ONCE) as u64;
                    if let Err(error) = source.read_at(offset, piece) {
                        piece.fill(0);
                        unreadable.get_or_insert(error.in_file(path).at(offset));
                    }
                }
            }
            Ok(())
        };
        let checksum = copy_pieces(self.disk, source.len(), read, to, |_| {})?;
        Ok((unreadable, checksum))
    }

    /// What of a file cannot be read, whose copy is not what it should be.
    fn find_losses(
        &self,
        meta: &FileMeta,
        fault: Error,
        examined: &mut Examined,
        loss: impl Fn(KeyRange, SequenceNumber, u64, Error) -> Loss,
    ) -> Result<()> {
        let remains = if self.disk.exists(&self.copy_of(meta.number))? { self.remains_of(meta)? } else { Err(fault) };
        let remains = match remains {
            Ok(remains) => remains,
            // It may be as it was written, and is no loss to be taken for granted.
            Err(error) if error.kind() == ErrorKind::Unsupported => return Err(error),
            Err(error) => {
                examined.gone.insert(meta.number);
                examined.losses.push(loss(meta.range(), meta.max_sequence, meta.entry_count, error));
                return Ok(());
            }
        };
        examined.damaged.insert(meta.number);
        remains.visit(&mut |remnant| {
            if let Remnant::Lost(LostKeys { smallest, largest, max_sequence, entries, error }) = remnant {
                examined.losses.push(loss(KeyRange::inclusive(smallest, largest), max_sequence, entries, error));
            }
            Ok(())
        })?;
        if remains.range_deletes().is_none() {
            let cause = remains.faults().first().map(Error::duplicate);
            let error = cause.unwrap_or_else(|| Error::corruption("the range deletes").in_file(remains.file().path()));
            examined.losses.push(loss(meta.range(), meta.max_sequence, 0, error));
        }
        Ok(())
    }

    /// What can be read of the copy of a file; the inner error if nothing can.
    fn remains_of(&self, meta: &FileMeta) -> Result<Result<Remains>> {
        let copy = self.disk.open(&self.copy_of(meta.number), AccessPattern::Sequential)?;
        let path = self.source_of(meta.number);
        let options = self.options_of(meta);
        let remains = Remains::open(copy, &path, meta.number, cache_for(meta), options, stated(meta));
        Ok(remains.and_then(|remains| check_identity(remains.file(), meta).map(|()| remains)))
    }

    /// The version of the new database. Files of the compaction buffer are not taken along: it may be emptied at any
    /// time.
    pub(super) fn save(
        &mut self,
        version: &Version,
        examined: &Examined,
        definition: &TableDefinition,
    ) -> Result<Version> {
        let mut levels = Vec::with_capacity(version.levels.len());
        for (level, of_level) in version.levels.iter().enumerate() {
            let mut runs = Vec::with_capacity(of_level.runs.len());
            for (run, of_run) in of_level.runs.iter().enumerate() {
                let mut files = Vec::with_capacity(of_run.files.len());
                for meta in &of_run.files {
                    files.extend(self.save_file(Place { level, run }, meta, examined, definition)?);
                }
                if !files.is_empty() {
                    runs.push(Arc::new(Run { files }));
                }
            }
            levels.push(Level { runs });
        }
        while levels.last().is_some_and(Level::is_empty) {
            levels.pop();
        }
        let has_files = |round: &Round| {
            let runs = levels.get(round.level).map(|level| &level.runs);
            runs.is_some_and(|runs| runs.iter().any(|run| run.group() == round.group.as_ref()))
        };
        let rounds = version.rounds.iter().map(|round| Round { appending: None, deletion: None, ..round.clone() });
        let rounds = rounds.filter(|round| !round.is_initial() && has_files(round)).collect();
        Ok(Version { levels, rounds })
    }

    /// A file of the new database for one of the damaged one, unless nothing is left of it.
    fn save_file(
        &mut self,
        place: Place,
        meta: &Arc<FileMeta>,
        examined: &Examined,
        definition: &TableDefinition,
    ) -> Result<Option<Arc<FileMeta>>> {
        let hidden = self.hidden_from(place, meta, examined, definition);
        let saved = if examined.gone.contains(&meta.number) {
            self.remove_copy(meta.number)?;
            None
        } else if hidden.ranges.is_empty() && !examined.damaged.contains(&meta.number) {
            self.report.copied_files += 1;
            Some(match self.checksums.get(&meta.number) {
                Some(checksum) => Arc::new(FileMeta { checksum: *checksum, ..FileMeta::clone(meta) }),
                None => meta.clone(),
            })
        } else {
            let rewritten = self.rewrite(place, meta, definition, hidden)?;
            self.remove_copy(meta.number)?;
            self.report.rewritten_files += u64::from(rewritten.is_some());
            rewritten.map(Arc::new)
        };
        if let Some(saved) = &saved {
            self.report.bytes += saved.size;
            self.report.entries += saved.entry_count;
            self.report.range_deletes += saved.range_delete_count;
        }
        Ok(saved)
    }

    /// What is left out of a file of this run; see the module.
    fn hidden_from(&self, place: Place, meta: &FileMeta, examined: &Examined, definition: &TableDefinition) -> Hidden {
        let is_part = meta.group.as_ref().is_some_and(|group| !is_whole(definition, group));
        let needs_bases = definition.options.merge_operator.is_some();
        let overlapping = examined.losses.iter().filter(|loss| meta.overlaps_range(&loss.range));
        let hidden = overlapping.filter_map(|loss| {
            let up_to = match self.older {
                OlderVersions::Keep => (is_part && loss.part.is_some()).then_some(MAX_SEQUENCE_NUMBER),
                OlderVersions::LeaveOut if is_part || needs_bases || examined.has_parts_above(place, &loss.range) => {
                    Some(MAX_SEQUENCE_NUMBER)
                }
                OlderVersions::LeaveOut => (place >= loss.place).then_some(loss.up_to),
            };
            up_to.map(|up_to| (loss.range.clone(), up_to))
        });
        let mut ranges: Vec<_> = hidden.collect();
        ranges.sort_by(|(a, _), (b, _)| a.smallest.cmp(&b.smallest));
        Hidden { ranges, first: 0 }
    }

    /// Writes what is left of a file's copy, but for what is hidden; `None` if that is nothing.
    fn rewrite(
        &mut self,
        place: Place,
        meta: &FileMeta,
        definition: &TableDefinition,
        mut hidden: Hidden,
    ) -> Result<Option<FileMeta>> {
        let remains = self.remains_of(meta)??;
        let number = self.numbers.allocate();
        let path = self.copy_of(number);
        let group = written_group(meta);
        let options = writer_options(definition, place.level, group.as_deref());
        let options = SstWriterOptions { file_number: number, ..options };
        let writer = SstWriter::new(self.disk.create(&path)?, options)?;
        let mut writer = match group {
            Some(group) if group.format == GroupFormat::Columnar => {
                let schema = definition.schema.clone().ok_or_else(|| Error::corruption("columns without a schema"))?;
                writer.with_columns(group, Arc::new(schema))
            }
            group => writer.with_group(group),
        };
        let mut left_out = 0;
        remains.visit(&mut |remnant| match remnant {
            Remnant::Entry { key, trailer, value } => {
                if hidden.hides(key, trailer.sequence()) {
                    left_out += 1;
                    return Ok(());
                }
                writer.add(key, trailer, value)
            }
            Remnant::Lost(_) => Ok(()),
        })?;
        remains.range_deletes().unwrap_or_default().iter().try_for_each(|delete| writer.add_range_delete(delete))?;
        self.report.left_out += left_out;
        if writer.is_empty() {
            drop(writer);
            self.disk.remove(&path)?;
            return Ok(None);
        }
        let summary = writer.finish()?;
        let (created_at_edit, group) = (meta.created_at_edit, meta.group.clone());
        Ok(Some(FileMeta { created_at_edit, group, ..file_meta(number, &summary) }))
    }

    /// Removes the copies of a version's files.
    pub(super) fn remove_copies(&self, version: &Version) -> Result<()> {
        version.files().try_for_each(|(_, _, meta)| self.remove_copy(meta.number))
    }

    fn remove_copy(&self, number: FileNumber) -> Result<()> {
        let copy = self.copy_of(number);
        if self.disk.exists(&copy)? { self.disk.remove(&copy) } else { Ok(()) }
    }

    fn source_of(&self, number: FileNumber) -> PathBuf {
        self.from.join(FileKind::Sst.name(number))
    }

    fn copy_of(&self, number: FileNumber) -> PathBuf {
        self.to.join(FileKind::Sst.name(number))
    }
}

/// Whether a row has no other columns than those of the group.
fn is_whole(definition: &TableDefinition, group: &Group) -> bool {
    definition.schema.as_ref().is_some_and(|schema| schema.value_columns() == group.columns)
}

/// The group as the file knows it: without columns that its table got later, with those that it has no more.
fn written_group(meta: &FileMeta) -> Option<Arc<Group>> {
    meta.group.as_ref().map(|group| Arc::new(group.as_written()))
}

/// A cache in which the file's index and filter find room, so that they are checked, too.
fn cache_for(meta: &FileMeta) -> Arc<BlockCache> {
    Arc::new(BlockCache::new(2 * meta.size.max(1 << 20)))
}

/// What the manifest says of a file, as the file would say it.
fn stated(meta: &FileMeta) -> Properties {
    let (min_sequence, max_sequence) = match meta.sequence_override {
        Some(_) => (0, 0),
        None => (meta.min_sequence, meta.max_sequence),
    };
    Properties {
        entry_count: meta.entry_count,
        delete_count: meta.delete_count,
        range_delete_count: meta.range_delete_count,
        min_sequence,
        max_sequence,
        smallest: meta.smallest.clone(),
        largest: meta.largest.clone(),
        largest_exclusive: meta.largest_exclusive,
        group: written_group(meta),
        ..Properties::default()
    }
}

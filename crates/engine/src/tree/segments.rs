//! The segments of the compaction buffer that stand for a part of a two-phase level, open.
//!
//! They form *tables*, of files that do not overlap and are read alike: a lookup asks at most one file per table,
//! newest table first. buffer.rs says how they are read, and what stays in the buffer.

use std::sync::Arc;

use mycelium_base::Result;
use mycelium_manifest::{FileMeta, Segment, Segments};
use mycelium_sst::{FenceLists, Fences, FileFilters};

use super::OpenFile;

/// A file's segments are in use if this part of its bytes is cached of them.
const USED_SHARE: u64 = 8;

/// Segments that do not overlap, and are read alike.
#[derive(Debug)]
pub(crate) struct SegmentTable {
    /// In key order.
    segments: Vec<OpenSegment>,
    /// Which of the tree's formats they have.
    pub(crate) format: usize,
}

/// A segment, open.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub(crate) segment: Segment,
    pub(crate) file: Arc<OpenFile>,
}

impl SegmentTable {
    /// The number of the file that may hold `key`, and its filters; `fences` are the table's.
    #[inline]
    pub(crate) fn find<'t>(&self, fences: &Fences<'t, FileFilters>, key: &[u8]) -> Option<(usize, &'t FileFilters)> {
        let segment = |at: usize| &self.segments[at].segment;
        fences.find(key, |at| segment(at).ends_before(key), |at| segment(at).smallest() > key)
    }

    /// The file with this number.
    #[inline]
    pub(crate) fn file(&self, at: usize) -> &Arc<OpenFile> {
        &self.segments[at].file
    }

    fn overlaps(&self, segment: &Segment) -> bool {
        let at = self.segments.partition_point(|open| open.segment.is_before(segment));
        self.segments.get(at).is_some_and(|open| !segment.is_before(&open.segment))
    }

    fn insert(&mut self, open: OpenSegment) {
        let at = self.segments.partition_point(|known| known.segment.is_before(&open.segment));
        self.segments.insert(at, open);
    }
}

/// The segments of one part, open.
#[derive(Debug)]
pub(crate) struct OpenSegments {
    segments: Segments,
    /// Newest first.
    tables: Vec<SegmentTable>,
    /// Of the segments of each table.
    fences: FenceLists<FileFilters>,
}

impl OpenSegments {
    pub(crate) fn new(
        segments: &Segments,
        mut format_of: impl FnMut(&FileMeta) -> Result<usize>,
        mut open: impl FnMut(&Arc<FileMeta>) -> Result<Arc<OpenFile>>,
    ) -> Result<Self> {
        let mut tables: Vec<SegmentTable> = Vec::new();
        for segment in &segments.files {
            let (file, format) = (open(&segment.file)?, format_of(&segment.file)?);
            // Below the oldest table that has a newer file of the same keys.
            let below = tables.iter().rposition(|table| table.overlaps(segment)).map_or(0, |at| at + 1);
            let opened = OpenSegment { segment: segment.clone(), file };
            match tables[below..].iter_mut().find(|table| table.format == format) {
                Some(table) => table.insert(opened),
                None => tables.push(SegmentTable { segments: vec![opened], format }),
            }
        }
        let mut fences = FenceLists::default();
        for table in &tables {
            fences.push(
                table
                    .segments
                    .iter()
                    .map(|OpenSegment { segment, file }| (segment.smallest(), segment.largest(), file.sst.filters())),
            );
        }
        Ok(Self { segments: segments.clone(), tables, fences })
    }

    /// Whether they hold all that the part holds of `key`.
    #[inline]
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        self.segments.covers(key)
    }

    /// The tables with the fences of each for [`SegmentTable::find`], newest first.
    #[inline]
    pub(crate) fn fenced_tables(&self) -> impl Iterator<Item = (&SegmentTable, Fences<'_, FileFilters>)> {
        self.tables.iter().zip(self.fences.lists())
    }

    /// All segments.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &OpenSegment> {
        self.tables.iter().flat_map(|table| &table.segments)
    }

    /// Their files; one that stands for several ranges comes as often.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Arc<OpenFile>> {
        self.segments().map(|open| &open.file)
    }

    /// Whether reads use what stands for a file of the part: "what goes down" of buffer.rs.
    pub(crate) fn is_used_for(&self, meta: &FileMeta) -> bool {
        let beside = self.segments().filter(|open| open.segment.overlaps_range(&meta.range()));
        let cached =
            |open: &OpenSegment| open.file.sst.cached_bytes_within(&meta.smallest, |key| meta.ends_before(key));
        USED_SHARE * beside.map(cached).sum::<u64>() >= meta.size
    }

    /// Tables that a lookup may ask.
    pub(crate) fn depth(&self) -> usize {
        self.tables.len()
    }
}

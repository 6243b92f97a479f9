//! A file of a tree: open, asked as a segment or not, and on the disk as long as a tree holds it.

use std::sync::Arc;

use mycelium_manifest::FileMeta;
use mycelium_sst::SstFile;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A segment that no read has asked for so many flushes leaves the buffer.
pub(crate) const PATIENCE: u64 = 8;

/// Files to remove, filled when the last reader of an obsolete file goes.
#[derive(Debug, Default)]
pub(crate) struct Graveyard {
    files: Mutex<Vec<Arc<SstFile>>>,
    /// Bytes of obsolete files that readers still hold.
    pinned_bytes: AtomicU64,
}

impl Graveyard {
    pub(crate) fn take_one(&self) -> Option<Arc<SstFile>> {
        self.files.lock().pop()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.lock().is_empty()
    }

    /// Whether there are files to remove, now or when their readers go.
    pub(crate) fn is_awaited(&self) -> bool {
        self.pinned_bytes.load(Ordering::Acquire) > 0 || !self.is_empty()
    }

    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes.load(Ordering::Relaxed)
    }
}

/// An SST of a version, open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) meta: Arc<FileMeta>,
    pub(crate) sst: Arc<SstFile>,
    pub(crate) segment_use: SegmentUse,
    hold: Arc<Hold>,
}

/// What keeps a file on the disk: while a tree holds it, whatever the table is called that the tree is of.
#[derive(Debug)]
struct Hold {
    sst: Arc<SstFile>,
    bytes: u64,
    obsolete: AtomicBool,
    graveyard: Arc<Graveyard>,
}

impl OpenFile {
    pub(crate) fn new(meta: Arc<FileMeta>, sst: Arc<SstFile>, graveyard: Arc<Graveyard>) -> Arc<Self> {
        let hold = Hold { sst: sst.clone(), bytes: meta.size, obsolete: AtomicBool::new(false), graveyard };
        Arc::new(Self { meta, sst, segment_use: SegmentUse::default(), hold: Arc::new(hold) })
    }

    /// The same file as another table has it.
    pub(crate) fn with_meta(&self, meta: Arc<FileMeta>) -> Arc<Self> {
        let segment_use = SegmentUse::default();
        Arc::new(Self { meta, sst: self.sst.clone(), segment_use, hold: self.hold.clone() })
    }

    /// What its entries say something of, as memtables know it; all if that is not known.
    pub(crate) fn marks(&self) -> u64 {
        self.sst.properties().marks.unwrap_or(u64::MAX)
    }

    /// No version names the file any more.
    pub(crate) fn mark_obsolete(&self) {
        if !self.hold.obsolete.swap(true, Ordering::AcqRel) {
            self.hold.graveyard.pinned_bytes.fetch_add(self.hold.bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.graveyard.files.lock().push(self.sst.clone());
            self.graveyard.pinned_bytes.fetch_sub(self.bytes, Ordering::Release);
        }
    }
}

/// How a file is asked as a segment, and since when it was not.
#[derive(Debug, Default)]
pub(crate) struct SegmentUse {
    /// Reads since the last judgement.
    reads: AtomicU64,
    /// Reads up to then, halved at each.
    earlier: AtomicU64,
    /// Flushes of the database at the first judgement after the last read; 0 while there was none.
    idle_since: AtomicU64,
}

impl SegmentUse {
    pub(crate) fn note_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes stock after so many flushes; whether the segment is to leave. Judgements come one after the other.
    pub(crate) fn judge(&self, flushes: u64) -> bool {
        let reads = self.reads.swap(0, Ordering::Relaxed);
        self.earlier.store(self.earlier.load(Ordering::Relaxed) / 2 + reads, Ordering::Relaxed);
        let since = self.idle_since.load(Ordering::Relaxed);
        if reads > 0 || since == 0 {
            self.idle_since.store(flushes.max(1), Ordering::Relaxed);
            return false;
        }
        flushes >= since + PATIENCE
    }

    pub(crate) fn worth(&self) -> u64 {
        self.earlier.load(Ordering::Relaxed)
    }
}

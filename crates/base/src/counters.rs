//! Per-operation read counters, which a caller can read after any operation.

/// What one read did. Plain numbers: add them up as you like.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ReadCounters {
    /// Memtables looked at.
    pub memtables_searched: u64,
    /// Memtables whose entries are all newer than the snapshot.
    pub memtables_skipped_by_snapshot: u64,
    /// Files whose level was looked at for the key (or range).
    pub files_considered: u64,
    /// Files whose fence (key range) does not hold the key.
    pub files_skipped_by_fence: u64,
    /// Files whose entries are all newer than the snapshot.
    pub files_skipped_by_snapshot: u64,
    /// Files whose Bloom filter ruled the key out.
    pub files_skipped_by_bloom: u64,
    /// Files whose prefix filter ruled out that they hold keys within the bounds of a scan.
    pub files_skipped_by_prefix: u64,
    /// Files searched by block.
    pub files_searched: u64,
    /// Parts of two-phase levels that were read from the compaction buffer.
    pub parts_read_from_buffer: u64,
    /// Segments of the compaction buffer that were asked for the key, in those.
    pub segments_considered: u64,
    /// Blocks whose entries are all newer than the snapshot.
    pub blocks_skipped_by_snapshot: u64,
    /// Blocks found in the block cache.
    pub block_cache_hits: u64,
    /// Blocks read from disk (and verified).
    pub blocks_read: u64,
    /// Bytes of those blocks on disk.
    pub bytes_read: u64,
    /// Rows of columnar blocks that a scan took as they lie, many at a time.
    pub rows_passed_through: u64,
    /// Rows of columnar blocks that a scan merged with those of other runs by their keys alone, many at a time.
    pub rows_interleaved: u64,
    /// Rows that a scan of columnar blocks put together one by one, since something younger touches their keys.
    pub rows_merged: u64,
    /// Rows that pass a scan's filter where they were found, and were then looked for in younger runs.
    pub candidates_checked: u64,
    /// Blocks whose zones ruled out that any of their rows passes a scan's filter.
    pub blocks_skipped_by_zone: u64,
    /// Blocks of which a scan found out what younger files, and a part of a memtable, change in them.
    pub block_deltas_found: u64,
    /// Blocks of which it was known, and in the block cache.
    pub block_deltas_reused: u64,
    /// Nanoseconds spent reading pieces of several blocks ahead; reads of single blocks are not timed.
    pub read_nanoseconds: u64,
    /// Nanoseconds spent verifying and decompressing blocks of such pieces, estimated from every eighth.
    pub decode_nanoseconds: u64,
}

impl std::ops::AddAssign for ReadCounters {
    fn add_assign(&mut self, other: Self) {
        self.memtables_searched += other.memtables_searched;
        self.memtables_skipped_by_snapshot += other.memtables_skipped_by_snapshot;
        self.files_considered += other.files_considered;
        self.files_skipped_by_fence += other.files_skipped_by_fence;
        self.files_skipped_by_snapshot += other.files_skipped_by_snapshot;
        self.files_skipped_by_bloom += other.files_skipped_by_bloom;
        self.files_skipped_by_prefix += other.files_skipped_by_prefix;
        self.files_searched += other.files_searched;
        self.parts_read_from_buffer += other.parts_read_from_buffer;
        self.segments_considered += other.segments_considered;
        self.blocks_skipped_by_snapshot += other.blocks_skipped_by_snapshot;
        self.block_cache_hits += other.block_cache_hits;
        self.blocks_read += other.blocks_read;
        self.bytes_read += other.bytes_read;
        self.rows_passed_through += other.rows_passed_through;
        self.rows_interleaved += other.rows_interleaved;
        self.rows_merged += other.rows_merged;
        self.candidates_checked += other.candidates_checked;
        self.blocks_skipped_by_zone += other.blocks_skipped_by_zone;
        self.block_deltas_found += other.block_deltas_found;
        self.block_deltas_reused += other.block_deltas_reused;
        self.read_nanoseconds += other.read_nanoseconds;
        self.decode_nanoseconds += other.decode_nanoseconds;
    }
}

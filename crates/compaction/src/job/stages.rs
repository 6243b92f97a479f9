//! Where the time of a job goes: [`StageTimes`].
//!
//! Reading the clock for every entry would slow the job down: of what is done per entry only one in [`SAMPLE`] is
//! timed, and counted that many times.

/// Of so many entries one is timed.
pub(crate) const SAMPLE: u32 = 64;

/// Nanoseconds by stage. Retrieving and encoding are estimated from every 64th entry or key, decoding from every eighth
/// block; what is done per block of an output, or more rarely, is measured; merging is what remains of the whole.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StageTimes {
    /// Reading the inputs' blocks from the disk.
    pub read: u64,
    /// Verifying, decompressing and opening them.
    pub decode: u64,
    /// Decoding entries, merging them, and deciding and folding what survives.
    pub merge: u64,
    /// Making the values of column groups out of the inputs' (Mycelium §4.2.1, Retrieve); nothing where groups and
    /// formats stay what they are.
    pub retrieve: u64,
    /// Laying entries out in blocks and checksumming these.
    pub encode: u64,
    /// Compressing blocks.
    pub compress: u64,
    /// Building filters.
    pub filter: u64,
    /// The whole-file checksum, appends, and the sync of each output.
    pub write: u64,
    /// The whole job, its waits included: for the rate limit, and for flushes that it made way for.
    pub total: u64,
}

impl std::ops::AddAssign for StageTimes {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.decode += other.decode;
        self.merge += other.merge;
        self.retrieve += other.retrieve;
        self.encode += other.encode;
        self.compress += other.compress;
        self.filter += other.filter;
        self.write += other.write;
        self.total += other.total;
    }
}

impl StageTimes {
    /// Those of a job that took `total`, of which it was `waiting` for the rate limit. Estimates share at most what the
    /// measured stages leave: a sample that another process interrupted counts many times over.
    pub(crate) fn of_whole(self, total: u64, waiting: u64) -> Self {
        let left = total.saturating_sub(self.read + self.compress + self.filter + self.write + waiting);
        let estimates = [self.retrieve, self.decode, self.encode];
        let shrink = (left as f64 / estimates.iter().sum::<u64>().max(1) as f64).min(1.0);
        let [retrieve, decode, encode] = estimates.map(|estimate| (estimate as f64 * shrink) as u64);
        let merge = left.saturating_sub(retrieve + decode + encode);
        Self { retrieve, decode, merge, encode, total, ..self }
    }
}

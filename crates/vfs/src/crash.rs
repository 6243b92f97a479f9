//! How a power loss of an in-memory disk is described: which unsynced changes may survive it, and the seed that says
//! which of them do.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// One power loss: a mode and the seed of its draws.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CrashDraw {
    /// Which unsynced changes may survive.
    pub mode: CrashMode,
    /// Decides every draw.
    pub seed: u64,
}

/// Which unsynced changes survive a power loss. Synced ones always do. Probabilities lie in 0..=1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CrashMode {
    /// None.
    SyncedOnly,
    /// Each unsynced 4 KiB block, file length and directory operation with probability `keep`, independently.
    KeepSome {
        /// The probability of each.
        keep: f64,
    },
    /// As `KeepSome`, but blocks are drawn by 512-byte sectors, each good with probability `keep`, else missing or
    /// garbage in its left part, its right part or whole.
    TornSectors {
        /// The probability of each.
        keep: f64,
    },
    /// All directory operations and file lengths, no data: new files read as zeros.
    MetadataOnly,
    /// All data and lengths, no directory operations: new files have no names.
    DataOnly,
}

impl CrashDraw {
    /// A draw of random mode and probability, for tests that want a bit of everything.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let keep = [0.25, 0.5, 0.75][rng.random_range(0..3)];
        let mode = match rng.random_range(0..8) {
            0 => CrashMode::SyncedOnly,
            1 => CrashMode::MetadataOnly,
            2 => CrashMode::DataOnly,
            3..=5 => CrashMode::KeepSome { keep },
            _ => CrashMode::TornSectors { keep },
        };
        Self { mode, seed: rng.random() }
    }
}

//! What a power loss leaves of an in-memory disk: how the draw is described, and how directories are drawn.
//!
//! 1. Pending directory operations are drawn in the order they were made; those kept are applied to the durable
//!    names in that order. So any subset may survive, operations on different names may overtake each other, and
//!    operations on one name never do. A rename is one operation: both of its names change or neither.
//! 2. Every file still reachable is drawn on its own (its contents: see `memory_file`), in the order of creation.
//! 3. All draws come from one generator, so the seed alone decides the image.

use std::collections::BTreeSet;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::memory::{Inode, Node, State};

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

/// The state after a power loss.
pub(crate) fn after_power_loss(state: &State, draw: CrashDraw) -> State {
    let mut rng = SmallRng::seed_from_u64(draw.seed);
    let mut image = State::empty(state.capacity);
    image.next_inode = state.next_inode;
    image.directories.clone_from(&state.directories);
    for change in &state.pending {
        let kept = match draw.mode {
            CrashMode::SyncedOnly | CrashMode::DataOnly => false,
            CrashMode::MetadataOnly => true,
            CrashMode::KeepSome { keep } | CrashMode::TornSectors { keep } => rng.random_bool(keep),
        };
        if kept {
            image.apply_durably(change);
        }
    }
    for directory in image.directories.values_mut() {
        directory.current.clone_from(&directory.durable);
    }
    let named: BTreeSet<Inode> = image.directories.values().flat_map(|d| d.durable.values().copied()).collect();
    for (&inode, node) in &state.nodes {
        // Drawn even if nameless, so that the fate of one file does not hang on the names of another.
        let file = node.file.crash(draw.mode, &mut rng);
        if named.contains(&inode) {
            image.nodes.insert(inode, Node::new(file));
        }
    }
    image.count_links();
    image
}

/// The state after the process was killed: the page cache, and so everything handed over, is still there.
pub(crate) fn after_kill(state: &State) -> State {
    let mut image = State::empty(state.capacity);
    image.next_inode = state.next_inode;
    image.directories.clone_from(&state.directories);
    image.pending.clone_from(&state.pending);
    image.nodes = state.nodes.iter().map(|(&inode, node)| (inode, Node::new(node.file.clone()))).collect();
    image.count_links();
    image.forget_unreachable();
    image
}

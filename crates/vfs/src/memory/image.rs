//! What a power loss, or the death of the process, leaves of an in-memory disk.
//!
//! 1. Pending directory operations are drawn in the order they were made; those kept are applied to the durable
//!    names in that order. So any subset may survive, operations on different names may overtake each other, and
//!    operations on one name never do. A rename is one operation: both of its names change or neither.
//! 2. Every file still reachable is drawn on its own (its contents: see `file`), in the order of creation.
//! 3. All draws come from one generator, so the seed alone decides the image.

use std::collections::BTreeSet;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::state::{Inode, Node, State};
use crate::crash::{CrashDraw, CrashMode};

/// The state after a power loss.
pub(super) fn after_power_loss(state: &State, draw: CrashDraw) -> State {
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
pub(super) fn after_kill(state: &State) -> State {
    let mut image = State::empty(state.capacity);
    image.next_inode = state.next_inode;
    image.directories.clone_from(&state.directories);
    image.pending.clone_from(&state.pending);
    image.nodes = state.nodes.iter().map(|(&inode, node)| (inode, Node::new(node.file.clone()))).collect();
    image.count_links();
    image.forget_unreachable();
    image
}

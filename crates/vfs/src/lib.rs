//! The disk as a trait.
//!
//! Every byte that Mycelium reads or writes goes through [`Disk`]. Three implementations stand behind it: local files
//! ([`LocalDisk`]), an in-memory disk that can crash ([`MemoryDisk`]), and a wrapper that injects faults ([`FaultDisk`]).

mod disk;

pub use disk::{AccessPattern, Disk, FileLock, ReadableFile, WritableFile};

//! The disk as a trait.
//!
//! Every byte that Mycelium reads or writes goes through [`Disk`]. Three implementations stand behind it: local files
//! ([`LocalDisk`]), an in-memory disk that can crash ([`MemoryDisk`]), and a wrapper that injects faults
//! ([`FaultDisk`]).

use std::path::Path;

use mycelium_base::Error;

mod crash;
mod disk;
mod fault;
mod local;
mod memory;
mod operation;

pub use crash::{CrashDraw, CrashMode};
pub use disk::{AccessPattern, Disk, FileLock, ReadableFile, WritableFile};
pub use fault::{Effect, Fault, FaultDisk, FileFilter, Throttle};
pub use local::LocalDisk;
pub use memory::MemoryDisk;
pub use operation::{Operation, OperationKind};

/// The error of a read beyond the end of a file.
#[cold]
fn cut_short(path: &Path, offset: u64, wanted: usize, found: usize) -> Error {
    Error::corruption("file cut short")
        .in_file(path)
        .at(offset)
        .expected(format_args!("{wanted} bytes"), format_args!("{found} bytes"))
}

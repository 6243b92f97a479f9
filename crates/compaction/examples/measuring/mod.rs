//! What the measurements share: files in memory, and the time that a thread has had.

use std::sync::{Arc, Mutex};

use mycelium_base::Result;
use mycelium_vfs::{ReadableFile, WritableFile};

/// A file that is written.
#[derive(Clone, Default)]
pub(crate) struct Sink(pub(crate) Arc<Mutex<Vec<u8>>>);

impl WritableFile for Sink {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(())
    }
    fn truncate(&mut self, len: u64) -> Result<()> {
        self.0.lock().unwrap().truncate(len as usize);
        Ok(())
    }
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
    fn start_writeback(&mut self) {}
    fn len(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }
}

/// A file that is read.
#[derive(Debug)]
pub(crate) struct Source(pub(crate) Vec<u8>);

impl ReadableFile for Source {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        buffer.copy_from_slice(&self.0[offset as usize..][..buffer.len()]);
        Ok(())
    }
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
    fn will_need(&self, _offset: u64, _len: u64) {}
}

/// Nanoseconds of CPU that this thread has had.
pub(crate) fn cpu_nanoseconds() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

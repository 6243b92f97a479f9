//! What a job is not told but asks for, so that it needs no database: [`JobContext`].

use std::sync::Arc;

use mycelium_base::{FileNumber, Group, Result};
use mycelium_encoding::Schema;
use mycelium_sst::Summarizer;
use mycelium_vfs::WritableFile;

/// What a job asks of its surroundings.
pub trait JobContext {
    /// Creates the next output file.
    fn create_output(&mut self) -> Result<(FileNumber, Box<dyn WritableFile>)>;
    /// Takes an output that is complete. The system is writing it back; it is to be synced before anything names it.
    fn finish_output(&mut self, file: Box<dyn WritableFile>) -> Result<()>;
    /// What sums up the rows of the next output file, of this column group, for materialised views.
    fn summarizers(&mut self, _group: Option<&Arc<Group>>) -> Result<Vec<Box<dyn Summarizer>>> {
        Ok(Vec::new())
    }
    /// What the next output file says of where it belongs; nothing if empty.
    fn origin(&mut self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
    /// The table's schema, which columnar outputs need.
    fn schema(&self) -> Option<Arc<Schema>> {
        None
    }
    /// Whether no place older than the inputs can hold `key` in a column of this output group (0 where a job has but
    /// one). Asked with ascending keys, group by group.
    fn is_base(&mut self, output: usize, key: &[u8]) -> bool;
    /// Whether no place older than the inputs can hold a key of `[start, end)` in a column of this output group.
    fn is_base_range(&mut self, output: usize, start: &[u8], end: &[u8]) -> bool;
    /// Told of about every 256 KiB written; may wait to limit the rate, do something more urgent first, or fail to
    /// cancel the job.
    fn wrote(&mut self, bytes: u64) -> Result<()>;
}

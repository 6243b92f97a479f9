//! The job in the encoded domain: inputs and outputs are columnar with the same columns, and values stay what they are
//! (LSM-OPD §4.2.1, algorithm 1).
//!
//! 1. Keys and trailers alone are merged ([`EncodedCursor`]); the rules of [`crate::job`] say which versions survive.
//!    Each is a *pick*: a row of a block of one of the inputs.
//! 2. The partitioner divides the picks into files, by the same estimate of bytes as ever.
//! 3. A file gathers its picks column by column, many at a time: integers in bulk, codes of dictionaries as symbols, of
//!    which a bit tells that it is alive (`mycelium_encoding::page`).
//! 4. When the file is complete its inputs' dictionaries are merged, once, over the texts alive; a table from symbols
//!    to new codes then gives the code of every row. A dictionary that does not pay any more gives way to plain texts
//!    by the same rule as in any other file, and one that would be too large to hold as well.
//!
//! What has to be looked at is put together on demand: patches that are folded, with their base, and entries that a
//! [`mycelium_merge::Watch`] is told of. Such an entry costs what it costs in the job of rows; all others cost, beside
//! the merge of their keys, a load and a store for each column.
//!
//! Guarantee: entries with the same cuts give the same files as [`crate::job::run`], byte for byte.
//!
//! Limit: the bytes that move are those of the pages, read once and written once, and between them 8 a cell unpacked
//! and 8 gathered (4 and 4 for codes), which stay in the cache. No step that is taken for each row touches a text:
//! texts are compared O(D log k) times for D texts alive of k inputs, where the job of rows hashes and compares one for
//! each row.

use mycelium_base::Result;
use mycelium_merge::MergingCursor;
use mycelium_sst::EncodedCursor;

use crate::group_cursor::GroupCursor;
use crate::job::{self, JobContext, JobInput, JobOutput};
use crate::partitioner::Partitioner;
use crate::shaped_job::{self, ShapedInput};

/// As [`job::run`], of inputs with the columns of the output's group, where no value is mapped and no summary made.
///
/// # Errors
/// As [`job::run`].
pub fn run(
    input: JobInput<'_, MergingCursor<EncodedCursor>>,
    partitioner: &mut dyn Partitioner,
    context: &mut dyn JobContext,
) -> Result<JobOutput> {
    job::run_picking(input, |entries| entries.current().and_then(EncodedCursor::pick), partitioner, context)
}

/// As [`shaped_job::run`], where the cursors of columnar inputs that feed one group alone, whose columns they have, are
/// encoded ones, and such a group has its [`fragments`](shaped_job::OutputGroup::fragments).
///
/// # Errors
/// As [`shaped_job::run`].
pub fn run_shaped(
    input: ShapedInput<'_, GroupCursor>,
    partitioner: &mut dyn Partitioner,
    context: &mut dyn JobContext,
) -> Result<JobOutput> {
    shaped_job::run_picking(input, GroupCursor::pick, partitioner, context)
}

//! The write-ahead log.
//!
//! The log is a chain of *segments*, one file each. A segment is a header and then records back to back: no blocks and
//! no padding, so that an append is one copy and one checksum. The manifest uses the same framing.
//!
//! ```text
//! header, 40 bytes                              record, 12 bytes + payload
//! +0   magic "MYCLWAL1"                         +0   CRC-32C            u32
//! +8   format version (1 or 2)     u32          +4   length of payload  u32   1 ..= MAX_BATCH_LEN
//! +12  number of this segment      u64          +8   unsynced           u32
//! +20  number of the previous      u64, 0 none  +12  payload
//! +28  length of the previous      u64
//! +36  CRC-32C of bytes 0..36      u32          all integers little-endian
//! ```
//!
//! Both versions are framed alike. In version 2 payloads may be such that who knows version 1 alone takes them for
//! damaged.
//!
//! The checksum of a record covers (segment number, offset of the record, length, unsynced, payload): bytes left over
//! from another segment, moved to another offset or replayed never verify. Zeroes never verify either, for a length of
//! 0 is invalid.
//!
//! Behind a segment that another one continues lies a *mark*, 20 bytes: a record's header, whose length is no record's
//! (2^31 + 8), and the successor's number, u64. It is read only where the successor, which names the segment's length
//! in its header, is not there to tell; a reader that does not know it takes it for what a crash leaves behind the end.
//!
//! `unsynced` says how many bytes of this segment before the record were not known to be synced when it was appended
//! (`u32::MAX` for that many or more, which claims nothing). A record at offset `x` thereby testifies that the first
//! `x - unsynced` bytes were synced. That tells the harmless torn tail of a crash from the loss of acknowledged data:
//! see [`RecoveryMode`].
//!
//! What is promised:
//!
//! 1. A record is replayed wholly or not at all, and only if every record before it is.
//! 2. A record is never lost by a crash of the machine after [`SegmentWriter::sync`] returned `Ok`, nor by a crash of
//!    the process after [`SegmentWriter::flush`] did.
//! 3. A failed sync is never retried.
//! 4. A segment that is gone is missed, but for the first ones, of which the manifest tells: the ones before and after
//!    it name it. Of the newest alone a power loss may take what names it.
//! 5. No bytes in a file make the reader panic, or allocate more than 1 MiB for a record that does not verify.
//! 6. What reads beside the writer, and goes on where it had come ([`replay_from`]), reads what it would read from the
//!    front: a record that is not whole yet is a tear, by the same rules.

mod format;
mod reader;
mod replay;
mod writer;

pub use format::{FORMAT_VERSION, HEADER_LEN, RECORD_HEADER_LEN, SegmentHeader};
pub use reader::{Record, SegmentPosition, SegmentReader, Tear};
pub use replay::{Apply, RecoveryMode, ReplayReport, replay, replay_from};
pub use writer::{SealedSegment, SegmentWriter};

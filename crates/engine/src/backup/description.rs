//! The description of a backup: when it was made, and the state of the manifest whose files it is.
//!
//! ```text
//!  0   "MYCBACK1"
//!  8   version u32              1
//! 12   number u64               the one in the file's name
//! 20   time u64                 milliseconds since the beginning of 1970, UTC, by which all was committed that it has
//! 28   edits varint | edit bytes, that many times      version edits of the manifest, the first with its format
//!                                                      version and the database's identity
//!  n   XXH3-64 u64              of the n bytes before
//! ```
//!
//! All integers are little-endian. The edits are those that a fresh manifest begins with (`mycelium_manifest::edit`):
//! they have a format version of their own, which goes on with that of the manifest. The state needs no log. Its files
//! are those of the backup, named by number, length and checksum ([`SharedFile`]).
//!
//! A description is written under a temporary name, synced, and renamed into place, when all its files are durable.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use mycelium_base::coding::Reader;
use mycelium_base::hash::hash_key;
use mycelium_base::{Error, ErrorKind, FileKind, FileNumber, MAX_FILE_NUMBER, Result};
use mycelium_manifest::{FileMeta, ManifestState};
use mycelium_vfs::{AccessPattern, Disk};

use crate::copy::read_whole;
use crate::note;

const MAGIC: &[u8; 8] = b"MYCBACK1";
const VERSION: u32 = 1;
/// Magic, version, number, time.
const HEADER_LEN: usize = 28;
const CHECKSUM_LEN: usize = 8;
/// A longer file is no description, and not read.
const MAX_LEN: u64 = 1 << 30;
/// Bytes of all files of a backup at most, so that sums of them are numbers.
const MAX_BYTES: u64 = 1 << 56;

/// See the module.
pub(super) struct Description {
    pub(super) number: u64,
    /// Milliseconds since the beginning of 1970.
    milliseconds: u64,
    pub(super) state: ManifestState,
}

impl Description {
    /// The description of a backup of what was committed by `milliseconds` ([`note::now`]).
    pub(super) fn new(number: u64, milliseconds: u64, state: ManifestState) -> Self {
        Self { number, milliseconds, state }
    }

    /// By when all that the backup has was committed; the beginning of 1970 if the system cannot say what the
    /// description does.
    pub(super) fn time(&self) -> SystemTime {
        note::time_of(self.milliseconds)
    }

    /// The files that the backup needs. Each comes once.
    pub(super) fn files(&self) -> impl Iterator<Item = SharedFile> {
        self.state.files().map(|(_, file)| SharedFile::of(file))
    }

    /// Where the description of a backup is.
    pub(super) fn path(directory: &Path, number: u64) -> PathBuf {
        directory.join(format!("BACKUP-{number:06}"))
    }

    /// The number of the backup that a file of this name describes, if it is a description.
    pub(super) fn number_of(name: &str) -> Option<u64> {
        let number = name.strip_prefix("BACKUP-")?.parse::<u64>().ok().filter(|number| *number <= MAX_FILE_NUMBER)?;
        (format!("BACKUP-{number:06}") == name).then_some(number)
    }

    /// Puts the description in place, durably.
    pub(super) fn write(&self, disk: &dyn Disk, directory: &Path) -> Result<()> {
        let temporary = directory.join(FileKind::Temporary.name(self.number));
        let mut file = disk.create(&temporary)?;
        file.append(&self.encode())?;
        file.sync()?;
        disk.rename(&temporary, &Self::path(directory, self.number))?;
        disk.sync_directory(directory)
    }

    /// Reads the description of a backup.
    ///
    /// # Errors
    /// `ErrorKind::NotFound` if there is none, `ErrorKind::Unsupported` for a newer format, `ErrorKind::Corruption` if
    /// it is damaged; those of the disk.
    pub(super) fn read(disk: &dyn Disk, directory: &Path, number: u64) -> Result<Self> {
        let path = Self::path(directory, number);
        let file = disk.open(&path, AccessPattern::Sequential)?;
        if file.len() > MAX_LEN {
            let error = Error::corruption("the description of a backup is too long").in_file(path).at(MAX_LEN);
            return Err(error.expected(format_args!("at most {MAX_LEN} bytes"), file.len()));
        }
        let mut bytes = Vec::new();
        read_whole(&*file, |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Self::decode(&bytes, number).map_err(|error| error.in_file(path))
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.milliseconds.to_le_bytes());
        self.state.encode(&mut out);
        let checksum = hash_key(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8], number: u64) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let magic = reader.take(MAGIC.len())?;
        if magic != MAGIC {
            let found = String::from_utf8_lossy(magic);
            return Err(Error::corruption("not the description of a backup").at(0).expected("MYCBACK1", found));
        }
        let version = reader.u32()?;
        if version > VERSION {
            return Err(Error::new(ErrorKind::Unsupported, "the backup has a newer format")
                .expected(format_args!("at most version {VERSION}"), format_args!("version {version}")));
        }
        let body = check_sum(bytes)?;
        let found = reader.u64()?;
        if found != number {
            let error = Error::corruption("the description of another backup").at((MAGIC.len() + 4) as u64);
            return Err(error.expected(number, found));
        }
        let milliseconds = reader.u64()?;
        let mut edits = Reader::new(&body[HEADER_LEN..]);
        let state = ManifestState::decode(&mut edits).map_err(within_state)?;
        edits.finish().map_err(within_state)?;
        let bytes = state.files().fold(0, |sum: u64, (_, file)| sum.saturating_add(file.size));
        if bytes > MAX_BYTES {
            let error = Error::corruption("the files of a backup are too long").at(HEADER_LEN as u64);
            return Err(error.expected(format_args!("at most {MAX_BYTES} bytes"), bytes));
        }
        Ok(Self { number, milliseconds, state })
    }
}

/// The bytes before the checksum, a whole header at least.
fn check_sum(bytes: &[u8]) -> Result<&[u8]> {
    let end = bytes.len().saturating_sub(CHECKSUM_LEN);
    let (body, checksum) = bytes.split_at(end);
    if body.len() < HEADER_LEN {
        let error = Error::corruption("the description of a backup is cut short").at(bytes.len() as u64);
        return Err(error.expected(format_args!("at least {} bytes", HEADER_LEN + CHECKSUM_LEN), bytes.len()));
    }
    let (stored, computed) = (Reader::new(checksum).u64()?, hash_key(body));
    if stored != computed {
        let error = Error::corruption("the description of a backup is damaged").at(end as u64);
        return Err(error.expected(format_args!("checksum {stored:016x}"), format_args!("{computed:016x}")));
    }
    Ok(body)
}

/// Moves the offset of a fault from the edits to the file.
fn within_state(error: Error) -> Error {
    if !error.is_corruption() {
        return error;
    }
    let at = HEADER_LEN as u64 + error.offset().unwrap_or_default();
    Error::corruption("the state that a backup describes is malformed").at(at).caused_by(error)
}

/// An SST in a backup directory: what tells it from every other. A number alone does not: a database that was restored
/// gives out again what the source has given out since.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct SharedFile {
    /// The number that the file has in its database, and that its blocks' checksums are of.
    pub(super) number: FileNumber,
    /// Length in bytes.
    pub(super) size: u64,
    /// XXH3 of the whole file.
    checksum: u64,
}

impl SharedFile {
    /// The file that a manifest describes so.
    pub(super) fn of(meta: &FileMeta) -> Self {
        Self { number: meta.number, size: meta.size, checksum: meta.checksum }
    }

    /// Its name in the directory.
    pub(super) fn name(&self) -> String {
        format!("{:06}-{}-{:016x}.sst", self.number, self.size, self.checksum)
    }

    /// The file that has this name, if it is one.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(".sst")?.split('-');
        let (number, size, checksum) = (parts.next()?, parts.next()?, parts.next()?);
        let checksum = u64::from_str_radix(checksum, 16).ok()?;
        let file = Self { number: number.parse().ok()?, size: size.parse().ok()?, checksum };
        (file.name() == name).then_some(file)
    }

    /// Fails unless the file at `path`, which was read whole, is this one.
    pub(super) fn check(&self, path: &Path, size: u64, checksum: u64) -> Result<()> {
        if (size, checksum) == (self.size, self.checksum) {
            return Ok(());
        }
        let describe = |size: u64, checksum: u64| format!("{size} bytes with checksum {checksum:016x}");
        Err(Error::corruption("the file is not as it was written")
            .in_file(path)
            .at(0)
            .expected(describe(self.size, self.checksum), describe(size, checksum)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    use mycelium_base::TableId;
    use mycelium_manifest::edit::FORMAT_VERSION;
    use mycelium_manifest::{RunPlace, TableRecord, VersionEdit};

    use super::*;

    /// Backup 3 of version 1, written once and never changed; manifests had format 4 then.
    const GOLDEN: &[u8] = b"\
        MYCBACK1\
        \x01\0\0\0\x03\0\0\0\0\0\0\0{h\xe5\xcf\x8b\x01\0\0\
        \x020\
        \x02\x01\x04\x04\x12\0\x01t\x02\x01\x02\x0brow(packed)\
        \x0e\x01\x08\x10\x01\x09\x12\x01\0\x14\x01\x01\x16\x01\x01\
        \x1b\x08\x88wfUD3\x22\x11\
        \x1e\
        \x0c\x19\0\0\0\x07\xac\x02\xef\xcd\xab\x89gE#\x01\
        \x01a\x01k\0\x01\x09\x05\x01\0\x01\
        \x14\x01\x01\
        r^9\x10\x9bZ&\x1a";

    fn expected() -> ManifestState {
        let mut edit = VersionEdit::default();
        let layout = "row(packed)".to_owned();
        edit.created_tables.push(TableRecord { id: TableId(0), name: "t".into(), definition: vec![1, 2], layout });
        let file = FileMeta {
            number: 7,
            size: 300,
            checksum: 0x0123_4567_89ab_cdef,
            smallest: b"a".to_vec(),
            largest: b"k".to_vec(),
            min_sequence: 1,
            max_sequence: 9,
            entry_count: 5,
            delete_count: 1,
            ..FileMeta::default()
        };
        edit.add_file(TableId(0), 0, RunPlace::Newest, Arc::new(file));
        let state = ManifestState { identity: 0x1122_3344_5566_7788, ..ManifestState::default() };
        state.apply(&edit).unwrap()
    }

    #[test]
    fn the_golden_description_is_read_and_written() {
        let description = Description::decode(GOLDEN, 3).unwrap();
        assert_eq!(description.number, 3);
        assert_eq!(description.time(), UNIX_EPOCH + Duration::from_millis(1_700_000_000_123));
        assert_eq!(description.state, ManifestState { format_version: 4, ..expected() });
        let files: Vec<String> = description.files().map(|file| file.name()).collect();
        assert_eq!(files, ["000007-300-0123456789abcdef.sst"]);
        // The edits have a format of their own, which may have become a newer one since.
        if FORMAT_VERSION == 4 {
            assert_eq!(description.encode(), GOLDEN);
        }
        let again = Description { number: 3, milliseconds: 5, state: expected() };
        assert_eq!(Description::decode(&again.encode(), 3).unwrap().state, expected());
    }

    #[test]
    fn what_is_no_description_of_the_backup_is_refused() {
        let kind = |bytes: &[u8]| Description::decode(bytes, 3).err().map(|error| error.kind());
        for bit in 0..8 * GOLDEN.len() {
            let mut bytes = GOLDEN.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = kind(&bytes);
            assert!(matches!(found, Some(ErrorKind::Corruption | ErrorKind::Unsupported)), "bit {bit}: {found:?}");
        }
        for len in 0..GOLDEN.len() {
            assert_eq!(kind(&GOLDEN[..len]), Some(ErrorKind::Corruption), "{len} bytes");
        }
        assert_eq!(kind(&[GOLDEN, b"\0"].concat()), Some(ErrorKind::Corruption));
        let newer = [&MAGIC[..], &2_u32.to_le_bytes()].concat();
        assert_eq!(kind(&newer), Some(ErrorKind::Unsupported));
        assert!(Description::decode(GOLDEN, 4).err().is_some_and(|error| error.is_corruption()), "of another number");
    }

    #[test]
    fn names_parse_back() {
        let file = SharedFile { number: 12, size: 4096, checksum: 0xabc };
        assert_eq!(file.name(), "000012-4096-0000000000000abc.sst");
        assert_eq!(SharedFile::parse(&file.name()), Some(file));
        let foreign = ["000012.sst", "12-4096-0000000000000abc.sst", "000012-04096-0000000000000abc.sst"];
        let odd = ["000012-4096-0000000000000ABC.sst", "000012-4096-0000000000000abc-1.sst", "-.sst", "a-b-c.sst"];
        for name in foreign.iter().chain(&odd) {
            assert_eq!(SharedFile::parse(name), None, "{name}");
        }
        assert_eq!(Description::number_of("BACKUP-000007"), Some(7));
        for name in ["BACKUP-7", "BACKUP-+00007", "BACKUP-", "BACKUP-99999999999999999999", "backup-000007"] {
            assert_eq!(Description::number_of(name), None, "{name}");
        }
    }
}

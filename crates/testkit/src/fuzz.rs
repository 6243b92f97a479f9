//! Every decoder, as a function from bytes that must not panic, with valid inputs to mutate.
//!
//! `fuzz/` runs them under libFuzzer (nightly); `tests/fuzz_smoke.rs` runs them on drawn and mutated inputs with any
//! toolchain. A decoder may refuse its input with an error; what it accepts must hold together: where there is an
//! encoder, decoding what it makes of the decoded value gives that value again.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use mycelium_base::hash::hash_key;
use mycelium_base::{Cursor, FileKind, Operation, RangeDelete, RangeDeleteSet, Trailer};
use mycelium_cache::{BlockCache, SpareBlocks};
use mycelium_encoding::{
    Aggregate, Aggregation, Column, ColumnType, Datum, DatumRef, FragmentFormat, Groups, PackedLayout, Schema,
    TimeUnit, key,
};
use mycelium_engine::{
    Backups, Compression, Durability, Expiry, Options, TableDefinition, TableOptions, Trace, ViewOptions, WriteBatch,
};
use mycelium_manifest::{Manifest, ManifestState, Version, VersionEdit, read_edits};
use mycelium_sst::{
    BLOCK_TRAILER_LEN, BlockCursor, BlockHandle, CursorOptions, Decompressor, FOOTER_LEN, FileStatement, FilterShape,
    Footer, Index, KeyBits, OpenOptions, PAGE_BLOCKS, Properties, SstFile, SstWriter, SstWriterOptions, Summarizer,
    SummaryPart, encode_range_deletes, open_block, parse_range_deletes, parse_summary_directory, parse_summary_page,
};
use mycelium_vfs::{AccessPattern, Disk, MemoryDisk};
use mycelium_wal::{RecoveryMode, SegmentHeader, SegmentReader, SegmentWriter, replay};

use crate::{fuzz_columns, fuzz_rows};

/// A decoder under test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also that of its binary in `fuzz/`.
    pub name: &'static str,
    /// Decodes; must not panic.
    pub run: fn(&[u8]),
    /// Valid inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All decoders.
pub const TARGETS: &[Target] = &[
    Target { name: "wal_segment", run: wal_segment, seeds: || vec![FILES.segment.clone()] },
    Target { name: "log_record", run: log_record, seeds: || FILES.records.clone() },
    Target { name: "manifest_edit", run: manifest_edit, seeds: || FILES.edits.clone() },
    Target { name: "manifest_file", run: manifest_file, seeds: || vec![FILES.manifest.clone()] },
    Target { name: "version_text", run: version_text, seeds: version_texts },
    Target { name: "backup_description", run: backup_description, seeds: || FILES.backups.clone() },
    Target { name: "table_definition", run: table_definition, seeds: || FILES.definitions.clone() },
    Target { name: "sst_file", run: sst_file, seeds: || FILES.ssts.clone() },
    Target { name: "sst_block", run: sst_block, seeds: || FILES.blocks.clone() },
    Target { name: "sst_compressed_block", run: sst_compressed_block, seeds: || FILES.compressed.clone() },
    Target { name: "sst_index", run: sst_index, seeds: || FILES.indexes.clone() },
    Target { name: "sst_filter", run: sst_filter, seeds: || FILES.filters.clone() },
    Target { name: "sst_footer", run: sst_footer, seeds: || FILES.footers.clone() },
    Target { name: "sst_properties", run: sst_properties, seeds: || FILES.properties.clone() },
    Target { name: "sst_origin", run: sst_origin, seeds: || FILES.origins.clone() },
    Target { name: "sst_range_deletes", run: sst_range_deletes, seeds: || FILES.range_deletes.clone() },
    Target { name: "sst_summaries", run: sst_summaries, seeds: || FILES.summaries.clone() },
    Target { name: "partial_aggregates", run: partial_aggregates, seeds: || FILES.partials.clone() },
    Target { name: "packed_row", run: packed_row, seeds: || FILES.rows.clone() },
    Target { name: "key", run: decode_key, seeds: || FILES.keys.clone() },
    Target { name: "schema", run: schema, seeds: || FILES.schemas.clone() },
    Target { name: "schema_text", run: schema_text, seeds: schema_texts },
    Target { name: "trace_text", run: trace_text, seeds: trace_texts },
    Target { name: "row_json", run: fuzz_rows::json, seeds: fuzz_rows::json_seeds },
    Target { name: "row_protobuf", run: fuzz_rows::protobuf, seeds: fuzz_rows::protobuf_seeds },
    Target { name: "row_flatbuffers", run: fuzz_rows::flatbuffers, seeds: fuzz_rows::flatbuffers_seeds },
    Target { name: "row_raw", run: fuzz_rows::raw, seeds: fuzz_rows::raw_seeds },
    Target { name: "row_definition", run: fuzz_rows::definition, seeds: fuzz_rows::definition_seeds },
    Target { name: "column_page", run: fuzz_columns::page, seeds: fuzz_columns::page_seeds },
    Target { name: "text_coding", run: fuzz_columns::text_coding, seeds: fuzz_columns::text_coding_seeds },
    Target { name: "sst_columnar_block", run: fuzz_columns::block, seeds: fuzz_columns::block_seeds },
    Target { name: "sst_columnar_file", run: fuzz_columns::file, seeds: fuzz_columns::file_seeds },
    Target { name: "sst_column_directory", run: fuzz_columns::directory, seeds: fuzz_columns::directory_seeds },
    Target { name: "sst_zone_map", run: fuzz_columns::zone_map, seeds: fuzz_columns::zone_map_seeds },
];

/// Runs the target of that name on `data`.
///
/// # Panics
/// As the target does; and if there is no target of that name.
pub fn run(name: &str, data: &[u8]) {
    match TARGETS.iter().find(|target| target.name == name) {
        Some(target) => (target.run)(data),
        None => panic!("there is no fuzz target {name}"),
    }
}

const SEGMENT: u64 = 7;
const SST: u64 = 9;
const MANIFEST: u64 = 1;

/// A disk that holds one file.
fn disk_with(path: &Path, bytes: &[u8]) -> Option<MemoryDisk> {
    let disk = MemoryDisk::new();
    disk.create_directory(Path::new("/db")).ok()?;
    disk.create(path).and_then(|mut file| file.append(bytes)).ok()?;
    Some(disk)
}

fn path(kind: FileKind, number: u64) -> std::path::PathBuf {
    Path::new("/db").join(kind.name(number))
}

fn wal_segment(bytes: &[u8]) {
    let path = path(FileKind::Wal, SEGMENT);
    let Some(disk) = disk_with(&path, bytes) else { return };
    if let Ok(mut reader) = SegmentReader::open(&disk, &path, Some(SEGMENT)) {
        while let Ok(Some(record)) = reader.next() {
            assert!(record.payload.len() <= bytes.len(), "a payload longer than the file");
        }
    }
    for mode in [RecoveryMode::Strict, RecoveryMode::TolerateTornTail, RecoveryMode::PointInTime] {
        drop(replay(&disk, Path::new("/db"), &[SEGMENT], mode, &mut |_, _, _| Ok(())));
    }
}

fn log_record(bytes: &[u8]) {
    let mut decoded = 0;
    let read = mycelium_engine::read_log_record(bytes, |_, entry| {
        decoded += entry.key.len() + entry.value.len();
        Ok(())
    });
    assert!(decoded <= bytes.len(), "more than there is");
    if let Ok((_, count)) = read {
        assert!(count as usize <= bytes.len(), "more operations than bytes");
    }
}

fn manifest_edit(bytes: &[u8]) {
    let Ok(edit) = VersionEdit::decode(bytes) else { return };
    let mut again = Vec::new();
    edit.encode(&mut again);
    // Twice: what the first leaves behind is what a forged manifest can lead to.
    let applied = ManifestState::default().apply(&edit);
    drop(applied.map(|state| (state.check(), state.apply(&edit).map(|state| state.to_edits()))));
    assert_eq!(VersionEdit::decode(&again).ok(), Some(edit), "an edit changes when encoded and decoded");
}

fn manifest_file(bytes: &[u8]) {
    let Some(disk) = disk_with_manifest(bytes) else { return };
    drop(read_edits(&disk, &path(FileKind::Manifest, MANIFEST), &mut |_, _| Ok(())));
    if let Ok(state) = Manifest::read(&disk, Path::new("/db")) {
        assert!(state.check().is_ok(), "a state that breaks its invariants was accepted");
    }
}

/// A disk that holds a manifest and a CURRENT that names it.
fn disk_with_manifest(bytes: &[u8]) -> Option<MemoryDisk> {
    let disk = disk_with(&path(FileKind::Manifest, MANIFEST), bytes)?;
    let name = FileKind::Manifest.name(MANIFEST);
    let line = format!("{name} {:016x}\n", hash_key(name.as_bytes()));
    disk.create(&path(FileKind::Current, 0)).and_then(|mut file| file.append(line.as_bytes())).ok()?;
    Some(disk)
}

/// The input is a description of a backup without its checksum.
fn backup_description(bytes: &[u8]) {
    let sealed = [bytes, &hash_key(bytes).to_le_bytes()].concat();
    let Some(disk) = disk_with(Path::new("/db/BACKUP-000001"), &sealed) else { return };
    let Ok(backups) = Backups::open(Arc::new(disk), "/db") else { return };
    let Ok(list) = backups.list() else { return };
    for backup in list {
        assert!(backup.own_bytes == backup.bytes, "there is no other backup");
        let restored = backups.restore(backup.number, "/restored", |done, total| assert!(done <= total));
        assert!(restored.is_err() || backup.files == 0, "restored without files");
    }
    drop(backups.verify(None, |done, total| assert!(done <= total)));
}

fn version_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(version) = Version::parse(text) else { return };
    drop(version.check());
    drop(version.to_string());
}

fn trace_text(bytes: &[u8]) {
    let Ok(trace) = Trace::read_from(bytes) else { return };
    let again = Trace::parse(&trace.to_string());
    assert_eq!(again.ok().as_ref(), Some(&trace), "a trace changes when written and read");
    let folded = trace.with_levels(1);
    assert!(folded.is_ok_and(|folded| folded.scanned_entries() == trace.scanned_entries()), "a count is lost");
}

fn trace_texts() -> Vec<Vec<u8>> {
    let whole = "mycelium-trace 1\ncolumns 30\nlevels 8\ninserts 20000000\noverflowed 7\nprojection 27-29\nL6: scans=12 \
                 entries=600000000\nL7: scans=12 entries=1200000000\nprojection 0-29\nL1: points=490000 updates=12\nend\n";
    vec![whole.into(), b"mycelium-trace 1\ncolumns 1\nlevels 1\ninserts 0\noverflowed 0\nend\n".to_vec()]
}

fn table_definition(bytes: &[u8]) {
    drop(TableDefinition::decode(bytes));
}

fn sst_file(bytes: &[u8]) {
    let path = path(FileKind::Sst, SST);
    let Some(disk) = disk_with(&path, bytes) else { return };
    let Ok(file) = disk.open(&path, AccessPattern::Random) else { return };
    let cache = Arc::new(BlockCache::new(1 << 20));
    let Ok(sst) = SstFile::open(file, &path, SST, cache, OpenOptions::default()) else { return };
    let mut cursor = sst.cursor(CursorOptions::default());
    let mut walk = || -> mycelium_base::Result<()> {
        cursor.seek_to_first()?;
        while cursor.valid() {
            cursor.next()?;
        }
        cursor.seek_to_last()?;
        while cursor.valid() {
            cursor.prev()?;
        }
        Ok(())
    };
    drop(walk());
    for id in [1, 200] {
        if let Ok(Some(mut summary)) = sst.summary(id) {
            (0..summary.block_count()).for_each(|block| drop(summary.of_block(block)));
        }
    }
}

fn sst_block(bytes: &[u8]) {
    // A reader appends the frame's zero bytes to what it unpacked.
    let framed: Arc<[u8]> = [bytes, &[0; BLOCK_TRAILER_LEN]].concat().into();
    for sequence_override in [None, Some(77)] {
        let mut cursor = BlockCursor::new();
        if cursor.load(framed.clone(), 0, bytes.len(), sequence_override).is_err() {
            return;
        }
        // A walk ends after as many entries as there are bytes, or it does not end.
        let mut most = bytes.len() + 1;
        let mut step = |more: mycelium_base::Result<bool>| {
            most = most.checked_sub(1).unwrap_or_else(|| panic!("a walk without end"));
            more.unwrap_or(false)
        };
        let mut more = step(cursor.seek_to_first());
        let mut keys = Vec::new();
        while more {
            if keys.len() < 8 {
                keys.push(cursor.key().to_vec());
            }
            std::hint::black_box((cursor.value().len(), cursor.trailer()));
            more = step(cursor.advance());
        }
        for key in keys.iter().map(Vec::as_slice).chain([&b""[..], b"key0003", b"\xff\xff"]) {
            for trailer in [Trailer::NEWEST, Trailer::OLDEST] {
                drop(cursor.seek(key, trailer));
                drop(cursor.prev());
            }
        }
        let mut most = bytes.len() + 1;
        let mut more = cursor.seek_to_last().unwrap_or(false);
        while more && most > 0 {
            most -= 1;
            more = cursor.prev().unwrap_or(false);
        }
        assert!(!more, "a walk backwards without end");
    }
}

fn sst_compressed_block(bytes: &[u8]) {
    let Some((&kind, payload)) = bytes.split_first() else { return };
    drop(Decompressor::default().decompress(kind, payload, &SpareBlocks::default()));
}

/// The input is the index and, in its first eight bytes, where the data blocks end.
fn sst_index(bytes: &[u8]) {
    let Some((data_end, payload)) = bytes.split_first_chunk() else { return };
    let Ok(index) = Index::parse(payload, u64::from_le_bytes(*data_end)) else { return };
    for i in 0..index.block_count() {
        let separator = index.separator(i);
        assert!(index.seek(&separator) <= i, "a separator lies behind its own block");
        std::hint::black_box(index.entry(i));
    }
    for key in [&b""[..], b"key", b"key0003", b"\xff\xff\xff"] {
        assert!(index.seek(key) <= index.block_count());
    }
}

fn sst_filter(bytes: &[u8]) {
    let Ok(shape) = FilterShape::parse(bytes) else { return };
    assert!(shape.len() <= bytes.len(), "a filter longer than its block");
    for hash in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
        shape.prefetch(bytes, hash);
        std::hint::black_box(shape.may_contain(bytes, &mut KeyBits::new(hash)));
    }
}

/// The input is the footer and, in its first eight bytes, where it lies.
fn sst_footer(bytes: &[u8]) {
    let Some((offset, footer)) = bytes.split_first_chunk() else { return };
    let offset = u64::from_le_bytes(*offset) % (1 << 60);
    let Ok(parsed) = Footer::parse(footer, SST, offset) else { return };
    assert!(parsed.data_end() <= offset);
    assert_eq!(parsed.encode(offset), footer, "a footer changes when encoded and decoded");
}

fn sst_properties(bytes: &[u8]) {
    let Ok(properties) = Properties::parse(bytes) else { return };
    assert_eq!(Properties::parse(&properties.encode()).ok(), Some(properties), "properties change when encoded");
}

fn sst_origin(bytes: &[u8]) {
    let Ok(origin) = mycelium_engine::rewrite_origin(bytes) else { return };
    assert_eq!(mycelium_engine::rewrite_origin(&origin).ok(), Some(origin), "an origin changes when encoded");
}

fn sst_range_deletes(bytes: &[u8]) {
    let Ok(deletes) = parse_range_deletes(bytes) else { return };
    assert_eq!(parse_range_deletes(&encode_range_deletes(&deletes)).ok().as_ref(), Some(&deletes));
    let set = RangeDeleteSet::new(&deletes);
    for delete in &deletes {
        assert!(set.covering(&delete.start, u64::MAX).is_some_and(|sequence| sequence >= delete.sequence));
    }
}

/// The input is a page, or the directory of a file; before it a byte that says which, one with the number of blocks,
/// and for the directory eight with the length of all pages.
fn sst_summaries(bytes: &[u8]) {
    let [kind, blocks, rest @ ..] = bytes else { return };
    let blocks = usize::from(*blocks);
    if *kind == 0 {
        let Ok(places) = parse_summary_page(rest, blocks) else { return };
        assert_eq!(places.len(), blocks);
        assert!(places.iter().flatten().all(|&(start, end)| start <= end && end <= rest.len()));
        return;
    }
    let Some((end, payload)) = rest.split_first_chunk() else { return };
    let end = u64::from_le_bytes(*end);
    let Ok(entries) = parse_summary_directory(payload, blocks, (0, end)) else { return };
    assert!(entries.is_sorted_by_key(|entry| entry.id));
    let pages = entries.iter().flat_map(|entry| &entry.pages);
    assert_eq!(pages.map(|page| page.handle.len).sum::<u64>(), end);
}

/// Groups by a column that may be null and one that may not; aggregates of every kind.
fn example_aggregation() -> mycelium_base::Result<Arc<Aggregation>> {
    let aggregates = [
        Aggregate::CountRows,
        Aggregate::Count(2),
        Aggregate::Sum(0),
        Aggregate::Min(4),
        Aggregate::Max(5),
        Aggregate::Min(2),
        Aggregate::Sum(2),
    ];
    Aggregation::new(Arc::new(example_schema()?), vec![3, 1], aggregates.to_vec()).map(Arc::new)
}

fn partial_aggregates(bytes: &[u8]) {
    let Ok(aggregation) = example_aggregation() else { return };
    let mut groups = Groups::new(aggregation.clone());
    if groups.merge_encoded(bytes).is_err() {
        return;
    }
    let (mut encoded, mut again) = (Vec::new(), Groups::new(aggregation));
    groups.encode(&mut encoded);
    assert!(again.merge_encoded(&encoded).is_ok() && again == groups, "groups change when encoded and decoded");
    if let Ok(rows) = groups.rows() {
        assert_eq!(rows.len(), groups.len());
    }
}

fn packed_row(bytes: &[u8]) {
    let layout = &FILES.layout;
    let valid = layout.validate(bytes).is_ok();
    let Ok(row) = layout.row(bytes) else {
        assert!(!valid, "a valid row that cannot be read");
        return;
    };
    // Columns of the key are not in the row.
    let columns = 0..layout.schema().columns().len();
    for column in columns.filter(|&column| !layout.schema().is_primary_key(column)) {
        let read = row.get(column);
        assert!(!valid || read.is_ok(), "column {column} of a valid row cannot be read");
    }
}

fn decode_key(bytes: &[u8]) {
    let schema = FILES.layout.schema();
    let Ok(values) = key::decode_key(schema, bytes) else { return };
    let mut again = Vec::new();
    let borrowed: Vec<DatumRef<'_>> = values.iter().map(Datum::borrowed).collect();
    // One key has one form: order by bytes would be wrong otherwise.
    assert!(key::encode_key(schema, &borrowed, &mut again).is_ok());
    assert_eq!(again, bytes, "two forms of one key");
}

fn schema(bytes: &[u8]) {
    let Ok(schema) = Schema::decode(bytes) else { return };
    let mut again = Vec::new();
    schema.encode(&mut again);
    assert_eq!(Schema::decode(&again).ok(), Some(schema), "a schema changes when encoded and decoded");
}

fn schema_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(schema) = Schema::parse(text) else { return };
    let mut encoded = Vec::new();
    schema.encode(&mut encoded);
    assert!(Schema::decode(&encoded).is_ok(), "a schema that can be written but not read back");
}

fn schema_texts() -> Vec<Vec<u8>> {
    let texts = [
        "id i64 not null, name utf8, primary key (id)",
        "id int64 not null, name utf8 not null default 'it''s', n decimal(9, 2) default -1.5, primary key (id)",
    ];
    let texts = texts.into_iter().map(|text| text.as_bytes().to_vec());
    texts.chain([FILES.layout.schema().to_string().into_bytes()]).collect()
}

fn version_texts() -> Vec<Vec<u8>> {
    vec![b"L0: 000012:[a-f] 1.5MB seq 10-90\nL1: 000003:[a-c] 2MB seq 1-5 000004:[d-f) 2MB seq 1-5\n".to_vec()]
}

/// Valid inputs of all kinds, made once.
struct Files {
    segment: Vec<u8>,
    records: Vec<Vec<u8>>,
    manifest: Vec<u8>,
    edits: Vec<Vec<u8>>,
    backups: Vec<Vec<u8>>,
    definitions: Vec<Vec<u8>>,
    ssts: Vec<Vec<u8>>,
    blocks: Vec<Vec<u8>>,
    compressed: Vec<Vec<u8>>,
    indexes: Vec<Vec<u8>>,
    filters: Vec<Vec<u8>>,
    footers: Vec<Vec<u8>>,
    properties: Vec<Vec<u8>>,
    origins: Vec<Vec<u8>>,
    range_deletes: Vec<Vec<u8>>,
    summaries: Vec<Vec<u8>>,
    partials: Vec<Vec<u8>>,
    layout: PackedLayout,
    rows: Vec<Vec<u8>>,
    keys: Vec<Vec<u8>>,
    schemas: Vec<Vec<u8>>,
}

static FILES: LazyLock<Files> = LazyLock::new(|| match Files::make() {
    Ok(files) => files,
    Err(error) => panic!("cannot make valid inputs: {error}"),
});

impl Files {
    fn make() -> mycelium_base::Result<Self> {
        let layout = PackedLayout::new(Arc::new(example_schema()?));
        let mut files = Self {
            segment: Vec::new(),
            records: Vec::new(),
            manifest: Vec::new(),
            edits: Vec::new(),
            backups: Vec::new(),
            definitions: Vec::new(),
            ssts: Vec::new(),
            blocks: Vec::new(),
            compressed: Vec::new(),
            indexes: Vec::new(),
            filters: Vec::new(),
            footers: Vec::new(),
            properties: Vec::new(),
            origins: Vec::new(),
            range_deletes: Vec::new(),
            summaries: Vec::new(),
            partials: Vec::new(),
            rows: Vec::new(),
            keys: Vec::new(),
            schemas: Vec::new(),
            layout,
        };
        files.add_rows()?;
        files.add_segment()?;
        files.add_database()?;
        files.add_partials()?;
        files.add_summaries()?;
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd(1)] {
            files.add_sst(compression)?;
        }
        Ok(files)
    }

    fn add_rows(&mut self) -> mycelium_base::Result<()> {
        let schema = self.layout.schema().clone();
        let mut bytes = Vec::new();
        schema.encode(&mut bytes);
        self.schemas.push(bytes);
        for n in 0..4_i64 {
            let name = "n".repeat(n as usize * 7);
            let row = [
                DatumRef::Int64(n - 2),
                DatumRef::Utf8(&name),
                if n == 1 { DatumRef::Null } else { DatumRef::Float64(0.5 * n as f64) },
                DatumRef::Bool(n % 2 == 0),
                DatumRef::Binary(name.as_bytes()),
                DatumRef::Timestamp(n << 40),
            ];
            let (mut packed, mut key) = (Vec::new(), Vec::new());
            self.layout.encode_row(&row, &mut packed)?;
            key::encode_row_key(&schema, &row, &mut key)?;
            self.rows.push(packed);
            self.keys.push(key);
        }
        Ok(())
    }

    fn add_segment(&mut self) -> mycelium_base::Result<()> {
        let disk = MemoryDisk::new();
        let path = Path::new("000007.wal");
        let mut writer = SegmentWriter::create(&disk, path, SegmentHeader { number: SEGMENT, previous: None })?;
        for n in 0..6_u8 {
            writer.append(&[&[n; 9], &vec![n; usize::from(n) * 30]])?;
            if n == 3 {
                writer.sync()?;
            }
        }
        writer.flush()?;
        self.segment = disk.read_bytes(path)?;
        Ok(())
    }

    /// Log records, manifest edits, table definitions, origins and the description of a backup from a small database.
    fn add_database(&mut self) -> mycelium_base::Result<()> {
        let disk = MemoryDisk::new();
        let options = Options {
            disk: Arc::new(disk.clone()),
            background: mycelium_engine::Background::Manual,
            ..Options::default()
        };
        let database = mycelium_engine::Database::open("/db", options)?;
        let plain = database.create_table("plain", TableOptions::default())?;
        let typed = database.create_typed_table("typed", (**self.layout.schema()).clone(), TableOptions::default())?;
        let view = ViewOptions {
            name: "by_name".into(),
            group_by: vec!["flag".into(), "name".into()],
            aggregates: ["count(*)", "sum(id)", "min(bytes)", "max(time)"].map(str::to_owned).to_vec(),
        };
        database.create_view(&typed, &view)?;
        database.set_expiry(&typed, Some(Expiry::new("time", Duration::from_secs(1))))?;
        let mut batch = WriteBatch::new();
        for (n, row) in self.rows.iter().enumerate() {
            batch.put(&plain, &[n as u8; 5], b"value").delete(&plain, b"b").delete_range(&plain, b"c", b"d");
            batch.put(&typed, &self.keys[n], row);
            database.write(&batch, Durability::Os)?;
            if n < 2 {
                database.flush()?;
                self.origins.extend(origins_on(&disk)?);
            }
            if n == 1 {
                database.compact(&plain)?;
                self.origins.extend(origins_on(&disk)?);
            }
        }
        for path in disk.paths() {
            match path.file_name().and_then(|name| name.to_str()).and_then(FileKind::parse) {
                Some((FileKind::Wal, _)) => {
                    let mut reader = SegmentReader::open(&disk, &path, None)?;
                    while let Some(record) = reader.next()? {
                        self.records.push(record.payload.to_vec());
                    }
                }
                Some((FileKind::Manifest, number)) => self.add_manifest(&disk, &path, number)?,
                _ => {}
            }
        }
        // Last, for it flushes what the log holds.
        database.backup("/backups")?;
        let mut description = disk.read_bytes(Path::new("/backups/BACKUP-000001"))?;
        description.truncate(description.len().saturating_sub(8));
        self.backups.push(description);
        Ok(())
    }

    fn add_manifest(&mut self, disk: &MemoryDisk, path: &Path, number: u64) -> mycelium_base::Result<()> {
        if number == MANIFEST {
            self.manifest = disk.read_bytes(path)?;
        }
        read_edits(disk, path, &mut |_, edit| {
            let replaced = edit.replaced_tables.iter().map(|replaced| &replaced.record);
            let records = edit.created_tables.iter().chain(&edit.changed_tables).chain(replaced);
            self.definitions.extend(records.map(|record| record.definition.clone()));
            let mut bytes = Vec::new();
            edit.encode(&mut bytes);
            self.edits.push(bytes);
            Ok(())
        })
    }

    fn add_partials(&mut self) -> mycelium_base::Result<()> {
        let aggregation = example_aggregation()?;
        let format = FragmentFormat::packed(aggregation.schema().clone(), aggregation.schema().value_columns());
        let (mut input, mut groups) = (aggregation.input(&format)?, Groups::new(aggregation));
        for (key, row) in self.keys.iter().zip(&self.rows) {
            input.add(key, row, &mut groups)?;
            let mut bytes = Vec::new();
            groups.encode(&mut bytes);
            self.partials.push(bytes);
        }
        Ok(())
    }

    /// Directory and pages of a file with summaries, which are as the writer lays them out.
    fn add_summaries(&mut self) -> mycelium_base::Result<()> {
        let disk = MemoryDisk::new();
        let path = Path::new("000009.sst");
        let options = SstWriterOptions { file_number: SST, block_size: 128, ..SstWriterOptions::default() };
        let summarizers: Vec<Box<dyn Summarizer>> = [1, 200].map(|id| Box::new(Constant { id }) as Box<_>).into();
        let mut writer = SstWriter::new(disk.create(path)?, options)?.with_summarizers(summarizers);
        for n in 0..400_u64 {
            writer.add(format!("key{n:04}").as_bytes(), Trailer::new(n, Operation::Put), b"a value")?;
        }
        writer.finish()?;
        let bytes = disk.read_bytes(path)?;
        let at = bytes.len() - FOOTER_LEN;
        let footer = Footer::parse(&bytes[at..], SST, at as u64)?;
        let block = |handle: BlockHandle| {
            open_block(&bytes[handle.offset as usize..(handle.offset + handle.len) as usize], SST, handle.offset)
        };
        let index = Index::parse(block(footer.index)?.0, footer.data_end())?;
        let (start, end) = (footer.pages_start(), footer.summaries.offset);
        let directory = block(footer.summaries)?.0;
        let blocks = index.block_count();
        self.summaries.push([&[1, blocks as u8], &(end - start).to_le_bytes()[..], directory].concat());
        for entry in parse_summary_directory(directory, blocks, (start, end))? {
            for (number, page) in entry.pages.iter().enumerate() {
                let of_page = (blocks - number * PAGE_BLOCKS).min(PAGE_BLOCKS);
                self.summaries.push([&[0, of_page as u8], block(page.handle)?.0].concat());
            }
        }
        self.footers.push([&(at as u64).to_le_bytes(), &bytes[at..]].concat());
        self.ssts.push(bytes);
        Ok(())
    }

    fn add_sst(&mut self, compression: Compression) -> mycelium_base::Result<()> {
        let disk = MemoryDisk::new();
        let path = Path::new("000009.sst");
        let options =
            SstWriterOptions { file_number: SST, block_size: 512, compression, ..SstWriterOptions::default() };
        let mut writer = SstWriter::new(disk.create(path)?, options)?;
        for n in 0..120_u64 {
            let operation = if n % 7 == 0 { Operation::Delete } else { Operation::Put };
            let value = if operation == Operation::Delete { &b""[..] } else { b"a value, a value, a value" };
            writer.add(format!("key{n:04}").as_bytes(), Trailer::new(500 - n, operation), value)?;
        }
        writer.add_range_delete(&RangeDelete {
            start: b"key0003".to_vec(),
            end: b"key0009".to_vec(),
            sequence: 600,
        })?;
        writer.finish()?;
        let bytes = disk.read_bytes(path)?;
        let at = bytes.len() - FOOTER_LEN;
        let footer = Footer::parse(&bytes[at..], SST, at as u64)?;
        let block = |handle: BlockHandle| {
            open_block(&bytes[handle.offset as usize..(handle.offset + handle.len) as usize], SST, handle.offset)
        };
        let index_payload = block(footer.index)?.0;
        let index = Index::parse(index_payload, footer.data_end())?;
        for i in 0..index.block_count() {
            let entry = index.entry(i);
            let (payload, kind) = block(BlockHandle { offset: entry.offset, len: entry.len })?;
            if kind == 0 {
                self.blocks.push(payload.to_vec());
            } else {
                self.compressed.push([&[kind], payload].concat());
            }
        }
        self.indexes.push([&footer.data_end().to_le_bytes(), index_payload].concat());
        self.filters.push(block(footer.filter)?.0.to_vec());
        self.footers.push([&(at as u64).to_le_bytes(), &bytes[at..]].concat());
        self.properties.push(block(footer.properties)?.0.to_vec());
        self.range_deletes.push(block(footer.range_deletes)?.0.to_vec());
        self.ssts.push(bytes);
        Ok(())
    }
}

/// What all files say of where they belong.
fn origins_on(disk: &MemoryDisk) -> mycelium_base::Result<Vec<Vec<u8>>> {
    let mut origins = Vec::new();
    for path in disk.paths() {
        let kind = path.file_name().and_then(|name| name.to_str()).and_then(FileKind::parse);
        if let Some((FileKind::Sst, number)) = kind {
            let file = disk.open(&path, AccessPattern::Random)?;
            origins.extend(FileStatement::read(file, &path, number)?.origin);
        }
    }
    Ok(origins)
}

/// Sums everything up to the same bytes.
struct Constant {
    id: u64,
}

impl Summarizer for Constant {
    fn id(&self) -> u64 {
        self.id
    }

    fn add(&mut self, _key: &[u8], _value: &[u8]) -> bool {
        true
    }

    fn end(&mut self, _part: SummaryPart, _limit: usize, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(b"summary");
        true
    }

    fn discard(&mut self, _part: SummaryPart) {}
}

fn example_schema() -> mycelium_base::Result<Schema> {
    Schema::new(
        vec![
            Column::new("id", ColumnType::Int64).not_null(),
            Column::new("name", ColumnType::Utf8).not_null(),
            Column::new("score", ColumnType::Float64),
            Column::new("flag", ColumnType::Bool),
            Column::new("bytes", ColumnType::Binary),
            Column::new("time", ColumnType::Timestamp(TimeUnit::Microsecond, None)),
        ],
        vec![1, 0],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CURRENT had no hash: every manifest was refused before it was looked at.
    #[test]
    fn a_valid_manifest_is_read() {
        let disk = disk_with_manifest(&FILES.manifest).unwrap();
        assert!(Manifest::read(&disk, Path::new("/db")).unwrap().tables.len() > 1);
    }
}

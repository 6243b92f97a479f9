//! PostgreSQL under LASER's workload HW: a server of its own, reached through a Unix socket by one client.
//!
//! 1. `initdb` and `pg_ctl` of the newest installed version make and start it. They refuse to run as root, and are then
//!    run as the user `postgres`, whom Debian's package makes.
//! 2. The rows are loaded by `COPY`, then get their primary key, `VACUUM` and `ANALYZE`.
//! 3. Statements are prepared. Commits wait for no disk (`synchronous_commit = off`), as our writes do not, and a query
//!    has one process, as ours has one thread, or workers beside it.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mycelium_bench::Result;
use mycelium_bench::experiments::laser::{Aggregate, HybridTable, Rows};
use mycelium_engine::ReadCounters;
use postgres::types::ToSql;
use postgres::{Client, NoTls, Row, Statement};

use crate::sql::{self, sql_key};

/// Where Debian puts the servers of all versions.
const INSTALLED: &str = "/usr/lib/postgresql";

/// The server; stopped when dropped.
struct Server {
    programs: PathBuf,
    directory: PathBuf,
}

struct PostgresTable {
    // Closed before the server stops.
    client: Client,
    server: Server,
    rows: Rows,
    statements: HashMap<String, Statement>,
}

/// A loaded table, whose queries have one process.
pub(crate) fn load(directory: &Path, rows: Rows, count: u64, cache_bytes: u64) -> Result<Box<dyn HybridTable>> {
    load_with_workers(directory, rows, count, cache_bytes, 0)
}

/// A loaded table, whose queries have so many workers beside the process that asks.
pub(crate) fn load_with_workers(
    directory: &Path,
    rows: Rows,
    count: u64,
    cache_bytes: u64,
    workers: usize,
) -> Result<Box<dyn HybridTable>> {
    let server = Server::start(&directory.canonicalize()?, cache_bytes, workers)?;
    let mut config = postgres::Config::new();
    let mut client = config.host_path(&server.directory).user("postgres").dbname("postgres").connect(NoTls)?;
    client.batch_execute(&sql::create_table(rows))?;
    let mut copy = client.copy_in("COPY t FROM STDIN")?;
    let mut line = String::new();
    for index in 0..count {
        sql::write_line(rows, index, '\t', &mut line);
        copy.write_all(line.as_bytes())?;
    }
    copy.finish()?;
    client.batch_execute("ALTER TABLE t ADD PRIMARY KEY (a0)")?;
    client.batch_execute("VACUUM ANALYZE t")?;
    Ok(Box::new(PostgresTable { client, server, rows, statements: HashMap::new() }))
}

impl Server {
    fn start(directory: &Path, cache_bytes: u64, workers: usize) -> Result<Self> {
        let server = Self { programs: programs()?, directory: directory.to_path_buf() };
        if let Some(owner) = owner()? {
            chown(directory, Some(owner.0), Some(owner.1))?;
        }
        let data = server.data();
        server.run("initdb", &["--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8", "-D", &data])?;
        let settings = format!(
            "-c listen_addresses= -c unix_socket_directories={} -c shared_buffers={}MB -c synchronous_commit=off \
             -c max_parallel_workers_per_gather={workers} -c max_wal_size=4GB -c plan_cache_mode=force_custom_plan",
            directory.display(),
            (cache_bytes >> 20).max(16)
        );
        server.run("pg_ctl", &["start", "--wait", "--silent", "-D", &data, "-l", &server.log(), "-o", &settings])?;
        Ok(server)
    }

    fn data(&self) -> String {
        self.directory.join("data").display().to_string()
    }

    fn log(&self) -> String {
        self.directory.join("log").display().to_string()
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<()> {
        let path = self.programs.join(program);
        let mut command = match owner()? {
            None => Command::new(&path),
            Some((user, group)) => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={user}")).arg(format!("--regid={group}")).arg("--clear-groups").arg(&path);
                command
            }
        };
        // A server inherits what its starter has: no pipe may be among that.
        let status = command.args(arguments).current_dir(&self.directory).stdout(Stdio::null()).status();
        let status = status.map_err(|error| format!("{}: {error}", path.display()))?;
        if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", path.display()).into()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.run("pg_ctl", &["stop", "--mode=immediate", "--silent", "-D", &self.data()]) {
            eprintln!("PostgreSQL was not stopped: {error}");
        }
    }
}

/// The programs of the newest version.
fn programs() -> Result<PathBuf> {
    let missing = || format!("no PostgreSQL server below {INSTALLED}; install Debian's package `postgresql`");
    let versions = fs::read_dir(INSTALLED).map_err(|_| missing())?;
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let paths = versions.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.join("bin/initdb").exists());
    Ok(paths.max_by_key(version).ok_or_else(missing)?.join("bin"))
}

/// Whom the server must run as, if not as whoever runs this: root may not.
fn owner() -> Result<Option<(u32, u32)>> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let line = users.lines().find(|line| line.starts_with("postgres:")).ok_or("there is no user `postgres`")?;
    let mut fields = line.split(':').skip(2);
    let mut number = || fields.next().and_then(|field| field.parse().ok()).ok_or("/etc/passwd cannot be read");
    Ok(Some((number()?, number()?)))
}

impl PostgresTable {
    fn query(&mut self, text: String, parameters: &[&(dyn ToSql + Sync)]) -> Result<Row> {
        let statement = self.prepared(text)?;
        Ok(self.client.query_one(&statement, parameters)?)
    }

    fn execute(&mut self, text: String, parameters: &[&(dyn ToSql + Sync)]) -> Result<()> {
        let statement = self.prepared(text)?;
        self.client.execute(&statement, parameters)?;
        Ok(())
    }

    fn prepared(&mut self, text: String) -> Result<Statement> {
        if let Some(statement) = self.statements.get(&text) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&text)?;
        self.statements.insert(text, statement.clone());
        Ok(statement)
    }
}

impl HybridTable for PostgresTable {
    fn insert(&mut self, index: u64) -> Result<()> {
        let key = sql_key(self.rows.key(index));
        let values: Vec<i32> = (1..=self.rows.columns).map(|column| self.rows.value(index, column)).collect();
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![&key];
        parameters.extend(values.iter().map(|value| value as &(dyn ToSql + Sync)));
        let places: Vec<String> = (1..=parameters.len()).map(|place| format!("${place}")).collect();
        self.execute(format!("INSERT INTO t VALUES ({})", places.join(", ")), &parameters)
    }

    fn update(&mut self, index: u64, column: usize, value: i32) -> Result<()> {
        let key = sql_key(self.rows.key(index));
        self.execute(format!("UPDATE t SET a{column} = $1 WHERE a0 = $2"), &[&value, &key])
    }

    fn point(&mut self, index: u64, projection: &[usize], _: &mut ReadCounters) -> Result<i64> {
        let key = sql_key(self.rows.key(index));
        let row = self.query(format!("SELECT {} FROM t WHERE a0 = $1", sql::columns(projection)), &[&key])?;
        (0..projection.len()).try_fold(0, |sum, at| Ok(sum + i64::from(row.try_get::<_, i32>(at)?)))
    }

    fn scan(
        &mut self,
        (from, to): (u64, u64),
        projection: &[usize],
        aggregate: Aggregate,
        _: &mut ReadCounters,
    ) -> Result<i64> {
        let text = format!("SELECT {} FROM t WHERE a0 >= $1 AND a0 < $2", sql::aggregates(projection, aggregate));
        let row = self.query(text, &[&sql_key(from), &sql_key(to)])?;
        let mut answers = Vec::new();
        for at in 0..projection.len() {
            answers.push(row.try_get::<_, Option<i64>>(at)?);
        }
        Ok(sql::folded(answers, aggregate))
    }

    fn remove(self: Box<Self>) -> Result<()> {
        let Self { client, server, .. } = *self;
        client.close()?;
        let directory = server.directory.clone();
        drop(server);
        Ok(fs::remove_dir_all(directory)?)
    }
}

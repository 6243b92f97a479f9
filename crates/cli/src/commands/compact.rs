//! `mycelium compact`: all files of a table merged into one run, table by table.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde_json::json;

use super::{Held, held, open_to_write, table};
use crate::args::CompactArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::render::units;

/// How often the sign that work goes on moves.
const TICK: Duration = Duration::from_millis(100);

/// Compacts one table, or all, and prints what each took before and takes now.
pub(crate) fn run(args: &CompactArgs, out: &mut Output) -> Result<(), Failure> {
    let database = open_to_write(&args.database, false)?;
    let names = args.table.clone().map_or_else(|| database.table_names(), |name| vec![name]);
    let progress = ProgressBar::new_spinner();
    progress.enable_steady_tick(TICK);
    for (at, name) in names.iter().enumerate() {
        let table = table(&database, name)?;
        let before = held(&database, name);
        progress.set_message(format!("table {name} ({} of {}), {before}", at + 1, names.len()));
        let started = Instant::now();
        database.compact(&table)?;
        let seconds = started.elapsed().as_secs_f64();
        progress.suspend(|| report(name, &before, &held(&database, name), seconds, out))?;
    }
    // Until the files that were merged are gone.
    database.wait_idle()?;
    progress.finish_and_clear();
    Ok(database.close()?)
}

fn report(name: &str, before: &Held, after: &Held, seconds: f64, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() {
        out.object(&json!({
            "table": name, "seconds": seconds,
            "files_before": before.files, "bytes_before": before.bytes, "entries_in_log_before": before.in_log,
            "files": after.files, "bytes": after.bytes,
        }))?;
    } else {
        let bytes = units::bytes(after.bytes);
        out.line(format_args!("{name}: {before}; now {} files, {bytes}, in {seconds:.2} s", after.files))?;
    }
    out.flush()
}

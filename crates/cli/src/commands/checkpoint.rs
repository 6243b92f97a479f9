//! `mycelium checkpoint`: a copy that opens on its own. The database may be in use by another process.

use mycelium::{CheckpointSummary, ErrorKind};
use serde_json::json;

use super::open_to_read;
use crate::args::CheckpointArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::render::units;

/// Makes the copy.
pub(crate) fn run(args: &CheckpointArgs, out: &mut Output) -> Result<(), Failure> {
    let summary = copy(args)?;
    if out.is_json() {
        return out.object(&json!({
            "directory": args.target.display().to_string(), "sequence": summary.sequence, "files": summary.files,
            "copied": summary.copied, "bytes": summary.bytes,
        }));
    }
    let copied = if summary.copied > 0 { format!(" ({} copied)", units::count(summary.copied)) } else { String::new() };
    out.line(format_args!(
        "{}: {} files{copied}, {}, up to sequence number {}",
        args.target.display(),
        units::count(summary.files),
        units::bytes(summary.bytes),
        summary.sequence
    ))
}

/// How often a copy is begun that a process which writes to the database takes files away from.
const ATTEMPTS: usize = 5;

fn copy(args: &CheckpointArgs) -> Result<CheckpointSummary, Failure> {
    for _ in 1..ATTEMPTS {
        match open_to_read(&args.database)?.checkpoint(&args.target) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => return Ok(other?),
        }
    }
    Ok(open_to_read(&args.database)?.checkpoint(&args.target)?)
}

//! `mycelium checkpoint`: a copy that opens on its own.

use serde_json::json;

use super::open_to_write;
use crate::args::CheckpointArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::render::units;

/// Makes the copy.
pub(crate) fn run(args: &CheckpointArgs, out: &mut Output) -> Result<(), Failure> {
    let database = open_to_write(&args.database, false)?;
    let summary = database.checkpoint(&args.target)?;
    database.close()?;
    if out.is_json() {
        return out.object(&json!({
            "directory": args.target, "sequence": summary.sequence, "files": summary.files, "bytes": summary.bytes,
        }));
    }
    out.line(format_args!(
        "{}: {} files, {}, up to sequence number {}",
        args.target.display(),
        units::count(summary.files),
        units::bytes(summary.bytes),
        summary.sequence
    ))
}

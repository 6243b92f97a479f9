//! What form input has, as its first bytes or its name tell.

use std::io::{self, Cursor, Read};
use std::path::Path;

use super::arrow::ARROW_FILE_MAGIC;
use super::recorder::peek;
use crate::args::InputFormat;
use crate::failure::Failure;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const ARROW_STREAM_MAGIC: [u8; 4] = [0xff; 4];
/// How files begin that would be taken for CSV.
const UNREADABLE: [(&[u8], &str); 2] = [(&[0x1f, 0x8b], "packed by gzip"), (b"PAR1", "a Parquet file")];

/// The input without the zstd around it, if there is any.
pub(super) fn unpacked(mut raw: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
    let head = peek(&mut raw, ZSTD_MAGIC.len() as u64)?;
    let packed = head == ZSTD_MAGIC;
    let whole = Cursor::new(head).chain(raw);
    if packed { Ok(Box::new(zstd::Decoder::new(whole)?)) } else { Ok(Box::new(whole)) }
}

/// The form of input that begins with `head`: as given, else as it begins, else as it is named.
pub(super) fn form_of(head: &[u8], path: &Path, given: Option<InputFormat>) -> Result<InputFormat, Failure> {
    if let Some((_, what)) = UNREADABLE.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(Failure::input(*what).hint("CSV, JSON lines and Arrow IPC are read, plain or in zstd"));
    }
    if is_json_array(head) && matches!(given, None | Some(InputFormat::Json)) {
        return Err(Failure::input("a JSON array")
            .hint("JSON lines are read, an object a line: `jq -c '.[]'` makes them; --format csv takes it for CSV"));
    }
    Ok(given.unwrap_or_else(|| told_format(head, path)))
}

fn told_format(head: &[u8], path: &Path) -> InputFormat {
    if head.starts_with(ARROW_FILE_MAGIC) || head.starts_with(&ARROW_STREAM_MAGIC) {
        return InputFormat::Arrow;
    }
    if head.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
        return InputFormat::Json;
    }
    let name = path.to_string_lossy();
    let name = name.strip_suffix(".zst").unwrap_or(&name);
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("json" | "jsonl" | "ndjson") => InputFormat::Json,
        Some("arrow" | "arrows" | "feather" | "ipc") => InputFormat::Arrow,
        _ => InputFormat::Csv,
    }
}

/// Whether text begins like an array of rows.
fn is_json_array(head: &[u8]) -> bool {
    let mut told = head.iter().filter(|byte| !byte.is_ascii_whitespace());
    told.next() == Some(&b'[') && matches!(told.next(), Some(b'{' | b'[' | b']'))
}

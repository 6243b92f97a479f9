//! Rows of Arrow IPC. A file is read as the stream that it holds.

use std::io::{BufReader, Cursor, Read};

use super::conform::{compare_columns, distinct, inferred};
use super::recorder::peek;
use super::wrong_rows::{WrongRows, arrow_failure};
use super::{Rows, Target};
use crate::failure::Failure;

pub(super) const ARROW_FILE_MAGIC: &[u8; 8] = b"ARROW1\0\0";

pub(super) fn arrow_rows(mut reader: Box<dyn Read>, target: &Target<'_>) -> Result<Rows<WrongRows>, Failure> {
    let mut unit = || peek(&mut reader, ARROW_FILE_MAGIC.len() as u64).map_err(|e| Failure::input(e.to_string()));
    let mut head = unit()?;
    if head == ARROW_FILE_MAGIC {
        // Writers pad the magic number to their alignment, with zeros; no message begins with eight of them.
        head = unit()?;
        while head == [0; ARROW_FILE_MAGIC.len()] {
            head = unit()?;
        }
    }
    let stream = arrow_ipc::reader::StreamReader::try_new(BufReader::new(Cursor::new(head).chain(reader)), None)
        .map_err(arrow_failure)?;
    distinct(&stream.schema())?;
    let schema = match target {
        Target::Given { columns, .. } => columns.clone(),
        Target::Inferred { key } => inferred(&stream.schema(), key)?,
    };
    compare_columns(&stream.schema(), &schema, &target.defaults())?;
    Ok(Rows { schema, batches: Box::new(stream.map(|batch| batch.map_err(WrongRows::from))) })
}

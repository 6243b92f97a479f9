//! Input that is looked at before it is read.

use std::io::{self, Cursor, Read};

/// Up to `wanted` bytes from the front, fewer only at the end.
pub(super) fn peek(reader: &mut dyn Read, wanted: u64) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    reader.take(wanted).read_to_end(&mut head)?;
    Ok(head)
}

/// Remembers what is read through it, so that it can be read again.
pub(super) struct Recorder {
    inner: Box<dyn Read>,
    recorded: Vec<u8>,
}

impl Recorder {
    pub(super) fn new(inner: Box<dyn Read>) -> Self {
        Self { inner, recorded: Vec::new() }
    }

    pub(super) fn rewound(self) -> Box<dyn Read> {
        Box::new(Cursor::new(self.recorded).chain(self.inner))
    }
}

impl Read for Recorder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.recorded.extend_from_slice(&buffer[..n]);
        Ok(n)
    }
}

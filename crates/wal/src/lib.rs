//! The write-ahead log: records, writer, reader, recovery modes

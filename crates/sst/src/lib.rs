//! Row SSTs: blocks, index, Bloom and snapshot filters, writer, reader, verifier

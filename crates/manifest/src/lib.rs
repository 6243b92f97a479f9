//! Versions, version edits, levels and runs; the manifest file and CURRENT

//! The merge kernel: level merging, visibility, patches, range deletes; shared by scans and compactions

//! The engine: open and recover, writes, flush, scheduling, reads, snapshots, transactions, checkpoint, metrics

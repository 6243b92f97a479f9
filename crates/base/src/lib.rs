//! Mycelium's vocabulary: keys, sequence numbers, operations, errors, cursors, coding; no I/O

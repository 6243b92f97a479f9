//! The memtable: an arena skiplist with one writer and lock-free readers

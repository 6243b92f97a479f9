//! Workloads: db_bench-like, YCSB, and the papers' experiments

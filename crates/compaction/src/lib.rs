//! Compaction: policies as pure functions, partitioners (fixed, aligned), the job as a pure stage

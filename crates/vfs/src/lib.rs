//! The disk as a trait: local files, an in-memory disk that crashes, a wrapper that injects faults

//! The block cache: one byte budget for data, index and filter blocks

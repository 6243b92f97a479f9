//! Properties and golden bytes of keys, packed rows and record batches.

#[cfg(test)]
mod column_groups;
#[cfg(test)]
mod common;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod packed_rows;

//! Row formats: schemas, typed values, order-preserving keys, the packed row format

//! Mycelium: an embedded HTAP storage engine whose compactions reshape the data on its way down

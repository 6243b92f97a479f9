//! The queries of the paper that stores are asked.

/// A query of the paper (§5.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Query {
    /// Q2: `SELECT MAX(Vi) FROM T WHERE K >= k1 AND K < k2`.
    ColumnRange,
    /// Q2 where the range is the table.
    ColumnTable,
    /// Q3: `SELECT Vi FROM T WHERE K = k`.
    ColumnPoint,
    /// Q4: `SELECT MAX(Vi) FROM T WHERE Vi >= v1 AND Vi < v2`. Asked of stores with an index on that column, which a
    /// rival's client keeps: without one it is a Q2 over the table.
    IndexRange,
    /// Q5: `SELECT * FROM T WHERE Vi = v`, alike.
    IndexPoint,
    /// Q6: `SELECT * FROM T WHERE K >= k1 AND K < k2`.
    RowRange,
    /// Q7: `SELECT * FROM T WHERE K = k`.
    RowPoint,
}

impl Query {
    pub(super) const ALL: [Self; 7] = [
        Self::ColumnRange,
        Self::ColumnTable,
        Self::ColumnPoint,
        Self::IndexRange,
        Self::IndexPoint,
        Self::RowRange,
        Self::RowPoint,
    ];

    /// Whether it is asked by a secondary index.
    pub(super) fn is_by_index(self) -> bool {
        matches!(self, Self::IndexRange | Self::IndexPoint)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ColumnRange => "q2-range",
            Self::ColumnTable => "q2-table",
            Self::ColumnPoint => "q3",
            Self::IndexRange => "q4",
            Self::IndexPoint => "q5",
            Self::RowRange => "q6",
            Self::RowPoint => "q7",
        }
    }
}

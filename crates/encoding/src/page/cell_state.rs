//! What the cell of a row is, beside its value: a page says it with a bitmap of nulls and one of absent cells.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Value,
    Null,
    Absent,
}

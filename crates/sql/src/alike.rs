//! Two sides of a comparison, where the type that DataFusion would bring both to holds one of them badly.
//!
//! | sides | DataFusion compares | here |
//! |---|---|---|
//! | decimal, float | decimals of fifteen places: large ones and NaN fail, small ones are 0 | doubles, as PostgreSQL |
//! | 32-bit float, integer | 32-bit floats, which take 16,777,217 for 16,777,216 | doubles |
//! | date, timestamp | nanoseconds, which end in 2262 | the timestamp's ticks |
//! | timestamp, one of nanoseconds | nanoseconds | nanoseconds as decimals, which do not end |
//! | intervals, differences of moments | months before days before hours | lengths ([`crate::interval_length`]) |
//!
//! A float is one that is made of columns of floats: of a function of literals alone, beside a decimal, fifteen places
//! are what was meant. In arithmetic literals are decimals ([`crate::decimal_arithmetic`]). A moment that is made of
//! literals stays as it is; it becomes a literal, and the comparison one of the column ([`crate::kept_cast`]).

use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::binary::type_union_coercion;
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Union, cast, lit};

use crate::interval_length::length_of;
use crate::moment::nanoseconds;

/// What both sides become.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Common {
    Double,
    /// Timestamps of this unit, without a zone.
    Ticks(TimeUnit),
    /// Decimals.
    Nanoseconds,
    /// Lengths of intervals, in nanoseconds as decimals.
    Length,
}

impl Common {
    /// What sides of these types should become, if DataFusion has another idea.
    fn of(left: &DataType, right: &DataType) -> Option<Self> {
        use DataType::{Date32, Duration, Float32, Float64, Interval, Timestamp};
        match (left, right) {
            (Float32 | Float64, other) | (other, Float32 | Float64) if other.is_decimal() => Some(Self::Double),
            (Float32, other) | (other, Float32) if other.is_integer() => Some(Self::Double),
            (Date32, Timestamp(unit, None)) | (Timestamp(unit, None), Date32) => Some(match unit {
                TimeUnit::Nanosecond => Self::Nanoseconds,
                unit => Self::Ticks(*unit),
            }),
            (Timestamp(one, zone), Timestamp(other, other_zone)) => {
                let has_nanoseconds = *one == TimeUnit::Nanosecond || *other == TimeUnit::Nanosecond;
                let is_other = one != other && has_nanoseconds && zone.is_some() == other_zone.is_some();
                is_other.then_some(Self::Nanoseconds)
            }
            (Interval(_), Interval(_) | Duration(_)) | (Duration(_), Interval(_)) => Some(Self::Length),
            _ => None,
        }
    }

    fn brought(self, expr: Expr, ty: &DataType) -> Expr {
        match (self, ty) {
            (Self::Double, DataType::Float64) => expr,
            (Self::Double, _) => cast(expr, DataType::Float64),
            (Self::Ticks(unit), DataType::Date32) => cast(expr, DataType::Timestamp(unit, None)),
            (Self::Nanoseconds, DataType::Timestamp(unit, _)) => {
                in_nanoseconds(cast(expr, DataType::Int64), nanoseconds(*unit))
            }
            (Self::Nanoseconds, DataType::Date32) => {
                in_nanoseconds(cast(expr, DataType::Int32), 86_400 * nanoseconds(TimeUnit::Second))
            }
            (Self::Length, DataType::Interval(_)) => length_of(expr),
            (Self::Length, DataType::Duration(unit)) => in_nanoseconds(cast(expr, DataType::Int64), nanoseconds(*unit)),
            _ => expr,
        }
    }
}

/// Ticks of so many nanoseconds.
fn in_nanoseconds(ticks: Expr, length: i128) -> Expr {
    let ticks = cast(ticks, DataType::Decimal128(19, 0));
    match length.checked_ilog10() {
        Some(log) if length > 1 => ticks * lit(ScalarValue::Decimal128(Some(length), log as u8 + 1, 0)),
        _ => ticks,
    }
}

/// The type that an expression will have: of a `CASE` that of all its branches, and not of the first.
pub(crate) fn type_of(expr: &Expr, columns: &DFSchema) -> Option<DataType> {
    match expr {
        Expr::Case(case) => {
            let thens = case.when_then_expr.iter().map(|(_, then)| &**then);
            let types = thens.chain(case.else_expr.as_deref()).map(|value| type_of(value, columns));
            union_type(types.collect::<Option<Vec<_>>>()?.into_iter())
        }
        other => other.get_type(columns).ok(),
    }
}

/// Both sides, whose columns these are, as they should be compared, if DataFusion would compare something else.
pub(crate) fn alike(left: &Expr, right: &Expr, [left_columns, right_columns]: [&DFSchema; 2]) -> Option<(Expr, Expr)> {
    let (left_type, right_type) = (type_of(left, left_columns)?, type_of(right, right_columns)?);
    let common = Common::of(&left_type, &right_type)?;
    let is_meant = match common {
        Common::Double if left_type.is_decimal() => is_of_floats(right, right_columns),
        Common::Double if right_type.is_decimal() => is_of_floats(left, left_columns),
        Common::Double | Common::Length => true,
        Common::Ticks(_) | Common::Nanoseconds => !is_constant(left) && !is_constant(right),
    };
    is_meant.then(|| (common.brought(left.clone(), &left_type), common.brought(right.clone(), &right_type)))
}

/// Whether it has the same value for all rows of a statement.
fn is_constant(expr: &Expr) -> bool {
    let is_of_rows = |expr: &Expr| {
        matches!(expr, Expr::Column(_) | Expr::OuterReferenceColumn(..) | Expr::ScalarSubquery(_) | Expr::InSubquery(_))
    };
    !expr.exists(|expr| Ok(is_of_rows(expr))).unwrap_or(true)
}

/// Whether a float is made of floats, and not of literals alone.
fn is_of_floats(expr: &Expr, schema: &DFSchema) -> bool {
    let is_float = |expr: &Expr| expr.get_type(schema).is_ok_and(|ty| ty.is_floating());
    let is_one = |expr: &Expr| match expr {
        Expr::Column(_) | Expr::OuterReferenceColumn(..) => is_float(expr),
        Expr::Cast(Cast { expr: inner, .. }) | Expr::TryCast(TryCast { expr: inner, .. }) => {
            is_float(expr) && !is_constant(inner)
        }
        Expr::ScalarSubquery(subquery) => match &*subquery.subquery {
            LogicalPlan::Projection(projection) => {
                projection.expr.iter().any(|expr| is_of_floats(expr, projection.input.schema()))
            }
            _ => false,
        },
        _ => false,
    };
    expr.exists(|expr| Ok(is_one(expr))).unwrap_or(false)
}

/// Values of which a function or a `CASE` gives one: decimals beside floats are doubles.
pub(crate) fn one_of(values: Vec<Expr>, schema: &DFSchema) -> Transformed<Vec<Expr>> {
    let types: Vec<Option<DataType>> = values.iter().map(|value| type_of(value, schema)).collect();
    let is_decimal = |ty: &Option<DataType>| ty.as_ref().is_some_and(DataType::is_decimal);
    let is_float = |(value, ty): (&Expr, &Option<DataType>)| {
        ty.as_ref().is_some_and(DataType::is_floating) && is_of_floats(value, schema)
    };
    if !types.iter().any(is_decimal) || !values.iter().zip(&types).any(is_float) {
        return Transformed::no(values);
    }
    let double = |(value, ty)| if is_decimal(&ty) { cast(value, DataType::Float64) } else { value };
    Transformed::yes(values.into_iter().zip(types).map(double).collect())
}

/// The rows of all inputs, whose columns become alike. Its columns have the types that they will have, and not those of
/// the first input: literals beside them are read by their types.
pub(crate) fn united(inputs: Vec<Arc<LogicalPlan>>) -> Result<LogicalPlan> {
    let count = inputs.iter().map(|input| input.schema().fields().len()).min().unwrap_or(0);
    let common: Vec<Option<Common>> = (0..count).map(|at| common_of_column(&inputs, at)).collect();
    let inputs = inputs.into_iter().map(|input| brought_input(input, &common)).collect::<Result<Vec<_>>>()?;
    let Union { inputs, schema } = Union::try_new_with_loose_types(inputs)?;
    let fields = schema.iter().enumerate().map(|(at, (qualifier, field))| {
        let types = inputs.iter().map(|input| input.schema().field(at).data_type().clone());
        let ty = union_type(types).unwrap_or_else(|| field.data_type().clone());
        (qualifier.cloned(), Arc::new(field.as_ref().clone().with_data_type(ty)))
    });
    let schema = Arc::new(DFSchema::new_with_metadata(fields.collect(), schema.metadata().clone())?);
    Ok(LogicalPlan::Union(Union { inputs, schema }))
}

/// The type that DataFusion brings values to of which one is taken.
fn union_type(mut types: impl Iterator<Item = DataType>) -> Option<DataType> {
    let first = types.next()?;
    types.try_fold(first, |one, other| type_union_coercion(&one, &other))
}

fn common_of_column(inputs: &[Arc<LogicalPlan>], at: usize) -> Option<Common> {
    let ty = |input: &LogicalPlan| input.schema().field(at).data_type().clone();
    let is_float = |input: &LogicalPlan| ty(input).is_floating() && !is_constant_column(input, at);
    let has_decimal = inputs.iter().any(|input| ty(input).is_decimal());
    if has_decimal {
        return inputs.iter().any(|input| is_float(input)).then_some(Common::Double);
    }
    // A date beside a timestamp; there is no type for nanoseconds that do not end.
    let (first, rest) = inputs.split_first()?;
    let common = rest.iter().find_map(|input| Common::of(&ty(first), &ty(input)));
    common.filter(|common| matches!(common, Common::Ticks(_)))
}

/// Whether a column of a plan is a literal.
fn is_constant_column(plan: &LogicalPlan, at: usize) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => projection.expr.get(at).is_some_and(is_constant),
        LogicalPlan::Values(_) => true,
        _ => false,
    }
}

fn brought_input(input: Arc<LogicalPlan>, common: &[Option<Common>]) -> Result<Arc<LogicalPlan>> {
    let mut columns = Vec::with_capacity(common.len());
    let mut is_changed = false;
    for ((qualifier, field), common) in input.schema().iter().zip(common) {
        let column = Expr::Column(Column::from((qualifier, field)));
        let brought = common.map(|common| common.brought(column.clone(), field.data_type()));
        columns.push(match brought {
            Some(brought) if brought != column => {
                is_changed = true;
                brought.alias_qualified(qualifier.cloned(), field.name())
            }
            _ => column,
        });
    }
    if !is_changed {
        return Ok(input);
    }
    Ok(Arc::new(LogicalPlanBuilder::from(Arc::unwrap_or_clone(input)).project(columns)?.build()?))
}

#[cfg(test)]
mod tests {
    use arrow_schema::{Field, Schema};
    use datafusion::logical_expr::col;

    use super::*;

    fn schema() -> DFSchema {
        let moment = |unit| DataType::Timestamp(unit, None);
        let fields = [
            ("d", DataType::Decimal128(10, 2)),
            ("f", DataType::Float64),
            ("r", DataType::Float32),
            ("k", DataType::Int64),
            ("day", DataType::Date32),
            ("s", moment(TimeUnit::Second)),
            ("u", moment(TimeUnit::Microsecond)),
            ("n", moment(TimeUnit::Nanosecond)),
        ];
        let fields = fields.map(|(name, ty)| Field::new(name, ty, true));
        DFSchema::try_from(Schema::new(fields.to_vec())).expect("valid")
    }

    fn changes(left: &Expr, right: &Expr) -> bool {
        let schema = schema();
        let (one, other) = (alike(left, right, [&schema; 2]), alike(right, left, [&schema; 2]));
        assert_eq!(one.is_some(), other.is_some(), "{left} {right}");
        one.is_some()
    }

    #[test]
    fn sides_become_alike_where_datafusion_would_lose_something() {
        for (left, right) in [("d", "f"), ("d", "r"), ("r", "k"), ("day", "u"), ("day", "n"), ("s", "n"), ("u", "n")] {
            assert!(changes(&col(left), &col(right)), "{left} {right}");
        }
        for (left, right) in [("d", "k"), ("f", "k"), ("f", "r"), ("s", "u"), ("d", "d"), ("day", "day")] {
            assert!(!changes(&col(left), &col(right)), "{left} {right}");
        }
    }

    #[test]
    fn literals_alone_make_no_floats() {
        assert!(!changes(&col("d"), &(lit(0.06) + lit(0.01))));
        assert!(!changes(&col("d"), &(lit(0.2) * col("d"))));
        assert!(changes(&col("d"), &(lit(0.2) * col("f"))));
        assert!(changes(&col("d"), &cast(col("d"), DataType::Float64)));
        assert!(changes(&col("r"), &lit(16_777_217_i64)));
        let moment = lit(ScalarValue::TimestampNanosecond(Some(5), None));
        assert!(!changes(&col("s"), &moment));
    }

    #[test]
    fn one_of_several_values_is_a_double_if_one_is() {
        let taken = |values: &[Expr]| one_of(values.to_vec(), &schema()).transformed;
        assert!(taken(&[col("d"), col("f"), col("k")]));
        assert!(!taken(&[col("d"), lit(0.5)]) && !taken(&[col("f"), col("k")]));
    }
}

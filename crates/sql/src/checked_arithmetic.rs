//! `+`, `-` and `*` of integers that fail where the result is none of their type.
//!
//! DataFusion's wrap around. An analyzer rule after its coercion of types puts a function in their place, which
//! computes with Arrow's kernels that look. It takes a whole formula of one type, whose operands are its arguments: a
//! chain of hundreds of operators is no deeper on the stack of who evaluates it than its operands are.
//!
//! A sum or difference that cannot wrap around keeps the order of its operands: what is sorted by `a` and `b` is sorted
//! by `a + 1` and `b`.

use std::sync::Arc;

use arrow_array::{ArrayRef, Datum};
use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use datafusion::arrow::compute::kernels::numeric::{add, mul, sub};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr_common::datum::apply;

use crate::plan_rewrite::rewrite_expressions;

/// The rule.
#[derive(Debug)]
pub(crate) struct CheckedArithmetic;

impl AnalyzerRule for CheckedArithmetic {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewrite_plan = |plan| {
            rewrite_expressions(plan, |expr, columns| Ok(expr.transform_up(|expr| rewrite(expr, columns))?.data))
        };
        Ok(plan.transform_up_with_subqueries(rewrite_plan)?.data)
    }

    fn name(&self) -> &'static str {
        "checked_arithmetic"
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    use Operator::{Minus, Multiply, Plus};
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Plus | Minus | Multiply), right }) => {
            match integer_type(&right, schema).filter(|ty| integer_type(&left, schema).as_ref() == Some(ty)) {
                Some(ty) => Ok(Transformed::yes(checked(*left, op, *right, ty))),
                None => Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr::new(left, op, right)))),
            }
        }
        Expr::Negative(inner) => match integer_type(&inner, schema).filter(DataType::is_signed_integer) {
            Some(ty) => {
                let zero = lit(ScalarValue::new_zero(&ty)?);
                Ok(Transformed::yes(checked(zero, Minus, *inner, ty)))
            }
            None => Ok(Transformed::no(Expr::Negative(inner))),
        },
        other => Ok(Transformed::no(other)),
    }
}

/// A formula knows its type; of an operator it is found by way of all that it stands on.
fn integer_type(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    let ty = match formula_of(expr) {
        Some(formula) => formula.ty.clone(),
        None => expr.get_type(schema).ok()?,
    };
    ty.is_integer().then_some(ty)
}

fn formula_of(expr: &Expr) -> Option<&Formula> {
    let Expr::ScalarFunction(ScalarFunction { func, .. }) = expr else { return None };
    func.inner().downcast_ref::<Formula>()
}

/// Both operands, which have this type, with the operator between them.
fn checked(left: Expr, op: Operator, right: Expr, ty: DataType) -> Expr {
    let (mut steps, left_text, mut args) = parts(left, &ty);
    let (more_steps, right_text, more_args) = parts(right, &ty);
    steps.extend(more_steps);
    steps.push(Some(op));
    args.extend(more_args);
    let signature = Signature::exact(vec![ty.clone(); args.len()], Volatility::Immutable);
    let formula = Formula { steps, text: format!("({left_text} {op} {right_text})"), ty, signature };
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(formula)), args))
}

/// The steps, the text and the arguments of an operand: those of a formula, or itself as an argument.
fn parts(operand: Expr, ty: &DataType) -> (Vec<Option<Operator>>, String, Vec<Expr>) {
    let formula = formula_of(&operand).filter(|formula| formula.ty == *ty);
    let formula = formula.map(|formula| (formula.steps.clone(), formula.text.clone()));
    match (formula, operand) {
        (Some((steps, text)), Expr::ScalarFunction(ScalarFunction { args, .. })) => (steps, text, args),
        (_, operand) => (vec![None], "?".to_owned(), vec![operand]),
    }
}

/// The function.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Formula {
    /// Operators come after what they take; `None` is the next argument.
    steps: Vec<Option<Operator>>,
    text: String,
    ty: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for Formula {
    fn name(&self) -> &str {
        &self.text
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.ty.clone())
    }

    /// As an operator's: null where an operand is.
    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(&self.text, self.ty.clone(), is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let incomplete = || DataFusionError::Internal(format!("{} lacks an operand", self.text));
        let mut args = args.args.into_iter();
        let mut values: Vec<ColumnarValue> = Vec::new();
        for step in &self.steps {
            let value = match step {
                None => args.next().ok_or_else(incomplete)?,
                Some(op) => {
                    let right = values.pop().ok_or_else(incomplete)?;
                    let left = values.pop().ok_or_else(incomplete)?;
                    apply(&left, &right, kernel(*op))?
                }
            };
            values.push(value);
        }
        values.pop().ok_or_else(incomplete)
    }

    fn evaluate_bounds(&self, _: &[&Interval]) -> Result<Interval> {
        Interval::make_unbounded(&self.ty)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        let mut inputs = inputs.iter().map(|input| input.sort_properties);
        let mut orders: Vec<SortProperties> = Vec::new();
        for step in &self.steps {
            let order = match step {
                None => inputs.next(),
                Some(op) => orders.pop().zip(orders.pop()).map(|(right, left)| order_of(left, *op, right)),
            };
            orders.push(order.unwrap_or_default());
        }
        Ok(orders.pop().unwrap_or_default())
    }

    /// Of one operand beside literals alone: what is equal afterwards was equal.
    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        let mut operands = inputs.iter().filter(|input| !is_literal(input));
        let (Some(operand), None) = (operands.next(), operands.next()) else { return Ok(false) };
        let has_product = self.steps.contains(&Some(Operator::Multiply));
        let keeps = operand.strictly_order_preserving && self.output_ordering(inputs)? == operand.sort_properties;
        Ok(keeps && !has_product)
    }
}

fn order_of(left: SortProperties, op: Operator, right: SortProperties) -> SortProperties {
    match op {
        Operator::Plus => left.add(&right),
        Operator::Minus => left.sub(&right),
        _ if left == SortProperties::Singleton && right == SortProperties::Singleton => SortProperties::Singleton,
        _ => SortProperties::Unordered,
    }
}

/// Whether an operand is one number.
fn is_literal(input: &ExprProperties) -> bool {
    let range = &input.range;
    input.sort_properties == SortProperties::Singleton && range.lower() == range.upper() && !range.lower().is_null()
}

fn kernel(op: Operator) -> fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError> {
    match op {
        Operator::Plus => add,
        Operator::Minus => sub,
        _ => mul,
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::SortOptions;
    use datafusion::logical_expr::col;

    use super::*;

    fn rewritten(expr: Expr) -> Expr {
        let field = |name: &str, ty| Field::new(name, ty, true);
        let fields = vec![field("a", DataType::Int64), field("b", DataType::Int64), field("f", DataType::Float64)];
        let schema = DFSchema::try_from(arrow_schema::Schema::new(fields)).expect("valid");
        expr.transform_up(|expr| rewrite(expr, &schema)).expect("valid").data
    }

    #[test]
    fn operators_of_integers_become_one_formula() {
        let found = rewritten((col("a") + col("b")) * lit(2_i64) - (col("b") - col("a")));
        let Expr::ScalarFunction(ScalarFunction { func, args }) = &found else { panic!("{found}") };
        assert_eq!(func.name(), "(((? + ?) * ?) - (? - ?))");
        assert_eq!(args[..], [col("a"), col("b"), lit(2_i64), col("b"), col("a")]);
    }

    fn ordered(descending: bool) -> SortProperties {
        SortProperties::Ordered(SortOptions { descending, nulls_first: false })
    }

    /// The order of a formula of a column with this order, and whether equal results come of equal values.
    fn order(expr: Expr, order: SortProperties) -> (SortProperties, bool) {
        let Expr::ScalarFunction(ScalarFunction { func, args }) = rewritten(expr) else { panic!("a formula") };
        let unbounded = Interval::make_unbounded(&DataType::Int64).expect("a type");
        let of_column = ExprProperties::new_unknown().with_range(unbounded).with_order(order);
        let of_literal = |value: &ScalarValue| {
            let range = Interval::try_new(value.clone(), value.clone()).expect("one value");
            ExprProperties::new_unknown().with_range(range).with_order(SortProperties::Singleton)
        };
        let inputs: Vec<_> = args
            .iter()
            .map(|arg| match arg {
                Expr::Literal(value, _) => of_literal(value),
                _ => of_column.clone().with_strictly_order_preserving(true),
            })
            .collect();
        let order = func.inner().output_ordering(&inputs).expect("an order");
        (order, func.inner().strictly_order_preserving(&inputs).expect("known"))
    }

    #[test]
    fn sums_and_differences_keep_the_order_of_their_operands() {
        let (up, down) = (ordered(false), ordered(true));
        assert_eq!(order(col("a") + lit(1_i64), up), (up, true));
        assert_eq!(order(lit(3_i64) + col("a") - lit(1_i64), down), (down, true));
        assert_eq!(order(lit(3_i64) - col("a"), up), (down, false));
        assert_eq!(order(col("a") + col("b"), up), (up, false));
        for unordered in [col("a") - col("b"), col("a") * lit(2_i64)] {
            assert_eq!(order(unordered, up), (SortProperties::Unordered, false));
        }
        assert_eq!(order(col("a") + lit(1_i64), SortProperties::Unordered), (SortProperties::Unordered, true));
    }

    #[test]
    fn other_types_stay_as_they_are() {
        for expr in [col("f") + lit(1.5), col("a") / col("b"), -col("f"), lit(-5_i64)] {
            assert_eq!(rewritten(expr.clone()), expr);
        }
    }
}

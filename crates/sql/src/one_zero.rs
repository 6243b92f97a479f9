//! Floats that are told apart by their bits, where SQL has one zero and one NaN.
//!
//! `=` and `GROUP BY` hold 0.0 and -0.0 for equal, and every NaN for every other. DataFusion's `count(DISTINCT x)`,
//! what else it has of `DISTINCT` within an aggregate, and `PARTITION BY` compare bits. An analyzer rule after the
//! coercion of types gives them values of which each has one form.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_schema::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::plan_rewrite::rewrite_expressions;

/// The rule.
#[derive(Debug)]
pub(crate) struct OneZero;

impl AnalyzerRule for OneZero {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewrite_plan = |plan| {
            rewrite_expressions(plan, |expr, columns| Ok(expr.transform_up(|expr| Ok(rewrite(expr, columns)))?.data))
        };
        Ok(plan.transform_up_with_subqueries(rewrite_plan)?.data)
    }

    fn name(&self) -> &'static str {
        "one_zero"
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::AggregateFunction(mut function) if function.params.distinct => {
            let is_changed = in_one_form(&mut function.params.args, schema);
            Transformed::new_transformed(Expr::AggregateFunction(function), is_changed)
        }
        Expr::WindowFunction(mut function) => {
            let mut is_changed = in_one_form(&mut function.params.partition_by, schema);
            if function.params.distinct {
                is_changed |= in_one_form(&mut function.params.args, schema);
            }
            Transformed::new_transformed(Expr::WindowFunction(function), is_changed)
        }
        other => Transformed::no(other),
    }
}

/// Whether there are floats among the values.
fn in_one_form(values: &mut [Expr], schema: &DFSchema) -> bool {
    let mut is_changed = false;
    for value in values {
        let Ok(ty @ (DataType::Float32 | DataType::Float64)) = value.get_type(schema) else { continue };
        let signature = Signature::exact(vec![ty.clone()], Volatility::Immutable);
        let function = Arc::new(ScalarUDF::new_from_impl(OneForm { ty, signature }));
        *value = Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![value.clone()]));
        is_changed = true;
    }
    is_changed
}

/// The function.
#[derive(PartialEq, Eq, Hash, Debug)]
struct OneForm {
    ty: DataType,
    signature: Signature,
}

/// Of a zero the positive one, of a NaN the one that the type's constant is.
fn one_form(values: &ArrayRef) -> Result<ArrayRef> {
    if let Some(values) = values.as_primitive_opt::<Float64Type>() {
        let form = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
        return Ok(Arc::new(values.unary::<_, Float64Type>(form)));
    }
    let Some(values) = values.as_primitive_opt::<Float32Type>() else {
        return Err(DataFusionError::Internal("one_form takes floats".to_owned()));
    };
    let form = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
    Ok(Arc::new(values.unary::<_, Float32Type>(form)))
}

impl ScalarUDFImpl for OneForm {
    fn name(&self) -> &str {
        "one_form"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.ty.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match &args.args[..] {
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(one_form(values)?)),
            [ColumnarValue::Scalar(value)] => {
                let value = one_form(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&value, 0)?))
            }
            _ => Err(DataFusionError::Internal("one_form takes one value".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Float32Array, Float64Array};

    use super::*;

    #[test]
    fn zeros_and_nans_have_one_form() {
        let other_nan = f64::from_bits(f64::NAN.to_bits() | (1 << 63) | 5);
        let values: ArrayRef = Arc::new(Float64Array::from(vec![Some(-0.0), Some(other_nan), Some(-1.5), None]));
        let found = one_form(&values).expect("floats");
        let bits = |value: Option<f64>| value.map(f64::to_bits);
        let expected = [Some(0.0), Some(f64::NAN), Some(-1.5), None].map(bits);
        assert_eq!(found.as_primitive::<Float64Type>().iter().map(bits).collect::<Vec<_>>(), expected);
        let values: ArrayRef = Arc::new(Float32Array::from(vec![-0.0]));
        let found = one_form(&values).expect("floats");
        assert!(found.as_primitive::<Float32Type>().value(0).is_sign_positive());
    }
}

//! The length of an interval: what intervals are compared by, as in PostgreSQL.
//!
//! Arrow compares intervals as three numbers, months before days before nanoseconds: 25 hours, as the difference of two
//! moments has them, are less than a day, and 45 days less than a month. Here a day has 24 hours, and a month 30 days.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, IntervalMonthDayNano, IntervalMonthDayNanoType};
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_schema::{DataType, IntervalUnit};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast,
};

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
/// Decimals that hold every length.
const NANOSECONDS: DataType = DataType::Decimal128(38, 0);

/// The nanoseconds of an interval, as a decimal.
pub(crate) fn length_of(interval: Expr) -> Expr {
    let signature = Signature::exact(vec![INTERVAL], Volatility::Immutable);
    let function = Arc::new(ScalarUDF::new_from_impl(IntervalLength { signature }));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![cast(interval, INTERVAL)]))
}

fn nanoseconds(interval: IntervalMonthDayNano) -> i128 {
    const DAY: i128 = 86_400_000_000_000;
    let days = i128::from(interval.months) * 30 + i128::from(interval.days);
    days * DAY + i128::from(interval.nanoseconds)
}

/// The function.
#[derive(PartialEq, Eq, Hash, Debug)]
struct IntervalLength {
    signature: Signature,
}

impl ScalarUDFImpl for IntervalLength {
    fn name(&self) -> &str {
        "interval_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(NANOSECONDS)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = &args.args[..] else {
            return Err(DataFusionError::Internal("interval_length takes one interval".to_owned()));
        };
        let intervals = value.to_array(1)?;
        let Some(intervals) = intervals.as_primitive_opt::<IntervalMonthDayNanoType>() else {
            return Err(DataFusionError::Internal(format!("{} is no interval", value.data_type())));
        };
        let lengths: PrimitiveArray<Decimal128Type> = intervals.unary(nanoseconds);
        let lengths: ArrayRef = Arc::new(lengths.with_data_type(NANOSECONDS));
        match value {
            ColumnarValue::Array(_) => Ok(ColumnarValue::Array(lengths)),
            ColumnarValue::Scalar(_) => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&lengths, 0)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_have_thirty_days_of_twenty_four_hours() {
        let length = |months, days, nanos| nanoseconds(IntervalMonthDayNano::new(months, days, nanos));
        assert_eq!(length(1, 0, 0), length(0, 30, 0));
        assert_eq!(length(0, 1, 0), length(0, 0, 86_400_000_000_000));
        assert!(length(0, 1, 0) < length(0, 0, 90_000_000_000_000));
        assert!(length(0, -1, 0) < length(0, 0, -1));
        assert_eq!(length(i32::MAX, i32::MAX, i64::MAX).checked_ilog10(), Some(24));
    }
}

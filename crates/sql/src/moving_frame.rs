//! Sums and averages of floats over a frame that moves, as in `sum(f) OVER (ORDER BY t ROWS BETWEEN 6 PRECEDING AND CURRENT
//! ROW)`.
//!
//! DataFusion takes what leaves the frame away from its sum. An infinity that leaves so makes NaN of all sums to come, and
//! what was lost by rounding stays lost. Here nothing is taken away ([`MovingFrame`]): two stacks make a queue.
//!
//! 1. What enters is laid on `back`, whose total is kept.
//! 2. What leaves is taken from `front`, which has of every value the total from there to the end of `front`.
//! 3. Where `front` is empty, the values of `back` become `front`, and are added up from their end. That happens to every
//!    value once, so that a row costs the same however wide the frame is.

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::average::Avg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature};

/// What some values add up to; nulls are none.
#[derive(Clone, Copy, Default, Debug)]
struct Total {
    sum: f64,
    count: u64,
}

impl Total {
    fn of(value: Option<f64>) -> Self {
        value.map_or_else(Self::default, |sum| Self { sum, count: 1 })
    }

    fn plus(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, count: self.count + other.count }
    }
}

/// The values of a frame, first in, first out.
#[derive(Default, Debug)]
pub(crate) struct MovingFrame {
    front: Vec<Total>,
    back: Vec<Total>,
    of_back: Total,
    is_average: bool,
}

impl MovingFrame {
    pub(crate) fn of_sums() -> Self {
        Self::default()
    }

    fn of_averages() -> Self {
        Self { is_average: true, ..Self::default() }
    }

    fn enter(&mut self, value: Option<f64>) {
        let value = Total::of(value);
        self.back.push(value);
        self.of_back = self.of_back.plus(value);
    }

    fn leave(&mut self) {
        if self.front.is_empty() {
            let mut total = Total::default();
            for value in self.back.drain(..).rev() {
                total = value.plus(total);
                self.front.push(total);
            }
            self.of_back = Total::default();
        }
        self.front.pop();
    }

    fn total(&self) -> Total {
        self.front.last().copied().unwrap_or_default().plus(self.of_back)
    }
}

impl Accumulator for MovingFrame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values.iter().flat_map(|values| values.as_primitive::<Float64Type>().iter()).for_each(|v| self.enter(v));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let count: usize = values.iter().map(|values| values.len()).sum();
        (0..count).for_each(|_| self.leave());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Total { sum, count } = self.total();
        let value = if self.is_average { sum / count as f64 } else { sum };
        Ok(ScalarValue::Float64((count > 0).then_some(value)))
    }

    fn size(&self) -> usize {
        size_of::<Self>() + (self.front.capacity() + self.back.capacity()) * size_of::<Total>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(DataFusionError::Internal("a frame that moves is not put together from parts".to_owned()))
    }
}

/// `avg`, DataFusion's but for floats over a frame that moves.
#[derive(PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct MovingAvg(Avg);

impl AggregateUDFImpl for MovingAvg {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.0.return_type(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.0.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.0.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        self.0.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct || *args.return_field.data_type() != DataType::Float64 {
            return self.0.create_sliding_accumulator(args);
        }
        Ok(Box::new(MovingFrame::of_averages()))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_adds_up_what_is_within_it() {
        let values: Vec<Option<f64>> = (0..100).map(|n| (n % 7 != 0).then_some(f64::from(n * n % 31))).collect();
        for width in [1, 2, 5, 40] {
            let mut frame = MovingFrame::of_sums();
            for (at, value) in values.iter().enumerate() {
                frame.enter(*value);
                if at >= width {
                    frame.leave();
                }
                let within = &values[(at + 1).saturating_sub(width)..=at];
                let Total { sum, count } = frame.total();
                assert_eq!(
                    (sum, count),
                    (within.iter().flatten().sum::<f64>(), within.iter().flatten().count() as u64)
                );
            }
        }
    }

    #[test]
    fn what_left_leaves_nothing_behind() {
        let mut frame = MovingFrame::of_sums();
        for value in [f64::INFINITY, f64::NAN, 1e300, 0.1] {
            frame.enter(Some(value));
        }
        (0..3).for_each(|_| frame.leave());
        assert_eq!(frame.total().sum, 0.1);
        frame.leave();
        assert_eq!(frame.total().count, 0);
    }
}

//! Sums, averages and statistics of floats over a frame that moves, as in `sum(f) OVER (ORDER BY t ROWS BETWEEN 6
//! PRECEDING AND CURRENT ROW)`.
//!
//! DataFusion takes what leaves the frame away from its sum. An infinity that leaves so makes NaN of all sums to come,
//! and what was lost by rounding stays lost: a variance of equal numbers comes out below zero, and its root as NaN.
//! Here nothing is taken away ([`MovingFrame`]): two stacks make a queue of what can be put together ([`Part`]).
//!
//! 1. What enters is laid on `back`, whose total is kept.
//! 2. What leaves is taken from `front`, which has of every row the total from there to the end of `front`.
//! 3. Where `front` is empty, the rows of `back` become `front`, and are put together from their end. That happens to
//!    every row once, so that a row costs the same however wide the frame is.
//!
//! Statistics are put together from numbers, means and sums of products of differences from them, by the formulas of
//! Chan, Golub and LeVeque ("Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979).

use std::fmt::Debug;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
};

/// What some rows come to; by default, what none do.
trait Part: Copy + Default + Debug + Send + Sync {
    /// Of a row of these arguments; one argument comes twice.
    fn of_row(first: f64, second: f64) -> Self;
    /// Of both.
    fn plus(self, other: Self) -> Self;
}

#[derive(Clone, Copy, Default, Debug)]
struct Total {
    sum: f64,
    count: u64,
}

impl Part for Total {
    fn of_row(first: f64, _: f64) -> Self {
        Self { sum: first, count: 1 }
    }

    fn plus(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, count: self.count + other.count }
    }
}

impl Total {
    fn sum(self) -> Option<f64> {
        (self.count > 0).then_some(self.sum)
    }

    fn average(self) -> Option<f64> {
        self.sum().map(|sum| sum / self.count as f64)
    }
}

/// Means, and sums of products of differences from them. DataFusion's `regr_` functions call the first argument y.
#[derive(Clone, Copy, Default, Debug)]
struct Moments {
    count: f64,
    mean_y: f64,
    mean_x: f64,
    yy: f64,
    xx: f64,
    xy: f64,
}

impl Part for Moments {
    fn of_row(y: f64, x: f64) -> Self {
        // What is not finite has no difference from itself.
        let difference = |value: f64| if value.is_finite() { 0.0 } else { f64::NAN };
        let (dy, dx) = (difference(y), difference(x));
        Self { count: 1.0, mean_y: y, mean_x: x, yy: dy, xx: dx, xy: dx * dy }
    }

    fn plus(self, other: Self) -> Self {
        if self.count == 0.0 || other.count == 0.0 {
            return if self.count == 0.0 { other } else { self };
        }
        let count = self.count + other.count;
        let (dy, dx) = (other.mean_y - self.mean_y, other.mean_x - self.mean_x);
        let (share, weight) = (other.count / count, self.count * other.count / count);
        Self {
            count,
            mean_y: self.mean_y + dy * share,
            mean_x: self.mean_x + dx * share,
            yy: self.yy + other.yy + dy * dy * weight,
            xx: self.xx + other.xx + dx * dx * weight,
            xy: self.xy + other.xy + dx * dy * weight,
        }
    }
}

/// What a sum comes to by row.
fn by_row(sum: f64, rows: f64) -> Option<f64> {
    (rows > 0.0).then(|| sum / rows)
}

impl Moments {
    /// Of rows that lie on more than one place of x.
    fn of_line(self, value: impl Fn(Self) -> f64) -> Option<f64> {
        (self.count > 1.0 && self.xx != 0.0).then(|| value(self))
    }

    fn of_any(self, value: f64) -> Option<f64> {
        (self.count > 0.0).then_some(value)
    }

    fn sample_variance(self) -> Option<f64> {
        by_row(self.yy, self.count - 1.0)
    }

    fn variance(self) -> Option<f64> {
        // Also of one row that is not finite.
        if self.count == 1.0 { Some(0.0) } else { by_row(self.yy, self.count) }
    }

    fn correlation(self) -> Option<f64> {
        if self.mean_x.is_nan() && self.mean_y.is_nan() {
            return Some(f64::NAN);
        }
        let spreads = self.xx.sqrt() * self.yy.sqrt();
        let is_one = self.count > 1.0 && spreads != 0.0 && !self.mean_x.is_nan() && !self.mean_y.is_nan();
        is_one.then(|| self.xy / spreads)
    }
}

/// The accumulator of a function over a frame that moves, if there is one here.
fn accumulator_of(function: &str) -> Option<Box<dyn Accumulator>> {
    fn statistic(value: fn(Moments) -> Option<f64>) -> Option<Box<dyn Accumulator>> {
        Some(Box::new(MovingFrame::new(value)))
    }
    match function {
        "avg" => Some(Box::new(MovingFrame::new(Total::average))),
        "var" => statistic(Moments::sample_variance),
        "var_pop" => statistic(Moments::variance),
        "stddev" => statistic(|rows| rows.sample_variance().map(f64::sqrt)),
        "stddev_pop" => statistic(|rows| rows.variance().map(f64::sqrt)),
        "covar_samp" => statistic(|rows| by_row(rows.xy, rows.count - 1.0)),
        "covar_pop" => statistic(|rows| by_row(rows.xy, rows.count)),
        "corr" => statistic(Moments::correlation),
        "regr_slope" => statistic(|rows| rows.of_line(|rows| rows.xy / rows.xx)),
        "regr_intercept" => statistic(|rows| rows.of_line(|rows| rows.mean_y - rows.xy / rows.xx * rows.mean_x)),
        "regr_r2" => statistic(|rows| {
            let squares = rows.of_line(|rows| rows.xy * rows.xy / (rows.xx * rows.yy));
            squares.filter(|_| rows.yy != 0.0)
        }),
        "regr_avgx" => statistic(|rows| rows.of_any(rows.mean_x)),
        "regr_avgy" => statistic(|rows| rows.of_any(rows.mean_y)),
        "regr_sxx" => statistic(|rows| rows.of_any(rows.xx)),
        "regr_syy" => statistic(|rows| rows.of_any(rows.yy)),
        "regr_sxy" => statistic(|rows| rows.of_any(rows.xy)),
        _ => None,
    }
}

/// The sum over a frame that moves.
pub(crate) fn moving_sum() -> Box<dyn Accumulator> {
    Box::new(MovingFrame::new(Total::sum))
}

/// The rows of a frame, first in, first out.
#[derive(Debug)]
struct MovingFrame<P> {
    front: Vec<P>,
    back: Vec<P>,
    of_back: P,
    value: fn(P) -> Option<f64>,
}

impl<P: Part> MovingFrame<P> {
    fn new(value: fn(P) -> Option<f64>) -> Self {
        Self { front: Vec::new(), back: Vec::new(), of_back: P::default(), value }
    }

    fn enter(&mut self, row: P) {
        self.back.push(row);
        self.of_back = self.of_back.plus(row);
    }

    fn leave(&mut self) {
        if self.front.is_empty() {
            let mut total = P::default();
            for row in self.back.drain(..).rev() {
                total = row.plus(total);
                self.front.push(total);
            }
            self.of_back = P::default();
        }
        self.front.pop();
    }

    fn total(&self) -> P {
        self.front.last().copied().unwrap_or_default().plus(self.of_back)
    }
}

impl<P: Part + 'static> Accumulator for MovingFrame<P> {
    /// A row with a null is none.
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (Some(first), Some(second)) = (values.first(), values.last()) else { return Ok(()) };
        let (first, second) = (first.as_primitive::<Float64Type>(), second.as_primitive::<Float64Type>());
        for (first, second) in first.iter().zip(second) {
            self.enter(first.zip(second).map_or_else(P::default, |(first, second)| P::of_row(first, second)));
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let count = values.first().map_or(0, |values| values.len());
        (0..count).for_each(|_| self.leave());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64((self.value)(self.total())))
    }

    fn size(&self) -> usize {
        size_of::<Self>() + (self.front.capacity() + self.back.capacity()) * size_of::<P>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        Err(DataFusionError::Internal("a frame that moves is not put together from parts".to_owned()))
    }
}

/// DataFusion's functions that are others over a frame that moves.
pub(crate) fn moving_aggregates() -> impl Iterator<Item = AggregateUDF> {
    let functions = all_default_aggregate_functions().into_iter();
    let functions = functions.filter(|function| accumulator_of(function.name()).is_some());
    functions.map(|function| AggregateUDF::new_from_impl(MovingAggregate(AggregateUDF::clone(&function))))
}

/// A function of DataFusion's, but for floats over a frame that moves.
#[derive(PartialEq, Eq, Hash, Debug)]
struct MovingAggregate(AggregateUDF);

impl AggregateUDFImpl for MovingAggregate {
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
        let is_plain = !args.is_distinct && *args.return_field.data_type() == DataType::Float64;
        match accumulator_of(self.name()).filter(|_| is_plain) {
            Some(accumulator) => Ok(accumulator),
            None => self.0.create_sliding_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.reverse_udf()
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
            let mut frame = MovingFrame::new(Total::sum);
            for (at, value) in values.iter().enumerate() {
                frame.enter(value.map_or_else(Total::default, |value| Total::of_row(value, value)));
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
        let mut frame = MovingFrame::new(Total::sum);
        for value in [f64::INFINITY, f64::NAN, 1e300, 0.1] {
            frame.enter(Total::of_row(value, value));
        }
        (0..3).for_each(|_| frame.leave());
        assert_eq!(frame.total().sum, 0.1);
        frame.leave();
        assert_eq!(frame.total().count, 0);
    }

    #[test]
    fn moments_are_those_of_the_rows_within_the_frame() {
        let rows: Vec<(f64, f64)> = (0..60).map(|n| (f64::from(n * 7 % 13), f64::from(n * n % 11))).collect();
        let mut frame = MovingFrame::new(Moments::variance);
        for (at, (y, x)) in rows.iter().enumerate() {
            frame.enter(Moments::of_row(*y, *x));
            if at >= 5 {
                frame.leave();
            }
            let within = &rows[(at + 1).saturating_sub(5)..=at];
            let count = within.len() as f64;
            let mean = |of: fn(&(f64, f64)) -> f64| within.iter().map(of).sum::<f64>() / count;
            let (mean_y, mean_x) = (mean(|row| row.0), mean(|row| row.1));
            let xy: f64 = within.iter().map(|(y, x)| (y - mean_y) * (x - mean_x)).sum();
            let yy: f64 = within.iter().map(|(y, _)| (y - mean_y) * (y - mean_y)).sum();
            let found = frame.total();
            for (found, expected) in [(found.mean_x, mean_x), (found.xy, xy), (found.yy, yy)] {
                assert!((found - expected).abs() < 1e-9, "{found} {expected}");
            }
        }
    }
}

//! `sum` of 64-bit integers and of decimals that fails where the sum is none.
//!
//! DataFusion's wraps around: a sum of large numbers is some other number, and not what a materialised view says of the
//! same rows.
//!
//! 1. Integers are added up as decimals of 38 digits, which no number of rows fills; the end is brought to the
//!    argument's type, or fails.
//! 2. Decimals are added up in their 128 or 256 bits, and fail where a sum leaves them on the way, or ends with more
//!    digits than its type has. That is one test a row of what the addition tells anyway ([`DecimalGroups`],
//!    [`DecimalSum`]).
//! 3. Where values are kept, for `DISTINCT` and in a frame that moves, decimals of 38 digits go the way of the
//!    integers, as ones of 76. Those of 76 digits have nothing wider: their values are added up as in 2
//!    ([`DistinctDecimals`]), and what leaves a frame is taken away again.
//! 4. Floats in a frame that moves are added up without taking any away again ([`crate::moving_frame`]).
//!
//! Sums of other types are DataFusion's.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Decimal256Type, DecimalType};
use arrow_array::{Array, ArrayRef, ArrowNativeTypeOp, BooleanArray};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::arrow::compute::{cast, sum_checked};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, SetMonotonicity, Signature,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

use crate::moving_frame::moving_sum;

/// The function.
#[derive(PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct CheckedSum(Sum);

/// A type that no number of rows fills, for sums that are checked when they end.
fn wider(sum: &DataType) -> Option<DataType> {
    match sum {
        DataType::Int64 | DataType::UInt64 => Some(DataType::Decimal128(38, 0)),
        DataType::Decimal128(_, scale) => Some(DataType::Decimal256(76, *scale)),
        _ => None,
    }
}

/// The same arguments in the wider type.
fn widened<'a>(args: &AccumulatorArgs<'a>, fields: &'a [FieldRef], wide: &DataType) -> AccumulatorArgs<'a> {
    let return_field = Arc::new(Field::new(args.return_field.name(), wide.clone(), true));
    AccumulatorArgs {
        return_field,
        expr_fields: fields,
        schema: args.schema,
        ignore_nulls: args.ignore_nulls,
        order_bys: args.order_bys,
        is_reversed: args.is_reversed,
        name: args.name,
        is_distinct: args.is_distinct,
        exprs: args.exprs,
    }
}

fn wide_fields(args: &AccumulatorArgs<'_>, wide: &DataType) -> Vec<FieldRef> {
    let fields = args.expr_fields.iter();
    fields.map(|field| Arc::new(Field::new(field.name(), wide.clone(), true)) as FieldRef).collect()
}

fn widen(values: &[ArrayRef], wide: &DataType) -> Result<Vec<ArrayRef>> {
    values.iter().map(|values| Ok(cast(values, wide)?)).collect()
}

/// Casts of arrays give null where a value does not fit: then there is one more null than before.
fn narrow(sums: &ArrayRef, ty: &DataType) -> Result<ArrayRef> {
    let narrowed = cast(sums, ty)?;
    if narrowed.null_count() > sums.null_count() { Err(out_of_range(ty)) } else { Ok(narrowed) }
}

fn out_of_range(ty: &DataType) -> DataFusionError {
    DataFusionError::Execution(format!("a sum is out of the range of {ty}"))
}

/// Refuses sums with more digits than their type.
fn check_digits<T: DecimalType>(mut sums: impl Iterator<Item = T::Native>, ty: &DataType) -> Result<()> {
    let (DataType::Decimal128(precision, _) | DataType::Decimal256(precision, _)) = ty else { return Ok(()) };
    if sums.all(|sum| T::is_valid_decimal_precision(sum, *precision)) { Ok(()) } else { Err(out_of_range(ty)) }
}

impl CheckedSum {
    /// An accumulator of the wider type, if there is one, which ends as the narrower.
    fn of_wider(
        &self,
        args: AccumulatorArgs<'_>,
        make: impl Fn(&Sum, AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>>,
    ) -> Result<Box<dyn Accumulator>> {
        let ty = args.return_field.data_type().clone();
        let Some(wide) = wider(&ty) else { return make(&self.0, args) };
        let fields = wide_fields(&args, &wide);
        let sum = make(&self.0, widened(&args, &fields, &wide))?;
        Ok(Box::new(Checked { sum, wide, ty }))
    }
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.0.return_type(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let ty = args.return_field.data_type().clone();
        match ty {
            DataType::Decimal128(..) if !args.is_distinct => Ok(Box::new(DecimalSum::<Decimal128Type>::new(ty))),
            DataType::Decimal256(..) if !args.is_distinct => Ok(Box::new(DecimalSum::<Decimal256Type>::new(ty))),
            DataType::Decimal256(..) => {
                let values = self.0.accumulator(args)?;
                Ok(Box::new(DistinctDecimals { values, ty }))
            }
            _ => self.of_wider(args, |sum, args| sum.accumulator(args)),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let is_decimal = matches!(args.return_type(), DataType::Decimal128(..));
        let Some(wide) = wider(args.return_type()).filter(|_| args.is_distinct || !is_decimal) else {
            return self.0.state_fields(args);
        };
        let field = match args.is_distinct {
            true => {
                let item = Field::new_list_field(wide, true);
                Field::new_list(format_state_name(args.name, "sum distinct"), item, false)
            }
            false => Field::new(format_state_name(args.name, "sum"), wide, true),
        };
        Ok(vec![Arc::new(field)])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let ty = args.return_field.data_type().clone();
        match ty {
            DataType::Decimal128(..) => return Ok(Box::new(DecimalGroups::<Decimal128Type>::new(ty))),
            DataType::Decimal256(..) => return Ok(Box::new(DecimalGroups::<Decimal256Type>::new(ty))),
            _ => {}
        }
        let Some(wide) = wider(&ty) else { return self.0.create_groups_accumulator(args) };
        let fields = wide_fields(&args, &wide);
        let sums = self.0.create_groups_accumulator(widened(&args, &fields, &wide))?;
        Ok(Box::new(CheckedGroups { sums, wide, ty }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let ty = args.return_field.data_type();
        if args.is_distinct && wider(ty).is_some() {
            // It takes 64-bit integers alone, and they would wrap around.
            let message = "sum(DISTINCT) over a frame that moves";
            return Err(DataFusionError::NotImplemented(message.to_owned()));
        }
        if *ty == DataType::Float64 && !args.is_distinct {
            return Ok(moving_sum());
        }
        if matches!(ty, DataType::Decimal256(..)) && !args.is_distinct {
            return Ok(Box::new(DecimalSum::<Decimal256Type>::new(ty.clone())));
        }
        self.of_wider(args, |sum, args| sum.create_sliding_accumulator(args))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.0.set_monotonicity(data_type)
    }
}

/// A sum of a wider type that ends as one of the narrower.
#[derive(Debug)]
struct Checked {
    sum: Box<dyn Accumulator>,
    wide: DataType,
    ty: DataType,
}

impl Accumulator for Checked {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.sum.update_batch(&widen(values, &self.wide)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = narrow(&self.sum.evaluate()?.to_array()?, &self.ty)?;
        ScalarValue::try_from_array(&sum, 0)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.sum.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.sum.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.sum.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.sum.retract_batch(&widen(values, &self.wide)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.sum.supports_retract_batch()
    }
}

/// The same of many groups.
struct CheckedGroups {
    sums: Box<dyn GroupsAccumulator>,
    wide: DataType,
    ty: DataType,
}

impl GroupsAccumulator for CheckedGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.sums.update_batch(&widen(values, &self.wide)?, groups, filter, group_count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        narrow(&self.sums.evaluate(emit_to)?, &self.ty)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.sums.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], group_count: usize) -> Result<()> {
        self.sums.merge_batch(states, groups, group_count)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.sums.convert_to_state(&widen(values, &self.wide)?, filter)
    }

    fn size(&self) -> usize {
        self.sums.size()
    }
}

/// A sum of decimals in the bits of its type.
#[derive(Debug)]
struct DecimalSum<T: DecimalType> {
    sum: T::Native,
    /// Of the values that are no nulls: of none the sum is null.
    count: usize,
    ty: DataType,
}

impl<T: DecimalType> DecimalSum<T> {
    fn new(ty: DataType) -> Self {
        Self { sum: T::default_value(), count: 0, ty }
    }

    fn value(&self) -> Option<T::Native> {
        (self.count > 0).then_some(self.sum)
    }
}

impl<T: DecimalType + Debug> Accumulator for DecimalSum<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for values in values {
            let values = values.as_primitive::<T>();
            let of_batch = sum_checked(values).map_err(|_| out_of_range(&self.ty))?;
            self.sum = self.sum.add_checked(of_batch.unwrap_or_default()).map_err(|_| out_of_range(&self.ty))?;
            self.count += values.len() - values.null_count();
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for values in values {
            let values = values.as_primitive::<T>();
            let of_batch = sum_checked(values).map_err(|_| out_of_range(&self.ty))?;
            self.sum = self.sum.sub_checked(of_batch.unwrap_or_default()).map_err(|_| out_of_range(&self.ty))?;
            self.count -= values.len() - values.null_count();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        check_digits::<T>(self.value().into_iter(), &self.ty)?;
        ScalarValue::new_primitive::<T>(self.value(), &self.ty)
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }

    /// It may have more digits on the way.
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::new_primitive::<T>(self.value(), &self.ty)?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}

/// DataFusion's sum of the different values of a `Decimal256`, which would wrap around where it ends.
#[derive(Debug)]
struct DistinctDecimals {
    values: Box<dyn Accumulator>,
    ty: DataType,
}

impl Accumulator for DistinctDecimals {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut sum = DecimalSum::<Decimal256Type>::new(self.ty.clone());
        for state in self.values.state()? {
            if let ScalarValue::List(values) = state {
                sum.update_batch(std::slice::from_ref(values.values()))?;
            }
        }
        sum.evaluate()
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.values.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.values.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.values.merge_batch(states)
    }
}

/// Sums of decimals by group.
struct DecimalGroups<T> {
    sums: Box<dyn GroupsAccumulator>,
    /// Whether one of the sums has left its bits.
    is_lost: Arc<AtomicBool>,
    ty: DataType,
    decimals: PhantomData<fn() -> T>,
}

impl<T: DecimalType> DecimalGroups<T> {
    fn new(ty: DataType) -> Self {
        let is_lost = Arc::new(AtomicBool::new(false));
        let lost = is_lost.clone();
        let add = move |sum: &mut T::Native, value: T::Native| match sum.add_checked(value) {
            Ok(total) => *sum = total,
            Err(_) => lost.store(true, Ordering::Relaxed),
        };
        let sums = Box::new(PrimitiveGroupsAccumulator::<T, _>::new(&ty, add));
        Self { sums, is_lost, ty, decimals: PhantomData }
    }

    fn check(&self) -> Result<()> {
        if self.is_lost.load(Ordering::Relaxed) { Err(out_of_range(&self.ty)) } else { Ok(()) }
    }
}

impl<T: DecimalType> GroupsAccumulator for DecimalGroups<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.sums.update_batch(values, groups, filter, group_count)?;
        self.check()
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = self.sums.evaluate(emit_to)?;
        check_digits::<T>(sums.as_primitive::<T>().iter().flatten(), &self.ty)?;
        Ok(sums)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.sums.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], group_count: usize) -> Result<()> {
        self.sums.merge_batch(states, groups, group_count)?;
        self.check()
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.sums.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.sums.size()
    }
}

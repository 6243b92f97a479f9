//! `sum` of 64-bit integers that fails where the sum is none.
//!
//! DataFusion's wraps around: a sum of large numbers is some other number, and not what a materialised view says of the
//! same rows. This one adds up as decimals of 38 digits, which no number of rows fills, and brings the end to the
//! argument's type, or fails. Sums of other types are DataFusion's.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::arrow::compute::cast;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, SetMonotonicity, Signature,
};

/// What sums are added up in.
const WIDE: DataType = DataType::Decimal128(38, 0);

/// The function.
#[derive(PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct CheckedSum(Sum);

/// The type of a sum that is checked.
fn checked(args: &AccumulatorArgs<'_>) -> Option<DataType> {
    let ty = args.return_field.data_type();
    matches!(ty, DataType::Int64 | DataType::UInt64).then(|| ty.clone())
}

/// The same arguments as decimals.
fn widened<'a>(args: &AccumulatorArgs<'a>, fields: &'a [FieldRef]) -> AccumulatorArgs<'a> {
    let return_field = Arc::new(Field::new(args.return_field.name(), WIDE, true));
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

fn wide_fields(args: &AccumulatorArgs<'_>) -> Vec<FieldRef> {
    args.expr_fields.iter().map(|field| Arc::new(Field::new(field.name(), WIDE, true)) as FieldRef).collect()
}

fn widen(values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    values.iter().map(|values| Ok(cast(values, &WIDE)?)).collect()
}

/// Casts of arrays give null where a value does not fit: then there is one more null than before.
fn narrow(sums: &ArrayRef, ty: &DataType) -> Result<ArrayRef> {
    let narrowed = cast(sums, ty)?;
    if narrowed.null_count() > sums.null_count() {
        return Err(DataFusionError::Execution(format!("a sum is out of the range of {ty}")));
    }
    Ok(narrowed)
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
        let Some(ty) = checked(&args) else { return self.0.accumulator(args) };
        let fields = wide_fields(&args);
        Ok(Box::new(Checked { wide: self.0.accumulator(widened(&args, &fields))?, ty }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if !matches!(args.return_type(), DataType::Int64 | DataType::UInt64) {
            return self.0.state_fields(args);
        }
        let field = match args.is_distinct {
            true => {
                let item = Field::new_list_field(WIDE, true);
                Field::new_list(format_state_name(args.name, "sum distinct"), item, false)
            }
            false => Field::new(format_state_name(args.name, "sum"), WIDE, true),
        };
        Ok(vec![Arc::new(field)])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let Some(ty) = checked(&args) else { return self.0.create_groups_accumulator(args) };
        let fields = wide_fields(&args);
        Ok(Box::new(CheckedGroups { wide: self.0.create_groups_accumulator(widened(&args, &fields))?, ty }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let Some(ty) = checked(&args) else { return self.0.create_sliding_accumulator(args) };
        if args.is_distinct {
            // It takes 64-bit integers alone, and they would wrap around.
            let message = "sum(DISTINCT) over a frame that moves";
            return Err(DataFusionError::NotImplemented(message.to_owned()));
        }
        let fields = wide_fields(&args);
        Ok(Box::new(Checked { wide: self.0.create_sliding_accumulator(widened(&args, &fields))?, ty }))
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

/// A sum of decimals that ends as an integer.
#[derive(Debug)]
struct Checked {
    wide: Box<dyn Accumulator>,
    ty: DataType,
}

impl Accumulator for Checked {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.wide.update_batch(&widen(values)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = narrow(&self.wide.evaluate()?.to_array()?, &self.ty)?;
        ScalarValue::try_from_array(&sum, 0)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.wide.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.wide.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.wide.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.wide.retract_batch(&widen(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.wide.supports_retract_batch()
    }
}

/// The same of many groups.
struct CheckedGroups {
    wide: Box<dyn GroupsAccumulator>,
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
        self.wide.update_batch(&widen(values)?, groups, filter, group_count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        narrow(&self.wide.evaluate(emit_to)?, &self.ty)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.wide.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], group_count: usize) -> Result<()> {
        self.wide.merge_batch(states, groups, group_count)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.wide.convert_to_state(&widen(values)?, filter)
    }

    fn size(&self) -> usize {
        self.wide.size()
    }
}

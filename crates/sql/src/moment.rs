//! Moments as nanoseconds, of which there may be more than 64 bits hold, and as ticks of a timestamp.

use std::sync::Arc;

use arrow_schema::TimeUnit;
use datafusion::common::ScalarValue;

/// Nanoseconds of a tick.
pub(crate) fn nanoseconds(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// A timestamp of so many ticks.
pub(crate) fn timestamp(ticks: i64, unit: TimeUnit, zone: Option<Arc<str>>) -> ScalarValue {
    match unit {
        TimeUnit::Second => ScalarValue::TimestampSecond(Some(ticks), zone),
        TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(Some(ticks), zone),
        TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(Some(ticks), zone),
        TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(Some(ticks), zone),
    }
}

/// The ticks of a timestamp that is no null.
pub(crate) fn ticks_of(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::TimestampSecond(ticks, _)
        | ScalarValue::TimestampMillisecond(ticks, _)
        | ScalarValue::TimestampMicrosecond(ticks, _)
        | ScalarValue::TimestampNanosecond(ticks, _) => *ticks,
        _ => None,
    }
}

//! `mycelium expire`: when rows of a table expire, and those that have deleted.

use std::time::Duration;

use mycelium::{Background, Database, Expiry, Options, TimeUnit};
use serde_json::{Value, json};

use super::{missing, table};
use crate::args::{ExpireArgs, UnitArg};
use crate::failure::Failure;
use crate::output::Output;

/// Sets when rows expire, if that is asked for, and deletes those that have.
pub(crate) fn run(args: &ExpireArgs, out: &mut Output) -> Result<(), Failure> {
    // The command alone deletes rows, so that it knows how many.
    let options = Options { create_if_missing: false, background: Background::Manual, ..Options::default() };
    let database = Database::open(&args.at.database, options).map_err(|error| missing(&args.at.database, error))?;
    let table = table(&database, &args.at.table)?;
    if let (Some(column), Some(age)) = (&args.by, args.after) {
        let unit = args.unit.map(time_unit);
        database.set_expiry(&table, Some(Expiry { column: column.clone(), unit, age }))?;
    }
    let deleted = if args.never {
        database.set_expiry(&table, None)?;
        0
    } else if table.expiry().is_some() {
        database.expire_rows(&table)?
    } else {
        return Err(Failure::usage(format!("rows of table {} do not expire", table.name()))
            .hint("--by COLUMN --after AGE says when they do"));
    };
    let expiry = table.expiry();
    database.close()?;
    if out.is_json() {
        let expiry = as_json(expiry.as_ref());
        return out.object(&json!({ "table": args.at.table, "expiry": expiry, "deleted": deleted }));
    }
    out.line(format_args!("{}: {}; {deleted} deleted", args.at.table, described(expiry.as_ref())))
}

fn time_unit(unit: UnitArg) -> TimeUnit {
    match unit {
        UnitArg::Seconds => TimeUnit::Second,
        UnitArg::Milliseconds => TimeUnit::Millisecond,
        UnitArg::Microseconds => TimeUnit::Microsecond,
        UnitArg::Nanoseconds => TimeUnit::Nanosecond,
    }
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

/// When rows expire, as JSON.
pub(crate) fn as_json(expiry: Option<&Expiry>) -> Value {
    let of = |expiry: &Expiry| {
        let (unit, seconds) = (expiry.unit.map(unit_name), expiry.age.as_secs_f64());
        json!({ "column": expiry.column, "unit": unit, "age_seconds": seconds })
    };
    expiry.map_or(Value::Null, of)
}

/// When rows expire, in words.
pub(crate) fn described(expiry: Option<&Expiry>) -> String {
    match expiry {
        Some(expiry) => format!("rows expire {} after {}", age_text(expiry.age), expiry.column),
        None => "rows do not expire".to_owned(),
    }
}

/// An age in the largest unit that it is a whole number of.
fn age_text(age: Duration) -> String {
    let seconds = age.as_secs();
    if age.subsec_nanos() > 0 {
        return format!("{age:?}");
    }
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let whole = units.into_iter().find(|(length, _)| seconds > 0 && seconds.is_multiple_of(*length));
    let (length, unit) = whole.unwrap_or((1, "s"));
    format!("{}{unit}", seconds / length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_whole_units() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (120, "2m"), (7_200, "2h"), (90_000, "25h"), (172_800, "2d")] {
            assert_eq!(age_text(Duration::from_secs(seconds)), text);
        }
        assert_eq!(age_text(Duration::from_millis(1_500)), "1.5s");
    }
}

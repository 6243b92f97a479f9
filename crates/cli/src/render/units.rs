//! Numbers as people read them.

/// A byte count with a binary unit, three significant digits: `0 B`, `512 B`, `1.50 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        // 999.5 and more would print four digits.
        if value < 999.5 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {unit}")
}

/// An integer with thousands separators: `1,001,615`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A latency: `850 ns`, `12.3 µs`, `4.56 ms`, `1.20 s`.
pub(crate) fn nanoseconds(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    let (value, unit) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..1_000_000 => (value / 1e3, "µs"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    let decimals = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_read_well() {
        for (value, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (1 << 20, "1.00 MiB"),
            ((1 << 20) - 1, "1.00 MiB"),
            (64 << 20, "64.0 MiB"),
            (640 << 20, "640 MiB"),
            (1000 << 20, "0.98 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        for (value, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_001_615, "1,001,615")] {
            assert_eq!(count(value), text);
        }
        for (value, text) in [(850, "850 ns"), (12_345, "12.3 µs"), (4_560_000, "4.56 ms"), (1_200_000_000, "1.20 s")]
        {
            assert_eq!(nanoseconds(value), text);
        }
    }
}

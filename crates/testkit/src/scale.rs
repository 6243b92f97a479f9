//! How large the tests are: `MYCELIUM_TEST_SCALE=release` runs the counts of a release, anything else those of CI.

/// The environment variable.
pub const VARIABLE: &str = "MYCELIUM_TEST_SCALE";

/// How large the tests are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Minutes.
    Ci,
    /// Hours.
    Release,
}

impl Scale {
    /// What the environment asks for.
    pub fn from_environment() -> Self {
        match std::env::var(VARIABLE) {
            Ok(value) if value == "release" => Self::Release,
            _ => Self::Ci,
        }
    }

    /// The count for this scale.
    pub fn pick<T>(self, ci: T, release: T) -> T {
        match self {
            Self::Ci => ci,
            Self::Release => release,
        }
    }
}

/// A count with thousands separated, as tests print it.
///
/// ```
/// assert_eq!(mycelium_testkit::scale::grouped(1_234_567), "1,234,567");
/// ```
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

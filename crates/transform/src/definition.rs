//! Transformers as a table's definition names them: text, which the manifest keeps.
//!
//! One line per transformer: the name under which it is registered, then what it makes of the rest itself. Empty lines
//! and lines that start with `//` are skipped.
//!
//! ```text
//! split by 2 down to 4
//! convert json to flatbuffers
//! augment by_city on 3
//! ```

use std::fmt;
use std::str::FromStr;

use mycelium_base::{Error, Result};

/// The most transformers of a table.
pub const MAX_TRANSFORMERS: usize = 64;

/// The longest name, in bytes.
pub const MAX_NAME_LEN: usize = 64;

/// The longest line, in bytes.
pub const MAX_LINE_LEN: usize = 64 << 10;

/// One transformer of a table: a registered name and its arguments.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TransformerDefinition {
    name: String,
    arguments: String,
}

impl TransformerDefinition {
    /// A name (lower-case letters, digits, `_`, `-` and `.`, first a letter) and arguments on one line.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) for another name, or arguments of several lines or too
    /// long.
    pub fn new(name: &str, arguments: &str) -> Result<Self> {
        check_name(name)?;
        let arguments = arguments.trim();
        if arguments.contains(['\n', '\r']) || arguments.len() > MAX_LINE_LEN {
            return Err(Error::invalid(format!(
                "the arguments of {name} must be one line of at most {MAX_LINE_LEN} bytes"
            )));
        }
        Ok(Self { name: name.to_owned(), arguments: arguments.to_owned() })
    }

    /// The name under which it is registered.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What follows the name.
    pub fn arguments(&self) -> &str {
        &self.arguments
    }
}

impl TransformerDefinition {
    /// Whether it is the built-in one that feeds an index, which a layout does not say.
    pub fn is_augment(&self) -> bool {
        self.name == "augment"
    }
}

/// Fails unless it is a name that may be registered.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.');
    let is_name = name.as_bytes().first().is_some_and(u8::is_ascii_lowercase) && name.bytes().all(is_part);
    if is_name && name.len() <= MAX_NAME_LEN {
        return Ok(());
    }
    Err(Error::invalid("malformed name of a transformer").expected(
        format_args!("at most {MAX_NAME_LEN} of a-z, 0-9, `_`, `-` and `.`, first a letter"),
        format_args!("`{}`", name.escape_debug().take(MAX_NAME_LEN).collect::<String>()),
    ))
}

impl fmt::Display for TransformerDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.arguments.is_empty() {
            true => f.write_str(&self.name),
            false => write!(f, "{} {}", self.name, self.arguments),
        }
    }
}

impl FromStr for TransformerDefinition {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let line = line.trim();
        let (name, arguments) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        Self::new(name, arguments)
    }
}

/// The transformers of a table. A set: their order means nothing, linking finds it.
///
/// ```
/// use mycelium_transform::TransformerSet;
///
/// let set = TransformerSet::parse("split by 2\n\n// later: flatbuffers\nconvert json to packed")?;
/// assert_eq!(set.to_string(), "split by 2\nconvert json to packed\n");
/// assert_eq!(set.union(&TransformerSet::default()), set);
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TransformerSet(Vec<TransformerDefinition>);

impl TransformerSet {
    /// Reads the text form. Whether the names are registered and the arguments make sense is found when it is linked.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) for a malformed line, or more than
    /// [`MAX_TRANSFORMERS`].
    pub fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
        let mut definitions = Vec::new();
        for line in lines {
            if definitions.len() == MAX_TRANSFORMERS {
                return Err(Error::invalid(format!("a table has at most {MAX_TRANSFORMERS} transformers")));
            }
            definitions.push(line.parse()?);
        }
        Ok(Self(definitions))
    }

    /// The transformers of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.0.iter().chain(&other.0).cloned().collect()
    }

    /// The transformers, as given.
    pub fn iter(&self) -> impl Iterator<Item = &TransformerDefinition> {
        self.0.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<TransformerDefinition> for TransformerSet {
    fn from_iter<I: IntoIterator<Item = TransformerDefinition>>(definitions: I) -> Self {
        Self(definitions.into_iter().collect())
    }
}

impl fmt::Display for TransformerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|definition| writeln!(f, "{definition}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back() {
        let text = "split by 2 rounds 3\nconvert json to packed\nusers.own-map_2 {\"any\": [1, 2]}\nidentity\n";
        let set = TransformerSet::parse(text).unwrap();
        assert_eq!(set.to_string(), text);
        assert_eq!(set.iter().nth(2).unwrap().arguments(), "{\"any\": [1, 2]}");
        assert_eq!(TransformerSet::parse("  split \t by 2  ").unwrap().to_string(), "split by 2\n");
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in ["Split by 2", "2split", "é", "split\u{0} by 2", &"x".repeat(65), &"identity\n".repeat(65)] {
            assert!(TransformerSet::parse(text).is_err(), "{text}");
        }
        assert!(TransformerDefinition::new("a", "two\nlines").is_err());
        assert!(TransformerDefinition::new("a", &"x".repeat(MAX_LINE_LEN + 1)).is_err());
    }
}

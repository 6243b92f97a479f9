//! The registry of claims, `claims.toml`.
//!
//! ```toml
//! [[claim]]
//! id = "engine.load.100b"                         # area first, then what
//! sentence = "Random load of 5 M x 100 B, compactions done, against RocksDB's"
//! command = ["cargo", "xtask", "peers", "--", "--json-file", "{json}"]
//! figure = "/summary/rocksdb/100b/fillrandom.settled_rate/lowest"
//! bar = ">= 1.0"
//! aim = ">= 1.7"                                  # optional
//! unit = "x"
//! last = { figure = 1.83, date = "2025-11-21", machine = "…" }
//! ```
//!
//! `{json}` in a command becomes the path of a file that the command is to write. `figure` says where the figure is:
//!
//! - `/a/b` is a JSON pointer into that file;
//! - `stdout: lost: ` is the sum of the numbers that follow `lost: ` wherever the command's output has it;
//! - `exit` is the command's exit status.
//!
//! A command that fails gives no figure, except for `exit`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Result;

/// The file, as it is read and written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Registry {
    #[serde(rename = "claim")]
    pub(crate) claims: Vec<Claim>,
}

/// One claim.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    pub(crate) id: String,
    pub(crate) sentence: String,
    pub(crate) command: Vec<String>,
    pub(crate) figure: String,
    pub(crate) bar: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) aim: Option<String>,
    pub(crate) unit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<Measured>,
}

/// The last figure measured.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Measured {
    pub(crate) figure: f64,
    pub(crate) date: String,
    pub(crate) machine: String,
}

/// `>= x` or `<= x`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    pub(crate) fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bar) => figure >= bar,
            Self::AtMost(bar) => figure <= bar,
        }
    }
}

impl FromStr for Bar {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = match text.split_once(' ') {
            Some((">=", number)) => number.parse().map(Self::AtLeast).ok(),
            Some(("<=", number)) => number.parse().map(Self::AtMost).ok(),
            _ => None,
        };
        parsed.ok_or_else(|| format!("bar {text:?} is neither '>= number' nor '<= number'").into())
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bar) => write!(f, ">= {bar}"),
            Self::AtMost(bar) => write!(f, "<= {bar}"),
        }
    }
}

impl Registry {
    /// Reads and checks the file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    fn parse(text: &str) -> Result<Self> {
        let registry: Self = toml::from_str(text)?;
        for (number, claim) in registry.claims.iter().enumerate() {
            let named = |error: crate::Error| format!("{}: {error}", claim.id);
            claim.bar.parse::<Bar>().map_err(named)?;
            if let Some(aim) = &claim.aim {
                aim.parse::<Bar>().map_err(named)?;
            }
            if claim.command.is_empty() || !claim.id.contains('.') {
                return Err(format!("{}: an id is `area.what`, and a command is needed", claim.id).into());
            }
            if registry.claims[..number].iter().any(|other| other.id == claim.id) {
                return Err(format!("{} is there twice", claim.id).into());
            }
        }
        Ok(registry)
    }

    /// Sets the last figure of the claims of these ids; those that are no longer there are passed over.
    pub(crate) fn record(&mut self, mut measured: BTreeMap<String, Measured>) {
        for claim in &mut self.claims {
            claim.last = measured.remove(&claim.id).or(claim.last.take());
        }
    }

    /// Writes the file anew below the comment it opens with.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let old = fs::read_to_string(path).unwrap_or_default();
        let comment: Vec<&str> = old.lines().take_while(|line| line.starts_with('#')).collect();
        let text = format!("{}\n\n{}", comment.join("\n"), toml::to_string(self)?);
        fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_parse_and_compare() {
        let at_least: Bar = ">= 1.7".parse().expect("bar");
        assert!(at_least.is_met(1.7) && !at_least.is_met(1.69) && at_least.to_string() == ">= 1.7");
        let at_most: Bar = "<= 0".parse().expect("bar");
        assert!(at_most.is_met(0.0) && !at_most.is_met(1.0));
        assert!("= 1".parse::<Bar>().is_err() && ">= x".parse::<Bar>().is_err());
    }

    #[test]
    fn figures_are_recorded_for_the_claims_that_are_still_there() {
        let claim = |id: &str, last: &str| {
            format!(
                "[[claim]]\nid = \"{id}\"\nsentence = \"s\"\ncommand = [\"true\"]\nfigure = \"exit\"\nbar = \"<= 0\"\nunit = \"\"\n{last}"
            )
        };
        let text =
            claim("a.kept", "last = { figure = 1.0, date = \"d\", machine = \"m\" }\n") + &claim("a.measured", "");
        let mut registry = Registry::parse(&text).expect("registry");
        let figure = |figure| Measured { figure, date: "e".to_owned(), machine: "m".to_owned() };
        registry.record(BTreeMap::from([("a.measured".to_owned(), figure(2.0)), ("a.gone".to_owned(), figure(3.0))]));
        let figures: Vec<_> = registry.claims.iter().map(|claim| claim.last.as_ref().map(|last| last.figure)).collect();
        assert_eq!(figures, [Some(1.0), Some(2.0)]);
    }

    #[test]
    fn the_projects_registry_is_valid_and_survives_a_rewrite() {
        let path = crate::root().join("claims.toml");
        let registry = Registry::read(&path).expect("claims.toml");
        let again = Registry::parse(&toml::to_string(&registry).expect("TOML")).expect("its own output");
        assert_eq!(again.claims.len(), registry.claims.len());
        assert!(registry.claims.iter().all(|claim| !claim.sentence.is_empty()));
    }
}

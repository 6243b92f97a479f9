//! From one format to another, in one round (Mycelium §4.2.3).
//!
//! Text form: `convert json to flatbuffers`: two row formats, or `columnar` as the second. It names both, so that the
//! converts of a set have one order only.

use mycelium_base::{Error, Group, GroupFormat, Result};

use crate::{JobContext, Place, TransformState, Transformer};

/// Converts the values of every group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Convert {
    from: GroupFormat,
    to: GroupFormat,
}

impl Convert {
    /// From `from` to `to`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) if they are the same, or `from` is columnar:
    /// compactions read rows from columnar files, but write none of them back.
    pub fn new(from: GroupFormat, to: GroupFormat) -> Result<Self> {
        if from == to {
            return Err(Error::invalid(format!("convert {from} to {to}: these are the same")));
        }
        if from == GroupFormat::Columnar {
            return Err(Error::invalid(format!("convert {from} to {to}: columnar groups stay columnar")));
        }
        Ok(Self { from, to })
    }

    pub(crate) fn parse(arguments: &str) -> Result<Self> {
        let mut words = arguments.split_whitespace();
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some(from), Some("to"), Some(to), None) => Self::new(from.parse()?, to.parse()?),
            _ => Err(Error::invalid("malformed convert")
                .expected("two formats, such as `json to packed`", format_args!("`{arguments}`"))),
        }
    }
}

impl Transformer for Convert {
    fn place(&self) -> Place {
        Place::Chain { from: self.from, to: self.to }
    }

    fn destinations(&self, source: &Group, _round: usize) -> Result<Vec<Group>> {
        if source.format != self.from {
            let message = format!("convert {} to {}: group {source} is not in {}", self.from, self.to, self.from);
            return Err(Error::invalid(message));
        }
        Ok(vec![Group::new(source.columns.clone(), self.to)])
    }

    fn is_said_by_layout(&self) -> bool {
        true
    }

    fn prepare(&self, job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
        super::reshaping(job)
    }
}

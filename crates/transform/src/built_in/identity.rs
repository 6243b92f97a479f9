//! The transformer that changes nothing: the neutral element of composition (Mycelium §3.5).
//!
//! Text form: `identity`. Linking leaves it out; called by itself, it copies.

use mycelium_base::{Error, Result};

use crate::{JobContext, Place, TransformState, Transformer};

/// Changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identity;

impl Identity {
    pub(crate) fn parse(arguments: &str) -> Result<Self> {
        if arguments.is_empty() {
            return Ok(Self);
        }
        Err(Error::invalid("malformed identity").expected("nothing after the name", format_args!("`{arguments}`")))
    }
}

impl Transformer for Identity {
    fn place(&self) -> Place {
        Place::Neutral
    }

    fn is_said_by_layout(&self) -> bool {
        true
    }

    fn prepare(&self, job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
        super::reshaping(job)
    }
}

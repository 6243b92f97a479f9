//! The transformers that every registry has: `identity`, `split`, `convert` and `augment`.
//!
//! The first three only take values to other groups and formats. They share one state, [`Reshaping`], which goes by the
//! groups of the job; what tells them apart is which groups they ask for.

mod augment;
mod convert;
mod identity;
mod row_indexer;
mod split;

pub use augment::Augment;
pub use convert::Convert;
pub use identity::Identity;
pub use row_indexer::{RowIndexer, RowValues};
pub use split::Split;

use mycelium_base::{Error, Group, Operation, Result};
use mycelium_encoding::Reshape;
use mycelium_encoding::row_format::RowScratch;

use crate::{InputEntry, JobContext, Outputs, TransformState};

/// Takes every entry to the destinations that have columns of it.
struct Reshaping {
    reshapes: Vec<(Group, Reshape)>,
    scratch: RowScratch,
}

/// The state of a transformer that is said by the layout.
pub(crate) fn reshaping(job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
    let source = job.formats.values(job.source)?;
    let reshape = |destination: &Group| {
        let values = job.formats.values(destination)?;
        Ok((destination.clone(), source.fragment().reshape(values.fragment())?))
    };
    let reshapes = job.destinations.iter().map(reshape).collect::<Result<Vec<_>>>()?;
    Ok(Box::new(Reshaping { reshapes, scratch: RowScratch::default() }))
}

impl TransformState for Reshaping {
    fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()> {
        let Self { reshapes, scratch } = self;
        for (destination, (group, reshape)) in reshapes.iter().enumerate() {
            if entry.operation == Operation::Patch && !entry.columns.overlaps(&group.columns) {
                continue;
            }
            outputs.map_with(destination, |out| match reshape.apply(entry.value, scratch, out)? {
                true => Ok(()),
                false => Err(Error::corruption(format!("a patch has no columns of {group}, though it says so"))),
            })?;
        }
        Ok(())
    }
}

//! Indexes that a table's transformers ask for (Mycelium §4.2.4): an `augment` among them is an index that is created
//! with the table. It derives from entries and stands beside the order of the others, so that the layout is the same
//! without it.

use mycelium_base::Result;
use mycelium_encoding::Schema;
use mycelium_transform::{Augment, TransformerSet};

use super::IndexOptions;
use crate::options::TableOptions;

/// The options without the augments among their transformers, and the indexes that these are.
///
/// # Errors
/// Those of [`Augment::parse`].
pub(crate) fn split_augments(options: TableOptions, schema: &Schema) -> Result<(TableOptions, Vec<IndexOptions>)> {
    let Some(set) = &options.transformers else { return Ok((options, Vec::new())) };
    let (augments, others): (Vec<_>, Vec<_>) = set.iter().cloned().partition(|it| it.is_augment());
    let index = |arguments: &str| Augment::parse(arguments, schema).map(|augment| index_of(&augment, schema));
    let indexes = augments.iter().map(|augment| index(augment.arguments())).collect::<Result<Vec<_>>>()?;
    let transformers = (!others.is_empty()).then(|| TransformerSet::from_iter(others));
    Ok((TableOptions { transformers, ..options }, indexes))
}

fn index_of(augment: &Augment, schema: &Schema) -> IndexOptions {
    let name = |column: usize| schema.columns()[column].name.clone();
    IndexOptions {
        name: augment.name().to_owned(),
        on: augment.on().iter().copied().map(name).collect(),
        cover: augment.cover().iter().map(name).collect(),
        ..IndexOptions::default()
    }
}

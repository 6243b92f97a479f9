//! Transformers by name.
//!
//! A table's definition names its transformers; a program that opens it must have them registered. The built-in ones
//! are in every registry. A table that needs another one is refused when it is opened, and not when a compaction gets
//! there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use mycelium_base::{Error, ErrorKind, GroupFormat, Result};

use crate::built_in::{Augment, Convert, Identity, Split};
use crate::definition::check_name;
use crate::link::{NamedTransformer, link};
use crate::{Formats, LinkOptions, Linked, Transformer, TransformerDefinition, TransformerSet};

type Maker = dyn Fn(&str, &Formats) -> Result<Arc<dyn Transformer>> + Send + Sync;

fn maker(make: impl Fn(&str, &Formats) -> Result<Arc<dyn Transformer>> + Send + Sync + 'static) -> Arc<Maker> {
    Arc::new(make)
}

/// Makes transformers from their names and arguments. Cheap to clone.
///
/// ```
/// use std::sync::Arc;
/// use mycelium_base::{ErrorKind, GroupFormat};
/// use mycelium_encoding::Schema;
/// use mycelium_transform::{Formats, LinkOptions, Registry, TransformerSet};
///
/// let formats = Arc::new(Formats::new(Arc::new(Schema::parse("id int64 not null, a int32, primary key (id)")?)));
/// let set = TransformerSet::parse("example.embeddings on 1")?;
/// let refused = Registry::built_in().link(&set, &formats, GroupFormat::default(), &LinkOptions::default()).unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::Unsupported);
/// assert!(refused.to_string().contains("example.embeddings"));
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone)]
pub struct Registry {
    makers: BTreeMap<String, Arc<Maker>>,
}

impl Registry {
    /// The built-in transformers: `identity`, `split`, `convert`, `augment`.
    pub fn built_in() -> Self {
        let makers = [
            ("identity", maker(|arguments, _| Ok(Arc::new(Identity::parse(arguments)?)))),
            ("split", maker(|arguments, formats| Ok(Arc::new(Split::parse(arguments, formats.columns())?)))),
            ("convert", maker(|arguments, _| Ok(Arc::new(Convert::parse(arguments)?)))),
            ("augment", maker(|arguments, formats| Ok(Arc::new(Augment::parse(arguments, formats.schema())?)))),
        ];
        Self { makers: makers.into_iter().map(|(name, maker)| (name.to_owned(), maker)).collect() }
    }

    /// Adds a transformer. `make` is given what follows the name in a table's definition, and the table's columns and
    /// formats; it is called when a table with such a transformer is made or opened.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a malformed name, or one that is taken.
    pub fn register(
        &mut self,
        name: &str,
        make: impl Fn(&str, &Formats) -> Result<Arc<dyn Transformer>> + Send + Sync + 'static,
    ) -> Result<()> {
        check_name(name)?;
        if self.makers.contains_key(name) {
            return Err(Error::invalid(format!("a transformer called {name} is registered already")));
        }
        self.makers.insert(name.to_owned(), maker(make));
        Ok(())
    }

    /// The transformer of a definition, for a table of these columns and formats.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] names a transformer that is not registered; those of the transformer for its
    /// arguments, with the definition before them.
    pub fn make(&self, definition: &TransformerDefinition, formats: &Formats) -> Result<Arc<dyn Transformer>> {
        let make = self.makers.get(definition.name()).ok_or_else(|| {
            let message = format!("the table needs the transformer {}, which is not registered", definition.name());
            Error::new(ErrorKind::Unsupported, message)
        })?;
        let made = make(definition.arguments(), formats);
        made.map_err(|e| Error::new(e.kind(), format!("transformer `{definition}`")).caused_by(e))
    }

    /// Links the transformers of a table whose level 0 is in `source` (Algorithm 1; see the module `link`).
    ///
    /// # Errors
    /// Those of [`Registry::make`]; [`ErrorKind::InvalidArgument`] if the set breaks a rule, or does not fit the table.
    pub fn link(
        &self,
        set: &TransformerSet,
        formats: &Arc<Formats>,
        source: GroupFormat,
        options: &LinkOptions,
    ) -> Result<Linked> {
        let named = |definition: &TransformerDefinition| {
            let transformer = self.make(definition, formats)?;
            Ok(NamedTransformer { definition: definition.clone(), transformer })
        };
        link(set.iter().map(named).collect::<Result<_>>()?, formats, source, options)
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::built_in()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.makers.keys()).finish()
    }
}

//! What is wrong with rows, in words.

use arrow_schema::ArrowError;

use crate::failure::Failure;

/// What is wrong with a batch.
pub(super) enum WrongRows {
    /// A value is none of its column's type.
    Type(String),
    /// Anything else.
    Other(Failure),
}

impl WrongRows {
    /// Where the types were inferred, with what to do about them.
    pub(super) fn into_failure(self, is_inferred: bool) -> Failure {
        match self {
            Self::Type(text) if is_inferred => Failure::input(text)
                .hint("--schema gives the types; --infer-rows looks at more rows before it settles on them"),
            Self::Type(text) => Failure::input(text),
            Self::Other(failure) => failure,
        }
    }
}

impl From<ArrowError> for WrongRows {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::ParseError(text) => Self::Type(text),
            // What is no JSON begins so.
            ArrowError::JsonError(text)
                if !["Encountered", "Not valid"].iter().any(|start| text.starts_with(start)) =>
            {
                Self::Type(text)
            }
            other => Self::Other(arrow_failure(other)),
        }
    }
}

pub(super) fn arrow_failure(error: ArrowError) -> Failure {
    Failure::input(match error {
        ArrowError::CsvError(text) | ArrowError::JsonError(text) | ArrowError::ParseError(text) => text,
        ArrowError::IoError(_, error) => error.to_string(),
        _ => error.to_string(),
    })
}

pub(super) fn not_inferred(error: ArrowError) -> Failure {
    WrongRows::from(error).into_failure(true)
}

//! Errors across the border: the engine's travel through DataFusion whole, and DataFusion's become ours.

use datafusion::error::DataFusionError;
use mycelium_base::{Error, ErrorKind};

/// An error of the engine on its way through DataFusion.
pub(crate) fn outward(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// An error of DataFusion as one of ours: the engine's own, if that is the cause; else by what went wrong.
/// [`ErrorKind::InvalidArgument`]: the statement is wrong, or a value in it or met by it (a division by zero).
/// [`ErrorKind::Unsupported`]: it asks for what there is not, memory included. [`ErrorKind::Io`]: a spill file.
pub(crate) fn inward(error: DataFusionError) -> Error {
    if let Some(own) = own_error(&error) {
        return own;
    }
    let kind = match error.find_root() {
        DataFusionError::NotImplemented(_)
        | DataFusionError::ResourcesExhausted(_)
        | DataFusionError::Internal(_)
        | DataFusionError::ExecutionJoin(_) => ErrorKind::Unsupported,
        DataFusionError::IoError(_) => ErrorKind::Io,
        _ => ErrorKind::InvalidArgument,
    };
    Error::new(kind, error.strip_backtrace())
}

fn own_error(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(own) = error.downcast_ref::<Error>() {
            return Some(own.duplicate());
        }
        // The chain of sources leaves out what these hold.
        if let Some(DataFusionError::External(inner)) = error.downcast_ref::<DataFusionError>()
            && let Some(own) = inner.downcast_ref::<Error>()
        {
            return Some(own.duplicate());
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_errors_come_back_as_they_went() {
        let error = Error::corruption("a block").in_file("000007.sst").at(4096);
        let inside = DataFusionError::Context("while scanning".into(), Box::new(outward(error)));
        let back = inward(inside);
        assert_eq!((back.kind(), back.offset()), (ErrorKind::Corruption, Some(4096)));
        assert_eq!(inward(DataFusionError::Plan("no such column".into())).kind(), ErrorKind::InvalidArgument);
        assert_eq!(inward(DataFusionError::NotImplemented("no".into())).kind(), ErrorKind::Unsupported);
    }
}

//! What a command reports when it cannot do what was asked, and the exit code that goes with it.

use std::fmt;
use std::process::ExitCode;

use mycelium_base::{Error, ErrorKind};

/// Exit codes, as `mycelium --help` lists them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  a check failed, or the key or table asked for is not there
  2  wrong usage
  3  the input (file or stdin) cannot be read as what it should be
  4  corruption: stored bytes are not what was written
  5  the database is busy: another process has it open, or a transaction met a newer write; try again
  6  the disk failed or is full
130  interrupted by Ctrl-C";

/// Why a command ended without doing what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailureKind {
    /// A check failed or something is not there.
    Negative,
    /// The arguments are wrong.
    Usage,
    /// The input is wrong.
    Input,
    /// Stored bytes are wrong.
    Corruption,
    /// Try again later.
    Busy,
    /// The disk.
    Disk,
    /// By Ctrl-C.
    Interrupted,
    /// The reader of stdout went away (`| head`): nothing to report.
    OutputClosed,
}

/// A failure in plain words, with a hint where one helps.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: FailureKind,
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// A failure of a kind.
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// The input cannot be read.
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Input, message)
    }

    /// The arguments are wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Usage, message)
    }

    /// Something asked for is not there, or a check failed.
    pub(crate) fn negative(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Negative, message)
    }

    /// What it is.
    pub(crate) fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Adds what to try.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert(hint.into());
        self
    }

    /// Names the input that it is about.
    #[must_use]
    pub(crate) fn of_input(mut self, name: &str) -> Self {
        self.message = format!("{name}: {}", self.message);
        self
    }

    /// Adds what else is the case.
    #[must_use]
    pub(crate) fn and(mut self, also: impl fmt::Display) -> Self {
        self.message = format!("{}; {also}", self.message);
        self
    }

    /// Prints it to stderr and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if self.kind != FailureKind::OutputClosed {
            eprintln!("mycelium: {self}");
        }
        ExitCode::from(self.exit_status())
    }

    /// The number that the process ends with.
    pub(crate) fn exit_status(&self) -> u8 {
        match self.kind {
            FailureKind::OutputClosed => 0,
            FailureKind::Negative => 1,
            FailureKind::Usage => 2,
            FailureKind::Input => 3,
            FailureKind::Corruption => 4,
            FailureKind::Busy => 5,
            FailureKind::Disk => 6,
            FailureKind::Interrupted => 130,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (kind, hint) = match error.kind() {
            ErrorKind::InvalidArgument | ErrorKind::Unsupported | ErrorKind::OutOfOrder => (FailureKind::Usage, None),
            ErrorKind::NotFound => (FailureKind::Negative, None),
            ErrorKind::Corruption => (
                FailureKind::Corruption,
                Some("`mycelium verify` checks every file; `mycelium salvage` saves what can be read"),
            ),
            ErrorKind::Duplicate => (FailureKind::Negative, None),
            ErrorKind::Conflict | ErrorKind::Deadlock | ErrorKind::LockTimeout => {
                (FailureKind::Busy, Some("run it again"))
            }
            ErrorKind::Locked => (FailureKind::Busy, Some("another process has the database open")),
            ErrorKind::NoSpace => (FailureKind::Disk, Some("free some space; reads still work")),
            ErrorKind::TooManyOpenFiles => {
                (FailureKind::Disk, Some("raise the limit of open files (`ulimit -n`), or close some"))
            }
            _ => (FailureKind::Disk, None),
        };
        let failure = Self::new(kind, error.to_string());
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// Failures of printing: the only place where a plain `io::Error` is turned into a failure is output.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::new(FailureKind::OutputClosed, "stdout was closed"),
            _ => Self::new(FailureKind::Disk, format!("cannot write the output: {error}")),
        }
    }
}

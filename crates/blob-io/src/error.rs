//! What can go wrong while a file is read or written: one error type, and the [`Fault`] that names the byte.
//!
//! Relies on nothing; leaves the wording for terminals (`error:`, `help:`) to the tool.

use std::borrow::Cow;
use std::fmt;
use std::io;

/// Why a file could not be opened, read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to read or write.
    Io {
        /// The file, as it was named when it was opened.
        file: String,
        /// What was being done: "open", "read 16 bytes at byte 40", "rename over the target".
        action: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The bytes are not what the format says.
    Malformed {
        /// The file, as it was named when it was opened.
        file: String,
        /// The array or layer concerned, where one is known: `array "conv1/0"`, `layer #41 "conv4_2"`.
        subject: Option<String>,
        /// Where, what was expected, what was found.
        fault: Box<Fault>,
        /// How many arrays before it were found whole, where the walk over the file stopped here.
        intact: Option<usize>,
    },
    /// The file is something else than a tensor file that this crate reads.
    NotTensors {
        /// The file, as it was named when it was opened.
        file: String,
        /// What the file is, in words: "an HTML page, not a model".
        what: String,
        /// What the user can do about it, where we know.
        help: Option<&'static str>,
    },
    /// The request does not fit the file: a wrong kind of entry, a format that cannot hold the tensors.
    Request {
        /// The file concerned.
        file: String,
        /// What was asked and why it cannot be done.
        message: String,
    },
    /// The caller's cancel flag was raised.
    Interrupted,
    /// A blob could not be made: shape, dtype or memory.
    Blob(blob_core::Error),
}

impl Error {
    /// The byte offset at which a malformed file breaks, if this is that kind of error.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::Malformed { fault, .. } => Some(fault.offset),
            _ => None,
        }
    }

    /// What the user can do about it, where we know.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::NotTensors { help, .. } => *help,
            Self::Malformed { fault, .. } => fault.what.help(),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io {
                file,
                action,
                source,
            } => write!(f, "{file}: cannot {action}: {source}"),
            Self::Malformed {
                file,
                subject,
                fault,
                ..
            } => {
                write!(f, "{file}: ")?;
                if let Some(subject) = subject {
                    write!(f, "{subject}: ")?;
                }
                write!(f, "{fault}")
            }
            Self::NotTensors { file, what, .. } => write!(f, "{file} is {what}"),
            Self::Request { file, message } => write!(f, "{file}: {message}"),
            Self::Interrupted => write!(f, "interrupted"),
            Self::Blob(e) => write!(f, "{e}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Blob(e) => Some(e),
            _ => None,
        }
    }
}

impl From<blob_core::Error> for Error {
    fn from(e: blob_core::Error) -> Self {
        Self::Blob(e)
    }
}

/// One place where bytes are not what the format says: the offset, what was expected, what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub(crate) offset: u64,
    pub(crate) what: What,
}

impl Fault {
    pub(crate) fn new(offset: u64, what: What) -> Self {
        Self { offset, what }
    }

    /// The byte offset in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.what)
    }
}

/// The kinds of fault. Small on purpose: a hostile file can hold a million of them, one an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// `field` needs more bytes than the file, or the message around it, has left.
    Truncated {
        field: &'static str,
        needed: u64,
        left: u64,
    },
    /// A protobuf varint that does not end within its ten bytes, or a key over 32 bits.
    Varint { field: &'static str },
    /// Wire types 6 and 7 do not exist.
    WireType { found: u8 },
    /// Field number 0 does not exist.
    FieldZero,
    /// An END_GROUP tag without its START_GROUP.
    EndGroup { number: u32 },
    /// Groups nested deeper than protobuf's own limit.
    Depth { limit: u32 },
    /// A number of values that does not fit the shape.
    Count {
        field: &'static str,
        expected: u64,
        found: u64,
    },
    /// A dimension that is negative or over its format's range.
    Dim { axis: u32, found: i64, max: u64 },
    /// More axes than a shape may have.
    Axes { found: u64, max: u64 },
    /// The dimensions' product, or its bytes, do not fit.
    Overflow { axes: u32 },
    /// A packed field whose length is no multiple of its element.
    Multiple {
        field: &'static str,
        len: u64,
        width: u64,
    },
    /// An enum value with no meaning.
    Flag {
        field: &'static str,
        found: i64,
        known: &'static str,
    },
    /// A fixed number (magic, count) that is not what it must be.
    Mismatch {
        field: &'static str,
        expected: u64,
        found: u64,
    },
    /// More of something than a limit allows.
    Limit {
        field: &'static str,
        found: u64,
        limit: u64,
        option: Option<&'static str>,
    },
    /// Anything else, in words: what was expected and what was found.
    Words {
        expected: &'static str,
        found: Cow<'static, str>,
    },
}

impl What {
    pub(crate) fn words(expected: &'static str, found: impl Into<Cow<'static, str>>) -> Self {
        Self::Words {
            expected,
            found: found.into(),
        }
    }

    fn help(&self) -> Option<&'static str> {
        match self {
            Self::Truncated { .. } => Some(
                "the file is cut off or corrupt; compare its size with the source and fetch it again",
            ),
            Self::WireType { .. }
            | Self::Varint { .. }
            | Self::FieldZero
            | Self::EndGroup { .. } => {
                Some("these bytes are not protobuf: the file is damaged, or it is of another kind")
            }
            Self::Limit { option, .. } => option.as_ref().copied(),
            _ => None,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated {
                field,
                needed,
                left,
            } => write!(f, "{field} needs {needed} bytes, but {left} are left"),
            Self::Varint { field } => write!(
                f,
                "{field}: expected a varint that ends within its range, found a longer one"
            ),
            Self::WireType { found } => {
                write!(f, "expected a protobuf wire type of 0 to 5, found {found}")
            }
            Self::FieldZero => write!(f, "expected a protobuf field number of 1 or more, found 0"),
            Self::EndGroup { number } => write!(
                f,
                "expected a field, found END_GROUP of field {number} with no group open"
            ),
            Self::Depth { limit } => write!(
                f,
                "expected groups nested at most {limit} deep, found deeper ones"
            ),
            Self::Count {
                field,
                expected,
                found,
            } => write!(
                f,
                "{field}: expected {expected} values for the shape, found {found}"
            ),
            Self::Dim { axis, found, max } => {
                write!(
                    f,
                    "axis {axis}: expected a dimension of 0 to {max}, found {found}"
                )
            }
            Self::Axes { found, max } => write!(f, "expected at most {max} axes, found {found}"),
            Self::Overflow { axes } => write!(
                f,
                "expected a shape whose size fits 63 bits, found {axes} axes whose product does not"
            ),
            Self::Multiple { field, len, width } => {
                write!(
                    f,
                    "{field}: expected a length that is a multiple of {width}, found {len}"
                )
            }
            Self::Flag {
                field,
                found,
                known,
            } => write!(f, "{field}: expected {known}, found {found}"),
            Self::Mismatch {
                field,
                expected,
                found,
            } => write!(f, "{field}: expected {expected}, found {found}"),
            Self::Limit {
                field,
                found,
                limit,
                ..
            } => write!(f, "{field}: expected at most {limit}, found {found}"),
            Self::Words { expected, found } => write!(f, "expected {expected}, found {found}"),
        }
    }
}

/// Why a walk over a source stopped: the operating system, or the bytes. The file's name is added at the top.
#[derive(Debug)]
pub(crate) enum Stop {
    Io { offset: u64, source: io::Error },
    Fault(Fault),
}

impl Stop {
    pub(crate) fn fault(offset: u64, what: What) -> Self {
        Self::Fault(Fault::new(offset, what))
    }

    pub(crate) fn into_error(self, file: &str, subject: Option<String>) -> Error {
        match self {
            Self::Io { offset, source } => Error::Io {
                file: file.to_owned(),
                action: format!("read at byte {offset}"),
                source,
            },
            Self::Fault(fault) => Error::Malformed {
                file: file.to_owned(),
                subject,
                fault: Box::new(fault),
                intact: None,
            },
        }
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

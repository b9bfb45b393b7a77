//! A fault in the bytes of a file: the offset, the expectation, the finding.
//!
//! Small values, because a hostile file can have a million faults; the file's name is added by `error`.

use std::borrow::Cow;
use std::fmt;

use crate::error::Reason;
use crate::limits::Limit;

/// One place where bytes break the format's rules: the offset, the expectation, the finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub(crate) offset: u64,
    pub(crate) kind: FaultKind,
    /// The layer or record where a walk stopped, for the error's text.
    #[expect(clippy::box_collection, reason = "a million faults, of which nearly none have one")]
    pub(crate) subject: Option<Box<String>>,
}

impl Fault {
    pub(crate) fn new(offset: u64, kind: FaultKind) -> Self {
        Self { offset, kind, subject: None }
    }

    /// The fault, with the layer or record where a walk stopped.
    pub(crate) fn about(mut self: Box<Self>, subject: Option<String>) -> Box<Self> {
        self.subject = subject.map(Box::new);
        self
    }

    /// The byte offset in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The expectation and the finding, without the place.
    #[must_use]
    pub fn message(&self) -> String {
        self.kind.to_string()
    }

    /// The user's next step, where we know one.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        self.kind.help()
    }

    /// Which limit is exceeded, where that is the fault.
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        match self.kind {
            FaultKind::Limit { limit, .. } => Some(limit),
            _ => None,
        }
    }

    /// Why, as a stable code.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self.kind {
            FaultKind::Truncated { .. } => Reason::Truncated,
            FaultKind::Limit { .. } => Reason::Limit,
            FaultKind::Checksum { .. } | FaultKind::Trailer { .. } => Reason::Checksum,
            FaultKind::Unsupported { .. } | FaultKind::Foreign { .. } => Reason::Unsupported,
            _ => Reason::Malformed,
        }
    }
}

/// Errors if `field` needs more than a limit allows; `at` is the field's offset in the file.
pub(crate) fn check_limit(at: u64, limit: Limit, field: &'static str, needed: u64, allowed: u64) -> Result<(), Fault> {
    if needed <= allowed {
        return Ok(());
    }
    Err(Fault::new(at, FaultKind::Limit { field, needed, allowed, limit }))
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.kind)
    }
}

/// The kinds of fault. Small on purpose: a hostile file can have a million faults, one for each array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// `field` needs more bytes than the file, or the surrounding message, has left.
    Truncated { field: &'static str, needed: u64, left: u64 },
    /// A protobuf varint that does not end within ten bytes, or a key over 32 bits.
    Varint { field: &'static str },
    /// Wire types 6 and 7 do not exist.
    WireType { found: u8 },
    /// Field number 0 does not exist.
    FieldZero,
    /// An END_GROUP tag without a START_GROUP.
    EndGroup { number: u32 },
    /// Groups nested deeper than protobuf's own limit.
    Depth { limit: u32 },
    /// A number of values that does not fit the shape.
    Count { field: &'static str, expected: u64, found: u64 },
    /// A dimension that is negative or over the format's range.
    Dim { axis: u32, found: i64, max: u64 },
    /// More axes than a shape may have.
    Axes { found: u64, max: u64 },
    /// The dimensions' product, or the bytes of so many elements, do not fit.
    Overflow { axes: u32 },
    /// A packed field whose length is no multiple of the element's size.
    Multiple { field: &'static str, len: u64, width: u64 },
    /// An enum value with no meaning.
    Flag { field: &'static str, found: i64, known: &'static str },
    /// A fixed number (magic, count) with another value.
    Mismatch { field: &'static str, expected: u64, found: u64 },
    /// A record that does not begin with the mark.
    Signature { field: &'static str, expected: u32, found: u32 },
    /// More of something than a limit allows.
    Limit { field: &'static str, needed: u64, allowed: u64, limit: Limit },
    /// The checksum stored in the file does not match the bytes.
    Checksum { expected: u32, found: u32 },
    /// A checksum or a length stored beside compressed bytes does not match the content.
    Trailer { field: &'static str, expected: u32, found: u32 },
    /// Valid, but of a kind that is not read.
    Unsupported { expected: &'static str, found: Cow<'static, str> },
    /// Not a fault: an array of a dtype that blobs do not have, with the file's name for the dtype and the array's
    /// size.
    Foreign { name: Cow<'static, str>, bytes: u64 },
    /// A header of the whole file that is not what the format says.
    Header { expected: &'static str, found: Cow<'static, str> },
    /// Anything else: the expectation and the finding in words.
    Words { expected: &'static str, found: Cow<'static, str> },
}

impl FaultKind {
    pub(crate) fn words(expected: &'static str, found: impl Into<Cow<'static, str>>) -> Self {
        Self::Words { expected, found: found.into() }
    }

    pub(crate) fn unsupported(expected: &'static str, found: impl Into<Cow<'static, str>>) -> Self {
        Self::Unsupported { expected, found: found.into() }
    }

    fn help(&self) -> Option<&'static str> {
        match self {
            Self::Truncated { .. } => {
                Some("the file is cut off or corrupt; compare its size with the source and fetch it again")
            }
            Self::Header { .. } => Some("the header is damaged; compare the file with its source, and fetch it again"),
            Self::WireType { .. } | Self::Varint { .. } | Self::FieldZero | Self::EndGroup { .. } => {
                Some("these bytes are not protobuf: the file is damaged, or it is of another kind")
            }
            _ => None,
        }
    }
}

impl FaultKind {
    /// The faults of protobuf's wire format.
    fn fmt_wire(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Varint { field } => {
                write!(f, "{field}: expected a varint that ends within its range, found a longer one")
            }
            Self::WireType { found } => {
                write!(f, "expected a protobuf wire type of 0 to 5, found {found}")
            }
            Self::FieldZero => write!(f, "expected a protobuf field number of 1 or more, found 0"),
            Self::EndGroup { number } => {
                write!(f, "expected a field, found END_GROUP of field {number} with no group open")
            }
            Self::Depth { limit } => write!(f, "expected groups nested at most {limit} deep, found deeper ones"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { field, needed, left } => write!(f, "{field} needs {needed} bytes, but {left} are left"),
            Self::Varint { .. }
            | Self::WireType { .. }
            | Self::FieldZero
            | Self::EndGroup { .. }
            | Self::Depth { .. } => self.fmt_wire(f),
            Self::Count { field, expected, found } => {
                write!(f, "{field}: expected {expected} values for the shape, found {found}")
            }
            Self::Dim { axis, found, max } => {
                write!(f, "axis {axis}: expected a dimension of 0 to {max}, found {found}")
            }
            Self::Axes { found, max } => write!(f, "expected at most {max} axes, found {found}"),
            Self::Overflow { axes } => {
                write!(f, "expected a shape whose size fits 63 bits, found {axes} axes whose product does not")
            }
            Self::Multiple { field, len, width } => {
                write!(f, "{field}: expected a length that is a multiple of {width}, found {len}")
            }
            Self::Flag { field, found, known } => write!(f, "{field}: expected {known}, found {found}"),
            Self::Mismatch { field, expected, found } => write!(f, "{field}: expected {expected}, found {found}"),
            Self::Limit { field, needed, allowed, .. } => {
                write!(f, "{field}: expected at most {allowed}, found {needed}")
            }
            Self::Checksum { expected, found } => write!(
                f,
                "expected a member of the CRC-32 in the zip's directory, found one of {found:#010x} in place of {expected:#010x}"
            ),
            Self::Foreign { name, bytes } => write!(f, "dtype {name}, {bytes} bytes"),
            Self::Trailer { field, expected, found } | Self::Signature { field, expected, found } => {
                write!(f, "{field}: expected {expected:#010x}, found {found:#010x}")
            }
            Self::Unsupported { expected, found }
            | Self::Header { expected, found }
            | Self::Words { expected, found } => {
                write!(f, "expected {expected}, found {found}")
            }
        }
    }
}

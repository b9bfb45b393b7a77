//! The formats by name: the one table of them.

use std::fmt;
use std::str::FromStr;

/// A file format that this crate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Caffe NetParameter: `.caffemodel`.
    CaffeModel,
    /// One Caffe BlobProto: `.binaryproto`.
    BlobProto,
    /// Caffe BlobProtoVector.
    BlobProtoVector,
    /// Caffe SolverState: `.solverstate`.
    SolverState,
    /// One Caffe Datum, as data layers and databases store it.
    Datum,
    /// MXNet's list of arrays: `.params`, `.nd`.
    MxnetList,
    /// One MXNet array without a list around it, as pickles hold it.
    MxnetRecord,
    /// One NumPy array.
    Npy,
    /// A zip of NumPy arrays, also as MXNet 2 writes its parameters.
    Npz,
    /// safetensors.
    Safetensors,
}

impl Format {
    /// Every format, in the order in which tables list them.
    pub const ALL: &'static [Self] = &[
        Self::CaffeModel,
        Self::BlobProto,
        Self::BlobProtoVector,
        Self::SolverState,
        Self::Datum,
        Self::MxnetList,
        Self::MxnetRecord,
        Self::Npy,
        Self::Npz,
        Self::Safetensors,
    ];

    /// The short name: `caffemodel`, `npz`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CaffeModel => "caffemodel",
            Self::BlobProto => "binaryproto",
            Self::BlobProtoVector => "blobprotovector",
            Self::SolverState => "solverstate",
            Self::Datum => "datum",
            Self::MxnetList => "params",
            Self::MxnetRecord => "mxnet-record",
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Safetensors => "safetensors",
        }
    }

    /// What the format is, in a few words.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::CaffeModel => "Caffe NetParameter",
            Self::BlobProto => "Caffe BlobProto",
            Self::BlobProtoVector => "Caffe BlobProtoVector",
            Self::SolverState => "Caffe SolverState",
            Self::Datum => "Caffe Datum",
            Self::MxnetList => "MXNet NDArray list",
            Self::MxnetRecord => "MXNet NDArray record",
            Self::Npy => "NumPy array",
            Self::Npz => "NumPy archive",
            Self::Safetensors => "safetensors",
        }
    }

    /// The usual file name extensions, without the dot.
    #[must_use]
    pub fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::CaffeModel => &["caffemodel"],
            Self::BlobProto => &["binaryproto"],
            Self::BlobProtoVector | Self::MxnetRecord => &[],
            Self::SolverState => &["solverstate"],
            Self::Datum => &["datum"],
            Self::MxnetList => &["params", "nd", "ndarray"],
            Self::Npy => &["npy"],
            Self::Npz => &["npz"],
            Self::Safetensors => &["safetensors"],
        }
    }

    /// Whether this crate writes the format too.
    #[must_use]
    pub fn is_written(self) -> bool {
        matches!(self, Self::Npy | Self::Npz | Self::Safetensors)
    }

    /// The format that a file's extension promises.
    #[must_use]
    pub fn from_extension(extension: &str) -> Option<Self> {
        let extension = extension.to_ascii_lowercase();
        Self::ALL.iter().copied().find(|f| f.extensions().contains(&extension.as_str()))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no format has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat(String);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no format is called {:?}", self.0)
    }
}

impl std::error::Error for UnknownFormat {}

impl FromStr for Format {
    type Err = UnknownFormat;

    /// Reads [`Format::name`].
    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::ALL.iter().copied().find(|f| f.name() == name).ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

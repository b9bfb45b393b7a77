//! The formats by name, in one table.

mod holds;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

pub use holds::{Bf16, Files, Holds, Keys, Names, Nets, Refill};

macro_rules! formats {
    ($($(#[$doc:meta])* $format:ident: $name:literal, $title:literal, $extensions:expr, $holds:ident;)*) => {
        /// A file format that this crate reads and writes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Format {
            $($(#[$doc])* $format,)*
        }

        impl Format {
            /// Every format, in the order used by tables.
            pub const ALL: &'static [Self] = &[$(Self::$format,)*];

            fn row(self) -> (&'static str, &'static str, &'static [&'static str], Holds) {
                match self {
                    $(Self::$format => ($name, $title, &$extensions, Holds::$holds),)*
                }
            }
        }
    };
}

// The short name, the title, the usual extensions, the abilities.
formats! {
    /// Caffe NetParameter: `.caffemodel`.
    CaffeModel: "caffemodel", "Caffe NetParameter", ["caffemodel"], CAFFE_MODEL;
    /// One Caffe BlobProto: `.binaryproto`.
    BlobProto: "binaryproto", "Caffe BlobProto", ["binaryproto"], BLOB_PROTO;
    /// Caffe BlobProtoVector.
    BlobProtoVector: "blobprotovector", "Caffe BlobProtoVector", [], BLOB_PROTO_VECTOR;
    /// Caffe SolverState: `.solverstate`.
    SolverState: "solverstate", "Caffe SolverState", ["solverstate"], SOLVER_STATE;
    /// One Caffe Datum, as in data layers and databases.
    Datum: "datum", "Caffe Datum", ["datum"], DATUM;
    /// MXNet's list of arrays: `.params`, `.nd`.
    MxnetList: "params", "MXNet NDArray list", ["params", "nd", "ndarray"], MXNET_LIST;
    /// One MXNet array without a list around the array, as in pickles.
    MxnetRecord: "mxnet-record", "MXNet NDArray record", [], MXNET_RECORD;
    /// One blob of NeoML, as written by `neoml.Blob.store`.
    NeomlBlob: "neoml", "NeoML blob", ["neoml", "arch"], NEOML_BLOB;
    /// NeoML blobs, as written by `SerializeBlobs`.
    NeomlArray: "neoml-array", "NeoML blob array", ["arch", "neoml"], NEOML_ARRAY;
    /// A NeoML net, and other files with NeoML's layers or blobs: a dictionary, a pickle.
    NeomlNet: "neoml-net", "NeoML net", ["cnnarch", "dnn", "arch"], NEOML_NET;
    /// An ONNX model: the initializers of the graph.
    Onnx: "onnx", "ONNX model", ["onnx"], ONNX;
    /// One NumPy array.
    Npy: "npy", "NumPy array", ["npy"], NPY;
    /// A zip of NumPy arrays, also for the parameters of MXNet 2.
    Npz: "npz", "NumPy archive", ["npz"], NPZ;
    /// HDF5: Caffe's `.caffemodel.h5`, `.solverstate.h5` and data files; written always, read with the feature `hdf5`.
    Hdf5: "hdf5", "HDF5", ["h5", "hdf5"], HDF5;
    /// safetensors.
    Safetensors: "safetensors", "safetensors", ["safetensors"], SAFETENSORS;
}

impl Format {
    /// The short name: `caffemodel`, `npz`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The format's title, a few words.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.row().1
    }

    /// The usual file name extensions, without the dot.
    #[must_use]
    pub fn extensions(self) -> &'static [&'static str] {
        self.row().2
    }

    /// The format's abilities.
    #[must_use]
    pub fn holds(self) -> Holds {
        self.row().3
    }

    /// Whether the format is one of Caffe's messages.
    #[must_use]
    pub fn is_caffe(self) -> bool {
        use Format::{BlobProto, BlobProtoVector, CaffeModel, Datum, SolverState};
        matches!(self, CaffeModel | BlobProto | BlobProtoVector | SolverState | Datum)
    }

    /// Whether the format is MXNet's: a list of arrays, or a bare record.
    #[must_use]
    pub fn is_mxnet(self) -> bool {
        matches!(self, Self::MxnetList | Self::MxnetRecord)
    }

    /// Whether the format is an archive of NeoML's.
    #[must_use]
    pub fn is_neoml(self) -> bool {
        matches!(self, Self::NeomlBlob | Self::NeomlArray | Self::NeomlNet)
    }

    /// Whether files of the format usually have this extension, in any case.
    #[must_use]
    pub fn is_usual(self, extension: &str) -> bool {
        self.extensions().iter().any(|usual| usual.eq_ignore_ascii_case(extension))
    }

    /// The format that a file's name promises: that of the extension. The file is not opened.
    #[must_use]
    pub fn of_path(path: impl AsRef<Path>) -> Option<Self> {
        path.as_ref().extension()?.to_str().and_then(Self::from_extension)
    }

    /// The format that a file's extension promises: the first one where several formats share the extension, as NeoML's
    /// formats do.
    #[must_use]
    pub fn from_extension(extension: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.is_usual(extension))
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

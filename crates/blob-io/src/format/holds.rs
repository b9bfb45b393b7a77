//! The abilities of each format besides plain arrays of numbers: one row of facts a format.
//!
//! A reader finds no more in a file than the row says; a writer keeps everything, or somebody reports the loss.

use blob_core::DType;

/// The type flags that MXNet 1.9.1 does not know (mshadow's `TypeFlag`).
const SINCE_MXNET_2: [(DType, &str); 4] =
    [(DType::I16, "MXNet 2.0"), (DType::U16, "MXNet 2.0"), (DType::U32, "MXNet 2.0"), (DType::U64, "MXNet 2.0")];

/// The abilities of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holds {
    /// How a file names its arrays.
    pub names: Names,
    /// Whether a file holds any number of arrays, not one (a BlobProto's diff does not count as an array).
    pub many: bool,
    /// Whether a file can be written from named arrays alone: a NeoML net needs layers, an ONNX model a graph.
    pub from_tensors: bool,
    /// How a file describes the net whose weights it has.
    pub net: Nets,
    /// The files that the arrays lie in.
    pub files: Files,
    /// Whether a diff can stand beside an array.
    pub diffs: bool,
    /// Whether a place without an array has a representation.
    pub nulls: bool,
    /// Whether a file stores sparse arrays as such, not as separate parts.
    pub sparse: bool,
    /// Whether a file begins with a mark that no file of another format has.
    pub mark: bool,
    /// The number of axes that every array has in the file, where that is fixed.
    pub axes: Option<usize>,
    /// How a file stores bf16: as a dtype, as u16, or not at all.
    pub bf16: Bf16,
    /// The dtypes that only later versions of the format's own program know, and since when.
    pub since: &'static [(DType, &'static str)],
    /// The metadata that a file has a place for.
    pub metadata: Keys,
    /// The keys of metadata that say nothing of a file's own: the names of NeoML's seven axes, the framework for which
    /// a safetensors was written.
    pub implied: &'static [&'static str],
    /// Whether a new file takes over the metadata of sources of the same format; elsewhere the receipt alone has these.
    pub inherits: bool,
    /// Whether a file has room for a receipt: text of any length under a key of one's own.
    pub receipt: bool,
    /// Whether arrays lie one after the other, each complete, so that those before a break are whole. (An npz has the
    /// list of members at the end; HDF5 has structure anywhere.)
    pub in_sequence: bool,
    /// How other values get into a file that is there.
    pub refill: Refill,
    /// Whether a symbol file beside a file may describe the net: true of MXNet's own formats, and of the formats that
    /// other tools convert MXNet's files to. Files of Caffe and NeoML describe the net themselves.
    pub symbol: bool,
}

/// How a file names its arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Names {
    /// Any name.
    Any,
    /// `<layer>/<index>`: a layer has a name, each blob a position in the layer.
    Layers,
    /// `@<number>`, which says where an array stands; other names are refused.
    Numbers,
    /// None: an array is known by position, `@0`, and loses any other name.
    None,
}

/// How a file describes the net whose weights it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Nets {
    /// Not at all.
    None,
    /// By the layers, their types and connections: [`Checkpoint::neoml_layers`](crate::Checkpoint::neoml_layers).
    Layers,
    /// In full: [`Checkpoint::net`](crate::Checkpoint::net).
    Read,
    /// As a graph of operators, which is not read: the graph stays as it is.
    Graph,
}

/// The files that the arrays of a format lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Files {
    /// One file.
    One,
    /// One file, or shards to which an index leads.
    Shards,
    /// One file, or others beside, which the file names.
    Beside,
    /// One file, an archive with a member for each array.
    Members,
    /// One file for each array, in a folder.
    Folder,
}

/// How other values get into a file that is there, so that all its other bytes stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refill {
    /// Not at all: a new file is written.
    Never,
    /// In the place of the old ones, as many bytes.
    InPlace,
    /// As Caffe's messages, of which the lengths around the values are written anew.
    Messages,
    /// As NeoML's blobs, in place or with new shapes.
    Blobs,
}

/// How a file stores bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bf16 {
    /// As a separate dtype.
    Own,
    /// As the bits of a u16, because the format has no bf16.
    AsU16,
    /// Not at all: the writer refuses bf16.
    Refused,
}

/// The keys of metadata that a file has a place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keys {
    /// Any key, with any text.
    Any,
    /// These keys alone.
    Only(&'static [&'static str]),
}

impl Names {
    /// Whether a reader finds the arrays' own names.
    #[must_use]
    pub fn are_kept(self) -> bool {
        matches!(self, Self::Any | Self::Layers)
    }
}

impl Keys {
    /// No key at all.
    pub const NONE: Self = Self::Only(&[]);

    /// Whether a key has a place.
    #[must_use]
    pub fn contains(self, key: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(keys) => keys.contains(&key),
        }
    }

    /// Whether the format itself has this key, as a SolverState has `iter`.
    #[must_use]
    pub fn is_own(self, key: &str) -> bool {
        self != Self::Any && self.contains(key)
    }
}

impl Holds {
    /// Any number of named arrays and nothing else: where the other rows start from.
    const NAMED: Self = Self {
        names: Names::Any,
        many: true,
        from_tensors: true,
        net: Nets::None,
        files: Files::One,
        diffs: false,
        nulls: false,
        sparse: false,
        mark: false,
        axes: None,
        bf16: Bf16::Refused,
        since: &[],
        metadata: Keys::NONE,
        implied: &[],
        inherits: false,
        receipt: false,
        in_sequence: true,
        refill: Refill::Never,
        symbol: false,
    };
    /// Named arrays, metadata, a receipt.
    const CARRIER: Self = Self { metadata: Keys::Any, receipt: true, bf16: Bf16::Own, mark: true, ..Self::NAMED };
    /// One array without a name, which is there whole or not at all.
    pub(super) const SINGLE: Self = Self { names: Names::None, many: false, in_sequence: false, ..Self::NAMED };
    const NEOML: Self =
        Self { names: Names::None, axes: Some(7), implied: &["axes"], refill: Refill::Blobs, ..Self::NAMED };

    /// Caffe's messages.
    const MESSAGE: Self = Self { refill: Refill::Messages, ..Self::NAMED };
    /// A message of one array.
    const ONE_MESSAGE: Self = Self { refill: Refill::Messages, ..Self::SINGLE };

    pub(super) const CAFFE_MODEL: Self =
        Self { names: Names::Layers, net: Nets::Read, diffs: true, metadata: Keys::Only(&["name"]), ..Self::MESSAGE };
    pub(super) const BLOB_PROTO: Self = Self { diffs: true, ..Self::ONE_MESSAGE };
    pub(super) const BLOB_PROTO_VECTOR: Self = Self { names: Names::Numbers, diffs: true, ..Self::MESSAGE };
    pub(super) const SOLVER_STATE: Self =
        Self { metadata: Keys::Only(&["iter", "learned_net", "current_step"]), ..Self::BLOB_PROTO_VECTOR };
    pub(super) const DATUM: Self = Self { metadata: Keys::Only(&["label"]), ..Self::ONE_MESSAGE };
    pub(super) const MXNET_LIST: Self = Self {
        nulls: true,
        sparse: true,
        mark: true,
        bf16: Bf16::Own,
        since: &SINCE_MXNET_2,
        symbol: true,
        ..Self::NAMED
    };
    pub(super) const MXNET_RECORD: Self =
        Self { names: Names::None, many: false, in_sequence: false, mark: false, ..Self::MXNET_LIST };
    pub(super) const NEOML_BLOB: Self = Self { many: false, in_sequence: false, ..Self::NEOML };
    pub(super) const NEOML_ARRAY: Self = Self { nulls: true, ..Self::NEOML };
    pub(super) const NEOML_NET: Self =
        Self { names: Names::Layers, net: Nets::Layers, from_tensors: false, ..Self::NEOML };
    pub(super) const ONNX: Self = Self {
        from_tensors: false,
        net: Nets::Graph,
        files: Files::Beside,
        mark: false,
        refill: Refill::InPlace,
        ..Self::CARRIER
    };
    pub(super) const NPY: Self = Self { files: Files::Folder, bf16: Bf16::AsU16, mark: true, ..Self::SINGLE };
    pub(super) const NPZ: Self =
        Self { files: Files::Members, bf16: Bf16::AsU16, in_sequence: false, symbol: true, ..Self::CARRIER };
    pub(super) const HDF5: Self = Self { in_sequence: false, refill: Refill::InPlace, ..Self::CARRIER };
    pub(super) const SAFETENSORS: Self =
        Self { files: Files::Shards, implied: &["format"], inherits: true, symbol: true, ..Self::CARRIER };
}

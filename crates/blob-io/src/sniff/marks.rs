//! The marks that files begin with, in one table: of the formats that are read, and of those that are only named.
//!
//! Formats without a mark are found by structure: in `sniff`, in `foreign`, in each format's folder.

use crate::error::Reason::{self, Archive, Compressed, NotTensors, Unsupported};
use crate::format::Format;

/// The meaning of a mark.
enum Meaning {
    /// A format that is read.
    Own(Format),
    /// A format that is not read: the reason, the kind of such a file, the user's next step.
    Foreign(Reason, &'static str, Option<&'static str>),
}
use Meaning::{Foreign, Own};

/// The offset of a mark, the bytes and the meaning. Sources: each format's own specification or reader; for ncnn,
/// `modelbin.cpp`.
const MARKS: &[(usize, &[u8], Meaning)] = &[
    (0, b"\x12\x01\0\0\0\0\0\0", Own(Format::MxnetList)),
    (0, b"\xC8\xFA\x93\xF9", Own(Format::MxnetRecord)),
    (0, b"\xC9\xFA\x93\xF9", Own(Format::MxnetRecord)),
    (0, b"\xCA\xFA\x93\xF9", Own(Format::MxnetRecord)),
    (0, b"\x89HDF\r\n\x1A\n", Own(Format::Hdf5)),
    (0, b"\x93NUMPY", Own(Format::Npy)),
    // An archive is an npz until the members say otherwise.
    (0, b"PK\x03\x04", Own(Format::Npz)),
    (0, b"PK\x05\x06", Own(Format::Npz)),
    (0, b"\x1F\x8B", Foreign(Compressed, "a gzip file", UNPACK)),
    (0, b"BZh", Foreign(Compressed, "a bzip2 file", UNPACK)),
    (0, b"\xFD7zXZ\0", Foreign(Compressed, "an xz file", UNPACK)),
    (0, b"\x28\xB5\x2F\xFD", Foreign(Compressed, "a zstd file", UNPACK)),
    (0, b"\x04\x22\x4D\x18", Foreign(Compressed, "an LZ4 file", UNPACK)),
    (0, b"7z\xBC\xAF\x27\x1C", Foreign(Archive, "a 7-Zip archive", UNPACK)),
    (0, b"Rar!\x1A\x07", Foreign(Archive, "a RAR archive", UNPACK)),
    (0, b"MATLAB 5.0 MAT-file", Foreign(Unsupported, "a MATLAB file (v5), which blob does not read", SCIPY)),
    (
        0,
        b"MATLAB 7.3 MAT-file",
        Foreign(Unsupported, "a MATLAB file (v7.3, HDF5 inside), which blob does not read", H5PY),
    ),
    (0, b"\xB7\x9C\x04\x05\x4F\x8D\xE5\xF7", Foreign(Unsupported, "a TVM parameter file, not MXNet's", TVM)),
    (0, b"GGUF", Foreign(Unsupported, "a GGUF file", GGUF)),
    (4, b"TFL3", Foreign(Unsupported, "a TensorFlow Lite model", TFLITE)),
    (4, b"ORTM", Foreign(Unsupported, "an ONNX Runtime model", ONNX)),
    (0, b"\x47\x6B\x30\x01", Foreign(Unsupported, "ncnn weights (a .bin of half floats)", NCNN_HELP)),
    (0, b"\x38\x4B\x0D\x00", Foreign(Unsupported, "ncnn weights (a .bin of 8-bit integers)", NCNN_HELP)),
    (0, b"\x56\xC0\x02\x00", Foreign(Unsupported, "ncnn weights (a .bin)", NCNN_HELP)),
    (0, b"\x04\0\0\0\x01\0\0\0\x03\0\0\0V 1", Foreign(Unsupported, "a Torch7 file (.t7)", TORCH7_HELP)),
    (0, b"4\n1\n3\nV 1\n", Foreign(Unsupported, "a Torch7 file (.t7, ASCII)", TORCH7_HELP)),
    (
        0,
        b"\xDD\x85\x76\0",
        Foreign(NotTensors, "an ncnn network's description (binary .param), not its weights", NCNN_BIN),
    ),
    (0, b"7767517\n", Foreign(NotTensors, "an ncnn network's description (.param), not its weights", NCNN_BIN)),
    (0, b"\x0A\x23\xD7\xCE", Foreign(NotTensors, "an MXNet RecordIO file (a data set), not weights", WEIGHTS)),
    (16, b"\xDE\xC0\xEF\xBE", Foreign(NotTensors, "an LMDB database (a data set), not weights", WEIGHTS)),
    (0, b"\x89PNG\r\n", Foreign(NotTensors, "a PNG image", WEIGHTS)),
    (0, b"\xFF\xD8\xFF", Foreign(NotTensors, "a JPEG image", WEIGHTS)),
    (0, b"GIF8", Foreign(NotTensors, "a GIF image", WEIGHTS)),
    (0, b"%PDF-", Foreign(NotTensors, "a PDF document", WEIGHTS)),
    (0, b"\x7FELF", Foreign(NotTensors, "an ELF program", WEIGHTS)),
    (
        0,
        b"\0\0\0\0\0\0\x01\x12",
        Foreign(Unsupported, "an MXNet list of a big-endian machine, which MXNet itself cannot read either", None),
    ),
];

pub(super) const UNPACK: Option<&str> = Some("unpack it first and open the file inside");
/// A file that never holds weights.
pub(super) const WEIGHTS: Option<&str> =
    Some("look for the file of weights: a .caffemodel, .params, .cnnarch, .h5, .npz or .safetensors");
const NCNN_BIN: Option<&str> = Some("the weights lie in the .bin file beside it, which blob does not read");
pub(super) const NCNN_HELP: Option<&str> = Some("the names and shapes stand in the .param file beside it");
pub(super) const TORCH7_HELP: Option<&str> = Some("in Python, torchfile reads it");
const SCIPY: Option<&str> = Some("in Python, scipy.io.loadmat reads it, and numpy.savez writes what blob reads");
const H5PY: Option<&str> = Some("in Python, h5py reads it, and numpy.savez writes what blob reads");
const TVM: Option<&str> = Some("load it with tvm.runtime.load_param_dict");
const GGUF: Option<&str> = Some("in Python, gguf.GGUFReader reads it, and numpy.savez writes what blob reads");
const TFLITE: Option<&str> = Some("in Python, tf.lite.Interpreter reads it, and numpy.savez writes what blob reads");
const ONNX: Option<&str> = Some("take the ONNX model that it was made of");

/// The format that is read, by the mark.
pub(super) fn own(head: &[u8]) -> Option<Format> {
    match kind(head)? {
        Own(format) => Some(*format),
        Foreign(..) => None,
    }
}

/// Why a file is not read, by the mark of another format: the reason, the kind of file, the user's next step.
pub(super) fn foreign(head: &[u8]) -> Option<(Reason, &'static str, Option<&'static str>)> {
    match kind(head)? {
        Foreign(reason, what, help) => Some((*reason, *what, *help)),
        Own(_) => None,
    }
}

fn kind(head: &[u8]) -> Option<&'static Meaning> {
    let mut marks = MARKS.iter();
    let found = marks.find(|(at, mark, _)| head.get(*at..).is_some_and(|bytes| bytes.starts_with(mark)));
    found.map(|(.., kind)| kind)
}

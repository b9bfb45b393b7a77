//! The format of an output by its name.

use std::path::Path;

use blob_io::{Format, Nets};

use super::sink::is_stdout;
use crate::args::is_written;
use crate::failure::Failure;

/// The names of the formats that can be written from tensors alone.
fn written_formats() -> Vec<&'static str> {
    Format::ALL.iter().filter(|f| is_written(**f)).map(|f| f.name()).collect()
}

/// The format `to`, or else the one that the file's extension implies.
pub(crate) fn format_of(path: &Path, to: Option<Format>) -> Result<Format, Failure> {
    if to.is_none() && is_stdout(path) {
        let failure = Failure::new("-o - needs --to, because standard output has no extension");
        return Err(failure.help(format!("formats: {}", written_formats().join(", "))));
    }
    // None of these commands has a graph, which an ONNX model needs around its tensors.
    to.or_else(|| Format::of_path(path).filter(|format| format.holds().net != Nets::Graph))
        .ok_or_else(|| no_format(path, &written_formats()))
}

/// The failure for an output whose name does not imply a format. `formats` are the names that --to takes.
pub(crate) fn no_format(path: &Path, formats: &[&str]) -> Failure {
    let name = path.display();
    let Some(extension) = path.extension() else {
        let failure = Failure::new(format!("{name}: a name without an extension does not say what to write"));
        return failure.help(format!("name a format with --to: {}; a folder's name ends with /", formats.join(", ")));
    };
    let failure = Failure::new(format!("{name}: blob writes no .{} files", extension.display()));
    match instead(&extension.to_string_lossy(), |format| formats.contains(&format.name())) {
        Some(Instead { write, reader, .. }) => {
            // `net.safetensors.pt` has the name already.
            let stem = path.with_extension("");
            let named =
                if stem.extension().is_some_and(|has| has == *write) { stem } else { path.with_extension(write) };
            failure.help(format!("write {}, which {reader}", named.display()))
        }
        None => failure.help(format!("name a format with --to: {}", formats.join(", "))),
    }
}

/// The file to write in place of one with this extension, which is not written.
pub(crate) fn instead(extension: &str, is_written: impl Fn(Format) -> bool) -> Option<&'static Instead> {
    let extension = extension.to_ascii_lowercase();
    let mut instead = INSTEAD.iter().filter(|other| other.of.contains(&&*extension));
    instead.find(|other| Format::from_extension(other.write).is_some_and(&is_written))
}

/// A file to write in place of one that is not written.
pub(crate) struct Instead {
    /// The extensions that are not written.
    of: &'static [&'static str],
    pub(crate) write: &'static str,
    /// Who reads it.
    pub(crate) reader: &'static str,
}

const INSTEAD: [Instead; 5] = [
    Instead {
        of: &["pt", "pth", "bin", "ckpt"],
        write: "safetensors",
        reader: "PyTorch loads with safetensors.torch.load_file",
    },
    Instead {
        of: &["onnx", "trt", "engine"],
        write: "safetensors",
        reader: "holds the weights; ONNX holds the net, too",
    },
    Instead { of: &["keras", "hdf", "tflite", "pb", "tf"], write: "h5", reader: "h5py and Keras read" },
    Instead { of: PICKLES, write: "npz", reader: "NumPy loads without running code from it" },
    Instead { of: PICKLES, write: "npy", reader: "NumPy loads without running code from it" },
];

const PICKLES: &[&str] = &["mat", "pkl", "pickle", "msgpack"];

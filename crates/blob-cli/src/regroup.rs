//! A new file from the tensors of several open ones, for `merge`; and the format of an output by its name.
//!
//! `blob_convert::regroup` decides the names.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use blob_convert::regroup::{Taken, receipt};
use blob_core::DType;
use blob_io::{
    Bf16, Checkpoint, Error, Format, IfExists, Keys, Kind, Output, Remedy, Sparse, Tensor, TensorName, Writer,
};

use crate::args::is_written;
use crate::failure::{Failure, help};
use crate::output::sink::is_stdout;
use crate::units;

/// At most this many warnings are printed one by one.
const MAX_LISTED: usize = 20;

/// A file to be written: its tensors with their names.
pub(crate) struct File<'a> {
    pub(crate) path: PathBuf,
    pub(crate) tensors: Vec<(String, Taken<'a>)>,
    receipt: Option<(String, String)>,
}

/// A sparse array whose parts are among the tensors of a file.
struct SparseArray<'a> {
    name: String,
    sparse: &'a Sparse,
    /// The index of each part among the file's tensors.
    found: HashMap<Kind, usize>,
    /// The same indices in the order in which the parts are written.
    parts: Vec<usize>,
}

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
    let extension = || path.extension().and_then(|e| e.to_str()).and_then(Format::from_extension);
    to.or_else(extension).ok_or_else(|| no_format(path, &written_formats()))
}

/// The failure for an output whose name does not imply a format. `formats` are the names that --to takes.
pub(crate) fn no_format(path: &Path, formats: &[&str]) -> Failure {
    let name = path.display();
    let Some(extension) = path.extension() else {
        let failure = Failure::new(format!("{name}: a name without an extension does not say what to write"));
        return failure.help(format!("name a format with --to: {}; a folder's name ends with /", formats.join(", ")));
    };
    let failure = Failure::new(format!("{name}: blob writes no .{} files", extension.display()));
    let extension = extension.to_string_lossy().to_ascii_lowercase();
    let is_written = |format: Format| formats.contains(&format.name());
    let mut instead = INSTEAD.iter().filter(|other| other.of.contains(&&*extension));
    match instead.find(|other| Format::from_extension(other.write).is_some_and(is_written)) {
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

/// A file to write in place of one that is not written.
struct Instead {
    /// The extensions that are not written.
    of: &'static [&'static str],
    write: &'static str,
    /// Who reads it.
    reader: &'static str,
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

impl<'a> File<'a> {
    /// A file of these tensors of open files.
    ///
    /// # Errors
    /// No tensors; a format that has no room to tell their dtypes.
    pub(crate) fn of(
        path: &Path,
        tensors: Vec<(String, Taken<'a>)>,
        sources: &[&Checkpoint],
        to: Format,
    ) -> Result<Self, Failure> {
        if tensors.is_empty() {
            let sources: Vec<&str> = sources.iter().map(|source| source.name()).collect();
            return Err(Failure::new(format!("{}: there are no tensors, and nothing to write", sources.join(", "))));
        }
        let dtypes = tensors.iter().map(|(name, tensor)| (&**name, tensor.dtype()));
        let receipt = receipt(sources, dtypes, to).map_err(|why| Failure::new(format!("{}: {why}", path.display())))?;
        Ok(Self { path: path.to_owned(), tensors, receipt })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.tensors.iter().map(|(_, tensor)| tensor.entry().byte_len()).sum()
    }

    /// Whether the file is standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        is_stdout(&self.path)
    }

    /// Refuses an output that is one of the sources or cannot be written, and sparse arrays with the names of others.
    pub(crate) fn check(&self, sources: &[&Checkpoint], to: Format, if_exists: IfExists) -> Result<(), Failure> {
        self.check_names(to)?;
        for checkpoint in sources {
            blob_convert::check_source(checkpoint, &self.path, if_exists)?;
        }
        if self.is_stdout() { Ok(()) } else { Ok(Output::check(&self.path, if_exists)?) }
    }

    fn check_names(&self, to: Format) -> Result<(), Failure> {
        let names: HashSet<&str> = self.tensors.iter().map(|(name, _)| &**name).collect();
        let arrays = if to.is_mxnet() { self.sparse_arrays() } else { Vec::new() };
        match arrays.iter().find(|array| names.contains(&*array.name)) {
            Some(array) => {
                let message = format!("{}: two tensors would be called {:?}", self.path.display(), array.name);
                Err(Failure::new(message))
            }
            None => Ok(()),
        }
    }

    /// The sparse arrays whose parts are all in this file.
    fn sparse_arrays(&self) -> Vec<SparseArray<'a>> {
        let mut arrays: Vec<SparseArray<'a>> = Vec::new();
        let mut indices: HashMap<*const Sparse, usize> = HashMap::new();
        for (part, (name, tensor)) in self.tensors.iter().enumerate() {
            let Some((entry, sparse)) = tensor.entry().sparse().map(|sparse| (tensor.entry(), sparse)) else {
                continue;
            };
            let index = *indices.entry(sparse).or_insert(arrays.len());
            if index == arrays.len() {
                // A merge may have renamed the tensor; the array gets the new name without the part's suffix.
                let suffix = entry.name().strip_prefix(&*sparse.name).unwrap_or_default();
                let name = name.strip_suffix(suffix).unwrap_or(name).to_owned();
                arrays.push(SparseArray { name, sparse, found: HashMap::new(), parts: Vec::new() });
            }
            arrays[index].found.insert(entry.kind(), part);
        }
        arrays.retain_mut(|array| {
            let kinds = array.sparse.kind.parts();
            array.parts = kinds.iter().filter_map(|kind| array.found.get(kind).copied()).collect();
            array.parts.len() == kinds.len()
        });
        arrays
    }

    /// The length of the file that is written.
    pub(crate) fn file_len(&self, to: Format) -> Result<u64, Error> {
        self.writer(to).file_len(&self.path)
    }

    /// Writes the file, unless a source has changed meanwhile.
    pub(crate) fn write(&self, sources: &[&Checkpoint], to: Format, if_exists: IfExists) -> Result<(), Error> {
        let mut output = if self.is_stdout() { Output::stdout() } else { Output::create(&self.path, if_exists)? };
        self.writer(to).write_to(&mut output)?;
        let written = output.complete()?;
        self.writer(to).check(&written)?;
        sources.iter().try_for_each(|source| source.unchanged())?;
        written.publish()
    }

    fn writer(&self, to: Format) -> Writer<'_> {
        let mut writer = Writer::new(to);
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        for (name, tensor) in &self.tensors {
            let name = if is_nameless(to) {
                numbered(name, tensor.entry().kind() == Kind::Diff, &mut numbers)
            } else {
                name.clone()
            };
            writer = writer.tensor(name, tensor);
        }
        for array in self.sparse_arrays() {
            writer = writer.sparse(array.name, array.sparse.kind, array.sparse.shape.clone(), &array.parts);
        }
        match &self.receipt {
            Some((key, text)) => writer.metadata(key, text),
            None => writer,
        }
    }
}

/// The failure of a format that cannot hold a tensor, with help.
pub(crate) fn refused(e: Error) -> Failure {
    match &e {
        Error::Misfit { remedy: Some(Remedy::NoDiffs), .. } => {
            Failure::from(e).help("`blob convert` leaves the diffs out with --strip-diff; then take what it wrote")
        }
        Error::Misfit { remedy: Some(Remedy::OtherName | Remedy::OtherFolder), .. } => Failure::from(e),
        Error::Misfit { remedy: Some(_), .. } => {
            let help = help(&e).unwrap_or_default();
            Failure::from(e).help(format!("write safetensors, and convert that with `blob convert`: {help}"))
        }
        _ => Failure::from(e),
    }
}

/// Warnings about what is lost: data of the sources that the output format cannot hold.
pub(crate) fn losses(sources: &[&Checkpoint], file: &File<'_>, to: Format) -> Vec<String> {
    let mut losses = Vec::new();
    for source in sources {
        let count = |kind| source.entries().iter().filter(|entry| entry.kind() == kind).count() as u64;
        for (n, what, becomes) in [
            (count(Kind::None), "place without an array", "left out"),
            (if to.is_mxnet() { 0 } else { count(Kind::Values) }, "sparse array", "written in parts"),
        ] {
            if n > 0 {
                let (noun, are) = (units::plural(n, what), if n == 1 { "is" } else { "are" });
                losses.push(format!("{}: {noun} {are} {becomes}", source.name()));
            }
        }
    }
    let is_unsaid = !to.holds().receipt;
    losses.extend(sources.iter().filter(|_| is_unsaid).filter_map(|source| blob_convert::unsaid(source)));
    let is_named = |(name, _): &&(String, Taken<'_>)| !name.starts_with('@');
    let named = file.tensors.iter().filter(is_named).count() as u64;
    if named > 0 && is_nameless(to) {
        losses.push(format!(
            "the names of {} are not stored: a {} has none",
            units::plural(named, "tensor"),
            to.name()
        ));
    }
    let is_bf16 = |(_, tensor): &&(String, Taken<'_>)| tensor.dtype() == DType::BF16;
    let bf16 = file.tensors.iter().filter(is_bf16).count() as u64;
    if bf16 > 0 && to.holds().bf16 == Bf16::AsU16 {
        let tensors = units::plural(bf16, "bf16 tensor");
        losses.push(format!("the bits of {tensors} are stored as u2: NumPy has no bfloat16"));
    }
    losses
}

/// Whether the format is a Caffe message whose blobs have positions but no names.
fn is_nameless(format: Format) -> bool {
    let holds = format.holds();
    format.is_caffe() && !holds.names.are_kept() && holds.metadata == Keys::NONE
}

/// The positional name of a tensor in a format without names. A diff has its blob's number.
fn numbered<'n>(name: &'n str, is_diff: bool, numbers: &mut HashMap<&'n str, usize>) -> String {
    let blob = TensorName::of(name).diffed().filter(|_| is_diff);
    if let Some(number) = blob.and_then(|blob| numbers.get(blob)) {
        return TensorName::diff_of(&format!("@{number}"));
    }
    let number = numbers.len();
    numbers.insert(name, number);
    format!("@{number}")
}

/// The first lines, then the number of the others.
pub(crate) fn abridged(lines: &[String]) -> String {
    let more = match lines.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    lines[..lines.len().min(MAX_LISTED)].join("; ") + &more
}

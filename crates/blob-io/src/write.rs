//! Writes tensors to a file in one call, through `Layout` and `Output`, from beginning to end on one thread. A program
//! that reads its source once, hashes, and places bytes by several threads uses the layout itself.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;

use blob_core::Shape;

use crate::caffe::{BlobForm, Message};
use crate::entry::SparseKind;
use crate::error::Error;
use crate::expected::Wanted;
use crate::format::{Files, Format, Keys};
use crate::hdf5;
use crate::layout::{Details, Layout};
use crate::limits::Limits;
use crate::mxnet::{List, Version};
use crate::neoml;
use crate::output::{IfExists, Output};
use crate::spec::TensorSpec;
use crate::tensor::Tensor;

/// Named tensors that one call writes to a file: blobs (data without diffs), tensors of an open file, types of your
/// own.
///
/// ```no_run
/// use blob_core::{AnyBlob, DType, Shape};
/// use blob_io::{Checkpoint, Format, IfExists, Writer};
///
/// let weight = AnyBlob::new(Shape::new([8, 3, 3, 3])?, DType::F32)?;
/// let old = Checkpoint::open("old.caffemodel")?;
/// let bias = old.tensor(old.entry("conv1/1").unwrap())?;
/// Writer::new(Format::Safetensors)
///     .tensor("conv1.weight", &weight)
///     .tensor("conv1.bias", &bias)
///     .metadata("license", "MIT")
///     .write("net.safetensors", IfExists::Refuse)?;
/// # Ok::<(), blob_io::Error>(())
/// ```
#[must_use]
pub struct Writer<'a> {
    format: Format,
    tensors: Vec<(String, &'a dyn Tensor)>,
    sparse: Vec<Whole>,
    metadata: Vec<(String, String)>,
}

/// A sparse array, with the indices of the tensors that are the array's parts.
struct Whole {
    name: String,
    kind: SparseKind,
    shape: Shape,
    parts: Vec<usize>,
}

impl<'a> Writer<'a> {
    /// A file of this format, without tensors yet. `npy`, a bare MXNet record and a NeoML blob take exactly one; these,
    /// an array of NeoML blobs and MXNet's lists, which are of V2, take no metadata. For the tensors and metadata of
    /// Caffe's messages see [`Message::named`]. An HDF5 file has Caffe's form if [`hdf5::Form::of_name`] finds that
    /// form in the file's name.
    pub fn new(format: Format) -> Self {
        Self { format, tensors: Vec::new(), sparse: Vec::new(), metadata: Vec::new() }
    }

    /// Adds a tensor.
    pub fn tensor(mut self, name: impl Into<String>, tensor: &'a dyn Tensor) -> Self {
        self.tensors.push((name.into(), tensor));
        self
    }

    /// Declares tensors, by index in the order of adding, as the parts of a sparse array of this dense shape, in the
    /// order of [`SparseKind::parts`]. An MXNet file stores the parts as one array of this name, other formats as
    /// separate tensors.
    pub fn sparse(mut self, name: impl Into<String>, kind: SparseKind, shape: Shape, parts: &[usize]) -> Self {
        self.sparse.push(Whole { name: name.into(), kind, shape, parts: parts.to_vec() });
        self
    }

    /// Adds a key and a value to the file's metadata.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Writes the file, which appears under the target's name when complete; see [`Output`].
    ///
    /// # Errors
    /// [`Error::Request`] where the format cannot hold the tensors, or a tensor gives more or fewer bytes than dtype
    /// and shape say, or other bytes when npz reads the tensor again; [`Error::Exists`]; [`Error::Io`]; the errors of a
    /// tensor's own reader.
    pub fn write(&self, path: impl AsRef<Path>, if_exists: IfExists) -> Result<(), Error> {
        let path = path.as_ref();
        let (specs, layout) = self.planned(path)?;
        let mut output = Output::create(path, if_exists)?;
        self.fill(&specs, &layout, &mut output)?;
        let complete = output.complete()?;
        let wanted = specs.iter().zip(layout.offsets());
        let wanted = wanted.map(|(spec, offset)| Wanted { spec, offset: Some(*offset) });
        complete.check(self.format, wanted, false, &Limits::default())?;
        complete.publish()
    }

    fn planned(&self, path: &Path) -> Result<(Vec<TensorSpec>, Layout), Error> {
        let file = path.display().to_string();
        let specs =
            self.tensors.iter().map(|(name, tensor)| Ok(TensorSpec::new(name, tensor.dtype(), tensor.shape()?)));
        let specs: Vec<TensorSpec> = specs.collect::<Result<_, Error>>()?;
        let layout = self.layout(path, &file, &specs).map_err(|e| e.about(&file))?;
        Ok((specs, layout))
    }

    fn fill(&self, specs: &[TensorSpec], layout: &Layout, output: &mut Output) -> Result<(), Error> {
        let file = output.name().to_owned();
        let bytes_of = |i: usize, sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>| {
            let (name, tensor) = &self.tensors[i];
            pieces(&file, name, *tensor, specs[i].byte_len(), sink)
        };
        let mut crcs = Vec::new();
        if layout.wants_crc() {
            for i in 0..self.tensors.len() {
                let mut hasher = crc32fast::Hasher::new();
                bytes_of(i, &mut |bytes| {
                    hasher.update(bytes);
                    Ok(())
                })?;
                crcs.push(hasher.finalize());
            }
        }
        output.set_len(layout.len())?;
        let frame = layout.frame(&self.metadata, &crcs)?;
        layout.in_order(
            frame,
            |bytes| output.write_all(bytes),
            |i, put| {
                let mut hasher = crc32fast::Hasher::new();
                bytes_of(i, &mut |bytes| {
                    if layout.wants_crc() {
                        hasher.update(bytes);
                    }
                    put(bytes)
                })?;
                // The file stores the first checksum, so other bytes would break the file.
                if crcs.get(i).is_some_and(|first| *first != hasher.finalize()) {
                    let message = format!("tensor {:?} gave other bytes when it was read again", self.tensors[i].0);
                    return Err(Error::Request { file: file.clone(), message });
                }
                Ok(())
            },
            // A new file copies nothing.
            |_, _| Ok(()),
        )
    }

    fn layout(&self, path: &Path, file: &str, specs: &[TensorSpec]) -> Result<Layout, Error> {
        let refuse = |message: String| Err(Error::Request { file: file.to_owned(), message });
        let format = self.format;
        if !format.holds().from_tensors {
            return refuse(format!("{} files are read, not written", format.title()));
        }
        if !self.metadata.is_empty() && format.holds().metadata == Keys::NONE && !format.is_caffe() {
            let file = if format.is_mxnet() {
                "an MXNet file"
            } else if format.is_neoml() {
                "a NeoML file"
            } else {
                "an npy file"
            };
            return refuse(format!("{file} has no place for metadata"));
        }
        if format.holds().files == Files::Folder && specs.len() != 1 {
            return refuse(format!("an npy file holds one array, not {}; npz holds many", specs.len()));
        }
        Layout::of(format, specs, &Described { writer: self, path })
    }

    /// The list that MXNet 1 would save for the tensors. A sparse array is at the position of the first part.
    fn list(&self, specs: &[TensorSpec]) -> List {
        let mut list = List::new(Version::V2);
        let mut wholes: HashMap<usize, &Whole> = HashMap::new();
        for whole in &self.sparse {
            wholes.extend(whole.parts.iter().map(|part| (*part, whole)));
        }
        for (tensor, spec) in specs.iter().enumerate() {
            match wholes.get(&tensor) {
                None => list.push(&spec.name, tensor),
                Some(whole) if whole.parts.iter().min() == Some(&tensor) => {
                    list.push_sparse(&whole.name, whole.kind, whole.shape.clone(), &whole.parts);
                }
                Some(_) => {}
            }
        }
        list
    }
}

/// The rest of a writer's file, besides the tensors.
struct Described<'w, 'a> {
    writer: &'w Writer<'a>,
    path: &'w Path,
}

impl Details for Described<'_, '_> {
    fn metadata(&self) -> Result<Cow<'_, [(String, String)]>, Error> {
        Ok(Cow::Borrowed(&self.writer.metadata))
    }

    fn hdf5_form(&self) -> hdf5::Form {
        hdf5::Form::of_name(self.path).unwrap_or(hdf5::Form::Datasets)
    }

    fn message(&self, specs: &[TensorSpec]) -> Result<(Message, BlobForm), Error> {
        let Writer { format, tensors, metadata, .. } = self.writer;
        let message = Message::named(*format, specs.iter().map(|spec| &*spec.name), metadata)?;
        Ok((message.with_types(|tensor| tensors[tensor].1.layer_type()), BlobForm::default()))
    }

    fn list(&self, specs: &[TensorSpec]) -> Result<List, Error> {
        Ok(self.writer.list(specs))
    }

    fn archive(&self, specs: &[TensorSpec]) -> Result<neoml::Archive, Error> {
        Ok(if self.writer.format.holds().many { neoml::Archive::array(specs.len()) } else { neoml::Archive::blob() })
    }
}

/// Calls `sink` with a tensor's bytes in pieces; all pieces together must have `len` bytes.
fn pieces(
    file: &str,
    name: &str,
    tensor: &dyn Tensor,
    len: u64,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut reader = tensor.reader()?;
    let mut done = 0;
    loop {
        let n = match reader.fill_buf() {
            Ok(bytes) => {
                done += bytes.len() as u64;
                if done > len || bytes.is_empty() && done < len {
                    let found = if done > len { "more" } else { &done.to_string() };
                    let message = format!("tensor {name:?} gave {found} bytes; its dtype and shape say {len}");
                    return Err(Error::Request { file: file.to_owned(), message });
                }
                sink(bytes)?;
                bytes.len()
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => {
                // A reader of this crate wraps this crate's error.
                return Err(e.downcast::<Error>().unwrap_or_else(|source| {
                    let action = format!("read tensor {name:?}");
                    Error::Io { file: file.to_owned(), action, source }
                }));
            }
        };
        if n == 0 {
            return Ok(());
        }
        reader.consume(n);
    }
}

impl fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.tensors.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Writer").field("format", &self.format).field("tensors", &names).finish_non_exhaustive()
    }
}

//! An open file: the format, the entries, and the way to each array's bytes.
//!
//! Relies on `sniff` for the format and on each format's `read` for the entries; leaves the bytes to `payload`.

mod bare;
mod beside;
mod lazy;
mod lookup;
mod noted;
mod open;
mod opened;
mod packed;
mod parameters;
mod read;
mod reader;
mod salvage;
mod scratch;
mod sparse;
mod stop;
mod stored;

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use blob_core::AnyBlob;

use crate::entry::{Entry, Kind, subject};
use crate::error::{Error, Fault};
use crate::format::{Format, Nets};
use crate::limits::Limits;
use crate::mxnet::{self, record::NoAxes};
use crate::net::Net;
use crate::npz::archive;
use crate::payload::{self, Elements, member};
use crate::spec::TensorSpec;
use crate::warning::{Flag, Warning};
use crate::wire::cursor::Cursor;
use crate::wire::source::{Bytes, Input, Source};
use crate::{caffe, hdf5, neoml};
use beside::Home;
use lookup::Lookup;
pub use open::OpenOptions;
use packed::Packed;
pub(crate) use packed::split_at_file;
pub use reader::Reader;
pub use stored::StoredTensor;

/// An open file: the entries, known from headers alone, and the way to the bytes of each.
#[derive(Debug)]
pub struct Checkpoint {
    name: String,
    format: Format,
    dialect: String,
    form: Option<hdf5::Form>,
    entries: Vec<Entry>,
    lookup: Lookup,
    warnings: Vec<Warning>,
    faults: Vec<Fault>,
    metadata: Vec<(String, String)>,
    positions: usize,
    limits: Limits,
    input: Input,
    /// The file that `input` was unpacked from, or is a member of.
    packed: Option<Packed>,
    /// The file on the disk that is read, if there is one.
    path: Option<PathBuf>,
    home: Home,
    shards: Vec<String>,
    /// The length of an ONNX model whose values are in other files, which `input` has behind the model.
    model_len: Option<u64>,
    /// Set for a file that ends too early and was opened nevertheless: why reading stopped, and in which layer or
    /// record.
    broken: Option<Box<Fault>>,
    /// Whether the whole arrays are taken for all that there is.
    is_salvaged: bool,
    /// Of a file that was just written: whether each tensor, in order, is as planned, so that no entry tells of it.
    pub(crate) as_planned: Vec<bool>,
}

impl Checkpoint {
    /// Opens a file and lists the arrays, reading headers only.
    ///
    /// # Errors
    /// A file that cannot be read, is no tensor file, or whose framing is broken. A fault inside a single array is that
    /// entry's [`Entry::fault`], and loading the array fails.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        OpenOptions::new().open(path)
    }

    /// Opens bytes in memory. Errors call the bytes `name`; the extension in `name` is a hint of the format.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_bytes(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Result<Self, Error> {
        Self::from_source(name, Box::new(Bytes(bytes.into())))
    }

    /// Opens bytes from any [`Source`]. Errors call the source `name`; the extension in `name` is a hint of the format.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_source(name: impl Into<String>, source: Box<dyn Source>) -> Result<Self, Error> {
        OpenOptions::new().open_source(name, source)
    }

    /// The format.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The format's generation or dialect in words (`V2 layers`), empty where there is only one.
    #[must_use]
    pub fn dialect(&self) -> &str {
        &self.dialect
    }

    /// How the datasets of an HDF5 file are arranged; `None` for other formats.
    #[must_use]
    pub fn hdf5_form(&self) -> Option<hdf5::Form> {
        self.form
    }

    /// The arrays, in the order of the file.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The file with the arrays at these places in [`Checkpoint::entries`] alone.
    #[must_use]
    pub fn only(mut self, places: &[usize]) -> Self {
        let kept: HashSet<usize> = places.iter().copied().collect();
        let mut places = 0..;
        self.entries.retain(|_| places.next().is_some_and(|place| kept.contains(&place)));
        self.lookup = Lookup::default();
        self
    }

    /// The array of this name, if there is one. The first call sorts the names; each call takes logarithmic time.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.place(name).map(|place| &self.entries[place])
    }

    /// The place in [`entries`](Self::entries) of the array of this name; cost as of [`entry`](Self::entry).
    #[must_use]
    pub fn place(&self, name: &str) -> Option<usize> {
        self.lookup.find(name, self.entries.len(), |place| self.entries[place].name())
    }

    /// The names of the arrays, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(Entry::name)
    }

    /// The unusual in the file as a whole, where the meaning is clear nevertheless.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The faults of the file although every array can be loaded: bytes after the tensors of a safetensors file,
    /// which the reference reader refuses; broken blobs that Caffe ignores. The first twenty.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// The file's words about itself, as (key, value): a net's name, a solver's iteration.
    #[must_use]
    pub fn metadata(&self) -> &[(String, String)] {
        &self.metadata
    }

    /// How many layers or records the file has, with arrays or without.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// The limits that the file was opened with.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The array's name, dtype and shape, for writing the array to another file.
    ///
    /// # Errors
    /// Why the array cannot be loaded: [`Entry::fault`], a dtype that blobs do not have, an entry that holds no array.
    pub fn spec(&self, entry: &Entry) -> Result<TensorSpec, Error> {
        Ok(TensorSpec::new(entry.name(), entry.loadable(&self.name)?, entry.shape.clone()))
    }

    /// All that an MXNet file stores besides the values of arrays, for writing the same file again; `None` for other
    /// formats. The list's tensors are the entries that hold an array, in the order of the file.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn mxnet_list(&self) -> Result<Option<mxnet::List>, Error> {
        if !self.format.is_mxnet() {
            return Ok(None);
        }
        let no_axes = if self.entries.iter().any(|entry| entry.flags.has(Flag::RecoveredScalar)) {
            NoAxes::Scalar
        } else {
            NoAxes::None
        };
        let list = mxnet::List::read(&self.input, self.positions as u64, !self.format.holds().many, no_axes);
        list.map(Some).map_err(|e| e.into_error(&self.name))
    }

    /// All that a NeoML file stores besides the values of arrays, for writing the same file again; `None` for other
    /// formats. The archive's tensors are the entries that hold an array, in the order of the file.
    ///
    /// # Errors
    /// As [`Checkpoint::open`]; a file with over 64 MiB besides the arrays.
    pub fn neoml_archive(&self) -> Result<Option<neoml::Archive>, Error> {
        let archive = neoml::Archive::read(&self.input, self.format, &self.limits);
        archive.map_err(|e| e.into_error(&self.name))
    }

    /// The layers of a NeoML net, in the order of the file, with arrays or without; none in other formats.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn neoml_layers(&self) -> Result<Vec<neoml::Layer>, Error> {
        if self.format.holds().net != Nets::Layers {
            return Ok(Vec::new());
        }
        let layers = neoml::net::links(&mut Cursor::new(&self.input), &self.limits);
        layers.map_err(|e| e.into_error(&self.name))
    }

    /// The description of the net whose weights the file holds, with the entries' names for tensors. Only Caffe's files
    /// of weights have a description; `None` for all others.
    ///
    /// # Errors
    /// As [`Checkpoint::open`]; a net of more than 65,536 layers, or with more settings than [`Limits::max_alloc`] or
    /// 32 MiB of text.
    pub fn net(&self) -> Result<Option<Net>, Error> {
        if self.format.holds().net != Nets::Read || self.broken.is_some() {
            return Ok(None);
        }
        let net = caffe::net::read(&mut Cursor::new(&self.input), &self.entries, &self.limits);
        net.map(Some).map_err(|e| e.into_error(&self.name))
    }

    /// Loads an array into a blob of the same shape and dtype. The diff, if one is stored, is left out.
    ///
    /// # Errors
    /// [`Entry::fault`] as an error; bytes that do not match the stored checksum; an entry without elements; errors of
    /// reading and allocating.
    pub fn load(&self, entry: &Entry) -> Result<AnyBlob, Error> {
        payload::load(&self.input, &self.name, entry, None, &self.limits)
    }

    /// Loads a Caffe blob's data together with the diff, where one is stored.
    ///
    /// # Errors
    /// As [`Checkpoint::load`]; a diff of another dtype than the data; an entry that is not data.
    pub fn load_pair(&self, entry: &Entry) -> Result<AnyBlob, Error> {
        if entry.kind != Kind::Data {
            return Err(entry.refused(&self.name, "is not a blob's data"));
        }
        payload::load(&self.input, &self.name, entry, self.diff_of(entry), &self.limits)
    }

    /// The entry of the diff that belongs to a data entry, where one is stored.
    #[must_use]
    pub fn diff_of(&self, entry: &Entry) -> Option<&Entry> {
        let key = (entry.position, entry.index);
        let from = self.entries.partition_point(|e| (e.position, e.index) < key);
        self.entries[from..].iter().take_while(|e| (e.position, e.index) == key).find(|e| e.kind == Kind::Diff)
    }

    /// The array's bytes, row-major and little-endian: borrowed where the source has the array in memory in one plain
    /// run, otherwise read into a buffer. A borrowed view need not be aligned to the element. If the file stores a
    /// checksum of the array, each call compares the checksum, also for a borrowed view, and so reads the whole array.
    ///
    /// # Errors
    /// As [`Checkpoint::load`].
    pub fn view(&self, entry: &Entry) -> Result<Cow<'_, [u8]>, Error> {
        entry.loadable(&self.name)?;
        if let (true, [run], Some(bytes)) = (entry.is_plain(), entry.segments(), self.input.bytes()) {
            let at = usize::try_from(run.offset).ok();
            let end = at.and_then(|at| at.checked_add(usize::try_from(entry.byte_len()).ok()?));
            let view = at.zip(end).and_then(|(at, end)| bytes.get(at..end));
            if let Some(checksum) = entry.checksum.as_deref() {
                member::check(bytes, checksum).map_err(|e| entry.error(&self.name, e))?;
            }
            return view.map(Cow::Borrowed).ok_or_else(|| entry.refused(&self.name, "is not of this file"));
        }
        let mut reader = self.reader(entry)?;
        let len = entry.byte_len() as usize;
        let mut out = Vec::new();
        out.try_reserve_exact(len).map_err(|_| Error::Memory {
            file: self.name.clone(),
            message: format!("{} needs {len} bytes of memory", subject(entry)),
        })?;
        out.resize(len, 0);
        reader.pull(&mut out)?;
        Ok(Cow::Owned(out))
    }

    /// The array's bytes as a reader: row-major, little-endian, read on demand.
    ///
    /// ```
    /// use std::io::Read;
    ///
    /// # let file = b"\x2A\x08\x00\x00\x80\x3F\x00\x00\x00\x40\x3A\x03\x0A\x01\x02";
    /// # let checkpoint = blob_io::Checkpoint::from_bytes("two.binaryproto", &file[..])?;
    /// let mut reader = checkpoint.reader(&checkpoint.entries()[0])?;
    /// reader.skip(4)?;
    /// let mut second = [0; 4];
    /// reader.read_exact(&mut second)?;
    /// assert_eq!(f32::from_le_bytes(second), 2.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Checkpoint::load`]; a column-major array is read at once, any other on demand.
    pub fn reader<'a>(&'a self, entry: &'a Entry) -> Result<Reader<'a>, Error> {
        Ok(Reader::new(&self.name, entry, self.elements(entry)?))
    }

    fn elements<'a>(&'a self, entry: &'a Entry) -> Result<Elements<'a>, Error> {
        entry.loadable(&self.name)?;
        Elements::open(&self.input, entry, &self.limits).map_err(|e| entry.error(&self.name, e))
    }

    /// Compares an array with the stored checksum, if any: the CRC-32 of an npz member, which covers the npy header
    /// too. A deflated member must also inflate to the length, and end at the place, that the zip states. The chunks of
    /// an HDF5 dataset must pass the dataset's filters, checksums among them.
    ///
    /// Reads the whole member in pieces; `step` is called with the length of each piece, and an error of `step` ends
    /// the check. The member of an array without elements is read too, the member of an array with a fault is not.
    ///
    /// # Errors
    /// [`Error::Malformed`] with the checksum expected and the one found; an array that inflates to more than
    /// [`Limits::max_alloc`]; errors of reading and of `step`.
    pub fn check(&self, entry: &Entry, step: &mut dyn FnMut(u64) -> Result<(), Error>) -> Result<(), Error> {
        let Some(checksum) = entry.checksum.as_deref() else {
            return self.check_chunks(entry, step);
        };
        let error = |e| entry.error(&self.name, e);
        let mut member = archive::whole(&self.input, checksum, self.limits.max_alloc).map_err(error)?;
        let mut scratch = Vec::new();
        loop {
            match member.step(&mut scratch).map_err(error)? {
                0 => return member.finish().map_err(error),
                n => step(n as u64)?,
            }
        }
    }

    fn check_chunks(&self, entry: &Entry, step: &mut dyn FnMut(u64) -> Result<(), Error>) -> Result<(), Error> {
        if entry.checked_len().is_none() {
            return Ok(());
        }
        let mut reader = self.reader(entry)?;
        let mut piece = vec![0; member::PIECE];
        loop {
            match reader.pull(&mut piece)? {
                0 => return Ok(()),
                n => step(n as u64)?,
            }
        }
    }
}

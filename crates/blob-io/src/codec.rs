//! Every format's reader and layout of a new file: the compiler asks here for a new format.
//!
//! Relies on the formats' folders, which do not know each other. Leaves to `sniff` which format a file has, to `layout`
//! the files that are made of other files.

use std::borrow::Cow;

use crate::error::{Error, ReadError};
use crate::format::Format;
use crate::names::NameTable;
use crate::parts::Placed;
use crate::spec::{TensorSpec, refuse};
use crate::wire::cursor::Cursor;
use crate::wire::source::Input;
use crate::{caffe, hdf5, mxnet, neoml, npy, npz, onnx, safetensors};

/// The kind of a file whose headers were read.
pub(crate) struct Found {
    pub(crate) format: Format,
    /// The format's generation or dialect in words, empty where there is only one.
    pub(crate) dialect: String,
    /// How the datasets of an HDF5 file are arranged.
    pub(crate) form: Option<hdf5::Form>,
    /// The arrays whose values are in files beside an ONNX model.
    pub(crate) outside: Vec<onnx::Outside>,
}

impl Found {
    pub(crate) fn new(format: Format, dialect: String) -> Self {
        Self { format, dialect, form: None, outside: Vec::new() }
    }
}

/// Reads the headers of a file of this format.
pub(crate) fn read(format: Format, source: &Input, table: &mut NameTable) -> Result<Found, ReadError> {
    let cursor = &mut Cursor::new(source);
    let dialect = match format {
        Format::CaffeModel | Format::BlobProto | Format::BlobProtoVector | Format::SolverState | Format::Datum => {
            caffe::read::message(cursor, format, table)?
        }
        Format::MxnetList => mxnet::read::list(cursor, table)?,
        Format::MxnetRecord => mxnet::read::record(cursor, table)?,
        Format::NeomlBlob => neoml::read::blob(cursor, table)?,
        Format::NeomlArray => neoml::read::array(cursor, table)?,
        Format::NeomlNet => neoml::net::read(cursor, table)?,
        Format::Npy => npy::read::read(cursor, table)?,
        Format::Npz => npz::read::read(source, cursor, table)?,
        Format::Hdf5 => {
            let form = hdf5::read::read(source, table)?;
            return Ok(Found { form: Some(form), ..Found::new(format, form.dialect().to_owned()) });
        }
        Format::Onnx => {
            let model = onnx::read::read(cursor, table)?;
            return Ok(Found { outside: model.outside, ..Found::new(format, model.dialect) });
        }
        Format::Safetensors => safetensors::read::read(cursor, table)?,
    };
    Ok(Found::new(format, dialect))
}

/// The surroundings of the tensors in a file to be written: the format, and all that the format stores besides values.
///
/// Metadata are (key, value); the values may be placeholders for values of the same length, given to
/// [`Layout::frame`](crate::layout::Layout::frame).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// A safetensors file: the data 64-byte aligned and without holes, tensors with the largest elements first, then in
    /// the order of the specs. Refused: a tensor called `__metadata__`, a header over 100 MB, a dtype unknown to the
    /// format.
    Safetensors {
        /// The header's `__metadata__`.
        metadata: &'a [(String, String)],
    },
    /// A zip of npy files, stored, each array's data 64-byte aligned, in the order of the specs; then the metadata,
    /// between the last member and the central directory: NumPy and zip tools ignore bytes there.
    ///
    /// [`member_names`](crate::layout::member_names) gives the members' names; a tensor's name that differs from the
    /// member's is stored in an extra field, where this crate's reader finds the name. Refused: a name of over 65,000
    /// bytes.
    Npz {
        /// The file's words about itself.
        metadata: &'a [(String, String)],
    },
    /// An HDF5 file. Each array's data are 64-byte aligned, in the order of the specs, after the structure. The file
    /// has no times, so the same tensors give the same bytes. Refused: metadata with a NUL, or whose keys together have
    /// over 60 KiB.
    Hdf5 {
        /// How tensors become datasets.
        form: hdf5::Form,
        /// The attributes of the root.
        metadata: &'a [(String, String)],
    },
    /// An ONNX model, in which each tensor gives an initializer of the same name its values. Refused: an initializer
    /// without a tensor of the same dtype and shape, a model of over 2 GiB without the file beside it.
    Onnx {
        /// The graph.
        model: &'a onnx::Model,
        /// Further pairs of `metadata_props`.
        metadata: &'a [(String, String)],
    },
    /// One npy file of one tensor, whose name is not stored.
    Npy,
    /// An MXNet list, as from `mx.nd.save`, with the list's names. Refused: an array that the version of the record
    /// cannot hold, a name with a NUL.
    MxnetList(&'a mxnet::List),
    /// The one array of a list, nameless and without the list around, as in pickles.
    MxnetRecord(&'a mxnet::List),
    /// A Caffe message, encoded as by Caffe, with the message's names. Refused: a file of over 2 GiB, which no Caffe
    /// reads.
    Caffe {
        /// The message.
        message: &'a caffe::Message,
        /// How the message's blobs are stored.
        form: caffe::BlobForm,
    },
    /// A NeoML blob, an array of blobs, or an archive around blobs, encoded as by NeoML, without names. A shape of
    /// fewer than seven axes gets trailing ones, as in NeoML's `CreateTensor`. Refused: another number of tensors than
    /// the archive has blobs, over 2^31 - 1 bytes in one blob, another shape in a pickle.
    Neoml(&'a neoml::Archive),
}

/// The rest of a new file, besides the tensors, each in the form of one format's frame. Only the format's own is asked
/// for.
pub trait Details {
    /// The metadata of a safetensors or an npz, the attributes of the root of an HDF5 file.
    ///
    /// # Errors
    /// Any, which [`Layout::of`](crate::layout::Layout::of) returns; so do the others.
    fn metadata(&self) -> Result<Cow<'_, [(String, String)]>, Error>;

    /// How tensors become datasets of an HDF5 file.
    fn hdf5_form(&self) -> hdf5::Form;

    /// Caffe's message, and how the message's blobs are stored.
    ///
    /// # Errors
    /// As [`Details::metadata`].
    fn message(&self, specs: &[TensorSpec]) -> Result<(caffe::Message, caffe::BlobForm), Error>;

    /// MXNet's list; for a bare record a list around the record.
    ///
    /// # Errors
    /// As [`Details::metadata`].
    fn list(&self, specs: &[TensorSpec]) -> Result<mxnet::List, Error>;

    /// NeoML's archive.
    ///
    /// # Errors
    /// As [`Details::metadata`].
    fn archive(&self, specs: &[TensorSpec]) -> Result<neoml::Archive, Error>;

    /// ONNX's model.
    ///
    /// # Errors
    /// As [`Details::metadata`]; unless you give a model: tensors alone have no graph.
    fn model(&self, _specs: &[TensorSpec]) -> Result<Cow<'_, onnx::Model>, Error> {
        Err(refuse("onnx", "a model needs a graph, and tensors alone have none"))
    }
}

/// Lays out a new file of a format: decides the frame.
pub(crate) fn lay_out(format: Format, specs: &[TensorSpec], details: &dyn Details) -> Result<(Plan, Placed), Error> {
    match format {
        Format::Safetensors => plan(specs, Frame::Safetensors { metadata: &details.metadata()? }),
        Format::Npz => plan(specs, Frame::Npz { metadata: &details.metadata()? }),
        Format::Npy => plan(specs, Frame::Npy),
        Format::Hdf5 => plan(specs, Frame::Hdf5 { form: details.hdf5_form(), metadata: &details.metadata()? }),
        Format::MxnetList => plan(specs, Frame::MxnetList(&details.list(specs)?)),
        Format::MxnetRecord => plan(specs, Frame::MxnetRecord(&details.list(specs)?)),
        Format::Onnx => {
            let model = details.model(specs)?;
            plan(specs, Frame::Onnx { model: &model, metadata: &details.metadata()? })
        }
        Format::NeomlBlob | Format::NeomlArray | Format::NeomlNet => {
            plan(specs, Frame::Neoml(&details.archive(specs)?))
        }
        Format::CaffeModel | Format::BlobProto | Format::BlobProtoVector | Format::SolverState | Format::Datum => {
            let (message, form) = details.message(specs)?;
            plan(specs, Frame::Caffe { message: &message, form })
        }
    }
}

/// The bytes around the tensors, some of which are known last.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    Safetensors(safetensors::write::Plan),
    Npz(npz::write::Plan),
    Hdf5(Box<hdf5::write::Plan>),
    Onnx(Box<onnx::write::Plan>),
    /// An existing file with other values; an npz has a checksum of each tensor.
    Refilled(Vec<Option<npz::sums::Sum>>),
    /// Known in full from the start: npy, MXNet, Caffe, NeoML.
    Fixed,
}

/// Lays out a new file.
pub(crate) fn plan(specs: &[TensorSpec], frame: Frame<'_>) -> Result<(Plan, Placed), Error> {
    Ok(match frame {
        Frame::Safetensors { metadata } => {
            let (plan, offsets, len) = safetensors::write::plan(specs, metadata)?;
            (Plan::Safetensors(plan), Placed::new(Vec::new(), offsets, len))
        }
        Frame::Npz { metadata } => {
            let (plan, offsets, len) = npz::write::plan(specs, metadata)?;
            (Plan::Npz(plan), Placed::new(Vec::new(), offsets, len))
        }
        Frame::Hdf5 { form, metadata } => {
            let (plan, offsets, len) = hdf5::write::plan(specs, form, metadata)?;
            (Plan::Hdf5(Box::new(plan)), Placed::new(Vec::new(), offsets, len))
        }
        Frame::Onnx { model, metadata } => {
            let (plan, placed) = onnx::write::plan(specs, model, metadata)?;
            (Plan::Onnx(Box::new(plan)), placed)
        }
        Frame::Npy => (Plan::Fixed, npy::write::plan(specs)?),
        Frame::MxnetList(list) => (Plan::Fixed, mxnet::write::plan(specs, list, false)?),
        Frame::MxnetRecord(list) => (Plan::Fixed, mxnet::write::plan(specs, list, true)?),
        Frame::Caffe { message, form } => (Plan::Fixed, caffe::message::plan(specs, message, form)?),
        Frame::Neoml(archive) => (Plan::Fixed, neoml::write::plan(specs, archive)?),
    })
}

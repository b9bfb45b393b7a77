//! The place of every byte in a file to be written: the layout first, then one pass over the tensors.
//!
//! A [`Writer`](crate::Writer) does all of this for you. Here are the parts, for a program that writes in its own way.
//!
//! Pure: sees names, dtypes and shapes, no tensor's bytes, and opens nothing. Each format's `write` makes the plan.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use crate::checkpoint::Checkpoint;
use crate::entry::Entry;
use crate::error::Error;
use crate::format::Format;
use crate::interleaved::Interleaved;
use crate::parts::Placed;
use crate::spec::{refuse, total};
use crate::splice;
use crate::{caffe, hdf5, mxnet, neoml, npy, npz, safetensors};

pub use crate::again::{Reopened, Sharded, Wanted, check_written, shown_format};
pub use crate::filenames::file_names;
pub use crate::npz::member_names;
pub use crate::output::OutputDir;
pub use crate::parts::Copied;
pub use crate::spec::TensorSpec;
pub use crate::splice::Splice;

/// The plan of a file: the place of each tensor, and the bytes around the tensors.
///
/// The bytes around the tensors have a fixed length, so the tensors can be written first and the frame last, when the
/// checksums and the metadata's digests are known.
///
/// ```
/// use blob_core::{DType, Shape};
/// use blob_io::layout::{Frame, Layout, TensorSpec};
///
/// let spec = TensorSpec::new("w", DType::F32, Shape::new([2])?);
/// let layout = Layout::new(&[spec], Frame::Safetensors { metadata: &[] })?;
/// let mut file = vec![0; layout.len() as usize];
/// let at = layout.offsets()[0] as usize;
/// assert_eq!(at % 64, 0);
/// file[at..at + 8].copy_from_slice(&[0, 0, 128, 63, 0, 0, 0, 64]);
/// for (offset, bytes) in layout.frame(&[], &[])? {
///     file[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
/// }
/// assert!(file[8..].starts_with(br#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#));
/// # Ok::<(), blob_io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Layout {
    plan: Plan,
    offsets: Vec<u64>,
    copies: Vec<Copied>,
    len: u64,
    /// The tensors with other bytes between the values, by index.
    interleaved: HashMap<usize, Interleaved>,
}

#[derive(Clone, Debug)]
enum Plan {
    Safetensors(safetensors::write::Plan),
    Npz(npz::write::Plan),
    Hdf5(Box<hdf5::write::Plan>),
    /// An existing file with other values; an npz has a checksum of each tensor.
    Refilled(Vec<Option<npz::sums::Sum>>),
    /// Known in full from the start: npy, MXNet, Caffe, NeoML.
    Fixed(Vec<(u64, Vec<u8>)>),
}

/// The surroundings of the tensors in a file to be written: the format, and all that the format stores besides values.
///
/// Metadata are (key, value); the values may be placeholders for values of the same length, given to [`Layout::frame`].
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
    /// [`member_names`] gives the members' names; a tensor's name that differs from the member's is stored in an extra
    /// field, where this crate's reader finds the name. Refused: a name of over 65,000 bytes.
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
        form: caffe::Form,
    },
    /// A Caffe file with changes: all bytes that no change touches are those of the file, at [`Layout::copies`].
    Spliced(&'a Splice<'a>),
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
    /// Any, which [`Layout::of`] returns; so do the others.
    fn metadata(&self) -> Result<Cow<'_, [(String, String)]>, Error>;

    /// How tensors become datasets of an HDF5 file.
    fn hdf5_form(&self) -> hdf5::Form;

    /// Caffe's message, and how the message's blobs are stored.
    ///
    /// # Errors
    /// As [`Details::metadata`].
    fn message(&self, specs: &[TensorSpec]) -> Result<(caffe::Message, caffe::Form), Error>;

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
}

impl Layout {
    /// The layout of a new file of a format: the one place that knows which frame a format has.
    ///
    /// # Errors
    /// As [`Layout::new`], and the errors of `details`.
    pub fn of(format: Format, specs: &[TensorSpec], details: &dyn Details) -> Result<Self, Error> {
        match format {
            Format::Safetensors => Self::new(specs, Frame::Safetensors { metadata: &details.metadata()? }),
            Format::Npz => Self::new(specs, Frame::Npz { metadata: &details.metadata()? }),
            Format::Npy => Self::new(specs, Frame::Npy),
            Format::Hdf5 => Self::new(specs, Frame::Hdf5 { form: details.hdf5_form(), metadata: &details.metadata()? }),
            Format::MxnetList => Self::new(specs, Frame::MxnetList(&details.list(specs)?)),
            Format::MxnetRecord => Self::new(specs, Frame::MxnetRecord(&details.list(specs)?)),
            Format::NeomlBlob | Format::NeomlArray | Format::NeomlNet => {
                Self::new(specs, Frame::Neoml(&details.archive(specs)?))
            }
            Format::CaffeModel | Format::BlobProto | Format::BlobProtoVector | Format::SolverState | Format::Datum => {
                let (message, form) = details.message(specs)?;
                Self::new(specs, Frame::Caffe { message: &message, form })
            }
        }
    }

    /// The layout of a file with these tensors in this frame.
    ///
    /// # Errors
    /// [`Error::Request`] for a repeated name or key, a tensor that the frame names twice or not at all, sizes over 63
    /// bits, and the format's own refusals; [`Error::Misfit`] with the list of the tensors that the format cannot hold.
    pub fn new(specs: &[TensorSpec], frame: Frame<'_>) -> Result<Self, Error> {
        let (plan, offsets, len) = match frame {
            Frame::Safetensors { metadata } => {
                let (plan, offsets, len) = safetensors::write::plan(specs, metadata)?;
                (Plan::Safetensors(plan), offsets, len)
            }
            Frame::Npz { metadata } => {
                let (plan, offsets, len) = npz::write::plan(specs, metadata)?;
                (Plan::Npz(plan), offsets, len)
            }
            Frame::Hdf5 { form, metadata } => {
                let (plan, offsets, len) = hdf5::write::plan(specs, form, metadata)?;
                (Plan::Hdf5(Box::new(plan)), offsets, len)
            }
            Frame::Npy => {
                let [spec] = specs else {
                    return Err(refuse("npy", format!("holds one array, not {}", specs.len())));
                };
                let header = npy::write::header(spec)?;
                let offset = header.len() as u64;
                (Plan::Fixed(vec![(0, header)]), vec![offset], total("npy", offset, spec.byte_len())?)
            }
            Frame::MxnetList(list) => return Ok(Self::placed(mxnet::write::plan(specs, list, false)?)),
            Frame::MxnetRecord(list) => return Ok(Self::placed(mxnet::write::plan(specs, list, true)?)),
            Frame::Caffe { message, form } => return Ok(Self::placed(caffe::message::plan(specs, message, form)?)),
            Frame::Spliced(splice) => return Ok(Self::placed(splice::plan::plan(specs, splice)?)),
            Frame::Neoml(archive) => return Ok(Self::placed(neoml::write::plan(specs, archive)?)),
        };
        Ok(Self { plan, offsets, copies: Vec::new(), len, interleaved: HashMap::new() })
    }

    /// The file `base` with other bytes for these entries; the first entry is tensor 0. All bytes around the entries
    /// are kept: bytes between a tensor's values are in [`Layout::stored`], all others in [`Layout::copies`]. The
    /// checksums in an npz are computed again.
    ///
    /// # Errors
    /// [`Error::Request`] for entries that share bytes or leave the file; errors of reading the bytes between values,
    /// or an npz's directory.
    pub fn refilled(base: &Checkpoint, entries: &[&Entry]) -> Result<Self, Error> {
        let mut interleaved = HashMap::new();
        for (place, entry) in entries.iter().enumerate() {
            let read = Interleaved::read(base.source(), entry, base.limits())
                .map_err(|stop| entry.error(base.name(), stop))?;
            interleaved.extend(read.map(|read| (place, read)));
        }
        let place = |(place, entry): (usize, &&Entry)| match (interleaved.get(&place), entry.offset()) {
            (Some(interleaved), _) => interleaved.span(),
            (None, at) => at.map_or(0..0, |at| at..at + entry.byte_len()),
        };
        let mut places: Vec<Range<u64>> = entries.iter().enumerate().map(place).collect();
        one_name_each(base, entries, &places)?;
        let offsets = places.iter().map(|place| place.start).collect();
        let sums = match base.format() {
            Format::Npz => npz::sums::of(base.source(), entries).map_err(|stop| stop.into_error(base.name()))?,
            _ => Vec::new(),
        };
        places.extend(sums.iter().flatten().flat_map(|sum| sum.fields.iter().map(|at| *at..at + 4)));
        let copies = around(base.file_len(), &places)?;
        Ok(Self { plan: Plan::Refilled(sums), offsets, copies, len: base.file_len(), interleaved })
    }

    fn placed(placed: Placed) -> Self {
        let Placed { frame, copies, offsets, len, interleaved } = placed;
        Self { plan: Plan::Fixed(frame), offsets, copies, len, interleaved }
    }

    /// Whether the file has other bytes between a tensor's values; [`Layout::stored`] adds such bytes.
    #[must_use]
    pub fn is_interleaved(&self, tensor: usize) -> bool {
        self.interleaved.contains_key(&tensor)
    }

    /// How some whole values of a tensor, `at` bytes after the tensor's first value, are stored: the position relative
    /// to the tensor's offset, and the bytes. In Caffe's Datum each float is followed by the key of the next float.
    #[must_use]
    pub fn stored<'b>(&self, tensor: usize, at: u64, values: &'b [u8]) -> (u64, Cow<'b, [u8]>) {
        match self.interleaved.get(&tensor) {
            None => (at, Cow::Borrowed(values)),
            Some(interleaved) => {
                let (at, bytes) = interleaved.stored(at, values);
                (at, Cow::Owned(bytes))
            }
        }
    }

    /// Where each tensor's bytes begin in the file, in the order of the specs: row-major, little-endian, without gaps
    /// unless [`Layout::is_interleaved`].
    #[must_use]
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// The bytes that come from the existing file, where such a file is changed, in ascending order of the offsets in
    /// the output; none in a new file.
    #[must_use]
    pub fn copies(&self) -> &[Copied] {
        &self.copies
    }

    /// The length of the whole file.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no file of ours is empty")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether [`Layout::frame`] needs the CRC-32 of each tensor's bytes.
    #[must_use]
    pub fn wants_crc(&self) -> bool {
        match &self.plan {
            Plan::Npz(_) => true,
            Plan::Refilled(sums) => !sums.is_empty(),
            _ => false,
        }
    }

    /// All bytes around the tensors, as (offset, bytes) in ascending order. `metadata` has the keys and the lengths
    /// that the layout was made with; `crcs` has the CRC-32 of each tensor's data alone, in the order of the specs, and
    /// is ignored unless [`Layout::wants_crc`].
    ///
    /// # Errors
    /// [`Error::Request`] for metadata of other keys or another length, or a wrong number of CRCs.
    pub fn frame(&self, metadata: &[(String, String)], crcs: &[u32]) -> Result<Vec<(u64, Vec<u8>)>, Error> {
        match &self.plan {
            Plan::Safetensors(plan) => plan.frame(metadata),
            Plan::Npz(plan) => plan.frame(metadata, crcs),
            Plan::Hdf5(plan) => plan.frame(metadata),
            Plan::Refilled(sums) => Ok(refilled(sums, crcs)),
            Plan::Fixed(frame) => Ok(frame.clone()),
        }
    }
}

/// The members' checksums as (offset, bytes), in ascending order of the offsets.
fn refilled(sums: &[Option<npz::sums::Sum>], crcs: &[u32]) -> Vec<(u64, Vec<u8>)> {
    let each = sums.iter().zip(crcs).filter_map(|(sum, crc)| Some((sum.as_ref()?, crc)));
    let fields = |(sum, crc): (&npz::sums::Sum, &u32)| {
        let crc = sum.of(*crc).to_le_bytes();
        sum.fields.iter().map(|at| (*at, crc.to_vec())).collect::<Vec<_>>()
    };
    let mut parts: Vec<(u64, Vec<u8>)> = each.flat_map(fields).collect();
    parts.sort_unstable_by_key(|(at, _)| *at);
    parts
}

/// Errors if two entries are names of the same bytes, as links of HDF5 are: which of two new values counts is unknown.
fn one_name_each(base: &Checkpoint, entries: &[&Entry], places: &[Range<u64>]) -> Result<(), Error> {
    let mut seen: HashMap<(u64, u64), &Entry> = HashMap::new();
    for (entry, place) in entries.iter().zip(places).filter(|(_, place)| !place.is_empty()) {
        if let Some(first) = seen.insert((place.start, place.end), entry) {
            let problem = format!("holds the same bytes as {:?}; give one of them", first.name());
            return Err(entry.request(base.name(), &problem));
        }
    }
    Ok(())
}

/// The ranges of a file of `len` bytes outside of `places`, to be copied.
fn around(len: u64, places: &[Range<u64>]) -> Result<Vec<Copied>, Error> {
    let mut sorted: Vec<&Range<u64>> = places.iter().filter(|place| !place.is_empty()).collect();
    sorted.sort_unstable_by_key(|place| place.start);
    let (mut copies, mut at) = (Vec::new(), 0);
    for place in sorted.into_iter().chain([&(len..len)]) {
        let between = place.start.checked_sub(at).filter(|_| place.end <= len);
        let Some(between) = between else {
            let problem = format!(
                "bytes {} to {} overlap others, or lie outside of a file of {len} bytes",
                place.start, place.end
            );
            return Err(refuse("layout", problem));
        };
        copies.extend((between > 0).then_some(Copied { from: at, to: at, len: between }));
        at = place.end;
    }
    Ok(copies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "an empty place may be anywhere")]
    fn bytes_around_the_places_are_copied() {
        let copies = around(20, &[12..16, 5..2, 0..4]).expect("fits");
        let copies: Vec<_> = copies.iter().map(|copied| (copied.from, copied.to, copied.len)).collect();
        assert_eq!(copies, [(4, 4, 8), (16, 16, 4)]);
        for wrong in [[0..4, 3..5], [0..4, 18..21], [0..4, 0..4]] {
            assert!(matches!(around(20, &wrong), Err(Error::Request { .. })), "{wrong:?}");
        }
    }
}

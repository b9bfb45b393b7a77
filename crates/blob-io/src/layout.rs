//! The place of every byte in a file to be written: the layout first, then one pass over the tensors.
//!
//! A [`Writer`](crate::Writer) does all of this for you. Here are the parts, for a program that writes in its own way:
//! from beginning to end by [`Layout::in_order`], or each byte at its place, in any order and by several threads.
//!
//! Pure: sees names, dtypes and shapes, no tensor's bytes, and opens nothing. `codec` has the plans of new files.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use crate::checkpoint::Checkpoint;
use crate::codec::{self, Plan};
use crate::entry::Entry;
use crate::error::Error;
use crate::format::{Files, Format};
use crate::interleaved::Interleaved;
use crate::npz;
use crate::parts::Placed;
use crate::spec::refuse;
use crate::splice;

pub use crate::again::{Reopened, Sharded, check_written, shown_format};
pub use crate::around::Around;
pub use crate::codec::{Details, Frame};
pub use crate::expected::Wanted;
pub use crate::filenames::file_names;
pub use crate::notes::{FOLDER_LIST, NOTES};
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
    placed: Placed,
}

impl Layout {
    /// The layout of a new file of a format.
    ///
    /// # Errors
    /// As [`Layout::new`], and the errors of `details`.
    pub fn of(format: Format, specs: &[TensorSpec], details: &dyn Details) -> Result<Self, Error> {
        let (plan, placed) = codec::lay_out(format, specs, details)?;
        Ok(Self { plan, placed })
    }

    /// The layout of a file with these tensors in this frame.
    ///
    /// # Errors
    /// [`Error::Request`] for a repeated name or key, a tensor that the frame names twice or not at all, sizes over 63
    /// bits, and the format's own refusals; [`Error::Misfit`] with the list of the tensors that the format cannot hold.
    pub fn new(specs: &[TensorSpec], frame: Frame<'_>) -> Result<Self, Error> {
        let (plan, placed) = codec::plan(specs, frame)?;
        Ok(Self { plan, placed })
    }

    /// A Caffe file with changes: all bytes that no change touches are those of the file, at [`Layout::copies`].
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn spliced(specs: &[TensorSpec], splice: &Splice<'_>) -> Result<Self, Error> {
        Ok(Self { plan: Plan::Fixed, placed: splice::plan::plan(specs, splice)? })
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
        let sums = match base.format().holds().files {
            Files::Members => npz::sums::of(base.source(), entries).map_err(|stop| stop.into_error(base.name()))?,
            _ => Vec::new(),
        };
        places.extend(sums.iter().flatten().flat_map(|sum| sum.fields.iter().map(|at| *at..at + 4)));
        let copies = around(base.file_len(), &places)?;
        let placed = Placed { frame: Vec::new(), copies, offsets, len: base.file_len(), interleaved };
        Ok(Self { plan: Plan::Refilled(sums), placed })
    }

    /// Whether the file has other bytes between a tensor's values; [`Layout::stored`] adds such bytes.
    #[must_use]
    pub fn is_interleaved(&self, tensor: usize) -> bool {
        self.placed.interleaved.contains_key(&tensor)
    }

    /// How some whole values of a tensor, `at` bytes after the tensor's first value, are stored: the position relative
    /// to the tensor's offset, and the bytes. In Caffe's Datum each float is followed by the key of the next float.
    #[must_use]
    pub fn stored<'b>(&self, tensor: usize, at: u64, values: &'b [u8]) -> (u64, Cow<'b, [u8]>) {
        match self.placed.interleaved.get(&tensor) {
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
        &self.placed.offsets
    }

    /// The bytes that come from the existing file, where such a file is changed, in ascending order of the offsets in
    /// the output; none in a new file.
    #[must_use]
    pub fn copies(&self) -> &[Copied] {
        &self.placed.copies
    }

    /// Where a second file begins, in which a model's values lie: bytes from here on are that file's. `None` for one
    /// file.
    #[must_use]
    pub fn divided(&self) -> Option<u64> {
        match &self.plan {
            Plan::Onnx(plan) => plan.divided(),
            _ => None,
        }
    }

    /// The length of the whole file, or of both files.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no file of ours is empty")]
    pub fn len(&self) -> u64 {
        self.placed.len
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
        let mut parts = Vec::new();
        self.each_part(metadata, crcs, |at, bytes| {
            parts.push((at, bytes.to_vec()));
            Ok(())
        })?;
        Ok(parts)
    }

    /// Calls `take` with each part of [`Layout::frame`], in the same order. The frame of many small tensors is longer
    /// than the tensors: this way not all of it is in memory.
    ///
    /// # Errors
    /// As [`Layout::frame`], and the errors of `take`.
    pub fn each_part<F>(&self, metadata: &[(String, String)], crcs: &[u32], mut take: F) -> Result<(), Error>
    where
        F: FnMut(u64, &[u8]) -> Result<(), Error>,
    {
        let parts = match &self.plan {
            Plan::Npz(plan) => return plan.each_part(metadata, crcs, take),
            Plan::Safetensors(plan) => plan.frame(metadata)?,
            Plan::Hdf5(plan) => plan.frame(metadata)?,
            Plan::Onnx(plan) => plan.frame(metadata)?,
            Plan::Refilled(sums) => refilled(sums, crcs),
            Plan::Fixed => return self.placed.frame.iter().try_for_each(|(at, bytes)| take(*at, bytes)),
        };
        parts.iter().try_for_each(|(at, bytes)| take(*at, bytes))
    }

    /// Hands the whole file to `write` from beginning to end, so that the output may be a pipe: the [`Layout::frame`],
    /// and the bytes of each tensor, by its index, and of each copy, which `tensor` and `copied` give in pieces of any
    /// length.
    ///
    /// # Errors
    /// The errors of `write`, `tensor` and `copied`.
    pub fn in_order<W, T, C>(
        &self,
        frame: Vec<(u64, Vec<u8>)>,
        mut write: W,
        mut tensor: T,
        mut copied: C,
    ) -> Result<(), Error>
    where
        W: FnMut(&[u8]) -> Result<(), Error> + Send,
        T: FnMut(usize, &mut (dyn FnMut(&[u8]) -> Result<(), Error> + Send)) -> Result<(), Error>,
        C: FnMut(Copied, &mut (dyn FnMut(&[u8]) -> Result<(), Error> + Send)) -> Result<(), Error>,
    {
        let tensors = self.offsets().iter().enumerate().map(|(tensor, at)| (*at, Piece::Tensor(tensor)));
        let frame = frame.into_iter().map(|(at, bytes)| (at, Piece::Frame(bytes)));
        let copies = self.copies().iter().enumerate().map(|(copy, copied)| (copied.to, Piece::Copied(copy)));
        let mut pieces: Vec<(u64, Piece)> = tensors.chain(frame).chain(copies).collect();
        // Of two pieces at one offset, the tensor is empty and comes first.
        pieces.sort_by_key(|(at, _)| *at);
        for (_, piece) in pieces {
            match piece {
                Piece::Frame(bytes) => write(&bytes)?,
                Piece::Copied(copy) => copied(self.copies()[copy], &mut write)?,
                Piece::Tensor(number) => match self.placed.interleaved.get(&number) {
                    None => tensor(number, &mut write)?,
                    Some(interleaved) => {
                        // A reader's pieces may end within a value.
                        let (mut rest, mut at) = (Vec::new(), 0);
                        tensor(number, &mut |piece| {
                            rest.extend_from_slice(piece);
                            let whole = rest.len() - rest.len() % interleaved.width as usize;
                            write(&interleaved.stored(at, &rest[..whole]).1)?;
                            at += whole as u64;
                            rest.drain(..whole);
                            Ok(())
                        })?;
                    }
                },
            }
        }
        Ok(())
    }
}

/// A piece of a file that is written from beginning to end: bytes, or the index of a tensor or a copy.
enum Piece {
    Frame(Vec<u8>),
    Tensor(usize),
    Copied(usize),
}

/// The members' checksums as (offset, bytes), in ascending order of the offsets.
fn refilled(sums: &[Option<npz::sums::Sum>], crcs: &[u32]) -> Vec<(u64, Vec<u8>)> {
    let each = sums.iter().zip(crcs).filter_map(|(sum, crc)| Some((sum.as_ref()?, crc)));
    let each = each.map(|(sum, crc)| (&sum.fields, sum.of(*crc).to_le_bytes()));
    let parts = each.flat_map(|(fields, crc)| fields.iter().map(move |at| (*at, crc.to_vec())));
    let mut parts: Vec<(u64, Vec<u8>)> = parts.collect();
    parts.sort_unstable_by_key(|(at, _)| *at);
    parts
}

/// Errors if two entries are names of the same bytes, as links of HDF5 are: which of two new values counts is unknown.
fn one_name_each(base: &Checkpoint, entries: &[&Entry], places: &[Range<u64>]) -> Result<(), Error> {
    let mut seen: HashMap<(u64, u64), &Entry> = HashMap::new();
    for (entry, place) in entries.iter().zip(places).filter(|(_, place)| !place.is_empty()) {
        if let Some(first) = seen.insert((place.start, place.end), entry) {
            let problem = format!("holds the same bytes as {:?}; give one of them", first.name());
            return Err(entry.refused(base.name(), &problem));
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

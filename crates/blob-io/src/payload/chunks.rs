//! Reads an array in chunks piece by piece: one band of chunks along the first axis is in memory at a time.
//!
//! Relies on the reader having checked that each chunk lies within the file and has an index in the grid. The filters
//! are those of the HDF5 File Format Specification 3.0, IV.A.2.l.

use flate2::{Decompress, FlushDecompress, Status};

use crate::entry::{Chunk, Chunked, Filter};
use crate::error::{Fault, FaultKind, ReadError, check_limit};
use crate::limits::{Limit, Limits};
use crate::wire::source::{Source, read};

/// How many bytes are inflated at once.
const PIECE: usize = 64 << 10;

/// The position in an array in chunks.
pub(super) struct Chunks<'a> {
    source: &'a dyn Source,
    chunked: &'a Chunked,
    /// The array's dims and a chunk's. Last axes along which chunks are as long as the array are merged into one.
    dims: Vec<u64>,
    steps: Vec<u64>,
    width: usize,
    /// The next element.
    at: u64,
    /// The chunks of one band, each with an index, in the order of the grid, and the band's index.
    held: Vec<(u64, Vec<u8>)>,
    band: Option<u64>,
}

impl<'a> Chunks<'a> {
    /// Opens an array with these dims, which must have elements.
    pub(super) fn open(
        source: &'a dyn Source,
        chunked: &'a Chunked,
        mut dims: Vec<u64>,
        width: usize,
        limits: &Limits,
    ) -> Result<Self, Fault> {
        let mut steps = chunked.dims.to_vec();
        if dims.is_empty() {
            // A scalar that was never written: a chunk always has axes.
            (dims, steps) = (vec![1], vec![1]);
        }
        while dims.len() > 1 && dims.last() == steps.last() {
            let last = dims.pop().unwrap_or(1);
            steps.pop();
            let axis = dims.len() - 1;
            (dims[axis], steps[axis]) = (dims[axis] * last, steps[axis] * last);
        }
        let chunks = Self { source, chunked, dims, steps, width, at: 0, held: Vec::new(), band: None };
        chunks.check_bands(limits)?;
        Ok(chunks)
    }

    /// Fills `out`, which must hold whole elements and at most those that are left.
    pub(super) fn next(&mut self, mut out: &mut [u8]) -> Result<(), ReadError> {
        while !out.is_empty() {
            let (index, from, run) = self.locate();
            let n = out.len().min(run as usize * self.width);
            let (now, later) = out.split_at_mut(n);
            let band = index / self.chunks_per_band();
            if self.band != Some(band) {
                self.read_band(band)?;
            }
            match self.held.binary_search_by_key(&index, |(index, _)| *index) {
                Ok(held) => now.copy_from_slice(&self.held[held].1[from as usize * self.width..][..n]),
                Err(_) => {
                    let fill = &self.chunked.fill[..self.width];
                    now.chunks_exact_mut(self.width).for_each(|element| element.copy_from_slice(fill));
                }
            }
            self.at += (n / self.width) as u64;
            out = later;
        }
        Ok(())
    }

    /// Skips whole elements, at most those that are left; skipped bands are not read.
    pub(super) fn skip(&mut self, bytes: u64) {
        self.at += bytes / self.width as u64;
    }

    /// The number of chunks in a band, stored or not.
    fn chunks_per_band(&self) -> u64 {
        self.dims[1..].iter().zip(&self.steps[1..]).map(|(dim, step)| dim.div_ceil(*step)).product()
    }

    /// The next element's chunk, the element's index in the chunk, and how many elements from there on are contiguous
    /// in both.
    fn locate(&self) -> (u64, u64, u64) {
        let (mut rest, mut index, mut grid, mut from, mut row) = (self.at, 0, 1, 0, 1);
        let mut run = 0;
        for axis in (0..self.dims.len()).rev() {
            let (dim, step) = (self.dims[axis], self.steps[axis]);
            let index_in_axis = rest % dim;
            rest /= dim;
            if axis + 1 == self.dims.len() {
                run = (step - index_in_axis % step).min(dim - index_in_axis);
            }
            index += index_in_axis / step * grid;
            from += index_in_axis % step * row;
            // Those of the outermost axis are not used, and may exceed 64 bits.
            grid = grid.wrapping_mul(dim.div_ceil(step));
            row = row.wrapping_mul(step);
        }
        (index, from, run)
    }

    /// Errors if the chunks of one band, which are in memory together, need more than the limits allow.
    fn check_bands(&self, limits: &Limits) -> Result<(), Fault> {
        let chunks_per_band = self.chunks_per_band();
        for band in self.chunked.chunks.chunk_by(|a, b| a.index / chunks_per_band == b.index / chunks_per_band) {
            let needed = band.iter().map(|chunk| self.chunked.size.max(chunk.packed.into())).sum();
            check_limit(band[0].offset, Limit::Alloc, "the bytes of a row of chunks", needed, limits.max_alloc)?;
        }
        Ok(())
    }

    fn read_band(&mut self, band: u64) -> Result<(), ReadError> {
        self.held.clear();
        self.band = None;
        let (chunks, chunks_per_band) = (&self.chunked.chunks, self.chunks_per_band());
        let begin = chunks.partition_point(|chunk| chunk.index < band * chunks_per_band);
        for chunk in chunks[begin..].iter().take_while(|chunk| chunk.index / chunks_per_band == band) {
            self.held.push((chunk.index, unfiltered(self.source, self.chunked, chunk, self.width)?));
        }
        self.band = Some(band);
        Ok(())
    }
}

/// A chunk's values: undoes the filters from the last to the first.
fn unfiltered(source: &dyn Source, chunked: &Chunked, chunk: &Chunk, width: usize) -> Result<Vec<u8>, ReadError> {
    let mut bytes = vec![0; chunk.packed as usize];
    read(source, chunk.offset, &mut bytes)?;
    let size = chunked.size as usize;
    for (place, filter) in chunked.filters.iter().enumerate().rev() {
        if chunk.mask & 1 << place == 0 {
            bytes = match filter {
                // Earlier filters may have added checksums to the values.
                Filter::Deflate => inflate_chunk(chunk.offset, &bytes, size + 4 * place)?,
                Filter::Shuffle => unshuffled(&bytes, width),
                Filter::Fletcher32 => strip_checksum(chunk.offset, bytes)?,
            };
        }
    }
    if bytes.len() != size {
        let found = bytes.len() as u64;
        let what = FaultKind::Mismatch { field: "a chunk's bytes", expected: size as u64, found };
        return Err(ReadError::fault(chunk.offset, what));
    }
    Ok(bytes)
}

/// Inflates a zlib stream to at most `max` bytes. Memory grows with the inflated bytes, whatever a header says.
fn inflate_chunk(at: u64, packed: &[u8], max: usize) -> Result<Vec<u8>, ReadError> {
    let broken = |found| ReadError::fault(at, FaultKind::words("a zlib stream", found));
    let (mut inflate, mut out, mut piece) = (Decompress::new(true), Vec::new(), vec![0; PIECE]);
    loop {
        let (used, made) = (inflate.total_in() as usize, inflate.total_out());
        let status = inflate.decompress(&packed[used..], &mut piece, FlushDecompress::None);
        let n = (inflate.total_out() - made) as usize;
        if out.len() + n > max {
            return Err(broken("one that is longer than its chunk"));
        }
        out.extend_from_slice(&piece[..n]);
        match status {
            Ok(Status::StreamEnd) => return Ok(out),
            Ok(_) if n > 0 || inflate.total_in() as usize > used => {}
            Ok(_) => return Err(broken("one that ends too early")),
            Err(_) => return Err(broken("bytes that are not one")),
        }
    }
}

/// Undoes the shuffle filter, which stores the first bytes of all elements, then the second ones, and so on. Bytes left
/// over at the end are not shuffled.
fn unshuffled(bytes: &[u8], width: usize) -> Vec<u8> {
    let count = bytes.len() / width;
    let mut out = bytes.to_vec();
    for (place, of_all) in bytes[..count * width].chunks_exact(count.max(1)).enumerate() {
        for (element, byte) in of_all.iter().enumerate() {
            out[element * width + place] = *byte;
        }
    }
    out
}

/// Compares and removes the checksum at the end.
fn strip_checksum(at: u64, mut bytes: Vec<u8>) -> Result<Vec<u8>, ReadError> {
    let Some((values, stored)) = bytes.split_last_chunk::<4>() else {
        let (needed, left) = (4, bytes.len() as u64);
        return Err(ReadError::fault(at, FaultKind::Truncated { field: "a chunk's checksum", needed, left }));
    };
    let (expected, found) = (u32::from_le_bytes(*stored), fletcher32(values));
    if expected != found {
        return Err(ReadError::fault(at, FaultKind::Trailer { field: "a chunk's Fletcher-32", expected, found }));
    }
    bytes.truncate(bytes.len() - 4);
    Ok(bytes)
}

/// Fletcher's checksum of 32 bits over big-endian words of 16, as in `H5_checksum_fletcher32`.
fn fletcher32(bytes: &[u8]) -> u32 {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let (mut low, mut high) = (0_u32, 0_u32);
    let fold = |sum: u32| (sum & 0xFFFF) + (sum >> 16);
    // The sums cannot overflow within 360 words.
    for block in pairs.chunks(360) {
        for pair in block {
            low += u32::from(u16::from_be_bytes(*pair));
            high += low;
        }
        (low, high) = (fold(low), fold(high));
    }
    if let [last] = odd {
        low += u32::from(*last) << 8;
        high += low;
        (low, high) = (fold(low), fold(high));
    }
    fold(high) << 16 | fold(low)
}

//! Sparse arrays made dense, as MXNet's `tostype('default')` makes them, after the checks of its `check_format`.
//!
//! Works on the parts of any format. Indices ascend, so values and result are streamed; the index arrays are in memory.

use std::borrow::Cow;

use blob_core::{AnyBlob, DType};

use crate::checkpoint::Checkpoint;
use crate::entry::{Entry, Kind, Sparse, SparseKind};
use crate::error::{Error, Fault, FaultKind};
use crate::limits::Limit;
use crate::payload;

/// What is held of the values at a time.
const CHUNK: usize = 1 << 20;

impl Checkpoint {
    /// Loads a whole sparse array, of which `entry` is any part, as a dense blob; what is not stored is zero.
    ///
    /// # Errors
    /// An entry that is no part of a sparse array; a dense size over the limit for such data; parts that do not fit
    /// each other or the shape: row pointers that do not start at 0, descend or do not end at the number of values,
    /// indices out of range or not ascending. The error names the element and its value.
    pub fn load_dense(&self, entry: &Entry) -> Result<AnyBlob, Error> {
        let parts = Parts::of(self, entry)?;
        let dtype = parts.values.loadable(self.name())?;
        // Before anything is allocated.
        parts.byte_len(dtype)?;
        let mut blob = AnyBlob::new(parts.sparse.shape().clone(), dtype)?;
        {
            let mut out = blob.data_mut().overwrite_bytes()?;
            let mut done = 0;
            parts.stream(CHUNK, &mut |bytes| {
                out[done..][..bytes.len()].copy_from_slice(bytes);
                done += bytes.len();
                Ok(())
            })?;
            payload::to_native(&mut out, dtype.size());
        }
        Ok(blob)
    }

    /// Hands over the bytes of a whole sparse array, of which `entry` is any part, made dense: row-major,
    /// little-endian, in chunks as [`Checkpoint::stream`] makes them.
    ///
    /// Memory stays at a few chunks and the index arrays.
    ///
    /// # Errors
    /// As [`Checkpoint::load_dense`], all before the first chunk; what reading returns, and what `sink` returns.
    pub fn stream_dense(
        &self,
        entry: &Entry,
        chunk: usize,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        Parts::of(self, entry)?.stream(chunk, sink)
    }

    /// Checks that the parts of a sparse array, of which `entry` is any part, fit each other and the shape, as MXNet's
    /// `check_format` does. Its dense size does not matter; the index arrays are in memory.
    ///
    /// # Errors
    /// As [`Checkpoint::load_dense`], but for the limit on the dense size.
    pub fn check_sparse(&self, entry: &Entry) -> Result<(), Error> {
        let parts = Parts::of(self, entry)?;
        let indices = Index::of(&parts, parts.indices)?;
        match parts.sparse.kind() {
            SparseKind::RowSparse => parts.check_rows(&indices).map(|_| ()),
            SparseKind::Csr => parts.check_csr(&indices).map(|_| ()),
        }
    }
}

/// The parts of one sparse array.
struct Parts<'a> {
    file: &'a Checkpoint,
    sparse: &'a Sparse,
    values: &'a Entry,
    indices: &'a Entry,
    indptr: Option<&'a Entry>,
}

impl<'a> Parts<'a> {
    fn of(file: &'a Checkpoint, entry: &'a Entry) -> Result<Self, Error> {
        let sparse = entry.sparse().ok_or_else(|| entry.request(file.name(), "is not a part of a sparse array"))?;
        let position = entry.position();
        let entries = file.entries();
        let from = entries.partition_point(|e| e.position() < position);
        let part = |kind| {
            entries[from..]
                .iter()
                .take_while(|e| e.position() == position)
                .find(|e| e.kind() == kind && e.sparse() == Some(sparse))
        };
        match (part(Kind::Values), part(Kind::Indices)) {
            (Some(values), Some(indices)) => Ok(Self { file, sparse, values, indices, indptr: part(Kind::Indptr) }),
            _ => Err(entry.request(file.name(), "is part of a sparse array that lacks another part")),
        }
    }

    /// The dense array's size in bytes, within the limit for what is made of fewer stored ones.
    fn byte_len(&self, dtype: DType) -> Result<u64, Error> {
        let found = (self.sparse.shape().count() as u64).saturating_mul(dtype.size() as u64);
        let limit = self.file.limits().max_alloc;
        if found <= limit {
            return Ok(found);
        }
        let what =
            FaultKind::Limit { field: "bytes of the dense array", needed: found, allowed: limit, limit: Limit::Alloc };
        Err(self.fault(self.values, 0, what))
    }

    fn stream(&self, chunk: usize, sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let dtype = self.values.loadable(self.file.name())?;
        let width = dtype.size();
        let out = Chunks::new(self.byte_len(dtype)?, (chunk / width).max(1) * width, sink);
        let indices = Index::of(self, self.indices)?;
        match self.sparse.kind() {
            SparseKind::RowSparse => {
                let unit = self.check_rows(&indices)?.saturating_mul(width);
                self.scatter(out, unit, |k| indices.get(k) as u64 * unit as u64)
            }
            SparseKind::Csr => {
                let (indptr, columns) = self.check_csr(&indices)?;
                let mut row = 0;
                self.scatter(out, width, |k| {
                    while indptr.get(row + 1) <= k as i128 {
                        row += 1;
                    }
                    (row as u64 * columns + indices.get(k) as u64) * width as u64
                })
            }
        }
    }

    /// row_sparse: row `indices[k]` of the outermost axis is `values[k]`. Returns the elements of a row.
    fn check_rows(&self, indices: &Index<'_>) -> Result<usize, Error> {
        let dims = self.sparse.shape().dims();
        let (&rows, inner) = dims.split_first().ok_or_else(|| self.misfit("one axis or more"))?;
        if self.values.shape().dims().split_first() != Some((&indices.len, inner)) {
            return Err(self.misfit("values of one row of the array for each index"));
        }
        indices.check_ascending(0..indices.len, rows, "row numbers that ascend and are below the first dimension")?;
        // Saturates only where the array has no rows at all.
        Ok(inner.iter().fold(1, |n: usize, d| n.saturating_mul(*d)))
    }

    /// csr: `values[indptr[r]..indptr[r + 1]]` are row `r` at columns `indices[..]`. Returns the row pointers and the
    /// number of columns.
    fn check_csr(&self, indices: &Index<'_>) -> Result<(Index<'_>, u64), Error> {
        let (&[rows, columns], Some(indptr)) = (self.sparse.shape().dims(), self.indptr) else {
            return Err(self.misfit("row pointers, and two axes of the array"));
        };
        if self.values.shape().dims() != [indices.len] {
            return Err(self.misfit("one value for each index"));
        }
        let indptr = Index::of(self, indptr)?;
        // An array without values may be stored without row pointers.
        if indptr.len == 0 && indices.len == 0 {
            return Ok((indptr, columns as u64));
        }
        if indptr.len.checked_sub(1) != Some(rows) {
            return Err(self.misfit("a row pointer for each row, and one more"));
        }
        if indptr.get(0) != 0 {
            return Err(indptr.fault(0, "row pointers that begin at 0"));
        }
        for r in 0..rows {
            let (from, to) = (indptr.get(r), indptr.get(r + 1));
            if to < from || to > indices.len as i128 {
                return Err(indptr.fault(r + 1, "row pointers that never descend nor pass the number of values"));
            }
            let row = from as usize..to as usize;
            indices.check_ascending(
                row,
                columns,
                "column numbers that ascend in each row and are below the second dimension",
            )?;
        }
        if indptr.get(rows) != indices.len as i128 {
            return Err(indptr.fault(rows, "row pointers that end at the number of values"));
        }
        Ok((indptr, columns as u64))
    }

    /// Streams the values, `unit` bytes of them at each place that `place` says, with zeros between.
    fn scatter(&self, mut out: Chunks<'_>, unit: usize, mut place: impl FnMut(usize) -> u64) -> Result<(), Error> {
        let mut done = 0;
        self.file.stream(self.values, CHUNK, &mut |mut bytes| {
            while !bytes.is_empty() {
                let within = done % unit;
                if within == 0 {
                    out.zeros(place(done / unit))?;
                }
                let (head, rest) = bytes.split_at(bytes.len().min(unit - within));
                out.put(head)?;
                done += head.len();
                bytes = rest;
            }
            Ok(())
        })?;
        out.finish()
    }

    /// Shapes that do not fit each other.
    fn misfit(&self, expected: &'static str) -> Error {
        let parts: Vec<_> = [Some(self.values), Some(self.indices), self.indptr]
            .into_iter()
            .flatten()
            .map(|part| format!("{} of shape {}", part.kind().name(), part.shape()))
            .collect();
        let found = format!("{} for an array of shape {}", parts.join(", "), self.sparse.shape());
        self.fault(self.values, 0, FaultKind::words(expected, found))
    }

    fn fault(&self, entry: &Entry, element: usize, what: FaultKind) -> Error {
        let step = match entry.segments() {
            [run] => run.stride,
            _ => 0,
        };
        let offset = entry.offset().unwrap_or(0) + element as u64 * step;
        entry.error(self.file.name(), Fault::new(offset, what).into())
    }
}

/// One index array, of any integer type.
struct Index<'a> {
    parts: &'a Parts<'a>,
    entry: &'a Entry,
    bytes: Cow<'a, [u8]>,
    dtype: DType,
    len: usize,
}

impl<'a> Index<'a> {
    fn of(parts: &'a Parts<'a>, entry: &'a Entry) -> Result<Self, Error> {
        let dtype = entry.loadable(parts.file.name())?;
        if matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::Bool) {
            return Err(parts.fault(entry, 0, FaultKind::words("an integer type", dtype.name())));
        }
        if entry.shape().num_axes() != 1 {
            return Err(parts.misfit("index arrays of one axis"));
        }
        Ok(Self { parts, entry, bytes: parts.file.view(entry)?, dtype, len: entry.shape().count() })
    }

    /// Element `i`; every integer type fits.
    fn get(&self, i: usize) -> i128 {
        let width = self.dtype.size();
        let mut le = [0; 8];
        le[..width].copy_from_slice(&self.bytes[i * width..][..width]);
        let word = u64::from_le_bytes(le);
        match self.dtype {
            DType::I8 => i128::from(word as i8),
            DType::I16 => i128::from(word as i16),
            DType::I32 => i128::from(word as i32),
            DType::I64 => i128::from(word as i64),
            _ => i128::from(word),
        }
    }

    /// Errors unless the elements of `range` ascend strictly within `0..end`.
    fn check_ascending(&self, range: std::ops::Range<usize>, end: usize, expected: &'static str) -> Result<(), Error> {
        let mut before = -1;
        for i in range {
            let index = self.get(i);
            if index <= before || index >= end as i128 {
                return Err(self.fault(i, expected));
            }
            before = index;
        }
        Ok(())
    }

    fn fault(&self, i: usize, expected: &'static str) -> Error {
        let found = format!("{} as element {i}", self.get(i));
        self.parts.fault(self.entry, i, FaultKind::words(expected, found))
    }
}

/// Bytes that come in order, handed to a sink in chunks of one length.
struct Chunks<'s> {
    buf: Vec<u8>,
    len: usize,
    done: u64,
    total: u64,
    sink: &'s mut dyn FnMut(&[u8]) -> Result<(), Error>,
}

impl<'s> Chunks<'s> {
    fn new(total: u64, chunk: usize, sink: &'s mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Self {
        Self { buf: vec![0; (chunk as u64).min(total) as usize], len: 0, done: 0, total, sink }
    }

    /// Zeros up to the place `until`, counted from the beginning.
    fn zeros(&mut self, until: u64) -> Result<(), Error> {
        while self.done < until {
            let n = (self.buf.len() - self.len).min((until - self.done) as usize);
            self.buf[self.len..][..n].fill(0);
            self.advance(n)?;
        }
        Ok(())
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_at(bytes.len().min(self.buf.len() - self.len));
            self.buf[self.len..][..head.len()].copy_from_slice(head);
            self.advance(head.len())?;
            bytes = rest;
        }
        Ok(())
    }

    fn advance(&mut self, n: usize) -> Result<(), Error> {
        self.len += n;
        self.done += n as u64;
        if self.len == self.buf.len() {
            (self.sink)(&self.buf)?;
            self.len = 0;
        }
        Ok(())
    }

    /// Zeros up to the end, and the last chunk.
    fn finish(mut self) -> Result<(), Error> {
        self.zeros(self.total)?;
        if self.len > 0 {
            (self.sink)(&self.buf[..self.len])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_one_length_but_the_last() {
        let mut seen: Vec<Vec<u8>> = Vec::new();
        let mut sink = |bytes: &[u8]| {
            seen.push(bytes.to_vec());
            Ok(())
        };
        let mut out = Chunks::new(11, 4, &mut sink);
        out.put(&[1]).unwrap();
        out.zeros(3).unwrap();
        out.put(&[2, 3, 4, 5, 6, 7]).unwrap();
        out.finish().unwrap();
        assert_eq!(seen, [vec![1, 0, 0, 2], vec![3, 4, 5, 6], vec![7, 0, 0]]);
    }
}

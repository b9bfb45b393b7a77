//! Expands sparse arrays to dense ones as MXNet's `tostype('default')` does, after the checks of MXNet's
//! `check_format`.
//!
//! Works on the parts of any format. Indices ascend, so values and result are streamed; only the index arrays are in
//! memory.

use std::borrow::Cow;

use blob_core::{AnyBlob, DType};

use crate::checkpoint::{Checkpoint, Reader};
use crate::entry::{Entry, Kind, Sparse, SparseKind};
use crate::error::{Error, Fault, FaultKind, check_limit};
use crate::limits::{Limit, bytes_in};
use crate::payload::{self, Elements};

impl Checkpoint {
    /// Loads a whole sparse array, of which `entry` is any part, as a dense blob; elements that are not stored are
    /// zero.
    ///
    /// # Errors
    /// An entry that is no part of a sparse array; a dense size over [`Limits::max_alloc`](crate::Limits::max_alloc);
    /// parts that do not fit each other or the shape: row pointers that do not start at 0, descend or do not end at the
    /// number of values, indices out of range or not ascending. The error names the element and the value.
    pub fn load_dense(&self, entry: &Entry) -> Result<AnyBlob, Error> {
        let parts = Parts::of(self, entry)?;
        let mut reader = parts.reader()?;
        let dtype = parts.values.loadable(self.name())?;
        let mut blob = AnyBlob::new(parts.sparse.shape.clone(), dtype)?;
        {
            let mut out = blob.data_mut().overwrite_bytes()?;
            reader.pull(&mut out)?;
            payload::to_native(&mut out, dtype.size());
        }
        Ok(blob)
    }

    /// The bytes of a whole sparse array, of which `entry` is any part, made dense, as [`Checkpoint::reader`] gives
    /// those of a dense one.
    ///
    /// Memory stays at the index arrays and a piece of the values.
    ///
    /// # Errors
    /// As [`Checkpoint::load_dense`].
    pub fn dense_reader<'a>(&'a self, entry: &'a Entry) -> Result<Reader<'a>, Error> {
        Parts::of(self, entry)?.reader()
    }

    /// Checks that whole sparse arrays, of which these are parts, take together no more bytes as dense ones than all
    /// arrays of a file may.
    ///
    /// # Errors
    /// [`Error::LimitExceeded`] with the first array beyond [`Limits::max_alloc`](crate::Limits::max_alloc) and 1,032
    /// bytes for each of the file.
    pub fn check_dense<'a>(&self, entries: impl IntoIterator<Item = &'a Entry>) -> Result<(), Error> {
        let most = bytes_in(self.file_len(), self.limits().max_alloc);
        let mut all: u64 = 0;
        for entry in entries {
            let Some((sparse, dtype)) = entry.sparse().zip(entry.dtype()) else { continue };
            all = all.saturating_add((sparse.shape.count() as u64).saturating_mul(dtype.size() as u64));
            check_limit(entry.offset().unwrap_or(0), Limit::Alloc, "bytes of all dense arrays together", all, most)
                .map_err(|fault| entry.error(self.name(), fault.into()))?;
        }
        Ok(())
    }

    /// Checks that the parts of a sparse array, of which `entry` is any part, fit each other and the shape, as MXNet's
    /// `check_format` does. The dense size does not matter; the index arrays are in memory.
    ///
    /// # Errors
    /// As [`Checkpoint::load_dense`], without the limit on the dense size.
    pub fn check_sparse(&self, entry: &Entry) -> Result<(), Error> {
        let parts = Parts::of(self, entry)?;
        let indices = Index::of(parts, parts.indices)?;
        match parts.sparse.kind {
            SparseKind::RowSparse => parts.check_rows(&indices).map(|_| ()),
            SparseKind::Csr => parts.check_csr(&indices).map(|_| ()),
        }
    }
}

/// The parts of one sparse array.
#[derive(Clone, Copy)]
struct Parts<'a> {
    file: &'a Checkpoint,
    sparse: &'a Sparse,
    values: &'a Entry,
    indices: &'a Entry,
    indptr: Option<&'a Entry>,
}

impl<'a> Parts<'a> {
    fn of(file: &'a Checkpoint, entry: &'a Entry) -> Result<Self, Error> {
        let sparse = entry.sparse().ok_or_else(|| entry.refused(file.name(), "is not a part of a sparse array"))?;
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
            _ => Err(entry.refused(file.name(), "is part of a sparse array that lacks another part")),
        }
    }

    /// The dense array's size in bytes, within the limit for bytes produced from fewer stored ones.
    fn byte_len(&self, dtype: DType) -> Result<u64, Error> {
        let found = (self.sparse.shape.count() as u64).saturating_mul(dtype.size() as u64);
        let (at, limit) = (self.values.offset().unwrap_or(0), self.file.limits().max_alloc);
        check_limit(at, Limit::Alloc, "bytes of the dense array", found, limit)
            .map_err(|fault| self.values.error(self.file.name(), fault.into()))?;
        Ok(found)
    }

    /// The dense array's bytes; everything is checked before the first byte.
    fn reader(self) -> Result<Reader<'a>, Error> {
        let file = self.file;
        let dtype = self.values.loadable(file.name())?;
        let (len, width) = (self.byte_len(dtype)?, dtype.size() as u64);
        let indices = Index::of(self, self.indices)?;
        let count = indices.len;
        let elements = match self.sparse.kind {
            SparseKind::RowSparse => {
                let unit = self.check_rows(&indices)?.saturating_mul(width);
                let offsets = (0..count).map(move |k| indices.get(k) as u64 * unit);
                Elements::dense(file.elements(self.values)?, unit, offsets, len)
            }
            SparseKind::Csr => {
                let (indptr, columns) = self.check_csr(&indices)?;
                let mut row = 0;
                let offsets = (0..count).map(move |k| {
                    while indptr.get(row + 1) <= k as i128 {
                        row += 1;
                    }
                    (row as u64 * columns + indices.get(k) as u64) * width
                });
                Elements::dense(file.elements(self.values)?, width, offsets, len)
            }
        };
        Ok(Reader::new(file.name(), self.values, elements))
    }

    /// row_sparse: row `indices[k]` of the outermost axis is `values[k]`. Returns the elements of a row.
    fn check_rows(&self, indices: &Index<'_>) -> Result<u64, Error> {
        let dims = self.sparse.shape.dims();
        let (&rows, inner) = dims.split_first().ok_or_else(|| self.misfit("one axis or more"))?;
        if self.values.shape().dims().split_first() != Some((&indices.len, inner)) {
            return Err(self.misfit("values of one row of the array for each index"));
        }
        indices.check_ascending(0..indices.len, rows, "row numbers that ascend and are below the first dimension")?;
        // Saturates only where the array has no rows at all.
        Ok(inner.iter().fold(1, |n: u64, d| n.saturating_mul(*d as u64)))
    }

    /// csr: `values[indptr[r]..indptr[r + 1]]` are row `r` at columns `indices[..]`. Returns the row pointers and the
    /// number of columns.
    fn check_csr(&self, indices: &Index<'_>) -> Result<(Index<'a>, u64), Error> {
        let (&[rows, columns], Some(indptr)) = (self.sparse.shape.dims(), self.indptr) else {
            return Err(self.misfit("row pointers, and two axes of the array"));
        };
        if self.values.shape().dims() != [indices.len] {
            return Err(self.misfit("one value for each index"));
        }
        let indptr = Index::of(*self, indptr)?;
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

    /// The error for shapes that do not fit each other.
    fn misfit(&self, expected: &'static str) -> Error {
        let parts: Vec<_> = [Some(self.values), Some(self.indices), self.indptr]
            .into_iter()
            .flatten()
            .map(|part| format!("{} of shape {}", part.kind().name(), part.shape()))
            .collect();
        let found = format!("{} for an array of shape {}", parts.join(", "), self.sparse.shape);
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
    parts: Parts<'a>,
    entry: &'a Entry,
    bytes: Cow<'a, [u8]>,
    dtype: DType,
    len: usize,
}

impl<'a> Index<'a> {
    fn of(parts: Parts<'a>, entry: &'a Entry) -> Result<Self, Error> {
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

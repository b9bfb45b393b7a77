//! The interface for computing values: streams of values, and the inputs of a computation.
//!
//! The caller decides how inputs are opened. Knows no transform.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use blob_core::DType;
use blob_io::Error;
use blob_io::layout::TensorSpec;

use super::reports::{Amount, Found, Reports};
use crate::cast::cast;

/// The values of a tensor, row-major and little-endian, read piece by piece.
pub trait Stream {
    /// Fills `out`, whose length is a whole number of elements, and returns the number of bytes written: less than
    /// `out.len()` only at the end of the tensor.
    ///
    /// # Errors
    /// Errors of reading and computing.
    fn pull(&mut self, out: &mut [u8]) -> Result<usize, Error>;

    /// Skips so many bytes, whole elements, or all that are left.
    ///
    /// # Errors
    /// As [`Stream::pull`].
    fn skip(&mut self, bytes: u64) -> Result<(), Error> {
        let (mut left, mut skipped) = (bytes, vec![0; bytes.min(SKIPPED) as usize]);
        while left > 0 {
            let most = left.min(SKIPPED) as usize;
            match self.pull(&mut skipped[..most])? {
                0 => return Ok(()),
                n => left -= n as u64,
            }
        }
        Ok(())
    }
}

/// So many bytes are skipped at once.
const SKIPPED: u64 = 64 << 10;

impl<F: FnMut(&mut [u8]) -> Result<usize, Error>> Stream for F {
    fn pull(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        self(out)
    }
}

/// Values as f64.
pub(super) fn read(bytes: &[u8], dtype: DType) -> Vec<f64> {
    let mut wide = Vec::new();
    blob_ops::convert_bytes(dtype, bytes, DType::F64, &mut wide);
    wide.as_chunks().0.iter().map(|value| f64::from_le_bytes(*value)).collect()
}

/// A stream that hands out block after block: `next` fills the next one, and leaves it empty behind the last one.
pub(super) fn blocks<'a>(mut next: impl FnMut(&mut Vec<u8>) -> Result<(), Error> + 'a) -> Box<dyn Stream + 'a> {
    let (mut block, mut given) = (Vec::new(), 0);
    Box::new(move |out: &mut [u8]| {
        let mut filled = 0;
        while filled < out.len() {
            if given == block.len() {
                next(&mut block)?;
                given = 0;
                if block.is_empty() {
                    break;
                }
            }
            let n = (block.len() - given).min(out.len() - filled);
            out[filled..filled + n].copy_from_slice(&block[given..][..n]);
            (filled, given) = (filled + n, given + n);
        }
        Ok(filled)
    })
}

/// A stream of values that are already computed, as bytes.
#[must_use]
pub fn ready<'a>(bytes: Vec<u8>) -> Box<dyn Stream + 'a> {
    let mut at = 0;
    Box::new(move |out: &mut [u8]| {
        let n = out.len().min(bytes.len() - at);
        out[..n].copy_from_slice(&bytes[at..at + n]);
        at += n;
        Ok(n)
    })
}

/// Computes the values of a tensor.
pub trait Compute: Any + fmt::Debug + Send + Sync {
    /// Starts the values from the first one. May be called several times and must give the same values each time.
    ///
    /// # Errors
    /// Errors of reading; inputs whose values cannot be used.
    fn open<'a>(&'a self, inputs: Inputs<'a>) -> Result<Box<dyn Stream + 'a>, Error>;

    /// The computation that restores the old order, if this one only reorders the values of one tensor; otherwise
    /// `None`.
    fn undone(&self) -> Option<Arc<dyn Compute>> {
        None
    }
}

/// Opens one of the inputs.
type Open<'a> = Box<dyn Fn(usize) -> Result<Box<dyn Stream + 'a>, Error> + 'a>;

/// The tensors that another tensor is computed from, in the order of [`Made::from`](super::Made::from).
pub struct Inputs<'a> {
    file: &'a str,
    /// The name in the output of the tensor that is computed.
    name: &'a str,
    /// The tensor that is computed, as the step planned; later steps may rename and round this tensor.
    pub made: &'a TensorSpec,
    /// The name, dtype and shape of each input.
    pub specs: Vec<&'a TensorSpec>,
    open: Open<'a>,
    most_bytes: u64,
    tally: &'a Reports,
}

impl<'a> Inputs<'a> {
    /// `file` and `name` are used in messages, `most_bytes` is the most that may be held in memory.
    pub(crate) fn new(
        file: &'a str,
        name: &'a str,
        made: &'a TensorSpec,
        specs: Vec<&'a TensorSpec>,
        open: Open<'a>,
        most_bytes: u64,
        tally: &'a Reports,
    ) -> Self {
        Self { file, name, made, specs, open, most_bytes, tally }
    }

    /// Starts the values of an input from the first one; any number of times.
    ///
    /// # Errors
    /// As [`Checkpoint::reader`](blob_io::Checkpoint::reader), and errors of the steps before.
    pub fn open(&self, input: usize) -> Result<Box<dyn Stream + 'a>, Error> {
        if input >= self.specs.len() {
            return Err(self.error(format!("has no input {input}")));
        }
        (self.open)(input)
    }

    /// All values of an input in memory, if
    /// [`Limits::max_alloc`](blob_io::Limits::max_alloc) allows it.
    ///
    /// # Errors
    /// As [`Inputs::open`]; a tensor that is too large.
    pub fn whole(&self, input: usize) -> Result<Vec<u8>, Error> {
        let spec = self.specs.get(input).ok_or_else(|| self.error(format!("has no input {input}")))?;
        let len = spec.byte_len();
        self.fits(len)?;
        let mut values = Vec::new();
        values.try_reserve_exact(len as usize).map_err(|_| self.memory(len, "which are not there"))?;
        values.resize(len as usize, 0);
        let found = self.open(input)?.pull(&mut values)?;
        values.truncate(found);
        Ok(values)
    }

    /// All values of an input as f64, which is exact for every float dtype.
    ///
    /// # Errors
    /// As [`Inputs::whole`].
    pub fn floats(&self, input: usize) -> Result<Vec<f64>, Error> {
        Ok(read(&self.whole(input)?, self.specs[input].dtype))
    }

    /// Rounds values to the dtype of the result, and reports lost values. [`ready`](super::ready) makes a stream of the
    /// bytes.
    #[must_use]
    pub fn rounded(&self, values: &[f64]) -> Vec<u8> {
        let dtype = self.made.dtype;
        let wide: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut bytes = Vec::new();
        self.tally.rounded(self.name, cast(DType::F64, &wide, dtype, &mut bytes), dtype);
        bytes
    }

    /// Checks that [`Limits::max_alloc`](blob_io::Limits::max_alloc) allows to hold this many bytes.
    ///
    /// # Errors
    /// [`Error::Memory`] if not.
    pub fn fits(&self, bytes: u64) -> Result<(), Error> {
        if bytes > self.most_bytes {
            Err(self.memory(bytes, &format!("and at most {} are allowed", self.most_bytes)))
        } else {
            Ok(())
        }
    }

    fn memory(&self, bytes: u64, why: &str) -> Error {
        let message = format!("array {:?} needs {bytes} bytes at once, {why}", self.name);
        Error::Memory { file: self.file.to_owned(), message }
    }

    /// Reports a finding about the computed values, in words that follow the amount. Lost values of one kind are added
    /// up, of other numbers the largest is kept.
    pub fn report(&self, amount: Amount, what: impl Into<Cow<'static, str>>) {
        self.tally.add(self.name, amount, what);
    }

    /// An error that names the file and the tensor.
    pub fn error(&self, message: impl fmt::Display) -> Error {
        Error::Request { file: self.file.to_owned(), message: format!("array {:?}: {message}", self.name) }
    }
}

/// Computes a tensor from values in memory, little-endian. Returns the values and the reports. You can test a
/// [`Compute`] of your own with this function.
///
/// # Errors
/// Errors of the computation.
pub fn computed(
    compute: &dyn Compute,
    made: &TensorSpec,
    inputs: &[(TensorSpec, Vec<u8>)],
) -> Result<(Vec<u8>, Vec<Found>), Error> {
    let tally = Reports::default();
    let specs = inputs.iter().map(|(spec, _)| spec).collect();
    let open: Open<'_> = Box::new(|input| Ok(ready(inputs[input].1.clone())));
    let inputs = Inputs::new("", &made.name, made, specs, open, u64::MAX, &tally);
    let mut values = vec![0; made.byte_len() as usize];
    let len = compute.open(inputs)?.pull(&mut values)?;
    values.truncate(len);
    Ok((values, tally.found()))
}

impl fmt::Debug for Inputs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs").field("made", &self.made).field("specs", &self.specs).finish_non_exhaustive()
    }
}

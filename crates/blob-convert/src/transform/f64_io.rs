//! Helpers for small tensors, which are held whole in memory as f64.

use std::collections::HashMap;

use blob_core::DType;
use blob_io::Error;

use super::step::Spec;
use super::values::{Compute, Inputs, Stream};

/// The places of the tensors by name.
pub(super) struct Places<'a>(HashMap<&'a str, usize>);

impl<'a> Places<'a> {
    pub(super) fn of(tensors: &'a [Spec<'_>]) -> Self {
        Self(tensors.iter().enumerate().map(|(place, spec)| (&*spec.tensor.name, place)).collect())
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.0.get(name).copied()
    }
}

/// Values as f64.
pub(super) fn read(bytes: &[u8], dtype: DType) -> Vec<f64> {
    let mut wide = Vec::new();
    blob_ops::convert_bytes(dtype, bytes, DType::F64, &mut wide);
    wide.as_chunks().0.iter().map(|value| f64::from_le_bytes(*value)).collect()
}

/// A stream of values that are already computed, as their bytes.
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

/// A 1 for each value of the result.
#[derive(Debug)]
pub(super) struct Ones;

impl Compute for Ones {
    fn open<'a>(&'a self, inputs: Inputs<'a>) -> Result<Box<dyn Stream + 'a>, Error> {
        // Reading the input whole checks its size against the limit; the result is as long, or one value.
        inputs.whole(0)?;
        Ok(ready(inputs.rounded(&vec![1.0; inputs.made.shape.count()])))
    }
}

/// `layer` or `layers`, as the count needs.
pub(super) fn layers(count: usize) -> &'static str {
    if count == 1 { "layer" } else { "layers" }
}

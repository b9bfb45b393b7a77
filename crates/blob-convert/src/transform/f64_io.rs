//! Helpers for small tensors, which are held whole in memory as f64.

use std::collections::HashMap;

use blob_io::Error;

use super::step::Spec;
use super::values::{Compute, Inputs, Stream, ready};

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

/// Gives a 1 for each value of the result.
#[derive(Debug)]
pub(super) struct Ones;

impl Compute for Ones {
    fn open<'a>(&'a self, inputs: Inputs<'a>) -> Result<Box<dyn Stream + 'a>, Error> {
        // Reading the whole input checks the size against the limit; the result is as long, or one value.
        inputs.whole(0)?;
        Ok(ready(inputs.rounded(&vec![1.0; inputs.made.shape.count()])))
    }
}

/// `layer` or `layers`, as the count needs.
pub(super) fn layers(count: usize) -> &'static str {
    if count == 1 { "layer" } else { "layers" }
}

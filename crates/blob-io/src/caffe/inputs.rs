//! Collects the inputs that a Caffe net names itself, and their extents, from text or from bytes.
//!
//! Sees the fields of the net, not of the layers, which `draft` collects.

use crate::caffe::draft::{INPUT_SHAPE, MAX_NAMES};
use crate::caffe::schema::Field;
use crate::caffe::value::{Receiver, Value, extent};
use crate::net::Builder;

/// The field with an input's name.
const INPUT: &str = "input";

/// The message with the state that a net is meant for.
const STATE: &str = "state";

/// The inputs that a net names itself, from before nets had input layers, and the stages of its state.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    names: Vec<String>,
    extents: Vec<Vec<u64>>,
    stages: Vec<String>,
}

impl Receiver for Inputs {
    fn open(&mut self, path: &[&str]) -> bool {
        let is_shape = path == [INPUT_SHAPE];
        if is_shape {
            self.begin_shape();
        }
        is_shape || path == [STATE]
    }

    fn reads(&self, path: &[&str], field: &'static Field) -> bool {
        path.is_empty() && field.name == INPUT || path == [STATE]
    }

    fn state(&mut self, path: &[&str], field: &'static Field, value: Value<'_>) {
        self.set(path, field.name, value);
    }
}

/// Of more than [`MAX_NAMES`] inputs, or [`MAX_AXES`](blob_core::MAX_AXES) extents of one, the first ones count.
impl Inputs {
    /// Sets a field of the net itself, or of a shape of the net's inputs. An extent that the net leaves open is 0.
    pub(super) fn set(&mut self, path: &[&str], field: &str, value: Value<'_>) {
        match (path, field) {
            ([], INPUT) if self.names.len() < MAX_NAMES => self.names.push(value.to_string()),
            ([STATE], "stage") if self.stages.len() < MAX_NAMES => self.stages.push(value.to_string()),
            ([], "input_dim") => {
                if self.extents.last().is_none_or(|extents| extents.len() >= 4) {
                    self.begin_shape();
                }
                self.extent(4, value);
            }
            ([INPUT_SHAPE], "dim") => self.extent(blob_core::MAX_AXES, value),
            _ => {}
        }
    }

    fn begin_shape(&mut self) {
        if self.extents.len() < MAX_NAMES {
            self.extents.push(Vec::new());
        }
    }

    /// Adds an extent to the last shape, if the shape has fewer than `axes`.
    fn extent(&mut self, axes: usize, value: Value<'_>) {
        if let Some(extents) = self.extents.last_mut().filter(|extents| extents.len() < axes) {
            extents.push(extent(value));
        }
    }

    /// Declares the inputs to the builder, before the first layer.
    pub(super) fn declare(self, builder: &mut Builder<String>) {
        let extents = self.extents.into_iter().chain(std::iter::repeat_with(Vec::new));
        for (name, extents) in self.names.into_iter().zip(extents) {
            builder.declare(name, &extents);
        }
        self.stages.into_iter().for_each(|stage| builder.stage(stage));
    }
}

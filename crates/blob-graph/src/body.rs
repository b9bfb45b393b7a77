//! The part of an ONNX model that grows while layers are lowered: nodes, values with shapes, weights and constants.
//!
//! Knows no operator.

use std::collections::HashMap;

use blob_core::{DType, Shape};
use blob_io::onnx::{Initializer, Node};

use crate::names::Names;
use crate::need::{Make, Need};
use crate::operand::Operand;
use crate::unsupported::Refusal;

/// The bytes of all constants of a model; the prior boxes of the largest SSD nets have a megabyte.
const MAX_CONSTANTS: u64 = 64 << 20;

/// A model so far.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) nodes: Vec<Node>,
    /// The values that nodes write.
    pub(crate) values: Vec<Operand>,
    pub(crate) initializers: Vec<Initializer>,
    pub(crate) needs: Vec<Need>,
    pub(crate) names: Names,
    /// The initializer for each tensor in each form, so that layers which share a tensor share the initializer.
    made: HashMap<(String, Make, Vec<u64>), Operand>,
    constant_bytes: u64,
    /// Whether the layer at hand has asked for a weight.
    pub(crate) has_weight: bool,
}

impl Body {
    /// A weight: a tensor of the net in some form.
    pub(crate) fn stored(&mut self, tensor: &str, make: Make, shape: &[u64]) -> Result<Operand, Refusal> {
        self.has_weight = true;
        let key = (tensor.to_owned(), make, shape.to_vec());
        if let Some(known) = self.made.get(&key) {
            return Ok(known.clone());
        }
        let name = self.names.claim(tensor);
        let own = Initializer::Stored { name: name.clone(), dtype: DType::F32, shape: dims(shape)? };
        self.initializers.push(own);
        self.needs.push(Need { initializer: name.clone(), tensor: tensor.to_owned(), make: key.1.clone() });
        let operand = Operand { name, shape: shape.to_vec(), dtype: DType::F32, is_whole: false };
        self.made.insert(key, operand.clone());
        Ok(operand)
    }

    /// Refuses so many more bytes of constants where they are too many. To be asked before many numbers are computed.
    pub(crate) fn room(&self, bytes: u64) -> Result<(), Refusal> {
        if self.constant_bytes.saturating_add(bytes) > MAX_CONSTANTS {
            return Err(Refusal::shape(format!("the constants of the net have more than {MAX_CONSTANTS} bytes")));
        }
        Ok(())
    }

    /// A constant of this base name.
    pub(crate) fn constant(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[u64],
        bytes: Vec<u8>,
    ) -> Result<Operand, Refusal> {
        self.room(bytes.len() as u64)?;
        self.constant_bytes += bytes.len() as u64;
        let name = self.names.claim(name);
        self.initializers.push(Initializer::Constant { name: name.clone(), dtype, shape: dims(shape)?, bytes });
        Ok(Operand { name, shape: shape.to_vec(), dtype, is_whole: false })
    }
}

/// The extents as a shape.
fn dims(shape: &[u64]) -> Result<Shape, Refusal> {
    let dims: Option<Vec<usize>> = shape.iter().map(|extent| usize::try_from(*extent).ok()).collect();
    let shape = dims.and_then(|dims| Shape::new(dims).ok());
    shape.ok_or_else(|| Refusal::shape("the extents of a weight are too large"))
}

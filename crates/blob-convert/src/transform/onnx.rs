//! `onnx`: makes the initializers of an ONNX model of a file's tensors: other names, other shapes, another order of
//! rows.
//!
//! Sees names and shapes alone. The graph that reads the initializers is made elsewhere, and so are other values:
//! divided statistics by `bn`, folded weights by `fold`.

use std::collections::HashSet;

use blob_core::Shape;
use blob_io::Error;
use blob_io::layout::TensorSpec;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::f64_io::Places;
use super::step::{Context, Fact, Made, Misfit, Outcome, Spec, Transform};
use super::values::{Compute, Inputs, Stream, ready};
use crate::change::listed;
use crate::onnx::Onnx as Graph;

/// Gives tensors the names and shapes of a model's initializers, and leaves out all other tensors.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Onnx {
    initializers: Vec<Initializer>,
    /// How a net became the graph; `None` for a graph of another origin, which nobody can make again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    graph: Option<Graph>,
    /// What was done about the graph, for the one list of changes.
    #[serde(skip)]
    notices: Vec<String>,
    /// The tensors that stand in the file for a parameter which a later layer shares.
    #[serde(skip)]
    copies: HashSet<String>,
}

/// One initializer, made of one tensor.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Initializer {
    name: String,
    tensor: String,
    shape: Vec<usize>,
    /// How the blocks of rows are put together; `None` keeps the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blocks: Option<Blocks>,
}

/// Another order for the rows of a tensor: equal blocks, as the gates of an LSTM are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Blocks {
    /// The number of each block's predecessor in the tensor.
    order: Vec<usize>,
    /// How many blocks of zeros follow: ONNX's LSTM adds two biases, and Caffe's one.
    #[serde(default, skip_serializing_if = "is_none")]
    zeros: usize,
}

/// The most blocks of an initializer.
const MAX_BLOCKS: usize = 64;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(zeros: &usize) -> bool {
    *zeros == 0
}

impl Initializer {
    /// The values of a tensor in this shape, from which the tensor's may differ by extents of 1 alone.
    pub fn new(name: impl Into<String>, tensor: impl Into<String>, shape: &Shape) -> Self {
        Self { name: name.into(), tensor: tensor.into(), shape: shape.dims().to_vec(), blocks: None }
    }

    /// The tensor's rows as equal blocks in another order, and `zeros` more blocks of zeros.
    #[must_use]
    pub fn of_blocks(mut self, order: &[usize], zeros: usize) -> Self {
        self.blocks = Some(Blocks { order: order.to_vec(), zeros });
        self
    }

    fn made(&self, spec: &Spec<'_>, place: usize) -> Result<Made, Misfit> {
        let refuse = |why: String| Misfit::new(&self.tensor, why);
        let shape = Shape::new(&self.shape[..]).map_err(|e| refuse(e.to_string()))?;
        let (found, wanted) = (spec.tensor.shape.count(), shape.count());
        let is_whole = match &self.blocks {
            // Ones may come and go, as in Caffe's blobs of before 2015; other extents have a meaning.
            None => found == wanted && long(spec.tensor.shape.dims()).eq(long(shape.dims())),
            Some(blocks) => blocks.fit(found, wanted),
        };
        if !is_whole {
            return Err(refuse(format!("is {}, and the net reads {shape}", spec.tensor.shape)));
        }
        let made = Made::same(place, spec).renamed(&*self.name).reshaped(shape.clone());
        Ok(match &self.blocks {
            None => made,
            Some(blocks) => {
                let tensor = TensorSpec::new(&*self.name, spec.tensor.dtype, shape);
                Made::computed(tensor, vec![place], blocks.clone()).with_change("gates in ONNX's order")
            }
        })
    }
}

/// The extents other than 1.
fn long(dims: &[usize]) -> impl Iterator<Item = usize> {
    dims.iter().copied().filter(|extent| *extent != 1)
}

impl Onnx {
    /// The initializers of a model. Several may be made of one tensor.
    #[must_use]
    pub fn new(initializers: Vec<Initializer>) -> Self {
        Self { initializers, graph: None, notices: Vec::new(), copies: HashSet::new() }
    }

    /// Records how a net became the graph, so that the graph can be made again.
    #[must_use]
    pub(crate) fn of_graph(mut self, settings: Graph) -> Self {
        self.graph = Some(settings);
        self
    }

    /// How a net became the graph.
    pub(crate) fn graph(&self) -> Option<&Graph> {
        self.graph.as_ref()
    }

    /// Whether another model has the same initializers.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.initializers == other.initializers
    }

    /// Names the tensors whose parameter a later layer shares.
    #[must_use]
    pub(crate) fn with_copies(mut self, copies: impl IntoIterator<Item = String>) -> Self {
        self.copies.extend(copies);
        self
    }

    /// Tells what was done about the graph.
    #[must_use]
    pub fn with_notices(mut self, notices: impl IntoIterator<Item = String>) -> Self {
        self.notices.extend(notices);
        self
    }
}

impl Transform for Onnx {
    fn name(&self) -> &'static str {
        "onnx"
    }

    fn settings(&self) -> Value {
        json!(self)
    }

    fn follows_net(&self) -> bool {
        true
    }

    fn relies_on(&self) -> &'static [Fact] {
        &[Fact::Axes, Fact::Eps]
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let places = Places::of(tensors);
        let (mut outcome, mut misfits) = (Outcome::default(), Vec::new());
        let mut is_read = vec![false; tensors.len()];
        for initializer in &self.initializers {
            let Some(place) = places.find(&initializer.tensor) else {
                misfits.push(Misfit::new(&initializer.tensor, "is not there, and the net reads it"));
                continue;
            };
            is_read[place] = true;
            match initializer.made(&tensors[place], place) {
                Ok(made) => outcome.made.push(made),
                Err(misfit) => misfits.push(misfit),
            }
        }
        if !misfits.is_empty() {
            return Err(misfits);
        }
        let unread: Vec<usize> = (0..tensors.len()).filter(|place| !is_read[*place]).collect();
        let names = unread.iter().map(|place| tensors[*place].tensor.name.clone());
        let (copies, names): (Vec<String>, Vec<String>) = names.partition(|name| self.copies.contains(name));
        if !names.is_empty() {
            outcome.unfitting.push(format!("onnx: no layer of the net reads {}", listed(&names)));
        }
        let unread = unread.into_iter();
        outcome.left_out = unread.map(|place| (place, "no node of the model reads it".to_owned())).collect();
        outcome.notices.clone_from(&self.notices);
        if !copies.is_empty() {
            let copies = listed(&copies);
            outcome.notices.push(format!("onnx: layers share a param, and Caffe takes its last copy, not {copies}"));
        }
        Ok(outcome)
    }
}

impl Blocks {
    /// Whether so many values are as many equal blocks as are wanted.
    fn fit(&self, found: usize, wanted: usize) -> bool {
        let count = self.order.len();
        if count == 0 || count + self.zeros > MAX_BLOCKS || !found.is_multiple_of(count) {
            return false;
        }
        self.order.iter().all(|block| *block < count) && wanted == found / count * (count + self.zeros)
    }
}

impl Compute for Blocks {
    fn open<'a>(&'a self, inputs: Inputs<'a>) -> Result<Box<dyn Stream + 'a>, Error> {
        let len = inputs.made.byte_len();
        inputs.fits(len)?;
        let values = inputs.whole(0)?;
        let block = (values.len() / self.order.len().max(1)).max(1);
        let blocks: Vec<&[u8]> = values.chunks_exact(block).collect();
        let mut ordered: Vec<u8> =
            self.order.iter().filter_map(|from| blocks.get(*from)).flat_map(|block| block.iter().copied()).collect();
        ordered.resize(len as usize, 0);
        Ok(ready(ordered))
    }
}

#[cfg(test)]
mod tests {
    use blob_core::DType;

    use super::*;
    use crate::transform::computed;

    #[test]
    fn gates_are_put_into_another_order_and_zeros_follow() {
        let shape = |extent: usize| Shape::new([extent]).expect("a shape");
        let spec = TensorSpec::new("b", DType::U8, shape(8));
        let made = TensorSpec::new("B", DType::U8, shape(16));
        let blocks = Blocks { order: vec![0, 2, 1, 3], zeros: 4 };
        assert!(blocks.fit(8, 16) && !blocks.fit(8, 8) && !blocks.fit(7, 14));
        assert!(!Blocks { order: vec![4, 0, 0, 0], zeros: 0 }.fit(8, 8));
        assert!(!Blocks { order: vec![0; 65], zeros: 0 }.fit(65, 65));
        let (values, _) = computed(&blocks, &made, &[(spec, (1..=8).collect())]).expect("computed");
        assert_eq!(values, [1, 2, 5, 6, 3, 4, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}

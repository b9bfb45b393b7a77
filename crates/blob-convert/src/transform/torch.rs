//! `torch-layout`: puts values into the order of PyTorch's modules.
//!
//! The gates of Caffe's LSTM are input, forget, output, cell (`lstm_unit_layer.cpp` in BVLC/caffe `9b891540`),
//! PyTorch's input, forget, cell, output; and PyTorch has a second bias, which becomes 0. A scalar slope gets an axis.

use std::collections::HashSet;
use std::sync::Arc;

use blob_core::Shape;
use blob_io::layout::TensorSpec;
use blob_io::net::{LayerKind, Role};
use blob_io::{Error, TensorName};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::binding::Bound;
use super::f64_io::Places;
use super::reorder::permuted;
use super::step::{Context, Fact, Left, Made, Misfit, Outcome, Spec, Transform, Undone};
use super::values::{Compute, Inputs, Stream, ready};
use super::wish::Wish;

/// The index in Caffe's order of each of PyTorch's gates.
const GATES: [usize; 4] = [0, 1, 3, 2];

/// Puts values into PyTorch's order.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct TorchLayout {
    /// Tensors whose rows are divided among four gates.
    gates: Vec<String>,
    /// Biases of four gates, each with the name of the second bias.
    second_biases: Vec<(String, String)>,
    /// Matrices that are transposed; newer receipts have a step `layout` for such matrices.
    #[serde(default)]
    transposed: Vec<String>,
    slopes: Vec<String>,
}

impl TorchLayout {
    /// The changes that the layers of a net need.
    #[must_use]
    pub fn of(net: &Bound<'_>) -> Self {
        let mut layout = Self::default();
        for layer in net.layers() {
            let named = |role| net.tensor(layer, role).map(str::to_owned);
            match layer.kind {
                LayerKind::Lstm if layer.tensor(Role::Static).is_none() && net.surplus(layer).is_none() => {
                    layout.gates.extend([Role::Weight, Role::Bias, Role::Hidden].into_iter().filter_map(named));
                    if let Some(bias) = named(Role::Bias) {
                        let module = TensorName::of(&bias).layer().unwrap_or(&layer.name);
                        let second = format!("{module}.bias_hh_l0");
                        layout.second_biases.push((bias, second));
                    }
                }
                LayerKind::PRelu => layout.slopes.extend(named(Role::Weight)),
                _ => {}
            }
        }
        layout
    }

    /// The step for the net that a recipe's conversion follows; `None` without a net.
    pub(super) fn make(settings: &Value, wish: &Wish<'_>) -> Result<Option<Arc<dyn Transform>>, Error> {
        wish.no_settings("torch-layout", settings)?;
        Ok(wish.bound.as_ref().map(|net| -> Arc<dyn Transform> { Arc::new(Self::of(net)) }))
    }

    /// Whether every tensor keeps the order of values, and no tensor is added.
    fn is_in_order(&self) -> bool {
        self.gates.is_empty() && self.second_biases.is_empty() && self.transposed.is_empty()
    }
}

impl Transform for TorchLayout {
    fn name(&self) -> &'static str {
        "torch-layout"
    }

    fn settings(&self) -> Value {
        json!(self)
    }

    fn named(&self) -> Vec<&str> {
        let biases = self.second_biases.iter().map(|(bias, _)| bias);
        let all = self.gates.iter().chain(biases).chain(&self.transposed).chain(&self.slopes);
        all.map(String::as_str).collect()
    }

    fn undone(&self) -> Undone<'_> {
        if self.is_in_order() { Undone::AsItWas } else { Undone::Changed }
    }

    fn left(&self) -> Left<'_> {
        Left::Permuted { tensors: &self.transposed, axes: &[1, 0] }
    }

    fn relies_on(&self) -> &'static [Fact] {
        &[Fact::Axes]
    }

    fn only_once(&self) -> Option<String> {
        (!self.gates.is_empty()).then(|| "put into the order of PyTorch's gates".to_owned())
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let places = Places::of(tensors);
        // A diff has the order of the data.
        let set = |names: &[String]| {
            let both = names.iter().flat_map(|name| [places.find(name), places.find(&TensorName::diff_of(name))]);
            both.flatten().collect::<HashSet<usize>>()
        };
        let (gates, transposed, slopes) = (set(&self.gates), set(&self.transposed), set(&self.slopes));
        let mut misfits = Vec::new();
        let mut made = Vec::new();
        for (place, spec) in tensors.iter().enumerate() {
            let TensorSpec { name, shape, .. } = &spec.tensor;
            let same = Made::same(place, spec);
            if gates.contains(&place) {
                if shape.num_axes() == 0 || shape.dims()[0] % GATES.len() != 0 {
                    misfits.push(Misfit::new(
                        name,
                        format!("is {shape}, and the rows of four gates are a multiple of four"),
                    ));
                    continue;
                }
                let of = spec.tensor.clone();
                made.push(Made::computed(of, vec![place], Gates).with_change("gates from i, f, o, g to i, f, g, o"));
            } else if transposed.contains(&place) {
                if shape.num_axes() != 2 {
                    misfits.push(Misfit::new(name, format!("is {shape}, and a matrix has two axes")));
                    continue;
                }
                let turned = permuted(place, spec, shape.dims(), &[1, 0]);
                made.push(turned.with_change("transposed to output \u{d7} input"));
            } else if slopes.contains(&place) && shape.num_axes() == 0 {
                made.push(
                    same.reshaped(Shape::new([1]).unwrap_or_else(|_| shape.clone()))
                        .with_change("one slope, as an axis of one"),
                );
            } else {
                made.push(same);
            }
        }
        for (bias, second) in &self.second_biases {
            if let Some(place) = places.find(bias) {
                let spec = &tensors[place].tensor;
                let of = TensorSpec::new(&**second, spec.dtype, spec.shape.clone());
                made.push(Made::computed(of, vec![place], Zeros).with_change("a second bias, of zeros"));
            }
        }
        if misfits.is_empty() { Ok(made.into_iter().collect()) } else { Err(misfits) }
    }

    fn follows_net(&self) -> bool {
        true
    }

    fn is_idle(&self) -> bool {
        self.gates.is_empty() && self.transposed.is_empty() && self.slopes.is_empty()
    }
}

#[derive(Debug)]
struct Gates;

impl Compute for Gates {
    fn open<'a>(&'a self, inputs: Inputs<'a>) -> Result<Box<dyn Stream + 'a>, Error> {
        let whole = inputs.whole(0)?;
        let gate = whole.len() / GATES.len();
        Ok(ready(GATES.iter().flat_map(|place| &whole[place * gate..][..gate]).copied().collect()))
    }
}

#[derive(Debug)]
struct Zeros;

impl Compute for Zeros {
    fn open<'a>(&'a self, inputs: Inputs<'a>) -> Result<Box<dyn Stream + 'a>, Error> {
        Ok(ready(vec![0; inputs.whole(0)?.len()]))
    }
}

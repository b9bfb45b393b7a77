//! The place where one layer is lowered: its parameters, its inputs with shapes, and the way to add nodes and weights.
//!
//! Relies on `body` for the model so far. Knows no operator.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use blob_core::DType;
use blob_io::onnx::{Attribute, Node as OnnxNode};

use crate::body::Body;
use crate::need::Make;
use crate::node::Node;
use crate::operand::{Operand, count, shown};
use crate::target::Target;
use crate::unsupported::Refusal;

/// One layer, and the model so far.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    pub(crate) node: &'a Node,
    /// The parameters of the layer's type, each with the default: words as `NAME` or `NAME=DEFAULT`.
    pub(crate) parameters: &'static str,
    pub(crate) inputs: &'a [Operand],
    pub(crate) target: &'a Target,
    /// The known shapes of the source's tensors.
    pub(crate) stored: &'a BTreeMap<String, Vec<u64>>,
    pub(crate) body: &'a mut Body,
}

/// Caffe's and protobuf's numbers: decimal, hexadecimal or octal.
fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let parsed = match digits.strip_prefix('0') {
        Some(rest) if rest.starts_with(['x', 'X']) => i64::from_str_radix(&rest[1..], 16),
        Some(rest) if !rest.is_empty() => i64::from_str_radix(rest, 8),
        _ => i64::from_str(digits),
    };
    parsed.ok().filter(|number| *number >= 0).map(|number| sign * number)
}

/// The parts of a list: `1,2`, and Python's `(1, 2L)` and `[1]`.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let inner = text.trim().trim_start_matches(['(', '[']).trim_end_matches([')', ']']);
    inner.split(',').map(|part| part.trim().trim_end_matches('L')).filter(|part| !part.is_empty())
}

fn float(text: &str) -> Option<f32> {
    let bare = text.strip_suffix(['f', 'F']).filter(|bare| bare.bytes().any(|byte| byte.is_ascii_digit()));
    bare.unwrap_or(text).parse().ok().filter(|number: &f32| number.is_finite())
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "t" | "1" => Some(true),
        "false" | "False" | "f" | "0" => Some(false),
        _ => None,
    }
}

/// A parameter's default; empty for one without.
fn default(parameters: &'static str, name: &str) -> &'static str {
    let pairs = parameters.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.into_iter().find(|(known, _)| *known == name).map_or("", |(_, default)| default)
}

/// Parameters.
impl Site<'_> {
    /// The text of a parameter, or the default; empty for a parameter without either.
    pub(crate) fn text(&self, name: &str) -> &str {
        let stated = self.node.parameters.iter().find(|(known, _)| *known == name);
        stated.map_or_else(|| default(self.parameters, name), |(_, text)| text)
    }

    pub(crate) fn is_stated(&self, name: &str) -> bool {
        self.node.parameters.iter().any(|(known, _)| *known == name)
    }

    fn parsed<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>, wanted: &str) -> Result<T, Refusal> {
        let text = self.text(name);
        parse(text).ok_or_else(|| Refusal::parameter(format!("{name} is {text:?}, not {wanted}")))
    }

    pub(crate) fn int(&self, name: &str) -> Result<i64, Refusal> {
        self.parsed(name, integer, "a whole number")
    }

    pub(crate) fn float(&self, name: &str) -> Result<f32, Refusal> {
        self.parsed(name, float, "a number")
    }

    /// A number that may be infinite: `-inf`, as Python writes it.
    pub(crate) fn limit(&self, name: &str) -> Result<f32, Refusal> {
        self.parsed(
            name,
            |text| float(text).or_else(|| text.parse().ok().filter(|n: &f32| n.is_infinite())),
            "a number",
        )
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        self.parsed(name, flag, "true or false")
    }

    /// A number that is at least 1.
    pub(crate) fn size(&self, name: &str) -> Result<u64, Refusal> {
        self.parsed(name, |text| u64::try_from(integer(text)?).ok().filter(|size| *size > 0), "a number from 1 on")
    }

    /// The numbers of a parameter that repeats, or is a tuple of Python's.
    pub(crate) fn ints(&self, name: &str) -> Result<Vec<i64>, Refusal> {
        self.parsed(name, |text| parts(text).map(integer).collect(), "whole numbers")
    }

    /// The numbers of a tuple of Python's, some of which may be `None`.
    pub(crate) fn some_ints(&self, name: &str) -> Result<Vec<Option<i64>>, Refusal> {
        self.parsed(
            name,
            |text| parts(text).map(|part| if part == "None" { Some(None) } else { integer(part).map(Some) }).collect(),
            "whole numbers",
        )
    }

    /// The numbers of a parameter that repeats.
    pub(crate) fn floats(&self, name: &str) -> Result<Vec<f32>, Refusal> {
        self.parsed(name, |text| parts(text).map(float).collect(), "numbers")
    }

    /// The value of an enum, as the place of its name. In a text, an enum's value may also be a number; the names
    /// begin with the number `first`.
    pub(crate) fn choice(&self, name: &str, first: i64, names: &[&str]) -> Result<usize, Refusal> {
        let place = |text: &str| {
            let number = integer(text).and_then(|number| usize::try_from(number - first).ok());
            names.iter().position(|known| *known == text).or(number.filter(|place| *place < names.len()))
        };
        self.parsed(name, place, &format!("one of {}", names.join(", ")))
    }

    /// Whether a parameter has no value, or Python's `None`.
    pub(crate) fn is_none(&self, name: &str) -> bool {
        matches!(self.text(name), "" | "None")
    }

    /// Refuses a layer that states none of these parameters. The messages of forks are lost in a file of weights, so
    /// that a default may be a lost number.
    pub(crate) fn needs_one_of(&self, names: &[&str]) -> Result<(), Refusal> {
        if names.iter().any(|name| self.is_stated(name)) {
            return Ok(());
        }
        let message =
            format!("none of {} is stated: a file of weights may lack them, a prototxt has them", names.join(", "));
        Err(Refusal::parameter(message))
    }

    /// Refuses a parameter of this value, with the reason.
    pub(crate) fn refuse<T>(&self, name: &str, why: impl Display) -> Result<T, Refusal> {
        Err(Refusal::parameter(format!("{name}: {} {why}", self.text(name))))
    }
}

/// The model.
impl Site<'_> {
    /// Adds a node with one output.
    pub(crate) fn op(
        &mut self,
        op_type: &str,
        inputs: &[&Operand],
        attributes: Vec<(&str, Attribute)>,
        shape: Vec<u64>,
    ) -> Result<Operand, Refusal> {
        let outputs = self.ops(op_type, inputs, attributes, vec![(DType::F32, shape)])?;
        outputs.into_iter().next().ok_or_else(|| Refusal::shape("no output"))
    }

    /// Adds a node whose outputs have these types and shapes.
    pub(crate) fn ops(
        &mut self,
        op_type: &str,
        inputs: &[&Operand],
        attributes: Vec<(&str, Attribute)>,
        outputs: Vec<(DType, Vec<u64>)>,
    ) -> Result<Vec<Operand>, Refusal> {
        let base = format!("{}/{op_type}", self.node.name);
        let mut written = Vec::with_capacity(outputs.len());
        for (dtype, shape) in outputs {
            count(&shape)?;
            written.push(Operand { name: self.body.names.claim(&base), shape, dtype, is_whole: false });
        }
        self.body.nodes.push(OnnxNode {
            name: written.first().map_or(base, |first| first.name.clone()),
            op_type: op_type.to_owned(),
            domain: String::new(),
            inputs: inputs.iter().map(|input| input.name.clone()).collect(),
            outputs: written.iter().map(|output| output.name.clone()).collect(),
            attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        });
        self.body.values.extend(written.iter().cloned());
        Ok(written)
    }

    /// The layer's tensor of this index, in a form with this shape.
    pub(crate) fn weight(&mut self, index: usize, make: Make, shape: &[u64]) -> Result<Operand, Refusal> {
        count(shape)?;
        let tensor = match self.node.tensors.get(index) {
            Some(tensor) => tensor.clone(),
            None => format!("{}/{index}", self.node.name),
        };
        self.body.stored(&tensor, make, shape)
    }

    /// The shape of the layer's tensor of this index, where it is known.
    pub(crate) fn stored_shape(&self, index: usize) -> Option<&[u64]> {
        self.stored.get(self.node.tensors.get(index)?).map(Vec::as_slice)
    }

    /// A constant of numbers.
    pub(crate) fn floats_of(&mut self, values: &[f32], shape: &[u64]) -> Result<Operand, Refusal> {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.body.constant(&format!("{}/const", self.node.name), DType::F32, shape, bytes)
    }

    /// A number.
    pub(crate) fn scalar(&mut self, value: f32) -> Result<Operand, Refusal> {
        self.floats_of(&[value], &[])
    }

    /// A vector of integers: a shape, axes.
    pub(crate) fn ints_of(&mut self, values: &[i64]) -> Result<Operand, Refusal> {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.body.constant(&format!("{}/const", self.node.name), DType::I64, &[values.len() as u64], bytes)
    }

    /// The value in another shape. A first extent that stays is written as 0, so that the batch may be of any size.
    pub(crate) fn reshape(&mut self, x: &Operand, shape: &[u64]) -> Result<Operand, Refusal> {
        if x.shape == shape {
            return Ok(x.clone());
        }
        if count(&x.shape)? != count(shape)? {
            return Err(Refusal::shape(format!("{} as {}", shown(&x.shape), shown(shape))));
        }
        let mut wanted: Vec<i64> = shape.iter().map(|extent| *extent as i64).collect();
        if shape.len() > 1 && shape.first() == x.shape.first() {
            wanted[0] = 0;
        }
        let wanted = self.ints_of(&wanted)?;
        let outputs = self.ops("Reshape", &[x, &wanted], vec![], vec![(x.dtype, shape.to_vec())])?;
        outputs.into_iter().next().ok_or_else(|| Refusal::shape("no output"))
    }

    /// The only input's shape, or the first one's.
    pub(crate) fn x(&self) -> Operand {
        self.inputs[0].clone()
    }

    /// Refuses inputs of other ranks.
    pub(crate) fn rank(&self, x: &Operand, ranks: std::ops::RangeInclusive<usize>) -> Result<(), Refusal> {
        if ranks.contains(&x.shape.len()) {
            return Ok(());
        }
        Err(Refusal::shape(format!("an input of {} axes: {}", x.shape.len(), shown(&x.shape))))
    }
}

/// Integers as an attribute.
pub(crate) fn ints(values: impl IntoIterator<Item = u64>) -> Attribute {
    Attribute::Ints(values.into_iter().map(|value| value as i64).collect())
}

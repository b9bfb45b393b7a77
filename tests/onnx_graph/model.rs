//! Reads an ONNX model for the interpreter: the fields of onnx.proto by number, over the tests' own protobuf reader.
//! Panics on an unknown field, so that nothing in an emitted model goes unseen.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::tensor::{Kind, Tensor};
use crate::support::message::{content, fields};

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) ir_version: u64,
    pub(crate) opset: u64,
    pub(crate) inputs: Vec<Value>,
    pub(crate) outputs: Vec<Value>,
    /// Intermediate values with the shapes that the model declares.
    pub(crate) values: Vec<Value>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) initializers: BTreeMap<String, Tensor>,
}

/// A value with the declared shape; a symbolic extent is `None`.
#[derive(Debug, Default)]
pub(crate) struct Value {
    pub(crate) name: String,
    pub(crate) element: u64,
    pub(crate) dims: Option<Vec<Option<usize>>>,
}

#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) domain: String,
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    attributes: BTreeMap<String, Attribute>,
    /// The attributes that the interpreter asked for: any other would be ignored.
    asked: RefCell<BTreeSet<String>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    Int(i64),
    Float(f64),
    Text(String),
    Ints(Vec<i64>),
    Tensor(Tensor),
}

impl Node {
    pub(crate) fn new(attributes: BTreeMap<String, Attribute>) -> Self {
        Self { attributes, ..Self::default() }
    }

    fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.asked.borrow_mut().insert(name.to_owned());
        self.attributes.get(name)
    }

    pub(crate) fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).map_or(default, |found| match found {
            Attribute::Int(value) => *value,
            other => panic!("{}: {name} is {other:?}", self.name),
        })
    }

    pub(crate) fn float(&self, name: &str, default: f64) -> f64 {
        self.attribute(name).map_or(default, |found| match found {
            Attribute::Float(value) => *value,
            other => panic!("{}: {name} is {other:?}", self.name),
        })
    }

    pub(crate) fn text(&self, name: &str, default: &str) -> String {
        self.attribute(name).map_or(default.to_owned(), |found| match found {
            Attribute::Text(value) => value.clone(),
            other => panic!("{}: {name} is {other:?}", self.name),
        })
    }

    pub(crate) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attribute(name).map(|found| match found {
            Attribute::Ints(values) => values.clone(),
            other => panic!("{}: {name} is {other:?}", self.name),
        })
    }

    pub(crate) fn tensor(&self, name: &str) -> Option<Tensor> {
        self.attribute(name).map(|found| match found {
            Attribute::Tensor(value) => value.clone(),
            other => panic!("{}: {name} is {other:?}", self.name),
        })
    }

    /// The attributes that no operator asked for.
    pub(crate) fn unread(&self) -> Vec<&String> {
        self.attributes.keys().filter(|name| !self.asked.borrow().contains(*name)).collect()
    }
}

/// The values of a field: one varint, or a packed list.
fn varints(key: u64, field: &[u8]) -> Vec<i64> {
    let mut bytes = if key & 7 == 2 { content(field) } else { after_key(field) };
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let len = bytes.iter().position(|byte| *byte < 128).expect("a varint") + 1;
        let value = bytes[..len].iter().rev().fold(0u64, |value, byte| value << 7 | u64::from(byte & 127));
        found.push(value as i64);
        bytes = &bytes[len..];
    }
    found
}

fn after_key(field: &[u8]) -> &[u8] {
    &field[field.iter().position(|byte| *byte < 128).expect("a key") + 1..]
}

/// Floats of four bytes: one, or a packed list.
fn floats(key: u64, field: &[u8]) -> Vec<f64> {
    let bytes = if key & 7 == 2 { content(field) } else { after_key(field) };
    bytes.as_chunks().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect()
}

fn text(field: &[u8]) -> String {
    String::from_utf8(content(field).to_vec()).expect("a text")
}

fn unknown(message: &str, key: u64) -> ! {
    panic!("{message} has field {}, which is not read here", key >> 3)
}

pub(crate) fn model(bytes: &[u8]) -> Model {
    let mut model = Model::default();
    for (key, field) in fields(bytes) {
        match key >> 3 {
            1 => model.ir_version = varints(key, field)[0] as u64,
            2..=6 | 14 => {}
            7 => graph(&mut model, content(field)),
            8 => {
                for (key, field) in fields(content(field)) {
                    match key >> 3 {
                        1 => assert_eq!(text(field), "", "the domain of an operator set"),
                        2 => model.opset = varints(key, field)[0] as u64,
                        _ => unknown("OperatorSetIdProto", key),
                    }
                }
            }
            _ => unknown("ModelProto", key),
        }
    }
    model
}

fn graph(model: &mut Model, bytes: &[u8]) {
    for (key, field) in fields(bytes) {
        match key >> 3 {
            1 => model.nodes.push(node(content(field))),
            2 | 10 => {}
            5 => {
                let (name, tensor) = tensor(content(field));
                assert!(model.initializers.insert(name.clone(), tensor).is_none(), "{name} twice");
            }
            11 => model.inputs.push(value(content(field))),
            12 => model.outputs.push(value(content(field))),
            13 => model.values.push(value(content(field))),
            _ => unknown("GraphProto", key),
        }
    }
}

fn node(bytes: &[u8]) -> Node {
    let mut node = Node::default();
    for (key, field) in fields(bytes) {
        match key >> 3 {
            1 => node.inputs.push(text(field)),
            2 => node.outputs.push(text(field)),
            3 => node.name = text(field),
            4 => node.kind = text(field),
            5 => {
                let (name, attribute) = attribute(content(field));
                assert!(node.attributes.insert(name.clone(), attribute).is_none(), "{name} twice");
            }
            6 => {}
            7 => node.domain = text(field),
            _ => unknown("NodeProto", key),
        }
    }
    node
}

fn attribute(bytes: &[u8]) -> (String, Attribute) {
    let (mut name, mut kind) = (String::new(), 0);
    let (mut one, mut ints) = (None, Vec::new());
    for (key, field) in fields(bytes) {
        match key >> 3 {
            1 => name = text(field),
            2 => one = Some(Attribute::Float(floats(key, field)[0])),
            3 => one = Some(Attribute::Int(varints(key, field)[0])),
            4 => one = Some(Attribute::Text(text(field))),
            5 => one = Some(Attribute::Tensor(tensor(content(field)).1)),
            8 => ints.extend(varints(key, field)),
            20 => kind = varints(key, field)[0],
            _ => unknown("AttributeProto", key),
        }
    }
    // AttributeProto.AttributeType: FLOAT 1, INT 2, STRING 3, TENSOR 4, INTS 7. An absent scalar is 0.
    let attribute = match (kind, one) {
        (1, one) => one.unwrap_or(Attribute::Float(0.0)),
        (2, one) => one.unwrap_or(Attribute::Int(0)),
        (3, one) => one.unwrap_or(Attribute::Text(String::new())),
        (4, Some(tensor)) => tensor,
        (7, None) => Attribute::Ints(ints),
        other => panic!("attribute {name}: {other:?}"),
    };
    (name, attribute)
}

fn value(bytes: &[u8]) -> Value {
    let mut value = Value::default();
    for (key, field) in fields(bytes) {
        match key >> 3 {
            1 => value.name = text(field),
            2 => {
                let [(10, tensor)] = fields(content(field))[..] else { panic!("{}: no tensor", value.name) };
                for (key, field) in fields(content(tensor)) {
                    match key >> 3 {
                        1 => value.element = varints(key, field)[0] as u64,
                        2 => {
                            value.dims =
                                Some(fields(content(field)).iter().map(|(_, dim)| extent(content(dim))).collect())
                        }
                        _ => unknown("TypeProto.Tensor", key),
                    }
                }
            }
            3 => {}
            _ => unknown("ValueInfoProto", key),
        }
    }
    value
}

fn extent(dim: &[u8]) -> Option<usize> {
    fields(dim).iter().find(|(key, _)| key >> 3 == 1).map(|(key, field)| varints(*key, field)[0] as usize)
}

/// A tensor with raw or typed values, in the file itself.
fn tensor(bytes: &[u8]) -> (String, Tensor) {
    let (mut name, mut dims, mut element) = (String::new(), Vec::new(), 0);
    let (mut raw, mut typed) = (None, Vec::new());
    for (key, field) in fields(bytes) {
        match key >> 3 {
            1 => dims.extend(varints(key, field).iter().map(|dim| *dim as usize)),
            2 => element = varints(key, field)[0],
            4 => typed.extend(floats(key, field)),
            5 | 7 => typed.extend(varints(key, field).iter().map(|value| *value as f64)),
            8 => name = text(field),
            9 => raw = Some(content(field).to_vec()),
            12 => {}
            _ => unknown("TensorProto", key),
        }
    }
    let (kind, values) = match (element, raw) {
        (1, Some(raw)) => {
            (Kind::Float, raw.as_chunks().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect())
        }
        (7, Some(raw)) => {
            (Kind::Integer, raw.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes) as f64).collect())
        }
        (10, Some(raw)) => {
            (Kind::Float, raw.as_chunks().0.iter().map(|bytes| half(u16::from_le_bytes(*bytes))).collect())
        }
        (9, Some(raw)) => (Kind::Bool, raw.iter().map(|byte| f64::from(*byte)).collect()),
        (1, None) => (Kind::Float, typed),
        (7, None) => (Kind::Integer, typed),
        other => panic!("{name}: element type {}", other.0),
    };
    (name, Tensor::new(&dims, values, kind))
}

/// The value of an IEEE half: a sign, 5 bits of exponent, 10 of fraction.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023) / 1024.0);
    assert!(exponent < 31, "a weight that is not finite");
    let size = if exponent == 0 { fraction * 2f64.powi(-14) } else { (1.0 + fraction) * 2f64.powi(exponent - 15) };
    if bits >> 15 == 1 { -size } else { size }
}

//! Lays out an ONNX model: the graph's messages around the values of the initializers.
//!
//! Constants become `Constant` nodes, so that a reader of the file finds the conversion's tensors as initializers and
//! no shapes or axes among them; onnxruntime makes initializers of such nodes when it loads a model. A file of values
//! beside the model is laid out as if it followed the model, as `external` reads such files.

use std::collections::{BTreeMap, HashMap};

use blob_core::{DType, Shape};
use prost::Message as _;

use crate::error::Error;
use crate::onnx::model::{Attribute, Dim, Initializer, Model, Node, Value};
use crate::onnx::numbers::{graph_proto, model_proto, tensor_proto as tensor_fields};
use crate::onnx::proto::attribute_proto::AttributeType;
use crate::onnx::proto::tensor_proto::DataLocation;
use crate::onnx::proto::tensor_shape_proto::Dimension;
use crate::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};
use crate::onnx::types;
use crate::parts::{FilePart, Placed, place};
use crate::spec::{TensorSpec, refuse, total, unique};
use crate::words::quoted;

const FORMAT: &str = "onnx";
/// The most bytes of a message that protobuf reads.
const MAX_BYTES: u64 = i32::MAX as u64;
/// Values beside the model begin at a multiple of this: ONNX asks for whole pages, so that values can be mapped.
const PAGE: u64 = 4096;

/// The bytes around the values, of which the metadata come last.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    frame: Vec<(u64, Vec<u8>)>,
    /// The model's own pairs, and the keys of the other pairs.
    own: Vec<(String, String)>,
    keys: Vec<String>,
    /// Where the metadata begin, and how long they are.
    at: u64,
    len: usize,
    /// Whether values follow in another file.
    is_divided: bool,
}

/// The values in the file beside the model: the offsets of the tensors there, by the tensors' places.
#[derive(Default)]
struct Outside<'m> {
    location: &'m str,
    offsets: BTreeMap<usize, u64>,
    len: u64,
}

/// Lays out a model; see [`Frame::Onnx`](crate::layout::Frame::Onnx).
pub(crate) fn plan(
    specs: &[TensorSpec],
    model: &Model,
    metadata: &[(String, String)],
) -> Result<(Plan, Placed), Error> {
    let all = model.metadata.iter().chain(metadata);
    unique(FORMAT, "the metadata key", all.map(|(key, _)| key.as_str()))?;
    unique(FORMAT, "the initializer", model.initializers.iter().map(Initializer::name))?;
    let outside = Outside::of(specs, model)?;
    let mut parts = parts(specs, model, &outside)?;
    // Each tensor has a place; those beside the model get theirs below.
    parts.extend(outside.offsets.keys().map(|tensor| FilePart::Values(*tensor)));
    let mut placed = place(FORMAT, &parts, specs, u64::MAX)?;
    let frame = std::mem::take(&mut placed.frame);
    let keys = metadata.iter().map(|(key, _)| key.clone()).collect();
    let at = placed.len - outside.offsets.keys().map(|tensor| specs[*tensor].byte_len()).sum::<u64>();
    let is_divided = !outside.offsets.is_empty();
    let mut plan = Plan { frame, own: model.metadata.clone(), keys, at, len: 0, is_divided };
    plan.len = plan.tail(metadata).len();
    let end = total(FORMAT, at, plan.len as u64)?;
    if end > MAX_BYTES {
        let message = format!("the model would have {end} bytes, and protobuf reads at most {MAX_BYTES}");
        return Err(refuse(FORMAT, message));
    }
    for (tensor, offset) in &outside.offsets {
        placed.offsets[*tensor] = total(FORMAT, end, *offset)?;
    }
    placed.len = total(FORMAT, end, outside.len)?;
    Ok((plan, placed))
}

impl<'m> Outside<'m> {
    fn of(specs: &[TensorSpec], model: &'m Model) -> Result<Self, Error> {
        let Some(location) = &model.outside else { return Ok(Self::default()) };
        let mut outside = Self { location, ..Self::default() };
        for (tensor, spec) in specs.iter().enumerate().filter(|(_, spec)| spec.byte_len() >= Model::OUTSIDE) {
            let at = total(FORMAT, outside.len, PAGE - 1)? / PAGE * PAGE;
            outside.offsets.insert(tensor, at);
            outside.len = total(FORMAT, at, spec.byte_len())?;
        }
        Ok(outside)
    }

    /// The pairs of `external_data`, as ONNX's `set_external_data` writes them.
    fn place(&self, offset: u64, len: u64) -> Vec<StringStringEntryProto> {
        vec![
            pair("location", self.location.to_owned()),
            pair("offset", offset.to_string()),
            pair("length", len.to_string()),
        ]
    }
}

impl Plan {
    /// Where the model ends and the file beside the model begins; `None` where no values are beside the model.
    pub(crate) fn divided(&self) -> Option<u64> {
        self.is_divided.then_some(self.at + self.len as u64)
    }

    pub(crate) fn frame(&self, metadata: &[(String, String)]) -> Result<Vec<(u64, Vec<u8>)>, Error> {
        if !self.keys.iter().eq(metadata.iter().map(|(key, _)| key)) {
            return Err(refuse(FORMAT, "the metadata have other keys than in the layout"));
        }
        let tail = self.tail(metadata);
        if tail.len() != self.len {
            let message = format!("the metadata take {} bytes, in the layout they took {}", tail.len(), self.len);
            return Err(refuse(FORMAT, message));
        }
        let mut frame = self.frame.clone();
        frame.extend((!tail.is_empty()).then_some((self.at, tail)));
        Ok(frame)
    }

    /// The metadata as the last fields of the model.
    fn tail(&self, metadata: &[(String, String)]) -> Vec<u8> {
        let all = self.own.iter().chain(metadata).map(|(key, value)| pair(key, value.clone()));
        ModelProto { metadata_props: all.collect(), ..ModelProto::default() }.encode_to_vec()
    }
}

/// The model up to the metadata, in the order of the fields' numbers.
fn parts(specs: &[TensorSpec], model: &Model, outside: &Outside<'_>) -> Result<Vec<FilePart>, Error> {
    let places: HashMap<&str, usize> = specs.iter().enumerate().map(|(place, spec)| (&*spec.name, place)).collect();
    let constants = model.initializers.iter().filter_map(constant).collect::<Result<Vec<_>, Error>>()?;
    let nodes = constants.into_iter().chain(model.nodes.iter().map(node));
    let mut graph: Vec<FilePart> =
        nodes.map(|node| FilePart::Field(graph_proto::NODE, vec![FilePart::Bytes(node.encode_to_vec())])).collect();
    graph.push(FilePart::Bytes(GraphProto { name: Some(model.name.clone()), ..GraphProto::default() }.encode_to_vec()));
    for initializer in &model.initializers {
        let Initializer::Stored { name, dtype, shape } = initializer else { continue };
        let found = places.get(&**name).copied().filter(|place| {
            let spec = &specs[*place];
            (spec.dtype, &spec.shape) == (*dtype, shape)
        });
        let Some(found) = found else {
            return Err(refuse(FORMAT, format!("initializer {} is no tensor of {shape} {dtype}", quoted(name))));
        };
        let mut head = tensor(name, *dtype, shape, None)?;
        let values = match outside.offsets.get(&found) {
            None => Some(FilePart::Field(tensor_fields::RAW_DATA, vec![FilePart::Values(found)])),
            Some(offset) => {
                head.external_data = outside.place(*offset, specs[found].byte_len());
                head.data_location = Some(DataLocation::External.into());
                None
            }
        };
        let fields = std::iter::once(FilePart::Bytes(head.encode_to_vec())).chain(values);
        graph.push(FilePart::Field(graph_proto::INITIALIZER, fields.collect()));
    }
    let values = |values: &[Value]| values.iter().map(value).collect::<Result<Vec<_>, Error>>();
    let (input, output, value_info) = (values(&model.inputs)?, values(&model.outputs)?, values(&model.values)?);
    graph.push(FilePart::Bytes(GraphProto { input, output, value_info, ..GraphProto::default() }.encode_to_vec()));
    let head = ModelProto {
        ir_version: Some(model.ir_version),
        producer_name: Some("blob".to_owned()),
        producer_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        ..ModelProto::default()
    };
    let mut domains: Vec<&str> =
        model.nodes.iter().map(|node| &*node.domain).filter(|domain| !domain.is_empty()).collect();
    domains.sort_unstable();
    domains.dedup();
    let own = OperatorSetIdProto { domain: Some(String::new()), version: Some(model.opset) };
    let others =
        domains.into_iter().map(|domain| OperatorSetIdProto { domain: Some(domain.to_owned()), version: Some(1) });
    let opset_import = std::iter::once(own).chain(others).collect();
    Ok(vec![
        FilePart::Bytes(head.encode_to_vec()),
        FilePart::Field(model_proto::GRAPH, graph),
        FilePart::Bytes(ModelProto { opset_import, ..ModelProto::default() }.encode_to_vec()),
    ])
}

/// The node that gives a constant; `None` for values that are stored as an initializer.
fn constant(initializer: &Initializer) -> Option<Result<NodeProto, Error>> {
    let Initializer::Constant { name, dtype, shape, bytes } = initializer else { return None };
    let expected = shape.count() * dtype.size();
    if bytes.len() != expected {
        let message = format!("constant {} has {} bytes, not {expected}", quoted(name), bytes.len());
        return Some(Err(refuse(FORMAT, message)));
    }
    let value = tensor(name, *dtype, shape, Some(bytes.clone()));
    Some(value.map(|value| NodeProto {
        output: vec![name.clone()],
        name: Some(name.clone()),
        op_type: Some("Constant".to_owned()),
        attribute: vec![AttributeProto {
            name: Some("value".to_owned()),
            t: Some(value),
            r#type: Some(AttributeType::Tensor.into()),
            ..AttributeProto::default()
        }],
        ..NodeProto::default()
    }))
}

fn pair(key: &str, value: String) -> StringStringEntryProto {
    StringStringEntryProto { key: Some(key.to_owned()), value: Some(value) }
}

fn tensor(name: &str, dtype: DType, shape: &Shape, raw_data: Option<Vec<u8>>) -> Result<TensorProto, Error> {
    let dims = shape.dims().iter().map(|extent| *extent as i64).collect();
    let data_type = Some(number(name, dtype)?);
    Ok(TensorProto { dims, data_type, name: Some(name.to_owned()), raw_data, ..TensorProto::default() })
}

fn number(name: &str, dtype: DType) -> Result<i32, Error> {
    types::number_of(dtype).ok_or_else(|| refuse(FORMAT, format!("{}: no {dtype} in this format", quoted(name))))
}

fn node(node: &Node) -> NodeProto {
    NodeProto {
        input: node.inputs.clone(),
        output: node.outputs.clone(),
        name: Some(node.name.clone()),
        op_type: Some(node.op_type.clone()),
        attribute: node.attributes.iter().map(|(name, value)| attribute(name, value)).collect(),
        domain: Some(node.domain.clone()).filter(|domain| !domain.is_empty()),
        ..NodeProto::default()
    }
}

fn attribute(name: &str, value: &Attribute) -> AttributeProto {
    let named = AttributeProto { name: Some(name.to_owned()), ..AttributeProto::default() };
    let of = |kind: AttributeType| Some(kind.into());
    match value {
        Attribute::Int(i) => AttributeProto { i: Some(*i), r#type: of(AttributeType::Int), ..named },
        Attribute::Float(f) => AttributeProto { f: Some(*f), r#type: of(AttributeType::Float), ..named },
        Attribute::Text(text) => {
            AttributeProto { s: Some(text.clone().into_bytes()), r#type: of(AttributeType::String), ..named }
        }
        Attribute::Ints(ints) => AttributeProto { ints: ints.clone(), r#type: of(AttributeType::Ints), ..named },
        Attribute::Floats(floats) => {
            AttributeProto { floats: floats.clone(), r#type: of(AttributeType::Floats), ..named }
        }
    }
}

fn value(value: &Value) -> Result<ValueInfoProto, Error> {
    let dims = value.shape.iter().map(|dim| match dim {
        Dim::Size(extent) => Dimension { dim_value: Some(*extent as i64), dim_param: None },
        Dim::Name(name) => Dimension { dim_value: None, dim_param: Some(name.clone()) },
    });
    let shape = TensorShapeProto { dim: dims.collect() };
    let tensor_type = type_proto::Tensor { elem_type: Some(number(&value.name, value.dtype)?), shape: Some(shape) };
    let of = TypeProto { tensor_type: Some(tensor_type) };
    Ok(ValueInfoProto { name: Some(value.name.clone()), r#type: Some(of), ..ValueInfoProto::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// y = x · w + b, where b is a constant.
    fn model() -> Model {
        let shape = Shape::new([2]).expect("a shape");
        let value = |name: &str| Value {
            name: name.to_owned(),
            dtype: DType::F32,
            shape: vec![Dim::Name("batch".to_owned()), Dim::Size(2)],
        };
        let bytes = [1.0_f32, 2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        Model {
            ir_version: 8,
            opset: 17,
            name: "net".to_owned(),
            inputs: vec![value("x")],
            outputs: vec![value("y")],
            values: vec![value("z")],
            nodes: vec![Node::new("Mul", &["x", "w"], "z"), Node::new("Add", &["z", "b"], "y")],
            initializers: vec![
                Initializer::Stored { name: "w".to_owned(), dtype: DType::F32, shape: shape.clone() },
                Initializer::Constant { name: "b".to_owned(), dtype: DType::F32, shape, bytes },
            ],
            metadata: vec![("own".to_owned(), "kept".to_owned())],
            outside: None,
        }
    }

    #[test]
    fn a_model_is_read_by_prost_with_values_in_their_place() {
        let spec = TensorSpec::new("w", DType::F32, Shape::new([2]).expect("a shape"));
        let pairs = |value: &str| vec![("receipt".to_owned(), value.to_owned())];
        let (plan, placed) = plan(std::slice::from_ref(&spec), &model(), &pairs("000")).expect("fits");
        let mut file = vec![0xAA; placed.len as usize];
        let at = placed.offsets[0] as usize;
        file[at..at + 8].copy_from_slice(&[0, 0, 128, 63, 0, 0, 0, 64]);
        for (at, bytes) in plan.frame(&pairs("123")).expect("as long") {
            file[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        let read = ModelProto::decode(&*file).expect("a message");
        let texts: Vec<_> = read.metadata_props.iter().map(|pair| (pair.key(), pair.value())).collect();
        assert_eq!(texts, [("own", "kept"), ("receipt", "123")]);
        assert_eq!((read.opset_import.len(), read.opset_import[0].version()), (1, 17));
        let graph = read.graph.expect("a graph");
        assert_eq!(graph.node.iter().map(NodeProto::op_type).collect::<Vec<_>>(), ["Constant", "Mul", "Add"]);
        let [weight] = &graph.initializer[..] else { panic!("{:?}", graph.initializer) };
        assert_eq!((weight.dims.as_slice(), weight.raw_data()), (&[2][..], &[0, 0, 128, 63, 0, 0, 0, 64][..]));
        assert_eq!((graph.input.len(), graph.output.len(), graph.value_info.len()), (1, 1, 1));
        assert!(plan.frame(&pairs("1234")).is_err() && plan.frame(&[]).is_err());
    }

    /// Values of 1,024 bytes and more, each at a page of the other file; the model ends with the metadata.
    #[test]
    fn values_beside_a_model_begin_at_pages() {
        let lens = [256_usize, 255, 1025, 1024];
        let shape = |len: usize| Shape::new([len]).expect("a shape");
        let stored = |name: &str, len: usize| Initializer::Stored {
            name: name.to_owned(),
            dtype: DType::F32,
            shape: shape(len),
        };
        let named: Vec<(String, usize)> = lens.iter().enumerate().map(|(i, len)| (format!("w{i}"), *len)).collect();
        let specs: Vec<TensorSpec> =
            named.iter().map(|(name, len)| TensorSpec::new(name, DType::F32, shape(*len))).collect();
        let initializers = named.iter().map(|(name, len)| stored(name, *len)).collect();
        let whole = Model { initializers, nodes: Vec::new(), ..model() };
        let model = Model { outside: Some("m.onnx.data".to_owned()), ..whole.clone() };
        let pairs = vec![("receipt".to_owned(), "000".to_owned())];
        let (plan, placed) = self::plan(&specs, &model, &pairs).expect("fits");
        let end = plan.divided().expect("two files");
        // One page of 1,024 bytes, two of 4,100, and 4,096.
        assert_eq!(placed.len, end + 3 * PAGE + 4096);
        let mut file = vec![0; end as usize];
        for (at, bytes) in plan.frame(&pairs).expect("as long") {
            file[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        let read = ModelProto::decode(&*file).expect("a message");
        assert_eq!(read.metadata_props.len(), 2);
        let mut next = 0;
        for (tensor, (spec, at)) in
            read.graph.expect("a graph").initializer.iter().zip(specs.iter().zip(placed.offsets))
        {
            let is_outside = spec.byte_len() >= Model::OUTSIDE;
            assert_eq!(tensor.data_location == Some(DataLocation::External.into()), is_outside);
            assert_eq!(tensor.raw_data.is_none(), is_outside);
            let pairs: Vec<_> = tensor.external_data.iter().map(|pair| (pair.key(), pair.value())).collect();
            if !is_outside {
                assert!(pairs.is_empty() && at + spec.byte_len() <= end, "{tensor:?}");
                continue;
            }
            let (offset, len) = (next.to_string(), spec.byte_len().to_string());
            assert_eq!(pairs, [("location", "m.onnx.data"), ("offset", &*offset), ("length", &*len)]);
            assert_eq!((at, next % PAGE), (end + next, 0));
            next = (next + spec.byte_len()).next_multiple_of(PAGE);
        }
        let short = Model { initializers: whole.initializers[1..2].to_vec(), ..model };
        let (plan, _) = self::plan(&specs[1..2], &short, &pairs).expect("fits");
        assert_eq!(plan.divided(), None);
    }

    #[test]
    fn a_model_that_does_not_fit_its_tensors_is_refused() {
        let spec = |extent: usize| TensorSpec::new("w", DType::F32, Shape::new([extent]).expect("a shape"));
        let refused = |specs: &[TensorSpec], model: &Model| plan(specs, model, &[]).expect_err("refused").to_string();
        assert!(refused(&[spec(3)], &model()).contains("no tensor of 2 f32"));
        assert!(refused(&[], &model()).contains("\"w\""));
        let other = TensorSpec::new("v", DType::F32, Shape::new([2]).expect("a shape"));
        assert!(refused(&[spec(2), other], &model()).contains("nowhere in the file"));
        let mut short = model();
        if let Some(Initializer::Constant { bytes, .. }) = short.initializers.last_mut() {
            bytes.pop();
        }
        assert!(refused(&[spec(2)], &short).contains("has 7 bytes, not 8"));
        let huge = 1 << 29;
        let mut large = model();
        if let Some(Initializer::Stored { shape, .. }) = large.initializers.first_mut() {
            *shape = Shape::new([huge]).expect("a shape");
        }
        assert!(refused(&[spec(huge)], &large).contains("protobuf reads at most 2147483647"));
    }
}

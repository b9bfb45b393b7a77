//! What a Caffe file to be written says beside its values: which message it is, its layers, its blobs, its counters.
//!
//! Pure: it sees names, dtypes and shapes. Which message names spell is `named`.

use blob_core::DType;

use crate::caffe::encode::{self, Blob, Form, Values};
use crate::caffe::types::v1_number;
use crate::error::{Error, Remedy};
use crate::format::Format;
use crate::parts::{self, Part, Placed, varint};
use crate::spec::{Problems, TensorSpec};

/// No Caffe reads a longer message: protobuf counts its bytes in an `int`.
pub(crate) const MOST_BYTES: u64 = i32::MAX as u64;

/// The key of a Datum's `float_data`, field 6 of 32 bits: Caffe's message does not pack it.
const FLOAT: u8 = 6 << 3 | 5;

/// A Caffe message that is to be written, without its values.
///
/// Blobs name the tensors of a [`Layout`](crate::Layout) that hold their values, by their index there.
///
/// ```
/// use blob_core::{DType, Shape};
/// use blob_io::caffe::Message;
/// use blob_io::{Layout, TensorSpec};
///
/// let mut net = Message::net("mlp");
/// net.layer("ip1", Some("InnerProduct"));
/// net.push(0, None);
/// let layout = Layout::caffe(&[TensorSpec::new("ip1/0", DType::F32, Shape::new([2, 3])?)], &net)?;
/// assert_eq!(layout.len(), (2 + 3) + (3 + (2 + 3) + (2 + 12) + 2 + (2 + 24 + 2 + 4)));
/// # Ok::<(), blob_io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Message {
    form: Form,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    Blob(Pair),
    Vector(Vec<Pair>),
    Solver { iter: Option<i32>, learned_net: Option<String>, current_step: Option<i32>, history: Vec<Pair> },
    Datum { tensor: usize, label: Option<i32> },
    Net { name: String, layers: Vec<Layer> },
}

/// The tensors of a blob.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) data: usize,
    pub(crate) diff: Option<usize>,
}

#[derive(Clone, Debug)]
struct Layer {
    name: String,
    layer_type: Option<String>,
    blobs: Vec<Pair>,
}

impl Message {
    /// One BlobProto.
    #[must_use]
    pub fn blob(data: usize, diff: Option<usize>) -> Self {
        Self::of(Body::Blob(Pair { data, diff }))
    }

    /// A BlobProtoVector, still empty.
    #[must_use]
    pub fn vector() -> Self {
        Self::of(Body::Vector(Vec::new()))
    }

    /// A SolverState of these counters, which lacks what is `None`; its history is still empty.
    #[must_use]
    pub fn solver(iter: Option<i32>, learned_net: Option<&str>, current_step: Option<i32>) -> Self {
        let learned_net = learned_net.map(str::to_owned);
        Self::of(Body::Solver { iter, learned_net, current_step, history: Vec::new() })
    }

    /// A Datum of u8 or f32 values of three axes: channels, height and width. Caffe stores floats one by one, each a field.
    #[must_use]
    pub fn datum(tensor: usize, label: Option<i32>) -> Self {
        Self::of(Body::Datum { tensor, label })
    }

    /// A NetParameter of this name, which is not stored where it is empty; still without layers.
    #[must_use]
    pub fn net(name: &str) -> Self {
        Self::of(Body::Net { name: name.to_owned(), layers: Vec::new() })
    }

    fn of(body: Body) -> Self {
        Self { form: Form::default(), body }
    }

    /// The same message with its blobs stored in this form.
    #[must_use]
    pub fn in_form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// Begins a layer of a net; its type is that of V2 (`Convolution`). Other messages have no layers and stay as they are.
    pub fn layer(&mut self, name: &str, layer_type: Option<&str>) {
        if let Body::Net { layers, .. } = &mut self.body {
            let layer_type = layer_type.map(str::to_owned);
            layers.push(Layer { name: name.to_owned(), layer_type, blobs: Vec::new() });
        }
    }

    /// Adds a blob: to the net's last layer, which there must be, to a vector, or to a solver's history. One blob and a Datum
    /// are whole, and stay as they are.
    pub fn push(&mut self, data: usize, diff: Option<usize>) {
        let blobs = match &mut self.body {
            Body::Vector(blobs) | Body::Solver { history: blobs, .. } => Some(blobs),
            Body::Net { layers, .. } => layers.last_mut().map(|layer| &mut layer.blobs),
            Body::Blob(_) | Body::Datum { .. } => None,
        };
        if let Some(blobs) = blobs {
            blobs.push(Pair { data, diff });
        }
    }

    /// Says the type of each layer that has none, where it is known by the layer's first tensor.
    pub fn with_types<'t>(mut self, of: impl Fn(usize) -> Option<&'t str>) -> Self {
        if let Body::Net { layers, .. } = &mut self.body {
            for layer in layers.iter_mut().filter(|layer| layer.layer_type.is_none()) {
                layer.layer_type = layer.blobs.first().and_then(|blob| of(blob.data)).map(str::to_owned);
            }
        }
        self
    }

    /// What the message is called in errors.
    fn format(&self) -> Format {
        match self.body {
            Body::Blob(_) => Format::BlobProto,
            Body::Vector(_) => Format::BlobProtoVector,
            Body::Solver { .. } => Format::SolverState,
            Body::Datum { .. } => Format::Datum,
            Body::Net { .. } => Format::CaffeModel,
        }
    }

    fn blobs(&self) -> Vec<Pair> {
        match &self.body {
            Body::Blob(blob) => vec![*blob],
            Body::Vector(blobs) | Body::Solver { history: blobs, .. } => blobs.clone(),
            Body::Net { layers, .. } => layers.iter().flat_map(|layer| layer.blobs.iter().copied()).collect(),
            Body::Datum { .. } => Vec::new(),
        }
    }
}

/// Lays out a message; see [`crate::Layout::caffe`].
pub(crate) fn plan(specs: &[TensorSpec], message: &Message) -> Result<Placed, Error> {
    let format = message.format().name();
    let mut problems = Problems::default();
    for blob in message.blobs() {
        check(specs, blob, message.form, &mut problems);
    }
    let parts = match &message.body {
        Body::Datum { tensor, label } => datum(specs, *tensor, *label, &mut problems),
        _ if !problems.is_empty() => Vec::new(),
        Body::Blob(blob) => one(specs, *blob, message.form),
        Body::Vector(blobs) => fields(specs, blobs, 1, message.form),
        Body::Solver { iter, learned_net, current_step, history } => {
            let mut parts = vec![int(0x08, *iter)];
            parts.extend(learned_net.as_ref().map(|path| text(2, path)));
            parts.extend(fields(specs, history, 3, message.form));
            parts.push(int(0x20, *current_step));
            parts
        }
        Body::Net { name, layers } => {
            let mut parts = Vec::new();
            if !name.is_empty() {
                parts.push(text(1, name));
            }
            parts.extend(layers.iter().map(|layer| net_layer(specs, layer, message.form, &mut problems)));
            parts
        }
    };
    problems.refused(format)?;
    parts::place(format, &parts, specs, MOST_BYTES)
}

fn check(specs: &[TensorSpec], pair: Pair, form: Form, problems: &mut Problems) {
    let mut both = [Some(pair.data), pair.diff].into_iter().flatten();
    if let Some(missing) = both.find(|tensor| *tensor >= specs.len()) {
        return problems.add("", format!("is a blob of tensor {missing}, which there is not"));
    }
    let spec = &specs[pair.data];
    if let Some(problem) = encode::problem(spec.dtype, &spec.shape, form) {
        problems.add(&spec.name, problem);
    }
    let diff = pair.diff.map(|diff| &specs[diff]);
    if let Some(diff) = diff.filter(|diff| (diff.dtype, &diff.shape) != (spec.dtype, &spec.shape)) {
        let (dtype, shape) = (spec.dtype, &spec.shape);
        let problem = format!("is not of its data's dtype and shape, {dtype} and {shape}");
        problems.add_with(&diff.name, problem, Some(Remedy::NoDiffs));
    }
}

/// The parts of one BlobProto whose tensors fit.
pub(crate) fn one(specs: &[TensorSpec], pair: Pair, form: Form) -> Vec<Part> {
    let spec = &specs[pair.data];
    let blob = Blob {
        shape: spec.shape.clone(),
        dtype: spec.dtype,
        data: Values::Tensor(pair.data),
        diff: pair.diff.map(Values::Tensor),
        unknown: Vec::new(),
    };
    blob.parts(form)
}

fn fields(specs: &[TensorSpec], blobs: &[Pair], number: u32, form: Form) -> Vec<Part> {
    blobs.iter().map(|blob| Part::Field(number, one(specs, *blob, form))).collect()
}

/// A layer: in V2 its name, its type and its blobs are fields 1, 2 and 7; in V1 they are 4, 5 and 6.
fn net_layer(specs: &[TensorSpec], layer: &Layer, form: Form, problems: &mut Problems) -> Part {
    let mut parts = vec![text(if form.v1 { 4 } else { 1 }, &layer.name)];
    match &layer.layer_type {
        None => {}
        Some(layer_type) if !form.v1 => parts.push(text(2, layer_type)),
        Some(layer_type) => match v1_number(layer_type) {
            Some(number) => parts.push(int(0x28, Some(number))),
            None => problems.add(&layer.name, format!("is of type {layer_type:?}, which V1 does not have")),
        },
    }
    parts.extend(fields(specs, &layer.blobs, if form.v1 { 6 } else { 7 }, form));
    Part::Field(if form.v1 { 2 } else { 100 }, parts)
}

/// A layer that is added to a net: it has a name and blobs.
pub(crate) fn new_layer(
    specs: &[TensorSpec],
    name: &str,
    blobs: &[Pair],
    form: Form,
    problems: &mut Problems,
) -> Option<Part> {
    let before = problems.len();
    blobs.iter().for_each(|blob| check(specs, *blob, form, problems));
    let layer = Layer { name: name.to_owned(), layer_type: None, blobs: blobs.to_vec() };
    (problems.len() == before).then(|| net_layer(specs, &layer, form, problems))
}

fn datum(specs: &[TensorSpec], tensor: usize, label: Option<i32>, problems: &mut Problems) -> Vec<Part> {
    let Some(spec) = specs.get(tensor) else {
        problems.add("", format!("is tensor {tensor}, which there is not"));
        return Vec::new();
    };
    let dims = spec.shape.dims();
    let is_float = spec.dtype == DType::F32;
    if !is_float && spec.dtype != DType::U8 || dims.len() != 3 || dims.iter().any(|dim| i32::try_from(*dim).is_err()) {
        let (dtype, shape) = (spec.dtype, &spec.shape);
        problems.add(&spec.name, format!("is {dtype} of {shape}; a Datum is written of u8 or f32 of three axes"));
    }
    let mut head = Vec::new();
    for (dim, key) in dims.iter().zip([0x08, 0x10, 0x18]) {
        head.push(key);
        varint(&mut head, *dim as u64);
    }
    let (head, label) = (Part::Bytes(head), int(0x28, label));
    match is_float {
        true => vec![head, label, Part::Keyed(tensor, FLOAT)],
        false => vec![head, Part::Field(4, vec![Part::Values(tensor)]), label],
    }
}

/// A text field.
pub(crate) fn text(number: u32, text: &str) -> Part {
    Part::Field(number, vec![Part::Bytes(text.as_bytes().to_vec())])
}

/// An int32 field of this one-byte key, where there is a number. A negative one is a varint of ten bytes.
fn int(key: u8, number: Option<i32>) -> Part {
    let mut bytes = Vec::new();
    if let Some(number) = number {
        bytes.push(key);
        varint(&mut bytes, i64::from(number) as u64);
    }
    Part::Bytes(bytes)
}

//! A Caffe file to be written, without the values: the message's type, layers, blobs and counters.
//!
//! Pure: works on names, dtypes and shapes. `named` makes a message from names.

use blob_core::DType;

use crate::caffe::encode::{self, Blob, BlobForm, Values, int};
use crate::caffe::generation::Generation;
use crate::caffe::proto_fields::{blob_proto_vector, datum, net_parameter, solver_state};
use crate::caffe::types::v1_number;
use crate::error::{Error, Remedy};
use crate::format::Format;
use crate::parts::{self, FilePart, Placed};
use crate::spec::{Problems, TensorSpec};

/// No Caffe reads a longer message: protobuf counts a message's bytes in an `int`.
pub(crate) const MAX_BYTES: u64 = i32::MAX as u64;

/// The key of a Datum's `float_data`, field 6 of 32 bits: Caffe's message does not pack the floats.
const FLOAT: u8 = (datum::FLOAT_DATA as u8) << 3 | 5;

/// A Caffe message that is to be written, without the values.
///
/// A blob refers to tensors of a [`Layout`](crate::layout::Layout) by index; the tensors hold the blob's values.
///
/// ```
/// use blob_core::{DType, Shape};
/// use blob_io::caffe::{BlobForm, Layer, Message, Pair};
/// use blob_io::layout::{Frame, Layout, TensorSpec};
///
/// let blobs = vec![Pair { data: 0, diff: None }];
/// let layer = Layer { name: "ip1".to_owned(), layer_type: Some("InnerProduct".to_owned()), blobs };
/// let net = Message::Net { name: "mlp".to_owned(), layers: vec![layer] };
/// let weight = TensorSpec::new("ip1/0", DType::F32, Shape::new([2, 3])?);
/// let layout = Layout::new(&[weight], Frame::Caffe { message: &net, form: BlobForm::default() })?;
/// assert_eq!(layout.len(), (2 + 3) + (3 + (2 + 3) + (2 + 12) + 2 + (2 + 24 + 2 + 4)));
/// # Ok::<(), blob_io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum Message {
    /// One BlobProto.
    Blob(Pair),
    /// A BlobProtoVector.
    Vector(Vec<Pair>),
    /// A SolverState with these counters; `None` is not stored.
    Solver {
        /// The iteration.
        iter: Option<i32>,
        /// The path of the net's snapshot.
        learned_net: Option<String>,
        /// The step of the learning rate's policy.
        current_step: Option<i32>,
        /// The solver's history, in the order of the net's parameters.
        history: Vec<Pair>,
    },
    /// A Datum of u8 or f32 values of three axes: channels, height and width. Caffe stores each float as a separate
    /// field.
    Datum {
        /// The index of the tensor that holds the values.
        tensor: usize,
        /// The class of the image.
        label: Option<i32>,
    },
    /// A NetParameter.
    Net {
        /// The net's name; an empty one is not stored.
        name: String,
        /// The layers.
        layers: Vec<Layer>,
    },
}

/// The tensors of a blob, by index.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The tensor of the blob's values.
    pub data: usize,
    /// The tensor of the gradient or momentum that is stored with the values.
    pub diff: Option<usize>,
}

/// A layer of a net that is to be written.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The layer's name.
    pub name: String,
    /// The layer's type under V2's name (`Convolution`), if known.
    pub layer_type: Option<String>,
    /// The layer's blobs.
    pub blobs: Vec<Pair>,
}

impl Message {
    /// Sets the type of each layer that has none, if `of` knows the type of the layer's first tensor.
    #[must_use]
    pub fn with_types<'t>(mut self, of: impl Fn(usize) -> Option<&'t str>) -> Self {
        if let Self::Net { layers, .. } = &mut self {
            for layer in layers.iter_mut().filter(|layer| layer.layer_type.is_none()) {
                layer.layer_type = layer.blobs.first().and_then(|blob| of(blob.data)).map(str::to_owned);
            }
        }
        self
    }

    /// The message's name in errors.
    fn format(&self) -> Format {
        match self {
            Self::Blob(_) => Format::BlobProto,
            Self::Vector(_) => Format::BlobProtoVector,
            Self::Solver { .. } => Format::SolverState,
            Self::Datum { .. } => Format::Datum,
            Self::Net { .. } => Format::CaffeModel,
        }
    }

    fn blobs(&self) -> Vec<Pair> {
        match self {
            Self::Blob(blob) => vec![*blob],
            Self::Vector(blobs) | Self::Solver { history: blobs, .. } => blobs.clone(),
            Self::Net { layers, .. } => layers.iter().flat_map(|layer| layer.blobs.iter().copied()).collect(),
            Self::Datum { .. } => Vec::new(),
        }
    }
}

/// Lays out a message; see [`Frame::Caffe`](crate::layout::Frame::Caffe).
pub(crate) fn plan(specs: &[TensorSpec], message: &Message, form: BlobForm) -> Result<Placed, Error> {
    let format = message.format().name();
    let mut problems = Problems::default();
    for blob in message.blobs() {
        check(specs, blob, form, &mut problems);
    }
    let parts = match message {
        Message::Datum { tensor, label } => datum_parts(specs, *tensor, *label, &mut problems),
        _ if !problems.is_empty() => Vec::new(),
        Message::Blob(blob) => blob_parts(specs, *blob, form),
        Message::Vector(blobs) => blob_fields(specs, blobs, blob_proto_vector::BLOBS, form),
        Message::Solver { iter, learned_net, current_step, history } => {
            let mut parts = vec![int(solver_state::ITER, *iter)];
            parts.extend(learned_net.as_ref().map(|path| text(solver_state::LEARNED_NET, path)));
            parts.extend(blob_fields(specs, history, solver_state::HISTORY, form));
            parts.push(int(solver_state::CURRENT_STEP, *current_step));
            parts
        }
        Message::Net { name, layers } => {
            let mut parts = Vec::new();
            if !name.is_empty() {
                parts.push(text(net_parameter::NAME, name));
            }
            parts.extend(layers.iter().map(|layer| net_layer(specs, layer, form, &mut problems)));
            parts
        }
    };
    problems.refused(format)?;
    parts::place(format, &parts, specs, MAX_BYTES)
}

fn check(specs: &[TensorSpec], pair: Pair, form: BlobForm, problems: &mut Problems) {
    let mut both = [Some(pair.data), pair.diff].into_iter().flatten();
    if let Some(missing) = both.find(|tensor| *tensor >= specs.len()) {
        return problems.add("", format!("is a blob of tensor {missing}, which does not exist"));
    }
    let spec = &specs[pair.data];
    if let Some(problem) = encode::problem(spec.dtype, &spec.shape, form) {
        problems.add_with(&spec.name, problem, encode::remedy(spec.dtype, form));
    }
    let diff = pair.diff.map(|diff| &specs[diff]);
    if let Some(diff) = diff.filter(|diff| (diff.dtype, &diff.shape) != (spec.dtype, &spec.shape)) {
        let (dtype, shape) = (spec.dtype, &spec.shape);
        let problem = format!("is not of its data's dtype and shape, {dtype} and {shape}");
        problems.add_with(&diff.name, problem, Some(Remedy::NoDiffs));
    }
}

/// The parts of one BlobProto whose tensors fit.
pub(crate) fn blob_parts(specs: &[TensorSpec], pair: Pair, form: BlobForm) -> Vec<FilePart> {
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

fn blob_fields(specs: &[TensorSpec], blobs: &[Pair], number: u32, form: BlobForm) -> Vec<FilePart> {
    blobs.iter().map(|blob| FilePart::Field(number, blob_parts(specs, *blob, form))).collect()
}

fn net_layer(specs: &[TensorSpec], layer: &Layer, form: BlobForm, problems: &mut Problems) -> FilePart {
    let numbers = if form.v1 { Generation::V1.numbers() } else { Generation::V2.numbers() };
    let mut parts = vec![text(numbers.name, &layer.name)];
    match &layer.layer_type {
        None => {}
        Some(layer_type) if !form.v1 => parts.push(text(numbers.layer_type, layer_type)),
        Some(layer_type) => match v1_number(layer_type) {
            Some(number) => parts.push(int(numbers.layer_type, Some(number))),
            None => problems.add(&layer.name, format!("is of type {layer_type:?}, which V1 does not have")),
        },
    }
    parts.extend(blob_fields(specs, &layer.blobs, numbers.blobs, form));
    FilePart::Field(numbers.layer, parts)
}

/// A layer to be added to a net, with a name and blobs; `None` if a blob does not fit.
pub(crate) fn new_layer(
    specs: &[TensorSpec],
    name: &str,
    blobs: &[Pair],
    form: BlobForm,
    problems: &mut Problems,
) -> Option<FilePart> {
    let before = problems.len();
    blobs.iter().for_each(|blob| check(specs, *blob, form, problems));
    let layer = Layer { name: name.to_owned(), layer_type: None, blobs: blobs.to_vec() };
    (problems.len() == before).then(|| net_layer(specs, &layer, form, problems))
}

fn datum_parts(specs: &[TensorSpec], tensor: usize, label: Option<i32>, problems: &mut Problems) -> Vec<FilePart> {
    let Some(spec) = specs.get(tensor) else {
        problems.add("", format!("is tensor {tensor}, which does not exist"));
        return Vec::new();
    };
    let dims = spec.shape.dims();
    let is_float = spec.dtype == DType::F32;
    if !is_float && spec.dtype != DType::U8 || dims.len() != 3 || dims.iter().any(|dim| i32::try_from(*dim).is_err()) {
        let (dtype, shape) = (spec.dtype, &spec.shape);
        problems.add(&spec.name, format!("is {dtype} of {shape}; a Datum is written of u8 or f32 of three axes"));
    }
    let extents = dims.iter().zip([datum::CHANNELS, datum::HEIGHT, datum::WIDTH]);
    let mut parts: Vec<FilePart> = extents.map(|(dim, number)| int(number, Some(*dim as i32))).collect();
    let label = int(datum::LABEL, label);
    if is_float {
        parts.extend([label, FilePart::Keyed(tensor, FLOAT)]);
    } else {
        parts.extend([FilePart::Field(datum::DATA, vec![FilePart::Values(tensor)]), label]);
    }
    parts
}

/// A text field.
pub(crate) fn text(number: u32, text: &str) -> FilePart {
    FilePart::Field(number, vec![FilePart::Bytes(text.as_bytes().to_vec())])
}

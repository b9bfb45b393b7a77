//! A net's layers, each with a kind, inputs, outputs and the names of tensors in the file.
//!
//! The same type for every description of a net: a `.caffemodel`, a prototxt, a symbol file. Pure; the readers are in
//! the formats' folders. Evaluates nothing and infers no shapes.

mod build;
mod state;
mod values;

use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::sync::Arc;

pub(crate) use build::{Builder, Draft, Label};
pub(crate) use state::Rule;
pub use state::{Phase, State};

/// A net's layers, in the order of the description.
///
/// ```
/// use blob_io::caffe;
/// use blob_io::net::{LayerKind, Role};
///
/// let text = br#"layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
///                        convolution_param { num_output: 8 kernel_size: 3 bias_term: false } }
///                layer { name: "bn1" type: "BatchNorm" bottom: "conv1" top: "conv1" }"#;
/// let net = caffe::prototxt("deploy.prototxt", text)?;
/// let [conv, bn] = net.layers() else { panic!("two layers") };
/// assert_eq!((conv.kind, bn.kind), (LayerKind::Convolution, LayerKind::BatchNorm));
/// assert_eq!(conv.tensor(Role::Weight), Some("conv1/0"));
/// assert_eq!(bn.bottoms, conv.tops);
/// assert_eq!(bn.eps, f64::from(1e-5f32));
/// # Ok::<(), blob_io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Net {
    framework: Framework,
    layers: Vec<Layer>,
    /// How often each value is read; an output of the net counts as read.
    uses: Vec<u32>,
    /// Which layer writes each value.
    writers: Vec<Option<NonZero<u32>>>,
    /// The values whose name a value of another layer has too.
    duplicates: HashSet<usize>,
    /// Pairs of values of one name: the first is read before a layer writes the second.
    late: Vec<(usize, usize)>,
    /// The stated shapes of inputs; an extent that is left open is 0.
    shapes: HashMap<usize, Vec<u64>>,
    /// The name of each value; values of one name share the text.
    names: Vec<Arc<str>>,
    /// The values that the description names as outputs. Caffe's names none.
    heads: Vec<usize>,
    /// The stages that the description names for the whole net.
    stages: Vec<String>,
    /// Groups of tensors; each group is one parameter.
    copies: Vec<Vec<Arc<str>>>,
    /// Which layers read which value, as (value, layer), in this order.
    readers: Vec<(u32, u32)>,
    /// The parameters that something reads as an input: the layer, or `None` for the net's user.
    value_readers: HashMap<Arc<str>, Option<u32>>,
    /// The variables of MXNet's that something reads as an input, by value.
    variables: HashMap<usize, Arc<str>>,
}

/// The framework whose layers a net has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Framework {
    /// Caffe, and its forks.
    #[default]
    Caffe,
    /// MXNet.
    Mxnet,
}

/// The reader of a value.
#[derive(Clone, Copy, Debug)]
pub enum Reader<'a> {
    /// A layer, as an input.
    Layer(&'a Layer),
    /// The user of the net, as an output.
    User,
}

/// One layer of a net, with the framework's defaults for settings that the description leaves out.
///
/// Inputs and outputs are indices of values. A layer that works in place writes a new value, so each value has one
/// writer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Layer {
    /// The layer's name.
    pub name: String,
    /// The kind of computation.
    pub kind: LayerKind,
    /// The framework's name of the layer's type: `InnerProduct` in Caffe, also for older files with another spelling,
    /// `FullyConnected` in MXNet.
    pub type_name: String,
    /// The values that the layer reads, without parameters.
    pub bottoms: Vec<usize>,
    /// The values that the layer writes, in order; of MXNet up to the last that something reads.
    pub tops: Vec<usize>,
    pub(crate) tensors: Vec<(Role, Arc<str>)>,
    /// Whether another layer uses one of this layer's tensors too, as a tensor or as an input.
    pub shares_tensors: bool,
    /// Whether the layer is in the net only under certain conditions: Caffe's `include` and `exclude`.
    pub is_conditional: bool,
    /// The stated number of outputs, filters or channels.
    pub num_output: Option<u64>,
    /// The number of groups of channels: 1 by default.
    pub group: u64,
    /// The lengths of the kernel, outermost first; a single one where all are equal.
    pub kernel: Vec<u64>,
    /// The window of a convolution or a pooling.
    pub window: Window,
    /// The axis of the channels, or the axis along which a layer puts inputs together: 1 by default, for every kind of
    /// layer. Negative ones count from the last.
    pub axis: i64,
    /// How many axes the factors of a Scale or a Bias cover: 1 by default.
    pub num_axes: i64,
    /// Whether the layer adds a bias: by default a Scale does not, and all other kinds do.
    pub bias_term: bool,
    /// Whether the weights of a fully connected layer are input × output.
    pub transpose: bool,
    /// Whether a fully connected layer flattens all axes after the first: yes by default.
    pub flatten: bool,
    /// Whether the weights of a convolution have the kernel between the two axes of channels, as for MXNet's NHWC:
    /// outputs × kernel × inputs.
    pub channels_last: bool,
    /// The summand of a normalisation's variance: by default 1e-5 in Caffe, as an f32, and in MXNet's
    /// LayerNorm and GroupNorm; 1e-3 elsewhere in MXNet.
    pub eps: f64,
    /// Whether a normalisation of MXNet uses 1 instead of the stored gamma: yes by default.
    pub fix_gamma: bool,
    /// Whether a `BN` is stated to be for inference, so that the layer only scales and shifts.
    pub is_inference: bool,
    /// Whether a normalisation is stated to compute mean and variance from the input even in inference.
    pub normalises_by_input: bool,
    attributes: Vec<(String, String)>,
    rules: Vec<Rule>,
}

/// How a convolution or a pooling moves over the input, outermost axis first; one number stands for all axes, and none
/// for the framework's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Window {
    /// The lengths of the kernel.
    pub kernel: Vec<u64>,
    /// The steps: 1 by default.
    pub stride: Vec<u64>,
    /// The padding on each side: 0 by default.
    pub pad: Vec<u64>,
    /// The distance of the kernel's elements: 1 by default.
    pub dilation: Vec<u64>,
    /// Whether the window covers the whole input.
    pub is_global: bool,
    /// How many windows there are where the last one does not fit.
    pub rounding: Rounding,
}

/// How many windows a pooling has where the last one does not fit into the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rounding {
    /// Only those that fit.
    #[default]
    Down,
    /// The last one too, unless that window begins beyond the input and the first padding: Caffe's.
    UpInside,
    /// The last one too.
    Up,
    /// One for each step that begins within the input.
    Same,
    /// Not known.
    Unknown,
}

/// The computation of a layer, as far as its tensors need to be understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LayerKind {
    /// Any other.
    #[default]
    Other,
    /// A convolution, depthwise ones of forks among them.
    Convolution,
    /// A transposed convolution; the weights are input × (output per group) × kernel.
    Deconvolution,
    /// A fully connected layer.
    InnerProduct,
    /// A normalisation by stored means and variances; Caffe's has a factor by which both are divided.
    BatchNorm,
    /// `BN` of forks: scale and shift, and in some forks mean and variance.
    Bn,
    /// A factor for each channel, and optionally a summand.
    Scale,
    /// A summand for each channel.
    Bias,
    /// A slope for each channel, for negative values.
    PRelu,
    /// A table of vectors.
    Embed,
    /// Caffe's LSTM.
    Lstm,
}

/// The role of a tensor in its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Weights, factors (`gamma`), slopes.
    Weight,
    /// Summands (`beta`).
    Bias,
    /// The mean of a normalisation.
    Mean,
    /// The variance of a normalisation.
    Variance,
    /// The factor by which Caffe's mean and variance must be divided.
    Factor,
    /// The weights of an LSTM's state.
    Hidden,
    /// The weights of an LSTM's input that is the same in every step.
    Static,
    /// Not known.
    Other,
}

/// The settings in a layer's description; `None` for a setting that the description leaves out.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings {
    pub(crate) num_output: Option<u64>,
    pub(crate) group: Option<u64>,
    pub(crate) kernel: Vec<u64>,
    pub(crate) window: Window,
    pub(crate) axis: Option<i64>,
    pub(crate) num_axes: Option<i64>,
    pub(crate) bias_term: Option<bool>,
    pub(crate) transpose: Option<bool>,
    pub(crate) flatten: Option<bool>,
    pub(crate) eps: Option<f64>,
    pub(crate) fix_gamma: Option<bool>,
    pub(crate) global_stats: Option<bool>,
    pub(crate) is_inference: Option<bool>,
    pub(crate) channels_last: bool,
    /// Whether an LSTM's state is also an input and an output of the layer.
    pub(crate) expose_hidden: bool,
    pub(crate) is_mxnet: bool,
    /// All settings, each as (name, text).
    pub(crate) attributes: Vec<(String, String)>,
}

/// How many settings of a layer are kept as texts, and how long the name of one may be.
pub(crate) const MAX_ATTRIBUTES: usize = 128;
pub(crate) const LONGEST_KEY: usize = 128;

impl Net {
    /// The framework whose names the types of layers and the settings have.
    #[must_use]
    pub fn framework(&self) -> Framework {
        self.framework
    }

    /// The layers.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Whether the description names the inputs of layers. A file of merged weights names layers and types alone.
    #[must_use]
    pub fn has_edges(&self) -> bool {
        self.layers.iter().any(|layer| !layer.bottoms.is_empty())
    }

    /// Why nothing follows from the inputs of layers, in one sentence: a layer reads a value that a later layer writes,
    /// or has no stated input. Caffe refuses both.
    #[must_use]
    pub fn disorder(&self) -> Option<String> {
        let late =
            self.late.iter().find_map(|(read, written)| Some((self.readers(*read).next()?, self.writer(*written)?)));
        if let Some((reader, writer)) = late {
            return Some(format!(
                "{:?} reads a value that {:?} writes, which stands behind it",
                reader.name, writer.name
            ));
        }
        let mute = self.layers.iter().find(|layer| layer.kind != LayerKind::Other && layer.bottoms.is_empty())?;
        Some(format!("nothing says which value {:?} reads", mute.name))
    }

    /// How often a value is read, by a layer or as an output that the net's description names.
    #[must_use]
    pub fn uses(&self, value: usize) -> usize {
        self.uses.get(value).map_or(0, |uses| *uses as usize)
    }

    /// The layer that writes a value; `None` for the net's inputs.
    #[must_use]
    pub fn writer(&self, value: usize) -> Option<&Layer> {
        let number = self.writers.get(value).copied()??;
        self.layers.get(number.get() as usize - 1)
    }

    /// Whether two layers write a value of this name and neither works in place on the other's, as where one is for
    /// training and one for inference.
    #[must_use]
    pub fn is_written_twice(&self, value: usize) -> bool {
        self.duplicates.contains(&value)
    }

    /// Groups of tensors; each group is one parameter, which layers share by a name of Caffe's `param`. A file stores
    /// one tensor for each layer, and Caffe takes the last.
    pub fn copies(&self) -> impl Iterator<Item = &[Arc<str>]> {
        self.copies.iter().map(Vec::as_slice)
    }

    /// The layers that read a value; a layer that reads the value twice is listed twice.
    pub fn readers(&self, value: usize) -> impl Iterator<Item = &Layer> {
        let first = self.readers.partition_point(|(read, _)| (*read as usize) < value);
        let own = self.readers[first..].iter().take_while(move |(read, _)| *read as usize == value);
        own.map(|(_, layer)| &self.layers[*layer as usize])
    }

    /// The reader of a parameter's values as an input or an output, beside the layers with the parameter as a tensor: a
    /// gamma may be a factor elsewhere. Known for MXNet's nets; of several readers, the first. The name is the tensor's
    /// in [`Layer::tensors`].
    #[must_use]
    pub fn value_reader(&self, tensor: &str) -> Option<Reader<'_>> {
        let layer = self.value_readers.get(tensor)?;
        Some(layer.and_then(|layer| self.layers.get(layer as usize)).map_or(Reader::User, Reader::Layer))
    }

    /// The name of the variable that a value is, in a net of MXNet's: an input of the net, or a parameter that an
    /// operator reads as an input. The name is without `arg:`; a file of parameters tells the two kinds apart.
    #[must_use]
    pub fn variable(&self, value: usize) -> Option<&str> {
        self.variables.get(&value).map(|name| &**name)
    }

    /// Whether the net gives a value to the user: no layer reads the value, or the description names the value as an
    /// output.
    #[must_use]
    pub fn is_output(&self, value: usize) -> bool {
        let readers = self.readers(value).count();
        readers == 0 || self.uses(value) > readers
    }

    /// Records the writer and the readers of every value, so that look-ups need not search all layers.
    fn link(&mut self) {
        self.writers = vec![None; self.uses.len()];
        for (index, layer) in self.layers.iter().enumerate() {
            for top in &layer.tops {
                self.writers[*top] = NonZero::new(index as u32 + 1);
            }
            self.readers.extend(layer.bottoms.iter().map(|bottom| (*bottom as u32, index as u32)));
        }
        self.readers.sort_unstable();
    }
}

impl Layer {
    /// The layer's tensors, as (role, name): names in the file that the net was read from, or the names that a file of
    /// the net's weights would have; MXNet's without `arg:` and `aux:`.
    pub fn tensors(&self) -> impl Iterator<Item = (Role, &str)> {
        self.tensors.iter().map(|(role, name)| (*role, &**name))
    }

    /// All settings that the description states, each as (name, value): of Caffe by the path in the layer's message
    /// (`("pooling_param.pool", "AVE")`), with commas between the values of a field that repeats; of MXNet by the key.
    /// The value of an enum is a name. At most 128 settings of a layer are kept, and a net has at most 32 MiB of them.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The name of the tensor with this role.
    #[must_use]
    pub fn tensor(&self, role: Role) -> Option<&str> {
        self.tensors().find(|(own, _)| *own == role).map(|(_, name)| name)
    }
}

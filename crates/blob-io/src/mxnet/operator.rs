//! Derives from an operator's attributes alone: which inputs are parameters, the extents of these parameters that do
//! not depend on the net's input, and the settings of the layer. Pure.
//!
//! Sources: the `InferShape` of each operator in apache/mxnet 1.9.1, `src/operator/nn` and `src/operator`.

use crate::net::{LONGEST_KEY, LayerKind, MAX_ATTRIBUTES, Role, Rounding, Settings, Window};

/// One operator: the name, and the attributes that matter here.
#[derive(Debug, Default)]
pub(super) struct Operator {
    pub(super) op: String,
    kernel: Option<Vec<Option<usize>>>,
    num_filter: Option<usize>,
    num_group: Option<usize>,
    num_hidden: Option<usize>,
    input_dim: Option<usize>,
    output_dim: Option<usize>,
    stride: Vec<u64>,
    pad: Vec<u64>,
    dilate: Vec<u64>,
    global_pool: Option<bool>,
    convention: Option<String>,
    layout: Option<String>,
    act_type: Option<String>,
    axis: Option<i64>,
    dim: Option<i64>,
    no_bias: Option<bool>,
    flatten: Option<bool>,
    eps: Option<f64>,
    fix_gamma: Option<bool>,
    use_global_stats: Option<bool>,
    all: Vec<(String, String)>,
}

impl Operator {
    /// Sets an attribute.
    pub(super) fn set(&mut self, key: &str, value: &str) {
        let number = || value.parse().ok().filter(|n| *n > 0);
        if self.all.len() < MAX_ATTRIBUTES && key.len() < LONGEST_KEY {
            self.all.push((key.to_owned(), value.to_owned()));
        }
        match key {
            "kernel" => self.kernel = dims_of(value),
            "num_filter" => self.num_filter = number(),
            "num_group" => self.num_group = number(),
            "num_hidden" => self.num_hidden = number(),
            "input_dim" => self.input_dim = number(),
            "output_dim" => self.output_dim = number(),
            "stride" => self.stride = numbers(value),
            "pad" => self.pad = numbers(value),
            "dilate" => self.dilate = numbers(value),
            "global_pool" => self.global_pool = flag(value),
            "pooling_convention" => self.convention = Some(value.to_owned()),
            "layout" => self.layout = Some(value.to_owned()),
            "act_type" => self.act_type = Some(value.to_owned()),
            "axis" => self.axis = value.parse().ok(),
            "dim" => self.dim = value.parse().ok(),
            "no_bias" => self.no_bias = flag(value),
            "flatten" => self.flatten = flag(value),
            "eps" => self.eps = value.parse().ok(),
            "fix_gamma" => self.fix_gamma = flag(value),
            "use_global_stats" => self.use_global_stats = flag(value),
            _ => {}
        }
    }

    /// The operator's kind as a layer.
    pub(super) fn kind(&self) -> LayerKind {
        match self.op.as_str() {
            "Convolution" | "Convolution_v1" => LayerKind::Convolution,
            "Deconvolution" => LayerKind::Deconvolution,
            "FullyConnected" => LayerKind::InnerProduct,
            op if is_norm(op) => LayerKind::BatchNorm,
            "Embedding" => LayerKind::Embed,
            "LeakyReLU" if self.act_type.as_deref() == Some("prelu") => LayerKind::PRelu,
            _ => LayerKind::Other,
        }
    }

    /// The role of the input at an index, if that input is a parameter.
    pub(super) fn role(&self, input: usize) -> Role {
        match (self.op.as_str(), input) {
            ("RNN", _) => Role::Other,
            (_, 1) => Role::Weight,
            (_, 2) => Role::Bias,
            (_, 3) if self.kind() == LayerKind::BatchNorm => Role::Mean,
            (_, 4) if self.kind() == LayerKind::BatchNorm => Role::Variance,
            _ => Role::Other,
        }
    }

    /// The attributes as settings of a layer.
    pub(super) fn settings(&self) -> Settings {
        let whole = |n: Option<usize>| n.map(|n| n as u64);
        // A kernel with an unknown axis is not recorded.
        let kernel: Option<Vec<u64>> = self.kernel.as_ref().and_then(|axes| axes.iter().map(|n| whole(*n)).collect());
        let rounding = match (self.op.as_str(), self.convention.as_deref()) {
            ("Pooling", None | Some("valid")) => Rounding::Down,
            ("Pooling", Some("full")) => Rounding::Up,
            ("Pooling", Some("same")) => Rounding::Same,
            ("Convolution", _) => Rounding::Down,
            _ => Rounding::Unknown,
        };
        let window = Window {
            kernel: kernel.clone().unwrap_or_default(),
            stride: self.stride.clone(),
            pad: self.pad.clone(),
            dilation: self.dilate.clone(),
            is_global: self.global_pool == Some(true),
            rounding,
        };
        Settings {
            window,
            num_output: whole(self.num_filter.or(self.num_hidden).or(self.output_dim)),
            group: whole(self.num_group),
            kernel: kernel.unwrap_or_default(),
            axis: match self.op.as_str() {
                "Concat" | "concat" => self.dim,
                _ if self.kind() == LayerKind::BatchNorm => self.axis,
                _ => None,
            },
            bias_term: self.no_bias.map(|no_bias| !no_bias),
            flatten: self.flatten,
            eps: self.eps.or(matches!(self.op.as_str(), "LayerNorm" | "GroupNorm").then_some(1e-5)),
            fix_gamma: self.fix_gamma,
            global_stats: self.use_global_stats,
            channels_last: matches!(self.layout.as_deref(), Some("NWC" | "NHWC" | "NDHWC")),
            is_mxnet: true,
            attributes: self.all.clone(),
            ..Settings::default()
        }
    }

    /// Whether the input at an index is a learnt parameter.
    pub(super) fn has_parameter(&self, input: usize) -> bool {
        match self.op.as_str() {
            "Convolution" | "Convolution_v1" | "Deconvolution" | "FullyConnected" | "InstanceNorm" | "LayerNorm"
            | "GroupNorm" => (1..=2).contains(&input),
            op if is_norm(op) => (1..=4).contains(&input),
            "Embedding" => input == 1,
            "LeakyReLU" => input == 1 && self.act_type.as_deref() == Some("prelu"),
            "RNN" => input == 1,
            _ => false,
        }
    }

    /// The shape of the parameter at an input; `None` for an extent or a shape that the attributes do not determine.
    pub(super) fn dims(&self, input: usize) -> Option<Vec<Option<usize>>> {
        match (self.op.as_str(), input) {
            ("Convolution" | "Convolution_v1", 1) => {
                let of_input = None;
                self.filters(self.num_filter, of_input)
            }
            ("Deconvolution", 1) => {
                let groups = self.num_group.unwrap_or(1);
                let of_output = self.num_filter.filter(|n| n % groups == 0).map(|n| n / groups);
                self.filters(None, of_output)
            }
            ("Convolution" | "Convolution_v1" | "Deconvolution", 2) => Some(vec![self.num_filter]),
            ("FullyConnected", 1) => Some(vec![self.num_hidden, None]),
            ("FullyConnected", 2) => Some(vec![self.num_hidden]),
            ("LeakyReLU", 1) => Some(vec![None]),
            (op, 1..=4) if is_norm(op) => Some(vec![None]),
            ("Embedding", 1) => Some(vec![self.input_dim, self.output_dim]),
            _ => None,
        }
    }

    /// A weight's shape: the two axes of channels, then the axes of the kernel. In a layout with the channels last, the
    /// kernel stands between the two axes of channels.
    fn filters(&self, first: Option<usize>, second: Option<usize>) -> Option<Vec<Option<usize>>> {
        let kernel = self.kernel.as_deref()?;
        let is_last = match self.layout.as_deref() {
            None | Some("None" | "NCW" | "NCHW" | "NCDHW") => false,
            Some("NWC" | "NHWC" | "NDHWC") => true,
            Some(_) => return None,
        };
        let ends = if is_last { [&[first][..], kernel, &[second]] } else { [&[first], &[second], kernel] };
        Some(ends.concat())
    }

    /// The auxiliary states: index among the inputs, and suffix of the name, such as `moving_mean`.
    pub(super) fn auxiliary(&self) -> &'static [(usize, &'static str)] {
        if is_norm(&self.op) { &[(3, "moving_mean"), (4, "moving_var")] } else { &[] }
    }

    /// Whether the operator passes the input's values on unchanged, perhaps in another dtype.
    pub(super) fn passes_on(&self) -> bool {
        let ops = ["identity", "_copy", "Cast", "cast", "amp_cast", "BlockGrad", "stop_gradient"];
        ops.contains(&self.op.as_str())
    }
}

/// Whether an operator is a BatchNorm: the variants for one device, for several, and with a ReLU have the same inputs.
fn is_norm(op: &str) -> bool {
    let op = op.strip_prefix("_contrib_").unwrap_or(op);
    matches!(op, "BatchNorm" | "BatchNorm_v1" | "CuDNNBatchNorm" | "SyncBatchNorm" | "BatchNormWithReLU")
}

/// Parses numbers in MXNet's notation, like `(1, 1)`; empty for a text that is not understood.
fn numbers(text: &str) -> Vec<u64> {
    let inner = text.trim().trim_start_matches(['(', '[']).trim_end_matches([')', ']']);
    let parts = inner.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| part.trim_end_matches('L').parse()).collect::<Result<_, _>>().unwrap_or_default()
}

/// Parses a flag of Python or C++ (`True`, `1`); dmlc-core's `FieldEntry<bool>::Set` ignores the case.
fn flag(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

/// Parses a shape like `(8, 0, 3, 3)`: an extent of 0 or less is unknown, and without axes the whole shape is unknown.
pub(super) fn dims_of(text: &str) -> Option<Vec<Option<usize>>> {
    let inner = text.trim().strip_prefix(['(', '['])?.strip_suffix([')', ']'])?;
    let parts = inner.trim().trim_end_matches(',').split(',').map(|part| part.trim().trim_end_matches('L'));
    let dims: Result<Vec<i64>, _> = parts.map(str::parse).collect();
    let dims: Vec<Option<usize>> = dims.ok()?.into_iter().map(|n| usize::try_from(n).ok().filter(|n| *n > 0)).collect();
    (dims.len() <= blob_core::MAX_AXES).then_some(dims)
}

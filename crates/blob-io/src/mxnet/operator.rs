//! What an operator's attributes alone say of its parameters: which of its inputs they are, and their shapes as far as
//! these do not depend on the net's input. Pure.
//!
//! Sources: the `InferShape` of each operator in apache/mxnet 1.9.1, `src/operator/nn` and `src/operator`.

/// The attributes of one operator that count here.
#[derive(Debug, Default)]
pub(super) struct Operator {
    kernel: Option<Vec<Option<usize>>>,
    num_filter: Option<usize>,
    num_group: Option<usize>,
    num_hidden: Option<usize>,
    input_dim: Option<usize>,
    output_dim: Option<usize>,
    layout: Option<String>,
    act_type: Option<String>,
}

impl Operator {
    /// Takes one attribute.
    pub(super) fn set(&mut self, key: &str, value: &str) {
        let number = || value.parse().ok().filter(|n| *n > 0);
        match key {
            "kernel" => self.kernel = dims_of(value),
            "num_filter" => self.num_filter = number(),
            "num_group" => self.num_group = number(),
            "num_hidden" => self.num_hidden = number(),
            "input_dim" => self.input_dim = number(),
            "output_dim" => self.output_dim = number(),
            "layout" => self.layout = Some(value.to_owned()),
            "act_type" => self.act_type = Some(value.to_owned()),
            _ => {}
        }
    }

    /// Whether the input at a place is learnt.
    pub(super) fn has_parameter(&self, op: &str, place: usize) -> bool {
        match op {
            "Convolution" | "Convolution_v1" | "Deconvolution" | "FullyConnected" | "InstanceNorm" | "LayerNorm"
            | "GroupNorm" => (1..=2).contains(&place),
            "BatchNorm" | "BatchNorm_v1" | "CuDNNBatchNorm" => (1..=4).contains(&place),
            "Embedding" => place == 1,
            "LeakyReLU" => place == 1 && self.act_type.as_deref() == Some("prelu"),
            "RNN" => place == 1,
            _ => false,
        }
    }

    /// The shape of the parameter at a place, as far as the attributes say it.
    pub(super) fn dims(&self, op: &str, place: usize) -> Option<Vec<Option<usize>>> {
        match (op, place) {
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
            ("BatchNorm" | "BatchNorm_v1" | "CuDNNBatchNorm", 1..=4) | ("LeakyReLU", 1) => Some(vec![None]),
            ("Embedding", 1) => Some(vec![self.input_dim, self.output_dim]),
            _ => None,
        }
    }

    /// A kernel's axes behind its two of channels, or between them where the layout has the channels last.
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

    /// The auxiliary states of an operator: which input each is, and what its name ends with.
    pub(super) fn auxiliary(op: &str) -> &'static [(usize, &'static str)] {
        match op {
            "BatchNorm" | "BatchNorm_v1" | "CuDNNBatchNorm" => &[(3, "moving_mean"), (4, "moving_var")],
            _ => &[],
        }
    }
}

/// A shape as MXNet prints it, `(8, 0, 3, 3)`: 0 or less is an axis that is not known, and no axes say nothing.
pub(super) fn dims_of(text: &str) -> Option<Vec<Option<usize>>> {
    let inner = text.trim().strip_prefix(['(', '['])?.strip_suffix([')', ']'])?;
    let parts = inner.trim().trim_end_matches(',').split(',').map(|part| part.trim().trim_end_matches('L'));
    let dims: Result<Vec<i64>, _> = parts.map(str::parse).collect();
    let dims: Vec<Option<usize>> = dims.ok()?.into_iter().map(|n| usize::try_from(n).ok().filter(|n| *n > 0)).collect();
    (dims.len() <= blob_core::MAX_AXES).then_some(dims)
}

//! What a Caffe layer's description says, field by field, whatever its generation and whether it is text or bytes.
//!
//! Both readers hand over fields by the names that `caffe.proto` has, with values in words; here they become a layer.

use crate::caffe::layer::Generation;
use crate::caffe::types::{v0_type, v1_name, v1_type};
use crate::net::{Draft, LayerKind, Role, Settings};

/// A layer's fields so far.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) name: String,
    type_name: String,
    bottoms: Vec<String>,
    tops: Vec<String>,
    shared: Vec<String>,
    /// Whether the description includes it in a phase, and whether in one other than training.
    is_included: bool,
    is_tested: bool,
    /// Whether it is left out of tests.
    is_excluded: bool,
    /// Whether the description includes it under conditions only: phases, stages, levels.
    pub(super) is_conditional: bool,
    /// The kernel's lengths, where each axis has its own field.
    height: Option<u64>,
    width: Option<u64>,
    is_v0: bool,
    settings: Settings,
}

impl Fields {
    /// Takes a field of the message `of`: the layer itself, whose name is empty, the V0 layer in it, or one of its
    /// parameters. Errors with what was expected.
    pub(super) fn set(&mut self, of: &str, field: &str, value: &str) -> Result<(), &'static str> {
        self.is_conditional |= matches!(of, "include" | "exclude");
        let settings = &mut self.settings;
        match (of, field) {
            ("", "bottom") => push(&mut self.bottoms, value)?,
            ("", "top") => push(&mut self.tops, value)?,
            // A V0 layer's own name and type replace those of the layer around it.
            ("" | "layer", "name") if of == "layer" || !self.is_v0 || self.name.is_empty() => {
                value.clone_into(&mut self.name)
            }
            ("" | "layer", "type") if of == "layer" || !self.is_v0 || self.type_name.is_empty() => {
                value.clone_into(&mut self.type_name);
            }
            // V1 has the names of shared parameters in the layer, V2 in a message of each.
            ("", "param") | ("param", "name") if !value.is_empty() => push(&mut self.shared, value)?,
            ("include", "phase") => {
                self.is_included = true;
                self.is_tested |= !matches!(value, "TRAIN" | "0");
            }
            ("exclude", "phase") => self.is_excluded |= matches!(value, "TEST" | "1"),
            (_, "num_output") => settings.num_output = Some(number(value)?),
            (_, "bias_term" | "biasterm") => settings.bias_term = Some(flag(value)?),
            (_, "group") => settings.group = Some(number(value)?),
            (_, "kernel_h") => self.height = Some(number(value)?),
            (_, "kernel_w") => self.width = Some(number(value)?),
            (_, "kernel_size" | "kernelsize") => {
                settings.kernel.truncate(blob_core::MAX_AXES - 1);
                settings.kernel.push(number(value)?);
            }
            ("batch_norm_param" | "bn_param", "eps") => settings.eps = Some(f64::from(float(value)?)),
            ("batch_norm_param", "use_global_stats") => settings.global_stats = Some(flag(value)?),
            ("bn_param", "bn_mode") => settings.is_inference = Some(matches!(value, "INFERENCE" | "1")),
            ("inner_product_param", "transpose") => settings.transpose = Some(flag(value)?),
            ("convolution_param" | "inner_product_param" | "scale_param" | "bias_param", "axis") => {
                settings.axis = Some(integer(value)?);
            }
            ("scale_param" | "bias_param", "num_axes") => settings.num_axes = Some(integer(value)?),
            _ => {}
        }
        Ok(())
    }

    /// Says that the fields of a V0 layer follow.
    pub(super) fn begin_v0(&mut self) {
        self.is_v0 = true;
        self.name.clear();
        self.type_name.clear();
    }

    /// The layer, which was called `layers` or, if it is of V2, `layer`. `names` are those of its tensors in the file,
    /// in their order; without them they are called as a file of weights would have them.
    pub(super) fn into_draft(self, is_v2: bool, names: Option<Vec<String>>) -> Draft<String> {
        let generation = match (is_v2, self.is_v0) {
            (true, _) => Generation::V2,
            (_, true) => Generation::V0,
            (_, false) => Generation::V1,
        };
        let type_name = match generation {
            Generation::V0 => v0_type(&self.type_name).to_owned(),
            Generation::V1 => {
                v1_name(&self.type_name).or_else(|| v1_type(self.type_name.parse().ok()?)).unwrap_or("").to_owned()
            }
            Generation::V2 => self.type_name,
        };
        let kind = kind(&type_name);
        let roles = roles(kind, self.bottoms.len());
        let role = |index: usize| roles.get(index).copied().unwrap_or(Role::Other);
        let own = || (0..roles.len()).map(|index| format!("{}/{index}", self.name)).collect();
        let names = names.unwrap_or_else(own).into_iter().enumerate();
        let tensors = names.map(|(index, name)| (role(index), name.into())).collect();
        let is_training = self.is_included && !self.is_tested || self.is_excluded;
        let Self { name, bottoms, tops, shared, is_conditional, height, width, mut settings, .. } = self;
        if let (Some(height), Some(width)) = (height, width) {
            settings.kernel = vec![height, width];
        }
        if !matches!(kind, LayerKind::Convolution | LayerKind::Deconvolution) {
            // V0 has the kernel of a pooling in the layer itself.
            settings.kernel.clear();
        }
        Draft { name, kind, type_name, bottoms, tops, tensors, shared, is_training, is_conditional, settings }
    }
}

fn kind(type_name: &str) -> LayerKind {
    match type_name {
        "Convolution" | "ConvolutionDepthwise" | "DepthwiseConvolution" => LayerKind::Convolution,
        "Deconvolution" => LayerKind::Deconvolution,
        "InnerProduct" => LayerKind::InnerProduct,
        "BatchNorm" => LayerKind::BatchNorm,
        "BN" => LayerKind::Bn,
        "Scale" => LayerKind::Scale,
        "Bias" => LayerKind::Bias,
        "PReLU" => LayerKind::PRelu,
        "Embed" => LayerKind::Embed,
        "LSTM" => LayerKind::Lstm,
        _ => LayerKind::Other,
    }
}

/// What the blobs of a layer are, in their order.
fn roles(kind: LayerKind, bottoms: usize) -> &'static [Role] {
    use Role::{Bias, Factor, Hidden, Mean, Static, Variance, Weight};
    match kind {
        // With two inputs, the second replaces the first tensor.
        LayerKind::Scale if bottoms > 1 => &[Bias],
        LayerKind::Bias if bottoms > 1 => &[],
        LayerKind::Convolution
        | LayerKind::Deconvolution
        | LayerKind::InnerProduct
        | LayerKind::Scale
        | LayerKind::Embed => &[Weight, Bias],
        // The last two are NVCaffe's, with `scale_bias`.
        LayerKind::BatchNorm => &[Mean, Variance, Factor, Weight, Bias],
        // SegNet's has the first two.
        LayerKind::Bn => &[Weight, Bias, Mean, Variance],
        LayerKind::Bias => &[Bias],
        LayerKind::PRelu => &[Weight],
        // Its inputs: the sequence, its continuation markers, and optionally a static input.
        LayerKind::Lstm if bottoms > 2 => &[Weight, Bias, Static, Hidden],
        LayerKind::Lstm => &[Weight, Bias, Hidden],
        LayerKind::Other => &[],
    }
}

/// Layers of more inputs, outputs or shared parameters are refused.
const MOST: usize = 1 << 16;

fn push(names: &mut Vec<String>, name: &str) -> Result<(), &'static str> {
    if names.len() == MOST {
        return Err("at most 65536 of them in a layer");
    }
    names.push(name.to_owned());
    Ok(())
}

/// Protobuf's text format has hexadecimal and octal numbers, as C has them.
fn number(text: &str) -> Result<u64, &'static str> {
    let (digits, radix) = match text.strip_prefix('0') {
        Some(rest) if rest.starts_with(['x', 'X']) => (&rest[1..], 16),
        Some(rest) if !rest.is_empty() => (rest, 8),
        _ => (text, 10),
    };
    u64::from_str_radix(digits, radix).map_err(|_| "a whole number")
}

fn integer(text: &str) -> Result<i64, &'static str> {
    match text.strip_prefix('-') {
        Some(digits) => i64::try_from(number(digits)?).map(|n| -n).map_err(|_| "a whole number"),
        None => i64::try_from(number(text)?).map_err(|_| "a whole number"),
    }
}

/// Protobuf's text format allows an `f` behind a float.
fn float(text: &str) -> Result<f32, &'static str> {
    let bare = text.strip_suffix(['f', 'F']).filter(|bare| bare.bytes().any(|b| b.is_ascii_digit()));
    bare.unwrap_or(text).parse().map_err(|_| "a number")
}

fn flag(text: &str) -> Result<bool, &'static str> {
    match text {
        "true" | "True" | "t" | "1" => Ok(true),
        "false" | "False" | "f" | "0" => Ok(false),
        _ => Err("true or false"),
    }
}

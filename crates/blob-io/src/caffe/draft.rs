//! Collects the fields of a Caffe layer's description, in any generation, from text or from bytes.
//!
//! Both readers pass fields by the names in `caffe.proto`, with values as stored (from bytes) or as written (from
//! text). Here the fields become a layer.

use crate::caffe::attributes::{Attributes, Budget};
use crate::caffe::generation::Generation;
use crate::caffe::schema::{Field, FieldType};
use crate::caffe::types::{v0_type, v1_name, v1_type};
use crate::caffe::value::{Receiver, Value, extent, flag, float, integer, number};
use crate::error::Fault;
use crate::net::{Draft, LayerKind, Phase, Role, Rounding, Rule, Settings};

/// A layer's fields so far.
#[derive(Debug, Default)]
pub(super) struct LayerFields {
    pub(super) name: String,
    type_name: String,
    bottoms: Vec<String>,
    tops: Vec<String>,
    /// The names by which the layer shares parameters, each with the parameter's index, and how many parameters there
    /// are.
    shared: Vec<(usize, String)>,
    params: usize,
    /// Whether the description includes the layer in some phase, and whether in a phase other than training.
    is_included: bool,
    is_tested: bool,
    /// Whether the layer is excluded from the test phase.
    is_excluded: bool,
    /// Whether the description includes the layer only under conditions: phases, stages, levels.
    pub(super) is_conditional: bool,
    /// The window's numbers, where each axis has a separate field: kernel, stride, pad.
    heights: [Option<u64>; 3],
    widths: [Option<u64>; 3],
    /// Of a layer that stands for the net's inputs: their extents.
    extents: Vec<Vec<u64>>,
    /// The conditions under which the layer is in the net.
    rules: Vec<Rule>,
    /// How a pooling rounds, where that is stated.
    rounding: Option<Rounding>,
    /// Whether a number of the window cannot be read.
    is_odd: bool,
    is_v2: bool,
    is_v0: bool,
    settings: Settings,
    attributes: Attributes,
}

impl Receiver for LayerFields {
    fn open(&mut self, path: &[&str]) -> bool {
        match path {
            ["layer"] if !self.is_v2 => self.begin_v0(),
            ["param"] => self.params += 1,
            [rule @ ("include" | "exclude")] if self.attributes.charge(size_of::<Rule>()) => {
                self.rules.push(Rule { is_include: *rule == "include", ..Rule::default() });
            }
            ["input_param", "shape"] if self.extents.len() < MAX_NAMES => self.extents.push(Vec::new()),
            _ => {}
        }
        true
    }

    /// A negative number where Caffe has none says nothing.
    fn state(&mut self, path: &[&str], field: &'static Field, value: Value<'_>) {
        let value = match (&field.kind, value) {
            (FieldType::Bool, Value::Int(number)) => Value::Text(if number == 0 { "false" } else { "true" }),
            (FieldType::Enum(_), Value::Int(number)) => field.value_name(number).map_or(value, Value::Text),
            _ => value,
        };
        let _ = self.take(path, field.name, value, field.is_repeated);
    }

    fn strange(&mut self, path: &[&str], number: u32, bytes: u64) {
        self.attributes.note_strange(path, number, bytes);
    }
}

impl LayerFields {
    /// A layer of V2, or one of before.
    pub(super) fn new(is_v2: bool, budget: &Budget) -> Self {
        Self { is_v2, attributes: budget.layer(), ..Self::default() }
    }

    /// Whether this is a layer of V0 that pads, which Caffe folds into the layer behind.
    pub(super) fn is_padding(&self) -> bool {
        self.is_v0 && self.type_name == "padding"
    }

    /// Counts the settings of the layer, whose description is at byte `at`; an error if the net has too many.
    pub(super) fn count(&self, budget: &mut Budget, at: u64) -> Result<(), Fault> {
        budget.count(&self.attributes, at)
    }

    /// Sets a field of the message that the path leads to; without one, of the layer itself. The error describes the
    /// expected value: `a whole number`.
    pub(super) fn set(&mut self, path: &[&str], field: &str, value: Value<'_>) -> Result<(), &'static str> {
        self.take(path, field, value, true)
    }

    fn take(&mut self, path: &[&str], field: &str, value: Value<'_>, is_repeated: bool) -> Result<(), &'static str> {
        let of = match path {
            [] => "",
            [of] => of,
            ["input_param", "shape"] => INPUT_SHAPE,
            _ => OTHER,
        };
        if !(matches!(of, "" | "layer") && matches!(field, "name" | "type" | "bottom" | "top")) {
            self.attributes.note(path, field, value, is_repeated);
        }
        if matches!(of, "include" | "exclude") {
            self.is_conditional = true;
            self.condition(field, value)?;
        }
        self.understand(of, field, value)
    }

    /// Takes a setting for the layer, where the setting is one that the layer needs.
    fn understand(&mut self, of: &str, field: &str, value: Value<'_>) -> Result<(), &'static str> {
        let settings = &mut self.settings;
        match (of, field) {
            (OTHER, _) => {}
            ("", "bottom") => push(&mut self.bottoms, value)?,
            ("", "top") => push(&mut self.tops, value)?,
            // A nested V0 layer's name and type replace the outer layer's.
            ("" | "layer", "name") if of == "layer" || !self.is_v0 || self.name.is_empty() => {
                self.name = value.to_string();
            }
            ("" | "layer", "type") if of == "layer" || !self.is_v0 || self.type_name.is_empty() => {
                self.type_name = value.to_string();
            }
            // V1 has the names of shared parameters in the layer, V2 in one message for each.
            ("", "param") => {
                self.params += 1;
                self.share(value)?;
            }
            ("param", "name") => self.share(value)?,
            ("include", "phase") => {
                self.is_included = true;
                self.is_tested |= !matches!(value, Value::Text("TRAIN" | "0"));
            }
            ("exclude", "phase") => self.is_excluded |= matches!(value, Value::Text("TEST" | "1")),
            (_, "num_output") => settings.num_output = Some(number(value)?),
            (_, "bias_term" | "biasterm") => settings.bias_term = Some(flag(value)?),
            (_, "group") => settings.group = Some(number(value)?),
            (_, "kernel_h") => self.heights[0] = Some(number(value)?),
            (_, "kernel_w") => self.widths[0] = Some(number(value)?),
            (_, "stride" | "pad" | "dilation") if WINDOWED.contains(&of) => {
                let number = self.window(value);
                let window = &mut self.settings.window;
                let numbers = match field {
                    "stride" => &mut window.stride,
                    "pad" => &mut window.pad,
                    _ => &mut window.dilation,
                };
                numbers.truncate(blob_core::MAX_AXES - 1);
                numbers.extend(number);
            }
            (_, "stride_h") if WINDOWED.contains(&of) => self.heights[1] = self.window(value),
            (_, "stride_w") if WINDOWED.contains(&of) => self.widths[1] = self.window(value),
            (_, "pad_h") if WINDOWED.contains(&of) => self.heights[2] = self.window(value),
            (_, "pad_w") if WINDOWED.contains(&of) => self.widths[2] = self.window(value),
            ("pooling_param", "global_pooling") => settings.window.is_global = flag(value)?,
            ("pooling_param", "round_mode") if matches!(value, Value::Text("FLOOR" | "1")) => {
                self.rounding = Some(Rounding::Down);
            }
            // Forks state the rounding in various ways.
            ("pooling_param", "ceil_mode") => self.rounding = Some(Rounding::Unknown),
            (INPUT_SHAPE, "dim") => {
                let extents = self.extents.last_mut().ok_or("an extent of a shape")?;
                extents.truncate(blob_core::MAX_AXES - 1);
                extents.push(extent(value));
            }
            (_, "kernel_size" | "kernelsize") => push_number(&mut settings.kernel, value)?,
            ("batch_norm_param" | "bn_param", "eps") => settings.eps = Some(float(value)?.into()),
            ("batch_norm_param", "use_global_stats") => settings.global_stats = Some(flag(value)?),
            ("bn_param", "bn_mode") => settings.is_inference = Some(matches!(value, Value::Text("INFERENCE" | "1"))),
            ("recurrent_param", "expose_hidden") => settings.expose_hidden = flag(value)?,
            ("inner_product_param", "transpose") => settings.transpose = Some(flag(value)?),
            ("convolution_param" | "inner_product_param" | "scale_param" | "bias_param" | "concat_param", "axis")
            | (_, "concat_dim") => settings.axis = Some(integer(value)?),
            ("scale_param" | "bias_param", "num_axes") => settings.num_axes = Some(integer(value)?),
            _ => {}
        }
        Ok(())
    }

    /// Sets a field of the last condition.
    fn condition(&mut self, field: &str, value: Value<'_>) -> Result<(), &'static str> {
        let Some(rule) = self.rules.last_mut() else { return Ok(()) };
        match field {
            "phase" => {
                rule.phase = Some(if matches!(value, Value::Text("TRAIN" | "0")) { Phase::Train } else { Phase::Test })
            }
            "min_level" => rule.min_level = Some(integer(value)?),
            "max_level" => rule.max_level = Some(integer(value)?),
            "stage" | "not_stage" => {
                let stage = value.to_string();
                if self.attributes.charge(size_of::<String>() + stage.len()) {
                    (if field == "stage" { &mut rule.stages } else { &mut rule.not_stages }).push(stage);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A number of a layer's window. Forks write other things there, and then the window's extent is unknown.
    fn window(&mut self, value: Value<'_>) -> Option<u64> {
        let number = number(value).ok();
        self.is_odd |= number.is_none();
        number
    }

    /// The name by which the last parameter is shared; an empty one shares nothing.
    fn share(&mut self, name: Value<'_>) -> Result<(), &'static str> {
        let name = name.to_string();
        if !name.is_empty() {
            check_more(self.shared.len())?;
            self.shared.push((self.params.saturating_sub(1), name));
        }
        Ok(())
    }

    fn begin_v0(&mut self) {
        self.is_v0 = true;
        self.name.clear();
        self.type_name.clear();
    }

    /// The layer. `names` are the tensors' names in the file, in order; without `names`, the tensors are named as in a
    /// file of weights: `conv1/0`.
    pub(super) fn into_draft(self, names: Option<Vec<String>>) -> Draft<String> {
        let generation = match (self.is_v2, self.is_v0) {
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
        // An LSTM with `expose_hidden` reads two states, too. The number of the layer's tensors shows a static input
        // most surely.
        let states = if self.settings.expose_hidden { 2 } else { 0 };
        let has_static = match &names {
            Some(names) if !names.is_empty() => names.len() > 3,
            _ => self.bottoms.len() > 2 + states,
        };
        let roles = roles(kind, self.bottoms.len(), has_static);
        let names = names.unwrap_or_else(|| (0..roles.len()).map(|index| format!("{}/{index}", self.name)).collect());
        let roles = roles.iter().copied().chain(std::iter::repeat(Role::Other));
        let tensors = roles.zip(names).map(|(role, name)| (role, name.into())).collect();
        let is_training = self.is_included && !self.is_tested || self.is_excluded;
        let Self { name, bottoms, tops, shared, is_conditional, heights, widths, extents, rules, mut settings, .. } =
            self;
        settings.attributes = self.attributes.into_texts();
        if let (Some(height), Some(width)) = (heights[0], widths[0]) {
            settings.kernel = vec![height, width];
        }
        let window = &mut settings.window;
        for (numbers, index, absent) in [(&mut window.stride, 1, 1), (&mut window.pad, 2, 0)] {
            if heights[index].or(widths[index]).is_some() {
                *numbers = vec![heights[index].unwrap_or(absent), widths[index].unwrap_or(absent)];
            }
        }
        let usual = if type_name == "Pooling" { Rounding::UpInside } else { Rounding::Down };
        window.rounding = if self.is_odd { Rounding::Unknown } else { self.rounding.unwrap_or(usual) };
        window.kernel.clone_from(&settings.kernel);
        if !matches!(kind, LayerKind::Convolution | LayerKind::Deconvolution) {
            // In V0 a pooling's kernel is in the layer itself, too.
            settings.kernel.clear();
        }
        Draft {
            name,
            kind,
            type_name,
            bottoms,
            tops,
            tensors,
            shared,
            is_training,
            is_conditional,
            extents,
            rules,
            settings,
        }
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

/// The roles of a layer's blobs, in order.
fn roles(kind: LayerKind, bottoms: usize, has_static: bool) -> &'static [Role] {
    use Role::{Bias, Factor, Hidden, Mean, Static, Variance, Weight};
    match kind {
        // With two inputs, the second input replaces the first tensor.
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
        // An LSTM's inputs: the sequence, the continuation markers, and optionally a static input.
        LayerKind::Lstm if has_static => &[Weight, Bias, Static, Hidden],
        LayerKind::Lstm => &[Weight, Bias, Hidden],
        LayerKind::Other => &[],
    }
}

/// The messages in a layer that decide the layer's kind and tensors. A fork's message of another kind under such a
/// number is a fault; others are left out.
pub(super) const UNDERSTOOD: &[&str] = &[
    "layer", "param", "include", "exclude", "concat_param", "convolution_param", "pooling_param",
    "inner_product_param", "embed_param", "batch_norm_param", "bias_param", "scale_param", "input_param",
    "recurrent_param", INPUT_SHAPE,
];

/// The messages that have a window's numbers: in V0 and V1 the layer itself has the numbers.
const WINDOWED: [&str; 4] = ["", "layer", "convolution_param", "pooling_param"];

/// The message with an input's extents, in the layer's own parameter.
pub(super) const INPUT_SHAPE: &str = "input_shape";

/// Any message that is not understood.
const OTHER: &str = ".";

/// A layer with more inputs, outputs or shared parameters is refused.
pub(super) const MAX_NAMES: usize = 1 << 16;

fn push(names: &mut Vec<String>, name: Value<'_>) -> Result<(), &'static str> {
    check_more(names.len())?;
    names.push(name.to_string());
    Ok(())
}

fn check_more(count: usize) -> Result<(), &'static str> {
    if count == MAX_NAMES { Err("at most 65536 of them in a layer") } else { Ok(()) }
}

/// Adds the number of an axis; of too many, the last one stays.
fn push_number(numbers: &mut Vec<u64>, value: Value<'_>) -> Result<(), &'static str> {
    numbers.truncate(blob_core::MAX_AXES - 1);
    numbers.push(number(value)?);
    Ok(())
}

//! Operators that work value by value: activations, arithmetic with numbers and between values, comparisons.

use blob_core::DType;
use blob_io::onnx::Attribute;

use crate::forms::{self, FLOAT, INT64, along, clipped, compared, indices, unary, with};
use crate::operand::{Operand, canonical, count, shown};
use crate::site::Site;
use crate::unsupported::Refusal;
use crate::window::same_shape;

/// selu's α and λ, as in `mshadow_op.h`.
const SELU: (f32, f32) = (1.673_263_2, 1.050_701);

/// The input itself.
pub(super) fn pass(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    Ok(vec![site.x()])
}

pub(super) fn dropout(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    if site.text("mode") != "training" {
        return site.refuse("mode", "drops values in inference, too");
    }
    pass(site)
}

/// The element type of a model is one for all values, so that integers are floats without a fraction.
pub(super) fn cast(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    match site.text("dtype") {
        "float16" | "float32" | "float64" => Ok(vec![Operand { is_whole: false, ..x }]),
        "int32" | "int64" => Ok(vec![Operand { is_whole: true, ..without_fraction(site, &x)? }]),
        _ => site.refuse("dtype", "is neither a type of floats, nor int32 or int64"),
    }
}

/// Numbers cut off towards 0.
fn without_fraction(site: &mut Site<'_>, x: &Operand) -> Result<Operand, Refusal> {
    if x.is_whole {
        return Ok(x.clone());
    }
    let whole = indices(site, "Cast", &[x], vec![("to", Attribute::Int(INT64))], x.shape.clone())?;
    unary(site, "Cast", &whole, vec![("to", Attribute::Int(FLOAT))])
}

/// The operators of one node and no parameter, by MXNet's names.
const UNARY: &[(&str, &str)] = &[
    ("relu", "Relu"),
    ("sigmoid", "Sigmoid"),
    ("tanh", "Tanh"),
    ("softrelu", "Softplus"),
    ("exp", "Exp"),
    ("log", "Log"),
    ("sqrt", "Sqrt"),
    ("abs", "Abs"),
    ("negative", "Neg"),
    ("_np_negative", "Neg"),
    ("reciprocal", "Reciprocal"),
    ("floor", "Floor"),
    ("ceil", "Ceil"),
    ("erf", "Erf"),
];

/// The function of this name.
fn function(site: &mut Site<'_>, name: &str) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    if let Some((_, op_type)) = UNARY.iter().find(|(known, _)| *known == name) {
        return Ok(vec![unary(site, op_type, &x, vec![])?]);
    }
    Ok(vec![match name {
        "square" => site.op("Mul", &[&x, &x], vec![], x.shape.clone())?,
        "rsqrt" => {
            let root = unary(site, "Sqrt", &x, vec![])?;
            unary(site, "Reciprocal", &root, vec![])?
        }
        "log2" => {
            let log = unary(site, "Log", &x, vec![])?;
            with(site, "Mul", log, std::f32::consts::LOG2_E, 1.0)?
        }
        "softsign" => {
            let size = unary(site, "Abs", &x, vec![])?;
            let divisor = with(site, "Add", size, 1.0, 0.0)?;
            site.op("Div", &[&x, &divisor], vec![], x.shape.clone())?
        }
        _ => return Err(Refusal::parameter(format!("the function {name:?} is not supported"))),
    }])
}

/// The operators whose types are the names of functions.
pub(super) fn named(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let name = &site.node.type_name;
    function(site, name)
}

pub(super) fn activation(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let name = site.text("act_type").to_owned();
    if !["relu", "sigmoid", "tanh", "softrelu", "softsign"].contains(&&*name) {
        return site.refuse("act_type", "is not supported");
    }
    function(site, &name)
}

pub(super) fn leaky_relu(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, slope) = (site.x(), site.float("slope")?);
    let alpha = |slope| vec![("alpha", Attribute::Float(slope))];
    Ok(vec![match site.choice("act_type", 0, &["leaky", "prelu", "elu", "selu", "gelu", "rrelu"])? {
        0 => unary(site, "LeakyRelu", &x, alpha(slope))?,
        1 => {
            let is_shared = site.stored_shape(0).is_some_and(|stored| count(stored).ok() == Some(1));
            forms::prelu(site, &x, is_shared)?
        }
        2 => unary(site, "Elu", &x, alpha(slope))?,
        3 => {
            let curved = unary(site, "Elu", &x, alpha(SELU.0))?;
            with(site, "Mul", curved, SELU.1, 1.0)?
        }
        4 => {
            let scaled = with(site, "Mul", x.clone(), std::f32::consts::FRAC_1_SQRT_2, 1.0)?;
            let error = unary(site, "Erf", &scaled, vec![])?;
            let shifted = with(site, "Add", error, 1.0, 0.0)?;
            let product = site.op("Mul", &[&x, &shifted], vec![], x.shape.clone())?;
            with(site, "Mul", product, 0.5, 1.0)?
        }
        // Inference takes the middle of the slopes that training draws from.
        _ => {
            let middle = (site.float("lower_bound")? + site.float("upper_bound")?) / 2.0;
            unary(site, "LeakyRelu", &x, alpha(middle))?
        }
    }])
}

pub(super) fn clip(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, least, most) = (site.x(), site.limit("a_min")?, site.limit("a_max")?);
    if least > most {
        return site.refuse("a_min", format!("is more than a_max, {most}"));
    }
    Ok(vec![clipped(site, &x, least, most)?])
}

/// The node of an operation between two values, by the last part of MXNet's name.
fn operation(name: &str) -> Option<&'static str> {
    Some(match name {
        "add" | "plus" => "Add",
        "sub" | "minus" => "Sub",
        "mul" => "Mul",
        "div" => "Div",
        "power" => "Pow",
        "maximum" => "Max",
        "minimum" => "Min",
        "greater" => "Greater",
        "greater_equal" => "GreaterOrEqual",
        "lesser" => "Less",
        "lesser_equal" => "LessOrEqual",
        "equal" => "Equal",
        _ => return None,
    })
}

/// `a` and `b` in one operation; a comparison gives 1 or 0.
fn between(site: &mut Site<'_>, name: &str, a: &Operand, b: &Operand, shape: &[u64]) -> Result<Operand, Refusal> {
    let op_type = operation(name).ok_or_else(|| Refusal::parameter(format!("the operation {name:?}")))?;
    if op_type.starts_with(['G', 'L', 'E']) {
        let wide = if a.shape == shape { a } else { b };
        if wide.shape != shape {
            return Err(Refusal::shape(format!("{} beside {}", shown(&a.shape), shown(&b.shape))));
        }
        // `compared` has the first operand's shape.
        return if wide == a { compared(site, op_type, a, b) } else { swapped(site, op_type, a, b) };
    }
    site.op(op_type, &[a, b], vec![], shape.to_vec())
}

/// A comparison whose second operand is the wider one.
fn swapped(site: &mut Site<'_>, op_type: &str, a: &Operand, b: &Operand) -> Result<Operand, Refusal> {
    let other = match op_type {
        "Greater" => "Less",
        "GreaterOrEqual" => "LessOrEqual",
        "Less" => "Greater",
        "LessOrEqual" => "GreaterOrEqual",
        same => same,
    };
    compared(site, other, b, a)
}

/// The shape of an operation between two shapes, whose last axes stand beside each other: extents are equal, or 1.
fn joined(a: &[u64], b: &[u64]) -> Option<Vec<u64>> {
    let rank = a.len().max(b.len());
    let extent = |shape: &[u64], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |own| shape[own]);
    let pairs = (0..rank).map(|axis| match (extent(a, axis), extent(b, axis)) {
        (one, two) if one == two || two == 1 => Some(one),
        (1, two) => Some(two),
        _ => None,
    });
    pairs.collect()
}

/// Two values: of one shape, or for `broadcast_…` of extents that are equal or 1.
pub(super) fn binary(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let [a, b] = [0, 1].map(|place| site.inputs[place].clone());
    let type_name = site.node.type_name.to_ascii_lowercase();
    let broadcast = type_name.strip_prefix("broadcast_");
    let name = broadcast.or_else(|| type_name.strip_prefix("elemwise_")).unwrap_or(type_name.trim_start_matches('_'));
    if broadcast.is_none() {
        same_shape(site.inputs)?;
    }
    let Some(shape) = joined(&a.shape, &b.shape) else {
        return Err(Refusal::shape(format!("{} beside {}", shown(&a.shape), shown(&b.shape))));
    };
    if a.is_whole != b.is_whole || a.is_whole && name == "power" {
        return Err(Refusal::parameter(format!("{name} of integers, or of integers beside floats, is not supported")));
    }
    let result = if name == "mod" { rest(site, &a, &b, &shape)? } else { between(site, name, &a, &b, &shape)? };
    // A quotient of integers is one, too.
    Ok(vec![if a.is_whole && name == "div" { without_fraction(site, &result)? } else { result }])
}

/// The rest of a division, with the divisor's sign, as in Python; 0 where the divisor is 0.
fn rest(site: &mut Site<'_>, a: &Operand, b: &Operand, shape: &[u64]) -> Result<Operand, Refusal> {
    let zero = site.scalar(0.0)?;
    let of_dividend = site.op("Mod", &[a, b], vec![("fmod", Attribute::Int(1))], shape.to_vec())?;
    let truth = |shape: &[u64]| vec![(DType::Bool, shape.to_vec())];
    // No product of the two: the product of small ones is 0, and 0 times an infinite divisor is no number.
    let is_negative = site.ops("Less", &[b, &zero], vec![], truth(&b.shape))?;
    let opposite = unary(site, "Neg", &of_dividend, vec![])?;
    let along = site.op("Where", &[&is_negative[0], &opposite, &of_dividend], vec![], shape.to_vec())?;
    let is_unlike = site.ops("Less", &[&along, &zero], vec![], truth(shape))?;
    let step = site.op("Where", &[&is_unlike[0], b, &zero], vec![], shape.to_vec())?;
    let moved = site.op("Add", &[&of_dividend, &step], vec![], shape.to_vec())?;
    let is_zero = site.ops("Equal", &[b, &zero], vec![], truth(&b.shape))?;
    site.op("Where", &[&is_zero[0], &zero, &moved], vec![], shape.to_vec())
}

/// A value and a number: `_plus_scalar`, in old files `_PlusScalar`; of `_rminus_scalar` the number stands first.
pub(super) fn scalar(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, number) = (site.x(), site.float("scalar")?);
    let lower = site.node.type_name.to_ascii_lowercase();
    let name = lower.trim_start_matches('_').trim_end_matches("scalar").trim_end_matches('_');
    let shape = x.shape.clone();
    let reversed = name.strip_prefix('r').filter(|name| operation(name).is_some());
    if let Some(name) = reversed {
        let number = site.scalar(number)?;
        return Ok(vec![between(site, name, &number, &x, &shape)?]);
    }
    if matches!((name, number), ("plus" | "minus", 0.0) | ("mul" | "div" | "power", 1.0)) {
        return Ok(vec![x]);
    }
    let number = site.scalar(number)?;
    Ok(vec![between(site, name, &x, &number, &shape)?])
}

/// The sum of all inputs.
pub(super) fn add_n(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    same_shape(site.inputs)?;
    let inputs = site.inputs;
    Ok(vec![forms::sum(site, inputs)?])
}

/// The second input where the first is not 0, else the third. A condition of one axis counts for whole rows.
pub(super) fn choose(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let [mut condition, yes, no] = [0, 1, 2].map(|place| site.inputs[place].clone());
    if condition.shape.len() == 1 && condition.shape.first() == yes.shape.first() {
        let mut rows = vec![1; yes.shape.len()];
        rows[0] = condition.shape[0];
        condition = site.reshape(&condition, &rows)?;
        same_shape(&site.inputs[1..])?;
    } else {
        same_shape(site.inputs)?;
    }
    const BOOL: i64 = 9;
    let attributes = vec![("to", Attribute::Int(BOOL))];
    let held = site.ops("Cast", &[&condition], attributes, vec![(DType::Bool, condition.shape.clone())])?;
    Ok(vec![site.op("Where", &[&held[0], &yes, &no], vec![], yes.shape.clone())?])
}

/// The same number everywhere, in the shape of the input, whatever the batch.
pub(super) fn filled_like(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    let number = site.scalar(if site.node.type_name == "ones_like" { 1.0 } else { 0.0 })?;
    let extents = site.ops("Shape", &[&x], vec![], vec![(DType::I64, vec![x.shape.len() as u64])])?;
    Ok(vec![site.op("Expand", &[&number, &extents[0]], vec![], x.shape)?])
}

/// Softmax or its logarithm along one axis, of values over a temperature.
pub(super) fn softmax(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    let axis = canonical(site.int("axis")?, &x.shape)?;
    let temperature = if site.is_none("temperature") { 1.0 } else { site.float("temperature")? };
    if site.flag("use_length")? {
        return site.refuse("use_length", "is not supported");
    }
    let scaled = with(site, "Div", x, temperature, 1.0)?;
    let op_type = if site.node.type_name == "log_softmax" { "LogSoftmax" } else { "Softmax" };
    Ok(vec![along(site, op_type, &scaled, axis)?])
}

/// The output layer of a net that was trained: along the channels, or over all values of an image.
pub(super) fn softmax_output(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    // MXNet computes along no axis where there is one alone.
    site.rank(&x, 2..=8)?;
    let by_channel = match &*site.node.type_name {
        "SoftmaxActivation" => site.choice("mode", 0, &["instance", "channel"])? == 1,
        _ => site.flag("multi_output")?,
    };
    if by_channel {
        return Ok(vec![along(site, "Softmax", &x, 1)?]);
    }
    let last = x.shape.len() - 1;
    // The mode `instance` of a SoftmaxActivation is along the last axis, whatever MXNet's pages say.
    if last == 1 || site.node.type_name == "SoftmaxActivation" || site.flag("preserve_shape")? {
        return Ok(vec![along(site, "Softmax", &x, last)?]);
    }
    let flat = forms::flat(site, &x)?;
    let softmax = along(site, "Softmax", &flat, 1)?;
    Ok(vec![site.reshape(&softmax, &x.shape)?])
}

pub(super) fn logistic(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    function(site, "sigmoid")
}

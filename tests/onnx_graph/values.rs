//! Operators over values in place or over whole axes: element-wise with broadcasting, norms, softmax, products, sums.

use super::model::Node;
use super::tensor::{Kind, Tensor, broadcast, indices};

/// An element-wise operator of one input, and the constants that it takes from the node.
pub(super) fn unary(node: &Node, x: &Tensor) -> Option<Tensor> {
    let alpha = |default: f64| node.float("alpha", default);
    Some(match &*node.kind {
        "Relu" => x.map(|x| x.max(0.0)),
        "LeakyRelu" => {
            let slope = alpha(0.01);
            x.map(|x| if x < 0.0 { slope * x } else { x })
        }
        "Elu" => {
            let alpha = alpha(1.0);
            x.map(|x| if x < 0.0 { alpha * x.exp_m1() } else { x })
        }
        "HardSigmoid" => {
            let (alpha, beta) = (alpha(0.2), node.float("beta", 0.5));
            x.map(|x| (alpha * x + beta).clamp(0.0, 1.0))
        }
        "Sigmoid" => x.map(|x| 1.0 / (1.0 + (-x).exp())),
        "Tanh" => x.map(f64::tanh),
        "Abs" => x.map(f64::abs),
        "Neg" => x.map(|x| -x),
        "Sqrt" => x.map(f64::sqrt),
        "Reciprocal" => x.map(|x| 1.0 / x),
        "Erf" => x.map(erf),
        "Floor" => x.map(f64::floor),
        "Ceil" => x.map(f64::ceil),
        "Softplus" => x.map(|x| if x > 0.0 { x + (-x).exp().ln_1p() } else { x.exp().ln_1p() }),
        "Exp" => x.map(f64::exp),
        "Log" => x.map(f64::ln),
        "Not" => x.map(|x| 1.0 - x),
        "Identity" | "Dropout" => x.clone(),
        _ => return None,
    })
}

/// The error function: the series of Maclaurin, and the continued fraction of the complement where that converges.
fn erf(x: f64) -> f64 {
    if x.abs() > 3.0 {
        let fraction = (1..60).rev().fold(0.0, |rest, n| f64::from(n) / 2.0 / (x.abs() + rest));
        return (1.0 - (-x * x).exp() / (x.abs() + fraction) / std::f64::consts::PI.sqrt()).copysign(x);
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..80 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

fn integer_or(kind: Kind, whole: f64, real: f64) -> f64 {
    if kind == Kind::Integer { whole } else { real }
}

/// An element-wise operator of two inputs that broadcast to one shape.
pub(super) fn binary(node: &Node, a: &Tensor, b: &Tensor) -> Option<Tensor> {
    let kind = a.kind;
    let is_floored = node.kind == "Mod" && node.int("fmod", 0) == 0;
    let (operator, result): (&dyn Fn(f64, f64) -> f64, Kind) = match &*node.kind {
        "Add" => (&|a, b| a + b, kind),
        "Sub" => (&|a, b| a - b, kind),
        "Mul" => (&|a, b| a * b, kind),
        "Div" => (&|a, b| integer_or(kind, (a / b).trunc(), a / b), kind),
        "Pow" => (&|a, b| a.powf(b), kind),
        "PRelu" => (&|a, b| if a < 0.0 { a * b } else { a }, kind),
        "Mod" if is_floored => (&|a, b| a - (a / b).floor() * b, kind),
        "Mod" => (&|a, b| a % b, kind),
        "Greater" => (&|a, b| f64::from(a > b), Kind::Bool),
        "GreaterOrEqual" => (&|a, b| f64::from(a >= b), Kind::Bool),
        "Less" => (&|a, b| f64::from(a < b), Kind::Bool),
        "LessOrEqual" => (&|a, b| f64::from(a <= b), Kind::Bool),
        "Equal" => (&|a, b| f64::from(a == b), Kind::Bool),
        "And" => (&|a, b| a * b, Kind::Bool),
        _ => return None,
    };
    assert_eq!(a.kind, b.kind, "{}: the types of both inputs", node.name);
    assert!(!is_floored || kind == Kind::Integer, "{}: Mod of floats needs fmod", node.name);
    Some(joined(a, b, operator).with_kind(result))
}

pub(super) fn joined(a: &Tensor, b: &Tensor, operator: impl Fn(f64, f64) -> f64) -> Tensor {
    let dims = broadcast(&a.dims, &b.dims);
    Tensor::of(&dims, |index| operator(a.broadcast_at(index), b.broadcast_at(index))).with_kind(a.kind)
}

/// An operator of any number of inputs.
pub(super) fn variadic(node: &Node, inputs: &[&Tensor]) -> Option<Tensor> {
    let (first, rest) = inputs.split_first().expect("an input");
    let operator: fn(f64, f64) -> f64 = match &*node.kind {
        "Max" => f64::max,
        "Min" => f64::min,
        "Sum" | "Mean" => |a, b| a + b,
        _ => return None,
    };
    let all = rest.iter().fold((*first).clone(), |all, next| joined(&all, next, operator));
    let share = if node.kind == "Mean" { inputs.len() as f64 } else { 1.0 };
    Some(all.map(|x| x / share))
}

pub(super) fn clip(x: &Tensor, low: Option<&Tensor>, high: Option<&Tensor>) -> Tensor {
    let bound = |tensor: Option<&Tensor>, default: f64| {
        tensor.map_or(default, |tensor| {
            assert!(tensor.dims.is_empty(), "a bound of Clip is a scalar");
            tensor.values[0]
        })
    };
    let (low, high) = (bound(low, f64::NEG_INFINITY), bound(high, f64::INFINITY));
    x.map(|x| x.max(low).min(high))
}

/// TensorProto's FLOAT is 1, INT64 7, BOOL 9.
pub(super) fn cast(node: &Node, x: &Tensor) -> Tensor {
    match node.int("to", 0) {
        1 => x.clone().with_kind(Kind::Float),
        7 => x.map(f64::trunc).with_kind(Kind::Integer),
        9 => x.map(|x| f64::from(x != 0.0)).with_kind(Kind::Bool),
        other => panic!("{}: Cast to {other}", node.name),
    }
}

pub(super) fn choose(condition: &Tensor, yes: &Tensor, no: &Tensor) -> Tensor {
    let dims = broadcast(&condition.dims, &broadcast(&yes.dims, &no.dims));
    Tensor::of(&dims, |index: &[usize]| if condition.broadcast_at(index) == 0.0 { no } else { yes }.broadcast_at(index))
        .with_kind(yes.kind)
}

/// Softmax or its logarithm along one axis, as since opset 13.
pub(super) fn softmax(node: &Node, x: &Tensor) -> Tensor {
    let axis = x.axis(node.int("axis", -1));
    let dims = x.dims.clone();
    Tensor::of(&dims, |index| {
        let along = |at: usize| x.at(&[&index[..axis], &[at], &index[axis + 1..]].concat());
        let most = (0..dims[axis]).map(along).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = (0..dims[axis]).map(|at| (along(at) - most).exp()).sum();
        let log = x.at(index) - most - sum.ln();
        if node.kind == "LogSoftmax" { log } else { log.exp() }
    })
}

/// Scale, bias, mean and variance, each one value a channel.
pub(super) fn batch_normalization(node: &Node, x: &Tensor, parameters: [&Tensor; 4]) -> Tensor {
    let (eps, _) = (node.float("epsilon", 1e-5), node.float("momentum", 0.9));
    assert_eq!(node.int("training_mode", 0), 0);
    let [scale, bias, mean, variance] = parameters.map(|tensor| {
        assert_eq!(tensor.dims, [x.dims[1]], "{}", node.name);
        &tensor.values
    });
    Tensor::of(&x.dims, |index| {
        let c = index[1];
        (x.at(index) - mean[c]) / (variance[c] + eps).sqrt() * scale[c] + bias[c]
    })
}

pub(super) fn instance_normalization(node: &Node, x: &Tensor, scale: &Tensor, bias: &Tensor) -> Tensor {
    let eps = node.float("epsilon", 1e-5);
    let area: usize = x.dims[2..].iter().product();
    let mut values = Vec::new();
    for (at, plane) in x.values.chunks(area).enumerate() {
        let channel = at % x.dims[1];
        let mean = plane.iter().sum::<f64>() / area as f64;
        let variance = plane.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / area as f64;
        let by = scale.values[channel] / (variance + eps).sqrt();
        values.extend(plane.iter().map(|x| (x - mean) * by + bias.values[channel]));
    }
    Tensor::float(&x.dims, values)
}

pub(super) fn gemm(node: &Node, a: &Tensor, b: &Tensor, c: Option<&Tensor>) -> Tensor {
    let turned = |name: &str, tensor: &Tensor| match node.int(name, 0) {
        0 => tensor.clone(),
        _ => Tensor::of(&[tensor.dims[1], tensor.dims[0]], |index| tensor.at(&[index[1], index[0]])),
    };
    let (alpha, beta) = (node.float("alpha", 1.0), node.float("beta", 1.0));
    assert!(a.dims.len() == 2 && b.dims.len() == 2, "{}: Gemm takes matrices", node.name);
    let product = matmul(&turned("transA", a), &turned("transB", b)).map(|x| alpha * x);
    let Some(c) = c else { return product };
    let sum = joined(&product, c, |x, c| x + beta * c);
    assert_eq!(sum.dims, product.dims, "{}: C broadcasts to the product", node.name);
    sum
}

/// NumPy's matmul: matrices in the last two axes, others broadcast.
pub(super) fn matmul(a: &Tensor, b: &Tensor) -> Tensor {
    assert!(a.dims.len() > 1 && b.dims.len() > 1, "vectors are not written");
    let (outer_a, [rows, inner]) = a.dims.split_last_chunk().expect("a matrix");
    let (outer_b, [inner_b, columns]) = b.dims.split_last_chunk().expect("a matrix");
    assert_eq!(inner, inner_b, "{:?} by {:?}", a.dims, b.dims);
    let outer = broadcast(outer_a, outer_b);
    let own = |tensor: &Tensor, index: &[usize], last: [usize; 2]| {
        let axes = tensor.dims.len() - 2;
        let mut at: Vec<usize> = index[outer.len() - axes..outer.len()].to_vec();
        at.iter_mut().zip(&tensor.dims).for_each(|(i, dim)| *i = (*i).min(dim - 1));
        tensor.at(&[&at[..], &last[..]].concat())
    };
    Tensor::of(&[&outer[..], &[*rows, *columns]].concat(), |index| {
        let [row, column] = index[outer.len()..] else { unreachable!() };
        (0..*inner).map(|i| own(a, index, [row, i]) * own(b, index, [i, column])).sum()
    })
}

/// Sums, means, norms and extremes over axes: an attribute, for `ReduceSum` an input.
pub(super) fn reduce(node: &Node, x: &Tensor, axes: Option<&Tensor>) -> Tensor {
    let given = if node.kind == "ReduceSum" { axes.map(Tensor::whole) } else { node.ints("axes") };
    let is_identity = node.kind == "ReduceSum" && node.int("noop_with_empty_axes", 0) == 1;
    assert!(!is_identity, "{}: noop_with_empty_axes", node.name);
    let axes: Vec<usize> = given.map_or((0..x.dims.len()).collect(), |list| list.iter().map(|a| x.axis(*a)).collect());
    let is_kept = node.int("keepdims", 1) == 1;
    let ones: Vec<usize> = x.dims.iter().enumerate().map(|(i, dim)| if axes.contains(&i) { 1 } else { *dim }).collect();
    let mut lists = vec![Vec::new(); ones.iter().product()];
    for index in indices(&x.dims) {
        let to: Vec<usize> = index.iter().zip(&ones).map(|(i, dim)| *i.min(&(dim - 1))).collect();
        lists[super::tensor::flat(&to, &ones)].push(x.at(&index));
    }
    let left: Vec<usize> = (0..ones.len()).filter(|i| is_kept || !axes.contains(i)).map(|i| ones[i]).collect();
    Tensor::new(
        &left,
        lists
            .iter()
            .map(|list: &Vec<f64>| -> f64 {
                match &*node.kind {
                    "ReduceSum" => list.iter().sum(),
                    "ReduceMean" => list.iter().sum::<f64>() / list.len() as f64,
                    "ReduceL1" => list.iter().map(|x| x.abs()).sum(),
                    "ReduceL2" => list.iter().map(|x| x * x).sum::<f64>().sqrt(),
                    "ReduceSumSquare" => list.iter().map(|x| x * x).sum(),
                    "ReduceMax" => list.iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b)),
                    "ReduceMin" => list.iter().fold(f64::INFINITY, |a, b| a.min(*b)),
                    "ReduceProd" => list.iter().product(),
                    other => panic!("{other}"),
                }
            })
            .collect(),
        x.kind,
    )
}

//! Forms in ONNX that the tables of both frameworks have: a node or a few.
//!
//! Knows no parameter of either framework.

use blob_core::DType;
use blob_io::onnx::Attribute;

use crate::need::Make;
use crate::operand::{Operand, count, shown};
use crate::site::{Site, ints};
use crate::unsupported::Refusal;

/// ONNX's number of the element type `FLOAT`.
pub(crate) const FLOAT: i64 = 1;
/// ONNX's number of the element type `INT64`.
pub(crate) const INT64: i64 = 7;

/// Adds a node with one output of integers.
pub(crate) fn indices(
    site: &mut Site<'_>,
    op_type: &str,
    inputs: &[&Operand],
    attributes: Vec<(&str, Attribute)>,
    shape: Vec<u64>,
) -> Result<Operand, Refusal> {
    let outputs = site.ops(op_type, inputs, attributes, vec![(DType::I64, shape)])?;
    outputs.into_iter().next().ok_or_else(|| Refusal::shape("no output"))
}

/// One node with one input, whose output has the input's shape.
pub(crate) fn unary(
    site: &mut Site<'_>,
    op_type: &str,
    x: &Operand,
    attributes: Vec<(&str, Attribute)>,
) -> Result<Operand, Refusal> {
    site.op(op_type, &[x], attributes, x.shape.clone())
}

/// One node with a number as the second input, unless the number changes nothing.
pub(crate) fn with(
    site: &mut Site<'_>,
    op_type: &str,
    x: Operand,
    number: f32,
    neutral: f32,
) -> Result<Operand, Refusal> {
    if number == neutral {
        return Ok(x);
    }
    let number = site.scalar(number)?;
    let shape = x.shape.clone();
    site.op(op_type, &[&x, &number], vec![], shape)
}

/// The values between two numbers.
pub(crate) fn clipped(site: &mut Site<'_>, x: &Operand, least: f32, most: f32) -> Result<Operand, Refusal> {
    let (least, most) = (site.scalar(least)?, site.scalar(most)?);
    site.op("Clip", &[x, &least, &most], vec![], x.shape.clone())
}

/// 1 where the comparison holds, else 0.
pub(crate) fn compared(site: &mut Site<'_>, op_type: &str, a: &Operand, b: &Operand) -> Result<Operand, Refusal> {
    let held = site.ops(op_type, &[a, b], vec![], vec![(DType::Bool, a.shape.clone())])?;
    unary(site, "Cast", &held[0], vec![("to", Attribute::Int(FLOAT))])
}

/// The inputs side by side along an axis.
pub(crate) fn concat(site: &mut Site<'_>, inputs: &[Operand], axis: usize) -> Result<Operand, Refusal> {
    let Some((first, rest)) = inputs.split_first() else { return Err(Refusal::shape("no input")) };
    let mut shape = first.shape.clone();
    for other in rest {
        let fits = other.shape.len() == shape.len()
            && other.shape.iter().zip(&shape).enumerate().all(|(at, (one, two))| at == axis || one == two);
        if !fits {
            return Err(Refusal::shape(format!("{} beside {} along axis {axis}", shown(&other.shape), shown(&shape))));
        }
        shape[axis] = shape[axis].saturating_add(other.shape[axis]);
    }
    if rest.is_empty() {
        return Ok(first.clone());
    }
    let inputs: Vec<&Operand> = inputs.iter().collect();
    site.op("Concat", &inputs, vec![("axis", Attribute::Int(axis as i64))], shape)
}

/// The input in parts along an axis, whose sizes add up to its extent.
pub(crate) fn split(site: &mut Site<'_>, x: &Operand, axis: usize, sizes: &[u64]) -> Result<Vec<Operand>, Refusal> {
    if sizes.len() == 1 {
        return Ok(vec![x.clone()]);
    }
    let outputs = sizes.iter().map(|size| {
        let mut shape = x.shape.clone();
        shape[axis] = *size;
        (DType::F32, shape)
    });
    let outputs = outputs.collect();
    let sizes: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
    let sizes = site.ints_of(&sizes)?;
    site.ops("Split", &[x, &sizes], vec![("axis", Attribute::Int(axis as i64))], outputs)
}

/// The axes in another order.
pub(crate) fn transposed(site: &mut Site<'_>, x: &Operand, order: &[usize]) -> Result<Operand, Refusal> {
    if order.iter().copied().eq(0..order.len()) {
        return Ok(x.clone());
    }
    let shape = order.iter().map(|axis| x.shape[*axis]).collect();
    site.op("Transpose", &[x], vec![("perm", ints(order.iter().map(|axis| *axis as u64)))], shape)
}

/// A part of an axis: the first element, and the element behind the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) axis: usize,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The part of a value that lies within all cuts.
pub(crate) fn cut(site: &mut Site<'_>, x: &Operand, cuts: &[Cut]) -> Result<Operand, Refusal> {
    let mut shape = x.shape.clone();
    for Cut { axis, start, end } in cuts {
        if end <= start || *end > shape[*axis] {
            let message = format!("the elements {start} to {end} along axis {axis} of {}", shown(&x.shape));
            return Err(Refusal::shape(message));
        }
        shape[*axis] = end - start;
    }
    if shape == x.shape {
        return Ok(x.clone());
    }
    let mut numbers = |number: fn(&Cut) -> i64| site.ints_of(&cuts.iter().map(number).collect::<Vec<_>>());
    let starts = numbers(|cut| cut.start as i64)?;
    let ends = numbers(|cut| cut.end as i64)?;
    let axes = numbers(|cut| cut.axis as i64)?;
    site.op("Slice", &[x, &starts, &ends, &axes], vec![], shape)
}

/// Axes of 1 element repeated up to a shape. Ones stand where nothing changes, so that the batch may be of any size.
pub(crate) fn repeated(site: &mut Site<'_>, x: &Operand, shape: &[u64]) -> Result<Operand, Refusal> {
    if shape == x.shape {
        return Ok(x.clone());
    }
    let pairs = shape.iter().zip(&x.shape);
    let extents: Vec<i64> = pairs.map(|(to, from)| if to == from { 1 } else { *to as i64 }).collect();
    let extents = site.ints_of(&extents)?;
    site.op("Expand", &[x, &extents], vec![], shape.to_vec())
}

/// An image of another size, bilinear; `how` is ONNX's name of the coordinates. An axis of 1 element is repeated: the
/// `Resize` of OpenCV 5.0.0 reads what lies behind the element.
pub(crate) fn bilinear(site: &mut Site<'_>, x: &Operand, shape: &[u64], how: &str) -> Result<Operand, Refusal> {
    let longer = shape.iter().zip(&x.shape).map(|(to, from)| if *from == 1 { 1 } else { *to });
    let image = resized(site, x, &longer.collect::<Vec<u64>>(), how)?;
    repeated(site, &image, shape)
}

fn resized(site: &mut Site<'_>, x: &Operand, shape: &[u64], how: &str) -> Result<Operand, Refusal> {
    if shape == x.shape {
        return Ok(x.clone());
    }
    // A size of its own for each axis would hold the batch.
    let scales: Vec<f32> = shape.iter().zip(&x.shape).map(|(to, from)| *to as f32 / *from as f32).collect();
    let is_exact = |((by, to), from): ((&f32, &u64), &u64)| f64::from(*by) * *from as f64 == *to as f64;
    let is_exact = scales.iter().zip(shape).zip(&x.shape).all(is_exact);
    let none = Operand { name: String::new(), shape: Vec::new(), dtype: DType::F32, is_whole: false };
    let attributes = vec![
        ("mode", Attribute::Text("linear".to_owned())),
        ("coordinate_transformation_mode", Attribute::Text(how.to_owned())),
    ];
    if is_exact {
        let scales = site.floats_of(&scales, &[shape.len() as u64])?;
        return site.op("Resize", &[x, &none, &scales], attributes, shape.to_vec());
    }
    let sizes: Vec<i64> = shape.iter().map(|extent| *extent as i64).collect();
    let sizes = site.ints_of(&sizes)?;
    site.op("Resize", &[x, &none, &none, &sizes], attributes, shape.to_vec())
}

/// Each value of an image repeated along both axes.
pub(crate) fn nearest(site: &mut Site<'_>, x: &Operand, scales: [u64; 2]) -> Result<Operand, Refusal> {
    let mut shape = x.shape.clone();
    for (extent, scale) in shape[2..].iter_mut().zip(scales) {
        *extent = extent.saturating_mul(scale);
    }
    let scales = site.floats_of(&[1.0, 1.0, scales[0] as f32, scales[1] as f32], &[4])?;
    let none = Operand { name: String::new(), shape: Vec::new(), dtype: DType::F32, is_whole: false };
    let attributes = vec![
        ("mode", Attribute::Text("nearest".to_owned())),
        ("coordinate_transformation_mode", Attribute::Text("asymmetric".to_owned())),
        ("nearest_mode", Attribute::Text("floor".to_owned())),
    ];
    site.op("Resize", &[x, &none, &scales], attributes, shape)
}

/// Softmax or its logarithm along an axis.
pub(crate) fn along(site: &mut Site<'_>, op_type: &str, x: &Operand, axis: usize) -> Result<Operand, Refusal> {
    unary(site, op_type, x, vec![("axis", Attribute::Int(axis as i64))])
}

/// The sum of all inputs, which have one shape.
pub(crate) fn sum(site: &mut Site<'_>, inputs: &[Operand]) -> Result<Operand, Refusal> {
    let [first, rest @ ..] = inputs else { return Err(Refusal::shape("no input")) };
    let op_type = match rest.len() {
        0 => return Ok(first.clone()),
        1 => "Add",
        _ => "Sum",
    };
    let inputs: Vec<&Operand> = inputs.iter().collect();
    site.op(op_type, &inputs, vec![], first.shape.clone())
}

/// Each axis repeated so many times.
pub(crate) fn tiled(site: &mut Site<'_>, x: &Operand, repeats: &[u64]) -> Result<Operand, Refusal> {
    let shape = x.shape.iter().zip(repeats).map(|(extent, repeat)| extent.saturating_mul(*repeat)).collect();
    let repeats: Vec<i64> = repeats.iter().map(|repeat| *repeat as i64).collect();
    let repeats = site.ints_of(&repeats)?;
    site.op("Tile", &[x, &repeats], vec![], shape)
}

/// Over the square root of the sum of squares along some axes and eps: a vector of zeros stays.
pub(crate) fn over_norm(site: &mut Site<'_>, x: &Operand, axes: &[usize], eps: f32) -> Result<Operand, Refusal> {
    let sum = reduced(site, "ReduceSumSquare", x, axes, true)?;
    let raised = with(site, "Add", sum, eps, 0.0)?;
    let norm = unary(site, "Sqrt", &raised, vec![])?;
    site.op("Div", &[x, &norm], vec![], x.shape.clone())
}

/// Minus the mean along some axes.
pub(crate) fn centred(site: &mut Site<'_>, x: &Operand, axes: &[usize]) -> Result<Operand, Refusal> {
    let mean = reduced(site, "ReduceMean", x, axes, true)?;
    site.op("Sub", &[x, &mean], vec![], x.shape.clone())
}

/// The mean of the squares along some axes.
pub(crate) fn mean_square(site: &mut Site<'_>, x: &Operand, axes: &[usize]) -> Result<Operand, Refusal> {
    let squares = site.op("Mul", &[x, x], vec![], x.shape.clone())?;
    reduced(site, "ReduceMean", &squares, axes, true)
}

/// By the squares of an odd number of neighbours across channels; Caffe, MXNet and ONNX divide alpha by the number.
pub(crate) fn lrn(
    site: &mut Site<'_>,
    x: &Operand,
    size: u64,
    [alpha, beta, bias]: [f32; 3],
) -> Result<Operand, Refusal> {
    let floats = [("alpha", alpha), ("beta", beta), ("bias", bias)];
    let floats = floats.into_iter().map(|(name, number)| (name, Attribute::Float(number)));
    unary(site, "LRN", x, std::iter::once(("size", Attribute::Int(size as i64))).chain(floats).collect())
}

/// A slope for each channel, or one for all.
pub(crate) fn prelu(site: &mut Site<'_>, x: &Operand, is_shared: bool) -> Result<Operand, Refusal> {
    site.rank(x, 2..=8)?;
    let mut shape = vec![1; x.shape.len() - 1];
    if !is_shared {
        shape[0] = x.shape[1];
    }
    let slope = site.weight(0, Make::Reshape(shape.clone()), &shape)?;
    site.op("PRelu", &[x, &slope], vec![], x.shape.clone())
}

/// A sum, a mean, a maximum or another reduction of some axes.
pub(crate) fn reduced(
    site: &mut Site<'_>,
    op_type: &str,
    x: &Operand,
    axes: &[usize],
    keeps: bool,
) -> Result<Operand, Refusal> {
    let extents = x.shape.iter().enumerate().map(|(at, extent)| if axes.contains(&at) { 1 } else { *extent });
    let shape: Vec<u64> = extents.enumerate().filter(|(at, _)| keeps || !axes.contains(at)).map(|(_, n)| n).collect();
    let mut attributes = vec![("keepdims", Attribute::Int(i64::from(keeps)))];
    if op_type == "ReduceSum" {
        let axes: Vec<i64> = axes.iter().map(|axis| *axis as i64).collect();
        let axes = site.ints_of(&axes)?;
        return site.op(op_type, &[x, &axes], attributes, shape);
    }
    attributes.push(("axes", ints(axes.iter().map(|axis| *axis as u64))));
    site.op(op_type, &[x], attributes, shape)
}

/// All axes behind the first as one.
pub(crate) fn flat(site: &mut Site<'_>, x: &Operand) -> Result<Operand, Refusal> {
    let rest = count(&x.shape[1..])?;
    if x.shape.len() == 2 {
        return Ok(x.clone());
    }
    site.op("Flatten", &[x], vec![("axis", Attribute::Int(1))], vec![x.shape[0], rest])
}

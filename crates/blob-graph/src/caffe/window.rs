//! Convolutions, transposed ones, and fully connected layers: layers that weigh a part of the input.
//!
//! Shape rules are those of `BaseConvolutionLayer`, `DeconvolutionLayer` and `InnerProductLayer`.

use blob_io::onnx::Attribute;

use crate::onnx::Make;
use crate::site::{Operand, Site, canonical, count, ints, shown};
use crate::unsupported::Refusal;

/// How a window moves over the axes behind the channels.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) kernel: Vec<u64>,
    pub(super) stride: Vec<u64>,
    pub(super) pad: Vec<u64>,
}

/// One number for each of `rank` axes: from two parameters, from one that repeats, or the default.
pub(super) fn spatial(
    site: &Site<'_>,
    (each, height, width): (&str, &str, &str),
    rank: usize,
    default: Option<u64>,
) -> Result<Vec<u64>, Refusal> {
    let numbers = if site.is_stated(height) || site.is_stated(width) {
        if site.is_stated(each) || rank != 2 {
            return site.refuse(each, format!("beside {height} and {width}, with {rank} axes"));
        }
        let of = |name: &str| if site.is_stated(name) { site.int(name).map(Some) } else { Ok(None) };
        let [height, width] = [of(height)?, of(width)?].map(|of| of.or(default.map(|default| default as i64)));
        [height, width].into_iter().flatten().collect()
    } else {
        site.ints(each)?
    };
    let numbers: Option<Vec<u64>> =
        numbers.into_iter().map(|number| u32::try_from(number).ok().map(u64::from)).collect();
    match (numbers.as_deref(), default) {
        (Some([]), Some(default)) => Ok(vec![default; rank]),
        (Some([one]), _) => Ok(vec![*one; rank]),
        (Some(all), _) if !all.is_empty() && all.len() == rank => Ok(all.to_vec()),
        _ => site.refuse(each, format!("for {rank} axes")),
    }
}

/// The window of a layer; kernel and stride are at least 1.
pub(super) fn window(site: &Site<'_>, rank: usize) -> Result<Window, Refusal> {
    let kernel = spatial(site, ("kernel_size", "kernel_h", "kernel_w"), rank, None)?;
    let stride = spatial(site, ("stride", "stride_h", "stride_w"), rank, Some(1))?;
    let pad = spatial(site, ("pad", "pad_h", "pad_w"), rank, Some(0))?;
    if kernel.contains(&0) || stride.contains(&0) {
        return Err(Refusal::parameter("a kernel or a stride of 0"));
    }
    Ok(Window { kernel, stride, pad })
}

pub(super) fn convolution(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let group = site.size("group")?;
    convolve(site, group)
}

/// Forks' depthwise convolutions: as many groups as channels, whatever `group` says.
pub(super) fn depthwise(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 4..=4)?;
    convolve(site, x.shape[1])
}

fn convolve(site: &mut Site<'_>, group: u64) -> Result<Vec<Operand>, Refusal> {
    let conv = Convolution::of(site, group)?;
    let mut shape = vec![conv.x.shape[0], conv.outputs];
    for (axis, extent) in conv.x.shape[2..].iter().enumerate() {
        let (padded, kernel) = (extent + 2 * conv.window.pad[axis], conv.extent(axis));
        if padded < kernel {
            return Err(Refusal::shape(format!("a kernel of {kernel} over {padded} elements")));
        }
        shape.push((padded - kernel) / conv.window.stride[axis] + 1);
    }
    let weight = [vec![conv.outputs, conv.x.shape[1] / group], conv.window.kernel.clone()].concat();
    conv.op(site, "Conv", &weight, shape)
}

pub(super) fn deconvolution(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let group = site.size("group")?;
    let conv = Convolution::of(site, group)?;
    let mut shape = vec![conv.x.shape[0], conv.outputs];
    for (axis, extent) in conv.x.shape[2..].iter().enumerate() {
        let whole = conv.window.stride[axis].checked_mul(extent - 1).and_then(|n| n.checked_add(conv.extent(axis)));
        let cut = whole.and_then(|whole| whole.checked_sub(2 * conv.window.pad[axis])).filter(|extent| *extent > 0);
        shape.push(cut.ok_or_else(|| Refusal::shape("padding cuts all of the output"))?);
    }
    let weight = [vec![conv.x.shape[1], conv.outputs / group], conv.window.kernel.clone()].concat();
    conv.op(site, "ConvTranspose", &weight, shape)
}

/// The parameters of a convolution, checked against the input's channels.
struct Convolution {
    x: Operand,
    outputs: u64,
    group: u64,
    window: Window,
    dilation: Vec<u64>,
}

impl Convolution {
    fn of(site: &Site<'_>, group: u64) -> Result<Self, Refusal> {
        let x = site.x();
        site.rank(&x, 3..=5)?;
        if canonical(site.int("axis")?, &x.shape)? != 1 {
            return site.refuse("axis", "where only 1 is supported");
        }
        let rank = x.shape.len() - 2;
        let (outputs, window) = (site.size("num_output")?, window(site, rank)?);
        let dilation = spatial(site, ("dilation", "", ""), rank, Some(1))?;
        if dilation.contains(&0) {
            return site.refuse("dilation", "");
        }
        if !x.shape[1].is_multiple_of(group) || !outputs.is_multiple_of(group) {
            return Err(Refusal::shape(format!("{group} groups of {} channels to {outputs}", x.shape[1])));
        }
        Ok(Self { x, outputs, group, window, dilation })
    }

    /// How many elements the dilated kernel reaches over. The numbers have 32 bits each, so the product fits.
    fn extent(&self, axis: usize) -> u64 {
        self.dilation[axis] * (self.window.kernel[axis] - 1) + 1
    }

    fn op(self, site: &mut Site<'_>, op_type: &str, weight: &[u64], shape: Vec<u64>) -> Result<Vec<Operand>, Refusal> {
        let weight = site.weight(0, Make::AsIs, weight)?;
        let bias = if site.flag("bias_term")? { Some(site.weight(1, Make::AsIs, &[self.outputs])?) } else { None };
        let Window { kernel, stride, pad } = self.window;
        let attributes = vec![
            ("kernel_shape", ints(kernel)),
            ("strides", ints(stride)),
            ("pads", ints([pad.clone(), pad].concat())),
            ("dilations", ints(self.dilation)),
            ("group", Attribute::Int(self.group as i64)),
        ];
        let inputs: Vec<&Operand> = [&self.x, &weight].into_iter().chain(&bias).collect();
        Ok(vec![site.op(op_type, &inputs, attributes, shape)?])
    }
}

/// `Flatten` and `Gemm`, and for an axis behind the first also a `Reshape`.
pub(super) fn inner_product(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    let axis = canonical(site.int("axis")?, &x.shape)?;
    let (outputs, turned) = (site.size("num_output")?, site.flag("transpose")?);
    let (rows, columns) = (count(&x.shape[..axis])?, count(&x.shape[axis..])?);
    let flat = if axis == 1 && x.shape.len() == 2 {
        x.clone()
    } else {
        site.op("Flatten", &[&x], vec![("axis", Attribute::Int(axis as i64))], vec![rows, columns])?
    };
    let weight = if turned { [columns, outputs] } else { [outputs, columns] };
    let weight = site.weight(0, Make::AsIs, &weight)?;
    let bias = if site.flag("bias_term")? { Some(site.weight(1, Make::AsIs, &[outputs])?) } else { None };
    let inputs: Vec<&Operand> = [&flat, &weight].into_iter().chain(&bias).collect();
    let attributes = vec![("transB", Attribute::Int(i64::from(!turned)))];
    let product = site.op("Gemm", &inputs, attributes, vec![rows, outputs])?;
    let shape = [&x.shape[..axis], &[outputs]].concat();
    Ok(vec![site.reshape(&product, &shape)?])
}

/// Refuses inputs whose shapes differ.
pub(super) fn same_shape(inputs: &[Operand]) -> Result<(), Refusal> {
    match inputs.iter().find(|input| input.shape != inputs[0].shape) {
        None => Ok(()),
        Some(other) => Err(Refusal::shape(format!("{} beside {}", shown(&inputs[0].shape), shown(&other.shape)))),
    }
}

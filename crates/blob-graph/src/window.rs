//! Windows that slide over the axes behind the channels: convolutions, transposed ones, pooling, in the forms of ONNX.
//!
//! The frameworks read their own parameters, and say how many windows a pooling has. Relies on numbers of at most 32
//! bits, so that products fit.

use blob_io::onnx::Attribute;

use crate::need::Make;
use crate::operand::{Operand, count, shown};
use crate::site::{Site, ints};
use crate::unsupported::Refusal;

/// The most windows of an average that need factors.
const MAX_FACTORS: u64 = 1 << 22;

/// How a window moves.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) kernel: Vec<u64>,
    pub(crate) stride: Vec<u64>,
    pub(crate) pad: Vec<u64>,
}

/// The parameters of a convolution.
#[derive(Debug)]
pub(crate) struct Convolution {
    pub(crate) x: Operand,
    pub(crate) outputs: u64,
    pub(crate) group: u64,
    pub(crate) window: Window,
    pub(crate) dilation: Vec<u64>,
    pub(crate) has_bias: bool,
    /// By how many elements a transposed convolution is longer at the end of each axis; empty for none.
    pub(crate) longer: Vec<u64>,
}

impl Convolution {
    /// The parameters, if the groups fit the channels.
    pub(crate) fn checked(self) -> Result<Self, Refusal> {
        let channels = self.x.shape[1];
        if self.window.kernel.contains(&0) || self.window.stride.contains(&0) || self.dilation.contains(&0) {
            return Err(Refusal::parameter("a kernel, a stride or a dilation of 0"));
        }
        if !channels.is_multiple_of(self.group) || !self.outputs.is_multiple_of(self.group) {
            return Err(Refusal::shape(format!("{} groups of {channels} channels to {}", self.group, self.outputs)));
        }
        Ok(self)
    }

    /// How many elements the dilated kernel reaches over.
    pub(crate) fn extent(&self, axis: usize) -> u64 {
        self.dilation[axis] * (self.window.kernel[axis] - 1) + 1
    }

    /// The convolution.
    pub(crate) fn convolve(self, site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
        let mut shape = vec![self.x.shape[0], self.outputs];
        for (axis, extent) in self.x.shape[2..].iter().enumerate() {
            let (padded, kernel) = (extent + 2 * self.window.pad[axis], self.extent(axis));
            if padded < kernel {
                return Err(Refusal::shape(format!("a kernel of {kernel} over {padded} elements")));
            }
            shape.push((padded - kernel) / self.window.stride[axis] + 1);
        }
        let weight = [vec![self.outputs, self.x.shape[1] / self.group], self.window.kernel.clone()].concat();
        self.op(site, "Conv", &weight, shape)
    }

    /// The transposed convolution.
    pub(crate) fn transpose(self, site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
        let mut shape = vec![self.x.shape[0], self.outputs];
        for (axis, extent) in self.x.shape[2..].iter().enumerate() {
            let longer = self.extent(axis).checked_add(self.longer.get(axis).copied().unwrap_or(0));
            let moved = self.window.stride[axis].checked_mul(extent - 1);
            let whole = moved.zip(longer).and_then(|(moved, longer)| moved.checked_add(longer));
            let cut = whole.and_then(|whole| whole.checked_sub(2 * self.window.pad[axis])).filter(|extent| *extent > 0);
            shape.push(cut.ok_or_else(|| Refusal::shape("padding cuts all of the output"))?);
        }
        let weight = [vec![self.x.shape[1], self.outputs / self.group], self.window.kernel.clone()].concat();
        self.op(site, "ConvTranspose", &weight, shape)
    }

    fn op(self, site: &mut Site<'_>, op_type: &str, weight: &[u64], shape: Vec<u64>) -> Result<Vec<Operand>, Refusal> {
        let weight = site.weight(0, Make::AsIs, weight)?;
        let bias = if self.has_bias { Some(site.weight(1, Make::AsIs, &[self.outputs])?) } else { None };
        let inputs: Vec<&Operand> = [&self.x, &weight].into_iter().chain(&bias).collect();
        let mut attributes = attributes(&self.window, self.window.pad.iter().copied());
        attributes.push(("dilations", ints(self.dilation)));
        attributes.push(("group", Attribute::Int(self.group as i64)));
        if self.longer.iter().any(|longer| *longer > 0) {
            attributes.push(("output_padding", ints(self.longer)));
        }
        Ok(vec![site.op(op_type, &inputs, attributes, shape)?])
    }
}

/// The attributes of a window, with the padding behind each axis.
fn attributes(window: &Window, ends: impl Iterator<Item = u64>) -> Vec<(&'static str, Attribute)> {
    vec![
        ("kernel_shape", ints(window.kernel.iter().copied())),
        ("strides", ints(window.stride.iter().copied())),
        ("pads", ints(window.pad.iter().copied().chain(ends))),
    ]
}

/// How the windows of a pooling lie along one axis.
#[derive(Debug)]
pub(crate) struct Along {
    pub(crate) windows: u64,
    /// How far the last window reaches beyond the input: the padding that a maximum needs. Negative if it ends before.
    over: i64,
}

impl Along {
    /// So many windows over an axis. The last one must begin within the input or the padding before it.
    pub(crate) fn of(windows: u64, extent: u64, window: &Window, axis: usize) -> Result<Self, Refusal> {
        let (kernel, pad) = (window.kernel[axis], window.pad[axis]);
        let begin = (windows - 1) * window.stride[axis];
        if begin >= extent + pad {
            return Err(Refusal::shape(format!("a window that begins beyond {extent} elements")));
        }
        Ok(Self { windows, over: (begin + kernel) as i64 - (extent + pad) as i64 })
    }
}

/// A pooling of an input.
#[derive(Debug)]
pub(crate) struct Pooling {
    pub(crate) x: Operand,
    pub(crate) window: Window,
    pub(crate) axes: Vec<Along>,
}

impl Pooling {
    pub(crate) fn shape(&self) -> Vec<u64> {
        self.x.shape[..2].iter().copied().chain(self.axes.iter().map(|axis| axis.windows)).collect()
    }

    pub(crate) fn attributes(&self) -> Vec<(&'static str, Attribute)> {
        attributes(&self.window, self.axes.iter().map(|axis| u64::try_from(axis.over).unwrap_or(0)))
    }

    /// Averages over whole windows, with zeros around the input.
    pub(crate) fn whole_average(&self, site: &mut Site<'_>) -> Result<Operand, Refusal> {
        let mut attributes = self.attributes();
        attributes.push(("count_include_pad", Attribute::Int(1)));
        site.op("AveragePool", &[&self.x], attributes, self.shape())
    }

    /// Averages that count the padding, but nothing beyond the padding.
    pub(crate) fn average(&self, site: &mut Site<'_>) -> Result<Operand, Refusal> {
        let average = self.whole_average(site)?;
        if self.axes.iter().zip(&self.window.pad).all(|(axis, pad)| axis.over <= *pad as i64) {
            return Ok(average);
        }
        let windows = self.axes.iter().fold(1_u64, |product, axis| product.saturating_mul(axis.windows));
        site.body.room(windows.saturating_mul(4))?;
        let factors = self.factors()?;
        let shape: Vec<u64> = [1, 1].into_iter().chain(self.axes.iter().map(|axis| axis.windows)).collect();
        let factors = site.floats_of(&factors, &shape)?;
        site.op("Mul", &[&average, &factors], vec![], self.shape())
    }

    /// The factors from averages over whole windows to averages that count nothing beyond the padding.
    /// `ceil_mode` says the same, but OpenCV 5.0.0 counts the elements beyond, in 66 of 66 windows that reach there;
    /// onnxruntime 1.32.0 in none.
    fn factors(&self) -> Result<Vec<f32>, Refusal> {
        let windows = self.axes.iter().try_fold(1_u64, |product, axis| product.checked_mul(axis.windows));
        if windows.is_none_or(|windows| windows > MAX_FACTORS) {
            return Err(Refusal::shape("an average over more windows than are supported"));
        }
        let mut areas = vec![1_u64];
        for (axis, along) in self.axes.iter().enumerate() {
            let (kernel, stride) = (self.window.kernel[axis], self.window.stride[axis]);
            let end = self.x.shape[axis + 2] + 2 * self.window.pad[axis];
            let counted: Vec<u64> =
                (0..along.windows).map(|at| (at * stride + kernel).min(end) - at * stride).collect();
            areas = areas.iter().flat_map(|area| counted.iter().map(move |own| area * own)).collect();
        }
        let whole: u64 = self.window.kernel.iter().product();
        Ok(areas.into_iter().map(|area| whole as f32 / area as f32).collect())
    }
}

/// `Flatten` and `Gemm`, and for an axis behind the first also a `Reshape`.
pub(crate) fn inner(
    site: &mut Site<'_>,
    axis: usize,
    outputs: u64,
    is_turned: bool,
    has_bias: bool,
) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    let (rows, columns) = (count(&x.shape[..axis])?, count(&x.shape[axis..])?);
    let flat = if axis == 1 && x.shape.len() == 2 {
        x.clone()
    } else {
        site.op("Flatten", &[&x], vec![("axis", Attribute::Int(axis as i64))], vec![rows, columns])?
    };
    let weight = if is_turned { [columns, outputs] } else { [outputs, columns] };
    let weight = site.weight(0, Make::AsIs, &weight)?;
    let bias = if has_bias { Some(site.weight(1, Make::AsIs, &[outputs])?) } else { None };
    let inputs: Vec<&Operand> = [&flat, &weight].into_iter().chain(&bias).collect();
    let attributes = vec![("transB", Attribute::Int(i64::from(!is_turned)))];
    let product = site.op("Gemm", &inputs, attributes, vec![rows, outputs])?;
    let shape = [&x.shape[..axis], &[outputs]].concat();
    Ok(vec![site.reshape(&product, &shape)?])
}

/// Refuses inputs whose shapes differ.
pub(crate) fn same_shape(inputs: &[Operand]) -> Result<(), Refusal> {
    match inputs.iter().find(|input| input.shape != inputs[0].shape) {
        None => Ok(()),
        Some(other) => Err(Refusal::shape(format!("{} beside {}", shown(&inputs[0].shape), shown(&other.shape)))),
    }
}

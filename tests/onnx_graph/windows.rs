//! Operators that slide a window over any number of axes: Conv, ConvTranspose, the pools, and LRN over channels.

use super::model::Node;
use super::tensor::{Kind, Tensor, indices};

/// The window of a convolution or a pool, an entry a spatial axis.
struct Window {
    kernel: Vec<usize>,
    strides: Vec<usize>,
    dilations: Vec<usize>,
    begins: Vec<usize>,
    ends: Vec<usize>,
}

fn sizes(values: Vec<i64>) -> Vec<usize> {
    values.into_iter().map(|value| usize::try_from(value).expect("no negative size")).collect()
}

impl Window {
    fn of(node: &Node, axes: usize, kernel: Option<&[usize]>) -> Self {
        assert_eq!(node.text("auto_pad", "NOTSET"), "NOTSET");
        let list = |name: &str, default: usize| node.ints(name).map_or(vec![default; axes], sizes);
        let (given, pads) = (node.ints("kernel_shape").map(sizes), node.ints("pads").map_or(vec![0; 2 * axes], sizes));
        if let (Some(given), Some(kernel)) = (&given, kernel) {
            assert_eq!(given, kernel, "{}: kernel_shape and the weight", node.name);
        }
        assert_eq!(pads.len(), 2 * axes, "{}: pads", node.name);
        let kernel = given.or(kernel.map(<[usize]>::to_vec)).expect("a kernel");
        let (strides, dilations) = (list("strides", 1), list("dilations", 1));
        assert!(
            [&kernel, &strides, &dilations].iter().all(|list| list.len() == axes && !list.contains(&0)),
            "{}",
            node.name
        );
        Self { kernel, strides, dilations, begins: pads[..axes].to_vec(), ends: pads[axes..].to_vec() }
    }

    /// The extent of a window, with its gaps.
    fn reach(&self, axis: usize) -> usize {
        (self.kernel[axis] - 1) * self.dilations[axis] + 1
    }

    /// The extents of the output over an input with these spatial extents.
    fn outputs(&self, spatial: &[usize], is_ceil: bool) -> Vec<usize> {
        (0..spatial.len())
            .map(|axis: usize| {
                let room = spatial[axis] + self.begins[axis] + self.ends[axis] - self.reach(axis);
                let rounded = if is_ceil { room.div_ceil(self.strides[axis]) } else { room / self.strides[axis] } + 1;
                // A window that begins in the padding at the end is left out (opset 19 says so, earlier runtimes do
                // so).
                let is_beyond = is_ceil && (rounded - 1) * self.strides[axis] >= spatial[axis] + self.begins[axis];
                if is_beyond { rounded - 1 } else { rounded }
            })
            .collect()
    }

    /// The place in the padded input that a tap of the window at `out` reads.
    fn padded(&self, out: &[usize], tap: &[usize]) -> Vec<usize> {
        (0..out.len()).map(|axis| out[axis] * self.strides[axis] + tap[axis] * self.dilations[axis]).collect()
    }

    /// The place in the input, if it is not padding.
    fn inner(&self, padded: &[usize], spatial: &[usize]) -> Option<Vec<usize>> {
        (0..spatial.len())
            .map(|axis: usize| padded[axis].checked_sub(self.begins[axis]).filter(|at| *at < spatial[axis]))
            .collect()
    }
}

pub(super) fn conv(node: &Node, x: &Tensor, w: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let (groups, spatial) = (node.int("group", 1) as usize, &x.dims[2..]);
    let window = Window::of(node, spatial.len(), Some(&w.dims[2..]));
    let (outs, per) = (w.dims[0], w.dims[1]);
    assert_eq!(per * groups, x.dims[1], "{}: channels", node.name);
    assert_eq!(outs % groups, 0, "{}: outputs", node.name);
    let taps: Vec<Vec<usize>> = indices(&window.kernel).collect();
    Tensor::of(&[&[x.dims[0], outs], &window.outputs(spatial, false)[..]].concat(), |index| {
        let (batch, out, place) = (index[0], index[1], &index[2..]);
        let mut sum = bias.map_or(0.0, |bias| bias.values[out]);
        for tap in &taps {
            let Some(inner) = window.inner(&window.padded(place, tap), spatial) else { continue };
            for i in 0..per {
                let channel = out / (outs / groups) * per + i;
                sum += w.at(&[&[out, i], &tap[..]].concat()) * x.at(&[&[batch, channel], &inner[..]].concat());
            }
        }
        sum
    })
}

pub(super) fn conv_transpose(node: &Node, x: &Tensor, w: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let (groups, spatial) = (node.int("group", 1) as usize, &x.dims[2..]);
    let window = Window::of(node, spatial.len(), Some(&w.dims[2..]));
    let extra = node.ints("output_padding").map_or(vec![0; spatial.len()], sizes);
    let (channels, per) = (x.dims[1], w.dims[1]);
    assert_eq!(w.dims[0], channels, "{}: channels", node.name);
    let outs = (0..spatial.len()).map(|axis: usize| {
        (spatial[axis] - 1) * window.strides[axis] + window.reach(axis) + extra[axis]
            - window.begins[axis]
            - window.ends[axis]
    });
    let outs: Vec<usize> = outs.collect();
    let dims = [&[x.dims[0], per * groups], &outs[..]].concat();
    let mut y = Tensor::of(&dims, |index| bias.map_or(0.0, |bias| bias.values[index[1]]));
    for index in indices(&x.dims) {
        for tap in indices(&window.kernel) {
            let Some(inner) = window.inner(&window.padded(&index[2..], &tap), &outs) else { continue };
            for o in 0..per {
                let to = [&[index[0], index[1] / (channels / groups) * per + o], &inner[..]].concat();
                let weight = w.at(&[&[index[1], o], &tap[..]].concat());
                y.values[super::tensor::flat(&to, &dims)] += weight * x.at(&index);
            }
        }
    }
    y
}

/// The maxima, and where each stands in the input, counted over all axes.
pub(super) fn max_pool(node: &Node, x: &Tensor) -> (Tensor, Tensor) {
    let spatial = &x.dims[2..];
    let window = Window::of(node, spatial.len(), None);
    assert_eq!(node.int("storage_order", 0), 0);
    let dims = [&x.dims[..2], &window.outputs(spatial, node.int("ceil_mode", 0) == 1)[..]].concat();
    let mut places = Vec::new();
    let maxima = Tensor::of(&dims, |index| {
        let taps = indices(&window.kernel).map(|tap| window.padded(&index[2..], &tap));
        let inner = taps.filter_map(|padded| window.inner(&padded, spatial));
        let from: Vec<usize> =
            inner.map(|inner| super::tensor::flat(&[&index[..2], &inner[..]].concat(), &x.dims)).collect();
        // The first of equal values.
        let best = from.into_iter().reduce(|best, next| if x.values[next] > x.values[best] { next } else { best });
        places.push(best.expect("a window over padding alone") as f64);
        x.values[best.expect("a value")]
    });
    let places = Tensor::new(&maxima.dims, places, Kind::Integer);
    (maxima, places)
}

pub(super) fn average_pool(node: &Node, x: &Tensor) -> Tensor {
    let spatial = &x.dims[2..];
    let window = Window::of(node, spatial.len(), None);
    let counts_padding = node.int("count_include_pad", 0) == 1;
    let dims = [&x.dims[..2], &window.outputs(spatial, node.int("ceil_mode", 0) == 1)[..]].concat();
    Tensor::of(&dims, |index| {
        let (mut sum, mut count) = (0.0, 0);
        for tap in indices(&window.kernel) {
            let padded = window.padded(&index[2..], &tap);
            // Beyond the padding there is nothing to count: only `ceil_mode` reaches there.
            let is_padded = (0..spatial.len()).all(|i| padded[i] < window.begins[i] + spatial[i] + window.ends[i]);
            let inner = window.inner(&padded, spatial);
            count += usize::from(inner.is_some() || counts_padding && is_padded);
            sum += inner.map_or(0.0, |inner| x.at(&[&index[..2], &inner[..]].concat()));
        }
        sum / count as f64
    })
}

/// A pool over all spatial axes.
pub(super) fn global_pool(x: &Tensor, pool: impl Fn(&[f64]) -> f64) -> Tensor {
    let area: usize = x.dims[2..].iter().product();
    let dims = [&x.dims[..2], &vec![1; x.dims.len() - 2][..]].concat();
    Tensor::float(&dims, x.values.chunks(area).map(pool).collect())
}

pub(super) fn lrn(node: &Node, x: &Tensor) -> Tensor {
    let size = node.int("size", 0) as usize;
    let (alpha, beta, bias) = (node.float("alpha", 1e-4), node.float("beta", 0.75), node.float("bias", 1.0));
    Tensor::of(&x.dims, |index| {
        let (from, to) = (index[1].saturating_sub((size - 1) / 2), (index[1] + size / 2).min(x.dims[1] - 1));
        let sum: f64 =
            (from..=to).map(|channel: usize| x.at(&[&[index[0], channel], &index[2..]].concat()).powi(2)).sum();
        x.at(index) / (bias + alpha / size as f64 * sum).powf(beta)
    })
}

/// Averages of bilinear samples within boxes; a sample beyond the image by more than one element is 0.
pub(super) fn roi_align(node: &Node, x: &Tensor, boxes: &Tensor, images: &Tensor) -> Tensor {
    let (height, width) = (node.int("output_height", 1) as usize, node.int("output_width", 1) as usize);
    let (ratio, scale) = (node.int("sampling_ratio", 0) as usize, node.float("spatial_scale", 1.0));
    assert_eq!(node.text("mode", "avg"), "avg");
    let is_aligned = node.text("coordinate_transformation_mode", "half_pixel") == "half_pixel";
    let (images, dims) = (images.whole(), &x.dims);
    Tensor::of(&[boxes.dims[0], dims[1], height, width], |index| {
        let image = usize::try_from(images[index[0]]).expect("the place of an image");
        let average = |axis: usize| -> Vec<(usize, f64)> {
            let (from, to) = (boxes.at(&[index[0], 1 - axis]), boxes.at(&[index[0], 3 - axis]));
            let shift = if is_aligned { 0.5 } else { 0.0 };
            let start = from * scale - shift;
            let extent = to * scale - shift - start;
            let extent = if is_aligned { extent } else { extent.max(1.0) };
            let bin = extent / [height, width][axis] as f64;
            let count = if ratio > 0 { ratio } else { bin.ceil() as usize };
            let place = |sample: usize| start + (index[2 + axis] as f64 + (sample as f64 + 0.5) / count as f64) * bin;
            let last = (dims[2 + axis] - 1) as f64;
            let inner = (0..count).map(place).filter(|place| (-1.0..=last + 1.0).contains(place));
            inner
                .flat_map(|place: f64| {
                    let place = place.clamp(0.0, last);
                    let (low, part) = (place.floor(), place.fract());
                    [(low as usize, (1.0 - part) / count as f64), ((low + 1.0).min(last) as usize, part / count as f64)]
                })
                .collect()
        };
        let (rows, columns) = (average(0), average(1));
        let pairs = rows.iter().flat_map(|row| columns.iter().map(move |column| (row, column)));
        pairs.map(|((y, by_y), (z, by_z))| by_y * by_z * x.at(&[image, index[1], *y, *z])).sum()
    })
}

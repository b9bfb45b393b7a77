//! Caffe's layers as loops over the layers' parameters, in f64: the formulas of each `Forward_cpu`.
//!
//! Knows nothing of ONNX. A layer that has no loops here has goldens of the real Caffe alone.

use super::tensor::{Tensor, canonical, flat, indices};

/// A layer: parameters, inputs, and tensors.
pub(super) struct Layer<'a> {
    pub(super) kind: &'a str,
    /// The text of a parameter; one that repeats has a text for each.
    pub(super) text: &'a dyn Fn(&str) -> Vec<String>,
    pub(super) inputs: &'a [Tensor],
    /// The values of the tensor of this index.
    pub(super) tensor: &'a dyn Fn(usize) -> Vec<f64>,
    /// How many outputs there are.
    pub(super) outputs: usize,
}

impl Layer<'_> {
    pub(super) fn one(&self, name: &str) -> String {
        (self.text)(name).pop().unwrap_or_default()
    }

    pub(super) fn number(&self, name: &str) -> f64 {
        f64::from(self.one(name).parse::<f32>().unwrap_or_else(|_| panic!("{name}: {:?}", self.one(name))))
    }

    fn flag(&self, name: &str) -> bool {
        self.one(name) == "true"
    }

    pub(super) fn axis(&self, name: &str) -> usize {
        canonical(self.number(name) as i64, self.inputs[0].dims.len())
    }

    pub(super) fn whole(&self, name: &str) -> Vec<usize> {
        (self.text)(name).iter().map(|text| text.parse().expect("a number")).collect()
    }

    /// One number for each of two axes; `stem` may have endings for height and width.
    fn both(&self, [each, height, width]: [&str; 3], default: usize) -> [usize; 2] {
        let stated = |name: &str| self.whole(name).first().copied();
        match (stated(height), stated(width)) {
            (None, None) => match self.whole(each)[..] {
                [] => [default; 2],
                [one] => [one; 2],
                [one, two] => [one, two],
                _ => panic!("{each}"),
            },
            (height, width) => [height.unwrap_or(default), width.unwrap_or(default)],
        }
    }

    /// The outputs, of a loss the last alone; `None` for a layer without loops here.
    pub(super) fn forward(&self) -> Option<Vec<Tensor>> {
        let x = &self.inputs[0];
        if let Some(function) = self.function() {
            return Some(vec![x.map(function)]);
        }
        Some(match self.kind {
            "PReLU" => {
                let (slopes, is_shared) = ((self.tensor)(0), self.flag("channel_shared"));
                vec![Tensor::of(&x.dims, |index| {
                    let value = x.at(index);
                    if value < 0.0 { value * slopes[if is_shared { 0 } else { index[1] }] } else { value }
                })]
            }
            "Softmax" | "SoftmaxWithLoss" | "LogSoftmax" => vec![self.softmax()],
            "Convolution" | "ConvolutionDepthwise" if x.dims.len() == 4 => vec![self.convolution()],
            "Deconvolution" if x.dims.len() == 4 => vec![self.deconvolution()],
            "InnerProduct" => vec![self.inner_product()],
            "BatchNorm" => {
                let (mean, variance, eps) = ((self.tensor)(0), (self.tensor)(1), self.number("eps"));
                vec![Tensor::of(&x.dims, |at| (x.at(at) - mean[at[1]]) / (variance[at[1]] + eps).sqrt())]
            }
            "Scale" | "Bias" => vec![self.affine()],
            "LRN" => vec![self.lrn()],
            "MVN" => vec![self.mvn()],
            "Normalize" => vec![self.normalize()],
            "Reduction" => vec![self.reduction()],
            "Concat" | "Slice" | "Split" | "Eltwise" | "Axpy" => self.joined(),
            "Permute" | "Tile" | "Crop" | "ShuffleChannel" | "Flatten" => vec![self.moved()],
            "Interp" => vec![self.interp()],
            _ => return None,
        })
    }

    /// A layer that works value by value.
    fn function(&self) -> Option<Box<dyn Fn(f64) -> f64 + '_>> {
        let number = |name: &str| self.number(name);
        let base = |of: &Self| if of.number("base") == -1.0 { std::f64::consts::E } else { of.number("base") };
        Some(match self.kind {
            "ReLU" => Box::new(move |x| if x > 0.0 { x } else { number("negative_slope") * x }),
            "ReLU6" => Box::new(|x| x.clamp(0.0, 6.0)),
            "ELU" => Box::new(move |x| if x > 0.0 { x } else { number("alpha") * x.exp_m1() }),
            "Sigmoid" | "SigmoidCrossEntropyLoss" => Box::new(|x| 1.0 / (1.0 + (-x).exp())),
            "TanH" => Box::new(f64::tanh),
            "AbsVal" => Box::new(f64::abs),
            "BNLL" => Box::new(|x| x.exp().ln_1p()),
            "Swish" => Box::new(move |x| x / (1.0 + (-number("beta") * x).exp())),
            "Clip" => Box::new(move |x| x.max(number("min")).min(number("max"))),
            "Exp" => Box::new(move |x| base(self).powf(number("shift") + number("scale") * x)),
            "Log" => Box::new(move |x| (number("shift") + number("scale") * x).ln() / base(self).ln()),
            "Power" => Box::new(move |x| (number("shift") + number("scale") * x).powf(number("power"))),
            "Threshold" => Box::new(move |x| f64::from(x > number("threshold"))),
            "Dropout" if self.flag("scale_train") => Box::new(|x| x),
            "Dropout" => Box::new(move |x| x * (1.0 - number("dropout_ratio"))),
            _ => return None,
        })
    }

    fn softmax(&self) -> Tensor {
        let (x, axis) = (&self.inputs[0], self.axis("axis"));
        Tensor::of(&x.dims, |index| {
            let mut other = index.to_vec();
            let along = (0..x.dims[axis]).map(|at| {
                other[axis] = at;
                (x.at(&other) - x.at(index)).exp()
            });
            let sum: f64 = along.sum();
            if self.kind == "LogSoftmax" { -sum.ln() } else { 1.0 / sum }
        })
    }

    /// The places of the windows of a convolution.
    fn window(&self) -> [[usize; 2]; 4] {
        [
            self.both(["kernel_size", "kernel_h", "kernel_w"], 0),
            self.both(["stride", "stride_h", "stride_w"], 1),
            self.both(["pad", "pad_h", "pad_w"], 0),
            self.both(["dilation", "", ""], 1),
        ]
    }

    fn group(&self) -> usize {
        if self.kind == "ConvolutionDepthwise" { self.inputs[0].dims[1] } else { self.number("group") as usize }
    }

    fn biases(&self) -> Vec<f64> {
        let outputs = self.number("num_output") as usize;
        if self.flag("bias_term") { (self.tensor)(1) } else { vec![0.0; outputs] }
    }

    fn convolution(&self) -> Tensor {
        let (x, [kernel, stride, pad, dilation]) = (&self.inputs[0], self.window());
        let (outputs, group, biases) = (self.number("num_output") as usize, self.group(), self.biases());
        let weights = Tensor::float(&[outputs, x.dims[1] / group, kernel[0], kernel[1]], (self.tensor)(0));
        let extent = |axis: usize| {
            (x.dims[2 + axis] + 2 * pad[axis] - dilation[axis] * (kernel[axis] - 1) - 1) / stride[axis] + 1
        };
        Tensor::of(&[x.dims[0], outputs, extent(0), extent(1)], |index| {
            let first = index[1] / (outputs / group) * (x.dims[1] / group);
            let taps = indices(&weights.dims[1..]).filter_map(|tap| {
                let from = [0, 1].map(|axis| {
                    (index[2 + axis] * stride[axis] + tap[1 + axis] * dilation[axis]).checked_sub(pad[axis])
                });
                let (h, w) = (from[0]?, from[1]?);
                let is_inside = h < x.dims[2] && w < x.dims[3];
                let weight = weights.at(&[index[1], tap[0], tap[1], tap[2]]);
                is_inside.then(|| x.at(&[index[0], first + tap[0], h, w]) * weight)
            });
            biases[index[1]] + taps.sum::<f64>()
        })
    }

    fn deconvolution(&self) -> Tensor {
        let (x, [kernel, stride, pad, dilation]) = (&self.inputs[0], self.window());
        let (outputs, group, biases) = (self.number("num_output") as usize, self.group(), self.biases());
        let weights = Tensor::float(&[x.dims[1], outputs / group, kernel[0], kernel[1]], (self.tensor)(0));
        let extent = |axis: usize| {
            stride[axis] * (x.dims[2 + axis] - 1) + dilation[axis] * (kernel[axis] - 1) + 1 - 2 * pad[axis]
        };
        let dims = [x.dims[0], outputs, extent(0), extent(1)];
        let mut y = Tensor::of(&dims, |index| biases[index[1]]);
        for from in indices(&x.dims) {
            for tap in indices(&weights.dims[1..]) {
                let to = [0, 1].map(|axis| {
                    (from[2 + axis] * stride[axis] + tap[1 + axis] * dilation[axis]).checked_sub(pad[axis])
                });
                let [Some(h), Some(w)] = to else { continue };
                if h < dims[2] && w < dims[3] {
                    let channel = from[1] / (x.dims[1] / group) * (outputs / group) + tap[0];
                    let weight = weights.at(&[from[1], tap[0], tap[1], tap[2]]);
                    y.values[flat(&[from[0], channel, h, w], &dims)] += x.at(&from) * weight;
                }
            }
        }
        y
    }

    fn inner_product(&self) -> Tensor {
        let (x, axis, outputs) = (&self.inputs[0], self.axis("axis"), self.number("num_output") as usize);
        let columns: usize = x.dims[axis..].iter().product();
        let (weights, biases, is_turned) = ((self.tensor)(0), self.biases(), self.flag("transpose"));
        let dims = [&x.dims[..axis], &[outputs]].concat();
        Tensor::of(&dims, |index| {
            let row = flat(&index[..axis], &x.dims[..axis]);
            let output = index[axis];
            let product = (0..columns).map(|column| {
                let at = if is_turned { column * outputs + output } else { output * columns + column };
                x.values[row * columns + column] * weights[at]
            });
            biases[output] + product.sum::<f64>()
        })
    }

    /// A factor, or a summand, for each place along some axes: the layer's tensor, or the second input.
    fn affine(&self) -> Tensor {
        let (x, axis) = (&self.inputs[0], self.axis("axis"));
        let axes = match (self.inputs.get(1), self.number("num_axes") as i64) {
            (Some(other), _) => other.dims.len(),
            (None, -1) => x.dims.len() - axis,
            (None, axes) => axes as usize,
        };
        let own = &x.dims[axis..axis + axes];
        let first = self.inputs.get(1).map_or_else(|| (self.tensor)(0), |other| other.values.clone());
        let is_scale = self.kind == "Scale";
        let summands =
            (is_scale && self.flag("bias_term")).then(|| (self.tensor)(1 - usize::from(self.inputs.len() > 1)));
        Tensor::of(&x.dims, |index| {
            let at = flat(&index[axis..axis + axes], own);
            let made = if is_scale { x.at(index) * first[at] } else { x.at(index) + first[at] };
            made + summands.as_ref().map_or(0.0, |summands| summands[at])
        })
    }

    fn lrn(&self) -> Tensor {
        let x = &self.inputs[0];
        let (size, alpha) = (self.number("local_size") as usize, self.number("alpha"));
        let (beta, k, half) = (self.number("beta"), self.number("k"), size / 2);
        let near = |at: usize, extent: usize| at.saturating_sub(half)..(at + half + 1).min(extent);
        let square = |index: &[usize]| x.at(index).powi(2);
        Tensor::of(&x.dims, |index| {
            let [n, c, h, w] = index[..] else { panic!("four axes") };
            let divisor = if self.one("norm_region") == "ACROSS_CHANNELS" {
                let sum: f64 = near(c, x.dims[1]).map(|c| square(&[n, c, h, w])).sum();
                k + alpha / size as f64 * sum
            } else {
                let rows = near(h, x.dims[2]);
                let sum: f64 = rows
                    .flat_map(|h| near(w, x.dims[3]).map(move |w| (h, w)))
                    .map(|(h, w)| square(&[n, c, h, w]))
                    .sum();
                1.0 + alpha / (size * size) as f64 * sum
            };
            x.at(index) / divisor.powf(beta)
        })
    }

    /// The values that have the first axes in common with an index.
    fn with(&self, index: &[usize]) -> Vec<f64> {
        let x = &self.inputs[0];
        let count: usize = x.dims[index.len()..].iter().product();
        let first = flat(index, &x.dims[..index.len()]) * count;
        x.values[first..first + count].to_vec()
    }

    fn mvn(&self) -> Tensor {
        let (x, common) = (&self.inputs[0], if self.flag("across_channels") { 1 } else { 2 });
        Tensor::of(&x.dims, |index| {
            let values = self.with(&index[..common]);
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
            let divisor = if self.flag("normalize_variance") { variance.sqrt() + self.number("eps") } else { 1.0 };
            (x.at(index) - mean) / divisor
        })
    }

    fn normalize(&self) -> Tensor {
        let (x, factors) = (&self.inputs[0], (self.tensor)(0));
        Tensor::of(&x.dims, |index| {
            let squares: f64 = if self.flag("across_spatial") {
                self.with(&index[..1]).iter().map(|value| value * value).sum()
            } else {
                (0..x.dims[1]).map(|c| x.at(&[index[0], c, index[2], index[3]]).powi(2)).sum()
            };
            let factor = factors[if self.flag("channel_shared") { 0 } else { index[1] }];
            x.at(index) / (squares + self.number("eps")).sqrt() * factor
        })
    }

    fn reduction(&self) -> Tensor {
        let (x, axis) = (&self.inputs[0], self.axis("axis"));
        Tensor::of(&x.dims[..axis], |index| {
            let values = self.with(index);
            let sum = |of: &dyn Fn(f64) -> f64| values.iter().map(|value| of(*value)).sum::<f64>();
            let made = match &*self.one("operation") {
                "SUM" => sum(&|value| value),
                "ASUM" => sum(&f64::abs),
                "SUMSQ" => sum(&|value| value * value),
                _ => sum(&|value| value) / values.len() as f64,
            };
            made * self.number("coeff")
        })
    }
}

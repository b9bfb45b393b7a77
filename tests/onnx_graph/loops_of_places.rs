//! Caffe's layers that join, cut and move values, as loops.

use super::loops::Layer;
use super::tensor::Tensor;

impl Layer<'_> {
    /// The axis that layers are joined or cut along, by either of its names.
    fn along(&self, old: &str) -> usize {
        let is_old = self.one(old) != "1";
        self.axis(if is_old { old } else { "axis" })
    }

    pub(super) fn joined(&self) -> Vec<Tensor> {
        let x = &self.inputs[0];
        match self.kind {
            "Split" => vec![x.clone(); self.outputs],
            "Concat" => {
                let axis = self.along("concat_dim");
                let mut dims = x.dims.clone();
                dims[axis] = self.inputs.iter().map(|input| input.dims[axis]).sum();
                vec![Tensor::of(&dims, |index| {
                    let mut at = index.to_vec();
                    let mut inputs = self.inputs.iter();
                    loop {
                        let input = inputs.next().expect("an input");
                        if at[axis] < input.dims[axis] {
                            return input.at(&at);
                        }
                        at[axis] -= input.dims[axis];
                    }
                })]
            }
            "Slice" => {
                let axis = self.along("slice_dim");
                let mut points = self.whole("slice_point");
                if points.is_empty() {
                    points = (1..self.outputs).map(|part| part * x.dims[axis] / self.outputs).collect();
                }
                let ends = points.iter().copied().chain([x.dims[axis]]);
                let starts = [0].into_iter().chain(points.iter().copied());
                starts
                    .zip(ends)
                    .map(|(start, end): (usize, usize)| {
                        let mut dims = x.dims.clone();
                        dims[axis] = end - start;
                        Tensor::of(&dims, |index| {
                            let mut at = index.to_vec();
                            at[axis] += start;
                            x.at(&at)
                        })
                    })
                    .collect()
            }
            "Axpy" => {
                let [factors, x, y] = self.inputs else { panic!("three inputs") };
                vec![Tensor::of(&x.dims, |index| {
                    factors.values[index[0] * x.dims[1] + index[1]] * x.at(index) + y.at(index)
                })]
            }
            _ => {
                let factors: Vec<f64> =
                    (self.text)("coeff").iter().map(|text| f64::from(text.parse::<f32>().expect("a number"))).collect();
                vec![Tensor::of(&x.dims, |index| {
                    let values = self.inputs.iter().enumerate();
                    let values = values.map(|(at, input)| input.at(index) * factors.get(at).unwrap_or(&1.0));
                    match &*self.one("operation") {
                        "PROD" => values.product(),
                        "SUM" => values.sum(),
                        _ => values.fold(f64::NEG_INFINITY, f64::max),
                    }
                })]
            }
        }
    }

    pub(super) fn moved(&self) -> Tensor {
        let x = &self.inputs[0];
        match self.kind {
            "Permute" => {
                let mut order = self.whole("order");
                order.extend((0..x.dims.len()).filter(|axis| !self.whole("order").contains(axis)));
                let dims: Vec<usize> = order.iter().map(|axis| x.dims[*axis]).collect();
                Tensor::of(&dims, |index| {
                    let mut from = vec![0; index.len()];
                    order.iter().zip(index).for_each(|(axis, at)| from[*axis] = *at);
                    x.at(&from)
                })
            }
            "Tile" => {
                let (axis, mut dims) = (self.axis("axis"), x.dims.clone());
                dims[axis] *= self.number("tiles") as usize;
                Tensor::of(&dims, |index| {
                    let mut from = index.to_vec();
                    from[axis] %= x.dims[axis];
                    x.at(&from)
                })
            }
            "Crop" => {
                let (like, axis, offsets) = (&self.inputs[1], self.axis("axis"), self.whole("offset"));
                let dims = [&x.dims[..axis], &like.dims[axis..]].concat();
                Tensor::of(&dims, |index| {
                    let from = index.iter().enumerate().map(|(at, i)| {
                        i + if at < axis { 0 } else { offsets.get(at - axis).or(offsets.first()).copied().unwrap_or(0) }
                    });
                    x.at(&from.collect::<Vec<usize>>())
                })
            }
            "Flatten" => {
                let (first, last) = (self.axis("axis"), self.axis("end_axis"));
                let flat = x.dims[first..=last].iter().product();
                x.reshaped(&[&x.dims[..first], &[flat], &x.dims[last + 1..]].concat())
            }
            _ => {
                let (group, channels) = (self.number("group") as usize, x.dims[1]);
                Tensor::of(&x.dims, |index| {
                    let from = index[1] % group * (channels / group) + index[1] / group;
                    x.at(&[index[0], from, index[2], index[3]])
                })
            }
        }
    }

    pub(super) fn interp(&self) -> Tensor {
        let x = &self.inputs[0];
        let cut = [-self.number("pad_beg"), -self.number("pad_end")].map(|cut| cut as usize);
        let inner = [2, 3].map(|axis| x.dims[axis] - cut[0] - cut[1]);
        let (zoom, shrink) = (self.number("zoom_factor") as usize, self.number("shrink_factor") as usize);
        let stated = ["height", "width"].map(|name| self.number(name) as usize);
        let size = [0, 1].map(|axis| match stated[axis] {
            0 => {
                let small = (inner[axis] - 1) / shrink + 1;
                small + (small - 1) * (zoom - 1)
            }
            stated => stated,
        });
        Tensor::of(&[x.dims[0], x.dims[1], size[0], size[1]], |index| {
            let at = [0, 1].map(|axis| {
                let step = if size[axis] > 1 { (inner[axis] - 1) as f64 / (size[axis] - 1) as f64 } else { 0.0 };
                step * index[2 + axis] as f64
            });
            [[false, false], [false, true], [true, false], [true, true]]
                .into_iter()
                .map(|high: [bool; 2]| {
                    let places = [0, 1].map(|axis| {
                        let low = (at[axis] + 1e-9).floor();
                        let part = (at[axis] - low).max(0.0);
                        let place = (low as usize + usize::from(high[axis])).min(inner[axis] - 1);
                        (cut[0] + place, if high[axis] { part } else { 1.0 - part })
                    });
                    x.at(&[index[0], index[1], places[0].0, places[1].0]) * places[0].1 * places[1].1
                })
                .sum()
        })
    }
}

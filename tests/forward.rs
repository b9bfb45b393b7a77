//! A net with weights converted for PyTorch, and with folded BatchNorms computes the values that OpenCV and MXNet
//! compute from the original file. The modules here are naive, in f64, and share no code with the transforms.

use std::path::Path;

use blob_convert::recipe::{NetFile, Recipe};
use blob_convert::transform::{Bound, Fold, Refusal, Registry};
use blob_convert::{Silent, Step};
use blob_io::{Checkpoint, Error};

use crate::support::floats::wide;
use crate::support::{data, real, report};

/// Weights with PyTorch's names.
struct Weights {
    file: Checkpoint,
    is_folded: bool,
}

/// A batch of one: channels, rows, columns.
#[derive(Clone, Debug, PartialEq)]
struct Map {
    dims: [usize; 3],
    values: Vec<f64>,
}

fn floats(file: &Checkpoint, name: &str) -> Option<(Vec<usize>, Vec<f64>)> {
    let entry = file.entry(name)?;
    Some((entry.shape().dims().to_vec(), wide(file, name)))
}

impl Weights {
    /// Converts a file for PyTorch. With a net, BatchNorms can be folded first.
    fn of(source: &Checkpoint, net: Option<NetFile>, is_folded: bool) -> Self {
        Self { file: converted(source, net, is_folded).unwrap_or_else(|e| panic!("{e}")), is_folded }
    }

    fn maybe(&self, name: &str) -> Option<(Vec<usize>, Vec<f64>)> {
        floats(&self.file, name)
    }

    fn get(&self, name: &str) -> (Vec<usize>, Vec<f64>) {
        self.maybe(name).unwrap_or_else(|| panic!("no {name:?} in {:?}", self.file.names().collect::<Vec<_>>()))
    }

    fn conv(&self, module: &str, x: &Map, pad: usize, stride: usize, groups: usize) -> Map {
        let (dims, w) = self.get(&format!("{module}.weight"));
        let bias = self.maybe(&format!("{module}.bias")).map(|(_, bias)| bias);
        let [out, per, kh, kw] = dims[..] else { panic!("{module}: {dims:?}") };
        let [channels, rows, columns] = x.dims;
        assert_eq!(per * groups, channels, "{module}");
        let to = [out, (rows + 2 * pad - kh) / stride + 1, (columns + 2 * pad - kw) / stride + 1];
        Map::of(to, |o, r, c| {
            let mut sum = bias.as_ref().map_or(0.0, |bias| bias[o]);
            for i in 0..per {
                for (a, b) in (0..kh).flat_map(|a| (0..kw).map(move |b| (a, b))) {
                    let (y, z) = (r * stride + a, c * stride + b);
                    if y >= pad && z >= pad && y - pad < rows && z - pad < columns {
                        sum +=
                            w[((o * per + i) * kh + a) * kw + b] * x.at(o / (out / groups) * per + i, y - pad, z - pad);
                    }
                }
            }
            sum
        })
    }

    /// A transposed convolution of stride 1.
    fn up(&self, module: &str, x: &Map, groups: usize) -> Map {
        let (dims, w) = self.get(&format!("{module}.weight"));
        let bias = self.maybe(&format!("{module}.bias")).map(|(_, bias)| bias);
        let [channels, per, kh, kw] = dims[..] else { panic!("{module}: {dims:?}") };
        let mut to = Map::of([per * groups, x.dims[1] + kh - 1, x.dims[2] + kw - 1], |o, _, _| {
            bias.as_ref().map_or(0.0, |b| b[o])
        });
        for (i, r, c) in x.places() {
            for o in 0..per {
                for (a, b) in (0..kh).flat_map(|a| (0..kw).map(move |b| (a, b))) {
                    let place = i / (channels / groups) * per + o;
                    *to.at_mut(place, r + a, c + b) += w[((i * per + o) * kh + a) * kw + b] * x.at(i, r, c);
                }
            }
        }
        to
    }

    fn linear(&self, module: &str, x: &Map) -> Map {
        let (_, w) = self.get(&format!("{module}.weight"));
        let (_, bias) = self.get(&format!("{module}.bias"));
        assert_eq!(w.len(), bias.len() * x.values.len(), "{module}");
        Map::of([bias.len(), 1, 1], |o, _, _| {
            w[o * x.values.len()..][..x.values.len()].iter().zip(&x.values).map(|(w, x)| w * x).sum::<f64>() + bias[o]
        })
    }

    fn bn(&self, module: &str, x: Map, eps: f64) -> Map {
        let Some((_, mean)) = self.maybe(&format!("{module}.running_mean")) else {
            assert!(self.is_folded && self.maybe(&format!("{module}.weight")).is_none(), "{module}");
            return x;
        };
        assert!(!self.is_folded, "{module}");
        let (_, variance) = self.get(&format!("{module}.running_var"));
        let part = |name: &str, absent: f64| {
            self.maybe(&format!("{module}.{name}")).map_or(vec![absent; mean.len()], |(_, v)| v)
        };
        let (gamma, beta) = (part("weight", 1.0), part("bias", 0.0));
        x.map(|c, x| (x - mean[c]) / (variance[c] + eps).sqrt() * gamma[c] + beta[c])
    }

    fn prelu(&self, module: &str, x: Map) -> Map {
        let (dims, slopes) = self.get(&format!("{module}.weight"));
        assert_eq!(dims.len(), 1);
        x.map(|c, x| if x < 0.0 { x * slopes[c % slopes.len()] } else { x })
    }

    /// One layer of an LSTM over the rows of a matrix; the gates are PyTorch's: input, forget, cell, output.
    fn lstm(&self, module: &str, steps: &Map) -> Map {
        let all = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"].map(|name| self.get(&format!("{module}.{name}_l0")));
        let [(dims, w_x), (_, w_h), (_, b_x), (_, b_h)] = all;
        let (cells, size) = (dims[0] / 4, dims[1]);
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let (mut h, mut c, mut out) = (vec![0.0; cells], vec![0.0; cells], Vec::new());
        for x in steps.values.chunks_exact(size) {
            let dot = |w: &[f64], row: usize, x: &[f64]| {
                w[row * x.len()..][..x.len()].iter().zip(x).map(|(w, x)| w * x).sum::<f64>()
            };
            let gates = (0..cells).map(|n| {
                [0, 1, 2, 3].map(|g| {
                    let row = g * cells + n;
                    dot(&w_x, row, x) + b_x[row] + dot(&w_h, row, &h) + b_h[row]
                })
            });
            let gates: Vec<[f64; 4]> = gates.collect();
            for (n, [i, f, g, o]) in gates.into_iter().enumerate() {
                c[n] = sigmoid(f) * c[n] + sigmoid(i) * g.tanh();
                h[n] = sigmoid(o) * c[n].tanh();
            }
            out.extend_from_slice(&h);
        }
        Map { dims: [1, out.len() / cells, cells], values: out }
    }
}

impl Map {
    fn of(dims: [usize; 3], value: impl Fn(usize, usize, usize) -> f64) -> Self {
        let mut map = Self { dims, values: Vec::new() };
        map.values = map.places().map(|(c, r, w)| value(c, r, w)).collect();
        map
    }

    fn places(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let [channels, rows, columns] = self.dims;
        (0..channels).flat_map(move |c| (0..rows).flat_map(move |r| (0..columns).map(move |w| (c, r, w))))
    }

    fn at(&self, c: usize, r: usize, w: usize) -> f64 {
        self.values[(c * self.dims[1] + r) * self.dims[2] + w]
    }

    fn at_mut(&mut self, c: usize, r: usize, w: usize) -> &mut f64 {
        &mut self.values[(c * self.dims[1] + r) * self.dims[2] + w]
    }

    fn map(mut self, value: impl Fn(usize, f64) -> f64) -> Self {
        let plane = self.dims[1] * self.dims[2];
        self.values.iter_mut().enumerate().for_each(|(place, x)| *x = value(place / plane, *x));
        self
    }

    fn relu(self) -> Self {
        self.map(|_, x| x.max(0.0))
    }

    /// Caffe's max pooling: a window that extends over the edge counts if the first value is inside.
    fn pool_by_two(&self, kernel: usize) -> Self {
        let [channels, rows, columns] = self.dims;
        let len = |n: usize| (n - kernel).div_ceil(2) + 1;
        Self::of([channels, len(rows), len(columns)], |c, r, w| {
            let places = (0..kernel).flat_map(|a| (0..kernel).map(move |b| (2 * r + a, 2 * w + b)));
            let inside = places.filter(|(a, b)| *a < rows && *b < columns);
            inside.map(|(a, b)| self.at(c, a, b)).fold(f64::MIN, f64::max)
        })
    }

    fn add(mut self, other: &Self) -> Self {
        self.values.iter_mut().zip(&other.values).for_each(|(a, b)| *a += b);
        self
    }
}

/// Converts by a recipe, in the library's order of steps.
fn converted(source: &Checkpoint, net: Option<NetFile>, is_folded: bool) -> Result<Checkpoint, Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.safetensors");
    let mut recipe = Recipe::new("", &path).step(Step::torch_names());
    recipe.net = net;
    if is_folded {
        recipe = recipe.step(Step::fold());
    }
    recipe.plan_of(&[source], None, &Registry::default())?.run(&Silent)?;
    Checkpoint::from_bytes("out.safetensors", std::fs::read(&path).expect("readable"))
}

/// The input and the output of a golden, as (dims, values).
fn golden(path: &Path) -> (Map, Vec<f64>) {
    let file = Checkpoint::open(path).unwrap_or_else(|e| panic!("{e}"));
    let (dims, values) = floats(&file, "data").expect("an input");
    let dims = match dims[..] {
        [_, c, h, w] => [c, h, w],
        [h, w] => [1, h, w],
        _ => panic!("{dims:?}"),
    };
    (Map { dims, values }, floats(&file, "output").expect("an output").1)
}

fn compare(ours: &Map, theirs: &[f64], what: &str) {
    assert_eq!(ours.values.len(), theirs.len(), "{what}");
    let largest = theirs.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    let off = ours.values.iter().zip(theirs).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs()));
    assert!(off <= 1e-5 * largest, "{what}: off by {off} of {largest}");
}

/// Compares the output of a Caffe net with the golden, without and with folding.
fn caffe(stem: &str, output: &str, net: impl Fn(&Weights, Map) -> Map) -> Vec<Refusal> {
    let source = Checkpoint::open(data(&format!("caffe/forward/{stem}.caffemodel"))).expect("opens");
    let own = source.net().expect("reads").expect("a net");
    let (x, theirs) = golden(&data(&format!("caffe/forward/{output}.npz")));
    let (fold, refused) = Fold::of(&Bound::new(&own, &source));
    for is_folded in [false, true].into_iter().filter(|is_folded| !is_folded || fold.count() > 0) {
        let weights = Weights::of(&source, None, is_folded);
        compare(&net(&weights, x.clone()), &theirs, &format!("{stem}, folded: {is_folded}"));
    }
    refused
}

const EPS: f64 = 1e-5;

#[test]
fn lenet_of_every_generation_computes_what_opencv_does() {
    for stem in ["lenet", "lenet_v1", "lenet_v0"] {
        let refused = caffe(stem, "lenet", |w, x| {
            let x = w.conv("conv1", &x, 0, 1, 1).pool_by_two(2);
            let x = w.conv("conv2", &x, 0, 1, 1).pool_by_two(2);
            w.linear("ip2", &w.linear("ip1", &x).relu())
        });
        assert!(refused.is_empty());
    }
}

#[test]
fn a_block_of_resnet_computes_what_opencv_does() {
    let refused = caffe("resnet", "resnet", |w, x| {
        let x = w.bn("bn_conv1", w.conv("conv1", &x, 1, 1, 1), EPS).relu();
        let a = w.bn("bn_branch2a", w.conv("res_branch2a", &x, 1, 1, 1), EPS).relu();
        w.bn("bn_branch2b", w.conv("res_branch2b", &a, 0, 1, 1), 0.01).add(&x).relu()
    });
    assert!(refused.is_empty());
}

#[test]
fn depthwise_layers_compute_what_opencv_does() {
    let refused = caffe("mobilenet", "mobilenet", |w, x| {
        let x = w.bn("conv_dw_bn", w.conv("conv_dw", &x, 1, 1, 4), EPS).relu();
        w.bn("conv_sep_bn", w.conv("conv_sep", &x, 0, 1, 1), EPS).relu()
    });
    assert!(refused.is_empty());
}

#[test]
fn a_block_of_inception_computes_what_opencv_does() {
    caffe("inception", "inception", |w, x| {
        let branch = |name: &str, pad| w.bn(&format!("{name}/bn"), w.conv(name, &x, pad, 1, 1), EPS).relu();
        let all = [branch("inception/1x1", 0), branch("inception/3x3", 1), branch("inception/5x5", 2)];
        Map { dims: [6, 6, 6], values: all.into_iter().flat_map(|map| map.values).collect() }
    });
}

#[test]
fn a_deconvolution_in_groups_computes_what_opencv_does() {
    caffe("upsample", "upsample", |w, x| w.prelu("prelu", w.bn("up_bn", w.up("up", &x, 2), EPS)));
}

#[test]
fn an_lstm_computes_what_caffes_formulas_say() {
    caffe("lstm", "lstm", |w, x| w.lstm("lstm1", &x));
}

#[test]
fn segnets_bn_computes_what_its_formula_says() {
    // Only the prototxt says that the net is for inference, not the weights.
    let refused = caffe("segnet", "segnet", |w, x| {
        let x = w.conv("conv1_1", &x, 0, 1, 1);
        let (gain, shift) = (w.get("conv1_1_bn.weight").1, w.get("conv1_1_bn.bias").1);
        x.map(|c, x| x * gain[c] + shift[c])
    });
    assert_eq!(refused[0].reason, "has no mean and no variance, and is not said to be for inference");
    let source = Checkpoint::open(data("caffe/forward/segnet.caffemodel")).expect("opens");
    let net = NetFile::Prototxt(data("caffe/forward/segnet.prototxt"));
    let weights = Weights::of(&source, Some(net), true);
    let (x, theirs) = golden(&data("caffe/forward/segnet.npz"));
    assert!(weights.maybe("conv1_1_bn.weight").is_none());
    compare(&weights.conv("conv1_1", &x, 0, 1, 1), &theirs, "segnet, folded");
}

#[test]
fn a_net_of_mxnet_computes_what_mxnet_does() {
    let source = Checkpoint::open(data("mxnet/forward/block-0000.params")).expect("opens");
    let (x, theirs) = golden(&data("mxnet/forward/block.npz"));
    for is_folded in [false, true] {
        let w = Weights::of(&source, None, is_folded);
        let x = w.bn("bn0", w.conv("conv0", &x, 1, 1, 1), 1e-3).relu();
        let x = w.prelu("act1", w.bn("bn1", w.conv("conv1", &x, 0, 1, 2), 2e-5));
        let x = w.bn("bn2", w.up("up", &x, 2), 1e-3);
        compare(&w.bn("bn3", w.linear("fc", &x), 1e-3), &theirs, &format!("mxnet, folded: {is_folded}"));
    }
}

#[test]
fn an_lstm_of_gluon_computes_what_mxnet_does() {
    let source = Checkpoint::open(data("mxnet/forward/lstm.params")).expect("opens");
    let (x, theirs) = golden(&data("mxnet/forward/lstm.npz"));
    compare(&Weights::of(&source, None, false).lstm("lstm0", &x), &theirs, "an LSTM of Gluon");
}

#[test]
fn resnet20_of_gluoncv_computes_what_mxnet_does() {
    let Some(folder) = real("mxnet/real") else {
        return report("NOT TESTED: forward: ResNet-20, BLOB_REAL_DATA is not set");
    };
    let stem = folder.join("dmlc__web-data__gluoncv__models__cifar_resnet20_v1");
    let source = Checkpoint::open(format!("{}-0000.params", stem.display())).expect("opens");
    let (x, theirs) = golden(&data("mxnet/forward/resnet20.npz"));
    for is_folded in [false, true] {
        let w = Weights::of(&source, None, is_folded);
        let conv = |place: &str, number: usize, x: &Map, stride: usize| {
            let module = |kind: &str| format!("cifarresnetv10_{place}{kind}{number}");
            let pad = usize::from(w.get(&format!("{}.weight", module("conv"))).0[2] == 3);
            w.bn(&module("batchnorm"), w.conv(&module("conv"), x, pad, stride, 1), EPS)
        };
        let mut x = conv("", 0, &x, 1);
        for stage in 1..=3 {
            let place = format!("stage{stage}_");
            let mut next = 0;
            for block in 0..3 {
                let is_first = stage > 1 && block == 0;
                let stride = 1 + usize::from(is_first);
                let inner = conv(&place, next, &x, stride).relu();
                let inner = conv(&place, next + 1, &inner, 1);
                let beside = if is_first { conv(&place, next + 2, &x, stride) } else { x };
                x = inner.add(&beside).relu();
                next += 2 + usize::from(is_first);
            }
        }
        let plane = x.dims[1] * x.dims[2];
        let mean = x.values.chunks_exact(plane).map(|plane| plane.iter().sum::<f64>() / plane.len() as f64).collect();
        let x = Map { dims: [x.dims[0], 1, 1], values: mean };
        compare(&w.linear("cifarresnetv10_dense0", &x), &theirs, &format!("ResNet-20, folded: {is_folded}"));
    }
    report("forward: ResNet-20 of GluonCV");
}

#[test]
fn mtcnn_computes_what_opencv_does() {
    let Some(folder) = real("caffe/real") else {
        return report("NOT TESTED: forward: MTCNN, BLOB_REAL_DATA is not set");
    };
    for stem in ["det1", "det2"] {
        let source = Checkpoint::open(folder.join(format!("mtcnn_{stem}.caffemodel"))).expect("opens");
        let w = Weights::of(&source, None, false);
        let (x, theirs) = golden(&data(&format!("caffe/forward/{stem}.npz")));
        let conv =
            |number: usize, x: &Map| w.prelu(&format!("prelu{number}"), w.conv(&format!("conv{number}"), x, 0, 1, 1));
        let is_first = stem == "det1";
        let x = conv(1, &x).pool_by_two(if is_first { 2 } else { 3 });
        let x = conv(2, &x);
        let x = conv(3, &if is_first { x } else { x.pool_by_two(3) });
        let x = if is_first { x } else { w.prelu("prelu4", w.linear("fc", &x)) };
        let values = ["score", "bbox_pred"]
            .iter()
            .flat_map(|name| (if is_first { w.conv(name, &x, 0, 1, 1) } else { w.linear(name, &x) }).values);
        let values = values.collect();
        compare(&Map { dims: [6, 1, 1], values }, &theirs, stem);
    }
    report("forward: MTCNN det1, det2");
}

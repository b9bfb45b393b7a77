//! Weights in another order and other shapes: equal to NumPy's, and to loops over all indices. Refusals, and what is
//! told, are rows of `cases/steps.txt`.

use std::path::Path;

use blob_convert::transform::{Dtype, FcFrom, Layout, Rgb, SqueezeLegacy};
use blob_convert::{Options, Place, plan};
use blob_core::DType;
use blob_io::{Checkpoint, Format};
use proptest::prelude::*;

use crate::support::conversion::to_bytes;
use crate::support::floats::{values, wide};
use crate::support::message::{floats, len, shape, var};
use crate::support::work::broken_bounds;
use crate::support::{Folder, blob, data, open};
use crate::there_and_back::convert;
use crate::transform::float;

/// A net of layers of these types, each with blobs of these shapes that contain 0, 1, 2, ….
pub(crate) fn net(layers: &[(&str, &str, &[&[u64]])]) -> Checkpoint {
    let mut bytes = Vec::new();
    for (name, kind, blobs) in layers {
        let mut layer = [len(1, name.as_bytes()), len(2, kind.as_bytes())].concat();
        for dims in *blobs {
            let values: Vec<f32> = (0..dims.iter().product()).map(|i: u64| i as f32).collect();
            layer.extend(len(7, &[shape(dims), floats(&values)].concat()));
        }
        bytes.extend(len(100, &layer));
    }
    open("net.caffemodel", &bytes).expect("opens")
}

/// A layer with bottom, top, the fields of the parameters, and weights of this shape.
fn wired(name: &str, kind: &str, [bottom, top]: [&str; 2], settings: Vec<u8>, weight: &[u64]) -> Vec<u8> {
    let texts = [(1, name), (2, kind), (3, bottom), (4, top)].map(|(number, text)| len(number, text.as_bytes()));
    let values: Vec<f32> = (0..weight.iter().product()).map(|i: u64| i as f32).collect();
    let blob = if weight.is_empty() { Vec::new() } else { len(7, &[shape(weight), floats(&values)].concat()) };
    len(100, &[texts.concat(), settings, blob].concat())
}

/// A net that does not say which layers read the image: the types of the layers that have three input channels count.
#[test]
fn a_deconvolution_alone_is_not_reversed() {
    let layers: [(&str, &str, &[&[u64]]); 2] =
        [("up", "Deconvolution", &[&[3, 1, 2, 2]]), ("c", "Convolution", &[&[4, 1, 3, 3]])];
    let options = safetensors().transform(Rgb);
    let said = plan(&net(&layers), &options, &Place::Stdout).expect_err("it is refused").to_string();
    assert!(said.contains("\"up/0\" alone has three input channels, and is a Deconvolution"), "{said}");
}

/// `tf.nn.depthwise_conv2d`: `output[..., k * M + q] = sum of filter[di, dj, k, q] * input[..., k]`.
#[test]
fn depthwise_weights_are_as_tensorflow_has_them() {
    let (channels, each, height, width) = (2, 3, 2, 4);
    let layer = wired("d", "Convolution", ["data", "d"], len(106, &var(5, 2)), &[6, 1, 2, 4]);
    let source = open("net.caffemodel", &layer).expect("opens");
    let done = converted(&source, &safetensors().transform(Layout::Hwio));
    let (dims, found) = tensor(&done, "d/0");
    assert_eq!(dims, [height, width, channels, each]);
    let (_, before) = tensor(&source, "d/0");
    let at = |k: usize, q: usize, i: usize, j: usize| &before[(((k * each + q) * height + i) * width + j) * 4..][..4];
    let (mut place, mut distinct) = (0, std::collections::BTreeSet::new());
    for (i, j) in (0..height).flat_map(|i| (0..width).map(move |j| (i, j))) {
        for (k, q) in (0..channels).flat_map(|k| (0..each).map(move |q| (k, q))) {
            assert_eq!(&found[place..place + 4], at(k, q, i, j));
            distinct.insert(at(k, q, i, j));
            place += 4;
        }
    }
    assert!(place == found.len() && distinct.len() > 1);
}

fn converted(source: &Checkpoint, options: &Options) -> Checkpoint {
    open("out.safetensors", &to_bytes(source, options).expect("written")).expect("opens")
}

/// Shape and bytes of a tensor.
fn tensor(file: &Checkpoint, name: &str) -> (Vec<usize>, Vec<u8>) {
    let entry = file.entry(name).unwrap_or_else(|| panic!("no {name:?}"));
    (entry.shape().dims().to_vec(), file.view(entry).expect("views").into_owned())
}

fn safetensors() -> Options {
    Options::new(Format::Safetensors)
}

#[test]
fn weights_are_permuted_as_numpy_permutes_them() {
    let golden = Checkpoint::open(data("transform/order.npz")).expect("opens");
    let cases: [(&str, &str, Options); 5] = [
        ("hwio", "conv/0", safetensors().transform(Layout::Hwio)),
        ("ohwi", "conv/0", safetensors().transform(Layout::Ohwi)),
        ("rgb", "conv/0", safetensors().transform(Rgb)),
        ("rgb.hwio.f16", "conv/0", safetensors().transform(Rgb).transform(Layout::Hwio).transform(float(DType::F16))),
        ("fc-from", "fc/0", safetensors().transform(FcFrom::new(2, 3, 4).expect("inputs"))),
    ];
    for (theirs, name, options) in cases {
        let ours = converted(&golden, &options);
        assert_eq!(tensor(&ours, name), tensor(&golden, theirs), "{theirs}");
        // Tensors that are not weights are unchanged.
        if !theirs.ends_with("f16") {
            assert_eq!(tensor(&ours, "fc-from"), tensor(&golden, "fc-from"));
        }
    }
}

/// If the first axis stays, 1 MiB is permuted at a time; the size of these rows does not divide 1 MiB.
#[test]
fn the_columns_of_a_large_inner_product_are_permuted() {
    let (rows, c, h, w) = (37, 13, 50, 31);
    let source = net(&[("fc6", "InnerProduct", &[&[rows, c * h * w], &[rows]])]);
    let from = FcFrom::new(c as usize, h as usize, w as usize).expect("inputs");
    let mut values = values(&converted(&source, &safetensors().transform(from)), "fc6/0").into_iter();
    for row in 0..rows {
        for (y, x) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
            for channel in 0..c {
                let stood = ((row * c + channel) * h + y) * w + x;
                assert_eq!(values.next(), Some(stood as f32));
            }
        }
    }
    assert_eq!(values.next(), None);
}

/// Two permutations of a tensor of two panels: as one, where the output takes pieces in any order, and where it does
/// not; and with a rounding behind them or between, which keeps them apart.
#[test]
fn a_large_inner_product_is_permuted_twice() {
    let (rows, c, h, w) = (256, 24, 20, 19);
    let source = net(&[("fc6", "InnerProduct", &[&[rows, c * h * w], &[rows]])]);
    let from = || FcFrom::new(c as usize, h as usize, w as usize).expect("inputs");
    let f64 = || Dtype::new(DType::F64).expect("a float");
    let out = Folder::new();
    let folder = format!("{}/", out.file("npy"));
    convert(&source, &safetensors().transform(from()).transform(Layout::Hwio), Path::new(&folder)).expect("written");
    for ours in [
        Checkpoint::open(&folder).expect("opens"),
        converted(&source, &safetensors().transform(from()).transform(Layout::Hwio)),
        converted(&source, &safetensors().transform(from()).transform(Layout::Hwio).transform(f64())),
        converted(&source, &safetensors().transform(from()).transform(f64()).transform(Layout::Hwio)),
    ] {
        assert_eq!(tensor(&ours, "fc6/0").0, [(c * h * w) as usize, rows as usize]);
        let mut values = wide(&ours, "fc6/0").into_iter();
        for (y, x) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
            for (channel, row) in (0..c).flat_map(|channel| (0..rows).map(move |row| (channel, row))) {
                let stood = ((row * c + channel) * h + y) * w + x;
                assert_eq!(values.next(), Some(stood as f64), "{y}, {x}, {channel}, {row}");
            }
        }
        assert_eq!(values.next(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn every_weight_is_found_where_its_axes_say(dims in prop::array::uniform4(1u64..7), to in 0usize..3) {
        let source = net(&[("c", "Convolution", &[&dims])]);
        let (layout, axes) = [
            (Layout::Oihw, [0, 1, 2, 3]),
            (Layout::Hwio, [2, 3, 1, 0]),
            (Layout::Ohwi, [0, 2, 3, 1]),
        ][to];
        let ours = converted(&source, &safetensors().transform(layout));
        let shape = tensor(&ours, "c/0").0;
        let extents = dims.map(|n| n as usize);
        prop_assert_eq!(&shape, &axes.map(|axis| extents[axis]).to_vec());
        for (at, value) in values(&ours, "c/0").into_iter().enumerate() {
            let mut rest = at;
            let mut index = [0; 4];
            for axis in (0..4).rev() {
                index[axes[axis]] = rest % shape[axis];
                rest /= shape[axis];
            }
            let stood = index.iter().zip(extents).fold(0, |at, (i, n)| at * n + i);
            prop_assert_eq!(value, stood as f32);
        }
    }
}

/// The file of Caffe with the shapes of today.
fn squeezed(source: &Checkpoint) -> Checkpoint {
    let options = Options::new(Format::CaffeModel).transform(SqueezeLegacy);
    open("out.caffemodel", &to_bytes(source, &options).expect("written")).expect("opens")
}

#[test]
fn the_ones_of_before_2015_go() {
    let cases: &[(&str, usize, &[u64], &[usize])] = &[
        ("InnerProduct", 0, &[1, 1, 10, 500], &[10, 500]),
        ("InnerProduct", 0, &[1, 1, 1, 500], &[1, 500]),
        ("InnerProduct", 1, &[1, 1, 1, 10], &[10]),
        ("InnerProduct", 0, &[10, 500], &[10, 500]),
        ("Convolution", 0, &[1, 1, 3, 3], &[1, 1, 3, 3]),
        ("Convolution", 1, &[1, 1, 1, 8], &[8]),
        ("Deconvolution", 1, &[1, 1, 1, 1], &[1]),
        ("Embed", 0, &[1, 1, 30, 4], &[30, 4]),
        ("LSTM", 0, &[1, 1, 16, 3], &[16, 3]),
        ("LSTM", 1, &[1, 1, 1, 16], &[16]),
        ("LSTM", 2, &[1, 1, 16, 4], &[16, 4]),
        ("PReLU", 0, &[1, 1, 1, 6], &[6]),
        ("BN", 1, &[1, 6, 1, 1], &[6]),
        ("BatchNorm", 2, &[1, 1, 1, 1], &[1]),
        ("Reshape", 0, &[1, 1, 1, 6], &[1, 1, 1, 6]),
    ];
    for (kind, index, dims, expected) in cases {
        let mut blobs: Vec<&[u64]> = vec![&[2]; *index];
        blobs.push(dims);
        let source = net(&[("layer", kind, &blobs)]);
        let name = format!("layer/{index}");
        let ours = converted(&source, &safetensors().transform(SqueezeLegacy));
        assert_eq!(tensor(&ours, &name), (expected.to_vec(), tensor(&source, &name).1), "{kind} {dims:?}");
        // The same with the file's other bytes: the new shape is stored.
        assert_eq!(tensor(&squeezed(&source), &name).0, *expected, "{kind} {dims:?}");
    }
}

#[test]
fn a_real_net_of_before_2015_is_squeezed_to_that_of_today() {
    let [old, new] = ["v2_legacy_dims", "f32_v2"]
        .map(|name| Checkpoint::open(data(&format!("caffe/net/{name}.caffemodel"))).expect("opens"));
    let all = |file: &Checkpoint| file.names().map(|name| (name.to_owned(), tensor(file, name))).collect::<Vec<_>>();
    assert_eq!(all(&squeezed(&old)), all(&new));
}

/// Each tensor is found by name, and not among those of all layers that read the image.
#[test]
fn rgb_does_linear_work() {
    let broken = broken_bounds(
        "rgb",
        |size: usize| -> Vec<u8> {
            (0..size / 64)
                .flat_map(|i: usize| {
                    wired(&format!("c{i}"), "Convolution", ["data", &format!("t{i}")], Vec::new(), &[1, 3, 1, 1])
                })
                .collect()
        },
        |file| {
            let source = open("net.caffemodel", file).expect("opens");
            let planned = plan(&source, &safetensors().transform(Rgb), &Place::Stdout).expect("a plan");
            assert!(planned.tensors().iter().all(|tensor| !tensor.changes.is_empty()));
        },
    );
    assert_eq!(broken, [""; 0]);
}

#[test]
fn transpose_is_a_conversion_of_the_tensors_that_are_named() {
    let golden = Checkpoint::open(data("transform/order.npz")).expect("opens");
    let folder = Folder::new();
    for (i, (tensor_of, how, theirs)) in [
        ("conv/0", ["--perm", "2,3,1,0"], "hwio"),
        ("#0", ["--preset", "oihw-hwio"], "hwio"),
        ("con*", ["--preset", "oihw-ohwi"], "ohwi"),
        ("fc/0", ["--fc-from", "2,3,4"], "fc-from"),
    ]
    .iter()
    .enumerate()
    {
        let out = folder.file(&format!("{i}.safetensors"));
        let command = if i == 0 { "permute" } else { "transpose" };
        blob(&[command, "transform/order.npz", tensor_of, how[0], how[1], "-o", &out]).ok();
        let name = if theirs.starts_with("fc") { "fc/0" } else { "conv/0" };
        let ours = Checkpoint::open(&out).expect("opens");
        assert_eq!(tensor(&ours, name), tensor(&golden, theirs));
        assert_eq!(tensor(&ours, "rgb"), tensor(&golden, "rgb"));
        assert_eq!(blob(&["verify", &out, "--against", "transform/order.npz"]).code, Some(0));
    }
}

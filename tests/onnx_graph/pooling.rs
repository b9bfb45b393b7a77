//! Caffe's Pooling against the loops of `PoolingLayer`, and the readers of its mask against the same readers of floats.

use blob_graph::Shapes;
use blob_io::caffe::prototxt;
use blob_io::net::Phase;

use super::caffe::of_net;
use super::difference;
use super::model::Model;
use super::run;
use super::tensor::{Tensor, indices};
use crate::support::report;

/// The parameters of a pooling, height before width.
#[derive(Clone, Copy, Debug)]
struct Pool {
    is_max: bool,
    kernel: [i64; 2],
    stride: [i64; 2],
    pad: [i64; 2],
}

impl Pool {
    fn text(&self) -> String {
        let ([kh, kw], [sh, sw], [ph, pw]) = (self.kernel, self.stride, self.pad);
        let pool = if self.is_max { "MAX" } else { "AVE" };
        format!("pool: {pool} kernel_h: {kh} kernel_w: {kw} stride_h: {sh} stride_w: {sw} pad_h: {ph} pad_w: {pw}")
    }

    /// How many windows `PoolingLayer::Reshape` counts along an axis; `None` where Caffe stops.
    fn windows(&self, axis: usize, extent: i64) -> Option<i64> {
        let ([kernel, stride, pad], is_padded) =
            ([self.kernel[axis], self.stride[axis], self.pad[axis]], self.pad != [0, 0]);
        let mut windows = ((extent + 2 * pad - kernel) as f32 / stride as f32).ceil() as i64 + 1;
        if is_padded {
            windows -= i64::from((windows - 1) * stride >= extent + pad);
            if pad >= kernel || (windows - 1) * stride >= extent + pad {
                return None;
            }
        }
        Some(windows)
    }

    /// The results and the mask of a plane, by `Forward_cpu`; `None` where Caffe stops or a window holds nothing.
    fn forward(&self, plane: &[f64], [height, width]: [i64; 2]) -> Option<(Vec<f64>, Vec<f64>)> {
        let windows = [self.windows(0, height)?, self.windows(1, width)?];
        if windows.iter().any(|windows| *windows <= 0) {
            return None;
        }
        let (mut results, mut mask) = (Vec::new(), Vec::new());
        for (row, column) in (0..windows[0]).flat_map(|row| (0..windows[1]).map(move |column| (row, column))) {
            let begin = [row * self.stride[0] - self.pad[0], column * self.stride[1] - self.pad[1]];
            let padded = [height + self.pad[0], width + self.pad[1]];
            let counted = [0, 1].map(|axis| (begin[axis] + self.kernel[axis]).min(padded[axis]) - begin[axis]);
            let end = [0, 1].map(|axis| (begin[axis] + self.kernel[axis]).min([height, width][axis]));
            let (mut most, mut place, mut sum) = (f64::NEG_INFINITY, None, 0.0);
            for (h, w) in (begin[0].max(0)..end[0]).flat_map(|h| (begin[1].max(0)..end[1]).map(move |w| (h, w))) {
                let at = h * width + w;
                sum += plane[at as usize];
                if plane[at as usize] > most {
                    (most, place) = (plane[at as usize], Some(at));
                }
            }
            mask.push(place? as f64);
            results.push(if self.is_max { most } else { sum / (counted[0] * counted[1]) as f64 });
        }
        Some((results, mask))
    }
}

/// Numbers of which no two are equal, some of them negative.
fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|at| ((at * 37 + 11) % 101) as f64 - 50.0 + at as f64 / 128.0).collect()
}

fn converted(text: &str) -> Result<Model, String> {
    let net = prototxt("net.prototxt", text.as_bytes()).expect("a net").in_phase(Phase::Test);
    of_net(&net, &Shapes::default(), |need, _| panic!("{need:?}"))
}

fn input(name: &str, dims: &[usize]) -> String {
    let dims: String = dims.iter().map(|dim| format!("dim: {dim} ")).collect();
    format!("input: \"{name}\" input_shape {{ {dims} }} ")
}

/// Windows larger than the input, padding on one axis alone, last windows that begin beyond the input: whatever Caffe
/// computes is computed, and all else is refused.
#[test]
fn poolings_have_the_windows_of_caffe_s_loops() {
    let (mut equal, mut refused, mut larger) = (0, 0, 0);
    for case in indices(&[2, 4, 3, 6, 3, 3, 3, 2]) {
        let [kind, height, width, kernel, stride, pad_h, pad_w, wider] = case[..] else { panic!("eight numbers") };
        let dims = [1, 1, height + 1, width + 1];
        let [kernel, stride, pad_h, pad_w] = [kernel + 1, stride + 1, pad_h, pad_w].map(|number| number as i64);
        let pool = Pool {
            is_max: kind == 0,
            kernel: [kernel, kernel + wider as i64],
            stride: [stride, 3 - stride.min(2)],
            pad: [pad_h, pad_w],
        };
        let x = Tensor::float(&dims, numbers(dims.iter().product()));
        let text = format!(
            "{} layer {{ name: \"p\" type: \"Pooling\" bottom: \"x\" top: \"y\" pooling_param {{ {} }} }}",
            input("x", &dims),
            pool.text()
        );
        let expected = pool.forward(&x.values, [dims[2] as i64, dims[3] as i64]);
        match (converted(&text), expected) {
            (Ok(model), Some((values, _))) => {
                let found = run::run(&model, &[("x".to_owned(), x.clone())]).swap_remove(0).1;
                let expected = Tensor::float(&found.dims, values);
                assert!(difference(&found, &expected).is_some_and(|by| by < 1e-6), "{dims:?} {pool:?}: {found:?}");
                equal += 1;
                larger += usize::from(kernel > dims[2] as i64 + 2 * pad_h);
            }
            (Err(_), None) => refused += 1,
            (converted, expected) => panic!("{dims:?} {pool:?}: {:?}, and {expected:?}", converted.err()),
        }
    }
    assert!(larger > 20, "{larger}");
    report(&format!(
        "onnx pooling: {equal} equal to Caffe's loops, {larger} of them larger than the input, {refused} refused"
    ));
}

/// The layers that may read a mask, with `m` for the mask and `p` for the maxima.
const READERS: &[&str] = &[
    "type: \"Eltwise\" bottom: \"p\" bottom: \"m\" top: \"y\"",
    "type: \"Eltwise\" bottom: \"m\" bottom: \"m\" top: \"y\" eltwise_param { operation: PROD }",
    "type: \"Concat\" bottom: \"m\" bottom: \"p\" top: \"y\"",
    "type: \"Power\" bottom: \"m\" top: \"y\" power_param { scale: 0.5 shift: -1 }",
    "type: \"Dropout\" bottom: \"m\" top: \"y\"",
    "type: \"Flatten\" bottom: \"m\" top: \"y\"",
    "type: \"Softmax\" bottom: \"m\" top: \"y\"",
    "type: \"Pooling\" bottom: \"m\" top: \"y\" pooling_param { pool: AVE kernel_size: 2 stride: 1 }",
    "type: \"Upsample\" bottom: \"m\" top: \"y\" upsample_param { scale: 2 }",
    "type: \"Slice\" bottom: \"m\" top: \"y\" top: \"z\"",
    "type: \"Reduction\" bottom: \"m\" top: \"y\"",
    "type: \"ArgMax\" bottom: \"m\" top: \"y\"",
];

/// A mask is a value of f32 in Caffe, so that any layer may read it.
#[test]
fn a_mask_may_be_read_by_any_layer() {
    let dims = [2, 2, 4, 6];
    let x = Tensor::float(&dims, numbers(96));
    let pool = Pool { is_max: true, kernel: [2, 2], stride: [2, 2], pad: [0, 0] };
    let planes: Vec<_> = x.values.chunks(24).map(|plane| pool.forward(plane, [4, 6]).expect("a pooling")).collect();
    let (maxima, mask): (Vec<Vec<f64>>, Vec<Vec<f64>>) = planes.into_iter().unzip();
    let given = [("p", maxima), ("m", mask)];
    let given = given.map(|(name, planes)| (name.to_owned(), Tensor::float(&[2, 2, 2, 3], planes.concat())));
    let pooling = format!(
        "{} layer {{ name: \"pool\" type: \"Pooling\" bottom: \"x\" top: \"p\" top: \"m\" pooling_param {{ {} }} }}",
        input("x", &dims),
        pool.text()
    );
    for reader in READERS {
        let layer = format!("layer {{ name: \"l\" {reader} }}");
        let both = converted(&format!("{pooling} {layer}")).unwrap_or_else(|e| panic!("{reader}: {e}"));
        let inputs: String = given.iter().map(|(name, tensor)| input(name, &tensor.dims)).collect();
        let alone = converted(&format!("{inputs} {layer}")).unwrap_or_else(|e| panic!("{reader}: {e}"));
        let found = run::run(&both, &[("x".to_owned(), x.clone())]);
        for (name, expected) in run::run(&alone, &given) {
            let (_, found) = found.iter().find(|(own, _)| *own == name).expect("the output");
            assert_eq!(found.kind, expected.kind, "{reader}");
            assert!(difference(found, &expected).is_some_and(|by| by < 1e-6), "{reader}: {found:?}, not {expected:?}");
        }
    }
}

/// A mask that two layers read through a `Split` still says where the values go, and the values that go there may be a
/// mask themselves.
#[test]
fn a_mask_says_where_values_go() {
    let x = Tensor::float(&[1, 1, 2, 4], vec![1.0, 5.0, 2.0, 3.0, 4.0, 0.0, 7.0, 6.0]);
    let pooling = format!(
        "{} layer {{ name: \"pool\" type: \"Pooling\" bottom: \"x\" top: \"p\" top: \"m\"
                     pooling_param {{ kernel_size: 2 stride: 2 }} }}
         layer {{ name: \"s\" type: \"Split\" bottom: \"m\" top: \"m1\" top: \"m2\" }}
         layer {{ name: \"u\" type: \"Upsample\" bottom: \"p\" bottom: \"m1\" top: \"u\" upsample_param {{ scale: 2 }} }}
         layer {{ name: \"v\" type: \"Upsample\" bottom: \"m2\" bottom: \"m1\" top: \"v\" upsample_param {{ scale: 2 }} }}",
        input("x", &[1, 1, 2, 4])
    );
    let model = converted(&pooling).unwrap_or_else(|e| panic!("{e}"));
    let found = run::run(&model, &[("x".to_owned(), x)]);
    let values = |name: &str| found.iter().find(|(own, _)| own == name).map(|(_, tensor)| tensor.values.clone());
    assert_eq!(values("u"), Some(vec![0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 7.0, 0.0]));
    assert_eq!(values("v"), Some(vec![0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 6.0, 0.0]));
}

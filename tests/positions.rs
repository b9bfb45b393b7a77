//! Small nets in which channels and positions reach weights by many operators: a conversion to channels last computes
//! the same as the net did, or says which tensors stay. The layers here are naive, in f64, and share no code with the
//! transforms.

mod cases;

use std::sync::Arc;

use blob_convert::Options;
use blob_convert::transform::{FcFrom, Layout, Topology};
use blob_io::Checkpoint;

use self::cases::CASES;
use crate::channels_last::{DATA, following, params, refused, symbol, told};
use crate::support::floats::{run, wide};
use crate::support::random::Random;

/// A node of a symbol: operator, name, attributes, and the numbers of the inputs.
type Node<'a> = (&'a str, &'a str, &'a str, &'a [usize]);

const INPUTS: usize = 3;
const CHANNELS: usize = 4;
const POSITIONS: usize = 6;
const OUTPUTS: usize = 5;
const DENSE: &str = "num_hidden=5; no_bias=True";

/// The values of an image, by channel and position.
#[derive(Clone)]
struct Image(Vec<Vec<f64>>);

impl Image {
    fn each(&self, value: impl Fn(usize, f64) -> f64) -> Self {
        Self(
            self.0
                .iter()
                .enumerate()
                .map(|(c, values): (usize, &Vec<f64>)| values.iter().map(|x| value(c, *x)).collect())
                .collect(),
        )
    }

    fn means(&self) -> Vec<f64> {
        self.0.iter().map(|values| values.iter().sum::<f64>() / values.len() as f64).collect()
    }
}

/// A framework with the weights of a file, which has the channels first or last.
struct Framework<'f> {
    file: &'f Checkpoint,
    is_last: bool,
}

impl Framework<'_> {
    fn flat(&self, image: &Image) -> Vec<f64> {
        let (channels, positions) = (image.0.len(), image.0[0].len());
        if self.is_last {
            (0..positions).flat_map(|p| (0..channels).map(move |c| image.0[c][p])).collect()
        } else {
            image.0.concat()
        }
    }

    /// The product with `outputs` rows, stored as outputs × inputs, or inputs × outputs with the channels last.
    fn product(&self, name: &str, outputs: usize, x: &[f64]) -> Vec<f64> {
        let (w, inputs) = (wide(self.file, name), x.len());
        assert_eq!(w.len(), outputs * inputs, "{name}");
        (0..outputs)
            .map(|o| {
                x.iter()
                    .enumerate()
                    .map(|(i, x)| if self.is_last { w[i * outputs + o] } else { w[o * inputs + i] } * x)
                    .sum()
            })
            .collect()
    }

    /// The first convolution: 1×1, of three channels.
    fn convolved(&self) -> Image {
        let mut random = Random::new(5);
        let mut pixel = || random.below(65) as f64 / 16.0 - 2.0;
        let pixels: Vec<Vec<f64>> = (0..POSITIONS).map(|_| (0..INPUTS).map(|_| pixel()).collect()).collect();
        let made: Vec<Vec<f64>> = pixels.iter().map(|pixel| self.product("arg:c_weight", CHANNELS, pixel)).collect();
        Image((0..CHANNELS).map(|c| made.iter().map(|pixel| pixel[c]).collect()).collect())
    }

    /// Normalised over all values, with a factor and a summand for each.
    fn normalised(&self, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / x.len() as f64;
        let (gamma, beta) = (wide(self.file, "arg:n_gamma"), wide(self.file, "arg:n_beta"));
        let all = x.iter().zip(gamma).zip(beta);
        all.map(|((x, gamma), beta)| (x - mean) / (variance + 1e-5).sqrt() * gamma + beta).collect()
    }
}

fn near(ours: &[f64], theirs: &[f64]) -> bool {
    let most = theirs.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() <= 1e-5 * most)
}

/// A net behind the convolution `c`, which is node 2; further nodes begin at 3.
struct Case {
    nodes: &'static [Node<'static>],
    weights: &'static [(&'static str, &'static [usize])],
    /// The outputs of the net.
    compute: fn(&Framework<'_>) -> Vec<f64>,
    /// The words for `layout` alone; empty where nothing stays.
    alone: &'static str,
    /// The words behind `fc-from`, or `refused: ` and why.
    behind: &'static str,
}

impl Case {
    fn open(&self) -> (Arc<Topology>, Checkpoint) {
        let mut nodes: Vec<Node<'_>> = vec![
            DATA,
            ("null", "c_weight", "", &[]),
            ("Convolution", "c", "kernel=(1, 1); num_filter=4; no_bias=True", &[0, 1]),
        ];
        nodes.extend_from_slice(self.nodes);
        let weights: Vec<(&str, &[usize])> =
            [("arg:c_weight", &[4, 3, 1, 1][..])].into_iter().chain(self.weights.iter().copied()).collect();
        (symbol(&nodes, &[nodes.len() - 1]), params(&weights))
    }
}

const COLUMNS: &str = "columns stay channels";
const UNKNOWN: &str = "layout: nothing says in which order";

/// The net's outputs with the channels first, and those of the converted weights with the channels last.
fn both(case: &Case, source: &Checkpoint, options: &Options) -> [Vec<f64>; 2] {
    let made = run(source, options);
    let first = (case.compute)(&Framework { file: source, is_last: false });
    [first, (case.compute)(&Framework { file: &made, is_last: true })]
}

#[test]
fn a_conversion_computes_the_same_or_says_what_stays() {
    let fc_from = FcFrom::new(CHANNELS, 2, 3).expect("extents");
    for case in CASES {
        let (net, source) = case.open();
        let check = |options: Options, words: &str| {
            let name = case.nodes.iter().map(|node| node.0).collect::<Vec<_>>();
            if let Some(why) = words.strip_prefix("refused: ") {
                return refused(&source, &options, why);
            }
            let [first, last] = both(case, &source, &options);
            let said = told(&source, &options);
            assert_eq!(near(&last, &first), words.is_empty(), "{name:?}: {last:?} for {first:?}: {said}");
            let strict = options.with(|options| options.strict = true);
            if words.is_empty() {
                assert!(
                    said.lines().all(|line| !line.contains("stay") && !line.contains("nothing says")),
                    "{name:?}: {said}"
                );
                run(&source, &strict);
            } else {
                assert!(said.contains(words), "{name:?}: {said}");
                refused(&source, &strict, words);
            }
        };
        check(following(&net).transform(Layout::Hwio), case.alone);
        check(following(&net).transform(fc_from.clone()).transform(Layout::Hwio), case.behind);
    }
}

/// A step turns stored weights alone, wherever computed ones are read.
#[test]
fn computed_weights_are_told_by_their_layers() {
    let nodes: &[Node<'_>] = &[
        DATA,
        ("null", "w", "", &[]),
        ("_mul_scalar", "v", "scalar=2", &[1]),
        ("Convolution", "c", "kernel=(1, 1); num_filter=4; no_bias=True", &[0, 2]),
        ("Pooling", "p", "pool_type=avg; global_pool=True; kernel=(1, 1)", &[3]),
        ("null", "g", "", &[]),
        ("_mul_scalar", "h", "scalar=2", &[5]),
        ("FullyConnected", "f", DENSE, &[4, 6]),
    ];
    let source = params(&[("arg:w", &[4, 3, 1, 1]), ("arg:g", &[5, 4])]);
    let net = symbol(nodes, &[7]);
    for (layout, layers) in [(Layout::Hwio, "of \"c\", \"f\""), (Layout::Ohwi, "of \"c\""), (Layout::Oihw, "")] {
        let said = told(&source, &following(&net).transform(layout));
        let why = format!("layout: weights that are computed have the axes of before: {layers}");
        assert_eq!(said.lines().any(|line| line == why), !layers.is_empty(), "{said}");
    }
}

/// The rows of an inner product that become an image are told, as no step turns rows.
#[test]
fn rows_that_become_an_image_are_told() {
    let nodes: &[Node<'_>] = &[
        DATA,
        ("null", "f_weight", "", &[]),
        ("FullyConnected", "f", "num_hidden=24; no_bias=True", &[0, 1]),
        ("Reshape", "r", "shape=(0, 4, 2, 3)", &[2]),
        ("null", "c_weight", "", &[]),
        ("Convolution", "c", "kernel=(1, 1); num_filter=2; no_bias=True", &[3, 4]),
    ];
    let source = params(&[("arg:f_weight", &[24, 6]), ("arg:c_weight", &[2, 4, 1, 1])]);
    let options = following(&symbol(nodes, &[5])).transform(Layout::Hwio);
    let why = "layout: rows stay channels \u{d7} height \u{d7} width";
    assert!(told(&source, &options).contains(why));
    refused(&source, &options.with(|options| options.strict = true), why);
    // With one position, there is one order.
    let mut one = nodes.to_vec();
    one[3].2 = "shape=(0, 24, 1, 1)";
    let source = params(&[("arg:f_weight", &[24, 6]), ("arg:c_weight", &[2, 24, 1, 1])]);
    let said = told(&source, &following(&symbol(&one, &[5])).transform(Layout::Hwio));
    assert!(!said.contains("stay"), "{said}");
}

/// The states of a recurrent layer have no positions, and the weights have.
#[test]
fn recurrent_layers_are_told_by_their_weights_alone() {
    let nodes: &[Node<'_>] = &[
        DATA,
        ("null", "c_weight", "", &[]),
        ("Convolution", "c", "kernel=(1, 1); num_filter=4; no_bias=True", &[0, 1]),
        ("Flatten", "x", "", &[2]),
        ("expand_dims", "e", "axis=0", &[3]),
        ("null", "rp", "", &[]),
        ("null", "rs", "", &[]),
        ("RNN", "r", "state_size=3; num_layers=1; mode=rnn_tanh", &[4, 5, 6]),
        ("null", "g_weight", "", &[]),
        ("FullyConnected", "g", DENSE, &[7, 8]),
        ("null", "f_weight", "", &[]),
        ("FullyConnected", "f", DENSE, &[2, 10]),
    ];
    let weights: [(&str, &[usize]); 5] = [
        ("arg:c_weight", &[4, 3, 1, 1]),
        ("arg:rp", &[24 * 3 + 9 + 6]),
        ("arg:rs", &[1, 1, 3]),
        ("arg:g_weight", &[5, 3]),
        ("arg:f_weight", &[5, 24]),
    ];
    let (net, source) = (symbol(nodes, &[9, 11]), params(&weights));
    let said = told(&source, &following(&net).transform(Layout::Hwio));
    assert!(said.contains("values behind a flattening stay") && said.contains("\"arg:rp\""), "{said}");
    let staying: Vec<&str> = said.lines().filter(|line| line.contains("stay")).collect();
    assert!(!staying.iter().any(|line| line.contains("arg:rs") || line.contains("arg:g_weight")), "{staying:?}");
    let options = following(&net).transform(FcFrom::new(CHANNELS, 2, 3).expect("extents"));
    let said = told(&source, &options);
    assert!(said.contains("1 tensor stays as stored, though") && said.contains("\"arg:rp\""), "{said}");
    refused(&source, &options.with(|options| options.strict = true), "\"arg:rp\"");
}

/// An inner product along one axis flattens no channels, so that its columns have one order.
#[test]
fn an_inner_product_along_one_axis_stays() {
    let text = |axis: &str, next: &str| {
        format!(
            r#"layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 1 dim: 3 dim: 2 dim: 3 }} }} }}
               layer {{ name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param {{ num_output: 4 kernel_size: 1 }} }}
               layer {{ name: "f" type: "InnerProduct" bottom: "c" top: "f" inner_product_param {{ num_output: 5 {axis} }} }}
               {next}"#
        )
    };
    let next = r#"layer { name: "g" type: "InnerProduct" bottom: "f" top: "g" inner_product_param { num_output: 5 } }"#;
    for (axis, next, columns, words) in [
        ("axis: 3", "", 3, ""),
        ("axis: -1", "", 3, ""),
        ("axis: 2", "", 6, ""),
        ("axis: 1", "", 24, COLUMNS),
        ("axis: -3", next, 24, COLUMNS),
        ("transpose: true", "", 24, COLUMNS),
        // The channels and the outputs are flattened.
        ("axis: 2", next, 6, UNKNOWN),
    ] {
        let text = text(axis, next);
        let net = Arc::new(Topology::prototxt("net.prototxt", text.as_bytes()).expect("reads"));
        let shape = if axis.starts_with('t') { [columns, OUTPUTS] } else { [OUTPUTS, columns] };
        let source = params(&[("c/0", &[4, 3, 1, 1]), ("f/0", &shape), ("g/0", &[OUTPUTS, 20])]);
        let said = told(&source, &following(&net).transform(Layout::Hwio));
        let is_said = said.contains(COLUMNS) || said.contains(UNKNOWN);
        assert!(is_said != words.is_empty() && said.contains(words), "{axis} {next}: {said}");
    }
}

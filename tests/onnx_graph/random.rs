//! Each row of Caffe's table with random parameters, inputs and weights: the model holds its own claims, and computes
//! the values of the layer's loops. The rows are the product's own list, so that a new row is tried as well.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use blob_graph::{Operator, Shapes, operators};
use blob_io::caffe::prototxt;
use blob_io::net::{Framework, Phase};
use rayon::prelude::*;

use super::caffe::{message, of_net};
use super::loops::Layer;
use super::tensor::Tensor;
use super::{difference, run};
use crate::support::random::Random;
use crate::support::report;

/// So many sets of parameters of a row are run, of so many that are tried.
const SETS: usize = 256;
const TRIES: usize = 1 << 14;

/// Parameters that are true or false.
const FLAGS: [&str; 21] = [
    "bias_term", "transpose", "channel_shared", "across_spatial", "across_channels", "normalize_variance",
    "global_pooling", "ceil_mode", "use_global_stats", "frozen", "scale_train", "out_max_val", "flip", "clip",
    "share_location", "variance_encoded_in_target", "visualize", "pad_out_h", "pad_out_w", "expose_hidden",
    "debug_info",
];

/// Texts that a parameter may have, and the most that one layer states.
fn vocabulary(parameter: &str) -> (&'static [&'static str], usize) {
    match parameter {
        "num_output" => (&["1", "2", "4", "6"], 1),
        "pad" | "pad_h" | "pad_w" => (&["0", "1", "2"], 1),
        "kernel_size" | "kernel_h" | "kernel_w" => (&["1", "2", "3", "4"], 1),
        "stride" | "stride_h" | "stride_w" => (&["1", "2", "3"], 1),
        "dilation" => (&["1", "2"], 2),
        "group" => (&["1", "2", "4"], 1),
        "axis" | "end_axis" | "concat_dim" | "slice_dim" => (&["0", "1", "2", "3", "-1", "-2"], 1),
        "num_axes" => (&["0", "1", "2", "-1"], 1),
        "slice_point" => (&["1", "2", "3"], 2),
        "shape.dim" => (&["0", "-1", "1", "2", "4"], 4),
        "order" => (&["0", "1", "2", "3"], 4),
        "offset" => (&["0", "1", "0.5"], 2),
        "tiles" | "zoom_factor" | "shrink_factor" | "scale_h" | "scale_w" => (&["1", "2", "3"], 1),
        "height" | "width" | "upsample_h" | "upsample_w" => (&["0", "1", "4", "7"], 1),
        "pad_beg" | "pad_end" => (&["0", "-1"], 1),
        "top_k" | "nms_param.top_k" | "keep_top_k" => (&["-1", "1", "2", "3"], 1),
        "pool" => (&["MAX", "AVE"], 1),
        "round_mode" => (&["CEIL", "FLOOR"], 1),
        "norm_region" => (&["ACROSS_CHANNELS", "WITHIN_CHANNEL"], 1),
        "local_size" => (&["1", "3", "5", "4"], 1),
        "operation" => (&["PROD", "SUM", "MAX", "ASUM", "SUMSQ", "MEAN"], 1),
        "coeff" => (&["1", "-1", "0.5"], 3),
        "bn_mode" => (&["LEARN", "INFERENCE"], 1),
        "code_type" => (&["CORNER", "CENTER_SIZE", "CORNER_SIZE"], 1),
        "num_classes" => (&["2", "3"], 1),
        "background_label_id" => (&["0", "1", "-1"], 1),
        "nms_param.nms_threshold" | "confidence_threshold" | "dropout_ratio" => (&["0", "0.3", "0.9"], 1),
        "nms_param.eta" => (&["1", "0.9"], 1),
        "min_size" | "max_size" => (&["2", "4", "7"], 2),
        "aspect_ratio" => (&["1", "2", "3", "0.5"], 2),
        "variance" => (&["0.1", "0.2"], 4),
        "img_size" | "img_h" | "img_w" => (&["8", "16"], 1),
        "step" | "step_h" | "step_w" => (&["0", "2", "4.5"], 1),
        "eps" => (&["1e-5", "0.01", "0"], 1),
        "base" => (&["-1", "2", "0.5", "10"], 1),
        "power" => (&["0", "1", "2", "-1", "0.5"], 1),
        "scale"
        | "shift"
        | "alpha"
        | "beta"
        | "k"
        | "min"
        | "max"
        | "threshold"
        | "negative_slope"
        | "momentum"
        | "visualize_threshold" => (&["0", "1", "2", "-0.5", "0.75"], 1),
        flag if FLAGS.contains(&flag) => (&["true", "false"], 1),
        other => panic!("no values for the parameter {other}: name some in this list"),
    }
}

/// A layer with random parameters and inputs.
struct Trial<'r> {
    row: &'r Operator,
    kind: &'r str,
    stated: BTreeMap<&'static str, Vec<String>>,
    inputs: Vec<Tensor>,
    outputs: usize,
}

/// An extent; channels are often even.
fn extent(random: &mut Random, axis: usize) -> usize {
    if axis == 1 { *random.one(&[1, 2, 4]) } else { 1 + random.below(5) }
}

fn number(random: &mut Random) -> f64 {
    (random.below(40_001) as f64 - 20_000.0) / 8192.0
}

fn filled(random: &mut Random, dims: &[usize]) -> Tensor {
    Tensor::of(dims, |_| number(random))
}

/// Shapes of inputs that a layer of this type may have together.
fn shapes(kind: &str, count: usize, random: &mut Random) -> Vec<Vec<usize>> {
    let rank = *random.one(&[4, 4, 4, 4, 2, 3, 5, 1]);
    let first: Vec<usize> = (0..rank).map(|axis| extent(random, axis)).collect();
    if kind == "DetectionOutput" {
        let (priors, classes) = (1 + random.below(5), 2 + random.below(2));
        return vec![vec![1, priors * 4], vec![1, priors * classes], vec![1, 2, priors * 4]];
    }
    let mut all = vec![first.clone()];
    for place in 1..count {
        let mut own = first.clone();
        let axis = random.below(rank);
        match kind {
            "Concat" => own[axis] = extent(random, axis),
            "Crop" => own.iter_mut().for_each(|extent| *extent = 1 + random.below(*extent)),
            "LSTM" => own.truncate(2),
            "Scale" | "Bias" => own = own[axis..axis + 1 + random.below(rank - axis)].to_vec(),
            _ => {}
        }
        if kind == "Axpy" && place == 1 {
            all[0].iter_mut().skip(2).for_each(|extent| *extent = 1);
        }
        all.push(own);
    }
    all
}

impl<'r> Trial<'r> {
    fn new(row: &'r Operator, random: &mut Random) -> Self {
        let kind = *random.one(&row.types);
        let between = |random: &mut Random, (least, most): (usize, usize)| {
            least + random.below((most.min(least.max(3)) + 1) - least)
        };
        let (inputs, outputs) = (between(random, row.inputs), between(random, row.outputs));
        let mut stated = BTreeMap::new();
        for (name, default) in &row.parameters {
            let (texts, most) = vocabulary(name);
            // A required field is stated three times in four.
            let is_stated = if default.is_empty() && !name.contains('_') || ["num_output", "kernel_size"].contains(name)
            {
                !random.once_in(4)
            } else {
                random.once_in(4)
            };
            if is_stated {
                let count = 1 + random.below(most);
                stated.insert(*name, (0..count).map(|_| (*random.one(texts)).to_owned()).collect());
            }
        }
        let inputs = shapes(kind, inputs, random).iter().map(|dims| filled(random, dims)).collect();
        Self { row, kind, stated, inputs, outputs }
    }

    fn prototxt(&self) -> String {
        let mut text = String::new();
        for (place, input) in self.inputs.iter().enumerate() {
            let dims: String = input.dims.iter().map(|dim| format!("dim: {dim} ")).collect();
            text += &format!("input: \"x{place}\" input_shape {{ {dims}}} ");
        }
        text += &format!("layer {{ name: \"l\" type: \"{}\" ", self.kind);
        (0..self.inputs.len()).for_each(|place| text += &format!("bottom: \"x{place}\" "));
        (0..self.outputs).for_each(|place| text += &format!("top: \"y{place}\" "));
        if let Some(message) = self.row.messages.first() {
            text += &format!("{message} {{ ");
            for (name, texts) in &self.stated {
                for own in texts {
                    text += &match name.split_once('.') {
                        Some((inner, name)) => format!("{inner} {{ {name}: {own} }} "),
                        None => format!("{name}: {own} "),
                    };
                }
            }
            text += "} ";
        }
        text + "}"
    }

    /// Runs the model, and compares the outputs with the layer's loops. Whether there was a model, and loops.
    fn outcome(&self, text: &str, random: &mut Random) -> Option<bool> {
        let net = prototxt("net.prototxt", text.as_bytes()).ok()?.in_phase(Phase::Test);
        let weights: RefCell<BTreeMap<String, Vec<f64>>> = RefCell::default();
        let random = RefCell::new(random);
        let is_norm = ["BatchNorm", "BN"].contains(&self.kind);
        let model = of_net(&net, &Shapes::default(), |need, dims| {
            let mut weights = weights.borrow_mut();
            let own = weights.entry(need.tensor.clone()).or_insert_with(|| {
                let values = (0..dims.iter().product()).map(|_| number(&mut random.borrow_mut()));
                values.map(|value| if is_norm { value.abs() + 0.1 } else { value }).collect()
            });
            own.clone()
        });
        let model = model.ok()?;
        let given = self.inputs.iter().enumerate().map(|(place, input)| (format!("x{place}"), input.clone()));
        let found = run::run(&model, &given.collect::<Vec<_>>());
        let weights = weights.borrow();
        let (kind, inputs, outputs) = (self.kind, &self.inputs[..], self.outputs);
        let expected = Layer {
            kind,
            text: &|name| {
                let default = self.row.parameters.iter().find(|(known, default)| *known == name && !default.is_empty());
                self.stated
                    .get(name)
                    .cloned()
                    .unwrap_or_else(|| default.map(|(_, default)| vec![(*default).to_owned()]).unwrap_or_default())
            },
            inputs,
            tensor: &|index: usize| weights[&format!("l/{index}")].clone(),
            outputs,
        }
        .forward();
        let Some(expected) = expected else { return Some(false) };
        let first = if kind.ends_with("Loss") { outputs - expected.len() } else { 0 };
        for (place, expected) in (first..).zip(&expected) {
            let own = found.iter().find(|(name, _)| *name == format!("y{place}")).expect("the output");
            let known = |value: f64| if value.is_nan() { 12_345.0 } else { value };
            let by = difference(&own.1.map(known), &expected.map(known));
            assert!(by.is_some_and(|by| by < 1e-5), "differs by {by:?}: {:?}, not {expected:?}", own.1);
        }
        Some(true)
    }
}

/// So many models of a row, and so many with loops; or the first that is wrong.
fn tried(place: usize, row: &Operator) -> Result<(usize, usize), String> {
    let mut random = Random::new(1 + place as u64);
    let (mut models, mut looped) = (0, 0);
    for _ in 0..TRIES {
        let trial = Trial::new(row, &mut random);
        let text = trial.prototxt();
        let outcome = catch_unwind(AssertUnwindSafe(|| trial.outcome(&text, &mut random)));
        match outcome.map_err(|reason| format!("{text}\n{}", message(&*reason)))? {
            Some(has_loops) => (models, looped) = (models + 1, looped + usize::from(has_loops)),
            None => continue,
        }
        if models == SETS {
            break;
        }
    }
    Ok((models, looped))
}

#[test]
fn random_parameters_compute_what_caffe_s_loops_compute() {
    let rows: Vec<Operator> = operators(Framework::Caffe).collect();
    let tried: Vec<_> = rows.par_iter().enumerate().map(|(place, row)| tried(place, row)).collect();
    let (mut all, mut looped, mut wrong) = (0, 0, String::new());
    for (row, tried) in rows.iter().zip(tried) {
        let name = row.types[0];
        match tried {
            Ok((models, of)) => {
                (all, looped) = (all + models, looped + usize::from(of > 0));
                if models < SETS {
                    wrong += &format!("{name}: {models} models of {TRIES} random layers\n");
                }
            }
            Err(reason) => wrong += &format!("{name}: {reason}\n"),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    report(&format!("onnx: {all} random layers of {} rows, {looped} of them against loops of Caffe's", rows.len()));
}

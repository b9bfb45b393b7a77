//! Each operator of MXNet's as a net that becomes an ONNX model, run by the interpreter, against the real MXNet's
//! output.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use blob_graph::{Graph, Make, Need, Operator, Shapes, Target, operators, to_onnx};
use blob_io::mxnet::Symbol;
use blob_io::net::Framework;
use blob_io::{Checkpoint, Entry};
use rayon::prelude::*;
use serde_json::Value;

use super::caffe::{compare, message, of_net};
use super::model::{self, Model};
use super::{Case, cases, difference, run, tensor};
use crate::support::floats::wide;
use crate::support::random::Random;
use crate::support::{Folder, blob, data, opened, report};

/// The net that is refused, with words of the reason. Whatever is converted is equal.
const REFUSED: &[(&str, &str)] = &[("pooling-gap", "a window that begins beyond")];

/// The types of a symbol's operators.
fn types(case: &Case) -> Vec<String> {
    let symbol = Symbol::from_bytes("net-symbol.json", &case.bytes("symbol")).expect("a symbol");
    symbol.net.layers().iter().map(|layer| layer.type_name.clone()).collect()
}

/// A file's tensor, by the net's name for it.
fn stored<'f>(file: &'f Checkpoint, name: &str) -> Option<&'f Entry> {
    ["arg:", "aux:"].iter().find_map(|group| file.entry(&format!("{group}{name}")))
}

/// The shapes of a case's inputs and weights.
fn shapes(case: &Case, symbol: &Symbol) -> Shapes {
    let file = Checkpoint::from_bytes("net.params", case.bytes("weights")).expect("a file");
    let shape = |dims: &[usize]| dims.iter().map(|extent| *extent as u64).collect::<Vec<u64>>();
    let known = symbol
        .variables
        .iter()
        .filter_map(|variable| Some((variable.name.to_string(), shape(stored(&file, &variable.name)?.shape().dims()))));
    let mut shapes = Shapes { stored: known.collect(), ..Shapes::default() };
    shapes.named.extend(case.side("in/").into_iter().map(|(name, tensor)| (name, shape(&tensor.dims))));
    shapes
}

/// A case as the library's model, with the weights that the model needs.
fn lowered(case: &Case) -> Result<Model, String> {
    let symbol = Symbol::from_bytes("net-symbol.json", &case.bytes("symbol")).map_err(|e| e.to_string())?;
    let file = Checkpoint::from_bytes("net.params", case.bytes("weights")).map_err(|e| e.to_string())?;
    of_net(&symbol.net, &shapes(case, &symbol), |need, _| made(&file, need))
}

/// The values of a weight, made of the net's tensor.
fn made(file: &Checkpoint, need: &Need) -> Vec<f64> {
    let entry = stored(file, &need.tensor).unwrap_or_else(|| panic!("no {:?}", need.tensor));
    let values = wide(file, entry.name());
    match need.make {
        Make::AsIs | Make::Reshape(_) => values,
        Make::Ones => vec![1.0; values.len()],
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_graph_computes_what_mxnet_computes() {
    report(&format!("onnx: {}", compare(&cases("onnx_graph/mxnet.npz"), REFUSED, types, lowered)));
}

/// A net through the tool, whose symbol lies beside the parameters.
#[test]
fn a_converted_symbol_computes_what_mxnet_computed() {
    let folder = Folder::new();
    let golden = opened("mxnet/forward/block.npz");
    let (x, expected) = (tensor(&golden, "data"), tensor(&golden, "output"));
    let weights = data("mxnet/forward/block-0000.params");
    let weights = weights.to_str().unwrap();
    for more in [&[][..], &["--fold"], &["--dynamic-batch"], &["--opset", "13"]] {
        let output = folder.path().join("x.onnx");
        let output = output.to_str().unwrap();
        let line = ["convert", weights, "--input", "data=1,3,4,4", "-o", output, "--force", "-q"];
        blob(&[&line[..], more].concat()).ok();
        blob(&["verify", output, "--against", weights]).ok();
        let model = model::model(&std::fs::read(output).unwrap());
        let found = run::run(&model, &[("data".to_owned(), x.clone())]).swap_remove(0).1;
        let by = difference(&found, &expected).expect("of one shape");
        assert!(by <= 2e-6, "{more:?}: {by:e}");
    }
}

/// Numbers that no net has, in the place of each number of a symbol.
const ABSURD: [&str; 7] = ["0", "-1", "65536", "4294967295", "9223372036854775807", "1e38", "None"];

/// The symbol with another number in each place, one place at a time. `turn` says which number comes first.
fn changed(text: &str, turn: usize) -> Vec<String> {
    let is_digit = |at: usize| text.as_bytes()[at].is_ascii_digit();
    let places = (0..text.len())
        .filter(|at: &usize| *at > 0 && is_digit(*at) && !text.as_bytes()[*at - 1].is_ascii_alphanumeric())
        .enumerate()
        .map(|(place, start)| {
            let end = (start..text.len()).find(|at| !is_digit(*at)).unwrap_or(text.len());
            format!("{}{}{}", &text[..start], ABSURD[(place + turn) % ABSURD.len()], &text[end..])
        });
    places.collect()
}

/// Whatever a symbol says, there is a graph or an error, in bounded time and memory.
#[test]
fn no_number_of_a_symbol_breaks_the_graph() {
    let cases = cases("onnx_graph/mxnet.npz");
    let small: Vec<&Case> = cases.iter().filter(|case| !case.name.starts_with("resnet")).collect();
    let counts = small.par_iter().enumerate().map(|(turn, case)| {
        let text = String::from_utf8(case.bytes("symbol")).expect("a text");
        let graphs = changed(&text, turn).into_iter().filter(|text| {
            let Ok(symbol) = Symbol::from_bytes("net-symbol.json", text.as_bytes()) else { return false };
            let Ok(graph) = Graph::from_net(&symbol.net, &shapes(case, &symbol)) else { return false };
            let target = Target { dynamic_batch: true, ..Target::default() };
            let _ = to_onnx(&graph, &target);
            to_onnx(&graph, &Target::default()).is_ok()
        });
        graphs.count()
    });
    assert!(counts.sum::<usize>() > 300);
}

/// So many sets of numbers are tried in each golden symbol at a time, as many times as its rows need and no more often.
const SETS: usize = 64;
const PASSES: u64 = 64;

/// The fewest models of each row. A row without numbers has as many with other weights.
const LEAST: usize = 256;

/// A text with small numbers in place of some of its numbers.
fn renumbered(text: &str, random: &mut Random) -> String {
    let bytes = text.as_bytes();
    let (mut made, mut at) = (String::new(), 0);
    while at < bytes.len() {
        let is_inner = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || b"._".contains(&bytes[at - 1]));
        let end = (at..bytes.len()).find(|end| !bytes[*end].is_ascii_digit()).unwrap_or(bytes.len());
        if end > at && !is_inner && random.once_in(2) {
            made += &random.below(5).to_string();
            at = end;
        } else {
            made.push(char::from(bytes[at]));
            at += 1;
        }
    }
    made
}

/// The symbol with small numbers in place of some of the attributes'.
fn varied(symbol: &Value, random: &mut Random) -> String {
    let mut symbol = symbol.clone();
    for node in symbol["nodes"].as_array_mut().expect("nodes") {
        let attributes = node.as_object_mut().expect("a node").iter_mut();
        let attributes = attributes.filter(|(key, _)| ["attrs", "attr", "param"].contains(&&***key));
        for value in attributes.filter_map(|(_, own)| own.as_object_mut()).flat_map(|own| own.values_mut()) {
            if let Some(text) = value.as_str().filter(|_| random.once_in(3)).map(str::to_owned) {
                *value = renumbered(&text, random).into();
            }
        }
    }
    symbol.to_string()
}

/// Runs the model of a symbol with random weights. Whether there is one.
fn runs(case: &Case, text: &str, random: &mut Random) -> bool {
    let Ok(symbol) = Symbol::from_bytes("net-symbol.json", text.as_bytes()) else { return false };
    let random = RefCell::new(random);
    let Ok(model) = of_net(&symbol.net, &shapes(case, &symbol), |need, dims: &[usize]| {
        let values = (0..dims.iter().product()).map(|_| random.borrow_mut().below(4001) as f64 / 1000.0 - 2.0);
        values.map(|value| if need.tensor.ends_with("var") { value.abs() + 0.1 } else { value }).collect()
    }) else {
        return false;
    };
    run::run(&model, &case.side("in/"));
    true
}

/// As many models as random numbers give of a case, and what is wrong with one.
fn tried(case: &Case, seed: u64) -> (usize, String) {
    let symbol: Value = serde_json::from_slice(&case.bytes("symbol")).expect("JSON");
    let (mut random, mut models, mut wrong) = (Random::new(seed), 0, String::new());
    for _ in 0..SETS {
        let text = varied(&symbol, &mut random);
        match catch_unwind(AssertUnwindSafe(|| runs(case, &text, &mut random))) {
            Ok(is_model) => models += usize::from(is_model),
            Err(reason) => wrong = format!("{}: {}\n{text}\n", case.name, message(&*reason)),
        }
    }
    (models, wrong)
}

/// Whatever small numbers a symbol has, its model holds its own claims: shapes, types, values written and read. Each
/// row has as many models as are asked of Caffe's rows.
#[test]
fn random_numbers_of_a_symbol_give_models_that_hold_their_claims() {
    let cases = cases("onnx_graph/mxnet.npz");
    let rows: Vec<Operator> = operators(Framework::Mxnet).collect();
    let small = cases.iter().filter(|case| !case.name.starts_with("resnet"));
    let small = small.map(|case| {
        let types: BTreeSet<String> = types(case).into_iter().collect();
        (case, (0..rows.len()).filter(|place| rows[*place].types.iter().any(|kind| types.contains(*kind))).collect())
    });
    let small: Vec<(&Case, Vec<usize>)> = small.collect();
    let (mut counts, mut wrong) = (vec![0; rows.len()], String::new());
    for pass in 0..PASSES {
        let short = small.iter().enumerate().filter(|(_, (_, rows))| rows.iter().any(|row| counts[*row] < LEAST));
        let short = short.collect::<Vec<_>>();
        let tried = short.par_iter().map(|(place, (case, _))| tried(case, pass * 1000 + 1 + *place as u64));
        for ((models, reason), (_, (_, rows))) in tried.collect::<Vec<_>>().into_iter().zip(&short) {
            rows.iter().for_each(|row| counts[*row] += models);
            wrong += &reason;
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    let short = rows.iter().zip(&counts).filter(|(_, count)| **count < LEAST);
    let short: Vec<_> = short.map(|(row, count)| (row.types[0], count)).collect();
    assert!(short.is_empty(), "fewer than {LEAST} models of {short:?}");
    report(&format!("onnx: symbols with random numbers, {LEAST} models and more of each of {} rows", rows.len()));
}

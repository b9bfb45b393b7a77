//! Hostile nets: every small golden net cut anywhere, with any byte changed, and with random changes. There is a graph
//! or an error, in bounded memory.

use std::collections::BTreeSet;

use blob_graph::{Graph, Shapes, Ssd, Target, to_onnx};
use blob_io::caffe::prototxt;
use blob_io::mxnet::Symbol;
use blob_io::net::{Net, Phase};
use rayon::prelude::*;

use super::cases;
use crate::support::alloc::peak;
use crate::support::random::{Random, number, on_threads};
use crate::support::report;

/// The longest text whose every byte is changed.
const LONGEST: usize = 1200;

/// The memory that a small net may use; the constants may have 64 MiB, and are copied once.
const MOST: u64 = 256 << 20;

/// Reads a text as a description of a net: Caffe's, or MXNet's.
fn read(is_symbol: bool, text: &[u8]) -> Option<Net> {
    if is_symbol {
        return Symbol::from_bytes("net-symbol.json", text).ok().map(|symbol| symbol.net);
    }
    prototxt("net.prototxt", text).ok().map(|net| net.in_phase(Phase::Test))
}

/// Makes every kind of model of a net. Whether there is one.
fn exercise(is_symbol: bool, text: &[u8]) -> bool {
    let mut is_model = false;
    let used = peak(|| {
        let Some(net) = read(is_symbol, text) else { return };
        let shapes = Shapes { only: Some(vec![1, 3, 8, 8]), ..Shapes::default() };
        let Ok(graph) = Graph::from_net(&net, &shapes) else { return };
        for (ssd, dynamic_batch) in [(Ssd::Standard, false), (Ssd::OpenCv, true), (Ssd::Raw, false)] {
            is_model |= to_onnx(&graph, &Target { ssd, dynamic_batch, ..Target::default() }).is_ok();
        }
    });
    assert!(used <= MOST, "{used} bytes of memory: {}", String::from_utf8_lossy(text));
    is_model
}

/// The texts of all golden nets, without those that differ in numbers alone.
fn texts() -> Vec<(bool, Vec<u8>)> {
    let of = |path: &str, array: &str, is_symbol: bool| {
        let all = cases(path).into_iter().map(|case| case.bytes(array)).filter(|text| text.len() <= LONGEST);
        let (mut seen, mut kept) = (BTreeSet::new(), Vec::new());
        for text in all {
            let bare: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_digit()).collect();
            kept.extend(seen.insert(bare).then_some((is_symbol, text)));
        }
        kept
    };
    [of("onnx_graph/caffe.npz", "prototxt", false), of("onnx_graph/mxnet.npz", "symbol", true)].concat()
}

#[test]
fn no_cut_and_no_byte_of_a_net_breaks_the_graph() {
    let texts = texts();
    let counts = texts.par_iter().enumerate().map(|(turn, (is_symbol, text))| {
        let mut models = 0;
        for at in 0..text.len() {
            models += usize::from(exercise(*is_symbol, &text[..at]));
            let mut changed = text.clone();
            changed[at] = b"9-\"{}:. \0\xff"[(at + turn) % 10];
            models += usize::from(exercise(*is_symbol, &changed));
        }
        (2 * text.len(), models)
    });
    let (tried, models) = counts.reduce(|| (0, 0), |one, two| (one.0 + two.0, one.1 + two.1));
    assert!(models > 1000, "{models}");
    report(&format!("onnx: {tried} cut and changed nets of {} goldens, {models} of them models", texts.len()));
}

/// As many nets with several changes as `BLOB_HOSTILE_CASES` says, from the seed `BLOB_HOSTILE_SEED`.
#[test]
fn as_many_random_nets_as_are_asked_for() {
    let Some(cases) = number("BLOB_HOSTILE_CASES") else {
        return report("NOT TESTED: random changes of nets (BLOB_HOSTILE_CASES is their number)");
    };
    let (texts, seed) = (texts(), number("BLOB_HOSTILE_SEED").unwrap_or(1));
    let models: usize = on_threads(cases, seed, |mut random: Random, cases| {
        let mut models = 0;
        for _ in 0..cases {
            let ((is_symbol, text), (_, other)) = (random.one(&texts), random.one(&texts));
            let mut text = text.clone();
            for _ in 0..=random.below(6) {
                match random.below(3) {
                    0 => random.change(&mut text, other),
                    _ => random.slip(&mut text),
                }
            }
            models += usize::from(exercise(*is_symbol, &text));
        }
        models
    })
    .iter()
    .sum();
    report(&format!("onnx: {cases} nets with random changes, {models} of them models (seed {seed})"));
}

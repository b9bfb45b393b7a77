//! Random transforms on small random nets and on goldens, both also with bytes changed in the weights and in the net's
//! description: no panic, bounded memory and work, and a receipt that holds.
//!
//! `BLOB_TRANSFORM_CASES` is how many are tried, 2,000 by default; `BLOB_TRANSFORM_SEED` is where they begin.

use std::path::Path;
use std::sync::Arc;

use blob_convert::transform::{
    BatchNorm, Bound, Dtype, Eps, FcFrom, FixGamma, Fold, Layout, Names, Permute, Rgb, SqueezeLegacy, StripDiff,
    Topology, TorchLayout,
};
use blob_convert::verify::{self, Finding, Remark};
use blob_convert::{Options, Place, Silent, plan};
use blob_core::DType;
use blob_io::mxnet::Symbol;
use blob_io::net::{LayerKind, Net};
use blob_io::{Checkpoint, Format, IfExists, OpenOptions, work};
use serde_json::{Map, Value, json};

use crate::support::archive::safetensors;
use crate::support::random::{Random, number, on_threads};
use crate::support::{Folder, alloc, data, open, report};

/// The weights of a net, and the description in a file of its own.
#[derive(Clone)]
struct Case {
    name: &'static str,
    weights: Vec<u8>,
    net: Option<Vec<u8>>,
    is_symbol: bool,
}

/// Goldens of nets that have all kinds of layers, each with the description.
fn goldens() -> Vec<Case> {
    let read = |path: &str| std::fs::read(data(path)).expect("readable");
    let stems = ["inception", "lenet", "lenet_v0", "lenet_v1", "lstm", "mobilenet", "resnet", "segnet", "upsample"];
    let caffe = stems.map(|stem| Case {
        name: "net.caffemodel",
        weights: read(&format!("caffe/forward/{stem}.caffemodel")),
        net: Some(read(&format!("caffe/forward/{stem}.prototxt"))),
        is_symbol: false,
    });
    let (weights, net) = (read("mxnet/forward/block-0000.params"), read("mxnet/forward/block-symbol.json"));
    caffe.into_iter().chain([Case { name: "net.params", weights, net: Some(net), is_symbol: true }]).collect()
}

/// A layer of a random net: Caffe's type, MXNet's operator, and the shapes of the tensors.
struct Layer {
    caffe: String,
    op: &'static str,
    attrs: Value,
    tensors: Vec<(&'static str, Vec<usize>)>,
}

/// A layer of `c` channels in and as many out.
fn layer(random: &mut Random, c: usize) -> Layer {
    let (k, has_bias) = (1 + random.below(3), random.once_in(2));
    let group = if random.once_in(3) { c } else { 1 };
    let bias = has_bias.then(|| ("bias", vec![c]));
    let no_bias = if has_bias { "False" } else { "True" };
    let eps = *random.one(&["1e-5", "0.001", "0", "nan"]);
    let is_fixed = *random.one(&["True", "False"]);
    match random.below(8) {
        0..3 => Layer {
            caffe: format!(
                r#"type: "Convolution" convolution_param {{ num_output: {c} group: {group} kernel_size: {k} bias_term: {has_bias} }}"#
            ),
            op: "Convolution",
            attrs: json!({"kernel": format!("({k},{k})"), "num_filter": c.to_string(), "num_group": group.to_string(), "no_bias": no_bias}),
            tensors: [("weight", vec![c, c / group, k, k])].into_iter().chain(bias).collect(),
        },
        3 | 4 => Layer {
            caffe: format!(r#"type: "BatchNorm" batch_norm_param {{ eps: {eps} }}"#),
            op: "BatchNorm",
            attrs: json!({"eps": eps, "fix_gamma": is_fixed}),
            tensors: ["gamma", "beta", "moving_mean", "moving_var"].map(|name| (name, vec![c])).to_vec(),
        },
        5 => Layer {
            caffe: format!(r#"type: "Scale" scale_param {{ bias_term: {has_bias} }}"#),
            op: "LeakyReLU",
            attrs: json!({"act_type": "prelu"}),
            tensors: [("gamma", vec![c])].into_iter().chain(bias).collect(),
        },
        6 => Layer {
            caffe: format!(
                r#"type: "InnerProduct" inner_product_param {{ num_output: {c} bias_term: {has_bias} transpose: {} }}"#,
                random.once_in(4)
            ),
            op: "FullyConnected",
            attrs: json!({"num_hidden": c.to_string(), "no_bias": no_bias}),
            tensors: [("weight", vec![c, c])].into_iter().chain(bias).collect(),
        },
        _ => Layer { caffe: r#"type: "ReLU""#.to_owned(), op: "Activation", attrs: json!({}), tensors: Vec::new() },
    }
}

/// A chain of layers, some in place, some read twice; the description is Caffe's or MXNet's.
fn random_net(random: &mut Random) -> Case {
    let (c, is_symbol, is_raw) = (*random.one(&[1, 2, 3, 4, 6]), random.once_in(2), random.once_in(4));
    let layers: Vec<Layer> = (0..=random.below(5)).map(|_| layer(random, c)).collect();
    let (mut header, mut values) = (Map::new(), Vec::new());
    let (mut text, mut bottom) = (String::new(), "data".to_owned());
    let mut nodes = vec![json!({"op": "null", "name": "data", "inputs": []})];
    let mut last = 0;
    for (index, Layer { caffe, op, attrs, tensors }) in layers.iter().enumerate() {
        let name = format!("l{index}");
        let top = if random.once_in(2) { bottom.clone() } else { name.clone() };
        text += &format!("layer {{ name: \"{name}\" bottom: \"{bottom}\" top: \"{top}\" {caffe} }}\n");
        let mut inputs = vec![json!([last, 0, 0])];
        // Caffe's BatchNorm has a factor, and the gamma is in a Scale.
        let is_norm = *op == "BatchNorm" && !is_symbol;
        let caffes = [("", vec![c]), ("", vec![c]), ("", vec![1])];
        for (place, (role, dims)) in if is_norm { &caffes[..] } else { tensors }.iter().enumerate() {
            let role = format!("{name}_{role}");
            inputs.push(json!([nodes.len(), 0, 0]));
            nodes.push(json!({"op": "null", "name": role, "inputs": []}));
            let prefix = if is_raw {
                ""
            } else if role.contains("moving") {
                "aux:"
            } else {
                "arg:"
            };
            let key = if is_symbol { format!("{prefix}{role}") } else { format!("{name}/{place}") };
            add(random, &mut header, &mut values, key, dims);
        }
        if random.once_in(8) {
            inputs.push(json!([random.below(nodes.len()), 0, 0]));
        }
        last = nodes.len();
        nodes.push(json!({"op": op, "name": name, "attrs": attrs, "inputs": inputs}));
        bottom = if random.once_in(8) { "data".to_owned() } else { top };
    }
    let symbol = json!({"nodes": nodes, "heads": [[last, 0, 0]]}).to_string();
    let net = if is_symbol { symbol } else { text };
    let weights = safetensors(&Value::from(header).to_string(), &values);
    Case { name: "net.safetensors", weights, net: Some(net.into_bytes()), is_symbol }
}

/// Adds a tensor; now and then with another shape or dtype, or none.
fn add(random: &mut Random, header: &mut Map<String, Value>, values: &mut Vec<u8>, key: String, dims: &[usize]) {
    let mut dims = dims.to_vec();
    match random.below(24) {
        0 => return,
        1 => dims.push(1),
        2 => dims[0] += 1,
        3 => dims.insert(0, 1),
        _ => {}
    }
    let (dtype, size) = *random.one(&[("F32", 4), ("F32", 4), ("F32", 4), ("F64", 8), ("F16", 2), ("I32", 4)]);
    let (begin, count) = (values.len(), dims.iter().product::<usize>());
    for _ in 0..count {
        match dtype {
            "F32" => values.extend((random.below(2001) as f32 / 500.0 - 1.0).to_le_bytes()),
            "F64" => values.extend((random.below(2001) as f64 / 500.0 - 1.0).to_le_bytes()),
            _ => values.extend(&(random.below(1 << 16) as u32).to_le_bytes()[..size]),
        }
    }
    header.insert(key, json!({"dtype": dtype, "shape": dims, "data_offsets": [begin, values.len()]}));
}

/// The names of some tensors.
fn some(random: &mut Random, source: &Checkpoint) -> Vec<String> {
    source.names().filter(|_| random.once_in(3)).map(str::to_owned).collect()
}

/// Adds a random transform.
fn with_step(random: &mut Random, options: Options, source: &Checkpoint, bound: Option<&Bound<'_>>) -> Options {
    let Some(bound) = bound.filter(|_| !random.once_in(3)) else {
        let extents = [1 + random.below(4), 1 + random.below(3), 1 + random.below(3)];
        let [c, h, w] = extents;
        return match random.below(10) {
            0 => options.transform(StripDiff),
            1 => options.transform(SqueezeLegacy),
            2 => options.transform(FixGamma::of(None, source)),
            3 => options.transform(Rgb),
            4 => match FcFrom::new(c, h, w) {
                Some(from) if random.once_in(2) => options.transform(from.of(some(random, source))),
                Some(from) => options.transform(from.layer("l1")),
                None => options,
            },
            5 => options.transform(*random.one(Layout::ALL)),
            6 => match Dtype::new(*random.one(DType::ALL)) {
                Some(to) => options.transform(to),
                None => options,
            },
            7 => options.transform(Names::torch(None, source)),
            8 => {
                let axes = random.one(&[&[1, 0][..], &[0], &[3, 2, 1, 0], &[0, 2, 1]]).to_vec();
                Permute::new(some(random, source), axes).map_or(options.clone(), |step| options.transform(step))
            }
            _ => {
                let names = source.names().map(str::to_owned);
                let pairs = names.filter(|_| random.once_in(3)).map(|old| (old, "new".repeat(1 + c * h)));
                options.transform(Names::new(pairs.collect::<Vec<_>>()))
            }
        };
    };
    match random.below(7) {
        0 => options.transform(BatchNorm::of(bound)),
        1 => options.transform(BatchNorm::of(bound).with_ones()),
        2 => options.transform(FixGamma::of(Some(bound), source)),
        3 => options.transform(Eps::of(bound, *random.one(&[1e-5, 1e-3, 0.0, -1.0, f64::NAN]))),
        4 => options.transform(TorchLayout::of(bound)),
        5 => options.transform(Names::torch(Some(bound), source)),
        _ => options.transform(Fold::of(bound).0),
    }
}

/// Folds by a symbol, and reads the new symbol: MXNet's file has the symbol's variables, or is left alone.
fn rewritten(net: &Topology, source: &Checkpoint, totals: &mut Totals) {
    let (Some(text), bound) = (net.symbol_text(), Bound::new(net.net(), source)) else { return };
    let (fold, _) = Fold::of(&bound);
    if fold.count() == 0 {
        return;
    }
    if let Ok(new) = fold.symbol(text) {
        let symbol = Symbol::from_bytes("new-symbol.json", new.as_bytes()).unwrap_or_else(|e| panic!("{e}: {new}"));
        let of = |net: &Net| net.layers().iter().filter(|layer| layer.kind == LayerKind::BatchNorm).count();
        assert!(of(&symbol.net) <= of(net.net()) - fold.count(), "{new}");
        totals.symbols += 1;
    }
}

fn random_options(random: &mut Random, source: &Checkpoint, net: Option<Arc<Topology>>) -> Options {
    let to = if random.once_in(2) { Format::Safetensors } else { *random.one(Format::ALL) };
    let options = Options::new(to).with(|options| {
        options.dense = random.once_in(4);
        options.anew = random.once_in(4);
        options.strict = random.once_in(8);
        options.without_receipt = random.once_in(8);
        options.skip_unsupported = random.once_in(4);
    });
    let options = match &net {
        Some(net) => options.follow(Arc::clone(net)),
        None => options,
    };
    let bound = net.as_ref().map(|net| Bound::new(net.net(), source));
    (0..=random.below(4)).fold(options, |options, _| with_step(random, options, source, bound.as_ref()))
}

/// The counts of a run of cases, and the most memory and work of one.
#[derive(Default)]
struct Totals {
    planned: u64,
    written: u64,
    verified: u64,
    /// How many symbols were written anew.
    symbols: u64,
    memory: u64,
    work: u64,
}

/// The memory that a case may take, and the bytes and items that it may visit for each byte of its files and of so many
/// beside.
const MAX_MEMORY: u64 = 16 << 20;
const MAX_WORK: u64 = 256;
const BESIDE: u64 = 1024;

fn tries(random: &mut Random, cases: u64, goldens: &[Case]) -> Totals {
    let (folder, mut most) = (Folder::new(), Totals::default());
    for _ in 0..cases {
        let state = random.state();
        let mut case = if random.once_in(2) { random_net(random) } else { random.one(goldens).clone() };
        let (hurts_weights, hurts_net) = (random.once_in(3), random.once_in(3));
        for _ in 0..=random.below(4) {
            if hurts_weights {
                let other = random.one(goldens);
                random.change(&mut case.weights, &other.weights);
            }
            if let (true, Some(net)) = (hurts_net, &mut case.net) {
                random.slip(net);
            }
        }
        if random.once_in(4) {
            case.net = None;
        }
        let is_sound = !hurts_weights && !hurts_net;
        let len = case.weights.len() + case.net.as_ref().map_or(0, Vec::len);
        let mut visited = work::Work::default();
        let memory =
            alloc::peak(|| visited = work::measure(|| convert(random, &case, is_sound, folder.path(), &mut most)).1);
        let work = visited.sum().div_ceil(len as u64 + BESIDE);
        assert!(memory < MAX_MEMORY, "state {state}: {memory} bytes");
        assert!(work < MAX_WORK, "state {state}: {work} visits for each byte of the files");
        (most.memory, most.work) = (most.memory.max(memory), most.work.max(work));
    }
    most
}

/// Plans a conversion, and writes it: nowhere, or to a file, which must then agree with its receipt.
fn convert(random: &mut Random, case: &Case, is_sound: bool, folder: &Path, totals: &mut Totals) {
    let Ok(source) = open(case.name, &case.weights) else { return };
    let net = match &case.net {
        Some(bytes) if case.is_symbol => Topology::symbol("net-symbol.json", bytes).ok(),
        Some(bytes) => Topology::prototxt("net.prototxt", bytes).ok(),
        None => Topology::of(&source).ok().flatten(),
    };
    net.iter().for_each(|net| rewritten(net, &source, totals));
    let options = random_options(random, &source, net.map(Arc::new));
    let path = folder.join("out");
    let is_kept = random.once_in(16);
    let nowhere = if cfg!(unix) { Path::new("/dev/null") } else { Path::new("NUL") };
    let target = Place::File { path: if is_kept { &path } else { nowhere }, if_exists: IfExists::Replace };
    let Ok(plan) = plan(&source, &options, &target) else { return };
    totals.planned += 1;
    drop((plan.notes(), plan.changes()));
    if plan.run(&Silent).is_err() {
        return;
    }
    totals.written += 1;
    if is_kept && is_sound {
        // A file without any tensor may say nothing of its format.
        let written = OpenOptions::new().from(options.to).open(&path).unwrap_or_else(|e| panic!("{e}: {options:?}"));
        let mut found = Vec::new();
        verify::claims(&written, &mut |remark| found.extend(finding(remark)));
        let checked = verify::receipt(&written, &Silent, &mut |finding| found.push(finding));
        checked.unwrap_or_else(|e| panic!("{e}: {options:?}"));
        assert!(found.is_empty(), "{found:?}: {options:?}");
        totals.verified += 1;
    }
}

fn finding(remark: Remark) -> Option<Finding> {
    match remark {
        Remark::Finding(finding) => Some(finding),
        _ => None,
    }
}

/// Run millions with `BLOB_TRANSFORM_CASES=8000000 cargo test -p blob-tests --test it -- random_transform`.
/// With `--config profile.dev.package.NAME.opt-level=2` for `blob-convert` and for `serde_json` they are much faster.
#[test]
fn random_transforms_cause_neither_a_panic_nor_much_memory() {
    let cases = number("BLOB_TRANSFORM_CASES").unwrap_or(2_000);
    let seed = number("BLOB_TRANSFORM_SEED").unwrap_or(1);
    let goldens = goldens();
    let all = on_threads(cases, seed, |mut random, cases| tries(&mut random, cases, &goldens));
    let sum = |of: fn(&Totals) -> u64| all.iter().map(of).sum::<u64>();
    let most = |of: fn(&Totals) -> u64| all.iter().map(of).max().unwrap_or(0);
    let [planned, written, verified, symbols] =
        [sum(|one| one.planned), sum(|one| one.written), sum(|one| one.verified), sum(|one| one.symbols)];
    report(&format!(
        "transforms: {cases} at random, {planned} planned, {written} written, {verified} verified, {symbols} symbols \
         written anew; at most {} bytes, and {} visits a byte",
        most(|one| one.memory),
        most(|one| one.work),
    ));
    assert!(planned > cases / 8 && written > cases / 10, "{planned}, {written}");
    assert!(verified > cases / 200 && symbols > cases / 50, "{verified}, {symbols}");
}

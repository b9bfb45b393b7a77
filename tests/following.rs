//! `--rgb` and `--fc-from` on nets whose order, names and wiring mislead: the converted weights compute, for RGB
//! images, or where values are flattened with the channels last, the results of the original ones; or are refused,
//! or told. The layers here are naive, in f64, and share no code with the transforms.
//!
//! `BLOB_FOLLOWING_CASES` is how many random nets are tried, 1,000 by default, from `BLOB_FOLLOWING_SEED` on.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use blob_convert::transform::{FcFrom, Rgb, Topology};
use blob_convert::{Options, Place, plan};
use blob_io::Format;

use crate::support::conversion::to_bytes;
use crate::support::floats::{file, wide};
use crate::support::random::{Random, number, on_threads};
use crate::support::{compare_cases, open, report};

/// A layer, or an input of the net: `f=InnerProduct(a):5`, `data[3,2,4]`.
#[derive(Clone, Debug)]
struct Node {
    name: String,
    kind: String,
    bottoms: Vec<String>,
    outputs: usize,
    /// The extents of an input, and whether the net states them.
    dims: Option<(Vec<usize>, bool)>,
}

/// Channels, height and width; or one axis, whose values are in the order of a flattening or of an inner product.
#[derive(Clone, Debug, PartialEq)]
struct Blob {
    dims: Vec<usize>,
    values: Vec<f64>,
    is_flat: bool,
}

type Weights = HashMap<String, (Vec<usize>, Vec<f64>)>;

fn parsed(text: &str) -> Vec<Node> {
    text.split_whitespace().map(node).collect()
}

fn node(text: &str) -> Node {
    if let Some((name, dims)) = text.split_once('[') {
        let (dims, is_stated) = dims.strip_suffix("]?").map_or((dims.trim_end_matches(']'), true), |d| (d, false));
        let dims = dims.split(',').map(|n| n.parse().expect("an extent")).collect();
        let none = (String::new(), Vec::new(), 0);
        return Node {
            name: name.to_owned(),
            kind: none.0,
            bottoms: none.1,
            outputs: none.2,
            dims: Some((dims, is_stated)),
        };
    }
    let (name, rest) = text.split_once('=').expect("a name");
    let (kind, rest) = rest.split_once('(').expect("a type");
    let (bottoms, outputs) = rest.split_once(')').expect("bottoms");
    Node {
        name: name.to_owned(),
        kind: kind.to_owned(),
        bottoms: bottoms.split(',').map(str::to_owned).collect(),
        outputs: outputs.trim_start_matches(':').parse().unwrap_or(0),
        dims: None,
    }
}

fn prototxt(net: &[Node]) -> String {
    let mut text = String::new();
    for node in net {
        let name = &node.name;
        if let Some((dims, is_stated)) = &node.dims {
            let dims: String = [1].iter().chain(dims).map(|n| format!("dim: {n} ")).collect();
            let shape = if *is_stated { format!("input_param {{ shape {{ {dims} }} }}") } else { String::new() };
            let _ = writeln!(text, r#"layer {{ name: "{name}" type: "Input" top: "{name}" {shape} }}"#);
            continue;
        }
        let bottoms: String = node.bottoms.iter().map(|bottom| format!("bottom: {bottom:?} ")).collect();
        let param = match &*node.kind {
            "Convolution" => {
                format!("convolution_param {{ num_output: {} kernel_size: 1 bias_term: false }}", node.outputs)
            }
            "InnerProduct" => format!("inner_product_param {{ num_output: {} bias_term: false }}", node.outputs),
            _ => String::new(),
        };
        let kind = &node.kind;
        let _ = writeln!(text, r#"layer {{ name: "{name}" type: "{kind}" {bottoms} top: "{name}" {param} }}"#);
    }
    text
}

/// The values of each layer. `is_last` flattens height × width × channels. `None` if a layer does not fit the inputs.
fn computed(
    net: &[Node],
    inputs: &HashMap<String, Blob>,
    is_last: bool,
    weights: &mut dyn FnMut(&str, &[usize]) -> Vec<f64>,
) -> Option<HashMap<String, Blob>> {
    let mut all: HashMap<String, Blob> = inputs.clone();
    for node in net.iter().filter(|node| node.dims.is_none()) {
        let of: Vec<Blob> = node.bottoms.iter().map(|name| all.get(name).cloned()).collect::<Option<_>>()?;
        let (x, name) = (&of[0], &node.name);
        let mut by_channel = |count: usize, value: fn(f64, &[f64]) -> f64| {
            let n = x.values.len() / x.dims[0];
            let own: Vec<Vec<f64>> = (0..count).map(|i| weights(&format!("{name}/{i}"), &[x.dims[0]])).collect();
            let values = x.values.iter().enumerate().map(|(at, x)| {
                let own: Vec<f64> = own.iter().map(|own| own[at / n]).collect();
                value(*x, &own)
            });
            Some(Blob { values: values.collect(), ..x.clone() })
        };
        let made = match &*node.kind {
            "ReLU" => Blob { values: x.values.iter().map(|x| x.max(0.0)).collect(), ..x.clone() },
            "LRN" => neighbours(x),
            "Scale" => by_channel(1, |x, own| x * own[0])?,
            "Bias" => by_channel(1, |x, own| x + own[0])?,
            "PReLU" => by_channel(1, |x, own| if x < 0.0 { x * own[0] } else { x })?,
            "BatchNorm" => {
                let made = by_channel(2, |x, own| (x - own[0]) / (own[1].abs() + 1e-5).sqrt())?;
                weights(&format!("{name}/2"), &[1]);
                made
            }
            "Flatten" => flattened(x, is_last),
            "Convolution" if x.dims.len() == 3 => {
                let (c, n) = (x.dims[0], x.dims[1] * x.dims[2]);
                let w = weights(&format!("{name}/0"), &[node.outputs, c, 1, 1]);
                let values = (0..node.outputs)
                    .flat_map(|o| (0..n).map(move |p| (o, p)))
                    .map(|(o, p)| (0..c).map(|i| w[o * c + i] * x.values[i * n + p]).sum());
                Blob { dims: vec![node.outputs, x.dims[1], x.dims[2]], values: values.collect(), is_flat: false }
            }
            "InnerProduct" => {
                let x = flattened(x, is_last).values;
                let w = weights(&format!("{name}/0"), &[node.outputs, x.len()]);
                let rows = (0..node.outputs).map(|o| &w[o * x.len()..][..x.len()]);
                let values = rows.map(|row| row.iter().zip(&x).map(|(w, x)| w * x).sum());
                Blob { dims: vec![node.outputs], values: values.collect(), is_flat: false }
            }
            "Eltwise" if of.iter().all(|y| y.dims == x.dims) => Blob {
                values: (0..x.values.len()).map(|at| of.iter().map(|y| y.values[at]).sum()).collect(),
                is_flat: of.iter().any(|y| y.is_flat),
                ..x.clone()
            },
            "Concat" if of.iter().all(|y| y.dims[1..] == x.dims[1..]) => {
                let dims = [&[of.iter().map(|y| y.dims[0]).sum()], &x.dims[1..]].concat();
                Blob {
                    dims,
                    values: of.iter().flat_map(|y| y.values.clone()).collect(),
                    is_flat: of.iter().any(|y| y.is_flat),
                }
            }
            _ => return None,
        };
        all.insert(name.clone(), made);
    }
    Some(all)
}

fn flattened(x: &Blob, is_last: bool) -> Blob {
    let [channels, height, width] = x.dims[..] else { return x.clone() };
    let n = height * width;
    let is_flat = x.is_flat || channels > 1 && n > 1;
    let from = (0..channels * n).map(|at| if is_last { at % channels * n + at / channels } else { at });
    Blob { dims: vec![channels * n], values: from.map(|from| x.values[from]).collect(), is_flat }
}

/// Each value divided by the sum over the neighbouring channels.
fn neighbours(x: &Blob) -> Blob {
    let n = x.values.len() / x.dims[0];
    let square = |at: Option<usize>| at.and_then(|at| x.values.get(at)).map_or(0.0, |x| x * x);
    let sums = (0..).map(|at: usize| 1.0 + square(Some(at)) + square(at.checked_sub(n)) + square(Some(at + n)));
    Blob { values: x.values.iter().zip(sums).map(|(x, sum)| x / sum).collect(), ..x.clone() }
}

/// Random values, each exact as an f32.
fn values(random: &mut Random, count: usize) -> Vec<f64> {
    (0..count).map(|_| random.below(129) as f64 / 32.0 - 2.0).collect()
}

/// How a conversion ended.
#[derive(Debug, PartialEq)]
enum Outcome {
    Same,
    Refused(String),
    Warned(String),
    /// Nothing was said, and these values differ.
    Wrong(String),
}

/// Converts the weights of a net, and compares the net's results. `text` is the net as described, which may
/// have the layers in another order.
fn outcome(net: &[Node], text: &str, options: Options, random: &mut Random) -> Option<Outcome> {
    let is_rgb = format!("{options:?}").contains("Rgb");
    let inputs = |random: &mut Random| -> HashMap<String, Blob> {
        let blob = |(dims, _): &(Vec<usize>, bool)| Blob {
            dims: dims.clone(),
            values: values(random, dims.iter().product()),
            is_flat: false,
        };
        let mut blob = blob;
        net.iter().filter_map(|node| Some((node.name.clone(), blob(node.dims.as_ref()?)))).collect()
    };
    let inputs = inputs(random);
    let mut weights = Weights::new();
    let truth = computed(net, &inputs, false, &mut |name, dims| {
        let own =
            weights.entry(name.to_owned()).or_insert_with(|| (dims.to_vec(), values(random, dims.iter().product())));
        own.1.clone()
    })?;
    let stored: Vec<(String, Vec<usize>, Vec<f32>)> = weights
        .iter()
        .map(|(name, (dims, values))| (name.clone(), dims.clone(), values.iter().map(|v| *v as f32).collect()))
        .collect();
    let stored: Vec<(&str, &[usize], &[f32])> =
        stored.iter().map(|(name, dims, values)| (&**name, &**dims, &**values)).collect();
    let source = file(Format::Npz, &stored);
    let topology = Topology::prototxt("net.prototxt", text.as_bytes()).unwrap_or_else(|e| panic!("{e}: {text}"));
    let options = options.follow(Arc::new(topology));
    let plan = match plan(&source, &options, &Place::Stdout) {
        Ok(plan) => plan,
        Err(refused) => return Some(Outcome::Refused(refused.to_string())),
    };
    let warned: Vec<String> =
        plan.changes().iter().filter(|group| group.change.is_warned()).map(ToString::to_string).collect();
    if !warned.is_empty() {
        return Some(Outcome::Warned(warned.join("; ")));
    }
    let out = open("out.safetensors", &to_bytes(&source, &options).expect("written")).expect("opens");
    let given = inputs.into_iter().map(|(name, blob)| {
        let is_image = is_rgb && blob.dims[0] == 3 && blob.dims[1..] != [1, 1];
        (name, if is_image { reversed(&blob) } else { blob })
    });
    let ours = computed(net, &given.collect(), !is_rgb, &mut |name, _| wide(&out, name)).expect("as before");
    let wrong = net
        .iter()
        .filter(|node| {
            // A flattening that no inner product reads has the framework's order.
            let (ours, truth) = (&ours[&node.name], &truth[&node.name]);
            let is_inner =
                node.dims.is_some() || truth.is_flat || net.iter().any(|other| other.bottoms.contains(&node.name));
            let most = truth.values.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
            !is_inner && ours.values.iter().zip(&truth.values).any(|(a, b)| (a - b).abs() > 1e-5 * most)
        })
        .map(|node| &*node.name);
    let wrong: Vec<&str> = wrong.collect();
    Some(if wrong.is_empty() { Outcome::Same } else { Outcome::Wrong(wrong.join(", ")) })
}

fn reversed(x: &Blob) -> Blob {
    let n = x.values.len() / x.dims[0];
    Blob { values: x.values.chunks_exact(n).rev().flatten().copied().collect(), ..x.clone() }
}

fn options(text: &str) -> Options {
    let options = Options::new(Format::Safetensors);
    if text.trim() == "rgb" {
        return options.transform(Rgb);
    }
    let from = text.split_whitespace().map(|one| {
        let (name, extents) = one.split_once('=').unwrap_or(("", one));
        let extents: Vec<usize> = extents.split(',').map(|n| n.parse().expect("an extent")).collect();
        let from = FcFrom::new(extents[0], extents[1], extents[2]).expect("extents");
        if name.is_empty() { from } else { from.layer(name) }
    });
    options.transform(from.reduce(FcFrom::and).expect("one"))
}

#[test]
fn misleading_nets_are_followed_or_refused() {
    compare_cases("cases/following.txt", |line| {
        let (net, how) = line.split_once(" | ").expect("options");
        let (net, text) = net.split_once(" as ").unwrap_or((net, net));
        let (net, text) = (parsed(net), prototxt(&parsed(text)));
        match outcome(&net, &text, options(how), &mut Random::new(7)).unwrap_or_else(|| panic!("{line}")) {
            Outcome::Same => "computes the same".to_owned(),
            Outcome::Refused(why) | Outcome::Warned(why) => why,
            Outcome::Wrong(names) => panic!("{line}: {names} are wrong"),
        }
    });
}

/// A random net that fits the inputs, and the options.
fn random_case(random: &mut Random) -> (Vec<Node>, String) {
    const KINDS: &[(&str, usize)] = &[
        ("Convolution", 1),
        ("Convolution", 1),
        ("InnerProduct", 1),
        ("InnerProduct", 1),
        ("Flatten", 1),
        ("Flatten", 1),
        ("ReLU", 1),
        ("LRN", 1),
        ("Scale", 1),
        ("Bias", 1),
        ("PReLU", 1),
        ("BatchNorm", 1),
        ("Eltwise", 2),
        ("Concat", 2),
    ];
    let mut names: Vec<char> = ('a'..='p').collect();
    let mut net = Vec::new();
    let (inputs, is_open) = (1 + random.below(2), random.once_in(3));
    for _ in 0..inputs {
        let dims = random.one(&[[3, 2, 3], [3, 2, 3], [4, 1, 1], [2, 2, 2]]).to_vec();
        let name = names.remove(random.below(names.len())).to_string();
        // Of several inputs, only the extents say which are images.
        let dims = Some((dims, inputs > 1 || !is_open));
        net.push(Node { name, kind: String::new(), bottoms: Vec::new(), outputs: 0, dims });
    }
    let inputs: HashMap<String, Blob> = net.iter().map(|node| (node.name.clone(), zeros(node))).collect();
    for input in net.clone() {
        let name = names.remove(random.below(names.len())).to_string();
        let outputs = 1 + random.below(4);
        net.push(Node { name, kind: "Convolution".to_owned(), bottoms: vec![input.name], outputs, dims: None });
    }
    for _ in 0..2 + random.below(7) {
        let (kind, count) = *random.one(KINDS);
        // Most layers follow the last one.
        let bottoms = (0..count).map(|_| {
            let far = if random.once_in(8) { 0 } else { inputs.len() };
            let near = if random.once_in(2) { net.len() - 1 } else { far };
            net[near + random.below(net.len() - near)].name.clone()
        });
        let bottoms: Vec<String> = bottoms.collect();
        let name = names[random.below(names.len())].to_string();
        net.push(Node { name, kind: kind.to_owned(), bottoms, outputs: 1 + random.below(4), dims: None });
        let made = computed(&net, &inputs, false, &mut |_, dims| vec![0.0; dims.iter().product()]);
        match made {
            Some(made) => names.retain(|name| !made.contains_key(&name.to_string())),
            None => drop(net.pop()),
        }
    }
    if random.once_in(2) {
        return (net, "rgb".to_owned());
    }
    let dims = computed(&net, &inputs, false, &mut |_, dims| vec![0.0; dims.iter().product()]).expect("it fits");
    let spatial = net.iter().filter(|node| dims[&node.name].dims.len() == 3 && node.dims.is_none());
    let extents: Vec<String> = spatial
        .map(|node| dims[&node.name].dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
        .collect();
    if extents.is_empty() {
        return (net, "rgb".to_owned());
    }
    let extents = random.one(&extents).clone();
    let products: Vec<String> =
        net.iter().filter(|node| node.kind == "InnerProduct").map(|node| node.name.clone()).collect();
    let named: Vec<String> =
        products.into_iter().filter(|_| random.once_in(3)).map(|name| format!("{name}={extents}")).collect();
    let how = if named.is_empty() || random.once_in(3) { extents } else { named.join(" ") };
    (net, how)
}

fn zeros(node: &Node) -> Blob {
    let dims = node.dims.clone().expect("an input").0;
    Blob { values: vec![0.0; dims.iter().product()], dims, is_flat: false }
}

/// Run millions with `BLOB_FOLLOWING_CASES=1000000 cargo test -p blob-tests --test it -- following`.
#[test]
fn random_nets_compute_the_same_or_it_is_said() {
    let cases = number("BLOB_FOLLOWING_CASES").unwrap_or(1_000);
    let seed = number("BLOB_FOLLOWING_SEED").unwrap_or(1);
    let all = on_threads(cases, seed, |mut random, cases| {
        let mut counts = [0; 3];
        for _ in 0..cases {
            let (net, how) = random_case(&mut random);
            let text = prototxt(&net);
            let one = match outcome(&net, &text, options(&how), &mut random).expect("it fits") {
                Outcome::Same => 0,
                Outcome::Refused(_) => 1,
                Outcome::Warned(_) => 2,
                Outcome::Wrong(names) => panic!("{names} are wrong with {how}:\n{text}"),
            };
            counts[one] += 1;
        }
        counts
    });
    let [same, refused, warned] = [0, 1, 2].map(|place| all.iter().map(|counts| counts[place]).sum::<u64>());
    report(&format!("following: {cases} random nets, {same} the same, {refused} refused, {warned} warned of"));
    assert!(same > cases / 10 && refused > cases / 10 && warned > cases / 200, "{same}, {refused}, {warned}");
}

//! PyTorch's names for the tensors of modules: `conv1.weight`, `bn1.running_mean`.
//!
//! Derived from the net's layers if there is a net, and for MXNet from the suffixes of the names.

use std::collections::{BTreeMap, HashMap, HashSet};

use blob_io::net::{Layer, LayerKind, Phase, Role};
use blob_io::{Checkpoint, Kind, TensorName, work};

use super::{Merged, Names, OfEps};
use crate::transform::binding::{Bound, bare, bias_beside, listed};
use crate::transform::eps::{self, TORCH};
use crate::transform::fold::{is_by_channel, lacking, scale_after};
use crate::transform::norm;
use blob_io::words;

/// Suffixes of MXNet's names, and PyTorch's names for the same tensors.
const ENDINGS: [(&str, &str); 8] = [
    ("weight", "weight"),
    ("bias", "bias"),
    ("gamma", "weight"),
    ("beta", "bias"),
    ("moving_mean", "running_mean"),
    ("running_mean", "running_mean"),
    ("moving_var", "running_var"),
    ("running_var", "running_var"),
];

impl Names {
    /// The same names, after a step that has moved every normalisation's eps to `to`.
    #[must_use]
    pub fn after_eps(mut self, to: f64) -> Self {
        self.eps.retain(|of| of.by_input);
        let all = OfEps { eps: to, modules: Vec::new(), by_input: false };
        self.eps.extend((!eps::is_same(to, TORCH)).then_some(all));
        self
    }

    /// The names that PyTorch would give. A tensor that no layer and no suffix identifies keeps the old name, and a
    /// note says so.
    #[must_use]
    pub fn torch(net: Option<&Bound<'_>>, checkpoint: &Checkpoint) -> Self {
        let mut map = BTreeMap::new();
        let (mut notes, mut merged, mut eps, mut lacks) = (Vec::new(), Merged::default(), Vec::new(), Vec::new());
        if let Some(net) = net {
            (merged, lacks) = of_net(net, &mut map, &mut notes);
            eps = other_eps(net, &map);
        }
        let is_mxnet = checkpoint.format().is_mxnet() || checkpoint.names().any(|name| bare(name) != name);
        let (mut kept, mut all) = (Vec::new(), 0);
        // A sparse array is renamed once, by the entry of the values; `names` renames the other parts alike.
        let entries = checkpoint.entries().iter();
        for entry in entries.filter(|entry| matches!(entry.kind(), Kind::Data | Kind::Values)) {
            let name = entry.sparse().map_or(entry.name(), |sparse| &sparse.name);
            if net.is_some_and(|net| net.is_folded(name)) {
                continue;
            }
            all += 1;
            if map.contains_key(name) {
                continue;
            }
            match by_ending(bare(name)).filter(|_| is_mxnet) {
                Some(new) => drop(map.insert(name.to_owned(), new)),
                None => kept.push(name),
            }
        }
        if !kept.is_empty() {
            let why =
                if net.is_none() && !is_mxnet { "; no net says what they are, and --net can name one" } else { "" };
            notes.push(format!("names: {} of {} stay as they are: {}{why}", kept.len(), all, listed(&kept)));
        }
        Self { map, eps, torch: true, follows_net: net.is_some(), notes, lacking: lacks, merged }
    }
}

/// The parameters of a module that the file lacks, even all of them: PyTorch's strict loading refuses such a file.
fn missing(net: &Bound<'_>, layer: &Layer) -> Vec<&'static str> {
    // Caffe's own BatchNorm has the two statistics, whatever else.
    let is_of_caffe = layer.kind == LayerKind::BatchNorm && layer.tensor(Role::Factor).is_some();
    let both = [Role::Mean, Role::Variance].into_iter().filter(|_| is_of_caffe);
    let both = both.filter(|role| layer.tensor(*role).is_some() && net.tensor(layer, *role).is_none());
    let all = lacking(net, layer).map(|(role, _)| role).chain(both);
    // PyTorch's embeddings have no bias.
    let all = all.filter(|role| layer.kind != LayerKind::Embed || *role != Role::Bias);
    let named = all.flat_map(|role| {
        // PyTorch's LSTMs have a bias of either product.
        let is_twice = layer.kind == LayerKind::Lstm && role == Role::Bias;
        suffix(layer.kind, role).into_iter().chain(is_twice.then_some("bias_hh_l0"))
    });
    named.collect()
}

/// The remark on such parameters.
pub(super) fn of_lacking(names: &[String]) -> Option<String> {
    let parameters = words::plural(names.len() as u64, "parameter");
    let why = "which torch's strict loading refuses";
    (!names.is_empty())
        .then(|| format!("names: the net has {parameters} that the file lacks, {why}: {}", listed(names)))
}

/// At most this many tensors of several modules are listed.
const MAX_SHARED: usize = 3;
/// At most this many eps have a note each, and at most this many modules are named there.
const MAX_EPS: usize = 3;
const MAX_MODULES: usize = 5;

/// The modules of the normalisations whose eps is not PyTorch's, grouped by eps.
fn other_eps(net: &Bound<'_>, map: &BTreeMap<String, String>) -> Vec<OfEps> {
    let (mut all, mut places): (Vec<OfEps>, HashMap<(u32, bool), usize>) = Default::default();
    for layer in net.layers().filter(|layer| !eps::is_same(net.eps(layer), TORCH)) {
        let (by_input, eps) = (eps::is_by_input(layer), net.eps(layer));
        let role = if by_input { Role::Weight } else { Role::Variance };
        let named = net.tensor(layer, role).filter(|_| by_input || norm::is_norm(layer));
        let Some((module, _)) = named.and_then(|name| map.get(name)?.rsplit_once('.')) else { continue };
        work::visit(0, 1);
        let place = *places.entry((eps::bits(eps), by_input)).or_insert(all.len());
        match all.get_mut(place) {
            Some(of) => of.modules.push(module.to_owned()),
            None => all.push(OfEps { eps, modules: vec![module.to_owned()], by_input }),
        }
    }
    all
}

/// The notes about modules that need an eps of their own: one for each eps, or one about many.
pub(super) fn of_eps(all: &[OfEps]) -> Vec<String> {
    if all.len() > MAX_EPS {
        let first = all.iter().take(MAX_EPS);
        let first = first.map(|of| format!("{} for {}", text(of.eps), words::listed(1, &of.modules)));
        let named = first.collect::<Vec<_>>().join("; ");
        let (count, more) = (all.len(), words::and_more(all.len() - MAX_EPS));
        let modules: usize = all.iter().map(|of| of.modules.len()).sum();
        let what = format!("{count} eps, not torch's {TORCH:e}, for {modules} modules: {named}{more}");
        return vec![format!("names: {what}: give them to the modules, or --eps {TORCH:e} here")];
    }
    let notes = all.iter().map(|OfEps { eps, modules, by_input }| {
        let eps = text(*eps);
        if modules.is_empty() {
            return format!("names: eps {eps}, not torch's {TORCH:e}, for every BatchNorm: give it to the modules");
        }
        let named = words::listed(MAX_MODULES, modules);
        let or = if *by_input { String::new() } else { format!(", or --eps {TORCH:e} here") };
        format!("names: eps {eps}, not torch's {TORCH:e}, for {named}: give it to the modules{or}")
    });
    notes.collect()
}

/// Caffe's eps are of f32, and read best as such.
fn text(eps: f64) -> String {
    if f64::from(eps as f32) == eps { format!("{:e}", eps as f32) } else { format!("{eps:e}") }
}

/// Names the tensors of a net's layers, with notes on tensors of several modules and on nets that do not fit.
/// Returns the Scales that are merged, and the parameters that the file lacks.
fn of_net(net: &Bound<'_>, map: &mut BTreeMap<String, String>, notes: &mut Vec<String>) -> (Merged, Vec<String>) {
    let (modules, mut shared, mut lacks, mut merged) = (modules(net), Vec::new(), Vec::new(), Merged::default());
    // A file of trained weights need not have what training alone computes with.
    let tested = net.net().in_phase(Phase::Test);
    let tested: HashSet<&str> = tested.layers().iter().map(|layer| &*layer.name).collect();
    let module = |layer: &Layer| modules.get(&std::ptr::from_ref(layer)).copied();
    // The BatchNorms so far, by `plain` name.
    let mut norms: HashMap<String, &Layer> = HashMap::new();
    for layer in net.layers() {
        if is_bare_norm(net, layer) {
            norms.insert(plain(&layer.name), layer);
        }
        // A Scale after a BatchNorm belongs to the same PyTorch module.
        let norm = match layer.kind {
            LayerKind::Scale if layer.bottoms.is_empty() && is_by_channel(layer) => {
                let norm = norms.get(&plain(&layer.name)).copied();
                norm.filter(|norm| net.count(norm, Role::Mean) == net.count(layer, Role::Weight))
                    .inspect(|_| merged.by_name.extend(net.tensor(layer, Role::Weight).map(str::to_owned)))
            }
            LayerKind::Scale => scaled(net, layer)
                .inspect(|_| merged.by_topology.extend(net.tensor(layer, Role::Weight).map(str::to_owned))),
            _ => None,
        };
        let surplus = if layer.kind == LayerKind::Lstm { net.surplus(layer) } else { None };
        notes.extend(surplus.map(|[file, net]| {
            format!("names: {:?} has {file} tensors in the file, and {net} in the net: their names stay", layer.name)
        }));
        let is_other = layer.tensor(Role::Static).is_some() || surplus.is_some();
        if is_other {
            continue;
        }
        let named = norm.and_then(module).or_else(|| module(layer)).unwrap_or(&layer.name);
        if tested.contains(&*layer.name) {
            let owner = absent(net, layer, &norms).and_then(module).unwrap_or(named);
            lacks.extend(missing(net, layer).iter().map(|suffix| format!("{owner}.{suffix}")));
        }
        for (role, name) in net.tensors(layer) {
            let Some(suffix) = suffix(layer.kind, role) else {
                continue;
            };
            let new = format!("{named}.{suffix}");
            let other = map.insert(name.to_owned(), new.clone()).filter(|old| *old != new);
            shared.extend(other.map(|old| format!("{name:?} as {new:?}, not {old:?}")));
            // A fold may add a bias, which gets this name.
            if role == Role::Weight && net.tensor(layer, Role::Bias).is_none() {
                map.entry(bias_beside(name)).or_insert_with(|| format!("{named}.bias"));
            }
        }
    }
    if !shared.is_empty() {
        let shared = words::joined(MAX_SHARED, &shared);
        notes.push(format!("names: shared by modules, and has the name of one alone: {shared}"));
    }
    let mut told = HashSet::new();
    lacks.retain(|name| told.insert(name.clone()));
    (merged, lacks)
}

/// The BatchNorm before a Scale of which the file has nothing: both are one module.
fn absent<'a>(net: &Bound<'a>, scale: &Layer, norms: &HashMap<String, &'a Layer>) -> Option<&'a Layer> {
    if scale.kind != LayerKind::Scale || !is_by_channel(scale) || net.tensors(scale).next().is_some() {
        return None;
    }
    match *scale.bottoms {
        [] => norms.get(&plain(&scale.name)).copied(),
        [bottom] => net.net().writer(bottom).filter(|layer| is_bare_norm(net, layer)),
        _ => None,
    }
}

/// The module of each layer: the common stem of the names of the layer's tensors, or else the layer's name, as where
/// another layer with other tensors has the same stem.
fn modules<'a>(net: &Bound<'a>) -> HashMap<*const Layer, &'a str> {
    let (mut modules, mut owners) = (HashMap::new(), HashMap::<&str, Vec<&'a Layer>>::new());
    for layer in net.layers() {
        let mut stems = net.tensors(layer).filter_map(|(_, name)| stem(bare(name)));
        let common = stems.next().filter(|first| stems.all(|stem| stem == *first));
        // The last layer of a name is `conv1@7` in a file, and the net's layer of the name reads it.
        let is_named = !layer.name.is_empty() && layer.tensors().all(|(_, name)| stem(name) == Some(&*layer.name));
        let module = common.filter(|_| !is_named).unwrap_or(&layer.name);
        modules.insert(std::ptr::from_ref(layer), module);
        owners.entry(module).or_default().push(layer);
    }
    for layers in owners.into_values().filter(|layers| layers.len() > 1) {
        let first: HashSet<&str> = net.tensors(layers[0]).map(|(_, name)| name).collect();
        if !layers[1..].iter().all(|layer| net.tensors(layer).any(|(_, name)| first.contains(name))) {
            modules.extend(layers.into_iter().map(|layer| (std::ptr::from_ref(layer), &*layer.name)));
        }
    }
    modules
}

/// The module that a tensor belongs to: the name without `/0` or one of MXNet's suffixes.
fn stem(name: &str) -> Option<&str> {
    if let taken @ TensorName { kind: Kind::Data, .. } = TensorName::of(name)
        && taken.index().is_some()
    {
        return taken.layer();
    }
    ENDINGS.iter().find_map(|(ending, _)| name.strip_suffix(ending)?.strip_suffix(['_', '.']))
}

/// The BatchNorm before a per-channel Scale, if only that Scale reads it.
fn scaled<'a>(net: &Bound<'a>, scale: &Layer) -> Option<&'a Layer> {
    let [bottom] = *scale.bottoms else {
        return None;
    };
    let norm = net.net().writer(bottom).filter(|layer| is_bare_norm(net, layer))?;
    scale_after(net, norm).filter(|after| std::ptr::eq(*after, scale)).map(|_| norm)
}

/// Whether a layer is a BatchNorm without gamma and beta.
fn is_bare_norm(net: &Bound<'_>, layer: &Layer) -> bool {
    layer.kind == LayerKind::BatchNorm && net.tensor(layer, Role::Weight).is_none()
}

/// A layer's name without the words for BatchNorm and Scale, to pair the two by name.
fn plain(name: &str) -> String {
    let name = name.to_lowercase();
    ["batchnorm", "batch_norm", "scale", "bn"].iter().fold(name, |name, word| name.replace(word, ""))
}

fn suffix(kind: LayerKind, role: Role) -> Option<&'static str> {
    match (kind, role) {
        (LayerKind::Lstm, Role::Weight) => Some("weight_ih_l0"),
        (LayerKind::Lstm, Role::Hidden) => Some("weight_hh_l0"),
        (LayerKind::Lstm, Role::Bias) => Some("bias_ih_l0"),
        (_, Role::Weight) => Some("weight"),
        (_, Role::Bias) => Some("bias"),
        (_, Role::Mean) => Some("running_mean"),
        (_, Role::Variance) => Some("running_var"),
        (_, Role::Factor) => Some("factor"),
        _ => None,
    }
}

/// PyTorch's name for a tensor with one of MXNet's suffixes.
fn by_ending(name: &str) -> Option<String> {
    if let Some(new) = recurrent(name) {
        return Some(new);
    }
    let (stem, new) =
        ENDINGS.iter().find_map(|(ending, new)| Some((name.strip_suffix(ending)?.strip_suffix(['_', '.'])?, new)))?;
    Some(format!("{stem}.{new}"))
}

/// Gluon's recurrent layers: `lstm0_l0_i2h_weight` is layer 0 forwards, `lstm0_r0_h2h_bias` layer 0 in reverse.
///
/// Gluon's `save_parameters` of a fused layer has `_unfused.0.i2h_weight`, and with both directions
/// `_unfused.0.l_cell.i2h_weight` (`_RNNLayer._collect_params_with_prefix` of apache/mxnet 1.9.1). The rows that
/// project the state are `h2r`, with `projection_size`.
fn recurrent(name: &str) -> Option<String> {
    if let Some(new) = unfused(name) {
        return Some(new);
    }
    let (rest, what) = name.rsplit_once('_').filter(|(_, what)| matches!(*what, "weight" | "bias"))?;
    let (rest, of) = rest.rsplit_once('_')?;
    let of = match of {
        "i2h" => "ih",
        "h2h" => "hh",
        "h2r" => "hr",
        _ => return None,
    };
    let number = rest.trim_end_matches(|c: char| c.is_ascii_digit());
    let (stem, way) = match (number.strip_suffix('l'), number.strip_suffix('r')) {
        (Some(stem), _) => (stem, ""),
        (_, Some(stem)) => (stem, "_reverse"),
        _ => return None,
    };
    let digits = &rest[number.len()..];
    let stem = stem.strip_suffix(['_', '.'])?;
    (!digits.is_empty()).then(|| format!("{stem}.{what}_{of}_l{digits}{way}"))
}

/// A name as Gluon saves a fused recurrent layer.
fn unfused(name: &str) -> Option<String> {
    let (stem, rest) = match name.split_once("_unfused.")? {
        ("", rest) => ("", rest),
        (stem, rest) => (stem.strip_suffix('.')?, rest),
    };
    let (layer, rest) = rest.split_once('.')?;
    let (way, rest) = match rest.split_once('.') {
        Some(("l_cell", rest)) => ("", rest),
        Some(("r_cell", rest)) => ("_reverse", rest),
        Some(_) => return None,
        None => ("", rest),
    };
    let (of, what) = rest.split_once('_').filter(|(_, what)| matches!(*what, "weight" | "bias"))?;
    let of = ["i2h", "h2h", "h2r"].iter().position(|own| *own == of).map(|at| ["ih", "hh", "hr"][at])?;
    let is_number = !layer.is_empty() && layer.bytes().all(|byte| byte.is_ascii_digit());
    let dot = if stem.is_empty() { "" } else { "." };
    is_number.then(|| format!("{stem}{dot}{what}_{of}_l{layer}{way}"))
}

//! Names as PyTorch gives them to the tensors of its modules: `conv1.weight`, `bn1.running_mean`.
//!
//! Derived from the net's layers if there is a net, and for MXNet from the suffixes of the names.

use std::collections::{BTreeMap, HashMap};

use blob_io::net::{Layer, LayerKind, Role};
use blob_io::{Checkpoint, Entry, Kind};

use super::Names;
use crate::transform::bound::{Bound, bare, bias_beside, listed};
use crate::transform::fold::{is_by_channel, scale_after};

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
    /// The names that PyTorch would give. A tensor that no layer and no suffix identifies keeps its name, and a note
    /// says so.
    #[must_use]
    pub fn torch(net: Option<&Bound<'_>>, checkpoint: &Checkpoint) -> Self {
        let mut map = BTreeMap::new();
        let mut notes = Vec::new();
        if let Some(net) = net {
            of_net(net, &mut map, &mut notes);
        }
        let is_mxnet = checkpoint.format().is_mxnet() || checkpoint.names().any(|name| bare(name) != name);
        let (mut kept, mut all) = (Vec::new(), 0);
        // A sparse array is renamed once, by its values; `names` applies that to its parts.
        let is_first = |entry: &&Entry| matches!(entry.kind(), Kind::Data | Kind::Values);
        for entry in checkpoint.entries().iter().filter(is_first) {
            let name = entry.sparse().map_or(entry.name(), |sparse| &sparse.name);
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
        Self { map, notes }
    }
}

fn of_net(net: &Bound<'_>, map: &mut BTreeMap<String, String>, notes: &mut Vec<String>) {
    let norms: HashMap<String, &Layer> =
        net.layers().filter(|l| is_norm(net, l)).map(|l| (plain(&l.name), l)).collect();
    let (mut by_topology, mut by_name) = (0, 0);
    for layer in net.layers() {
        // A Scale after a BatchNorm belongs to the same PyTorch module.
        let norm = match layer.kind {
            LayerKind::Scale if layer.bottoms.is_empty() && is_by_channel(layer) => {
                norms.get(&plain(&layer.name)).copied().inspect(|_| by_name += 1)
            }
            LayerKind::Scale => scaled(net, layer).inspect(|_| by_topology += 1),
            _ => None,
        };
        let has_static = layer.tensor(Role::Static).is_some();
        for (role, name) in net.tensors(layer) {
            let Some(suffix) = suffix(layer.kind, role).filter(|_| !has_static) else {
                continue;
            };
            let stem = stem(bare(name));
            let module = match norm.and_then(|norm| net.tensor(norm, Role::Mean)) {
                Some(mean) => self::stem(bare(mean)),
                None => stem,
            };
            let module = module.unwrap_or(&layer.name);
            map.insert(name.to_owned(), format!("{module}.{suffix}"));
            // A fold may add a bias, which gets this name.
            if role == Role::Weight && net.tensor(layer, Role::Bias).is_none() {
                map.entry(bias_beside(name)).or_insert_with(|| format!("{module}.bias"));
            }
        }
    }
    for (count, how) in [(by_topology, "topology"), (by_name, "name")] {
        if count > 0 {
            notes.push(format!("names: {count} Scale merged with their BatchNorm, found by {how}"));
        }
    }
}

/// The module that a tensor belongs to: its name without `/0` or one of MXNet's suffixes.
fn stem(name: &str) -> Option<&str> {
    if let Some((stem, index)) = name.rsplit_once('/')
        && index.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Some(stem);
    }
    ENDINGS.iter().find_map(|(ending, _)| name.strip_suffix(ending)?.strip_suffix(['_', '.']))
}

/// The BatchNorm before a per-channel Scale, if only that Scale reads it.
fn scaled<'a>(net: &Bound<'a>, scale: &Layer) -> Option<&'a Layer> {
    let [bottom] = *scale.bottoms else {
        return None;
    };
    let norm = net.net().writer(bottom).filter(|layer| is_norm(net, layer))?;
    scale_after(net, norm).filter(|after| std::ptr::eq(*after, scale)).map(|_| norm)
}

/// Whether it is a BatchNorm without gamma and beta.
fn is_norm(net: &Bound<'_>, layer: &Layer) -> bool {
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
fn recurrent(name: &str) -> Option<String> {
    let (rest, what) = name.rsplit_once('_').filter(|(_, what)| matches!(*what, "weight" | "bias"))?;
    let (rest, of) = rest.rsplit_once('_')?;
    let of = match of {
        "i2h" => "ih",
        "h2h" => "hh",
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

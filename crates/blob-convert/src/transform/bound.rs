//! A net's layers with those of their tensors that a file has.

use std::collections::{BTreeMap, HashMap, HashSet};

use blob_io::Checkpoint;
use blob_io::mxnet::Symbol;
use blob_io::net::{Layer, LayerKind, Net, Role};
use blob_io::{Error, Kind};

/// A net, and the file of its weights.
#[derive(Debug)]
pub struct Bound<'a> {
    net: &'a Net,
    /// The file's names by those of the net.
    names: HashMap<&'a str, &'a str>,
    clashes: Vec<String>,
    strangers: Vec<Stranger>,
}

/// A BatchNorm of the file that no layer of the net covers, so that nothing is done about it.
#[derive(Debug)]
pub(super) struct Stranger {
    /// Its layer, or what its tensors' names begin with.
    pub(super) layer: String,
    /// MXNet's gamma.
    pub(super) gamma: Option<String>,
    /// Whether Caffe's factor is stored beside its mean and variance.
    pub(super) has_factor: bool,
}

/// How many names are told one by one.
const TOLD: usize = 5;
/// How the tensors' names of MXNet's BatchNorms end.
const NORMS: [&str; 3] = ["gamma", "moving_mean", "running_mean"];

impl<'a> Bound<'a> {
    /// Looks for the tensors of `net` among those of a file. MXNet's are called `arg:NAME` and `aux:NAME` there, or NAME.
    #[must_use]
    pub fn new(net: &'a Net, checkpoint: &'a Checkpoint) -> Self {
        let wanted: HashSet<&str> = net.layers().iter().flat_map(Layer::tensors).map(|(_, name)| name).collect();
        let clashes = clashes(net);
        let mut names = HashMap::new();
        for entry in checkpoint.entries().iter().filter(|entry| entry.kind() == Kind::Data) {
            for name in [entry.name(), bare(entry.name())] {
                if let Some(name) = wanted.get(name).filter(|name| !clashes.contains_key(**name)) {
                    names.entry(*name).or_insert(entry.name());
                }
            }
        }
        let clashes = clashes.into_values().collect();
        let strangers = strangers(net, &names, checkpoint);
        Self { net, names, clashes, strangers }
    }

    /// The tensors that layers of one name claim as different things, one sentence each; they belong to no layer here.
    #[must_use]
    pub fn clashes(&self) -> &[String] {
        &self.clashes
    }

    /// The BatchNorms of the file that no layer of the net covers.
    pub(super) fn strangers(&self) -> &[Stranger] {
        &self.strangers
    }

    /// The net.
    #[must_use]
    pub fn net(&self) -> &'a Net {
        self.net
    }

    /// The net's layers.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &'a Layer> {
        self.net.layers().iter()
    }

    /// What the file calls the tensor of this role of a layer, where it has it.
    #[must_use]
    pub fn tensor(&self, layer: &Layer, role: Role) -> Option<&'a str> {
        self.names.get(layer.tensor(role)?).copied()
    }

    /// The tensors of a layer that the file has, as (role, the file's name).
    pub(crate) fn tensors(&self, layer: &'a Layer) -> impl Iterator<Item = (Role, &'a str)> {
        layer.tensors().filter_map(|(role, name)| Some((role, *self.names.get(name)?)))
    }
}

/// What two layers of one name claim as different things. Layers that share a tensor by its name agree on what it is, as those
/// for training and for use do.
fn clashes(net: &Net) -> BTreeMap<&str, String> {
    let mut owners: HashMap<&str, (&Layer, Role)> = HashMap::new();
    let mut clashes = BTreeMap::new();
    for layer in net.layers() {
        for (role, name) in layer.tensors() {
            let (first, as_what) = *owners.entry(name).or_insert((layer, role));
            if first.name == layer.name && !std::ptr::eq(first, layer) && (first.kind, as_what) != (layer.kind, role) {
                let (one, other) = (&first.type_name, &layer.type_name);
                let both = format!("{name:?} is claimed by two layers called {:?}, {one} and {other}", layer.name);
                clashes.entry(name).or_insert(both);
            }
        }
    }
    clashes
}

/// The BatchNorms of a file that no layer covers, by their names, and in a .caffemodel by its own layers.
fn strangers(net: &Net, names: &HashMap<&str, &str>, checkpoint: &Checkpoint) -> Vec<Stranger> {
    let covered: HashSet<&str> = names.values().copied().collect();
    // A gamma without a mean is the slope of a PReLU, or another normalisation's.
    let mut strangers: BTreeMap<&str, (Stranger, bool)> = BTreeMap::new();
    for entry in checkpoint.entries().iter().filter(|entry| entry.kind() == Kind::Data) {
        let name = entry.name();
        let ended = NORMS.iter().find_map(|ending| Some((bare(name).strip_suffix(ending)?, *ending == "gamma")));
        let Some((stem, is_gamma)) = ended.filter(|_| !covered.contains(name)) else {
            continue;
        };
        let layer = stem.trim_end_matches(['_', '.']).to_owned();
        let stranger = Stranger { layer, gamma: None, has_factor: false };
        let (stranger, has_mean) = strangers.entry(stem).or_insert((stranger, false));
        if is_gamma {
            stranger.gamma = Some(name.to_owned());
        }
        *has_mean |= !is_gamma;
    }
    let is_norm = |layer: &&Layer| matches!(layer.kind, LayerKind::BatchNorm | LayerKind::Bn);
    let of_norms = net.layers().iter().filter(is_norm).flat_map(Layer::tensors);
    let normed: HashSet<&str> = of_norms.filter_map(|(_, name)| names.get(name).copied()).collect();
    // A file whose layers cannot be read is refused where its own net is asked for.
    let own = checkpoint.net().ok().flatten().unwrap_or_default();
    let lacking = own.layers().iter().filter(|layer| {
        layer.kind == LayerKind::BatchNorm && layer.tensor(Role::Mean).is_some_and(|mean| !normed.contains(mean))
    });
    let lacking = lacking.map(|layer| {
        let has_factor = layer.tensor(Role::Factor).is_some();
        Stranger { layer: layer.name.to_owned(), gamma: None, has_factor }
    });
    let named = strangers.into_values().filter_map(|(stranger, has_mean)| has_mean.then_some(stranger));
    named.chain(lacking).collect()
}

/// The first names, and how many more there are.
pub(super) fn listed(names: &[&str]) -> String {
    let named: Vec<String> = names.iter().take(TOLD).map(|name| format!("{name:?}")).collect();
    let more = if names.len() > TOLD { format!(" and {} more", names.len() - TOLD) } else { String::new() };
    named.join(", ") + &more
}

/// A name of MXNet's without what says its kind.
pub(crate) fn bare(name: &str) -> &str {
    name.strip_prefix("arg:").or_else(|| name.strip_prefix("aux:")).unwrap_or(name)
}

/// What a new bias is called beside a weight of this name.
pub(super) fn bias_beside(weight: &str) -> String {
    let ended = |ending: &str| weight.strip_suffix(ending);
    match (ended("/0"), ended("weight")) {
        (Some(layer), _) => format!("{layer}/1"),
        (_, Some(stem)) => format!("{stem}bias"),
        _ => format!("{weight}.bias"),
    }
}

/// The symbol file beside a file of MXNet's parameters, as its savers call them: `net-symbol.json` beside
/// `net-0012.params`.
///
/// # Errors
/// What reading it returns; `None` where there is none.
pub fn symbol_beside(checkpoint: &Checkpoint) -> Result<Option<Symbol>, Error> {
    let name = checkpoint.name();
    let file = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let stem = file.strip_suffix(".params").unwrap_or(file);
    let stem = match stem.rsplit_once('-') {
        Some((stem, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => stem,
        _ => stem,
    };
    let symbol = format!("{stem}-symbol.json");
    match checkpoint.beside(&symbol)? {
        Some(bytes) => Symbol::from_bytes(&symbol, &bytes).map(Some),
        None => Ok(None),
    }
}

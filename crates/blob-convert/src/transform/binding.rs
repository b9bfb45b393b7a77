//! Pairs the layers of a net with the tensors of a file.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use blob_io::net::{Layer, LayerKind, Net, Reader, Role};
use blob_io::{Checkpoint, Group, Kind, TensorName, words};

use super::namesakes::last_of_layers;
use super::norm::is_norm;

/// A net and the file that holds its weights.
#[derive(Debug)]
pub struct Bound<'a> {
    net: &'a Net,
    checkpoint: &'a Checkpoint,
    /// The name in the file by the name in the net: `fc_weight` may be `arg:fc_weight`.
    names: HashMap<&'a str, &'a str>,
    /// The layers with each tensor of the file, by the tensor's name.
    users: HashMap<&'a str, Vec<User<'a>>>,
    clashes: Vec<String>,
    uncovered: Vec<UncoveredNorm>,
    moved: MovedEps,
    /// The divided means and variances, in a part of another file.
    divided: Option<BTreeSet<String>>,
    /// Whether a convolution reads an input of the net that is no `DummyData`.
    has_inputs: bool,
    /// The names of layers that are folded into others, and of these layers' tensors.
    folded: HashSet<String>,
}

/// A layer with a tensor in one role.
#[derive(Clone, Copy, Debug)]
pub(super) struct User<'a> {
    pub(super) layer: &'a Layer,
    pub(super) role: Role,
}

/// The eps added to variances since an earlier conversion.
#[derive(Debug, Default)]
pub(crate) struct MovedEps {
    /// The eps by the name of the variance.
    pub(crate) each: BTreeMap<String, f64>,
    /// The eps of all other variances, where the receipt does not list the moved ones.
    pub(crate) all: Option<f64>,
}

/// A BatchNorm in the file that has no layer in the net. The conversion leaves such a BatchNorm unchanged.
#[derive(Debug)]
pub(super) struct UncoveredNorm {
    /// The name of the layer, or the common prefix of the tensors' names.
    pub(super) layer: String,
    /// MXNet's gamma.
    pub(super) gamma: Option<String>,
    /// Whether Caffe's factor is stored beside mean and variance.
    pub(super) has_factor: bool,
}

/// At most this many names are listed.
const MAX_LISTED: usize = 5;
/// Suffixes of the names of MXNet's BatchNorm tensors.
const NORMS: [&str; 3] = ["gamma", "moving_mean", "running_mean"];

impl<'a> Bound<'a> {
    /// Pairs by name, for callers to whom no eps matters.
    pub(crate) fn of(net: &'a Net, checkpoint: &'a Checkpoint) -> Self {
        Self::moved(net, checkpoint, MovedEps::default())
    }

    /// Pairs by name. `moved` has the eps of each variance that differs from the net's.
    pub(crate) fn moved(net: &'a Net, checkpoint: &'a Checkpoint, moved: MovedEps) -> Self {
        let clashes = clashes(net);
        let there = checkpoint.entries().iter().filter(|entry| entry.kind() == Kind::Data);
        let there: HashSet<&str> = there.map(blob_io::Entry::name).collect();
        // The caller that needs the net reports an unreadable net.
        let own = checkpoint.net().ok().flatten().unwrap_or_default();
        let last = last_of_layers(&own, net);
        let mut names = HashMap::new();
        for (role, name) in net.layers().iter().flat_map(Layer::tensors).filter(|(_, name)| !clashes.contains_key(name))
        {
            let last = last.get(name).and_then(|name| there.get(*name));
            let found = last.or_else(|| spellings(role, name).iter().find_map(|spelling| there.get(&**spelling)));
            if let Some(found) = found {
                names.entry(name).or_insert(*found);
            }
        }
        let mut users: HashMap<&str, Vec<User<'a>>> = HashMap::new();
        for layer in net.layers() {
            let tensors = layer.tensors().filter_map(|(role, name)| Some((role, *names.get(name)?)));
            tensors.for_each(|(role, name)| users.entry(name).or_default().push(User { layer, role }));
        }
        let clashes = clashes.into_values().collect();
        let uncovered = uncovered(net, &names, checkpoint, &own);
        let has_inputs = has_convolved_inputs(net);
        Self {
            net,
            checkpoint,
            names,
            users,
            clashes,
            uncovered,
            moved,
            divided: None,
            has_inputs,
            folded: HashSet::new(),
        }
    }

    /// Records that the file is a part of another one, in which these means and variances have been divided.
    pub(crate) fn part(mut self, divided: Option<BTreeSet<String>>) -> Self {
        self.divided = divided;
        self
    }

    /// A BatchNorm of Caffe's whose factor the file lacks, though nothing has divided mean and variance: the problem,
    /// in words that follow the name of either. Caffe reads all three, and refuses its own files without a factor; a
    /// part of a file may have lost one.
    pub(super) fn lost_factor(&self, layer: &Layer) -> Option<String> {
        if layer.kind != LayerKind::BatchNorm || self.tensor(layer, Role::Factor).is_some() {
            return None;
        }
        let both: Vec<&str> =
            [Role::Mean, Role::Variance].iter().filter_map(|role| self.tensor(layer, *role)).collect();
        // A net that the weights describe has the tensors that are there.
        let of_caffe = both.first().filter(|_| self.is_of_caffe());
        let factor = layer.tensor(Role::Factor).map(str::to_owned);
        let factor = factor.or_else(|| Some(format!("{}/2", TensorName::of(of_caffe?).layer()?)))?;
        match &self.divided {
            Some(divided) if !both.iter().any(|name| divided.contains(*name)) => {
                Some(format!("is divided by {factor:?}, which an earlier conversion left out"))
            }
            None if self.is_of_caffe() && !both.is_empty() => {
                Some(format!("is divided by {factor:?}, which the file lacks, and Caffe takes no BatchNorm without"))
            }
            _ => None,
        }
    }

    /// Hides the layers that are folded into others. `folded` has the names of these layers and of the layers' tensors.
    pub(crate) fn without(mut self, folded: impl IntoIterator<Item = String>) -> Self {
        self.folded.extend(folded);
        self
    }

    /// Whether this layer or tensor is folded into another one.
    pub(super) fn is_folded(&self, name: &str) -> bool {
        self.folded.contains(name)
    }

    /// Conflicts, one sentence each: a tensor that two layers of the same name use in different roles. Such a tensor is
    /// paired with neither layer.
    #[must_use]
    pub fn clashes(&self) -> &[String] {
        &self.clashes
    }

    /// The BatchNorms in the file that have no layer in the net.
    pub(super) fn uncovered(&self) -> &[UncoveredNorm] {
        &self.uncovered
    }

    /// Whether the file is one of Caffe's own, which Caffe reads with exactly the tensors that each layer has.
    pub(super) fn is_of_caffe(&self) -> bool {
        self.checkpoint.format().is_caffe()
    }

    /// The name in the file of a tensor or a variable that the net has under this name; the same name where the file
    /// has no such tensor.
    pub(crate) fn name<'n>(&self, tensor: &'n str) -> &'n str
    where
        'a: 'n,
    {
        self.names.get(tensor).copied().unwrap_or_else(|| {
            let spelt = spellings(Role::Other, tensor).iter().find_map(|name| self.checkpoint.entry(name));
            spelt.map_or(tensor, blob_io::Entry::name)
        })
    }

    /// The net.
    #[must_use]
    pub fn net(&self) -> &'a Net {
        self.net
    }

    /// The number of values of a layer's tensor; `None` if the file has no such tensor.
    pub(super) fn count(&self, layer: &Layer, role: Role) -> Option<usize> {
        Some(self.checkpoint.entry(self.tensor(layer, role)?)?.shape().count())
    }

    /// The net's layers, without folded layers.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &'a Layer> {
        self.net.layers().iter().filter(|layer| !self.is_folded(&layer.name))
    }

    /// The name in the file of a layer's tensor with this role; `None` if the file has no such tensor.
    #[must_use]
    pub fn tensor(&self, layer: &Layer, role: Role) -> Option<&'a str> {
        self.names.get(layer.tensor(role)?).copied()
    }

    /// The eps added to a layer's variance. For a moved variance, the receipt's eps counts, otherwise the net's.
    #[must_use]
    pub fn eps(&self, layer: &Layer) -> f64 {
        let Some(variance) = self.tensor(layer, Role::Variance) else { return layer.eps };
        self.moved.each.get(variance).copied().or(self.moved.all).unwrap_or(layer.eps)
    }

    /// The number of tensors of a Caffe layer in the file and in the net, where the file has more, and the net's roles
    /// may be those of other tensors. At most eight are counted.
    pub(super) fn surplus(&self, layer: &Layer) -> Option<[usize; 2]> {
        let last = TensorName::of(layer.tensors().last()?.1);
        let (of, count) = (last.layer()?, last.index()? + 1);
        let more = (count..8).take_while(|index| self.checkpoint.entry(&format!("{of}/{index}")).is_some()).count();
        (more > 0).then_some([count + more, count])
    }

    /// The layers with a tensor of the file, without folded layers.
    pub(super) fn users(&self, tensor: &str) -> impl Iterator<Item = User<'a>> {
        let all = self.users.get(tensor).into_iter().flatten().copied();
        all.filter(|user| !self.is_folded(&user.layer.name))
    }

    /// The first reader of a tensor that is none of a step's `own`, in words: another layer, an operator that reads the
    /// tensor as a value, or the net's user. A step that changes the tensor's values would change that reader's result.
    pub(super) fn other_reader(&self, tensor: &str, is_own: impl Fn(User<'a>) -> bool) -> Option<String> {
        if let Some(other) = self.users(tensor).find(|user| !is_own(*user)) {
            return Some(format!("{:?}", other.layer.name));
        }
        Some(match self.value_reader(tensor)? {
            Reader::Layer(reader) => format!("{:?}", reader.name),
            Reader::User => "the user of the net".to_owned(),
        })
    }

    /// The reader of a tensor as a value.
    fn value_reader(&self, tensor: &str) -> Option<Reader<'a>> {
        let mut names = self.users(tensor).filter_map(|user| user.layer.tensor(user.role));
        names.find_map(|name| self.net.value_reader(name))
    }

    /// Whether a value that no layer computes from others is an input of the net: given by the user, not learnt, and
    /// not a constant. A `DummyData` of Caffe's stands for the image of
    /// a net whose convolutions read no other input.
    pub(super) fn is_input(&self, value: usize) -> bool {
        match self.net.writer(value) {
            Some(layer) => begins(layer) == Begins::Input || begins(layer) == Begins::Dummy && !self.has_inputs,
            None => self.own_tensor(value).is_none(),
        }
    }

    /// The name in the file of the tensor that a value is: a variable of MXNet's, or that of a layer of Caffe's that
    /// only learns and gives a value.
    pub(super) fn own_tensor(&self, value: usize) -> Option<&'a str> {
        let find = |name: &str| self.checkpoint.entry(name).map(blob_io::Entry::name);
        match self.net.writer(value) {
            Some(layer) if begins(layer) == Begins::Learnt => find(&format!("{}/0", layer.name)),
            Some(_) => None,
            None => {
                let name = self.net.variable(value)?;
                spellings(Role::Other, name).iter().find_map(|spelling| find(spelling))
            }
        }
    }

    /// The tensors of a layer that the file has: each role with the name in the file.
    pub(crate) fn tensors(&self, layer: &'a Layer) -> impl Iterator<Item = (Role, &'a str)> {
        layer.tensors().filter_map(|(role, name)| Some((role, *self.names.get(name)?)))
    }
}

/// The kind of values that a layer without inputs gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    Input,
    /// Caffe's `DummyData`: a constant, random values, or a stand-in for the input.
    Dummy,
    /// Caffe's `Parameter`.
    Learnt,
    /// An operator of MXNet's, as `_zeros`: inputs are no operators there.
    Constant,
}

fn begins(layer: &Layer) -> Begins {
    match &*layer.type_name {
        "DummyData" => Begins::Dummy,
        "Parameter" => Begins::Learnt,
        of if of.starts_with('_') => Begins::Constant,
        _ => Begins::Input,
    }
}

/// Whether a layer is a convolution or a deconvolution.
pub(super) fn is_spatial(layer: &Layer) -> bool {
    matches!(layer.kind, LayerKind::Convolution | LayerKind::Deconvolution)
}

/// Whether a convolution reads an input that is no `DummyData`, at any distance. Labels, anchors and layers without
/// outputs take no place of an image.
fn has_convolved_inputs(net: &Net) -> bool {
    let mut reached: HashSet<usize> = HashSet::new();
    for layer in net.layers() {
        let reads = layer.bottoms.iter().any(|value| net.writer(*value).is_none() || reached.contains(value));
        if reads && is_spatial(layer) {
            return true;
        }
        if reads || layer.bottoms.is_empty() && begins(layer) == Begins::Input {
            reached.extend(&layer.tops);
        }
    }
    false
}

/// The names that a file may have for a tensor of a net, the likeliest first.
pub(crate) fn spellings(role: Role, name: &str) -> [String; 3] {
    // MXNet takes a moving statistic from `aux:` and everything else from `arg:`, where a file has both.
    let prefixes = match role {
        Role::Mean | Role::Variance => [Group::Auxiliary.prefix(), "", Group::Argument.prefix()],
        _ => [Group::Argument.prefix(), "", Group::Auxiliary.prefix()],
    };
    prefixes.map(|prefix| format!("{prefix}{name}"))
}

/// Tensors that two layers of the same name use in different roles. The train and test versions of a layer share each
/// tensor in the same role, and do not clash.
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

/// The BatchNorms that no layer covers: found by tensor names, and in a .caffemodel by the file's own layers.
fn uncovered(net: &Net, names: &HashMap<&str, &str>, checkpoint: &Checkpoint, own: &Net) -> Vec<UncoveredNorm> {
    let covered: HashSet<&str> = names.values().copied().collect();
    let known: HashSet<&str> = names.keys().copied().collect();
    // A gamma without a mean belongs to a PReLU or to another kind of normalisation.
    let mut uncovered: BTreeMap<&str, (UncoveredNorm, bool)> = BTreeMap::new();
    for entry in checkpoint.entries().iter().filter(|entry| entry.kind() == Kind::Data) {
        let name = entry.name();
        let ended = NORMS.iter().find_map(|ending| Some((bare(name).strip_suffix(ending)?, *ending == "gamma")));
        let Some((stem, is_gamma)) = ended.filter(|_| !covered.contains(name) && !known.contains(bare(name))) else {
            continue;
        };
        let layer = stem.trim_end_matches(['_', '.']).to_owned();
        let stranger = UncoveredNorm { layer, gamma: None, has_factor: false };
        let (stranger, has_mean) = uncovered.entry(stem).or_insert((stranger, false));
        if is_gamma {
            stranger.gamma = Some(name.to_owned());
        }
        *has_mean |= !is_gamma;
    }
    let of_norms = net.layers().iter().filter(|layer| is_norm(layer)).flat_map(Layer::tensors);
    let normed: HashSet<&str> = of_norms.filter_map(|(_, name)| names.get(name).copied()).collect();
    let lacking = own.layers().iter().filter(|layer| {
        layer.kind == LayerKind::BatchNorm && layer.tensor(Role::Mean).is_some_and(|mean| !normed.contains(mean))
    });
    let lacking = lacking.map(|layer| {
        let has_factor = layer.tensor(Role::Factor).is_some();
        UncoveredNorm { layer: layer.name.to_owned(), gamma: None, has_factor }
    });
    let named = uncovered.into_values().filter_map(|(stranger, has_mean)| has_mean.then_some(stranger));
    named.chain(lacking).collect()
}

/// Lists the first names, then the number of further names.
pub(super) fn listed(names: &[impl AsRef<str>]) -> String {
    words::listed(MAX_LISTED, names)
}

/// An MXNet name without `arg:` or `aux:`.
pub(crate) fn bare(name: &str) -> &str {
    Group::split(name).1
}

/// The name for a new bias of the layer that has this weight.
pub(super) fn bias_beside(weight: &str) -> String {
    let ended = |ending: &str| weight.strip_suffix(ending);
    match (ended("/0"), ended("weight")) {
        (Some(layer), _) => format!("{layer}/1"),
        (_, Some(stem)) => format!("{stem}bias"),
        _ => format!("{weight}.bias"),
    }
}

/// Whether a file may have ignored values, as far as the entries tell. If not, the net need not be read. A gamma may
/// have any name; but the moving statistics of MXNet's BatchNorms are marked as auxiliary.
pub(crate) fn may_have_norms(checkpoint: &Checkpoint) -> bool {
    checkpoint.entries().iter().any(|entry| {
        let is_named = bare(entry.name()).ends_with("gamma") || Group::split(entry.name()).0 == Some(Group::Auxiliary);
        is_named || entry.layer_type() == Some("BatchNorm")
    })
}

//! `fc-from`: permutes the columns of a fully connected layer after a flattening, for frameworks that flatten channels
//! last.
//!
//! Caffe, MXNet and torch flatten channels × height × width; TensorFlow and Keras flatten height × width × channels.

mod flattened;
mod region;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use blob_io::words::{joined, quoted};
use blob_io::work;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::flattened::{Flattened, Permuted, of_net};
use super::permute::{lacking, names};
use super::reorder::Reorder;
use super::role::{INNER_PRODUCT, Weights, data_name, role};
use super::step::{Context, Fact, Made, Misfit, Outcome, Spec, Transform, Undone};
use super::topology::wired;
use crate::change::listed;

/// Permutes the columns of inner products with channels × height × width inputs to height × width × channels. The
/// factors and summands of layers between the flattening and the inner product are permuted likewise.
///
/// If a net says which layer reads what, the net decides: inner products after a convolution or a pooling are permuted.
/// The convolution or pooling must have these channels, and no other layer may read the same values; a layer of Caffe's
/// with `transpose: true`, whose weights are inputs × outputs, is refused. Otherwise only one matrix in the file may
/// have that many columns.
#[derive(Clone, Debug, Default)]
pub struct FcFrom {
    /// The extents for every inner product with this many inputs.
    extents: Option<Extents>,
    /// The extents by the name of a layer or of a layer's weights.
    layers: BTreeMap<String, Extents>,
    /// The matrices to permute; `None` for all matching inner products.
    tensors: Option<Vec<String>>,
}

/// The extents that are flattened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Extents {
    channels: usize,
    height: usize,
    width: usize,
}

impl fmt::Display for Extents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.channels, self.height, self.width)
    }
}

impl Extents {
    /// `None` if the product is 0 or overflows.
    fn checked(self) -> Option<Self> {
        let inputs = self.channels.checked_mul(self.height)?.checked_mul(self.width)?;
        (inputs > 0).then_some(self)
    }

    fn inputs(self) -> usize {
        self.channels * self.height * self.width
    }
}

impl FcFrom {
    /// The step's name in receipts.
    pub(super) const NAME: &str = "fc-from";

    /// Permutes inner products with inputs of these channels, height and width; `None` if the product is 0 or
    /// overflows.
    #[must_use]
    pub fn new(channels: usize, height: usize, width: usize) -> Option<Self> {
        let extents = Extents { channels, height, width }.checked()?;
        Some(Self { extents: Some(extents), ..Self::default() })
    }

    /// Limits the extents to the layer, or the weights, of this name.
    #[must_use]
    pub fn layer(mut self, name: impl Into<String>) -> Self {
        if let Some(extents) = self.extents.take() {
            self.layers.insert(name.into(), extents);
        }
        self
    }

    /// Adds the extents of another `FcFrom`.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.extents = other.extents.or(self.extents);
        self.layers.extend(other.layers);
        self
    }

    /// Permutes exactly these matrices, in layers of any kind.
    #[must_use]
    pub fn of(self, tensors: Vec<String>) -> Self {
        Self { tensors: Some(tensors), ..self }
    }

    pub(super) fn read(settings: &Value) -> Option<Self> {
        let extents = match &settings["channels"] {
            Value::Null => None,
            _ => Some(Extents::deserialize(settings).ok()?.checked()?),
        };
        // `null` stands for a list for which a receipt had no room.
        let layers: BTreeMap<String, Extents> = match settings.get("layers") {
            None => BTreeMap::new(),
            Some(layers) => BTreeMap::deserialize(layers).ok()?,
        };
        let tensors = match settings.get("tensors") {
            None => None,
            Some(tensors) => Some(names(tensors)?),
        };
        let is_sound = layers.values().all(|extents| extents.checked().is_some());
        (is_sound && (extents.is_some() || !layers.is_empty())).then_some(Self { extents, layers, tensors })
    }

    /// The named matrices.
    fn of_names(&self, named: &[String], tensors: &[Spec<'_>]) -> Result<HashMap<String, Flattened>, Vec<Misfit>> {
        let mut misfits = lacking(named, tensors);
        let set: HashSet<&str> = named.iter().map(|name| &**name).collect();
        let mut found = HashMap::new();
        for spec in tensors.iter().filter(|spec| set.contains(&*spec.tensor.name)) {
            let extents = self.layers.get(&spec.tensor.name).copied().or(self.extents);
            match extents.filter(|extents| has_columns(spec, extents.inputs())) {
                Some(extents) => drop(found.insert(spec.entry.name().to_owned(), Flattened::Columns(extents))),
                None => {
                    let inputs = extents.map_or("other".to_owned(), |extents| extents.inputs().to_string());
                    let problem = format!("has shape {}, and is no matrix of {inputs} columns", spec.tensor.shape);
                    misfits.push(Misfit::new(&spec.tensor.name, problem));
                }
            }
        }
        if misfits.is_empty() { Ok(found) } else { Err(misfits) }
    }

    /// The matrices of a file without a net.
    fn of_file(&self, tensors: &[Spec<'_>]) -> Result<HashMap<String, Flattened>, Vec<Misfit>> {
        let (mut found, mut misfits) = (HashMap::new(), Vec::new());
        let mut unused: BTreeSet<&str> = self.layers.keys().map(String::as_str).collect();
        misfits.extend(self.extents.and_then(|extents| several(tensors, extents.inputs())));
        for spec in tensors.iter().filter(|spec| role(spec).0 == Weights::InnerProduct) {
            let name = data_name(&spec.tensor.name);
            let named =
                [Some(name), name.strip_suffix("/0")].into_iter().flatten().find(|n| self.layers.contains_key(*n));
            let Some(extents) = named.and_then(|named| self.layers.get(named)).or(self.extents.as_ref()) else {
                continue;
            };
            work::visit(0, 1);
            if let Some(named) = named {
                unused.remove(named);
            }
            if has_columns(spec, extents.inputs()) {
                found.insert(data_name(spec.entry.name()).to_owned(), Flattened::Columns(*extents));
            } else if named.is_some() {
                misfits.push(no_matrix(spec, *extents));
            }
        }
        misfits
            .extend(unused.into_iter().map(|name| Misfit::new(name, "is no inner product with weights in the file")));
        if misfits.is_empty() { Ok(found) } else { Err(misfits) }
    }
}

/// The numbers of inputs that weights of inner products have, for a sentence: `; "ip1/0" has 800`. Nothing where one
/// has a wanted number, which the net then refuses.
fn columns(tensors: &[Spec<'_>], wanted: &BTreeSet<usize>) -> String {
    let mut seen = BTreeSet::new();
    let products = tensors.iter().filter(|spec| role(spec).0 == Weights::InnerProduct);
    let counts = products.filter_map(|spec| Some((&spec.tensor.name, *spec.tensor.shape.dims().last()?)));
    let counts = counts.filter(|(_, inputs)| *inputs > 1 && seen.insert(*inputs));
    let counts: Vec<String> = counts.map(|(name, inputs)| format!("{} has {inputs}", quoted(name))).collect();
    if counts.is_empty() || !seen.is_disjoint(wanted) {
        String::new()
    } else {
        format!("; {}", joined(COUNTS, &counts))
    }
}

/// So many numbers of inputs are told.
const COUNTS: usize = 4;

impl Transform for FcFrom {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn settings(&self) -> Value {
        let mut settings = self.extents.map_or(json!({}), |extents| json!(extents));
        if !self.layers.is_empty() {
            settings["layers"] = json!(self.layers);
        }
        if let Some(tensors) = &self.tensors {
            settings["tensors"] = json!(tensors);
        }
        settings
    }

    fn undone(&self) -> Undone<'_> {
        Undone::Reordered
    }

    fn only_once(&self) -> Option<String> {
        // A user who names the tensors decides.
        self.tensors.is_none().then(|| "permuted to channels last".to_owned())
    }

    fn relies_on(&self) -> &'static [Fact] {
        if self.tensors.is_none() { &[Fact::Axes] } else { &[] }
    }

    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let net = if self.tensors.is_none() { wired(context).map_err(|misfit| vec![misfit])? } else { None };
        let is_guess = net.is_none() && self.tensors.is_none();
        let Permuted { tensors: found, mut notes, left, trusted } = match (&self.tensors, net) {
            (Some(named), _) => Permuted { tensors: self.of_names(named, tensors)?, ..Permuted::default() },
            (None, Some(net)) => of_net(self, &net, tensors)?,
            (None, None) => Permuted { tensors: self.of_file(tensors)?, ..Permuted::default() },
        };
        if found.is_empty() {
            let wanted = self.extents.iter().chain(self.layers.values()).map(|extents| extents.inputs());
            let wanted: BTreeSet<usize> = wanted.collect();
            let inputs = wanted.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ");
            let there = columns(tensors, &wanted);
            return Err(vec![Misfit::about_all(format!("no weights of an inner product have {inputs} inputs{there}"))]);
        }
        notes.extend(if is_guess { as_long(tensors, &found) } else { None });
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            let found = found.get(data_name(spec.entry.name()));
            let guess = is_guess.then_some(INNER_PRODUCT);
            let made = found.and_then(|found| Some(found.permuted(place, spec)?.guessed(guess)));
            made.unwrap_or_else(|| Made::same(place, spec))
        });
        let mut outcome: Outcome = made.collect();
        outcome.notes.extend(notes);
        outcome.unfitting = left;
        if !trusted.is_empty() {
            let (count, named) = (trusted.len(), listed(&trusted));
            let what =
                format!("height and width before {count} of them are taken as given: the net does not tell them");
            outcome.notices.push(format!("fc-from: {what}: {named}"));
        }
        Ok(outcome)
    }

    fn follows_net(&self) -> bool {
        self.tensors.is_none()
    }

    fn follows_edges(&self) -> bool {
        true
    }
}

impl Flattened {
    fn extents(self) -> Extents {
        let (Self::Columns(extents) | Self::Vector(extents)) = self;
        extents
    }

    /// The tensor with the flattened axis permuted; `None` for a tensor without such an axis.
    fn permuted(&self, place: usize, spec: &Spec<'_>) -> Option<Made> {
        let extents = self.extents();
        let Extents { channels, height, width } = extents;
        let (order, what) = match (self, spec.tensor.shape.dims()) {
            (Self::Columns(_), [rows, _] | [1, 1, rows, _]) => {
                (Reorder::permuted(&[*rows, channels, height, width], &[0, 2, 3, 1]), "columns permuted")
            }
            (Self::Vector(_), _) if spec.tensor.shape.count() == extents.inputs() => {
                (Reorder::permuted(&[channels, height, width], &[1, 2, 0]), "permuted")
            }
            _ => return None,
        };
        let change = format!("{what} from {channels}\u{d7}{height}\u{d7}{width} to channels last");
        Some(Made::computed(spec.tensor.clone(), vec![place], order).with_change(change))
    }
}

/// The misfit of a tensor that the user names, but that is no matrix with that many columns.
fn no_matrix(spec: &Spec<'_>, extents: Extents) -> Misfit {
    let (inputs, shape) = (extents.inputs(), &spec.tensor.shape);
    Misfit::new(&spec.tensor.name, format!("has shape {shape}, and is no matrix of {inputs} columns"))
}

/// Whether a tensor is a matrix with this number of columns.
fn has_columns(spec: &Spec<'_>, inputs: usize) -> bool {
    matches!(*spec.tensor.shape.dims(), [_, columns] | [1, 1, _, columns] if columns == inputs)
}

/// The note about tensors with a value for each column. Only a net says whether such a tensor lies before the matrix or
/// elsewhere.
fn as_long(tensors: &[Spec<'_>], found: &HashMap<String, Flattened>) -> Option<String> {
    let columns: HashSet<usize> = found.values().map(|flattened| flattened.extents().inputs()).collect();
    let alike = tensors.iter().filter(|spec| columns.contains(&spec.tensor.shape.count()));
    let left = alike.filter(|spec| !found.contains_key(data_name(spec.entry.name())));
    let alike: Vec<String> = left.map(|spec| spec.tensor.name.clone()).collect();
    (!alike.is_empty()).then(|| {
        let named = listed(&alike);
        format!("fc-from: values as many as columns stay as stored; --net would say whether they lie before: {named}")
    })
}

/// The misfit of several matrices with this many inputs: without a net, only a single such matrix surely follows the
/// flattening.
fn several(tensors: &[Spec<'_>], inputs: usize) -> Option<Misfit> {
    let all = tensors.iter().filter(|spec| role(spec).0 == Weights::InnerProduct && has_columns(spec, inputs));
    let names: BTreeSet<&str> = all.map(|spec| data_name(&spec.tensor.name)).collect();
    let names: Vec<String> = names.into_iter().map(|name| format!("{name:?}")).collect();
    (names.len() > 1).then(|| {
        let (names, how) = (names.join(", "), "`blob transpose FILE TENSOR --fc-from` permutes one");
        Misfit::about_all(format!("{names} all have {inputs} inputs, and one is expected: {how}"))
    })
}

//! Finds the tensors of a net that depend on the order in which channels and positions are flattened.
//!
//! `region` lists the layers that read one flattened value. All of these must be permuted, or none.

use std::collections::{HashMap, HashSet};

use blob_io::net::{Layer, LayerKind, Role};

use super::region::{Region, regions};
use super::{Extents, FcFrom, has_columns};
use crate::change::listed;
use crate::transform::binding::Bound;
use crate::transform::order::{self, Dependents, Order, is_computed};
use crate::transform::step::{Misfit, Spec};
use crate::transform::topology::{Feed, Wire, sources};

/// The part of a tensor that has the order of a flattening.
#[derive(Clone, Copy, Debug)]
pub(super) enum Flattened {
    /// The columns of a matrix.
    Columns(Extents),
    /// All values.
    Vector(Extents),
}

/// The roles of tensors with one value for each channel.
const BY_CHANNEL: [Role; 4] = [Role::Weight, Role::Bias, Role::Mean, Role::Variance];

/// The tensors of a net to permute.
#[derive(Debug, Default)]
pub(super) struct Permuted {
    /// By name in the file.
    pub(super) tensors: HashMap<String, Flattened>,
    /// Notes on inner products that stay, and on the net's outputs.
    pub(super) notes: Vec<String>,
    /// Notes on tensors that stay as stored, though the order changes, or is not known.
    pub(super) left: Vec<String>,
    /// The inner products whose height and width the net does not say.
    pub(super) trusted: Vec<String>,
}

/// The tensors to permute.
pub(super) fn of_net(wanted: &FcFrom, net: &Bound<'_>, tensors: &[Spec<'_>]) -> Result<Permuted, Vec<Misfit>> {
    let wires = sources(net);
    let mut search = Search {
        wanted,
        net,
        specs: tensors.iter().map(|spec| (spec.entry.name(), spec)).collect(),
        permuted: HashMap::new(),
        found: Permuted::default(),
        misfits: Vec::new(),
    };
    search.products(&wires);
    regions(net.net(), &wires).values().for_each(|region| search.region(region));
    search.owners();
    search.rows(&wires);
    search.staying(&wires);
    let Search { found, misfits, .. } = search;
    if misfits.is_empty() { Ok(found) } else { Err(misfits) }
}

struct Search<'s, 'a> {
    wanted: &'s FcFrom,
    net: &'s Bound<'a>,
    /// By name in the file.
    specs: HashMap<&'s str, &'s Spec<'s>>,
    /// The layers whose tensors are permuted.
    permuted: HashMap<*const Layer, Extents>,
    found: Permuted,
    misfits: Vec<Misfit>,
}

impl<'s> Search<'s, '_> {
    fn weight(&self, layer: &Layer) -> Option<&'s Spec<'s>> {
        self.specs.get(self.net.tensor(layer, Role::Weight)?).copied()
    }

    fn permute(&mut self, layer: &Layer, spec: &Spec<'_>, flattened: Flattened) {
        let (name, own) = (spec.entry.name(), flattened.extents());
        self.permuted.insert(layer, own);
        let other = self.found.tensors.insert(name.to_owned(), flattened).map(Flattened::extents);
        self.misfits.extend(
            other.filter(|other| *other != own).map(|other| {
                Misfit::new(name, format!("is {own} for {:?}, and {other} for another layer", layer.name))
            }),
        );
    }

    /// The inner products whose columns are permuted.
    fn products(&mut self, wires: &[Wire<'_>]) {
        let mut used = HashSet::new();
        for wire in wires.iter().filter(|wire| wire.layer.kind == LayerKind::InnerProduct) {
            let layer = wire.layer;
            let Some(spec) = self.weight(layer) else { continue };
            let named = [&*layer.name, spec.entry.name(), &*spec.tensor.name].into_iter().find_map(|name| {
                let extents = self.wanted.layers.get(name)?;
                used.insert(name.to_owned());
                Some(*extents)
            });
            let name = &spec.tensor.name;
            let of_all = self.wanted.extents.filter(|extents| {
                let is_turned = layer.transpose && spec.tensor.shape.dims().contains(&extents.inputs());
                is_turned || has_columns(spec, extents.inputs())
            });
            let Some(extents) = named.or(of_all) else { continue };
            match problem(wire, spec, extents) {
                Ok(()) => {
                    let is_told = known(wire, spec, extents).is_some();
                    self.found.trusted.extend((!is_told).then(|| name.clone()));
                    self.permute(layer, spec, Flattened::Columns(extents));
                }
                Err(None) => {
                    let note = format!("{name:?} stays: its inputs are those of another inner product");
                    self.found.notes.push(note);
                }
                Err(Some(problem)) => self.misfits.push(Misfit::new(name, problem)),
            }
        }
        let unused = self.wanted.layers.keys().filter(|name| !used.contains(*name));
        let problem = "is no inner product of the net with weights in the file";
        self.misfits.extend(unused.map(|name| Misfit::new(name, problem)));
    }

    /// Notes on the tensors that stay as stored, but depend on the order.
    fn staying(&mut self, wires: &[Wire<'_>]) {
        let Dependents { tensors, computed } = order::ordered(self.net, wires, &self.specs);
        let left = tensors.iter().filter(|tensor| !self.found.tensors.contains_key(tensor.spec.entry.name()));
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for tensor in left {
            match tensor.order {
                Order::First => known.push(tensor.spec.tensor.name.clone()),
                Order::Unknown if !tensor.is_last => unknown.push(tensor.spec.tensor.name.clone()),
                Order::Unknown | Order::Last => {}
            }
        }
        if !known.is_empty() {
            let stays =
                if known.len() == 1 { "1 tensor stays".to_owned() } else { format!("{} tensors stay", known.len()) };
            self.found.left.push(format!(
                "fc-from: {stays} as stored, though channels and positions are flattened before: {}; --fc-from \
                 LAYER=C,H,W takes an inner product, and what lies before it",
                listed(&known)
            ));
        }
        if !unknown.is_empty() {
            let names = listed(&unknown);
            self.found.left.push(format!(
                "fc-from: nothing says in which order channels and positions reach these, which stay as stored: {names}"
            ));
        }
        self.found.left.extend(computed.into_iter().map(computed_note));
    }

    /// The layers that read one flattened value: all of them are permuted, or none.
    fn region(&mut self, region: &Region<'_>) {
        let permuted = region.products.iter().find_map(|layer| Some((*layer, self.extents(layer)?)));
        let Some((first, extents)) = permuted else { return };
        let name = &first.name;
        for layer in &region.products {
            let problem = match (self.extents(layer), self.weight(layer)) {
                (Some(own), _) if own != extents => {
                    format!("takes {own}, and {name:?} takes {extents} of the same value")
                }
                (None, Some(_)) => format!(
                    "reads the same flattened value as {name:?}, which alone is permuted: --fc-from {extents}, or \
                     {}={extents} too",
                    layer.name
                ),
                (None, None) if is_computed(layer) => {
                    format!("reads the same flattened value as {name:?} by computed weights, which stay")
                }
                // Tensors that are not written need no order.
                _ => continue,
            };
            self.misfits.push(Misfit::new(&layer.name, problem));
        }
        for layer in &region.others {
            let problem = format!(
                "is a {} and reads the flattened value that {name:?} reads: it would find another order",
                layer.type_name
            );
            self.misfits.push(Misfit::new(&layer.name, problem));
        }
        for layer in &region.by_channel {
            for spec in self.vectors(layer) {
                match spec.tensor.shape.count() {
                    1 => {}
                    count if count == extents.inputs() => self.permute(layer, spec, Flattened::Vector(extents)),
                    count => {
                        let inputs = extents.inputs();
                        let problem = format!("has {count} values, and lies before {name:?}, of {inputs} inputs");
                        self.misfits.push(Misfit::new(&spec.tensor.name, problem));
                    }
                }
            }
        }
        if !region.outputs.is_empty() {
            let names: Vec<String> = region.outputs.iter().map(|layer| layer.name.clone()).collect();
            let names = listed(&names);
            self.found.notes.push(format!("fc-from: outputs of the net come out with the channels last: {names}"));
        }
    }

    /// The extents in which a layer's tensors are permuted.
    fn extents(&self, layer: &Layer) -> Option<Extents> {
        self.permuted.get(&std::ptr::from_ref(layer)).copied()
    }

    /// The tensors of a layer that have a value for each channel.
    fn vectors(&self, layer: &Layer) -> Vec<&'s Spec<'s>> {
        let names = BY_CHANNEL.iter().filter_map(|role| self.net.tensor(layer, *role));
        names.filter_map(|name| self.specs.get(name).copied()).collect()
    }

    /// Refuses tensors that one layer needs permuted and another reader uses as stored.
    fn owners(&mut self) {
        let mut names: Vec<&str> = self.found.tensors.keys().map(String::as_str).collect();
        names.sort_unstable();
        for name in names {
            let used = self.net.other_reader(name, |user| self.extents(user.layer).is_some());
            self.misfits.extend(
                used.map(|used| Misfit::new(name, format!("is permuted for one layer, and {used} uses it as it is"))),
            );
        }
    }

    /// Notes on rows that become channels and positions.
    fn rows(&mut self, wires: &[Wire<'_>]) {
        let rows = order::rows(self.net, wires, &self.specs).into_iter();
        self.found.left.extend(rows.map(|(spec, reader)| {
            format!(
                "the rows of {:?} stay, and become channels \u{d7} height \u{d7} width for {:?}: TensorFlow's reshape \
                 has the channels last",
                spec.tensor.name, reader.name
            )
        }));
    }
}

/// The note about an inner product with computed weights.
fn computed_note(layer: &Layer) -> String {
    let (name, order) = (&layer.name, "channels \u{d7} height \u{d7} width");
    format!("fc-from: {name:?} takes {order} by computed weights, which stay")
}

/// The extents that an inner product reads; `None` unless the net tells all extents and the weights have as many
/// columns.
fn known(wire: &Wire<'_>, spec: &Spec<'_>, wanted: Extents) -> Option<Extents> {
    let (Feed::Spatial { channels, .. }, Some([height, width])) = (wire.source, wire.size) else { return None };
    let whole = |extent: u64| usize::try_from(extent).ok();
    let channels = channels.map_or(Some(wanted.channels), whole)?;
    let extents = Extents { channels, height: whole(height)?, width: whole(width)? }.checked()?;
    has_columns(spec, extents.inputs()).then_some(extents)
}

/// The reason why an inner product cannot be permuted; no words for one that stays, behind another inner product.
fn problem(wire: &Wire<'_>, spec: &Spec<'_>, extents: Extents) -> Result<(), Option<String>> {
    let layer = wire.layer;
    let is_turned = layer.transpose;
    let problem = match wire.source {
        Feed::Vector(_) => return Err(None),
        _ if is_turned => {
            // The columns of a transposed matrix are outputs, so a permutation by name would take the wrong axis.
            return Err(Some("has its weights as input \u{d7} output (transpose: true)".to_owned()));
        }
        _ if !has_columns(spec, extents.inputs()) => {
            let (inputs, shape) = (extents.inputs(), &spec.tensor.shape);
            return Err(Some(format!("has shape {shape}, and is no matrix of {inputs} columns")));
        }
        Feed::Spatial { is_last: true, .. } => {
            let order = "in TensorFlow's order already";
            return Err(Some(format!(
                "reads values with the channels last, flattened {order}: --fc-from is not for it"
            )));
        }
        Feed::Spatial { channels: Some(channels), .. } if channels != extents.channels as u64 => {
            let (name, given) = (&layer.name, extents.channels);
            let how = format!("--fc-from {channels},H,W, or {name}={channels},H,W for this one alone");
            return Err(Some(format!("reads {channels} channels of the net, not {given}: {how}")));
        }
        Feed::Spatial { .. } if known(wire, spec, extents).is_some_and(|right| right != extents) => {
            let right = known(wire, spec, extents).unwrap_or(extents);
            let name = &layer.name;
            let how = format!("--fc-from {right}, or {name}={right} for this one alone");
            return Err(Some(format!("reads {right} (C,H,W) of the net, not {extents}: {how}")));
        }
        Feed::Spatial { .. } if layer.axis != 1 => format!("flattens from axis {} on", layer.axis),
        Feed::Spatial { flat: None, .. } if !layer.flatten => "flattens nothing (flatten: False)".to_owned(),
        Feed::Spatial { .. } => return Ok(()),
        Feed::Input(_) => "reads the net's input, not a convolution or a pooling".to_owned(),
        Feed::Own(_) => "reads values of the net's own, not a convolution or a pooling".to_owned(),
        Feed::Reshaped(product) => format!("reads outputs of {:?} that were reshaped", product.name),
        Feed::Mixed { layer: mixed, .. } => format!("reads {:?}, a {}", mixed.name, mixed.type_name),
    };
    Err(Some(format!("{problem}; `blob transpose FILE TENSOR --fc-from` permutes one by its name")))
}

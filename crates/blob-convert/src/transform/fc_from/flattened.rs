//! Finds in a net what depends on the order in which channels and positions are flattened.

use std::collections::{HashMap, HashSet};

use blob_io::net::{Layer, LayerKind, Role as Of};

use super::{Extents, FcFrom, has_columns};
use crate::transform::bound::Bound;
use crate::transform::step::{Misfit, Spec};
use crate::transform::wires::{Source, Wire, sources};

/// What a tensor has in the order of a flattening.
#[derive(Clone, Copy, Debug)]
pub(super) enum Flattened {
    /// The columns of a matrix.
    Columns(Extents),
    /// All of its values.
    Vector(Extents),
}

/// The roles of tensors with one value for each channel.
const BY_CHANNEL: [Of; 4] = [Of::Weight, Of::Bias, Of::Mean, Of::Variance];

/// The tensors to permute, by their names in the file. Notes say which inner products stay because they follow another
/// one, and which give their outputs to a convolution; `trusted` are those of whose height and width the net says
/// nothing.
pub(super) fn of_net(
    wanted: &FcFrom,
    net: &Bound<'_>,
    tensors: &[Spec<'_>],
    (notes, trusted): (&mut Vec<String>, &mut Vec<String>),
) -> Result<HashMap<String, Flattened>, Vec<Misfit>> {
    let places: HashMap<&str, &Spec<'_>> = tensors.iter().map(|spec| (spec.entry.name(), spec)).collect();
    let wires = sources(net.net());
    let (mut found, mut misfits, mut used) = (HashMap::new(), Vec::new(), HashSet::new());
    // The extents of each flattened value, by the inner products that read it.
    let mut flats: HashMap<usize, Extents> = HashMap::new();
    for wire in wires.iter().filter(|wire| wire.layer.kind == LayerKind::InnerProduct) {
        let layer = wire.layer;
        let Some(weight) = net.tensor(layer, Of::Weight) else { continue };
        let Some(spec) = places.get(weight) else { continue };
        let named = [&*layer.name, weight, &*spec.tensor.name].into_iter().find_map(|name| {
            let extents = wanted.layers.get(name)?;
            used.insert(name.to_owned());
            Some(*extents)
        });
        let fits = |extents: &Extents| {
            let is_turned = layer.transpose && spec.tensor.shape.dims().contains(&extents.inputs());
            is_turned || has_columns(spec, extents.inputs())
        };
        let Some(extents) = named.or_else(|| wanted.extents.filter(fits)) else { continue };
        match problem(wire, spec, extents) {
            Ok(()) => {
                trusted.extend(known(wire, spec, extents).is_none().then(|| spec.tensor.name.clone()));
                found.insert(weight.to_owned(), Flattened::Columns(extents));
                if let Source::Spatial { flat: Some(flat), .. } = wire.source {
                    flats.entry(flat).or_insert(extents);
                }
            }
            Err(None) => {
                notes.push(format!("{:?} stays: its inputs are those of another inner product", spec.tensor.name));
            }
            Err(Some(problem)) => misfits.push(Misfit::new(&spec.tensor.name, problem)),
        }
    }
    misfits.extend(
        wanted
            .layers
            .keys()
            .filter(|name| !used.contains(*name))
            .map(|name| Misfit::new(name, "is no inner product of the net with weights in the file")),
    );
    for wire in &wires {
        let Source::Spatial { flat: Some(flat), .. } = wire.source else { continue };
        let Some(extents) = flats.get(&flat).filter(|_| is_by_channel(wire.layer)) else { continue };
        let own = BY_CHANNEL.iter().filter_map(|role| net.tensor(wire.layer, *role));
        found.extend(own.map(|name| (name.to_owned(), Flattened::Vector(*extents))));
    }
    notes.extend(wires.iter().filter_map(|wire| match wire.source {
        Source::Reshaped(product) if is_spatial(wire.layer) => {
            let weight = net.tensor(product, Of::Weight)?;
            Some(format!(
                "the rows of {weight:?} stay, and become channels \u{d7} height \u{d7} width for {:?}: TensorFlow's \
                 reshape has the channels last",
                wire.layer.name
            ))
        }
        _ => None,
    }));
    if misfits.is_empty() { Ok(found) } else { Err(misfits) }
}

fn is_by_channel(layer: &Layer) -> bool {
    let kinds = [LayerKind::BatchNorm, LayerKind::Bn, LayerKind::Scale, LayerKind::Bias, LayerKind::PRelu];
    kinds.contains(&layer.kind)
}

fn is_spatial(layer: &Layer) -> bool {
    matches!(layer.kind, LayerKind::Convolution | LayerKind::Deconvolution) || layer.type_name == "Pooling"
}

/// The extents that an inner product reads, where the net tells them all and they are as many as the weights want.
fn known(wire: &Wire<'_>, spec: &Spec<'_>, wanted: Extents) -> Option<Extents> {
    let (Source::Spatial { channels, .. }, Some([height, width])) = (wire.source, wire.size) else { return None };
    let whole = |extent: u64| usize::try_from(extent).ok();
    let channels = channels.map_or(Some(wanted.channels), whole)?;
    let extents = Extents { channels, height: whole(height)?, width: whole(width)? }.checked()?;
    has_columns(spec, extents.inputs()).then_some(extents)
}

/// Why an inner product cannot be permuted; no words where it stays because it follows another one.
fn problem(wire: &Wire<'_>, spec: &Spec<'_>, extents: Extents) -> Result<(), Option<String>> {
    let layer = wire.layer;
    let is_turned = layer.transpose;
    let problem = match wire.source {
        Source::Vector(_) => return Err(None),
        _ if is_turned => {
            // The columns of a transposed matrix are its outputs, so naming it would permute the wrong axis.
            return Err(Some("has its weights as input \u{d7} output (transpose: true)".to_owned()));
        }
        _ if !has_columns(spec, extents.inputs()) => {
            let (inputs, shape) = (extents.inputs(), &spec.tensor.shape);
            return Err(Some(format!("has shape {shape}, and is no matrix of {inputs} columns")));
        }
        Source::Spatial { channels: Some(channels), .. } if channels != extents.channels as u64 => {
            let (name, given) = (&layer.name, extents.channels);
            let how = format!("--fc-from {channels},H,W, or {name}={channels},H,W for this one alone");
            return Err(Some(format!("reads {channels} channels of the net, not {given}: {how}")));
        }
        Source::Spatial { .. } if known(wire, spec, extents).is_some_and(|right| right != extents) => {
            let right = known(wire, spec, extents).unwrap_or(extents);
            let name = &layer.name;
            let how = format!("--fc-from {right}, or {name}={right} for this one alone");
            return Err(Some(format!("reads {right} (C,H,W) of the net, not {extents}: {how}")));
        }
        Source::Spatial { .. } if layer.axis != 1 => format!("flattens from axis {} on", layer.axis),
        Source::Spatial { flat: None, .. } if !layer.flatten => "flattens nothing (flatten: False)".to_owned(),
        Source::Spatial { .. } => return Ok(()),
        Source::Input(_) => "reads the net's input, not a convolution or a pooling".to_owned(),
        Source::Reshaped(product) => format!("reads outputs of {:?} that were reshaped", product.name),
        Source::Mixed(mixed, _) => format!("reads {:?}, a {}", mixed.name, mixed.type_name),
    };
    Err(Some(format!("{problem}; `blob transpose FILE TENSOR --fc-from` permutes one by its name")))
}

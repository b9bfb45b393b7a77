//! `rgb`: reverses the input channels of the first convolution, so that a net trained on BGR takes RGB images.

use std::collections::{HashMap, HashSet};

use blob_io::net::{Layer, LayerKind, Net, Role};
use serde_json::{Value, json};

use super::binding::{Bound, User, listed};
use super::reorder::Reorder;
use super::role::{Weights, data_name, role};
use super::step::{Context, Fact, Made, Misfit, Outcome, Spec, Transform, Undone};
use super::topology::{Feed, Wire, sources, wired};

/// Reverses the three input channels of the first convolution: Caffe loads images by OpenCV, as BGR.
///
/// If a net says which layer reads what, the step reverses every convolution that reads the net's input, and the input
/// must reach nothing else. Otherwise the step reverses the one convolution in the file that has three input channels.
#[derive(Clone, Copy, Debug)]
pub struct Rgb;

impl Transform for Rgb {
    fn name(&self) -> &'static str {
        "rgb"
    }

    fn settings(&self) -> Value {
        json!({})
    }

    fn fits_net(&self) -> bool {
        true
    }

    fn undone(&self) -> Undone<'_> {
        Undone::Reordered
    }

    fn only_once(&self) -> Option<String> {
        Some("reversed to RGB".to_owned())
    }

    fn relies_on(&self) -> &'static [Fact] {
        &[Fact::Axes]
    }

    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let net = wired(context).map_err(|misfit| vec![misfit])?;
        let first = net.as_ref().map_or_else(|| of_file(tensors), |net| of_net(net, tensors))?;
        let first: HashMap<&str, &First<'_, '_>> =
            first.iter().map(|first| (data_name(first.0.entry.name()), first)).collect();
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            // The diff of the weights is reversed, too.
            let found = first.get(data_name(spec.entry.name())).filter(|(of, _)| of.tensor.shape == spec.tensor.shape);
            let Some((_, axis)) = found else { return Made::same(place, spec) };
            let guess = net.is_none().then_some("weights of the first convolution");
            let order = Reorder::backwards(spec.tensor.shape.dims(), *axis);
            Made::computed(spec.tensor.clone(), vec![place], order)
                .with_change("input channels reversed")
                .guessed(guess)
        });
        Ok(made.collect())
    }

    fn follows_net(&self) -> bool {
        true
    }

    fn follows_edges(&self) -> bool {
        true
    }
}

/// Weights, and the axis of input channels.
type First<'s, 'a> = (&'s Spec<'a>, usize);

/// The weights of the convolutions that read the net's input.
fn of_net<'s, 'a>(net: &Bound<'_>, tensors: &'s [Spec<'a>]) -> Result<Vec<First<'s, 'a>>, Vec<Misfit>> {
    let all = sources(net);
    let (mut first, mut own, mut misfits) = (Vec::new(), HashMap::new(), Vec::new());
    let places: HashMap<&str, &Spec<'a>> = tensors.iter().map(|spec| (spec.entry.name(), spec)).collect();
    let mut images = images(net, &all);
    for wire in all.iter().filter(|wire| wire.source.input().is_some()) {
        let layer = wire.layer;
        let spec = net.tensor(layer, Role::Weight).and_then(|weight| places.get(weight).copied());
        let axis =
            spec.map_or(1, |spec| if layer.channels_last { spec.tensor.shape.num_axes().saturating_sub(1) } else { 1 });
        let channels = spec.and_then(|spec| spec.tensor.shape.dims().get(axis));
        let problem = match (layer.kind, wire.source, spec) {
            (LayerKind::Deconvolution | LayerKind::InnerProduct, ..) => {
                format!("reads the net's input and is a {}, not a convolution", layer.type_name)
            }
            (LayerKind::Convolution, Feed::Mixed { layer: mixed, .. }, _) => {
                format!("reads the net's input through {:?}, a {}", mixed.name, mixed.type_name)
            }
            (LayerKind::Convolution, _, None) => "reads the net's input, and its weights are not there".to_owned(),
            (LayerKind::Convolution, _, _) if layer.group != 1 => {
                format!("reads the net's input in {} groups", layer.group)
            }
            (LayerKind::Convolution, _, Some(spec)) if channels == Some(&3) => {
                images.extend(&wire.inputs);
                own.insert(std::ptr::from_ref(layer), axis);
                first.push((spec, axis));
                continue;
            }
            (LayerKind::Convolution, _, Some(spec)) => {
                let shape = &spec.tensor.shape;
                format!("reads the net's input, and its weights, of shape {shape}, have not three input channels")
            }
            _ => continue,
        };
        misfits.push(Misfit::new(&layer.name, problem));
    }
    if images.iter().any(|image| net.net().uses(*image) > net.net().readers(*image).count()) {
        misfits.push(Misfit::about_all(
            "the net gives its input as an output, too, whose channels would come out reversed",
        ));
    }
    misfits.extend(shared(net, &first, &own));
    misfits.extend(elsewhere(net.net(), &all, &images));
    if first.is_empty() && misfits.is_empty() {
        misfits.push(Misfit::about_all("no convolution reads the net's input"));
    }
    if misfits.is_empty() { Ok(first) } else { Err(misfits) }
}

/// The weights that another reader than the first convolutions takes as stored, under the same name or by a name of
/// Caffe's `param`. `own` has the first convolutions, each with the axis that is reversed.
fn shared(net: &Bound<'_>, first: &[First<'_, '_>], own: &HashMap<*const Layer, usize>) -> Vec<Misfit> {
    let mut reversed: HashMap<&str, usize> = first.iter().map(|(spec, axis)| (spec.entry.name(), *axis)).collect();
    for copies in net.net().copies() {
        let axis = copies.iter().find_map(|copy| reversed.get(&**copy).copied());
        reversed.extend(axis.into_iter().flat_map(|axis| copies.iter().map(move |copy| (&**copy, axis))));
    }
    let mut misfits = Vec::new();
    for (name, axis) in reversed {
        let used = net.other_reader(name, |User { layer, role }| {
            role == Role::Weight && own.get(&std::ptr::from_ref(layer)) == Some(&axis)
        });
        misfits.extend(used.map(|used| {
            Misfit::new(name, format!("has its channels reversed for the net's input, and {used} uses it as it is"))
        }));
    }
    misfits.sort_by(|a, b| a.tensor.cmp(&b.tensor));
    misfits
}

/// The layers through which an image reaches the net's output without a convolution. With reversed channels, the image
/// would meet values with unreversed channels.
fn elsewhere(net: &Net, all: &[Wire<'_>], images: &HashSet<usize>) -> Vec<Misfit> {
    let reading = all.iter().filter(|wire| wire.inputs.iter().any(|input| images.contains(input)));
    let mut misfits = Vec::new();
    for wire in reading {
        let layer = wire.layer;
        let problem = match layer.kind {
            LayerKind::Convolution | LayerKind::Deconvolution | LayerKind::InnerProduct => continue,
            // The outputs carry the same channels on.
            _ if wire.is_plain && !layer.tops.iter().any(|top| net.is_output(*top)) => continue,
            _ if wire.is_plain => format!("is a {} and gives the net's input as an output", layer.type_name),
            _ => format!("is a {} and reads the net's input, whose channels it would find reversed", layer.type_name),
        };
        misfits.push(Misfit::new(&layer.name, problem));
    }
    misfits
}

/// The net's inputs that are images: three channels, and sides other than 1×1. An input without stated extents is an
/// image if a layer has a value for each of three channels.
fn images(net: &Bound<'_>, all: &[Wire<'_>]) -> HashSet<usize> {
    let read = all.iter().flat_map(|wire| wire.inputs.iter().map(move |input| (*input, wire.layer)));
    let images = read.filter(|(input, layer)| match net.net().extents(*input) {
        Some([_, channels, sides @ ..]) => channels == 3 && sides != [1, 1],
        None => {
            let counts = [Role::Weight, Role::Bias, Role::Mean].map(|role| net.count(layer, role));
            layer.kind != LayerKind::InnerProduct && counts.contains(&Some(3))
        }
    });
    images.map(|(input, _)| input).collect()
}

/// The weights of the one convolution with three input channels. The order of a file says nothing: HDF5 and others sort
/// by name, and a merged file has the layers in order of arrival.
fn of_file<'s, 'a>(tensors: &'s [Spec<'a>]) -> Result<Vec<First<'s, 'a>>, Vec<Misfit>> {
    let data = tensors.iter().filter(|spec| data_name(spec.entry.name()) == spec.entry.name());
    let all: Vec<&Spec<'_>> = data.filter(|spec| role(spec).0 == Weights::Convolution).collect();
    let turned = |spec: &Spec<'a>| spec.entry.layer_type().filter(|kind| kind.contains("Deconvolution"));
    let of_three = all.iter().filter(|spec| {
        let axis = usize::from(turned(spec).is_none());
        spec.tensor.shape.dims().get(axis) == Some(&3)
    });
    let problem = match &of_three.collect::<Vec<_>>()[..] {
        [one] => match turned(one) {
            None => return Ok(vec![(one, 1)]),
            Some(kind) => format!("{:?} alone has three input channels, and is a {kind}", one.tensor.name),
        },
        [] if all.is_empty() => "there are no weights of a convolution".to_owned(),
        [] => "there are no weights of a convolution with three input channels".to_owned(),
        several => {
            let names: Vec<&str> = several.iter().map(|spec| &*spec.tensor.name).collect();
            let listed = listed(&names);
            format!("{listed} have three input channels; only a net says which read the image: name it by --net")
        }
    };
    Err(vec![Misfit::about_all(problem)])
}

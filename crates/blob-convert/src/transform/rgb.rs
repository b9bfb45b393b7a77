//! `rgb`: reverses the input channels of the first convolution, so that a net trained on BGR takes RGB images.

use blob_io::net::{LayerKind, Net, Role as Of};
use serde_json::{Value, json};

use super::reorder::Reorder;
use super::role::{By, Role, guessed, role};
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform};
use super::wires::{Source, sources, wired};

/// Reverses the three input channels of the first convolution: Caffe loads images by OpenCV, as BGR.
///
/// If the file describes its net, this applies to every convolution that reads the net's input; otherwise to the first
/// in the file.
#[derive(Clone, Copy, Debug)]
pub struct Rgb;

impl Transform for Rgb {
    fn name(&self) -> &'static str {
        "rgb"
    }

    fn settings(&self) -> Value {
        json!({})
    }

    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let (first, note) = match wired(context)? {
            Some(net) => (of_net(&net, tensors)?, None),
            None => of_file(tensors)?,
        };
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            // Its diff is reversed too.
            let is_first = first.iter().any(|first| {
                let place = |spec: &Spec<'_>| (spec.entry.position(), spec.entry.index());
                place(spec) == place(first) && spec.tensor.shape == first.tensor.shape
            });
            if !is_first {
                return Made::same(place, spec);
            }
            let order = Reorder::backwards(spec.tensor.shape.dims());
            Made::computed(spec.tensor.clone(), vec![place], order).with_change("input channels reversed")
        });
        let mut outcome: Outcome = made.collect();
        outcome.notes.extend(note);
        Ok(outcome)
    }
}

/// The weights of the convolutions that read the net's input.
fn of_net<'s, 'a>(net: &Net, tensors: &'s [Spec<'a>]) -> Result<Vec<&'s Spec<'a>>, Vec<Misfit>> {
    let all = sources(net);
    let (mut first, mut misfits) = (Vec::new(), Vec::new());
    let is_first = |kind: LayerKind, source: &Source<'_>| kind == LayerKind::Convolution && source.is_input();
    let shares_with_others = all.iter().any(|(layer, source)| layer.shares_tensors && !is_first(layer.kind, source));
    for (layer, source) in all.iter().filter(|(_, source)| source.is_input()) {
        let weight = layer.tensor(Of::Weight);
        let spec = tensors.iter().find(|spec| Some(spec.entry.name()) == weight);
        let dims = spec.map(|spec| spec.tensor.shape.dims()).unwrap_or_default();
        let problem = match (layer.kind, source, spec) {
            (LayerKind::Deconvolution | LayerKind::InnerProduct, ..) => {
                format!("reads the net's input and is a {}, not a convolution", layer.type_name)
            }
            (LayerKind::Convolution, Source::Mixed(mixed, _), _) => {
                format!("reads the net's input through {:?}, a {}", mixed.name, mixed.type_name)
            }
            (LayerKind::Convolution, _, None) => "reads the net's input, and its weights are not there".to_owned(),
            (LayerKind::Convolution, _, _) if layer.group != 1 => {
                format!("reads the net's input in {} groups", layer.group)
            }
            (LayerKind::Convolution, _, _) if layer.shares_tensors && shares_with_others => {
                "reads the net's input, and may share its weights with a layer that does not".to_owned()
            }
            (LayerKind::Convolution, _, Some(spec)) if dims.get(1) == Some(&3) => {
                first.push(spec);
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
    if first.is_empty() && misfits.is_empty() {
        misfits.push(Misfit::about_all("no convolution reads the net's input"));
    }
    if misfits.is_empty() { Ok(first) } else { Err(misfits) }
}

/// The first convolution weights in the file, with a note if they are recognised by name and shape only.
fn of_file<'s, 'a>(tensors: &'s [Spec<'a>]) -> Result<(Vec<&'s Spec<'a>>, Option<String>), Vec<Misfit>> {
    let is_weight = |spec: &&Spec<'_>| role(spec).0 == Role::Convolution;
    let Some(first) = tensors.iter().find(is_weight) else {
        return Err(vec![Misfit::about_all("there are no weights of a convolution")]);
    };
    let shape = &first.tensor.shape;
    let kind = first.entry.layer_type().filter(|kind| kind.contains("Deconvolution"));
    let problem = match kind {
        Some(kind) => format!("is the first of the convolutions, and a {kind}"),
        None if shape.dims().get(1) != Some(&3) => {
            format!("is the first convolution, of shape {shape}, and has not three input channels")
        }
        None => {
            return Ok((
                vec![first],
                guessed(usize::from(role(first).1 == By::Shape), "the weights of the first convolution"),
            ));
        }
    };
    Err(vec![Misfit::new(&first.tensor.name, problem)])
}

//! `fc-from`: permutes the columns of a fully connected layer after a flattening, for frameworks that flatten channels
//! last.
//!
//! Caffe, MXNet and torch flatten channels × height × width; TensorFlow and Keras flatten height × width × channels.

use std::collections::{BTreeSet, HashMap, HashSet};

use blob_io::net::{LayerKind, Net, Role as Of};
use serde_json::{Value, json};

use super::permute::{lacking, names};
use super::reorder::Reorder;
use super::role::{By, Role, guessed, role};
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform};
use super::wires::{Source, sources, wired};

/// Permutes the columns of inner products with channels × height × width inputs to height × width × channels.
///
/// If the file describes its net, the ones after a convolution or a pooling are permuted; otherwise only one matrix in
/// the file may have that many columns.
#[derive(Clone, Debug)]
pub struct FcFrom {
    extents: [usize; 3],
    /// The matrices to permute; `None` for all matching inner products.
    tensors: Option<Vec<String>>,
}

impl FcFrom {
    /// For inputs of these channels, height and width; `None` if their product is 0 or overflows.
    #[must_use]
    pub fn new(channels: usize, height: usize, width: usize) -> Option<Self> {
        let inputs = channels.checked_mul(height)?.checked_mul(width)?;
        (inputs > 0).then_some(Self { extents: [channels, height, width], tensors: None })
    }

    /// Permutes exactly these matrices, whatever kind of layer they belong to.
    #[must_use]
    pub fn of(self, tensors: Vec<String>) -> Self {
        Self { tensors: Some(tensors), ..self }
    }

    pub(super) fn read(settings: &Value) -> Option<Self> {
        let extent = |name: &str| settings[name].as_u64().and_then(|n| usize::try_from(n).ok());
        let made = Self::new(extent("channels")?, extent("height")?, extent("width")?)?;
        Some(match &settings["tensors"] {
            Value::Null => made,
            tensors => made.of(names(tensors)?),
        })
    }
}

impl Transform for FcFrom {
    fn name(&self) -> &'static str {
        "fc-from"
    }

    fn settings(&self) -> Value {
        let [channels, height, width] = self.extents;
        let mut settings = json!({ "channels": channels, "height": height, "width": width });
        if let Some(tensors) = &self.tensors {
            settings["tensors"] = json!(tensors);
        }
        settings
    }

    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let [channels, height, width] = self.extents;
        let inputs = channels * height * width;
        let named: Option<HashSet<&str>> = self.tensors.as_ref().map(|all| all.iter().map(|name| &**name).collect());
        let mut misfits = lacking(self.tensors.as_deref().unwrap_or_default(), tensors);
        let net = if named.is_none() { wired(context)? } else { None };
        let (stay, refused) = net.as_ref().map(|net| of_net(net, tensors, inputs)).unwrap_or_default();
        misfits.extend(refused);
        if named.is_none() && net.is_none() {
            misfits.extend(several(tensors, inputs));
        }
        let (mut by_shape, mut count) = (0, 0);
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            let same = Made::same(place, spec);
            let (is_meant, by) = match &named {
                Some(named) => (named.contains(&*spec.tensor.name), By::Type),
                None => (role(spec).0 == Role::InnerProduct && !stay.contains(&place), role(spec).1),
            };
            match *spec.tensor.shape.dims() {
                [rows, columns] | [1, 1, rows, columns] if is_meant && columns == inputs => {
                    count += 1;
                    by_shape += usize::from(by == By::Shape);
                    let order = Reorder::permuted(&[rows, channels, height, width], &[0, 2, 3, 1]);
                    let change =
                        format!("columns permuted from {channels}\u{d7}{height}\u{d7}{width} to channels last");
                    Made::computed(spec.tensor.clone(), vec![place], order).with_change(change)
                }
                _ if is_meant && named.is_some() => {
                    let problem = format!("has shape {}, and is no matrix of {inputs} columns", spec.tensor.shape);
                    misfits.push(Misfit::new(&spec.tensor.name, problem));
                    same
                }
                _ => same,
            }
        });
        let mut outcome: Outcome = made.collect();
        if count == 0 && misfits.is_empty() {
            misfits.push(Misfit::about_all(format!("no weights of an inner product have {inputs} inputs")));
        }
        outcome.notes.extend(guessed(by_shape, "weights of inner products"));
        let behind = |place: &usize| {
            format!("{:?} stays: its inputs are those of another inner product", tensors[*place].tensor.name)
        };
        outcome.notes.extend(stay.iter().map(behind));
        if misfits.is_empty() { Ok(outcome) } else { Err(misfits) }
    }
}

/// Whether it is a matrix with this number of columns.
fn has_columns(spec: &Spec<'_>, inputs: usize) -> bool {
    matches!(*spec.tensor.shape.dims(), [_, columns] | [1, 1, _, columns] if columns == inputs)
}

/// Among the inner products with this many inputs: the places of those that stay because they follow another inner
/// product, and those that cannot be permuted, with the reason.
fn of_net(net: &Net, tensors: &[Spec<'_>], inputs: usize) -> (Vec<usize>, Vec<Misfit>) {
    let (mut stay, mut misfits) = (Vec::new(), Vec::new());
    let places: HashMap<&str, usize> =
        tensors.iter().enumerate().map(|(place, spec)| (spec.entry.name(), place)).collect();
    for (layer, source) in sources(net).into_iter().filter(|(layer, _)| layer.kind == LayerKind::InnerProduct) {
        let Some(place) = layer.tensor(Of::Weight).and_then(|name| places.get(name)).copied() else { continue };
        let spec = &tensors[place];
        let is_turned = layer.transpose && spec.tensor.shape.dims().contains(&inputs);
        if !is_turned && !has_columns(spec, inputs) {
            continue;
        }
        let problem = match source {
            Source::Vector => {
                stay.push(place);
                continue;
            }
            _ if is_turned => "has its weights as input \u{d7} output (transpose: true)".to_owned(),
            Source::Spatial if layer.axis == 1 => continue,
            Source::Spatial => format!("flattens from axis {} on", layer.axis),
            Source::Input => "reads the net's input, not a convolution or a pooling".to_owned(),
            Source::Mixed(mixed, _) => format!("reads {:?}, a {}", mixed.name, mixed.type_name),
        };
        // The columns of a transposed matrix are its outputs, so naming it would permute the wrong axis.
        let how = if is_turned { "" } else { "; `blob transpose FILE TENSOR --fc-from` permutes one by its name" };
        let named = format!("{problem}{how}");
        misfits.push(Misfit::new(&spec.tensor.name, named));
    }
    (stay, misfits)
}

/// Without a net, it is clear which matrix follows the flattening only if there is just one.
fn several(tensors: &[Spec<'_>], inputs: usize) -> Option<Misfit> {
    let all = tensors.iter().filter(|spec| role(spec).0 == Role::InnerProduct && has_columns(spec, inputs));
    let names: BTreeSet<&str> =
        all.map(|spec| spec.tensor.name.strip_suffix(".diff").unwrap_or(&spec.tensor.name)).collect();
    let names: Vec<String> = names.into_iter().map(|name| format!("{name:?}")).collect();
    (names.len() > 1).then(|| {
        let (names, how) = (names.join(", "), "`blob transpose FILE TENSOR --fc-from` permutes one");
        Misfit::about_all(format!("{names} all have {inputs} inputs, and one is expected: {how}"))
    })
}

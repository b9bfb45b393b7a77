//! `fc-from`: the columns of an inner product behind a flattening, for a framework that flattens channels last.
//!
//! Caffe, MXNet and torch flatten channels × height × width; TensorFlow and Keras flatten height × width × channels.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::permute::{lacking, names};
use super::reorder::Reorder;
use super::role::{By, Role, guessed, role};
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform};

/// Permutes the columns of the inner products that have as many inputs as the extents say: from channels × height × width to
/// height × width × channels.
#[derive(Clone, Debug)]
pub struct FcFrom {
    extents: [usize; 3],
    /// The matrices that are meant; all inner products where there are none.
    tensors: Option<Vec<String>>,
}

impl FcFrom {
    /// Behind an output of so many channels, of this height and width; `None` where there are no inputs, or more than can be
    /// counted.
    #[must_use]
    pub fn new(channels: usize, height: usize, width: usize) -> Option<Self> {
        let inputs = channels.checked_mul(height)?.checked_mul(width)?;
        (inputs > 0).then_some(Self { extents: [channels, height, width], tensors: None })
    }

    /// The matrices of these names, whatever they are to their layers.
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

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let [channels, height, width] = self.extents;
        let inputs = channels * height * width;
        let named: Option<HashSet<&str>> = self.tensors.as_ref().map(|all| all.iter().map(|name| &**name).collect());
        let mut misfits = lacking(self.tensors.as_deref().unwrap_or_default(), tensors);
        let (mut by_shape, mut count) = (0, 0);
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            let same = Made::same(place, spec);
            let (is_meant, by) = match &named {
                Some(named) => (named.contains(&*spec.tensor.name), By::Type),
                None => (role(spec).0 == Role::InnerProduct, role(spec).1),
            };
            match *spec.tensor.shape.dims() {
                [rows, columns] | [1, 1, rows, columns] if is_meant && columns == inputs => {
                    count += 1;
                    by_shape += usize::from(by == By::Shape);
                    let order = Reorder::permuted(&[rows, channels, height, width], &[0, 2, 3, 1]);
                    let change =
                        format!("columns permuted from {channels}\u{d7}{height}\u{d7}{width} to channels last");
                    Made::computed(spec.tensor.clone(), vec![place], order).saying(change)
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
        if misfits.is_empty() { Ok(outcome) } else { Err(misfits) }
    }
}

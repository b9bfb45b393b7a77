//! The facts that make a recipe's step exact, where the step leaves settings to the source and the net.

use blob_io::net::{LayerKind, Role};
use blob_io::{Checkpoint, Error, Format, Remedy};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::binding::Bound;
use super::followed::Topology;
use super::norm::Variance;

/// The conversion that a step is made for.
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    /// The format of the output.
    pub(crate) to: Format,
    /// The net that the conversion follows.
    net: Option<&'a Topology>,
    /// The net's layers with the layers' tensors, but for layers that are folded.
    pub(crate) bound: Option<Bound<'a>>,
    /// Whether the recipe names the net.
    pub(crate) is_given: bool,
    /// Whether another step wants this one, and the recipe does not name it.
    pub(crate) is_implied: bool,
    /// The eps that the recipe moves all normalisations to.
    pub(crate) eps: Option<f64>,
    /// The eps of the file's variances, as far as the source's receipt states any.
    pub(crate) stated: Vec<Variance>,
}

/// Settings without a choice.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl<'a> Wish<'a> {
    /// # Errors
    /// A net with layers that claim one tensor for two things.
    pub(crate) fn new(
        checkpoint: &'a Checkpoint,
        to: Format,
        net: Option<&'a Topology>,
        bound: Option<Bound<'a>>,
    ) -> Result<Self, Error> {
        let wish =
            Self { checkpoint, to, net, bound, is_given: false, is_implied: false, eps: None, stated: Vec::new() };
        match wish.bound.as_ref().map(Bound::clashes) {
            None | Some([]) => Ok(wish),
            Some(clashes) => {
                Err(wish.lacks(format!("the net does not fit: {}", clashes.join("; ")), Remedy::LayerNames))
            }
        }
    }

    /// The net, with the edges between layers.
    ///
    /// # Errors
    /// A missing net, a net without edges, and a net in which a layer reads a value that a later layer writes.
    pub(super) fn wired(&self) -> Result<(&Topology, &Bound<'a>), Error> {
        let Some((net, bound)) = self.net.zip(self.bound.as_ref()).filter(|(net, _)| net.is_wired()) else {
            return Err(self.lacks("no net says what its layers read".to_owned(), Remedy::NetOrSymbol));
        };
        match net.net().disorder() {
            Some(why) => Err(self.refused(format!("the net does not fit: {why}"))),
            None => Ok((net, bound)),
        }
    }

    /// Refuses a net that the recipe names, if no BatchNorm of the net has a tensor of this role in the file.
    pub(super) fn check_role(&self, step: &str, role: Role, what: &str) -> Result<(), Error> {
        let Some(bound) = self.bound.as_ref().filter(|_| self.is_given && !self.is_implied) else { return Ok(()) };
        let mut norms = bound.net().layers().iter().filter(|layer| {
            layer.kind == LayerKind::BatchNorm || layer.kind == LayerKind::Bn && role == Role::Variance
        });
        if norms.any(|layer| bound.tensor(layer, role).is_some()) {
            return Ok(());
        }
        let message = format!("{step}: no BatchNorm of the net has its {what} in the file");
        Err(self.lacks(message, Remedy::OtherNet))
    }

    /// Reads settings.
    pub(super) fn settings<T: DeserializeOwned>(&self, step: &str, settings: &Value) -> Result<T, Error> {
        T::deserialize(settings)
            .map_err(|e| self.refused(format!("the step {step:?} has settings that cannot be read: {e}")))
    }

    /// Refuses settings where the step has none.
    pub(super) fn no_settings(&self, step: &str, settings: &Value) -> Result<(), Error> {
        if settings.is_null() { Ok(()) } else { self.settings(step, settings).map(|Nothing {}| ()) }
    }

    pub(crate) fn refused(&self, message: String) -> Error {
        Error::Request { file: self.checkpoint.name().to_owned(), message }
    }

    pub(super) fn lacks(&self, message: String, remedy: Remedy) -> Error {
        Error::misfit(self.checkpoint.name(), message, remedy)
    }
}

//! The way back to a file's tensors before the conversions that the receipt lists: the earlier names, and the factors
//! of BatchNorms.
//!
//! The [`Undone`] of each step says how to undo the step. Where a receipt had no room for a step, the way back ends,
//! and a change or an error says so.

mod walk;

use std::path::Path;
use std::sync::Arc;

use blob_io::caffe::Message;
use blob_io::{Checkpoint, Error, Format, Remedy};

use crate::change::{Change, Effect};
use crate::goal::has_layers;
use crate::history::Origin;
use crate::transform::{Factors, Names, Norm, Registry, Transform};
use walk::Walk;

/// The names that an output needs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    Any,
    /// `<layer>/<index>`.
    Layers,
    /// MXNet's own, where the tensors had such names before PyTorch's. MXNet's files hold any name.
    Mxnet,
    /// The names in the file that the tensors go into.
    Of {
        /// The file.
        base: &'a Checkpoint,
        /// The steps that are undone for this file.
        undone: &'a [String],
    },
}

/// The names that a file of a format needs.
pub(crate) fn wanted(to: Format, path: Option<&Path>) -> Wanted<'static> {
    if has_layers(to, path) {
        Wanted::Layers
    } else if to.is_mxnet() {
        Wanted::Mxnet
    } else {
        Wanted::Any
    }
}

impl<'a> Wanted<'a> {
    /// The number of tensors that the output takes under the names at a point of the way.
    fn fitting(self, walk: &Walk<'_>) -> usize {
        match self {
            Self::Any => walk.names().count(),
            Self::Layers => match Message::named(Format::CaffeModel, walk.names(), &[]) {
                Ok(_) => walk.names().count(),
                Err(_) => 0,
            },
            Self::Mxnet if walk.has_torchs_names() => 0,
            Self::Mxnet => walk.names().count(),
            Self::Of { base, .. } => walk.names().filter(|name| base.entry(name).is_some()).count(),
        }
    }

    /// The steps that do not block the way back.
    fn undone(self) -> &'a [String] {
        if let Self::Of { undone, .. } = self { undone } else { &[] }
    }

    fn has_factor(self, norm: &Norm) -> bool {
        match self {
            Self::Any | Self::Mxnet => false,
            Self::Layers => true,
            Self::Of { base, .. } => base.entry(norm.factor()).is_some(),
        }
    }
}

/// The steps of the way back, and the changes that a user should know.
#[derive(Debug, Default)]
pub(crate) struct Before {
    pub(crate) steps: Vec<Arc<dyn Transform>>,
    pub(crate) changes: Vec<Change>,
}

/// The names of a conversion's tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Called<'a> {
    /// The names that the output needs.
    AsNeeded,
    /// The names in the source.
    AsTheyAre,
    /// The names by a step of the conversion.
    By(&'a Names),
}

/// The steps back to the names that the output needs, and the factors that BatchNorms get again. No names come back
/// where the current names fit, or where the receipt has no names that fit more tensors.
///
/// # Errors
/// A conversion changed more than names, shapes and dtypes, so that the tensors of before would not come back; a
/// receipt without the earlier names.
pub(crate) fn before(
    checkpoint: &Checkpoint,
    lineage: &[Origin],
    wanted: Wanted<'_>,
    called: Called<'_>,
    registry: &Registry,
) -> Result<Before, Error> {
    if matches!(wanted, Wanted::Any) || lineage.is_empty() {
        return Ok(Before::default());
    }
    let mut walk = Walk::new(checkpoint, lineage, registry);
    let (all, mut most, mut found) = (walk.names().count(), wanted.fitting(&walk), None);
    while most < all && matches!(called, Called::AsNeeded) && walk.step_back() {
        let fitting = wanted.fitting(&walk);
        if fitting > most {
            (most, found) = (fitting, Some(walk.stand()));
        }
    }
    if let Some(unknown) = walk.unknown().filter(|_| most < all) {
        return unnamed(checkpoint, wanted, unknown);
    }
    let mut before = Before::default();
    if matches!((wanted, called), (Wanted::Mxnet, Called::AsNeeded)) && found.is_none() && walk.had_torchs_names() {
        let why = "the tensors were renamed since they got PyTorch's, and the way back would undo that";
        before.changes.push(Change::unasked(Effect::NamesStay { why }));
    }
    while walk.step_back() {}
    if let Some(stand) = &found {
        let file = || checkpoint.name().to_owned();
        if let Some(message) = stand.in_the_way(wanted.undone()) {
            let remedy = Some(if matches!(wanted, Wanted::Mxnet) { Remedy::KeepNames } else { Remedy::Names });
            return Err(Error::Misfit { file: file(), message, remedy });
        }
        before.steps.push(Arc::new(stand.names(checkpoint)));
        before.changes.extend(unproven(wanted).map(Change::unasked));
    }
    let name = |tensor: usize| match (&found, called) {
        (Some(stand), _) => stand.name(tensor),
        (None, Called::By(names)) => names.of(checkpoint.entries()[tensor].name()),
        (None, _) => checkpoint.entries()[tensor].name(),
    };
    let norms = walk.lacking(name).into_iter().filter(|norm| wanted.has_factor(norm));
    let norms: Vec<Norm> = norms.collect();
    if !norms.is_empty() {
        before.steps.push(Arc::new(Factors::new(norms)));
    }
    if most < all && matches!((wanted, called), (Wanted::Mxnet, Called::AsTheyAre)) {
        let words = "the names that PyTorch has stay, as is asked for";
        before.changes.push(Change::unasked(Effect::Notice(words.to_owned())));
    }
    if walk.has_lost_factors() && !matches!(wanted, Wanted::Mxnet) {
        let words = "means and variances were divided by factors, and the receipt does not say which: no factor of 1 \
                     is written for them";
        before.changes.push(Change::unasked(Effect::Dropped(words.into())));
    }
    Ok(before)
}

/// The notice of names of before in a new file, which has none to compare with.
fn unproven(wanted: Wanted<'_>) -> Option<Effect> {
    let words = "the names of before are the receipt's word, and no other file proves them";
    match wanted {
        Wanted::Of { .. } => None,
        Wanted::Layers => Some(Effect::Notice(format!("{words}; --into FILE compares them with the file of before"))),
        Wanted::Any | Wanted::Mxnet => Some(Effect::Notice(words.to_owned())),
    }
}

/// The result for names that the output does not take, where the receipt does not have the earlier ones: a change for
/// MXNet, else an error.
fn unnamed(checkpoint: &Checkpoint, wanted: Wanted<'_>, step: &str) -> Result<Before, Error> {
    let message = format!(
        "has names that a conversion gave, and its receipt does not say what they were before: it had no room for {step}"
    );
    match wanted {
        Wanted::Mxnet => {
            let why = "its receipt had no room for what the tensors were called before";
            Ok(Before { changes: vec![Change::unasked(Effect::NamesStay { why })], ..Before::default() })
        }
        _ => Err(Error::Misfit { file: checkpoint.name().to_owned(), message, remedy: Some(Remedy::Names) }),
    }
}

//! The way back to a file's tensors before the conversions that the receipt lists: the earlier names, and the factors
//! of BatchNorms.
//!
//! The [`Undone`] of each step says how to undo the step. Where a receipt had no room for a step, the way back ends,
//! and a change or an error says so.

mod walk;

use std::path::Path;
use std::sync::Arc;

use blob_io::caffe::Message;
use blob_io::words::{NAMED_PROBLEMS, listed};
use blob_io::{Checkpoint, Error, Format, Remedy};

use crate::change::{Change, Effect};
use crate::goal::has_layers;
use crate::history::Origin;
use crate::transform::{Factors, Names, Norm, Registry, Transform};
use walk::{End, Walk};

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
    let mut near = Near { strangers: walk.strangers(), why: None };
    while most < all && matches!(called, Called::AsNeeded) && walk.step_back() {
        let fitting = wanted.fitting(&walk);
        if fitting > most {
            (most, found) = (fitting, Some(walk.stand()));
        }
        near.step(&walk);
    }
    if let Some(end) = walk.end().filter(|_| most < all) {
        return unnamed(checkpoint, wanted, end);
    }
    if let (Wanted::Layers, Some(message)) = (wanted, near.in_words(all).filter(|_| most < all)) {
        return Err(Error::misfit(checkpoint.name(), message, Remedy::Names));
    }
    let mut before = Before::default();
    if matches!((wanted, called), (Wanted::Mxnet, Called::AsNeeded)) && found.is_none() && walk.had_torchs_names() {
        let why = "the tensors were renamed since they got PyTorch's, and the way back would undo that";
        before.changes.push(Change::unasked(Effect::NamesStay { why }));
    }
    while walk.step_back() {}
    if let Some(stand) = &found {
        if let Some(message) = stand.in_the_way(wanted.undone()) {
            let remedy = if matches!(wanted, Wanted::Mxnet) { Remedy::KeepNames } else { Remedy::Names };
            return Err(Error::misfit(checkpoint.name(), message, remedy));
        }
        before.steps.push(Arc::new(stand.names(checkpoint)));
        before.changes.extend(unproven(wanted).map(Change::unasked));
    }
    let lacking = walk.lacking(|tensor| match (&found, called) {
        (Some(stand), _) => stand.name(tensor),
        (None, Called::By(names)) => names.of(checkpoint.entries()[tensor].name()),
        (None, _) => checkpoint.entries()[tensor].name(),
    });
    let norms: Vec<Norm> = lacking.into_iter().filter(|norm| wanted.has_factor(norm)).collect();
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

/// The point of the way where most tensors have names of layers' blobs, and still not all of them fit.
struct Near<'a> {
    /// The tensors without such names there, as the file calls them.
    strangers: Vec<&'a str>,
    /// Why the names there do not fit; `None` at the beginning of the way.
    why: Option<String>,
}

impl<'a> Near<'a> {
    fn step(&mut self, walk: &Walk<'a>) {
        let strangers = walk.strangers();
        if strangers.len() < self.strangers.len() {
            let fits = Message::named(Format::CaffeModel, walk.names(), &[]);
            let why = fits
                .err()
                .and_then(|error| if let Error::Misfit { message, .. } = error { Some(message) } else { None });
            *self = Self { strangers, why };
        }
    }

    /// Which tensors keep the names of before, which others get back, from being whole; in words that follow the file's
    /// name. `None` where no names come back.
    fn in_words(&self, all: usize) -> Option<String> {
        let why = self.why.as_ref()?;
        if self.strangers.is_empty() {
            return Some(format!("gets the names of before, and lacks some of the tensors: {why}"));
        }
        let (named, others) = (listed(NAMED_PROBLEMS, &self.strangers), all - self.strangers.len());
        Some(format!(
            "has tensors without a name of before, added or renamed since: {named}; the names of {others} others come \
             back"
        ))
    }
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

/// The result for names that the output does not take, where the earlier ones do not come back: a change for MXNet,
/// else an error.
fn unnamed(checkpoint: &Checkpoint, wanted: Wanted<'_>, end: &End) -> Result<Before, Error> {
    match wanted {
        Wanted::Mxnet => {
            let stays = Effect::NamesStay { why: end.why() };
            Ok(Before { changes: vec![Change::unasked(stays)], ..Before::default() })
        }
        _ => Err(Error::misfit(checkpoint.name(), end.in_words(), Remedy::Names)),
    }
}

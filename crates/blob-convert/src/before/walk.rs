//! Walks back from a file's tensors to the sources, one conversion after the other. Keeps each tensor's name there, the
//! steps that cannot be undone, and the BatchNorms that lost a factor.
//!
//! Relies on the receipt, which is hostile: the receipt's maps and the file's tensors bound the work.

use std::borrow::Cow;
use std::collections::HashMap;

use blob_io::{Checkpoint, Format, Kind, TensorName};

use crate::history::Origin;
use crate::step::Step;
use crate::transform::{Names, Norm, Own, Registry, Undone};

/// An array, its diff, and the parts of a sparse array, whose names follow the array's name.
const PARTS: [Kind; 5] = [Kind::Data, Kind::Diff, Kind::Values, Kind::Indices, Kind::Indptr];

/// A walk over the sources of a file, the most recent one first.
pub(super) struct Walk<'a> {
    checkpoint: &'a Checkpoint,
    /// The conversions that are still to undo, the oldest one first.
    lineage: &'a [Origin],
    registry: &'a Registry,
    /// Each tensor's name at this point.
    names: Vec<Cow<'a, str>>,
    /// The index of each tensor, by that name.
    places: HashMap<Cow<'a, str>, usize>,
    in_the_way: Vec<String>,
    lacking: Vec<Lacking>,
    has_lost_factors: bool,
    /// Whether tensors got other names after PyTorch's.
    is_renamed: bool,
    /// Why the walk ends before the first source.
    end: Option<End>,
}

/// Why names of before do not come back.
pub(super) enum End {
    /// The receipt had no room for this step.
    NoRoom(String),
    /// Two tensors of the file would have one name.
    Clash { name: String, tensors: [String; 2] },
}

impl End {
    /// In words that follow the file's name.
    pub(super) fn in_words(&self) -> String {
        let given = "has names that a conversion gave, and";
        match self {
            Self::NoRoom(step) => {
                format!("{given} its receipt does not say what they were before: it had no room for {step}")
            }
            Self::Clash { name, tensors: [one, other] } => {
                format!("{given} by its receipt {one:?} and {other:?} were both {name:?} before: one was renamed since")
            }
        }
    }

    /// As a reason for names that stay.
    pub(super) fn why(&self) -> &'static str {
        match self {
            Self::NoRoom(_) => "its receipt had no room for what the tensors were called before",
            Self::Clash { .. } => "two of its tensors would have one name of before",
        }
    }
}

/// A BatchNorm whose mean and variance were divided by the factor.
struct Lacking {
    mean: Option<usize>,
    variance: Option<usize>,
    norm: Norm,
}

/// A point of the walk.
pub(super) struct Stand<'a> {
    names: Vec<Cow<'a, str>>,
    is_renamed: bool,
    in_the_way: Vec<String>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(checkpoint: &'a Checkpoint, lineage: &'a [Origin], registry: &'a Registry) -> Self {
        let names: Vec<Cow<'a, str>> = checkpoint.names().map(Cow::Borrowed).collect();
        let places = names.iter().cloned().enumerate().map(|(place, name)| (name, place)).collect();
        let (in_the_way, lacking) = (Vec::new(), Vec::new());
        let (has_lost_factors, is_renamed, end) = (false, false, None);
        Self { checkpoint, lineage, registry, names, places, in_the_way, lacking, has_lost_factors, is_renamed, end }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    pub(super) fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The tensors, by their names in the file, that have no name of a layer's blob at this point.
    pub(super) fn strangers(&self) -> Vec<&'a str> {
        let strangers = self.checkpoint.names().zip(&self.names).filter(|(_, name)| {
            let name = TensorName::of(name);
            name.layer().is_none_or(str::is_empty) || name.index().is_none()
        });
        strangers.map(|(now, _)| now).collect()
    }

    pub(super) fn has_lost_factors(&self) -> bool {
        self.has_lost_factors
    }

    /// Whether one of the sources before this point has such a format.
    fn comes_from(&self, is_wanted: impl Fn(Format) -> bool) -> bool {
        let formats = self.lineage.iter().filter_map(|origin| origin.format.parse().ok());
        formats.into_iter().any(is_wanted)
    }

    /// For each rename before this point, the last one first: whether the new names are PyTorch's. Also `true` where
    /// nobody knows.
    fn given(&self) -> impl Iterator<Item = bool> {
        let steps = self.lineage.iter().rev().flat_map(|origin| origin.transforms.iter().rev());
        steps.filter_map(|step| match self.registry.read(&step.name, &step.settings) {
            Ok(step) => match step.undone() {
                Undone::Renamed(names) if !names.is_empty() => Some(names.is_torch()),
                _ => None,
            },
            Err(_) => may_rename(step).then_some(true),
        })
    }

    /// Whether PyTorch's names were the last that MXNet's tensors got before this point.
    pub(super) fn has_torchs_names(&self) -> bool {
        self.given().next().unwrap_or(false) && self.comes_from(Format::is_mxnet)
    }

    /// Whether MXNet's tensors had PyTorch's names before others.
    pub(super) fn had_torchs_names(&self) -> bool {
        self.given().any(|is_torch| is_torch) && self.comes_from(Format::is_mxnet)
    }

    /// Goes back over one conversion; `false` where there is none, or the receipt says too little.
    pub(super) fn step_back(&mut self) -> bool {
        let Some((origin, older)) = self.lineage.split_last().filter(|_| self.end.is_none()) else { return false };
        for step in origin.transforms.iter().rev() {
            self.undo(step);
        }
        self.lineage = older;
        self.end.is_none()
    }

    fn undo(&mut self, step: &Step) {
        let Ok(known) = self.registry.read(&step.name, &step.settings) else {
            if may_rename(step) {
                self.end.get_or_insert_with(|| End::NoRoom(step.name.clone()));
            }
            self.has_lost_factors |= step.own() == Some(Own::Bn);
            self.in_the_way.push(step.name.clone());
            return;
        };
        match known.undone() {
            Undone::AsItWas => {}
            Undone::Renamed(names) => {
                let mut both = self.checkpoint.names().zip(&self.names);
                self.is_renamed |= names.is_torch() && both.any(|(now, then)| now != then);
                if let Some(clash) = self.rename(names) {
                    self.end.get_or_insert(clash);
                }
            }
            Undone::Divided(norms) => {
                let place = |name: &str| self.places.get(name).copied();
                let lacking = norms.iter().map(|norm| Lacking {
                    mean: place(norm.mean()),
                    variance: place(norm.variance()),
                    norm: norm.clone(),
                });
                let lacking: Vec<Lacking> = lacking.collect();
                self.lacking.extend(lacking);
            }
            Undone::Changed | Undone::Reordered | Undone::Merged => self.in_the_way.push(step.name.clone()),
        }
    }

    /// Gives the tensors the names before a map. Returns the first name that two tensors had.
    fn rename(&mut self, names: &Names) -> Option<End> {
        let mut before: Vec<(usize, String)> = Vec::new();
        for (old, new) in names.pairs() {
            for part in PARTS {
                if let Some(place) = self.places.get(&*TensorName::new(new, part).to_string()) {
                    before.push((*place, TensorName::new(old, part).to_string()));
                }
            }
        }
        for (place, _) in &before {
            self.places.remove(&self.names[*place]);
        }
        let mut clash = None;
        for (place, name) in before {
            if let Some(other) = self.places.insert(Cow::Owned(name.clone()), place) {
                let tensors = [other, place].map(|place| self.checkpoint.entries()[place].name().to_owned());
                clash.get_or_insert_with(|| End::Clash { name: name.clone(), tensors });
            }
            self.names[place] = Cow::Owned(name);
        }
        clash
    }

    pub(super) fn stand(&self) -> Stand<'a> {
        let Self { names, in_the_way, is_renamed, .. } = self;
        Stand { names: names.clone(), in_the_way: in_the_way.clone(), is_renamed: *is_renamed }
    }

    /// The BatchNorms without a factor that the walk has met; `name` gives the tensors' current names.
    pub(super) fn lacking<'n>(&self, name: impl Fn(usize) -> &'n str) -> Vec<Norm> {
        let there = self.lacking.iter().filter(|lacking| lacking.mean.or(lacking.variance).is_some());
        there.map(|lacking| lacking.norm.called(lacking.mean.map(&name), lacking.variance.map(&name))).collect()
    }
}

/// Whether a step that cannot be read may have renamed tensors.
fn may_rename(step: &Step) -> bool {
    step.own() == Some(Own::Names) || step.name == crate::history::UNKNOWN
}

impl Stand<'_> {
    pub(super) fn name(&self, tensor: usize) -> &str {
        &self.names[tensor]
    }

    /// The steps since this point that changed more than names and are not `undone`, or a later rename that the user
    /// asked for, in words that follow the file's name.
    pub(super) fn in_the_way(&self, undone: &[String]) -> Option<String> {
        if self.is_renamed {
            let why = "was renamed after it got PyTorch's names, and the names of before would take that back";
            return Some(why.to_owned());
        }
        let others = self.in_the_way.iter().filter(|step| !undone.contains(step));
        let named = others.map(String::as_str).collect::<Vec<_>>().join(", ");
        (!named.is_empty()).then(|| {
            format!(
                "has names that a conversion gave, and the names of before do not come back by themselves, since its \
                 receipt says that {named} changed more than names"
            )
        })
    }

    /// The map from the names in the file to those at this point.
    pub(super) fn names(&self, checkpoint: &Checkpoint) -> Names {
        let mut pairs = Vec::new();
        for (entry, name) in checkpoint.entries().iter().zip(&self.names).filter(|(entry, name)| entry.name() != **name)
        {
            pairs.push((entry.name().to_owned(), name.to_string()));
            // An expanded array has the common name of the parts.
            let whole = entry.sparse().map(|sparse| (sparse.name.to_string(), TensorName::of(name).array.to_owned()));
            pairs.extend(whole);
        }
        Names::new(pairs)
    }
}

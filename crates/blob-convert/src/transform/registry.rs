//! The steps by name, and the order in which a recipe does the steps. Each step is read from the settings in a receipt
//! or a recipe, which are untrusted.

use std::collections::BTreeMap;
use std::sync::Arc;

use blob_io::Error;
use serde::Deserialize;
use serde_json::{Value, json};

use super::bn::BatchNorm;
use super::dtype::Dtype;
use super::eps::Eps;
use super::factor::Factors;
use super::fc_from::FcFrom;
use super::fold::Fold;
use super::followed::NetOrigin;
use super::gamma::FixGamma;
use super::layout::Layout;
use super::merge::Merge;
use super::names::Names;
use super::onnx::Onnx;
use super::permute::Permute;
use super::rgb::Rgb;
use super::selection::Selection;
use super::split::Split;
use super::squeeze_legacy::SqueezeLegacy;
use super::step::Transform;
use super::strip_diff::StripDiff;
use super::torch::TorchLayout;
use super::wish::Wish;

/// So many characters of a setting's name are shown.
const LONGEST_KEY: usize = 64;

type Step = Arc<dyn Transform>;
type Read = fn(&Value) -> Option<Step>;
type ReadOwn = Arc<dyn Fn(&Value) -> Option<Step> + Send + Sync>;
type Make = fn(&Value, &Wish<'_>) -> Result<Option<Step>, Error>;

/// One of our steps.
struct KnownStep {
    name: &'static str,
    /// Reads complete settings, as in a receipt.
    read: Read,
    /// Makes the step from partial settings, which leave the rest to the source and the net.
    make: Option<Make>,
}

const fn exact(name: &'static str, read: Read) -> KnownStep {
    KnownStep { name, read, make: None }
}

const fn wished(name: &'static str, read: Read, make: Make) -> KnownStep {
    KnownStep { name, read, make: Some(make) }
}

/// A recipe does the steps in this order; your own steps stand before `dtype`.
const OURS: &[KnownStep] = &[
    exact("select", |settings| Some(Arc::new(Selection::read(settings)?))),
    exact("strip-diff", |_| Some(Arc::new(StripDiff))),
    exact("squeeze-legacy", |_| Some(Arc::new(SqueezeLegacy))),
    exact(Fold::NAME, |settings| Some(Arc::new(Fold::deserialize(settings).ok()?))),
    wished("bn", |settings| Some(Arc::new(BatchNorm::deserialize(settings).ok()?)), BatchNorm::make),
    exact("bn-factor", |settings| Some(Arc::new(Factors::deserialize(settings).ok()?))),
    wished("fix-gamma", |settings| Some(Arc::new(FixGamma::deserialize(settings).ok()?)), FixGamma::make),
    wished("eps", |settings| Some(Arc::new(Eps::read(settings)?)), Eps::make),
    wished("torch-layout", |settings| Some(Arc::new(TorchLayout::deserialize(settings).ok()?)), TorchLayout::make),
    exact("rgb", |_| Some(Arc::new(Rgb))),
    exact("fc-from", |settings| Some(Arc::new(FcFrom::read(settings)?))),
    exact("permute", |settings| Some(Arc::new(Permute::read(settings)?))),
    exact("layout", Layout::read),
    exact(Split::NAME, |settings| Some(Arc::new(Split::deserialize(settings).ok()?))),
    exact(Merge::NAME, |settings| Some(Arc::new(Merge::deserialize(settings).ok()?))),
    exact("dtype", |settings| Some(Arc::new(Dtype::read(settings)?))),
    wished(Names::NAME, |settings| Some(Arc::new(Names::read(settings)?)), Names::make),
    exact(Onnx::NAME, |settings| Some(Arc::new(Onnx::deserialize(settings).ok()?))),
];

/// The steps that a conversion and a verification know: ours, and the steps that you add by [`Registry::with`].
#[derive(Clone, Default)]
pub struct Registry {
    own: BTreeMap<&'static str, ReadOwn>,
}

impl Registry {
    /// Adds a step of your own. `read` rebuilds the step from the [`settings`](Transform::settings), and returns `None`
    /// for settings that make no sense: a stranger may have written the receipt. A name of ours stays ours.
    #[must_use]
    pub fn with<T: Transform + 'static>(
        mut self,
        name: &'static str,
        read: impl Fn(&Value) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        self.own.insert(name, Arc::new(move |settings| Some(Arc::new(read(settings)?))));
        self
    }

    /// Rebuilds the step that a receipt names; the error says why not.
    pub(crate) fn read(&self, name: &str, settings: &Value) -> Result<Step, String> {
        let read = match (known(name), self.own.get(name)) {
            (Some(step), _) => (step.read)(settings),
            (None, Some(own)) => own(settings),
            (None, None) => return Err("is not known".to_owned()),
        };
        read.ok_or_else(|| "has settings that cannot be read".to_owned())
    }

    /// What a step of ours would pass over in the settings of a receipt, in words that follow "which": a setting that
    /// the step does not have, or a value that is not taken as it stands. `None` also for settings that cannot be read.
    pub(crate) fn odd_setting(&self, name: &str, settings: &Value) -> Option<String> {
        let known = known(name).and_then(|step| (step.read)(settings))?.settings();
        let (mut said, mut net) = (settings.clone(), None);
        if let (Value::Object(fields), None) = (&mut said, known.get("net")) {
            net = fields.remove("net");
        }
        if net.is_some_and(|net| NetOrigin::deserialize(net).is_err()) {
            return Some("names a net that cannot be read".to_owned());
        }
        let at = beyond(&said, &known)?;
        Some(format!("has a setting that it does not take{at}"))
    }

    /// A setting that a step of ours always has, and that the settings of a receipt lack, in words that follow "which".
    /// A list that is `null` had no room.
    pub(crate) fn lacking_setting(&self, name: &str, settings: &Value) -> Option<String> {
        let known = known(name).and_then(|step| (step.read)(settings))?.settings();
        if settings.is_null() {
            return Some("has null for its settings".to_owned());
        }
        let at = short_of(settings, &known)?;
        Some(format!("lacks a setting that this version writes{at}"))
    }

    /// Makes the step that a recipe wants; `None` for a step without work.
    ///
    /// # Errors
    /// An unknown step, settings that make no sense, or a net or source that lacks the data for the step.
    pub(crate) fn make(&self, name: &str, settings: &Value, wish: &Wish<'_>) -> Result<Option<Step>, Error> {
        let none = json!({});
        let settings = if settings.is_null() { &none } else { settings };
        let found = self.read(name, settings);
        if let (Err(_), Some(make)) = (&found, known(name).and_then(|step| step.make)) {
            return make(settings, wish);
        }
        let step = found.map_err(|why| wish.refused(format!("the step {name:?} {why}")))?;
        let known = step.settings();
        let asked = settings.as_object().into_iter().flatten().map(|(key, _)| key);
        if let Some(key) = asked.into_iter().find(|key| *key != "net" && known.get(key.as_str()).is_none()) {
            return Err(wish.refused(format!("the step {name:?} has no setting {key:?}")));
        }
        match step.named().into_iter().find(|tensor| wish.checkpoint.entry(tensor).is_none()) {
            Some(tensor) => Err(wish.refused(format!("the step {name:?} names {tensor:?}, which is not there"))),
            None => Ok(Some(step)),
        }
    }

    /// The rank of a step in the order of a recipe.
    pub(crate) fn rank(name: &str) -> usize {
        let place = |name: &str| OURS.iter().position(|step| step.name == name);
        // Our steps have even ranks, so an odd rank before `dtype` is free for your own steps.
        place(name).map_or_else(|| 2 * place("dtype").unwrap_or_default() - 1, |place| 2 * place)
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.own.keys()).finish()
    }
}

/// Where `said` has more than `known`, or another value, as `: layers`. `null` stands for a value that had no room.
fn beyond(said: &Value, known: &Value) -> Option<String> {
    match (said, known) {
        (Value::Null, _) => None,
        (Value::Object(said), Value::Object(known)) => said.iter().find_map(|(key, said)| {
            let at = known.get(key).map_or(Some(String::new()), |known| beyond(said, known))?;
            let key: String = key.chars().take(LONGEST_KEY).collect();
            Some(format!(": {key}{at}"))
        }),
        (Value::Array(said), Value::Array(known)) if said.len() == known.len() => {
            said.iter().zip(known).find_map(|(said, known)| beyond(said, known))
        }
        _ if said == known => None,
        _ => Some(String::new()),
    }
}

/// Where `known` has more than `said`, as `: layers: 0: gamma`. An empty list may stand for one that had no room.
fn short_of(said: &Value, known: &Value) -> Option<String> {
    let at = |key: &str, rest: String| {
        let key: String = key.chars().take(LONGEST_KEY).collect();
        Some(format!(": {key}{rest}"))
    };
    match (said, known) {
        (Value::Object(said), Value::Object(known)) => known.iter().find_map(|(key, known)| match said.get(key) {
            Some(said) => short_of(said, known).and_then(|rest| at(key, rest)),
            None => at(key, String::new()),
        }),
        (Value::Array(said), Value::Array(known)) => {
            let mut each = said.iter().zip(known).enumerate();
            each.find_map(|(place, (said, known))| short_of(said, known).and_then(|rest| at(&place.to_string(), rest)))
        }
        (Value::Null, Value::Bool(_) | Value::Number(_) | Value::String(_)) => Some(String::new()),
        _ => None,
    }
}

fn known(name: &str) -> Option<&'static KnownStep> {
    OURS.iter().find(|step| step.name == name)
}

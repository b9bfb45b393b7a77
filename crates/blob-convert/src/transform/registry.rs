//! The steps by name, and the order in which a recipe does the steps. Each step is read from the settings in a receipt
//! or a recipe, which are untrusted.

use std::collections::BTreeMap;
use std::sync::Arc;

use blob_io::Error;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde::de::value::{self, StrDeserializer};
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
type ReadOwn = Arc<dyn Fn(&Value) -> Option<Step> + Send + Sync>;
type Make = fn(&Value, &Wish<'_>) -> Result<Option<Step>, Error>;

/// Our steps by name, in the order in which a recipe does them; your own steps stand before `dtype`. The data of a step
/// may lack settings: those of a receipt had no room, those of a recipe follow from the net. Then the name is all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Own {
    Select,
    StripDiff,
    SqueezeLegacy,
    Fold,
    Bn,
    BnFactor,
    FixGamma,
    Eps,
    TorchLayout,
    Rgb,
    FcFrom,
    Permute,
    Layout,
    Split,
    Merge,
    Dtype,
    Names,
    Onnx,
}

impl Own {
    /// The step of this name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::deserialize(StrDeserializer::<value::Error>::new(name)).ok()
    }

    /// Whether the step is made from the layers of a net, with their tensors.
    pub(crate) fn is_of_layers(self) -> bool {
        matches!(self, Self::Fold | Self::Bn | Self::FixGamma | Self::Eps | Self::TorchLayout)
    }

    /// Reads complete settings, as in a receipt.
    fn read(self, settings: &Value) -> Option<Step> {
        Some(match self {
            Self::Select => Arc::new(Selection::read(settings)?),
            Self::StripDiff => Arc::new(StripDiff),
            Self::SqueezeLegacy => Arc::new(SqueezeLegacy),
            Self::Fold => data::<Fold>(settings)?,
            Self::Bn => data::<BatchNorm>(settings)?,
            Self::BnFactor => data::<Factors>(settings)?,
            Self::FixGamma => data::<FixGamma>(settings)?,
            Self::Eps => Arc::new(Eps::read(settings)?),
            Self::TorchLayout => data::<TorchLayout>(settings)?,
            Self::Rgb => Arc::new(Rgb),
            Self::FcFrom => Arc::new(FcFrom::read(settings)?),
            Self::Permute => Arc::new(Permute::read(settings)?),
            Self::Layout => Layout::read(settings)?,
            Self::Split => data::<Split>(settings)?,
            Self::Merge => data::<Merge>(settings)?,
            Self::Dtype => Arc::new(Dtype::read(settings)?),
            Self::Names => Arc::new(Names::read(settings)?),
            Self::Onnx => data::<Onnx>(settings)?,
        })
    }

    /// Makes the step from partial settings, which leave the rest to the source and the net.
    fn make(self) -> Option<Make> {
        Some(match self {
            Self::Bn => BatchNorm::make,
            Self::FixGamma => FixGamma::make,
            Self::Eps => Eps::make,
            Self::TorchLayout => TorchLayout::make,
            Self::Names => Names::make,
            _ => return None,
        })
    }
}

/// Reads a step that is its settings.
fn data<T: Transform + DeserializeOwned + 'static>(settings: &Value) -> Option<Step> {
    Some(Arc::new(T::deserialize(settings).ok()?))
}

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
        let read = match (Own::of(name), self.own.get(name)) {
            (Some(step), _) => step.read(settings),
            (None, Some(own)) => own(settings),
            (None, None) => return Err("is not known".to_owned()),
        };
        read.ok_or_else(|| "has settings that cannot be read".to_owned())
    }

    /// What a step of ours would pass over in the settings of a receipt, in words that follow "which": a setting that
    /// the step does not have, or a value that is not taken as it stands. `None` also for settings that cannot be read.
    pub(crate) fn odd_setting(&self, name: &str, settings: &Value) -> Option<String> {
        let known = Own::of(name)?.read(settings)?.settings();
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
        let known = Own::of(name)?.read(settings)?.settings();
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
        if let (Err(_), Some(make)) = (&found, Own::of(name).and_then(Own::make)) {
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

    /// Whether an ONNX model can be made behind the step of a recipe.
    pub(crate) fn fits_net(&self, name: &str, settings: &Value) -> bool {
        match self.read(name, settings) {
            Ok(step) => step.fits_net(),
            // The settings are found later, or refused where the step is read.
            Err(_) => matches!(Own::of(name), Some(Own::Fold | Own::Bn | Own::FixGamma | Own::Rgb | Own::Dtype)),
        }
    }

    /// Whether the step of a receipt leaves values as they are.
    pub(crate) fn keeps_values(&self, name: &str, settings: &Value) -> bool {
        match self.read(name, settings) {
            Ok(step) => step.keeps_values(),
            Err(_) => matches!(Own::of(name), Some(Own::Select | Own::Names)),
        }
    }

    /// The rank of a step in the order of a recipe.
    pub(crate) fn rank(name: &str) -> usize {
        // Our steps have even ranks, so an odd rank before `dtype` is free for your own steps.
        Own::of(name).map_or(2 * Own::Dtype as usize - 1, |own| 2 * own as usize)
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
            Some(behind(key, &at))
        }),
        (Value::Array(said), Value::Array(known)) if said.len() == known.len() => {
            said.iter().zip(known).find_map(|(said, known)| beyond(said, known))
        }
        _ if said == known => None,
        _ => Some(String::new()),
    }
}

/// A place within the value of a key: `: key: rest`.
fn behind(key: &str, rest: &str) -> String {
    format!(": {}{rest}", key.chars().take(LONGEST_KEY).collect::<String>())
}

/// Where `known` has more than `said`, as `: layers: 0: gamma`. An empty list may stand for one that had no room.
fn short_of(said: &Value, known: &Value) -> Option<String> {
    match (said, known) {
        (Value::Object(said), Value::Object(known)) => known.iter().find_map(|(key, known)| match said.get(key) {
            Some(said) => short_of(said, known).map(|rest| behind(key, &rest)),
            None => Some(behind(key, "")),
        }),
        (Value::Array(said), Value::Array(known)) => {
            let mut each = said.iter().zip(known).enumerate();
            each.find_map(|(place, (said, known))| short_of(said, known).map(|rest| behind(&place.to_string(), &rest)))
        }
        (Value::Null, Value::Bool(_) | Value::Number(_) | Value::String(_)) => Some(String::new()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use blob_io::{Checkpoint, Format};

    use super::super::step::{Context, Made, Misfit, Outcome, Spec};
    use super::*;
    use crate::options::Options;
    use crate::recipe::{NetFile, Recipe};
    use crate::{Place, plan, plan_into};

    /// A step of one's own that keeps every tensor. With `true` the step has each property that a step may declare.
    #[derive(Debug)]
    struct Kept(bool);

    impl Transform for Kept {
        fn name(&self) -> &'static str {
            "kept"
        }

        fn settings(&self) -> Value {
            json!({ "declares": self.0 })
        }

        fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
            Ok(tensors.iter().enumerate().map(|(place, spec)| Made::same(place, spec)).collect())
        }

        fn fits_net(&self) -> bool {
            self.0
        }

        fn keeps_values(&self) -> bool {
            self.0
        }

        fn strips_diffs(&self) -> bool {
            self.0
        }

        fn renumbers(&self) -> bool {
            self.0
        }
    }

    fn registry() -> Registry {
        Registry::default().with("kept", |settings| settings["declares"].as_bool().map(Kept))
    }

    fn open(name: &str, bytes: &[u8]) -> Checkpoint {
        Checkpoint::from_bytes(name, bytes).expect("opens")
    }

    #[test]
    fn a_step_of_ones_own_stands_before_a_model_where_it_says_so() {
        let net = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/caffe/forward/lenet");
        let source = Checkpoint::open(format!("{net}.caffemodel")).expect("opens");
        let mut recipe = Recipe::new("", "lenet.onnx");
        recipe.net = Some(NetFile::Prototxt(format!("{net}.prototxt").into()));
        let planned = |declares| {
            let recipe = recipe.clone().step(Kept(declares));
            recipe.plan_of(&[&source], None, &registry()).map(|_| ()).map_err(|e| e.to_string())
        };
        assert_eq!(planned(true), Ok(()));
        assert!(planned(false).is_err_and(|e| e.ends_with("\"kept\" has no place there")));
    }

    #[test]
    fn a_step_of_ones_own_strips_diffs_and_renumbers() {
        let data = b"\x2A\x08\x00\x00\x80\x3F\x00\x00\x00\x40\x3A\x03\x0A\x01\x02";
        let with_diff = [&data[..], b"\x32\x08\x00\x00\x80\x3F\x00\x00\x00\x40"].concat();
        let (source, base) = (open("data.binaryproto", data), open("both.binaryproto", &with_diff));
        let stays = |declares| {
            let options = Options::new(Format::BlobProto).transform(Kept(declares));
            let plan = plan_into(&source, &base, &options, &Place::Stdout).expect("a plan");
            plan.changes().iter().any(|change| change.to_string().contains("its diff there stays"))
        };
        assert_eq!([false, true].map(stays), [true, false]);
        let named = open("named.safetensors", &safetensors());
        let planned = |declares| {
            let options = Options::new(Format::BlobProtoVector).transform(Kept(declares));
            plan(&named, &options, &Place::Stdout).map(|plan| plan.changes()[0].to_string())
        };
        assert!(planned(false).is_err());
        assert_eq!(
            planned(true).ok().as_deref(),
            Some("1 tensor is stored without its name: blobprotovector has none: \"w\"")
        );
    }

    /// One f32 that is called `w`.
    fn safetensors() -> Vec<u8> {
        let head = r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
        [&(head.len() as u64).to_le_bytes()[..], head.as_bytes(), &[0; 4]].concat()
    }

    #[test]
    fn steps_without_settings_are_known_by_name() {
        let registry = registry();
        let keep = |name: &str, settings| registry.keeps_values(name, &settings);
        assert!(keep("names", Value::Null) && keep("select", Value::Null) && keep("strip-diff", Value::Null));
        assert!(!keep("bn", Value::Null) && !keep("rgb", json!({})) && !keep("of nobody", json!({})));
        assert!(keep("kept", json!({ "declares": true })) && !keep("kept", json!({ "declares": false })));
        let fits = |name| registry.fits_net(name, &json!({}));
        assert!(["fold", "bn", "fix-gamma", "rgb", "dtype"].into_iter().all(fits));
        assert!(!["eps", "torch-layout", "names", "select", "kept"].into_iter().any(fits));
        let ours: [(&dyn Transform, Own); 5] = [
            (&Selection::default(), Own::Select),
            (&StripDiff, Own::StripDiff),
            (&SqueezeLegacy, Own::SqueezeLegacy),
            (&Factors::new(Vec::new()), Own::BnFactor),
            (&Fold::default(), Own::Fold),
        ];
        assert!(ours.iter().all(|(step, own)| Own::of(step.name()) == Some(*own)));
        assert_eq!(Own::of("Fold"), None);
    }
}

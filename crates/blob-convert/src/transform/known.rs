//! Rebuilds transforms from their names and settings in a receipt, which is untrusted.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::bn::BatchNorm;
use super::dtype::Dtype;
use super::eps::Eps;
use super::factor::Factors;
use super::fc_from::FcFrom;
use super::fold::Fold;
use super::gamma::FixGamma;
use super::layout::Layout;
use super::names::Names;
use super::permute::Permute;
use super::rgb::Rgb;
use super::selection::Selection;
use super::squeeze_legacy::SqueezeLegacy;
use super::step::Transform;
use super::strip_diff::StripDiff;
use super::torch::TorchLayout;

type Read = fn(&Value) -> Option<Arc<dyn Transform>>;

const KNOWN: &[(&str, Read)] = &[
    ("select", |settings| Some(Arc::new(Selection::read(settings)?))),
    ("strip-diff", |_| Some(Arc::new(StripDiff))),
    ("squeeze-legacy", |_| Some(Arc::new(SqueezeLegacy))),
    ("fold", |settings| Some(Arc::new(Fold::deserialize(settings).ok()?))),
    ("bn", |settings| Some(Arc::new(BatchNorm::deserialize(settings).ok()?))),
    ("bn-factor", |settings| Some(Arc::new(Factors::deserialize(settings).ok()?))),
    ("fix-gamma", |settings| Some(Arc::new(FixGamma::deserialize(settings).ok()?))),
    ("torch-layout", |settings| Some(Arc::new(TorchLayout::deserialize(settings).ok()?))),
    ("rgb", |_| Some(Arc::new(Rgb))),
    ("fc-from", |settings| Some(Arc::new(FcFrom::read(settings)?))),
    ("permute", |settings| Some(Arc::new(Permute::read(settings)?))),
    ("layout", |settings| Layout::read(settings)),
    ("eps", |settings| Some(Arc::new(Eps::deserialize(settings).ok()?))),
    ("dtype", |settings| Some(Arc::new(Dtype::read(settings)?))),
    ("names", |settings| Some(Arc::new(Names::deserialize(settings).ok()?))),
];

/// The transform that a receipt names, or why it cannot be rebuilt.
pub(crate) fn known(name: &str, settings: &Value) -> Result<Arc<dyn Transform>, String> {
    let Some((_, read)) = KNOWN.iter().find(|(known, _)| *known == name) else {
        return Err("is not known".to_owned());
    };
    read(settings).ok_or_else(|| "has settings that cannot be read".to_owned())
}

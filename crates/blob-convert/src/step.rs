//! One step of a recipe or of a receipt as data: a name and settings.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::transform::{Own, SqueezeLegacy, Transform};

/// One step of a conversion.
///
/// Every [`Transform`] becomes a step with all settings. Some steps, as [`Step::fold`], may leave settings to the
/// source and the net; the receipt then has the settings in full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Step {
    /// The transform's name.
    pub name: String,
    /// The transform's settings.
    #[serde(default)]
    pub settings: Value,
}

impl Step {
    /// A step with this name and these settings, a JSON object.
    #[must_use]
    pub fn new(name: impl Into<String>, settings: Value) -> Self {
        Self { name: name.into(), settings }
    }

    /// Folds every BatchNorm and Scale that can be folded into the layer before.
    #[must_use]
    pub fn fold() -> Self {
        Self::new("fold", json!({}))
    }

    /// Divides the means and variances of all Caffe's BatchNorms by the stored factors.
    #[must_use]
    pub fn bn() -> Self {
        Self::new("bn", json!({}))
    }

    /// Sets every gamma to 1 that the net has as fixed.
    #[must_use]
    pub fn fix_gamma() -> Self {
        Self::new("fix-gamma", json!({}))
    }

    /// Makes every normalisation of the net ready for this eps.
    #[must_use]
    pub fn eps(to: f64) -> Self {
        Self::new("eps", json!({ "to": to }))
    }

    /// Gives PyTorch's names and the values that belong to these names: `squeeze-legacy`, `bn`, `fix-gamma`,
    /// `torch-layout` and, where the net has another order, `layout` are done too.
    #[must_use]
    pub fn torch_names() -> Self {
        Self::new("names", json!({ "to": "torch" }))
    }
}

impl Step {
    /// The steps that go before the names of torch, whatever each finds to do.
    pub(crate) fn with_torch_names() -> [Self; 4] {
        [SqueezeLegacy.into(), Self::bn(), Self::fix_gamma(), Self::new("torch-layout", json!({}))]
    }

    /// Which of our steps this is; `None` for a step of yours.
    pub(crate) fn own(&self) -> Option<Own> {
        Own::of(&self.name)
    }
}

impl<T: Transform> From<T> for Step {
    fn from(step: T) -> Self {
        Self::new(step.name(), step.settings())
    }
}

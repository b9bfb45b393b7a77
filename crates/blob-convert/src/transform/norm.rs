//! Normalisations: the layers, and their tensors, as the settings of transforms name them in a receipt.

use blob_io::TensorName;
use blob_io::net::{Layer, LayerKind};
use serde::{Deserialize, Serialize};

/// Whether a layer divides by the root of a stored variance and an eps.
pub(crate) fn is_norm(layer: &Layer) -> bool {
    matches!(layer.kind, LayerKind::BatchNorm | LayerKind::Bn)
}

/// The tensors of one of Caffe's BatchNorms.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Norm {
    pub(super) mean: String,
    pub(super) variance: String,
    pub(super) factor: String,
}

impl Norm {
    pub(super) fn names(&self) -> [&str; 3] {
        [&self.mean, &self.variance, &self.factor]
    }

    /// The mean and the variance that are among a conversion's tensors: the places and the names.
    pub(super) fn found(&self, find: impl Fn(&str) -> Option<usize>) -> (Vec<usize>, Vec<&str>) {
        let both = [&*self.mean, &*self.variance].into_iter();
        both.filter_map(|name| Some((find(name)?, name))).unzip()
    }

    pub(crate) fn mean(&self) -> &str {
        &self.mean
    }

    pub(crate) fn variance(&self) -> &str {
        &self.variance
    }

    pub(crate) fn factor(&self) -> &str {
        &self.factor
    }

    /// The same layer with new names of mean and variance. A missing name, and the factor's, follow from the layer of
    /// the given name.
    pub(crate) fn called(&self, mean: Option<&str>, variance: Option<&str>) -> Self {
        let layer = |name: &str| TensorName::of(name).layer().map(str::to_owned);
        let both = [(mean, &self.mean), (variance, &self.variance)];
        let moved = both.into_iter().find_map(|(new, old)| Some((layer(old)?, layer(new?)?)));
        let called = |name: &str| match (&moved, TensorName::of(name).layer()) {
            (Some((old, new)), Some(layer)) if layer == old => format!("{new}{}", &name[layer.len()..]),
            _ => name.to_owned(),
        };
        let own = |new: Option<&str>, old: &str| new.map_or_else(|| called(old), str::to_owned);
        Self { mean: own(mean, &self.mean), variance: own(variance, &self.variance), factor: called(&self.factor) }
    }
}

/// The variance of one normalisation.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Variance {
    pub(crate) variance: String,
    /// The factor by which the variance must have been divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) factor: Option<String>,
    /// The eps that the layer adds to the variance.
    pub(crate) eps: f64,
}

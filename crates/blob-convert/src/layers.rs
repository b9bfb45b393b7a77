//! The layer of a tensor, from the tensor's name: `conv1` for `conv1_weight`.

use blob_io::{Group, TensorName};

/// The last parts of MXNet's names.
const PARAMETERS: [&str; 9] =
    ["weight", "bias", "gamma", "beta", "alpha", "moving_mean", "moving_var", "running_mean", "running_var"];

/// The layer of a tensor of this name; for a name of one part, the whole name.
pub(crate) fn layer(name: &str) -> &str {
    let name = TensorName::without_diff(name);
    if let Some(layer) = TensorName::of(name).layer().or_else(|| Some(name.rsplit_once('.')?.0)) {
        return layer;
    }
    let (_, name) = Group::split(name);
    let mut layers = PARAMETERS.iter().filter_map(|word| name.strip_suffix(word)?.strip_suffix('_'));
    layers.find(|layer| !layer.is_empty()).unwrap_or(name)
}

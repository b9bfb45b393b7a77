//! The layer that a tensor belongs to by its name.

use blob_io::mxnet::split_prefix;

/// The last parts of MXNet's names.
const PARAMETERS: [&str; 9] =
    ["weight", "bias", "gamma", "beta", "alpha", "moving_mean", "moving_var", "running_mean", "running_var"];

/// The layer of a tensor of this name; of a name of one part, the name.
pub(crate) fn layer(name: &str) -> &str {
    let name = name.strip_suffix(".diff").unwrap_or(name);
    if let Some((layer, _)) = name.rsplit_once('/').or_else(|| name.rsplit_once('.')) {
        return layer;
    }
    let (_, name) = split_prefix(name);
    let without = |word: &&str| name.strip_suffix(*word)?.strip_suffix('_').filter(|layer| !layer.is_empty());
    PARAMETERS.iter().find_map(without).unwrap_or(name)
}

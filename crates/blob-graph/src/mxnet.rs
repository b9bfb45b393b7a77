//! MXNet's operators: the table, and the attributes that do not matter here.
//!
//! One row an operator. The functions that the rows name are in the files of this folder. Rules are those of the
//! operators' `InferShape` and `Forward` in apache/mxnet 1.9.1.

mod norm;
mod order;
mod pool;
mod reduce;
mod resize;
mod roi;
mod rows;
mod shape;
mod slice;
mod ssd;
mod value;
mod window;

use blob_io::net::Layer;

use crate::row::{Kind, Row, lists};

/// Attributes that change nothing in inference: the choice between equal implementations, devices, training, and how
/// many inputs there are, which the node lists.
const IGNORED: &str = "workspace cudnn_tune cudnn_off cudnn_algo_fwd cudnn_algo_bwd_data cudnn_algo_bwd_filter \
     ctx_group lr_mult wd_mult force_mirroring mirror_stage num_args";

/// The ends of attributes that change nothing in inference.
const IGNORED_ENDS: &str = "_lr_mult _wd_mult";

/// The part that a layer of this type has.
pub(crate) fn kind(type_name: &str) -> Kind {
    rows::TABLE.iter().find(|row| lists(row.types, type_name)).map_or(Kind::Unknown, Kind::Known)
}

/// All rows.
pub(crate) fn table() -> &'static [Row] {
    rows::TABLE
}

/// The attributes of a layer that inference may need.
pub(crate) fn settings(layer: &Layer) -> impl Iterator<Item = (String, String)> {
    let all = layer.attributes().filter(|(name, _)| !is_ignored(name));
    all.map(|(name, text)| (name.to_owned(), text.to_owned()))
}

fn is_ignored(name: &str) -> bool {
    name.starts_with("__") || lists(IGNORED, name) || IGNORED_ENDS.split_whitespace().any(|end| name.ends_with(end))
}

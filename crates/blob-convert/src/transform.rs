//! The changes that a conversion can make to tensors: names, values, dtypes, shapes. One file a transform.
//!
//! A [`Transform`] decides from names, dtypes and shapes alone; a [`Compute`] then makes the values while the output is
//! written, piece by piece. Both can be of a type of your own:
//!
//! ```
//! use blob_convert::transform::{Context, Made, Misfit, Outcome, Spec, Transform};
//!
//! /// Puts a word in front of every name.
//! #[derive(Debug)]
//! struct Prefix(&'static str);
//!
//! impl Transform for Prefix {
//!     fn name(&self) -> &'static str {
//!         "prefix"
//!     }
//!
//!     fn settings(&self) -> serde_json::Value {
//!         serde_json::json!({ "with": self.0 })
//!     }
//!
//!     fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
//!         let renamed = |(place, spec): (usize, &Spec<'_>)| {
//!             let mut made = Made::same(place, spec);
//!             made.tensor.name = format!("{}{}", self.0, spec.tensor.name);
//!             made
//!         };
//!         Ok(tensors.iter().enumerate().map(renamed).collect())
//!     }
//! }
//! # use blob_convert::{Options, Place, plan};
//! # use blob_io::{Checkpoint, Format};
//! # let file = b"\x2A\x08\x00\x00\x80\x3F\x00\x00\x00\x40\x3A\x03\x0A\x01\x02";
//! # let source = Checkpoint::from_bytes("two.binaryproto", &file[..])?;
//! let options = Options::new(Format::Safetensors).transform(Prefix("net."));
//! assert_eq!(plan(&source, &options, &Place::Stdout)?.tensors()[0].spec.name, "net.@0");
//! # Ok::<(), blob_io::Error>(())
//! ```

mod binding;
mod bn;
mod dtype;
mod eps;
mod extents;
mod f64_io;
mod factor;
mod fc_from;
mod fold;
mod followed;
mod gamma;
pub(crate) mod ignored;
mod layout;
mod merge;
mod names;
mod namesakes;
mod norm;
pub(crate) mod onnx;
mod order;
mod panels;
mod permute;
mod registry;
mod reorder;
mod reports;
mod rgb;
mod role;
mod runs;
mod select;
mod selection;
mod split;
mod squeeze_legacy;
mod step;
mod strip_diff;
mod topology;
mod torch;
mod undo;
mod values;
mod wish;

pub use binding::Bound;
pub(crate) use binding::{MovedEps, bare, spellings};
pub use bn::BatchNorm;
pub use dtype::Dtype;
pub use eps::Eps;
pub(crate) use eps::Wished as WishedEps;
pub(crate) use eps::{OtherEps, is_same, is_variance};
pub(crate) use factor::Factors;
pub use fc_from::FcFrom;
pub(crate) use fold::FoldedNames;
pub use fold::{Fold, Refusal, RefusalKind};
pub(crate) use followed::{Choice, Followed, FollowedNet};
pub use followed::{NetFrom, NetOrigin, Topology, symbol_name};
pub use gamma::FixGamma;
pub use ignored::ignored;
pub use layout::Layout;
pub use merge::Merge;
pub(crate) use names::wished::{Given, Wished};
pub use names::{Names, Room};
pub(crate) use norm::is_norm;
pub use norm::{Norm, Variance};
pub use onnx::{Initializer, Onnx};
pub(crate) use panels::Panels;
pub use permute::Permute;
pub(crate) use registry::Own;
pub use registry::Registry;
pub(crate) use reorder::Reorder;
pub use reports::{Amount, Found, Witness};
pub(crate) use reports::{Reports, grouped};
pub use rgb::Rgb;
pub use selection::{Dims, Selected, Selection};
pub use split::Split;
pub use squeeze_legacy::SqueezeLegacy;
pub use step::{Context, Fact, Left, Made, Misfit, Outcome, Spec, Transform, Undone, Values};
pub use strip_diff::StripDiff;
pub use torch::TorchLayout;
pub(crate) use undo::{Turned, Undo};
pub use values::{Compute, Inputs, Stream, computed, ready};
pub(crate) use wish::Wish;

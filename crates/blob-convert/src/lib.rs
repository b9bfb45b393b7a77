//! Converts one tensor file to another, with a list of all changes and a receipt that proves the conversion.
//!
//! First [`plan`] gives each tensor a place in the output, from headers alone; then [`Plan::run`] writes the output in
//! one pass over the source's bytes, and hashes every byte. This crate does not know arguments or terminals.
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod again;
mod alone;
mod applied;
pub mod batch;
mod before;
mod caffe;
mod cast;
pub mod change;
mod chosen;
mod compare;
mod copies;
mod destination;
pub mod diff;
pub mod digest;
mod dimensions;
mod finding;
mod fits;
mod frame;
mod goal;
pub mod graph;
mod hash;
mod hdf5;
mod history;
mod layers;
mod layout;
mod model;
mod moves;
mod net_file;
mod onnx;
mod options;
mod pairing;
mod pass;
mod pipeline;
mod plan;
mod planned;
mod receipt;
pub mod recipe;
pub mod regroup;
#[cfg(feature = "report")]
#[doc(hidden)]
pub mod report;
mod rounded;
mod runs;
mod self_check;
mod several;
mod shards;
mod shown;
mod sink;
mod source;
mod state;
pub mod stats;
mod step;
mod stored;
mod symbol;
mod target;
mod template;
mod threads;
mod together;
pub mod transform;
mod undo;
pub mod verify;
mod watch;
mod written;

pub use alone::{Alone, alone};
pub use chosen::readable;
pub use goal::Place;
pub use history::{KEY as RECEIPT_KEY, Origin};
pub use options::Options;
pub use pass::Summary;
pub use plan::{Plan, plan, plan_into};
pub use planned::{LeftOut, Planned};
pub use receipt::{Account, Changed};
pub use recipe::Recipe;
pub use several::Plans;
pub use source::{check_output, check_source};
pub use step::Step;
pub use stored::momentum;
#[doc(hidden)]
pub use threads::in_order;
pub use together::{Folders, Together};
pub use transform::{Dims, Selected, Selection};
pub use verify::{Verified, verified};
pub use watch::{Silent, Watch, Watched};

//! What a conversion of one tensor file to another changes, and the receipt that proves it.
//!
//! First [`plan`] decides, from headers alone, what goes where; then [`Plan::run`] does it in one pass over the
//! source's bytes, hashing each of them. This crate does not know arguments or terminals.
//!
//! ```
//! use blob_convert::{Options, Silent, Target, plan};
//! use blob_io::{Bytes, Checkpoint, Format, IfExists};
//!
//! let file = b"\x2A\x08\x00\x00\x80\x3F\x00\x00\x00\x40\x3A\x03\x0A\x01\x02";
//! let source = Checkpoint::from_source("two.binaryproto", Box::new(Bytes(&file[..])))?;
//! # let folder = std::env::temp_dir().join(format!("blob-convert-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder).unwrap();
//! # let path = folder.join("two.safetensors");
//! let target = Target::File { path: &path, if_exists: IfExists::Replace };
//! let plan = plan(&source, &Options::new(Format::Safetensors), &target)?;
//! assert_eq!(plan.tensors()[0].spec.name, "@0");
//! let summary = plan.run(&Silent)?;
//! assert_eq!(summary.bytes_in, 15);
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok::<(), blob_io::Error>(())
//! ```

#![forbid(unsafe_code)]

mod again;
mod base;
mod before;
mod caffe;
mod cast;
mod chain;
pub mod change;
mod chosen;
mod copies;
pub mod diff;
pub mod digest;
mod done;
mod frame;
mod goal;
mod hash;
mod hdf5;
mod layers;
mod layout;
mod options;
mod pairing;
mod pass;
mod plan;
mod planned;
mod receipt;
pub mod regroup;
mod rounded;
mod shards;
mod sink;
mod source;
pub mod stats;
mod stored;
mod target;
mod threads;
pub mod transform;
pub mod verify;
mod watch;
mod words;

pub use goal::Target;
pub use options::Options;
pub use pass::Summary;
pub use plan::{Plan, plan, plan_into};
pub use planned::{LeftOut, Planned};
pub use receipt::{Account, Changed, KEY as RECEIPT_KEY, Origin, Step};
pub use source::{check_output, check_shards};
pub use transform::{Dims, Selected, Selection};
pub use watch::{Silent, Watch, Watched};

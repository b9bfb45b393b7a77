//! The tensors of several files for one file, and the groups of tensors of a file that go into one file together: the
//! decisions of `blob merge` and `blob split`. Reads headers only, until a plan is carried out.

mod groups;
mod joined;
mod mixed;
mod union;

pub use groups::by_layer;
pub(crate) use groups::{by_size, names_beside, singles};
pub use joined::Joined;
pub use union::{Clash, Union};

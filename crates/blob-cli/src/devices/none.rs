//! Stands in for `cuda` if the tool is built without that feature: there are no GPUs.

use super::{Absence, Gpu};

pub(super) fn list() -> Result<Vec<Gpu>, Absence> {
    Err(Absence {
        reason: "not-built",
        message: "this `blob` was built without its feature `cuda`".to_owned(),
        help: "build it with its default features",
    })
}

//! Forks of this system are not seen.

/// Does nothing.
pub(super) fn watch() {}

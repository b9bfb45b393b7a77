//! Where an output goes: a file, a folder, standard output.

use std::path::Path;

use blob_io::IfExists;

/// Where the output goes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Target<'a> {
    /// A file: written under a temporary name beside it, and renamed when it is complete.
    File {
        /// The file.
        path: &'a Path,
        /// What happens to an existing file.
        if_exists: IfExists,
    },
    /// Standard output.
    Stdout,
    /// A folder of `.npy` files, whatever the options' format.
    Folder {
        /// The folder.
        path: &'a Path,
        /// What happens to an existing folder; only one that holds just what an earlier conversion wrote is replaced.
        if_exists: IfExists,
    },
}

impl<'a> Target<'a> {
    /// If it is a file: its path, and what happens to an existing file.
    pub(crate) fn file(&self) -> Option<(&'a Path, IfExists)> {
        match *self {
            Self::File { path, if_exists } => Some((path, if_exists)),
            _ => None,
        }
    }

    /// If it is a file or a folder: its path, and what happens to an existing one.
    pub(crate) fn path(&self) -> Option<(&'a Path, IfExists)> {
        match *self {
            Self::File { path, if_exists } | Self::Folder { path, if_exists } => Some((path, if_exists)),
            Self::Stdout => None,
        }
    }
}

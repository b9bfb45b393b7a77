//! The place of an output: a file, a folder or standard output, and whether an output there is a net of layers.

use std::path::Path;

use blob_io::hdf5::Form;
use blob_io::{Format, IfExists, Nets};

use crate::hdf5 as h5;

/// The place of an output.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Place<'a> {
    /// A file: written under a temporary name in the same folder, and renamed when complete.
    File {
        /// The file.
        path: &'a Path,
        /// Whether an existing file is refused or replaced.
        if_exists: IfExists,
    },
    /// Standard output.
    Stdout,
    /// A folder of `.npy` files, whatever the options' format.
    Folder {
        /// The folder.
        path: &'a Path,
        /// Whether an existing folder is refused or replaced. A folder with other files than an earlier conversion
        /// wrote is never replaced.
        if_exists: IfExists,
    },
}

impl<'a> Place<'a> {
    /// The format of a file there; `to` is the one that is asked for.
    pub(crate) fn format(&self, to: Format) -> Format {
        match self {
            Self::Folder { .. } => Format::Npy,
            Self::File { .. } | Self::Stdout => to,
        }
    }

    /// For a file: the path, and whether an existing file is refused or replaced.
    pub(crate) fn file(&self) -> Option<(&'a Path, IfExists)> {
        match *self {
            Self::File { path, if_exists } => Some((path, if_exists)),
            _ => None,
        }
    }

    /// For a file or a folder: the path, and whether an existing one is refused or replaced.
    pub(crate) fn path(&self) -> Option<(&'a Path, IfExists)> {
        match *self {
            Self::File { path, if_exists } | Self::Folder { path, if_exists } => Some((path, if_exists)),
            Self::Stdout => None,
        }
    }
}

/// Whether a file of a format is a Caffe net, in which each layer contains its tensors.
pub(crate) fn has_layers(to: Format, path: Option<&Path>) -> bool {
    to.holds().net == Nets::Read || h5::form(to, path) == Some(Form::Weights)
}

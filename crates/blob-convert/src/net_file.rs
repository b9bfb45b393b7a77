//! A file that describes a net.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blob_io::{Error, read_text};
use serde::{Deserialize, Serialize};

use crate::transform::Topology;

/// The most bytes of a prototxt and of a symbol file; their readers refuse longer ones.
const LONGEST_PROTOTXT: u64 = 16 << 20;
const LONGEST_SYMBOL: u64 = 128 << 20;

/// A file that describes a net.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NetFile {
    /// Caffe's prototxt.
    Prototxt(PathBuf),
    /// MXNet's symbol file.
    Symbol(PathBuf),
}

impl NetFile {
    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        let (Self::Prototxt(path) | Self::Symbol(path)) = self;
        path
    }

    /// Reads the net.
    ///
    /// # Errors
    /// Any error of reading the file; a description that makes no sense.
    pub fn read(&self) -> Result<Arc<Topology>, Error> {
        let longest = match self {
            Self::Prototxt(_) => LONGEST_PROTOTXT,
            Self::Symbol(_) => LONGEST_SYMBOL,
        };
        self.of_text(&read_text(self.path(), longest)?)
    }

    /// The net of a file with this text.
    pub(crate) fn of_text(&self, text: &[u8]) -> Result<Arc<Topology>, Error> {
        let name = self.path().display().to_string();
        let net = match self {
            Self::Prototxt(_) => Topology::prototxt(&name, text)?,
            Self::Symbol(_) => Topology::symbol(&name, text)?,
        };
        Ok(Arc::new(net))
    }
}

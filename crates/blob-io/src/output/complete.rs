//! A file that is complete and has no name yet: read again, then named, or given up.

use std::io::Write;

use crate::error::Error;
use crate::output::{Backing, disk, failed};
use crate::wire::sink::Sink;
use crate::wire::source::{Input, Source};

impl Backing {
    /// Ends the writing.
    pub(super) fn complete(&mut self, name: &str) -> Result<(), Error> {
        match self {
            Self::Sibling(sibling) => sibling.complete(name),
            Self::Pair(pair) => pair.complete(name),
            Self::Inside { file, kept, sync } => {
                kept.protect(file).map_err(|e| failed(name, "keep the permissions", e))?;
                if *sync {
                    disk::sync(file).map_err(|e| failed(name, "sync", e))?;
                }
                Ok(())
            }
            Self::Held(_) | Self::Direct(_) => Ok(()),
            Self::Stdout(stdout) => stdout.flush().map_err(|e| failed(name, "flush", e)),
        }
    }
}

/// The bytes of one or two files, to be read again.
pub(crate) struct Written {
    pub(crate) file: Box<dyn Source>,
    /// The second file, and its name within its folder.
    pub(crate) beside: Option<(String, Input)>,
}

/// A file that is written to the end and does not have the target's name yet. Dropping the `Complete` removes the file,
/// unless that file is in an [`OutputDir`](crate::layout::OutputDir), or is a pipe or a device.
#[derive(Debug)]
pub struct Complete {
    pub(super) name: String,
    pub(super) backing: Backing,
}

impl Complete {
    /// The target's name, as given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The written bytes, to be read before the file gets the target's name; `None` for a pipe or a device.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn source(&self) -> Result<Option<Box<dyn Source>>, Error> {
        let source = self.backing.sink().map(Sink::source);
        source.transpose().map_err(|e| failed(&self.name, "read again", e))
    }

    /// The written bytes of the file, and of the second one, where there are two; `None` for a pipe or a device.
    pub(crate) fn written(&self) -> Result<Option<Written>, Error> {
        let Backing::Pair(pair) = &self.backing else {
            return Ok(self.source()?.map(|file| Written { file, beside: None }));
        };
        pair.written().map(Some).map_err(|e| failed(&self.name, "read again", e))
    }

    /// Gives the file the target's name. A file of an [`OutputDir`](crate::layout::OutputDir) is named with the folder.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Exists`] if another process has made the target meanwhile, under
    /// [`IfExists::Refuse`](crate::IfExists::Refuse), with other bytes under
    /// [`IfExists::Same`](crate::IfExists::Same). The target is then unchanged.
    pub fn publish(self) -> Result<(), Error> {
        match self.backing {
            Backing::Sibling(sibling) => sibling.publish(&self.name),
            Backing::Pair(pair) => pair.into_parts(self.name).publish(),
            Backing::Held(held) => held.finish().map_err(|e| failed(&self.name, "keep", e)),
            Backing::Inside { .. } | Backing::Direct(_) | Backing::Stdout(_) => Ok(()),
        }
    }
}

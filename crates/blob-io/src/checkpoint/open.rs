//! How a file becomes a checkpoint: opened, told what it is, and its arrays gathered.

use std::path::Path;

use super::Checkpoint;
use crate::error::Error;
use crate::folder;
use crate::format::Format;
use crate::limits::Limits;
use crate::names::Gather;
use crate::sniff;
use crate::source::{FileSource, Input, Source, spool};

/// How to open a file: which format to take it for, and what it may cost.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    from: Option<Format>,
    limits: Limits,
}

impl OpenOptions {
    /// The defaults: the format is found by content, the limits are [`Limits::default`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the file for this format, whatever it looks like.
    #[must_use]
    pub fn from(mut self, format: Format) -> Self {
        self.from = Some(format);
        self
    }

    /// Bounds what opening and loading may cost.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Opens a file, or a folder of npy files that a conversion wrote: its receipt says which tensor lies in which. A pipe
    /// or another file without positions is read to its end first.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Checkpoint, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let refuse = |source| Error::Io {
            file: name.clone(),
            action: "open".to_owned(),
            source,
        };
        if path.is_dir() {
            return self.open_folder(path, name);
        }
        let file = std::fs::File::open(path).map_err(refuse)?;
        let meta = file.metadata().map_err(refuse)?;
        let source: Box<dyn Source> = if meta.is_file() || meta.is_dir() {
            Box::new(FileSource::new(file).map_err(refuse)?)
        } else {
            spool(file).map_err(refuse)?
        };
        self.open_source(name, source)
    }

    /// Opens a folder of npy files that a conversion wrote.
    fn open_folder(&self, path: &Path, name: String) -> Result<Checkpoint, Error> {
        if let Some(other) = self.from.filter(|from| *from != Format::Npy) {
            let message = format!("is a folder, and holds npy files, not {}", other.name());
            return Err(Error::Request {
                file: name,
                message,
            });
        }
        let mut gather = Gather::new(&self.limits);
        let folder = folder::open(path, &name, &mut gather)?;
        let dialect = format!("folder of {} files", folder.count());
        let input = Input::new(Box::new(folder));
        Ok(self.opened(name, (Format::Npy, dialect), input, gather))
    }

    /// Opens a source; `name` is what errors and the extension's hint call it.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn open_source(
        &self,
        name: impl Into<String>,
        source: Box<dyn Source>,
    ) -> Result<Checkpoint, Error> {
        let name = name.into();
        let input = Input::new(source);
        let mut gather = Gather::new(&self.limits);
        let (format, dialect) = match sniff::read(&input, &name, self.from, &mut gather) {
            Ok(found) => found,
            Err(sniff::Refusal::Stop(stop, subject)) => {
                let mut error = stop.into_error(&name, subject);
                if let Error::Malformed { intact, .. } = &mut error {
                    *intact = Some(gather.intact());
                }
                return Err(error);
            }
            Err(sniff::Refusal::Other(reason, what, help)) => {
                return Err(Error::NotTensors {
                    file: name,
                    reason,
                    what,
                    help,
                });
            }
        };
        Ok(self.opened(name, (format, dialect), input, gather))
    }

    fn opened(
        &self,
        name: String,
        (format, dialect): (Format, String),
        input: Input,
        mut gather: Gather,
    ) -> Checkpoint {
        Checkpoint {
            name,
            format,
            dialect,
            warnings: std::mem::take(&mut gather.warnings),
            faults: std::mem::take(&mut gather.faults),
            metadata: std::mem::take(&mut gather.metadata),
            positions: gather.positions as usize,
            entries: gather.into_entries(),
            limits: self.limits.clone(),
            input,
        }
    }
}

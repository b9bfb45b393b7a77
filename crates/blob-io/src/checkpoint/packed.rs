//! A checkpoint's two sources: the bytes that are read, and the stored file's bytes. The two differ for gzip files and
//! archives.

use std::path::Path;

use super::Checkpoint;
use crate::error::Error;
use crate::names::name_from_bytes;
use crate::wire::source::{Input, Source};

/// A gzip file or an archive that the bytes were taken from.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) stored: Input,
    pub(super) is_gzip: bool,
    /// The archive's member that is read.
    pub(super) member: Option<String>,
}

impl Checkpoint {
    /// The name of the file, as given at opening; for an archive's member, `model.tar.gz/net-0000.params`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file, as named at opening: of an archive, without the member.
    #[must_use]
    pub fn file(&self) -> &str {
        let member = self.member().map_or(0, |member| "/".len() + member.len());
        &self.name[..self.name.len() - member]
    }

    /// What is read on the disk: a file, an archive, a folder, an index of shards; of a stream the file that the stream
    /// is redirected from. `None` for any other stream, and for bytes or a source of the caller's.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Checks by length and modification time that the file has not changed since opening.
    ///
    /// # Errors
    /// [`Error::Request`] if the file has changed; [`Error::Io`] if the metadata cannot be read.
    pub fn unchanged(&self) -> Result<(), Error> {
        match self.stored().is_unchanged() {
            Ok(true) => Ok(()),
            Ok(false) => {
                let message = "was changed while it was read".to_owned();
                Err(Error::Request { file: self.name.clone(), message })
            }
            Err(source) => Err(Error::Io { file: self.name.clone(), action: "look at".to_owned(), source }),
        }
    }

    /// The name of the archive's member that was opened, where the file is an archive.
    #[must_use]
    pub fn member(&self) -> Option<&str> {
        self.packed.as_ref()?.member.as_deref()
    }

    /// If the file is an index of shards, the names of the shards beside the index, and offsets refer to the
    /// concatenation of the shards. Of an ONNX model, the names of the files beside the model that have values, and
    /// offsets refer to the model with these files behind it.
    #[must_use]
    pub fn shards(&self) -> &[String] {
        &self.shards
    }

    /// The length of the file itself, without the values of an ONNX model in other files behind it.
    #[must_use]
    pub fn first_len(&self) -> u64 {
        self.model_len.unwrap_or_else(|| self.file_len())
    }

    /// The size in bytes of what is read: the file, the content of a gzip file, or the member of an archive.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        self.input.len()
    }

    /// How many bytes have been read from the source so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        let packed = self.packed.as_ref().map_or(0, |packed| packed.stored.bytes_read());
        self.input.bytes_read() + packed
    }

    /// The bytes that all offsets refer to, for a full pass: the bytes of the file, of the content of a gzip file, or
    /// of an archive's member.
    #[must_use]
    pub fn source(&self) -> &dyn Source {
        &self.input
    }

    /// The bytes of the stored file, for size and digest, even of a gzip file or an archive.
    #[must_use]
    pub fn stored(&self) -> &dyn Source {
        self.packed.as_ref().map_or(&self.input, |packed| &packed.stored)
    }

    /// Whether [`Checkpoint::source`] differs from the file's bytes: the source was unpacked, or is a member of an
    /// archive.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        self.packed.is_some()
    }

    /// Whether the file is a gzip file, so that [`Checkpoint::source`] is the content, or a member of that.
    #[must_use]
    pub fn is_gzip(&self) -> bool {
        self.packed.as_ref().is_some_and(|packed| packed.is_gzip)
    }
}

/// The file or pipe among a path's parents, and the rest of the path: an archive and the name of a member.
pub(crate) fn split_at_file(path: &Path) -> Option<(&Path, String)> {
    let (file, meta) = path.ancestors().skip(1).find_map(|file| Some((file, file.metadata().ok()?)))?;
    let rest = path.strip_prefix(file).ok().filter(|_| !meta.is_dir())?;
    let parts: Vec<_> = rest.iter().map(|part| name_from_bytes(part.as_encoded_bytes())).collect();
    Some((file, parts.join("/")))
}

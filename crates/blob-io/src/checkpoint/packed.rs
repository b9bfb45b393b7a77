//! A checkpoint's two sources: the bytes that are read and the bytes of the file. They differ for a gzip file and an
//! archive.

use super::Checkpoint;
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
    /// What is read, as it was named when it was opened; of an archive's member, `model.tar.gz/net-0000.params`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file, as it was named when it was opened: without the member, where it is an archive.
    #[must_use]
    pub fn file(&self) -> &str {
        let member = self.member().map_or(0, |member| "/".len() + member.len());
        &self.name[..self.name.len() - member]
    }

    /// The name of the archive's member that was opened, where the file is an archive.
    #[must_use]
    pub fn member(&self) -> Option<&str> {
        self.packed.as_ref()?.member.as_deref()
    }

    /// The names of the files beside the index that the tensors lie in, where the file is an index of shards; their
    /// bytes, each file after the other, are what offsets count.
    #[must_use]
    pub fn shards(&self) -> &[String] {
        &self.shards
    }

    /// The size in bytes of what is read: the file, what a gzip file unpacks to, the member of an archive.
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

    /// The bytes that all offsets count, for a pass over all of them: the file's, what a gzip file unpacks to, or those
    /// of an archive's member.
    #[must_use]
    pub fn source(&self) -> &dyn Source {
        &self.input
    }

    /// The bytes of the file as they are stored, for its size and its digest: also of a gzip file and of an archive.
    #[must_use]
    pub fn stored(&self) -> &dyn Source {
        self.packed.as_ref().map_or(&self.input, |packed| &packed.stored)
    }

    /// Whether [`Checkpoint::source`] differs from the file's bytes: they were unpacked, or are one member's.
    #[must_use]
    pub fn is_packed(&self) -> bool {
        self.packed.is_some()
    }

    /// Whether the file is a gzip file, and [`Checkpoint::source`] what it unpacks to, or a member of that.
    #[must_use]
    pub fn is_gzip(&self) -> bool {
        self.packed.as_ref().is_some_and(|packed| packed.is_gzip)
    }
}

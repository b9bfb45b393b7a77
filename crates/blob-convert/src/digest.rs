//! Digests of a file, or of the tensors independent of the format, as `blob hash` prints.
//!
//! `docs/content-hash.md` defines the digest of the tensors. Each byte is read once; memory stays at a few pieces and
//! 40 bytes a tensor.

use std::io::{ErrorKind, Read};

use blob_core::DType;
use blob_io::{Checkpoint, Entry, Error, Kind, Source};
use sha2::Digest as _;

use crate::hash::{PIECE, Streams, for_each_piece, pieces_in_turn};
use crate::threads::{in_turn, io_threads};
use crate::watch::{Watch, Watched};

/// A prefix that separates these digests from every other use of the hash function.
const DOMAIN: &[u8] = b"blob.content/1\n";

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Algorithm {
    /// BLAKE3, 256 bits.
    Blake3,
    /// SHA-256.
    Sha256,
}

impl Algorithm {
    /// The name, in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Blake3 => "blake3",
            Self::Sha256 => "sha256",
        }
    }

    fn hasher(self) -> Hasher {
        match self {
            Self::Blake3 => Hasher::Blake3(Box::new(blake3::Hasher::new())),
            Self::Sha256 => Hasher::Sha256(sha2::Sha256::new()),
        }
    }
}

/// A digest, with the number of covered bytes and tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hashed {
    /// The digest in lower-case hexadecimal.
    pub digest: String,
    /// The number of covered bytes: of a file, or of all tensors.
    pub bytes: u64,
    /// The number of covered tensors; `None` for a file or a stream.
    pub tensors: Option<u64>,
}

enum Hasher {
    Blake3(Box<blake3::Hasher>),
    Sha256(sha2::Sha256),
}

impl Hasher {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Blake3(hasher) => drop(hasher.update(bytes)),
            Self::Sha256(hasher) => hasher.update(bytes),
        }
    }

    /// A number as 8 bytes, little-endian.
    fn number(&mut self, n: usize) {
        self.update(&(n as u64).to_le_bytes());
    }

    /// The length of a text, then the text.
    fn text(&mut self, text: &str) {
        self.number(text.len());
        self.update(text.as_bytes());
    }

    fn finish(self) -> [u8; 32] {
        match self {
            Self::Blake3(hasher) => hasher.finalize().into(),
            Self::Sha256(hasher) => hasher.finalize().into(),
        }
    }
}

/// The input of a digest.
#[non_exhaustive]
pub enum Subject<'a> {
    /// The bytes of a file; several threads compute a BLAKE3.
    File {
        /// The file's name in errors.
        name: &'a str,
        /// The bytes.
        source: &'a dyn Source,
    },
    /// The bytes that a pipe or a device gives. `watch` can stop the work, but nothing is counted, because the length
    /// is not known.
    Stream {
        /// The stream's name in errors.
        name: &'a str,
        /// The bytes.
        from: &'a mut (dyn Read + Send),
    },
    /// The tensors: the same for equal names, dtypes, shapes and bytes in any format and order.
    ///
    /// A place without an array does not count; each part of a sparse array counts as a tensor. u16 that a receipt
    /// declares to be the bits of bf16 counts as bf16.
    Tensors(&'a Checkpoint),
}

/// The digest of a file, a stream or tensors.
///
/// # Errors
/// An error of the operating system while reading; an array that cannot be read, because none is left out;
/// [`Error::Interrupted`] where `watch` says so.
pub fn digest(subject: Subject<'_>, algorithm: Algorithm, watch: &dyn Watch) -> Result<Hashed, Error> {
    match subject {
        Subject::File { name, source } => file(name, source, algorithm, watch),
        Subject::Stream { name, from } => stream(name, from, algorithm, watch),
        Subject::Tensors(checkpoint) => content(checkpoint, algorithm, watch),
    }
}

fn file(name: &str, source: &dyn Source, algorithm: Algorithm, watch: &dyn Watch) -> Result<Hashed, Error> {
    let bytes = source.len();
    let digest = match algorithm {
        Algorithm::Blake3 => {
            let hashed = Streams::new(vec![bytes]);
            pieces_in_turn(name, source, io_threads(), watch, &|at, piece| {
                hashed.put(0, at, piece);
                Ok(())
            })?;
            hashed.finish()[0].into()
        }
        Algorithm::Sha256 => {
            let mut hasher = algorithm.hasher();
            for_each_piece(name, source, watch, |_, piece| hasher.update(piece))?;
            hasher.finish()
        }
    };
    Ok(Hashed { digest: hex(digest), bytes, tensors: None })
}

fn stream(name: &str, from: &mut dyn Read, algorithm: Algorithm, watch: &dyn Watch) -> Result<Hashed, Error> {
    let (mut hasher, mut bytes, mut buf) = (algorithm.hasher(), 0, vec![0; PIECE]);
    loop {
        if watch.cancelled() {
            return Err(Error::Interrupted);
        }
        match from.read(&mut buf) {
            Ok(0) => return Ok(Hashed { digest: hex(hasher.finish()), bytes, tensors: None }),
            Ok(n) => {
                hasher.update(&buf[..n]);
                bytes += n as u64;
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(source) => return Err(Error::Io { file: name.to_owned(), action: "read".to_owned(), source }),
        }
    }
}

fn content(checkpoint: &Checkpoint, algorithm: Algorithm, watch: &dyn Watch) -> Result<Hashed, Error> {
    checkpoint.check_whole()?;
    let mut entries = Vec::new();
    for entry in checkpoint.entries().iter().filter(|entry| entry.kind() != Kind::None) {
        // Returns the error of an array that cannot be read.
        checkpoint.spec(entry)?;
        entries.push(entry);
    }
    entries.sort_unstable_by_key(|entry| entry.name());
    let digests = array_digests(checkpoint, &entries, algorithm, watch)?;
    let (mut hasher, mut bytes) = (algorithm.hasher(), 0);
    hasher.update(DOMAIN);
    for (entry, digest) in entries.iter().zip(&digests) {
        let dtype = entry.dtype().unwrap_or(DType::U8);
        let shape = entry.shape().dims();
        hasher.text(entry.name());
        hasher.text(dtype.name());
        hasher.number(shape.len());
        shape.iter().for_each(|extent| hasher.number(*extent));
        hasher.update(digest);
        bytes += entry.byte_len();
    }
    Ok(Hashed { digest: hex(hasher.finish()), bytes, tensors: Some(entries.len() as u64) })
}

/// The digest of each array's bytes. Threads take the arrays in turn.
fn array_digests(
    checkpoint: &Checkpoint,
    entries: &[&Entry],
    algorithm: Algorithm,
    watch: &dyn Watch,
) -> Result<Vec<[u8; 32]>, Error> {
    let shares = in_turn(io_threads(), entries.len() as u64, Vec::new, |mine, at| {
        let (at, mut hasher) = (at as usize, algorithm.hasher());
        Watched::open(checkpoint, entries[at], watch)?.each(PIECE, |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        mine.push((at, hasher.finish()));
        Ok(())
    })?;
    let mut digests = vec![[0; 32]; entries.len()];
    for (at, digest) in shares.into_iter().flatten() {
        digests[at] = digest;
    }
    Ok(digests)
}

fn hex(digest: [u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

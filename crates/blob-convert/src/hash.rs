//! BLAKE3 of a source that is hashed in pieces, in any order and on several threads; SHA-256 beside it.
//!
//! BLAKE3 is a tree: pieces of a power of two are whole subtrees, joined as section 2.1 of the BLAKE3 paper says.

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use blob_io::{Error, Source};
use sha2::Digest;

/// What is hashed at once: a power of two, and small enough to be in cache still when it is written.
pub(crate) const PIECE: usize = 1 << 20;

/// What the source's bytes add up to, in lower-case hexadecimal.
#[derive(Clone, Debug)]
pub(crate) struct Digests {
    pub(crate) blake3: String,
    pub(crate) sha256: Option<String>,
}

/// One piece's part of the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece {
    /// The only piece: its hash is the file's.
    Root(blake3::Hash),
    Subtree(ChainingValue),
}

impl Piece {
    /// Hashes the piece that begins at `offset`, a multiple of [`PIECE`], in a file of `len` bytes.
    pub(crate) fn new(bytes: &[u8], offset: u64, len: u64) -> Self {
        if len <= PIECE as u64 {
            return Self::Root(blake3::hash(bytes));
        }
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(offset);
        Self::Subtree(hasher.update(bytes).finalize_non_root())
    }
}

/// Joins the pieces of a file, in their order, to its BLAKE3. A file without bytes has no pieces.
pub(crate) fn join(pieces: &[Piece]) -> String {
    let hash = match pieces {
        [] => blake3::hash(&[]),
        [Piece::Root(hash)] => *hash,
        _ => {
            let (left, right) = pieces.split_at(left_len(pieces.len()));
            merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    };
    hash.to_hex().to_string()
}

fn subtree(pieces: &[Piece]) -> ChainingValue {
    match pieces {
        [Piece::Subtree(value)] => *value,
        // A single piece is the root, and a root has no siblings.
        [] | [Piece::Root(_)] => ChainingValue::default(),
        _ => {
            let (left, right) = pieces.split_at(left_len(pieces.len()));
            merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

/// The left subtree has the largest power of two of pieces that leaves something for the right one.
fn left_len(pieces: usize) -> usize {
    (pieces.next_power_of_two()) / 2
}

/// The SHA-256 of a whole source, which only goes from end to end.
pub(crate) fn sha256(
    source: &dyn Source,
    read: impl Fn(&dyn Source, u64, &mut [u8]) -> Result<(), Error>,
) -> Result<String, Error> {
    let mut hasher = sha2::Sha256::new();
    let mut buf = vec![0; PIECE];
    let mut at = 0;
    while at < source.len() {
        let n = (source.len() - at).min(PIECE as u64) as usize;
        read(source, at, &mut buf[..n])?;
        hasher.update(&buf[..n]);
        at += n as u64;
    }
    Ok(hasher
        .finalize()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_to_the_hash_of_the_whole() {
        let all: Vec<u8> = (0..9 * PIECE + 77).map(|i| (i % 251) as u8).collect();
        let lens = [
            0,
            1,
            PIECE - 1,
            PIECE,
            PIECE + 1,
            2 * PIECE,
            3 * PIECE,
            5 * PIECE + 1,
            all.len(),
        ];
        for len in lens {
            let file = &all[..len];
            let pieces: Vec<Piece> = file
                .chunks(PIECE)
                .enumerate()
                .map(|(i, piece)| Piece::new(piece, (i * PIECE) as u64, len as u64))
                .collect();
            assert_eq!(
                join(&pieces),
                blake3::hash(file).to_hex().to_string(),
                "{len} bytes"
            );
        }
    }
}

//! BLAKE3 of streams whose bytes come in parts, in any order and from several threads; also SHA-256 of whole files.
//!
//! BLAKE3 is a tree over chunks of 1,024 bytes: aligned runs of 2ⁿ chunks are hashed on arrival and merged as section
//! 2.1 of the BLAKE3 paper describes. A chunk that comes in parts is kept until complete.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use blake3::{CHUNK_LEN, Hash};
use blob_io::{Checkpoint, Error, Source};

use crate::threads::{in_turn, lock};
use crate::watch::Watch;

/// The number of bytes that are read, hashed and written at once: a power of two, small enough for the write to find
/// the bytes still in cache.
pub(crate) const PIECE: usize = 1 << 20;

const CHUNK: u64 = CHUNK_LEN as u64;

/// The digests of a conversion.
#[derive(Clone, Debug)]
pub(crate) struct Digests {
    /// The source's digest, in lower-case hexadecimal.
    pub(crate) blake3: String,
    pub(crate) sha256: Option<String>,
    /// The digest of the bytes that a packed source unpacks to.
    pub(crate) unpacked: Option<String>,
    /// Each tensor's digest, as written.
    pub(crate) tensors: Vec<Hash>,
    /// How many values rounding made 0, and how many were lost otherwise.
    pub(crate) zeroed: u64,
    pub(crate) lost: u64,
    /// Why the frame of the source's receipt is not handed on.
    pub(crate) frame_left_out: Option<&'static str>,
}

/// The digest of all tensors: BLAKE3 of the tensors' digests, 32 bytes each, in the order of the tensors' names.
pub(crate) fn combined_digest<'h>(digests: impl Iterator<Item = &'h Hash>) -> Hash {
    let mut hasher = blake3::Hasher::new();
    for digest in digests {
        hasher.update(digest.as_bytes());
    }
    hasher.finalize()
}

/// The digests of a source alone.
pub(crate) struct OfSource {
    pub(crate) blake3: String,
    pub(crate) sha256: Option<String>,
    pub(crate) unpacked: Option<String>,
}

impl Digests {
    pub(crate) fn of_source(&self) -> OfSource {
        OfSource { blake3: self.blake3.clone(), sha256: self.sha256.clone(), unpacked: self.unpacked.clone() }
    }
}

/// Hashes several streams of known lengths.
#[derive(Debug)]
pub(crate) struct Streams {
    lens: Vec<u64>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Streams that still lack bytes.
    open: HashMap<usize, Tree>,
    done: Vec<Hash>,
}

impl Streams {
    pub(crate) fn new(lens: Vec<u64>) -> Self {
        // `put` is never called for an empty stream.
        let done = vec![blake3::hash(&[]); lens.len()];
        let open = HashMap::new();
        Self { lens, state: Mutex::new(State { open, done }) }
    }

    /// Adds the bytes at offset `at` of a stream. Each byte must be added once.
    pub(crate) fn put(&self, stream: usize, at: u64, bytes: &[u8]) {
        let len = self.lens[stream];
        if bytes.len() as u64 == len {
            lock(&self.state).done[stream] = blake3::hash(bytes);
            return;
        }
        let (mut whole, mut ragged) = (Vec::new(), Vec::new());
        let (mut pos, end) = (at, at + bytes.len() as u64);
        while pos < end {
            let rest = &bytes[(pos - at) as usize..];
            let chunk_end = (pos / CHUNK * CHUNK + CHUNK).min(len);
            let part = if !pos.is_multiple_of(CHUNK) || end < chunk_end {
                let part = &rest[..(end.min(chunk_end) - pos) as usize];
                ragged.push((pos, part));
                part
            } else {
                let level = level_at(pos, end);
                let part = &rest[..((CHUNK << level).min(end - pos)) as usize];
                whole.push((pos / CHUNK, level, chaining_value(part, pos)));
                part
            };
            pos += part.len() as u64;
        }
        let mut state = lock(&self.state);
        let tree = state.open.entry(stream).or_insert_with(|| Tree::new(len));
        for (first, level, value) in whole {
            tree.join(first, level, value);
        }
        for (pos, part) in ragged {
            tree.fill(pos, part);
        }
        if let Some(root) = tree.root() {
            state.open.remove(&stream);
            state.done[stream] = root;
        }
    }

    /// The hash of a stream whose bytes have all been added.
    pub(crate) fn hash(&self, stream: usize) -> Hash {
        lock(&self.state).done[stream]
    }

    /// The hash of each stream; all bytes must have been added.
    pub(crate) fn finish(self) -> Vec<Hash> {
        let state = self.state.into_inner();
        state.unwrap_or_else(PoisonError::into_inner).done
    }
}

/// The level of the largest subtree that begins at `pos` and ends by `end`; a subtree of level n has 2ⁿ chunks. A short
/// last chunk has level 0.
fn level_at(pos: u64, end: u64) -> u32 {
    let chunks = ((end - pos) / CHUNK).max(1);
    (pos / CHUNK).trailing_zeros().min(chunks.ilog2())
}

fn chaining_value(bytes: &[u8], pos: u64) -> ChainingValue {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(pos);
    hasher.update(bytes).finalize_non_root()
}

/// The known part of one stream's hash tree.
#[derive(Debug)]
struct Tree {
    len: u64,
    /// Subtrees by their first chunk; two siblings are merged at once, so that there are few.
    nodes: BTreeMap<u64, (u32, ChainingValue)>,
    /// How many chunks the nodes cover.
    chunks: u64,
    /// Incomplete chunks, and how many bytes of each are filled.
    ragged: HashMap<u64, (Vec<u8>, usize)>,
    /// The hash of a stream of a single chunk.
    single: Option<Hash>,
}

impl Tree {
    fn new(len: u64) -> Self {
        Self { len, nodes: BTreeMap::new(), chunks: 0, ragged: HashMap::new(), single: None }
    }

    fn all_chunks(&self) -> u64 {
        self.len.div_ceil(CHUNK)
    }

    /// Adds a subtree and merges siblings, except into the root, which BLAKE3 hashes differently.
    fn join(&mut self, mut first: u64, mut level: u32, mut value: ChainingValue) {
        self.chunks += 1 << level;
        loop {
            let size = 1u64 << level;
            let is_root = first & !size == 0 && 2 * size >= self.all_chunks();
            let sibling = first ^ size;
            match self.nodes.get(&sibling) {
                Some((other, _)) if *other == level && !is_root => {}
                _ => break,
            }
            let Some((_, other)) = self.nodes.remove(&sibling) else {
                break;
            };
            let (left, right) = if sibling < first { (other, value) } else { (value, other) };
            value = merge_subtrees_non_root(&left, &right, Mode::Hash);
            first &= !size;
            level += 1;
        }
        self.nodes.insert(first, (level, value));
    }

    /// Adds a part of a chunk.
    fn fill(&mut self, pos: u64, part: &[u8]) {
        let (chunk, within) = (pos / CHUNK, (pos % CHUNK) as usize);
        let len = CHUNK.min(self.len - chunk * CHUNK) as usize;
        let (bytes, filled) = self.ragged.entry(chunk).or_insert_with(|| (vec![0; len], 0));
        bytes[within..within + part.len()].copy_from_slice(part);
        *filled += part.len();
        if *filled < len {
            return;
        }
        let Some((bytes, _)) = self.ragged.remove(&chunk) else {
            return;
        };
        if self.all_chunks() == 1 {
            self.single = Some(blake3::hash(&bytes));
        } else {
            self.join(chunk, 0, chaining_value(&bytes, chunk * CHUNK));
        }
    }

    /// The stream's hash, once all bytes are added: merges the subtrees from the right.
    fn root(&self) -> Option<Hash> {
        if self.chunks < self.all_chunks() {
            return self.single;
        }
        let mut values = self.nodes.values().map(|(_, value)| value).rev();
        let mut right = *values.next()?;
        let mut left = values.next()?;
        for next in values {
            right = merge_subtrees_non_root(left, &right, Mode::Hash);
            left = next;
        }
        Some(merge_subtrees_root(left, &right, Mode::Hash))
    }
}

/// Calls `take` with each piece of a source and the piece's offset, in order. Errors call the source `name`.
pub(crate) fn for_each_piece(
    name: &str,
    source: &dyn Source,
    watch: &dyn Watch,
    mut take: impl FnMut(u64, &[u8]),
) -> Result<(), Error> {
    let mut buf = vec![0; source.len().min(PIECE as u64) as usize];
    for at in (0..source.len()).step_by(PIECE) {
        let bytes = &mut buf[..(source.len() - at).min(PIECE as u64) as usize];
        read_from(name, source, at, bytes)?;
        watch.step(bytes.len() as u64)?;
        take(at, bytes);
    }
    Ok(())
}

/// As [`for_each_piece`], on several threads, which take the pieces in turn.
pub(crate) fn pieces_in_turn(
    name: &str,
    source: &dyn Source,
    threads: usize,
    watch: &dyn Watch,
    take: &(impl Fn(u64, &[u8]) -> Result<(), Error> + Sync),
) -> Result<(), Error> {
    let len = source.len();
    let piece = len.min(PIECE as u64) as usize;
    let done = in_turn(
        threads,
        len.div_ceil(PIECE as u64),
        || vec![0; piece],
        |buf, number| {
            let at = number * PIECE as u64;
            let bytes = &mut buf[..(len - at).min(PIECE as u64) as usize];
            read_from(name, source, at, bytes)?;
            take(at, bytes)?;
            watch.step(bytes.len() as u64)
        },
    );
    done.map(drop)
}

/// Reads bytes of a file.
pub(crate) fn read(checkpoint: &Checkpoint, source: &dyn Source, at: u64, buf: &mut [u8]) -> Result<(), Error> {
    read_from(checkpoint.name(), source, at, buf)
}

/// Reads bytes of a source that errors call `name`.
pub(crate) fn read_from(name: &str, source: &dyn Source, at: u64, buf: &mut [u8]) -> Result<(), Error> {
    source.read_at(at, buf).map_err(|e| Error::Io {
        file: name.to_owned(),
        action: format!("read {} bytes at byte {at}", buf.len()),
        source: e,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i % 251) as u8).collect()
    }

    /// Cuts a stream at these places and adds the parts in a pseudo-random order.
    fn hashed(all: &[u8], cuts: &[usize], mut seed: u64) -> Hash {
        let mut ends: Vec<usize> = cuts.iter().copied().filter(|c| *c < all.len()).collect();
        ends.push(all.len());
        let mut parts: Vec<(usize, usize)> = Vec::new();
        for end in ends {
            parts.push((parts.last().map_or(0, |(_, end)| *end), end));
        }
        let streams = Streams::new(vec![7, all.len() as u64]);
        while !parts.is_empty() {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            let (from, to) = parts.swap_remove((seed >> 33) as usize % parts.len());
            streams.put(1, from as u64, &all[from..to]);
        }
        assert!(lock(&streams.state).open.is_empty(), "all bytes were added");
        streams.finish()[1]
    }

    #[test]
    fn parts_in_any_order_join_to_the_hash_of_the_whole() {
        let chunk = CHUNK_LEN;
        for chunks in 0..20 {
            for odd in [0, 1, 500] {
                let all = bytes(chunks * chunk + odd);
                for (i, step) in [1, 333, chunk - 1, chunk, chunk + 1, 3 * chunk, 5000].into_iter().enumerate() {
                    if step == 1 && chunks > 2 {
                        continue;
                    }
                    let cuts: Vec<usize> = (1..).map(|n| n * step).take_while(|c| *c < all.len()).collect();
                    let found = hashed(&all, &cuts, (chunks + i) as u64);
                    assert_eq!(found, blake3::hash(&all), "{} by {step}", all.len());
                }
            }
        }
    }

    #[test]
    fn a_file_in_pieces_and_a_tensor_within_them_keep_few_nodes() {
        let all = bytes(9 * PIECE + 77);
        for shift in [0, 1, 700, 1024, 70_000] {
            let cuts: Vec<usize> = (0..9).map(|i| i * PIECE + shift).filter(|c| *c > 0).collect();
            assert_eq!(hashed(&all, &cuts, 3), blake3::hash(&all), "{shift}");
        }
        let tree = Streams::new(vec![all.len() as u64]);
        for (i, piece) in all.chunks(PIECE).take(8).enumerate() {
            tree.put(0, (i * PIECE) as u64, piece);
        }
        assert_eq!(lock(&tree.state).open[&0].nodes.len(), 1);
    }
}

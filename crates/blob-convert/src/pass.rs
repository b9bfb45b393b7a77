//! The one pass over the source: every byte is read once, in order, hashed as the source's and as its tensor's, and goes to
//! its place.
//!
//! Threads take pieces in turn; each reads, hashes and writes its own, without waiting for the others. For a pipe the
//! source is read twice.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use blob_core::{AnyBlob, DType, Shape};
use blob_io::Copied;
use blob_io::{Checkpoint, Entry, Error, IfExists, Layout, Output};

use crate::copies;
use crate::hash::{self, Digests, PIECE, Streams};
use crate::options::refuse;
use crate::plan::{Destination, Plan};
use crate::planned::{How, Planned};
use crate::shards::Shards;
use crate::sink::Sink;
use crate::target;
use crate::threads::{join, spawn};
use crate::verify::contradicted;
use crate::watch::{Uncounted, Watch, Watched};

/// More threads than this find no more memory bandwidth to share.
const MAX_THREADS: usize = 4;

/// Where runs are shorter than this on average, gathering them is faster than writing each on its own.
const SCATTERED: u64 = 4096;

/// What a conversion has done.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// The source's size in bytes, as it is stored.
    pub bytes_in: u64,
    /// The output's size in bytes.
    pub bytes_out: u64,
    /// The source's BLAKE3, in hexadecimal.
    pub blake3: String,
    /// The source's SHA-256 in hexadecimal, where it was asked for.
    pub sha256: Option<String>,
    /// The source's tensors that are not what its own receipt says was written; an empty name for all of them together.
    pub contradicted: Vec<String>,
}

impl Plan<'_> {
    /// Carries out the plan. The output appears whole or not at all. A file that was changed or
    /// cut since it was opened is an error, where its length or the time of its last change tells.
    ///
    /// Memory stays at a few MiB beside the plan, which takes some 600 bytes a tensor, and but for arrays that must be
    /// reordered, inflated or expanded as a whole.
    ///
    /// # Errors
    /// What reading and writing return; [`Error::Interrupted`] where `watch` says so.
    pub fn run(&self, watch: &dyn Watch) -> Result<Summary, Error> {
        let job = Job { checkpoint: self.checkpoint, plan: self, watch };
        let (digests, bytes_out) = match &self.output {
            Destination::Folder { path, if_exists, files } => job.folder(path, *if_exists, files)?,
            Destination::File { path, if_exists, layout } => {
                let output = Output::create(path, *if_exists)?;
                if output.is_positioned() { job.file(layout, output)? } else { job.pipe(layout, output)? }
            }
            Destination::Shards { if_exists, shards } => job.shards(shards, *if_exists)?,
            Destination::Stdout { layout } => job.pipe(layout, Output::stdout())?,
        };
        let contradicted = contradicted(self.checkpoint, &self.tensors, &digests.tensors);
        let (bytes_in, Digests { blake3, sha256, .. }) = (self.checkpoint.stored().len(), digests);
        Ok(Summary { bytes_in, bytes_out, blake3, sha256, contradicted })
    }
}

#[derive(Clone, Copy)]
struct Job<'a> {
    checkpoint: &'a Checkpoint,
    plan: &'a Plan<'a>,
    watch: &'a dyn Watch,
}

impl Job<'_> {
    fn file(self, layout: &Layout, mut output: Output) -> Result<(Digests, u64), Error> {
        output.set_len(layout.len())?;
        let sink = Sink::file(&output, layout, &self.plan.tensors);
        let digests = self.fill(&sink)?;
        if let Some(base) = self.plan.base.file() {
            let uncounted = Uncounted(self.watch);
            copies::copy(base, layout.copies(), threads(), &uncounted, &|at, bytes| output.write_all_at(at, bytes))?;
        }
        self.unchanged()?;
        let crcs = sink.into_crcs(self.plan.tensors.len());
        let receipt = self.plan.receipt.finished(&digests);
        for (offset, bytes) in layout.frame(&[receipt], &crcs)? {
            output.write_all_at(offset, &bytes)?;
        }
        output.finish()?;
        Ok((digests, layout.len()))
    }

    fn folder(self, path: &Path, if_exists: IfExists, files: &[String]) -> Result<(Digests, u64), Error> {
        let folder = target::folder(path, if_exists, self.watch)?;
        let specs: Vec<_> = self.plan.tensors.iter().map(|t| t.spec.clone()).collect();
        let sink = Sink::folder(&folder, &specs, files);
        let digests = self.fill(&sink)?;
        let written = sink.complete_folder()?;
        let (key, receipt) = self.plan.receipt.finished(&digests);
        let mut file = folder.file(format!("{key}.json"))?;
        file.write_all(receipt.as_bytes())?;
        file.finish()?;
        folder.finish()?;
        Ok((digests, written + receipt.len() as u64))
    }

    fn shards(self, shards: &Shards, if_exists: IfExists) -> Result<(Digests, u64), Error> {
        let outputs = shards.begin(self.checkpoint, if_exists)?;
        let digests = self.fill(&Sink::shards(&outputs, shards, self.plan.tensors.len()))?;
        self.unchanged()?;
        let written = shards.finish(outputs, &self.plan.tensors, self.plan.receipt.finished(&digests))?;
        Ok((digests, written))
    }

    /// Writes from beginning to end; a pass before it computes the digests and checksums.
    fn pipe(self, layout: &Layout, mut output: Output) -> Result<(Digests, u64), Error> {
        let sink = Sink::nowhere(layout);
        let digests = self.fill(&sink)?;
        let crcs = sink.into_crcs(self.plan.tensors.len());
        let receipt = self.plan.receipt.finished(&digests);
        let frame = layout.frame(&[receipt], &crcs)?.into_iter();
        let mut pieces: Vec<(u64, Piece)> = frame.map(|(at, bytes)| (at, Piece::Frame(bytes))).collect();
        pieces.extend(layout.copies().iter().map(|copied| (copied.to, Piece::Copied(*copied))));
        let placed = self.plan.tensors.iter().enumerate().filter_map(|(i, tensor)| Some((i, tensor.slot?)));
        pieces.extend(placed.map(|(i, slot)| (layout.offsets()[slot], Piece::Tensor(i))));
        // Of two at one place, the tensor has no bytes.
        pieces.sort_by_key(|(at, _)| *at);
        for (_, piece) in pieces {
            match piece {
                Piece::Frame(bytes) => output.write_all(&bytes)?,
                Piece::Tensor(tensor) => self.stream(tensor, |bytes| output.write_all(bytes))?,
                Piece::Copied(copied) => {
                    let written = Mutex::new(&mut output);
                    let base = self.plan.base.file().unwrap_or(self.checkpoint);
                    copies::copy(base, &[copied], 1, &Uncounted(self.watch), &|_, bytes| {
                        written.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)
                    })?;
                }
            }
        }
        self.unchanged()?;
        output.finish()?;
        Ok((digests, layout.len()))
    }

    /// Fills the sink: plain tensors while the pass goes over them, the others after it.
    fn fill(self, sink: &Sink<'_>) -> Result<Digests, Error> {
        let (moves, apart) = moves(self.plan);
        let len = |tensor: &Planned| if tensor.how == How::Kept { 0 } else { tensor.spec.byte_len() };
        let tensors = Streams::new(self.plan.tensors.iter().map(len).collect());
        let put = |tensor: usize, at: u64, bytes: &[u8]| {
            tensors.put(tensor, at, bytes);
            sink.put(tensor, at, bytes)
        };
        let threads = if sink.takes_any_order() { threads() } else { 1 };
        let (blake3, sha256) = self.pass(threads, &|at, bytes| {
            let end = at + bytes.len() as u64;
            let first = moves.partition_point(|m| m.from + m.len <= at);
            for step in moves[first..].iter().take_while(|m| m.from < end) {
                let (a, b) = (step.from.max(at), (step.from + step.len).min(end));
                put(step.tensor, step.to + (a - step.from), &bytes[(a - at) as usize..(b - at) as usize])?;
            }
            Ok(())
        })?;
        for tensor in apart {
            let mut at = 0;
            self.stream(tensor, |bytes| {
                put(tensor, at, bytes)?;
                at += bytes.len() as u64;
                Ok(())
            })?;
        }
        Ok(Digests { blake3, sha256, tensors: tensors.finish() })
    }

    /// One tensor's bytes in the output's order; the pass has counted them.
    fn stream(self, tensor: usize, mut take: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let planned = &self.plan.tensors[tensor];
        let entry = &self.checkpoint.entries()[planned.entry];
        let reader = match planned.how {
            How::Dense => self.checkpoint.dense_reader(entry),
            How::Copy | How::Stream | How::Double | How::Kept => self.checkpoint.reader(entry),
        };
        let uncounted = Uncounted(self.watch);
        let watched = Watched::new(reader?, &uncounted);
        match planned.how {
            How::Double => watched.each(PIECE, |bytes| take(&widened(self.checkpoint, entry, bytes)?)),
            _ => watched.each(PIECE, take),
        }
    }

    /// Errors where a file that was read is another than when it was opened.
    fn unchanged(self) -> Result<(), Error> {
        for file in [Some(self.checkpoint), self.plan.base.file()].into_iter().flatten() {
            file.unchanged()?;
        }
        Ok(())
    }

    /// Reads every byte of the source once, hashes it, and hands each piece to `write`. Returns BLAKE3 and SHA-256 of the
    /// file as it is stored: a gzip file or an archive is read once more for them.
    fn pass<W>(self, threads: usize, write: &W) -> Result<(String, Option<String>), Error>
    where
        W: Fn(u64, &[u8]) -> Result<(), Error> + Sync,
    {
        let source = self.checkpoint.source();
        let pieces = source.len().div_ceil(PIECE as u64);
        let hashed = Streams::new(vec![self.checkpoint.stored().len()]);
        let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
        let work = || {
            let done = self.pieces(&next, &failed, &hashed, write);
            failed.fetch_or(done.is_err(), Ordering::Relaxed);
            done
        };
        let uncounted = Uncounted(self.watch);
        let sha256 = || hash::sha256(self.checkpoint, &uncounted);
        let wanted = self.plan.receipt.sha256;
        let threads = threads.min(usize::try_from(pieces).unwrap_or(usize::MAX));
        let (parts, sha256) = thread::scope(|scope| {
            // Where no thread can be started, this one does all the work.
            let others: Vec<_> = (1..threads).map_while(|_| spawn(scope, work)).collect();
            let beside = wanted.then(|| spawn(scope, sha256));
            let mut parts = vec![work()];
            parts.extend(others.into_iter().map(join));
            let sha256 = beside.map(|thread| thread.map_or_else(sha256, join));
            (parts, sha256)
        });
        parts.into_iter().collect::<Result<(), Error>>()?;
        if self.checkpoint.is_packed() {
            hash::stored(self.checkpoint, &uncounted, |at, bytes| hashed.put(0, at, bytes))?;
        }
        Ok((hashed.finish()[0].to_hex().to_string(), sha256.transpose()?))
    }

    /// One thread's share of the pieces.
    fn pieces<W>(self, next: &AtomicU64, failed: &AtomicBool, hashed: &Streams, write: &W) -> Result<(), Error>
    where
        W: Fn(u64, &[u8]) -> Result<(), Error>,
    {
        let source = self.checkpoint.source();
        let len = source.len();
        let mut buf = vec![0; len.min(PIECE as u64) as usize];
        // Another thread that has failed returns the error; this one only stops.
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed).saturating_mul(PIECE as u64);
            if at >= len {
                break;
            }
            let bytes = &mut buf[..(len - at).min(PIECE as u64) as usize];
            hash::read(self.checkpoint, source, at, bytes)?;
            if !self.checkpoint.is_packed() {
                hashed.put(0, at, bytes);
            }
            write(at, bytes)?;
            self.watch.step(bytes.len() as u64)?;
        }
        Ok(())
    }
}

/// A piece of a file that is written from beginning to end.
enum Piece {
    Frame(Vec<u8>),
    Copied(Copied),
    /// Which tensor.
    Tensor(usize),
}

/// How many threads a file is written by.
fn threads() -> usize {
    thread::available_parallelism().map_or(1, |n| n.get().min(MAX_THREADS))
}

/// Whole elements of an array as f64, little-endian as they are.
fn widened(checkpoint: &Checkpoint, entry: &Entry, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let dtype = entry.dtype().unwrap_or(DType::F32);
    let failed = |e: blob_core::Error| refuse(checkpoint, format!("array {:?}: {e}", entry.name()));
    let shape = Shape::new([bytes.len() / dtype.size()]).map_err(failed)?;
    let narrow = AnyBlob::from_vec(shape, dtype, bytes.to_vec()).map_err(failed)?;
    let wide = blob_ops::convert(&narrow, DType::F64);
    let wide = wide.map_err(|e| refuse(checkpoint, format!("array {:?}: {e}", entry.name())))?;
    Ok(wide.data().bytes().map_err(failed)?.to_vec())
}

/// Bytes of the source that go to a place in a tensor as they are.
#[derive(Debug)]
struct Move {
    from: u64,
    len: u64,
    tensor: usize,
    to: u64,
}

/// The moves of plain tensors in the source's order, and the tensors that must be read on their own.
fn moves(plan: &Plan<'_>) -> (Vec<Move>, Vec<usize>) {
    let mut moves: Vec<Move> = Vec::new();
    let mut apart = Vec::new();
    for (tensor, planned) in plan.tensors.iter().enumerate().filter(|(_, planned)| planned.how != How::Kept) {
        let entry = &plan.checkpoint.entries()[planned.entry];
        // Checksums run along a tensor, so its runs must come in their order.
        let ordered = entry.segments().is_sorted_by_key(|run| run.offset);
        // Many small runs: a reader gathers them into larger pieces.
        let runs = entry.segments().len() as u64;
        let scattered = runs > 16 && planned.spec.byte_len() / runs < SCATTERED;
        // The reader compares the checksum that the source has of the array.
        let checked = entry.checked_len().is_some();
        if planned.how != How::Copy || !ordered || scattered || checked {
            apart.push(tensor);
            continue;
        }
        let mut to = 0;
        for run in entry.segments() {
            let len = run.count * run.stride;
            let from = run.offset;
            moves.push(Move { from, len, tensor, to });
            to += len;
        }
    }
    moves.sort_by_key(|m| m.from);
    // Arrays that share bytes: the pass finds one move for each byte, so they are read on their own.
    let mut end = 0;
    let mut shared = Vec::new();
    for step in &moves {
        if step.from < end {
            shared.push(step.tensor);
        }
        end = end.max(step.from + step.len);
    }
    shared.sort_unstable();
    shared.dedup();
    moves.retain(|m| shared.binary_search(&m.tensor).is_err());
    apart.extend(shared);
    (moves, apart)
}

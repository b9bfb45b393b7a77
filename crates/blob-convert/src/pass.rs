//! The one pass over the source: every byte is read once, in order, hashed as the source's and as its tensor's, and goes to
//! its place.
//!
//! Threads take the next piece in turn, each reads, hashes and writes its own: none waits for another. To a pipe the
//! source is read twice.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use blob_io::{Checkpoint, Error, IfExists, Layout, Output, Source};

use crate::hash::{self, Digests, PIECE, Streams};
use crate::moves::moves;
use crate::plan::{Destination, Plan};
use crate::planned::{How, Planned};
use crate::sink::Sink;
use crate::target;
use crate::threads::{join, spawn};
use crate::verify::contradicted;
use crate::watch::Watch;

/// More threads than this find no more memory bandwidth to share.
const MAX_THREADS: usize = 4;

/// What a conversion has done.
#[derive(Clone, Debug)]
pub struct Summary {
    bytes_in: u64,
    bytes_out: u64,
    digests: Digests,
    contradicted: Vec<String>,
}

impl Summary {
    /// The source's size in bytes, as it is stored.
    #[must_use]
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in
    }

    /// The output's size in bytes.
    #[must_use]
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out
    }

    /// The source's BLAKE3, in hexadecimal.
    #[must_use]
    pub fn blake3(&self) -> &str {
        &self.digests.blake3
    }

    /// The source's SHA-256 in hexadecimal, where it was asked for.
    #[must_use]
    pub fn sha256(&self) -> Option<&str> {
        self.digests.sha256.as_deref()
    }

    /// The source's tensors that are not what its own receipt says was written; an empty name for all of them together.
    #[must_use]
    pub fn contradicted(&self) -> &[String] {
        &self.contradicted
    }
}

impl Plan<'_> {
    /// Carries out the plan. The output appears whole or not at all; a source that changes meanwhile is not noticed.
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
            Destination::Stdout { layout } => job.pipe(layout, Output::stdout())?,
        };
        let contradicted = contradicted(self.checkpoint, &self.tensors, &digests.tensors);
        Ok(Summary { bytes_in: self.checkpoint.stored().len(), bytes_out, digests, contradicted })
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
        let sink = Sink::file(&output, layout.places(), layout.wants_crc());
        let digests = self.fill(&sink)?;
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

    /// Everything in the order of the output; the digests and checksums come from a pass of their own before.
    fn pipe(self, layout: &Layout, mut output: Output) -> Result<(Digests, u64), Error> {
        let sink = Sink::nowhere(layout.wants_crc());
        let digests = self.fill(&sink)?;
        let crcs = sink.into_crcs(self.plan.tensors.len());
        let receipt = self.plan.receipt.finished(&digests);
        let mut frame = layout.frame(&[receipt], &crcs)?.into_iter().peekable();
        let places = layout.places();
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|i| places[*i].offset());
        for tensor in order {
            while let Some((_, part)) = frame.next_if(|(at, _)| *at <= places[tensor].offset()) {
                output.write_all(&part)?;
            }
            self.stream(tensor, &mut |bytes| output.write_all(bytes))?;
        }
        for (_, part) in frame {
            output.write_all(&part)?;
        }
        output.finish()?;
        Ok((digests, layout.len()))
    }

    /// Fills the sink: plain tensors while the pass goes over them, the others after it.
    fn fill(self, sink: &Sink<'_>) -> Result<Digests, Error> {
        let (moves, apart) = moves(self.plan);
        let tensors = Streams::new(self.plan.tensors.iter().map(Planned::byte_len).collect());
        let (blake3, sha256) = self.pass(threads(sink.takes_any_order()), &|at, bytes| {
            let end = at + bytes.len() as u64;
            let first = moves.partition_point(|m| m.from + m.len <= at);
            for step in moves[first..].iter().take_while(|m| m.from < end) {
                let (a, b) = (step.from.max(at), (step.from + step.len).min(end));
                let part = &bytes[(a - at) as usize..(b - at) as usize];
                let to = step.to + (a - step.from);
                tensors.put(step.tensor, to, part);
                sink.put(step.tensor, to, part)?;
            }
            Ok(())
        })?;
        for tensor in apart {
            let (mut at, mut hasher) = (0, blake3::Hasher::new());
            self.stream(tensor, &mut |bytes| {
                hasher.update(bytes);
                sink.put(tensor, at, bytes)?;
                at += bytes.len() as u64;
                Ok(())
            })?;
            tensors.set(tensor, hasher.finalize());
        }
        Ok(Digests { blake3, sha256, tensors: tensors.finish() })
    }

    /// One tensor's bytes in the output's order.
    fn stream(self, tensor: usize, sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let planned = &self.plan.tensors[tensor];
        let entry = &self.checkpoint.entries()[planned.entry];
        // Its bytes have been counted by the pass.
        let mut watched = |bytes: &[u8]| self.watch.step(0).and_then(|()| sink(bytes));
        if planned.how == How::Dense {
            return self.checkpoint.stream_dense(entry, PIECE, &mut watched);
        }
        self.checkpoint.stream(entry, PIECE, &mut watched)
    }

    /// Reads every byte of the source once, hashes it, and hands each piece to `write`. Returns BLAKE3 and SHA-256 of the
    /// file as it is stored: a gzip file is read once more for them.
    fn pass<W>(self, threads: usize, write: &W) -> Result<(String, Option<String>), Error>
    where
        W: Fn(u64, &[u8]) -> Result<(), Error> + Sync,
    {
        let source = self.checkpoint.source();
        let pieces = source.len().div_ceil(PIECE as u64);
        let stored = self.checkpoint.stored();
        let hashed = Streams::new(vec![stored.len()]);
        let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
        let work = || {
            let done = self.pieces(&next, &failed, &hashed, write);
            failed.fetch_or(done.is_err(), Ordering::Relaxed);
            done
        };
        let sha256 = || hash::sha256(stored, |source, at, buf| self.read(source, at, buf));
        let wanted = self.plan.receipt.sha256;
        let threads = threads.min(usize::try_from(pieces).unwrap_or(usize::MAX));
        let (parts, sha256) = thread::scope(|scope| {
            // Where no thread can be had, this one does their work.
            let others: Vec<_> = (1..threads).map_while(|_| spawn(scope, work)).collect();
            let beside = wanted.then(|| spawn(scope, sha256));
            let mut parts = vec![work()];
            parts.extend(others.into_iter().map(join));
            let sha256 = beside.map(|thread| thread.map_or_else(sha256, join));
            (parts, sha256)
        });
        parts.into_iter().collect::<Result<(), Error>>()?;
        if self.checkpoint.is_gzip() {
            self.hash_stored(&hashed)?;
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
        // Where another thread has failed, its error is the one to tell.
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed).saturating_mul(PIECE as u64);
            if at >= len {
                break;
            }
            let bytes = &mut buf[..(len - at).min(PIECE as u64) as usize];
            self.read(source, at, bytes)?;
            if !self.checkpoint.is_gzip() {
                hashed.put(0, at, bytes);
            }
            write(at, bytes)?;
            self.watch.advanced(bytes.len() as u64);
        }
        Ok(())
    }

    fn hash_stored(self, hashed: &Streams) -> Result<(), Error> {
        let stored = self.checkpoint.stored();
        let mut buf = vec![0; stored.len().min(PIECE as u64) as usize];
        for at in (0..stored.len()).step_by(PIECE) {
            let bytes = &mut buf[..(stored.len() - at).min(PIECE as u64) as usize];
            self.read(stored, at, bytes)?;
            hashed.put(0, at, bytes);
        }
        Ok(())
    }

    fn read(self, source: &dyn Source, at: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.watch.step(0)?;
        source.read_at(at, buf).map_err(|e| Error::Io {
            file: self.checkpoint.name().to_owned(),
            action: format!("read {} bytes at byte {at}", buf.len()),
            source: e,
        })
    }
}

fn threads(any_order: bool) -> usize {
    if any_order { thread::available_parallelism().map_or(1, |n| n.get().min(MAX_THREADS)) } else { 1 }
}

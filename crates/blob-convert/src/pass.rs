//! The one pass over the source: every byte is read and hashed once, in order, and each tensor's bytes go to their place.
//!
//! Reading and hashing run beside the writing, a few buffers apart. To a pipe the source is read twice.

use std::path::Path;
use std::sync::mpsc;
use std::thread;

use blob_io::{Checkpoint, Error, Layout, Output, OutputDir, Source};

use crate::plan::{How, Plan};
use crate::receipt::{Digests, Hasher};
use crate::sink::{Crcs, Sink};

/// What one read takes: small enough to be in cache still when it is hashed and written.
const CHUNK: usize = 1 << 20;
/// Buffers on their way: enough that a late writer does not stop the reader.
const BUFFERS: usize = 6;

/// Where the output goes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Target<'a> {
    /// A file: made beside its place and put there when it is complete.
    File {
        /// The file.
        path: &'a Path,
        /// Whether an existing file may be replaced.
        overwrite: bool,
    },
    /// Standard output.
    Stdout,
    /// A folder of `.npy` files; the plan must come from [`plan_folder`](crate::plan_folder).
    Folder {
        /// The folder.
        path: &'a Path,
        /// Whether an existing folder may be replaced.
        overwrite: bool,
    },
}

/// Follows a conversion, and may stop it.
pub trait Watch: Sync {
    /// So many more bytes of the source have been dealt with.
    fn advanced(&self, bytes: u64);

    /// Whether to stop: the conversion then returns [`Error::Interrupted`] and leaves nothing behind.
    fn cancelled(&self) -> bool;
}

/// A [`Watch`] that looks away.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Watch for Silent {
    fn advanced(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

/// What a conversion has done.
#[derive(Clone, Debug)]
pub struct Summary {
    bytes_in: u64,
    bytes_out: u64,
    digests: Digests,
}

impl Summary {
    /// The source's size in bytes.
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
}

/// Carries out a plan. The output appears whole or not at all; a source that changes meanwhile is not noticed.
///
/// Memory stays at a few MiB, but for arrays that must be reordered, inflated or expanded as a whole.
///
/// # Errors
/// What reading and writing return; [`Error::Interrupted`] where `watch` says so.
pub fn run(
    checkpoint: &Checkpoint,
    plan: &Plan,
    target: &Target<'_>,
    watch: &dyn Watch,
) -> Result<Summary, Error> {
    let job = Job {
        checkpoint,
        plan,
        watch,
    };
    let (digests, bytes_out) = match target {
        Target::Folder { path, overwrite } => job.folder(path, *overwrite)?,
        Target::File { path, overwrite } => {
            let output = Output::create(path, *overwrite)?;
            if output.is_positioned() {
                job.file(output)?
            } else {
                job.pipe(output)?
            }
        }
        Target::Stdout => job.pipe(Output::stdout())?,
    };
    Ok(Summary {
        bytes_in: checkpoint.file_len(),
        bytes_out,
        digests,
    })
}

#[derive(Clone, Copy)]
struct Job<'a> {
    checkpoint: &'a Checkpoint,
    plan: &'a Plan,
    watch: &'a dyn Watch,
}

impl Job<'_> {
    fn file(self, mut output: Output) -> Result<(Digests, u64), Error> {
        let layout = self.layout()?;
        output.set_len(layout.len())?;
        let crcs = layout
            .wants_crc()
            .then(|| Crcs::new(self.plan.tensors.len()));
        let mut sink = Sink::file(&output, layout.places(), crcs);
        let digests = self.fill(&mut sink)?;
        let crcs = sink.into_crcs();
        let receipt = self.plan.receipt.finished(&digests);
        for (offset, bytes) in layout.frame(&[receipt], &crcs)? {
            output.write_all_at(offset, &bytes)?;
        }
        output.finish()?;
        Ok((digests, layout.len()))
    }

    fn folder(self, path: &Path, overwrite: bool) -> Result<(Digests, u64), Error> {
        let folder = OutputDir::create(path, overwrite)?;
        let specs: Vec<_> = self.plan.tensors.iter().map(|t| t.spec.clone()).collect();
        let mut sink = Sink::folder(&folder, &specs);
        let digests = self.fill(&mut sink)?;
        let written = sink.complete_folder()?;
        let (key, receipt) = self.plan.receipt.finished(&digests);
        let mut file = folder.file(format!("{key}.json"))?;
        file.write_all(receipt.as_bytes())?;
        file.finish()?;
        folder.finish()?;
        Ok((digests, written + receipt.len() as u64))
    }

    /// Everything in the order of the output; the digests and checksums come from a pass of their own before.
    fn pipe(self, mut output: Output) -> Result<(Digests, u64), Error> {
        let layout = self.layout()?;
        let digests = self.pump(|_, _| Ok(()))?;
        let crcs = if layout.wants_crc() {
            self.checksums()?
        } else {
            Vec::new()
        };
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

    fn layout(&self) -> Result<&Layout, Error> {
        self.plan.layout.as_ref().ok_or_else(|| Error::Request {
            file: self.checkpoint.name().to_owned(),
            message: "was planned for a folder, not for one file".to_owned(),
        })
    }

    fn checksums(self) -> Result<Vec<u32>, Error> {
        let mut crcs = Vec::with_capacity(self.plan.tensors.len());
        for tensor in 0..self.plan.tensors.len() {
            let mut crc = crc32fast::Hasher::new();
            self.stream(tensor, &mut |bytes| {
                crc.update(bytes);
                Ok(())
            })?;
            crcs.push(crc.finalize());
        }
        Ok(crcs)
    }

    /// Fills the sink: plain tensors while the pass goes over them, the others after it.
    fn fill(self, sink: &mut Sink<'_>) -> Result<Digests, Error> {
        let (moves, apart) = moves(self.checkpoint, self.plan);
        let mut first = 0;
        let digests = self.pump(|at, bytes| {
            let end = at + bytes.len() as u64;
            while first < moves.len() && moves[first].from + moves[first].len <= at {
                first += 1;
            }
            for step in moves[first..].iter().take_while(|m| m.from < end) {
                let (a, b) = (step.from.max(at), (step.from + step.len).min(end));
                let part = &bytes[(a - at) as usize..(b - at) as usize];
                sink.put(step.tensor, step.to + (a - step.from), part)?;
            }
            Ok(())
        })?;
        for tensor in apart {
            let mut at = 0;
            self.stream(tensor, &mut |bytes| {
                sink.put(tensor, at, bytes)?;
                at += bytes.len() as u64;
                Ok(())
            })?;
        }
        Ok(digests)
    }

    /// One tensor's bytes in the output's order.
    fn stream(
        self,
        tensor: usize,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let planned = &self.plan.tensors[tensor];
        let entry = &self.checkpoint.entries()[planned.entry];
        let watch = self.watch;
        let mut watched = |bytes: &[u8]| {
            if watch.cancelled() {
                return Err(Error::Interrupted);
            }
            sink(bytes)
        };
        if planned.how == How::Dense {
            return self.checkpoint.stream_dense(entry, CHUNK, &mut watched);
        }
        self.checkpoint.stream(entry, CHUNK, &mut watched)
    }

    /// Reads the source from end to end and hashes it, and hands each piece to `write`, which runs beside the reading.
    fn pump<W>(self, mut write: W) -> Result<Digests, Error>
    where
        W: FnMut(u64, &[u8]) -> Result<(), Error> + Send,
    {
        let source = self.checkpoint.source();
        let (full, to_write) = mpsc::sync_channel::<(u64, Vec<u8>)>(BUFFERS);
        let (free, to_fill) = mpsc::channel();
        for _ in 0..BUFFERS {
            // The receiver lives as long as this function.
            let _ = free.send(vec![0; CHUNK]);
        }
        thread::scope(|scope| {
            let writer = scope.spawn(move || {
                for (at, buf) in to_write {
                    write(at, &buf)?;
                    // Where the reader is done, the buffer is not needed any more.
                    let _ = free.send(buf);
                }
                Ok(())
            });
            let digests = self.read_all(source, full, &to_fill);
            let written: Result<(), Error> = match writer.join() {
                Ok(written) => written,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            // The writer's failure stops the reader: it comes first.
            written.and(digests)
        })
    }

    fn read_all(
        self,
        source: &dyn Source,
        full: mpsc::SyncSender<(u64, Vec<u8>)>,
        free: &mpsc::Receiver<Vec<u8>>,
    ) -> Result<Digests, Error> {
        let mut hasher = Hasher::new(self.plan.receipt.sha256);
        let len = source.len();
        let mut at = 0;
        while at < len {
            if self.watch.cancelled() {
                return Err(Error::Interrupted);
            }
            let Ok(mut buf) = free.recv() else { break };
            buf.resize((len - at).min(CHUNK as u64) as usize, 0);
            source.read_at(at, &mut buf).map_err(|e| Error::Io {
                file: self.checkpoint.name().to_owned(),
                action: format!("read {} bytes at byte {at}", buf.len()),
                source: e,
            })?;
            hasher.update(&buf);
            let n = buf.len() as u64;
            if full.send((at, buf)).is_err() {
                break;
            }
            at += n;
            self.watch.advanced(n);
        }
        Ok(hasher.finish())
    }
}

/// Bytes of the source that go to a place in a tensor as they are.
#[derive(Debug)]
struct Move {
    from: u64,
    len: u64,
    tensor: usize,
    to: u64,
}

/// The plain tensors' moves in the source's order, and the tensors that are read apart.
fn moves(checkpoint: &Checkpoint, plan: &Plan) -> (Vec<Move>, Vec<usize>) {
    let mut moves: Vec<Move> = Vec::new();
    let mut apart = Vec::new();
    for (tensor, planned) in plan.tensors.iter().enumerate() {
        let entry = &checkpoint.entries()[planned.entry];
        // Checksums run along a tensor, so its runs must come in their order.
        let ordered = entry.segments().is_sorted_by_key(|run| run.offset());
        if planned.how != How::Copy || !ordered {
            apart.push(tensor);
            continue;
        }
        let mut to = 0;
        for run in entry.segments() {
            let len = run.count() * run.stride();
            let from = run.offset();
            moves.push(Move {
                from,
                len,
                tensor,
                to,
            });
            to += len;
        }
    }
    moves.sort_by_key(|m| m.from);
    // Two arrays over the same bytes: a pass that keeps one window of moves cannot serve both.
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

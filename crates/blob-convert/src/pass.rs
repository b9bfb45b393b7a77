//! The one pass over the source: each byte is read once and in order, added to the digests of the source and of the
//! tensor, and written to the output.
//!
//! Threads take pieces in turn. Each thread reads, hashes and writes a piece without waiting for the other threads: the
//! source's order decides, and [`Layout`] places the bytes. For a pipe the source is read twice, and the second time
//! the output's order decides, by [`Layout::in_order`].

mod ahead;
mod file;
mod meanwhile;
mod names;
mod proof;
mod separate;

use std::path::Path;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};

use blob_io::layout::{FOLDER_LIST, Layout};
use blob_io::{Checkpoint, Complete, Error, IfExists, Output};

use crate::change::Group;
use crate::destination::Destination;
use crate::digest::{Algorithm, Subject, digest};
use crate::hash::{self, Digests, OfSource, Streams};
use crate::moves::Moves;
use crate::options::{refuse, refuse_all};
use crate::plan::Plan;
use crate::planned::{How, Planned};
use crate::shards::Shards;
use crate::sink::Sink;
use crate::symbol::NewSymbol;
use crate::target;
use crate::threads::{WORTH_A_THREAD, io_threads, run_beside};
use crate::transform::{Found, Reports, grouped};
use crate::watch::{Uncounted, Watch};
use crate::written::contradicted;
pub(crate) use file::{Around, filled, piped};
use proof::Proving;

/// The result of a conversion.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// The source's size in bytes, as stored.
    pub bytes_in: u64,
    /// The output's size in bytes.
    pub bytes_out: u64,
    /// Whether the output's content shows the format. MXNet's bare records of the first version, for one, do not, and a
    /// reader has to be told.
    pub is_recognised: bool,
    /// The source's BLAKE3, in hexadecimal.
    pub blake3: String,
    /// The source's SHA-256 in hexadecimal, with [`Options::sha256`](crate::Options::sha256).
    pub sha256: Option<String>,
    /// The source's tensors whose digests differ from the digests in the source's own receipt; an empty name stands for
    /// all tensors together.
    pub contradicted: Vec<String>,
    /// Why the output's receipt does not hand on the frame in the source's receipt, as the tensors' values show.
    pub frame_left_out: Option<&'static str>,
    /// The reports of the transforms about values: how many were lost, how far others changed.
    pub found: Vec<Found>,
}

impl Summary {
    /// The values that were lost, grouped by kind: the changes that a plan cannot know.
    #[must_use]
    pub fn changes(&self) -> Vec<Group> {
        grouped(&self.found)
    }
}

impl Plan<'_> {
    /// Carries out the plan. The output appears whole or not at all. A source that was changed or cut after opening is
    /// an error, if the length or the modification time shows the change.
    ///
    /// Memory stays at a few MiB, plus the plan, about 600 bytes a tensor, and arrays that must be reordered, inflated
    /// or expanded as a whole.
    ///
    /// # Errors
    /// Errors of reading and writing; lost values, with [`Options::strict`](crate::Options::strict);
    /// a frame that is not of the file that the receipt names; [`Error::Interrupted`] where `watch` says so.
    pub fn run(&self, watch: &dyn Watch) -> Result<Summary, Error> {
        let proving = self.proving();
        let job = self.proved_job(proving.as_ref(), watch)?;
        // The symbol and the tensors get the final names together, or neither does.
        let beside = self.symbol.as_ref().map(NewSymbol::complete).transpose()?;
        let tally = Reports::default();
        let passed = match &self.output {
            Destination::Folder { path, if_exists, files } => job.folder(self, path, *if_exists, files, &tally)?,
            Destination::File { path, if_exists, layout } => {
                let output = self.begin(path, *if_exists, layout)?;
                if output.is_positioned() {
                    job.file(self, layout, output, beside, &tally)?
                } else {
                    job.pipe(self, layout, output, &tally)?
                }
            }
            Destination::Shards { if_exists, shards } => job.shards(self, shards, *if_exists, &tally)?,
            Destination::Stdout { layout } => job.pipe(self, layout, Output::stdout(), &tally)?,
        };
        self.summary(passed, &tally, watch)
    }

    /// As [`Plan::run`], into an output of yours in place of the file of the plan, which is not looked at. A symbol
    /// beside the tensors is yours to write: [`Plan::symbol_text`].
    ///
    /// # Errors
    /// As [`Plan::run`]; [`Error::Request`] for a plan of several files of tensors.
    pub fn run_into(&self, output: Output, watch: &dyn Watch) -> Result<Summary, Error> {
        let (Destination::File { layout, .. }, None) = (&self.output, self.values()) else {
            return Err(refuse(self.checkpoint, "becomes several files, and one is written here".to_owned()));
        };
        let (tally, proving) = (Reports::default(), self.proving());
        let done = self.proved_job(proving.as_ref(), watch)?.file(self, layout, output, None, &tally)?;
        self.summary(done, &tally, watch)
    }

    fn summary(&self, passed: Passed, tally: &Reports, watch: &dyn Watch) -> Result<Summary, Error> {
        let Passed { digests, bytes_out, is_recognised } = passed;
        let contradicted = contradicted(self.checkpoint, &self.tensors, &digests.tensors, &Uncounted(watch))?;
        let contradicted = contradicted.unwrap_or_default();
        let (bytes_in, Digests { blake3, sha256, frame_left_out, .. }) = (self.checkpoint.stored().len(), digests);
        let found = tally.found();
        Ok(Summary { bytes_in, bytes_out, is_recognised, blake3, sha256, contradicted, frame_left_out, found })
    }

    /// The job, once the names that a receipt gives back are proved, and the frame, unless the job proves it.
    fn proved_job<'w>(&'w self, proving: Option<&'w Proving<'w>>, watch: &'w dyn Watch) -> Result<Pass<'w>, Error> {
        let frame_left_out = if proving.is_some() { None } else { self.check_frame(watch)? };
        self.check_names(watch)?;
        Ok(Pass { proving, frame_left_out, ..self.job(watch) })
    }

    pub(crate) fn job<'w>(&'w self, watch: &'w dyn Watch) -> Pass<'w> {
        let job = Pass::of_tensors(self.checkpoint, &self.tensors, watch);
        let (base, is_copy) = (self.base.file(), self.is_copy());
        Pass { base, is_copy, strict: self.strict, sha256: self.receipt.sha256, ..job }
    }

    /// The metadata of the output, the receipt last.
    pub(crate) fn metadata(&self, digests: &Digests) -> Vec<(String, String)> {
        self.around().metadata(slice::from_ref(digests))
    }

    fn around(&self) -> Around<'_> {
        Around { metadata: &self.metadata, receipt: self.has_receipt.then_some(&self.receipt) }
    }
}

/// The result of the work on one source.
struct Passed {
    digests: Digests,
    bytes_out: u64,
    is_recognised: bool,
}

/// The work on one source: its bytes are hashed, and those of the tensors go to a sink.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) tensors: &'a [Planned],
    /// The file that supplies all other bytes.
    pub(crate) base: Option<&'a Checkpoint>,
    /// Whether all bytes of the source are copied.
    pub(crate) is_copy: bool,
    /// Whether lost values are an error.
    pub(crate) strict: bool,
    pub(crate) sha256: bool,
    /// The digests of the source, where an earlier job has read all of it.
    pub(crate) known: Option<&'a Digests>,
    /// Why the frame of the source's receipt is not handed on.
    pub(crate) frame_left_out: Option<&'static str>,
    /// The proof of that frame, where the pass gives it.
    pub(crate) proving: Option<&'a Proving<'a>>,
    pub(crate) watch: &'a dyn Watch,
}

impl<'a> Pass<'a> {
    fn file(
        self,
        plan: &Plan<'_>,
        layout: &Layout,
        output: Output,
        beside: Option<Complete>,
        tally: &Reports,
    ) -> Result<Passed, Error> {
        let (complete, digests) = self.complete(plan, layout, output, tally)?;
        let is_recognised = plan.check_file(&complete, layout, self.watch)?;
        let complete = plan.with_meanwhile(complete, layout, &digests)?;
        match beside {
            Some(beside) => beside.publish_after(complete)?,
            None => complete.publish()?,
        }
        plan.remove_unnamed();
        Ok(Passed { digests, bytes_out: layout.len(), is_recognised })
    }

    fn folder(
        self,
        plan: &Plan<'_>,
        path: &Path,
        if_exists: IfExists,
        files: &[String],
        tally: &Reports,
    ) -> Result<Passed, Error> {
        let folder = target::folder(path, if_exists, self.watch)?;
        let specs: Vec<_> = self.tensors.iter().map(|t| t.spec.clone()).collect();
        let sink = Sink::folder(&folder, &specs, files);
        let digests = self.fill(&sink, &|_| tally)?;
        self.unchanged()?;
        let written = sink.complete_folder()?;
        let (_, receipt) = plan.receipt.finished(slice::from_ref(&digests));
        let mut file = folder.file(FOLDER_LIST)?;
        file.write_all(receipt.as_bytes())?;
        file.finish()?;
        plan.check_folder(folder.temporary(), path)?;
        folder.finish()?;
        Ok(Passed { digests, bytes_out: written + receipt.len() as u64, is_recognised: true })
    }

    fn shards(self, plan: &Plan<'_>, shards: &Shards, if_exists: IfExists, tally: &Reports) -> Result<Passed, Error> {
        let outputs = shards.begin(self.checkpoint, if_exists)?;
        let digests = self.fill(&Sink::shards(&outputs, shards), &|_| tally)?;
        self.unchanged()?;
        let (complete, written) = shards.complete(outputs, self.tensors, &plan.metadata(&digests))?;
        shards.check_files(&complete, self.tensors, self.checkpoint)?;
        Shards::publish(complete)?;
        Ok(Passed { digests, bytes_out: written, is_recognised: true })
    }

    fn pipe(self, plan: &Plan<'_>, layout: &Layout, output: Output, tally: &Reports) -> Result<Passed, Error> {
        let digests = piped(&[self], layout, output, tally, plan.around())?.swap_remove(0);
        Ok(Passed { digests, bytes_out: layout.len(), is_recognised: true })
    }

    /// Tensors of a source that go into a new file unchanged.
    pub(crate) fn of_tensors(checkpoint: &'a Checkpoint, tensors: &'a [Planned], watch: &'a dyn Watch) -> Self {
        Self {
            checkpoint,
            tensors,
            base: None,
            is_copy: false,
            strict: false,
            sha256: false,
            known: None,
            frame_left_out: None,
            proving: None,
            watch,
        }
    }

    /// Fills the sink: plain tensors during the pass, the others on another thread or after it. `tally` has the reports
    /// of the file that a tensor is for.
    pub(crate) fn fill<'t>(
        self,
        sink: &Sink<'_>,
        tally: &(dyn Fn(usize) -> &'t Reports + Sync),
    ) -> Result<Digests, Error> {
        let (moves, mut separate) = Moves::of(self.checkpoint, self.tensors, self.known.is_none());
        let lens = self.tensors.iter().map(|tensor| match tensor.how {
            How::Kept => 0,
            _ => tensor.spec.byte_len(),
        });
        let tensors = Streams::new(lens.collect());
        let hash = |tensor: usize, at: u64, bytes: &[u8]| {
            tensors.put(tensor, at, bytes);
            self.proving.iter().for_each(|proving| proving.put(tensor, at, bytes));
        };
        let threads = if sink.takes_any_order() { io_threads() } else { 1 };
        separate.sort_by_key(|tensor| std::cmp::Reverse(self.tensors[*tensor].spec.byte_len()));
        let next = AtomicUsize::new(0);
        let read_separate = || -> Result<(), Error> {
            while let Some(tensor) = separate.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
                self.separate(tensor, tally(tensor), sink.takes_any_order(), |at, bytes| {
                    hash(tensor, at, bytes);
                    sink.put(tensor, at, bytes)
                })?;
            }
            Ok(())
        };
        // A second thread, if the system has one, starts with the largest tensor; after the pass both threads share the
        // rest.
        let alone: u64 = separate.iter().map(|tensor| self.tensors[*tensor].spec.byte_len()).sum();
        let beside = (threads > 1 && alone >= WORTH_A_THREAD).then_some(&read_separate);
        let (passed, done) = run_beside(beside, || {
            let passed = match self.known {
                Some(known) => Ok(known.of_source()),
                None => self.pass(threads, &|at, bytes| {
                    sink.put_source(at, bytes)?;
                    let runs = sink.runs();
                    moves.piece(at, bytes, tally, &|tensor, at, bytes| {
                        hash(tensor, at, bytes);
                        runs.put(tensor, at, bytes)
                    })?;
                    runs.finish()
                }),
            };
            let passed = passed.and_then(|passed| read_separate().map(|()| passed));
            // The other thread finishes the current tensor and stops.
            next.store(separate.len(), Ordering::Relaxed);
            passed
        });
        let OfSource { blake3, sha256, unpacked } =
            passed.and_then(|passed| done.unwrap_or(Ok(())).map(|()| passed))?;
        let (zeroed, lost) = self.losses((0..self.tensors.len()).map(tally))?;
        let tensors = tensors.finish();
        let frame_left_out = match self.proving {
            Some(proving) => proving.finish(self, &tensors)?,
            None => self.frame_left_out,
        };
        Ok(Digests { blake3, sha256, unpacked, tensors, lost, zeroed, frame_left_out })
    }

    /// How many values rounding made 0, and how many were lost otherwise. `tallies` has the reports of each tensor's
    /// file.
    ///
    /// # Errors
    /// Lost values, where these are an error.
    fn losses<'t>(self, tallies: impl Iterator<Item = &'t Reports>) -> Result<(u64, u64), Error> {
        let mut tallies: Vec<&Reports> = tallies.collect();
        tallies.dedup_by(|a, b| std::ptr::eq(*a, *b));
        let (mut zeroed, mut lost) = (0, 0);
        for tally in tallies {
            if self.strict {
                self.check_no_losses(&tally.found())?;
            }
            let (own_zeroed, own_lost) = tally.lost_values();
            (zeroed, lost) = (zeroed + own_zeroed, lost + own_lost);
        }
        Ok((zeroed, lost))
    }

    /// Checks that no values were lost.
    fn check_no_losses(self, found: &[Found]) -> Result<(), Error> {
        let lost: Vec<String> = grouped(found).iter().map(ToString::to_string).collect();
        if lost.is_empty() { Ok(()) } else { Err(refuse_all(self.checkpoint, "would lose values", lost)) }
    }

    /// Checks that the source and the base did not change after opening.
    pub(crate) fn unchanged(self) -> Result<(), Error> {
        for file in [Some(self.checkpoint), self.base].into_iter().flatten() {
            file.unchanged()?;
        }
        Ok(())
    }

    /// Reads and hashes every byte of the source once, and hands each piece to `write`. A gzip file or an archive is
    /// read once more for the digests of the file as stored.
    fn pass<W>(self, threads: usize, write: &W) -> Result<OfSource, Error>
    where
        W: Fn(u64, &[u8]) -> Result<(), Error> + Sync,
    {
        let (name, source) = (self.checkpoint.name(), self.checkpoint.source());
        let hashed = Streams::new(vec![self.checkpoint.file_len()]);
        let uncounted = Uncounted(self.watch);
        let stored = || Subject::File { name, source: self.checkpoint.stored() };
        let sha256 = || digest(stored(), Algorithm::Sha256, &uncounted).map(|hashed| hashed.digest);
        let (passed, sha256) = run_beside(self.sha256.then_some(&sha256), || {
            hash::pieces_in_turn(name, source, threads, self.watch, &|at, bytes| {
                hashed.put(0, at, bytes);
                write(at, bytes)
            })
        });
        passed?;
        let (read, sha256) = (hashed.finish()[0].to_hex().to_string(), sha256.transpose()?);
        if !self.checkpoint.is_packed() {
            return Ok(OfSource { blake3: read, sha256, unpacked: None });
        }
        let blake3 = digest(stored(), Algorithm::Blake3, &uncounted)?.digest;
        Ok(OfSource { blake3, sha256, unpacked: Some(read) })
    }
}

#[cfg(test)]
mod tests {
    use blob_io::{Bytes, Format};

    use super::*;
    use crate::goal::Place;
    use crate::options::Options;
    use crate::plan::plan;
    use crate::stats::{Measured, measure_all};
    use crate::threads::tests::without_threads;
    use crate::watch::Silent;

    /// A BlobProto of `len` floats, in two rows.
    fn blob(len: usize) -> Checkpoint {
        let varint = |n: usize, width: usize| {
            (0..width).map(move |i| {
                let more = if i + 1 < width { 0x80 } else { 0 };
                (n >> (7 * i)) as u8 & 0x7F | more
            })
        };
        let mut file = vec![0x3A, 0x07, 0x0A, 0x05, 2];
        file.extend(varint(len / 2, 4));
        file.push(0x2A);
        file.extend(varint(4 * len, 5));
        file.extend((0..len).flat_map(|i| (i as f32).to_le_bytes()));
        Checkpoint::from_source("x.binaryproto", Box::new(Bytes(file))).unwrap()
    }

    #[test]
    fn conversion_and_statistics_work_on_one_thread() {
        let folder = std::env::temp_dir().join(format!("blob-alone-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let source = blob(1 << 20);
        let convert = |name: &str| {
            let path = folder.join(name);
            let target = Place::File { path: &path, if_exists: IfExists::Replace };
            let options = Options::new(Format::Safetensors).with(|o| o.sha256 = true);
            let done = plan(&source, &options, &target).unwrap().run(&Silent).unwrap();
            assert_eq!(done.sha256.as_deref().map(str::len), Some(64));
            std::fs::read(path).unwrap()
        };
        let measured = || {
            let mut all = Vec::new();
            let take = &mut |_, measured: Result<Measured, Error>| {
                all.push(format!("{:?}", measured?.stats));
                Ok::<(), Error>(())
            };
            measure_all(&source, &[0, 0, 0], None, &Silent, take).unwrap();
            all
        };
        let (many, max) = (convert("many"), measured());
        without_threads(|| {
            assert!(convert("alone") == many);
            assert_eq!(measured(), max);
        });
        assert_eq!(max.len(), 3);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

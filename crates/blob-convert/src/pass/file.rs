//! One output file of the tensors of one or several sources: a file with positions, or a pipe.

use std::path::Path;
use std::sync::Mutex;

use blob_io::layout::{Copied, Layout};
use blob_io::{Complete, Error, IfExists, Output};

use super::Pass;
use crate::copies;
use crate::hash::Digests;
use crate::plan::Plan;
use crate::receipt::Receipt;
use crate::sink::Sink;
use crate::threads::{io_threads, lock};
use crate::transform::Reports;
use crate::watch::Uncounted;

/// The metadata of an output, and the receipt that is finished with the digests.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) metadata: &'a [(String, String)],
    pub(crate) receipt: Option<&'a Receipt>,
}

impl Around<'_> {
    /// The metadata, the receipt last.
    pub(crate) fn metadata(self, digests: &[Digests]) -> Vec<(String, String)> {
        self.metadata.iter().cloned().chain(self.receipt.map(|receipt| receipt.finished(digests))).collect()
    }
}

impl Plan<'_> {
    /// Begins the output, which has a second file where values are beside a model.
    pub(crate) fn begin(&self, path: &Path, if_exists: IfExists, layout: &Layout) -> Result<Output, Error> {
        let create = |path: &Path| {
            let create = if self.is_of_batch { Output::create_in_swept } else { Output::create };
            create(path, if_exists)
        };
        let output = create(path)?;
        match layout.divided().zip(self.values()) {
            Some((at, values)) => output.divided(at, create(&values)?),
            None => Ok(output),
        }
    }
}

impl Pass<'_> {
    /// The output, which does not have its name yet.
    pub(crate) fn complete(
        self,
        plan: &Plan<'_>,
        (layout, output): (&Layout, Output),
        tally: &Reports,
    ) -> Result<(Complete, Digests), Error> {
        let (complete, mut digests) = filled(&[self], layout, output, tally, plan.around())?;
        Ok((complete, digests.swap_remove(0)))
    }
}

/// Writes the tensors of one or several sources into a file, and then the frame around the tensors. The file has no
/// name yet.
pub(crate) fn filled(
    jobs: &[Pass<'_>],
    layout: &Layout,
    mut output: Output,
    tally: &Reports,
    around: Around<'_>,
) -> Result<(Complete, Vec<Digests>), Error> {
    output.set_len(layout.len())?;
    let (mut digests, mut crcs) = (Vec::new(), Vec::new());
    for job in jobs {
        let sink = if job.is_copy { Sink::copy(&output) } else { Sink::files(&[(&output, layout, job.tensors)]) };
        digests.push(job.fill(&sink, &|_| tally)?);
        crcs.extend(sink.into_crcs(job.tensors.len()));
        if let Some(base) = job.base {
            let uncounted = Uncounted(job.watch);
            copies::copy(base, layout.copies(), io_threads(), &uncounted, &|at, bytes| output.write_all_at(at, bytes))?;
        }
    }
    jobs.iter().try_for_each(|job| job.unchanged())?;
    layout.each_part(&around.metadata(&digests), &crcs, |at, bytes| output.write_all_at(at, bytes))?;
    Ok((output.complete()?, digests))
}

/// Writes the output from beginning to end, after a first pass over each source that computes the digests and
/// checksums.
pub(crate) fn piped(
    jobs: &[Pass<'_>],
    layout: &Layout,
    mut output: Output,
    tally: &Reports,
    around: Around<'_>,
) -> Result<Vec<Digests>, Error> {
    let (mut digests, mut crcs, mut pieces) = (Vec::new(), Vec::new(), Vec::new());
    for job in jobs {
        let sink = Sink::nowhere(layout);
        digests.push(job.fill(&sink, &|_| tally)?);
        crcs.extend(sink.into_crcs(job.tensors.len()));
        let placed = job.tensors.iter().enumerate().filter_map(|(i, tensor)| Some((i, tensor.slot?)));
        pieces.extend(placed.map(|(i, slot)| (layout.offsets()[slot], Piece::Tensor(job, i, slot))));
    }
    let frame = layout.frame(&around.metadata(&digests), &crcs)?.into_iter();
    pieces.extend(frame.map(|(at, bytes)| (at, Piece::Frame(bytes))));
    let copies = jobs.iter().flat_map(|job| layout.copies().iter().map(move |copied| (job, copied)));
    pieces.extend(copies.map(|(job, copied)| (copied.to, Piece::Copied(job, *copied))));
    // The first pass has counted the losses.
    let ignored = Reports::default();
    // If two pieces have the same offset, one is a tensor without bytes.
    pieces.sort_by_key(|(at, _)| *at);
    for (_, piece) in pieces {
        match piece {
            Piece::Frame(bytes) => output.write_all(&bytes)?,
            Piece::Tensor(job, tensor, slot) => {
                let mut at = 0;
                job.stream(tensor, &ignored, |bytes| {
                    let stored = layout.stored(slot, at, bytes).1;
                    at += bytes.len() as u64;
                    output.write_all(&stored)
                })?;
            }
            Piece::Copied(job, copied) => {
                let written = Mutex::new(&mut output);
                let base = job.base.unwrap_or(job.checkpoint);
                copies::copy(base, &[copied], 1, &Uncounted(job.watch), &|_, bytes| lock(&written).write_all(bytes))?;
            }
        }
    }
    jobs.iter().try_for_each(|job| job.unchanged())?;
    output.finish()?;
    Ok(digests)
}

/// A piece of a file that is written from beginning to end.
enum Piece<'j> {
    Frame(Vec<u8>),
    Copied(&'j Pass<'j>, Copied),
    /// The tensor's index among the tensors of the job, and in the layout.
    Tensor(&'j Pass<'j>, usize, usize),
}

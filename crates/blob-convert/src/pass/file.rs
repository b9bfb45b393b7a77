//! One output file of the tensors of one or several sources: a file with positions, or a pipe.

use std::path::Path;
use std::sync::Mutex;

use blob_io::layout::Layout;
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
        layout: &Layout,
        output: Output,
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
    let (mut digests, mut crcs) = (Vec::new(), Vec::new());
    // The job and the index there of each tensor of the layout.
    let mut placed = vec![(0, 0); layout.offsets().len()];
    for (number, job) in jobs.iter().enumerate() {
        let sink = Sink::nowhere(layout);
        digests.push(job.fill(&sink, &|_| tally)?);
        crcs.extend(sink.into_crcs(job.tensors.len()));
        let slots = job.tensors.iter().enumerate().filter_map(|(tensor, planned)| Some((planned.slot?, tensor)));
        slots.for_each(|(slot, tensor)| placed[slot] = (number, tensor));
    }
    let frame = layout.frame(&around.metadata(&digests), &crcs)?;
    // The first pass has counted the losses.
    let ignored = Reports::default();
    layout.in_order(
        frame,
        |bytes| output.write_all(bytes),
        |slot, put| {
            let (job, tensor) = placed[slot];
            jobs[job].stream(tensor, &ignored, put)
        },
        |copied, put| {
            // One job alone has a base.
            let (base, put) = (jobs[0].base.unwrap_or(jobs[0].checkpoint), Mutex::new(put));
            copies::copy(base, &[copied], 1, &Uncounted(jobs[0].watch), &|_, bytes| lock(&put)(bytes))
        },
    )?;
    jobs.iter().try_for_each(|job| job.unchanged())?;
    output.finish()?;
    Ok(digests)
}

//! Several files of one conversion: each has some of the tensors and a separate receipt, and the source is read once.
//!
//! Relies on `plan` for each file; `recipe::outputs` divides the tensors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blob_io::{Checkpoint, Error, IfExists, Output};

use crate::applied::{ToDo, to_do};
use crate::before::wanted;
use crate::change::{Change, Effect, Group, Groups};
use crate::chosen::chosen;
use crate::goal::Place;
use crate::hash::Digests;
use crate::history::About;
use crate::options::{Options, refuse};
use crate::pass::{Pass, Summary};
use crate::pipeline::Chained;
use crate::plan::{Plan, planned_for};
use crate::planned::{LeftOut, Planned};
use crate::sink::Sink;
use crate::source;
use crate::state;
use crate::template::Template;
use crate::together::Together;
use crate::transform::{Reports, Selection};
use crate::watch::{Uncounted, Watch};
use crate::written::contradicted;

/// A file of the output, and the steps that lead to its tensors.
pub(crate) struct OutputFile {
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
}

/// A file, and the places of its entries in the source.
pub(crate) struct Share {
    pub(crate) path: PathBuf,
    pub(crate) places: Vec<usize>,
}

/// Plans how the tensors of `checkpoint` are divided among files.
pub(crate) fn plan_several<'a>(
    checkpoint: &'a Checkpoint,
    options: &Options,
    files: Vec<Share>,
    if_exists: IfExists,
) -> Result<Plans<'a>, Error> {
    let path = files.first().map(|file| &*file.path);
    let ToDo { options, changes: said, .. } = to_do(checkpoint, options, wanted(options.to, path))?;
    let chained = chosen(checkpoint, &options, false)?;
    let (files, tensors) = divided(checkpoint, files, chained.tensors)?;
    let mut plans = Vec::new();
    // The receipt of a file tells which tensors of the source it has, in place of a selection for all files.
    let mut options = options;
    options.transforms.retain(|step| step.selection().is_none());
    for (Share { path, places }, tensors) in files.into_iter().zip(tensors) {
        let mut options = Options { is_told: !plans.is_empty(), is_part: true, ..options.clone() };
        options.transforms.insert(0, Arc::new(Selection::of_places(checkpoint, &places)));
        let own = Chained { tensors, net: chained.net.clone(), told_by: chained.told_by.clone(), ..Chained::default() };
        plans.push(part(checkpoint, own, &OutputFile { path, options }, if_exists)?);
    }
    if let Some(first) = plans.first_mut() {
        first.left_out = chained.left_out;
        first.of_file.splice(0..0, said.into_iter().chain(chained.of_file));
    }
    finished(checkpoint, plans)
}

/// The files with the tensors of each, and with the places of all entries that these are made of: a step may have taken
/// entries of another file. A file whose entries all went into others is none.
///
/// # Errors
/// An entry that the tensors of two files are made of: neither file could be proved alone.
fn divided(
    checkpoint: &Checkpoint,
    mut files: Vec<Share>,
    all: Vec<Planned>,
) -> Result<(Vec<Share>, Vec<Vec<Planned>>), Error> {
    let mut file_of = vec![0; checkpoint.entries().len()];
    for (file, Share { places, .. }) in files.iter().enumerate() {
        places.iter().for_each(|place| file_of[*place] = file);
    }
    let mut tensors: Vec<Vec<Planned>> = files.iter().map(|_| Vec::new()).collect();
    let mut user_of: Vec<Option<usize>> = vec![None; file_of.len()];
    for tensor in all {
        let mut read = Vec::new();
        tensor.each_entry(&mut |entry| read.push(entry));
        // A new bias is made of other entries than the weight beside it, and of some that the weight is made of, too.
        let file = read.iter().find_map(|entry| user_of[*entry]).unwrap_or(file_of[tensor.entry]);
        for entry in read {
            if *user_of[entry].get_or_insert(file) != file {
                let (name, of) = (checkpoint.entries()[entry].name(), &tensor.spec.name);
                let message =
                    format!("cannot be divided so: {of:?} is made of {name:?}, which another file needs, too");
                return Err(refuse(checkpoint, message));
            }
        }
        tensors[file].push(tensor);
    }
    let is_moved = |place: &usize| user_of[*place].is_some_and(|user| user != file_of[*place]);
    let is_gone: Vec<bool> = files.iter().map(|file| file.places.iter().any(is_moved)).collect();
    let mut moved: Vec<Vec<usize>> = files.iter().map(|_| Vec::new()).collect();
    let places = (0..file_of.len()).filter(|place| is_moved(place));
    places.for_each(|place| moved[user_of[place].unwrap_or_default()].push(place));
    for (Share { places, .. }, more) in files.iter_mut().zip(moved) {
        places.retain(|place| !is_moved(place));
        places.extend(more);
        places.sort_unstable();
    }
    let kept: Vec<usize> = (0..files.len()).filter(|file| !is_gone[*file] || !tensors[*file].is_empty()).collect();
    let mut all: Vec<Option<_>> = files.into_iter().zip(tensors).map(Some).collect();
    Ok(kept.into_iter().filter_map(|file| all[file].take()).unzip())
}

/// Plans files that have steps of their own. `left_out` has the tensors that no file has a place for.
pub(crate) fn plan_parts<'a>(
    checkpoint: &'a Checkpoint,
    parts: impl Iterator<Item = OutputFile>,
    left_out: Vec<LeftOut>,
    if_exists: IfExists,
) -> Result<Plans<'a>, Error> {
    let (mut plans, about) = (Vec::new(), Arc::new(About::of(checkpoint)));
    for OutputFile { path, options } in parts {
        let (about, is_told) = (Some(Arc::clone(&about)), !plans.is_empty());
        let options = Options { about, is_told, is_part: true, ..options };
        let ToDo { options, changes: said, .. } = to_do(checkpoint, &options, wanted(options.to, Some(&path)))?;
        let mut own = chosen(checkpoint, &options, false)?;
        own.of_file.splice(0..0, said);
        // The step says that a part is alone; a list of all other tensors in each file would be as long as both.
        own.left_out.clear();
        // The files are called as the parts are.
        let changes = own.tensors.iter_mut().flat_map(|tensor| &mut tensor.changes);
        let lost = changes.filter(|change| matches!(change.effect, Effect::NameLost { .. }));
        lost.for_each(|change| change.is_asked = true);
        plans.push(part(checkpoint, own, &OutputFile { path, options }, if_exists)?);
    }
    if let Some(first) = plans.first_mut() {
        first.left_out = left_out;
    }
    finished(checkpoint, plans)
}

fn part<'a>(
    checkpoint: &'a Checkpoint,
    tensors: Chained,
    OutputFile { path, options }: &OutputFile,
    if_exists: IfExists,
) -> Result<Plan<'a>, Error> {
    let target = Place::File { path, if_exists };
    source::check(&[checkpoint], &target)?;
    planned_for(checkpoint, Template::None, tensors, options, &target)
}

fn finished<'a>(checkpoint: &Checkpoint, mut plans: Vec<Plan<'a>>) -> Result<Plans<'a>, Error> {
    // A part of a file is its tensors, and nothing else of the file.
    let of_files = plans.iter_mut().flat_map(|plan| &mut plan.of_file);
    let dropped = of_files.filter(|change| matches!(change.effect, Effect::MetadataDropped { .. }));
    dropped.for_each(|change| change.is_asked = true);
    if let Some(first) = plans.first_mut().filter(|plan| !plan.has_receipt()) {
        first.of_file.extend(state::unsaid(checkpoint).map(|words| Change::unasked(Effect::Remark(words))));
    }
    let plans = plans.into_iter().map(Plan::finished).collect::<Result<_, _>>()?;
    Ok(Plans { plans })
}

/// The plans of several files from one source.
#[derive(Debug)]
pub struct Plans<'a> {
    plans: Vec<Plan<'a>>,
}

impl<'a> Plans<'a> {
    /// The plan of each file.
    #[must_use]
    pub fn plans(&self) -> &[Plan<'a>] {
        &self.plans
    }

    /// Everything that the conversion changes, one group a kind.
    #[must_use]
    pub fn changes(&self) -> Vec<Group> {
        let mut groups = Groups::default();
        self.plans.iter().for_each(|plan| plan.group(&mut groups));
        groups.finish()
    }

    /// The sum of the sizes of all files.
    #[must_use]
    pub fn output_len(&self) -> u64 {
        self.plans.iter().map(Plan::output_len).sum()
    }

    /// As [`Plan::check`], of each file.
    ///
    /// # Errors
    /// As [`Plan::check`].
    pub fn check(&self, watch: &dyn Watch) -> Result<(), Error> {
        self.plans.iter().try_for_each(|plan| plan.check(watch))
    }

    /// Writes all files. Existing ones are replaced together once all new ones are complete; if one cannot be written,
    /// they stay as they were, and the new ones are removed. A process that is killed between two names leaves some of
    /// each, which [`Joined::changes`](crate::regroup::Joined::changes) tells by their receipts.
    ///
    /// # Errors
    /// As [`Plan::run`]; more than 500 files that exist.
    pub fn run(&self, watch: &dyn Watch) -> Result<Summary, Error> {
        let paths: Vec<&Path> = self.plans.iter().filter_map(|plan| Some(plan.file()?.0)).collect();
        let mut together = Together::of(paths.into_iter())?;
        let (mut known, mut bytes_out, mut found) = (None::<Digests>, 0, Vec::new());
        let (mut tensors, mut hashes) = (Vec::new(), Vec::new());
        for plans in self.plans.chunks(together.room().max(1)) {
            let these: Vec<Planned> = plans.iter().flat_map(|plan| plan.tensors.iter().cloned()).collect();
            let tallies: Vec<Reports> = plans.iter().map(|_| Reports::default()).collect();
            let digests = self.some(plans, &these, known.as_ref(), &tallies, watch, &mut together)?;
            found.extend(tallies.iter().flat_map(Reports::found));
            bytes_out += plans.iter().map(Plan::output_len).sum::<u64>();
            hashes.extend_from_slice(&digests.tensors);
            tensors.extend(these);
            known.get_or_insert(digests);
        }
        let (Some(plan), Some(Digests { blake3, sha256, .. })) = (self.plans.first(), known) else {
            return Err(Error::Request { file: String::new(), message: "there are no files to write".to_owned() });
        };
        plan.checkpoint.unchanged()?;
        together.publish()?;
        let contradicted = contradicted(plan.checkpoint, &tensors, &hashes, &Uncounted(watch))?.unwrap_or_default();
        let bytes_in = plan.checkpoint.stored().len();
        // The parts of a file have no frame.
        let (is_recognised, frame_left_out) = (true, None);
        Ok(Summary { bytes_in, bytes_out, is_recognised, blake3, sha256, contradicted, frame_left_out, found })
    }

    /// Writes some of the files, which are open at once.
    fn some(
        &self,
        plans: &[Plan<'_>],
        tensors: &[Planned],
        known: Option<&Digests>,
        tallies: &[Reports],
        watch: &dyn Watch,
        together: &mut Together,
    ) -> Result<Digests, Error> {
        let files: Vec<_> = plans.iter().filter_map(|plan| Some((plan, plan.file()?))).collect();
        let [(first, _), ..] = files[..] else { return Err(Error::Interrupted) };
        let mut outputs = Vec::new();
        for (_, (path, if_exists, layout)) in &files {
            let mut output = Output::create(path, *if_exists)?;
            output.set_len(layout.len())?;
            outputs.push(output);
        }
        let places: Vec<_> = files
            .iter()
            .zip(&outputs)
            .map(|((plan, (.., layout)), output)| (output, *layout, &plan.tensors[..]))
            .collect();
        let sink = Sink::files(&places);
        let job = Pass::of_tensors(first.checkpoint, tensors, watch);
        let each: Vec<&Reports> =
            plans.iter().zip(tallies).flat_map(|(plan, tally)| plan.tensors.iter().map(move |_| tally)).collect();
        let job = Pass { strict: first.strict, sha256: first.receipt.sha256, known, ..job };
        let digests = job.fill(&sink, &|tensor| each[tensor])?;
        drop(places);
        let (mut from, crcs) = (0, sink.into_crcs(tensors.len()));
        for (((plan, (path, _, layout)), output), tally) in files.into_iter().zip(outputs).zip(tallies) {
            let own = from..from + plan.tensors.len();
            from = own.end;
            let crcs = crcs.get(own.clone()).unwrap_or_default();
            let (zeroed, lost) = tally.lost_values();
            let digests = Digests { tensors: digests.tensors[own].to_vec(), zeroed, lost, ..digests.clone() };
            layout.each_part(&plan.metadata(&digests), crcs, |at, bytes| output.write_all_at(at, bytes))?;
            let complete = output.complete()?;
            plan.check_file(&complete, layout, watch)?;
            together.add(path, complete)?;
        }
        Ok(digests)
    }
}

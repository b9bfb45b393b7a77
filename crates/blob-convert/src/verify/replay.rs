//! Compares a converted file with the source: repeats the transforms in the receipt and compares the result bit for
//! bit.
//!
//! The receipt is untrusted text: a step that is missing, unknown or impossible is a finding. Memory stays at a few
//! pieces, plus the memory of a transform.

use std::collections::HashSet;

use blob_io::{Checkpoint, Entry, Error, Nets, Reason};
use serde::Deserialize;

use super::chain::{Chain, Conversion, Told};
use super::{By, Compared, Unread, claims, graph};
use crate::applied::steps;
use crate::compare::{self, Pieces};
use crate::finding::{Finding, Redone, Remark};
use crate::history::{Origin, parse, receipt_text};
use crate::options::Options;
use crate::pipeline::{Chained, ValueChange};
use crate::planned::{LeftOut, Planned};
use crate::receipt::Receipt;
use crate::step::Step;
use crate::transform::{Followed, Registry, Reports, Witness};
use crate::watch::{Watch, Watched};
use crate::written::truncated;

/// At most this many characters of a transform's settings are printed.
const MAX_LISTED: usize = 200;
/// At most this many tensors of a step are named.
const NAMED: usize = 3;

/// Reports the transforms in a file's receipt in order, each as a note; unreadable ones are findings. Returns the
/// number of transforms. `registry` has steps of your own.
pub fn replay(checkpoint: &Checkpoint, registry: &Registry, report: &mut dyn FnMut(Remark)) -> usize {
    if receipt_text(checkpoint).is_none() {
        report(Remark::Finding(Finding::new(
            "",
            Reason::Receipt,
            "there is no receipt, and so no transforms to repeat",
        )));
        return 0;
    }
    let steps = match steps(checkpoint) {
        Ok(steps) => steps,
        Err(why) => {
            report(Remark::Finding(Finding::new("", Reason::Receipt, why)));
            return 0;
        }
    };
    for (number, step) in steps.iter().enumerate() {
        let settings = step.settings.to_string();
        let settings = settings.char_indices().nth(MAX_LISTED).map_or(&*settings, |(at, _)| &settings[..at]);
        report(Remark::Note(format!("step {} of {}: {} {settings}", number + 1, steps.len(), step.name)));
        if let Err(why) = registry.read(&step.name, &step.settings) {
            report(Remark::Finding(Finding::new("", Reason::Receipt, unknown_step(step, &why))));
        }
    }
    steps.len()
}

fn unknown_step(step: &Step, why: &str) -> String {
    let name: String = step.name.chars().take(MAX_LISTED).collect();
    format!("the transform {name:?} of the receipt {why}")
}

/// The conversions to repeat.
pub(crate) struct Redo<'a> {
    /// The steps of the first conversion.
    pub(crate) steps: &'a [Step],
    /// The files that were converted later, each with the steps of its conversion.
    pub(crate) later: &'a [Origin],
    pub(crate) by: &'a By,
    /// Whether these are the steps of the last conversion alone, of which the receipt tells the losses.
    pub(crate) is_last: bool,
    /// Whether the file to compare with is the source that the receipt names.
    pub(crate) is_source: bool,
}

impl<'a> Redo<'a> {
    /// The conversions before the last one, and the last one; the error is about a step that is not known.
    fn conversions(&self) -> Result<(Vec<Conversion<'a>>, Conversion<'a>), String> {
        let (mut earlier, mut steps) = (Vec::new(), self.steps);
        for file in self.later {
            earlier.push(self.conversion(steps, Some(file))?);
            steps = &file.transforms;
        }
        Ok((earlier, self.conversion(steps, None)?))
    }

    fn conversion(&self, steps: &'a [Step], made: Option<&'a Origin>) -> Result<Conversion<'a>, String> {
        let read = |step: &Step| {
            let read = self.by.registry.read(&step.name, &step.settings);
            read.map_err(|why| unknown_step(step, &why))
        };
        let transforms = steps.iter().map(read).collect::<Result<_, String>>()?;
        Ok(Conversion { steps, transforms, made })
    }
}

/// Compares the receipt of `file` with that of the conversion planned again. Returns whether they are equal.
///
/// # Errors
/// Errors of reading.
pub(super) fn receipt_again(
    file: &Checkpoint,
    source: &Checkpoint,
    options: &Options,
    chained: Chained,
    report: &mut dyn FnMut(Remark),
) -> Result<bool, Error> {
    let told = options.told.as_ref().map(|told| Followed::new(source, told));
    if let Some(Err(why)) = told.as_ref().filter(|told| told.tells()).map(Followed::get) {
        report(Remark::Note(format!("the receipt was not compared with the conversion made again: {why}")));
        return Ok(false);
    }
    match Receipt::remade(source, options, chained) {
        Ok(again) => Ok(claims::remade(file, &again, report)),
        Err(Error::Request { .. }) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Applies the steps to the tensors of `source`, makes the graph of a model again, and compares the result with `file`.
pub(crate) fn against_source(
    file: &Checkpoint,
    source: &Checkpoint,
    redo: Redo<'_>,
    watch: &dyn Watch,
    report: &mut dyn FnMut(Remark),
) -> Result<Compared, Error> {
    let Redo { by, is_last, is_source, .. } = redo;
    let mut finding = |message| report(Remark::Finding(Finding::new("", Reason::Receipt, message)));
    let (earlier, last) = match redo.conversions() {
        Ok(conversions) => conversions,
        Err(why) => {
            finding(why);
            return Ok(Compared::default());
        }
    };
    let chain = match Chain::again(file, source, &earlier, &last, by) {
        Ok(chain) => chain,
        Err(Error::Request { file, message }) => {
            finding(format!("the receipt's transforms cannot be done: {file} {message}"));
            return Ok(Compared::default());
        }
        Err(e) => return Err(e),
    };
    let left_out = &chain.last.left_out;
    if let Some(name) = kept(file, left_out).filter(|_| is_last) {
        finding(format!("the receipt says that {name:?} was left out, and its transforms do not leave it out"));
    }
    if is_last {
        claims::left_out_is_said(file, left_out.iter().map(|left| &*left.name), report);
    }
    chain.told.report(source, report);
    let mut compare = Repetition::new(file, watch, report);
    let tensors = chain.tensors();
    compare.all(source, tensors)?;
    let unread = std::mem::take(&mut compare.unread);
    let names: HashSet<&str> = tensors.iter().map(|tensor| &*tensor.spec.name).collect();
    compare.others(&names, &format!("what the receipt's transforms make of {}", source.name()));
    let (equal, is_all) = (compare.equal, compare.equal == tensors.len() as u64);
    let (lost, zeroed) = (compare.lost, compare.zeroed);
    let graph = graph::compared(file, chain.own(source), last.steps, &chain.options.net, &chain.last.tensors)?;
    // Values of tensors that differ were not all computed.
    let claimed = receipt_text(file).and_then(parse::<Lost>).filter(|_| is_all && is_last);
    let claimed = claimed.map(|said| [(said.lost_values, lost, "were lost"), (said.zeroed_values, zeroed, "became 0")]);
    for (said, found, what) in claimed.into_iter().flatten() {
        if let Some(said) = said.filter(|said| *said != found) {
            let message = format!("the receipt says that {said} values {what}, and by its transforms {found} do");
            report(Remark::Finding(Finding::new("", Reason::Receipt, message)));
        }
    }
    let is_same_graph = file.format().holds().net == Nets::Graph && graph.is_none();
    graph.into_iter().for_each(&mut *report);
    let receipt = is_source && receipt_again(file, source, &chain.options, chain.last, report)?;
    unread.or_error(file.name(), "compare")?;
    let redone = earlier.iter().chain([&last]).map(|conversion| conversion.steps.len()).sum();
    Ok(Compared { equal, redone, graph: is_same_graph, receipt })
}

/// The first tensor that was left out by the receipt, and is not by the transforms that were repeated. A part of a file
/// does not list the other parts.
fn kept(file: &Checkpoint, left_out: &[LeftOut]) -> Option<String> {
    let said = receipt_text(file).and_then(parse::<Said>)?.left_out?;
    let left_out: HashSet<&str> = left_out.iter().map(|left| &*left.name).collect();
    let stranger = said.into_iter().find(|said| !left_out.contains(&*said.name))?;
    Some(truncated(&stranger.name).to_owned())
}

/// The tensors that were left out, by a receipt.
#[derive(Deserialize)]
struct Said {
    left_out: Option<Vec<Named>>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// How many values a conversion lost, according to the receipt.
#[derive(Deserialize)]
struct Lost {
    lost_values: Option<u64>,
    zeroed_values: Option<u64>,
}

impl Told {
    /// Reports the changes of values, contradictions, and steps that the tensors do not prove.
    fn report(&self, source: &Checkpoint, report: &mut dyn FnMut(Remark)) {
        self.value_changes.iter().for_each(|change| report(Remark::Redone(redone(change, source))));
        for message in &self.contradictions {
            report(Remark::Finding(Finding::new("", Reason::Receipt, message.clone())));
        }
        self.unproven.iter().for_each(|words| report(Remark::Note(words.clone())));
    }
}

/// The report on a step that changes values.
fn redone(change: &ValueChange, source: &Checkpoint) -> Redone {
    let name = |entry: &usize| source.entries()[*entry].name().to_owned();
    let said_by = match change.step.witness(source) {
        None => "the receipt alone says".to_owned(),
        Some(Witness { file, tensors }) if change.entries.iter().all(|entry| tensors.contains(&name(entry))) => {
            format!("the receipt and {file} say")
        }
        Some(Witness { file, .. }) => format!("the receipt says, and {file} does not"),
    };
    // Several tensors may be made of one.
    let mut entries = change.entries.clone();
    entries.dedup();
    let named = entries.iter().take(NAMED).map(name).collect();
    Redone { transform: change.step.name().to_owned(), tensors: entries.len(), named, said_by }
}

/// The state of a comparison of a file with recomputed tensors.
pub(super) struct Repetition<'a> {
    file: &'a Checkpoint,
    pieces: Pieces,
    watch: &'a dyn Watch,
    report: &'a mut dyn FnMut(Remark),
    pub(super) equal: u64,
    pub(super) unread: Unread,
    /// How many values the transforms lost, and how many became 0.
    lost: u64,
    zeroed: u64,
}

impl<'a> Repetition<'a> {
    pub(super) fn new(file: &'a Checkpoint, watch: &'a dyn Watch, report: &'a mut dyn FnMut(Remark)) -> Self {
        Self { file, pieces: Pieces::new(), watch, report, equal: 0, unread: Unread::default(), lost: 0, zeroed: 0 }
    }

    /// Compares the tensors that are made of a source.
    pub(super) fn all(&mut self, source: &Checkpoint, tensors: &[Planned]) -> Result<(), Error> {
        for tensor in tensors {
            let name = &tensor.spec.name;
            let entry = self.file.entry(name);
            if let Some(why) = entry.and_then(Entry::unread) {
                self.unread.add(name, self.file.name(), &why);
                continue;
            }
            let found = match entry {
                Some(entry) => self.difference(source, tensor, entry),
                None => Ok(Some((Reason::Absent, format!("is missing from {}", self.file.name())))),
            };
            match compare::found(found)? {
                Some((reason, message)) => (self.report)(Remark::Finding(Finding::new(name, reason, message))),
                None => self.equal += 1,
            }
        }
        Ok(())
    }

    /// Reports the tensors of the file with other names; `made` says where these are missing.
    pub(super) fn others(&mut self, names: &HashSet<&str>, made: &str) {
        for entry in self.file.entries().iter().filter(|entry| !names.contains(entry.name())) {
            let finding = Finding::new(entry.name(), Reason::Absent, format!("is missing from {made}"));
            (self.report)(Remark::Finding(finding));
        }
    }

    /// The first difference between a tensor of the file and the recomputed one; `None` for equal tensors.
    fn difference(
        &mut self,
        source: &Checkpoint,
        planned: &Planned,
        entry: &Entry,
    ) -> Result<Option<(Reason, String)>, Error> {
        let spec = &planned.spec;
        let dtype = self.file.spec(entry)?.dtype;
        if dtype != spec.dtype {
            return Ok(Some((Reason::DType, format!("is {dtype} here, and would be {}", spec.dtype))));
        }
        if *entry.shape() != spec.shape {
            return Ok(Some((
                Reason::Shape,
                format!("has shape {} here, and would have {}", entry.shape(), spec.shape),
            )));
        }
        let tally = Reports::default();
        let mut ours = Watched::open(self.file, entry, self.watch)?;
        let mut theirs = planned.open(source, self.watch, &tally)?;
        let found = self.pieces.difference(dtype, &spec.shape, &mut ours, &mut *theirs)?;
        if found.is_none() {
            let (zeroed, lost) = tally.lost_values();
            self.zeroed += zeroed;
            self.lost += lost;
        }
        Ok(found)
    }
}

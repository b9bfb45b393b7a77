//! One file of the tensors of several others: the plan, and the pass over each of them.
//!
//! Relies on `union` for the names, and on `pass` for the bytes.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use blob_io::caffe::{BlobForm, Message};
use blob_io::hdf5::Form;
use blob_io::layout::{Details, Layout, TensorSpec, Wanted};
use blob_io::mxnet::{List, Version};
use blob_io::neoml::Archive;
use blob_io::{Checkpoint, Complete, Error, Format, IfExists, Kind, Output};

use super::mixed::mixed;
use super::{Clash, Union};
use crate::caffe::{self, ITER};
use crate::change::{Change, Effect, Group, Groups, refuse_losses};
use crate::chosen::{note_ignored, refuse_unread};
use crate::goal::Place;
use crate::hdf5 as h5;
use crate::layout::sparse_list;
use crate::pass::{Around, Pass, filled, piped};
use crate::planned::{LeftOut, Planned, stream_interleaved};
use crate::receipt::Receipt;
use crate::shown::unshown;
use crate::source;
use crate::state::{self, State};
use crate::stored::{FORMAT, Storage, is_numbered, note_ties, numbered, own_metadata, unlisted};
use crate::symbol::check_eps;
use crate::transform::{Choice, Followed, Registry, Reports};
use crate::watch::{Uncounted, Watch};
use crate::written::contradicted;
use blob_io::words::joined;

/// At most this many clashes are told.
const NAMED: usize = 3;

/// The plan of a file that is made of the tensors of several others.
#[derive(Debug)]
pub struct Joined<'a> {
    union: Union<'a>,
    to: Format,
    /// `None` for standard output.
    file: Option<(PathBuf, IfExists)>,
    layout: Layout,
    receipt: Option<Receipt>,
    metadata: Vec<(String, String)>,
    of_file: Vec<Change>,
}

impl<'a> Union<'a> {
    /// Plans a file of these tensors, which holds tensors and a receipt alone.
    ///
    /// # Errors
    /// An output that is a source; a format that cannot hold the tensors; no tensors.
    pub fn plan(mut self, to: Format, target: &Place<'_>) -> Result<Joined<'a>, Error> {
        let checkpoints: Vec<&Checkpoint> = self.sources.iter().map(|source| source.checkpoint).collect();
        source::check(&checkpoints, target)?;
        let path = target.file().map(|(path, _)| path);
        let file = path.map_or("standard output".to_owned(), |path| path.display().to_string());
        if !self.clashes.is_empty() {
            let message =
                format!("two tensors would have one name: {}", joined(NAMED, &Clash::in_words(&self.clashes)));
            return Err(Error::Request { file, message });
        }
        if !self.skip_unsupported {
            self.refuse_unread()?;
        }
        if self.tensors.is_empty() {
            let names: Vec<&str> = checkpoints.iter().map(|source| source.name()).collect();
            let message = "there are no tensors, and nothing to write".to_owned();
            return Err(Error::Request { file: names.join(", "), message });
        }
        let mut of_file = mixed(&checkpoints);
        let storage = self.noted(to, &|_| Choice::Found);
        for source in &self.sources {
            of_file.extend(storage.of_solver(source.checkpoint).map(Change::unasked));
            of_file.extend(unlisted(source.checkpoint));
            of_file.extend(parted(source.checkpoint, to));
            of_file.extend(caffe::lost_net(source.checkpoint, to));
        }
        let untyped = self.parts().find_map(|(source, tensors)| caffe::untyped(source.checkpoint, to, tensors));
        of_file.extend(untyped);
        self.tensors.iter_mut().enumerate().for_each(|(slot, tensor)| tensor.slot = Some(slot));
        path.filter(|_| to.is_mxnet()).map_or(Ok(()), |path| self.check_symbol(path))?;
        let Gathered { mut metadata, dropped } = Gathered::of(&checkpoints, to, path);
        if !dropped.is_empty() {
            of_file.push(Change::unasked(Effect::MetadataDropped { format: to, keys: dropped }));
        }
        let (mut receipt, is_kept) = (None, to.holds().inherits);
        if to.holds().receipt {
            receipt = Some(
                Receipt::of_several(&self.sources, &self.tensors, self.is_prefixed, &self.selection)
                    .map_err(|e| e.about(&file))?,
            );
            of_file.extend(receipt.iter().filter(|receipt| !receipt.shortened.is_empty()).map(|receipt| {
                let words = format!("the receipt has no room for {}", receipt.shortened.join(" and for "));
                Change::unasked(Effect::Remark(words))
            }));
            metadata.extend(is_kept.then(|| (FORMAT.0.to_owned(), FORMAT.1.to_owned())));
        } else {
            let unsaid = checkpoints.iter().filter_map(|source| state::unsaid(source));
            of_file.extend(unsaid.map(|words| Change::unasked(Effect::Remark(words))));
        }
        let with_receipt: Vec<(String, String)> =
            metadata.iter().cloned().chain(receipt.as_ref().map(Receipt::placeholder)).collect();
        let specs: Vec<TensorSpec> = self.tensors.iter().map(|tensor| tensor.spec.clone()).collect();
        let new = New { union: &self, to, metadata: &with_receipt, path };
        let layout = new.check_names().and_then(|()| Layout::of(to, &specs, &new)).map_err(|e| e.about(&file))?;
        stream_interleaved(&layout, &mut self.tensors);
        let name = path.map_or(String::new(), |path| path.display().to_string());
        of_file.extend(unshown(to, &layout, &with_receipt, None, &name)?);
        // Other formats have their metadata in the layout.
        metadata.retain(|_| is_kept);
        let file = target.file().map(|(path, if_exists)| (path.to_owned(), if_exists));
        Ok(Joined { union: self, to, file, layout, receipt, metadata, of_file })
    }
}

impl Union<'_> {
    /// Notes the changes that a file of this format makes to the tensors. `told` has the net that says which values of
    /// a source count otherwise than stored.
    pub(crate) fn noted(&mut self, to: Format, told: &dyn Fn(usize) -> Choice) -> Storage {
        let storage = Storage { to, is_folder: false, has_receipt: to.holds().receipt };
        for (place, source) in self.sources.iter_mut().enumerate() {
            let (tensors, told) = (&mut self.tensors[source.tensors.clone()], told(place));
            source.told_by = note_ignored(&Followed::new(source.checkpoint, &told), to, tensors);
            storage.note(source.checkpoint, tensors);
            note_ties(source.checkpoint, tensors);
        }
        storage.encode(&mut self.tensors);
        self.tensors.iter_mut().for_each(|tensor| storage.note_number(tensor));
        storage
    }

    /// Refuses the arrays that are not read, of all files at once.
    fn refuse_unread(&self) -> Result<(), Error> {
        let mut files: Vec<&str> =
            self.unread.iter().map(|(source, _)| self.sources[*source].checkpoint.name()).collect();
        files.dedup();
        let unread = self.unread.iter().map(|(_, left)| format!("array {:?} is {}", left.name, left.reason));
        refuse_unread(&files.join(", "), unread.collect())
    }

    /// Refuses variances for another eps than the symbol beside the output says.
    fn check_symbol(&self, path: &Path) -> Result<(), Error> {
        let known = self.parts().flat_map(|(source, tensors)| {
            let (file, state) = (source.checkpoint, State::of(source.checkpoint, &Registry::default()));
            tensors.iter().filter_map(move |tensor| {
                Some((&*tensor.spec.name, state.eps_of(file.entries()[tensor.entry].name())?))
            })
        });
        check_eps(path, known)
    }
}

/// The metadata of several sources for one file.
struct Gathered {
    metadata: Vec<(String, String)>,
    /// The keys that the file has no place for, and those of which sources say different things.
    dropped: Vec<String>,
}

/// A key of metadata in several sources.
struct Said<'a> {
    key: &'a str,
    text: &'a str,
    /// How many sources have this text.
    count: usize,
    is_contested: bool,
}

impl Gathered {
    fn of(sources: &[&Checkpoint], to: Format, path: Option<&Path>) -> Self {
        let (mut all, mut places) = (Vec::<Said<'_>>::new(), HashMap::new());
        for source in sources {
            for (key, text) in own_metadata(source) {
                let place = *places.entry(key).or_insert(all.len());
                if place == all.len() {
                    all.push(Said { key, text, count: 0, is_contested: false });
                }
                let said = &mut all[place];
                said.count += usize::from(said.text == text && (!to.holds().inherits || source.format() == to));
                said.is_contested |= said.text != text;
            }
        }
        let (holds, form) = (to.holds(), h5::form(to, path));
        let (mut metadata, mut dropped) = (Vec::new(), Vec::new());
        for Said { key, text, count, is_contested } in all {
            let has_place = holds.inherits || holds.metadata.is_own(key) || form.is_some_and(|form| form.stores(key));
            // Caffe always writes an iteration, by which a reader knows a solver state.
            let is_kept = has_place && (count == sources.len() || key == ITER);
            if is_kept {
                metadata.push((key.to_owned(), text.to_owned()));
            }
            dropped.extend((!is_kept || is_contested).then(|| key.to_owned()));
        }
        let lacks_iter = holds.metadata.is_own(ITER) && metadata.iter().all(|(key, _)| key != ITER);
        metadata.extend(lacks_iter.then(|| (ITER.to_owned(), "0".to_owned())));
        Self { metadata, dropped }
    }
}

/// The parts of a source that a new file has in another form, or not at all.
fn parted(source: &Checkpoint, to: Format) -> impl Iterator<Item = Change> {
    let count = |kind| source.entries().iter().filter(|entry| entry.kind() == kind).count();
    let parted = if to.holds().sparse { 0 } else { count(Kind::Values) };
    let all = [
        (count(Kind::None), "place", " without an array", "left out"),
        (parted, "sparse array", "", "written in parts"),
    ];
    let file = source.name().to_owned();
    all.into_iter().filter(|(count, ..)| *count > 0).map(move |(count, noun, more, becomes)| {
        let (s, are) = if count == 1 { ("", "is") } else { ("s", "are") };
        Change::unasked(Effect::Remark(format!("{file}: {count} {noun}{s}{more} {are} {becomes}")))
    })
}

impl Joined<'_> {
    /// All changes, one group for each kind.
    #[must_use]
    pub fn changes(&self) -> Vec<Group> {
        let mut groups = Groups::default();
        self.of_file.iter().for_each(|change| groups.of_file(change));
        for (_, LeftOut { name, reason, is_asked }) in &self.union.unread {
            let effect = Effect::LeftOut { reason: reason.clone() };
            groups.of_tensor(name, &Change { effect, is_asked: *is_asked });
        }
        for tensor in &self.union.tensors {
            tensor.changes.iter().for_each(|change| groups.of_tensor(&tensor.spec.name, change));
        }
        groups.finish()
    }

    /// The tensors of the output.
    #[must_use]
    pub fn tensors(&self) -> &[Planned] {
        &self.union.tensors
    }

    /// The output's size in bytes.
    #[must_use]
    pub fn output_len(&self) -> u64 {
        self.layout.len()
    }

    /// Refuses the losses among the changes, as [`Options::strict`](crate::Options::strict) does.
    ///
    /// # Errors
    /// As [`refuse_losses`].
    pub fn strict(self) -> Result<Self, Error> {
        let files: Vec<&str> = self.union.sources.iter().map(|source| source.checkpoint.name()).collect();
        refuse_losses(&files.join(", "), &self.changes())?;
        Ok(self)
    }

    /// Whether the output has a receipt, by which `verify` computes the tensors again.
    #[must_use]
    pub fn has_receipt(&self) -> bool {
        self.receipt.is_some()
    }

    /// Checks that the file can be created, and removes any file made for the check.
    ///
    /// # Errors
    /// As [`Output::check`].
    pub fn check(&self) -> Result<(), Error> {
        self.file.as_ref().map_or(Ok(()), |(path, if_exists)| Output::check(path, *if_exists))
    }

    /// Writes the file, which appears whole or not at all. Each source is read once, for a pipe twice. A source that
    /// changed after opening is an error. Returns the tensors that contradict the receipt of their file, as
    /// [`Summary::contradicted`](crate::Summary::contradicted), for each file.
    ///
    /// # Errors
    /// Errors of reading and writing; [`Error::Interrupted`] where `watch` says so.
    pub fn run(&self, watch: &dyn Watch) -> Result<Vec<Vec<String>>, Error> {
        let jobs = self.union.parts().map(|(source, tensors)| Pass::of_tensors(source.checkpoint, tensors, watch));
        let jobs: Vec<Pass<'_>> = jobs.collect();
        let around = Around { metadata: &self.metadata, receipt: self.receipt.as_ref() };
        let tally = Reports::default();
        let output = match &self.file {
            Some((path, if_exists)) => Output::create(path, *if_exists)?,
            None => Output::stdout(),
        };
        let digests = if output.is_positioned() {
            let (complete, digests) = filled(&jobs, &self.layout, output, &tally, around)?;
            self.check_file(&complete)?;
            complete.publish()?;
            digests
        } else {
            piped(&jobs, &self.layout, output, &tally, around)?
        };
        let read = jobs.iter().zip(digests);
        let watch = Uncounted(watch);
        read.map(|(job, digests)| {
            let found = contradicted(job.checkpoint, job.tensors, &digests.tensors, &watch)?;
            Ok(found.unwrap_or_default())
        })
        .collect()
    }

    fn check_file(&self, written: &Complete) -> Result<(), Error> {
        let limits = self.union.sources[0].checkpoint.limits();
        let wanted = self.union.tensors.iter().zip(self.layout.offsets());
        let wanted = wanted.map(|(tensor, offset)| Wanted { spec: &tensor.spec, offset: Some(*offset) });
        written.check(self.to, wanted, false, limits).map(drop)
    }
}

/// The details of the new file besides the tensors.
struct New<'u, 'a> {
    union: &'u Union<'a>,
    to: Format,
    metadata: &'u [(String, String)],
    path: Option<&'u Path>,
}

impl New<'_, '_> {
    /// Refuses sparse arrays with the names of other tensors.
    fn check_names(&self) -> Result<(), Error> {
        if !self.to.holds().sparse {
            return Ok(());
        }
        let names: HashSet<&str> = self.union.tensors.iter().map(|tensor| &*tensor.spec.name).collect();
        for (place, tensor) in self.union.tensors.iter().enumerate() {
            let whole = tensor.sparse(self.union.source_of(place)).map(|sparse| tensor.whole_name(sparse));
            if let Some(whole) = whole.filter(|whole| names.contains(whole)) {
                let message = format!("two tensors would be called {whole:?}");
                return Err(Error::Request { file: String::new(), message });
            }
        }
        Ok(())
    }
}

impl Details for New<'_, '_> {
    fn metadata(&self) -> Result<Cow<'_, [(String, String)]>, Error> {
        Ok(Cow::Borrowed(self.metadata))
    }

    fn hdf5_form(&self) -> Form {
        h5::form(self.to, self.path).unwrap_or(Form::Datasets)
    }

    fn message(&self, specs: &[TensorSpec]) -> Result<(Message, BlobForm), Error> {
        let names = specs.iter().map(|spec| &*spec.name);
        let message = if is_numbered(self.to) {
            Message::named(self.to, numbered(names).iter().map(|name| &**name), self.metadata)
        } else {
            Message::named(self.to, names, self.metadata)
        };
        let message = message?.with_types(|tensor| {
            let source = self.union.source_of(tensor);
            source.entries()[self.union.tensors[tensor].entry].layer_type()
        });
        Ok((message, BlobForm::default()))
    }

    fn list(&self, _: &[TensorSpec]) -> Result<List, Error> {
        Ok(sparse_list(Version::V2, &self.union.tensors, &|place| self.union.source_of(place)))
    }

    fn archive(&self, specs: &[TensorSpec]) -> Result<Archive, Error> {
        Ok(if self.to.holds().many { Archive::array(specs.len()) } else { Archive::blob() })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn npy(name: &str) -> Checkpoint {
        let header = format!("{:<117}\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }");
        let bytes = [b"\x93NUMPY\x01\0\x76\0", header.as_bytes(), &[7]].concat();
        Checkpoint::from_bytes(name, bytes).expect("an array")
    }

    #[test]
    fn a_receipt_of_many_sources_is_shortened_and_says_so() {
        for (count, expected) in [
            (1000, None),
            (14_000, Some("the receipt has no room for the digest of each tensor")),
            (20_000, Some("the receipt has no room for the digest of each tensor and for its sources")),
        ] {
            let names: Vec<String> = (0..count).map(|i| format!("a-name-of-some-length-{i:05}.npy")).collect();
            let paths: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            let files: Vec<Checkpoint> = names.iter().map(|name| npy(name)).collect();
            let plan =
                Union::of(&paths, &files, false).and_then(|union| union.plan(Format::Safetensors, &Place::Stdout));
            let plan = plan.expect("a plan");
            let said: Vec<String> = plan.of_file.iter().map(ToString::to_string).collect();
            assert_eq!(said.iter().map(String::as_str).next(), expected, "{count}: {said:?}");
            let (_, text) = plan.receipt.as_ref().expect("a receipt").placeholder();
            assert!(text.len() < 4 << 20, "{}", text.len());
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
        }
    }
}

//! The plan of a conversion, decided from headers alone: the tensors of the output, the names, the changes by the
//! transforms and by the output's format, and the place of each tensor.

use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;

use blob_io::layout::{Frame, Layout};
use blob_io::onnx::Model;
use blob_io::{Checkpoint, Error, Format, IfExists, Kind, Refill, Remedy};
use serde_json::Value;

use crate::applied::{ToDo, to_do};
use crate::before::{Wanted, wanted};
use crate::caffe;
use crate::change::{Change, Effect, Group, Groups, refuse_losses};
use crate::chosen::chosen;
use crate::destination::Destination;
use crate::frame;
use crate::goal::Place;
use crate::hdf5 as h5;
use crate::layout;
use crate::model;
use crate::options::{Options, refuse};
use crate::pipeline::Chained;
use crate::planned::{LeftOut, Planned};
use crate::receipt::Receipt;
use crate::shards;
use crate::source;
use crate::state;
use crate::stored::{Storage, unlisted};
use crate::symbol::NewSymbol;
use crate::template::{Template, also_replaced, check_bare, is_copy, left_behind};
use crate::transform::{Fold, NetOrigin, Registry};
use crate::undo::{Back, back};

/// The plan of a conversion: [`check`](Plan::check) looks ahead, [`run`](Plan::run) carries the plan out.
#[derive(Debug)]
pub struct Plan<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) base: Template<'a>,
    pub(crate) to: Format,
    pub(crate) tensors: Vec<Planned>,
    pub(crate) left_out: Vec<LeftOut>,
    /// The changes of the whole file.
    pub(crate) of_file: Vec<Change>,
    pub(crate) receipt: Receipt,
    /// The net that was followed.
    pub(crate) net: Option<NetOrigin>,
    /// Whether the output has a receipt.
    pub(crate) has_receipt: bool,
    /// The metadata of a new file, besides the receipt.
    pub(crate) metadata: Vec<(String, String)>,
    /// Whether lost values are an error.
    pub(crate) strict: bool,
    /// Whether the plan is of a job, and the folder of the output was swept.
    pub(crate) is_of_batch: bool,
    pub(crate) output: Destination,
    pub(crate) registry: Registry,
    fold: Option<Fold>,
    /// The symbol that is written beside the tensors.
    pub(crate) symbol: Option<NewSymbol>,
    /// The ONNX model that the tensors are written into.
    model: Option<Arc<Model>>,
    /// The files of values of a replaced model that no model names then.
    pub(crate) unnamed: Vec<PathBuf>,
}

impl Plan<'_> {
    /// Adds the last remarks. Refuses losses, where the options ask for that.
    pub(crate) fn finished(mut self) -> Result<Self, Error> {
        let unshown = self.unshown()?;
        self.of_file.extend(unshown);
        if self.strict {
            refuse_losses(self.checkpoint.name(), &self.changes())?;
        }
        Ok(self)
    }

    /// The output's tensors, in the source's order.
    #[must_use]
    pub fn tensors(&self) -> &[Planned] {
        &self.tensors
    }

    /// How many arrays the output holds: a plain copy also holds arrays that are not read.
    #[must_use]
    pub fn count(&self) -> usize {
        if !self.is_copy() {
            return self.tensors().len();
        }
        self.checkpoint.entries().iter().filter(|entry| entry.kind() != Kind::None).count()
    }

    /// The tensors of the source that will not be in the output.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// The changes of the whole file, in words.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.of_file.iter().map(ToString::to_string).collect()
    }

    /// The output, if it is one file.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.file().map(|(path, ..)| path)
    }

    /// Path and layout of the output, if it is one file.
    pub(crate) fn file(&self) -> Option<(&Path, IfExists, &Layout)> {
        match &self.output {
            Destination::File { path, if_exists, layout } => Some((path, *if_exists, layout)),
            _ => None,
        }
    }

    /// All changes of the conversion, one group for each kind: first the changes of the whole file, then the changes of
    /// tensors. Lost values are found during the run, [`Summary::changes`](crate::Summary::changes), or by
    /// [`lost_values`](Plan::lost_values).
    #[must_use]
    pub fn changes(&self) -> Vec<Group> {
        let mut groups = Groups::default();
        self.group(&mut groups);
        groups.finish()
    }

    /// Adds what the conversion changes.
    pub(crate) fn group(&self, groups: &mut Groups) {
        self.of_file.iter().for_each(|change| groups.of_file(change));
        for LeftOut { name, reason, is_asked } in &self.left_out {
            let effect = Effect::LeftOut { reason: reason.clone() };
            groups.of_tensor(name, &Change { effect, is_asked: *is_asked });
        }
        for tensor in &self.tensors {
            tensor.changes.iter().for_each(|change| groups.of_tensor(&tensor.spec.name, change));
        }
    }

    /// The net that the transforms followed, or that says which values count otherwise than stored; `None` where no net
    /// was needed, or none was there.
    #[must_use]
    pub fn net(&self) -> Option<&NetOrigin> {
        self.net.as_ref()
    }

    /// The fold of a [recipe](crate::Recipe): the normalisations that are folded, and the refused ones.
    #[must_use]
    pub fn fold(&self) -> Option<&Fold> {
        self.fold.as_ref()
    }

    /// The path of MXNet's symbol without the layers that a recipe folds; the symbol is written beside the tensors.
    #[must_use]
    pub fn symbol(&self) -> Option<&Path> {
        self.symbol.as_ref().map(|symbol| &*symbol.path)
    }

    /// The text of that symbol.
    #[must_use]
    pub fn symbol_text(&self) -> Option<&str> {
        self.symbol.as_ref().map(|symbol| &*symbol.text)
    }

    /// The ONNX model that the tensors are written into: the graph, the inputs and the outputs.
    #[must_use]
    pub fn model(&self) -> Option<&Model> {
        self.model.as_deref()
    }

    /// The output's size in bytes: all files together, with headers, receipt and index.
    #[must_use]
    pub fn output_len(&self) -> u64 {
        let receipt = || self.receipt.placeholder();
        match &self.output {
            Destination::File { layout, .. } | Destination::Stdout { layout } => layout.len(),
            Destination::Folder { .. } => {
                let files = self.tensors.iter();
                let files = files.filter_map(|tensor| Layout::new(slice::from_ref(&tensor.spec), Frame::Npy).ok());
                receipt().1.len() as u64 + files.map(|file| file.len()).sum::<u64>()
            }
            Destination::Shards { shards, .. } => {
                let of_index: Vec<_> = self.metadata.iter().cloned().chain(self.has_receipt.then(receipt)).collect();
                shards.len_with(&self.tensors, &of_index)
            }
        }
    }

    /// For an output in shards: the index that opens the output, and the number of shards.
    #[must_use]
    pub fn index(&self) -> Option<(&Path, usize)> {
        match &self.output {
            Destination::Shards { shards, .. } => Some((&shards.index, shards.files.len())),
            _ => None,
        }
    }

    /// Whether the output has a receipt. Files of Caffe and MXNet and a single `.npy` have no place for one.
    #[must_use]
    pub fn has_receipt(&self) -> bool {
        match self.output {
            Destination::Folder { .. } => true,
            _ => self.has_receipt,
        }
    }

    /// Whether no transform changes the source's tensors.
    #[must_use]
    pub fn is_untransformed(&self) -> bool {
        self.receipt.is_untransformed
    }

    /// The steps that the receipt has no room to describe: `verify` cannot repeat these steps.
    #[must_use]
    pub fn unproven(&self) -> &[String] {
        if self.has_receipt() { &self.receipt.unproven } else { &[] }
    }

    /// Whether the output is the source, byte for byte, without a receipt: the format stays and no option changes
    /// anything.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        matches!(self.base, Template::Same)
    }

    /// The format that will be written.
    #[must_use]
    pub fn to(&self) -> Format {
        self.to
    }
}

/// Plans a conversion of `checkpoint` to `target`. Reads no tensor and writes nothing.
///
/// # Errors
/// The fault of an entry, or an output format that cannot hold the tensors.
pub fn plan<'a>(checkpoint: &'a Checkpoint, options: &Options, target: &Place<'_>) -> Result<Plan<'a>, Error> {
    let is_folder = matches!(target, Place::Folder { .. });
    source::check(&[checkpoint], target)?;
    let wanted = if is_folder { Wanted::Any } else { wanted(options.to, target.file().map(|(path, _)| path)) };
    let ToDo { mut options, changes: said, .. } = to_do(checkpoint, options, wanted)?;
    options.to = target.format(options.to);
    options.anew |= h5::is_of_other_form(checkpoint, options.to, target.file().map(|(path, _)| path));
    let options = &options;
    // A copy needs no array to be read.
    let skip_unsupported = options.skip_unsupported || is_copy(checkpoint, options, is_folder);
    let chosen = chosen(checkpoint, &Options { skip_unsupported, ..options.clone() }, is_folder)?;
    let (base, changes) = Template::of(checkpoint, options, &chosen.tensors, is_folder);
    let mut plan = planned_for(checkpoint, base, chosen, options, target)?;
    let unsaid =
        state::unsaid(checkpoint).filter(|_| !(plan.has_receipt() || plan.is_copy() || options.without_receipt));
    plan.of_file.extend(unsaid.map(|words| Change::unasked(Effect::Remark(words))));
    plan.of_file.splice(0..0, said.into_iter().chain(changes));
    plan.finished()
}

/// Plans how the tensors of `checkpoint` replace tensors of the same names and shapes in `base`, a file of Caffe,
/// NeoML, HDF5 or ONNX. Every other byte of `base` is kept, and the format is always that of `base`.
///
/// # Errors
/// As [`plan`]; [`Error::Request`] with the list of the tensors that have no place in `base`.
pub fn plan_into<'a>(
    checkpoint: &'a Checkpoint,
    base: &'a Checkpoint,
    options: &Options,
    target: &Place<'_>,
) -> Result<Plan<'a>, Error> {
    if let Place::Folder { path, .. } = target {
        return Err(refuse(base, format!("is one file, and {} a folder", path.display())));
    }
    let format = base.format();
    if format.holds().refill == Refill::Never {
        let title = format.title();
        let message = format!("is {title}, and arrays are put into files of Caffe, NeoML, HDF5 and ONNX only");
        return Err(Error::misfit(base.name(), message, Remedy::NewFile));
    }
    for file in [checkpoint, base] {
        if file.salvaged().is_some() {
            return Err(refuse(file, "breaks off, and a model is changed by whole files only".to_owned()));
        }
    }
    source::check(&[checkpoint, base], target)?;
    check_bare(base)?;
    let (back, stays) = match back(checkpoint, base, options) {
        Ok(back) => (back, None),
        Err(why) => (Back::default(), Some(why)),
    };
    let wanted = Wanted::Of { base, undone: &back.undone };
    let ToDo { mut options, changes: said, named } = to_do(checkpoint, options, wanted)?;
    state::check_as_they_were(checkpoint, base, &back.undone, stays)?;
    // The steps back go by the names of the base, so renaming comes first.
    options.transforms.splice(named..named, back.steps);
    let options = Options { to: base.format(), ..options };
    let mut chosen = chosen(checkpoint, &options, false)?;
    caffe::add_copies(base, &mut chosen.tensors)?;
    chosen.of_file.extend(left_behind(checkpoint, base, &options, &chosen)?);
    chosen.of_file.extend(also_replaced(base, &chosen.tensors));
    let mut plan = planned_for(checkpoint, Template::File(base), chosen, &options, target)?;
    plan.of_file.splice(0..0, said);
    plan.finished()
}

pub(crate) fn planned_for<'a>(
    checkpoint: &'a Checkpoint,
    base: Template<'a>,
    chosen: Chained,
    options: &Options,
    target: &Place<'_>,
) -> Result<Plan<'a>, Error> {
    let Chained { mut tensors, mut left_out, mut of_file, removed_layers, net, told_by, .. } = chosen;
    if matches!(base, Template::Same) {
        left_out.clear();
    }
    let is_folder = matches!(target, Place::Folder { .. });
    let to = options.to;
    let mut options = Options { followed: net, told_by, ..options.clone() };
    let has_receipt = is_folder || base.gets_receipt(to, &options);
    let storage = Storage { to, is_folder, has_receipt };
    let files = storage.encode(&mut tensors);
    of_file.extend(model::put_beside(checkpoint, &mut options, &tensors, target)?);
    let (unnamed, removed) = model::unnamed(checkpoint, &options, target);
    of_file.extend(removed);
    let options = &options;
    let frame = frame_of(checkpoint, options, &tensors, has_receipt)?;
    if matches!(base, Template::None) && !layout::keeps_names(checkpoint, options, &tensors) {
        storage.note_names(checkpoint, &mut tensors);
    }
    let path = target.file().map(|(path, _)| path);
    let (is_anew, metadata) = (frame.is_err(), storage.metadata(checkpoint, has_receipt));
    let receipt = Receipt::new(checkpoint, options, &tensors, &left_out, &files, &metadata, frame)?;
    if matches!(base, Template::None) {
        if !options.is_told {
            let is_bare = !has_receipt && !layout::keeps_details(checkpoint, options, &tensors);
            of_file.extend(storage.dropped_metadata(checkpoint, &metadata, h5::form(to, path), is_bare, is_anew));
            of_file.extend(storage.remarks(checkpoint, options));
            of_file.extend(layout::one_version(checkpoint, options, &tensors));
        }
        storage.note_new(checkpoint, &mut tensors, options.renumbers());
    }
    if !(options.is_told || base.has_bytes_of(checkpoint)) {
        of_file.extend(unlisted(checkpoint));
    }
    of_file.extend(receipt.lacking(options).into_iter().filter(|_| has_receipt));
    tensors.iter_mut().enumerate().for_each(|(place, tensor)| tensor.slot = Some(place));
    let in_shards = shards::planned(checkpoint, options, target.file(), &tensors, &mut of_file)?;
    of_file.extend(layout::unchanged_prototxt(&base, to, &removed_layers));
    let with_receipt = metadata.iter().cloned().chain(has_receipt.then(|| receipt.placeholder())).collect::<Vec<_>>();
    let mut layout = || layout::of(checkpoint, &base, options, &mut tensors, &removed_layers, &with_receipt, path);
    let output = match (*target, in_shards) {
        (Place::File { if_exists, .. }, Some(shards)) => Destination::Shards { if_exists, shards },
        (Place::File { path, if_exists }, None) => {
            Destination::File { path: path.to_owned(), if_exists, layout: layout()? }
        }
        (Place::Stdout, _) => Destination::Stdout { layout: layout()? },
        (Place::Folder { path, if_exists }, _) => Destination::Folder { path: path.to_owned(), if_exists, files },
    };
    let net = options.followed.as_ref().map(|net| net.origin.clone()).or_else(|| options.told_by.clone());
    Ok(Plan {
        checkpoint,
        base,
        to,
        tensors,
        left_out,
        of_file,
        receipt,
        net,
        has_receipt,
        metadata,
        strict: options.strict,
        is_of_batch: options.mark.is_some(),
        output,
        registry: options.registry.clone(),
        fold: options.fold.clone(),
        symbol: options.symbol.clone(),
        model: options.model.clone(),
        unnamed,
    })
}

/// The bytes around the tensors of the source for the output's receipt, or the reason why there are none.
pub(crate) fn frame_of(
    checkpoint: &Checkpoint,
    options: &Options,
    tensors: &[Planned],
    has_receipt: bool,
) -> Result<Result<Value, &'static str>, Error> {
    if !has_receipt {
        Ok(Err("the output has no receipt"))
    } else if !options.transforms.is_empty() {
        Ok(Err("tensors were transformed"))
    } else if checkpoint.salvaged().is_some() {
        Ok(Err("the source breaks off"))
    } else {
        frame::of(checkpoint, tensors)
    }
}

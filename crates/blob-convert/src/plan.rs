//! What a conversion will do, decided from headers alone: which tensors, under which names, with which changes.

use std::path::Path;

use blob_io::caffe::Form;
use blob_io::{Checkpoint, Error, Format, IfExists, Layout, file_names, member_names};

use crate::caffe;
use crate::chain::Chained;
use crate::chosen::chosen;
use crate::done::refuse_again;
use crate::frame;
use crate::hdf5;
use crate::identity;
use crate::layout::{layout, refilled};
use crate::neoml;
use crate::options::{Options, refuse};
use crate::planned::Planned;
use crate::receipt::{Receipt, own};
use crate::shards::{self, Shards};

/// Where the output goes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Target<'a> {
    /// A file: made beside its place and put there when it is complete.
    File {
        /// The file.
        path: &'a Path,
        /// What happens to an existing file.
        if_exists: IfExists,
    },
    /// Standard output.
    Stdout,
    /// A folder of `.npy` files; whatever format the options name.
    Folder {
        /// The folder.
        path: &'a Path,
        /// What happens to an existing folder; only one that holds just what an earlier conversion wrote is replaced.
        if_exists: IfExists,
    },
}

impl<'a> Target<'a> {
    /// The file, where it is one, and what happens to an existing one.
    fn file(&self) -> Option<(&'a Path, IfExists)> {
        match *self {
            Self::File { path, if_exists } => Some((path, if_exists)),
            _ => None,
        }
    }
}

/// What a conversion will do: [`check`](Plan::check) looks ahead, [`run`](Plan::run) carries it out.
#[derive(Debug)]
pub struct Plan<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) base: Base<'a>,
    pub(crate) to: Format,
    pub(crate) tensors: Vec<Planned>,
    pub(crate) left_out: Vec<(String, String)>,
    pub(crate) notes: Vec<String>,
    pub(crate) receipt: Receipt,
    /// Whether lost values are an error.
    pub(crate) strict: bool,
    pub(crate) output: Destination<'a>,
}

/// The file whose bytes the output has where it is not changed.
#[derive(Debug)]
pub(crate) enum Base<'a> {
    None,
    /// The source, copied as it is.
    Same,
    File(&'a Checkpoint),
    /// What the source's receipt has of it.
    Frame(Box<Checkpoint>),
}

impl Base<'_> {
    pub(crate) fn file(&self) -> Option<&Checkpoint> {
        match self {
            Self::None | Self::Same => None,
            Self::File(file) => Some(file),
            Self::Frame(file) => Some(file),
        }
    }
}

/// Where the output goes, with what only that kind of output needs.
#[derive(Debug)]
pub(crate) enum Destination<'a> {
    File {
        path: &'a Path,
        if_exists: IfExists,
        layout: Layout,
    },
    Stdout {
        layout: Layout,
    },
    Shards {
        if_exists: IfExists,
        shards: Shards,
    },
    /// `files` has the path of each tensor's file.
    Folder {
        path: &'a Path,
        if_exists: IfExists,
        files: Vec<String>,
    },
}

impl Plan<'_> {
    /// The output's tensors, in the source's order.
    #[must_use]
    pub fn tensors(&self) -> &[Planned] {
        &self.tensors
    }

    /// What will not be in the output, as (name, reason).
    #[must_use]
    pub fn left_out(&self) -> &[(String, String)] {
        &self.left_out
    }

    /// What else is to be known before it is carried out, in words.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The output's size in bytes; for a folder the sum of its arrays' sizes.
    #[must_use]
    pub fn output_len(&self) -> u64 {
        match &self.output {
            Destination::File { layout, .. } | Destination::Stdout { layout } => layout.len(),
            Destination::Folder { .. } => self.tensors.iter().map(|tensor| tensor.spec.byte_len()).sum(),
            Destination::Shards { shards, .. } => shards.len(),
        }
    }

    /// The index that opens the output, where it is in shards, and how many they are.
    #[must_use]
    pub fn index(&self) -> Option<(&Path, usize)> {
        match &self.output {
            Destination::Shards { shards, .. } => Some((&shards.index, shards.files.len())),
            _ => None,
        }
    }

    /// Whether the output says where it came from: files of Caffe and MXNet and a single `.npy` have no place for a receipt.
    #[must_use]
    pub fn has_receipt(&self) -> bool {
        match self.output {
            Destination::Folder { .. } => true,
            _ => is_with_receipt(&self.base, self.to),
        }
    }

    /// Whether the tensors are the source's, as no transform was asked for.
    #[must_use]
    pub fn is_untransformed(&self) -> bool {
        self.receipt.is_untransformed
    }

    /// Whether the output is the source, byte for byte, though its format has a receipt: within one format, nothing else was
    /// asked for.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        matches!(self.base, Base::Same)
    }

    /// The format that will be written.
    #[must_use]
    pub fn to(&self) -> Format {
        self.to
    }
}

/// Decides what a conversion of `checkpoint` to `target` will do. Reads no tensor and writes nothing.
///
/// # Errors
/// The fault of an entry, an output format that cannot hold the tensors, or one that this crate does not write.
pub fn plan<'a>(checkpoint: &'a Checkpoint, options: &Options, target: &Target<'a>) -> Result<Plan<'a>, Error> {
    let is_folder = matches!(target, Target::Folder { .. });
    refuse_again(checkpoint, &options.transforms)?;
    let chosen = chosen(checkpoint, options, is_folder)?;
    // A Caffe file written as the same message keeps all that is no blob. V1 and V2 have other layers.
    let is_same = options.to.is_caffe() && options.to == checkpoint.format();
    let is_same = is_same && caffe::renamed(checkpoint, &chosen.tensors).is_some();
    let mut notes = Vec::new();
    let base = if identity::applies(checkpoint, options, is_folder) {
        Base::Same
    } else if is_same && !options.form.is_some_and(Form::is_v1) {
        Base::File(checkpoint)
    } else if is_folder || !options.keeps_frame() {
        Base::None
    } else {
        match frame::source(checkpoint, options.to) {
            Some(Ok(made)) => Base::Frame(Box::new(made)),
            Some(Err(why)) => {
                let format = options.to.name();
                notes.push(format!("the {format} is written anew, not as the receipt has it: {why}"));
                Base::None
            }
            None => Base::None,
        }
    };
    if caffe::lacks_iter(checkpoint, options.to) && base.file().is_none() {
        notes.push("iter is written as 0: the source does not say how far the solver was".to_owned());
    }
    let is_hdf5 = (checkpoint.format(), options.to) == (Format::Hdf5, Format::Hdf5);
    let is_anew = is_hdf5 && matches!(base, Base::None) && !is_folder;
    // Ours holds tensors and its receipt alone.
    if is_anew && !options.anew && notes.is_empty() && own(checkpoint).is_none() {
        notes.push(
            "the hdf5 is written anew: attributes, links, chunks and compression of the source are lost".to_owned(),
        );
    }
    let mut plan = planned_for(checkpoint, base, chosen, options, target)?;
    plan.notes.splice(0..0, notes);
    Ok(plan)
}

/// Decides how the tensors of `checkpoint` replace those of the same names and shapes in the file `base` of Caffe's or NeoML's,
/// or of HDF5, of which every other byte is kept. The options' format is that of `base`.
///
/// # Errors
/// As [`plan`]; [`Error::Request`] with the list of the tensors that have no place in `base`.
pub fn plan_into<'a>(
    checkpoint: &'a Checkpoint,
    base: &'a Checkpoint,
    options: &Options,
    target: &Target<'a>,
) -> Result<Plan<'a>, Error> {
    if let Target::Folder { path, .. } = target {
        return Err(refuse(base, format!("is one file, and {} a folder", path.display())));
    }
    let format = base.format();
    if !(format.is_caffe() || format.is_neoml() || format == Format::Hdf5) {
        let message = format!("is {}, and arrays are put into files of Caffe, NeoML and HDF5 only", format.title());
        return Err(refuse(base, message));
    }
    let options = Options { to: base.format(), ..options.clone() };
    refuse_again(checkpoint, &options.transforms)?;
    let chosen = chosen(checkpoint, &options, false)?;
    planned_for(checkpoint, Base::File(base), chosen, &options, target)
}

fn planned_for<'a>(
    checkpoint: &'a Checkpoint,
    base: Base<'a>,
    chosen: Chained,
    options: &Options,
    target: &Target<'a>,
) -> Result<Plan<'a>, Error> {
    let Chained { mut tensors, mut left_out, mut notes, layers_gone } = chosen;
    if matches!(base, Base::Same) {
        left_out.clear();
    }
    let is_folder = matches!(target, Target::Folder { .. });
    let to = if is_folder { Format::Npy } else { options.to };
    let options = &Options { to, ..options.clone() };
    let names: Vec<&str> = tensors.iter().map(|tensor| &*tensor.spec.name).collect();
    let stored = match to {
        _ if is_folder => file_names(&names),
        Format::Npz => member_names(&names),
        _ => Vec::new(),
    };
    for (tensor, stored) in tensors.iter_mut().zip(&stored) {
        if *stored != tensor.spec.name {
            tensor.changes.push(format!("stored as {stored:?}").into());
        }
    }
    let stored = stored.into_iter().filter(|_| is_folder);
    let files: Vec<String> = stored.map(|path| path + ".npy").collect();
    let has_receipt = is_folder || is_with_receipt(&base, to);
    let frame = match has_receipt {
        false => Err("the output has no receipt"),
        true if !options.transforms.is_empty() => Err("tensors were transformed"),
        true => frame::of(checkpoint, &tensors)?,
    };
    let receipt = Receipt::new(checkpoint, options, &tensors, &left_out, &files, frame)?;
    tensors.iter_mut().enumerate().for_each(|(place, tensor)| tensor.slot = Some(place));
    let in_shards = shards::planned(checkpoint, options, target.file(), &tensors, &mut notes)?;
    if matches!(base, Base::File(_)) && to.is_caffe() && !layers_gone.is_empty() {
        notes.push("fold: the output's own description of the net says so; a prototxt has to be changed".to_owned());
    }
    let mut layout = || match (&base, to.is_caffe()) {
        (Base::Same, _) => identity::layout(checkpoint, &mut tensors),
        (Base::Frame(base), _) => refilled(base, &mut tensors),
        (Base::File(base), _) if base.format() == Format::Hdf5 => hdf5::into(checkpoint, base, &mut tensors),
        (Base::File(base), _) if base.format().is_neoml() => neoml::spliced(checkpoint, base, &mut tensors),
        (Base::File(base), _) => caffe::spliced(checkpoint, base, options, &mut tensors, &layers_gone),
        (Base::None, true) => caffe::new(checkpoint, options, &mut tensors),
        _ if to == Format::Hdf5 => hdf5::new(checkpoint, &tensors, &receipt, target.file().map(|(path, _)| path)),
        _ => layout(checkpoint, options, &tensors, &receipt),
    };
    let mut layout = || layout().map_err(|e| e.about(checkpoint.name()));
    let output = match (*target, in_shards) {
        (Target::File { if_exists, .. }, Some(shards)) => Destination::Shards { if_exists, shards },
        (Target::File { path, if_exists }, None) => Destination::File { path, if_exists, layout: layout()? },
        (Target::Stdout, _) => Destination::Stdout { layout: layout()? },
        (Target::Folder { path, if_exists }, _) => Destination::Folder { path, if_exists, files },
    };
    let strict = options.strict;
    Ok(Plan { checkpoint, base, to, tensors, left_out, notes, receipt, strict, output })
}

/// Whether a file has a receipt; one that is an existing file with other values is as that one is.
fn is_with_receipt(base: &Base<'_>, to: Format) -> bool {
    matches!(base, Base::None) && matches!(to, Format::Safetensors | Format::Npz | Format::Hdf5)
}

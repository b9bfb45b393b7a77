//! The file of values beside a new ONNX model: whether there is one, which is where the options ask for that and past
//! the 2 GiB that protobuf reads.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use blob_io::onnx::{Initializer, Model};
use blob_io::words::quoted;
use blob_io::{Checkpoint, Error, Files, IfExists, OpenOptions, Output, Remedy};

use crate::change::{Change, Effect};
use crate::goal::Place;
use crate::options::{Options, refuse};
use crate::planned::Planned;
use crate::source;

/// What is behind the model's name in the name of the file.
const EXTENSION: &str = ".data";

/// The name of the file of the values beside a model of this name.
pub(crate) fn values_name(model: &OsStr) -> OsString {
    let mut name = model.to_owned();
    name.push(EXTENSION);
    name
}

/// Names the file of the values in the model of the options, where the values go into one; returns what is said of it.
///
/// # Errors
/// An output without a second file: a pipe, a device, a place of the caller's; a second file that is the source or a
/// link.
pub(crate) fn put_beside(
    checkpoint: &Checkpoint,
    options: &mut Options,
    tensors: &[Planned],
    target: &Place<'_>,
) -> Result<Option<Change>, Error> {
    let Some(model) = &mut options.model else { return Ok(None) };
    let of_constants = model.initializers.iter().map(|own| match own {
        Initializer::Constant { bytes, .. } => bytes.len() as u64,
        Initializer::Stored { .. } => 0,
    });
    let of_tensors = tensors.iter().map(|tensor| tensor.spec.byte_len());
    let bytes = of_tensors.chain(of_constants).fold(0, u64::saturating_add);
    let has_long = tensors.iter().any(|tensor| tensor.spec.byte_len() >= Model::OUTSIDE);
    if !has_long || !options.external_data && bytes <= options.most_inside {
        return Ok(None);
    }
    let file = target.file().filter(|(path, _)| !path.exists() || path.is_file());
    let Some((path, if_exists)) = file else {
        let message = format!(
            "becomes a model with {bytes} bytes of values in a second file, and there is no file beside a pipe or a device"
        );
        return Err(Error::misfit(checkpoint.name(), message, Remedy::NamedFile));
    };
    // The model would take the place of what the link names, and the values the place beside the link.
    if path.is_symlink() {
        let message = format!("becomes a model with a file of values beside it, and {path:?} is a link: name its file");
        return Err(refuse(checkpoint, message));
    }
    let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| is_portable(name)) else {
        let message = format!("becomes a model that names the file of its values, and {path:?} is no such name");
        return Err(refuse(checkpoint, message));
    };
    let values = format!("{name}{EXTENSION}");
    let beside = path.with_file_name(values_name(name.as_ref()));
    source::check(&[checkpoint], &Place::File { path: &beside, if_exists })?;
    // A link at the name that the user gave is followed; the other name was not given.
    if beside.is_symlink() {
        let message = format!("becomes a model whose values go into {}, which is a link", quoted(&values));
        return Err(refuse(checkpoint, message));
    }
    let words = format!("values of {} bytes and more are in {}, beside the model", Model::OUTSIDE, quoted(&values));
    Arc::make_mut(model).outside = Some(values);
    Ok(Some(Change::unasked(Effect::Notice(words))))
}

/// The files of values beside the model that the output replaces: no model names them then. Only files with a name of
/// ours, and not the source.
pub(crate) fn unnamed(
    checkpoint: &Checkpoint,
    options: &Options,
    target: &Place<'_>,
) -> (Vec<PathBuf>, Option<Change>) {
    let Place::File { path, if_exists: IfExists::Replace } = *target else { return (Vec::new(), None) };
    let named = path.file_name().filter(|_| options.to.holds().files == Files::Beside && path.is_file());
    let replaced = named.and_then(|_| OpenOptions::new().from(options.to).open(path).ok());
    let (Some(name), Some(replaced)) = (named, replaced) else { return (Vec::new(), None) };
    let (own, model) = (values_name(name), options.model.as_ref());
    let values = model.and_then(|model| model.outside.as_deref());
    let ours = replaced.shards().iter().filter(|file| own == ***file || Output::is_temporary_of(name, file));
    let files = ours.filter(|file| values != Some(&***file)).map(|file| path.with_file_name(file));
    let files: Vec<PathBuf> =
        files.filter(|file| source::check_source(checkpoint, file, IfExists::Replace).is_ok()).collect();
    let said = files.iter().any(|file| file.file_name() == Some(&own)).then(|| {
        let words =
            format!("{} has the values of the model that is replaced, and is removed", quoted(&own.to_string_lossy()));
        Change::unasked(Effect::Notice(words))
    });
    (files, said)
}

/// Whether readers of other systems take this for a name and not for a path.
fn is_portable(name: &str) -> bool {
    !name.contains(['\\', ':'])
}

//! The output of a recipe: the place, the format, the form, and the changes that are refused.

use std::path::{Path, PathBuf};

use blob_io::caffe::BlobForm;
use blob_io::mxnet::Version;
use blob_io::{Checkpoint, Error, Files, Format, IfExists, Remedy};
use serde::{Deserialize, Serialize};

use super::outputs::Divide;
use crate::goal;
use crate::model::values_name;
use crate::onnx::Onnx;
use crate::options::Options;
use crate::transform::Registry;

/// The output: place, format and form.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Target {
    /// A file; a folder, if the path ends with `/` or is an existing folder; standard output for `-` or `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// The format. If `None`, the extension's format, or the source's where that is usual for the extension.
    #[serde(skip_serializing_if = "Option::is_none", with = "by_name")]
    pub format: Option<Format>,
    /// Whether an existing file or folder is refused, replaced, or may stay if it has the new one's bytes.
    #[serde(with = "if_exists")]
    pub if_exists: IfExists,
    /// A model: the output is a copy of this file, in which each tensor replaces the tensor of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub into: Option<PathBuf>,
    /// How the tensors are divided among several files; `path` has `{}` for the name of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divide: Option<Divide>,
    /// As [`Options::form`](crate::Options::form).
    #[serde(skip_serializing_if = "Option::is_none", with = "form")]
    pub form: Option<BlobForm>,
    /// How a net becomes an ONNX model, where that is the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub onnx: Option<Onnx>,
    /// As [`Options::params_version`](crate::Options::params_version).
    #[serde(skip_serializing_if = "Option::is_none", with = "version")]
    pub params_version: Option<Version>,
    /// As [`Options::shard_size`](crate::Options::shard_size).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard_size: Option<u64>,
    /// As [`Options::dense`](crate::Options::dense).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dense: bool,
    /// As [`Options::anew`](crate::Options::anew).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
    /// As [`Options::strict`](crate::Options::strict).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// As [`Options::skip_unsupported`](crate::Options::skip_unsupported).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skip_unsupported: bool,
    /// As [`Options::sha256`](crate::Options::sha256).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sha256: bool,
    /// Whether a format with room for a receipt gets one.
    #[serde(skip_serializing_if = "Clone::clone")]
    pub receipt: bool,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            path: None,
            format: None,
            if_exists: IfExists::Refuse,
            into: None,
            divide: None,
            form: None,
            onnx: None,
            params_version: None,
            shard_size: None,
            dense: false,
            anew: false,
            strict: false,
            skip_unsupported: false,
            sha256: false,
            receipt: true,
        }
    }
}

impl Target {
    /// The file beside an ONNX model that may get the model's values; `None` for other formats, and for a pipe.
    #[must_use]
    pub fn values_path(&self) -> Option<PathBuf> {
        let path = self.path.as_deref().filter(|path| *path != Path::new("-"))?;
        let format = self.format.or_else(|| Format::of_path(path));
        let name = path.file_name().filter(|_| format.is_some_and(|format| format.holds().files == Files::Beside))?;
        Some(path.with_file_name(values_name(name)))
    }

    /// The settings of a conversion to a format.
    pub(super) fn options(&self, to: Format, registry: Registry) -> Options {
        Options {
            dense: self.dense,
            sha256: self.sha256,
            params_version: self.params_version,
            form: self.form,
            anew: self.anew,
            shard_size: self.shard_size,
            strict: self.strict,
            skip_unsupported: self.skip_unsupported,
            without_receipt: !self.receipt,
            registry,
            ..Options::new(to)
        }
    }

    /// The file, the folder or standard output.
    ///
    /// # Errors
    /// [`Error::Request`] for a folder and a format other than npy.
    pub fn place(&self) -> Result<goal::Place<'_>, Error> {
        let if_exists = self.if_exists;
        let Some(path) = self.path.as_deref().filter(|path| *path != Path::new("-")) else {
            return Ok(goal::Place::Stdout);
        };
        if !path.to_string_lossy().ends_with(std::path::is_separator) && !path.is_dir() {
            return Ok(goal::Place::File { path, if_exists });
        }
        match self.format.filter(|format| format.holds().files != Files::Folder) {
            None => Ok(goal::Place::Folder { path, if_exists }),
            Some(other) => {
                let message = format!("{} is a folder, and holds npy files, not {}", path.display(), other.name());
                Err(Error::Request { file: String::new(), message })
            }
        }
    }

    /// Refuses a folder without a receipt, and a path with the extension of another format than that of `into`.
    pub(super) fn check(&self, into: Option<&Checkpoint>) -> Result<(), Error> {
        let Some(path) = self.path.as_deref() else { return Ok(()) };
        if !self.receipt && matches!(self.place()?, goal::Place::Folder { .. }) {
            let message = "the receipt of a folder names its files, and stays";
            return Err(Error::misfit(path.display(), message, Remedy::Receipt));
        }
        if let (Some(into), Some(extension)) = (into, path.extension().and_then(|extension| extension.to_str()))
            && let Some(promised) = Format::from_extension(extension).filter(|_| !into.format().is_usual(extension))
        {
            let (name, is) = (into.name(), into.format().name());
            let message = format!("would be {is}, as {name} is, not {}", promised.name());
            return Err(Error::misfit(path.display(), message, Remedy::OtherFormat));
        }
        Ok(())
    }

    /// The format to write; `None` if unknown. The source's format is kept if several formats have the output's
    /// extension and the source has one of these, as for NeoML, or if source and output have the same unknown
    /// extension.
    #[must_use]
    pub fn format_from(&self, source: &Checkpoint) -> Option<Format> {
        if self.format.is_some() {
            return self.format;
        }
        let place = self.place().ok()?;
        let path = match place {
            goal::Place::Folder { .. } => return Some(place.format(source.format())),
            goal::Place::Stdout => return None,
            goal::Place::File { path, .. } => path,
        };
        let extension = path.extension().and_then(|extension| extension.to_str());
        let known = extension.and_then(Format::from_extension);
        let is_kept = match known {
            Some(_) => extension.is_some_and(|extension| source.format().is_usual(extension)),
            None => extension.is_some() && source.path().is_some_and(|input| input.extension() == path.extension()),
        };
        if is_kept { Some(source.format()) } else { known }
    }
}

/// A format by name.
pub(super) mod by_name {
    use blob_io::Format;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(format: &Option<Format>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(format.map_or("", Format::name))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Format>, D::Error> {
        String::deserialize(text)?.parse().map(Some).map_err(de::Error::custom)
    }
}

/// `refuse`, `replace` or `done`.
mod if_exists {
    use blob_io::IfExists;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(if_exists: &IfExists, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(match if_exists {
            IfExists::Refuse => "refuse",
            IfExists::Replace => "replace",
            IfExists::Same => "done",
        })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(text: D) -> Result<IfExists, D::Error> {
        match &*String::deserialize(text)? {
            "refuse" => Ok(IfExists::Refuse),
            "replace" => Ok(IfExists::Replace),
            "done" => Ok(IfExists::Same),
            other => Err(de::Error::unknown_variant(other, &["refuse", "replace", "done"])),
        }
    }
}

/// Caffe's form as a list of words: `["legacy", "raw", "v1"]`. The empty list is the form since 2015.
mod form {
    use blob_io::caffe::BlobForm;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    const WORDS: [&str; 3] = ["legacy", "raw", "v1"];

    pub(super) fn serialize<S: Serializer>(form: &Option<BlobForm>, to: S) -> Result<S::Ok, S::Error> {
        let form = form.unwrap_or_default();
        let words = WORDS.into_iter().zip([form.legacy, form.raw, form.v1]).filter(|(_, is)| *is);
        words.map(|(word, _)| word).collect::<Vec<_>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(text: D) -> Result<Option<BlobForm>, D::Error> {
        let words = Vec::<String>::deserialize(text)?;
        if let Some(other) = words.iter().find(|word| !WORDS.contains(&word.as_str())) {
            return Err(de::Error::unknown_variant(other, &WORDS));
        }
        let [legacy, raw, v1] = WORDS.map(|word| words.iter().any(|has| has == word));
        Ok(Some(BlobForm { legacy, raw, v1 }))
    }
}

/// The version of MXNet's records as a number.
mod version {
    use blob_io::mxnet::Version;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(version: &Option<Version>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u8(version.map_or(0, |version| version as u8))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Version>, D::Error> {
        let number = usize::deserialize(text)?;
        let version = Version::ALL.get(number).copied();
        version
            .map(Some)
            .ok_or_else(|| de::Error::custom(format!("MXNet's records have versions 0 to 3, not {number}")))
    }
}

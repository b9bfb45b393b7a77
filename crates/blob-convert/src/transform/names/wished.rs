//! The names that a recipe asks for: PyTorch's, by a file of lines `OLD NEW`, or those of the source, whatever the
//! output would like.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blob_io::{Error, Remedy};
use serde::Deserialize;
use serde_json::Value;

use super::Names;
use crate::transform::step::Transform;
use crate::transform::wish::Wish;

/// The longest file of names.
const LONGEST: u64 = 64 << 20;

/// The settings of `names` in a recipe.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Wished {
    pub(crate) to: Option<Given>,
    pub(crate) file: Option<PathBuf>,
    /// The steps that `torch` does not add.
    pub(crate) keep: Vec<String>,
}

/// Names without a file.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Given {
    /// The source's own names.
    Raw,
    Torch,
}

impl Names {
    pub(in crate::transform) fn make(settings: &Value, wish: &Wish<'_>) -> Result<Option<Arc<dyn Transform>>, Error> {
        let names = match wish.settings("names", settings)? {
            Wished { to: Some(Given::Raw), file: None, .. } => return Ok(None),
            Wished { to: Some(Given::Torch), file: None, .. } => {
                let names = Self::torch(wish.bound.as_ref(), wish.checkpoint);
                wish.eps.into_iter().fold(names, Self::after_eps)
            }
            Wished { to: None, file: Some(file), .. } => {
                Self::from_path(&file, Self::callable(wish.checkpoint.entries()))?
            }
            _ => return Err(wish.refused("the step \"names\" needs either to, file or map".to_owned())),
        };
        Ok(Some(Arc::new(names)))
    }

    /// Reads a [file of names](Names::from_file) for the tensors `names`.
    ///
    /// # Errors
    /// As [`Names::from_file`]; any error of reading the file.
    pub fn from_path<'n>(path: &Path, names: impl IntoIterator<Item = &'n str>) -> Result<Self, Error> {
        let text = text_of(path)
            .map_err(|e| Error::misfit(path.display(), format!("cannot read the names: {e}"), Remedy::NamesFile))?;
        Self::from_file(&text, names).map_err(|why| Error::misfit(path.display(), why, None))
    }
}

fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("more than {LONGEST} bytes")));
    }
    Ok(text)
}

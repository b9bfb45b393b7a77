//! The mark of a job: a digest of a recipe, independent of the names and the places of files.
//!
//! Covers the steps, the form of the output, and the content of each file that is read besides the source's tensors:
//! the net, names, the model that tensors go into, MXNet's symbol beside the source, the list of the source's files.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use blob_io::layout::FOLDER_LIST;
use blob_io::{Checkpoint, Error, Format, IfExists, file_of};
use serde_json::{Value, json};

use super::jobs::symbol_beside;
use crate::recipe::Recipe;
use crate::threads::lock;

/// How the name of an index of shards ends.
const INDEX: &str = ".index.json";

/// The format that the extension of an output means, whatever the source is.
fn only_format(output: &Path) -> Option<Format> {
    let extension = output.extension()?.to_str()?;
    let mut usual = Format::ALL.iter().copied().filter(|format| format.is_usual(extension));
    let first = usual.next()?;
    (usual.next().is_none() && Format::from_extension(extension) == Some(first)).then_some(first)
}

/// The list of a folder's files and the indices of shards there; of an index, the index itself.
fn lists_of(source: &Path) -> Vec<PathBuf> {
    let is_index = |path: &Path| path.to_string_lossy().ends_with(INDEX);
    let Ok(files) = fs::read_dir(source) else {
        return Some(source).filter(|source| is_index(source)).map(Path::to_owned).into_iter().collect();
    };
    let files = files.filter_map(|file| Some(file.ok()?.path()));
    let mut lists: Vec<PathBuf> = files.filter(|file| is_index(file) || file.ends_with(FOLDER_LIST)).collect();
    lists.sort();
    lists
}

/// A file's name without the folder; of a file in an archive, the archive's name and the place there.
fn called(path: &Path) -> String {
    let folder = file_of(path).parent().unwrap_or(Path::new(""));
    path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned()
}

/// The marks of a job, in hexadecimal. A source that does not break off gives the same output with and without
/// salvaging, and so one mark.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) of_whole: String,
    /// Of the whole arrays of a source that breaks off; `None` where the job does not take these.
    of_salvaged: Option<String>,
}

impl Mark {
    /// The mark of an output of this source.
    pub(super) fn of(&self, source: &Checkpoint) -> &str {
        let of_salvaged = self.of_salvaged.as_ref().filter(|_| source.salvaged().is_some());
        of_salvaged.unwrap_or(&self.of_whole)
    }

    /// Whether this mark is of an output that the job would write.
    pub(super) fn has(&self, mark: Option<&str>) -> bool {
        mark.is_some_and(|mark| mark == self.of_whole) || self.has_salvaged(mark)
    }

    /// Whether this mark is of an output with the whole arrays of a source that breaks off.
    pub(super) fn has_salvaged(&self, mark: Option<&str>) -> bool {
        mark.is_some() && mark == self.of_salvaged.as_deref()
    }
}

/// Computes marks. Each file that jobs read besides their sources is hashed once.
#[derive(Debug, Default)]
pub struct Marks {
    is_salvaging: bool,
    from: Option<Format>,
    hashes: Mutex<HashMap<PathBuf, String>>,
}

impl Marks {
    /// Marks for jobs that take the whole arrays of sources that break off, if `is_salvaging`.
    #[must_use]
    pub fn new(is_salvaging: bool) -> Self {
        Self { is_salvaging, ..Self::default() }
    }

    /// Marks for jobs whose sources are of this format, where a recipe names none.
    #[must_use]
    pub fn from(mut self, format: Option<Format>) -> Self {
        self.from = format;
        self
    }

    /// The mark of a recipe of one source.
    pub(super) fn of(&self, recipe: &Recipe) -> Result<Mark, Error> {
        let mut target = recipe.target.clone();
        // The form of an output depends on the ending of its name: `.caffemodel.h5` is Caffe's form of HDF5.
        let path = target.path.take().unwrap_or_default();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let ending = name.split_once('.').map(|(_, ending)| ending.to_owned());
        target.format = target.format.or_else(|| only_format(&path));
        target.if_exists = IfExists::Refuse;
        let into = target.into.take();
        let into = into.map(|path| self.hash(&path).map(|hash| json!([called(&path), hash]))).transpose()?;
        let mut steps = Vec::new();
        for step in &recipe.steps {
            let mut settings = if step.settings.is_null() { json!({}) } else { step.settings.clone() };
            if let Some(file) = settings.get_mut("file")
                && let Some(path) = file.as_str()
            {
                *file = json!(self.hash(Path::new(path))?);
            }
            steps.push(json!([step.name, settings]));
        }
        let net = match &recipe.net {
            Some(net) => json!([called(net.path()), self.hash(net.path())?]),
            None => self.symbol(recipe)?,
        };
        let formats = recipe.sources.iter().map(|source| source.format.or(self.from).map(Format::name));
        let mut all = json!({
            "from": formats.collect::<Vec<_>>(),
            "steps": steps,
            "net": net,
            "lists": self.lists(recipe)?,
            "target": target,
            "ending": ending,
            "into": into,
        });
        let mut mark = |is_salvaged: bool| {
            all["salvage"] = json!(is_salvaged);
            blake3::hash(all.to_string().as_bytes()).to_hex().to_string()
        };
        Ok(Mark { of_whole: mark(false), of_salvaged: self.is_salvaging.then(|| mark(true)) })
    }

    /// MXNet's symbol beside the source. A model is made of the symbol, steps may follow the net, and the receipt tells
    /// of values that count otherwise by it.
    fn symbol(&self, recipe: &Recipe) -> Result<Value, Error> {
        let beside = symbol_beside(recipe).filter(|symbol| symbol.is_file());
        beside.map_or(Ok(Value::Null), |symbol| Ok(json!(self.hash(&symbol)?)))
    }

    /// The digests of the files that say which tensor lies in which file of the source, whose own digest is of the
    /// tensors' files.
    fn lists(&self, recipe: &Recipe) -> Result<Vec<String>, Error> {
        let lists = recipe.sources.iter().flat_map(|source| lists_of(&source.path)).filter(|list| list.is_file());
        lists.map(|list| self.hash(&list)).collect()
    }

    fn hash(&self, path: &Path) -> Result<String, Error> {
        if let Some(known) = lock(&self.hashes).get(path) {
            return Ok(known.clone());
        }
        let mut hasher = blake3::Hasher::new();
        let hashed = File::open(file_of(path)).and_then(|mut file| io::copy(&mut file, &mut hasher));
        hashed.map_err(|source| Error::Open { file: path.display().to_string(), source })?;
        let hash = hasher.finalize().to_hex().to_string();
        lock(&self.hashes).insert(path.to_owned(), hash.clone());
        Ok(hash)
    }
}

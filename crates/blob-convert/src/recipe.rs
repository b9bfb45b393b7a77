//! A conversion as data: sources, steps and a target. One value for the tool, for Rust and for files.
//!
//! `resolve` makes the steps exact for a source; `plan` decides from then on. docs/recipe.md has the schema of the
//! JSON.

mod outputs;
mod resolve;
mod target;
mod unique;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blob_io::{Checkpoint, Error, Format, OpenOptions, file_of, read_text};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::history::MAX_STEPS;
pub use crate::net_file::NetFile;
pub use crate::onnx::{Onnx, Ssd};
use crate::plan::{Plan, plan, plan_into};
use crate::source::check_output;
use crate::step::Step;
use crate::transform::{Registry, Selection, Topology, Wished};
pub use outputs::Divide;
use resolve::resolved;
pub use target::Target;
use unique::Unique;

/// The schema of recipes.
const SCHEMA: &str = "blob.recipe/1";

/// The longest text of a recipe.
const LONGEST: u64 = 16 << 20;

/// A conversion as data: sources, steps and a target.
///
/// ```
/// use blob_convert::recipe::Recipe;
/// use blob_convert::transform::StripDiff;
/// use blob_convert::{Silent, Step};
///
/// # fn main() -> Result<(), blob_io::Error> {
/// let recipe = Recipe::new("net.caffemodel", "net.safetensors")
///     .step(StripDiff)
///     .step(Step::fold())
///     .step(Step::torch_names());
/// # if false {
/// let files = recipe.open()?;
/// recipe.plan(&files)?.run(&Silent)?;
/// # }
/// assert_eq!(Recipe::read("again", &recipe.to_json()?)?, recipe);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Recipe {
    #[serde(default)]
    schema: Schema,
    /// The files that are read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// The file that describes the net. If `None`, MXNet's symbol beside the source or the source itself may do so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<NetFile>,
    /// The steps. The order of this list has no effect: steps run in the order of the table in docs/recipe.md, each
    /// once.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "steps")]
    pub steps: Vec<Step>,
    /// The output.
    #[serde(default)]
    pub target: Target,
    /// The mark of a job of a batch.
    #[serde(skip)]
    pub(crate) mark: Option<String>,
    /// The text of the net's file, where the caller has that.
    #[serde(skip)]
    net_text: Option<Vec<u8>>,
    /// The file that the recipe was read from.
    #[serde(skip)]
    file: Option<PathBuf>,
}

/// A file that is read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Source {
    /// The file.
    pub path: PathBuf,
    /// The format, for a file whose content does not show the format.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "target::by_name")]
    pub format: Option<Format>,
}

/// The open files of a recipe.
#[derive(Debug)]
#[non_exhaustive]
pub struct Opened {
    /// The sources, in the order of the recipe.
    pub sources: Vec<Checkpoint>,
    /// The file that the tensors go into.
    pub into: Option<Checkpoint>,
}

impl Opened {
    /// Files that are open already.
    #[must_use]
    pub fn new(sources: Vec<Checkpoint>, into: Option<Checkpoint>) -> Self {
        Self { sources, into }
    }
}

impl Source {
    /// A file whose content shows its format.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), format: None }
    }
}

impl Recipe {
    /// A conversion of one file that changes the format alone. The output's extension names the new format.
    pub fn new(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        let target = Target { path: Some(target.into()), ..Target::default() };
        Self { sources: vec![Source::new(source)], target, ..Self::default() }
    }

    /// Adds a step: a transform, or a step whose settings follow from the source, as [`Step::fold`].
    #[must_use]
    pub fn step(mut self, step: impl Into<Step>) -> Self {
        self.steps.push(step.into());
        self
    }

    /// Reads the JSON of a recipe; `name` is for messages.
    ///
    /// # Errors
    /// [`Error::Request`] for a text that is no recipe, with the place of the fault.
    pub fn read(name: &str, text: &str) -> Result<Self, Error> {
        serde_json::from_str(text).map_err(|e| wrong(name, format!("is no recipe: {e}")))
    }

    /// Reads a file with the JSON of a recipe.
    ///
    /// # Errors
    /// As [`Recipe::read`]; any error of reading the file.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let (name, bytes) = (path.display().to_string(), read_text(path, LONGEST)?);
        if bytes.len() as u64 > LONGEST {
            return Err(wrong(&name, format!("is no recipe: more than {LONGEST} bytes")));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| wrong(&name, "is no recipe: not UTF-8".to_owned()))?;
        Ok(Self { file: Some(path.to_owned()), ..Self::read(&name, text)? })
    }

    /// The recipe as JSON, on lines of its own.
    ///
    /// # Errors
    /// [`Error::Request`] for a path that is not UTF-8.
    pub fn to_json(&self) -> Result<String, Error> {
        let json = serde_json::to_string_pretty(self).map_err(|e| wrong("", format!("a recipe has no JSON: {e}")))?;
        Ok(json + "\n")
    }

    /// Opens the sources, and the file that the tensors go into.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(&self) -> Result<Opened, Error> {
        let sources = self.sources.iter().map(|source| {
            let options = source.format.into_iter().fold(OpenOptions::new(), OpenOptions::from);
            options.open(&source.path)
        });
        let sources = sources.collect::<Result<_, Error>>()?;
        Ok(Opened { sources, into: self.target.into.as_ref().map(Checkpoint::open).transpose()? })
    }

    /// Refuses an output that is one of the files which are read besides the sources.
    ///
    /// # Errors
    /// [`Error::Misfit`] or [`Error::Request`] for such an output.
    pub fn check_reads(&self) -> Result<(), Error> {
        let place = self.target.place()?;
        place.path().map_or(Ok(()), |(path, _)| self.check_reads_of(path))
    }

    fn check_reads_of(&self, path: &Path) -> Result<(), Error> {
        self.reads().try_for_each(|read| check_output(&read, path, self.target.if_exists))
    }

    /// The files that are read besides the sources: the recipe, the net's description, names.
    pub fn reads(&self) -> impl Iterator<Item = PathBuf> {
        let names = self.steps.iter().filter_map(|step| Wished::deserialize(&step.settings).ok()?.file);
        let net = self.net.iter().map(|net| file_of(net.path()).to_owned());
        self.file.iter().cloned().chain(net).chain(names)
    }

    /// Gives the text of the file that describes the net, which is then not read.
    #[must_use]
    pub fn net_text(self, text: impl Into<Vec<u8>>) -> Self {
        Self { net_text: Some(text.into()), ..self }
    }

    /// Adds the step that takes some of the tensors alone; a selection of all is no step.
    #[must_use]
    pub fn selecting(self, selection: Selection) -> Self {
        if selection.is_all() { self } else { self.step(selection) }
    }

    /// Plans the conversion. Reads no tensor and writes nothing.
    ///
    /// # Errors
    /// A step that the source does not allow; the errors of [`plan`](crate::plan()) and
    /// [`plan_into`].
    pub fn plan<'a>(&'a self, files: &'a Opened) -> Result<Plan<'a>, Error> {
        let sources: Vec<&Checkpoint> = files.sources.iter().collect();
        self.plan_of(&sources, files.into.as_ref(), &Registry::default())
    }

    /// As [`Recipe::plan`], for files that you opened, whatever paths the recipe has, and with steps of your own.
    ///
    /// # Errors
    /// As [`Recipe::plan`].
    pub fn plan_of<'a>(
        &'a self,
        sources: &[&'a Checkpoint],
        into: Option<&'a Checkpoint>,
        registry: &Registry,
    ) -> Result<Plan<'a>, Error> {
        let [source] = *sources else {
            let count = sources.len();
            return Err(wrong("", format!("a recipe converts one file, and there are {count} sources")));
        };
        if self.target.divide.is_some() {
            let why = "is to become several files by the recipe's \"divide\", and one file is written here";
            return Err(wrong(source.name(), why.to_owned()));
        }
        let place = self.target.place()?;
        self.target.check(into)?;
        place.path().map_or(Ok(()), |(path, _)| self.check_reads_of(path))?;
        let to = match into {
            Some(into) => match self.target.format {
                Some(other) if other != into.format() => {
                    let message = format!("is {}, and the recipe's output is {}", into.format().name(), other.name());
                    return Err(wrong(into.name(), message));
                }
                _ => into.format(),
            },
            None => self.target.format_from(source).ok_or_else(|| {
                let path = self.target.path.as_deref().unwrap_or(Path::new("-"));
                let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
                let message = format!("does not say which format to write: one of {}", names.join(", "));
                wrong(&path.display().to_string(), message)
            })?,
        };
        let options = resolved(self, source, to, registry)?;
        match into {
            Some(into) => plan_into(source, into, &options, &place),
            None => plan(source, &options, &place),
        }
    }
}

impl Recipe {
    /// The net that the recipe names.
    fn named_net(&self) -> Result<Option<Arc<Topology>>, Error> {
        let Some(file) = &self.net else { return Ok(None) };
        let net = match &self.net_text {
            Some(text) => file.of_text(text),
            None => file.read(),
        };
        net.map(Some)
    }
}

fn wrong(name: &str, message: String) -> Error {
    Error::Request { file: name.to_owned(), message }
}

/// The field `schema`, which has one value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Schema;

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(SCHEMA)
    }
}

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        match String::deserialize(text)? {
            schema if schema == SCHEMA => Ok(Self),
            other => Err(de::Error::custom(format!("the schema is {other:?}, not {SCHEMA}"))),
        }
    }
}

/// Reads steps with the keys `name` and `settings` alone: a misspelt key is an error.
fn steps<'de, D: Deserializer<'de>>(text: D) -> Result<Vec<Step>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Strict {
        name: String,
        #[serde(default)]
        settings: Unique,
    }
    let steps = Vec::<Strict>::deserialize(text)?;
    if steps.len() > MAX_STEPS {
        return Err(de::Error::custom(format!("{} steps; at most {MAX_STEPS} are done", steps.len())));
    }
    Ok(steps.into_iter().map(|step| Step::new(step.name, step.settings.0)).collect())
}

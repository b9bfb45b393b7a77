//! Many conversions, each of one file and to one file: jobs, and whether a job is done already.
//!
//! A job is a [`Recipe`] with a mark: the digest of its steps and settings. Every output names the job that wrote the
//! output: in the receipt, or in a log for formats without receipts. So a batch can be killed anywhere and run again.
//! Does not know threads: the caller runs the jobs in any order, also on several machines.

mod done;
mod jobs;
mod log;
mod mark;

use std::fs;
use std::path::{Path, PathBuf};

use blob_io::{Checkpoint, Error, Format, IfExists};

use crate::change::Group;
use crate::history::source_name;
use crate::receipt::TOOL;
use crate::recipe::{Opened, Recipe, Source};
use crate::symbol::NewSymbol;
use crate::transform::Registry;
use crate::watch::{Silent, Watch};
pub use done::{Claim, Known, Trust};
pub use jobs::{Batch, Shard};
pub use log::Log;
pub use mark::Marks;

/// A conversion of a batch.
#[derive(Clone, Debug)]
pub struct Job {
    /// The line of the file that the job stands in, from 1 on.
    pub line: usize,
    recipe: Recipe,
    mark: String,
    output: PathBuf,
}

/// How a batch opens the files of its jobs.
pub trait Opener {
    /// Opens a file, as this format if one is named.
    ///
    /// # Errors
    /// As [`OpenOptions::open`](blob_io::OpenOptions::open).
    fn open(&self, path: &Path, format: Option<Format>) -> Result<Checkpoint, Error>;
}

/// The result of a job that was run, or that would be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ran {
    /// The format of the output.
    pub to: Format,
    /// The length of the output.
    pub bytes_out: u64,
    /// The BLAKE3 of an output that has no room for its claim, for the log.
    pub blake3_out: Option<String>,
    /// The output's claim about its origin; `None` in a dry run.
    pub claim: Option<Claim>,
    /// Everything that the conversion changes.
    pub changes: Vec<Group>,
    /// Whether the output stood there with the same bytes, and stays.
    pub is_unchanged: bool,
}

impl Job {
    /// A job of a recipe. An existing target stays, and is an error if another job or another program wrote the
    /// target; a recipe with `replace` replaces the target. The mark covers the files that are read besides the
    /// source.
    ///
    /// # Errors
    /// [`Error::Request`] for a recipe of several sources or outputs, or of a pipe; any error of reading a file.
    pub fn new(line: usize, mut recipe: Recipe, marks: &Marks) -> Result<Self, Error> {
        let output = jobs::checked(&recipe)?;
        if recipe.target.if_exists == IfExists::Refuse {
            recipe.target.if_exists = IfExists::Same;
        }
        let mark = marks.of(&recipe)?;
        Ok(Self { line, recipe, mark, output })
    }

    /// The file that is read.
    #[must_use]
    pub fn source(&self) -> &Path {
        &self.recipe.sources[0].path
    }

    /// The file or the folder that is written.
    #[must_use]
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// The digest of the recipe, in hexadecimal.
    #[must_use]
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Plans the job, and checks that its output can be written.
    ///
    /// # Errors
    /// As [`Recipe::plan`] and [`Plan::check`](crate::Plan::check).
    pub fn check(&self, opener: &dyn Opener) -> Result<Ran, Error> {
        let opened = self.open(opener)?;
        let recipe = self.marked();
        let plan = recipe.plan(&opened)?;
        if self.folder().is_dir() {
            plan.check(&Silent)?;
        }
        let (to, bytes_out, changes) = (plan.to(), plan.output_len(), plan.changes());
        Ok(Ran { to, bytes_out, blake3_out: None, claim: None, changes, is_unchanged: false })
    }

    /// Does the job, and makes the folder of the output.
    ///
    /// # Errors
    /// As [`Recipe::plan`] and [`Plan::run`](crate::Plan::run).
    pub fn run(&self, opener: &dyn Opener, registry: &Registry, watch: &dyn Watch) -> Result<Ran, Error> {
        let opened = self.open(opener)?;
        let folder = self.folder();
        fs::create_dir_all(folder).map_err(|source| Error::Io {
            file: folder.display().to_string(),
            action: "make the folder".to_owned(),
            source,
        })?;
        let (recipe, source) = (self.marked(), &opened.sources[0]);
        let plan = recipe.plan_of(&[source], opened.into.as_ref(), registry)?;
        // Of the files that stay as they were, all have the new bytes: any other is an error.
        let has_symbol = plan.symbol.as_ref().is_none_or(NewSymbol::is_written);
        let is_unchanged = recipe.target.if_exists == IfExists::Same && self.opening().exists() && has_symbol;
        let done = plan.run(watch)?;
        let mut changes = plan.changes();
        changes.extend(done.changes());
        let claim = Claim {
            name: source_name(source),
            bytes: done.bytes_in,
            blake3: done.blake3,
            recipe: Some(self.mark.clone()),
            tool: TOOL.to_owned(),
        };
        let (to, bytes_out) = (plan.to(), done.bytes_out);
        let blake3_out = self.digest(to, watch)?;
        Ok(Ran { to, bytes_out, blake3_out, claim: Some(claim), changes, is_unchanged })
    }

    fn open(&self, opener: &dyn Opener) -> Result<Opened, Error> {
        let open = |source: &Source| opener.open(&source.path, source.format);
        let sources = self.recipe.sources.iter().map(open).collect::<Result<_, _>>()?;
        let into = self.recipe.target.into.as_ref().map(|into| opener.open(into, None)).transpose()?;
        Ok(Opened::new(sources, into))
    }

    /// The recipe, by which the output gets the mark.
    #[must_use]
    pub fn marked(&self) -> Recipe {
        let mut recipe = self.recipe.clone();
        recipe.mark = Some(self.mark.clone());
        recipe
    }

    fn folder(&self) -> &Path {
        folder_of(&self.output)
    }
}

/// The folder that an output lies in.
fn folder_of(output: &Path) -> &Path {
    output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

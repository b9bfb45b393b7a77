//! Does a job, or says what a run would do.
//!
//! Relies on `done` for an output that is there. Leaves to the caller which jobs are run.

use std::fs;

use blob_io::{Error, Format, IfExists};

use super::{Claim, Job, Opener};
use crate::change::Group;
use crate::history::source_name;
use crate::receipt::TOOL;
use crate::symbol::NewSymbol;
use crate::transform::Registry;
use crate::watch::{Silent, Watch};

/// The result of a job that was run, or that would be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ran {
    /// The format of the output.
    pub to: Format,
    /// The length of the output.
    pub bytes_out: u64,
    /// The BLAKE3 of an output that has no room for its claim, for the log: of the bytes of all files, an index last.
    pub blake3_out: Option<String>,
    /// The output's claim about its origin; `None` in a dry run.
    pub claim: Option<Claim>,
    /// Everything that the conversion changes.
    pub changes: Vec<Group>,
    /// Whether the output stood there with the same bytes, and stays.
    pub is_unchanged: bool,
}

impl Job {
    /// Plans the job, and checks that its output can be written.
    ///
    /// # Errors
    /// As [`Recipe::plan`](crate::Recipe::plan) and [`Plan::check`](crate::Plan::check).
    pub fn check(&self, opener: &dyn Opener) -> Result<Ran, Error> {
        let opened = self.open(opener)?;
        let recipe = self.marked(&opened.sources[0]);
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
    /// As [`Recipe::plan`](crate::Recipe::plan) and [`Plan::run`](crate::Plan::run).
    pub fn run(&self, opener: &dyn Opener, registry: &Registry, watch: &dyn Watch) -> Result<Ran, Error> {
        let opened = self.open(opener)?;
        let folder = self.folder();
        if !folder.is_dir() {
            fs::create_dir_all(folder).map_err(|source| Error::Io {
                file: folder.display().to_string(),
                action: "make the folder".to_owned(),
                source,
            })?;
        }
        let source = &opened.sources[0];
        let recipe = self.marked(source);
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
            recipe: recipe.mark.clone(),
            tool: TOOL.to_owned(),
        };
        let (to, bytes_out) = (plan.to(), done.bytes_out);
        // The receipt of a file, which was read again, has the job's mark.
        let has_claim = plan.has_receipt() && plan.path().is_some();
        let blake3_out = if has_claim { None } else { self.digest(to, watch)? };
        Ok(Ran { to, bytes_out, blake3_out, claim: Some(claim), changes, is_unchanged })
    }
}

//! `blob convert`: runs a plan of `blob_convert` and prints the result.

mod converted;
mod model;
mod proof;
mod recipe;
mod said;

use std::path::Path;

use blob_convert::change::Group;
use blob_convert::recipe::{Opened, Source};
use blob_convert::{Place, Plan, RECEIPT_KEY, Recipe, Selection, Silent, Step, Summary, check_output};
use blob_io::words::listed;
use blob_io::{Checkpoint, Error, Format, IfExists, Output, Remedy};

use crate::args::{Convert, Global, if_exists};
use crate::context::Context;
use crate::failure::{Failure, Status, TESTED_NET};
use crate::open::open;
use crate::output::format::no_format;
use crate::output::progress::Progress;
use crate::output::signals;
use crate::output::sink::{Content, check_stdout, is_stdout};
use crate::output::written::{Begun, Written};
use crate::select::{by_names, select};
pub(crate) use converted::{Converted, note_symbol};
use model::print_run;
use proof::print_proof;
pub(crate) use proof::{NO_ROOM, WHOLE, no_proof, quoted};
pub(crate) use recipe::{recipe_of, text_of};
use said::warn_of_source;
pub(crate) use said::{asked, changes_field, listed_changes, notices, warn, warn_of_changes, warnings};

/// How many arrays a warning names.
const CONTRADICTED: usize = 3;

pub(crate) fn run(args: &Convert, context: &Context) -> Result<Status, Failure> {
    let recipe = args.recipe(context)?;
    let conversion = Conversion::begin(recipe, args.dry_run, context)?;
    let Some(path) = &args.recipe_out else { return conversion.convert(context) };
    let recipe = begun_recipe(&conversion.recipe, path, if_exists(args.force))?;
    let status = conversion.convert(context)?;
    let (is_file, path) = (!is_stdout(path), context.terminal.name(&path.to_string_lossy()).into_owned());
    if is_file && args.dry_run {
        context.terminal.note(format!("would write {path} too, the recipe"));
        return Ok(status);
    }
    recipe.finish()?;
    if is_file {
        context.terminal.note(format!("the recipe is in {path}"));
    }
    Ok(status)
}

/// A file with the recipe's JSON, which gets its name after the conversion.
fn begun_recipe(recipe: &Recipe, path: &Path, if_exists: IfExists) -> Result<Output, Failure> {
    let values = recipe.target.values_path();
    let mut outputs = recipe.target.path.as_deref().into_iter().chain(values.as_deref());
    if outputs.any(|output| output == path || is_stdout(path) && is_stdout(output)) {
        return Err(Failure::new(format!("{}: the recipe and the tensors go to one file", path.display())));
    }
    let sources = recipe.sources.iter().map(|source| source.path.clone());
    for read in sources.chain(recipe.target.into.clone()).chain(recipe.reads()) {
        check_output(&read, path, if_exists)?;
    }
    let text = recipe.to_json()?;
    let mut output = if is_stdout(path) { Output::stdout() } else { Output::create(path, if_exists)? };
    output.write_all(text.as_bytes())?;
    Ok(output)
}

/// A recipe whose files are open.
pub(crate) struct Conversion {
    pub(crate) recipe: Recipe,
    files: Opened,
    is_dry: bool,
    /// Whether the dry run has no output.
    is_unnamed: bool,
    begun: Begun,
}

/// The words about a conversion.
#[derive(Default)]
pub(crate) struct Ran {
    /// The warnings that arose during the conversion.
    reports: Vec<String>,
    pub(crate) changes: Vec<Group>,
    /// `None` in a dry run.
    pub(crate) done: Option<Summary>,
}

impl Conversion {
    /// Opens the files of a recipe, and completes what it leaves to them: names as tables show them, the format.
    pub(crate) fn begin(recipe: Recipe, is_dry: bool, context: &Context) -> Result<Self, Failure> {
        let begun = Begun::now(is_dry);
        if recipe.sources.len() != 1 {
            let count = recipe.sources.len();
            return Err(Failure::new(format!("the recipe names {count} sources, and one file is converted")));
        }
        let is_unnamed = is_dry && recipe.target.path.is_none();
        let output = output_of(&recipe);
        if !recipe.target.receipt && matches!(recipe.target.place()?, Place::Folder { .. }) {
            let message = format!("{}: the receipt of a folder names its files, and stays", output.display());
            return Err(Failure::new(message).help("write to a file, or leave --no-receipt out"));
        }
        check_stdout(output, Content::Binary, is_dry, &context.global)?;
        recipe.check_reads()?;
        let source = |source: &Source| {
            let from = source.format.or(context.global.from);
            open(&source.path, &Global { from, ..context.global.clone() })
        };
        let sources = recipe.sources.iter().map(source).collect::<Result<_, Error>>()?;
        // `--from` is the format of the input, not of the base.
        let of_base = Global { from: None, ..context.global.clone() };
        let into = recipe.target.into.as_ref().map(|path| open(path, &of_base)).transpose()?;
        let mut conversion = Self { recipe, files: Opened::new(sources, into), is_dry, is_unnamed, begun };
        conversion.choose_format()?;
        conversion.select()?;
        Ok(conversion)
    }

    pub(crate) fn source(&self) -> &Checkpoint {
        &self.files.sources[0]
    }

    /// Gives the recipe's selection the names of tensors in place of the ones that a table shows for them.
    fn select(&mut self) -> Result<(), Failure> {
        let source = &self.files.sources[0];
        for step in self.recipe.steps.iter_mut().filter(|step| step.name == "select") {
            let Some(selection) = Selection::read(&step.settings) else { continue };
            let selection = by_names(source, &selection)?;
            // A pattern without a match gets its help here.
            select(source, &selection)?;
            *step = Step::from(selection);
        }
        Ok(())
    }

    /// Chooses the format of a new file.
    fn choose_format(&mut self) -> Result<(), Failure> {
        let source = &self.files.sources[0];
        let target = &mut self.recipe.target;
        if self.files.into.is_none() {
            let unnamed = self.is_unnamed.then_some(source.format());
            let to = target.format_from(source).map_or_else(|| no_extension(target.path.as_deref(), unnamed), Ok)?;
            target.format = Some(to);
        }
        Ok(())
    }

    /// Decides what is done, and says what a user should know of it.
    pub(crate) fn plan(&self, context: &Context) -> Result<Plan<'_>, Failure> {
        let plan = self.recipe.plan(&self.files).map_err(|error| refused(error, self.source()))?;
        if self.recipe.target.sha256 && !plan.has_receipt() && !context.global.json {
            let message = format!("--sha256 is for the receipt, and a file of {} has none", plan.to().name());
            return Err(Failure::new(message).help("--json prints the digest, where the output is a file"));
        }
        // A refusal stands alone. That a folder is replaced is checked by its values, once, when it is written.
        if !matches!(self.recipe.target.place()?, Place::Folder { .. }) {
            signals::checked(|| plan.check(&Silent))?;
        }
        let changes = plan.changes();
        let source = said::Warnings { checkpoint: self.source(), changes: &changes, is_copy: plan.is_copy() };
        warn_of_source(source, context);
        warn_of_changes(&changes, context);
        if plan.fold().is_some_and(|fold| fold.refused().iter().any(|refusal| refusal.kind.is_of_training())) {
            context.terminal.note(format!("help: {TESTED_NET}"));
        }
        Ok(plan)
    }

    /// Performs the plan; in a dry run only the part that finds lost values.
    pub(crate) fn run(&self, plan: &Plan<'_>, context: &Context) -> Result<Ran, Failure> {
        let mut found = Ran { changes: plan.changes(), ..Ran::default() };
        if self.is_dry {
            plan.check(&Silent)?;
        }
        let bytes = if self.is_dry { plan.output_len() } else { self.source().file_len() };
        let progress = Progress::begin(&context.terminal, bytes);
        let lost = if self.is_dry {
            plan.lost_values(&progress)?
        } else {
            let done = plan.run(&progress)?;
            found.reports = contradicts(self.source(), &done.contradicted);
            found.reports.extend(done.frame_left_out.map(|why| format!("the receipt keeps no frame: {why}")));
            found.done.insert(done).changes()
        };
        progress.end();
        warn(found.reports.clone(), "--json prints them all", context);
        warn_of_changes(&lost, context);
        found.changes.extend(lost);
        Ok(found)
    }

    /// The output. The time includes listing and planning, which take long for a million arrays.
    pub(crate) fn written<'a>(&'a self, plan: &'a Plan<'_>, found: &Ran) -> Written<'a> {
        let (index, files) = plan.index().map_or((None, 1), |(index, count)| (Some(index), count as u64));
        let bytes_out = found.done.as_ref().map_or_else(|| plan.output_len(), |done| done.bytes_out);
        let written = Written::new(output_of(&self.recipe), plan.to().name(), bytes_out, self.begun);
        let output = written.output.filter(|_| !self.is_unnamed);
        let written = written.tensors(plan.count()).of_bytes(self.source().stored().len());
        Written { output, index, files, ..written }
    }

    /// Converts, and prints the result.
    pub(crate) fn convert(&self, context: &Context) -> Result<Status, Failure> {
        let plan = self.plan(context)?;
        let found = self.run(&plan, context)?;
        let written = self.written(&plan, &found);
        context.print(Converted { written, checkpoint: self.source(), plan: &plan, found: &found })?;
        self.prove(&plan, &found, context);
        Ok(Status::Yes)
    }

    /// Prints how the output is proved.
    pub(crate) fn prove(&self, plan: &Plan<'_>, found: &Ran, context: &Context) {
        let Some(done) = &found.done else { return };
        if !context.global.json {
            print_proof(&self.recipe, plan, self.source(), done, context);
            print_run(plan, self.recipe.target.path.as_deref(), context);
        }
    }
}

/// The output as the user named it.
fn output_of(recipe: &Recipe) -> &Path {
    recipe.target.path.as_deref().unwrap_or(Path::new("-"))
}

/// The warnings for arrays that differ from their digests in the source's receipt: one for the arrays, and one for all
/// of them together, which have the empty name.
pub(crate) fn contradicts(checkpoint: &Checkpoint, names: &[String]) -> Vec<String> {
    let whose = format!("what the receipt in {} says was written", checkpoint.name());
    let each: Vec<&String> = names.iter().filter(|name| !name.is_empty()).collect();
    let of_each = match &each[..] {
        [] => None,
        [name] => Some(format!("array {name:?} is not {whose}")),
        _ => Some(format!("{} arrays are not {whose}: {}", each.len(), listed(CONTRADICTED, &each))),
    };
    let of_all = (each.len() < names.len()).then(|| format!("the arrays together are not {whose}"));
    of_each.into_iter().chain(of_all).collect()
}

/// The refusal of a conversion; names that do not fit may have had a receipt, which leads back to those that do.
fn refused(error: Error, source: &Checkpoint) -> Failure {
    let is_of_names = matches!(&error, Error::Misfit { remedy: Some(Remedy::Names), .. });
    let has_receipt = source.metadata().iter().any(|(key, _)| key == RECEIPT_KEY);
    let failure = Failure::from(error);
    if !is_of_names || has_receipt || !source.format().holds().inherits {
        return failure;
    }
    failure.help(format!(
        "{} has no receipt, by which names of before go back; in Python save_file(…, metadata=…) keeps what \
         safe_open(…).metadata() has of it. `blob rename --map FILE` gives other names, by lines `OLD NEW`",
        source.name()
    ))
}

/// The format of an output whose name does not say it: only that of a dry run without an output has one.
fn no_extension(output: Option<&Path>, unnamed: Option<Format>) -> Result<Format, Failure> {
    let names: Vec<&str> = Format::ALL.iter().map(|f| f.name()).collect();
    match (output.filter(|path| !is_stdout(path)), unnamed) {
        (_, Some(format)) => Ok(format),
        (Some(path), None) => Err(no_format(path, &names)),
        (None, None) => Err(Failure::new("-o - needs --to, because standard output has no extension")
            .help(format!("formats: {}", names.join(", ")))),
    }
}

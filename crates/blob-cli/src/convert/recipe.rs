//! The recipe that a command line asks for.

use std::path::Path;

use blob_convert::recipe::{Source, Target};
use blob_convert::transform::{Dtype, FcFrom, Rgb, SqueezeLegacy, StripDiff};
use blob_convert::{Recipe, Step};
use blob_io::IfExists;
use blob_io::caffe::BlobForm;
use serde_json::json;

use crate::args::{Bn, CaffeForm, Convert, FixedGamma, Transforms};
use crate::context::Context;
use crate::failure::Failure;

/// A recipe that only reads a file and writes it.
pub(crate) fn recipe_of(input: &Path, output: Option<&Path>, context: &Context) -> Recipe {
    let mut source = Source::new(input);
    source.format = context.global.from;
    let mut recipe = Recipe::default();
    recipe.sources.push(source);
    recipe.target.path = output.map(Path::to_owned);
    recipe
}

/// A path for a recipe, whose JSON is text.
pub(crate) fn text_of(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| Failure::new(format!("{}: is not UTF-8, and a recipe is", path.display())))
}

impl Convert {
    /// The recipe that is asked for: the one in a file, with other files in place of its own, or that of the options.
    pub(super) fn recipe(&self, context: &Context) -> Result<Recipe, Failure> {
        let mut asked = self.transforms.recipe()?;
        self.fill(&mut asked.target)?;
        let mut recipe = match &self.recipe {
            Some(_) if asked != Recipe::default() => {
                let failure = Failure::new("--recipe says what is done, and other options say it, too");
                return Err(failure.help("IN, -o, --to, --force and -n go with it"));
            }
            Some(path) => Recipe::from_file(path)?,
            None => asked,
        };
        if let Some(input) = &self.input {
            recipe.sources = recipe_of(input, None, context).sources;
        }
        if let Some(output) = &self.output {
            (recipe.target.path, recipe.target.format) = (Some(output.clone()), self.to);
        } else if self.to.is_some() {
            recipe.target.format = self.to;
        }
        if let (Some(into), true) = (&recipe.target.into, self.to.is_some()) {
            let failure = Failure::new(format!("--to: the recipe's output has the format of {}", into.display()));
            return Err(failure.help("leave --to out"));
        }
        if self.force {
            recipe.target.if_exists = IfExists::Replace;
        }
        if recipe.target.path.is_none() && !self.dry_run {
            return Err(Failure::new("the recipe names no output").help("name it with -o OUT"));
        }
        Ok(recipe)
    }

    /// Gives a target the options that are about it, but for the output and its format.
    fn fill(&self, target: &mut Target) -> Result<(), Failure> {
        (target.into, target.shard_size) = (self.into.clone(), self.shard_size);
        (target.dense, target.anew, target.sha256) = (self.dense, self.anew, self.sha256);
        (target.skip_unsupported, target.receipt) = (self.skip.skip_unsupported, !self.no_receipt);
        target.onnx = self.onnx.settings()?;
        (target.params_version, target.strict) = (self.params_version, self.transforms.strict);
        if !self.form.is_empty() {
            let has = |form| self.form.contains(&form);
            let (legacy, raw, v1) = (has(CaffeForm::Legacy), has(CaffeForm::Raw), has(CaffeForm::V1));
            target.form = Some(BlobForm { legacy, raw, v1 });
        }
        Ok(())
    }
}

impl Transforms {
    /// The recipe of these steps.
    pub(crate) fn recipe(&self) -> Result<Recipe, Failure> {
        let selection = self.only.selection();
        let mut recipe = Recipe::default();
        recipe.net = self.nets.file();
        let steps = [
            (!selection.is_all()).then(|| selection.into()),
            self.strip_diff.then(|| StripDiff.into()),
            self.squeeze_legacy.then(|| SqueezeLegacy.into()),
            self.fold.then(Step::fold),
            (self.bn == Some(Bn::FoldFactor)).then(Step::bn),
            (self.fix_gamma == Some(FixedGamma::Auto)).then(Step::fix_gamma),
            self.eps.map(Step::eps),
            self.rgb.then(|| Rgb.into()),
            self.fc_from.iter().cloned().reduce(FcFrom::and).map(Step::from),
            self.layout.map(Step::from),
            self.dtype.and_then(Dtype::new).map(Step::from),
            self.names()?,
        ];
        recipe.steps = steps.into_iter().flatten().collect();
        Ok(recipe)
    }

    fn names(&self) -> Result<Option<Step>, Failure> {
        let Some(names) = &self.names else { return Ok(None) };
        let kept = [(self.bn == Some(Bn::Raw), "bn"), (self.fix_gamma == Some(FixedGamma::Off), "fix-gamma")];
        let kept: Vec<&str> = kept.into_iter().filter_map(|(is, step)| is.then_some(step)).collect();
        let settings = match names.to_str() {
            Some("torch") if kept.is_empty() => return Ok(Some(Step::torch_names())),
            Some("torch") => json!({ "to": "torch", "keep": kept }),
            Some("raw") => json!({ "to": "raw" }),
            _ => json!({ "file": text_of(names)? }),
        };
        Ok(Some(Step::new("names", settings)))
    }
}

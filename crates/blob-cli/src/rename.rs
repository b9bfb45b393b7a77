//! `blob rename`: the recipe that renames tensors and changes nothing else.

use blob_convert::Step;
use blob_convert::transform::Names;
use serde_json::json;

use crate::args::{Rename, if_exists};
use crate::context::Context;
use crate::convert::{Conversion, recipe_of, text_of};
use crate::failure::{Failure, Status};

pub(crate) fn run(args: &Rename, context: &Context) -> Result<Status, Failure> {
    let mut recipe = recipe_of(&args.file, args.output.as_deref(), context);
    (recipe.target.format, recipe.target.if_exists) = (args.to, if_exists(args.force));
    recipe.target.skip_unsupported = args.skip.skip_unsupported;
    let mut conversion = Conversion::begin(recipe, args.dry_run, context)?;
    let source = conversion.source();
    let (is_idle, step) = match &args.map {
        Some(map) => {
            let names = Names::from_path(map, source)?;
            (names.is_empty(), Step::new("names", json!({ "file": text_of(map)? })))
        }
        None => {
            let names = Names::new(source.names().filter_map(|old| {
                let new = args.sed.iter().fold(old.to_owned(), |name, sed| sed.applied(&name));
                (new != old).then(|| (old.to_owned(), new))
            }));
            (names.is_empty(), names.into())
        }
    };
    if is_idle {
        return Err(Failure::no(format!("{}: nothing to rename: every tensor keeps its name", source.name())));
    }
    conversion.recipe.steps.push(step);
    conversion.convert(context)
}

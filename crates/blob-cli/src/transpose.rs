//! `blob transpose`: the recipe that permutes the axes of tensors and changes nothing else.

use blob_convert::Step;
use blob_convert::transform::Permute;

use crate::args::Transpose;
use crate::context::Context;
use crate::convert::{Conversion, recipe_of};
use crate::failure::{Failure, Status};
use crate::select::select;

pub(crate) fn run(args: &Transpose, context: &Context) -> Result<Status, Failure> {
    let mut recipe = recipe_of(&args.file, args.output.as_deref(), context);
    args.writing.set(args.to, args.skip, &mut recipe.target);
    let mut conversion = Conversion::begin(recipe, args.writing.dry_run, context)?;
    let source = conversion.source();
    let chosen = select(source, &args.filter.of(&args.tensors))?;
    let names = chosen.into_iter().map(|index| source.entries()[index].name().to_owned()).collect();
    let step = match &args.fc_from {
        Some(fc_from) => Step::from(fc_from.clone().of(names)),
        None => {
            let axes = args.preset.as_ref().map_or(&args.perm, |preset| &preset.0);
            let permute = Permute::new(names, axes.clone());
            let permute =
                permute.ok_or_else(|| Failure::new("--perm takes the numbers from 0 on, each once, as in 2,3,1,0"))?;
            if axes.is_sorted() {
                return Err(Failure::no(format!("{}: nothing to permute: every axis keeps its place", source.name())));
            }
            permute.into()
        }
    };
    conversion.recipe.steps.push(step);
    conversion.convert(context)
}

//! `blob transpose`: a conversion that permutes the axes of tensors and changes nothing else.

use blob_convert::transform::Permute;
use blob_convert::{Options, Selection};
use blob_io::Checkpoint;

use crate::args::{Convert, Transpose};
use crate::context::Context;
use crate::convert;
use crate::failure::{Failure, Status};
use crate::select::select;

pub(crate) fn run(args: &Transpose, context: &Context) -> Result<Status, Failure> {
    let convert = Convert {
        to: args.to,
        force: args.force,
        dry_run: args.dry_run,
        ..Convert::new(&args.file, args.output.as_deref())
    };
    convert::run(&convert, context, &|checkpoint, options| add_transform(args, checkpoint, options))
}

fn add_transform(args: &Transpose, checkpoint: &Checkpoint, options: Options) -> Result<Options, Failure> {
    let chosen = select(checkpoint, &Selection::matching(&args.tensors))?;
    let names = chosen.into_iter().map(|index| checkpoint.entries()[index].name().to_owned()).collect();
    if let Some(fc_from) = &args.fc_from {
        return Ok(options.transform(fc_from.clone().of(names)));
    }
    let axes = args.preset.as_ref().map_or(&args.perm, |preset| &preset.0);
    let permute = Permute::new(names, axes.clone());
    let permute =
        permute.ok_or_else(|| Failure::new("--perm takes the numbers from 0 on, each once, as in 2,3,1,0"))?;
    Ok(options.transform(permute))
}

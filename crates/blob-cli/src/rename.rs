//! `blob rename`: a conversion that renames tensors and changes nothing else.

use blob_convert::Options;
use blob_convert::transform::Names;
use blob_io::Checkpoint;

use crate::args::{Convert, Rename, if_exists};
use crate::context::Context;
use crate::convert;
use crate::failure::{Failure, Status};
use crate::transforms::names_of;

pub(crate) fn run(args: &Rename, context: &Context) -> Result<Status, Failure> {
    if let Some(map) = &args.map {
        blob_convert::check_output(map, args.output.as_deref().unwrap_or(&args.file), if_exists(args.force))?;
    }
    let convert = Convert {
        to: args.to,
        force: args.force,
        dry_run: args.dry_run,
        ..Convert::new(&args.file, args.output.as_deref())
    };
    convert::run(&convert, context, &|checkpoint, options| add_transform(args, checkpoint, options))
}

fn add_transform(args: &Rename, checkpoint: &Checkpoint, options: Options) -> Result<Options, Failure> {
    let names = match &args.map {
        Some(map) => names_of(map, checkpoint)?,
        None => Names::new(checkpoint.names().filter_map(|old| {
            let new = args.sed.iter().fold(old.to_owned(), |name, sed| sed.applied(&name));
            (new != old).then(|| (old.to_owned(), new))
        })),
    };
    if names.is_empty() {
        return Err(Failure::no(format!("{}: no tensor would be called otherwise", checkpoint.name())));
    }
    Ok(options.transform(names))
}

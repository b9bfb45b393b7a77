//! `blob rename`: the recipe that renames tensors and changes nothing else.

use blob_convert::Step;
use blob_convert::transform::{Names, Room};
use blob_io::{Checkpoint, Entry};
use serde_json::json;

use crate::args::{Rename, Sed};
use crate::context::Context;
use crate::convert::{Conversion, recipe_of, text_of};
use crate::failure::{Failure, Status};
use crate::select::select;

pub(crate) fn run(args: &Rename, context: &Context) -> Result<Status, Failure> {
    let mut recipe = recipe_of(&args.file, args.output.as_deref(), context);
    args.writing.set(args.to, args.skip, &mut recipe.target);
    let mut conversion = Conversion::begin(recipe, args.writing.dry_run, context)?;
    let source = conversion.source();
    let selection = args.filter.of(&args.tensors);
    let chosen = select(source, &selection)?.into_iter().map(|index| &source.entries()[index]);
    let (is_idle, step) = match &args.map {
        Some(map) => {
            let names = Names::from_path(map, Names::callable(chosen))?;
            // A recipe that names the file is for other sources, too.
            let step = if selection.is_all() {
                Step::new("names", json!({ "file": text_of(map)? }))
            } else {
                names.clone().into()
            };
            (names.is_empty(), step)
        }
        None => {
            let names = replaced(chosen.map(Entry::name), &args.sed, source)?;
            (names.is_empty(), names.into())
        }
    };
    if is_idle {
        return Err(Failure::no(format!("{}: nothing to rename: every tensor keeps its name", source.name())));
    }
    conversion.recipe.steps.push(step);
    conversion.convert(context)
}

/// The new names by the replacements, one after the other.
fn replaced<'n>(names: impl Iterator<Item = &'n str>, sed: &[Sed], source: &Checkpoint) -> Result<Names, Failure> {
    let (mut room, mut map) = (Room::default(), Vec::new());
    for old in names {
        let mut new = old.to_owned();
        for sed in sed {
            let most = room.most();
            new = sed.applied(&new, most).ok_or_else(|| too_long(source, old, most))?;
        }
        if new != old {
            let most = room.most();
            room.take(&new).ok_or_else(|| too_long(source, old, most))?;
            map.push((old.to_owned(), new));
        }
    }
    Ok(Names::new(map))
}

fn too_long(source: &Checkpoint, name: &str, most: usize) -> Failure {
    let failure =
        Failure::new(format!("{}: the new name of {name:?} would have more than {most} bytes", source.name()));
    failure.help("shorten NEW of --sed, or leave out the g at its end")
}

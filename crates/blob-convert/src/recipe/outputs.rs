//! Several files from one source: the tensors and the name of each file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blob_io::layout::file_names;
use blob_io::{Checkpoint, Error, Format};
use serde::{Deserialize, Serialize};

use super::Recipe;
use super::resolve::resolved;
use crate::chosen::taken;
use crate::goal::has_layers;
use crate::options::refuse;
use crate::planned::LeftOut;
use crate::regroup::{by_layer, by_size, singles};
use crate::several::{OutputFile, Plans, Share, plan_parts, plan_several};
use crate::transform::{Own, Registry, Split, StripDiff};

/// At most this many files are written; more would be a mistake.
const MAX_FILES: usize = 100_000;

/// How the tensors are divided among files. In the name of the files, `{}` stands for the layer's name or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Divide {
    /// A file for each layer.
    ByLayer,
    /// Files of at most this many bytes of tensors; a larger tensor, or in a Caffe net a larger layer, has its own.
    MaxSize(u64),
    /// A file for each part of the step `split`, with nothing else.
    ByPart,
}

impl Recipe {
    /// Plans a conversion to several files, as [`Recipe::plan_of`] does for one file.
    ///
    /// # Errors
    /// As [`Recipe::plan_of`]; a recipe that does not say how tensors are divided.
    pub fn plan_several<'a>(&self, source: &'a Checkpoint, registry: &Registry) -> Result<Plans<'a>, Error> {
        let (Some(pattern), Some(divide)) = (&self.target.path, self.target.divide) else {
            return Err(refuse(source, "is not said to become several files".to_owned()));
        };
        let Some(to) = self.target.format_from(source) else {
            let message = "does not say which format to write".to_owned();
            return Err(Error::Request { file: pattern.display().to_string(), message });
        };
        let target = &self.target;
        let unfit = [
            (pattern.as_os_str() == "-", "standard output"),
            (target.into.is_some(), "into"),
            (target.shard_size.is_some(), "shard_size"),
        ];
        if let Some((_, what)) = unfit.iter().find(|(is_asked, _)| *is_asked) {
            return Err(refuse(source, format!("is to become several files, which {what} does not allow")));
        }
        let path = |name: &str| named(pattern, name);
        let if_exists = target.if_exists;
        let mut options = resolved(self, source, to, registry)?;
        options.anew = true;
        if divide == Divide::ByPart {
            let splits = self.steps.iter().find(|step| step.own() == Some(Own::Split));
            let Some(split) = splits.and_then(|step| Split::deserialize(&step.settings).ok()).map(Split::of_one_plan)
            else {
                return Err(refuse(
                    source,
                    "is divided by the parts of the step \"split\", which is missing".to_owned(),
                ));
            };
            check_count(source, split.parts())?;
            // A split comes before every other step that gives new numbers.
            let mut at = options.transforms.iter().position(|step| step.renumbers()).unwrap_or_default();
            let is_stripped = options.transforms[..at].iter().any(|step| step.strips_diffs());
            // Nothing else is listed, read or hashed for each part; other steps may need other tensors.
            let are_apart = options.transforms[..at].iter().all(|step| step.keeps_values());
            if let Some(own) = split.own(source).filter(|_| are_apart) {
                options.transforms.insert(at, Arc::new(own));
                at += 1;
            }
            let mut left_out = Vec::new();
            if let Some(diff) = split.diff(source).filter(|_| !(is_stripped || to.holds().many || to.holds().diffs)) {
                options.transforms.insert(at, Arc::new(StripDiff));
                at += 1;
                let reason = format!("a file of {} holds one tensor", to.name());
                left_out.push(LeftOut { name: diff.to_owned(), reason, is_asked: false });
            }
            let parts: Vec<PathBuf> = (0..split.parts()).map(|part| path(&part.to_string())).collect();
            parts.iter().try_for_each(|path| self.check_reads_of(path))?;
            let parts = parts.into_iter().enumerate().map(|(part, path)| {
                let mut options = options.clone();
                options.transforms[at] = Arc::new(split.clone().only(part));
                OutputFile { path, options }
            });
            return plan_parts(source, parts, left_out, if_exists);
        }
        let named = options.transforms.iter().find(|step| {
            let settings = step.settings();
            settings.get("tensors").or(settings.get("tensor")).is_some()
        });
        if let Some(step) = named {
            let why = format!("is divided by its tensors, and {} names tensors that one file alone has", step.name());
            return Err(refuse(source, why));
        }
        let taken = taken(source, &options)?;
        let files = files(source, to, divide, &taken, &path)?;
        files.iter().try_for_each(|file| self.check_reads_of(&file.path))?;
        plan_several(source, &options, files, if_exists)
    }
}

/// The files with the places of those entries that are taken.
fn files(
    source: &Checkpoint,
    to: Format,
    divide: Divide,
    taken: &[bool],
    path: &dyn Fn(&str) -> PathBuf,
) -> Result<Vec<Share>, Error> {
    let some = |mut group: Vec<usize>| {
        group.retain(|place| taken[*place]);
        Some(group).filter(|group| !group.is_empty())
    };
    let layers = by_layer(source).into_iter().filter_map(|(name, group)| Some((name, some(group)?)));
    let layers: Vec<(String, Vec<usize>)> = layers.collect();
    let groups: Vec<(String, Vec<usize>)> = match divide {
        Divide::MaxSize(0) => return Err(refuse(source, "cannot be divided into files of no bytes".to_owned())),
        Divide::MaxSize(most) => {
            // The tensors of a layer must stay in one file.
            let groups: Vec<Vec<usize>> = if has_layers(to, Some(&path(""))) {
                layers.into_iter().map(|(_, group)| group).collect()
            } else {
                singles(source).into_iter().filter_map(some).collect()
            };
            let groups = by_size(source, &groups, most);
            let count = groups.len();
            groups.into_iter().enumerate().map(|(i, group)| (format!("{:05}-of-{count:05}", i + 1), group)).collect()
        }
        _ => {
            // A `/` in a layer's name must not become a folder.
            let names: Vec<String> = layers.iter().map(|(name, _)| name.replace('/', ".")).collect();
            let names = file_names(&names.iter().map(String::as_str).collect::<Vec<_>>());
            names.into_iter().zip(layers).map(|(name, (_, group))| (name, group)).collect()
        }
    };
    check_count(source, groups.len())?;
    Ok(groups.into_iter().map(|(name, places)| Share { path: path(&name), places }).collect())
}

fn check_count(source: &Checkpoint, count: usize) -> Result<(), Error> {
    if count <= MAX_FILES {
        return Ok(());
    }
    Err(refuse(source, format!("would be divided into {count} files; at most {MAX_FILES} are written")))
}

/// A pattern of paths with a name in place of `{}`: in the last part, where that has one.
fn named(pattern: &Path, name: &str) -> PathBuf {
    match pattern.file_name().and_then(|last| last.to_str()).filter(|last| last.contains("{}")) {
        Some(last) => pattern.with_file_name(last.replacen("{}", name, 1)),
        None => PathBuf::from(pattern.to_string_lossy().replacen("{}", name, 1)),
    }
}

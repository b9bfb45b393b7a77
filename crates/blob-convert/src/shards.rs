//! A safetensors file in shards: the shard of each tensor, and the index of the shards, as huggingface_hub's
//! `save_torch_state_dict` writes both.
//!
//! The index holds the receipt and the other metadata of the whole. Each shard has `format: pt`, as huggingface_hub's
//! shards have.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use blob_io::layout::{Frame, Layout, TensorSpec};
use blob_io::{Checkpoint, Complete, Error, Files, IfExists, Output};
use serde_json::{Value, json};

use crate::change::{Change, Effect};
use crate::options::{Options, refuse};
use crate::planned::Planned;
use crate::source::check_source;
use crate::stored::FORMAT;
use blob_io::words::listed;

/// All shards are open at once, and systems allow about a thousand open files.
const MAX_SHARDS: usize = 500;

/// A note names at most this many old files.
const NAMED: usize = 3;

/// The metadata of each shard: transformers refuses shards without this entry.
const METADATA: [(&str, &str); 1] = [FORMAT];

/// The shards of an output, and the index.
#[derive(Debug)]
pub(crate) struct Shards {
    pub(crate) files: Vec<Shard>,
    pub(crate) index: PathBuf,
    /// For each tensor of the plan, the index of a file and the tensor's index in that file.
    places: Vec<(usize, usize)>,
    /// The bytes of all tensors.
    total: u64,
}

/// One shard.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) path: PathBuf,
    pub(crate) layout: Layout,
}

impl Shard {
    /// The file name, as in the index.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// The shards to write instead of one file; `None` if no shards are asked for, or if one shard would hold everything.
/// `changes` gets the files of an earlier output that stay beside the new files.
pub(crate) fn planned(
    checkpoint: &Checkpoint,
    options: &Options,
    target: Option<(&Path, IfExists)>,
    tensors: &[Planned],
    changes: &mut Vec<Change>,
) -> Result<Option<Shards>, Error> {
    match (options.shard_size, target) {
        (None, file) => {
            let index = file.map(|(path, _)| named(path, ".index.json"));
            let old = index.filter(|index| options.to.holds().files == Files::Shards && index.exists());
            changes.extend(old.map(|index| {
                let index = index.display();
                remark(format!("{index} stays beside the new file: it is the index of other files"))
            }));
            Ok(None)
        }
        (Some(_), _) if options.to.holds().files != Files::Shards => {
            let format = options.to.name();
            Err(refuse(checkpoint, format!("cannot be written as shards of {format}: they are of safetensors")))
        }
        (Some(0), _) => Err(refuse(checkpoint, "cannot be written as shards of no bytes".to_owned())),
        (Some(max_bytes), Some((path, if_exists))) => {
            let shards = shards(path, max_bytes, tensors).map_err(|e| e.about(checkpoint.name()))?;
            if let (Some(_), Some(symbol)) = (&shards, &options.symbol) {
                let symbol = symbol.path.display();
                let message = "would not get its name together with shards; fold into one file, then split that";
                return Err(refuse(checkpoint, format!("{symbol}, the net of it, {message}")));
            }
            let index = named(path, ".index.json");
            // The index of an earlier output would still lead to the shards of that output.
            if shards.is_none() && if_exists != IfExists::Replace && index.exists() {
                let message =
                    "is an index of shards, and would stay beside the new file; remove it, or name another file";
                return Err(refused(&index, message.to_owned()));
            }
            changes.extend(old_files_note(path, shards.as_ref()).map(remark));
            Ok(shards)
        }
        (Some(_), None) => Err(refuse(checkpoint, "can be written as shards to files only".to_owned())),
    }
}

fn shards(path: &Path, max_bytes: u64, tensors: &[Planned]) -> Result<Option<Shards>, Error> {
    let sizes: Vec<u64> = tensors.iter().map(|tensor| tensor.spec.byte_len()).collect();
    let split = split(&sizes, max_bytes);
    let count = split.len();
    if count <= 1 {
        return Ok(None);
    }
    if count > MAX_SHARDS {
        let message = format!("would be {count} shards; at most {MAX_SHARDS} are written");
        return Err(refused(path, message));
    }
    if path.file_name().and_then(OsStr::to_str).is_none() {
        let message = "is a name that is not UTF-8, and the index of shards cannot hold it".to_owned();
        return Err(refused(path, message));
    }
    let mut shards = Shards {
        files: Vec::new(),
        index: named(path, ".index.json"),
        places: vec![(0, 0); sizes.len()],
        total: sizes.iter().sum(),
    };
    for (number, of) in split.into_iter().enumerate() {
        let specs: Vec<TensorSpec> = of.iter().map(|tensor| tensors[*tensor].spec.clone()).collect();
        of.iter().enumerate().for_each(|(slot, tensor)| shards.places[*tensor] = (number, slot));
        let layout = Layout::new(&specs, Frame::Safetensors { metadata: &metadata() })?;
        let stem = path.file_stem().unwrap_or_default();
        let mut name = stem.to_owned();
        name.push(format!("-{:05}-of-{count:05}", number + 1));
        if let Some(extension) = path.extension() {
            name.push(".");
            name.push(extension);
        }
        shards.files.push(Shard { path: path.with_file_name(name), layout });
    }
    Ok(Some(shards))
}

/// The tensors of each shard, in order, as indices into `sizes`: one after the other until `max_bytes` are reached. A
/// tensor above `max_bytes` gets a separate shard, before the shard that is being filled.
pub(crate) fn split(sizes: &[u64], max_bytes: u64) -> Vec<Vec<usize>> {
    let (mut shards, mut current, mut filled) = (Vec::new(), Vec::new(), 0_u64);
    for (tensor, size) in sizes.iter().enumerate() {
        if *size > max_bytes {
            shards.push(vec![tensor]);
            continue;
        }
        if filled + size > max_bytes {
            shards.push(std::mem::take(&mut current));
            filled = 0;
        }
        current.push(tensor);
        filled += size;
    }
    if !current.is_empty() {
        shards.push(current);
    }
    shards
}

fn metadata() -> Vec<(String, String)> {
    METADATA.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A note about files in the target's folder that look like an earlier output of the same name and are not replaced:
/// shards, an index, or a single file.
fn old_files_note(path: &Path, shards: Option<&Shards>) -> Option<String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new: HashSet<&OsStr> = match shards {
        Some(shards) => shards.paths().filter_map(Path::file_name).collect(),
        None => path.file_name().into_iter().collect(),
    };
    let listing = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.file_name()));
    let mut old: Vec<OsString> = listing.filter(|name| is_of(path, name) && !new.contains(&**name)).collect();
    old.sort_unstable();
    let names: Vec<_> = old.iter().map(|name| name.to_string_lossy()).collect();
    (!old.is_empty())
        .then(|| format!("old files of the same name stay beside the new output: {}", listed(NAMED, &names)))
}

/// Whether `name` is the file name of the output `path`, of one of the shards or of the index.
fn is_of(path: &Path, name: &OsStr) -> bool {
    let file = path.with_file_name(name);
    file == path || whole_of(&file).is_some_and(|whole| whole == path)
}

/// The output that a file is a shard or the index of, by its name.
pub(crate) fn whole_of(file: &Path) -> Option<PathBuf> {
    if let Some(whole) = file.file_name()?.to_str()?.strip_suffix(".index.json") {
        return Some(file.with_file_name(whole));
    }
    let extension = file.extension().map_or(String::new(), |extension| format!(".{}", extension.display()));
    let (rest, count) = file.file_stem()?.to_str()?.rsplit_once("-of-")?;
    let (whole, number) = rest.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(number) && is_number(count)).then(|| file.with_file_name(format!("{whole}{extension}")))
}

fn named(path: &Path, end: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(end);
    path.with_file_name(name)
}

impl Shards {
    /// The bytes of all files but the index.
    fn len(&self) -> u64 {
        self.files.iter().map(|shard| shard.layout.len()).sum()
    }

    /// The bytes of all files, with the index that holds `of_index`.
    pub(crate) fn len_with(&self, tensors: &[Planned], of_index: &[(String, String)]) -> u64 {
        self.len() + self.text(tensors, of_index).len() as u64
    }

    /// The index of the file that holds a tensor of the plan, and the tensor's offset in the file.
    pub(crate) fn place(&self, tensor: usize) -> (usize, u64) {
        let (file, slot) = self.places[tensor];
        (file, self.files[file].layout.offsets()[slot])
    }

    /// All files, the index last.
    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|shard| &*shard.path).chain([&*self.index])
    }

    /// Checks that every file can be created, and removes the files that the check creates.
    pub(crate) fn check(&self, source: &Checkpoint, if_exists: IfExists) -> Result<(), Error> {
        self.check_paths(source, if_exists)?;
        self.paths().try_for_each(|path| Output::check(path, if_exists))
    }

    /// Begins all files, the index last.
    pub(crate) fn begin(&self, source: &Checkpoint, if_exists: IfExists) -> Result<Vec<Output>, Error> {
        self.check_paths(source, if_exists)?;
        let begun = self.paths().map(|path| Output::create_for(&self.index, path, if_exists));
        let mut outputs: Vec<Output> = begun.collect::<Result<_, Error>>()?;
        for (output, shard) in outputs.iter_mut().zip(&self.files) {
            output.set_len(shard.layout.len())?;
        }
        Ok(outputs)
    }

    /// Writes the headers and the index. Until [`Shards::publish`] no file has the final name, so each can be read
    /// again.
    pub(crate) fn complete(
        &self,
        mut outputs: Vec<Output>,
        tensors: &[Planned],
        of_index: &[(String, String)],
    ) -> Result<(Vec<Complete>, u64), Error> {
        for (output, shard) in outputs.iter().zip(&self.files) {
            for (offset, bytes) in shard.layout.frame(&metadata(), &[])? {
                output.write_all_at(offset, &bytes)?;
            }
        }
        let text = self.text(tensors, of_index);
        if let Some(index) = outputs.last_mut() {
            index.write_all(text.as_bytes())?;
        }
        let complete = outputs.into_iter().map(Output::complete).collect::<Result<_, Error>>()?;
        Ok((complete, self.len() + text.len() as u64))
    }

    /// Gives all files the final names. At every moment an index names files of one output.
    pub(crate) fn publish(mut complete: Vec<Complete>) -> Result<(), Error> {
        let index = complete.pop();
        index.map_or(Ok(()), |index| index.publish_with(complete, &renamed))
    }

    /// The index, in the form of Python's `json.dumps(…, indent=2, sort_keys=True)`.
    fn text(&self, tensors: &[Planned], of_index: &[(String, String)]) -> String {
        let files = self.places.iter().map(|(number, _)| json!(self.files[*number].name()));
        let map: BTreeMap<&str, Value> = tensors.iter().map(|tensor| &*tensor.spec.name).zip(files).collect();
        // The format stands in each shard, and so not in the index.
        let of_index = of_index.iter().filter(|(key, _)| key != METADATA[0].0).map(|(key, text)| (&**key, json!(text)));
        let about: BTreeMap<&str, Value> = of_index.chain([("total_size", json!(self.total))]).collect();
        let index = BTreeMap::from([("metadata", json!(about)), ("weight_map", json!(map))]);
        ascii(&format!("{:#}\n", json!(index)))
    }

    /// Refuses to replace a file that is read, a link, a pipe or a device.
    fn check_paths(&self, source: &Checkpoint, if_exists: IfExists) -> Result<(), Error> {
        for path in self.paths() {
            check_source(source, path, if_exists)?;
            let Ok(found) = fs::symlink_metadata(path).map(|meta| meta.file_type()) else { continue };
            // The link may point to another shard, or to any other file.
            if found.is_symlink() {
                return Err(refused(path, "is a link, and no place for a shard or an index".to_owned()));
            }
            // Opening a pipe would wait for a reader.
            if !found.is_file() && !found.is_dir() {
                return Err(refused(path, "is a pipe or a device, and no place for a shard or an index".to_owned()));
            }
        }
        Ok(())
    }
}

/// An index with other names for these files; `None` if the index names none of these files.
fn renamed(index: &[u8], names: &BTreeMap<String, String>) -> Option<Vec<u8>> {
    let mut index: Value = serde_json::from_slice(index).ok()?;
    let files = index.get_mut("weight_map")?.as_object_mut()?.values_mut();
    let mut found = false;
    for file in files {
        if let Some(other) = file.as_str().and_then(|file| names.get(file)) {
            *file = json!(other);
            found = true;
        }
    }
    found.then(|| index.to_string().into_bytes())
}

/// JSON with every character outside of ASCII escaped.
fn ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' | ' '..='~' => out.push(c),
            _ => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out += &format!("\\u{unit:04x}")),
        }
    }
    out
}

fn remark(text: String) -> Change {
    Change::unasked(Effect::Remark(text))
}

fn refused(path: &Path, message: String) -> Error {
    Error::Request { file: path.display().to_string(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_split_as_huggingface_hub_splits_them() {
        let plans = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/shards/plans.json");
        let plans = fs::read_to_string(plans).expect("the data are there");
        for line in plans.lines() {
            let plan: Value = serde_json::from_str(line).expect("JSON");
            let sizes: Vec<u64> = plan["sizes"].as_array().expect("a list").iter().filter_map(Value::as_u64).collect();
            assert_eq!(json!(split(&sizes, plan["most"].as_u64().expect("a number"))), plan["shards"], "{plan}");
        }
        assert_eq!(plans.lines().count(), 100);
    }

    #[test]
    fn json_is_escaped_as_python_escapes_it() {
        assert_eq!(ascii("\"größe/層\u{7F}😀\""), "\"gr\\u00f6\\u00dfe/\\u5c64\\u007f\\ud83d\\ude00\"");
    }
}

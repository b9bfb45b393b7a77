//! The jobs of a batch: a recipe a line. Refuses two jobs of one output before anything is read, and an output that
//! another job reads.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use blob_io::{Error, Output};

use super::{Job, Marks, folder_of};
use crate::recipe::{NetFile, Recipe};
use crate::shards::whole_of;
use crate::transform::{Own, symbol_name};

/// The longest path that a system opens, in bytes.
const LONGEST_PATH: usize = 4096;

/// A folder of which jobs name so many files is listed: to look at each takes a tenth of the time of a job that is
/// done.
const MANY_FILES: usize = 64;

/// The jobs of a batch.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The recipes that are done, each with its line.
    recipes: Vec<(usize, Recipe)>,
    files: Files,
}

/// A share of a batch: the jobs `index`, `index + of`, `index + 2 of`, ….
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    of: usize,
}

impl FromStr for Shard {
    type Err = String;

    /// Reads `I/N`, of which `I` counts from 0.
    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((index, of)) if index < of => Ok(Self { index, of }),
            _ => Err("I/N is expected, with I from 0 to N - 1".to_owned()),
        }
    }
}

impl Batch {
    /// Reads the recipes of a text, one a line; empty lines are skipped. `name` is for messages.
    ///
    /// # Errors
    /// [`Error::Request`], with the line: a text that is no recipe, a recipe that is no job, two jobs of one output, a
    /// job whose output another job reads.
    pub fn read(name: &str, text: &str) -> Result<Self, Error> {
        let mut recipes = Vec::new();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let name = format!("{name}: line {number}");
            let recipe = Recipe::read(&name, line)?;
            checked(&recipe).map_err(|e| e.about(&name))?;
            recipes.push((number, recipe));
        }
        let files = check(name, &recipes)?;
        Ok(Self { recipes, files })
    }

    /// Takes the jobs of one share.
    #[must_use]
    pub fn shard(mut self, shard: Shard) -> Self {
        let all = std::mem::take(&mut self.recipes).into_iter().enumerate();
        self.recipes = all.filter(|(at, _)| at % shard.of == shard.index).map(|(_, recipe)| recipe).collect();
        self
    }

    /// How many jobs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.recipes.len()
    }

    /// Whether there is no job.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.recipes.is_empty()
    }

    /// Removes the temporary files of killed runs from the folders of the outputs. Files of running processes stay.
    pub fn sweep(&self) {
        let outputs = self.recipes().filter_map(|(_, recipe)| recipe.target.path.as_deref());
        outputs.map(folder_of).collect::<BTreeSet<_>>().into_iter().for_each(Output::sweep);
    }

    /// The recipes, each with its line.
    pub fn recipes(&self) -> impl Iterator<Item = (usize, &Recipe)> {
        self.recipes.iter().map(|(line, recipe)| (*line, recipe))
    }

    /// A recipe, with its line; `None` beyond the last one.
    #[must_use]
    pub fn recipe(&self, at: usize) -> Option<(usize, &Recipe)> {
        self.recipes.get(at).map(|(line, recipe)| (*line, recipe))
    }

    /// A job of the batch, with its mark.
    ///
    /// # Errors
    /// As [`Job::new`].
    pub fn job(&self, at: usize, marks: &Marks) -> Result<Job, Error> {
        let (line, recipe) = &self.recipes[at];
        Job::new(*line, recipe.clone(), marks)
    }

    /// Refuses a file that is used besides the jobs, a log or the list of jobs itself, where a job writes or reads the
    /// file.
    ///
    /// # Errors
    /// [`Error::Request`].
    pub fn check_apart(&self, file: &Path, is_written: bool) -> Result<(), Error> {
        let own = Files::default().real(file);
        let reader = self.recipes().filter(|_| is_written).find(|(_, recipe)| {
            let mut reals = read_by(recipe).filter_map(|path| self.files.reals.get(&path));
            reals.any(|real| *real == own)
        });
        let Some(line) = self.files.writer_of(&own).or(reader.map(|(line, _)| line)) else { return Ok(()) };
        let message = format!("is a file of the job in line {line}, too");
        Err(Error::Request { file: file.display().to_string(), message })
    }
}

/// The files of jobs. Refuses two jobs of one output, and a job whose output another job reads.
fn check(name: &str, recipes: &[(usize, Recipe)]) -> Result<Files, Error> {
    let mut files = Files::default();
    let refused = |line: usize, message: String| Err(Error::Request { file: format!("{name}: line {line}"), message });
    for (line, recipe) in recipes {
        for (output, is_in_shards) in written_by(recipe) {
            if let Some(before) = files.write(&output, is_in_shards, *line) {
                return refused(*line, format!("writes {}, as line {before} does", output.display()));
            }
        }
    }
    let folds = recipes.iter().any(|(_, recipe)| is_fold(recipe));
    for (line, recipe) in recipes {
        for (output, _) in written_by(recipe) {
            if let Some(writer) = files.around(&output, *line) {
                let message = format!("writes {}, which is of what line {writer} writes", output.display());
                return refused(*line, message);
            }
        }
        // No job but a fold writes a symbol.
        let symbol = Some(recipe).filter(|_| folds).and_then(symbol_beside);
        for path in read_by(recipe).chain(symbol) {
            if let Some(writer) = files.writer(&path) {
                return refused(*line, format!("reads {}, which line {writer} writes", path.display()));
            }
        }
    }
    Ok(files)
}

/// The files that a job reads: the source, the model that tensors go into, the net, files of names.
fn read_by(recipe: &Recipe) -> impl Iterator<Item = PathBuf> {
    let sources = recipe.sources.iter().map(|source| source.path.clone());
    sources.chain(recipe.target.into.clone()).chain(recipe.reads())
}

/// The files that a job writes, and whether in shards: the output, and the new symbol of a folded net.
fn written_by(recipe: &Recipe) -> impl Iterator<Item = (PathBuf, bool)> {
    let output = recipe.target.path.clone().unwrap_or_default();
    let symbol = new_symbol(recipe, &output).map(|symbol| (symbol, false));
    let values = recipe.target.values_path().map(|values| (values, false));
    [(output, recipe.target.shard_size.is_some())].into_iter().chain(symbol).chain(values)
}

/// The symbol beside the output, where MXNet's net may be folded.
pub(super) fn new_symbol(recipe: &Recipe, output: &Path) -> Option<PathBuf> {
    let has_symbol = match &recipe.net {
        _ if !is_fold(recipe) => false,
        Some(net) => matches!(net, NetFile::Symbol(_)),
        None => symbol_beside(recipe).is_some_and(|symbol| symbol.is_file()),
    };
    has_symbol.then(|| output.with_file_name(symbol_name(&output.to_string_lossy())))
}

fn is_fold(recipe: &Recipe) -> bool {
    recipe.steps.iter().any(|step| step.own() == Some(Own::Fold))
}

/// The place of MXNet's symbol beside the source, which is read where no net is named.
pub(super) fn symbol_beside(recipe: &Recipe) -> Option<PathBuf> {
    let source = recipe.sources.first().filter(|_| recipe.net.is_none())?;
    Some(source.path.with_file_name(symbol_name(&source.path.to_string_lossy())))
}

/// The output of a recipe that is a job.
pub(super) fn checked(recipe: &Recipe) -> Result<PathBuf, Error> {
    let refused = |message: &str| Error::Request { file: String::new(), message: message.to_owned() };
    let [source] = &recipe.sources[..] else {
        return Err(refused("a job has one source"));
    };
    let is_piped = |path: &Path| path == Path::new("-") || path.as_os_str().is_empty();
    if recipe.target.divide.is_some() {
        return Err(refused("a job writes one output, and the recipe divides the tensors among several"));
    }
    let longest = read_by(recipe).chain(recipe.target.path.clone()).map(|path| path.as_os_str().len()).max();
    if longest > Some(LONGEST_PATH) {
        return Err(refused("a job has a path of more than 4,096 bytes, which no system opens"));
    }
    match &recipe.target.path {
        Some(output) if !is_piped(output) && !is_piped(&source.path) => Ok(output.clone()),
        _ => Err(refused("a job reads a file and writes a file, not a pipe")),
    }
}

/// The files that jobs write, by one spelling for each path. Each folder is looked at once, and so is each file.
#[derive(Clone, Debug, Default)]
struct Files {
    folders: HashMap<PathBuf, Folder>,
    /// Each path that jobs read or write, without links.
    reals: HashMap<PathBuf, PathBuf>,
    /// The line that writes each output.
    written: HashMap<PathBuf, usize>,
    /// The line that writes each output in shards.
    in_shards: HashMap<PathBuf, usize>,
}

impl Files {
    /// Adds an output; returns the line that writes the same.
    fn write(&mut self, output: &Path, is_in_shards: bool, line: usize) -> Option<usize> {
        let real = self.real(output);
        if is_in_shards {
            self.in_shards.insert(real.clone(), line);
        }
        self.written.insert(real, line)
    }

    /// The line that writes this file: an output, or a shard or the index of one.
    fn writer(&mut self, file: &Path) -> Option<usize> {
        let real = self.real(file);
        self.writer_of(&real)
    }

    fn writer_of(&self, real: &Path) -> Option<usize> {
        self.written.get(real).or_else(|| self.in_shards.get(&whole_of(real)?)).copied()
    }

    /// Another line whose output holds this output: a folder, or shards.
    fn around(&mut self, output: &Path, line: usize) -> Option<usize> {
        let real = self.real(output);
        let shards = whole_of(&real).and_then(|whole| self.in_shards.get(&whole));
        let writer = shards.or_else(|| real.ancestors().skip(1).find_map(|folder| self.written.get(folder)));
        writer.copied().filter(|writer| *writer != line)
    }

    /// The path without links, and without `.` and `..`.
    fn real(&mut self, path: &Path) -> PathBuf {
        if let Some(real) = self.reals.get(path) {
            return real.clone();
        }
        let (folder, name) = match (path.parent(), path.file_name()) {
            (Some(_), Some(name)) => (folder_of(path), name.to_owned()),
            _ => (path, OsString::new()),
        };
        let folder = self.folders.entry(folder.to_owned()).or_insert_with(|| Folder::new(folder));
        let real = folder.real.join(&name);
        let real = if folder.has_link(&name) { real.canonicalize().unwrap_or(real) } else { real };
        self.reals.insert(path.to_owned(), real.clone());
        real
    }
}

/// A folder that jobs name.
#[derive(Clone, Debug)]
struct Folder {
    /// The path without links.
    real: PathBuf,
    /// How many files in the folder were asked for.
    asked: usize,
    /// The files that are links, once the folder was listed.
    links: Option<HashSet<OsString>>,
}

impl Folder {
    fn new(path: &Path) -> Self {
        Self { real: real_folder(path), asked: 0, links: None }
    }

    /// Whether a file in the folder is a link.
    fn has_link(&mut self, name: &OsStr) -> bool {
        self.asked += 1;
        if self.asked == MANY_FILES {
            self.links = links_in(&self.real).ok();
        }
        self.links.as_ref().map_or_else(|| self.real.join(name).is_symlink(), |links| links.contains(name))
    }
}

fn links_in(folder: &Path) -> io::Result<HashSet<OsString>> {
    let mut links = HashSet::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_symlink() {
            links.insert(entry.file_name());
        }
    }
    Ok(links)
}

/// A folder of which a part may not exist yet.
fn real_folder(folder: &Path) -> PathBuf {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let there = absolute.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    let (rest, real) = match &there {
        Some((part, real)) => (absolute.strip_prefix(part).unwrap_or(Path::new("")), real.clone()),
        None => (&*absolute, PathBuf::new()),
    };
    rest.components().fold(real, |mut real, part| {
        match part {
            Component::ParentDir => drop(real.pop()),
            Component::CurDir => {}
            part => real.push(part),
        }
        real
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(source: &str, output: &str) -> String {
        Recipe::new(source, output).to_json().unwrap().replace('\n', " ")
    }

    fn refused(lines: &[String]) -> String {
        Batch::read("x", &lines.join("\n")).unwrap_err().to_string()
    }

    #[test]
    fn two_jobs_of_one_output_are_refused_by_any_spelling() {
        let text = [line("a", "no/x.npz"), String::new(), line("b", "y.npz")];
        let batch = Batch::read("x", &text.join("\n")).unwrap();
        assert_eq!(batch.recipes().map(|(line, _)| line).collect::<Vec<_>>(), [1, 3]);
        let here = std::env::current_dir().unwrap().join("no/x.npz");
        for other in ["no/x.npz", "./no/x.npz", "no/../no/./x.npz", "no/x.npz/", here.to_str().unwrap()] {
            let said = refused(&[line("a", "no/x.npz"), line("b", other)]);
            assert!(said.contains("line 2: writes") && said.ends_with("as line 1 does"), "{said}");
        }
        let said = refused(&[line("a", "b"), line("b", "c")]);
        assert_eq!(said, "x: line 2: reads b, which line 1 writes");
        let deep = format!("{}x", "a/".repeat(LONGEST_PATH / 2));
        assert!(refused(&[line("a", &deep)]).contains("4,096 bytes"));
    }

    #[test]
    fn files_of_an_output_are_outputs() {
        let shards = line("a", "o/m.safetensors").replace("\"if_exists\"", "\"shard_size\": 100, \"if_exists\"");
        assert!(shards.contains("shard_size"), "{shards}");
        for other in ["o/m-00001-of-00002.safetensors", "o/./m.safetensors.index.json", "o/m.safetensors/x"] {
            let said = [refused(&[shards.clone(), line("b", other)]), refused(&[line("b", other), shards.clone()])];
            assert_eq!(said[0], format!("x: line 2: writes {other}, which is of what line 1 writes"));
            assert_eq!(said[1], format!("x: line 1: writes {other}, which is of what line 2 writes"));
        }
        let said = refused(&[shards, line("o/m-00001-of-00002.safetensors", "q")]);
        assert_eq!(said, "x: line 2: reads o/m-00001-of-00002.safetensors, which line 1 writes");
    }

    #[test]
    #[cfg(unix)]
    fn an_output_behind_a_link_is_the_file_of_the_link() {
        let folder = std::env::temp_dir().join(format!("blob-links-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [real, link] = ["real.npz", "link.npz"].map(|name| folder.join(name).to_str().unwrap().to_owned());
        std::fs::write(&real, "").unwrap();
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink("real.npz", &link).unwrap();
        assert!(refused(&[line("a", &link), line(&real, "x")]).contains("line 2: reads"));
        assert!(refused(&[line("a", &link), line("b", &real)]).contains("as line 1 does"));
        // The folder of many files is listed.
        let name = |n: usize| folder.join(format!("{n}.npz")).to_str().unwrap().to_owned();
        let many = (0..2 * MANY_FILES).map(|n| line("a", &name(n)));
        let many: Vec<String> = many.chain([line("a", &real), line("b", &link)]).collect();
        assert!(refused(&many).contains(&format!("as line {} does", 2 * MANY_FILES + 1)));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_symbol_of_a_folded_net_is_an_output() {
        let fold = |source: &str, output: &str, net: &str| {
            let target = "\"steps\":[{\"name\":\"fold\"}],\"target\"";
            let net = format!("\"net\":{{\"symbol\":\"{net}\"}},{target}");
            line(source, output).replace("\"target\"", &net)
        };
        let said = refused(&[fold("a", "o/net-0000.params", "s.json"), fold("b", "o/net-0001.params", "s.json")]);
        assert_eq!(said, "x: line 2: writes o/net-symbol.json, as line 1 does");
        let said = refused(&[fold("a", "o/net-0000.params", "s.json"), line("o/net-symbol.json", "x")]);
        assert_eq!(said, "x: line 2: reads o/net-symbol.json, which line 1 writes");
        let said = refused(&[line("o/net-0007.params", "x"), fold("a", "o/net-0000.params", "s.json")]);
        assert_eq!(said, "x: line 1: reads o/net-symbol.json, which line 2 writes");
        let named =
            [fold("a", "o/net-0000.params", "s.json"), fold("o/net-0007.params", "p/other-0000.params", "s.json")];
        assert_eq!(Batch::read("x", &named.join("\n")).unwrap().len(), 2);
        let apart = [fold("a", "o/net-0000.params", "s.json"), fold("b", "o/other-0000.params", "s.json")];
        assert_eq!(Batch::read("x", &apart.join("\n")).unwrap().len(), 2);
    }

    #[test]
    fn the_values_beside_a_model_are_an_output() {
        let said = refused(&[line("a", "o/net.onnx"), line("b", "o/net.onnx.data")]);
        assert_eq!(said, "x: line 2: writes o/net.onnx.data, as line 1 does");
        let said = refused(&[line("a", "o/net.onnx"), line("o/net.onnx.data", "q")]);
        assert_eq!(said, "x: line 2: reads o/net.onnx.data, which line 1 writes");
        let apart = [line("a", "o/net.npz"), line("b", "o/net.npz.data")];
        assert_eq!(Batch::read("x", &apart.join("\n")).unwrap().len(), 2);
    }

    #[test]
    fn a_log_is_no_file_of_a_job() {
        let batch = Batch::read("x", &line("a", "o/m.npz")).unwrap();
        let apart = |file: &str, is_written| batch.check_apart(Path::new(file), is_written).is_ok();
        assert!(!apart("./a", true) && apart("a", false) && !apart("o/m.npz", true) && !apart("o/m.npz", false));
        assert!(apart("o/n.npz", true));
    }

    #[test]
    fn a_recipe_that_is_no_job_is_refused() {
        let said = [
            refused(&[line("-", "x")]),
            refused(&[line("a", "-")]),
            refused(&["{}".to_owned()]),
            refused(&[line("a", "x").replace("\"target\"", "\"targets\"")]),
            refused(&[r#"{"sources":[{"path":"a"}],"target":{"path":"{}.npz","divide":"by-layer"}}"#.to_owned()]),
        ];
        assert!(said.iter().all(|said| said.starts_with("x: line 1")), "{said:?}");
    }

    #[test]
    fn shards_part_the_jobs_among_them() {
        let text: Vec<String> = (0..10).map(|n| line("a", &format!("{n}"))).collect();
        let all = Batch::read("x", &text.join("\n")).unwrap();
        for of in 1..12 {
            let lines = |index| {
                let part = all.clone().shard(Shard { index, of });
                part.recipes().map(|(line, _)| line).collect::<Vec<_>>()
            };
            let mut lines: Vec<usize> = (0..of).flat_map(lines).collect();
            lines.sort_unstable();
            assert_eq!(lines, (1..=10).collect::<Vec<_>>());
        }
        for wrong in ["", "1", "1/1", "2/1", "-1/2", "0/0", "a/b", "1/2/3"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
        assert_eq!("0/3".parse(), Ok(Shard { index: 0, of: 3 }));
    }
}

//! The jobs of a batch: a recipe a line. Refuses two jobs of one output before anything is read, and an output that
//! another job reads.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use blob_io::{Error, Output};

use super::{Job, Marks, folder_of};
use crate::recipe::Recipe;

/// The jobs of a batch.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The recipes that are done, each with its line.
    recipes: Vec<(usize, Recipe)>,
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
        let batch = Self { recipes };
        batch.check(name)?;
        Ok(batch)
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

    fn check(&self, name: &str) -> Result<(), Error> {
        let mut folders = Folders::default();
        let mut written: HashMap<PathBuf, usize> = HashMap::new();
        let refused =
            |line: usize, message: String| Err(Error::Request { file: format!("{name}: line {line}"), message });
        for (line, recipe) in self.recipes() {
            let output = recipe.target.path.as_deref().unwrap_or(Path::new(""));
            if let Some(before) = written.insert(folders.real(output), line) {
                return refused(line, format!("writes {}, as line {before} does", output.display()));
            }
        }
        for (line, recipe) in self.recipes() {
            let read = recipe.sources.iter().map(|source| source.path.clone()).chain(recipe.target.into.clone());
            for path in read.chain(recipe.reads()) {
                if let Some(writer) = written.get(&folders.real(&path)) {
                    return refused(line, format!("reads {}, which line {writer} writes", path.display()));
                }
            }
        }
        Ok(())
    }
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
    match &recipe.target.path {
        Some(output) if !is_piped(output) && !is_piped(&source.path) => Ok(output.clone()),
        _ => Err(refused("a job reads a file and writes a file, not a pipe")),
    }
}

/// One spelling for each path. Each folder is looked at once.
#[derive(Default)]
struct Folders(HashMap<PathBuf, PathBuf>);

impl Folders {
    /// The path without links in its folder, and without `.` and `..`.
    fn real(&mut self, path: &Path) -> PathBuf {
        let (folder, name) = match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) => (folder, name.to_owned()),
            _ => (path, OsString::new()),
        };
        let real = self.0.entry(folder.to_owned()).or_insert_with(|| {
            let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
            // A folder of which a part does not exist yet.
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
        });
        real.join(name)
    }
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

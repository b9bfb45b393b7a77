//! The module of the page: a file of the user's is opened, listed, checked, compared and converted as the tool does.
//!
//! Every answer is JSON, and every error too: the tool's words, with its help. Knows no document; the browser stands
//! behind `host`. Relies on one thread.

#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "JavaScript reaches what is exported")]

mod conversion;
mod host;
mod tensor;
mod verdict;

use blob_convert::Selection;
use blob_convert::diff::{Tolerance, diff};
use blob_convert::report::facts::Facts;
use blob_convert::report::json::{self, Ordered};
use blob_convert::report::list::List;
use blob_convert::report::own::distance;
use blob_convert::report::problem::Problem;
use blob_io::{Checkpoint, Error, OpenOptions, Reason};
use serde::Deserialize;
use serde_json::{Value, json};
use wasm_bindgen::prelude::wasm_bindgen;

use host::{Place, Stored, Told};

/// A file that is open.
#[wasm_bindgen]
pub struct Opened(Checkpoint);

/// How a file is opened.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct How {
    from: Option<String>,
    member: Option<String>,
    salvage: bool,
}

/// A panic is said before the module ends.
#[wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|panic| host::panicked(&panic.to_string())));
}

/// Opens the file that the worker keeps under a number.
///
/// # Errors
/// As the tool's `blob ls --json`.
#[wasm_bindgen]
pub fn open(number: u32, name: &str, len: f64, how: &str) -> Result<Opened, String> {
    let how: How = serde_json::from_str(how).map_err(|e| said(&refused(name, &e.to_string())))?;
    let mut options = OpenOptions::new().scratch(Place::make);
    if let Some(format) = &how.from {
        options = options.from(format.parse().map_err(|_| said(&refused(name, "there is no such format")))?);
    }
    if let Some(member) = how.member {
        options = options.member(member);
    }
    if how.salvage {
        options = options.salvage();
    }
    let opened = options.open_source(name, Box::new(Stored::new(number, len))).map_err(|e| said(&e))?;
    Ok(Opened(if how.salvage { opened.take_whole_arrays() } else { opened }))
}

#[wasm_bindgen]
impl Opened {
    /// A summary of the file: the line of `blob info --json`.
    pub fn info(&self) -> String {
        let mut line = Vec::new();
        let _ = json::line(&mut line, &Facts::of(&self.0));
        text(line)
    }

    /// The tensors: the line of `blob ls --json`.
    pub fn list(&self) -> String {
        let chosen: Vec<usize> = (0..self.0.entries().len()).collect();
        let mut line = Vec::new();
        let _ = List { checkpoint: &self.0, chosen: &chosen, error: Value::Null }.write(&mut line);
        text(line)
    }

    /// The places of the tensors that patterns take, which stand between spaces.
    pub fn select(&self, patterns: &str) -> Result<Vec<u32>, String> {
        let selected = Selection::matching(patterns.split_whitespace()).of(&self.0);
        let selected = selected.map_err(|why| said(&refused(self.0.name(), &why)))?;
        Ok(selected.places.into_iter().filter_map(|place| u32::try_from(place).ok()).collect())
    }

    /// The statistics of a tensor, as an object of `blob stats --json`.
    pub fn stats(&self, place: usize, bins: usize) -> Result<String, String> {
        tensor::stats(&self.0, place, bins).map_err(|e| said(&e))
    }

    /// At most `most` values of a slice.
    pub fn values(&self, place: usize, slice: &str, most: usize) -> Result<String, String> {
        tensor::values(&self.0, place, slice, most).map_err(|e| said(&e))
    }

    /// The first values as numbers, for a picture.
    pub fn numbers(&self, place: usize, most: usize) -> Result<Vec<f32>, String> {
        tensor::numbers(&self.0, place, most).map_err(|e| said(&e))
    }

    /// The faults of the file, as `blob verify` lists them.
    pub fn verify(&self) -> String {
        verdict::of(&self.0, &Told::default()).to_string()
    }

    /// The differences from another file: as `blob diff`.
    pub fn diff(&self, other: &Opened) -> Result<String, String> {
        let (mut notes, mut rows) = (Vec::new(), Vec::new());
        let watch = Told::default();
        let tally = diff(&self.0, &other.0, Tolerance::NONE, &watch, &mut |note| notes.push(note), &mut |row| {
            if distance(&row).is_none_or(|distance| distance.changed > 0) || row.ours.is_none() {
                rows.push(serde_json::to_value(Ordered(&row)).unwrap_or_default());
            }
            Ok::<(), Error>(())
        });
        let tally = tally.map_err(|e| said(&e))?;
        let counts = json!({ "equal": tally.equal, "renamed": tally.renamed, "changed": tally.changed,
            "removed": tally.removed, "added": tally.added, "unread": tally.unread });
        Ok(json!({ "tensors": rows, "notes": notes, "counts": counts }).to_string())
    }

    /// The results of a recipe: the changes, and each tensor of the output.
    pub fn plan(&self, recipe: &str) -> Result<String, String> {
        conversion::plan(&self.0, recipe).map_err(|e| said(&e))
    }

    /// Runs a recipe; the output's bytes go to a place.
    pub fn convert(&self, recipe: &str, place: u32) -> Result<String, String> {
        let done = conversion::run(&self.0, recipe, Place::numbered(place), &Told::default());
        done.map_err(|e| said(&e))
    }
}

/// A request that cannot be met.
fn refused(file: &str, message: &str) -> Error {
    Error::Request { file: file.to_owned(), message: message.to_owned() }
}

/// An error as JSON: the field `error` of the tool's lines, and the files that one may choose.
fn said(error: &Error) -> String {
    let mut problem = json::value(&Problem::from(error));
    if let Error::Several { members, .. } = error {
        problem["members"] = json!(members);
    }
    problem["salvageable"] = json!(error.reason() == Reason::Truncated && error.intact().is_some_and(|n| n > 0));
    problem.to_string()
}

fn text(line: Vec<u8>) -> String {
    String::from_utf8(line).unwrap_or_default()
}

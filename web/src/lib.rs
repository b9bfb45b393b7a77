//! The module of the page: a file of the user's is opened, listed, checked, compared and converted as the tool does.
//!
//! Every answer is JSON, and every error too: the tool's words, with its help. The module does not know the
//! document; the browser stands behind `host`. Relies on one thread.

#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "JavaScript reaches what is exported")]

mod conversion;
mod host;
mod tensor;
mod verdict;

use blob_convert::Selection;
use blob_convert::diff::{Comparison, Tally, Tolerance, diff};
use blob_convert::report::difference::Difference;
use blob_convert::report::facts::Facts;
use blob_convert::report::json::{self, Line, Ordered};
use blob_convert::report::list::List;
use blob_convert::report::problem::Problem;
use blob_io::{Checkpoint, Error, OpenOptions, Reason};
use serde::Deserialize;
use serde_json::{Value, json};
use wasm_bindgen::prelude::wasm_bindgen;

use conversion::Conversion;
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
    let how: How = read(name, how)?;
    let salvage = how.salvage;
    let opened = opened(number, name, len, how).map_err(|e| said(&e))?;
    Ok(Opened(if salvage { opened.take_whole_arrays() } else { opened }))
}

/// Checks a file, which may not even open: the line of `blob verify --json --finite --all`, with
/// `--replay` where the file has a receipt.
///
/// # Errors
/// The error of a file that is not one of tensors.
#[wasm_bindgen]
pub fn verify(number: u32, name: &str, len: f64, how: &str) -> Result<String, String> {
    let how = How { salvage: false, ..read(name, how)? };
    verdict::of(opened(number, name, len, how), name, len as u64, &Told::default()).map_err(|e| said(&e))
}

/// Panics: how the page's check sees that the page goes on.
#[wasm_bindgen]
pub fn fail(why: &str) {
    panic!("{why}");
}

fn read(name: &str, how: &str) -> Result<How, String> {
    serde_json::from_str(how).map_err(|e| said(&refused(name, &e.to_string())))
}

fn opened(number: u32, name: &str, len: f64, how: How) -> Result<Checkpoint, Error> {
    let mut options = OpenOptions::new().scratch(Place::make);
    if let Some(format) = &how.from {
        options = options.from(format.parse().map_err(|_| refused(name, "there is no such format"))?);
    }
    if let Some(member) = how.member {
        options = options.member(member);
    }
    if how.salvage {
        options = options.salvage();
    }
    options.open_source(name, Box::new(Stored::new(number, len)))
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
        let selected = selected.map_err(|why| json!({ "message": why }).to_string())?;
        Ok(selected.places.into_iter().filter_map(|place| u32::try_from(place).ok()).collect())
    }

    /// The statistics of a tensor, as an object of `blob stats --json`.
    pub fn stats(&self, place: usize, bins: usize) -> Result<String, String> {
        tensor::stats(&self.0, place, bins).map_err(|e| said(&e))
    }

    /// The same, of bytes that the worker hands over; none where they do not lie in the file as they are.
    pub fn stream(&self, place: usize, bins: usize) -> Option<tensor::Stream> {
        tensor::Stream::open(&self.0, place, bins)
    }

    /// At most `most` values of a slice.
    pub fn values(&self, place: usize, slice: &str, most: usize) -> Result<String, String> {
        tensor::values(&self.0, place, slice, most).map_err(|e| said(&e))
    }

    /// The first values as numbers, for a picture.
    pub fn numbers(&self, place: usize, most: usize) -> Result<Vec<f32>, String> {
        tensor::numbers(&self.0, place, most).map_err(|e| said(&e))
    }

    /// The statistics of each index of an axis, as objects of `blob stats --json --per-channel`.
    pub fn channels(&self, place: usize, axis: i32) -> Result<String, String> {
        tensor::channels(&self.0, place, axis).map_err(|e| said(&e))
    }

    /// The differences from another file: the line of `blob diff --json`.
    pub fn diff(&self, other: &Opened) -> Result<String, String> {
        difference(&self.0, &other.0).map(text).map_err(|e| said(&e))
    }

    /// The results of a recipe: the changes, and each tensor of the output. `net` is the text of the file that the
    /// recipe names for the net; `into` is the model that the tensors go into, where the recipe names one.
    pub fn plan(&self, recipe: &str, net: Option<Vec<u8>>, into: &Opened) -> Result<String, String> {
        Conversion { source: &self.0, recipe, net, into: &into.0 }.plan().map_err(|e| said(&e))
    }

    /// Runs a recipe; the output's bytes go to a place.
    pub fn convert(&self, recipe: &str, net: Option<Vec<u8>>, into: &Opened, place: u32) -> Result<String, String> {
        let conversion = Conversion { source: &self.0, recipe, net, into: &into.0 };
        conversion.run(Place::numbered(place), &Told::default()).map_err(|e| said(&e))
    }
}

/// Compares two files; tensors that are equal under one name are counted alone.
fn difference(ours: &Checkpoint, theirs: &Checkpoint) -> Result<Vec<u8>, Error> {
    let mut tally = Tally::default();
    let mut said = Difference { ours, theirs, tally: &mut tally, notes: Vec::new(), error: Value::Null };
    let mut text = Vec::new();
    let failed = |e| Error::Io { file: String::new(), action: "write the answer of".to_owned(), source: e };
    let mut line = Line::begin(&mut text, &said).map_err(failed)?;
    let (watch, notes) = (Told::default(), &mut said.notes);
    let done = diff(ours, theirs, Tolerance::NONE, &watch, &mut |note| notes.push(note), &mut |row| match row.change {
        Comparison::Equal(_) => Ok(()),
        _ => line.push(&mut text, &Ordered(&row)).map_err(failed),
    });
    match done {
        Ok(counts) => *said.tally = counts,
        Err(e) => said.error = json::value(&Problem::from(&e)),
    }
    line.advance(&mut text, &said).map_err(failed)?;
    Ok(text)
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
    problem["broken"] = json!(error.reason().is_broken());
    problem["salvageable"] = json!(error.reason() == Reason::Truncated && error.intact().is_some_and(|n| n > 0));
    problem.to_string()
}

fn text(line: Vec<u8>) -> String {
    String::from_utf8(line).unwrap_or_default()
}

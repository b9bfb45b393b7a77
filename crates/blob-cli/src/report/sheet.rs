//! The table of a page's tensors, measured while it is written.

use blob_convert::stats::{Measured, measure_all};
use blob_core::DType;
use blob_io::{Checkpoint, Entry, Error};

use super::page::Page;
use super::{LISTED, ROWS};
use crate::broken::Broken;
use crate::failure::Failure;
use crate::output::progress::Progress;
use crate::render::svg;
use crate::units;

/// The bins of a histogram in a row, and its size.
const BINS: usize = 24;
const SIZE: (usize, usize) = (96, 22);

const COLUMNS: [&str; 13] =
    ["##", "name", "dtype", "shape", "#bytes", "#min", "#max", "#mean", "#std", "#zero", "#NaN", "#Inf", "histogram"];

/// What the tensors add up to: the first names, and how many there are.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) shown: u64,
    pub(super) not_finite: (Vec<String>, u64),
    pub(super) broken: (Vec<String>, u64),
}

fn noted(list: &mut (Vec<String>, u64), line: impl FnOnce() -> String) {
    list.1 += 1;
    if list.0.len() < LISTED {
        list.0.push(line());
    }
}

/// Writes the table, and tells of the arrays that cannot be read.
pub(super) fn tensors(
    page: &mut Page,
    checkpoint: &Checkpoint,
    progress: &Progress,
    broken: &mut Broken<'_>,
) -> Result<Counted, Failure> {
    let entries = checkpoint.entries();
    page.heading("Tensors");
    page.table(&COLUMNS);
    let measured: Vec<usize> = (0..entries.len()).filter(|index| has_values(&entries[*index])).collect();
    let mut sheet = Sheet { page, entries, next: 0, counted: Counted::default() };
    measure_all(checkpoint, &measured, Some(BINS), progress, &mut |index, result| sheet.row(index, result, broken))?;
    sheet.up_to(entries.len())?;
    let counted = sheet.counted;
    page.end_table();
    let more = entries.len() as u64 - counted.shown;
    if more > 0 {
        let more = units::plural(more, "more tensor");
        page.paragraph("dim", &format!("{more} in the file; each of them was measured."));
    }
    Ok(counted)
}

/// A place without an array, and a dtype that is not read, are rows without figures; a fault is told in its row.
fn has_values(entry: &Entry) -> bool {
    entry.dtype().is_some() || entry.fault().is_some()
}

struct Sheet<'a> {
    page: &'a mut Page,
    entries: &'a [Entry],
    /// The first entry that has no row yet.
    next: usize,
    counted: Counted,
}

impl Sheet<'_> {
    /// Writes the rows of entries without values before this one.
    fn up_to(&mut self, index: usize) -> Result<(), Error> {
        for at in self.next..index {
            let entry = &self.entries[at];
            if !has_values(entry) && self.begins_row(at) {
                let why = entry.foreign_dtype().map_or("no array", |_| "not read");
                self.page.put(&format!("<td colspan=\"8\" class=\"dim\">{why}</td>"));
                self.page.end_row()?;
            }
        }
        self.next = index;
        Ok(())
    }

    fn row(&mut self, index: usize, result: Result<Measured, Error>, broken: &mut Broken<'_>) -> Result<(), Error> {
        self.up_to(index)?;
        let entry = &self.entries[index];
        let is_shown = self.begins_row(index);
        match result {
            Ok(measured) => {
                let (nan, inf) = (measured.stats.nan, measured.stats.inf);
                if nan + inf > 0 {
                    noted(&mut self.counted.not_finite, || format!("{}: {nan} NaN, {inf} Inf", entry.name()));
                }
                if is_shown {
                    figures(self.page, entry, &measured);
                }
            }
            Err(error) => {
                let Failure::Trouble(problem) = Failure::from(error) else { return Err(Error::Interrupted) };
                noted(&mut self.counted.broken, || problem.message.clone());
                broken.tell(*problem);
                if is_shown {
                    self.page.put("<td colspan=\"8\" class=\"bad\">cannot be read</td>");
                }
            }
        }
        if is_shown { self.page.end_row() } else { Ok(()) }
    }

    /// Writes the cells before the figures, unless there are enough rows.
    fn begins_row(&mut self, index: usize) -> bool {
        if self.counted.shown == ROWS {
            return false;
        }
        self.counted.shown += 1;
        let (page, entry) = (&mut *self.page, &self.entries[index]);
        page.put("<tr>");
        page.cell("n", &index.to_string());
        page.cell("name", entry.name());
        page.cell("", entry.dtype().map(DType::name).or(entry.foreign_dtype()).unwrap_or("-"));
        let shape = if entry.fault().is_some() { "-".to_owned() } else { entry.shape().to_string() };
        page.cell("", &shape);
        page.cell("n", &units::bytes(entry.byte_len()));
        true
    }
}

fn figures(page: &mut Page, entry: &Entry, measured: &Measured) {
    let stats = &measured.stats;
    let is_float = entry.dtype().is_some_and(DType::is_float);
    // An extreme of integers has all its digits.
    let extreme = |text: Option<(String, f64)>| match text {
        None => "-".to_owned(),
        Some((_, value)) if is_float => units::number(value),
        Some((digits, _)) => digits,
    };
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), units::number);
    page.cell("n", &extreme(stats.min.map(|s| (s.to_string(), s.as_f64()))));
    page.cell("n", &extreme(stats.max.map(|s| (s.to_string(), s.as_f64()))));
    page.cell("n", &figure(stats.mean));
    page.cell("n", &figure(stats.std));
    page.cell("n", &units::share(stats.zeros, stats.count));
    for count in [stats.nan, stats.inf] {
        page.cell(if count > 0 { "n bad" } else { "n" }, &units::grouped(count));
    }
    let (width, height) = SIZE;
    match &measured.histogram {
        None => page.cell("dim", "-"),
        Some(bins) => {
            let bars = svg::bars(bins, width, height);
            page.put(&format!("<td><svg width=\"{width}\" height=\"{height}\" role=\"img\">{bars}</svg></td>"));
        }
    }
}

//! Writes the table of tensors, which are measured during the writing.

use blob_convert::stats::{Measured, measure_all};
use blob_core::DType;
use blob_io::words::Listed;
use blob_io::{Checkpoint, Entry, Error};

use super::page::Markup;
use super::{LISTED, ROWS};
use crate::broken::Broken;
use crate::failure::{Failure, Problem};
use crate::output::progress::Progress;
use crate::render::svg;
use crate::units;

/// The bins of a histogram in a row, and the histogram's size.
const BINS: usize = 24;
const SIZE: (usize, usize) = (96, 22);

const COLUMNS: [&str; 14] = [
    "##", "name", "layer", "dtype", "shape", "#bytes", "#min", "#max", "#mean", "#std", "#zero", "#NaN", "#Inf",
    "histogram",
];

/// A tensor that is not finite.
pub(super) struct Odd {
    /// The index of the entry.
    pub(super) index: usize,
    /// Whether the table of tensors has a row for the tensor.
    pub(super) is_shown: bool,
    pub(super) nan: u64,
    pub(super) inf: u64,
    pub(super) count: u64,
}

/// The findings of the measurement.
#[derive(Default)]
pub(super) struct Findings {
    /// The number of rows.
    pub(super) shown: u64,
    /// The numbers of measured values, of NaN and of infinite ones.
    pub(super) values: u64,
    pub(super) nan: u64,
    pub(super) inf: u64,
    pub(super) not_finite: Listed<Odd, LISTED>,
    pub(super) broken: Listed<String, LISTED>,
    /// Sound arrays that are not read.
    pub(super) unread: Listed<String, LISTED>,
}

/// Writes the table, and reports the arrays that cannot be read.
pub(super) fn tensors(
    page: &mut Markup,
    checkpoint: &Checkpoint,
    progress: &Progress,
    broken: &mut Broken<'_>,
) -> Result<Findings, Failure> {
    let entries = checkpoint.entries();
    page.heading("tensors", "Tensors");
    page.table("tensors", &COLUMNS);
    let measured: Vec<usize> = (0..entries.len()).filter(|index| is_measured(&entries[*index])).collect();
    let mut sheet = Sheet { page, entries, next: 0, findings: Findings::default() };
    measure_all(checkpoint, &measured, Some(BINS), progress, &mut |index, result| sheet.row(index, result, broken))?;
    sheet.rows_before(entries.len(), broken);
    let findings = sheet.findings;
    page.end_table();
    let more = entries.len() as u64 - findings.shown;
    if more > 0 {
        let more = units::plural(more, "more tensor");
        page.paragraph("dim", &format!("{more} in the file; each of them was measured."));
    }
    Ok(findings)
}

/// Whether the entry is measured. An absent array and one that is not read get a row without figures. A broken array
/// counts as measured, because the measurement reports the fault.
fn is_measured(entry: &Entry) -> bool {
    entry.dtype().is_some() || entry.fault().is_some() && entry.unread().is_none()
}

struct Sheet<'a> {
    page: &'a mut Markup,
    entries: &'a [Entry],
    /// The first entry that has no row yet.
    next: usize,
    findings: Findings,
}

impl Sheet<'_> {
    /// Writes the rows of the entries before this one that are not measured.
    fn rows_before(&mut self, index: usize, broken: &mut Broken<'_>) {
        for at in self.next..index {
            let entry = &self.entries[at];
            let unread = entry.unread();
            if let Some(why) = &unread {
                self.findings.unread.push(|| format!("{:?}: {why}", entry.name()));
                broken.unread(entry);
            }
            if !is_measured(entry) && self.begins_row(at) {
                let why = if unread.is_some() { "not read" } else { "no array" };
                self.page.span(8, "dim", why);
                self.page.end_row();
            }
        }
        self.next = index;
    }

    fn row(&mut self, index: usize, result: Result<Measured, Error>, broken: &mut Broken<'_>) -> Result<(), Error> {
        self.rows_before(index, broken);
        let entry = &self.entries[index];
        let is_shown = self.begins_row(index);
        match result {
            Ok(measured) => {
                let (nan, inf, count) = (measured.stats.nan, measured.stats.inf, measured.stats.count);
                self.findings.values += count;
                (self.findings.nan, self.findings.inf) = (self.findings.nan + nan, self.findings.inf + inf);
                if nan + inf > 0 {
                    self.findings.not_finite.push(|| Odd { index, is_shown, nan, inf, count });
                }
                if is_shown {
                    figures(self.page, entry, &measured);
                }
            }
            Err(error) => {
                let problem = match error {
                    Error::Interrupted => return Err(error),
                    error => Problem::from(&error),
                };
                self.findings.broken.push(|| problem.message.clone());
                broken.report(problem);
                if is_shown {
                    self.page.span(8, "bad", "cannot be read");
                }
            }
        }
        if is_shown {
            self.page.end_row();
        }
        Ok(())
    }

    /// Writes the cells before the figures, and returns true; false if the table is full.
    fn begins_row(&mut self, index: usize) -> bool {
        if self.findings.shown == ROWS {
            return false;
        }
        self.findings.shown += 1;
        let (page, entry) = (&mut *self.page, &self.entries[index]);
        page.put(&format!("<tr id=\"t{index}\">"));
        page.cell("n", &index.to_string());
        page.cell("name", entry.name());
        page.cell("", entry.layer_type().unwrap_or(""));
        page.cell("", entry.dtype().map(DType::name).or(entry.foreign_dtype()).unwrap_or("-"));
        let shape = if entry.fault().is_some() { "-".to_owned() } else { entry.shape().to_string() };
        page.cell("", &shape);
        page.cell("n", &units::grouped(entry.byte_len()));
        true
    }
}

fn figures(page: &mut Markup, entry: &Entry, measured: &Measured) {
    let stats = &measured.stats;
    let is_float = entry.dtype().is_some_and(DType::is_float);
    // Integers are printed exactly, not rounded through f64.
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
            let label = format!("values from {} to {}", units::number(bins.min), units::number(bins.max));
            page.put(&format!(
                "<td class=\"wide\"><svg width=\"{width}\" height=\"{height}\" role=\"img\" \
                 aria-label=\"{label}\">{bars}</svg></td>"
            ));
        }
    }
}

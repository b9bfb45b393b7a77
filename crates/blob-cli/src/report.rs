//! `blob report`: writes an HTML page about a file, and about differences from another file.

mod page;
mod provenance;
mod sheet;

use std::fs::File;
use std::path::Path;

use blob_convert::RECEIPT_KEY;
use blob_convert::diff::{Comparison, Row, Tally, Tolerance, diff};
use blob_convert::digest::{Algorithm, Subject, digest};
use blob_convert::report::json::{Document, FILE, Field, Fields, Type, field, nullable};
use blob_core::DType;
use blob_io::words::Listed;
use blob_io::{Checkpoint, Entry, FileSource};
use serde_json::json;

use crate::args::{Global, Report, if_exists};
use crate::broken::Broken;
use crate::context::Context;
use crate::diff::{distance, names, summary, word};
use crate::failure::{Failure, Problem, Status};
use crate::info::{file_warnings, kind_of};
use crate::inputs::is_stdin;
use crate::open::{open, open_some};
use crate::output::Out;
use crate::output::progress::Progress;
use crate::output::sink::{Content, Sink, check_stdout};
use crate::output::written::{Begun, Writes, Written, written_fields};
use crate::render::Text;
use crate::select::{by_names, found};
use crate::units;
use page::{Line, Markup};
use sheet::{Findings, tensors};

/// At most this many rows are shown in a table: with more, browsers become slow.
const ROWS: u64 = 4096;

/// At most this many warnings, metadata and findings are listed.
const LISTED: usize = 50;

pub(crate) fn run(args: &Report, context: &Context) -> Result<Status, Failure> {
    let begun = Begun::now(args.dry_run);
    check_stdout(&args.output, Content::Text, args.dry_run, &context.global)?;
    check_extension(&args.output)?;
    let selection = args.only.selection();
    let checkpoint = open_some(&args.file, &selection, &context.global)?;
    // --from is about the first file; the format of the other one is detected.
    let global = Global { from: None, ..context.global.clone() };
    let other = args.other.as_ref().map(|path| open(path, &global)).transpose()?;
    for source in [Some(&checkpoint), other.as_ref()].into_iter().flatten() {
        blob_convert::check_source(source, &args.output, if_exists(args.force))?;
    }
    let chosen = other.as_ref().map(|other| found(other, &by_names(other, &selection)?)).transpose()?;
    let other = other.zip(chosen).map(|(other, chosen)| other.only(&chosen.places));
    let bytes = |file: &Checkpoint| file.entries().iter().map(Entry::byte_len).sum::<u64>();
    let compared = other.as_ref().map_or(0, |other| bytes(&checkpoint) + bytes(other));
    let work = 2 * bytes(&checkpoint) + compared + checkpoint.file_len();
    let progress = Progress::begin(&context.terminal, work);
    let output = Sink::begin(&args.output, args.force, args.dry_run)?;
    let mut rows = Markup::default();
    let mut broken = Broken::new(&context.terminal, checkpoint.name());
    let findings = tensors(&mut rows, &checkpoint, &progress, &mut broken)?;
    let mut differences = Markup::default();
    let tally = match &other {
        Some(other) => Some(compare(&mut differences, &mut broken, [&checkpoint, other], &progress)?),
        None => None,
    };
    // The answer comes first, then the grounds, and the longest table last.
    let mut page = Markup::default();
    page.answer(&answer(&checkpoint, &findings, other.as_ref().zip(tally)));
    summarise(&mut page, &checkpoint, file_digest(&args.file, &progress)?);
    list(&mut page, &checkpoint, &findings);
    page.append(differences);
    warnings(&mut page, &checkpoint);
    provenance::write(&mut page, &checkpoint);
    page.append(rows);
    let bytes_out = page.write(checkpoint.name(), output)?;
    progress.end();
    let lacks = tally.is_some_and(|tally| tally.unread > 0) || findings.broken.count + findings.unread.count > 0;
    let written = Written::new(&args.output, "html", bytes_out, begun).tensors(checkpoint.entries().len());
    let written = Written { lacks, ..written };
    context.print(Reported { args, written, checkpoint: &checkpoint, other: other.as_ref(), findings, tally })?;
    Ok(broken.finish())
}

/// Refuses an output whose extension promises another kind of file than a page.
fn check_extension(output: &Path) -> Result<(), Failure> {
    match output.extension() {
        Some(extension) if !["html", "htm"].iter().any(|html| extension.eq_ignore_ascii_case(html)) => {
            let failure = Failure::new(format!("{}: a report is an HTML page", output.display()));
            Err(failure.help(format!("name it {}", output.with_extension("html").display())))
        }
        _ => Ok(()),
    }
}

/// The BLAKE3 of a file, as `blob hash` prints; `None` for a folder, a pipe or a member of an archive.
fn file_digest(path: &Path, progress: &Progress) -> Result<Option<String>, Failure> {
    let is_file = !is_stdin(path) && path.metadata().is_ok_and(|meta| meta.is_file());
    let Some(source) = File::open(path).ok().filter(|_| is_file).and_then(|file| FileSource::try_from(file).ok())
    else {
        return Ok(None);
    };
    let name = path.to_string_lossy();
    let subject = Subject::File { name: &name, source: &source };
    Ok(Some(digest(subject, Algorithm::Blake3, progress)?.digest))
}

/// The questions that a page is opened with: is all finite and whole, is all equal, how much is there?
fn answer(checkpoint: &Checkpoint, findings: &Findings, compared: Option<(&Checkpoint, Tally)>) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = |is_good, link, words: String, more: String| lines.push(Line { is_good, link, words, more });
    let tensors = units::plural(checkpoint.entries().len() as u64, "tensor");
    let values = units::plural(findings.values, "value");
    let (nan, inf) = (units::grouped(findings.nan), units::grouped(findings.inf));
    match findings.not_finite.count {
        0 => line(true, "tensors", format!("no NaN, no Inf in {values}"), String::new()),
        n => {
            let words = format!("{} of {tensors} with NaN or Inf", units::grouped(n));
            line(false, "not-finite", words, format!(": {nan} NaN, {inf} Inf among {values}"));
        }
    }
    if findings.broken.count > 0 {
        let words = format!("{} cannot be read", units::plural(findings.broken.count, "array"));
        line(false, "broken", words, String::new());
    }
    if findings.unread.count > 0 {
        let words = format!("{} of a kind that is not read", units::plural(findings.unread.count, "array"));
        line(false, "unread", words, String::new());
    }
    if let Some((other, tally)) = compared {
        let words = if tally.is_same() { "equal to" } else { "differs from" };
        line(tally.is_same(), "differences", format!("{words} {}", other.name()), format!(": {}", summary(&tally)));
    }
    let warnings = file_warnings(checkpoint).count() as u64;
    if warnings > 0 {
        line(false, "warnings", units::plural(warnings, "warning"), String::new());
    }
    let bytes = checkpoint.entries().iter().map(Entry::byte_len).sum();
    let parameters = units::plural(checkpoint.parameters(), "parameter");
    line(true, "tensors", tensors, format!(", {parameters} in {}", units::exact_bytes(bytes)));
    lines
}

/// Writes the file's format, size, digest, dtypes and metadata.
fn summarise(page: &mut Markup, checkpoint: &Checkpoint, blake3: Option<String>) {
    let entries = checkpoint.entries();
    let counts = DType::ALL.iter().map(|dtype| (dtype, entries.iter().filter(|e| e.dtype() == Some(*dtype)).count()));
    let counts = counts.filter(|(_, count)| *count > 0);
    let dtypes: Vec<String> =
        counts.map(|(dtype, count)| format!("{} {}", dtype.name(), units::grouped(count as u64))).collect();
    let mut facts = vec![
        ("format".to_owned(), kind_of(checkpoint)),
        ("size".to_owned(), units::exact_bytes(checkpoint.file_len())),
        ("dtypes".to_owned(), dtypes.join(", ")),
    ];
    facts.extend(blake3.map(|digest| ("BLAKE3".to_owned(), digest)));
    let metadata = checkpoint.metadata().iter().filter(|(key, _)| key != RECEIPT_KEY);
    facts.extend(metadata.take(LISTED).map(|(key, value)| (format!("metadata {key}"), value.clone())));
    page.heading("file", "File");
    page.facts(&facts);
}

fn warnings(page: &mut Markup, checkpoint: &Checkpoint) {
    let warnings: Listed<String, LISTED> = file_warnings(checkpoint).collect();
    if warnings.count > 0 {
        page.heading("warnings", "Warnings");
        page.list("", &warnings);
    }
}

/// Lists the tensors that are not finite or cannot be read.
fn list(page: &mut Markup, checkpoint: &Checkpoint, findings: &Findings) {
    if findings.not_finite.count > 0 {
        page.heading("not-finite", "NaN and Inf");
        page.table("odd", &["name", "dtype", "shape", "#NaN", "#Inf", "#values"]);
        for odd in &findings.not_finite.first {
            let entry = &checkpoint.entries()[odd.index];
            page.put("<tr>");
            if odd.is_shown {
                page.link(odd.index, entry.name())
            } else {
                page.cell("name", entry.name())
            }
            page.cell("", entry.dtype().map_or("-", DType::name));
            page.cell("", &entry.shape().to_string());
            for count in [odd.nan, odd.inf] {
                page.cell(if count > 0 { "n bad" } else { "n" }, &units::grouped(count));
            }
            page.cell("n", &units::grouped(odd.count));
            page.end_row();
        }
        page.end_table();
        page.more(findings.not_finite.more());
    }
    if findings.broken.count > 0 {
        page.heading("broken", "Arrays that cannot be read");
        page.list("bad", &findings.broken);
    }
    if findings.unread.count > 0 {
        page.heading("unread", "Sound arrays that are not read");
        page.list("", &findings.unread);
    }
}

/// Writes the table of differences from the other file, and reports the tensors that were not compared.
fn compare(
    page: &mut Markup,
    broken: &mut Broken<'_>,
    [ours, theirs]: [&Checkpoint; 2],
    progress: &Progress,
) -> Result<Tally, Failure> {
    page.heading("differences", &format!("Compared with {}", theirs.name()));
    page.table("changes", &["change", "name", "in the other", "#changed", "#max abs", "#max rel", "#rms"]);
    let (mut rows, mut notes) = (0, Vec::new());
    let tally = diff(ours, theirs, Tolerance::NONE, progress, &mut |note| notes.push(note), &mut |row| {
        if let Comparison::Unread(why) = &row.change {
            broken.report(Problem::unread(names(&row).0, why));
        }
        if !matches!(row.change, Comparison::Equal(_)) {
            rows += 1;
            if rows <= ROWS {
                changed(page, &row);
            }
        }
        Ok::<(), Failure>(())
    })?;
    page.end_table();
    page.more(rows.saturating_sub(ROWS));
    page.paragraph("", &summary(&tally));
    notes.truncate(LISTED);
    notes.iter().for_each(|note| page.paragraph("dim", note));
    Ok(tally)
}

/// Writes the row of a tensor that differs.
fn changed(page: &mut Markup, row: &Row) {
    page.put("<tr>");
    page.cell("", word(&row.change));
    let (name, other) = names(row);
    page.cell("name", name);
    page.cell("name", other.unwrap_or(""));
    match (&row.change, distance(row)) {
        (Comparison::Unread(why), _) => page.span(4, "bad", why),
        (_, None) => page.span(4, "dim", "values not compared"),
        (_, Some(d)) => {
            page.cell("n", &format!("{} of {}", units::grouped(d.changed), units::grouped(d.elements)));
            [d.max_abs, d.max_rel, d.rms()].iter().for_each(|figure| page.cell("n", &units::number(*figure)));
        }
    }
    page.end_row();
}

/// The result of the command.
pub(crate) struct Reported<'a> {
    args: &'a Report,
    written: Written<'a>,
    checkpoint: &'a Checkpoint,
    other: Option<&'a Checkpoint>,
    findings: Findings,
    tally: Option<Tally>,
}

impl Writes for Reported<'_> {
    fn written(&self) -> &Written<'_> {
        &self.written
    }
}

impl Text for Reported<'_> {
    fn text(self, context: &Context, _: &mut Out) -> Result<(), Failure> {
        let terminal = &context.terminal;
        let counts = [
            (self.findings.not_finite.count, "with NaN or Inf"),
            (self.findings.broken.count, "that cannot be read"),
            (self.findings.unread.count, "not read"),
            (self.tally.map_or(0, |tally| tally.unread), "not compared"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let details: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
        terminal.written(&self.written, &details);
        Ok(())
    }
}

impl Document for Reported<'_> {
    const SCHEMA: &'static str = "blob.report/1";
    const COMMAND: &'static str = "blob report --json FILE [OTHER] -o OUT";
    const DESCRIPTION: &'static str = "what a page was written about";

    fn sources(&self) -> Vec<&Checkpoint> {
        std::iter::once(self.checkpoint).chain(self.other).collect()
    }
}

impl Fields for Reported<'_> {
    fn fields() -> Vec<Field<Self>> {
        let own = vec![
            field("file", Type::String, FILE, |r: &Self| json!(r.checkpoint.name())),
            nullable("other", Type::String, "the file that it is compared with", |r| {
                json!(r.args.other.as_ref().map(|path| path.to_string_lossy()))
            }),
            field("shown", Type::Integer, "how many have a row", |r| json!(r.findings.shown)),
            field("not_finite", Type::Integer, "how many hold NaN or Inf", |r| json!(r.findings.not_finite.count)),
            field("broken", Type::Integer, "how many cannot be read", |r| json!(r.findings.broken.count)),
            field("unread", Type::Integer, "how many are sound and not read", |r| json!(r.findings.unread.count)),
            nullable("uncompared", Type::Integer, "how many of the tensors in both could not be compared", |r| {
                json!(r.tally.map(|t| t.unread))
            }),
            nullable("differ", Type::Integer, "how many are not equal in the other file", |r| {
                json!(r.tally.map(|t| t.changed + t.added + t.removed + t.renamed + t.unread))
            }),
        ];
        own.into_iter().chain(written_fields()).collect()
    }
}

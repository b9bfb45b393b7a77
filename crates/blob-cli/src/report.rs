//! `blob report`: writes an HTML page about a file, and about its differences from another file.

mod page;
mod provenance;
mod sheet;

use std::path::Path;

use blob_convert::RECEIPT_KEY;
use blob_convert::diff::{Change, Row, Tally, Tolerance, diff};
use blob_core::DType;
use blob_io::{Checkpoint, Entry, Error};
use serde_json::json;

use crate::args::{Global, Report, if_exists};
use crate::broken::Broken;
use crate::context::Context;
use crate::diff::{distance, names, summary, word};
use crate::failure::{Failure, Status};
use crate::info::{file_warnings, kind_of};
use crate::json::{Document, FILE, Field, Fields, Type, field, nullable};
use crate::open::open;
use crate::output::Out;
use crate::output::progress::Progress;
use crate::output::sink::{Content, Sink, check_stdout};
use crate::output::written::{Begun, Writes, Written, written_fields};
use crate::render::Text;
use crate::source;
use crate::units;
use page::Page;
use sheet::{Findings, tensors};

/// At most this many rows are shown in a table: with more, browsers become slow.
const ROWS: u64 = 4096;

/// At most this many warnings, metadata and findings are listed.
const LISTED: usize = 50;

pub(crate) fn run(args: &Report, context: &Context) -> Result<Status, Failure> {
    let begun = Begun::now(args.dry_run);
    check_stdout(&args.output, Content::Text, args.dry_run, context)?;
    check_extension(&args.output)?;
    for input in [Some(&args.file), args.other.as_ref()].into_iter().flatten() {
        source::check_output(input, &args.output, if_exists(args.force))?;
    }
    let checkpoint = open(&args.file, &context.global)?;
    source::check_shards(&checkpoint, &args.output)?;
    // --from is about the first file; the format of the other one is detected.
    let global = Global { from: None, ..context.global.clone() };
    let other = args.other.as_ref().map(|path| open(path, &global)).transpose()?;
    let bytes = |file: &Checkpoint| file.entries().iter().map(Entry::byte_len).sum::<u64>();
    let compared = other.as_ref().map_or(0, |other| bytes(&checkpoint) + bytes(other));
    let progress = Progress::begin(&context.terminal, 2 * bytes(&checkpoint) + compared);
    let output = Sink::begin(&args.output, args.force, args.dry_run)?;
    let mut page = Page::begin(output, checkpoint.name());
    summarise(&mut page, &checkpoint);
    let mut broken = Broken::new(&context.terminal, checkpoint.name());
    let findings = tensors(&mut page, &checkpoint, &progress, &mut broken)?;
    list(&mut page, &findings);
    provenance::write(&mut page, &checkpoint)?;
    let tally = match &other {
        Some(other) => Some(compare(&mut page, &checkpoint, other, &progress)?),
        None => None,
    };
    let bytes_out = page.finish()?;
    progress.end();
    let unread = tally.map_or(0, |tally| tally.unread);
    let lacks = unread > 0 || findings.broken.1 > 0;
    let written = Written::new(&args.output, "html", bytes_out, begun).tensors(checkpoint.entries().len());
    let written = Written { lacks, ..written };
    context.print(Reported { args, written, checkpoint: &checkpoint, findings, tally })?;
    Ok(broken.finish().max(if unread > 0 { Status::Trouble } else { Status::Yes }))
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

/// Writes the file's format, sizes, dtypes, metadata and warnings.
fn summarise(page: &mut Page, checkpoint: &Checkpoint) {
    let entries = checkpoint.entries();
    let bytes: u64 = entries.iter().map(Entry::byte_len).sum();
    let dtype = |dtype: &DType| (dtype.name(), entries.iter().filter(|e| e.dtype() == Some(*dtype)).count() as u64);
    let dtypes = DType::ALL.iter().map(dtype).filter(|(_, n)| *n > 0);
    let dtypes: Vec<String> = dtypes.map(|(name, n)| format!("{name} {}", units::grouped(n))).collect();
    let mut facts = vec![
        ("format".to_owned(), kind_of(checkpoint)),
        ("size".to_owned(), units::bytes(checkpoint.file_len())),
        ("tensors".to_owned(), units::grouped(entries.len() as u64)),
        ("parameters".to_owned(), format!("{} in {}", units::grouped(checkpoint.parameters()), units::bytes(bytes))),
        ("dtypes".to_owned(), dtypes.join(", ")),
    ];
    let metadata = checkpoint.metadata().iter().filter(|(key, _)| key != RECEIPT_KEY);
    facts.extend(metadata.take(LISTED).map(|(key, value)| (format!("metadata {key}"), value.clone())));
    page.facts(&facts);
    let warnings: Vec<String> = file_warnings(checkpoint).take(LISTED).collect();
    let more = file_warnings(checkpoint).skip(LISTED).count() as u64;
    if !warnings.is_empty() {
        page.heading("Warnings");
        page.list("", &warnings, more);
    }
}

/// Lists the tensors that are not finite or cannot be read.
fn list(page: &mut Page, findings: &Findings) {
    for (title, (lines, count)) in
        [("NaN and Inf", &findings.not_finite), ("Arrays that cannot be read", &findings.broken)]
    {
        if *count > 0 {
            page.heading(title);
            page.list("bad", lines, count - lines.len() as u64);
        }
    }
}

/// Writes the table of differences from the other file.
fn compare(page: &mut Page, ours: &Checkpoint, theirs: &Checkpoint, progress: &Progress) -> Result<Tally, Failure> {
    page.heading(&format!("Compared with {}", theirs.name()));
    page.table(&["change", "name", "in the other", "#changed", "#max abs", "#max rel", "#rms"]);
    let (mut rows, mut notes) = (0, Vec::new());
    let tally = diff(ours, theirs, Tolerance::NONE, progress, &mut |note| notes.push(note), &mut |row| {
        if matches!(row.change, Change::Equal(_)) {
            return Ok(());
        }
        rows += 1;
        if rows <= ROWS { changed(page, &row) } else { Ok(()) }
    })?;
    page.end_table();
    page.paragraph("", &summary(&tally));
    notes.truncate(LISTED);
    notes.iter().for_each(|note| page.paragraph("dim", note));
    Ok(tally)
}

/// Writes the row of a tensor that differs.
fn changed(page: &mut Page, row: &Row) -> Result<(), Error> {
    page.put("<tr>");
    page.cell("", word(&row.change));
    let (name, other) = names(row);
    page.cell("name", name);
    page.cell("name", other.unwrap_or(""));
    match distance(row) {
        Some(d) => {
            page.cell("n", &format!("{} of {}", units::grouped(d.changed), units::grouped(d.elements)));
            [d.max_abs, d.max_rel, d.rms()].iter().for_each(|figure| page.cell("n", &units::number(*figure)));
        }
        None => (0..4).for_each(|_| page.cell("n", "-")),
    }
    page.end_row()
}

/// The result of the command.
pub(crate) struct Reported<'a> {
    args: &'a Report,
    written: Written<'a>,
    checkpoint: &'a Checkpoint,
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
        let counts = [(self.findings.not_finite.1, "with NaN or Inf"), (self.findings.broken.1, "that cannot be read")];
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
}

impl Fields for Reported<'_> {
    fn fields() -> Vec<Field<Self>> {
        let own = vec![
            field("file", Type::String, FILE, |r: &Self| json!(r.checkpoint.name())),
            nullable("other", Type::String, "the file that it is compared with", |r| {
                json!(r.args.other.as_ref().map(|path| path.to_string_lossy()))
            }),
            field("shown", Type::Integer, "how many have a row", |r| json!(r.findings.shown)),
            field("not_finite", Type::Integer, "how many hold NaN or Inf", |r| json!(r.findings.not_finite.1)),
            field("broken", Type::Integer, "how many cannot be read", |r| json!(r.findings.broken.1)),
            nullable("differ", Type::Integer, "how many are not equal in the other file", |r| {
                json!(r.tally.map(|t| t.changed + t.added + t.removed + t.renamed + t.unread))
            }),
        ];
        own.into_iter().chain(written_fields()).collect()
    }
}

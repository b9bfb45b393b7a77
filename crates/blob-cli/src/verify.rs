//! `blob verify`: checks that a file is whole, has finite values, and equals another file.
//!
//! `blob_convert::verify` does the checks; this module prints the results and sets the exit code.

mod finite;
mod report;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blob_convert::digest::{Algorithm, Subject, digest};
use blob_convert::recipe::NetFile;
use blob_convert::transform::{Topology, ignored};
use blob_convert::verify::{By, Finding, Remark};
use blob_convert::{RECEIPT_KEY, Selection, momentum, verify};
use blob_core::DType;
use blob_io::mxnet::Symbol;
use blob_io::{Checkpoint, Entry, Error, Reason, read_text};

use crate::args::{Global, Verify};
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::info::file_warnings;
use crate::open::{name, open, open_whole};
use crate::output::Out;
use crate::output::progress::Progress;
use crate::output::signals::Work;
use crate::select::{by_names, found, select};
use crate::units;

use finite::finite;
pub(crate) use report::Verdict;
use report::{Line, Report};

/// The most bytes of a symbol file; the reader refuses longer ones.
const LONGEST_SYMBOL: u64 = 128 << 20;

pub(crate) fn run(args: &Verify, context: &Context) -> Result<Status, Failure> {
    if args.files.len() > 1 && (!args.against.is_empty() || args.sha256.is_some()) {
        return Err(Failure::new("--against and --sha256 check one file"));
    }
    // --from is about the file that is checked; the formats of the others are detected.
    let detect = Global { from: None, ..context.global.clone() };
    let files = args.against.iter().map(|path| open(path, &detect)).collect::<Result<Vec<_>, _>>()?;
    let symbol = args.symbol.as_deref().map(Described::open).transpose()?.flatten();
    let net = args.net.clone().map(|path| NetFile::Prototxt(path).read()).transpose()?;
    let net = net.or_else(|| symbol.as_ref().map(|symbol| Arc::clone(&symbol.net)));
    let by = By { net, ..By::default() };
    let mut others = Others { files, symbol, by, selection: args.only.selection(), is_part: false };
    let mut out = context.terminal.out();
    let mut counts = FileCounts::default();
    let mut files = Vec::new();
    for path in &args.files {
        files.push(path.clone());
        files.extend(beside_shards(path, args, context)?);
    }
    for path in &files {
        counts.add(check(path, args, &mut others, context, &mut out)?);
        out.flush()?;
    }
    if files.len() > 1 && !context.global.json && !context.global.quiet {
        writeln!(out, "{}", counts.text())?;
        out.flush()?;
    }
    Ok(counts.status())
}

/// The other files of tensors in a folder that is opened by its index of shards: a whole folder has whole files.
fn beside_shards(path: &Path, args: &Verify, context: &Context) -> Result<Vec<PathBuf>, Error> {
    let is_compared = !args.against.is_empty() || args.sha256.is_some();
    // A file that cannot be opened is reported by the check.
    let folder = path.is_dir().then(|| open_whole(path, &context.global).ok()).flatten();
    folder.filter(|_| !is_compared).map_or(Ok(Vec::new()), |folder| folder.beside_shards())
}

/// The contents of a symbol file: the variables, and the net.
struct Described {
    symbol: Symbol,
    net: Arc<Topology>,
}

impl Described {
    fn new(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        Ok(Self { symbol: Symbol::from_bytes(name, bytes)?, net: Arc::new(Topology::symbol(name, bytes)?) })
    }

    /// Reads the file of this path; `None` for a mere name that is no file here, as the file may lie beside the model.
    fn open(path: &Path) -> Result<Option<Self>, Error> {
        match read_text(path, LONGEST_SYMBOL) {
            Ok(bytes) => Self::new(&path.to_string_lossy(), &bytes).map(Some),
            Err(e) if e.reason() == Reason::Missing && path.file_name() == Some(path.as_os_str()) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Reads the file of this name beside the model, also in the archive.
    fn beside(checkpoint: &Checkpoint, path: &Path) -> Result<Self, Error> {
        let name = path.to_string_lossy();
        match checkpoint.beside(&name)? {
            Some(bytes) => Self::new(&name, &bytes),
            None => Self::new(&name, &read_text(path, LONGEST_SYMBOL)?),
        }
    }
}

/// The files to compare with.
struct Others {
    files: Vec<Checkpoint>,
    symbol: Option<Described>,
    /// The net that a receipt's transforms may have followed.
    by: By,
    /// The tensors to check.
    selection: Selection,
    /// Whether the only one of `files` has only those that are chosen of it.
    is_part: bool,
}

impl Others {
    /// The chosen tensors of a file. The file to compare with keeps all where transforms are repeated with them.
    fn part(&mut self, checkpoint: Checkpoint) -> Result<Checkpoint, Failure> {
        if self.selection.is_all() {
            return Ok(checkpoint);
        }
        let places = select(&checkpoint, &self.selection)?;
        let is_single = self.files.len() == 1;
        let is_replayed = verify::replay(&checkpoint, &self.by.registry, &mut |_| {}) > 0;
        if let Some(other) = self.files.pop_if(|_| is_single && !is_replayed) {
            let chosen = found(&other, &by_names(&other, &self.selection)?)?;
            self.is_part = true;
            self.files.push(other.only(&chosen.places));
        }
        Ok(checkpoint.only(&places))
    }

    /// Whether a finding is about the tensors to check, not about others of the receipt.
    fn is_meant(&self, finding: &Finding, checkpoint: &Checkpoint) -> bool {
        let name = &finding.tensor;
        self.selection.is_all()
            || checkpoint.entry(name).is_some()
            || self.is_part && self.files.iter().any(|file| file.entry(name).is_some())
    }
}

/// The number of files by result.
#[derive(Default)]
struct FileCounts {
    ok: u64,
    failed: u64,
    not_read: u64,
}

impl FileCounts {
    fn add(&mut self, status: Status) {
        match status {
            Status::Yes => self.ok += 1,
            Status::No => self.failed += 1,
            Status::Trouble => self.not_read += 1,
        }
    }

    fn status(&self) -> Status {
        match (self.failed, self.not_read) {
            (0, 0) => Status::Yes,
            (_, 0) => Status::No,
            _ => Status::Trouble,
        }
    }

    /// `12 ok, 1 failed, 2 not read`
    fn text(&self) -> String {
        let rest = [(self.failed, "failed"), (self.not_read, "not read")];
        let rest = rest.iter().filter(|(n, _)| *n > 0);
        let rest = rest.map(|(n, what)| format!(", {} {what}", units::grouped(*n)));
        format!("{} ok{}", units::grouped(self.ok), rest.collect::<String>())
    }
}

/// Checks one file and prints the findings.
///
/// # Errors
/// Only a signal or an error of standard output. A file that cannot be read is reported as trouble.
fn check(path: &Path, args: &Verify, others: &mut Others, context: &Context, out: &mut Out) -> Result<Status, Failure> {
    let checkpoint = match open_whole(path, &context.global) {
        Ok(checkpoint) => checkpoint,
        Err(e) if e.reason().is_broken() => return report_broken(path, &e, args, context, out),
        Err(e) => {
            out.flush()?;
            let failure = Failure::from(e);
            if failure.is_last() {
                return Err(failure);
            }
            context.failed(Some(&name(path)), &failure);
            return Ok(Status::Trouble);
        }
    };
    let bytes = Some(checkpoint.file_len());
    let checkpoint = match others.part(checkpoint) {
        Ok(checkpoint) => checkpoint,
        Err(failure) => {
            out.flush()?;
            context.failed(Some(&name(path)), &failure);
            return Ok(failure.status());
        }
    };
    let others = &*others;
    let _work = Work::begin();
    let mut report = Report::new(checkpoint.name().to_owned(), bytes, args, context, out);
    report.compare_with(&others.files);
    report.describe(&checkpoint);
    match checks(&checkpoint, args, others, context, &mut report) {
        Ok(()) => {
            let status = if report.is_ok() { Status::Yes } else { Status::No };
            report.finish(None)?;
            Ok(status)
        }
        Err(e) => {
            let mut failure = Failure::from(e);
            // Without any array that is read there is nothing left to check.
            if checkpoint.entries().iter().any(|entry| entry.unread().is_none()) {
                failure = failure.for_command(&context.command);
            }
            report.finish(failure.problem())?;
            out.flush()?;
            if failure.is_last() {
                return Err(failure.in_json());
            }
            context.terminal.error(&failure);
            Ok(Status::Trouble)
        }
    }
}

fn checks(
    checkpoint: &Checkpoint,
    args: &Verify,
    others: &Others,
    context: &Context,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    let progress = Progress::begin(&context.terminal, work(checkpoint, args, &others.files));
    verify::arrays(checkpoint, &progress, &mut |remark| report.remark(remark))?;
    for fault in checkpoint.faults() {
        report.finding(Line::of_fault(fault));
    }
    for warning in file_warnings(checkpoint) {
        if args.strict { report.finding(Line::of_file(Reason::Warning, warning)) } else { report.note(warning) }
    }
    let beside = args.symbol.as_ref().filter(|_| others.symbol.is_none());
    let beside = beside.map(|path| Described::beside(checkpoint, path)).transpose()?;
    let described = others.symbol.as_ref().or(beside.as_ref());
    let net = described.map(|described| &described.net).or(others.by.net.as_ref());
    ignored(checkpoint, net.map(|net| &**net)).iter().for_each(|ignored| report.note(ignored.to_string()));
    momentum(checkpoint).into_iter().for_each(|words| report.note(words));
    if others.selection.is_all() {
        verify::claims(checkpoint, &mut |remark| report.remark(remark));
    }
    let written = verify::receipt(checkpoint, &progress, &mut |finding| {
        if others.is_meant(&finding, checkpoint) {
            report.finding(Line::from(finding));
        }
    })?;
    if let Some(equal) = written {
        let digests = units::plural(equal, "digest");
        report.passed(format!("{digests} as in the receipt"));
    }
    if args.replay {
        let before = report.count();
        let steps = verify::replay(checkpoint, &others.by.registry, &mut |remark| report.remark(remark));
        if report.count() == before {
            report.passed(format!("{} in the receipt", units::plural(steps as u64, "transform")));
        }
    }
    finite(checkpoint, args, context, &progress, report)?;
    if let Some(expected) = &args.sha256 {
        sha256(checkpoint, expected, &progress, report)?;
    }
    if let Some(Described { symbol, .. }) = described {
        let before = report.count();
        // Steps that are repeated may rename and turn tensors: the symbol is about the tensors before.
        let source = others.files.first().filter(|_| verify::replay(checkpoint, &others.by.registry, &mut |_| {}) > 0);
        let equal = verify::symbol(source.unwrap_or(checkpoint), symbol, &mut |remark| report.remark(remark));
        if report.count() == before {
            let of = source.map_or(String::new(), |source| format!(" of {}", source.name()));
            report.passed(format!("{}{of} as in {}", units::plural(equal, "variable"), symbol.name));
        }
    }
    compare(checkpoint, others, &progress, report)
}

/// Compares with the other files, if there are any.
fn compare(
    checkpoint: &Checkpoint,
    others: &Others,
    progress: &Progress,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    if others.files.is_empty() {
        return Ok(());
    }
    let before = report.count();
    let compared = verify::against_all(checkpoint, &others.files, &others.by, progress, &mut |remark| match &remark {
        Remark::Finding(finding) if !finding.tensor.is_empty() && !others.is_meant(finding, checkpoint) => {}
        _ => report.remark(remark),
    })?;
    if report.count() == before {
        let equal = units::plural(compared.equal, "tensor");
        let named: Vec<&str> = others.files.iter().map(Checkpoint::name).collect();
        let named = named.join(", ");
        let passed = match compared.redone {
            0 => format!("{equal} bit for bit as in {named}"),
            1 => format!("{equal} bit for bit what 1 transform makes of {named}"),
            steps => format!("{equal} bit for bit what {steps} transforms make of {named}"),
        };
        report.passed(passed);
        if compared.receipt {
            report.passed("its receipt made again, file names and versions aside".to_owned());
        }
        if compared.graph {
            report.passed("its graph made again of the net".to_owned());
        }
    }
    Ok(())
}

fn sha256(checkpoint: &Checkpoint, expected: &str, progress: &Progress, report: &mut Report<'_>) -> Result<(), Error> {
    let file = Subject::File { name: checkpoint.name(), source: checkpoint.stored() };
    let found = digest(file, Algorithm::Sha256, progress)?.digest;
    if found == *expected {
        report.passed("SHA-256 as expected".to_owned())
    } else {
        report.finding(Line::of_file(Reason::Sha256, format!("SHA-256 is {found}, expected {expected}")))
    }
    Ok(())
}

/// The bytes that the checks will read.
fn work(checkpoint: &Checkpoint, args: &Verify, others: &[Checkpoint]) -> u64 {
    let payload = |c: &Checkpoint| c.entries().iter().map(Entry::byte_len).sum::<u64>();
    let entries = checkpoint.entries().iter();
    let bools = entries.clone().filter(|e| e.dtype() == Some(DType::Bool)).map(Entry::byte_len);
    let mut work = entries.filter_map(Entry::checked_len).chain(bools).sum();
    if args.finite {
        work += payload(checkpoint);
    }
    if checkpoint.metadata().iter().any(|(k, _)| k == RECEIPT_KEY) {
        work += payload(checkpoint);
    }
    if args.sha256.is_some() {
        work += checkpoint.stored().len();
    }
    if !others.is_empty() {
        work += payload(checkpoint) + others.iter().map(payload).sum::<u64>();
    }
    work
}

/// Reports a broken file that does not open, as a finding.
fn report_broken(path: &Path, e: &Error, args: &Verify, context: &Context, out: &mut Out) -> Result<Status, Failure> {
    let bytes = std::fs::metadata(path).ok().map(|m| m.len());
    let mut report = Report::new(name(path), bytes, args, context, out);
    report.broken(e);
    report.finish(None)?;
    Ok(Status::No)
}

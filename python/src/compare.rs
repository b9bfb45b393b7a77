//! `verify`, `diff` and `hash`: the findings of the tool's commands of these names, as values.

use std::path::PathBuf;

use blob_convert::diff::{Comparison, Distance, Row, Tally, Tolerance, diff as compare};
use blob_convert::digest::{Algorithm, Subject, digest};
use blob_convert::recipe::NetFile;
use blob_convert::transform::ignored;
use blob_convert::verify::{self, By, Finding, Remark};
use blob_io::mxnet::Symbol;
use blob_io::{Checkpoint, Entry, Error, FileSource, Reason, Source};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::Stop;
use crate::file::{File, class};
use crate::work::{Progress, beside};

/// The findings of checks.
#[derive(Default)]
struct Found {
    is_strict: bool,
    findings: Vec<Finding>,
    notes: Vec<String>,
}

impl Found {
    fn remark(&mut self, remark: Remark) {
        match remark {
            Remark::Finding(finding) => self.findings.push(finding),
            Remark::Note(text) => self.notes.push(text),
            Remark::Unproven(finding) if self.is_strict => self.findings.push(finding),
            Remark::Unproven(finding) => self.notes.push(finding.message),
            Remark::Unread(finding) => self.notes.push(format!("{:?} {}", finding.tensor, finding.message)),
            Remark::Redone(redone) => {
                let (transform, tensors, said_by) = (redone.transform, redone.tensors, redone.said_by);
                self.notes.push(format!("{transform} gives {tensors} tensors other values: {said_by}"));
            }
            _ => {}
        }
    }
}

/// Checks an open file: `blob verify`.
#[pyfunction]
#[pyo3(signature = (file, *, against=None, finite=false, strict=false, is_part=false, net=None, symbol=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn check<'py>(
    py: Python<'py>,
    file: &File,
    against: Option<&File>,
    finite: bool,
    strict: bool,
    is_part: bool,
    net: Option<PathBuf>,
    symbol: Option<PathBuf>,
    progress: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>, Stop> {
    let (opened, other) = (file.opened()?, against.map(File::opened).transpose()?);
    let bytes: u64 = opened.checkpoint.entries().iter().map(Entry::byte_len).sum();
    let total = bytes * (1 + u64::from(finite) + u64::from(other.is_some()));
    let progress = Progress::new(progress)?;
    let found = beside(py, &progress, total, move |watch| {
        let (checkpoint, other) = (&opened.checkpoint, other.as_ref().map(|other| &other.checkpoint));
        // Of a part, a receipt and another file say more than is asked for.
        let is_meant =
            |finding: &Finding| !is_part || finding.tensor.is_empty() || checkpoint.entry(&finding.tensor).is_some();
        let mut found = Found { is_strict: strict, ..Found::default() };
        verify::arrays(checkpoint, watch, &mut |remark| found.remark(remark))?;
        found.findings.extend(checkpoint.faults().iter().map(|fault| Finding::of_fault("", fault)));
        for warning in checkpoint.warnings() {
            found.remark(Remark::Unproven(Finding::new("", Reason::Warning, warning.to_string())));
        }
        let described = net.map(NetFile::Prototxt).or_else(|| other.and(symbol.clone()).map(NetFile::Symbol));
        let by = By { net: described.map(|file| file.read()).transpose()?, ..By::default() };
        found.notes.extend(ignored(checkpoint, by.net.as_deref()).iter().map(ToString::to_string));
        if !is_part {
            verify::claims(checkpoint, &mut |remark| found.remark(remark));
        }
        verify::receipt(checkpoint, watch, &mut |finding| {
            found.findings.extend(is_meant(&finding).then_some(finding))
        })?;
        if finite {
            verify::finite(checkpoint, watch, &mut |remark| found.remark(remark))?;
        }
        if let Some(path) = symbol {
            let symbol = Symbol::open(&path)?;
            let source = other.filter(|_| verify::replay(checkpoint, &by.registry, &mut |_| {}) > 0);
            verify::symbol(source.unwrap_or(checkpoint), &symbol, &mut |remark| found.remark(remark));
        }
        if let Some(other) = other {
            verify::against_by(checkpoint, other, &by, watch, &mut |remark| match remark {
                Remark::Finding(finding) if !is_meant(&finding) => {}
                remark => found.remark(remark),
            })?;
        }
        [Some(checkpoint), other].into_iter().flatten().try_for_each(Checkpoint::unchanged)?;
        Ok(found)
    })?;
    let finding = class(py, "Finding")?;
    let findings = found.findings.into_iter().map(|f| {
        let tensor = (!f.tensor.is_empty()).then_some(f.tensor);
        finding.call1((tensor, f.message, f.reason.as_str(), f.offset))
    });
    let findings: Vec<_> = findings.collect::<PyResult<_>>()?;
    Ok(class(py, "Report")?.call1((findings, found.notes))?)
}

/// Compares two open files: `blob diff`.
#[pyfunction]
#[pyo3(signature = (a, b, *, rtol=0.0, atol=0.0, ulp=None, exact=false, progress=None))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn diff<'py>(
    py: Python<'py>,
    a: &File,
    b: &File,
    rtol: f64,
    atol: f64,
    ulp: Option<u64>,
    exact: bool,
    progress: Option<&Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>, Stop> {
    let is_close = rtol != 0.0 || atol != 0.0;
    let tolerance = match (exact, ulp) {
        (false, None) => Tolerance::Close { relative: rtol, absolute: atol },
        (false, Some(ulp)) if !is_close => Tolerance::Ulp(ulp),
        (true, None) if !is_close => Tolerance::Exact,
        _ => return Err(PyValueError::new_err("one tolerance at a time: rtol and atol, ulp, or exact").into()),
    };
    let (ours, theirs) = (a.opened()?, b.opened()?);
    let total = [&ours, &theirs].iter().map(|opened| opened.checkpoint.file_len()).sum();
    let progress = Progress::new(progress)?;
    let (tally, rows, notes) = beside(py, &progress, total, move |watch| {
        let (mut rows, mut notes) = (Vec::new(), Vec::new());
        let tally = compare(
            &ours.checkpoint,
            &theirs.checkpoint,
            tolerance,
            watch,
            &mut |text| notes.push(text),
            &mut |row| {
                rows.push(row);
                Ok::<(), Error>(())
            },
        )?;
        Ok((tally, rows, notes))
    })?;
    let rows: Vec<_> = rows.iter().map(|row| row_of(py, row)).collect::<PyResult<_>>()?;
    let Tally { equal, renamed, changed, removed, added, unread, .. } = tally;
    Ok(class(py, "Diff")?.call1((rows, notes, equal, renamed, changed, removed, added, unread))?)
}

fn row_of<'py>(py: Python<'py>, row: &Row) -> PyResult<Bound<'py, PyAny>> {
    let (change, distance, reason): (&str, Option<&Distance>, Option<&str>) = match &row.change {
        Comparison::Equal(distance) => ("equal", Some(distance), None),
        Comparison::Renamed => ("renamed", None, None),
        Comparison::Removed => ("removed", None, None),
        Comparison::Added => ("added", None, None),
        Comparison::Values(distance) => ("values", Some(distance), None),
        Comparison::DType(distance) => ("dtype", Some(distance), None),
        Comparison::Shape => ("shape", None, None),
        Comparison::Unread(why) => ("unread", None, Some(why)),
    };
    let name = |tensor: &Option<blob_convert::diff::Tensor>| tensor.as_ref().map(|tensor| tensor.name.clone());
    let numbers = distance.map(|d| (d.elements, d.changed, d.max_abs, d.max_rel, d.rms()));
    let distance = numbers.map(|numbers| class(py, "Distance")?.call1(numbers)).transpose()?;
    class(py, "DiffRow")?.call1((name(&row.ours), name(&row.theirs), change, distance, reason))
}

/// The digest of an open file's tensors: `blob hash --content`.
#[pyfunction]
#[pyo3(signature = (file, *, sha256=false, progress=None))]
pub(crate) fn content_hash(
    py: Python<'_>,
    file: &File,
    sha256: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> Result<String, Stop> {
    let opened = file.opened()?;
    let bytes = opened.checkpoint.entries().iter().map(Entry::byte_len).sum();
    hashed(py, Subject::Tensors(&opened.checkpoint), sha256, progress, bytes)
}

/// The digest of a file's bytes, whatever the file is: `blob hash`.
#[pyfunction]
#[pyo3(signature = (path, *, sha256=false, progress=None))]
pub(crate) fn file_hash(
    py: Python<'_>,
    path: PathBuf,
    sha256: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> Result<String, Stop> {
    let name = path.display().to_string();
    let source = FileSource::open(&path).map_err(|source| Error::Open { file: name.clone(), source })?;
    hashed(py, Subject::File { name: &name, source: &source }, sha256, progress, Source::len(&source))
}

fn hashed(
    py: Python<'_>,
    subject: Subject<'_>,
    sha256: bool,
    progress: Option<&Bound<'_, PyAny>>,
    bytes: u64,
) -> Result<String, Stop> {
    let algorithm = if sha256 { Algorithm::Sha256 } else { Algorithm::Blake3 };
    let progress = Progress::new(progress)?;
    Ok(beside(py, &progress, bytes, |watch| digest(subject, algorithm, watch))?.digest)
}

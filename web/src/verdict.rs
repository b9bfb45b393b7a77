//! The faults of a file: the checks of `blob verify` that need no other file.

use blob_convert::report::facts::file_warnings;
use blob_convert::report::json;
use blob_convert::report::problem::Problem;
use blob_convert::transform::Registry;
use blob_convert::verify::{self, Finding, Remark};
use blob_convert::{Watch, momentum};
use blob_io::{Checkpoint, Error};
use serde_json::{Value, json};

/// At most this many findings and notes are listed; all are counted.
const LISTED: usize = 200;

#[derive(Default)]
struct Verdict {
    findings: Vec<Value>,
    notes: Vec<String>,
    held: Vec<String>,
    count: usize,
    note_count: usize,
}

impl Verdict {
    fn finding(&mut self, finding: &Finding) {
        self.count += 1;
        if self.count <= LISTED {
            self.findings.push(json!({ "reason": finding.reason.as_str(), "tensor": finding.tensor,
                "offset": finding.offset, "message": finding.message }));
        }
    }

    fn note(&mut self, note: String) {
        self.note_count += 1;
        if self.note_count <= LISTED {
            self.notes.push(note);
        }
    }

    fn remark(&mut self, remark: Remark) {
        match remark {
            Remark::Finding(finding) => self.finding(&finding),
            Remark::Note(note) => self.note(note),
            Remark::Unproven(finding) => self.note(finding.message),
            Remark::Unread(finding) => self.note(format!("{:?} {}", finding.tensor, finding.message)),
            _ => {}
        }
    }

    /// Adds the check to those that held, unless it has found something.
    fn check(&mut self, held: &str, work: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        let before = self.count;
        work(self)?;
        if self.count == before {
            self.held.push(held.to_owned());
        }
        Ok(())
    }
}

/// The verdict on a file that is open.
pub(crate) fn of(checkpoint: &Checkpoint, watch: &dyn Watch) -> Value {
    let mut verdict = Verdict::default();
    let error = checks(checkpoint, watch, &mut verdict).err().map(|e| json::value(&Problem::from(&e)));
    json!({
        "ok": verdict.count == 0 && error.is_none(),
        "findings": verdict.findings,
        "finding_count": verdict.count,
        "notes": verdict.notes,
        "note_count": verdict.note_count,
        "held": verdict.held,
        "error": error,
    })
}

fn checks(checkpoint: &Checkpoint, watch: &dyn Watch, verdict: &mut Verdict) -> Result<(), Error> {
    verdict.check("the structure is whole", |v| {
        verify::arrays(checkpoint, watch, &mut |remark| v.remark(remark))?;
        for fault in checkpoint.faults() {
            v.finding(&Finding::of_fault("", fault));
        }
        verify::claims(checkpoint, &mut |remark| v.remark(remark));
        checkpoint.whole()
    })?;
    file_warnings(checkpoint).for_each(|warning| verdict.note(warning));
    momentum(checkpoint).into_iter().for_each(|words| verdict.note(words));
    let mut written = None;
    verdict.check("the digests are those of the receipt", |v| {
        written = verify::receipt(checkpoint, watch, &mut |finding| v.finding(&finding))?;
        Ok(())
    })?;
    if written.is_none() {
        verdict.held.retain(|held| !held.contains("receipt"));
    } else {
        let replayed = verify::replay(checkpoint, &Registry::default(), &mut |remark| verdict.remark(remark));
        verdict.held.extend((replayed > 0).then(|| "the steps of the receipt can be repeated".to_owned()));
    }
    verdict.check("all values are finite", |v| verify::finite(checkpoint, watch, &mut |remark| v.remark(remark)))
}

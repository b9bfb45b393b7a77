//! Whether a job is done: the output opens, and claims this source, this recipe and this major version of blob.
//!
//! An output is untrusted: a job whose output has an unreadable claim is run again.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use blob_io::{Checkpoint, Entry, Error, FileSource, Files, Format, IfExists, OpenOptions, Reason, Source};
use serde::{Deserialize, Serialize};

use super::jobs::new_symbol;
use super::log::Logged;
use super::{Job, Log, Opener};
use crate::hash::for_each_piece;
use crate::history::{parse, receipt_text, source_name_of};
use crate::plan::Plan;
use crate::receipt::TOOL;
use crate::symbol::NewSymbol;
use crate::verify::{self, Remark};
use crate::watch::{Silent, Uncounted, Watch};

/// The claim of an output about its origin, in a receipt or in a line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Claim {
    /// The source's name, without its folder.
    pub name: String,
    /// The source's length in bytes.
    pub bytes: u64,
    /// The source's BLAKE3, in hexadecimal.
    pub blake3: String,
    /// The mark of the recipe; `None` in a receipt of a single conversion.
    pub recipe: Option<String>,
    /// The tool that wrote the output.
    pub tool: String,
}

/// The known facts of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// Its BLAKE3, in hexadecimal.
    Hashed(String),
    /// Its length, of a source that was last changed before the output was.
    Older(u64),
}

/// How a source is compared with the source that an output names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// By the BLAKE3: the source is read, and so is an output of which only a log tells.
    #[default]
    Content,
    /// By length and time: a source of the same length that is older than the output counts as the same. Another
    /// source under its name, of this length and older than the output, is not noticed.
    Times,
}

/// The fields of a receipt that are a claim.
#[derive(Deserialize)]
struct Receipt {
    source: Origin,
    #[serde(default)]
    recipe: Option<String>,
    tool: String,
}

#[derive(Deserialize)]
struct Origin {
    name: String,
    bytes: u64,
    blake3: String,
}

impl Claim {
    /// The claim of an output's receipt; `None` where there is no receipt, or another text.
    fn of_receipt(output: &Checkpoint) -> Option<Self> {
        let Receipt { source: Origin { name, bytes, blake3 }, recipe, tool } = receipt_text(output).and_then(parse)?;
        Some(Self { name, bytes, blake3, recipe, tool })
    }

    /// Whether this source and this version of blob give the output of this claim, by the claim's recipe.
    #[must_use]
    pub fn holds(&self, source: &str, known: &Known) -> bool {
        let is_source = match known {
            Known::Hashed(blake3) => self.blake3 == *blake3,
            Known::Older(bytes) => self.bytes == *bytes,
        };
        major(&self.tool) == major(TOOL) && self.name == source && is_source
    }
}

/// The tool and its version up to the first point: `blob 0`.
fn major(tool: &str) -> &str {
    tool.split_once('.').map_or(tool, |(major, _)| major)
}

impl Job {
    /// The claim of the output that is there, if the job is done. Of an output with a receipt only headers are read
    /// ([`check_output`](Self::check_output) reads the values); `log` has the claims and the digests of outputs without
    /// a receipt.
    ///
    /// # Errors
    /// Any error of reading the source; [`Error::Interrupted`] where `watch` says so.
    pub fn done(
        &self,
        opener: &dyn Opener,
        trust: Trust,
        log: Option<&Log>,
        watch: &dyn Watch,
    ) -> Result<Option<Claim>, Error> {
        if !self.opening().exists() {
            return Ok(None);
        }
        let Some(found) = self.claim(log, trust, watch)? else {
            return self.copied(opener, trust, watch);
        };
        let known = match self.older(trust) {
            Some(bytes) => Known::Older(bytes),
            None => Known::Hashed(self.hash(opener, watch)?),
        };
        let holds = found.holds(&source_name_of(self.source()), &known);
        Ok((holds && self.has_symbol(opener)).then_some(found))
    }

    /// The claim of an output that is a plain copy of the source, as of an npz that becomes an npz. A copy has the
    /// source's receipt or none, and so the bytes are compared.
    fn copied(&self, opener: &dyn Opener, trust: Trust, watch: &dyn Watch) -> Result<Option<Claim>, Error> {
        let len = |path: &Path| fs::metadata(path).ok().map(|meta| meta.len());
        let output = Some(&*self.output).filter(|_| self.recipe.steps.is_empty());
        let Some(bytes) = output.and_then(len) else { return Ok(None) };
        if len(self.source()) != Some(bytes)
            || whole(OpenOptions::new().open(&self.output)).is_none()
            || !self.plans(opener, |plan| plan.is_copy())
        {
            return Ok(None);
        }
        let blake3 = hash_of_file(&self.output, watch)?;
        let is_same = self.older(trust).is_some() || blake3 == self.hash(opener, watch)?;
        let name = source_name_of(self.source());
        Ok(is_same.then(|| Claim {
            name,
            bytes,
            blake3,
            recipe: Some(self.mark.of_whole.clone()),
            tool: TOOL.to_owned(),
        }))
    }

    /// Whether the symbol of a folded net beside the output is the symbol that the job writes there.
    fn has_symbol(&self, opener: &dyn Opener) -> bool {
        new_symbol(&self.recipe, &self.output).is_none()
            || self.plans(opener, |plan| plan.symbol.as_ref().is_none_or(NewSymbol::is_written))
    }

    /// Asks the job's plan, for which the headers of the source are read. A job without a plan is not done: its run
    /// says why.
    fn plans(&self, opener: &dyn Opener, ask: impl FnOnce(&Plan<'_>) -> bool) -> bool {
        self.open(opener).is_ok_and(|opened| self.marked(&opened.sources[0]).plan(&opened).is_ok_and(|plan| ask(&plan)))
    }

    /// The file that opens the output: the index of shards, or the output itself.
    #[must_use]
    pub fn opening(&self) -> PathBuf {
        self.index().filter(|index| index.exists()).unwrap_or_else(|| self.output.clone())
    }

    /// The claim of this job's output; `None` for an output that is missing, does not open, breaks off, or is of
    /// another recipe.
    fn claim(&self, log: Option<&Log>, trust: Trust, watch: &dyn Watch) -> Result<Option<Claim>, Error> {
        let index = self.index();
        for path in index.iter().chain([&self.output]).filter(|path| path.exists()) {
            let opened = whole(OpenOptions::new().open(path));
            let receipt = opened.as_ref().and_then(|output| self.receipt(output));
            if receipt.is_some() {
                return Ok(receipt);
            }
            let logged = log.and_then(|log| log.claim(&self.output));
            let Some(logged) = logged.filter(|logged| self.mark.has(logged.claim.recipe.as_deref())) else {
                return Ok(None);
            };
            let Some(output) = opened.or_else(|| whole(open_logged(path, Some(logged)))) else { continue };
            if self.is_as_logged(&output, logged, trust, watch)? {
                return Ok(Some(logged.claim.clone()));
            }
        }
        Ok(None)
    }

    /// Why a job that is not [done](Self::done) is done again, in words that follow the output's name. `None` where
    /// neither the output nor the log tells of an earlier run.
    #[must_use]
    pub fn why_again(&self, opener: &dyn Opener, log: Option<&Log>) -> Option<String> {
        let logged = log.and_then(|log| log.claim(&self.output));
        let path = self.opening();
        if !path.exists() {
            return logged.map(|_| "is gone, and the log tells of it".to_owned());
        }
        let output = match open_logged(&path, logged) {
            Err(e) => return Some(format!("does not open: {e}")),
            Ok(output) => output,
        };
        let claim = Claim::of_receipt(&output);
        if logged.is_none() && claim.is_none() {
            return None;
        }
        let Some(output) = whole(Ok(output)) else { return Some("lacks some of its values".to_owned()) };
        let claim = claim.filter(|claim| claim.recipe.is_some());
        let logged = logged.filter(|_| claim.is_none());
        let found = claim.as_ref().or_else(|| logged.map(|logged| &logged.claim))?;
        Some(if !self.mark.has(found.recipe.as_deref()) {
            "is of another recipe, or of other files that the recipe reads".to_owned()
        } else if logged.is_some_and(|logged| logged.blake3_out.is_none()) {
            "has no digest in the log".to_owned()
        } else if logged.is_some_and(|logged| {
            !self.is_as_logged(&output, logged, Trust::Content, &Silent).is_ok_and(|is_same| is_same)
        }) {
            "has other bytes than the log says".to_owned()
        } else if !self.has_symbol(opener) {
            "lacks its symbol, or has another".to_owned()
        } else {
            "is of another source, or of another version of blob".to_owned()
        })
    }

    /// Whether an output has the length, and unless times are trusted the bytes, of a line of the log.
    fn is_as_logged(
        &self,
        output: &Checkpoint,
        logged: &Logged,
        trust: Trust,
        watch: &dyn Watch,
    ) -> Result<bool, Error> {
        let of_index = self.index_of(output)?.map_or(0, |(_, index)| index.len());
        let is_long = output.stored().len() + of_index == logged.bytes_out;
        Ok(is_long && (trust == Trust::Times || logged.blake3_out == Some(self.hash_of_files(output, watch)?)))
    }

    /// The BLAKE3 of the files of an output, one behind the other, as the log has the digest: the shards and then their
    /// index; a model and then the file of its values.
    fn hash_of_files(&self, output: &Checkpoint, watch: &dyn Watch) -> Result<String, Error> {
        let mut hasher = blake3::Hasher::new();
        add(&mut hasher, output.name(), output.stored(), watch)?;
        if let Some((name, index)) = self.index_of(output)? {
            add(&mut hasher, &name, &index, watch)?;
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// The index of shards that an output was opened by, with its name.
    fn index_of(&self, output: &Checkpoint) -> Result<Option<(String, FileSource)>, Error> {
        let index = self.index().filter(|index| output.path() == Some(index));
        index.map(|index| Ok((index.display().to_string(), file(&index)?))).transpose()
    }

    /// The claim of a receipt with this job's mark.
    fn receipt(&self, output: &Checkpoint) -> Option<Claim> {
        Claim::of_receipt(output).filter(|claim| self.mark.has(claim.recipe.as_deref()))
    }

    /// The BLAKE3 of an output that was just written and has no receipt with the job's mark: for the log.
    pub(super) fn digest(&self, to: Format, watch: &dyn Watch) -> Result<Option<String>, Error> {
        let output = OpenOptions::new().from(to).open(self.opening())?;
        if self.receipt(&output).is_some() {
            return Ok(None);
        }
        self.hash_of_files(&output, watch).map(Some)
    }

    /// Whether the output of this claim has the whole arrays alone of a source that breaks off.
    #[must_use]
    pub fn is_salvaged(&self, claim: &Claim) -> bool {
        self.mark.has_salvaged(claim.recipe.as_deref())
    }

    /// Reads the output of a job that is done: every array must be readable, and all that the receipt claims of the
    /// output true, as the digest of each array and the graph of a model.
    ///
    /// # Errors
    /// [`Error::Request`] with the first finding; any error of reading.
    pub fn check_output(&self, watch: &dyn Watch) -> Result<(), Error> {
        let output = OpenOptions::new().open(self.opening())?;
        let mut first = None;
        let mut take = |remark| {
            if let Remark::Finding(finding) = remark {
                first.get_or_insert(finding);
            }
        };
        verify::arrays(&output, &Uncounted(watch), &mut take)?;
        verify::claims(&output, &mut take);
        verify::receipt(&output, &Uncounted(watch), &mut |finding| {
            first.get_or_insert(finding);
        })?;
        let Some(finding) = first else { return Ok(()) };
        let tensor = Some(format!("{:?} ", finding.tensor)).filter(|_| !finding.tensor.is_empty()).unwrap_or_default();
        let message = format!("was written by this job and is damaged: {tensor}{}", finding.message);
        Err(Error::Request { file: output.name().to_owned(), message })
    }

    /// Whether the recipe allows to replace the output.
    #[must_use]
    pub fn replaces(&self) -> bool {
        self.recipe.target.if_exists == IfExists::Replace
    }

    /// The index of the output, if that may be in shards.
    fn index(&self) -> Option<PathBuf> {
        self.recipe.target.shard_size?;
        let mut name = self.output.file_name()?.to_owned();
        name.push(".index.json");
        Some(self.output.with_file_name(name))
    }

    /// The length of a source that is one file and was changed before the output, where that is trusted.
    fn older(&self, trust: Trust) -> Option<u64> {
        if trust == Trust::Content {
            return None;
        }
        let source = fs::metadata(self.source()).ok().filter(fs::Metadata::is_file)?;
        let output = fs::metadata(&self.output).or_else(|e| self.index().map_or(Err(e), fs::metadata)).ok()?;
        (source.modified().ok()? < output.modified().ok()?).then_some(source.len())
    }

    /// The BLAKE3 of the source as stored.
    fn hash(&self, opener: &dyn Opener, watch: &dyn Watch) -> Result<String, Error> {
        let path = self.source();
        let is_index = path.to_string_lossy().ends_with(".index.json");
        // The values of an ONNX model may lie in other files, which are a part of what is read.
        let is_alone = !is_index && Format::of_path(path).is_none_or(|format| format.holds().files != Files::Beside);
        if path.is_file() && is_alone {
            return hash_of_file(path, watch);
        }
        let opened = opener.open(path, self.recipe.sources[0].format)?;
        hash_of(opened.name(), opened.stored(), watch)
    }
}

/// An output that opens and is not cut off, and whose arrays are all there.
fn whole(opened: Result<Checkpoint, Error>) -> Option<Checkpoint> {
    opened.ok().filter(|output| {
        let mut faults = output.entries().iter().filter_map(Entry::fault);
        output.check_whole().is_ok()
            && output.faults().is_empty()
            && faults.all(|fault| fault.reason() == Reason::Unsupported)
    })
}

fn opening(path: &Path, source: io::Error) -> Error {
    Error::Open { file: path.display().to_string(), source }
}

/// Opens an output, as the format that the log names where the content shows none.
fn open_logged(path: &Path, logged: Option<&Logged>) -> Result<Checkpoint, Error> {
    OpenOptions::new().open(path).or_else(|e| match logged.and_then(|logged| logged.to.parse::<Format>().ok()) {
        Some(format) => OpenOptions::new().from(format).open(path),
        None => Err(e),
    })
}

fn file(path: &Path) -> Result<FileSource, Error> {
    File::open(path).and_then(FileSource::try_from).map_err(|e| opening(path, e))
}

fn hash_of_file(path: &Path, watch: &dyn Watch) -> Result<String, Error> {
    hash_of(&path.display().to_string(), &file(path)?, watch)
}

fn hash_of(name: &str, source: &dyn Source, watch: &dyn Watch) -> Result<String, Error> {
    let mut hasher = blake3::Hasher::new();
    add(&mut hasher, name, source, watch)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Hashes the bytes of a source behind those of others.
fn add(hasher: &mut blake3::Hasher, name: &str, source: &dyn Source, watch: &dyn Watch) -> Result<(), Error> {
    for_each_piece(name, source, &Uncounted(watch), |_, bytes| {
        hasher.update(bytes);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_holds_for_its_source_and_its_major_version_alone() {
        let claim = Claim {
            name: "a.params".to_owned(),
            bytes: 7,
            blake3: "b3".to_owned(),
            recipe: Some("mark".to_owned()),
            tool: TOOL.to_owned(),
        };
        let hashed = Known::Hashed("b3".to_owned());
        assert!(claim.holds("a.params", &hashed) && claim.holds("a.params", &Known::Older(7)));
        assert!(!claim.holds("b.params", &hashed));
        assert!(!claim.holds("a.params", &Known::Hashed(String::new())));
        assert!(!claim.holds("a.params", &Known::Older(8)));
        let same_major = format!("{}.999.0", major(TOOL));
        for (tool, holds) in [(&*same_major, true), ("blob 999.1.0", false), ("blob", false), ("", false)] {
            let other = Claim { tool: tool.to_owned(), ..claim.clone() };
            assert_eq!(other.holds("a.params", &hashed), holds, "{tool}");
        }
    }
}

//! The log of a batch: a line of JSON for each job that was run, after its output has its name.
//!
//! Has the claims of outputs without a receipt. The torn last line of a killed run is cut off.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use blob_io::Error;
use serde::Deserialize;

use super::Claim;
use crate::threads::lock;

/// An open log: the claims, and the file to which lines are added.
#[derive(Debug)]
pub struct Log {
    name: PathBuf,
    /// `None` for a log that is only read.
    file: Option<Mutex<File>>,
    claims: HashMap<PathBuf, Logged>,
}

/// A line about an output.
#[derive(Debug, Deserialize)]
pub(super) struct Logged {
    output: PathBuf,
    pub(super) to: String,
    pub(super) bytes_out: u64,
    /// The BLAKE3 of the output; absent in lines of older versions.
    #[serde(default)]
    pub(super) blake3_out: Option<String>,
    pub(super) claim: Claim,
}

impl Log {
    /// Opens a log; a missing one is made. Lines of failed jobs, and unreadable lines, are skipped.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (file, text) = opened(path).map_err(|e| failed(path, "open the log", e))?;
        Ok(Self { file: Some(Mutex::new(file)), ..Self::of(path, &text) })
    }

    /// Reads a log to which no line is added; a missing one is empty.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        match check_file(path).and_then(|()| File::open(path)).and_then(|mut file| text_of(&mut file)) {
            Ok(text) => Ok(Self::of(path, &text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::of(path, b"")),
            Err(e) => Err(failed(path, "open the log", e)),
        }
    }

    fn of(path: &Path, text: &[u8]) -> Self {
        let lines = whole(text).split(|byte| *byte == b'\n');
        let logged = lines.filter_map(|line| serde_json::from_slice::<Logged>(line).ok());
        let claims = logged.map(|logged| (logged.output.clone(), logged)).collect();
        Self { name: path.to_owned(), file: None, claims }
    }

    /// The line about an output; of several the last one counts.
    pub(super) fn claim(&self, output: &Path) -> Option<&Logged> {
        self.claims.get(output)
    }

    /// Adds a line, which ends with a newline.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn add(&self, line: &[u8]) -> Result<(), Error> {
        let Some(file) = &self.file else { return Ok(()) };
        lock(file).write_all(line).map_err(|e| failed(&self.name, "write the log", e))
    }
}

/// How each line of a log begins.
const BEGIN: &[u8] = br#"{"schema":"blob.batch/1""#;

/// The file, to which lines can be added, and its text, of which a torn last line is cut.
fn opened(path: &Path) -> io::Result<(File, Vec<u8>)> {
    check_file(path)?;
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    let text = text_of(&mut file)?;
    let whole = whole(&text).len();
    if whole < text.len() {
        file.set_len(whole as u64)?;
    }
    Ok((file, text))
}

/// Refuses a device and a pipe, which may have no end.
fn check_file(path: &Path) -> io::Result<()> {
    match path.metadata() {
        Ok(meta) if !meta.is_file() => Err(io::Error::other("is no file")),
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// The text of a log; an error for any other file, of which nothing may be cut off.
fn text_of(file: &mut File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let len = text.len().min(BEGIN.len());
    if text[..len] != BEGIN[..len] {
        return Err(io::Error::other("is another file, no log of blob batch"));
    }
    Ok(text)
}

/// The text up to the end of the last whole line.
fn whole(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    &text[..end]
}

fn failed(path: &Path, action: &str, source: io::Error) -> Error {
    Error::Io { file: path.display().to_string(), action: action.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_last_line_is_cut_and_the_last_of_several_counts() {
        let path = std::env::temp_dir().join(format!("blob-log-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let line = |bytes: u64| {
            let claim = r#"{"name":"a","bytes":1,"blake3":"b","recipe":"r","tool":"t"}"#;
            let begin = r#"{"schema":"blob.batch/1","#;
            format!("{begin}\"output\":\"x\",\"to\":\"npz\",\"bytes_out\":{bytes},\"claim\":{claim}}}\n")
        };
        let log = Log::open(&path).unwrap();
        assert!(log.claim(Path::new("x")).is_none());
        for text in [&*line(1), "no JSON\n", "{\"output\":\"x\",\"error\":{}}\n", &line(2), "{\"output\":\"x\",\"to"] {
            log.add(text.as_bytes()).unwrap();
        }
        drop(log);
        let (torn, read) = (std::fs::read(&path).unwrap(), Log::read(&path).unwrap());
        assert_eq!(read.claim(Path::new("x")).map(|logged| logged.bytes_out), Some(2));
        read.add(b"nothing").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), torn);
        let log = Log::open(&path).unwrap();
        assert_eq!(log.claim(Path::new("x")).map(|logged| logged.bytes_out), Some(2));
        log.add(line(3).as_bytes()).unwrap();
        drop(log);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with(&format!("{}{}", line(2), line(3))), "{text}");
        for other in ["my notes", "{\"sources\":[]}\n{"] {
            std::fs::write(&path, other).unwrap();
            let said = [Log::open(&path), Log::read(&path)].map(|log| log.unwrap_err().to_string());
            assert!(said.iter().all(|said| said.contains("no log")), "{said:?}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
        }
        std::fs::remove_file(path).unwrap();
    }
}

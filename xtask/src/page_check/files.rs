//! The files of the check: the golden ones, the ones that are named, and real ones below `BLOB_REAL_DATA`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell;

/// The golden files, or the ones that are named.
pub(super) fn files(named: &[&str]) -> Result<Vec<PathBuf>> {
    let every = match named {
        ["--every", every] => every.parse().ok().filter(|every| *every > 0).context("--every takes a number")?,
        _ => 1,
    };
    if every == 1 && !named.is_empty() {
        // The driver takes absolute paths alone.
        return named.iter().map(|name| fs::canonicalize(name).with_context(|| (*name).to_owned())).collect();
    }
    let root = shell::root();
    let other = [".md", ".py", ".json", ".jsonl", ".tsv", ".txt", ".prototxt"];
    let goldens = shell::files(&root)?.into_iter().filter(|name| name.starts_with("tests/data/"));
    let tensors = goldens.filter(|name| !other.iter().any(|end| name.ends_with(end)));
    let mut files: Vec<PathBuf> = tensors.step_by(every).map(|name| root.join(name)).collect();
    if let Some(real) = std::env::var_os("BLOB_REAL_DATA").filter(|real| every == 1 && !real.is_empty()) {
        let mut more = Vec::new();
        files_below(Path::new(&real), &mut more)?;
        more.retain(|file| file.iter().any(|folder| folder == "real"));
        more.sort();
        files.extend(more);
    }
    Ok(files)
}

/// Adds the files in a folder and in the folders below.
fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files_below(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

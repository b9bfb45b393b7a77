//! Steps that several checks take: a file in a folder for the tool, a field of the form, digests.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Check;
use crate::shell;

/// The digest of a Blob.
pub(super) const DIGEST: &str = "const digest = async (blob) => [...new Uint8Array(await crypto.subtle.digest('SHA-256', \
    await blob.arrayBuffer()))].map((b) => b.toString(16).padStart(2, '0')).join('');";

pub(super) fn data(name: &str) -> PathBuf {
    shell::root().join("tests/data").join(name)
}

/// An empty folder for the tool.
pub(super) fn folder(check: &Check<'_>) -> Result<PathBuf> {
    let folder = check.work.join("form");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

pub(super) fn copied(file: &Path, folder: &Path) -> Result<PathBuf> {
    let to = folder.join(file.file_name().context("a file has a name")?);
    std::fs::copy(file, &to)?;
    Ok(to)
}

/// Fills a field of the form in, and waits for the plan.
pub(super) fn set(check: &Check<'_>, id: &str, value: &str) -> Result<()> {
    // The plan of the field before is awaited, or its answer could come after the next one's.
    let set = "const [id, value] = arguments; const field = $(id); const before = Number(document.body.dataset.planned); \
               if (field.type === 'checkbox') field.checked = value !== 'off'; else field.value = value; \
               field.dispatchEvent(new Event('input', { bubbles: true })); return before;";
    let before = check.browser.script(set, &json!([id, value]))?;
    check.browser.until(&format!("Number(document.body.dataset.planned) > {before}"))
}

pub(super) fn sha256(file: &Path) -> Result<String> {
    let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
    Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes an npy file.
pub(super) fn npy(file: &Path, descr: &str, shape: &str, values: &[u8]) -> Result<()> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let bytes = [&b"\x93NUMPY\x01\x00\x76\x00"[..], format!("{header:<117}\n").as_bytes(), values].concat();
    std::fs::write(file, bytes).with_context(|| file.display().to_string())
}

/// A file of f32 tensors of `bytes` zeros each.
pub(super) fn safetensors(path: &Path, names: &[String], bytes: u64) -> Result<()> {
    let places = (0..).zip(names).map(|(at, name): (u64, &String)| {
        let begin = at * bytes;
        (name.clone(), json!({ "dtype": "F32", "shape": [bytes / 4], "data_offsets": [begin, begin + bytes] }))
    });
    let mut header = Value::Object(places.collect()).to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut file = std::fs::File::create(path)?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    Ok(file.set_len(8 + header.len() as u64 + bytes * names.len() as u64)?)
}

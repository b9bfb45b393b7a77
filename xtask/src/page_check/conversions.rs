//! Each file to each format: the page's bytes are the tool's by the same recipe, and so is a refusal.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::steps::{DIGEST, sha256};
use super::{Check, Counts, reports};

/// The formats, with the steps of each recipe. A format of one array takes the first.
pub(super) fn recipes() -> Vec<(&'static str, Value)> {
    let first = json!([{ "name": "select", "settings": { "patterns": ["#0"], "regex": false, "exclude": [], "dtypes": [],
        "shapes": [] } }]);
    vec![
        ("safetensors", json!([])),
        ("npz", json!([{ "name": "dtype", "settings": { "to": "f16" } }])),
        ("params", json!([{ "name": "strip-diff" }])),
        ("caffemodel", json!([])),
        ("hdf5", json!([])),
        ("npy", first.clone()),
        ("neoml-array", first.clone()),
        ("binaryproto", first),
    ]
}

/// All conversions of the file that is open last. The tool has words of its own where there is no first tensor.
pub(super) fn all(check: &Check<'_>, file: &Path, name: &str, is_empty: bool, counts: &mut Counts) -> Result<()> {
    for (format, steps) in recipes() {
        let takes_first = steps[0]["name"] == "select";
        if !(is_empty && takes_first) {
            one(check, file, name, format, steps, counts).with_context(|| format!("to {format}"))?;
        }
    }
    Ok(())
}

fn one(check: &Check<'_>, file: &Path, name: &str, format: &str, steps: Value, counts: &mut Counts) -> Result<()> {
    let end = [("hdf5", "h5"), ("neoml-array", "arch")].iter().find(|(name, _)| *name == format);
    let path = format!("out.{}", end.map_or(format, |(_, end)| end));
    let folder = file.parent().context("a file lies in a folder")?;
    let out = folder.join(&path);
    let recipe = json!({ "schema": "blob.recipe/1", "sources": [{ "path": name }], "steps": steps,
        "target": { "path": path, "format": format } });
    std::fs::write(folder.join("recipe.json"), recipe.to_string())?;
    let told = check.tool(file, &["convert", "--recipe", "recipe.json"])?;
    let body = format!(
        "{} try {{ const done = await ask('convert', {{ key: files.at(-1).key, recipe: args[0] }}); \
           const made = await digest(done.file); await ask('remove', {{ name: done.name }}); return {{ digest: made }}; \
         }} catch (problem) {{ return {{ refused: problem.message }}; }}",
        DIGEST
    );
    let done = check.browser.awaited(&body, &json!([recipe.to_string()]))?;
    if told["schema"] == "blob.error/1" {
        let message = told["error"]["message"].as_str().unwrap_or_default();
        ensure!(done["refused"] == message, "the page says {done}, the tool {message:?}");
        counts.unconverted += 1;
        return Ok(());
    }
    let wanted = sha256(&out)?;
    ensure!(done["digest"] == wanted.as_str(), "the page makes {done}, the tool {wanted}");
    counts.converted += 1;
    if format == "npz" {
        reports::difference(check, file, name, &out).context("the difference from it")?;
    }
    Ok(())
}

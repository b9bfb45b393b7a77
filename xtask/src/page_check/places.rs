//! Where the page runs: beside another tab of it, without its server, in a private window, and in a browser that gives
//! it no private files.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Check;
use super::steps::{DIGEST, data, safetensors, sha256};

const SMALL: &str = "other/two.safetensors";

/// Converts the file that is open last; gives the digest of the output, or the refusal.
const CONVERT: &str = "const recipe = JSON.stringify({ schema: 'blob.recipe/1', sources: [], target: { path: 'o.npz', format: 'npz' } }); \
    const made = await ask('convert', { key: files.at(-1).key, recipe }).catch((problem) => ({ refused: problem.message }));";

pub(super) fn places(check: &Check<'_>) -> Result<()> {
    two_tabs(check).context("two tabs")?;
    no_files(check).context("no private files")?;
    offline(check).context("without the server")
}

/// Another tab begins, works and ends; what this one has made is still there, and what the other left is removed.
fn two_tabs(check: &Check<'_>) -> Result<()> {
    check.begin()?;
    check.give(&data(SMALL))?;
    let first = check.browser.tab()?;
    let make = format!("{DIGEST} {CONVERT} window.made = made.file; return digest(made.file);");
    let made = check.browser.awaited(&make, &json!([]))?;
    check.browser.new_tab()?;
    check.begin()?;
    check.give(&data(SMALL))?;
    let other = check.browser.awaited(&make, &json!([]))?;
    ensure!(made.is_string() && made == other, "the tabs make {made} and {other}");
    check.browser.close_tab()?;
    check.browser.go_to(&first)?;
    let still = check.browser.awaited(&format!("{DIGEST} return digest(window.made);"), &json!([]))?;
    ensure!(still == made, "the first tab has {still} left");
    check.begin()?;
    let folders = "for (let tries = 0; ; tries += 1) { const found = []; \
        for await (const name of (await navigator.storage.getDirectory()).keys()) found.push(name); \
        if (found.length === 1 || tries > 100) return found.length; await new Promise((ok) => setTimeout(ok, 100)); }";
    let folders = check.browser.awaited(folders, &json!([]))?;
    ensure!(folders == 1, "{folders} pages have folders");
    Ok(())
}

/// Outputs stay in memory, which has a limit, and both are said.
fn no_files(check: &Check<'_>) -> Result<()> {
    check.begin()?;
    let without = "$('worker').textContent = \"StorageManager.prototype.getDirectory = () => Promise.reject(new Error('none'));\" \
        + $('worker').textContent; worker.postMessage({ id: -1, op: 'values', key: -1, place: 0 });";
    check.browser.script(without, &json!([]))?;
    check.browser.until("$('status').textContent === WORDS.unkept")?;
    in_memory(check)?;
    check.begin()
}

fn in_memory(check: &Check<'_>) -> Result<()> {
    let large = check.work.join("large.safetensors");
    safetensors(&large, &["zeros".to_owned()], 300 << 20)?;
    check.give(&data(SMALL))?;
    let said = check.browser.script("return $('status').textContent === WORDS.unkept;", &json!([]))?;
    ensure!(said == true, "a file that is opened hides the words");
    let make = format!("{DIGEST} {CONVERT} return made.refused ?? digest(made.file);");
    let made = check.browser.awaited(&make, &json!([]))?;
    let wanted = converted(check, &data(SMALL))?;
    ensure!(made == wanted, "the page makes {made} in memory, the tool {wanted}");
    check.give(&large)?;
    let refused = check.browser.awaited(&make, &json!([]))?;
    let said = check.browser.script("return arguments[0].includes(WORDS.memoryFull);", &json!([refused]))?;
    ensure!(said == true, "300 MiB in memory are refused with {refused}");
    Ok(())
}

/// The digest of the tool's npz of a file.
fn converted(check: &Check<'_>, file: &Path) -> Result<Value> {
    let out = check.work.join("o.npz");
    check.told(
        file.parent().context("a folder")?,
        &["convert", SMALL.rsplit('/').next().unwrap_or(SMALL), "-o", &out.display().to_string(), "--force"],
    )?;
    Ok(json!(sha256(&out)?))
}

/// The page was kept by its service worker: it opens, reads and converts while the server answers nobody.
fn offline(check: &Check<'_>) -> Result<()> {
    check.begin()?;
    check.browser.awaited("await navigator.serviceWorker.ready; return true;", &json!([]))?;
    check.server.go_away(true);
    let done = check.begin().and_then(|()| {
        check.give(&data(SMALL))?;
        check.browser.awaited(&format!("{DIGEST} {CONVERT} return digest(made.file);"), &json!([]))
    });
    check.server.go_away(false);
    let (done, wanted) = (done?, converted(check, &data(SMALL))?);
    ensure!(done == wanted, "the page makes {done}, the tool {wanted}");
    check.browser.script("while (files.length) remove(files[0]);", &json!([])).map(drop)
}

/// A session in a private window: files are read and converted; where it has no private files, that is said.
pub(super) fn private(check: &Check<'_>) -> Result<String> {
    check.begin()?;
    let said = check.browser.script("return $('status').textContent;", &json!([]))?;
    let unkept = check.browser.script("return WORDS.unkept;", &json!([]))?;
    if said == unkept {
        in_memory(check)?;
        return Ok("no private files, which the page says".to_owned());
    }
    ensure!(said == "", "the page says {said}");
    check.give(&data(SMALL))?;
    let made = check.browser.awaited(&format!("{DIGEST} {CONVERT} return digest(made.file);"), &json!([]))?;
    let wanted = converted(check, &data(SMALL))?;
    ensure!(made == wanted, "the page makes {made}, the tool {wanted}");
    Ok("private files".to_owned())
}

//! The page survives: hostile names, a cancelled conversion, a fault of its worker.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::json;

use super::Check;
use super::steps::safetensors;

/// How many bytes the page's private files have, once that is 0 or after some seconds.
const KEPT: &str = "for (let tries = 0; ; tries += 1) { \
    let sum = 0; \
    const root = await navigator.storage.getDirectory(); \
    for await (const folder of root.values()) { \
      for await (const entry of folder.values()) { \
        const file = await entry.getFile().catch(() => null); sum += file?.size ?? 0; } \
    } \
    if (sum === 0 || tries > 100) return sum; \
    await new Promise((ok) => setTimeout(ok, 100)); \
  }";

/// Names of a hostile file are text alone; a conversion that is cancelled leaves nothing; and the page goes on
/// after that, and after a fault of the worker.
pub(super) fn goes_on(check: &Check<'_>) -> Result<()> {
    let (odd, large) = (check.work.join("odd.safetensors"), check.work.join("large.safetensors"));
    let names = ["<b>x</b><img src=x onerror=alert(1)>\u{202e}\u{1b}[31m".to_owned(), "n".repeat(65_000)];
    safetensors(&odd, &names, 4)?;
    safetensors(&large, &["zeros".to_owned()], 256 << 20)?;
    check.give(&odd)?;
    check.browser.script("show('tensors');", &json!([]))?;
    check.browser.until("document.querySelectorAll('.rows .name').length === 2")?;
    let cells = "[...document.querySelectorAll('.rows .name')]";
    let shown = format!(
        "return {cells}.map((cell) => [cell.textContent === visible(arguments[0].shift()), cell.children.length]);"
    );
    let shown = check.browser.script(&shown, &json!([names]))?;
    ensure!(shown == json!([[true, 0], [true, 0]]), "the names are shown as {shown}");
    check.give(&large)?;
    check.browser.script("show('convert');", &json!([]))?;
    check.browser.until("$('said').querySelector('#changes')")?;
    check.browser.script("$('convert').click();", &json!([]))?;
    check.browser.until("document.querySelector('.cancel')")?;
    check.browser.script("document.querySelector('.cancel').click();", &json!([]))?;
    check.browser.until("$('alerts').textContent === WORDS.cancelled")?;
    let left = check.browser.awaited(KEPT, &json!([]))?;
    ensure!(left == 0, "a cancelled conversion leaves {left} bytes");
    measures(check)?;
    check.browser.script("worker.postMessage({ id: -1, op: 'values', key: -1, place: 0 });", &json!([]))?;
    check.browser.until("$('alerts').textContent.startsWith('The module stopped')")?;
    measures(check)?;
    panics(check)?;
    changes(check, &large)?;
    check.browser.script("while (files.length) remove(files[0]); quiet();", &json!([])).map(drop)
}

/// A panic of the module itself is said in the panic's words, and ends the running task alone.
fn panics(check: &Check<'_>) -> Result<()> {
    let waits = "return ask('fail', { why: 'a fault for the check' }).then(() => 'nothing', (ended) => ended.message);";
    let ended = check.browser.awaited(waits, &json!([]))?;
    let said = check.browser.script("return $('alerts').textContent;", &json!([]))?;
    for words in [&ended, &said] {
        let words = words.as_str().unwrap_or_default();
        let is_said = words.starts_with("The module stopped: panicked at") && words.contains("a fault for the check");
        ensure!(is_said, "a panic is told as {words:?}");
    }
    measures(check)
}

/// A file that becomes another one while it is converted, and one that has become another since it was opened: both
/// are said, nothing is kept, and the page goes on.
fn changes(check: &Check<'_>, large: &Path) -> Result<()> {
    let file = std::fs::OpenOptions::new().write(true).open(large)?;
    let before = check.browser.script("return Number(document.body.dataset.converted ?? 0);", &json!([]))?;
    check.browser.script("quiet(); choose(files[1]); show('convert'); $('convert').click();", &json!([]))?;
    check.browser.until("document.querySelector('progress')?.value > 0")?;
    file.set_len(96 << 20)?;
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(5))?;
    check.browser.until(&format!("Number(document.body.dataset.converted) > {before}"))?;
    let is_said = "const said = $('alerts').textContent; \
        return [WORDS.changed, WORDS.shorter].some((words) => said.includes(words)) ? '' : said || 'nothing';";
    let said = check.browser.script(is_said, &json!([]))?;
    ensure!(said == "", "a file that changes under a conversion: {said}");
    let left = check.browser.awaited(KEPT, &json!([]))?;
    ensure!(left == 0, "a file that changes leaves {left} bytes");
    let ask = "return ask('stats', { key: files[1].key, place: 0, bins: 0 }).then(() => 'a result', (problem) => \
        ([WORDS.changed, WORDS.shorter].some((words) => problem.message.includes(words)) ? '' : problem.message));";
    let said = check.browser.awaited(ask, &json!([]))?;
    ensure!(said == "", "a file that has changed: {said}");
    measures(check)
}

/// The first file can still be read.
fn measures(check: &Check<'_>) -> Result<()> {
    let ask = "return JSON.parse(await ask('stats', { key: files[0].key, place: 0, bins: 0 })).count;";
    let count = check.browser.awaited(ask, &json!([]))?;
    ensure!(count == 1, "the statistics count {count}");
    Ok(())
}

//! The page survives: hostile names, a cancelled conversion, a fault of its worker.

use std::io::Write;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::Check;

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
    check.browser.script("while (files.length) remove(files[0]); quiet();", &json!([])).map(drop)
}

/// The first file can still be read.
fn measures(check: &Check<'_>) -> Result<()> {
    let ask = "return JSON.parse(await ask('stats', { key: files[0].key, place: 0, bins: 0 })).count;";
    let count = check.browser.awaited(ask, &json!([]))?;
    ensure!(count == 1, "the statistics count {count}");
    Ok(())
}

/// A file of f32 tensors of `bytes` zeros each.
pub(super) fn safetensors(path: &Path, names: &[String], bytes: u64) -> Result<()> {
    let place = |(at, name): (u64, &String)| {
        let begin = at * bytes;
        (name.clone(), json!({ "dtype": "F32", "shape": [bytes / 4], "data_offsets": [begin, begin + bytes] }))
    };
    let mut header = Value::Object((0..).zip(names).map(place).collect()).to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut file = std::fs::File::create(path)?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    Ok(file.set_len(8 + header.len() as u64 + bytes * names.len() as u64)?)
}

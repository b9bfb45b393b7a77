//! The table of tensors by hand: 60,000 rows, sorted, filtered by the tool's patterns, and reached by the keyboard
//! alone; and the names that a screen reader is told.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::Check;
use super::steps::safetensors;
use crate::shell;

const MANY: usize = 60_000;

const TAB: char = '\u{e004}';
const ENTER: char = '\u{e007}';
const BACKSPACE: char = '\u{e003}';
const END: char = '\u{e010}';
const HOME: char = '\u{e011}';
const RIGHT: char = '\u{e014}';
const DOWN: char = '\u{e015}';

/// Patterns of each kind that the filter's text names, and one that is none.
const PATTERNS: &[&str] = &["#3-5", "layer3", "layer5/* #7", "*/*99", "{a"];

/// Each element that must have a name for people who do not see the page.
const NAMED: &[&str] =
    &["button", "textbox", "searchbox", "combobox", "checkbox", "tab", "tabpanel", "image", "table", "progressbar"];

const NAMES: &str = "[...document.querySelectorAll('.rows .name')].map((cell) => cell.textContent)";

pub(super) fn table(check: &Check<'_>) -> Result<()> {
    let file = many(check)?;
    let list = check.tool(&file, &["ls", "many.safetensors"])?;
    let names: Vec<&str> =
        list["tensors"].as_array().into_iter().flatten().filter_map(|t| t["name"].as_str()).collect();
    ensure!(names.len() == MANY, "the tool lists {} tensors", names.len());
    check.give(&file)?;
    check.browser.script("show('tensors');", &json!([]))?;
    rows(check, &names).context("60,000 rows")?;
    let none = "const filter = $('filter'); filter.value = 'nothing'; filter.dispatchEvent(new Event('input'));";
    check.browser.script(none, &json!([]))?;
    check.browser.until("document.querySelector('.table').getAttribute('aria-rowcount') === '1'")?;
    PATTERNS
        .iter()
        .try_for_each(|pattern| filter(check, &file, pattern).with_context(|| format!("filter {pattern}")))?;
    check.browser.script("while (files.length) remove(files[0]); quiet();", &json!([]))?;
    keyboard(check).context("by the keyboard")?;
    check.browser.script("while (files.length) remove(files[0]); quiet();", &json!([])).map(drop)
}

/// A file of 60,000 tensors of seven layers.
pub(super) fn many(check: &Check<'_>) -> Result<std::path::PathBuf> {
    let file = check.work.join("many.safetensors");
    let names: Vec<String> = (0..MANY).map(|i| format!("layer{}/{i}", i % 7)).collect();
    safetensors(&file, &names, 4)?;
    Ok(file)
}

/// Few rows are in the document; the last one is reached; each column sorts.
fn rows(check: &Check<'_>, names: &[&str]) -> Result<()> {
    check.browser.until("document.querySelector('.rows .name')")?;
    let rows = check.browser.script("return document.querySelectorAll('.rows .row').length;", &json!([]))?;
    ensure!(rows.as_u64().is_some_and(|rows| rows < 100), "the document has {rows} rows");
    let scroll = "const rows = document.querySelector('.rows'); rows.scrollTop = rows.scrollHeight;";
    check.browser.script(scroll, &json!([]))?;
    let last = names.last().context("no name")?;
    check.browser.until(&format!("{NAMES}.at(-1) === '{last}'"))?;
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    for wanted in [sorted[0], sorted[MANY - 1]] {
        check.browser.script("$('by-name').click();", &json!([]))?;
        check.browser.until(&format!("{NAMES}[0] === '{wanted}'"))?;
    }
    check.browser.script("$('by-offset').click(); $('by-offset').click();", &json!([]))?;
    check.browser.until(&format!("{NAMES}[0] === '{last}'"))?;
    check.browser.script("$('by-index').click();", &json!([])).map(drop)
}

/// A pattern takes the same tensors as in the tool, or is refused with the tool's words.
fn filter(check: &Check<'_>, file: &Path, pattern: &str) -> Result<()> {
    let mut arguments = vec!["ls", "many.safetensors"];
    arguments.extend(pattern.split(' '));
    let wanted = check.tool(file, &arguments)?;
    let set =
        "quiet(); const filter = $('filter'); filter.value = arguments[0]; filter.dispatchEvent(new Event('input'));";
    check.browser.script(set, &json!([pattern]))?;
    if wanted["schema"] == "blob.error/1" || !wanted["error"].is_null() {
        let message = wanted["error"]["message"].as_str().context("no message")?;
        check.browser.until("$('alerts').textContent !== ''")?;
        let said = check.browser.script("return $('alerts').firstChild.textContent;", &json!([]))?;
        ensure!(said.as_str().is_some_and(|s| s.ends_with(message)), "the page says {said}, the tool {message:?}");
        return Ok(());
    }
    let names: Vec<&Value> = wanted["tensors"].as_array().into_iter().flatten().map(|t| &t["name"]).collect();
    check.browser.until(&format!(
        "document.querySelector('.table').getAttribute('aria-rowcount') === '{}' && {NAMES}[0] === {}",
        names.len() + 1,
        names.first().context("no tensor")?
    ))?;
    let shown = check.browser.script(&format!("return {NAMES};"), &json!([]))?;
    let shown = shown.as_array().context("no rows")?;
    ensure!(shown.iter().eq(names[..shown.len()].iter().copied()), "the rows are {shown:?}");
    Ok(())
}

/// From the tabs to a tensor and its npy, to a conversion, and to the end of the file, without a mouse.
fn keyboard(check: &Check<'_>) -> Result<()> {
    check.give(&shell::root().join("tests/data/caffe/forward/resnet.caffemodel"))?;
    let key = check.browser.script("$('files').focus(); show('summary'); return files[0].key;", &json!([]))?;
    reach(check, "tab-summary")?;
    press(check, &[RIGHT], "tab-tensors", "$('panel').dataset.tab === 'tensors'")?;
    press(check, &[ENTER], "tab-tensors", "document.querySelector('.rows .name')")?;
    reach(check, "filter")?;
    press(check, &['#', '0'], "filter", "document.querySelectorAll('.rows .row').length === 1")?;
    press(check, &[BACKSPACE, BACKSPACE], "filter", "document.querySelectorAll('.rows .row').length > 3")?;
    reach(check, "by-name")?;
    let order = |order: &str| format!("document.querySelector('.head .name').getAttribute('aria-sort') === '{order}'");
    press(check, &[ENTER], "by-name", &order("ascending"))?;
    press(check, &[ENTER], "by-name", &order("descending"))?;
    check.browser.script("$('by-index').click();", &json!([]))?;
    reach(check, "row-0")?;
    press(check, &[DOWN], "row-1", "true")?;
    let last = check.browser.script("return files[0].list.tensors.length - 1;", &json!([]))?;
    press(check, &[END], &format!("row-{last}"), "true")?;
    press(check, &[HOME], "row-0", "true")?;
    press(check, &[ENTER], "row-0", "document.querySelector('.detail canvas') && document.querySelector('.bars svg')")?;
    named(check)?;
    reach(check, "npy")?;
    press(check, &[ENTER], "npy", "document.querySelector('.detail .result')")?;
    check.browser.script("$('files').focus(); show('convert');", &json!([]))?;
    check.browser.until("$('said').querySelector('#changes')")?;
    named(check)?;
    reach(check, "convert")?;
    press(check, &[ENTER], "convert", "document.querySelectorAll('#results .result').length === 2")?;
    check.browser.script("$('files').focus();", &json!([]))?;
    reach(check, &format!("close-{key}"))?;
    press(check, &[ENTER], "files", "files.length === 0")
}

/// Tabulates to an element.
fn reach(check: &Check<'_>, id: &str) -> Result<()> {
    let mut passed = Vec::new();
    while passed.len() < 80 {
        check.browser.press(&[TAB])?;
        let at = check.browser.script("return document.activeElement.id;", &json!([]))?;
        if at == id {
            return Ok(());
        }
        passed.push(at.to_string());
    }
    bail!("{id} is not reached by the tabulator, but {}", passed.join(" "))
}

/// Presses keys: something comes true, and the focus is at an element then.
fn press(check: &Check<'_>, keys: &[char], focus: &str, done: &str) -> Result<()> {
    check.browser.press(keys)?;
    check.browser.until(done)?;
    let at = "const { activeElement: at } = document; return at.id || at.tagName;";
    let at = check.browser.script(at, &json!([]))?;
    ensure!(at == focus, "behind {done} the focus is at {at}, not at {focus}");
    Ok(())
}

/// Each control and picture has a name in the tree that a screen reader is given, and the table is one.
fn named(check: &Check<'_>) -> Result<()> {
    if check.kind != "Chromium" {
        return Ok(());
    }
    check.browser.devtools("Accessibility.enable", &json!({}))?;
    let tree = check.browser.devtools("Accessibility.getFullAXTree", &json!({}))?;
    let nodes = tree["nodes"].as_array().context("no tree")?;
    let with =
        |role: &str| nodes.iter().filter(|node| node["ignored"] == false && node["role"]["value"] == role).count();
    ensure!(with("tab") == 5 && with("button") > 3, "the tree has {} tabs and {} buttons", with("tab"), with("button"));
    let is_table = check.browser.script("return Boolean(document.querySelector('.table'));", &json!([]))?;
    if is_table == true {
        let found = ["table", "columnheader", "cell"].map(with);
        ensure!(found[0] == 1 && found[1] == 6 && found[2] >= 6, "tables, heads and cells are {found:?}");
    }
    for node in nodes.iter().filter(|node| node["ignored"] == false) {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        let name = node["name"]["value"].as_str().unwrap_or_default();
        ensure!(!NAMED.contains(&role) || !name.trim().is_empty(), "a {role} has no name: {node}");
    }
    Ok(())
}

//! The page's reports are the tool's: the verdict on a file, the statistics and values of its tensors, the differences
//! from another file. JSON is compared with JSON, and an error with the tool's words.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::steps::{npy, safetensors};
use super::{Check, differ, is_narrow};

/// The tensors of a file that are looked at, and the most values that are compared.
const TENSORS: usize = 3;
const VALUES: u64 = 20_000;

/// The summary of the file that is open last.
pub(super) fn summary(check: &Check<'_>, file: &Path, name: &str) -> Result<()> {
    let mut wanted = check.tool(file, &["info", name])?;
    let asked = "ask('describe', { key: files.at(-1).key }).then(({ info }) => info)";
    let found = told(check, asked, &json!([]))?;
    // The page has read a few values before, for the table and the summary that it shows; the tool opens the file anew.
    let read = |facts: &Value| facts["bytes_read"].as_u64();
    ensure!(read(&found) >= read(&wanted), "the page counts fewer bytes than the tool: {found}");
    wanted["bytes_read"] = found["bytes_read"].clone();
    same(&wanted, &found)?;
    let shown = "show('summary'); return $('panel').textContent;";
    let shown = check.browser.script(shown, &json!([]))?;
    let shown = shown.as_str().context("no summary")?;
    for text in wanted["warnings"].as_array().into_iter().flatten().chain([&wanted["format"], &wanted["dialect"]]) {
        let text = check.browser.script("return visible(arguments[0] ?? '');", &json!([text]))?;
        ensure!(text.as_str().is_some_and(|text| shown.contains(text)), "the summary lacks {text}: {shown}");
    }
    Ok(())
}

/// The verdict on the file that was given last, also of one that does not open.
pub(super) fn verdict(check: &Check<'_>, file: &Path, name: &str) -> Result<()> {
    let has_receipt = check
        .browser
        .script("const f = files.at(-1); return Boolean(f && f.file === given.file && f.info.receipt);", &json!([]))?;
    let mut arguments = vec!["verify", "--finite", "--all", name];
    arguments.extend((has_receipt == true).then_some("--replay"));
    let wanted = check.tool(file, &arguments)?;
    let found = told(check, "ask('verify', { file: given.file, how: given.how })", &json!([]))?;
    if is_narrow(&found) { Ok(()) } else { same(&wanted, &found) }
}

/// Statistics, those by channel, and values of the first tensors of the file that is open last.
pub(super) fn tensors(check: &Check<'_>, file: &Path, name: &str, list: &Value) -> Result<()> {
    let rows = list["tensors"].as_array().context("no tensors")?;
    for row in rows.iter().filter(|row| can_be_read(row)).take(TENSORS) {
        tensor(check, file, name, row).with_context(|| format!("{}", row["name"]))?;
    }
    Ok(())
}

fn can_be_read(row: &Value) -> bool {
    row["dtype"].is_string() && row["error"].is_null() && row["elements"].as_u64().is_some_and(|n| n <= VALUES)
}

fn tensor(check: &Check<'_>, file: &Path, name: &str, row: &Value) -> Result<()> {
    let place = format!("#{}", row["index"]);
    let ask = |op: &str, more: &str| {
        let call = format!("ask('{op}', {{ key: files.at(-1).key, place: args[0], {more} }})");
        told(check, &call, &json!([row["index"]]))
    };
    let wanted = check.tool(file, &["stats", "--hist", name, &place])?;
    same_rows(&wanted, &json!([ask("stats", "bins: 16")?]))?;
    if row["shape"].as_array().is_some_and(|shape| !shape.is_empty()) {
        let wanted = check.tool(file, &["stats", "--per-channel=-1", name, &place])?;
        let axis = row["shape"].as_array().map_or(0, Vec::len) - 1;
        same_rows(&wanted, &ask("channels", &format!("axis: {axis}"))?)?;
    }
    for slice in ["...", "...,::2", "...,-1"] {
        let wanted = check.tool(file, &["show", name, &place, "--slice", slice])?;
        let found = ask("values", &format!("slice: '{slice}', most: {VALUES}"))?;
        if wanted["error"].is_object() {
            // The tool's words begin with the option and the tensor.
            let message = wanted["error"]["message"].as_str().unwrap_or_default();
            let end = message.rsplit(": ").next().unwrap_or_default();
            let is_said = found["refused"].as_str().is_some_and(|said| said.ends_with(end));
            ensure!(is_said, "the slice {slice} is refused with {found}, not {message:?}");
            continue;
        }
        let mut flat = Vec::new();
        flatten(&wanted["values"], &mut flat);
        ensure!(found["values"] == json!(flat), "the slice {slice} has {} on the page, not {flat:?}", found["values"]);
        ensure!(found["shape"] == wanted["shape"], "the slice {slice} has the shape {}", found["shape"]);
    }
    Ok(())
}

/// The statistics are the tool's, where the tool has some.
fn same_rows(wanted: &Value, found: &Value) -> Result<()> {
    let Some(rows) = wanted["tensors"].as_array().filter(|rows| !rows.is_empty()) else { return Ok(()) };
    if !rows[0]["error"].is_null() {
        return Ok(());
    }
    ensure!(*found == wanted["tensors"], "the statistics are {found}, not {}", wanted["tensors"]);
    Ok(())
}

fn flatten<'v>(values: &'v Value, into: &mut Vec<&'v Value>) {
    match values.as_array() {
        Some(items) => items.iter().for_each(|item| flatten(item, into)),
        None => into.push(values),
    }
}

/// The differences of the file that is open last from another one beside it, which has its tensors rounded or without
/// diffs.
pub(super) fn difference(check: &Check<'_>, file: &Path, name: &str, other: &Path) -> Result<()> {
    let second = other.file_name().and_then(|name| name.to_str()).context("a name that is no text")?;
    check.give(other)?;
    let opened = check.browser.script("return files.at(-1)?.file === given.file;", &json!([]))?;
    ensure!(opened == true, "the page does not open {second}");
    let wanted = check.tool(file, &["diff", name, second])?;
    let call = "ask('diff', { key: files.at(-2).key, other: files.at(-1).key })";
    same(&wanted, &told(check, call, &json!([]))?)?;
    check.browser.script("remove(files.at(-1));", &json!([])).map(drop)
}

/// The JSON that a call of the page gives; of an error the words. The text is read here, where integers stay exact.
fn told(check: &Check<'_>, call: &str, arguments: &Value) -> Result<Value> {
    let body = format!("try {{ return await {call}; }} catch (e) {{ return {{ refused: e.message }}; }}");
    let told = check.browser.awaited(&body, arguments)?;
    told.as_str().map_or_else(|| Ok(told.clone()), |text| Ok(serde_json::from_str(text)?))
}

/// The statistics of a large tensor, which the worker reads by a stream: those of the tool, with each reading that a
/// measurement takes. None of its bytes stay, as they would of a reading by pieces.
pub(super) fn streams(check: &Check<'_>) -> Result<()> {
    let plain = (0..1_000_003_u32).map(|i| ((i % 1000) as f32).sin());
    let infinite = plain.clone().chain([f32::INFINITY, f32::NAN]);
    let huge = (0..300_001).map(|i| f64::from(i) * 1e300);
    let cases = [
        ("<f4", "(1000003,)", plain.flat_map(f32::to_le_bytes).collect::<Vec<u8>>()),
        ("<f4", "(5, 200001)", infinite.flat_map(f32::to_le_bytes).collect()),
        ("<f8", "(300001,)", huge.flat_map(f64::to_le_bytes).collect()),
    ];
    for (descr, shape, values) in cases {
        let file = check.work.join("streamed.npy");
        npy(&file, descr, shape, &values)?;
        check.give(&file)?;
        let wanted = check.tool(&file, &["stats", "--hist", "streamed.npy"])?;
        ensure!(wanted["tensors"][0]["histogram"].is_object(), "the tool says {wanted}");
        let found = told(check, "ask('stats', { key: files.at(-1).key, place: 0, bins: 16 })", &json!([]))?;
        same_rows(&wanted, &json!([found])).context(shape)?;
        let kept = check.browser.awaited("return (await ask('memory')).windows;", &json!([]))?;
        ensure!(kept.as_u64().is_some_and(|bytes| bytes < 1 << 20), "{shape}: {kept} bytes are kept of pieces");
        check.browser.script("remove(files.at(-1));", &json!([]))?;
        std::fs::remove_file(&file)?;
    }
    for_long(check)
}

/// Gigabytes by streams: a browser that collects its garbage meanwhile goes on answering.
fn for_long(check: &Check<'_>) -> Result<()> {
    let file = check.work.join("long.safetensors");
    safetensors(&file, &["zeros".to_owned()], 512 << 20)?;
    check.give(&file)?;
    let all = "for (let i = 0; i < 12; i += 1) \
        if (JSON.parse(await ask('stats', { key: files.at(-1).key, place: 0, bins: 0 })).zeros !== 2 ** 27) return i; \
        return 'zeros';";
    let found = check.browser.awaited(all, &json!([]))?;
    ensure!(found == "zeros", "the reading {found} of many finds other values");
    std::fs::remove_file(&file)?;
    check.browser.script("remove(files.at(-1));", &json!([]))?;
    breaks(check)
}

/// A stream whose read fails in the middle: the reader is told to end, the module reads the tensor, and no bar counts
/// its bytes twice. Then the module traps in the middle of a stream, which leaves the stream borrowed: the page says
/// the trap, not what its freeing would say.
fn breaks(check: &Check<'_>) -> Result<()> {
    let fails = "let reads = 0, cancelled = 0; \
        const { read, cancel } = ReadableStreamBYOBReader.prototype; \
        ReadableStreamBYOBReader.prototype.read = function (view) { \
          reads += 1; return reads === 40 ? Promise.reject(new Error('a read')) : read.call(this, view); }; \
        ReadableStreamBYOBReader.prototype.cancel = function () { cancelled += 1; return cancel.call(this); }; \
        work.cancelled = () => [reads, cancelled];";
    let file = check.work.join("broken.safetensors");
    safetensors(&file, &["zeros".to_owned()], 32 << 20)?;
    check.give(&file)?;
    anew(check, fails)?;
    let stats = "let most = 0; worker.addEventListener('message', ({ data }) => { most = Math.max(most, data.advanced ?? 0); }); \
        const found = JSON.parse(await ask('stats', { key: files.at(-1).key, place: 0, bins: 0 })); \
        return [found.zeros, most, ...await ask('cancelled')];";
    let found = check.browser.awaited(stats, &json!([]))?;
    ensure!(found == json!([1 << 23, 0, 40, 1]), "zeros, progress, reads and cancels of a stream that fails: {found}");
    let traps = "wasm_bindgen.Stream.prototype.update = function () { \
          this.len = this.free = () => { throw new Error('attempted to take ownership of a borrowed value'); }; \
          throw new WebAssembly.RuntimeError('a trap'); };";
    anew(check, traps)?;
    let ended = "return ask('stats', { key: files.at(-1).key, place: 0, bins: 0 }).then(() => 'a result', (ended) => ended.message);";
    let said = check.browser.awaited(ended, &json!([]))?;
    let wanted = check.browser.script("return WORDS.panic('a trap');", &json!([]))?;
    ensure!(said == wanted, "a trap in a stream is told as {said}");
    std::fs::remove_file(&file)?;
    check.begin()
}

/// Begins the worker anew, with more code at its end: a fault of the check's ends the one before.
fn anew(check: &Check<'_>, code: &str) -> Result<()> {
    let fault = "quiet(); $('worker').textContent += arguments[0]; \
        worker.postMessage({ id: -1, op: 'values', key: -1, place: 0 });";
    check.browser.script(fault, &json!([code]))?;
    check.browser.until("$('alerts').textContent !== ''")
}

/// Two answers are the same. An error has the same words; the help of an error names a command of the tool.
fn same(wanted: &Value, found: &Value) -> Result<()> {
    if wanted["schema"] == "blob.error/1" || wanted["error"].is_object() {
        let said = if found["refused"].is_string() { &found["refused"] } else { &found["error"]["message"] };
        ensure!(*said == wanted["error"]["message"], "the page says {said}, the tool {}", wanted["error"]["message"]);
        return Ok(());
    }
    differ(wanted, found)
}

//! What a person does with the page: several files by the picker, by dropping and by pasting, arrays before a break,
//! the output saved and opened again, its receipt, texts that are copied; and the colours of a picture.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Check;
use super::steps::{DIGEST, copied, data, folder, npy, set, sha256};
use crate::shell;

const CLEAR: &str = "while (files.length) remove(files[0]); quiet();";

pub(super) fn hands(check: &Check<'_>) -> Result<()> {
    ways_in(check).context("files by the picker, dropped, pasted")?;
    before_the_break(check).context("the arrays before a break")?;
    saved(check).context("an output is saved")?;
    no_room(check).context("no room")?;
    pictures(check).context("pictures")
}

/// Two files at once, by each way that the page offers.
fn ways_in(check: &Check<'_>) -> Result<()> {
    let files = ["caffe/forward/lenet.caffemodel", "other/two.safetensors"].map(data);
    let paths = files.each_ref().map(|file| file.display().to_string());
    check.browser.choose("#files", &paths.each_ref().map(String::as_str))?;
    let lists = "files.length === 2 && $('status').textContent === ''";
    check.browser.until(lists)?;
    let listed = "return files.map((file) => [file.file.name, file.list.tensors]);";
    let wanted = check.browser.script(listed, &json!([]))?;
    for (name, event) in [
        ("dropped", "Object.assign(new Event('drop', { bubbles: true, cancelable: true }), { dataTransfer: carried })"),
        ("pasted", "Object.assign(new Event('paste', { bubbles: true }), { clipboardData: carried })"),
    ] {
        // The files of the page itself, carried as a hand does.
        let give = format!(
            "const carried = new DataTransfer(); files.forEach((one) => carried.items.add(one.file)); \
             while (files.length) remove(files[0]); document.body.dispatchEvent({event});"
        );
        check.browser.script(&give, &json!([]))?;
        check.browser.until(lists).with_context(|| name)?;
        let found = check.browser.script(listed, &json!([]))?;
        ensure!(found == wanted, "{name} the files are {found}");
    }
    let shown = check.browser.script(
        "$('open').querySelector('button').click(); \
         return [...$('open').querySelectorAll('.file')].map((one) => one.classList.contains('current'));",
        &json!([]),
    )?;
    ensure!(shown == json!([true, false]), "of the files {shown} are current");
    check.browser.script(CLEAR, &json!([])).map(drop)
}

/// A file that breaks off: the page offers the whole arrays before that, as the tool's `--salvage`.
fn before_the_break(check: &Check<'_>) -> Result<()> {
    let folder = folder(check)?;
    let file = copied(&data("caffe/forward/lenet.caffemodel"), &folder)?;
    let len = std::fs::metadata(&file)?.len();
    std::fs::OpenOptions::new().write(true).open(&file)?.set_len(len * 3 / 5)?;
    check.give(&file)?;
    let offer = "[...$('alerts').querySelectorAll('button')].find((button) => button.textContent === WORDS.salvage)";
    check.browser.until(offer)?;
    check.browser.script(&format!("{offer}.click();"), &json!([]))?;
    check.browser.until("files.length === 1")?;
    let wanted = check.tool(&file, &["ls", "--salvage", "lenet.caffemodel"])?;
    let found = check.browser.script("return files[0].list;", &json!([]))?;
    ensure!(wanted["tensors"].as_array().is_some_and(|tensors| !tensors.is_empty()), "the tool saves nothing");
    ensure!(found["tensors"] == wanted["tensors"], "the page has {}, the tool {}", found["tensors"], wanted["tensors"]);
    check.browser.script("show('verify'); $('verify').click();", &json!([]))?;
    check.browser.until("$('verdict').querySelector('.bad')")?;
    let said = check.browser.script("return $('verdict').querySelector('.bad').textContent;", &json!([]))?;
    ensure!(said == "1 finding", "the verdict is {said}");
    check.browser.script(CLEAR, &json!([])).map(drop)
}

/// An output has a receipt that is shown, goes to the picker's file or is downloaded, and opens again.
fn saved(check: &Check<'_>) -> Result<()> {
    let folder = folder(check)?;
    let file = copied(&data("caffe/forward/lenet.caffemodel"), &folder)?;
    let wanted = folder.join("out.safetensors");
    check.told(&folder, &["convert", "lenet.caffemodel", "-o", "out.safetensors"])?;
    check.give(&file)?;
    check.browser.script("show('convert');", &json!([]))?;
    set(check, "name", "out.safetensors")?;
    let before = check.browser.script("return Number(document.body.dataset.converted ?? 0);", &json!([]))?;
    check.browser.script("$('convert').click();", &json!([]))?;
    check.browser.until(&format!("Number(document.body.dataset.converted) > {before}"))?;
    let shown = check.browser.script(
        "return JSON.parse([...document.querySelectorAll('#results .receipt pre')].at(-1).textContent);",
        &json!([]),
    )?;
    let receipt = check.tool(&wanted, &["info", "out.safetensors"])?;
    ensure!(shown == receipt["receipt"], "the receipt is {shown}, not {}", receipt["receipt"]);
    let save = "[...document.querySelectorAll('#results .result')].at(-1).querySelector('button.main').click();";
    let picker = "window.taken = []; window.showSaveFilePicker = async ({ suggestedName }) => { window.suggested = suggestedName; \
        return { createWritable: async () => new WritableStream({ write: (bytes) => { window.taken.push(bytes.slice()); } }) }; };";
    check.browser.script(&format!("$('status').textContent = ''; {picker} {save}"), &json!([]))?;
    check.browser.until("$('status').textContent === WORDS.saved")?;
    let digest = format!("{DIGEST} return [window.suggested, await digest(new Blob(window.taken))];");
    let digest = check.browser.awaited(&digest, &json!([]))?;
    ensure!(digest == json!(["out.safetensors", sha256(&wanted)?]), "the picker's file is {digest}");
    let downloaded = check.saved.join("out.safetensors");
    check.browser.script(&format!("window.showSaveFilePicker = undefined; {save}"), &json!([]))?;
    arrives(&downloaded, &wanted)?;
    let before = check.browser.script("return document.body.dataset.opened;", &json!([]))?;
    check.browser.script("[...document.querySelectorAll('.reopen')].at(-1).click();", &json!([]))?;
    check.browser.until(&format!("document.body.dataset.opened !== {before}"))?;
    let found = check.browser.script("return files.at(-1).list;", &json!([]))?;
    super::differ(&check.tool(&wanted, &["ls", "out.safetensors"])?, &found)?;
    texts(check)?;
    check.browser.script(CLEAR, &json!([])).map(drop)
}

/// The buttons beside the recipe and the command copy these.
fn texts(check: &Check<'_>) -> Result<()> {
    let copy = "window.texts = []; \
        Object.defineProperty(navigator, 'clipboard', { configurable: true, value: { writeText: async (text) => { window.texts.push(text); } } }); \
        choose(files[0]); show('convert'); \
        [...$('panel').querySelectorAll('button')].filter((button) => button.textContent === WORDS.copy).forEach((button) => button.click()); \
        return [$('recipe').value, $('command').value, $('batch').value];";
    let wanted = check.browser.script(copy, &json!([]))?;
    check.browser.until("window.texts.length === 3")?;
    let copied = check.browser.script("return window.texts;", &json!([]))?;
    ensure!(copied == wanted, "{copied} is copied, not {wanted}");
    Ok(())
}

/// Waits for a download with the bytes of a file.
fn arrives(file: &Path, wanted: &Path) -> Result<()> {
    let (begun, wanted) = (Instant::now(), std::fs::read(wanted)?);
    while begun.elapsed() < Duration::from_secs(20) {
        if std::fs::read(file).is_ok_and(|bytes| bytes == wanted) {
            std::fs::remove_file(file)?;
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    anyhow::bail!("{} does not come", file.display())
}

/// The browser says that no room is left: so does the page, before the first write.
fn no_room(check: &Check<'_>) -> Result<()> {
    check.give(&data("caffe/forward/lenet.caffemodel"))?;
    let full = "const { storage } = navigator; window.estimate = storage.estimate; \
        Object.defineProperty(storage, 'estimate', { configurable: true, value: async () => ({ quota: 1000, usage: 10 }) }); \
        show('convert'); $('convert').click();";
    check.browser.script(full, &json!([]))?;
    check.browser.until("$('alerts').textContent.startsWith('The browser has 990 B left')")?;
    let back = "Object.defineProperty(navigator.storage, 'estimate', { configurable: true, value: window.estimate });";
    check.browser.script(&format!("{back} {CLEAR}"), &json!([])).map(drop)
}

/// A heat map has the colours of its values; a filter of three planes those of its pixels.
fn pictures(check: &Check<'_>) -> Result<()> {
    let map = [-1.0, -0.5, 0.0, 0.0, 0.5, 1.0];
    let seen = picture(check, "(2, 3)", &map)?;
    let (blue, red, white) = ([0, 0, 255], [255, 0, 0], [255; 3]);
    ensure!(seen == json!([blue, [128, 128, 255], white, white, [255, 128, 128], red]), "the map is {seen}");
    let planes = [0.0, 1.0, 1.0, 0.0, 0.0, 1.0];
    let seen = picture(check, "(1, 3, 1, 2)", &planes)?;
    ensure!(seen == json!([[0, 255, 0], [255, 0, 255]]), "the filter is {seen}");
    Ok(())
}

/// The pixels of the picture of an npy file.
fn picture(check: &Check<'_>, shape: &str, values: &[f32]) -> Result<Value> {
    let file = check.work.join("picture.npy");
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    npy(&file, "<f4", shape, &bytes)?;
    check.give(&file)?;
    check.browser.script("show('tensors');", &json!([]))?;
    check.browser.until("document.querySelector('.rows .name')")?;
    check.browser.script("document.querySelector('.rows .name').click();", &json!([]))?;
    check.browser.until("document.querySelector('.detail canvas')")?;
    let pixels = "const canvas = document.querySelector('.detail canvas'); \
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height); \
        return Array.from({ length: data.length / 4 }, (_, i) => [...data.slice(4 * i, 4 * i + 3)]);";
    let pixels = check.browser.script(pixels, &json!([]))?;
    check.browser.script(CLEAR, &json!([]))?;
    Ok(pixels)
}

/// A folder of the repository's for what the browser saves.
pub(super) fn saves() -> Result<PathBuf> {
    let folder = shell::target_directory()?.join("page-check/saved");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

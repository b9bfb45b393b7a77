//! The form of a conversion, filled in by hand, against the tool's command that the form shows: nets, models that are
//! filled, members of archives. And the panel of one tensor.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Check;
use crate::shell;

/// A conversion by the form.
struct Case {
    source: &'static str,
    /// The file that describes the net.
    net: &'static str,
    /// The settings: the fields by id.
    fields: &'static [(&'static str, &'static str)],
    /// The files that the command writes.
    outputs: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        source: "caffe/forward/lenet.caffemodel",
        net: "caffe/forward/lenet.prototxt",
        fields: &[("format", "onnx"), ("name", "out.onnx")],
        outputs: &["out.onnx"],
    },
    Case {
        source: "caffe/forward/resnet.caffemodel",
        net: "caffe/forward/resnet.prototxt",
        fields: &[("format", "safetensors"), ("fold", ""), ("names", "torch"), ("name", "out.safetensors")],
        outputs: &["out.safetensors"],
    },
    Case {
        source: "mxnet/golden/mxnet-1.9.1/checkpoints/mobilenet0_25-0000.params",
        net: "mxnet/golden/mxnet-1.9.1/checkpoints/mobilenet0_25-symbol.json",
        fields: &[("format", "onnx"), ("inputs", "data=2,3,64,64"), ("dynamic", ""), ("name", "out.onnx")],
        outputs: &["out.onnx"],
    },
    Case {
        source: "mxnet/forward/block-0000.params",
        net: "mxnet/forward/block-symbol.json",
        fields: &[("format", "params"), ("fold", ""), ("name", "out-0000.params")],
        outputs: &["out-0000.params", "out-symbol.json"],
    },
];

/// The archives, and how many files of tensors are members of each.
const ARCHIVES: &[&str] =
    &["small-deflated.zip", "small-stored.zip", "small.tar", "small.tar.gz", "two.tar", "twice.tar"];

pub(super) fn forms(check: &Check<'_>) -> Result<()> {
    for case in CASES {
        form(check, case).with_context(|| format!("the form with {}", case.source))?;
    }
    into_a_model(check).context("a model that is filled")?;
    let archives = shell::root().join("tests/data/archives");
    ARCHIVES
        .iter()
        .try_for_each(|name| members(check, &archives.join(name)).with_context(|| format!("members of {name}")))
}

fn data(name: &str) -> PathBuf {
    shell::root().join("tests/data").join(name)
}

/// An empty folder for the tool.
fn folder(check: &Check<'_>) -> Result<PathBuf> {
    let folder = check.work.join("form");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn copied(file: &Path, folder: &Path) -> Result<PathBuf> {
    let to = folder.join(file.file_name().context("a file has a name")?);
    std::fs::copy(file, &to)?;
    Ok(to)
}

fn form(check: &Check<'_>, case: &Case) -> Result<()> {
    let folder = folder(check)?;
    let source = copied(&data(case.source), &folder)?;
    copied(&data(case.net), &folder)?;
    check.give(&source)?;
    check.browser.script("show('convert');", &json!([]))?;
    check.browser.choose("#net", &[&data(case.net).display().to_string()])?;
    check.browser.until("$('netName').textContent !== ''")?;
    run(check, &folder, case.fields, case.outputs)?;
    check.browser.script("remove(files.at(-1));", &json!([])).map(drop)
}

/// The tensors of one file into a copy of another one that is open.
fn into_a_model(check: &Check<'_>) -> Result<()> {
    let folder = folder(check)?;
    let model = copied(&data("caffe/forward/lenet.caffemodel"), &folder)?;
    let mut tool = Command::new(check.tool);
    tool.current_dir(&folder).args(["-q", "convert", "lenet.caffemodel", "-o", "tuned.npz"]);
    ensure!(tool.status()?.success(), "the tool makes no npz");
    check.give(&model)?;
    check.give(&folder.join("tuned.npz"))?;
    check.browser.script("show('convert');", &json!([]))?;
    let key = check.browser.script("return String(files.at(-2).key);", &json!([]))?;
    let key = key.as_str().context("no key")?;
    run(check, &folder, &[("into", key), ("name", "out.caffemodel")], &["out.caffemodel"])?;
    check.browser.script("remove(files.at(-1)); remove(files.at(-1));", &json!([])).map(drop)
}

/// Fills the form in, converts, runs the command that is shown, and compares the outputs.
fn run(check: &Check<'_>, folder: &Path, fields: &[(&str, &str)], outputs: &[&str]) -> Result<()> {
    for (id, value) in fields {
        // The plan of the field before is awaited, or its answer could come after the next one's.
        let set = "const [id, value] = arguments; const field = $(id); const before = Number(document.body.dataset.planned); \
                   if (field.type === 'checkbox') field.checked = true; else field.value = value; \
                   field.dispatchEvent(new Event('input', { bubbles: true })); return before;";
        let before = check.browser.script(set, &json!([id, value]))?;
        check.browser.until(&format!("Number(document.body.dataset.planned) > {before}"))?;
    }
    returned_to(check)?;
    let said = check.browser.script("return $('alerts').textContent;", &json!([]))?;
    ensure!(said == "", "the plan says {said}");
    let seen = check.browser.script("return $('said').querySelectorAll('li, p').length;", &json!([]))?;
    ensure!(seen != 0, "the plan is not shown");
    let command = check.browser.script("return $('command').value;", &json!([]))?;
    let command = command.as_str().context("no command")?;
    let before = check.browser.script("return Number(document.body.dataset.converted ?? 0);", &json!([]))?;
    check.browser.script("$('convert').click();", &json!([]))?;
    check.browser.until(&format!("Number(document.body.dataset.converted) > {before}"))?;
    let path = check.tool.parent().context("the tool lies in a folder")?.display().to_string();
    let paths = format!("{path}:{}", std::env::var("PATH").unwrap_or_default());
    let done = Command::new("sh").current_dir(folder).env("PATH", paths).args(["-c", command]).output()?;
    ensure!(done.status.success(), "`{command}` fails: {}", String::from_utf8_lossy(&done.stderr));
    let digests = check.browser.awaited(
        "const made = results.slice(-args[0]); \
         return Promise.all(made.map(async ({ name, output }) => { \
           const digest = await crypto.subtle.digest('SHA-256', await output.arrayBuffer()); \
           return [name, [...new Uint8Array(digest)].map((b) => b.toString(16).padStart(2, '0')).join('')]; }));",
        &json!([outputs.len()]),
    )?;
    let wanted =
        outputs.iter().map(|name| Ok(json!([name, sha256(&folder.join(name))?]))).collect::<Result<Vec<_>>>()?;
    ensure!(digests == Value::Array(wanted.clone()), "`{command}` makes {wanted:?}, the page {digests}");
    Ok(())
}

/// Shows another panel and the form again, which has the settings that it had.
fn returned_to(check: &Check<'_>) -> Result<()> {
    let back = "const before = $('command').value; show('tensors'); show('convert'); return before;";
    let before = check.browser.script(back, &json!([]))?;
    // The panel is a new one, whose plan is shown when it has come; others may still come for the one before.
    check.browser.until("$('said').childElementCount > 0")?;
    let command = check.browser.script("return $('command').value;", &json!([]))?;
    ensure!(command == before, "the form forgets: {before} became {command}");
    Ok(())
}

fn sha256(file: &Path) -> Result<String> {
    let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
    Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Each member of an archive that the page offers opens by its button, and has the tool's table.
fn members(check: &Check<'_>, archive: &Path) -> Result<()> {
    let name = archive.file_name().and_then(|name| name.to_str()).context("a name that is no text")?;
    check.give(archive)?;
    let offered = check.browser.script(
        "return [...$('alerts').querySelectorAll('button')].map((button) => button.textContent);",
        &json!([]),
    )?;
    for (at, button) in offered.as_array().into_iter().flatten().enumerate() {
        let before = check.browser.script("return document.body.dataset.opened;", &json!([]))?;
        check.browser.script(&format!("$('alerts').querySelectorAll('button')[{at}].click();"), &json!([]))?;
        check.browser.until(&format!("document.body.dataset.opened !== '{}'", before.as_str().unwrap_or_default()))?;
        let member = check.browser.script("return given.how.member;", &json!([]))?;
        let member = member.as_str().with_context(|| format!("{button} opens no member"))?;
        let wanted = check.tool(archive, &["ls", &format!("{name}/{member}")])?;
        let found = check.browser.script("return files.at(-1)?.list ?? null;", &json!([]))?;
        super::differ(&wanted, &found)?;
        check.browser.script("remove(files.at(-1));", &json!([]))?;
        check.give(archive)?;
    }
    check.browser.script("if (files.length) remove(files.at(-1)); quiet();", &json!([])).map(drop)
}

/// The panel of one tensor, by its buttons: a slice, statistics by channel, colours, and npy as the tool writes it.
pub(super) fn panel(check: &Check<'_>) -> Result<()> {
    let folder = folder(check)?;
    let source = copied(&data("caffe/forward/resnet.caffemodel"), &folder)?;
    check.give(&source)?;
    check.browser.script("show('tensors');", &json!([]))?;
    check.browser.until("document.querySelector('.rows .name')")?;
    check.browser.script("document.querySelector('.rows .name').click();", &json!([]))?;
    check.browser.until("document.querySelector('.detail canvas') && document.querySelector('.bars svg')")?;
    let label = check.browser.script(
        "return document.querySelector('.detail canvas').getAttribute('aria-label') === \
         (files.at(-1).chosen.shape[1] === 3 ? WORDS.colours : WORDS.picture);",
        &json!([]),
    )?;
    ensure!(label == true, "the picture is not of the kind that the shape asks for");
    check.browser.script("$('byChannel').click();", &json!([]))?;
    check.browser.until("$('channels').dataset.axis === '0'")?;
    let rows = check
        .browser
        .script("return $('channels').querySelectorAll('tr').length - files.at(-1).chosen.shape[0];", &json!([]))?;
    ensure!(rows == 1, "the channels have {rows} rows too many");
    let before = check.browser.script("return Number(document.body.dataset.converted ?? 0);", &json!([]))?;
    check.browser.script("$('npy').click();", &json!([]))?;
    check.browser.until(&format!("Number(document.body.dataset.converted) > {before}"))?;
    let made = check.browser.awaited(
        "const { output } = results.at(-1); const digest = await crypto.subtle.digest('SHA-256', await output.arrayBuffer()); \
         return [...new Uint8Array(digest)].map((b) => b.toString(16).padStart(2, '0')).join('');",
        &json!([]),
    )?;
    let tool = Command::new(check.tool)
        .current_dir(&folder)
        .args(["-q", "convert", "resnet.caffemodel", "--only", "#0", "-o", "out.npy"])
        .status()?;
    ensure!(tool.success(), "the tool writes no npy");
    let is_beside =
        check.browser.script("return Boolean(document.querySelector('.detail #results .result'));", &json!([]))?;
    ensure!(is_beside == true, "the result is not shown beside the tensor");
    ensure!(made == sha256(&folder.join("out.npy"))?, "the npy is not the tool's");
    check.browser.script("remove(files.at(-1));", &json!([])).map(drop)
}

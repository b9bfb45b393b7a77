//! The form of a conversion, filled in by hand, against the tool's command that the form shows: nets, models that are
//! filled, members of archives. And the panel of one tensor.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::Check;
use super::steps::{DIGEST, copied, data, folder, set, sha256};
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
    Case {
        source: "caffe/net/f32_v2_diff.caffemodel",
        net: "",
        fields: &[
            ("format", "npz"),
            ("dtype", "f16"),
            ("stripDiff", ""),
            ("sha256", ""),
            ("skip", ""),
            ("name", "out.npz"),
        ],
        outputs: &["out.npz"],
    },
    Case {
        source: "caffe/forward/resnet.caffemodel",
        net: "caffe/forward/resnet.prototxt",
        fields: &[("format", "hdf5"), ("layout", "hwio"), ("only", "res* #0"), ("receipt", "off"), ("name", "out.h5")],
        outputs: &["out.h5"],
    },
    Case {
        source: "other/two.safetensors",
        net: "",
        fields: &[("format", "npz"), ("strict", ""), ("name", "out.npz")],
        outputs: &["out.npz"],
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

fn form(check: &Check<'_>, case: &Case) -> Result<()> {
    let folder = folder(check)?;
    let source = copied(&data(case.source), &folder)?;
    check.give(&source)?;
    check.browser.script("show('convert');", &json!([]))?;
    if !case.net.is_empty() {
        copied(&data(case.net), &folder)?;
        check.browser.choose("#net", &[&data(case.net).display().to_string()])?;
        check.browser.until("$('netName').textContent !== ''")?;
    }
    run(check, &folder, case.fields, case.outputs)?;
    check.browser.script("remove(files.at(-1));", &json!([])).map(drop)
}

/// The tensors of one file into a copy of another one that is open.
fn into_a_model(check: &Check<'_>) -> Result<()> {
    let folder = folder(check)?;
    let model = copied(&data("caffe/forward/lenet.caffemodel"), &folder)?;
    check.told(&folder, &["convert", "lenet.caffemodel", "-o", "tuned.npz"])?;
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
    fields.iter().try_for_each(|(id, value)| set(check, id, value))?;
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
    typed(check, folder, command)?;
    let each = "const made = results.slice(-args[0]); return Promise.all(made.map(async (one) => [one.name, await digest(one.output)]));";
    let digests = check.browser.awaited(&format!("{}{each}", DIGEST), &json!([outputs.len()]))?;
    let wanted = |folder: &Path| {
        outputs.iter().map(|name| Ok(json!([name, sha256(&folder.join(name))?]))).collect::<Result<Vec<_>>>()
    };
    ensure!(digests == Value::Array(wanted(folder)?), "`{command}` makes {:?}, the page {digests}", wanted(folder)?);
    // The recipe beside the command is the same conversion.
    let recipe = check.browser.script("return $('recipe').value;", &json!([]))?;
    std::fs::write(folder.join("recipe.json"), recipe.as_str().context("no recipe")?)?;
    outputs.iter().try_for_each(|name| std::fs::remove_file(folder.join(name)))?;
    check.told(folder, &["convert", "--recipe", "recipe.json"])?;
    ensure!(digests == Value::Array(wanted(folder)?), "the recipe makes {:?}, the page {digests}", wanted(folder)?);
    let [output] = outputs else { return Ok(()) };
    in_a_batch(check, folder, output)
}

/// The command for many files, where the form shows one, gives the same arrays. A batch writes its recipe's digest
/// into the receipt, so the bytes differ.
fn in_a_batch(check: &Check<'_>, folder: &Path, output: &str) -> Result<()> {
    let batch = check.browser.script("return $('batch').value;", &json!([]))?;
    let batch = batch.as_str().context("no command")?;
    if batch.is_empty() {
        return Ok(());
    }
    typed(check, folder, batch)?;
    let made = std::fs::read_dir(folder.join("out"))?.collect::<Result<Vec<_>, _>>()?;
    let [made] = &made[..] else { bail!("`{batch}` makes {made:?}") };
    check.told(folder, &["diff", output, &made.path().display().to_string()]).with_context(|| batch.to_owned())
}

/// Runs a command of the tool as typed.
fn typed(check: &Check<'_>, folder: &Path, command: &str) -> Result<()> {
    let path = check.tool.parent().context("the tool lies in a folder")?.display().to_string();
    let paths = format!("{path}:{}", std::env::var("PATH").unwrap_or_default());
    let done = Command::new("sh").current_dir(folder).env("PATH", paths).args(["-c", command]).output()?;
    ensure!(done.status.success(), "`{command}` fails: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// Shows another panel and the form again, with the settings of before.
fn returned_to(check: &Check<'_>) -> Result<()> {
    let back = "const before = $('command').value; show('tensors'); show('convert'); return before;";
    let before = check.browser.script(back, &json!([]))?;
    // The panel is a new one, whose plan is shown on arrival; others may still come for the one before.
    check.browser.until("$('said').childElementCount > 0")?;
    let command = check.browser.script("return $('command').value;", &json!([]))?;
    ensure!(command == before, "the form forgets: {before} became {command}");
    Ok(())
}

/// Each member of an archive that the page offers opens by a button, and has the tool's table.
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
    let made = check.browser.awaited(&format!("{} return digest(results.at(-1).output);", DIGEST), &json!([]))?;
    check.told(&folder, &["convert", "resnet.caffemodel", "--only", "#0", "-o", "out.npy"])?;
    let is_beside =
        check.browser.script("return Boolean(document.querySelector('.detail #results .result'));", &json!([]))?;
    ensure!(is_beside == true, "the result is not shown beside the tensor");
    ensure!(made == sha256(&folder.join("out.npy"))?, "the npy is not the tool's");
    check.browser.script("remove(files.at(-1));", &json!([])).map(drop)
}

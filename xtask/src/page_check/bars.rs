//! `cargo xtask page-check --bars FILE`: the speed of the page with a large file, beside the tool's on one core, and
//! the memory of its worker, also with a sparse file of 6 GB. Medians of five, in one run. `BLOB_TOOL` names a
//! released tool, or the comparison says little.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::memory::Processes;
use super::steps::safetensors;
use super::{Check, table};
use crate::page;

const RUNS: usize = 5;

/// A bar: the figure is at most, or at least, so much.
struct Bar {
    name: &'static str,
    figure: f64,
    at_most: Option<f64>,
    at_least: Option<f64>,
    unit: &'static str,
}

impl Bar {
    fn at_most(name: &'static str, figure: f64, most: f64, unit: &'static str) -> Self {
        Self { name, figure, at_most: Some(most), at_least: None, unit }
    }

    fn at_least(name: &'static str, figure: f64, least: f64, unit: &'static str) -> Self {
        Self { name, figure, at_most: None, at_least: Some(least), unit }
    }

    fn is_met(&self) -> bool {
        self.at_most.is_none_or(|most| self.figure <= most) && self.at_least.is_none_or(|least| self.figure >= least)
    }

    fn line(&self) -> String {
        let Self { name, figure, unit, .. } = self;
        let bound = self.at_most.map(|most| format!("at most {most}"));
        let bound = bound.or(self.at_least.map(|least| format!("at least {least}"))).unwrap_or_default();
        let met = if self.is_met() { "" } else { "  MISSED" };
        format!("{name}: {figure:.3} {unit}, {bound}{met}")
    }
}

pub(super) fn bars(check: &Check<'_>, folder: &Path, file: &Path) -> Result<()> {
    let file = &file.canonicalize().with_context(|| file.display().to_string())?;
    let usable = median(|| {
        check.begin()?;
        let at = check.browser.script("return performance.getEntriesByName('usable')[0].startTime;", &json!([]))?;
        at.as_f64().context("no time")
    })?;
    let mut bars = vec![
        Bar::at_most("module, packed", page::module_len(folder)? as f64 / 1e6, 1.5, "MB"),
        Bar::at_most("usable after navigation", usable, 400.0, "ms"),
    ];
    bars.extend(large(check, file)?);
    bars.extend(long(check)?);
    bars.push(Bar::at_most("60,000 tensors, until their table is drawn", many(check)?, 3000.0, "ms"));
    bars.iter().for_each(|bar| println!("page-check: {}", bar.line()));
    ensure!(bars.iter().all(Bar::is_met), "a bar is missed");
    Ok(())
}

/// The speed with a file, beside the tool's and the browser's own, and the memory.
fn large(check: &Check<'_>, file: &Path) -> Result<Vec<Bar>> {
    let processes = Processes::begin(check)?;
    check.give(file)?;
    let listed = timed(check, "remove(files.at(-1)); await add(given.file, {});")?;
    let stats = timed(
        check,
        "for (const t of files.at(-1).list.tensors) await ask('stats', { key: files.at(-1).key, place: t.index, bins: 0 });",
    )?;
    let converted = timed(
        check,
        "const recipe = JSON.stringify({ schema: 'blob.recipe/1', sources: [], target: { path: 'o.safetensors', format: 'safetensors' } }); \
         const done = await ask('convert', { key: files.at(-1).key, recipe }); await ask('remove', { name: done.name });",
    )?;
    let peak = processes.grown();
    let memory = memory(check)?;
    let own = |body: &str| median(|| check.browser.awaited(&plain(body), &json!([]))?.as_f64().context("no time"));
    let (read, streamed, copied) = (own(READ)?, own(STREAM)?, own(COPY)?);
    let name = &file.display().to_string();
    let out = &check.work.join("bars.safetensors").display().to_string();
    let tool_stats = tool(check, &["stats", name])?;
    let tool_converts = tool(check, &["convert", name, "-o", out, "--force"])?;
    let _ = std::fs::remove_file(out);
    println!(
        "page-check: statistics {stats:.0} ms (the tool {tool_stats:.0}; reading alone in a worker {read:.0} by pieces, \
         {streamed:.0} by a stream: {:.2} of the latter's speed), conversion {converted:.0} ms (the tool \
         {tool_converts:.0}, reading and writing alone {copied:.0}); the page's process had {peak:.0} MiB more at its peak",
        streamed / stats
    );
    Ok(vec![
        Bar::at_most("listed after the drop", listed, 150.0, "ms"),
        Bar::at_least("statistics, of the tool's speed on one core", tool_stats / stats, 0.25, ""),
        Bar::at_least("conversion to safetensors, of the tool's on one core", tool_converts / converted, 0.2, ""),
        Bar::at_least("conversion, of reading and writing alone", copied / converted, 0.4, ""),
        Bar::at_most("memory of the worker, after that", memory, 96.0, "MiB"),
        Bar::at_most("memory of the page's process, above its start", peak, 96.0, "MiB"),
    ])
}

/// A sparse file of 6 GB: the list comes as fast, values behind 4 GiB are read in place, and in as little memory.
fn long(check: &Check<'_>) -> Result<Vec<Bar>> {
    let long = check.work.join("long.safetensors");
    let names: Vec<String> = (0..96).map(|i| format!("zeros{i}")).collect();
    safetensors(&long, &names, 64 << 20)?;
    // The last value is 1.
    let len = std::fs::metadata(&long)?.len();
    let file = std::fs::OpenOptions::new().write(true).open(&long)?;
    std::os::unix::fs::FileExt::write_all_at(&file, &1_f32.to_le_bytes(), len - 4)?;
    check.begin()?;
    let processes = Processes::begin(check)?;
    check.give(&long)?;
    let listed = timed(check, "remove(files.at(-1)); await add(given.file, {});")?;
    let last = "const key = files.at(-1).key; const stats = await ask('stats', { key, place: 95, bins: 16 }); \
                const values = await ask('values', { key, place: 95, slice: '-2:', most: 10 }); \
                return [files.at(-1).info.file_bytes > 6e9, JSON.parse(stats).max, JSON.parse(values).values];";
    let found = check.browser.awaited(last, &json!([]))?;
    ensure!(found == json!([true, 1, [0, 1]]), "behind 4 GiB the page finds {found}");
    let (peak, memory) = (processes.grown(), memory(check)?);
    let _ = std::fs::remove_file(&long);
    Ok(vec![
        Bar::at_most("6 GB listed after the drop", listed, 150.0, "ms"),
        Bar::at_most("memory of the worker, 6 GB", memory, 96.0, "MiB"),
        Bar::at_most("memory of the page's process, above its start, 6 GB", peak, 96.0, "MiB"),
    ])
}

/// Opens 60,000 tensors, and shows the first rows.
fn many(check: &Check<'_>) -> Result<f64> {
    let file = table::many(check)?;
    check.begin()?;
    check.give(&file)?;
    check.browser.script("show('tensors');", &json!([]))?;
    timed(
        check,
        "remove(files.at(-1)); await add(given.file, {}); while (!document.querySelector('.rows .name')) await new Promise(requestAnimationFrame);",
    )
}

/// Reads the file by pieces of 16 MiB, as the page's worker does for conversions.
const READ: &str =
    "for (let at = 0; at < file.size; at += 16 << 20) reader.readAsArrayBuffer(file.slice(at, at + (16 << 20)));";

/// Reads the file by a stream, as the page's worker does for statistics.
const STREAM: &str = "const stream = file.stream().getReader({ mode: 'byob' }); \
    for (let buffer = new ArrayBuffer(1 << 18);;) { const { done, value } = await stream.read(new Uint8Array(buffer)); \
      if (done) break; ({ buffer } = value); }";

/// Reads the file, and writes each piece to a private file.
const COPY: &str = "const root = await navigator.storage.getDirectory(); const name = 'plain'; \
    const handle = await (await root.getFileHandle(name, { create: true })).createSyncAccessHandle(); \
    for (let at = 0; at < file.size; at += 16 << 20) \
      handle.write(new Uint8Array(reader.readAsArrayBuffer(file.slice(at, at + (16 << 20)))), { at }); \
    handle.flush(); handle.close(); await root.removeEntry(name);";

/// The time of a loop without the module, in a separate worker.
fn plain(body: &str) -> String {
    let worker = format!(
        "onmessage = async ({{ data: file }}) => {{ const reader = new FileReaderSync(); const begun = performance.now(); \
         {body} postMessage(performance.now() - begun); }};"
    );
    format!(
        "const url = URL.createObjectURL(new Blob([{worker:?}], {{ type: 'text/javascript' }})); const plain = new Worker(url); \
         try {{ return await new Promise((ok, no) => {{ plain.onmessage = (told) => ok(told.data); plain.onerror = no; \
         plain.postMessage(files.at(-1).file); }}); }} finally {{ plain.terminate(); }}"
    )
}

/// The median of five figures.
fn median(mut run: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut figures = (0..RUNS).map(|_| run()).collect::<Result<Vec<f64>>>()?;
    figures.sort_by(f64::total_cmp);
    Ok(figures[RUNS / 2])
}

/// The time that a script of the page takes, in ms.
fn timed(check: &Check<'_>, body: &str) -> Result<f64> {
    let body = format!("const begun = performance.now(); {body} return performance.now() - begun;");
    median(|| check.browser.awaited(&body, &json!([]))?.as_f64().context("no time"))
}

/// The time that the tool takes on one core, in ms.
fn tool(check: &Check<'_>, arguments: &[&str]) -> Result<f64> {
    median(|| {
        let begun = Instant::now();
        let done = Command::new("taskset").args(["-c", "0"]).arg(check.tool).arg("-q").args(arguments).output()?;
        ensure!(done.status.success(), "the tool fails: {}", String::from_utf8_lossy(&done.stderr));
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    })
}

/// The worker's memory in MiB: the module's, which never shrinks, and the pieces of files that it keeps.
fn memory(check: &Check<'_>) -> Result<f64> {
    let bytes = check
        .browser
        .awaited("const { module, windows } = await ask('memory'); return [module, windows];", &json!([]))?;
    println!("page-check: the module has {} bytes, its pieces of files {}", bytes[0], bytes[1]);
    let sum = bytes[0].as_f64().context("no size")? + bytes[1].as_f64().context("no size")?;
    Ok(sum / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::Bar;

    #[test]
    fn a_bar_is_met_or_missed() {
        assert_eq!(Bar::at_most("a", 1.0, 1.0, "ms").line(), "a: 1.000 ms, at most 1");
        assert_eq!(Bar::at_most("a", 1.1, 1.0, "ms").line(), "a: 1.100 ms, at most 1  MISSED");
        assert_eq!(Bar::at_least("a", 0.2, 0.25, "").line(), "a: 0.200 , at least 0.25  MISSED");
    }
}

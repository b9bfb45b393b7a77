//! `cargo xtask page-check --bars FILE`: the speed of the page with a large file, beside the tool's on one core, and
//! the memory of its worker, also with a sparse file of 6 GB. Medians of five, in one run. `BLOB_TOOL` names a
//! released tool, or the comparison says little.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::Check;
use super::goes_on::safetensors;
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
    let module = page::module_len(folder)?;
    let usable = median(|| {
        check.begin()?;
        let at = check.browser.script("return performance.getEntriesByName('usable')[0].startTime;", &json!([]))?;
        at.as_f64().context("no time")
    })?;
    check.give(file)?;
    let listed = timed(check, "remove(files.at(-1)); await add(given.file, {});")?;
    let read = timed(
        check,
        "const { file } = files.at(-1); for (let at = 0; at < file.size; at += 16 << 20) await file.slice(at, at + (16 << 20)).arrayBuffer();",
    )?;
    let stats = timed(
        check,
        "for (const t of files.at(-1).list.tensors) await ask('stats', { key: files.at(-1).key, place: t.index, bins: 0 });",
    )?;
    let converted = timed(
        check,
        "const recipe = JSON.stringify({ schema: 'blob.recipe/1', sources: [], target: { path: 'o.safetensors', format: 'safetensors' } }); \
         const done = await ask('convert', { key: files.at(-1).key, recipe }); await ask('remove', { name: done.name });",
    )?;
    let memory = memory(check)?;
    let name = &file.display().to_string();
    let out = &check.work.join("bars.safetensors").display().to_string();
    let tool_stats = tool(check, &["stats", name])?;
    let tool_converts = tool(check, &["convert", name, "-o", out, "--force"])?;
    let _ = std::fs::remove_file(out);
    let long = check.work.join("long.safetensors");
    let names: Vec<String> = (0..96).map(|i| format!("zeros{i}")).collect();
    safetensors(&long, &names, 64 << 20)?;
    check.begin()?;
    check.give(&long)?;
    let last = "const f = files.at(-1); await ask('stats', { key: f.key, place: 95, bins: 16 }); \
                await ask('values', { key: f.key, place: 95, slice: '-1', most: 10 }); return f.info.file_bytes;";
    let bytes = check.browser.awaited(last, &json!([]))?;
    ensure!(bytes.as_u64().is_some_and(|bytes| bytes > 6_000_000_000), "the long file has {bytes} bytes");
    let long_memory = self::memory(check)?;
    let _ = std::fs::remove_file(&long);
    let bars = [
        Bar::at_most("module, packed", module as f64 / 1e6, 1.5, "MB"),
        Bar::at_most("usable after navigation", usable, 400.0, "ms"),
        Bar::at_most("listed after the drop", listed, 150.0, "ms"),
        Bar::at_least("statistics, of the tool's speed on one core", tool_stats / stats, 0.25, ""),
        Bar::at_least("conversion to safetensors, of the tool's on one core", tool_converts / converted, 0.2, ""),
        Bar::at_most("memory of the module, after that", memory, 96.0, "MiB"),
        Bar::at_most("memory of the module, 6 GB", long_memory, 96.0, "MiB"),
    ];
    println!(
        "page-check: statistics {stats:.0} ms (the tool {tool_stats:.0}, the browser's reading alone {read:.0}), \
         conversion {converted:.0} ms ({tool_converts:.0})"
    );
    bars.iter().for_each(|bar| println!("page-check: {}", bar.line()));
    ensure!(bars.iter().all(Bar::is_met), "a bar is missed");
    Ok(())
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

/// The module's memory in MiB, which never shrinks.
fn memory(check: &Check<'_>) -> Result<f64> {
    let bytes = check.browser.awaited("return ask('memory');", &json!([]))?;
    Ok(bytes.as_f64().context("no size")? / f64::from(1 << 20))
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

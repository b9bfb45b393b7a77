//! Runs the phases, each in a child process with a time limit, and writes the page. Measures nothing itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use synced_mem::cuda::list;

use crate::child::{self, TOOK};
use crate::report::Found;
use crate::{FULL, Sizes, TINY, bench, cases, checks, files, table, transfers};

/// The time limit of all phases together, to stay below ten minutes.
const LIMIT: Duration = Duration::from_secs(570);

/// Each phase: name, subject, and time limit in seconds.
const PHASES: [(&str, &str, u64); 5] = [
    ("conformance", "the promises of a backend", 60),
    ("operations", "operations of small tensors", 90),
    ("transfers", "transfers", 60),
    ("calls", "the small operation", 30),
    ("files", "models from their files", 120),
];

/// The phases of the first uses, which run before all others: in a process with an empty compilation cache, and in a
/// second process with the cache of the first.
const FIRST: [(&str, &str); 2] =
    [("first", "the first use of each kernel file"), ("second", "the same in a second process")];

/// How often these two are repeated, and after how many seconds not any more.
const FIRST_USES: (usize, u64) = (5, 60);

/// The phases that run all cases. Times come first, because computing the host's results takes the longest.
const ROWS: [(&str, &str); 2] = [("rows", "the rows"), ("bits", "the host's bits")];

/// The seconds that both may take together, and the seconds that they must leave for the peers and the sanitizer.
const ROWS_LIMIT: (u64, u64) = (330, 180);

/// Environment variables that would change the figures: they disable the compilation cache, wait after each launch, or
/// choose other kernels.
const SETTINGS: [&str; 4] = ["CUDA_CACHE_DISABLE", "CUDA_LAUNCH_BLOCKING", "CUDA_FORCE_PTX_JIT", "BLOB_OPS_LAUNCH"];

/// The commit that `cargo xtask gpu` built.
const COMMIT: &str = match option_env!("BLOB_COMMIT") {
    Some(commit) => commit,
    None => "not known",
};

/// Runs one phase in this process. `from` is the first case, for a phase that runs the cases.
pub(crate) fn run(name: &str, from: usize, sizes: &Sizes) -> Result<()> {
    match name {
        "list" => gpus(),
        "conformance" => checks::conformance(),
        "operations" => checks::small_operations(),
        "first" => checks::first_use("first process"),
        "second" => checks::first_use("second process"),
        "transfers" => transfers::run(sizes),
        "calls" => bench::calls(sizes),
        "files" => files::run(sizes),
        "rows" => bench::rows(sizes, from, ""),
        "bits" => bench::bits(sizes, from),
        "before" => bench::copy(sizes, "before"),
        "after" => bench::copy(sizes, "after"),
        _ => bail!("there is no phase {name:?}"),
    }
}

fn gpus() -> Result<()> {
    for gpu in list()? {
        let (major, minor) = gpu.capability;
        let (mib, cuda) = (gpu.total >> 20, gpu.driver);
        println!("about\tGPU {}: {}, {major}.{minor}, {mib} MiB, driver of CUDA {cuda}", gpu.ordinal, gpu.name);
    }
    Ok(())
}

/// Runs all phases and writes the page. Returns whether all checks passed.
pub(crate) fn record(file: &str, is_tiny: bool) -> Result<bool> {
    let sizes = if is_tiny { TINY } else { FULL };
    let mut page = Page { file, begin: Instant::now(), sizes, is_tiny, found_one: true, found: Found::default() };
    page.found.about(&format!("command: `./blob-gpu`, commit {COMMIT}, tensors of {} bytes or more", page.sizes.bytes));
    table::machine().iter().for_each(|line| page.found.about(line));
    match page.phase("list", 0, Duration::from_secs(60), None) {
        Ok(text) => page.found.read(&text),
        Err(error) => {
            page.found.about(&format!("not run: {error:#}"));
            page.found_one = false;
        }
    }
    if page.found_one {
        page.on_a_gpu()?;
    }
    page.found.about(&format!("all of it took {:.0} s", page.begin.elapsed().as_secs_f64()));
    page.write(None)?;
    let is_kept = if page.label().is_none() { "is for benches/record" } else { "is no record" };
    eprintln!("blob-gpu: {file} {is_kept}");
    Ok(!page.found.has_failed())
}

/// The page in progress. It is written before each phase, so that nothing is lost if the program is stopped.
struct Page<'a> {
    file: &'a str,
    begin: Instant,
    sizes: Sizes,
    is_tiny: bool,
    found_one: bool,
    found: Found,
}

impl Page<'_> {
    fn on_a_gpu(&mut self) -> Result<()> {
        let cache = self.first_uses()?;
        for (name, about, seconds) in PHASES {
            self.one(name, about, Duration::from_secs(seconds), cache.path())?;
        }
        let (most, others) = ROWS_LIMIT;
        let limit = Duration::from_secs(most).min(self.left().saturating_sub(Duration::from_secs(others)));
        let end = Instant::now() + limit;
        for (name, about) in ROWS {
            self.through_the_cases(name, about, end, cache.path())?;
        }
        self.one("before", "our own copy before the peers", Duration::from_secs(30), cache.path())?;
        self.write(Some("peers"))?;
        let limit = self.left().min(Duration::from_secs(150));
        peers(&mut self.found, limit, &self.sizes)?;
        self.one("after", "our own copy after the peers", Duration::from_secs(30), cache.path())?;
        for tool in ["memcheck", "racecheck"] {
            self.write(Some(tool))?;
            let limit = self.left() / if tool == "memcheck" { 2 } else { 1 };
            sanitizer(&mut self.found, tool, limit, self.is_tiny);
        }
        Ok(())
    }

    /// Runs the phases of the first uses. Returns the folder with the driver's last compilation cache.
    fn first_uses(&mut self) -> Result<tempfile::TempDir> {
        let (times, seconds) = FIRST_USES;
        let mut cache = tempfile::tempdir()?;
        for time in 0..times.min(self.sizes.rounds) {
            if time > 0 {
                cache = tempfile::tempdir()?;
            }
            for (name, about) in FIRST {
                self.one(name, about, Duration::from_secs(30), cache.path())?;
            }
            if self.begin.elapsed() > Duration::from_secs(seconds) {
                break;
            }
        }
        Ok(cache)
    }

    /// Runs one phase and adds its output to the page.
    fn one(&mut self, name: &str, about: &str, limit: Duration, cache: &Path) -> Result<()> {
        self.write(Some(name))?;
        match self.phase(name, 0, limit.min(self.left()), Some(cache)) {
            Ok(text) => self.found.read(&text),
            Err(error) => self.failed(about, error),
        }
        Ok(())
    }

    /// Runs a phase over all cases. After a case that fails, a new process continues with the next one, because an
    /// error of a GPU stays in the context of its process.
    fn through_the_cases(&mut self, name: &str, about: &str, end: Instant, cache: &Path) -> Result<()> {
        let (mut from, all) = (0, cases::all(self.sizes.bytes).len());
        while from < all {
            self.write(Some(name))?;
            let limit = end.saturating_duration_since(Instant::now());
            if limit.is_zero() {
                self.found.check(about, "not run", &format!("of {} of {all} cases: the time was over", all - from));
                break;
            }
            let text = match self.phase(name, from, limit, Some(cache)) {
                Ok(text) => text,
                Err(error) => {
                    self.failed(about, error);
                    break;
                }
            };
            self.found.read(&text);
            let last = text.lines().rev().find_map(|line| line.strip_prefix("case\t")?.parse::<usize>().ok());
            let Some(last) = last.filter(|last| *last >= from) else { break };
            from = last + 1;
        }
        Ok(())
    }

    fn failed(&mut self, about: &str, error: anyhow::Error) {
        let words = crate::words(Err(error));
        self.found.check(about, "failed", words.split_once('\t').map_or("", |(_, words)| words));
    }

    fn left(&self) -> Duration {
        LIMIT.saturating_sub(self.begin.elapsed())
    }

    fn label(&self) -> Option<&'static str> {
        if !self.found_one {
            Some("Not run: there is no GPU here.")
        } else if self.found.says("Fake CUDA") {
            Some("Not a GPU: a driver for tests, whose figures say nothing.")
        } else {
            self.is_tiny.then_some("Not a record: the tensors are tiny.")
        }
    }

    /// Writes the page so far; `under_way` is the phase that has not ended yet.
    fn write(&self, under_way: Option<&str>) -> Result<()> {
        let open = under_way.map_or(String::new(), |name| format!(", not finished: stopped in `{name}`"));
        let title = format!("Operations on a GPU: {}{open}", crate::date());
        let text = self.found.markdown(&title, self.sizes.bytes, self.label());
        std::fs::write(self.file, text).with_context(|| format!("cannot write {}", self.file))
    }

    /// Runs one phase in a new process of this program. Returns the output.
    fn phase(&self, name: &str, from: usize, limit: Duration, cache: Option<&Path>) -> Result<String> {
        eprintln!("blob-gpu: {name}");
        let mut command = Command::new(std::env::current_exe()?);
        command.args(self.is_tiny.then_some("--tiny")).args(["--phase", name]).arg(from.to_string());
        if let Some(cache) = cache {
            command.env("CUDA_CACHE_PATH", cache);
        }
        match child::run(unset(&mut command), "", limit)? {
            (text, None) => Ok(text),
            (text, Some(why)) if text.is_empty() => bail!("{why}"),
            // The output of a phase that failed later is kept.
            (text, Some(why)) => {
                let result = if why.starts_with(TOOK) { "not run" } else { "failed" };
                Ok(format!("{text}\ncheck\t{name} came to its end\t{result}\t{}\n", why.replace(['\t', '|'], " ")))
            }
        }
    }
}

fn unset(command: &mut Command) -> &mut Command {
    SETTINGS.iter().fold(command, |command, name| command.env_remove(name))
}

/// Measures the same cases with the libraries of Python.
fn peers(found: &mut Found, limit: Duration, sizes: &Sizes) -> Result<()> {
    eprintln!("blob-gpu: peers");
    let script = beside("gpu.py")?;
    let all = cases::all(sizes.bytes).into_iter().chain([cases::small()]);
    let warm_up = sizes.warm_up.as_secs_f64();
    let head = format!("{}\t{}\t{}\t{warm_up}\n", sizes.bytes, sizes.rounds, sizes.batch);
    let input = all.fold(head, |text, case| text + &case.line() + "\n");
    match child::run(unset(Command::new("python3").arg(script)), &input, limit) {
        Ok((text, why)) => {
            found.read(&text);
            why.iter().for_each(|why| found.about(&format!("absent: more of Python, because {why}")));
        }
        Err(_) => ["torch", "CuPy", "cuTENSOR"]
            .map(|who| format!("absent: {who}: no python3 can be started"))
            .iter()
            .for_each(|line| found.about(line)),
    }
    Ok(())
}

fn beside(name: &str) -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}

/// Runs the operations under a tool of NVIDIA's compute-sanitizer, if it is installed.
fn sanitizer(found: &mut Found, tool: &str, limit: Duration, is_tiny: bool) {
    const NAMES: [&str; 2] = ["compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer"];
    eprintln!("blob-gpu: {tool}");
    let (result, words) = match NAMES.into_iter().find_map(|name| {
        let mut command = Command::new(name);
        command.args(["--tool", tool, "--error-exitcode", "9"]).arg(std::env::current_exe().ok()?);
        child::run(unset(command.args(is_tiny.then_some("--tiny")).args(["--phase", "operations"])), "", limit).ok()
    }) {
        None => ("not run", "absent: compute-sanitizer is not installed".to_string()),
        Some((text, why)) => sanitized(&text, why.as_deref()),
    };
    found.check(&format!("compute-sanitizer, {tool}"), result, &words);
}

/// The result and a remark, from the sanitizer's output and the reason if it failed.
fn sanitized(text: &str, why: Option<&str>) -> (&'static str, String) {
    let line = |part: &str| text.lines().rfind(|line| line.contains(part)).map(|line| line.trim_matches(['=', ' ']));
    match (why, line("Device not supported"), line(" SUMMARY: ")) {
        (Some(why), ..) if why.starts_with(TOOK) => ("not run", format!("to its end: {why}")),
        (_, Some(refused), _) => ("not run", refused.to_string()),
        (None, _, Some(summary)) => ("passed", summary.to_string()),
        (None, _, None) => ("failed", "it ended without a summary".to_string()),
        (Some(why), _, summary) => ("failed", format!("{} {why}", summary.unwrap_or_default()).trim().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_of_the_sanitizer_is_recognized() {
        let of = |text: &str, why: Option<&str>| sanitized(text, why);
        let memory = "check\ta\tpassed\n========= ERROR SUMMARY: 0 errors\n";
        assert_eq!(of(memory, None), ("passed", "ERROR SUMMARY: 0 errors".to_string()));
        let races = "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n";
        assert_eq!(of(races, Some("exit status: 9")).0, "failed");
        assert!(of(races, Some("exit status: 9")).1.starts_with("RACECHECK SUMMARY: 2 hazards"));
        assert_eq!(of("========= Error: Device not supported.\n", Some("exit status: 1")).0, "not run");
        assert_eq!(of(memory, Some("it took over 9 s")).0, "not run");
        assert_eq!(of("", None).0, "failed");
    }
}

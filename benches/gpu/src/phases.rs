//! The phases, each a child process with a limit of time, and the page of all of them. It measures nothing itself.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use synced_mem::cuda::list;

use crate::report::Found;
use crate::{FULL, Sizes, TINY, bench, cases, checks, table, transfers};

/// All of them end before the tenth minute does.
const LIMIT: Duration = Duration::from_secs(570);

/// Each phase of this program, what it is about, and the most seconds that it may take. First uses come first: later ones find what
/// the driver has compiled.
const PHASES: [(&str, &str, u64); 6] = [
    ("first", "the first use of each kernel file", 30),
    ("second", "the same in a second process", 30),
    ("conformance", "the promises of a backend", 60),
    ("operations", "operations of small tensors", 90),
    ("transfers", "transfers", 60),
    ("calls", "the small operation", 30),
];

/// The longest phase; what is left of the time is for the peers and the sanitizer.
const ROWS: (&str, &str, u64) = ("rows", "the rows", 330);

/// What `cargo xtask gpu` was run at.
const COMMIT: &str = match option_env!("BLOB_COMMIT") {
    Some(commit) => commit,
    None => "not known",
};

/// One phase, in this process.
pub(crate) fn run(name: &str, sizes: &Sizes) -> Result<()> {
    match name {
        "list" => gpus(),
        "conformance" => checks::conformance(),
        "operations" => checks::small_operations(),
        "first" => checks::first_use("first process"),
        "second" => checks::first_use("second process"),
        "transfers" => transfers::run(sizes),
        "calls" => bench::calls(sizes),
        "rows" => bench::rows(sizes),
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

/// Runs all phases and writes the page. Whether all checks have passed.
pub(crate) fn record(file: &str, is_tiny: bool) -> Result<bool> {
    let begin = Instant::now();
    let sizes = if is_tiny { TINY } else { FULL };
    let mut found = Found::default();
    found.about(&format!("command: `./blob-gpu`, commit {COMMIT}, tensors of {} bytes or more", sizes.bytes));
    table::machine().iter().for_each(|line| found.about(line));
    let found_one = match phase("list", Duration::from_secs(60), is_tiny, None) {
        Ok(text) => {
            found.read(&text);
            true
        }
        Err(error) => {
            found.about(&format!("not run: {error:#}"));
            false
        }
    };
    if found_one {
        on_a_gpu(&mut found, begin, &sizes, is_tiny)?;
    }
    let label = match found_one {
        false => Some("Not run: there is no GPU here."),
        true if found.says("Fake CUDA") => Some("Not a GPU: a driver for tests, whose figures say nothing."),
        true if is_tiny => Some("Not a record: the tensors are tiny."),
        true => None,
    };
    found.about(&format!("all of it took {:.0} s", begin.elapsed().as_secs_f64()));
    let title = format!("Operations on a GPU: {}", crate::date());
    std::fs::write(file, found.markdown(&title, sizes.bytes, label)).with_context(|| format!("cannot write {file}"))?;
    let is_kept = if label.is_none() { "is for benches/record" } else { "is no record" };
    eprintln!("blob-gpu: {file} {is_kept}");
    Ok(!found.has_failed())
}

fn on_a_gpu(found: &mut Found, begin: Instant, sizes: &Sizes, is_tiny: bool) -> Result<()> {
    // Where the driver keeps what it has compiled: nothing yet.
    let cache = tempfile::tempdir()?;
    for (name, about, seconds) in PHASES.into_iter().chain([ROWS]) {
        let limit = Duration::from_secs(seconds).min(left(begin));
        let done = phase(name, limit, is_tiny, Some(cache.path()));
        let done = done.map(|text| found.read(&text)).map(|()| "ended".to_string());
        if let Err(error) = done {
            let words = crate::words(Err(error));
            found.check(about, "failed", words.split_once('\t').map_or("", |(_, words)| words));
        }
    }
    peers(found, left(begin).min(Duration::from_secs(150)), sizes)?;
    sanitizer(found, left(begin), is_tiny);
    Ok(())
}

fn left(begin: Instant) -> Duration {
    LIMIT.saturating_sub(begin.elapsed())
}

/// This very program once more, for one phase; gives what it printed.
fn phase(name: &str, limit: Duration, is_tiny: bool, cache: Option<&Path>) -> Result<String> {
    eprintln!("blob-gpu: {name}");
    let mut command = Command::new(std::env::current_exe()?);
    command.args(is_tiny.then_some("--tiny")).args(["--phase", name]);
    if let Some(cache) = cache {
        command.env("CUDA_CACHE_PATH", cache);
    }
    match said(&mut command, "", limit)? {
        (text, None) => Ok(text),
        (text, Some(why)) if text.is_empty() => bail!("{why}"),
        // What it has measured stays.
        (text, Some(why)) => Ok(format!("{text}\ncheck\t{name} came to its end\tfailed\t{why}\n")),
    }
}

/// What a command prints, given this input, and why it ended badly where it did: killed when it takes too long.
fn said(command: &mut Command, input: &str, limit: Duration) -> Result<(String, Option<String>)> {
    let file = |text: &str| -> Result<File> {
        let mut file = tempfile::tempfile()?;
        file.write_all(text.as_bytes())?;
        file.rewind()?;
        Ok(file)
    };
    let (input, output, errors) = (file(input)?, file("")?, file("")?);
    command.stdin(Stdio::from(input)).stdout(output.try_clone()?).stderr(errors.try_clone()?);
    let mut child = command.spawn()?;
    let begin = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if begin.elapsed() > limit => {
                child.kill()?;
                child.wait()?;
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let text = |mut file: File| -> Result<String> {
        file.rewind()?;
        Ok(String::from_utf8_lossy(&std::io::read_to_string(file).map_or_else(|_| Vec::new(), String::into_bytes))
            .into_owned())
    };
    let last = text(errors)?.lines().rfind(|line| !line.trim().is_empty()).map(str::to_string);
    let why = match status {
        Some(status) if status.success() => None,
        Some(status) => Some(last.map_or(status.to_string(), |last| last.trim_start_matches("blob-gpu: ").to_string())),
        None => Some(format!("it took over {} s", limit.as_secs())),
    };
    Ok((text(output)?, why))
}

/// The same cases with what Python has.
fn peers(found: &mut Found, limit: Duration, sizes: &Sizes) -> Result<()> {
    eprintln!("blob-gpu: peers");
    let script = beside("gpu.py")?;
    let all = cases::all(sizes.bytes).into_iter().chain([cases::small()]);
    let head = format!("{}\t{}\t{}\n", sizes.bytes, sizes.rounds, sizes.batch);
    let input = all.fold(head, |text, case| text + &case.line() + "\n");
    match said(Command::new("python3").arg(script), &input, limit) {
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

/// The operations under the toolkit's own checker of memory, and of races, where it is installed.
fn sanitizer(found: &mut Found, limit: Duration, is_tiny: bool) {
    const NAMES: [&str; 2] = ["compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer"];
    for tool in ["memcheck", "racecheck"] {
        eprintln!("blob-gpu: {tool}");
        let run = |name: &str| {
            let mut command = Command::new(name);
            command.args(["--tool", tool, "--error-exitcode", "9"]).arg(std::env::current_exe().ok()?);
            said(command.args(is_tiny.then_some("--tiny")).args(["--phase", "operations"]), "", limit / 2).ok()
        };
        let name = format!("compute-sanitizer, {tool}");
        match NAMES.into_iter().find_map(run) {
            None => found.check(&name, "not run", "absent: compute-sanitizer is not installed"),
            Some((_, Some(why))) if why.starts_with("it took") => {
                found.check(&name, "not run", &format!("to its end: {why}"))
            }
            Some((text, why)) => {
                let summary = text.lines().rfind(|line| line.contains("ERROR SUMMARY")).unwrap_or_default();
                let words = [summary.trim_start_matches('='), &why.clone().unwrap_or_default()].join(" ");
                found.check(&name, if why.is_none() { "passed" } else { "failed" }, words.trim());
            }
        }
    }
}

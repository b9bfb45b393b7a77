//! `cargo xtask fuzz [--seconds N] [TARGET ...]`: the targets of `fuzz/`, each from the golden files, under the address
//! sanitizer. It needs a nightly compiler and cargo-fuzz, installed below `target`. Findings of a target lie in
//! `fuzz/artifacts`; minimise each (`cargo fuzz tmin`), then make a test.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::shell;

const SECONDS: &str = "600";

/// Golden files longer than this teach a fuzzer little and cost time.
const LONGEST_SEED: u64 = 16 << 10;

/// Runs the targets that are named, or all, one after the other.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let (seconds, named) = match arguments {
        ["--seconds", seconds, named @ ..] if seconds.parse::<u32>().is_ok() => (*seconds, named),
        ["--seconds", ..] => bail!("--seconds takes a number"),
        named => (SECONDS, named),
    };
    let (target, all) = (shell::target_directory()?.join("fuzz"), targets()?);
    if let Some(unknown) = named.iter().find(|name| !all.iter().any(|target| target == *name)) {
        bail!("there is no target {unknown:?} among {}", all.join(", "));
    }
    if !target.join("bin/cargo-fuzz").exists() {
        let mut install = shell::cargo("install --quiet --locked cargo-fuzz --version ^0.13 --root");
        shell::run(install.arg(&target).env_remove("CARGO"))?;
    }
    for name in all.iter().filter(|name| named.is_empty() || named.contains(&name.as_str())) {
        let corpus = target.join("corpus").join(name);
        let seeds = seed(name, &corpus)?;
        println!("{name}: {seconds} s from {seeds} golden files");
        let mut command = shell::program(target.join("bin/cargo-fuzz"));
        command.args(["fuzz", "run", "--target-dir"]).arg(target.join("build")).arg(name).arg(corpus).arg("--");
        command.args(["-rss_limit_mb=1024", "-timeout=20", "-print_final_stats=1", "-verbosity=0"]);
        command.arg(format!("-max_total_time={seconds}"));
        // Cargo names the stable toolchain to programs that cargo starts; the nightly is another.
        command.env_remove("CARGO").env("RUSTUP_TOOLCHAIN", "nightly");
        if Path::new("/dev/shm").is_dir() {
            command.env("TMPDIR", "/dev/shm"); // files that are written and read again at each step
        }
        shell::run(&mut command)?;
    }
    Ok(())
}

/// The targets by name: one file each.
fn targets() -> Result<Vec<String>> {
    let files = shell::files(&shell::root())?;
    let names = files.iter().filter_map(|file| file.strip_prefix("fuzz/fuzz_targets/")?.strip_suffix(".rs"));
    Ok(names.map(str::to_string).collect())
}

/// Every small golden file of every format: another reader's good file is a good beginning for this one's refusals. A
/// reader of text begins with the texts of that kind.
fn seed(target: &str, corpus: &Path) -> Result<usize> {
    std::fs::create_dir_all(corpus).with_context(|| corpus.display().to_string())?;
    let (root, mut seeds) = (shell::root(), 0);
    for file in shell::files(&root)?.into_iter().filter(|file| file.starts_with("tests/data/")) {
        let is_small = root.join(&file).metadata()?.len() <= LONGEST_SEED;
        let fits = match target {
            "prototxt" => file.ends_with(".prototxt"),
            "symbol" => file.ends_with(".json"),
            "graph" => [".prototxt", "symbol.json", ".caffemodel"].iter().any(|end| file.ends_with(end)),
            _ => ![".json", ".jsonl", ".tsv", ".md"].iter().any(|end| file.ends_with(end)),
        };
        if is_small && fits {
            std::fs::copy(root.join(&file), corpus.join(file.replace('/', "-")))?;
            seeds += 1;
        }
    }
    Ok(seeds)
}

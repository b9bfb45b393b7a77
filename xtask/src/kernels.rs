//! `cargo xtask kernels`: the kernels' CUDA source to PTX by NVRTC, and through two generations of ptxas.
//! Relies on `python3` with `venv` and `pip` for the wheels that `xtask/kernels.txt` pins; `--check` on nothing.
//! Sources, PTX and MANIFEST are committed: nothing is compiled where the crates are built.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::{python, shell};

const FOLDER: &str = "crates/blob-ops/kernels";

/// The folder in it that holds the PTX.
const PTX: &str = "ptx";
const MANIFEST: &str = "MANIFEST";
const WHEELS: &str = "xtask/kernels.txt";

/// Where the wheels have NVRTC, and each ptxas with the GPUs that it assembles for.
const NVRTC: &str = "nvidia/cuda_nvrtc/lib/libnvrtc.so.12";
const ASSEMBLERS: [(&str, &[&str]); 2] = [
    ("nvidia/cuda_nvcc/bin/ptxas", &["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"]),
    ("nvidia/cu13/bin/ptxas", &["sm_100", "sm_103", "sm_120"]),
];

const HEAD: &str = "# Written by `cargo xtask kernels`: SHA-256 of sources and PTX, then each kernel's registers on each GPU.\n\
                    # Nothing spills.\n";

/// Compiles and assembles all kernels, or with `--check` fails where a file is not the one that was written then.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let folder = shell::root().join(FOLDER);
    match arguments {
        [] => {
            let tools = tools()?;
            let mut nvrtc = shell::program("python3");
            shell::run(nvrtc.arg("xtask/nvrtc.py").arg(tools.join(NVRTC)).arg(&folder))?;
            let registers = assemble(&tools, &folder)?;
            std::fs::write(folder.join(MANIFEST), manifest(&hashes(&folder)?, &registers))?;
        }
        ["--check"] => {
            let committed = std::fs::read_to_string(folder.join(MANIFEST)).context(MANIFEST)?;
            check(&committed, &hashes(&folder)?)?;
        }
        _ => bail!("kernels takes nothing or --check, and got {arguments:?}"),
    }
    println!("kernels: {FOLDER} is up to date");
    Ok(())
}

/// The folder into which the wheels are installed.
fn tools() -> Result<PathBuf> {
    let folder = shell::target_directory()?.join("kernels");
    if !folder.join(NVRTC).is_file() {
        shell::run(python::pip(Path::new("python3"), WHEELS).arg("--target").arg(&folder))?;
    }
    Ok(folder)
}

/// A line for each source and each PTX of the folder: hash and name.
fn hashes(folder: &Path) -> Result<BTreeSet<String>> {
    let mut lines = BTreeSet::new();
    let sources = std::fs::read_dir(folder).context(FOLDER)?;
    for entry in sources.chain(std::fs::read_dir(folder.join(PTX)).context(PTX)?) {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().display().to_string();
        if [".cu", ".cuh", ".ptx"].iter().any(|end| name.ends_with(end)) {
            let digest = Sha256::digest(std::fs::read(&path)?);
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            lines.insert(format!("{digest} {name}"));
        }
    }
    Ok(lines)
}

/// The registers of each kernel on each GPU. A spill is an error, and so is a kernel that one ptxas does not take.
fn assemble(tools: &Path, folder: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let mut registers = BTreeMap::<String, Vec<String>>::new();
    let files = hashes(folder)?;
    let names = files.iter().filter_map(|line| Some(line.split_once(' ')?.1).filter(|name| name.ends_with(".ptx")));
    for (ptxas, gpus) in ASSEMBLERS {
        for (gpu, ptx) in gpus.iter().flat_map(|gpu| names.clone().map(move |name| (gpu, name))) {
            let mut command = shell::program(tools.join(ptxas));
            let object = tools.join("kernels.cubin");
            let output =
                command.arg("-v").arg(format!("-arch={gpu}")).arg(folder.join(PTX).join(ptx)).arg("-o").arg(object);
            let output = output.output().with_context(|| format!("cannot start {ptxas}"))?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.success(), "{ptx} for {gpu}: {}\n{said}", output.status);
            for (kernel, used) in used(&said).with_context(|| format!("{ptx} for {gpu}"))? {
                registers.entry(format!("{ptx} {kernel}")).or_default().push(format!("{gpu}={used}"));
            }
        }
    }
    Ok(registers)
}

/// From the output of `ptxas -v`: each kernel and its registers.
fn used(said: &str) -> Result<Vec<(String, u32)>> {
    let (mut kernels, mut kernel) = (Vec::new(), "");
    for line in said.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            kernel = rest.split('\'').next().unwrap_or_default();
        } else if line.contains("bytes stack frame") {
            let nothing = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
            ensure!(line.trim() == nothing, "{kernel} spills: {}", line.trim());
        } else if let Some((_, rest)) = line.split_once("Used ") {
            let count = rest.split(' ').next().unwrap_or_default().parse();
            kernels.push((kernel.to_string(), count.with_context(|| line.to_string())?));
        }
    }
    ensure!(!kernels.is_empty(), "ptxas names no kernel:\n{said}");
    Ok(kernels)
}

/// In the order of the files' names.
fn manifest(hashes: &BTreeSet<String>, registers: &BTreeMap<String, Vec<String>>) -> String {
    let mut lines: Vec<&String> = hashes.iter().collect();
    lines.sort_by_key(|line| line.split_once(' ').map(|(_, name)| name));
    let mut text = HEAD.to_string();
    lines.iter().for_each(|line| text += &format!("{line}\n"));
    registers.iter().for_each(|(kernel, used)| text += &format!("registers {kernel} {}\n", used.join(" ")));
    text
}

/// Whether the manifest has these hashes and no others.
fn check(committed: &str, hashes: &BTreeSet<String>) -> Result<()> {
    let lines = committed.lines().filter(|line| !line.starts_with('#') && !line.starts_with("registers "));
    let noted: BTreeSet<String> = lines.map(str::to_string).collect();
    let changed = noted.symmetric_difference(hashes);
    let stale: BTreeSet<&str> = changed.filter_map(|line| Some(line.split_once(' ')?.1)).collect();
    ensure!(
        stale.is_empty(),
        "{FOLDER}: {stale:?} changed since `cargo xtask kernels` ran: run it and commit the result"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_a_new_and_a_lost_file_are_named() {
        let hashes = |lines: &[&str]| lines.iter().map(|line| line.to_string()).collect::<BTreeSet<_>>();
        let written = hashes(&["12 a.cu", "34 a.ptx"]);
        let text = manifest(&written, &BTreeMap::from([("a.ptx k".to_string(), vec!["sm_70=8".to_string()])]));
        assert!(check(&text, &written).is_ok());
        let refused = |now: &[&str]| check(&text, &hashes(now)).unwrap_err().to_string();
        assert!(refused(&["12 a.cu", "35 a.ptx"]).contains("{\"a.ptx\"}"));
        assert!(refused(&["12 a.cu", "34 a.ptx", "56 b.cu"]).contains("{\"b.cu\"}"));
        assert!(refused(&["34 a.ptx"]).contains("{\"a.cu\"}"));
    }

    #[test]
    fn registers_are_read_and_spills_refused() {
        let said = |spilled: u32| {
            format!(
                "ptxas info    : Compiling entry function 'k' for 'sm_90'\n    0 bytes stack frame, {spilled} bytes spill \
                 stores, 0 bytes spill loads\nptxas info    : Used 32 registers, 400 bytes cmem[0]\n"
            )
        };
        assert_eq!(used(&said(0)).unwrap(), [("k".to_string(), 32)]);
        assert!(used(&said(8)).unwrap_err().to_string().contains("k spills"));
        assert!(used("").is_err());
    }
}

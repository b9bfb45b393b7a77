//! What opening, loading, converting and summing up large files costs: `cargo bench -p blob-benches --bench io`.
//!
//! Every figure is a ratio taken in this run, the two sides in turn; the bars are the project's own. `BLOB_BENCH_DIR`
//! says where the large files are made (1.6 GB free; default `/dev/shm`, so that no disk is measured).

mod child;
mod made;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use table::{Row, median};
use wait4::Wait4;

/// Pairs of measurements; medians are of these.
const ROUNDS: usize = 11;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|a| a == "--child") {
        child::main(&args[at + 1..]);
        return;
    }
    if let Some(at) = args.iter().position(|a| a == "--make") {
        let path = args.get(at + 1).expect("usage: --make FILE");
        return made::vgg16(Path::new(path)).expect("the model can be written");
    }
    let dir = std::env::var_os("BLOB_BENCH_DIR").map_or(PathBuf::from("/dev/shm"), PathBuf::from);
    let dir = dir.join(format!("blob-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("the folder for large files can be made; set BLOB_BENCH_DIR");
    let guard = Remove(dir.clone());
    let vgg16 = dir.join("vgg16.caffemodel");
    made::vgg16(&vgg16).expect("the model can be written");
    let blob = build_tool();
    let rows = [
        ls(&blob, &vgg16),
        convert(&blob, &vgg16, &dir, "safetensors", 0.8),
        convert(&blob, &vgg16, &dir, "npz", 0.8),
        vec![load(&vgg16)],
        stats(&vgg16),
    ];
    std::fs::remove_file(&vgg16).expect("removable");
    let params = dir.join("gigabyte.params");
    made::params(&params).expect("the parameters can be written");
    let rows = rows.into_iter().flatten().chain(views(&params));
    let rows: Vec<Row> = rows.chain(neoml(&dir)).collect();
    drop(guard);
    table::print(&rows);
}

/// Removes the large files, whatever happens.
struct Remove(PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Builds the tool as users get it, on its own, so that no other package changes its features.
fn build_tool() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let status = Command::new(cargo)
        .args(["build", "--release", "-q", "-p", "blob-cli"])
        .current_dir(root)
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the tool builds");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    target.join("release/blob")
}

/// Seconds and peak MiB of a whole process.
fn process(command: &mut Command) -> (f64, f64) {
    let start = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    let used = child.wait4().expect("the program ends");
    let seconds = start.elapsed().as_secs_f64();
    assert!(used.status.success(), "{command:?} fails");
    (seconds, used.rusage.maxrss as f64 / (1 << 20) as f64)
}

fn ls(blob: &Path, file: &Path) -> Vec<Row> {
    let runs: Vec<(f64, f64)> = (0..ROUNDS).map(|_| process(Command::new(blob).arg("ls").arg(file))).collect();
    let ms = median(runs.iter().map(|r| r.0 * 1e3));
    let mib = runs.iter().map(|r| r.1).fold(0.0, f64::max);
    vec![
        Row::at_most("ls of 553 MB, whole process", ms, "ms", 10.0),
        Row::at_most("ls of 553 MB, peak memory", mib, "MiB", 20.0),
    ]
}

/// Speed as a part of `cp`'s, the two in turn into the same folder.
fn convert(blob: &Path, file: &Path, dir: &Path, to: &str, bar: f64) -> Vec<Row> {
    let (ours, copy) = (dir.join(format!("out.{to}")), dir.join("copy"));
    let run = || {
        let ran = process(Command::new(blob).arg("convert").arg(file).arg("-o").arg(&ours));
        std::fs::remove_file(&ours).expect("removable");
        ran
    };
    let cp = || {
        let ran = process(Command::new("cp").arg("--reflink=never").arg(file).arg(&copy));
        std::fs::remove_file(&copy).expect("removable");
        ran
    };
    run();
    cp();
    let pairs: Vec<((f64, f64), f64)> = (0..ROUNDS).map(|_| (run(), cp().0)).collect();
    let speed = median(pairs.iter().map(|(ours, cp)| cp / ours.0));
    let mib = pairs.iter().map(|(ours, _)| ours.1).fold(0.0, f64::max);
    let name = format!("convert 553 MB to {to}");
    vec![
        Row::at_least(&format!("{name}, speed / cp"), speed, "", bar),
        Row::at_most(&format!("{name}, peak memory"), mib, "MiB", 64.0),
    ]
}

/// Each sample in a fresh process, so that pages are first touched as a user's are.
fn ratio(file: &Path, ours: &str, base: &str) -> f64 {
    let run = |case: &str| {
        let exe = std::env::current_exe().expect("this program");
        let output = Command::new(exe).args(["--child", case]).arg(file).output().expect("this program runs");
        assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("a number");
        text.trim().parse::<f64>().expect("a number")
    };
    run(ours);
    run(base);
    median((0..ROUNDS).map(|_| run(ours) / run(base)))
}

fn load(file: &Path) -> Row {
    let ratio = ratio(file, "load", "read-fresh");
    Row::at_most("load 553 MB into blobs / read() into a fresh buffer", ratio, "", 1.3)
}

fn views(params: &Path) -> Vec<Row> {
    vec![
        Row::at_most(
            "1 GB .params as blobs / read() into a fresh buffer",
            ratio(params, "load", "read-fresh"),
            "",
            1.3,
        ),
        Row::beside("1 GB .params as blobs / chunked read()", ratio(params, "load", "read-chunks"), "")
            .noted("a chunk stays in the caches, fresh memory does not".to_owned()),
        Row::at_most("1 GB .params as mmap views / chunked read()", ratio(params, "views", "read-chunks"), "", 0.1),
    ]
}

fn neoml(dir: &Path) -> Vec<Row> {
    let (blob, net) = (dir.join("blob.neoml"), dir.join("net.cnnarch"));
    made::neoml_blob(&blob).expect("the blob can be written");
    made::neoml_net(&net).expect("the net can be written");
    vec![
        Row::at_most(
            "268 MB NeoML blob loaded / read() into a fresh buffer",
            ratio(&blob, "load", "read-fresh"),
            "",
            1.5,
        ),
        Row::at_most("268 MB NeoML blob stored / write()", ratio(&blob, "store", "write"), "", 1.5),
        Row::at_most("scan of a 500 MB NeoML net / chunked read()", ratio(&net, "scan", "read-chunks"), "", 1.2),
    ]
}

fn stats(file: &Path) -> Vec<Row> {
    [
        ("stats of a file, one core, rate / memcpy", "stats", 0.5),
        ("stats of bytes in memory, one core, rate / memcpy", "stats-memory", 0.5),
        ("stats --hist of a file, one core, rate / memcpy", "hist", 0.25),
        ("stats --hist of bytes in memory, one core, rate / memcpy", "hist-memory", 0.25),
    ]
    .map(|(name, case, bar)| Row::at_least(name, 1.0 / ratio(file, case, "memcpy"), "", bar))
    .into()
}

//! Measures opening, loading, converting and reducing large files: `cargo bench -p blob-benches --bench io`.
//!
//! Most figures are ratios; the two sides are measured in this run, in turn. The bars are the project's own. The large
//! files are written to `BLOB_BENCH_DIR`, which needs 1.6 GB; the default `/dev/shm` keeps the disk out of the figures.

mod child;
mod made;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use blob_io::{Checkpoint, Format, IfExists, Writer};
use table::{Row, median};
use wait4::Wait4;

/// The number of paired measurements, whose median is the figure: `BLOB_BENCH_ROUNDS`, or 11.
fn rounds() -> usize {
    let rounds = std::env::var("BLOB_BENCH_ROUNDS").ok();
    rounds.map_or(11, |text| text.parse().expect("BLOB_BENCH_ROUNDS is a number"))
}

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
        convert(&blob, &vgg16, &dir, "safetensors"),
        convert(&blob, &vgg16, &dir, "npz"),
        transform(&blob, &vgg16, &dir, &["--squeeze-legacy", "--dtype", "f16"]),
        transform(&blob, &vgg16, &dir, &["--names", "torch", "--dtype", "f16"]),
        transform(&blob, &vgg16, &dir, &["--layout", "hwio", "--fc-from", "512,7,7"]),
        there_and_back(&blob, &vgg16, &dir),
        splice(&blob, &vgg16, &dir, "fc8/0"),
        onnx(&blob, &vgg16, &dir),
        vec![load(&vgg16), store(&vgg16, "553 MB of blobs stored as a .caffemodel")],
        stats(&vgg16),
        hash(&vgg16),
        diff(&blob, &vgg16, &dir),
    ];
    std::fs::remove_file(&vgg16).expect("removable");
    let params = dir.join("gigabyte.params");
    made::params(&params).expect("the parameters can be written");
    let rows = rows.into_iter().flatten().chain(views(&params));
    let rows = rows.chain([store(&params, "1 GB of blobs stored as .params")]);
    let rows: Vec<Row> = rows.chain(neoml(&blob, &dir)).collect();
    drop(guard);
    table::print(&rows);
}

/// Removes the large files, also after a panic.
struct Remove(PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Builds the tool alone, as for users: together with other packages, cargo would unify the features.
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

/// The resources that a whole process used.
struct Usage {
    /// Wall-clock seconds.
    seconds: f64,
    /// CPU seconds of all cores.
    cpu: f64,
    /// Peak memory in MiB.
    mib: f64,
}

/// The wall-clock seconds and the peak MiB of a whole process.
fn process(command: &mut Command) -> (f64, f64) {
    let usage = usage(command);
    (usage.seconds, usage.mib)
}

fn usage(command: &mut Command) -> Usage {
    let start = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    let usage = child.wait4().expect("the program ends");
    let seconds = start.elapsed().as_secs_f64();
    assert!(usage.status.success(), "{command:?} fails");
    let cpu = (usage.rusage.utime + usage.rusage.stime).as_secs_f64();
    Usage { seconds, cpu, mib: usage.rusage.maxrss as f64 / (1 << 20) as f64 }
}

fn ls(blob: &Path, file: &Path) -> Vec<Row> {
    let runs: Vec<(f64, f64)> = (0..rounds()).map(|_| process(Command::new(blob).arg("ls").arg(file))).collect();
    let ms = median(runs.iter().map(|r| r.0 * 1e3));
    let mib = runs.iter().map(|r| r.1).fold(0.0, f64::max);
    vec![
        Row::at_most("ls of 553 MB, whole process", ms, "ms", 10.0),
        Row::at_most("ls of 553 MB, peak memory", mib, "MiB", 20.0),
    ]
}

fn convert(blob: &Path, file: &Path, dir: &Path, to: &str) -> Vec<Row> {
    let out = dir.join(format!("out.{to}"));
    against_cp(&format!("convert 553 MB to {to}"), Command::new(blob).arg("convert").arg(file), &out, file, dir)
}

/// A conversion that changes tensors.
fn transform(blob: &Path, file: &Path, dir: &Path, flags: &[&str]) -> Vec<Row> {
    let name = format!("convert 553 MB with {}", flags.join(" "));
    let mut command = Command::new(blob);
    command.arg("convert").arg(file).args(flags);
    let [speed, memory] = figures(&mut command, &dir.join("out.safetensors"), file, dir);
    vec![
        // Half as many bytes are written: a loop that is not vectorised gives 0.6.
        Row::at_least(&format!("{name}, speed / cp"), speed, "", if flags.contains(&"--dtype") { 0.8 } else { 0.6 }),
        Row::at_most(&format!("{name}, peak memory"), memory, "MiB", 96.0),
    ]
}

/// Restores the caffemodel from the receipt of a safetensors file.
fn there_and_back(blob: &Path, file: &Path, dir: &Path) -> Vec<Row> {
    let (there, back) = (dir.join("there.safetensors"), dir.join("back.caffemodel"));
    process(Command::new(blob).arg("convert").arg(file).arg("-o").arg(&there));
    let rows = against_cp("back from safetensors", Command::new(blob).arg("convert").arg(&there), &back, file, dir);
    std::fs::remove_file(&there).expect("removable");
    rows
}

/// Replaces one array of a model.
fn splice(blob: &Path, file: &Path, dir: &Path, array: &str) -> Vec<Row> {
    let (part, out) = (dir.join("part.safetensors"), dir.join("out.spliced"));
    let model = Checkpoint::open(file).expect("opens");
    let tensor = model.tensor(model.entry(array).expect("an array")).expect("a tensor");
    let writer = Writer::new(Format::Safetensors).tensor(array, &tensor);
    writer.write(&part, IfExists::Replace).expect("written");
    let name = format!("{array} put into a {}", model.format().title());
    against_cp(&name, Command::new(blob).arg("convert").arg(&part).arg("--into").arg(file), &out, file, dir)
}

/// A model of VGG-16, the list of it, and a net of 1,000 layers without weights.
fn onnx(blob: &Path, file: &Path, dir: &Path) -> Vec<Row> {
    let (net, layers, out) = (dir.join("vgg16.prototxt"), dir.join("layers.caffemodel"), dir.join("out.onnx"));
    std::fs::write(&net, made::vgg16_net()).expect("writable");
    std::fs::write(&layers, made::layers(1000)).expect("writable");
    let convert = |file: &Path| {
        let mut command = Command::new(blob);
        command.arg("convert").arg(file);
        command
    };
    let [speed, memory] = figures(convert(file).arg("--net").arg(&net), &out, file, dir);
    let of_layers = (0..rounds()).map(|_| {
        let (seconds, _) = process(convert(&layers).arg("-o").arg(&out));
        std::fs::remove_file(&out).expect("removable");
        seconds * 1e3
    });
    let of_layers = median(of_layers);
    let _ = process(convert(file).arg("--net").arg(&net).arg("-o").arg(&out));
    let listed = median((0..rounds()).map(|_| process(Command::new(blob).arg("ls").arg(&out)).0 * 1e3));
    std::fs::remove_file(&out).expect("removable");
    vec![
        Row::at_least("VGG-16 of 553 MB to ONNX, speed / cp", speed, "", 0.9),
        Row::at_most("VGG-16 of 553 MB to ONNX, peak memory", memory, "MiB", 32.0),
        Row::at_most("ls of its ONNX model, whole process", listed, "ms", 5.0),
        Row::at_most("a net of 1,000 layers without weights to ONNX", of_layers, "ms", 50.0),
    ]
}

/// A command's speed relative to `cp`, and the peak memory, with the bars for a command that only copies.
fn against_cp(name: &str, command: &mut Command, out: &Path, file: &Path, dir: &Path) -> Vec<Row> {
    let [speed, memory] = figures(command, out, file, dir);
    vec![
        Row::at_least(&format!("{name}, speed / cp"), speed, "", 0.8),
        Row::at_most(&format!("{name}, peak memory"), memory, "MiB", 64.0),
    ]
}

/// A command's speed relative to `cp` of `file`, and the peak MiB. The two run in turn and write to the same folder.
/// `command` lacks the output option.
fn figures(command: &mut Command, out: &Path, file: &Path, dir: &Path) -> [f64; 2] {
    let copy = dir.join("copy");
    command.arg("-o").arg(out);
    let mut run = || {
        let ran = process(command);
        std::fs::remove_file(out).expect("removable");
        ran
    };
    let cp = || {
        let ran = process(Command::new("cp").arg("--reflink=never").arg(file).arg(&copy));
        std::fs::remove_file(&copy).expect("removable");
        ran
    };
    run();
    cp();
    let pairs: Vec<((f64, f64), f64)> = (0..rounds()).map(|_| (run(), cp().0)).collect();
    let speed = median(pairs.iter().map(|(ours, cp)| cp / ours.0));
    let mib = pairs.iter().map(|(ours, _)| ours.1).fold(0.0, f64::max);
    [speed, mib]
}

/// The time of `ours` over that of `base`. Each sample is a fresh process, so that it touches its pages for the first
/// time, as a user's process does.
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
    median((0..rounds()).map(|_| run(ours) / run(base)))
}

fn load(file: &Path) -> Row {
    let ratio = ratio(file, "load", "read-fresh");
    Row::at_most("load 553 MB into blobs / read() into a fresh buffer", ratio, "", 1.3)
}

/// Writes the file's blobs to a file of the same format.
fn store(file: &Path, name: &str) -> Row {
    Row::at_most(&format!("{name} / write()"), ratio(file, "store", "write"), "", 1.2)
}

fn views(params: &Path) -> Vec<Row> {
    vec![
        Row::at_most(
            "1 GB .params as blobs / read() into a fresh buffer",
            ratio(params, "load", "read-fresh"),
            "",
            1.3,
        ),
        Row::unjudged("1 GB .params as blobs / chunked read()", ratio(params, "load", "read-chunks"), "")
            .noted("a chunk stays in the caches, fresh memory does not".to_owned()),
        Row::at_most("1 GB .params as mmap views / chunked read()", ratio(params, "views", "read-chunks"), "", 0.1),
    ]
}

fn neoml(blob: &Path, dir: &Path) -> Vec<Row> {
    let (one, net) = (dir.join("blob.neoml"), dir.join("net.cnnarch"));
    made::neoml_blob(&one).expect("the blob can be written");
    made::neoml_net(&net).expect("the net can be written");
    let loaded = |file: &Path, name: &str| {
        let name = format!("{name} loaded / read() into a fresh buffer");
        Row::at_most(&name, ratio(file, "load", "read-fresh"), "", 1.3)
    };
    let mut rows = vec![
        loaded(&one, "268 MB NeoML blob"),
        loaded(&net, "500 MB NeoML net"),
        store(&one, "268 MB NeoML blob stored"),
        store(&net, "500 MB of blobs stored as a NeoML array"),
        Row::at_most("scan of a 500 MB NeoML net / chunked read()", ratio(&net, "scan", "read-chunks"), "", 1.2),
    ];
    rows.extend(splice(blob, &net, dir, "fc0/0"));
    rows
}

/// Both sides hash with the same crate. The base reads and hashes one chunk after the other.
fn hash(file: &Path) -> Vec<Row> {
    [
        ("hash of 553 MB, speed / BLAKE3's own", "hash"),
        ("hash --content of 553 MB, speed / BLAKE3's own", "hash-content"),
    ]
    .map(|(name, case)| Row::at_least(name, 1.0 / ratio(file, case, "blake3"), "", 0.9))
    .into()
}

/// Compares a file with a copy. The rate is the bytes of both over the CPU time of all cores.
fn diff(blob: &Path, file: &Path, dir: &Path) -> Vec<Row> {
    let copy = dir.join("copy.caffemodel");
    let bytes = 2 * std::fs::copy(file, &copy).expect("copied");
    let mut command = Command::new(blob);
    command.arg("diff").arg(file).arg(&copy);
    let runs: Vec<Usage> = (0..rounds()).map(|_| usage(&mut command)).collect();
    std::fs::remove_file(&copy).expect("removable");
    let rate = median(runs.iter().map(|run| bytes as f64 / run.cpu / 1e9));
    let mib = runs.iter().map(|run| run.mib).fold(0.0, f64::max);
    vec![
        Row::at_least("diff of two files of 553 MB, bytes of both, a core", rate, "GB/s", 5.0),
        Row::at_most("diff of two files of 553 MB, peak memory", mib, "MiB", 96.0),
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

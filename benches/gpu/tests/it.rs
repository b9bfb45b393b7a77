//! Tests the program `blob-gpu` without a GPU: on the driver of `fake-cuda` with tiny tensors, and without a driver.
//! It must complete and say what it has run; its figures mean nothing here.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use fake_cuda::control;

static ALONE: Mutex<()> = Mutex::new(());

/// Runs the program. Returns whether it succeeded, and the page that it wrote.
fn page(prepare: impl FnOnce(&mut Command, &Path)) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let [file, packed, script] = ["page.md", "blob-gpu", "gpu.py"].map(|name| folder.path().join(name));
    // A process that another test starts during the copy would inherit the file open for writing, and an executable
    // that is open for writing cannot be started.
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // As `cargo xtask gpu` packs it.
    std::fs::copy(env!("CARGO_BIN_EXE_blob-gpu"), &packed).unwrap();
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu.py"), script).unwrap();
    let mut program = Command::new(packed);
    program.arg("--tiny").arg(&file);
    prepare(&mut program, folder.path());
    let child = program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(alone);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.ends_with("is no record\n"), "{said}");
    (output.status.success(), std::fs::read_to_string(&file).unwrap_or_else(|_| panic!("no page; {said}")))
}

#[test]
fn every_path_runs_on_the_driver_for_tests_and_is_labelled_so() {
    let (is_good, page) = page(|program, _| {
        program.env("LD_PRELOAD", control::file());
    });
    assert!(is_good, "{page}");
    assert!(page.contains("**Not a GPU: "), "{page}");
    assert!(page.contains("| two GPUs keep them as a pair | passed | 4 checks |"), "{page}");
    assert!(page.contains("| .params: its bits on the GPU | passed | the file's |"), "{page}");
    for absent in ["torch", "CuPy", "cuTENSOR", "safe_open", "compute-sanitizer"] {
        assert!(page.contains(&format!("absent: {absent}")), "{absent}\n{page}");
    }
    // Only the rows of the peers are missing, and none is judged.
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let peers = ["compute-sanitizer", "of safe_open's speed", "of torch, pinned's speed"];
    let open = rows.filter(|line| line.contains("not run") && !peers.iter().any(|who| line.contains(who)));
    let open: Vec<_> = open.collect();
    assert!(open.is_empty(), "{open:#?}");
    assert!(!page.contains("| met |") && !page.contains("MISSED") && page.matches("not judged").count() > 40, "{page}");
}

/// The largest cases run out of memory, and fail in each phase that runs the cases.
#[test]
fn after_a_case_that_fails_another_process_continues() {
    let (is_good, page) = page(|program, _| {
        program.env("LD_PRELOAD", control::file()).env("FAKE_CUDA", "memory=300000");
    });
    assert!(!is_good, "{page}");
    let row = |name: &str| page.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap().to_string();
    assert!(row("merge, rows of 64 KiB").contains("not run"), "{page}");
    assert!(row("split, rows of 512 B").contains("not judged") && row("sumsq, f32").contains("not judged"), "{page}");
    assert!(page.contains("| rows came to its end | failed | merge, rows of 64 KiB: "), "{page}");
    assert!(page.contains("| sumsq, f32: the host's bits | passed |"), "{page}");
}

#[test]
fn one_gpu_is_not_run_on_two() {
    let (is_good, page) = page(|program, _| {
        program.env("LD_PRELOAD", control::file()).env("FAKE_CUDA", "devices=1");
    });
    assert!(is_good && page.contains("| two GPUs keep them as a pair | not run on two |"), "{page}");
}

#[test]
fn without_a_gpu_it_ends_well_and_says_that_nothing_was_run() {
    let (is_good, page) = page(|program, folder| control::hide(program, folder).unwrap());
    assert!(is_good, "{page}");
    assert!(
        page.contains("**Not run: there is no GPU here.**") && page.contains("* not run: no CUDA driver"),
        "{page}"
    );
    assert!(!page.contains("passed") && !page.contains("met"), "{page}");
}

//! `blob devices` without a driver, with unusable drivers, and with the driver of `fake-cuda`.

use std::path::Path;
use std::process::Command;

use fake_cuda::control;
use serde_json::{Value, json};

use crate::support::{Ran, blob, command, ran};

/// Runs the tool with the driver of `fake-cuda` in this configuration.
fn with_driver(args: &[&str], setup: &str) -> Ran {
    let mut tool = command(args);
    tool.env("LD_PRELOAD", control::file()).env("FAKE_CUDA", setup);
    ran(tool, b"")
}

/// Runs the tool so that the loader finds these files first.
fn with_files(args: &[&str], prepare: impl FnOnce(&mut Command, &Path)) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let mut tool = command(args);
    prepare(&mut tool, folder.path());
    ran(tool, b"")
}

fn hide(tool: &mut Command, folder: &Path) {
    control::hide(tool, folder).unwrap();
}

fn without_a_function(tool: &mut Command, folder: &Path) {
    control::without("cuMemPoolTrimTo", folder).unwrap();
    tool.env("LD_LIBRARY_PATH", folder);
}

/// The one line of JSON. The exit code is 0 with and without GPUs.
fn answer(ran: &Ran) -> Value {
    assert!(ran.code == Some(0) && ran.err.is_empty(), "{ran:?}");
    let mut lines = ran.json();
    assert_eq!(lines.len(), 1, "{ran:?}");
    lines.remove(0)
}

#[test]
fn each_gpu_has_a_row() {
    let shown = with_driver(&["devices"], "version=12040");
    let table = "\
GPU  NAME       CAPABILITY    MEMORY      FREE  DRIVER
  0  Fake CUDA  9.0         1.00 GiB  1.00 GiB  CUDA 12.4
  1  Fake CUDA  9.0         1.00 GiB  1.00 GiB  CUDA 12.4
";
    assert_eq!((shown.code, shown.out.as_str(), shown.err.as_str()), (Some(0), table, ""));
    let gpu = |ordinal: u64| {
        let bytes = 1u64 << 30;
        json!({"ordinal": ordinal, "name": "Fake CUDA", "capability": "9.0", "bytes": bytes, "free_bytes": bytes, "cuda": "12.4"})
    };
    let line = answer(&with_driver(&["devices", "--json"], "version=12040"));
    assert_eq!(line, json!({"schema": "blob.devices/1", "gpus": [gpu(0), gpu(1)], "absent": null}));
}

#[test]
fn without_a_gpu_it_says_why_and_what_to_do() {
    type Run = Box<dyn Fn(&[&str]) -> Ran>;
    let setup = |setup: &'static str| -> Run { Box::new(move |args| with_driver(args, setup)) };
    let cases: [(&str, Run, &str, &str); 6] = [
        (
            "no-driver",
            Box::new(|args| with_files(args, hide)),
            "no CUDA driver: libcuda.so, libcuda.so.1 cannot be loaded",
            "install the driver",
        ),
        (
            "incomplete",
            Box::new(|args| with_files(args, without_a_function)),
            "the CUDA driver has no function cuMemPoolTrimTo",
            "install the driver",
        ),
        ("stub", setup("init=34"), "no CUDA driver: the library found is the toolkit's stub", "LD_LIBRARY_PATH"),
        ("no-device", setup("devices=0"), "the CUDA driver finds no GPU", "CUDA_VISIBLE_DEVICES"),
        (
            "too-old",
            setup("version=11080"),
            "the CUDA driver is too old: it knows CUDA 11.8, and 12.0 is needed",
            "update the driver",
        ),
        ("failed", setup("init=803"), "the CUDA driver refuses cuInit: error 803", "restart the machine"),
    ];
    for (reason, run, message, help) in cases {
        let shown = run(&["devices"]);
        assert!(shown.code == Some(0) && shown.err.is_empty(), "{reason}: {shown:?}");
        let (first, second) = shown.out.split_once("\n  help: ").unwrap_or_else(|| panic!("{reason}: {shown:?}"));
        assert_eq!(first, message);
        assert!(second.contains(help) && second.lines().count() == 1, "{second}");
        let line = answer(&run(&["devices", "--json"]));
        assert_eq!((&line["gpus"], &line["absent"]["reason"]), (&json!([]), &json!(reason)));
        assert_eq!((&line["absent"]["message"], &line["absent"]["help"]), (&json!(message), &json!(second.trim_end())));
    }
}

#[test]
fn a_narrow_terminal_gets_short_lines() {
    let narrow = |mut tool: Command| {
        tool.args(["--table", "--color", "never"]).env("COLUMNS", "60");
        ran(tool, b"").out
    };
    let mut gpus = command(&["devices"]);
    gpus.env("LD_PRELOAD", control::file());
    let folder = tempfile::tempdir().unwrap();
    let mut none = command(&["devices"]);
    hide(&mut none, folder.path());
    for shown in [narrow(gpus), narrow(none)] {
        assert!(shown.lines().count() > 2 && shown.lines().all(|line| line.chars().count() <= 60), "{shown}");
    }
}

#[test]
fn the_examples_of_the_help_run() {
    let help = blob(&["help", "devices"]).out;
    let lines = help.lines().skip(1).map_while(|line| line.strip_prefix("  blob "));
    let examples: Vec<&str> = lines.map(|line| line.split("  ").next().unwrap_or_default()).collect();
    assert_eq!(examples.len(), 2, "{help}");
    for example in examples {
        let words: Vec<&str> = example.split(' ').collect();
        for shown in [with_driver(&words, ""), with_files(&words, hide)] {
            assert!(shown.code == Some(0) && !shown.out.is_empty(), "{example}: {shown:?}");
        }
    }
}

//! The tool on terminals, with broken pipes, and at signals.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::archive::zeros;
use crate::support::schemas;
use crate::support::{Folder, blob, command, data, on_terminal, ran, report, tool};

const NET: &str = "caffe/net/v1.caffemodel";

#[test]
fn a_reader_that_leaves_is_no_error() {
    let many = "mxnet/golden/mxnet-1.9.1/many_1000.nd";
    let mut child = command(&["ls", "--json", many]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
    let mut sh = Command::new("sh");
    sh.current_dir(data("")).args(["-c", "\"$0\" ls \"$1\" >&-"]).arg(tool()).arg(NET);
    assert!(ran(sh, b"").code.is_some());
    if !std::path::Path::new("/dev/full").exists() {
        return report("NOT TESTED: a full disk behind standard output (no /dev/full)");
    }
    let mut sh = Command::new("sh");
    sh.current_dir(data("")).args(["-c", "\"$0\" ls \"$1\" >/dev/full"]).arg(tool()).arg(NET);
    let full = ran(sh, b"");
    assert!(full.code == Some(2) && full.err.contains("cannot write to standard output"), "{full:?}");
}

#[test]
fn a_terminal_gets_a_table_and_colour() {
    let Some(ls) = on_terminal(80, &format!("ls {NET} 'ip*'"), &[]) else {
        return report("NOT TESTED: the tool on a terminal (no `script`)");
    };
    assert!(ls.starts_with("\x1b[1m#  NAME"), "{ls:?}");
    assert!(ls.contains("LAYER TYPE") && ls.contains("1×1×7×36"), "{ls:?}");
    assert!(ls.lines().last().unwrap().starts_with("2 of 4 tensors, 1.01 KiB  (read "), "{ls:?}");
    for (args, environment) in [("--color never", &[][..]), ("", &[("NO_COLOR", "1")]), ("", &[("TERM", "dumb")])] {
        let plain = on_terminal(80, &format!("ls {args} {NET}"), environment).unwrap();
        assert!(!plain.contains('\x1b'), "{args} {environment:?}: {plain:?}");
    }
    let always = blob(&["ls", "--tree", "--color", "always", NET]);
    assert!(always.out.contains("\x1b["), "{always:?}");
    for binary in ["convert -o - --to npz", "convert -o /dev/stdout --to npz", "convert -o /dev/tty --to npz --force"] {
        let refused = on_terminal(80, &format!("{binary} {NET}"), &[]).unwrap();
        assert!(refused.contains("would write binary data to the terminal"), "{binary}: {refused:?}");
    }
    let verify = on_terminal(80, &format!("verify {NET}"), &[]).unwrap();
    assert!(verify.contains("\x1b[1m\x1b[32mOK\x1b[0m"), "{verify:?}");
}

/// Whether a process has a file in this folder beside the source: open, if the file has no name yet.
#[cfg(unix)]
fn has_begun(process: u32, folder: &Path, source: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let mut open = open.filter_map(|fd| fs::read_link(fd.path()).ok());
    open.any(|file| file.starts_with(folder) && file != source) || fs::read_dir(folder).unwrap().count() > 1
}

/// Interrupts a conversion that takes seconds once writing has begun. The source is a sparse file.
#[cfg(unix)]
#[test]
fn a_signal_stops_the_work_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("zeros.npy");
    zeros(&source, 1 << 30);
    for signal in ["-INT", "-TERM"] {
        let out = folder.path().join("out.npz");
        let args = ["convert", source.to_str().unwrap(), "--sha256", "-o", out.to_str().unwrap()];
        let mut child = command(&args).stderr(Stdio::piped()).spawn().unwrap();
        while !has_begun(child.id(), folder.path(), &source) && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(130), "interrupted\n"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the source is left");
    }
}

/// Interrupts each command at work, and one that waits for input: the last line is whole and says so.
#[cfg(target_os = "linux")]
#[test]
fn what_a_signal_interrupts_ends_with_one_whole_line() {
    let folder = Folder::new();
    let (source, out) = (folder.file("zeros.npy"), folder.file("out"));
    zeros(source.as_ref(), 1 << 30);
    let to = |extension: &str| format!("{out}.{extension}");
    let lines: [&[&str]; 15] = [
        &["show", "--full", &source],
        &["stats", &source],
        &["stats", "--hist", &source],
        &["diff", &source, &source],
        &["verify", "--finite", "caffe/net/v1.caffemodel", &source],
        &["verify", &source, "--against", &source],
        &["hash", "caffe/net/v1.caffemodel", &source],
        &["hash", "--content", &source],
        &["convert", &source, "-o", &to("npz")],
        &["extract", &source, "-o", &to("csv")],
        &["merge", &source, "-o", &to("npz")],
        &["plot", &source],
        &["report", &source, "-o", &to("html")],
        &["info", "caffe/net/v1.caffemodel", "-"],
        &["ls", "-"],
    ];
    for line in lines {
        let line = [&["--json"], line].concat();
        let (input, output) = (Stdio::piped(), Stdio::piped());
        let mut child = command(&line).stdin(input).stdout(output).stderr(Stdio::piped()).spawn().unwrap();
        // The input stays open and empty: waiting for a process would close the input.
        let _input = child.stdin.take();
        // The signal comes as soon as a handler stands, and a little later.
        let status = format!("/proc/{}/status", child.id());
        while !({
            let status = fs::read_to_string(&status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
            u64::from_str_radix(caught, 16).unwrap() & 0b10 != 0
        }) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut pipe = child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            pipe.read_to_string(&mut text).unwrap();
            text
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let (status, text) = (child.wait().unwrap(), reader.join().unwrap());
        assert_eq!(status.code(), Some(130), "{line:?}: {}", &text[..text.len().min(1000)]);
        let documents = text.lines().map(|line| serde_json::from_str(line).expect("a whole line"));
        let documents: Vec<Value> = documents.collect();
        documents.iter().for_each(schemas::check);
        let last = documents.last().expect("a line");
        assert_eq!(last["error"]["reason"], "interrupted", "{line:?}: {last}");
        let said = documents.iter().filter(|document| document["error"].is_object()).count();
        assert_eq!(said, 1, "{line:?}: {documents:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{line:?}: only the source is left");
    }
}

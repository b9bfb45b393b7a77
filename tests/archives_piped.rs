//! Archives that come through a pipe: `--member` names the file in them, for every command that reads one.

use std::fs;

use crate::support::{blob_with, command, data};

/// Of `two.tar`, as `archives` has it.
const MEMBERS: [&str; 2] = ["b-0000.params", "in/a-0000.params"];

fn two() -> Vec<u8> {
    fs::read(data("archives/two.tar")).expect("readable")
}

#[test]
fn the_members_of_a_piped_archive_are_listed_and_chosen() {
    let ran = blob_with(&["ls", "-"], &two());
    assert_eq!(ran.code, Some(2));
    let list = "standard input: holds 2 tensor files: b-0000.params, in/a-0000.params; choose one with --member";
    assert!(ran.err.contains(list) && !ran.err.contains("by its path"), "{ran:?}");
    for member in MEMBERS {
        let path = format!("archives/two.tar/{member}");
        let (piped, placed) = (blob_with(&["ls", "-", "--member", member], &two()), blob_with(&["ls", &path], b""));
        assert_eq!((piped.code, piped.out), (Some(0), placed.out), "{member}");
    }
    let ran = blob_with(&["ls", "-", "--member", "c"], &two());
    assert!(ran.code == Some(2) && ran.err.contains("standard input: has no file \"c\" in it"), "{ran:?}");
    let ran = blob_with(&["ls", "-", "--member", "c"], &fs::read(data("other/two.safetensors")).expect("readable"));
    assert!(ran.code == Some(2) && ran.err.contains("is no tar or zip archive"), "{ran:?}");
    let ran = blob_with(&["hash", "-", "--member", MEMBERS[0]], &two());
    assert!(ran.code == Some(2) && ran.err.contains("without --content"), "{ran:?}");
    let ran = blob_with(&["ls", "archives/two.tar", "--member", MEMBERS[0]], b"");
    assert!(ran.code == Some(2) && ran.err.contains("no file is `-`"), "{ran:?}");
    assert!(ran.err.contains("named by its path: model.tar.gz/net.params"), "{ran:?}");
}

#[test]
fn every_command_takes_a_member_of_a_pipe() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let [npz, png, html, npy, parts, axes] = ["x.npz", "x.png", "x.html", "x.npy", "parts.npz", "axes.npz"].map(place);
    let (member, weight) = (MEMBERS[1], "arg:fc1_weight");
    let golden = format!("archives/two.tar/{member}");
    for words in [
        &["info", "-"][..],
        &["ls", "-"],
        &["show", "-", weight],
        &["stats", "-"],
        &["verify", "-"],
        &["verify", "-", "--against", &golden],
        &["verify", &golden, "--against", "-"],
        &["diff", "-", &golden],
        &["diff", &golden, "-"],
        &["hash", "--content", "-"],
        &["convert", "-", "-o", &npz],
        &["extract", "-", weight, "-o", &npy],
        &["rename", "-", "--sed", "s/^/x./", "-o", &npz, "--force"],
        &["plot", "-", weight, "-o", &png],
        &["report", "-", "-o", &html],
        &["split", "-", weight, "--axis", "0", "--sizes", "8,8", "--into", "a,b", "-o", &parts],
        &["transpose", "-", weight, "--perm", "1,0", "-o", &axes],
    ] {
        let ran = blob_with(&[words, &["--member", member]].concat(), &two());
        assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}");
    }
}

/// A pipe with a name has a path, which goes on to the member as that of a file does.
#[cfg(unix)]
#[test]
fn a_named_pipe_goes_on_to_a_member() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("runs");
    assert!(made.success());
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::write(pipe, two()).expect("written")
    });
    let path = pipe.join(MEMBERS[0]);
    let output = command(&["ls", path.to_str().expect("UTF-8")]).output().expect("runs");
    writer.join().expect("written");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, blob_with(&["ls", &format!("archives/two.tar/{}", MEMBERS[0])], b"").out.into_bytes());
}

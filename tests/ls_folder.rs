//! `blob ls -r`: what is listed of a folder, what is passed over, and what ends it with which status.

use std::fs;
use std::path::Path;

use crate::support::{Folder, blob, data, on_terminal};

/// A folder with tensors and without.
fn made() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let net = fs::read(data("caffe/net/v1.caffemodel")).unwrap();
    put("b/net.caffemodel", &net);
    put("a.datum", &fs::read(data("caffe/misc/u8.datum")).unwrap());
    put("b/notes.txt", b"no tensors here\n");
    put(".hidden/net.caffemodel", &net);
    put("b/.net.caffemodel", &net);
    #[cfg(unix)]
    std::os::unix::fs::symlink("..", folder.path().join("b/up")).unwrap();
    folder
}

/// The files of the lines, each once, without their folder.
fn listed(folder: &Path, args: &[&str]) -> (Option<i32>, Vec<String>, String) {
    let path = folder.to_str().unwrap();
    let ls = blob(&[&["ls", "-r", path], args].concat());
    let mut files: Vec<String> = ls.out.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect();
    files.dedup();
    let short = |file: String| file.strip_prefix(path).unwrap().trim_start_matches('/').to_owned();
    (ls.code, files.into_iter().map(short).collect(), ls.err)
}

#[test]
fn every_file_of_tensors_is_listed_once_and_the_others_are_not() {
    let folder = made();
    assert_eq!(
        listed(folder.path(), &[]),
        (Some(0), vec!["a.datum".to_owned(), "b/net.caffemodel".to_owned()], String::new())
    );
    let all = blob(&["ls", "-r", folder.path().to_str().unwrap()]);
    let line = all.out.lines().nth(1).unwrap();
    assert!(line.ends_with("b/net.caffemodel\tconv1/0\tf32\t4x3x3x3\t432\t65"), "{line}");
    let json = blob(&["ls", "-r", "--json", folder.path().to_str().unwrap()]);
    let counts: Vec<_> = json.json().iter().map(|file| file["tensors_in_file"].clone()).collect();
    assert_eq!(counts, [1, 4]);
}

#[test]
fn a_pattern_chooses_among_all_files() {
    let folder = made();
    assert_eq!(listed(folder.path(), &["conv*", "@0"]).1, ["a.datum", "b/net.caffemodel"]);
    let (code, files, err) = listed(folder.path(), &["conv*", "nosuch"]);
    assert!(code == Some(1) && files == ["b/net.caffemodel"], "{files:?}");
    assert!(err.contains("no tensor in ") && err.contains(r#"matches "nosuch""#), "{err}");
}

#[test]
fn a_broken_file_is_told_and_the_others_are_listed() {
    let folder = made();
    let net = fs::read(data("caffe/net/v1.caffemodel")).unwrap();
    fs::write(folder.path().join("a.caffemodel"), &net[..900]).unwrap();
    let (code, files, err) = listed(folder.path(), &[]);
    assert_eq!((code, files.len()), (Some(2), 3));
    assert!(err.contains("a.caffemodel") && err.matches("error:").count() == 1, "{err}");
}

#[test]
fn folders_that_were_converted_and_shards_count_as_they_are() {
    let folder = Folder::new();
    let net = data("caffe/net/v1.caffemodel");
    let net = net.to_str().unwrap();
    assert_eq!(blob(&["convert", net, "-o", &folder.file("arrays/")]).code, Some(0));
    assert_eq!(blob(&["convert", net, "-o", &folder.file("net.safetensors"), "--shard-size", "1KiB"]).code, Some(0));
    let (code, files, _) = listed(folder.path(), &[]);
    assert_eq!(code, Some(0));
    let shard = |number| format!("net-0000{number}-of-00003.safetensors");
    assert_eq!(files, ["arrays".to_owned(), shard(1), shard(2), shard(3)]);
}

/// A tar of these files, in the oldest form.
fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, bytes) in files {
        let mut head = [0; 512];
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[100..108].copy_from_slice(b"0000644\0");
        head[124..136].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
        head[148..156].copy_from_slice(b"        ");
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend(head);
        tar.extend(*bytes);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

#[test]
fn each_tensor_file_of_an_archive_is_listed() {
    let folder = made();
    for name in ["two.tar", "small.tar.gz"] {
        fs::copy(data("archives").join(name), folder.path().join(name)).unwrap();
    }
    let (code, files, err) = listed(folder.path(), &[]);
    let small = "small.tar.gz/model-0000.params";
    let small = files.iter().find(|file| file.starts_with("small.tar.gz/")).map_or(small, |file| &**file).to_owned();
    let wanted = ["a.datum", "b/net.caffemodel", &small, "two.tar/b-0000.params", "two.tar/in/a-0000.params"];
    assert_eq!((code, files, err), (Some(0), wanted.map(str::to_owned).to_vec(), String::new()));
    // A broken one is told, and so are those that are too many; the others are listed.
    let net = fs::read(data("caffe/net/v1.caffemodel")).unwrap();
    let names: Vec<String> = (0..258).map(|i| format!("{i:03}.caffemodel")).collect();
    let mut all: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &net[..])).collect();
    all[1].1 = &net[..900];
    fs::write(folder.path().join("many.tar"), tar(&all)).unwrap();
    let (code, files, err) = listed(folder.path(), &[]);
    assert_eq!((code, files.iter().filter(|file| file.starts_with("many.tar/")).count()), (Some(2), 256));
    assert!(
        err.contains("many.tar: holds 2 more tensor files than are listed") && err.contains("many.tar/001.caffemodel"),
        "{err}"
    );
    assert_eq!(err.matches("error:").count(), 2, "{err}");
}

#[test]
fn a_receipt_that_lists_nothing_hides_nothing() {
    for (receipt, code) in [(r#"{"contents":[]}"#, 0), ("", 2)] {
        let folder = made();
        fs::write(folder.path().join("b/blob.receipt.json"), receipt).unwrap();
        let (found, files, err) = listed(folder.path(), &[]);
        assert_eq!(
            (found, &files[..]),
            (Some(code), &["a.datum".to_owned(), "b/net.caffemodel".to_owned()][..]),
            "{err}"
        );
    }
}

#[test]
fn what_is_no_folder_or_holds_nothing_is_said() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("notes.txt"), "none").unwrap();
    let (code, _, err) = listed(folder.path(), &[]);
    assert!(code == Some(1) && err.contains("holds no file of tensors"), "{err}");
    blob(&["ls", "-r", "caffe/net/v1.caffemodel"]).refused("is a file, and -r lists a folder");
    assert_eq!(blob(&["ls", "-r", "no/such"]).code, Some(2));
}

#[test]
fn people_see_a_table_a_file_and_the_sum() {
    let folder = made();
    let Some(screen) = on_terminal(80, &format!("ls -r {}", folder.path().display()), &[]) else {
        return;
    };
    assert!(screen.contains("b/net.caffemodel") && screen.contains("conv1/0"), "{screen}");
    assert!(screen.contains("2 files, 5 tensors, 1.46 KiB; 1 file without tensors passed over"), "{screen}");
}

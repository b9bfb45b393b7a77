//! If several processes write a folder at once, the result is complete and of one process, and nothing else remains.
//! A written folder is read like a file, and foreign files there are never lost.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Barrier;

use blob_io::layout::OutputDir;
use blob_io::{Checkpoint, Error, IfExists};

use crate::support::{blob, command, data};

const WRITERS: usize = 8;
const RECEIPT: &str = "blob.receipt.json";

/// Begins a folder whose files all contain the writer's number.
fn begin(target: &Path, writer: usize, if_exists: IfExists) -> Result<OutputDir, Error> {
    let dir = OutputDir::create(target, if_exists)?;
    let listed =
        ["a/0.npy", "a/1.npy", "b.npy"].map(|file| format!(r#"{{"name":"n","file":"{file}","file_bytes":1}}"#));
    let receipt = format!(r#"{{"contents":[{}],"by":"{writer}"}}"#, listed.join(","));
    for path in ["a/0.npy", "a/1.npy", "b.npy", RECEIPT] {
        let mut file = dir.file(path)?;
        match path {
            RECEIPT => file.write_all(receipt.as_bytes())?,
            _ => file.write_all(&[writer as u8])?,
        }
        file.finish()?;
    }
    Ok(dir)
}

/// The results of several concurrent writers.
fn race(target: &Path, if_exists: IfExists) -> Vec<Result<(), Error>> {
    let wait = Barrier::new(WRITERS);
    std::thread::scope(|scope| {
        let wait = &wait;
        let writers = (0..WRITERS).map(|writer| {
            scope.spawn(move || {
                let dir = begin(target, writer, if_exists);
                wait.wait();
                dir?.finish()
            })
        });
        let writers: Vec<_> = writers.collect();
        writers.into_iter().map(|w| w.join().unwrap()).collect()
    })
}

/// The writer of the folder. Asserts that all files are from one writer, and that no other file remains.
fn owner(home: &Path, target: &Path) -> usize {
    let there: Vec<PathBuf> = std::fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(there, [target]);
    let files = ["a/0.npy", "a/1.npy", "b.npy"];
    let owners = files.map(|file| std::fs::read(target.join(file)).unwrap());
    assert!(owners.iter().all(|owner| *owner == owners[0]), "{owners:?}");
    let owner = usize::from(owners[0][0]);
    let receipt = std::fs::read_to_string(target.join(RECEIPT)).unwrap();
    assert!(receipt.ends_with(&format!(r#""by":"{owner}"}}"#)), "{receipt}");
    owner
}

#[test]
fn without_force_one_of_many_gets_the_folder() {
    for _ in 0..20 {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        let results = race(&target, IfExists::Refuse);
        let won: Vec<usize> = (0..WRITERS).filter(|w| results[*w].is_ok()).collect();
        assert_eq!(won, [owner(home.path(), &target)], "{results:?}");
        for refused in results.iter().filter_map(|r| r.as_ref().err()) {
            assert!(refused.to_string().contains("exists"), "{refused}");
        }
    }
}

#[test]
fn with_force_all_succeed_and_the_last_one_stays() {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("out");
    let mut owners = HashMap::new();
    for _ in 0..20 {
        for result in race(&target, IfExists::Replace) {
            result.unwrap();
        }
        *owners.entry(owner(home.path(), &target)).or_insert(0) += 1;
    }
    println!("folder: who was last: {owners:?}");
}

#[test]
fn processes_that_write_one_folder_do_not_disturb_each_other() {
    let home = tempfile::tempdir().unwrap();
    let source = data("caffe/net/f32_v2.caffemodel");
    let source = source.to_str().unwrap();
    let target = home.path().join("out");
    let to = format!("{}/", target.display());
    for force in [false, true, true] {
        let mut args = vec!["convert", source, "-o", &to];
        if force {
            args.push("--force");
        }
        let all = (0..WRITERS).map(|_| {
            let mut one = command(&args);
            one.stdout(Stdio::null()).stderr(Stdio::piped());
            one.spawn().unwrap()
        });
        let all: Vec<_> = all.collect();
        let all = all.into_iter().map(|one| one.wait_with_output().unwrap());
        let failed: Vec<String> =
            all.filter(|one| !one.status.success()).map(|one| String::from_utf8(one.stderr).unwrap()).collect();
        assert_eq!(failed.len(), if force { 0 } else { WRITERS - 1 }, "{failed:?}");
        assert!(failed.iter().all(|e| e.contains("exists")), "{failed:?}");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
        assert!(target.join(RECEIPT).is_file());
    }
}

#[test]
#[cfg(target_os = "linux")]
fn what_a_killed_process_left_is_removed_whenever_it_was_killed() {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("out");
    // A killed process leaves the temporary folder without the lock; the content is ignored.
    for (at, file) in ["a/0.npy", RECEIPT].iter().enumerate() {
        let left = home.path().join(format!(".out.blob-tmp-000000000000000{at}"));
        std::fs::create_dir_all(left.join(file)).unwrap();
    }
    let first = begin(&target, 1, IfExists::Refuse).unwrap();
    let second = begin(&target, 2, IfExists::Refuse).unwrap();
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2);
    second.finish().unwrap();
    assert!(first.finish().unwrap_err().to_string().contains("exists"));
    assert_eq!(owner(home.path(), &target), 2);
}

/// Converts a file to a folder with the tool. Returns the folder's path as an argument.
fn converted(source: &str, home: &Path) -> String {
    let to = format!("{}/wts/", home.display());
    let ran = blob(&["convert", source, "-o", &to]).ok();
    assert!(ran.err.contains("prove it:  blob verify "), "{ran:?}");
    to
}

#[test]
fn a_folder_that_was_written_is_read_like_a_file() {
    let home = tempfile::tempdir().unwrap();
    let source = "mxnet/golden/mxnet-1.9.1/checkpoints/mobilenet0_25-0000.params";
    let wts = converted(source, home.path());
    let (folder, file) = (Checkpoint::open(&wts).unwrap(), Checkpoint::open(data(source)).unwrap());
    let names = |of: &Checkpoint| -> Vec<String> { of.entries().iter().map(|e| e.name().to_owned()).collect() };
    assert_eq!(names(&folder), names(&file));
    for (a, b) in folder.entries().iter().zip(file.entries()) {
        assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()));
        assert_eq!(folder.view(a).unwrap(), file.view(b).unwrap(), "{}", a.name());
    }
    for args in [
        &["verify", &wts][..],
        &["verify", &wts, "--against", source],
        &["verify", source, "--against", &wts],
        &["info", &wts],
        &["stats", &wts],
        &["ls", &wts],
        &["show", &wts, "arg:mobilenet0_25_conv0_weight"],
    ] {
        blob(args).ok();
    }
    let verify = blob(&["verify", &wts]);
    assert!(verify.out.contains(" digests as in the receipt"), "{verify:?}");
    for to in ["npz", "safetensors"] {
        let out = format!("{}/back.{to}", home.path().display());
        assert_eq!(blob(&["convert", &wts, "-o", &out]).code, Some(0));
        assert_eq!(blob(&["verify", &out, "--against", source]).code, Some(0));
    }
    blob(&["convert", &wts, "-o", &wts, "--force"]).refused("never replaced by its copy");
    assert_eq!(blob(&["verify", &wts, "--against", source]).code, Some(0));
}

#[test]
#[cfg(target_os = "linux")]
fn a_name_that_is_no_text_is_never_ours() {
    use std::os::unix::ffi::OsStrExt;
    let home = tempfile::tempdir().unwrap();
    let net = home.path().join("x.caffemodel");
    std::fs::write(&net, crate::convert::named("a\u{fffd}".as_bytes())).unwrap();
    let wts = converted(net.to_str().unwrap(), home.path());
    let ours = Path::new(&wts).join("a\u{fffd}/0.npy");
    let foreign = Path::new(&wts).join(std::ffi::OsStr::from_bytes(b"a\xff"));
    assert!(ours.is_file());
    std::fs::create_dir(&foreign).unwrap();
    std::fs::copy(&ours, foreign.join("0.npy")).unwrap();
    blob(&["convert", net.to_str().unwrap(), "--force", "-o", &wts]).refused("holds other files");
    assert!(foreign.join("0.npy").is_file());
}

/// A tensor's file that the receipt does not list is a loss for files made of the folder, as beside shards.
#[test]
fn files_that_the_receipt_does_not_list_are_said_to_be_left_out() {
    let home = crate::support::Folder::new();
    let dir = home.file("dir");
    blob(&["convert", "caffe/net/v1.caffemodel", "-o", &format!("{dir}/")]).ok();
    let warnings = || -> Vec<(String, bool)> {
        let opened = Checkpoint::open(&dir).unwrap();
        opened.warnings().iter().map(|warning| (warning.text.to_string(), warning.is_loss)).collect()
    };
    assert_eq!(warnings(), []);
    std::fs::create_dir(home.file("dir/new")).unwrap();
    for (from, to) in [("dir/ip/0.npy", "dir/new/0.npy"), ("dir/ip/0.npy", "dir/b.npy"), ("dir/ip/0.npy", "dir/readme")]
    {
        std::fs::copy(home.file(from), home.file(to)).unwrap();
    }
    let text =
        "the folder also has files that its receipt does not list and that are left out: b.npy, new/0.npy".to_owned();
    assert_eq!(warnings(), [(text.clone(), true)]);
    let strict = blob(&["convert", &dir, "--strict", "-o", &home.file("x.npz")]);
    assert!(strict.code != Some(0) && strict.err.contains(&text), "{}", strict.err);
}

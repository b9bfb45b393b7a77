//! A folder that several write at once: one of them has it whole at the end, and nothing else is left.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Barrier;

use blob_io::{Error, OutputDir};

use crate::support::{command, data};

const WRITERS: usize = 8;
const RECEIPT: &str = "blob.receipt.json";

/// Begins a folder whose files all hold the writer's number.
fn begin(target: &Path, writer: usize, overwrite: bool) -> Result<OutputDir, Error> {
    let dir = OutputDir::create(target, overwrite)?;
    for path in ["a/0.npy", "a/1.npy", "b.npy", RECEIPT] {
        let mut file = dir.file(path)?;
        file.write_all(&[writer as u8])?;
        file.finish()?;
    }
    Ok(dir)
}

/// What each of several writers came to.
fn race(target: &Path, overwrite: bool) -> Vec<Result<(), Error>> {
    let wait = Barrier::new(WRITERS);
    std::thread::scope(|scope| {
        let wait = &wait;
        let write = move |writer| {
            let dir = begin(target, writer, overwrite);
            wait.wait();
            dir?.finish()
        };
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write(writer)))
            .collect();
        writers.into_iter().map(|w| w.join().unwrap()).collect()
    })
}

/// The writer whose files stand in the folder, all of one, beside no other file.
fn owner(home: &Path, target: &Path) -> usize {
    let there: Vec<PathBuf> = std::fs::read_dir(home)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(there, [target]);
    let files = ["a/0.npy", "a/1.npy", "b.npy", RECEIPT];
    let owners = files.map(|file| std::fs::read(target.join(file)).unwrap());
    assert!(owners.iter().all(|owner| *owner == owners[0]), "{owners:?}");
    usize::from(owners[0][0])
}

#[test]
fn without_force_one_of_many_gets_the_folder() {
    for _ in 0..20 {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        let results = race(&target, false);
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
        for result in race(&target, true) {
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
        let start = || {
            let mut one = command(&args);
            one.stdout(Stdio::null()).stderr(Stdio::piped());
            one.spawn().unwrap()
        };
        let all: Vec<_> = (0..WRITERS).map(|_| start()).collect();
        let all = all.into_iter().map(|one| one.wait_with_output().unwrap());
        let failed: Vec<String> = all
            .filter(|one| !one.status.success())
            .map(|one| String::from_utf8(one.stderr).unwrap())
            .collect();
        assert_eq!(
            failed.len(),
            if force { 0 } else { WRITERS - 1 },
            "{failed:?}"
        );
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
    // A process that is killed leaves its temporary, without the lock; what is in it does not count.
    for (at, file) in ["a/0.npy", RECEIPT].iter().enumerate() {
        let left = home
            .path()
            .join(format!(".out.blob-tmp-000000000000000{at}"));
        std::fs::create_dir_all(left.join(file)).unwrap();
    }
    let first = begin(&target, 1, false).unwrap();
    let second = begin(&target, 2, false).unwrap();
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2);
    second.finish().unwrap();
    assert!(first.finish().unwrap_err().to_string().contains("exists"));
    assert_eq!(owner(home.path(), &target), 2);
}

#[test]
fn the_current_folder_is_not_replaced() {
    let home = tempfile::tempdir().unwrap();
    let source = data("caffe/net/f32_v2.caffemodel");
    for to in [".", "./", "..", "../"] {
        let here = home.path().join("sub");
        std::fs::create_dir_all(&here).unwrap();
        let mut convert = command(&["convert", source.to_str().unwrap(), "--force", "-o", to]);
        let output = convert.current_dir(&here).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && said.contains("folder"),
            "{to}: {said}"
        );
        assert_eq!(std::fs::read_dir(&here).unwrap().count(), 0);
        std::fs::remove_dir(&here).unwrap();
    }
}

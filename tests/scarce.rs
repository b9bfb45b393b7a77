//! If the system cannot start threads, as in a container with a process limit, everything runs on one thread, with the
//! same bits and no panic. Each case runs in a process whose user may have only that process.
//!
//! Relies on `prlimit` of util-linux. The limit does not bind root, so as root the cases run as a user without
//! processes.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use blob_core::{AnyBlob, DType, Part, Shape};

use crate::support::{Ran, blob, command, data, ran, real, report};

/// With this variable, the test binary prints the results of operations instead of testing.
const ASKED: &str = "BLOB_TEST_SCARCE";

/// A user id that should have no processes.
const LONELY: u32 = 0x5C_A2CE;

/// The command, run by a user who may have only this process.
fn scarce(command: &Command) -> Command {
    let mut limited = Command::new("prlimit");
    limited.arg("--nproc=1").arg(command.get_program());
    limited.args(command.get_args());
    limited.current_dir(command.get_current_dir().unwrap_or(&data("")));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let is_root = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    if is_root {
        limited.uid(LONELY).gid(LONELY);
    }
    limited
}

/// Whether the limit works here, and such a user can run our binaries. Otherwise reports the missing test.
fn binds(what: &str) -> bool {
    let why = |why: &str| {
        report(&format!("NOT TESTED: {what} where no threads start ({why})"));
        false
    };
    let mut another = Command::new("sh");
    another.args(["-c", "true | true && echo another"]);
    let mut ours = Command::new(std::env::current_exe().expect("a running test has a file"));
    ours.arg("--list");
    match (scarce(&another).output(), scarce(&ours).output()) {
        (Err(error), _) | (_, Err(error)) => why(&format!("prlimit: {error}")),
        (Ok(another), _) if another.stdout.starts_with(b"another") => why("a limit of processes does not bind"),
        (_, Ok(ours)) if !ours.status.success() => why("another user may not run what is built"),
        _ => true,
    }
}

/// The results of all kinds of work that threads share, each of several pieces.
fn results() -> String {
    let shape = Shape::new([1024, 1024]).expect("a shape");
    let bytes: Vec<u8> = (0..4u32 << 20).map(|i| (i.wrapping_mul(i) % 251) as u8 % 127).collect();
    let blob = AnyBlob::from_vec(shape, DType::F32, bytes).expect("whole elements");
    let halves = blob_ops::split(&blob, 1, &[500, 524]).expect("parts");
    let turned = blob_ops::transpose(&blob, 0, 1).expect("turned");
    let merged = blob_ops::merge(&[&turned, &blob], 1).expect("merged");
    let mut added = blob_ops::convert(&blob, DType::F64).expect("converted");
    let other = blob_ops::convert(&merged, DType::F64).expect("converted");
    let other = blob_ops::split(&other, 1, &[1024, 1024]).expect("parts");
    blob_ops::axpy(&mut added, 3, &other[0], Part::Data).expect("added");
    let mut hash = blake3::Hasher::new();
    for blob in [&halves[0], &halves[1], &turned, &merged, &added] {
        hash.update(&blob.data().bytes().expect("memory"));
    }
    let sum = blob_ops::asum(&added, Part::Data).expect("a sum");
    let squares = blob_ops::sumsq(&merged, Part::Data).expect("a sum");
    format!("{} {sum:?} {squares:?}", hash.finalize())
}

#[test]
fn answers_where_it_is_asked() {
    if std::env::var_os(ASKED).is_some() {
        let another = std::thread::Builder::new().spawn(|| ()).is_ok();
        println!("\nanother thread: {another}, {}", results());
    }
}

#[test]
fn operations_go_on_alone_with_the_same_bits() {
    if !binds("operations") {
        return;
    }
    let mut asked = Command::new(std::env::current_exe().expect("a running test has a file"));
    asked.args(["--exact", "scarce::answers_where_it_is_asked"]);
    asked.args(["--nocapture", "--test-threads=1"]).env(ASKED, "1");
    let ran = ran(scarce(&asked), b"");
    let want = format!("another thread: false, {}", results());
    assert!(ran.out.lines().any(|line| line == want), "{want}, {ran:?}");
    report("scarce threads: merge, split, transpose, convert, axpy and sums on one thread");
}

#[test]
fn the_tool_goes_on_alone() {
    if !binds("the tool") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("ours");
    let alone = |args: &[&str]| -> Ran { ran(scarce(&command(args)), b"") };
    let mut files = vec![data("caffe/net/v1.caffemodel")];
    files.extend(real("caffe/real/open_nsfw.caffemodel"));
    for (index, file) in files.iter().enumerate() {
        let file = file.to_str().expect("UTF-8");
        let (stats, want) = (alone(&["stats", file]), blob(&["stats", file]));
        assert_eq!((stats.code, &stats.err), (Some(0), &want.err), "{stats:?}");
        assert_eq!(stats.out, want.out, "{file}");
        let [one, many] = ["one", "many"].map(|name| folder.path().join(format!("{index}-{name}.npz")));
        let [one, many] = [&one, &many].map(|path| path.to_str().expect("UTF-8"));
        let converted = alone(&["convert", file, "-o", one]);
        assert_eq!(converted.code, Some(0), "{converted:?}");
        assert_eq!(blob(&["convert", file, "-o", many]).code, Some(0));
        assert_eq!(alone(&["verify", one, "--against", file]).code, Some(0));
        assert!(fs::read(one).expect("written") == fs::read(many).expect("written"), "{file}");
    }
    report(&format!("scarce threads: stats, convert and verify of {} files", files.len()));
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_leaves_nothing() {
    let home = tempfile::tempdir().expect("a folder");
    let source = data("mxnet/golden/mxnet-1.9.1/checkpoints/mobilenet0_25-0000.params");
    for (target, args) in [
        ("x.npz", &[][..]),
        ("x.safetensors", &[]),
        ("x/", &[]),
        ("x.safetensors", &["--shard-size", "500KB"]),
        ("x.h5", &[]),
    ] {
        let mut limited = Command::new("prlimit");
        limited.arg("--fsize=100000").arg(command(&[]).get_program()).arg("convert").arg(&source);
        limited.arg("-o").arg(
            home.path().join(target.trim_end_matches('/')).display().to_string()
                + if target.ends_with('/') { "/" } else { "" },
        );
        let ran = limited.args(args).output().expect("prlimit runs");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{target}: {said}");
        assert!(said.contains("too large"), "{target}: {said}");
        assert_eq!(fs::read_dir(home.path()).expect("listed").count(), 0, "{target}");
    }
}

#[test]
fn a_page_of_the_manual_is_replaced_whole_or_not() {
    let home = tempfile::tempdir().expect("a folder");
    let page = home.path().join("blob.1");
    fs::write(&page, "old").expect("written");
    let mut limited = Command::new("prlimit");
    limited.arg("--fsize=1000").arg(command(&[]).get_program()).args(["man", "-o"]).arg(home.path());
    let ran = limited.output().expect("prlimit runs");
    assert_eq!(ran.status.code(), Some(2), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(fs::read_to_string(&page).expect("readable"), "old");
    assert_eq!(fs::read_dir(home.path()).expect("listed").count(), 1);
}

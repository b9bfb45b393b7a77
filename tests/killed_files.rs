//! A killed conversion of one file leaves the folder as it was, also where nothing lists the folder afterwards.
//!
//! Relies on files without a name, which Linux has on most file systems.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::random::Random;
use crate::support::{Folder, blob, command, report};

/// The values of the source: enough that a conversion is met in its middle.
const VALUES: usize = 3_000_000;

/// An npy file of this value.
fn npy(folder: &Folder, name: &str, value: f32) -> String {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({VALUES},), }}");
    let mut file = b"\x93NUMPY\x01\0\x76\0".to_vec();
    file.extend(format!("{header:<117}\n").bytes());
    file.extend(std::iter::repeat_n(value.to_le_bytes(), VALUES).flatten());
    folder.with(name, file)
}

fn names(folder: &Path) -> BTreeSet<String> {
    let listing = fs::read_dir(folder).expect("listed").map(|entry| entry.expect("listed").file_name());
    listing.map(|name| name.into_string().expect("UTF-8")).collect()
}

/// Whether files in this folder can do without a name.
fn has_nameless(folder: &Path) -> bool {
    let is_made = fs::OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(folder).is_ok();
    if !is_made {
        report("NOT TESTED: what a killed conversion leaves (no files without a name here)");
    }
    is_made && Path::new("/proc/self/fd").exists()
}

/// Waits until the process has a file of the folder open, and a moment more; kills it then. Returns whether the process
/// was killed before its end.
fn kill_while_it_writes(mut child: Child, folder: &Path, moment: Duration) -> bool {
    let open = format!("/proc/{}/fd", child.id());
    while !({
        let links = fs::read_dir(&open).into_iter().flatten().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
        links.into_iter().any(|file| file.starts_with(folder))
    }) && child.try_wait().expect("a child").is_none()
    {
        std::thread::sleep(Duration::from_micros(50));
    }
    std::thread::sleep(moment);
    child.kill().expect("killed");
    !child.wait().expect("ended").success()
}

/// So many runs are to be killed before their end, and at most so many are begun for that.
const KILLS: u32 = 12;
const RUNS: usize = 300;

/// Whether a file system syncs files without a name, so that a new file needs a name only to replace another.
fn is_synced(folder: &Path) -> bool {
    let asked = Command::new("stat").args(["-f", "-c", "%T"]).arg(folder).output();
    asked.is_ok_and(|told| matches!(String::from_utf8_lossy(&told.stdout).trim(), "ext2/ext3" | "xfs" | "tmpfs"))
}

/// Kills runs that write into `out`, and says how many died, and how often more than `before` was there.
fn killed(lines: [&[&str]; 2], out: &Path, before: &dyn Fn()) -> (u32, u32) {
    let (mut random, mut kills, mut left) = (Random::new(11), 0, 0);
    for round in 0..RUNS {
        if kills == KILLS {
            break;
        }
        before();
        let there = names(out);
        let mut begun = command(lines[round % 2]);
        let child = begun.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the tool runs");
        let moment = Duration::from_micros(random.below(8_000) as u64);
        if kill_while_it_writes(child, out, moment) {
            kills += 1;
            let temporary = names(out).iter().filter(|name| name.contains("blob-tmp")).count();
            left += u32::from(temporary > 0);
            // Killed when the file had its name, and the receipt was not told yet.
            assert!(
                temporary > 0 || names(out).difference(&there).all(|name| name == "x.safetensors"),
                "{:?}",
                names(out)
            );
        }
    }
    (kills, left)
}

#[test]
fn a_killed_conversion_leaves_the_folder_as_it_was() {
    let folder = Folder::new();
    let (one, other) = (npy(&folder, "one.npy", 1.0), npy(&folder, "other.npy", 2.0));
    fs::create_dir(folder.path().join("out")).expect("a folder");
    let (home, out) = (folder.path().join("out"), folder.file("out/x.safetensors"));
    if !has_nameless(&home) {
        return;
    }
    let target = Path::new(&out);
    let (kills, left) = killed([&["convert", &one, "-o", &out], &["convert", &other, "-o", &out]], &home, &|| {
        drop(fs::remove_file(target))
    });
    assert!(kills == KILLS && left == 0, "{kills} kills, {left} with a file left");
    report(&format!("kills: {kills} of a new file, and nothing left"));

    // Before it replaces a file, the new one has a name for two calls; where a sync needs one, for that, too.
    let _ = fs::remove_file(target);
    blob(&["convert", &one, "-o", &out]).ok();
    let lines: [&[&str]; 2] = [&["convert", "--force", &other, "-o", &out], &["convert", "--force", &one, "-o", &out]];
    let (kills, left) = killed(lines, &home, &|| {
        blob(&["verify", &out]).ok();
    });
    assert!(kills == KILLS && (left <= 1 || !is_synced(&home)), "{kills} kills, {left} with a file left");
    blob(lines[0]).ok();
    assert_eq!(names(&home), BTreeSet::from(["x.safetensors".to_owned()]));
    report(&format!("kills: {kills} of a file that replaces another, {left} with a file for the next run to remove"));
}

//! A file without a name: made in the target's folder, named when complete, and gone with its process before that.
//!
//! Linux has such files, on most of its file systems. Relies on `/proc` for the name that the file gets.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Makes a file without a name in a folder; an error where there is none, or where it could not be named.
pub(super) fn create(options: &mut OpenOptions, folder: &Path) -> io::Result<File> {
    if !ways::is_made() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    linux::create(options, folder)
}

/// Gives an open file a name, also one that has none.
pub(super) fn link(file: &File, to: &Path) -> io::Result<()> {
    if !ways::is_named() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    linux::link(file, to)
}

/// Whether a sync that a file has without a name holds when the file gets one.
pub(super) fn is_synced(file: &File) -> bool {
    ways::is_synced() && linux::is_synced(file)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::os::unix::fs::MetadataExt;
    use std::sync::OnceLock;

    use rustix::fs::{fstatfs, statfs};

    use super::*;
    use crate::output::disk;

    /// The right of all to write.
    const WRITABLE_BY_ALL: u32 = 0o002;

    /// The file systems that sync a file without a name as they do others, by the numbers that `statfs` has for them:
    /// ext2 to ext4, XFS, and the memory. Btrfs keeps no log of a file that nothing names.
    const SYNCED: [u32; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

    /// The number of the file system of processes.
    const PROC: u32 = 0x9fa0;

    pub(super) fn create(options: &mut OpenOptions, folder: &Path) -> io::Result<File> {
        if !has_proc() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let file = disk::create_nameless(options, folder)?;
        if is_masked(file.metadata()?.mode()) { Ok(file) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    pub(super) fn link(file: &File, to: &Path) -> io::Result<()> {
        disk::link_open(file, to)
    }

    /// Whether the rights of a new file show the process's `umask`. Before Linux 6.0 some file systems passed over it
    /// where a file has no name. Where this is in doubt, a file with a name is made.
    pub(super) fn is_masked(mode: u32) -> bool {
        mode & WRITABLE_BY_ALL == 0
    }

    pub(super) fn is_synced(file: &File) -> bool {
        fstatfs(file).is_ok_and(|system| SYNCED.iter().any(|known| i128::from(*known) == i128::from(system.f_type)))
    }

    /// Whether the system has names for open files, and not a folder of other files in their place. Asked for once: a
    /// batch has many files.
    fn has_proc() -> bool {
        static HAS_PROC: OnceLock<bool> = OnceLock::new();
        *HAS_PROC.get_or_init(|| is_proc("/proc/self/fd"))
    }

    pub(super) fn is_proc(folder: &str) -> bool {
        statfs(folder).is_ok_and(|system| i128::from(system.f_type) == i128::from(PROC))
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use super::*;

    pub(super) fn create(_: &mut OpenOptions, _: &Path) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn link(_: &File, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn is_synced(_: &File) -> bool {
        false
    }
}

#[cfg(not(test))]
mod ways {
    pub(super) fn is_made() -> bool {
        true
    }

    pub(super) fn is_named() -> bool {
        true
    }

    pub(super) fn is_synced() -> bool {
        true
    }
}

/// Systems that a test asks for, for the calls of one thread.
#[cfg(test)]
pub(super) mod ways {
    use std::cell::Cell;

    /// What a system can do.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Way {
        /// All that this one can.
        Nameless,
        /// A sync passes over a file without a name.
        Unsynced,
        /// A file without a name gets none, though it could be made.
        Unnamed,
        /// There are no files without a name.
        Named,
    }

    impl Way {
        pub(crate) const ALL: [Self; 4] = [Self::Nameless, Self::Unsynced, Self::Unnamed, Self::Named];
    }

    thread_local! {
        static WAY: Cell<Way> = const { Cell::new(Way::Nameless) };
    }

    /// Runs `work` as on such a system.
    pub(crate) fn with<T>(way: Way, work: impl FnOnce() -> T) -> T {
        let before = WAY.replace(way);
        let done = work();
        WAY.set(before);
        done
    }

    pub(super) fn is_made() -> bool {
        WAY.get() != Way::Named
    }

    pub(super) fn is_named() -> bool {
        WAY.get() != Way::Unnamed
    }

    pub(super) fn is_synced() -> bool {
        WAY.get() != Way::Unsynced
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::ways::Way;
    use super::*;
    use crate::output::{Complete, IfExists, Output};

    fn names(folder: &Path) -> Vec<String> {
        let listing = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = listing.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn complete(target: &Path, if_exists: IfExists, bytes: &[u8]) -> Complete {
        let mut output = Output::create_in_swept(target, if_exists).unwrap();
        output.write_all(bytes).unwrap();
        output.complete().unwrap()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_stays_as_it_was_until_a_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x");
        let made = crate::output::disk::create_nameless(OpenOptions::new().write(true), folder.path());
        if !made.is_ok_and(|file| linux::is_synced(&file)) {
            println!("NOT TESTED: a folder while a file without a name is written (a file system that has none)");
            return;
        }
        for (if_exists, there) in [(IfExists::Refuse, vec![]), (IfExists::Replace, vec!["x"])] {
            // As after a kill: nothing of the output is run any more.
            std::mem::forget(complete(&target, if_exists, b"lost"));
            assert_eq!(names(folder.path()), there);
            complete(&target, if_exists, b"whole").publish().unwrap();
            assert_eq!((names(folder.path()), fs::read(&target).unwrap()), (vec!["x".to_owned()], b"whole".to_vec()));
        }
    }

    #[test]
    fn a_file_that_is_not_synced_without_a_name_has_a_locked_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x");
        fs::write(&target, "old").unwrap();
        let done = ways::with(Way::Unsynced, || complete(&target, IfExists::Replace, b"new"));
        Output::sweep(folder.path());
        let there = names(folder.path());
        assert!(there.len() == 2 && Output::is_temporary_of(&target, &there[0]), "{there:?}");
        done.publish().unwrap();
        assert_eq!((names(folder.path()), fs::read(&target).unwrap()), (vec!["x".to_owned()], b"new".to_vec()));
    }

    #[test]
    fn a_file_that_gets_no_name_after_all_is_copied() {
        for if_exists in [IfExists::Refuse, IfExists::Same, IfExists::Replace] {
            let folder = tempfile::tempdir().unwrap();
            let target = folder.path().join("x");
            let bytes: Vec<u8> = (0..300_000).map(|i| (i % 251) as u8).collect();
            ways::with(Way::Unnamed, || complete(&target, if_exists, &bytes).publish()).unwrap();
            assert!(names(folder.path()) == ["x"] && fs::read(&target).unwrap() == bytes);
        }
    }

    #[test]
    fn a_file_that_appears_meanwhile_is_replaced_where_that_is_asked_for() {
        for way in Way::ALL {
            let folder = tempfile::tempdir().unwrap();
            let target = folder.path().join("x");
            let done = ways::with(way, || complete(&target, IfExists::Replace, b"new"));
            fs::write(&target, "meanwhile").unwrap();
            ways::with(way, || done.publish()).unwrap();
            assert_eq!((names(folder.path()), fs::read(&target).unwrap()), (vec!["x".to_owned()], b"new".to_vec()));
        }
    }

    /// What eight threads say that write different bytes at once, and what there is then.
    fn eight(way: Way, if_exists: IfExists, of: impl Fn(u8) -> Vec<u8> + Sync) -> (usize, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x");
        let all_are_complete = std::sync::Barrier::new(8);
        let write = |thread: u8| {
            let done = ways::with(way, || complete(&target, if_exists, &of(thread)));
            all_are_complete.wait();
            ways::with(way, || done.publish()).is_ok()
        };
        let named = std::thread::scope(|scope| {
            let begun: Vec<_> = (0..8).map(|thread| scope.spawn(move || write(thread))).collect();
            begun.into_iter().map(|thread| thread.join().unwrap()).filter(|named| *named).count()
        });
        assert_eq!(names(folder.path()), ["x"], "{way:?}, {if_exists:?}");
        (named, fs::read(&target).unwrap())
    }

    #[test]
    fn of_eight_writers_of_one_target_each_is_whole() {
        for way in Way::ALL {
            let (named, found) = eight(way, IfExists::Refuse, |thread| vec![thread; 70_000]);
            assert!(named == 1 && found == vec![found[0]; 70_000], "{way:?}: {named}");
            let (named, found) = eight(way, IfExists::Replace, |thread| vec![thread; 70_000]);
            assert!(named == 8 && found == vec![found[0]; 70_000], "{way:?}: {named}");
            let (named, found) = eight(way, IfExists::Same, |_| vec![7; 70_000]);
            assert!(named == 8 && found == vec![7; 70_000], "{way:?}: {named}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_of_files_is_not_taken_for_the_names_of_open_ones() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!linux::is_proc(folder.path().to_str().unwrap()));
        assert!(!linux::is_proc("/no/such/folder"));
        if !linux::is_proc("/proc/self/fd") {
            println!("NOT TESTED: files without a name (no /proc here)");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_new_file_has_the_rights_that_the_process_gives() {
        use std::os::unix::fs::MetadataExt;
        for (mode, is_masked) in [(0o100_644, true), (0o100_664, true), (0o100_600, true), (0o100_666, false)] {
            assert_eq!(linux::is_masked(mode), is_masked, "{mode:o}");
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("plain"), "").unwrap();
        for (n, way) in Way::ALL.into_iter().enumerate() {
            let target = folder.path().join(n.to_string());
            ways::with(way, || complete(&target, IfExists::Refuse, b"").publish()).unwrap();
            let mode = |path: &Path| fs::metadata(path).unwrap().mode();
            assert_eq!(mode(&target), mode(&folder.path().join("plain")), "{way:?}");
        }
    }
}

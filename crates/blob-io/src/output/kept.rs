//! Who may read the successor of a file or a folder: those who could read the old one, and the owner alone before the
//! new one is complete.
//!
//! Keeps mode, owner and group on Unix; elsewhere the read-only flag of files.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

use crate::output::{disk, nameless};

/// The protection of the file or the folder that is replaced; none if none is.
#[derive(Debug, Default)]
pub(super) struct Kept(Option<Metadata>);

impl Kept {
    pub(super) fn of(target: &Path) -> Self {
        Self(fs::symlink_metadata(target).ok().filter(|old| !old.is_symlink()))
    }

    /// Whether a file is replaced.
    pub(super) fn replaces(&self) -> bool {
        self.0.is_some()
    }

    /// Makes a new file. One that replaces another can be opened by the owner alone.
    pub(super) fn create_file(&self, path: &Path) -> io::Result<File> {
        disk::create(self.options().create_new(true), path)
    }

    /// Makes a new file in a folder, without a name. See [`nameless`].
    pub(super) fn create_nameless(&self, folder: &Path) -> io::Result<File> {
        nameless::create(&mut self.options(), folder)
    }

    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if self.replaces() {
            unix::private_file(&mut options);
        }
        options
    }

    /// Makes a new folder. One that replaces another can be opened by the owner alone.
    pub(super) fn create_folder(&self, path: &Path) -> io::Result<()> {
        let mut options = DirBuilder::new();
        if self.replaces() {
            unix::private_folder(&mut options);
        }
        disk::create_dir(&options, path)
    }

    /// Protects the complete file as the old one was.
    pub(super) fn protect(&self, file: &File) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |old| unix::protect(file, old))
    }

    /// Protects the complete folder as the old one was.
    pub(super) fn protect_folder(&self, folder: &Path) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |old| unix::protect_folder(folder, old))
    }
}

#[cfg(unix)]
mod unix {
    use std::fs::Permissions;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};

    use super::*;

    pub(super) fn private_file(options: &mut OpenOptions) {
        options.mode(0o600);
    }

    pub(super) fn private_folder(options: &mut DirBuilder) {
        options.mode(0o700);
    }

    /// Only an administrator may give a file to another owner; the group may be kept by a member.
    pub(super) fn protect(file: &File, old: &Metadata) -> io::Result<()> {
        let new = file.metadata()?;
        let same_group = old.gid() == new.gid() || fchown(file, None, Some(old.gid())).is_ok();
        if old.uid() != new.uid() {
            let _ = fchown(file, Some(old.uid()), None);
        }
        // A file that runs as the owner is none of ours; a folder may pass the group on.
        let bits = if old.is_dir() { 0o7777 } else { 0o777 };
        let mode = if same_group { old.mode() } else { for_another_group(old.mode()) };
        disk::set_permissions(file, Permissions::from_mode(mode & bits))
    }

    pub(super) fn protect_folder(folder: &Path, old: &Metadata) -> io::Result<()> {
        protect(&File::open(folder)?, old)
    }

    /// The old mode, without the rights that the old group had and others had not.
    fn for_another_group(mode: u32) -> u32 {
        mode & (0o7707 | (mode & 0o7) << 3)
    }

    #[test]
    fn another_group_gets_what_others_have() {
        for (old, new) in [(0o660, 0o600), (0o664, 0o644), (0o644, 0o644), (0o755, 0o755), (0o606, 0o606)] {
            assert_eq!(for_another_group(old), new, "{old:o}");
        }
    }
}

#[cfg(not(unix))]
mod unix {
    use super::*;

    pub(super) fn private_file(_: &mut OpenOptions) {}

    pub(super) fn private_folder(_: &mut DirBuilder) {}

    pub(super) fn protect(file: &File, old: &Metadata) -> io::Result<()> {
        disk::set_permissions(file, old.permissions())
    }

    pub(super) fn protect_folder(_: &Path, _: &Metadata) -> io::Result<()> {
        Ok(())
    }
}

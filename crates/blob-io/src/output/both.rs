//! Names two files one after the other: weights and their symbol, or the values of a model and the model.
//!
//! Relies on `set` for the folder's lock and for the old files under other names.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::output::disk::optional;
use crate::output::pair::Parts;
use crate::output::set::{Old, SetFile, add, remove_old, wait_for};
use crate::output::sibling::{old_name, remove_stale};
use crate::output::{Backing, Complete, IfExists, disk, failed, parent, sync_folder};

impl Complete {
    /// Names `partner` and then this file; both are in one folder. No new file of the two lies beside the old one of
    /// the other: an old file of this name is gone before the partner is named. A pipe or a device gets no name.
    ///
    /// # Errors
    /// As [`Complete::publish_with`]. The old files are then unchanged, where the file system can link files.
    pub fn publish_after(self, partner: Self) -> Result<(), Error> {
        publish_both(partner, self, |_| Ok(Before::Goes))
    }
}

impl Parts {
    /// Names the second file and then the first. If both replace files, the file that stands for the first one in
    /// between is named before: at every moment the first one's name is that of the old or of a new file, and the
    /// second file of that is there.
    pub(super) fn publish(self) -> Result<(), Error> {
        let Self { first: last, second: first, meanwhile } = self;
        publish_both(first, last, |first| {
            Ok(match meanwhile {
                Some((file, values)) => Before::Meanwhile(Meanwhile { file: SetFile::new(file)?, values }),
                None if !first.is_there() => Before::Stays,
                None => Before::Goes,
            })
        })
    }
}

/// Names the first file and then the last, under the folder's lock. Pipes and devices get no names.
fn publish_both(
    first: Complete,
    last: Complete,
    before: impl FnOnce(&SetFile) -> Result<Before, Error>,
) -> Result<(), Error> {
    if !matches!((&last.backing, &first.backing), (Backing::Sibling(_), Backing::Sibling(_))) {
        return first.publish().and_then(|()| last.publish());
    }
    let (first, last) = (SetFile::new(first)?, SetFile::new(last)?);
    let _lock = wait_for(&last)?;
    if last.sibling.if_exists() != IfExists::Replace {
        return add(vec![first], last);
    }
    let before = before(&first)?;
    replace_both(first, last, before)
}

/// The old file of the last name, before the first of the two is named.
enum Before {
    /// The file is removed: beside another first file it would be wrong.
    Goes,
    /// There is no old file of the first name, so that the old file names none.
    Stays,
    /// Another file takes the name.
    Meanwhile(Meanwhile),
}

/// The file that stands for the last one of two, and the other name by which it finds the first.
struct Meanwhile {
    file: SetFile,
    values: PathBuf,
}

impl Meanwhile {
    /// Gives the first file of the two the other name, and takes the target's. False if files cannot be linked here;
    /// then nothing has changed.
    fn publish(self, first: &mut SetFile) -> Result<bool, Error> {
        let SetFile { name, sibling } = first;
        let is_linked = sibling.link_to(&self.values).is_ok()
            || sibling.temporary(name).is_ok() && sibling.link_to(&self.values).is_ok();
        if !is_linked {
            return Ok(false);
        }
        sync_folder(&parent(&self.values));
        let published = self.file.publish();
        if published.is_err() {
            let _ = disk::remove_file(&self.values);
        }
        published.map(|()| true)
    }
}

/// Names two files in place of those that exist. Where files cannot be linked, no file takes the last name meanwhile.
fn replace_both(mut first: SetFile, mut last: SetFile, before: Before) -> Result<(), Error> {
    if first.is_there() || last.is_there() {
        [&mut first, &mut last].into_iter().try_for_each(|member| member.sibling.sync(&member.name))?;
    }
    let added: Vec<PathBuf> =
        [&first, &last].iter().filter(|new| !new.is_there()).map(|new| new.target().into()).collect();
    let (folder, target) = (parent(last.target()), last.target().to_owned());
    let beside = |target: &Path| (target.to_owned(), old_name(last.target()));
    let old = Old { files: vec![beside(first.target())], index: beside(last.target()) };
    let is_linked = old.pairs().all(|(file, other)| optional(disk::hard_link(file, other)).is_ok());
    let mut values = None;
    let is_kept = match before {
        Before::Meanwhile(meanwhile) if is_linked => {
            values = Some(meanwhile.values.clone());
            meanwhile.publish(&mut first)
        }
        Before::Meanwhile(_) | Before::Goes => Ok(false),
        Before::Stays => Ok(true),
    };
    let ready = is_kept.and_then(|is_kept| {
        let removed = if is_kept { Ok(()) } else { optional(disk::remove_file(&target)) };
        removed.map_err(|e| failed(&last.name, "remove the old file", e))
    });
    let done = ready.and_then(|()| first.publish()).and_then(|()| {
        sync_folder(&folder);
        last.publish()
    });
    if done.is_ok() {
        remove_stale(&target, &mut |path| remove_old(path));
    } else {
        let removed = added.iter().map(|file| optional(disk::remove_file(file))).fold(Ok(()), Result::and);
        let back = removed.and_then(|()| if is_linked { old.put_back() } else { Ok(()) });
        // As long as the old file has not come back, the other one may name the values so.
        let _ = back.and_then(|()| values.map_or(Ok(()), |values| optional(disk::remove_file(&values))));
    }
    done
}

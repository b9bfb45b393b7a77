//! Two files that are written as if the second followed the first: a model, and the file of its values.
//!
//! Where both replace files, a third one stands for the first while the names change: a model that finds the values
//! under another name. Relies on `set` for the order of the names.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::output::complete::Written;
use crate::output::sibling::old_name;
use crate::output::{Backing, Complete, IfExists, Output, parent, request};
use crate::wire::sink::Sink;
use crate::wire::source::{Input, Joined, Source};

/// Two files; the second has the bytes from `at` on.
#[derive(Debug)]
pub(super) struct Pair {
    first: Backing,
    second: Backing,
    second_name: String,
    at: u64,
    meanwhile: Option<Meanwhile>,
}

/// How the two files replace two others.
#[derive(Debug)]
struct Meanwhile {
    /// The other name of the second file, until the first file has its own name.
    name: PathBuf,
    /// The file that names the second one so.
    file: Option<Complete>,
}

/// Two files, each with the name of its target, and the file that has the first one's name in between, with the other
/// name of the second.
pub(super) struct Parts {
    pub(super) first: Complete,
    pub(super) second: Complete,
    pub(super) meanwhile: Option<(Complete, PathBuf)>,
}

impl Output {
    /// This file, and a `second` one that takes the bytes from `at` on, as if the second followed this one.
    /// [`Complete::publish`] then names the second file first, as [`Complete::publish_after`] does.
    ///
    /// # Errors
    /// [`Error::Request`] if one of the two is a pipe or a device.
    pub fn divided(self, at: u64, second: Self) -> Result<Self, Error> {
        if let Some(other) = [&self, &second].into_iter().find(|output| !output.is_positioned()) {
            return Err(request(&other.name, "is a pipe or a device, and no place for one of two files"));
        }
        let meanwhile = Meanwhile::of(&self.backing, &second.backing);
        let Self { name, backing, .. } = self;
        let pair = Pair { first: backing, second: second.backing, second_name: second.name, at, meanwhile };
        Ok(Self::new(name, Backing::Pair(Box::new(pair))))
    }
}

impl Complete {
    /// Of two files that replace two others: the name that the second file also has, until the first file has its own
    /// name. See [`Complete::with_meanwhile`].
    #[must_use]
    pub fn name_meanwhile(&self) -> Option<&str> {
        let Backing::Pair(pair) = &self.backing else { return None };
        pair.meanwhile.as_ref()?.name.file_name()?.to_str()
    }

    /// Two files that replace two others, with a file that has the first one's name for a moment: like the first, but
    /// the second file is called [`Complete::name_meanwhile`] in it. So the first file's name always stands for a file
    /// whose second file is there, the old pair or the new one, also after a crash. Without such a file, there is a
    /// moment in which no file has the first one's name.
    ///
    /// # Errors
    /// [`Error::Request`] for a file of another target, or if there is no such name.
    pub fn with_meanwhile(mut self, file: Self) -> Result<Self, Error> {
        let is_of_target = self.name == file.name;
        let Backing::Pair(pair) = &mut self.backing else { return Err(request(&self.name, "is one file")) };
        let Some(meanwhile) = pair.meanwhile.as_mut().filter(|_| is_of_target) else {
            return Err(request(&file.name, "is no model for the time in which others are replaced"));
        };
        meanwhile.file = Some(file);
        Ok(self)
    }
}

impl Meanwhile {
    fn of(first: &Backing, second: &Backing) -> Option<Self> {
        let (Backing::Sibling(first), Backing::Sibling(second)) = (first, second) else { return None };
        let [target, values] = [first.target(), second.target()];
        let replaces = first.if_exists() == IfExists::Replace && target.exists() && values.exists();
        let is_one_folder = parent(target) == parent(values);
        (replaces && is_one_folder).then(|| Self { name: old_name(target), file: None })
    }
}

impl Pair {
    pub(super) fn complete(&mut self, name: &str) -> Result<(), Error> {
        self.second.complete(&self.second_name)?;
        self.first.complete(name)
    }

    pub(super) fn into_parts(self, name: String) -> Parts {
        let Self { first, second, second_name, meanwhile, .. } = self;
        Parts {
            first: Complete { name, backing: first },
            second: Complete { name: second_name, backing: second },
            meanwhile: meanwhile.and_then(|meanwhile| Some((meanwhile.file?, meanwhile.name))),
        }
    }

    pub(super) fn written(&self) -> io::Result<Written> {
        let name = Path::new(&self.second_name).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let second = Input::new(Self::sink(&self.second)?.source()?);
        Ok(Written { file: Self::sink(&self.first)?.source()?, beside: Some((name, second)) })
    }

    fn sink(backing: &Backing) -> io::Result<&dyn Sink> {
        backing.sink().ok_or_else(|| io::ErrorKind::NotSeekable.into())
    }
}

impl Sink for Pair {
    fn set_len(&self, len: u64) -> io::Result<()> {
        Self::sink(&self.first)?.set_len(len.min(self.at))?;
        Self::sink(&self.second)?.set_len(len.saturating_sub(self.at))
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let left = self.at.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let (of_first, of_second) = bytes.split_at(left);
        if !of_first.is_empty() {
            Self::sink(&self.first)?.write_all_at(offset, of_first)?;
        }
        if of_second.is_empty() {
            return Ok(());
        }
        let written = Self::sink(&self.second)?.write_all_at(offset.max(self.at) - self.at, of_second);
        written.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", self.second_name)))
    }

    fn source(&self) -> io::Result<Box<dyn Source>> {
        let [first, second] = [&self.first, &self.second].map(|file| Self::sink(file)?.source().map(Input::new));
        Ok(Box::new(Joined { first: first?, second: second? }))
    }
}

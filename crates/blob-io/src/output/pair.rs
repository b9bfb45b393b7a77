//! Two files that are written as if the second followed the first: a model, and the file of its values.
//!
//! Relies on `set` for the order of the names.

use std::io;
use std::path::Path;

use crate::error::Error;
use crate::output::complete::Written;
use crate::output::{Backing, Complete, Output, request};
use crate::wire::sink::Sink;
use crate::wire::source::{Input, Joined, Source};

/// Two files; the second has the bytes from `at` on.
#[derive(Debug)]
pub(super) struct Pair {
    first: Backing,
    second: Backing,
    second_name: String,
    at: u64,
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
        let Self { name, backing, .. } = self;
        let pair = Pair { first: backing, second: second.backing, second_name: second.name, at };
        Ok(Self::new(name, Backing::Pair(Box::new(pair))))
    }
}

impl Pair {
    pub(super) fn complete(&mut self, name: &str) -> Result<(), Error> {
        self.second.complete(&self.second_name)?;
        self.first.complete(name)
    }

    /// The two files, each with the name of its target.
    pub(super) fn into_files(self, name: String) -> [Complete; 2] {
        let Self { first, second, second_name, .. } = self;
        [Complete { name, backing: first }, Complete { name: second_name, backing: second }]
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

//! Reads the index of safetensors shards, as written by Hugging Face: which tensor is in which file.
//!
//! Reads token by token, because an index is untrusted. Opens no file that the index names.

use std::collections::HashMap;

use crate::error::{FaultKind, ReadError, check_limit};
use crate::folder::listing::stays_within;
use crate::limits::{LONGEST_NAME, Limit, Limits, names_for};
use crate::metadata::MetadataSize;
use crate::wire::cursor::Cursor;
use crate::wire::literal::{Literal, repeated_key};
use crate::wire::source::{Source, read};

/// How deep a skipped value may nest.
const MAX_NESTED: u32 = 126;
/// The longest file name of today's systems.
const LONGEST_FILE: u64 = 255;

/// The content of an index.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The size of all tensors in bytes, if stored in the index.
    pub(super) total: Option<u64>,
    pub(super) metadata: Vec<(String, String)>,
    /// Each file once, sorted by name.
    pub(super) files: Vec<String>,
    /// The file of each tensor, and the entry's offset in the index.
    pub(super) map: HashMap<Box<str>, IndexEntry>,
}

/// An index's entry for a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexEntry {
    pub(super) file: u32,
    pub(super) at: u64,
    pub(super) found: bool,
}

/// Reads an index; `None` for other JSON.
pub(super) fn index(source: &dyn Source, limits: &Limits) -> Result<Option<Index>, ReadError> {
    let mut cursor = Cursor::new(source);
    let (mut index, mut found) = (Index::default(), false);
    let mut text = Literal::new(&mut cursor, source.len());
    text.members(|text| {
        let key = text.key()?;
        match key.as_str() {
            "metadata" if text.peek()? == Some(b'{') => metadata(text, source, &mut index),
            "weight_map" if found => Err(repeated_key(text.pos(), &key)),
            "weight_map" => {
                found = true;
                weights(text, limits, &mut index)
            }
            _ => text.skip_json(MAX_NESTED),
        }
    })?;
    index.sort();
    Ok(found.then_some(index))
}

fn metadata(text: &mut Literal<'_, '_>, source: &dyn Source, index: &mut Index) -> Result<(), ReadError> {
    let mut size = MetadataSize::default();
    text.members(|text| {
        let key = text.key()?;
        let at = text.pos();
        if text.peek()? != Some(b'"') {
            text.skip_json(MAX_NESTED)?;
            let len = text.pos() - at;
            if key == "total_size" && len < 32 {
                let mut number = vec![0; len as usize];
                read(source, at, &mut number)?;
                index.total = String::from_utf8_lossy(&number).parse().ok();
            }
            return Ok(());
        }
        if let Some(value) = text.json_string_up_to(size.left_for(&key))?
            && size.take(&key, value.len() as u64)
        {
            index.metadata.push((key, value));
        }
        Ok(())
    })
}

fn weights(text: &mut Literal<'_, '_>, limits: &Limits, index: &mut Index) -> Result<(), ReadError> {
    let mut numbers: HashMap<String, u32> = HashMap::new();
    let mut bytes = 0;
    text.members(|text| {
        text.blank()?;
        let at = text.pos();
        let name = text.json_string(LONGEST_NAME, "a tensor's name")?;
        text.expect(b':', "a colon")?;
        text.blank()?;
        let place = text.pos();
        let file = text.json_string(LONGEST_FILE, "a file's name")?;
        if file.contains('/') || !stays_within(&file) {
            let found = format!("{file:?}");
            return Err(ReadError::fault(place, FaultKind::words("the name of a file beside the index", found)));
        }
        let next = numbers.len() as u32;
        let file = *numbers.entry(file).or_insert_with_key(|file| {
            index.files.push(file.clone());
            next
        });
        let count = index.map.len() as u64 + 1;
        check_limit(at, Limit::Arrays, "the number of arrays", count, limits.max_arrays)?;
        bytes += name.len() as u64;
        check_limit(at, Limit::Fixed, "the bytes of all names", bytes, names_for(count))?;
        let is_new = index.map.insert(name.clone().into(), IndexEntry { file, at, found: false }).is_none();
        if is_new { Ok(()) } else { Err(repeated_key(at, &name)) }
    })
}

impl Index {
    /// Sorts the files by name, which is the order of the shards.
    fn sort(&mut self) {
        let mut order: Vec<u32> = (0..self.files.len() as u32).collect();
        order.sort_by_key(|file| &self.files[*file as usize]);
        let mut positions = vec![0; order.len()];
        order.iter().enumerate().for_each(|(position, file)| positions[*file as usize] = position as u32);
        self.map.values_mut().for_each(|entry| entry.file = positions[entry.file as usize]);
        self.files.sort();
    }
}

//! The notes of a file, JSON under one key of the metadata, that decide how arrays are read: which ones of u16 hold
//! bf16, which ones are parts of sparse arrays. `folder::listing` reads which file of a folder has which array.
//!
//! npy and npz have no bf16, and only MXNet's formats have sparse arrays: the notes are how these are stored elsewhere.
//! The key stands here and is not passed in, so that whoever opens a file gets the arrays that were written, not their
//! bits. All other fields of the notes are their writer's, and are passed over. Notes are untrusted: those that cannot
//! be read say nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use blob_core::{DType, Shape};

use crate::entry::{Entry, Kind, Sparse, SparseKind};
use crate::error::ReadError;
use crate::limits::LONGEST_NAME;
use crate::tensor_name::TensorName;
use crate::wire::cursor::Cursor;
use crate::wire::literal::Literal;
use crate::wire::source::Bytes;

/// The key of the notes among a file's metadata.
pub const NOTES: &str = "blob.receipt";

/// The file of a folder that has the folder's notes, with a list of the arrays' files: `contents`, objects with `name`,
/// `file` and `file_bytes`. No subfolder has this name.
pub const FOLDER_LIST: &str = "blob.receipt.json";

/// How deep a skipped value may nest.
pub(crate) const MAX_NESTED: u32 = 126;
/// Longer notes are not searched.
const LONGEST: usize = 64 << 20;

/// Which arrays of u16 hold the bits of bf16.
#[derive(Debug, PartialEq, Eq)]
enum Kept {
    Named(HashSet<String>),
    /// All but these.
    AllBut(HashSet<String>),
}

/// Gives the arrays of u16 that the file's notes call bf16 this dtype.
pub(crate) fn restore_dtypes(entries: &mut [Entry], metadata: &[(String, String)]) {
    let is_u16 = |entry: &Entry| entry.dtype == Some(DType::U16);
    let Some((_, text)) = metadata.iter().find(|(key, _)| key == NOTES) else { return };
    if text.len() > LONGEST || !entries.iter().any(is_u16) {
        return;
    }
    let Ok(kept) = kept(text) else { return };
    for entry in entries.iter_mut().filter(|entry| is_u16(entry)) {
        let is_kept = match &kept {
            Kept::Named(names) => names.contains(&*entry.name),
            Kept::AllBut(names) => !names.contains(&*entry.name),
        };
        if is_kept {
            entry.dtype = Some(DType::BF16);
            entry.is_kept_as_bits = true;
        }
    }
}

/// Makes arrays parts of sparse ones again, as listed in the file's notes: `NAME#values` and the others, where the
/// file has all parts.
pub(crate) fn restore_sparse(entries: &mut [Entry], metadata: &[(String, String)]) {
    let Some((_, text)) = metadata.iter().find(|(key, _)| key == NOTES) else { return };
    let is_named = |entry: &Entry| entry.kind == Kind::Data && entry.name.contains('#');
    if text.len() > LONGEST || !entries.iter().any(is_named) {
        return;
    }
    let Some(listed) = listed_sparse(text).ok().filter(|listed| !listed.is_empty()) else { return };
    let named = entries.iter().enumerate().filter(|(_, entry)| is_named(entry));
    let places: HashMap<Box<str>, usize> = named.map(|(place, entry)| (entry.name.clone(), place)).collect();
    for sparse in listed.into_iter().map(Arc::new) {
        let kinds = sparse.kind.parts();
        let parts = kinds.iter().map(|kind| places.get(&*TensorName::new(&sparse.name, *kind).to_string()).copied());
        let Some(parts) = parts.collect::<Option<Vec<usize>>>() else { continue };
        // Notes may list an array twice.
        if parts.iter().any(|part| entries[*part].sparse.is_some()) {
            continue;
        }
        let position = parts.iter().map(|part| entries[*part].position).min().unwrap_or_default();
        for (kind, part) in kinds.iter().zip(parts) {
            let entry = &mut entries[part];
            (entry.kind, entry.position, entry.sparse) = (*kind, position, Some(sparse.clone()));
        }
    }
    // Parts of one position stand together: safetensors sorts by dtype.
    entries.sort_by_key(|entry| entry.position);
}

/// The sparse arrays that notes list.
fn listed_sparse(text: &str) -> Result<Vec<Sparse>, ReadError> {
    let mut listed = Vec::new();
    let source = Bytes(text.as_bytes());
    let mut cursor = Cursor::new(&source);
    Literal::new(&mut cursor, text.len() as u64).members(|text| match text.key()?.as_str() {
        "sparse" if text.peek()? == Some(b'[') => text.items(|text| {
            listed.extend(sparse(text)?);
            Ok(())
        }),
        _ => text.skip_json(MAX_NESTED),
    })?;
    Ok(listed)
}

/// Reads one sparse array of the list; `None` for one of an unknown kind.
fn sparse(text: &mut Literal<'_, '_>) -> Result<Option<Sparse>, ReadError> {
    let (mut name, mut kind, mut shape) = (None, None, None::<Shape>);
    text.blank()?;
    text.members(|text| {
        match text.key()?.as_str() {
            "name" => name = Some(text.json_string(LONGEST_NAME, "an array's name")?),
            "kind" if text.peek()? == Some(b'"') => {
                let found = text.json_string_up_to(16)?;
                let kinds = [SparseKind::RowSparse, SparseKind::Csr];
                kind = kinds.into_iter().find(|kind| Some(kind.name()) == found.as_deref());
            }
            "shape" if text.peek()? == Some(b'[') => {
                text.step();
                shape = text.numbers(b']', "an extent")?.shape().ok();
            }
            _ => text.skip_json(MAX_NESTED)?,
        }
        Ok(())
    })?;
    Ok(name.zip(kind).zip(shape).map(|((name, kind), shape)| Sparse { kind, name: name.into(), shape }))
}

/// Reads the names of the arrays from notes: the items of `changes` with `"bits_of": "bf16"`. Where there was no
/// room for these, `bf16_as_u16` has the names, or says that all arrays of u16 hold bf16 except the names in `u16`.
fn kept(text: &str) -> Result<Kept, ReadError> {
    let (mut names, mut all, mut kept, mut genuine) = (None, false, HashSet::new(), HashSet::new());
    let source = Bytes(text.as_bytes());
    let mut cursor = Cursor::new(&source);
    Literal::new(&mut cursor, text.len() as u64).members(|text| {
        match text.key()?.as_str() {
            "changes" if text.peek()? == Some(b'[') => {
                let mut found = HashSet::new();
                text.items(|text| {
                    found.extend(changed(text)?);
                    Ok(())
                })?;
                names = Some(found);
            }
            "bf16_as_u16" if text.peek()? == Some(b't') => {
                text.word("true")?;
                all = true;
            }
            "bf16_as_u16" if text.peek()? == Some(b'[') => kept = strings(text)?,
            "u16" if text.peek()? == Some(b'[') => genuine = strings(text)?,
            _ => text.skip_json(MAX_NESTED)?,
        }
        Ok(())
    })?;
    Ok(match names {
        Some(names) => Kept::Named(names),
        None if all => Kept::AllBut(genuine),
        None => Kept::Named(kept),
    })
}

/// A list of names.
fn strings(text: &mut Literal<'_, '_>) -> Result<HashSet<String>, ReadError> {
    let mut found = HashSet::new();
    text.items(|text| {
        text.blank()?;
        found.insert(text.json_string(LONGEST_NAME, "a tensor's name")?);
        Ok(())
    })?;
    Ok(found)
}

/// The name of one changed array, if the array keeps bf16.
fn changed(text: &mut Literal<'_, '_>) -> Result<Option<String>, ReadError> {
    let (mut name, mut is_kept) = (None, false);
    text.blank()?;
    text.members(|text| {
        match text.key()?.as_str() {
            "name" => name = Some(text.json_string(LONGEST_NAME, "a tensor's name")?),
            "bits_of" if text.peek()? == Some(b'"') => {
                is_kept = text.json_string_up_to(16)?.as_deref() == Some(DType::BF16.name());
            }
            _ => text.skip_json(MAX_NESTED)?,
        }
        Ok(())
    })?;
    Ok(name.filter(|_| is_kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_is_found_among_the_changes() {
        let named = |names: &[&str]| Kept::Named(names.iter().map(|name| (*name).to_owned()).collect());
        for (text, found) in [
            (
                r#"{"a":[{}],"changes":[{"name":"a","bits_of":"bf16","changes":["x"]}, {"y":1,"name":"b","bits_of":null}]}"#,
                named(&["a"]),
            ),
            (r#"{"changes":[]}"#, named(&[])),
            (r#"{"changes":[],"bf16_as_u16":true}"#, named(&[])),
            (r#"{"changes":null}"#, named(&[])),
            (r#"{"changes":null,"bf16_as_u16":true}"#, Kept::AllBut(HashSet::new())),
            (r#"{"changes":null,"u16":["a", "b"],"bf16_as_u16":true}"#, {
                Kept::AllBut(["a", "b"].map(str::to_owned).into_iter().collect())
            }),
            (r#"{"changes":null,"bf16_as_u16":["c"]}"#, named(&["c"])),
            (r#"{"changes":null,"bf16_as_u16":false}"#, named(&[])),
        ] {
            assert_eq!(kept(text).expect("notes"), found, "{text}");
        }
        for broken in ["", "[", r#"{"changes":[3]}"#, r#"{"changes":[{"name":"a","bits_of":"bf16"}]"#, r#"{"u16":[1]}"#]
        {
            assert!(kept(broken).is_err(), "{broken}");
        }
    }
}

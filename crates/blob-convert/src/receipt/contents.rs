//! The receipt's list of the written tensors: name, dtype, shape and BLAKE3 of each, in a folder the file as well.
//!
//! The text has the same length before and after the digests are known.

use std::collections::HashMap;
use std::fmt::Write;

use blake3::Hash;
use blob_core::{DType, Shape};
use blob_io::layout::{Frame, Layout};
use blob_io::{Checkpoint, Error};
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::json;

use super::{MAX_TEXT, ROOM_FOR_REST};
use crate::hash::combined_digest;
use crate::history::{parse, reduce_list};
use crate::planned::Planned;

/// A longer list is left out of a file, because our readers accept 4 MiB of metadata; the digest of all tensors stays.
/// A folder's receipt is a separate file and always has the list, which says which file holds which tensor.
const LONGEST: usize = 3 << 20;
/// The length of a digest in hexadecimal.
const HEX_LEN: usize = 64;

/// The fields `contents` and `contents_blake3` of a receipt.
#[derive(Debug)]
pub(crate) struct Contents {
    /// The list's items, with zeros in place of the digests.
    text: String,
    /// The offset of each tensor's digest in the text; empty where the list is left out.
    digest_offsets: Vec<usize>,
    /// The tensors in the order of their names.
    order: Vec<usize>,
}

impl Contents {
    /// `files` has a folder's file for each tensor, and is empty otherwise.
    pub(crate) fn new(tensors: &[Planned], files: &[String]) -> Result<Self, Error> {
        let (mut text, mut digest_offsets) = (String::new(), Vec::with_capacity(tensors.len()));
        for (i, tensor) in tensors.iter().enumerate() {
            if i > 0 {
                text.push(',');
            }
            text += &named(&tensor.spec.name, tensor.stored_dtype(), &tensor.spec.shape);
            if let Some(file) = files.get(i) {
                let bytes = Layout::new(std::slice::from_ref(&tensor.spec), Frame::Npy)?.len();
                text += &format!(r#""file":{},"file_bytes":{bytes},"#, json!(file));
            }
            text += r#""blake3":""#;
            digest_offsets.push(text.len());
            text.extend(std::iter::repeat_n('0', HEX_LEN));
            text += r#""}"#;
            if text.len() > LONGEST && files.is_empty() {
                (text, digest_offsets) = (String::new(), Vec::new());
                break;
            }
        }
        let mut order: Vec<usize> = (0..tensors.len()).collect();
        order.sort_by_key(|i| &tensors[*i].spec.name);
        Ok(Self { text, digest_offsets, order })
    }

    /// The digest of all tensors alone.
    pub(crate) fn without_list(self) -> Self {
        Self { text: String::new(), digest_offsets: Vec::new(), ..self }
    }

    /// The list's length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// The two fields, with zeros where `digests` are not known yet.
    pub(crate) fn fields(&self, digests: Option<&[Hash]>) -> String {
        let zeros = Hash::from_bytes([0; 32]);
        let digest = |i: usize| digests.map_or(&zeros, |all| &all[i]);
        let mut list = String::with_capacity(self.text.len());
        let mut from = 0;
        for (i, offset) in self.digest_offsets.iter().enumerate() {
            list += &self.text[from..*offset];
            list += &digest(i).to_hex();
            from = offset + HEX_LEN;
        }
        list += &self.text[from..];
        let all = combined_digest(self.order.iter().map(|i| digest(*i)));
        let mut fields = String::new();
        let left_out = self.digest_offsets.is_empty() && !self.order.is_empty();
        let _ = if left_out {
            write!(fields, r#""contents":null,"contents_blake3":"{all}""#)
        } else {
            write!(fields, r#""contents":[{list}],"contents_blake3":"{all}""#)
        };
        fields
    }
}

/// The beginning of an item: name, dtype and shape.
fn named(name: &str, dtype: DType, shape: &Shape) -> String {
    let (name, dims) = (json!(name), json!(shape.dims()));
    format!(r#"{{"name":{name},"dtype":"{dtype}","shape":{dims},"#)
}

/// Whether a receipt of this file's tensors had room for the list, beside sources of at most so many bytes.
pub(crate) fn had_room(checkpoint: &Checkpoint, of_sources: usize) -> bool {
    let rest = r#""blake3":""},"#.len() + HEX_LEN;
    let items = checkpoint.entries().iter();
    let items = items.filter_map(|entry| Some(named(entry.name(), entry.stored_dtype()?, entry.shape())));
    let len: usize = items.map(|item| item.len() + rest).sum();
    len <= LONGEST && len + of_sources <= MAX_TEXT - ROOM_FOR_REST
}

/// The place of each tensor in a receipt's list, which has the order of the source; files sort by dtype or by name.
pub(crate) fn places(text: &str) -> HashMap<String, usize> {
    #[derive(Deserialize)]
    struct Listed {
        contents: Option<Places>,
    }
    parse::<Listed>(text).and_then(|listed| listed.contents).unwrap_or_default().0
}

#[derive(Default)]
struct Places(HashMap<String, usize>);

impl<'de> Deserialize<'de> for Places {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Item {
            name: String,
        }
        reduce_list(text, Self::default(), |places, item: Item| {
            let next = places.0.len();
            places.0.entry(item.name).or_insert(next);
        })
    }
}

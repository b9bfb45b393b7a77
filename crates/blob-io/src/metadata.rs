//! Reads and writes the metadata of files that we write: a JSON object of strings.

use crate::error::ReadError;
use crate::limits::LONGEST_NAME;
use crate::names::NameTable;
use crate::wire::literal::Literal;

/// How many bytes of metadata are kept; a receipt takes some hundred bytes a tensor.
const MAX_METADATA: u64 = 4 << 20;

/// The warning about a file with more.
pub(crate) const LEFT_OUT: &str = "metadata beyond 4 MiB are left out";

/// Counts the bytes of metadata that are kept.
#[derive(Default)]
pub(crate) struct MetadataSize(u64);

impl MetadataSize {
    /// The cost of a key. A pair takes 48 bytes besides the texts, so a header of a million empty pairs is bounded too.
    fn cost(key: &str) -> u64 {
        key.len() as u64 + 48
    }

    /// How long a key's value may still be.
    pub(crate) fn left_for(&self, key: &str) -> u64 {
        MAX_METADATA.saturating_sub(self.0).saturating_sub(Self::cost(key))
    }

    /// Counts a pair that still fits; false for any other.
    pub(crate) fn take(&mut self, key: &str, len: u64) -> bool {
        let sum = self.0.saturating_add(Self::cost(key)).saturating_add(len);
        let fits = sum <= MAX_METADATA;
        if fits {
            self.0 = sum;
        }
        fits
    }
}

/// Reads the object: strings to strings.
pub(crate) fn read(text: &mut Literal<'_, '_>, table: &mut NameTable) -> Result<(), ReadError> {
    let mut kept = MetadataSize::default();
    text.members(|text| {
        text.blank()?;
        let at = text.pos();
        let key = text.json_string(LONGEST_NAME, "a metadata key")?;
        text.expect(b':', "a colon")?;
        match text.json_string_up_to(kept.left_for(&key))? {
            Some(value) if kept.take(&key, value.len() as u64) => table.metadata.push((key, value)),
            _ => table.warn_of_loss(Some(at), LEFT_OUT),
        }
        Ok(())
    })
}

/// The metadata as a JSON object of strings.
pub(crate) fn text(metadata: &[(String, String)]) -> String {
    let mut json = String::from("{");
    for (key, value) in metadata {
        json += if json.len() > 1 { "," } else { "" };
        quote(&mut json, key);
        json.push(':');
        quote(&mut json, value);
    }
    json.push('}');
    json
}

/// A JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut json = String::new();
    quote(&mut json, text);
    json
}

fn quote(json: &mut String, text: &str) {
    json.reserve(text.len() + text.len() / 8 + 2);
    json.push('"');
    let mut rest = text;
    // A receipt has some thousand characters, of which few are special.
    while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F)) {
        *json += &rest[..at];
        match rest.as_bytes()[at] {
            special @ (b'"' | b'\\') => json.extend(['\\', char::from(special)]),
            8 => *json += "\\b",
            0xC => *json += "\\f",
            b'\n' => *json += "\\n",
            b'\r' => *json += "\\r",
            b'\t' => *json += "\\t",
            control => *json += &format!("\\u{control:04x}"),
        }
        rest = &rest[at + 1..];
    }
    *json += rest;
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_as_serde_json_quotes_them() {
        let all: String = (0..0x3000).filter_map(char::from_u32).collect();
        assert_eq!(quoted(&all), serde_json::Value::from(all).to_string());
    }
}

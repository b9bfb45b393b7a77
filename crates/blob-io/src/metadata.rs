//! What a file of ours says of itself beside its arrays: a JSON object of strings, read and written.

use crate::error::ReadError;
use crate::names::Gather;
use crate::wire::literal::Literal;

/// How many bytes of metadata are kept; a receipt takes some hundred bytes a tensor.
const MOST_METADATA: u64 = 4 << 20;

/// Reads the object: strings to strings.
pub(crate) fn read(text: &mut Literal<'_, '_>, gather: &mut Gather) -> Result<(), ReadError> {
    let mut left = MOST_METADATA;
    text.members(|text| {
        text.blank()?;
        let at = text.pos();
        let key = text.json_string(gather.limits().max_name, "a metadata key")?;
        text.expect(b':', "a colon")?;
        // 48 bytes is what a pair costs beside its texts: a header of a million empty ones is bounded too.
        let taken = key.len() as u64 + 48;
        match text.json_string_up_to(left.saturating_sub(taken))? {
            Some(value) if left >= taken => {
                left -= taken + value.len() as u64;
                gather.metadata.push((key, value));
            }
            _ => gather.warn(Some(at), "metadata beyond 4 MiB are left out"),
        }
        Ok(())
    })
}

/// The metadata as a JSON object of strings.
pub(crate) fn text(metadata: &[(String, String)]) -> String {
    let pairs: Vec<String> = metadata.iter().map(|(key, value)| format!("{}:{}", quoted(key), quoted(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

/// A JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

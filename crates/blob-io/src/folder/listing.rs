//! Reads the list of a folder's files, token by token, because the list is untrusted.
//!
//! Sees names, paths and lengths; whatever else the notes say is passed over.

use crate::error::{Fault, FaultKind, ReadError};
use crate::limits::LONGEST_NAME;
use crate::notes::MAX_NESTED;
use crate::wire::cursor::Cursor;
use crate::wire::literal::Literal;
use crate::wire::source::Source;

/// A longer path is refused: our own have at most 1,024 bytes and an extension.
const LONGEST_PATH: u64 = 2048;

/// One file of a folder.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// The tensor's name.
    pub(crate) name: String,
    /// The file's path within the folder, with `/`; the path never leaves the folder.
    pub(crate) file: String,
    /// The file's length.
    pub(crate) bytes: u64,
}

/// Calls `take` with each file that the notes list and the item's offset in the notes. False if the notes have no list.
pub(crate) fn files(
    notes: &dyn Source,
    take: &mut dyn FnMut(Listed, u64) -> Result<(), ReadError>,
) -> Result<bool, ReadError> {
    let mut cursor = Cursor::new(notes);
    let mut found = false;
    Literal::new(&mut cursor, notes.len()).members(|text| {
        let key = text.key()?;
        if key != "contents" || text.peek()? != Some(b'[') {
            return text.skip_json(MAX_NESTED);
        }
        found = true;
        text.items(|text| {
            text.blank()?;
            let at = text.pos();
            take(item(text)?, at)
        })
    })?;
    Ok(found)
}

fn item(text: &mut Literal<'_, '_>) -> Result<Listed, ReadError> {
    let mut listed = Listed::default();
    text.members(|text| {
        let key = text.key()?;
        let at = text.pos();
        match key.as_str() {
            "name" => listed.name = text.json_string(LONGEST_NAME, "a tensor's name")?,
            "file" => {
                listed.file = text.json_string(LONGEST_PATH, "a file's path")?;
                if !stays_within(&listed.file) {
                    let found = format!("{:?}", listed.file);
                    let what = FaultKind::words("a file within the folder", found);
                    return Err(Fault::new(at, what).into());
                }
            }
            "file_bytes" => listed.bytes = text.number("a file's length")?,
            _ => text.skip_json(MAX_NESTED)?,
        }
        Ok(())
    })?;
    Ok(listed)
}

/// Whether all parts of a path are plain names on every system.
pub(crate) fn stays_within(path: &str) -> bool {
    path.split('/').all(|part| !matches!(part, "" | "." | "..")) && !path.contains(['\\', ':', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::source::Bytes;

    fn listed(notes: &str) -> Result<Vec<(String, String, u64)>, String> {
        let mut all = Vec::new();
        let source = Bytes(notes.as_bytes());
        let read = files(&source, &mut |listed, _| {
            all.push((listed.name, listed.file, listed.bytes));
            Ok(())
        });
        match read {
            Ok(true) => Ok(all),
            Ok(false) => Err("none".to_owned()),
            Err(stop) => Err(stop.into_error("r").to_string()),
        }
    }

    #[test]
    fn files_are_listed_among_unknown_fields() {
        let text = r#" {"a":[{"file":"x"}],"contents": [ {"file":"a/0.npy","z":[1,{}],"file_bytes":130,"name":"a/0"} , {"name":"b","file":"b.npy"}],"b":null}"#;
        let file = |n: &str, f: &str, b| (n.to_owned(), f.to_owned(), b);
        let both = vec![file("a/0", "a/0.npy", 130), file("b", "b.npy", 0)];
        assert_eq!(listed(text), Ok(both));
        assert_eq!(listed(r#"{"contents":[]}"#), Ok(vec![]));
        for none in ["{}", r#"{"contents":null}"#, r#"{"tensors":3}"#] {
            assert_eq!(listed(none), Err("none".to_owned()));
        }
    }

    #[test]
    fn a_path_that_leaves_the_folder_is_refused_with_its_place() {
        for path in ["/etc/passwd", "../x", "a/../b", "a//b", "", ".", "a/.", "C:x", "a\\\\b", "a\\u0000"] {
            let refused = listed(&format!(r#"{{"contents":[{{"file":"{path}"}}]}}"#));
            let said = refused.expect_err("refused");
            assert!(said.contains("at byte 21: expected a file within the folder"), "{said}");
        }
        for broken in ["", "{", r#"{"contents":[{"#, r#"{"contents":[{"file":3}]}"#] {
            assert!(listed(broken).is_err(), "{broken}");
        }
    }
}

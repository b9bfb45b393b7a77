//! Reads the record that layers of every class in a NeoML net have: `CBaseLayer::Serialize`.
//!
//! A record is recognised by form alone; the class's name and the versions of the class and of the bases come before.

use std::ops::Range;

use crate::error::ReadError;
use crate::names::name_from_bytes;
use crate::neoml::record::{LONG, Record, VERSIONS, nullable};
use crate::wire::cursor::Cursor;
use crate::wire::source::{self, Source};
use crate::work;

/// No layer has a longer string. Past 1000, a string of any bytes could not be told from the next of the class's
/// versions, which begin like a string's length.
const LONGEST: u64 = 1000;

/// The most bytes before a layer's record: the class's name with a length prefix, and the versions.
pub(super) const CLASS_AND_VERSIONS: u64 = 255 + 5 * MAX_VERSIONS as u64;

/// More inputs or blobs than any layer of a net has.
const MAX_INPUTS: usize = 1 << 16;
const MAX_OUTPUTS: u32 = 1 << 16;

/// A class has a few bases.
const MAX_VERSIONS: usize = 8;

/// A layer without the parameters of the class.
#[derive(Debug)]
pub(super) struct BaseLayer {
    pub(super) class: Option<Class>,
    pub(super) name: String,
    /// The layers that the inputs come from, each with the output's index.
    pub(super) inputs: Vec<(String, u32)>,
    /// The records of the learnt blobs that are not null, each with the blob's index.
    pub(super) blobs: Vec<(u32, Record)>,
    /// The number of blobs, null ones included.
    pub(super) blob_count: u32,
}

/// Reads the layer's record at the cursor, if there is one; otherwise the cursor's position is unspecified.
///
/// # Errors
/// A broken blob in bytes that are certainly a layer.
pub(super) fn find(cursor: &mut Cursor<'_>) -> Result<Option<BaseLayer>, ReadError> {
    let at = cursor.pos();
    let Base { strings, inputs, blob_count } = match base(cursor) {
        Ok(found) => found,
        Err(Miss::Other) => return Ok(None),
        Err(Miss::Io(stop)) => return Err(stop),
    };
    let class = class(cursor.source(), at)?;
    // Any bytes could be a name. Bytes that no text has are one only behind a class.
    if class.is_none() && !strings.iter().all(|bytes| is_printable(bytes)) {
        return Ok(None);
    }
    let mut names = strings.iter().map(|bytes| name_from_bytes(bytes).into_owned());
    let name = names.next().unwrap_or_default();
    let inputs = names.zip(inputs).collect();
    let mut blobs = Vec::new();
    for index in 0..blob_count {
        match nullable(cursor) {
            Ok(Some(record)) => blobs.push((index, record)),
            Ok(None) => {}
            Err(stop @ ReadError::Io { .. }) => return Err(stop),
            // After a name, inputs and multipliers, this is certainly a layer.
            Err(stop) if !name.is_empty() => return Err(stop.within(format!("layer {name:?}, blob #{index}"))),
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(BaseLayer { class, name, inputs, blobs, blob_count }))
}

/// Why there is no record.
pub(super) enum Miss {
    /// The bytes are something else.
    Other,
    /// The bytes cannot be read.
    Io(ReadError),
}

impl From<ReadError> for Miss {
    fn from(stop: ReadError) -> Self {
        match stop {
            ReadError::Io { .. } => Self::Io(stop),
            _ => Self::Other,
        }
    }
}

/// The head of a layer, before the blobs.
struct Base {
    /// The layer's name, then the name of the layer that each input comes from.
    strings: Vec<Vec<u8>>,
    /// The output of each input.
    inputs: Vec<u32>,
    blob_count: u32,
}

/// Reads the record up to the blobs.
fn base(cursor: &mut Cursor<'_>) -> Result<Base, Miss> {
    let end = cursor.file_len();
    let long = cursor.u8(end, "a version")?;
    expect(long == LONG && VERSIONS.contains(&cursor.i32("a version")?))?;
    let (mut strings, mut inputs) = (vec![string(cursor)?], Vec::new());
    for _ in 0..count(cursor)? {
        strings.push(string(cursor)?);
        let output = count(cursor)?;
        expect(output < MAX_OUTPUTS && inputs.len() < MAX_INPUTS)?;
        inputs.push(output);
    }
    for _ in 0..2 {
        // The flags whether backward is forced, and whether the layer learns.
        expect(cursor.u8(end, "a flag")? < 2)?;
    }
    for _ in 0..3 {
        expect(f32::from_bits(cursor.u32("a multiplier")?).is_finite())?;
    }
    let blob_count = count(cursor)?;
    expect(u64::from(blob_count) <= cursor.left())?;
    Ok(Base { strings, inputs, blob_count })
}

fn expect(is_expected: bool) -> Result<(), Miss> {
    is_expected.then_some(()).ok_or(Miss::Other)
}

/// A non-negative count.
pub(super) fn count(cursor: &mut Cursor<'_>) -> Result<u32, Miss> {
    u32::try_from(cursor.i32("a count")?).map_err(|_| Miss::Other)
}

/// A string, which NeoML stores as bytes without an encoding.
fn string(cursor: &mut Cursor<'_>) -> Result<Vec<u8>, Miss> {
    let end = cursor.file_len();
    let short = cursor.u8(end, "a length")?;
    let len = if short == LONG { count(cursor)? } else { short.into() };
    Ok(cursor.bytes(len.into(), end, LONGEST, "a string")?)
}

fn is_printable(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| !text.chars().any(char::is_control))
}

/// The class of a layer.
#[derive(Debug, PartialEq)]
pub(super) struct Class {
    pub(super) name: String,
    /// The offset of the name's length.
    pub(super) at: u64,
    /// The number of versions between the name and the record: one for the class and one for each base class but the
    /// last.
    pub(super) versions: usize,
}

/// Looks for a class before a layer's record.
pub(super) fn class(source: &dyn Source, record: u64) -> Result<Option<Class>, ReadError> {
    let from = record.saturating_sub(CLASS_AND_VERSIONS);
    let mut bytes = vec![0; (record - from) as usize];
    source::read(source, from, &mut bytes)?;
    let found = class_before(&bytes);
    Ok(found.map(|(name, range, versions)| Class { name, at: from + range.start as u64, versions }))
}

/// The class whose name and versions these bytes end with.
fn class_before(bytes: &[u8]) -> Option<(String, Range<usize>, usize)> {
    let mut ends = vec![bytes.len()];
    for versions in 1..=MAX_VERSIONS {
        ends = ends.iter().flat_map(|end| before_version(&bytes[..*end])).collect();
        // Two chains of versions may meet at one offset: `n` versions have about `n` offsets, not 2ⁿ.
        ends.sort_unstable();
        ends.dedup();
        for end in &ends {
            let class =
                string_before(&bytes[..*end], |text| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
            if let Some((start, name)) = class {
                return Some((name, start..*end, versions));
            }
        }
    }
    None
}

/// The offsets at which a version at the end of these bytes may begin.
fn before_version(bytes: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let long = bytes.len().checked_sub(5).filter(|at| {
        let [long, version @ ..] = &bytes[*at..] else { return false };
        let version = version.first_chunk::<4>().map(|word| i32::from_le_bytes(*word));
        *long == LONG && version.is_some_and(|version| (255..=VERSIONS.end() + 100).contains(&version))
    });
    // Classes newer than archive version 2000 have low versions, which differ from all letters of a name.
    let short = bytes.last().filter(|version| **version < b' ').map(|_| bytes.len() - 1);
    long.into_iter().chain(short)
}

/// The longest possible string with a length prefix at the end of these bytes, with the prefix's offset.
pub(super) fn string_before(bytes: &[u8], is_expected: impl Fn(&str) -> bool) -> Option<(usize, String)> {
    let longest = bytes.len().min(usize::from(LONG));
    work::visit(0, longest as u64);
    (1..longest).rev().find_map(|len| {
        let at = bytes.len() - len - 1;
        if usize::from(bytes[at]) != len {
            return None;
        }
        work::visit(len as u64, 1);
        let text = std::str::from_utf8(&bytes[at + 1..]).ok()?;
        is_expected(text).then(|| (at, text.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_found_before_its_versions() {
        let chain = |versions: &[u8]| [b"\0\0\0\x0FFmlCnnSinkLayer", versions].concat();
        let new = b"\xFF\xD1\x07\0\0";
        for (versions, count) in [(&new[..], 1), (b"\x01", 1), (&[&new[..], &new[..], b"\x02"].concat(), 3)] {
            let (name, range, found) = class_before(&chain(versions)).expect("a class");
            assert_eq!((&*name, range.start, found), ("FmlCnnSinkLayer", 3, count));
        }
        assert_eq!(class_before(&chain(b"")), None, "no version");
        assert_eq!(class_before(&chain(b"\xFF\xD1\x07\0\x01")), None, "no version of NeoML's");
        assert_eq!(class_before(b"\x0EFmlCnnSinkLayer\x01"), None, "another length");
    }

    #[test]
    fn a_name_of_any_bytes_stands_behind_a_class() {
        let found = |before: &[u8], name: &[u8]| {
            // No inputs, two flags, three multipliers, no blobs.
            let record = [b"\xFF\xD0\x07\0\0", &[name.len() as u8][..], name, &[0; 22]].concat();
            let bytes = crate::Bytes([before, &record].concat());
            let mut cursor = Cursor::new(&bytes);
            cursor.seek(before.len() as u64);
            find(&mut cursor).expect("read").map(|layer| layer.name)
        };
        assert_eq!(found(b"", b"fc").as_deref(), Some("fc"));
        assert_eq!(found(b"", b"\xE0"), None);
        assert_eq!(found(b"\x0FFmlCnnSinkLayer\xFF\xD0\x07\0\0", b"\xE0").as_deref(), Some(r"\xE0"));
    }

    #[test]
    fn the_longest_string_is_taken() {
        // The length prefix of a name of 32 bytes is a space.
        let name = "a name of thirty-two letters (!)";
        let bytes = [b"\0 ", name.as_bytes()].concat();
        assert_eq!(string_before(&bytes, |_| true), Some((1, name.to_owned())));
    }
}

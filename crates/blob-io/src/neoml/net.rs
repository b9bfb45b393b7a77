//! Finds the blobs of a net, a dictionary or a pickle by the form of the records, without knowing the layers' classes.
//!
//! `find` searches all bytes for records, except the cells of blobs found so far, in which a value could look like one.

use crate::error::{FaultKind, ReadError, check_limit};
use crate::limits::{Limit, Limits, names_for};
use crate::names::NameTable;
use crate::neoml::find::{Finder, Item};
use crate::neoml::layer::{self, BaseLayer, Class};
use crate::neoml::links::Layer;
use crate::neoml::record::{Record, VERSIONS, is_version, note_axes};
use crate::wire::cursor::Cursor;
use crate::wire::source;

/// Inner nets beyond this depth are listed without the names of the outer layers.
const MAX_DEPTH: usize = 32;

/// No inner net has this many layers; the bytes of a float here would be a larger number.
const MAX_INNER_LAYERS: u32 = 1 << 16;

/// An inner net has a few back links.
const MAX_LINKS: usize = 256;

/// How many bytes before a blob after the net are searched for a solver or a key.
const SEARCH_BYTES: u64 = 4096;

/// The header of a net.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Header {
    version: i32,
    log_frequency: i32,
    layers: u32,
}

/// The header of a net, if these bytes begin with one and the first layer's class.
pub(super) fn header(head: &[u8]) -> Option<Header> {
    let (words, rest) = head.split_first_chunk::<12>()?;
    let word = |i: usize| i32::from_le_bytes([words[i], words[i + 1], words[i + 2], words[i + 3]]);
    // Old files have the version negated.
    let version = word(0).checked_abs().filter(|version| VERSIONS.contains(version))?;
    let log_frequency = Some(word(4)).filter(|n| (0..1 << 24).contains(n))?;
    let layers = u32::try_from(word(8)).ok().filter(|n| *n < 1 << 24)?;
    let is_class = layers == 0 || rest.is_empty() || begins_with_class(rest);
    is_class.then_some(Header { version, log_frequency, layers })
}

fn begins_with_class(bytes: &[u8]) -> bool {
    let Some((&len @ 1..=254, text)) = bytes.split_first() else {
        return false;
    };
    let name = &text[..text.len().min(len.into())];
    name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

/// Whether these bytes begin with a number of blobs, the first blob's key and a version.
pub(super) fn is_dictionary(head: &[u8]) -> bool {
    let Some(([a, b, 0, 0, len @ 1..=254], rest)) = head.split_first_chunk::<5>() else {
        return false;
    };
    let Some((key, rest)) = rest.split_at_checked((*len).into()) else {
        return false;
    };
    let is_key = std::str::from_utf8(key).is_ok_and(|key| !key.chars().any(char::is_control));
    let record = rest.strip_prefix(&[0]).unwrap_or(rest);
    (*a, *b) != (0, 0) && is_key && is_version(record)
}

/// Lists the blobs of a net as `<layer path>/<index>`; blobs outside of layers by key or position.
pub(crate) fn read(cursor: &mut Cursor<'_>, table: &mut NameTable) -> Result<String, ReadError> {
    let header = begin(cursor)?;
    let expected = header.map(|header| header.layers);
    let mut search = Search::new(expected);
    let walked = search.run(cursor, table).and_then(|()| search.check_count(cursor.file_len()));
    if let Err(stop) = walked {
        // Behind a layer that was passed over, arrays may be listed under another.
        table.truncate(search.sure.unwrap_or(table.len()));
        return Err(stop);
    }
    if header.is_none() && search.last.is_none() && table.len() == 0 {
        let what = FaultKind::words("a NeoML net, or records of its layers and blobs", "none of them");
        return Err(ReadError::fault(0, what));
    }
    note_axes(table);
    let Some(header) = header else {
        return Ok("records without a net around them".to_owned());
    };
    table.metadata.push(("log frequency".to_owned(), header.log_frequency.to_string()));
    if let Some(solver) = search.solver {
        table.metadata.push(("solver".to_owned(), solver));
    }
    Ok(format!("version {}", header.version))
}

/// The layers of a net, in the order of the file.
pub(crate) fn links(cursor: &mut Cursor<'_>, limits: &Limits) -> Result<Vec<Layer>, ReadError> {
    let expected = begin(cursor)?.map(|header| header.layers);
    let mut search = Search { links: Some(Vec::new()), ..Search::new(expected) };
    search.run(cursor, &mut NameTable::new(limits))?;
    Ok(search.links.unwrap_or_default())
}

/// The records of all blobs, in the order of the entries.
pub(crate) fn records(cursor: &mut Cursor<'_>) -> Result<Vec<Record>, ReadError> {
    begin(cursor)?;
    let (mut records, mut finder) = (Vec::new(), Finder::default());
    while let Some((_, found)) = finder.next(cursor)? {
        match found {
            Item::Layer(layer) => records.extend(layer.blobs.into_iter().map(|(_, record)| record)),
            Item::Blob(record) => records.push(record),
        }
    }
    Ok(records)
}

/// Reads the header, if there is one, and moves the cursor past the header.
fn begin(cursor: &mut Cursor<'_>) -> Result<Option<Header>, ReadError> {
    cursor.seek(0);
    let end = cursor.file_len();
    let head = cursor.bytes(end.min(512), end, 512, "the head of a net")?;
    let header = header(&head);
    cursor.seek(if header.is_some() { 12 } else { 0 });
    Ok(header)
}

/// A layer with an inner net whose layers are being read.
struct Open {
    /// How many inner layers are left.
    left: u32,
    /// The length of the path without the layer's name.
    outer: usize,
    /// The names of the back links, which a recurrent layer stores a second time after the inner net.
    links: Vec<String>,
}

/// The last layer so far.
struct Last {
    name: String,
    /// The name of the layer's blobs without the index.
    base: Option<String>,
    path: String,
    class: Option<Class>,
    position: u32,
    /// The index of the layer's next blob.
    index: u32,
    /// Where the parameters of the class begin.
    end: u64,
}

/// The state of the walk over a file.
struct Search {
    finder: Finder,
    expected: Option<u32>,
    open: Vec<Open>,
    /// The names of the open layers, joined by `/`.
    path: String,
    last: Option<Last>,
    /// How many layers of the net itself were found.
    outermost: u32,
    solver: Option<String>,
    /// The layers, if requested.
    links: Option<Vec<Layer>>,
    /// The bytes of all layers' paths so far: inner layers repeat the names of the outer layers.
    path_bytes: u64,
    /// How many arrays were listed before a layer was passed over.
    sure: Option<usize>,
}

impl Search {
    fn new(expected: Option<u32>) -> Self {
        let (open, path, last, solver, links, sure) = Default::default();
        let finder = Finder::default();
        Self { finder, expected, open, path, last, outermost: 0, solver, links, path_bytes: 0, sure }
    }

    fn run(&mut self, cursor: &mut Cursor<'_>, table: &mut NameTable) -> Result<(), ReadError> {
        begin(cursor)?;
        loop {
            let from = cursor.pos();
            let Some((at, found)) = self.finder.next(cursor)? else {
                return Ok(());
            };
            let next_pos = cursor.pos();
            if self.finder.lost.is_some() {
                self.sure.get_or_insert(table.len());
            }
            match found {
                Item::Layer(layer) => self.layer(cursor, table, at, layer)?,
                Item::Blob(record) => self.blob(cursor, table, from, &record)?,
            }
            cursor.seek(next_pos);
        }
    }

    /// Checks the numbers of layers of a net.
    fn check_count(&self, file_len: u64) -> Result<(), ReadError> {
        let Some(expected) = self.expected.filter(|_| !self.is_complete()) else {
            return Ok(());
        };
        if let Some(lost) = self.finder.lost {
            let what = FaultKind::words("a layer behind its class", "bytes that are none");
            return Err(ReadError::fault(lost.record, what));
        }
        // If an inner net ends too early, the outer layer is incomplete too.
        let broken = self.open.iter().any(|open| open.left > 0);
        let (expected, found) = (expected.into(), u64::from(self.outermost) - u64::from(broken));
        let what = FaultKind::Mismatch { field: "the layers of the net", expected, found };
        Err(ReadError::fault(file_len, what))
    }

    /// Whether the numbers of layers are those in the headers of the net and of each inner net.
    fn is_complete(&self) -> bool {
        self.expected == Some(self.outermost) && self.open.iter().all(|open| open.left == 0)
    }

    fn layer(
        &mut self,
        cursor: &mut Cursor<'_>,
        table: &mut NameTable,
        at: u64,
        layer: BaseLayer,
    ) -> Result<(), ReadError> {
        let end = cursor.pos();
        let position = table.next_position(at)?;
        self.enter(cursor, &layer);
        let class = layer.class;
        let path = match &*self.path {
            "" => layer.name.clone(),
            outer => format!("{outer}/{}", layer.name),
        };
        self.path_bytes += path.len() as u64;
        let most = names_for(cursor.file_len());
        check_limit(at, Limit::Fixed, "the bytes of all layers' paths", self.path_bytes, most)?;
        if let Some(links) = &mut self.links {
            check_limit(at, Limit::Arrays, "the number of layers", links.len() as u64 + 1, table.limits().max_arrays)?;
            let class = class.as_ref().map(|class| class.name.clone());
            links.push(Layer { path: path.clone(), class, inputs: layer.inputs, offset: at });
        }
        let mut last = Last { name: layer.name, base: None, path, class, position, index: layer.blob_count, end };
        for (index, record) in &layer.blobs {
            last.push(table, record, *index)?;
        }
        self.last = Some(last);
        Ok(())
    }

    /// Determines the net that a layer belongs to.
    fn enter(&mut self, cursor: &mut Cursor<'_>, layer: &BaseLayer) {
        let class = layer.class.as_ref();
        if let (Some(last), Some(class)) = (&self.last, class) {
            // A back link stores a separate sink, which is not a layer of the net.
            if class.at > last.end && layer.name.strip_suffix("@Sink") == Some(&*last.name) {
                return;
            }
            if let Some(inner) = last.inner_layers(cursor, class, layer) {
                let outer = self.path.len();
                if self.open.len() < MAX_DEPTH {
                    self.path.clone_from(&last.path);
                }
                self.open.push(Open { left: inner, outer, links: Vec::new() });
            }
        }
        let is_link = class.is_some_and(|class| class.name == "FmlCnnBackLink");
        while let Some(open) = self.open.last_mut() {
            if open.left > 0 {
                open.left -= 1;
                if is_link && open.links.len() < MAX_LINKS {
                    open.links.push(layer.name.clone());
                }
                return;
            }
            if is_link && open.links.contains(&layer.name) {
                return;
            }
            self.path.truncate(open.outer);
            self.open.pop();
        }
        self.outermost += 1;
    }

    /// Adds a blob outside of any layer's list: stored by a layer's class, or after the net.
    fn blob(
        &mut self,
        cursor: &mut Cursor<'_>,
        table: &mut NameTable,
        from: u64,
        record: &Record,
    ) -> Result<(), ReadError> {
        let is_after_net = self.expected.is_none_or(|_| self.is_complete());
        if is_after_net {
            let from = from.max(record.at.saturating_sub(SEARCH_BYTES));
            let mut before = vec![0; (record.at - from) as usize];
            source::read(cursor.source(), from, &mut before)?;
            if self.solver.is_none() {
                self.solver = solver(&before);
            }
            let key = key(&before).filter(|_| self.solver.is_none());
            if key.is_some() || self.solver.is_some() || self.last.is_none() {
                let position = table.next_position(record.at)?;
                let name = key.unwrap_or_else(|| format!("@{position}"));
                return table.push(record.entry(position, 0), &name, record.at);
            }
        }
        let Some(last) = &mut self.last else {
            let position = table.next_position(record.at)?;
            return table.push(record.entry(position, 0), &format!("@{position}"), record.at);
        };
        let index = last.index;
        last.index += 1;
        last.push(table, record, index)
    }
}

impl Last {
    /// Adds a blob of the layer.
    fn push(&mut self, table: &mut NameTable, record: &Record, index: u32) -> Result<(), ReadError> {
        let mut entry = record.entry(self.position, index);
        if let Some(class) = &self.class {
            entry.layer_type = Some(table.intern(&class.name, record.at)?);
        }
        let base = match &self.base {
            Some(base) => base,
            None => self.base.insert(table.layer_base(&self.path, self.position).into_owned()),
        };
        table.push(entry, &format!("{base}/{index}"), record.at)
    }

    /// The number of inner layers, if this is a composite layer and `first`, of this class, the first inner one.
    fn inner_layers(&self, cursor: &mut Cursor<'_>, class: &Class, first: &BaseLayer) -> Option<u32> {
        // A composite layer has the class `CCompositeLayer` or a derived one.
        let own = self.class.as_ref()?;
        let is_composite = own.versions > 1 || own.name == "FmlCnnCompositeLayer";
        // Another class may have a number there, but then the next layer has this layer as an input.
        let is_inner = first.inputs.iter().all(|(input, _)| *input != self.name);
        if !is_composite || !is_inner || class.at != self.end + 4 {
            return None;
        }
        cursor.seek(self.end);
        layer::count(cursor).ok().filter(|count| (1..MAX_INNER_LAYERS).contains(count))
    }
}

/// The class of the solver whose name is in these bytes.
fn solver(bytes: &[u8]) -> Option<String> {
    let mark: &[u8] = b"Solver";
    let end = bytes.windows(mark.len()).position(|window| window == mark)? + mark.len();
    let class = layer::string_before(&bytes[..end], |text| text.bytes().all(|b| b.is_ascii_alphanumeric()));
    class.map(|(_, name)| name)
}

/// The key before a dictionary's blob; a flag may stand between key and blob.
fn key(bytes: &[u8]) -> Option<String> {
    let is_key = |text: &str| !text.chars().any(char::is_control);
    let found = layer::string_before(bytes, is_key);
    found.or_else(|| layer::string_before(bytes.strip_suffix(&[0])?, is_key)).map(|(_, key)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_one_only_before_a_class() {
        let words = |words: [i32; 3]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        let with =
            |head: [i32; 3], class: &[u8]| header(&[&words(head)[..], class].concat()).map(|header| header.layers);
        assert_eq!(with([2000, 100, 3], b"\x0FFmlCnnSinkLayer"), Some(3));
        assert_eq!(with([-1001, 100, 3], b"\x0FFmlCnnSinkLayer"), Some(3));
        assert_eq!(with([2000, 100, 3], b"\x0FFmlCnnSi"), Some(3), "cut off");
        assert_eq!(with([2000, 0, 0], b"\x01"), Some(0));
        for (head, class) in [
            ([1000, 100, 3], &b"\x0FFmlCnnSinkLayer"[..]),
            ([2001, 100, 3], b"\x0FFmlCnnSinkLayer"),
            ([i32::MIN, 100, 3], b"\x0FFmlCnnSinkLayer"),
            ([2000, -1, 3], b"\x0FFmlCnnSinkLayer"),
            ([2000, 100, -3], b"\x0FFmlCnnSinkLayer"),
            ([2000, 100, 3], b"\x0FFml nnSinkLayer"),
            ([2000, 100, 3], b"\0FmlCnnSinkLayer"),
        ] {
            assert_eq!(with(head, class), None, "{head:?}");
        }
    }
}

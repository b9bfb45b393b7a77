//! The settings of a layer as texts, for readers of other layers than the ones understood here.
//!
//! Bounded: all layers of a net share one budget of bytes, because a stored number of one byte may be a text of many.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::caffe::value::Value;
use crate::error::{Fault, check_limit};
use crate::limits::Limit;
use crate::net::{LONGEST_KEY, MAX_ATTRIBUTES};
use crate::work;

/// The bytes of all settings of a net: twice the longest prototxt. Nets of a thousand layers have a megabyte.
const MAX_BYTES: u64 = 32 << 20;

/// How many bytes the settings of a net's layers may have, names and values together.
#[derive(Debug)]
pub(super) struct Budget {
    limit: Limit,
    allowed: u64,
    used: u64,
}

impl Budget {
    pub(super) fn new(max_alloc: u64) -> Self {
        let limit = if max_alloc < MAX_BYTES { Limit::Alloc } else { Limit::Fixed };
        Self { limit, allowed: max_alloc.min(MAX_BYTES), used: 0 }
    }

    /// The settings of the next layer.
    pub(super) fn layer(&self) -> Attributes {
        Attributes { room: self.allowed - self.used, ..Attributes::default() }
    }

    /// Counts the settings of the layer at byte `at`; an error if they are too many.
    pub(super) fn count(&mut self, layer: &Attributes, at: u64) -> Result<(), Fault> {
        self.used = self.used.saturating_add(layer.bytes);
        check_limit(at, self.limit, "the settings of the layers so far", self.used, self.allowed)
    }
}

/// The settings of one layer so far, in the order of the description.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    texts: Vec<(String, String)>,
    /// The place in `texts` of each name.
    places: HashMap<String, usize>,
    /// The name of the last setting.
    name: String,
    bytes: u64,
    /// How many bytes are left for the layer. Beyond them no text is kept, and [`Budget::count`] fails.
    room: u64,
}

impl Attributes {
    /// Keeps a value. The values of a field that repeats are joined by commas; of any other field the last one counts.
    pub(super) fn note(&mut self, path: &[&str], field: &str, value: Value<'_>, is_repeated: bool) {
        if self.bytes > self.room || path.iter().chain([&field]).map(|name| name.len()).sum::<usize>() >= LONGEST_KEY {
            return;
        }
        self.name.clear();
        for name in path {
            self.name.extend([name, "."]);
        }
        self.name.push_str(field);
        work::visit(self.name.len() as u64, 1);
        let place = match self.places.get(&self.name) {
            Some(place) => *place,
            None if self.texts.len() < MAX_ATTRIBUTES => {
                self.bytes += self.name.len() as u64;
                self.places.insert(self.name.clone(), self.texts.len());
                self.texts.push((self.name.clone(), String::new()));
                self.texts.len() - 1
            }
            None => return,
        };
        let text = &mut self.texts[place].1;
        let before = text.len() as u64;
        if !is_repeated {
            text.clear();
        } else if before > 0 {
            text.push(',');
        }
        let _ = write!(text, "{value}");
        self.bytes = self.bytes + text.len() as u64 - before;
    }

    /// Keeps a field that no message of the schema has, or that has a value of another kind: `pooling_param.#99` with
    /// its length in place of a value. A reader of the settings would miss the field otherwise.
    pub(super) fn note_strange(&mut self, path: &[&str], number: u32, bytes: u64) {
        let plural = if bytes == 1 { "" } else { "s" };
        self.note(path, &format!("#{number}"), Value::Text(&format!("{bytes} byte{plural}")), false);
    }

    /// Counts bytes that the layer keeps beside the texts; false if they are too many, and then [`Budget::count`]
    /// fails.
    pub(super) fn charge(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.bytes <= self.room
    }

    pub(super) fn into_texts(self) -> Vec<(String, String)> {
        self.texts
    }
}

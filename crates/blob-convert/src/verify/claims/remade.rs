//! Compares a receipt with the receipt that the same conversion gives when it is planned again.
//!
//! Relies on the caller for the conversion, made again of the source that the receipt names. Facts must be equal; words
//! may be others in another version of the tool. Names of files, the version of the tool and the mark of a job are
//! facts of the moment, which nothing makes again.

use std::collections::HashMap;

use blob_io::Checkpoint;
use blob_io::words::and_more;
use serde_json::{Value, json};

use super::said::{Changed, Claims, LeftOut, List};
use super::{shown, wrong};
use crate::history::{parse, receipt_text};
use crate::receipt::{MAX_TEXT, places};
use crate::verify::Remark;
use crate::written::truncated;

/// A receipt is shorter than the limit by less than this where a list had no room: digests are filled in later, and the
/// frame may say why it is left out.
pub(super) const SLACK: usize = 64 << 10;

/// Compares the receipt of `file` with the text of the receipt `again`. Returns whether they are equal.
pub(in crate::verify) fn remade(file: &Checkpoint, again: &str, report: &mut dyn FnMut(Remark)) -> bool {
    let text = receipt_text(file).unwrap_or_default();
    let (Some(said), Some(is)) = (parse::<Claims>(text), parse::<Claims>(again)) else { return false };
    // Of a file of which some tensors are looked at, the others have claims, too.
    let written = said.tensors.as_ref().and_then(Value::as_u64);
    if written.is_some_and(|written| written > file.entries().len() as u64) {
        return false;
    }
    let mut compare = Compare {
        is_ours: said.is_of_this_version(),
        len: text.len(),
        words: Vec::new(),
        count: 0,
        is_less: false,
        report,
    };
    compare.contents((&said, text), (&is, again));
    compare.changes(&said.changes, &is.changes);
    compare.left_out(&said.left_out, &is.left_out);
    if let Some((said, is)) = compare.both("warnings", (&said.warnings, &is.warnings), list_len(&is.warnings)) {
        compare.words("warnings", &json!(said), &json!(is));
    }
    // The origins are compared with those of the source's own receipt.
    compare.both("history", (&said.history, &is.history), json!(is.history.items()).to_string().len());
    if let Some((said, is)) = compare.both("sparse", (&said.sparse, &is.sparse), is.sparse.items().len() * 64)
        && said != is
    {
        let names = |parts: &[super::said::Part]| json!(parts.iter().map(|part| &part.name).collect::<Vec<_>>());
        compare.fact("sparse", Some(&names(said)), Some(&names(is)));
    }
    let sources = said.sources.iter().flatten().zip(is.sources.iter().flatten());
    for (said, is) in sources.filter(|(said, is)| said.prefix != is.prefix) {
        let field = format!("the prefix of {}", shown(Some(&said.name)));
        compare.fact(&field, Some(&said.prefix), Some(&is.prefix));
    }
    // The counts are those of the values, which are read elsewhere.
    for (field, said, is) in
        [("lost_values", &said.lost_values, &is.lost_values), ("zeroed_values", &said.zeroed_values, &is.zeroed_values)]
    {
        if said.is_some() && is.is_none() {
            compare.fact(field, said.as_ref(), None);
        }
    }
    // These lists stand in for changes without room, which a receipt without a frame may have had.
    let is_listed = said.changes.is_there();
    for (field, said, is) in [
        ("part", &said.is_part, &is.is_part),
        ("prefixed", &said.prefixed, &is.prefixed),
        ("select", &said.select, &is.select),
        ("bf16_as_u16", &said.bf16_as_u16, &is.bf16_as_u16),
        ("u16", &said.u16, &is.u16),
    ] {
        if said != is && (is_listed || !matches!(field, "bf16_as_u16" | "u16")) {
            compare.fact(field, said.as_ref(), is.as_ref());
        }
    }
    compare.finish()
}

/// How many bytes the texts of a list have at least.
fn list_len(list: &List<String>) -> usize {
    list.items().iter().map(|text| text.len() + 2).sum()
}

/// The state of a comparison of two receipts.
struct Compare<'a> {
    /// Whether this version wrote the receipt.
    is_ours: bool,
    /// The length of the receipt.
    len: usize,
    /// The fields with other words, in a receipt of another version.
    words: Vec<&'static str>,
    /// How many differences are told.
    count: usize,
    /// Whether the receipt lacks a list, so that not all of it was compared.
    is_less: bool,
    report: &'a mut dyn FnMut(Remark),
}

impl Compare<'_> {
    /// Reports a fact that is another one.
    fn fact(&mut self, field: &str, said: Option<&Value>, is: Option<&Value>) {
        self.count += 1;
        let (said, is) = (shown(said), shown(is));
        (self.report)(wrong(&format!("says that {field} is {said}, and by the conversion made again it is {is}")));
    }

    /// Reports other words: another version may have them.
    fn words(&mut self, field: &'static str, said: &Value, is: &Value) {
        if said == is {
            return;
        }
        if self.is_ours {
            self.fact(field, Some(said), Some(is));
        } else if !self.words.contains(&field) {
            self.words.push(field);
        }
    }

    /// Compares whether the tensors are listed, and in which order: where another format has numbers in place of names,
    /// the order of the list decides.
    fn contents(&mut self, (said, text): (&Claims, &str), (is, again): (&Claims, &str)) {
        let Some(items) = &is.contents else { return };
        match &said.contents {
            // Of tensors and sources alone depends whether there is room for the list.
            None if self.is_ours => {
                self.fact("contents", Some(&Value::Null), Some(&json!(format!("a list of {}", items.by_name.len()))));
            }
            None => self.is_less = true,
            Some(_) if places(text) != places(again) => {
                self.fact("the order of contents", Some(&json!("another")), Some(&json!("that of the sources")));
            }
            Some(_) => {}
        }
    }

    /// Both lists; `None` where the receipt had no room for its own. A list of `len` bytes that had room is missed.
    fn both<'l, T>(
        &mut self,
        field: &'static str,
        (said, is): (&'l List<T>, &'l List<T>),
        len: usize,
    ) -> Option<(&'l [T], &'l [T])> {
        self.is_less |= is.is_there() && !said.is_there();
        if said.had_no_room() && is.is_there() && self.len + len + SLACK < MAX_TEXT {
            self.fact(field, Some(&Value::Null), Some(&json!(format!("a list of {}", is.items().len()))));
        }
        (said.is_there() && is.is_there()).then(|| (said.items(), is.items()))
    }

    /// Compares the changes tensor by tensor.
    fn changes(&mut self, said: &List<Changed>, is: &List<Changed>) {
        let len = |changed: &Changed| changed.name.len() + changed.changes.iter().map(|c| c.len() + 2).sum::<usize>();
        let Some((said, is)) = self.both("changes", (said, is), is.items().iter().map(len).sum()) else { return };
        let mut left: HashMap<&str, &Changed> = is.iter().map(|changed| (&*changed.name, changed)).collect();
        let (mut first, mut others, mut words) = (None, 0, false);
        for said in said {
            let is = left.remove(&*said.name);
            let (bits, told) = is.map_or((&Value::Null, None), |is| (&is.bits_of, Some(&is.changes)));
            let has_other_bits = said.bits_of != *bits;
            let differs = told != Some(&said.changes);
            words |= differs;
            if has_other_bits || differs && self.is_ours {
                let is = if has_other_bits { json!({"bits_of": bits}) } else { json!(told) };
                let claimed = if has_other_bits { json!({"bits_of": said.bits_of}) } else { json!(said.changes) };
                others += usize::from(first.is_some());
                first.get_or_insert((&*said.name, claimed, is));
            }
        }
        let mut missed: Vec<&Changed> = left.into_values().collect();
        missed.sort_by_key(|changed| &*changed.name);
        words |= !missed.is_empty();
        for is in missed.into_iter().filter(|is| self.is_ours || !is.bits_of.is_null()) {
            others += usize::from(first.is_some());
            first.get_or_insert((&*is.name, Value::Null, json!(is.changes)));
        }
        if let Some((name, said, is)) = first {
            let field = format!("the change of {:?}{}", truncated(name), and_more(others));
            self.fact(&field, Some(&said), Some(&is));
        } else if words {
            self.words.push("changes");
        }
    }

    /// Compares why tensors were left out; other checks compare which.
    fn left_out(&mut self, said: &List<LeftOut>, is: &List<LeftOut>) {
        let len = is.items().iter().map(|left| left.name.len() + left.reason.len()).sum();
        let Some((said, is)) = self.both("left_out", (said, is), len) else { return };
        let reasons: HashMap<&str, &str> = is.iter().map(|left| (&*left.name, &*left.reason)).collect();
        let other = said.iter().find_map(|left| {
            let is = reasons.get(&*left.name).filter(|is| **is != left.reason)?;
            Some((&left.reason, *is))
        });
        if let Some((said, is)) = other {
            self.words("the reason in left_out", &json!(said), &json!(is));
        } else if said.len() != is.len() {
            self.fact("the length of left_out", Some(&json!(said.len())), Some(&json!(is.len())));
        }
    }

    fn finish(self) -> bool {
        if !self.words.is_empty() {
            let named = self.words.join(", ");
            let words = format!("the receipt is of another version of the tool, which has other words for: {named}");
            (self.report)(Remark::Note(words));
        }
        self.count == 0 && self.words.is_empty() && !self.is_less
    }
}

//! Compares a receipt with the receipt that the same conversion gives when it is planned again.
//!
//! Relies on the caller for the conversion, made again of the source that the receipt names, and on `alike` for the
//! fields that count. Facts must be equal; words may be others in another version of the tool. Claims that nothing
//! proves are notes.

use std::collections::HashMap;

use blob_io::words::and_more;
use blob_io::{Checkpoint, Files};
use serde_json::{Map, Value, json};

use super::alike::{Alike, Difference};
use super::said::{Changed, Claims, LeftOut, List};
use super::{shown, wrong};
use crate::frame;
use crate::history::{parse, receipt_text};
use crate::receipt::places;
use crate::verify::Remark;
use crate::written::truncated;

/// Compares the receipt of `file` with the text of the receipt `again`. Returns whether they are equal.
pub(in crate::verify) fn remade(file: &Checkpoint, again: &str, report: &mut dyn FnMut(Remark)) -> bool {
    let text = receipt_text(file).unwrap_or_default();
    let (Some(said), Some(is)) = (parse::<Claims>(text), parse::<Claims>(again)) else { return false };
    // Of a file of which some tensors are looked at, the others have claims, too.
    let written = said.tensors.as_ref().and_then(Value::as_u64);
    if written.is_some_and(|written| written > file.entries().len() as u64) {
        return false;
    }
    // The list of a folder's files comes on top of the longest receipt.
    let of_files = if file.format().holds().files == Files::Folder { len_of(again, "contents") } else { 0 };
    let mut alike = Alike::new(said.is_of_this_version(), again.len() - of_files);
    alike.has_changes = said.changes.is_there();
    let mut compare = Compare { alike, count: 0, report };
    compare.contents(&said, text, &is, again);
    compare.changes(&said.changes, &is.changes);
    compare.left_out(&said.left_out, &is.left_out);
    compare.frame(&said, &is);
    if let (Some(said), Some(is)) = (parse::<Map<String, Value>>(text), parse::<Map<String, Value>>(again)) {
        compare.fields(&said, &is);
    }
    compare.finish(said.tool.as_deref())
}

/// The length of a field of a receipt, as this version spells the field.
pub(super) fn len_of(text: &str, field: &str) -> usize {
    let fields = parse::<Map<String, Value>>(text).unwrap_or_default();
    fields.get(field).map_or(0, |field| field.to_string().len())
}

/// The state of a comparison of two receipts.
struct Compare<'a> {
    alike: Alike,
    /// How many differences are told.
    count: usize,
    report: &'a mut dyn FnMut(Remark),
}

impl Compare<'_> {
    /// Reports a fact that is another one.
    fn fact(&mut self, field: &str, said: Option<&Value>, is: Option<&Value>) {
        self.count += 1;
        let (said, is) = (shown(said), shown(is));
        (self.report)(wrong(&format!("says that {field} is {said}, and by the conversion made again it is {is}")));
    }

    /// Compares whether the tensors are listed, and in the texts the order: where another format has numbers in place
    /// of names, the order of the list decides.
    fn contents(&mut self, said: &Claims, text: &str, is: &Claims, again: &str) {
        let Some(items) = &is.contents else { return };
        match &said.contents {
            // Of tensors and sources alone depends whether there is room for the list.
            None if self.alike.is_ours => {
                self.fact("contents", Some(&Value::Null), Some(&json!(format!("a list of {}", items.by_name.len()))));
            }
            None => self.alike.is_less = true,
            Some(_) if places(text) != places(again) => {
                self.fact("the order of contents", Some(&json!("another")), Some(&json!("that of the sources")));
            }
            Some(_) => {}
        }
    }

    /// Both lists; `None` where the receipt had no room for its own. A list that had room is missed.
    fn both<'l, T>(&mut self, field: &'static str, said: &'l List<T>, is: &'l List<T>) -> Option<(&'l [T], &'l [T])> {
        self.alike.is_less |= is.is_there() && !said.is_there();
        if said.had_no_room() && is.is_there() && self.alike.has_room(0) {
            self.fact(field, Some(&Value::Null), Some(&json!(format!("a list of {}", is.items().len()))));
        }
        (said.is_there() && is.is_there()).then(|| (said.items(), is.items()))
    }

    /// Compares the changes tensor by tensor. Another version may tell of other changes; the dtype of stored bits is a
    /// fact in every version.
    fn changes(&mut self, said: &List<Changed>, is: &List<Changed>) {
        let Some((said, is)) = self.both("changes", said, is) else { return };
        let is_ours = self.alike.is_ours;
        let mut left: HashMap<&str, &Changed> = is.iter().map(|changed| (&*changed.name, changed)).collect();
        let (mut first, mut others) = (None, 0);
        for said in said {
            let is = left.remove(&*said.name);
            let (bits, told) = is.map_or((&Value::Null, None), |is| (&is.bits_of, Some(&is.changes)));
            let has_other_bits = said.bits_of != *bits;
            if has_other_bits || is_ours && told != Some(&said.changes) {
                let is = if has_other_bits { json!({"bits_of": bits}) } else { json!(told) };
                let claimed = if has_other_bits { json!({"bits_of": said.bits_of}) } else { json!(said.changes) };
                others += usize::from(first.is_some());
                first.get_or_insert((&*said.name, claimed, is));
            }
        }
        let mut missed: Vec<&Changed> = left.into_values().collect();
        missed.sort_by_key(|changed| &*changed.name);
        for is in missed.into_iter().filter(|is| is_ours || !is.bits_of.is_null()) {
            others += usize::from(first.is_some());
            first.get_or_insert((&*is.name, Value::Null, json!(is.changes)));
        }
        if let Some((name, said, is)) = first {
            let field = format!("the change of {:?}{}", truncated(name), and_more(others));
            self.fact(&field, Some(&said), Some(&is));
        } else if is_ours {
            self.order("changes", said.iter().map(|said| &*said.name), is.iter().map(|is| &*is.name));
        }
    }

    /// Compares why tensors were left out, and their order; other checks compare which.
    fn left_out(&mut self, said: &List<LeftOut>, is: &List<LeftOut>) {
        let Some((said, is)) = self.both("left_out", said, is) else { return };
        let reasons: HashMap<&str, &str> = is.iter().map(|left| (&*left.name, &*left.reason)).collect();
        let other = said.iter().find_map(|left| {
            let is = reasons.get(&*left.name).filter(|is| **is != left.reason)?;
            Some((&left.reason, *is))
        });
        if let Some((said, is)) = other.filter(|_| self.alike.is_ours) {
            self.fact("the reason in left_out", Some(&json!(said)), Some(&json!(is)));
        } else if said.len() != is.len() {
            self.fact("the length of left_out", Some(&json!(said.len())), Some(&json!(is.len())));
        } else {
            self.order("left_out", said.iter().map(|said| &*said.name), is.iter().map(|is| &*is.name));
        }
    }

    /// Compares the order of two lists of names.
    fn order<'n>(
        &mut self,
        list: &str,
        mut said: impl Iterator<Item = &'n str>,
        mut is: impl Iterator<Item = &'n str>,
    ) {
        let pair = std::iter::from_fn(|| Some((said.next()?, is.next()?))).find(|(said, is)| said != is);
        if let Some((said, is)) = pair {
            self.fact(&format!("the order of {list}"), Some(&json!([said, "…"])), Some(&json!([is, "…"])));
        }
    }

    /// Compares whether there is a frame, and why not; other checks prove the frame.
    fn frame(&mut self, said: &Claims, is: &Claims) {
        let (why, own) = (said.frame_left_out.as_deref(), is.frame_left_out.as_deref());
        let (has, had) = (said.frame.is_some(), is.frame.is_some());
        // A frame that was handed on is compared with values, of which the plan knows nothing.
        let later = why.filter(|why| [frame::OF_ANOTHER, frame::CHANGED].contains(why));
        if let Some(why) = later.filter(|_| !has && had && !said.history.items().is_empty()) {
            self.note(format!("why the frame was left out, by the receipt: {why}"));
        } else if has != had {
            let words = |has: bool| if has { json!("there") } else { Value::Null };
            self.fact("frame", Some(&words(has)), Some(&words(had)));
        } else if why != own && self.alike.is_ours {
            self.fact("frame_left_out", Some(&json!(why)), Some(&json!(own)));
        }
    }

    /// Compares all other fields.
    fn fields(&mut self, said: &Map<String, Value>, is: &Map<String, Value>) {
        if let Some(Difference { path, said, is }) = self.alike.fields(said, is) {
            self.fact(&path, Some(&said), Some(&is));
        }
        // Each step that follows a net names the same net.
        let mut noted = Vec::new();
        for Difference { path, said, is } in std::mem::take(&mut self.alike.unproven) {
            let said = said.get("name").unwrap_or(&said);
            let is = if is.is_null() { "not found".to_owned() } else { shown(Some(&is)) };
            let note = format!("{path}, which is {} in the receipt, and here {is}", shown(Some(said)));
            if !noted.contains(&note) {
                noted.push(note.clone());
                self.note(note);
            }
        }
    }

    fn note(&mut self, unproven: String) {
        (self.report)(Remark::Note(format!("not checked: {unproven}")));
    }

    fn finish(self, tool: Option<&str>) -> bool {
        let Self { alike, count, report } = self;
        if !alike.is_ours {
            let tool = truncated(tool.unwrap_or("a tool without a name"));
            report(Remark::Note(format!("words not compared: made by {tool}")));
        }
        count == 0 && alike.is_ours && !alike.is_less
    }
}

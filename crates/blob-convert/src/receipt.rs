//! The receipt: the origin of the tensors, the changes, the tensors that were left out, and each tensor's digest.
//!
//! The text has the same length before and after the digests are known, so that a header can be laid out first.

mod account;
mod bits;
mod contents;
mod fields;

use blake3::Hash;
use blob_core::DType;
use blob_io::{Checkpoint, Error, Kind, TensorName};
use serde_json::{Value, json};

use crate::change::{Change, Effect};
use crate::hash::Digests;
use crate::history::{KEY, histories_of, long_lists, mark_merged, receipt_text, warnings};
use crate::model;
use crate::options::{Options, refuse};
use crate::planned::{LeftOut, Planned, SourceFile};
use crate::transform::{Registry, Selection, Transform};
pub use account::{Account, Changed};
use bits::{Bits, NO_ROOM, note_bits};
use contents::Contents;
pub(crate) use contents::{had_room, places};
use fields::{Fields, of_several};

/// The schema of receipts, and the name of the tool that writes receipts.
pub(crate) const SCHEMA: &str = "blob.receipt/1";
pub(crate) const TOOL: &str = concat!("blob ", env!("CARGO_PKG_VERSION"));

/// The longest receipt that we write, not counting a folder's list of files: our readers accept 4 MiB of metadata.
pub(crate) const MAX_TEXT: usize = (4 << 20) - 4096;

/// A receipt whose digests are not known yet.
#[derive(Debug)]
pub(crate) struct Receipt {
    /// The fields of each source, without the digests.
    sources: Vec<Fields>,
    /// Whether the sources stand in a list, as in a file that is made of several.
    is_list: bool,
    /// All other fields as a JSON object, without the frame and the contents.
    rest: String,
    /// The frame as JSON.
    frame: Option<String>,
    contents: Contents,
    pub(crate) sha256: bool,
    pub(crate) is_untransformed: bool,
    /// Why the source cannot be restored byte for byte.
    pub(crate) frame_left_out: Option<String>,
    /// The steps that cannot be repeated, because the receipt has no room for the settings.
    pub(crate) unproven: Vec<String>,
    /// The lists of a merged file that the receipt has no room for, in words.
    pub(crate) shortened: Vec<&'static str>,
}

impl Receipt {
    pub(crate) fn new(
        checkpoint: &Checkpoint,
        options: &Options,
        tensors: &[Planned],
        left_out: &[LeftOut],
        files: &[String],
        metadata: &[(String, String)],
        frame: Result<Value, &str>,
    ) -> Result<Self, Error> {
        let about = options.about(checkpoint);
        let mut rest = json!({
            "schema": SCHEMA,
            "tool": TOOL,
            "tensors": tensors.len(),
            "changes": changes(tensors),
            "sparse": sparse(checkpoint, tensors),
            "left_out": bounded(left_out.iter().map(|left| json!({"name": left.name, "reason": left.reason}))),
            "frame": frame.as_ref().ok(),
        });
        let fields = rest.as_object_mut().into_iter();
        let mark = options.mark.iter().map(|mark| ("recipe".to_owned(), json!(mark)));
        fields.for_each(|fields| fields.extend(about.rest.clone().into_iter().chain(mark.clone())));
        if !options.transforms.is_empty() {
            let steps = options.transforms.iter();
            rest["transforms"] =
                steps.map(|step| json!({"name": step.name(), "settings": options.settings(&**step)})).collect();
        }
        if options.is_part {
            rest["part"] = json!(true);
        }
        if let Some(net) = &options.told_by {
            rest["told_by"] = json!(net);
        }
        if let Some(model) = &options.model {
            let graph = model::blake3(model, tensors, metadata).map_err(|e| e.about(checkpoint.name()))?;
            rest["graph_blake3"] = json!(graph.to_hex().as_str());
        }
        let contents = Contents::new(tensors, files)?;
        let room = MAX_TEXT - if files.is_empty() { contents.len() } else { 0 };
        let mut source = Value::Object(about.source.clone());
        if !shorten_with_bits(&mut source, &mut rest, room, tensors) {
            return Err(refuse(checkpoint, no_room(&rest).to_owned()));
        }
        let unproven = unproven(&rest, &options.registry);
        let frame_left_out =
            rest["frame"].is_null().then(|| frame.err().unwrap_or("there was no room for it").to_owned());
        if let Some(why) = &frame_left_out {
            rest["frame_left_out"] = json!(why);
        }
        let frame = rest.as_object_mut().and_then(|rest| rest.remove("frame"));
        let frame = frame.filter(|frame| !frame.is_null()).map(|frame| frame.to_string());
        let (sha256, is_untransformed) = (options.sha256, options.transforms.is_empty());
        let (sources, rest) = (vec![Fields::new(&source, checkpoint)], rest.to_string());
        let shortened = Vec::new();
        Ok(Self {
            sources,
            is_list: false,
            rest,
            frame,
            contents,
            sha256,
            is_untransformed,
            frame_left_out,
            unproven,
            shortened,
        })
    }

    /// The receipt of a file that is made of the tensors of several others.
    pub(crate) fn of_several(
        files: &[SourceFile<'_>],
        tensors: &[Planned],
        is_prefixed: bool,
        selection: &Selection,
    ) -> Result<Self, Error> {
        let sources: Vec<Value> = files.iter().map(of_several).collect();
        let sparse = files.iter().flat_map(|file| sparse(file.checkpoint, &tensors[file.tensors.clone()]));
        let mut rest = json!({
            "schema": SCHEMA,
            "tool": TOOL,
            "tensors": tensors.len(),
            "prefixed": is_prefixed,
            "changes": changes(tensors),
            "sparse": sparse.collect::<Vec<_>>(),
            "warnings": files.iter().flat_map(|source| warnings(source.checkpoint)).collect::<Vec<_>>(),
            "history": histories_of(files.iter().filter_map(|source| receipt_text(source.checkpoint))),
        });
        if !selection.is_all() {
            rest["select"] = selection.settings();
        }
        let mut contents = Contents::new(tensors, &[])?;
        let sources = sources.iter().zip(files);
        let mut sources: Vec<Fields> = sources.map(|(source, file)| Fields::new(source, file.checkpoint)).collect();
        let of_sources = sources.iter().map(|source| source.fill(None, false).len()).sum::<usize>();
        let mut shortened = Vec::new();
        if contents.len() + of_sources > MAX_TEXT - ROOM_FOR_REST {
            contents = contents.without_list();
            shortened.push("the digest of each tensor");
        }
        let mut room = MAX_TEXT - contents.len();
        if of_sources > room - ROOM_FOR_REST {
            sources.clear();
            shortened.push("its sources");
            rest["sources_left_out"] = json!("there was no room for them");
            mark_merged(&mut rest["history"]);
        } else {
            room -= of_sources;
        }
        if !shorten_with_bits(&mut Value::Null, &mut rest, room, tensors) {
            return Err(Error::Request { file: String::new(), message: no_room(&rest).to_owned() });
        }
        Ok(Self {
            shortened,
            sources,
            is_list: true,
            rest: rest.to_string(),
            frame: None,
            contents,
            sha256: false,
            is_untransformed: true,
            frame_left_out: None,
            unproven: Vec::new(),
        })
    }

    /// The changes that tell of gaps: steps that cannot be repeated, and a missing frame.
    pub(crate) fn lacking(&self, options: &Options) -> Vec<Change> {
        let mut changes = Vec::new();
        if !self.unproven.is_empty() {
            let steps = self.unproven.join(", ");
            let words = format!("the receipt has no room for what {steps} did: `blob verify` cannot repeat it");
            changes.push(Change::unasked(Effect::Dropped(words.into())));
        }
        let is_way_back = options.transforms.is_empty() && !options.dense;
        changes.extend(self.frame_left_out.as_ref().filter(|_| is_way_back).map(|why| {
            let why = format!("the way back will not give the same bytes: {why}").into();
            Change::unasked(Effect::WayBack { why })
        }));
        changes
    }

    /// Whether the receipt has a frame.
    pub(crate) fn has_frame(&self) -> bool {
        self.frame.is_some()
    }

    /// Key and text with zeros in place of the digests.
    pub(crate) fn placeholder(&self) -> (String, String) {
        (KEY.to_owned(), self.fill(None))
    }

    /// Key and text with the digests by source.
    pub(crate) fn finished(&self, digests: &[Digests]) -> (String, String) {
        (KEY.to_owned(), self.fill(Some(digests)))
    }

    fn fill(&self, digests: Option<&[Digests]>) -> String {
        let sources = self.sources.iter().enumerate();
        let sources = sources.map(|(place, source)| source.fill(digests.map(|all| &all[place]), self.sha256));
        let sources = sources.collect::<Vec<_>>().join(",");
        let sources = if self.sources.is_empty() {
            String::new()
        } else if self.is_list {
            format!("\"sources\":[{sources}],")
        } else {
            format!("\"source\":{sources},")
        };
        let tensors: Option<Vec<Hash>> =
            digests.map(|all| all.iter().flat_map(|digests| &digests.tensors).copied().collect());
        let contents = self.contents.fields(tensors.as_deref());
        // JSON allows spaces before a number.
        let lost = if self.is_untransformed {
            String::new()
        } else {
            let (lost, zeroed) = digests.map_or((0, 0), |all| (all[0].lost, all[0].zeroed));
            format!("\"lost_values\":{lost:>20},\"zeroed_values\":{zeroed:>20},")
        };
        let frame = self.frame_field(digests.and_then(|all| all.first()?.frame_left_out));
        format!("{{{sources}{contents},{lost}{frame}{}", &self.rest[1..])
    }

    /// The field with the frame, or as many bytes that say why the frame is left out, in ASCII without quotes.
    fn frame_field(&self, left_out: Option<&str>) -> String {
        let (is_conversion, frame) = (!self.is_list, self.frame.as_deref().unwrap_or("null"));
        let field = if is_conversion { format!("\"frame\":{frame},") } else { String::new() };
        let Some(why) = left_out.filter(|_| self.frame.is_some()) else { return field };
        // A file may escape the text, so that quotes count twice: a backslash stands for each that is missing. JSON
        // allows spaces between fields, and a frame is longer, because its digest alone has 64 digits.
        let missing = field.matches('"').count().saturating_sub(r#""frame""frame_left_out""""#.matches('"').count());
        let escaped: String = why.chars().take(missing).map(|c| format!("\\u{:04x}", u32::from(c))).collect();
        let rest: String = why.chars().skip(missing).collect();
        format!("{:<1$}", format!("\"frame\":null,\"frame_left_out\":\"{escaped}{rest}\","), field.len())
    }
}

/// As [`shorten`]; a list of bf16 replaces a list of changes that has no room. Returns whether all of that has room.
fn shorten_with_bits(source: &mut Value, rest: &mut Value, room: usize, tensors: &[Planned]) -> bool {
    shorten(source, rest, room);
    if rest["changes"].is_null() {
        note_bits(rest, tensors.iter().map(|t| (&*t.spec.name, Bits::of(t.spec.dtype, t.keeps_bf16))));
        shorten(source, rest, room);
        return source.to_string().len() + rest.to_string().len() <= room;
    }
    true
}

/// Replaces the longest lists by `null` until the two objects fit into `room`. Steps keep the names and the short
/// settings, since a later conversion must know which steps were done.
fn shorten(source: &mut Value, rest: &mut Value, room: usize) {
    let mut len = source.to_string().len() + rest.to_string().len();
    if len <= room {
        return;
    }
    let mut lists: Vec<(usize, &mut Value)> = Vec::new();
    for (name, value) in [source, rest].into_iter().filter_map(Value::as_object_mut).flatten() {
        match &**name {
            "bf16_as_u16" | "u16" => {}
            "transforms" => lists.extend(lists_of_steps(value)),
            "history" => {
                let origins = value.as_array_mut().into_iter().flatten();
                lists.extend(origins.filter_map(|origin| origin.get_mut("transforms")).flat_map(lists_of_steps));
            }
            _ if value.is_array() || value.is_object() => lists.push((value.to_string().len(), value)),
            _ => {}
        }
    }
    lists.sort_unstable_by_key(|(len, _)| *len);
    while len > room
        && let Some((longest, list)) = lists.pop()
    {
        *list = Value::Null;
        len -= longest.saturating_sub("null".len());
    }
}

/// The long lists in the settings of steps, with the length of each text.
fn lists_of_steps(steps: &mut Value) -> impl Iterator<Item = (usize, &mut Value)> {
    let steps = steps.as_array_mut().into_iter().flatten();
    let settings = steps.filter_map(|step| step.get_mut("settings"));
    settings.flat_map(long_lists)
}

/// The steps whose settings are missing, or cut so that the step cannot be read.
fn unproven(rest: &Value, registry: &Registry) -> Vec<String> {
    let steps = rest["transforms"].as_array().into_iter().flatten();
    let cut = steps.filter(|step| match &step["settings"] {
        Value::Null => true,
        Value::Object(all) => all.values().any(Value::is_null) && is_unread(step, registry),
        _ => false,
    });
    cut.filter_map(|step| step["name"].as_str().map(str::to_owned)).collect()
}

/// Whether the settings of a step cannot be read.
fn is_unread(step: &Value, registry: &Registry) -> bool {
    step["name"].as_str().is_some_and(|name| registry.read(name, &step["settings"]).is_err())
}

/// The room that the other fields of a merged file's receipt have at least: the lists among them are shortened to it.
const ROOM_FOR_REST: usize = 1 << 20;

/// Why a file is refused whose receipt has no room for what must stay in it.
fn no_room(rest: &Value) -> &'static str {
    if rest["bf16_as_u16"].is_array() || rest["u16"].is_array() { NO_ROOM } else { TOO_LONG }
}

/// The reason where the lists of dtypes are none.
const TOO_LONG: &str = "has so long a history, of one source or of many, that the receipt has no room for it";

/// The changes of tensors; `null` for a list that no receipt has room for, of which the rest is not made.
fn changes(tensors: &[Planned]) -> Value {
    let changed = tensors.iter().filter(|t| !t.changes.is_empty());
    let change = |tensor: &Planned| {
        let words: Vec<String> = tensor.changes.iter().map(ToString::to_string).collect();
        let mut change = json!({"name": tensor.spec.name, "changes": words});
        if tensor.keeps_bf16 {
            change["bits_of"] = json!(DType::BF16.name());
        }
        change
    };
    bounded(changed.map(change))
}

/// A list, or `null` where the list is longer than any receipt.
fn bounded(items: impl Iterator<Item = Value>) -> Value {
    let (mut list, mut len) = (Vec::new(), 0);
    for item in items {
        len += item.to_string().len() + 1;
        if len > MAX_TEXT {
            return Value::Null;
        }
        list.push(item);
    }
    Value::Array(list)
}

/// The sparse arrays that were written as parts: name, kind and shape, with which a reader joins the parts again.
fn sparse(checkpoint: &Checkpoint, tensors: &[Planned]) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    let mut last = None;
    for tensor in tensors {
        let entry = &checkpoint.entries()[tensor.entry];
        let Some(sparse) = tensor.sparse(checkpoint) else {
            continue;
        };
        // Under a name of another kind, the tensor is a part of nothing.
        if TensorName::of(&tensor.spec.name).kind == Kind::Data {
            continue;
        }
        if last != Some(entry.position()) {
            all.push(json!({
                "name": tensor.whole_name(sparse),
                "kind": sparse.kind.name(),
                "shape": sparse.shape.dims(),
            }));
            last = Some(entry.position());
        }
    }
    all
}

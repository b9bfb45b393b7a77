//! Caffe files as entries: which message a file is, and the walk over the message.
//!
//! Messages carry no mark, so the top-level fields must tell, and where no file name suggests Caffe a value or a layer
//! as well: TensorFlow, ONNX and Core ML use the same numbers for other things. The walk reads tags, lengths and names;
//! payloads are passed over.

use crate::caffe::generation::Generation;
use crate::caffe::layer;
use crate::caffe::proto_fields::blob_proto::{CHANNELS, DATA, DIFF, DOUBLE_DATA, DOUBLE_DIFF, HEIGHT, SHAPE};
use crate::caffe::proto_fields::nv_blob_proto::{RAW_DATA, RAW_DATA_TYPE, RAW_DIFF, RAW_DIFF_TYPE};
use crate::caffe::proto_fields::{BLOB_PROTO, BLOB_PROTO_VECTOR, DATUM, NET_PARAMETER, SOLVER_STATE};
use crate::caffe::proto_fields::{blob_proto_vector, datum, net_parameter, solver_state};
use crate::caffe::schema::Field;
use crate::caffe::{blob, unnamed};
use crate::error::{FaultKind, ReadError};
use crate::format::Format;
use crate::limits::Limits;
use crate::names::{NameTable, name_from_bytes};
use crate::warning::Flag;
use crate::wire::cursor::Cursor;
use crate::wire::protobuf::{self, Span, Wire};

/// Caffe's own reader refuses a longer file.
const CAFFE_LIMIT: u64 = i32::MAX as u64;

/// The longest name or type that counts as a sign of a layer.
const LONGEST_TEXT: u64 = 1 << 10;

/// So many blobs are sign enough of a layer.
const MANY_BLOBS: u64 = 1 << 12;

/// Lists the arrays of a file that is one of Caffe's messages; returns the message's format and dialect. `None` for
/// other bytes. `hint` is the format that the file's name suggests.
pub(crate) fn any(
    cursor: &mut Cursor<'_>,
    hint: Option<Format>,
    table: &mut NameTable,
) -> Result<Option<(Format, String)>, ReadError> {
    match classify(cursor, hint)? {
        Some(format) => Ok(Some((format, message(cursor, format, table)?))),
        None => Ok(None),
    }
}

/// Lists the arrays of a message of a known format; returns the dialect.
pub(crate) fn message(cursor: &mut Cursor<'_>, format: Format, table: &mut NameTable) -> Result<String, ReadError> {
    match format {
        Format::BlobProto => unnamed::blob_proto(cursor, table),
        Format::BlobProtoVector => unnamed::vector(cursor, table),
        Format::SolverState => unnamed::solver(cursor, table),
        Format::Datum => unnamed::datum(cursor, table),
        _ => net(cursor, table),
    }
}

/// Tells which Caffe message the bytes are, by the top-level fields; `hint` decides where several messages have such
/// fields. `None` for other bytes. Reading stops at the first broken field, which the walk will report.
pub(crate) fn classify(cursor: &mut Cursor<'_>, hint: Option<Format>) -> Result<Option<Format>, ReadError> {
    let seen = survey(cursor)?;
    let hint = hint.filter(|format| format.is_caffe());
    // Any bytes begin with something like a field: unless the file's name suggests Caffe, all bytes must be fields.
    if seen.damaged && hint.is_none() {
        return Ok(None);
    }
    let Some(format) = by_fields(cursor, &seen, hint)? else {
        return Ok(None);
    };
    // Other frameworks use the same numbers: unless the file's name suggests Caffe, the content must.
    let is_clear = hint.is_some() || has_content(cursor, format, seen.first, seen.layer)?;
    Ok(is_clear.then_some(format))
}

/// Why bytes are no message of the expected format.
pub(crate) enum Misread {
    Other(Format),
    /// The bytes have no field of the expected message.
    Nothing,
}

/// Why the bytes are no message of the format `named`, as far as the fields show; `None` if the bytes may be one.
pub(crate) fn misread(cursor: &mut Cursor<'_>, named: Format) -> Result<Option<Misread>, ReadError> {
    let seen = survey(cursor)?;
    if has_content(cursor, named, seen.first, seen.layer)? {
        return Ok(None);
    }
    match classify(cursor, None)?.filter(|found| *found != named) {
        Some(found) => Ok(Some(Misread::Other(found))),
        None => Ok((seen.is_whole && !seen.has_fields_of(named)).then_some(Misread::Nothing)),
    }
}

/// Whether the bytes stop being protobuf before the end. An end that comes too early is no damage.
pub(crate) fn is_damaged(cursor: &mut Cursor<'_>) -> bool {
    survey(cursor).is_ok_and(|seen| seen.damaged)
}

/// Lists a NetParameter's blobs. Returns the generations found, in words.
fn net(cursor: &mut Cursor<'_>, table: &mut NameTable) -> Result<String, ReadError> {
    let whole = Span::whole(cursor);
    let (mut v0, mut v1, mut v2) = (false, false, false);
    cursor.seek(0);
    while let Some(tag) = protobuf::tag(cursor, whole.end)? {
        match (tag.number, tag.wire) {
            (net_parameter::NAME, Wire::Len) => {
                let field = protobuf::field(cursor, tag, whole.end, "the net's name")?;
                let name = layer::text(cursor, Some(field), "the net's name")?;
                table.note("name", name_from_bytes(&name).into_owned());
            }
            (net_parameter::LAYERS | net_parameter::LAYER, Wire::Len) => {
                let span = match layer::take(cursor, whole, "a layer") {
                    Ok(span) => span,
                    Err(stop) => {
                        let subject = layer::subject(cursor, tag, table.positions);
                        layer::walk_cut(cursor, table, tag)?;
                        return Err(stop.within(subject));
                    }
                };
                match layer::walk(cursor, table, tag, span)? {
                    Generation::V0 => v0 = true,
                    Generation::V1 => v1 = true,
                    Generation::V2 => v2 = true,
                }
            }
            _ => protobuf::skip(cursor, tag, whole.end)?,
        }
    }
    if v2 && (v0 || v1) {
        table.warn(None, "both `layer` and `layers` are stored; Caffe refuses such a file, we read all of them");
    }
    if v0 && v1 {
        table.warn(None, "V0 and V1 layers are mixed; Caffe drops the weights of the V1 ones, we read all of them");
    }
    if whole.end > CAFFE_LIMIT {
        table.warn(None, "the file is over 2 GiB; Caffe itself cannot read it");
    }
    Ok(match (v0, v1, v2) {
        (false, false, false) => "no layers".to_owned(),
        _ => {
            let all = [(v0, "V0"), (v1, "V1"), (v2, "V2")];
            let found: Vec<_> = all.iter().filter(|(has, _)| *has).map(|(_, g)| *g).collect();
            format!("{} layers", found.join(" and "))
        }
    })
}

/// Which top-level fields a message has, by number and wire type.
#[derive(Default)]
struct Seen {
    varint: u64,
    len: u64,
    fixed: u64,
    hundred: bool,
    /// How many length-delimited fields 1 there are.
    ones: u32,
    /// The first length-delimited field 1, 2 and 3.
    first: [Option<Span>; 3],
    /// The first layer of a net of today.
    layer: Option<Span>,
    /// Whether the walk ended at bytes that are not protobuf, rather than at the end of a cut file.
    damaged: bool,
    /// Whether every byte was walked.
    is_whole: bool,
}

impl Seen {
    fn varint(&self, numbers: &[u32]) -> bool {
        numbers.iter().any(|n| self.varint & 1 << n != 0)
    }

    fn len(&self, numbers: &[u32]) -> bool {
        numbers.iter().any(|n| self.len & 1 << n != 0)
    }

    /// Whether the bytes have a field of the message, by the numbers and types in `caffe.proto` of BVLC/caffe
    /// `9b891540`.
    fn has_fields_of(&self, format: Format) -> bool {
        let message = match format {
            Format::BlobProto => &BLOB_PROTO,
            Format::BlobProtoVector => &BLOB_PROTO_VECTOR,
            Format::SolverState => &SOLVER_STATE,
            Format::Datum => &DATUM,
            _ => &NET_PARAMETER,
        };
        // Fields of forks, and values of another wire type, are the reader's to name.
        let is_blob = format == Format::BlobProto
            && (self.varint(&[DATA, RAW_DIFF_TYPE])
                || self.any(&[DOUBLE_DATA, DOUBLE_DIFF, RAW_DATA_TYPE, RAW_DATA, RAW_DIFF]));
        is_blob || self.hundred && format == Format::CaffeModel || message.fields.iter().any(|field| self.has(field))
    }

    fn has(&self, field: &Field) -> bool {
        field.number < 64
            && (field.fits(Wire::Varint) && self.varint(&[field.number])
                || field.fits(Wire::Len) && self.len(&[field.number])
                || field.fits(Wire::Fixed32) && self.any(&[field.number]))
    }

    fn any(&self, numbers: &[u32]) -> bool {
        self.len(numbers) || numbers.iter().any(|n| self.fixed & 1 << n != 0)
    }
}

/// The message that has such fields.
fn by_fields(cursor: &mut Cursor<'_>, seen: &Seen, hint: Option<Format>) -> Result<Option<Format>, ReadError> {
    let values = seen.any(&[DATA, DOUBLE_DATA, DOUBLE_DIFF])
        || seen.len(&[SHAPE, RAW_DATA_TYPE, RAW_DIFF_TYPE, RAW_DATA, RAW_DIFF]);
    Ok(if seen.hundred {
        Some(Format::CaffeModel)
    } else if seen.varint(&[solver_state::ITER]) {
        if seen.len(&[7]) && seen.len(&[2, 8]) {
            None // ONNX: ir_version, producer_name, graph, opset_import
        } else if seen.len(&[solver_state::LEARNED_NET, solver_state::HISTORY]) {
            Some(Format::SolverState)
        } else if values {
            Some(Format::BlobProto)
        } else if seen.len(&[datum::DATA]) || seen.varint(&[datum::LABEL, datum::ENCODED]) {
            Some(Format::Datum)
        } else if seen.any(&[datum::FLOAT_DATA]) {
            hint.or(Some(Format::Datum))
        } else if seen.varint(&[CHANNELS, HEIGHT]) {
            hint.or(Some(Format::BlobProto))
        } else {
            hint.or(Some(Format::SolverState))
        }
    } else if seen.len(&[net_parameter::LAYERS]) {
        Some(Format::CaffeModel)
    } else if seen.ones > 0 {
        let vector = seen.ones > 1 || looks_like_blob(cursor, seen.first[0])?;
        Some(if vector && !seen.len(&[net_parameter::INPUT]) { Format::BlobProtoVector } else { Format::CaffeModel })
    } else if values || seen.any(&[DIFF]) {
        Some(Format::BlobProto)
    } else if seen.len(&[datum::DATA]) {
        Some(Format::Datum)
    } else if seen.len(&[net_parameter::INPUT]) {
        Some(Format::CaffeModel)
    } else {
        hint
    })
}

fn survey(cursor: &mut Cursor<'_>) -> Result<Seen, ReadError> {
    let mut seen = Seen::default();
    let whole = Span::whole(cursor);
    cursor.seek(0);
    loop {
        let step = protobuf::tag(cursor, whole.end).and_then(|tag| {
            let Some(tag) = tag else { return Ok(None) };
            let at = cursor.pos();
            protobuf::skip(cursor, tag, whole.end)?;
            Ok(Some((tag, at)))
        });
        let (tag, at) = match step {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(Seen { is_whole: true, ..seen }),
            Err(ReadError::Fault(fault)) => {
                seen.damaged = !matches!(fault.kind, FaultKind::Truncated { .. });
                return Ok(seen);
            }
            Err(stop) => return Err(stop),
        };
        let bit = if tag.number < 64 { 1 << tag.number } else { 0 };
        match tag.wire {
            Wire::Varint => seen.varint |= bit,
            Wire::Len => seen.len |= bit,
            _ => seen.fixed |= bit,
        }
        seen.ones += u32::from(tag.number == blob_proto_vector::BLOBS && tag.wire == Wire::Len);
        if let (1..=3 | net_parameter::LAYER, Wire::Len) = (tag.number, tag.wire) {
            let end = cursor.pos();
            cursor.seek(at);
            let span = protobuf::span(cursor, whole.end, "a field")?;
            cursor.seek(end);
            let slot = match tag.number {
                net_parameter::LAYER => &mut seen.layer,
                n => &mut seen.first[n as usize - 1],
            };
            slot.get_or_insert(span);
        }
        // One layer is proof enough, and a large model has many.
        if tag.number == net_parameter::LAYER && tag.wire == Wire::Len {
            seen.hundred = true;
            return Ok(seen);
        }
    }
}

/// Whether the bytes of a field 1 are a blob and not a net's name.
fn looks_like_blob(cursor: &mut Cursor<'_>, span: Option<Span>) -> Result<bool, ReadError> {
    let Some(span) = span else { return Ok(false) };
    match blob::walk(cursor, span, &Limits::default()) {
        Ok(fields) => Ok(fields.has_values()),
        Err(ReadError::Fault(_)) => Ok(false),
        Err(stop) => Err(stop),
    }
}

/// Whether the message has an array with values, or a layer. `first` are the first fields 1 to 3, `layer` is field 100.
fn has_content(
    cursor: &mut Cursor<'_>,
    format: Format,
    first: [Option<Span>; 3],
    layer: Option<Span>,
) -> Result<bool, ReadError> {
    let all = Span::whole(cursor);
    let shown = match format {
        Format::BlobProto => has_blob(cursor, Some(all)),
        Format::BlobProtoVector => has_blob(cursor, first[0]),
        Format::SolverState => has_blob(cursor, first[2]),
        Format::Datum => has_datum(cursor),
        _ => match (layer, first[1]) {
            (Some(span), _) => has_layer(cursor, span, net_parameter::LAYER),
            (None, Some(span)) => has_layer(cursor, span, net_parameter::LAYERS),
            (None, None) => Ok(false),
        },
    };
    match shown {
        Err(ReadError::Fault(_)) => Ok(false),
        other => other,
    }
}

/// A BlobProto with a shape and as many values.
fn has_blob(cursor: &mut Cursor<'_>, span: Option<Span>) -> Result<bool, ReadError> {
    let Some(span) = span else { return Ok(false) };
    let fields = match blob::walk(cursor, span, &Limits::default()) {
        Ok(fields) => fields,
        // Values in too many pieces are still values.
        Err(ReadError::Fault(fault)) => return Ok(matches!(fault.kind, FaultKind::Limit { .. })),
        Err(stop) => return Err(stop),
    };
    if !fields.has_shape() {
        return Ok(false);
    }
    let (data, _) = fields.into_entries(0, 0);
    Ok(data.fault.is_none() && data.byte_len() > 0)
}

/// A Datum with as many values as the dimensions say, or with an encoded image.
fn has_datum(cursor: &mut Cursor<'_>) -> Result<bool, ReadError> {
    let mut table = NameTable::new(&Limits::default());
    unnamed::datum(cursor, &mut table)?;
    let [entry] = &table.into_entries()[..] else { return Ok(false) };
    let Some(at) = entry.offset().filter(|_| entry.fault.is_none()) else { return Ok(false) };
    cursor.seek(at);
    let is_image = matches!(cursor.at_hand(at + 2)?, [0xFF, 0xD8, ..] | [0x89, b'P', ..]);
    Ok(is_image || !entry.flags.has(Flag::Encoded))
}

/// A layer with a name or a type; one of before 2015 also with a blob that has values.
fn has_layer(cursor: &mut Cursor<'_>, span: Span, number: u32) -> Result<bool, ReadError> {
    let table = NameTable::new(&Limits { max_arrays: MANY_BLOBS, ..Limits::default() });
    let draft = match layer::draft(cursor, &table, number, span) {
        Ok(drafted) => drafted,
        // Nothing else has so many fields in this place.
        Err(ReadError::Fault(fault)) if matches!(fault.kind, FaultKind::Limit { .. }) => return Ok(true),
        Err(stop) => return Err(stop),
    };
    for field in [draft.name, draft.type_name].into_iter().flatten() {
        if is_text(cursor, field.content)? {
            return Ok(true);
        }
    }
    for blob in draft.blobs.iter().filter(|_| draft.generation != Generation::V2) {
        if has_blob(cursor, Some(blob.content))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A text of a character or more, none of which controls a terminal.
fn is_text(cursor: &mut Cursor<'_>, span: Span) -> Result<bool, ReadError> {
    if span.len() == 0 || span.len() > LONGEST_TEXT {
        return Ok(false);
    }
    cursor.seek(span.start);
    let bytes = cursor.bytes(span.len(), span.end, LONGEST_TEXT, "a text")?;
    let text = std::str::from_utf8(&bytes);
    Ok(text.is_ok_and(|text| !text.chars().any(char::is_control)))
}

//! The topology in a `.caffemodel`: Caffe writes the description of each layer together with its blobs.
//!
//! Reads the fields that describe a layer, of every generation; skips blobs and all other fields. The numbers are those
//! of BVLC/caffe `9b891540`, and 137 is also that of `bn_param` in the forks that PSPNet was trained with.

use crate::caffe::draft::{Fields, INPUT_SHAPE, Inputs};
use crate::caffe::layer::take;
use crate::caffe::protobuf::{self, Span, Tag, Wire};
use crate::entry::{Entry, Kind};
use crate::error::ReadError;
use crate::limits::LONGEST_NAME;
use crate::names::name_from_bytes;
use crate::net::{Builder, Net};
use crate::wire::cursor::Cursor;

/// Reads the net in a NetParameter. `entries` are the file's.
pub(crate) fn read(cursor: &mut Cursor<'_>, entries: &[Entry]) -> Result<Net, ReadError> {
    let whole = Span { start: 0, end: cursor.file_len() };
    let mut reader = Reader { cursor };
    let mut builder = Builder::new();
    let mut position = 0;
    reader.inputs(whole)?.declare(&mut builder);
    reader.cursor.seek(0);
    while let Some(tag) = protobuf::tag(reader.cursor, whole.end)? {
        if !matches!((tag.number, tag.wire), (2 | 100, Wire::Len)) {
            protobuf::skip(reader.cursor, tag, whole.end)?;
            continue;
        }
        let span = take(reader.cursor, whole, "a layer")?;
        let mut fields = Fields::default();
        let is_v2 = tag.number == 100;
        let layer = reader.layer(span, is_v2, &mut fields);
        layer.map_err(|stop| stop.within(format!("layer #{position} {:?}", fields.name)))?;
        builder.push(fields.into_draft(is_v2, Some(blobs(entries, position))), tag.offset)?;
        reader.cursor.seek(span.end);
        position += 1;
    }
    Ok(builder.finish())
}

/// The names of the data entries of the layer at a position, in the order of its blobs.
fn blobs(entries: &[Entry], position: u32) -> Vec<String> {
    let first = entries.partition_point(|entry| entry.position < position);
    let own = entries[first..].iter().take_while(|entry| entry.position == position);
    own.filter(|entry| entry.kind == Kind::Data).map(|entry| entry.name().to_owned()).collect()
}

struct Reader<'c, 's> {
    cursor: &'c mut Cursor<'s>,
}

impl Reader<'_, '_> {
    /// The inputs that the net names itself; in V1 they come behind its layers.
    fn inputs(&mut self, whole: Span) -> Result<Inputs, ReadError> {
        let mut inputs = Inputs::default();
        self.cursor.seek(0);
        while let Some(tag) = protobuf::tag(self.cursor, whole.end)? {
            match (tag.number, tag.wire) {
                (3, Wire::Len) => {
                    let name = self.text(whole, "an input's name")?;
                    inputs.name(name);
                }
                (4, Wire::Varint) => {
                    let extent = protobuf::varint(self.cursor, whole.end, "input_dim")?;
                    inputs.extent(4, stated(extent));
                }
                (8, Wire::Len) => {
                    inputs.begin_shape();
                    for extent in self.shape(whole)? {
                        inputs.extent(usize::MAX, extent);
                    }
                }
                _ => protobuf::skip(self.cursor, tag, whole.end)?,
            }
        }
        Ok(inputs)
    }

    /// The extents in a BlobShape.
    fn shape(&mut self, within: Span) -> Result<Vec<u64>, ReadError> {
        let span = take(self.cursor, within, "a shape")?;
        self.cursor.seek(span.start);
        let mut extents = Vec::new();
        while let Some(tag) = protobuf::tag(self.cursor, span.end)? {
            match (tag.number, tag.wire) {
                (1, Wire::Varint) => extents.push(stated(protobuf::varint(self.cursor, span.end, "dim")?)),
                (1, Wire::Len) => {
                    let packed = take(self.cursor, span, "dim")?;
                    self.cursor.seek(packed.start);
                    while self.cursor.pos() < packed.end {
                        extents.push(stated(protobuf::varint(self.cursor, packed.end, "dim")?));
                        extents.truncate(blob_core::MAX_AXES);
                    }
                }
                _ => protobuf::skip(self.cursor, tag, span.end)?,
            }
            extents.truncate(blob_core::MAX_AXES);
        }
        self.cursor.seek(span.end);
        Ok(extents)
    }

    fn layer(&mut self, span: Span, is_v2: bool, fields: &mut Fields) -> Result<(), ReadError> {
        self.cursor.seek(span.start);
        while let Some(tag) = protobuf::tag(self.cursor, span.end)? {
            let number = tag.number;
            let known = if is_v2 { v2(number) } else { v1(number) };
            match (known, tag.wire) {
                (Some(LayerField::Text(field)), Wire::Len) => {
                    let text = self.text(span, field)?;
                    let _ = fields.set("", field, &text);
                }
                (Some(LayerField::Text(field @ "type")), Wire::Varint) if !is_v2 => {
                    let value = protobuf::varint(self.cursor, span.end, field)?;
                    let _ = fields.set("", field, &value.to_string());
                }
                (Some(LayerField::Message(of)), Wire::Len) => {
                    let inner = take(self.cursor, span, of)?;
                    fields.is_conditional |= matches!(of, "include" | "exclude");
                    match of {
                        "layer" => fields.begin_v0(),
                        "param" => fields.begin_param(),
                        _ => {}
                    }
                    self.message(inner, of, fields)?;
                    self.cursor.seek(inner.end);
                }
                _ => protobuf::skip(self.cursor, tag, span.end)?,
            }
        }
        Ok(())
    }

    /// Reads the fields of a message in a layer. Their values always have the types of their wire types, so none is
    /// refused.
    fn message(&mut self, span: Span, of: &'static str, fields: &mut Fields) -> Result<(), ReadError> {
        self.cursor.seek(span.start);
        while let Some(tag) = protobuf::tag(self.cursor, span.end)? {
            if (of, tag.number, tag.wire) == ("input_param", 1, Wire::Len) {
                fields.begin_shape();
                for extent in self.shape(span)? {
                    let _ = fields.set(INPUT_SHAPE, "dim", &extent.to_string());
                }
                continue;
            }
            let Some((of, field)) = field_of(of, tag) else {
                protobuf::skip(self.cursor, tag, span.end)?;
                continue;
            };
            match tag.wire {
                Wire::Varint => {
                    let value = protobuf::varint(self.cursor, span.end, field)?;
                    let _ = fields.set(of, field, &(value as i64).to_string());
                }
                Wire::Fixed32 => {
                    let value = f32::from_le_bytes(self.cursor.array(span.end, field)?);
                    let _ = fields.set(of, field, &value.to_string());
                }
                Wire::Len if matches!(field, "name" | "type") => {
                    let text = self.text(span, field)?;
                    let _ = fields.set(of, field, &text);
                }
                // Packed numbers.
                Wire::Len => {
                    let packed = take(self.cursor, span, field)?;
                    self.cursor.seek(packed.start);
                    while self.cursor.pos() < packed.end {
                        let value = protobuf::varint(self.cursor, packed.end, field)?;
                        let _ = fields.set(of, field, &(value as i64).to_string());
                    }
                }
                _ => protobuf::skip(self.cursor, tag, span.end)?,
            }
        }
        Ok(())
    }

    fn text(&mut self, within: Span, field: &'static str) -> Result<String, ReadError> {
        let span = take(self.cursor, within, field)?;
        self.cursor.seek(span.start);
        let bytes = self.cursor.bytes(span.len(), span.end, LONGEST_NAME, field)?;
        Ok(name_from_bytes(&bytes).into_owned())
    }
}

/// A field of a layer.
enum LayerField {
    /// A text, or an enum's number.
    Text(&'static str),
    Message(&'static str),
}

fn v2(number: u32) -> Option<LayerField> {
    Some(match number {
        1 => LayerField::Text("name"),
        2 => LayerField::Text("type"),
        3 => LayerField::Text("bottom"),
        4 => LayerField::Text("top"),
        6 => LayerField::Message("param"),
        8 => LayerField::Message("include"),
        9 => LayerField::Message("exclude"),
        106 => LayerField::Message("convolution_param"),
        121 => LayerField::Message("pooling_param"),
        117 => LayerField::Message("inner_product_param"),
        137 => LayerField::Message("embed_param"),
        139 => LayerField::Message("batch_norm_param"),
        141 => LayerField::Message("bias_param"),
        142 => LayerField::Message("scale_param"),
        143 => LayerField::Message("input_param"),
        146 => LayerField::Message("recurrent_param"),
        _ => return None,
    })
}

fn v1(number: u32) -> Option<LayerField> {
    Some(match number {
        1 => LayerField::Message("layer"),
        2 => LayerField::Text("bottom"),
        3 => LayerField::Text("top"),
        4 => LayerField::Text("name"),
        5 => LayerField::Text("type"),
        10 => LayerField::Message("convolution_param"),
        17 => LayerField::Message("inner_product_param"),
        19 => LayerField::Message("pooling_param"),
        32 => LayerField::Message("include"),
        33 => LayerField::Message("exclude"),
        1001 => LayerField::Text("param"),
        _ => return None,
    })
}

/// The message that a field belongs to and the field's name. Forks give some messages the numbers of others.
fn field_of(of: &'static str, tag: Tag) -> Option<(&'static str, &'static str)> {
    let field = match (of, tag.number) {
        ("layer" | "param", 1) => "name",
        ("layer", 2) => "type",
        ("layer", 3) | ("inner_product_param" | "convolution_param" | "embed_param" | "recurrent_param", 1) => {
            "num_output"
        }
        ("layer", 4) | ("inner_product_param" | "convolution_param", 2) | ("embed_param", 3) | ("scale_param", 4) => {
            "bias_term"
        }
        ("layer", 8) | ("convolution_param", 4) | ("pooling_param", 2) => "kernel_size",
        ("layer", 7) | ("convolution_param", 3) | ("pooling_param", 4) => "pad",
        ("layer", 10) | ("convolution_param", 6) | ("pooling_param", 3) => "stride",
        ("convolution_param", 11) | ("pooling_param", 5) => "kernel_h",
        ("convolution_param", 12) | ("pooling_param", 6) => "kernel_w",
        ("convolution_param", 13) | ("pooling_param", 7) => "stride_h",
        ("convolution_param", 14) | ("pooling_param", 8) => "stride_w",
        ("convolution_param", 9) | ("pooling_param", 9) => "pad_h",
        ("convolution_param", 10) | ("pooling_param", 10) => "pad_w",
        ("convolution_param", 18) => "dilation",
        ("pooling_param", 12) => "global_pooling",
        ("pooling_param", 13) => "round_mode",
        ("layer", 9) | ("convolution_param", 5) => "group",
        ("convolution_param", 16) | ("inner_product_param", 5) | ("scale_param" | "bias_param", 1) => "axis",
        ("scale_param" | "bias_param", 2) => "num_axes",
        ("inner_product_param", 6) => "transpose",
        ("recurrent_param", 5) => "expose_hidden",
        ("batch_norm_param", 1) => "use_global_stats",
        ("batch_norm_param", 3) => "eps",
        ("embed_param", 4) if tag.wire == Wire::Fixed32 => return Some(("bn_param", "eps")),
        ("include" | "exclude", 1) => "phase",
        _ => return None,
    };
    let is_text = matches!(field, "name" | "type");
    let is_float = field == "eps";
    let fits = match tag.wire {
        Wire::Len => is_text || matches!(field, "kernel_size" | "pad" | "stride" | "dilation"),
        Wire::Fixed32 => is_float,
        Wire::Varint => !is_text && !is_float,
        _ => false,
    };
    fits.then_some((of, field))
}

/// An extent of a shape, 0 where the net leaves it open, as -1.
fn stated(varint: u64) -> u64 {
    u64::try_from(varint as i64).unwrap_or(0)
}

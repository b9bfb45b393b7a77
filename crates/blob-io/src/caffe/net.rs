//! The topology in a `.caffemodel`: Caffe writes the description and the blobs of each layer together.
//!
//! One visitor of the schema passes on the settings of the net and of the layers, of every generation; skips blobs. Of
//! the fields of unknown forks the number alone is passed on.

use crate::caffe::attributes::Budget;
use crate::caffe::draft::{LayerFields, UNDERSTOOD};
use crate::caffe::inputs::Inputs;
use crate::caffe::layer::take;
use crate::caffe::padding::{NO_PADDING, Paddings};
use crate::caffe::proto_fields::{
    BLOB_PROTO, EMBED_PARAMETER, LAYER_PARAMETER, NET_PARAMETER, V1_LAYER_PARAMETER, net_parameter,
};
use crate::caffe::schema::{Field, FieldType, Message, one};
use crate::caffe::value::{Receiver, Value};
use crate::entry::{Entry, Kind};
use crate::error::{Fault, FaultKind, ReadError};
use crate::limits::{LONGEST_NAME, Limits};
use crate::names::name_from_bytes;
use crate::net::{Builder, Framework, Net};
use crate::wire::cursor::Cursor;
use crate::wire::protobuf::{self, Span, Tag, Wire};

/// Reads the net in a NetParameter. `entries` are the file's.
pub(crate) fn read(cursor: &mut Cursor<'_>, entries: &[Entry], limits: &Limits) -> Result<Net, ReadError> {
    let whole = Span::whole(cursor);
    let mut reader = Reader { cursor };
    let (mut builder, mut budget) = (Builder::new(Framework::Caffe), Budget::new(limits.max_alloc));
    let (mut position, mut paddings) = (0, Paddings::default());
    // V1 stores the inputs behind the layers.
    let mut inputs = Inputs::default();
    reader.message(whole, &NET_PARAMETER, &mut Vec::new(), &mut inputs)?;
    inputs.declare(&mut builder);
    reader.cursor.seek(0);
    while let Some(tag) = protobuf::tag(reader.cursor, whole.end)? {
        let (net_parameter::LAYERS | net_parameter::LAYER, Wire::Len) = (tag.number, tag.wire) else {
            protobuf::skip(reader.cursor, tag, whole.end)?;
            continue;
        };
        let span = take(reader.cursor, whole, "a layer")?;
        let is_v2 = tag.number == net_parameter::LAYER;
        let mut fields = LayerFields::new(is_v2, &budget);
        let message = if is_v2 { &LAYER_PARAMETER } else { &V1_LAYER_PARAMETER };
        let layer = reader.message(span, message, &mut Vec::new(), &mut fields);
        let layer = layer.and_then(|()| Ok(fields.count(&mut budget, tag.offset)?));
        layer.map_err(|stop| stop.within(format!("layer #{position} {:?}", fields.name)))?;
        let is_padding = fields.is_padding();
        let folded = paddings.fold(fields.into_draft(Some(blobs(entries, position))), is_padding);
        let folded = folded.map_err(|found| Fault::new(tag.offset, FaultKind::words(NO_PADDING, found)))?;
        if let Some(draft) = folded {
            builder.push(draft, tag.offset)?;
        }
        position += 1;
    }
    Ok(builder.finish())
}

/// The names of the data entries of the layer at a position, in the order of the blobs.
fn blobs(entries: &[Entry], position: u32) -> Vec<String> {
    let first = entries.partition_point(|entry| entry.position < position);
    let own = entries[first..].iter().take_while(|entry| entry.position == position);
    own.filter(|entry| entry.kind == Kind::Data).map(|entry| entry.name().to_owned()).collect()
}

struct Reader<'c, 's> {
    cursor: &'c mut Cursor<'s>,
}

impl Reader<'_, '_> {
    /// Passes the settings in a message on. `path` names the messages around this message, from the layer's own field
    /// on. No message of the schema contains itself, so this ends.
    fn message(
        &mut self,
        span: Span,
        message: &'static Message,
        path: &mut Vec<&'static str>,
        fields: &mut dyn Receiver,
    ) -> Result<(), ReadError> {
        self.cursor.seek(span.start);
        while let Some(tag) = protobuf::tag(self.cursor, span.end)? {
            let Some(field) = message.field(tag.number).filter(|field| field.fits(tag.wire)) else {
                self.unfit(span, message, path, tag, fields)?;
                continue;
            };
            match (&field.kind, tag.wire) {
                (FieldType::Message(inner), _) if !std::ptr::eq(*inner, &BLOB_PROTO) => {
                    let content = take(self.cursor, span, field.name)?;
                    path.push(field.name);
                    let read = if fields.open(path) { self.message(content, inner, path, fields) } else { Ok(()) };
                    path.pop();
                    match read {
                        // A fork may store something else under this number.
                        Err(ReadError::Fault(_)) if path.is_empty() && !UNDERSTOOD.contains(&field.name) => {
                            fields.strange(path, tag.number, content.len());
                        }
                        read => read?,
                    }
                    self.cursor.seek(content.end);
                }
                (FieldType::Text, _) if fields.reads(path, field) => {
                    let text = self.text(span, field.name)?;
                    fields.state(path, field, Value::Text(&text));
                }
                (FieldType::Message(_) | FieldType::Bytes | FieldType::Double | FieldType::Text, _) => {
                    protobuf::skip(self.cursor, tag, span.end)?;
                }
                (_, Wire::Len) => {
                    let packed = take(self.cursor, span, field.name)?;
                    self.cursor.seek(packed.start);
                    while self.cursor.pos() < packed.end {
                        self.number(packed, path, field, fields)?;
                    }
                }
                _ => self.number(span, path, field, fields)?,
            }
        }
        Ok(())
    }

    /// Reads a number.
    fn number(
        &mut self,
        within: Span,
        path: &[&str],
        field: &'static Field,
        fields: &mut dyn Receiver,
    ) -> Result<(), ReadError> {
        let value = match field.kind {
            FieldType::Float => Value::Float(f32::from_le_bytes(self.cursor.array(within.end, field.name)?)),
            _ => Value::Int(protobuf::varint(self.cursor, within.end, field.name)? as i64),
        };
        fields.state(path, field, value);
        Ok(())
    }

    /// Skips a field that is not the schema's, and passes its number on. The forks that PSPNet was trained with have
    /// `bn_param` in the place of `embed_param`, with eps as a float in field 4.
    fn unfit(
        &mut self,
        span: Span,
        message: &Message,
        path: &[&str],
        tag: Tag,
        fields: &mut dyn Receiver,
    ) -> Result<(), ReadError> {
        static EPS: Field = one(4, "eps", FieldType::Float);
        if std::ptr::eq(message, &EMBED_PARAMETER) && tag.number == EPS.number && EPS.fits(tag.wire) {
            return self.number(span, &["bn_param"], &EPS, fields);
        }
        let from = self.cursor.pos();
        protobuf::skip(self.cursor, tag, span.end)?;
        fields.strange(path, tag.number, self.cursor.pos() - from);
        Ok(())
    }

    fn text(&mut self, within: Span, field: &'static str) -> Result<String, ReadError> {
        let span = take(self.cursor, within, field)?;
        self.cursor.seek(span.start);
        let bytes = self.cursor.bytes(span.len(), span.end, LONGEST_NAME, field)?;
        Ok(name_from_bytes(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caffe::prototxt;

    fn field(number: u32, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![(number << 3 | 2) as u8 | 0x80, (number >> 4) as u8, content.len() as u8];
        bytes.extend(content);
        bytes
    }

    fn attributes(net: &Net) -> Vec<(String, String)> {
        net.layers().iter().flat_map(|layer| layer.attributes()).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
    }

    /// A file of weights and a prototxt state the settings of a layer under the same names, with the same values.
    #[test]
    fn settings_are_those_of_the_text() {
        let lrn = [[0x08, 7, 0x15].as_slice(), &2.5_f32.to_le_bytes(), &[0x20, 1]].concat();
        let bytes = field(
            100,
            &[
                field(1, b"a"),
                vec![10 << 3, 1],
                field(121, &[0x08, 1, 0x60, 0]),
                field(118, &lrn),
                field(133, &[0x0A, 15, 0x08, 0, 0x0A, 11, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
            ]
            .concat(),
        );
        let text = br#"layer { name: "a" phase: TEST pooling_param { pool: AVE global_pooling: false }
            lrn_param { local_size: 7 alpha: 2.5 norm_region: WITHIN_CHANNEL }
            reshape_param { shape { dim: [0, 1, -1] } } }"#;
        let stored = read(&mut Cursor::new(&crate::Bytes(&bytes[..])), &[], &Limits::default()).expect("a net");
        let stated = attributes(&prototxt("net.prototxt", text).expect("a net"));
        assert_eq!(attributes(&stored), stated);
        assert!(stated.contains(&("reshape_param.shape.dim".to_owned(), "0,1,-1".to_owned())), "{stated:?}");
    }

    /// A field of no message, of another wire type, and a message that is none: each is named by its number.
    #[test]
    fn fields_of_forks_are_settings_named_by_number() {
        let pooling = field(121, &[0x08, 1, 0x98, 0x06, 7, 0x15, 0, 0, 0, 0, 0x28, 3]);
        let more = [field(300, b"abc"), vec![0x80, 0x7D, 1], field(1000, &[0xAA]), field(111, b"text")].concat();
        let bytes = field(100, &[field(1, b"a"), pooling, more].concat());
        let net = read(&mut Cursor::new(&crate::Bytes(&bytes[..])), &[], &Limits::default()).expect("a net");
        let found = attributes(&net);
        let found: Vec<(&str, &str)> = found.iter().map(|(name, text)| (&**name, &**text)).collect();
        let wanted = [
            ("pooling_param.pool", "AVE"),
            ("pooling_param.#99", "1 byte"),
            ("pooling_param.#2", "4 bytes"),
            ("pooling_param.kernel_h", "3"),
            ("#300", "4 bytes"),
            ("#2000", "1 byte"),
            ("#1000", "2 bytes"),
            ("#111", "4 bytes"),
        ];
        assert_eq!(found, wanted);
    }

    /// A fork's message under a number of Caffe's is left out, where the layer's kind and tensors do not depend on the
    /// number.
    #[test]
    fn a_fork_s_message_is_left_out() {
        let net = |number| field(100, &[field(1, b"a"), field(number, b"text")].concat());
        let read = |bytes: &[u8]| read(&mut Cursor::new(&crate::Bytes(bytes)), &[], &Limits::default());
        assert_eq!(read(&net(111)).expect("a net").layers().len(), 1);
        assert!(read(&net(106)).is_err());
    }
}

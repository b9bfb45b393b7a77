//! Removes layers from a net's description: the layer before each then writes the removed layer's output, so that later
//! layers read the same names.
//!
//! Relies on the layers that `caffe/tree` finds, and reads the names in the layers' fields; `plan` makes the bytes.
//! Does not remove layers of 2013 and 2014, nor layers whose position in the net is uncertain.

use std::collections::{BTreeSet, HashMap};

use crate::caffe::layer;
use crate::caffe::proto_fields::LAYER_PARAMETER;
use crate::caffe::proto_fields::layer_parameter::{
    BATCH_NORM_PARAM, BLOBS, BOTTOM, CONVOLUTION_PARAM, EMBED_PARAM, EXCLUDE, INCLUDE, INNER_PRODUCT_PARAM, NAME,
    PARAM, PHASE, PROPAGATE_DOWN, SCALE_PARAM, TOP, TYPE,
};
use crate::caffe::proto_fields::net_parameter::LAYER;
use crate::caffe::schema::FieldType;
use crate::caffe::tree::{self, Layer};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, ReadError};
use crate::names::name_from_bytes;
use crate::wire::cursor::Cursor;
use crate::wire::protobuf::{self, Field, Span, Wire};
use crate::work::visit;

/// The fields that may be lost with a layer: the type, parameters' rates, blobs, the phase that Caffe writes into every
/// layer, `propagate_down`, and the messages of BN (in forks, with Embed's number), BatchNorm and Scale.
const LOST: &[u32] =
    &[NAME, TYPE, BOTTOM, TOP, PARAM, BLOBS, PHASE, PROPAGATE_DOWN, EMBED_PARAM, BATCH_NORM_PARAM, SCALE_PARAM];
/// The messages of convolutions and fully connected layers.
const WITH_BIAS: &[u32] = &[CONVOLUTION_PARAM, INNER_PRODUCT_PARAM];
/// The most names of values that are read from one net.
const MAX_NAMES: usize = 1 << 20;

/// The inputs and outputs of a net's layers. The maps hold the layers that are not gone, so that a removal looks at the
/// layers around it alone.
#[derive(Debug, Default)]
pub(super) struct Wiring {
    layers: Vec<LayerWiring>,
    /// Whether each layer is of V2, from 2014 on.
    is_v2: bool,
    by_name: HashMap<String, BTreeSet<usize>>,
    users: HashMap<Vec<u8>, Users>,
}

/// The layers that use one value.
#[derive(Debug, Default)]
struct Users {
    read: BTreeSet<usize>,
    /// Those that write the value and do not read it.
    write: BTreeSet<usize>,
}

#[derive(Debug, Default)]
pub(super) struct LayerWiring {
    pub(super) name: String,
    bottoms: Vec<Vec<u8>>,
    pub(super) tops: Vec<Top>,
    /// The first field that must not be lost with the layer.
    kept: Option<u32>,
    is_in_one_phase: bool,
    pub(super) is_gone: bool,
}

/// A value that a layer writes.
#[derive(Debug)]
pub(super) struct Top {
    pub(super) field: Field,
    pub(super) name: Vec<u8>,
    pub(super) is_renamed: bool,
}

impl LayerWiring {
    fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.bottoms.iter().chain(self.tops.iter().map(|top| &top.name)).map(|name| &name[..])
    }

    fn reads(&self, value: &[u8]) -> bool {
        self.bottoms.iter().any(|bottom| bottom == value)
    }
}

impl Wiring {
    /// Reads the layers' own fields, which are small; skips blobs.
    pub(super) fn read(base: &Checkpoint, layers: &[Layer]) -> Result<Self, Error> {
        let mut cursor = Cursor::new(base.source());
        let mut names = 0;
        let is_v2 = layers.iter().all(|layer| layer.field.is_some_and(|field| field.number == LAYER));
        let mut wiring = Self { is_v2, ..Self::default() };
        for layer in layers {
            let read = layer_wiring(&mut cursor, layer).map_err(|e| e.into_error(base.name()))?;
            names += read.names().count();
            if names > MAX_NAMES {
                let message = format!("names over {MAX_NAMES} values in its layers, and no layer of it is taken out");
                return Err(Error::Request { file: base.name().to_owned(), message });
            }
            wiring.push(read);
        }
        Ok(wiring)
    }

    fn push(&mut self, layer: LayerWiring) {
        let index = self.layers.len();
        self.by_name.entry(layer.name.clone()).or_default().insert(index);
        for bottom in &layer.bottoms {
            self.users.entry(bottom.clone()).or_default().read.insert(index);
        }
        for top in layer.tops.iter().filter(|top| !layer.reads(&top.name)) {
            self.users.entry(top.name.clone()).or_default().write.insert(index);
        }
        self.layers.push(layer);
    }

    pub(super) fn all(&self) -> &[LayerWiring] {
        &self.layers
    }

    /// Removes a layer. The error says why not, as text that follows the layer's name.
    pub(super) fn remove(&mut self, name: &str) -> Result<(), String> {
        let named = self.by_name.get(name).filter(|layers| layers.len() == 1);
        let Some(index) = named.and_then(|layers| layers.first().copied()) else {
            return Err("is not exactly one layer of the net".to_owned());
        };
        if !self.is_v2 {
            return Err("is of a net of V0 or V1, before 2014".to_owned());
        }
        let layer = &self.layers[index];
        if layer.is_in_one_phase {
            return Err("is in some phases of the net only".to_owned());
        }
        if let Some(number) = layer.kept {
            return Err(format!("has a field {number}, which would be lost"));
        }
        let (bottom, top) = match (&layer.bottoms[..], &layer.tops[..]) {
            // The file has no inputs and outputs of layers.
            ([], []) => {
                self.take_out(index);
                return Ok(());
            }
            ([bottom], [top]) => (bottom.clone(), top.name.clone()),
            _ => return Err("does not read one value and write one".to_owned()),
        };
        let before = self.writer(index, &bottom, &top)?;
        self.take_out(index);
        if bottom != top {
            let written = self.layers[before].tops.iter_mut().filter(|written| written.name == bottom);
            written.for_each(|written| (written.name, written.is_renamed) = (top.clone(), true));
            // Its readers stay: the next removal is told that nothing before them writes the value.
            self.users.entry(bottom).or_default().write.remove(&before);
            self.users.entry(top).or_default().write.insert(before);
        }
        Ok(())
    }

    fn take_out(&mut self, index: usize) {
        let layer = &mut self.layers[index];
        layer.is_gone = true;
        if let Some(named) = self.by_name.get_mut(&layer.name) {
            named.remove(&index);
        }
        for name in layer.names() {
            if let Some(users) = self.users.get_mut(name) {
                users.read.remove(&index);
                users.write.remove(&index);
            }
        }
    }

    /// The one layer that writes the input of the layer at `index`; an error if another layer reads or writes this
    /// value too.
    fn writer(&self, index: usize, bottom: &[u8], top: &[u8]) -> Result<usize, String> {
        let text = |name: &[u8]| format!("{:?}", name_from_bytes(name));
        let is_in_place = bottom == top;
        let none = Users::default();
        let users = self.users.get(bottom).unwrap_or(&none);
        // After a layer that works in place, other layers may read the name, but none may write the name again.
        let end = if is_in_place { index } else { self.layers.len() };
        let readers = users.read.range(..end).filter(|other| **other != index).take(2);
        let writers = users.write.iter().filter(|other| **other != index).take(2);
        let two: BTreeSet<usize> = readers.chain(writers).inspect(|_| visit(0, 1)).copied().collect();
        let mut two = two.into_iter();
        let Some(before) = two.next().filter(|before| *before < index) else {
            return Err(format!("reads {}, which no layer before it writes", text(bottom)));
        };
        let writer = &self.layers[before];
        if writer.reads(bottom) {
            return Err(format!("reads {}, which {:?} reads too", text(bottom), writer.name));
        }
        if let Some(other) = two.next() {
            let other = &self.layers[other].name;
            return Err(format!("reads {}, which {other:?} reads or writes too", text(bottom)));
        }
        if writer.is_in_one_phase {
            return Err(format!("follows {:?}, which is in some phases of the net only", writer.name));
        }
        let of_top = self.users.get(top).filter(|_| !is_in_place).unwrap_or(&none);
        let first = [&of_top.read, &of_top.write].into_iter().filter_map(|layers| layers.first().copied()).min();
        match first.filter(|first| *first < index) {
            Some(other) => {
                let other = &self.layers[other].name;
                Err(format!("writes {}, which {other:?} reads or writes before it", text(top)))
            }
            None => Ok(before),
        }
    }
}

fn layer_wiring(cursor: &mut Cursor<'_>, layer: &Layer) -> Result<LayerWiring, ReadError> {
    let mut layer_wiring = LayerWiring::default();
    let Some(field) = layer.field.filter(|field| field.number == LAYER) else {
        return Ok(layer_wiring);
    };
    cursor.seek(field.content.start);
    while let Some(tag) = protobuf::tag(cursor, field.content.end)? {
        layer_wiring.is_in_one_phase |= matches!(tag.number, INCLUDE | EXCLUDE);
        if !LOST.contains(&tag.number) {
            layer_wiring.kept.get_or_insert(tag.number);
        }
        if !(matches!(tag.number, NAME | BOTTOM | TOP) && tag.wire == Wire::Len) {
            protobuf::skip(cursor, tag, field.content.end)?;
            continue;
        }
        let read = protobuf::field(cursor, tag, field.content.end, "a layer's name")?;
        let text = layer::text(cursor, Some(read), "a layer's name")?;
        match tag.number {
            NAME => layer_wiring.name = name_from_bytes(&text).into_owned(),
            BOTTOM => layer_wiring.bottoms.push(text),
            _ => layer_wiring.tops.push(Top { field: read, name: text, is_renamed: false }),
        }
    }
    Ok(layer_wiring)
}

/// Where a V2 layer says that there is no bias: the first byte of that number, which is 0, and the byte that makes the
/// number 1.
pub(super) fn without_bias(cursor: &mut Cursor<'_>, layer: &Layer) -> Result<Option<(Span, u8)>, ReadError> {
    let Some(field) = layer.field.filter(|field| field.number == LAYER) else {
        return Ok(None);
    };
    let mut messages = Vec::new();
    tree::each(cursor, field.content, |field| {
        let message = LAYER_PARAMETER.field(field.number).filter(|_| WITH_BIAS.contains(&field.number));
        if let Some(FieldType::Message(message)) = message.map(|field| &field.kind) {
            messages.extend(message.named("bias_term").map(|bias_term| (field.content, bias_term.number)));
        }
    })?;
    let mut found = None;
    for (message, bias_term) in messages {
        cursor.seek(message.start);
        while let Some(tag) = protobuf::tag(cursor, message.end)? {
            let start = cursor.pos();
            if (tag.number, tag.wire) != (bias_term, Wire::Varint) {
                protobuf::skip(cursor, tag, message.end)?;
                continue;
            }
            // The last one counts.
            let is_false = protobuf::varint(cursor, message.end, "bias_term")? == 0;
            let end = cursor.pos();
            cursor.seek(start);
            let first = cursor.u8(message.end, "bias_term")?;
            cursor.seek(end);
            found = is_false.then_some((Span { start, end: start + 1 }, first | 1));
        }
    }
    Ok(found)
}

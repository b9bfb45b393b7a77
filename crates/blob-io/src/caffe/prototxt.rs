//! Reads a net's description in protobuf's text format (`.prototxt`), of every generation.
//!
//! Tolerant: unknown fields are skipped, because forks add fields. Bounded in size and depth; an error names the line
//! and the column.

use crate::caffe::attributes::Budget;
use crate::caffe::draft::LayerFields;
use crate::caffe::inputs::Inputs;
use crate::caffe::once::Once;
use crate::caffe::padding::{NO_PADDING, Paddings};
use crate::caffe::text::{Event, Text};
use crate::caffe::value::{Receiver, Value};
use crate::error::{Error, Fault, FaultKind, check_limit};
use crate::limits::Limit;
use crate::net::{Builder, Framework, Net};

/// Longer texts are refused; the largest nets have a few hundred kilobytes.
const MAX_BYTES: u64 = 16 << 20;

/// Reads a prototxt's bytes; errors call the text `name`.
///
/// Tensors are named as in a file of the net's weights: `conv1/0`, `conv1/1`.
///
/// # Errors
/// [`Error::Malformed`](crate::Error::Malformed) with the line and the column, where the bytes are not the text of a
/// message, or have no layer.
pub fn prototxt(name: &str, bytes: &[u8]) -> Result<Net, Error> {
    read(bytes).map_err(|fault| Error::of_fault(name, fault, None))
}

/// The inputs and the state of the net itself, which may stand behind the layers: protobuf prints the inputs of a net
/// of 2013 there.
fn of_net(bytes: &[u8]) -> Result<Inputs, Fault> {
    let (mut text, mut inputs) = (Text::new(bytes), Inputs::default());
    while let Some(event) = text.next()? {
        match (event, text.path()) {
            (_, ["layer" | "layers", ..]) => {}
            (Event::Open, path) => _ = inputs.open(path),
            (Event::Value(field, value), path) => inputs.set(path, field, Value::Text(&value)),
            _ => {}
        }
    }
    Ok(inputs)
}

/// Checks that the field of an event may stand where it does.
fn check_once<'a>(once: &mut Once<'a>, event: &Event<'a>, text: &Text<'a>) -> Result<(), Fault> {
    let field = match (event, text.path()) {
        (Event::Value(field, _), _) | (Event::Open, [.., field]) => *field,
        (Event::Close, _) => {
            once.close();
            return Ok(());
        }
        _ => return Ok(()),
    };
    if !once.admits(field) {
        return Err(text.fault("one value of a field that does not repeat", format!("{field} again")));
    }
    if matches!(event, Event::Open) {
        once.open(field);
    }
    Ok(())
}

fn read(bytes: &[u8]) -> Result<Net, Fault> {
    check_limit(0, Limit::Fixed, "the bytes of a prototxt", bytes.len() as u64, MAX_BYTES)?;
    let mut text = Text::new(bytes);
    let (mut builder, mut budget) = (Builder::new(Framework::Caffe), Budget::new(u64::MAX));
    // The open layer: the fields so far, and the layer's offset.
    let mut open: Option<(LayerFields, u64)> = None;
    of_net(bytes)?.declare(&mut builder);
    let (mut found, mut once, mut paddings) = (false, Once::new(), Paddings::default());
    while let Some(event) = text.next()? {
        check_once(&mut once, &event, &text)?;
        match (event, text.path(), &mut open) {
            (Event::Open, [word], _) if matches!(*word, "layer" | "layers") => {
                open = Some((LayerFields::new(*word == "layer", &budget), text.at()));
            }
            (Event::Open, [_, path @ ..], Some((fields, _))) => _ = fields.open(path),
            (Event::Value(field, value), [_, path @ ..], Some((fields, _))) => {
                fields.set(path, field, Value::Text(&value)).map_err(|expected| {
                    let found = format!("{value:?} as {field}");
                    text.fault(expected, found)
                })?;
            }
            (Event::Close, [], _) => {
                if let Some((fields, at)) = open.take() {
                    fields.count(&mut budget, at)?;
                    found = true;
                    let is_padding = fields.is_padding();
                    let folded = paddings.fold(fields.into_draft(None), is_padding);
                    if let Some(draft) = folded.map_err(|found| text.fault(NO_PADDING, found))? {
                        builder.push(draft, at)?;
                    }
                }
            }
            _ => {}
        }
    }
    if !found {
        return Err(Fault::new(0, FaultKind::words("a net's layers", "none")));
    }
    Ok(builder.finish())
}

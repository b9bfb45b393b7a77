//! Refuses a field that stands twice in a message of a text where Caffe has one of it, as protobuf's parser does.
//!
//! Relies on the table of Caffe's fields; unknown fields, of forks, may repeat.

use crate::caffe::proto_fields::{NET_PARAMETER, POOLING_PARAMETER};
use crate::caffe::schema::{FieldType, Message};

/// The fields of a pooling that forks have for each axis of its window.
const OF_EACH_AXIS: [&str; 3] = ["kernel_size", "stride", "pad"];

/// The fields so far of the open messages, the net first.
pub(super) struct Once<'a>(Vec<Open<'a>>);

/// An open message. The type is `None` for a message that is not Caffe's.
struct Open<'a> {
    message: Option<&'static Message>,
    /// The fields that may not come again.
    seen: Vec<&'a str>,
}

impl<'a> Once<'a> {
    pub(super) fn new() -> Self {
        Self(vec![Open { message: Some(&NET_PARAMETER), seen: Vec::new() }])
    }

    /// Notes a field of the innermost message; whether the field may stand there.
    pub(super) fn admits(&mut self, field: &'a str) -> bool {
        let Some(Open { message, seen }) = self.0.last_mut() else { return true };
        let Some(message) = message else { return true };
        let is_of_each_axis = std::ptr::eq(*message, &POOLING_PARAMETER) && OF_EACH_AXIS.contains(&field);
        if is_of_each_axis || message.named(field).is_none_or(|field| field.is_repeated) {
            return true;
        }
        let is_first = !seen.contains(&field);
        seen.push(field);
        is_first
    }

    /// Opens the message that is a field of the innermost one.
    pub(super) fn open(&mut self, field: &str) {
        let around = self.0.last().and_then(|open| open.message);
        let message = match around.and_then(|message| message.named(field)).map(|field| &field.kind) {
            Some(FieldType::Message(message)) => Some(*message),
            _ => None,
        };
        self.0.push(Open { message, seen: Vec::new() });
    }

    pub(super) fn close(&mut self) {
        self.0.pop();
    }
}

//! The fields of Caffe's messages: the number, the name and the type of each, and whether the field repeats. The rows
//! are generated (`proto_fields`).
//!
//! Knows no bytes. BVLC's numbers stand here, and those of forks that no other fork uses for something else.

use crate::wire::protobuf::Wire;

/// A message's fields, in ascending order of number.
#[derive(Debug)]
pub(crate) struct Message {
    pub(super) fields: &'static [Field],
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    pub(crate) is_repeated: bool,
    pub(crate) kind: FieldType,
}

/// A field's type. Integers of any width and sign are the same on the wire.
#[derive(Debug)]
pub(crate) enum FieldType {
    Int,
    Bool,
    Float,
    Double,
    Text,
    Bytes,
    Enum(&'static [EnumValue]),
    Message(&'static Message),
}

#[derive(Debug)]
pub(crate) struct EnumValue {
    pub(super) number: i64,
    pub(super) name: &'static str,
}

/// A row of a field that occurs once.
pub(super) const fn one(number: u32, name: &'static str, kind: FieldType) -> Field {
    Field { number, name, is_repeated: false, kind }
}

/// A row of a field that repeats.
pub(super) const fn many(number: u32, name: &'static str, kind: FieldType) -> Field {
    Field { number, name, is_repeated: true, kind }
}

impl Message {
    /// The field of this number.
    pub(crate) fn field(&self, number: u32) -> Option<&'static Field> {
        let place = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        self.fields.get(place)
    }

    /// The field of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl Field {
    /// Whether a value of this wire type is the field's. Numbers that repeat may be packed.
    pub(crate) fn fits(&self, wire: Wire) -> bool {
        let of_one = match self.kind {
            FieldType::Int | FieldType::Bool | FieldType::Enum(_) => Wire::Varint,
            FieldType::Float => Wire::Fixed32,
            FieldType::Double => Wire::Fixed64,
            FieldType::Text | FieldType::Bytes | FieldType::Message(_) => Wire::Len,
        };
        wire == of_one || self.is_repeated && wire == Wire::Len
    }

    /// The name of an enum's value; `None` for another type, and for a value that Caffe does not have.
    pub(crate) fn value_name(&self, number: i64) -> Option<&'static str> {
        let FieldType::Enum(values) = self.kind else { return None };
        values.iter().find(|value| value.number == number).map(|value| value.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caffe::proto_fields::{LAYER_PARAMETER, V1_LAYER_PARAMETER};

    #[test]
    fn fields_are_found_by_number_and_by_name() {
        let convolution = LAYER_PARAMETER.field(106).expect("convolution_param");
        assert_eq!(convolution.name, "convolution_param");
        let FieldType::Message(message) = convolution.kind else { panic!("a message") };
        let engine = message.named("engine").expect("engine");
        assert_eq!((engine.number, engine.value_name(2), engine.value_name(7)), (15, Some("CUDNN"), None));
        let kernel = message.named("kernel_size").expect("kernel_size");
        assert!(kernel.is_repeated && kernel.fits(Wire::Len) && !kernel.fits(Wire::Fixed32));
        // Both generations share the messages.
        let Some(FieldType::Message(same)) = V1_LAYER_PARAMETER.named("convolution_param").map(|field| &field.kind)
        else {
            panic!("a message")
        };
        assert!(std::ptr::eq(*same, message));
    }

    /// `field` searches, so the rows must ascend.
    #[test]
    fn numbers_ascend_and_names_are_unique() {
        let mut todo = vec![&LAYER_PARAMETER, &V1_LAYER_PARAMETER];
        let mut done: Vec<&Message> = Vec::new();
        while let Some(message) = todo.pop() {
            if done.iter().any(|known| std::ptr::eq(*known, message)) {
                continue;
            }
            done.push(message);
            assert!(message.fields.windows(2).all(|pair| pair[0].number < pair[1].number), "{:?}", message.fields);
            for field in message.fields {
                let same = message.fields.iter().filter(|other| other.name == field.name);
                assert_eq!(same.count(), 1, "{}", field.name);
                todo.extend(match field.kind {
                    FieldType::Message(inner) => Some(inner),
                    _ => None,
                });
            }
        }
        assert!(done.len() > 60, "{}", done.len());
    }

    /// The reader of a net follows the table into nested messages without a limit on the depth.
    #[test]
    fn no_message_contains_itself() {
        fn check(message: &'static Message, around: &mut Vec<*const Message>) {
            assert!(!around.contains(&std::ptr::from_ref(message)), "{:?}", message.fields);
            around.push(message);
            for field in message.fields {
                if let FieldType::Message(inner) = field.kind {
                    check(inner, around);
                }
            }
            around.pop();
        }
        check(&LAYER_PARAMETER, &mut Vec::new());
        check(&V1_LAYER_PARAMETER, &mut Vec::new());
    }
}

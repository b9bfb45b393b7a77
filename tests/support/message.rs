//! Builds protobuf messages, mostly Caffe's, field by field, including messages that no writer produces.

/// A varint.
pub(crate) fn varint(mut n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while n > 0x7F {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

/// A length-delimited field.
pub(crate) fn len(number: u64, content: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

/// A varint field.
pub(crate) fn var(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

/// A blob's shape.
pub(crate) fn shape(dims: &[u64]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|dim| varint(*dim)).collect();
    len(7, &len(1, &dims))
}

/// A blob's data, packed.
pub(crate) fn floats(values: &[f32]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    len(5, &bytes)
}

/// A layer of a net, with one blob.
pub(crate) fn layer(name: &str, blob: &[u8]) -> Vec<u8> {
    len(100, &[len(1, name.as_bytes()), len(2, b"X"), len(7, blob)].concat())
}

/// The fields of a message, each as its key and its bytes including the key. Shares no code with the reader under test.
pub(crate) fn fields(bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let number = |at: &mut usize| {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = bytes[*at];
            *at += 1;
            value |= u64::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 {
                return value;
            }
        }
    };
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let from = at;
        let key = number(&mut at);
        match key & 7 {
            0 => drop(number(&mut at)),
            1 => at += 8,
            2 => {
                let len = number(&mut at) as usize;
                at += len;
            }
            5 => at += 4,
            3 => {
                while number(&mut at) != (key | 7) - 3 {
                    assert!(at < bytes.len());
                }
            }
            wire => panic!("wire type {wire}"),
        }
        found.push((key, &bytes[from..at]));
    }
    found
}

/// The content of a length-delimited field.
pub(crate) fn content(field: &[u8]) -> &[u8] {
    let key = field.iter().position(|byte| *byte < 128).expect("a key") + 1;
    let len = field[key..].iter().position(|byte| *byte < 128).expect("a length") + 1;
    &field[key + len..]
}

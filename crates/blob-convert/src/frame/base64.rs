//! Base64 of RFC 4648, section 4, with padding: bytes in a receipt's text.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let byte = |i: usize| u32::from(part.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit > part.len() { '=' } else { char::from(DIGITS[value as usize]) });
        }
    }
    text
}

/// `None` for text that is not valid base64.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for part in digits.chunks(4) {
        let mut bits = 0;
        for digit in part {
            bits = bits << 6 | DIGITS.iter().position(|known| known == digit)? as u32;
        }
        let three = (bits << (6 * (4 - part.len()))).to_be_bytes();
        bytes.extend(&three[1..part.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standard_hold_both_ways() {
        let examples =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")];
        for (bytes, text) in examples {
            assert_eq!((&*encode(bytes.as_bytes()), decode(text)), (text, Some(bytes.as_bytes().to_vec())));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
        for odd in ["Zg", "Zg=", "Z===", "Zg=A", "Zm 9", "Zm9v\n", "Zm\u{e9}"] {
            assert_eq!(decode(odd), None, "{odd}");
        }
    }
}

//! The header of safetensors: odd ones have one meaning, broken ones are named with their place.

use crate::support::{archive, changed, open, refusal};

/// A file with this many bytes of data.
fn safetensors(json: &str, data: usize) -> Vec<u8> {
    archive::safetensors(json, &vec![7; data])
}

#[test]
fn headers_of_safetensors_that_are_odd_have_one_meaning() {
    let json = concat!(
        "{ \"b\" : { \"data_offsets\" : [ 8 , 12 ] , \"shape\" : [ ] , \"dtype\" : \"F32\" } , ",
        r#""\u0061\ud83d\ude00\/\"" : {"dtype":"U8","shape":[2,4],"data_offsets":[0,8]},"#,
        r#""empty":{"dtype":"F64","shape":[0],"data_offsets":[8,8]},"#,
        r#""__metadata__":{"k\n":"v"}}"#,
        "  \n"
    );
    let file = open("x.safetensors", &safetensors(json, 12)).unwrap();
    let names: Vec<&str> = file.entries().iter().map(|e| e.name()).collect();
    assert_eq!(names, ["a😀/\"", "empty", "b"]);
    let positions: Vec<usize> = file.entries().iter().map(|e| e.position()).collect();
    assert_eq!(positions, [0, 1, 2]);
    assert_eq!(file.metadata(), [("k\n".to_owned(), "v".to_owned())]);
    assert_eq!(*file.view(&file.entries()[2]).unwrap(), [7; 4]);
    assert!(open("x", &safetensors("{}", 0)).unwrap().entries().is_empty());
    let one = r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
    let trailing = open("x", &safetensors(one, 5)).unwrap();
    assert_eq!(
        trailing.faults()[0].to_string(),
        "at byte 63: expected a file that ends with its tensors, found 3 bytes behind them"
    );
    let huge = format!(r#"{{"__metadata__":{{"a":"{}","b":"kept"}}}}"#, "x".repeat(5 << 20));
    let file = open("x", &safetensors(&huge, 0)).unwrap();
    assert_eq!(file.metadata(), [("b".to_owned(), "kept".to_owned())]);
    assert_eq!(file.warnings()[0].text, "metadata beyond 4 MiB are left out");
}

/// A header; the message.
const BROKEN: &[(&str, &str)] = &[
    (r#"{"a"#, "at byte 11: the header needs 1 bytes, but 0 are left"),
    (r#"{"a":1}"#, "at byte 13: expected a JSON object, found '1'"),
    (r#"{"a":{}}"#, "at byte 9: expected a dtype, found a tensor without it"),
    (r#"{"a":{"dtype":"F32","dtype":"F32"}}"#, "at byte 28: expected each key once, found \"dtype\" again"),
    (r#"{"a":{"extra":[1,}}"#, "at byte 25: expected a JSON value, found '}'"),
    (r#"{"__metadata__":{"a":1}}"#, "at byte 29: expected a JSON string, found '1'"),
    (r#"{"__metadata__":{},"__metadata__":{}}"#, "at byte 27: expected each key once, found \"__metadata__\" again"),
    ("{\"a\n\":{}}", "at byte 11: expected a JSON string, found a control character"),
    (r#"{"\ud83d":{}}"#, "at byte 10: expected a character, found half a surrogate pair"),
    (r#"{"\x":{}}"#, "at byte 10: expected a JSON escape, found \\x"),
    (r#"{"a":{},}"#, "at byte 9: expected a dtype, found a tensor without it"),
];

/// The shape and the offsets of a u8 tensor, what follows the JSON; the message.
const BROKEN_TENSORS: &[(&str, &str, &str, &str)] = &[
    ("[8]", "[0,8]", " x", "at byte 62: expected blanks after the header, found 'x'"),
    ("[8]", "[0,8,9]", "", "at byte 54: data_offsets: expected 2, found 3"),
    ("[8,]", "[0,8]", "", "at byte 38: expected a number, found ']'"),
    ("[08]", "[0,8]", "", "at byte 36: expected a number, found a leading zero"),
    ("[-8]", "[0,8]", "", "at byte 36: expected a number, found '-'"),
    ("[8]", "[8,0]", "", "at byte 54: expected data_offsets in order, found 8 and then 0"),
    ("[8]", "[0,9]", "", "at byte 54: the tensors' data needs 9 bytes, but 8 are left"),
    (
        "[7]",
        "[1,8]",
        "",
        "at byte 61: where the next tensor's data begin (the format allows neither holes nor overlaps): expected 0, found 1",
    ),
];

#[test]
fn broken_headers_of_safetensors_are_named_with_their_place() {
    let texts = BROKEN.iter().map(|(json, expected)| ((*json).to_owned(), expected));
    let tensors = BROKEN_TENSORS.iter().map(|(shape, offsets, rest, expected)| {
        let json = format!(r#"{{"a":{{"dtype":"U8","shape":{shape},"data_offsets":{offsets}}}}}{rest}"#);
        (json, expected)
    });
    for (json, expected) in texts.chain(tensors) {
        let found = refusal("x.safetensors", &safetensors(&json, 8));
        assert_eq!(found, format!("x.safetensors: {expected}"), "{json}");
    }
    let overlap =
        r#"{"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#;
    assert!(refusal("x", &safetensors(overlap, 8)).contains("expected 5, found 4"));
    let twice =
        r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#;
    assert!(refusal("x", &safetensors(twice, 8)).ends_with("at byte 61: expected each key once, found \"a\" again"));
}

#[test]
fn a_header_of_another_length_or_encoding_is_refused() {
    for (json, at, change, expected) in [
        (
            "{}",
            0,
            &100_000_001u64.to_le_bytes()[..],
            "0: the header's length: expected at most 100000000, found 100000001",
        ),
        ("{}", 0, &3u64.to_le_bytes(), "8: the header needs 3 bytes, but 2 are left"),
        (r#"{"_":{}}"#, 10, &[0xFF], "10: expected a JSON string in UTF-8, found other bytes"),
    ] {
        let found = refusal("x.safetensors", &changed(&safetensors(json, 0), at, change));
        assert!(found.ends_with(&format!("at byte {expected}")), "{found}");
    }
}

#[test]
fn a_tensor_of_another_dtype_or_size_is_listed_with_its_fault() {
    let many = format!("[{}1]", "1,".repeat(40));
    for (dtype, shape, expected) in [
        ("f32", "[2]", "at byte 22: expected a dtype of safetensors 0.8, found f32"),
        ("F4", "[3]", "found 12 bits"),
        ("F8_E4M3", "[9]", "the bytes between data_offsets: expected 9, found 8"),
        ("F32", "[3]", "at byte 55: the bytes between data_offsets: expected 12, found 8"),
        ("F32", "[1]", "at byte 55: the bytes between data_offsets: expected 4, found 8"),
        ("U8", "[9223372036854775807,9223372036854775807]", "found 2 axes whose product does not"),
        ("F64", "[9223372036854775807]", "found 1 axes whose product does not"),
        ("U8", &many, "expected at most 32 axes, found 41"),
    ] {
        let json = format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,8]}}}}"#);
        let file = open("x", &safetensors(&json, 8)).unwrap();
        let fault = file.entries()[0].fault().expect(&json).to_string();
        assert!(fault.ends_with(expected), "{json}: {fault}");
        assert!(file.load(&file.entries()[0]).is_err());
    }
    // No whole number of elements: named in bytes.
    let file = open("x", &safetensors(r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,3]}}"#, 3)).unwrap();
    let fault = file.entries()[0].fault().unwrap().to_string();
    assert_eq!(fault, "at byte 55: the bytes between data_offsets: expected 4, found 3");
}

#[test]
fn what_the_reference_passes_over_is_a_warning() {
    let beyond = "a tensor has keys beside dtype, shape and data_offsets; they are passed over";
    let null = "the metadata are null; read as none";
    let tensor = |more: &str| format!(r#"{{"a":{{{more}"dtype":"U8","shape":[2],"data_offsets":[0,2]}}}}"#);
    let mut cases =
        vec![(r#"{"__metadata__": null,"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#.to_owned(), null)];
    let long = format!("\"{}\":0,", "k".repeat(100));
    for more in [
        r#""x":null,"#,
        r#""x":[],"y":{},"#,
        r#""x":[1,-0.5e+3,0,true,false,"\u0041",{"a":[{}]}],"x":2,"#,
        r#""x" : { "dtype" : [ 1 , 2 ] } ,"#,
        &long,
    ] {
        cases.push((tensor(more), beyond));
    }
    for (json, warning) in cases {
        let bytes = safetensors(&json, 2);
        let theirs = safetensors::SafeTensors::deserialize(&bytes).expect(&json);
        let ours = open("x", &bytes).expect(&json);
        assert_eq!(ours.warnings()[0].text, warning, "{json}");
        let tensor = theirs.tensor("a").expect("there");
        assert_eq!(*ours.view(&ours.entries()[0]).unwrap(), *tensor.data());
    }
    let deep = format!("\"x\":{}{},", "[".repeat(200), "]".repeat(200));
    for more in
        [r#""x":01,"#, r#""x":.5,"#, r#""x":1.,"#, r#""x":nul,"#, r#""x":[1,],"#, r#""x":{"a"},"#, r#""x":'a',"#, &deep]
    {
        let bytes = safetensors(&tensor(more), 2);
        assert!(safetensors::SafeTensors::deserialize(&bytes).is_err());
        assert!(open("x.safetensors", &bytes).is_err(), "{more}");
    }
}

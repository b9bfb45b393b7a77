//! The header of safetensors: odd headers have one meaning, and errors in broken ones have an offset.

use crate::support::{archive, changed, compare_cases, open, refusal, trouble};

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

#[test]
fn broken_headers_of_safetensors_are_named_with_their_place() {
    compare_cases("cases/safetensors.txt", |json| trouble("x.safetensors", &safetensors(json, 8)));
    let control = refusal("x.safetensors", &safetensors("{\"a\n\":{}}", 8));
    assert_eq!(control, "x.safetensors: at byte 11: expected a JSON string, found a control character");
}

#[test]
fn a_header_of_another_length_or_encoding_is_refused() {
    for (json, at, change, expected) in [
        (
            "{}",
            0,
            &100_000_001u64.to_le_bytes()[..],
            "0: expected a header of at most 100000000 bytes, found one of 100000001",
        ),
        ("{}", 0, &3u64.to_le_bytes(), "8: the header needs 3 bytes, but 2 are left"),
        (r#"{"_":{}}"#, 10, &[0xFF], "10: expected a JSON string in UTF-8, found other bytes"),
    ] {
        let found = refusal("x.safetensors", &changed(&safetensors(json, 0), at, change));
        assert!(found.ends_with(&format!("at byte {expected}")), "{found}");
    }
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

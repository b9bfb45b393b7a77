//! Prototxts as Caffe takes or refuses them: padding layers of V0, fields that do not repeat.

use blob_io::caffe::prototxt;

/// Caffe's own rule: the reader of a padding layer reads that layer's input, and has the pad, and the layer is gone.
#[test]
fn a_padding_layer_of_2012_is_folded_into_its_reader() {
    let layer = |of: &str, bottom: &str, top: &str| {
        format!("layers {{ layer {{ {of} }} bottom: \"{bottom}\" top: \"{top}\" }}\n")
    };
    let pad =
        |name: &str, pad: u64, bottom: &str| layer(&format!("name: '{name}' type: 'padding' pad: {pad}"), bottom, name);
    let conv =
        |name: &str, bottom: &str| layer(&format!("name: '{name}' type: 'conv' kernelsize: 3 pad: 9"), bottom, name);
    let net = |parts: &[String]| prototxt("net", format!("input: 'data'\n{}", parts.concat()).as_bytes());
    // Two readers of one padding layer, one behind a layer that writes the name again, and a padding layer in place.
    let parts = [
        pad("p", 2, "data"),
        conv("a", "p"),
        layer("name: 'pool' type: 'pool' kernelsize: 2", "p", "pool"),
        layer("name: 'r' type: 'relu'", "a", "p"),
        conv("b", "p"),
        layer("name: 'q' type: 'padding' pad: 4", "b", "b"),
        conv("c", "b"),
        pad("unread", 1, "c"),
    ];
    let folded = net(&parts).expect("a net");
    let rows: Vec<(&str, &str, &[u64])> = folded
        .layers()
        .iter()
        .map(|layer| (&*layer.name, folded.value_name(layer.bottoms[0]), &*layer.window.pad))
        .collect();
    let wanted: [(&str, &str, &[u64]); 5] =
        [("a", "data", &[2]), ("pool", "data", &[2]), ("r", "a", &[]), ("b", "p", &[9]), ("c", "b", &[4])];
    assert_eq!(rows, wanted);
    // Caffe aborts on each of these.
    let concat = "layers { layer { name: 'k' type: 'concat' } bottom: 'a' bottom: 'p' top: 'k' }".to_owned();
    for (parts, found) in [
        (vec![pad("p", 2, "data"), layer("name: 'r' type: 'relu'", "p", "r")], "found another layer"),
        (vec![pad("p", 2, "data"), pad("q", 2, "p"), conv("a", "q")], "found another layer"),
        (vec![conv("a", "data"), pad("p", 2, "data"), concat], "found another layer"),
        (
            vec![
                layer("name: 'p' type: 'padding' pad: 1", "data", "p").replace("top: \"p\"", "top: 'p' top: 'q'"),
                conv("a", "q"),
            ],
            "found one with several inputs or outputs",
        ),
    ] {
        let refused = net(&parts).expect_err("refused").to_string();
        assert!(refused.contains(found) && refused.contains(" line "), "{refused}");
    }
    // In V2 the word means nothing.
    let today = prototxt("net", b"layer { name: 'p' type: 'padding' bottom: 'data' top: 'p' }").expect("a net");
    assert_eq!(today.layers()[0].type_name, "padding");
}

/// As protobuf's parser: "Non-repeated field ... is specified multiple times."
#[test]
fn a_field_that_does_not_repeat_stands_once_in_its_message() {
    for (text, place, field) in [
        ("layer { name: 'a' type: 'ReLU'\n  type: 'Sigmoid' }", "line 2, column 3", "type"),
        ("layer { name: 'a' name: 'a' }", "line 1, column 19", "name"),
        ("name: 'net' layer { name: 'a' } name: 'net'", "line 1, column 33", "name"),
        ("layer { convolution_param { group: 1 } convolution_param { } }", "line 1, column 40", "convolution_param"),
        ("layer { convolution_param { group: 1 group: 1 } }", "line 1, column 38", "group"),
        ("layers { name: 'a' type: RELU type: RELU }", "line 1, column 31", "type"),
        ("layers { layer { name: 'a' type: 'relu' name: 'b' } }", "line 1, column 41", "name"),
        ("layer { name: ['a', 'b'] }", "line 1, column 21", "name"),
        ("layer { scale_param { filler { type: 'a' } filler { } } }", "line 1, column 44", "filler"),
    ] {
        let refused = prototxt("net", text.as_bytes()).expect_err(text).to_string();
        let wanted = format!("net: {place}: at byte ");
        assert!(refused.starts_with(&wanted) && refused.ends_with(&format!("found {field} again")), "{refused}");
    }
    for text in [
        "layer { bottom: 'a' bottom: 'b' top: 'c' top: 'd' include { phase: TEST } include { phase: TRAIN } }",
        "layer { name: 'a' convolution_param { kernel_size: 3 kernel_size: 5 pad: [1, 2] } param { } param { } }",
        "layer { name: 'a' of_a_fork: 1 of_a_fork: 2 its_param { x: 1 x: 2 } its_param { } }",
        "layer { name: 'a' type: 'ReLU' } layer { name: 'b' type: 'ReLU' } input: 'a' input: 'b'",
        // Forks with windows of any number of axes.
        "layer { name: 'a' pooling_param { kernel_size: 3 kernel_size: 5 stride: 1 stride: 2 pad: 0 pad: 1 } }",
    ] {
        prototxt("net", text.as_bytes()).expect(text);
    }
}

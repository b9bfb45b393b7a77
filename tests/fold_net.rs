//! A fold to a `.caffemodel` also removes the folded layers from the net's description, and changes nothing else there.

use blob_convert::Options;
use blob_convert::transform::{Bound, Fold};
use blob_io::caffe::prototxt;
use blob_io::{Checkpoint, Error, Format};

use crate::support::conversion::to_bytes;
use crate::support::floats::values;
use crate::support::message::{content, fields, floats, len, shape, var};
use crate::support::{compare_cases, data, open};

/// A V2 layer: name, type, input and output, blobs of one axis, and more fields.
pub(crate) fn layer(name: &str, kind: &str, bottom: &str, top: &str, blobs: &[&[f32]], more: &[u8]) -> Vec<u8> {
    let texts = [(1, name), (2, kind), (3, bottom), (4, top)];
    let texts =
        texts.iter().filter(|(_, text)| !text.is_empty()).flat_map(|(number, text)| len(*number, text.as_bytes()));
    let blobs = blobs.iter().flat_map(|values| len(7, &[floats(values), shape(&dims(kind, values.len()))].concat()));
    len(100, &[texts.collect(), blobs.collect(), more.to_vec()].concat())
}

fn dims(kind: &str, count: usize) -> Vec<u64> {
    if kind == "Convolution" { vec![2, count as u64 / 2, 1, 1] } else { vec![count as u64] }
}

/// A convolution without a bias, a BatchNorm and a Scale, none in place, and the layers behind.
fn parts() -> [Vec<u8>; 5] {
    let no_bias = len(106, &[var(1, 2), var(2, 0), var(4, 1)].concat());
    [
        layer("c", "Convolution", "data", "c", &[&[1.0, 2.0]], &no_bias),
        layer("bn", "BatchNorm", "c", "d", &[&[0.5, 0.5], &[1.0, 4.0], &[1.0]], &var(10, 1)),
        layer("s", "Scale", "d", "e", &[&[2.0, 3.0], &[0.0, 1.0]], &len(142, &var(4, 1))),
        layer("r", "ReLU", "e", "e", &[], &[]),
        layer("p", "Pooling", "e", "f", &[], &len(200, b"of a fork")),
    ]
}

pub(crate) fn net(parts: &[Vec<u8>]) -> Vec<u8> {
    [len(1, b"net"), parts.concat(), len(201, b"behind")].concat()
}

/// The folded file. The net is described by the file itself, or by a prototxt.
pub(crate) fn folded(bytes: &[u8], text: Option<&str>) -> Result<Vec<u8>, Error> {
    let source = open("net.caffemodel", bytes).unwrap_or_else(|e| panic!("{e}"));
    let net = match text {
        Some(text) => prototxt("net.prototxt", text.as_bytes()).expect("a net"),
        None => source.net().expect("reads").expect("a net"),
    };
    let (fold, refused) = Fold::of(&Bound::new(&net, &source));
    assert!(fold.count() > 0, "{refused:?}");
    to_bytes(&source, &Options::new(Format::CaffeModel).transform(fold))
}

/// A layer's name and the other fields.
fn described(layer: &[u8]) -> (String, Vec<(u64, &[u8])>) {
    let (names, others): (Vec<_>, Vec<_>) = fields(content(layer)).into_iter().partition(|(key, _)| *key == 10);
    (String::from_utf8(content(names[0].1).to_vec()).expect("text"), others)
}

/// The layers of a row of `cases/taken_out.txt`: name, type, bottom and top, `-` for none, then words for other fields.
fn layers(row: &str) -> Vec<Vec<u8>> {
    let each = row.split("; ").map(|text| {
        let words: Vec<&str> = text.split(' ').collect();
        let [name, kind, bottom, top, more @ ..] = &words[..] else { return len(2, &len(4, text.as_bytes())) };
        let is = |word: &str| more.contains(&word);
        let blobs: &[&[f32]] = match *kind {
            "Convolution" if is("stray-bias") => &[&[1.0, 2.0], &[0.5, 0.5]],
            "Convolution" => &[&[1.0, 2.0]],
            "BatchNorm" => &[&[0.5, 0.5], &[1.0, 4.0], &[1.0]],
            "Scale" if is("no-bias") => &[&[2.0, 3.0]],
            "Scale" => &[&[2.0, 3.0], &[0.0, 1.0]],
            _ => &[],
        };
        let fields = [
            (is("in-a-phase"), len(8, &var(1, 0))),
            (is("not-in-a-phase"), len(9, &var(1, 0))),
            (is("of-a-fork"), len(200, b"x")),
            (*kind == "Convolution", len(106, &[var(1, 2), var(2, 0), var(4, 1)].concat())),
            (*kind == "Scale" && !is("stray-bias") && !is("no-bias"), len(142, &var(4, 1))),
        ];
        let fields: Vec<Vec<u8>> = fields.into_iter().filter(|(has, _)| *has).map(|(_, field)| field).collect();
        let [bottom, top] = [bottom, top].map(|value| value.trim_matches('-'));
        layer(name, kind, bottom, top, blobs, &fields.concat())
    });
    each.collect()
}

/// How many layers of the net are folded, and why others are not; by a prototxt, whether the net is written without
/// them.
fn taken_out(row: &str) -> String {
    if let Some(row) = row.strip_prefix("by a prototxt: ") {
        let mut text =
            r#"layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { bias_term: false } }
            layer { name: "bn" type: "BatchNorm" bottom: "c" top: "c" }"#
                .to_owned();
        if row.contains(" Scale ") {
            text += r#"layer { name: "s" type: "Scale" bottom: "c" top: "c" scale_param { bias_term: true } }"#;
        }
        return folded(&net(&layers(row)), Some(&text)).map_or_else(|e| format!("{e}\n"), |_| "taken out\n".to_owned());
    }
    let source = open("net.caffemodel", &net(&layers(row))).expect("opens");
    let (fold, refused) = Fold::of(&Bound::new(&source.net().expect("reads").expect("a net"), &source));
    refused.iter().fold(format!("{} folded\n", fold.count()), |text, refusal| text + &format!("{refusal}\n"))
}

/// Caffe refuses a file with a blob that the layer does not use; nothing else tells whether such a blob counts.
#[test]
fn only_layers_whose_place_and_bias_are_certain_are_taken_out() {
    compare_cases("cases/taken_out.txt", taken_out);
}

#[test]
fn the_layers_are_gone_and_their_neighbours_joined() {
    let before = parts();
    let out = folded(&net(&before), None).unwrap_or_else(|e| panic!("{e}"));
    let all = fields(&out);
    // The net's name, the convolution, the layers after it, and the last layers.
    let names: Vec<String> = all[1..4].iter().map(|(_, layer)| described(layer).0).collect();
    assert_eq!((all.len(), &names[..]), (5, &["c", "r", "p"].map(str::to_owned)[..]));
    assert_eq!((all[2].1, all[3].1, all[4].1), (&before[3][..], &before[4][..], &len(201, b"behind")[..]));
    let (_, conv) = described(all[1].1);
    let texts = [(2, "Convolution"), (3, "data"), (4, "e")].map(|(number, text)| len(number, text.as_bytes()));
    assert_eq!(conv[..3].iter().map(|(_, field)| field.to_vec()).collect::<Vec<_>>(), texts);
    // Weights, the new bias, and `bias_term`.
    assert_eq!(conv.iter().map(|(key, _)| key >> 3).collect::<Vec<_>>(), [2, 3, 4, 7, 7, 106]);
    assert_eq!(content(conv[5].1), [var(1, 2), var(2, 1), var(4, 1)].concat());
    // 2 · (0 − 0.5) / 1 + 0 and 3 · (0 − 0.5) / 2 + 1, except for eps.
    let file = open("out.caffemodel", &out).expect("opens");
    let bias = values(&file, "c/1");
    assert!((bias[0] + 1.0).abs() < 1e-4 && (bias[1] - 0.25).abs() < 1e-4, "{bias:?}");
    // The description of all other layers is unchanged.
    let left = file.net().expect("reads").expect("a net");
    let [conv, relu, pool] = left.layers() else { panic!("{left:?}") };
    assert!(conv.tops == relu.bottoms && relu.tops == pool.bottoms && conv.bias_term);
}

#[test]
fn nets_of_opencvs_are_described_without_what_was_folded() {
    for stem in ["resnet", "mobilenet", "inception", "upsample"] {
        let bytes = std::fs::read(data(&format!("caffe/forward/{stem}.caffemodel"))).expect("readable");
        let out = folded(&bytes, None).unwrap_or_else(|e| panic!("{stem}: {e}"));
        let is_norm = |layer: &[u8]| {
            fields(content(layer))
                .iter()
                .any(|(key, field)| *key == 18 && matches!(content(field), b"BatchNorm" | b"Scale"))
        };
        let of = |bytes: &[u8]| {
            let layers: Vec<Vec<u8>> =
                fields(bytes).into_iter().filter(|(key, _)| *key == 802).map(|(_, layer)| layer.to_vec()).collect();
            layers
        };
        let (before, after) = (of(&bytes), of(&out));
        assert!(before.iter().any(|layer| is_norm(layer)) && !after.iter().any(|layer| is_norm(layer)), "{stem}");
        let kept: Vec<&Vec<u8>> = before.iter().filter(|layer| !is_norm(layer)).collect();
        assert_eq!(kept.len(), after.len(), "{stem}");
        for (before, after) in kept.iter().zip(&after) {
            // All layers work in place here, so only weights, biases and `bias_term` may change.
            let still = |layer: &[u8]| {
                let (name, fields) = described(layer);
                (
                    name,
                    fields
                        .into_iter()
                        .filter(|(key, _)| !matches!(key >> 3, 7 | 106))
                        .map(|(_, f)| f.to_vec())
                        .collect::<Vec<_>>(),
                )
            };
            assert_eq!(still(before), still(after), "{stem}");
        }
        let file = open("out.caffemodel", &out).expect("opens");
        let net = file.net().expect("reads").expect("a net");
        let convolutions = net.layers().iter().filter(|layer| layer.tensor(blob_io::net::Role::Weight).is_some());
        assert!(convolutions.filter(|layer| layer.type_name != "PReLU").all(|layer| layer.bias_term), "{stem}");
    }
}

/// A file of weights without the layers' inputs has no names to reconnect.
#[test]
fn weights_without_inputs_are_folded_by_a_prototxt() {
    let row = "c Convolution - -; bn BatchNorm - -; s Scale - -";
    let text = r#"layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { bias_term: false } }
        layer { name: "bn" type: "BatchNorm" bottom: "c" top: "c" } layer { name: "s" type: "Scale" bottom: "c" top: "c" scale_param { bias_term: true } }"#;
    let out = folded(&net(&layers(row)), Some(text)).unwrap_or_else(|e| panic!("{e}"));
    let file: Checkpoint = open("out.caffemodel", &out).expect("opens");
    assert_eq!((file.net().expect("reads").expect("a net").layers().len(), file.entries().len()), (1, 2));
}

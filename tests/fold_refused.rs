//! Layers that `fold` refuses, with the reason; and the diffs of tensors that it folds.

use blob_convert::transform::{Bound, Fold};
use blob_convert::{Options, Target, plan};
use blob_io::{Checkpoint, Format};

use crate::fold_net::{folded, layer, net as message};
use crate::folds::{SAFETENSORS, file, net as described_by};
use crate::support::conversion::to_bytes;
use crate::support::message::{floats, len, shape, var};
use crate::support::open;

const TENSORS: [(&str, &[usize], &[f32]); 9] = [
    ("c/0", &[2, 1, 1, 1], &[1.0, 2.0]),
    ("c/1", &[2], &[0.0, 0.0]),
    ("n/0", &[2], &[0.5, 0.5]),
    ("n/1", &[2], &[1.0, 4.0]),
    ("n/2", &[1], &[1.0]),
    ("s/0", &[2], &[2.0, 3.0]),
    ("s/1", &[2], &[0.0, 1.0]),
    ("t/0", &[2], &[2.0, 3.0]),
    ("t/1", &[2], &[0.0, 1.0]),
];

/// The number of layers folded in the net of a prototxt, and the refusal of each other one.
fn of(text: &str) -> (usize, Vec<String>) {
    let source = file(Format::Npz, &TENSORS);
    let (fold, refused) = Fold::of(&Bound::new(&described_by(text), &source));
    (fold.count(), refused.iter().map(ToString::to_string).collect())
}

const CONV: &str = "layer { name: \"c\" type: \"Convolution\" bottom: \"data\" top: \"c\" } ";
const NORM: &str = "layer { name: \"n\" type: \"BatchNorm\" bottom: \"c\" top: \"c\" } ";

/// A Scale in place, with a bias and these settings.
fn scale(name: &str, bottom: &str, settings: &str, more: &str) -> String {
    format!(
        "layer {{ name: \"{name}\" type: \"Scale\" bottom: \"{bottom}\" top: \"{bottom}\" \
         scale_param {{ bias_term: true {settings} }} {more} }} "
    )
}

#[test]
fn layers_of_some_phases_and_of_several_values_stay() {
    let conv = |more: &str| CONV.replace(" }", &format!(" {more} }}"));
    let norm = |more: &str| NORM.replace(" }", &format!(" {more} }}"));
    let twin = CONV.replace("name: \"c\"", "name: \"d\"");
    let cases = [
        (conv("include { phase: TEST }") + NORM, "n", "\"c\" is in some phases of the net only"),
        (conv("exclude { stage: \"deploy\" }") + NORM, "n", "\"c\" is in some phases of the net only"),
        (CONV.to_owned() + &norm("include { phase: TRAIN }"), "n", "\"n\" is in some phases of the net only"),
        (
            CONV.to_owned() + &scale("s", "c", "", "include { phase: TRAIN }"),
            "s",
            "\"s\" is in some phases of the net only",
        ),
        (conv("bottom: \"b\" top: \"d\"") + NORM, "n", "\"c\" reads 2 values and writes 2, and one each is expected"),
        (twin + CONV + NORM, "n", "\"c\" writes what another layer writes too"),
        // The other convolution exists only in training, and its output is normalised too.
        (
            CONV.to_owned() + &conv("include { phase: TRAIN }").replace("name: \"c\"", "name: \"d\"") + NORM,
            "n",
            "\"c\" writes what another layer writes too",
        ),
    ];
    for (text, layer, reason) in cases {
        let told = format!("\"{layer}\" is not folded: it cannot be folded: {reason}");
        assert_eq!(of(&text), (0, vec![told]), "{text}");
    }
    let full = conv("inner_product_param { axis: -1 }").replace("Convolution", "InnerProduct");
    let told = "\"s\" is not folded: it normalises axis 1, and the channels of \"c\" are axis -1";
    assert_eq!(of(&(full + &scale("s", "c", "", ""))), (0, vec![told.to_owned()]));
    assert_eq!(of(&(CONV.to_owned() + NORM)), (1, vec![]));
}

#[test]
fn every_scale_that_stays_is_told() {
    let relu = "layer { name: \"r\" type: \"ReLU\" bottom: \"c\" top: \"c\" } ";
    let behind = |layer: &str, kind: &str| {
        format!("reads \"{layer}\", which is {kind}, not a convolution or a fully connected layer")
    };
    let cases = [
        (
            CONV.to_owned() + &scale("s", "c", "num_axes: 0", ""),
            (0, "s"),
            "has axis 1 and num_axes 0, and the channels are axis 1 alone".to_owned(),
        ),
        (
            CONV.to_owned() + &scale("s", "c", "axis: 2", ""),
            (0, "s"),
            "has axis 2 and num_axes 1, and the channels are axis 1 alone".to_owned(),
        ),
        (CONV.to_owned() + relu + &scale("s", "c", "", ""), (0, "s"), behind("r", "ReLU")),
        (CONV.to_owned() + &scale("u", "c", "", ""), (0, "u"), "has no factors or no summands in the file".to_owned()),
        (CONV.to_owned() + NORM + &scale("s", "c", "", "") + &scale("t", "c", "", ""), (1, "t"), behind("s", "Scale")),
        // The BatchNorm is folded without a Scale that exists only in some phases.
        (CONV.to_owned() + NORM + &scale("s", "c", "", "include { phase: TEST }"), (1, "s"), behind("n", "BatchNorm")),
        // If a BatchNorm is refused, its Scale is not reported separately.
        (CONV.to_owned() + relu + NORM + &scale("s", "c", "", ""), (0, "n"), behind("r", "ReLU")),
    ];
    for (text, (count, layer), reason) in cases {
        assert_eq!(of(&text), (count, vec![format!("\"{layer}\" is not folded: it {reason}")]), "{text}");
    }
}

/// A convolution without a bias and a BatchNorm in place, each with more fields.
fn in_place(conv: &[u8], norm: &[u8]) -> [Vec<u8>; 2] {
    let norms: [&[f32]; 3] = [&[0.5, 0.5], &[1.0, 4.0], &[1.0]];
    let param = len(106, &[var(1, 2), var(2, 0)].concat());
    [
        layer("c", "Convolution", ("data", "c"), &[&[1.0, 2.0]], &[&param, conv].concat()),
        layer("bn", "BatchNorm", ("c", "c"), &norms, norm),
    ]
}

#[test]
fn the_conditions_in_a_file_of_weights_are_read() {
    for number in [8, 9] {
        let only = len(number, &var(1, 0));
        for parts in [in_place(&only, &[]), in_place(&[], &only)] {
            let source = open("net.caffemodel", &message(&parts)).expect("opens");
            let net = source.net().expect("reads").expect("a net");
            let (fold, refused) = Fold::of(&Bound::new(&net, &source));
            assert!(
                fold.count() == 0 && refused[0].reason.ends_with("is in some phases of the net only"),
                "{refused:?}"
            );
        }
    }
}

#[test]
fn a_layer_in_place_is_taken_out_behind_its_one_writer_alone() {
    // The named net differs slightly from the file's own.
    let text = r#"layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { bias_term: false } }
        layer { name: "bn" type: "BatchNorm" bottom: "c" top: "c" }"#;
    let [conv, norm] = in_place(&[], &[]);
    let phased = in_place(&len(8, &var(1, 0)), &[])[0].clone();
    let twin = layer("d", "Convolution", ("data", "c"), &[&[1.0, 2.0]], &[]);
    let relu = layer("r", "ReLU", ("c", "c"), &[], &[]);
    let cases = [
        (vec![conv.clone(), twin.clone(), norm.clone()], "reads \"c\", which \"d\" reads or writes too"),
        (vec![conv.clone(), norm.clone(), twin], "reads \"c\", which \"d\" reads or writes too"),
        (vec![conv.clone(), relu.clone(), norm.clone()], "reads \"c\", which \"r\" reads or writes too"),
        (vec![phased, norm.clone()], "follows \"c\", which is in some phases of the net only"),
        (vec![norm.clone(), conv.clone()], "reads \"c\", which no layer before it writes"),
    ];
    for (parts, reason) in cases {
        let refused = folded(&message(&parts), Some(text)).expect_err(reason).to_string();
        assert!(refused.contains(&format!("\"bn\": it {reason}")), "{reason}: {refused}");
    }
    assert!(folded(&message(&[conv, norm, relu]), Some(text)).is_ok());
}

#[test]
fn the_diffs_of_what_is_folded_are_left_out() {
    let blob = |values: &[f32], dims: &[u64]| {
        len(
            7,
            &[
                floats(values),
                len(6, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()),
                shape(dims),
            ]
            .concat(),
        )
    };
    let more = [blob(&[1.0, 2.0], &[2, 1, 1, 1]), len(106, &[var(1, 2), var(2, 0)].concat())].concat();
    let norms = [blob(&[0.5, 0.5], &[2]), blob(&[1.0, 4.0], &[2]), blob(&[1.0], &[1])].concat();
    let last = [blob(&[3.0, 5.0], &[2, 1, 1, 1]), len(106, &[var(1, 2), var(2, 0)].concat())].concat();
    let net = message(&[
        layer("c", "Convolution", ("data", "c"), &[], &more),
        layer("bn", "BatchNorm", ("c", "d"), &[], &norms),
        layer("e", "Convolution", ("d", "e"), &[], &last),
    ]);
    let source = open("net.caffemodel", &net).expect("opens");
    let described = source.net().expect("reads").expect("a net");
    let (fold, _) = Fold::of(&Bound::new(&described, &source));
    for format in [Format::CaffeModel, SAFETENSORS] {
        let options = Options::new(format).transform(fold.clone());
        let planned = plan(&source, &options, &Target::Stdout).unwrap_or_else(|e| panic!("{e}"));
        assert!(planned.notes().contains(&"fold: the diffs of folded tensors are left out, 4 of them".to_owned()));
        let left = planned.left_out().iter().filter(|(_, reason)| reason == "the diff of a folded tensor");
        assert_eq!(
            left.map(|(name, _)| &**name).collect::<Vec<_>>(),
            ["c/0.diff", "bn/0.diff", "bn/1.diff", "bn/2.diff"]
        );
        let out = to_bytes(&source, &options).unwrap_or_else(|e| panic!("{e}"));
        let name = if format == SAFETENSORS { "out.safetensors" } else { "out.caffemodel" };
        let out = Checkpoint::from_bytes(name, out);
        let mut names: Vec<String> = out.expect("opens").names().map(str::to_owned).collect();
        names.sort();
        assert_eq!(names, ["c/0", "c/1", "e/0", "e/0.diff"]);
    }
}

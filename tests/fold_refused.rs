//! Layers that `fold` refuses, with the reason; and the diffs of tensors that it folds.

use blob_convert::transform::{Bound, Fold};
use blob_convert::{Options, Target, plan};
use blob_io::{Checkpoint, Format};

use crate::fold_net::{layer, net as message};
use crate::folds::{SAFETENSORS, file, net as described_by};
use crate::support::conversion::to_bytes;
use crate::support::message::{floats, len, shape, var};
use crate::support::{compare_cases, open};

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

/// How many norms and scales of a net are folded, and why others are not; `line` describes it as `cases/fold.txt` does.
fn fold(line: &str) -> String {
    let (mut text, mut tensors) = (String::new(), TENSORS.to_vec());
    for layer in line.split("; ") {
        match *layer.splitn(5, ' ').collect::<Vec<_>>() {
            ["without", absent] => tensors.retain(|(name, ..)| *name != absent),
            [name, kind, bottom, top, ref more @ ..] => {
                let more = more.concat();
                text +=
                    &format!(r#"layer {{ name: "{name}" type: "{kind}" bottom: "{bottom}" top: "{top}" {more} }} "#);
            }
            _ => panic!("{layer}"),
        }
    }
    let source = file(Format::Npz, &tensors);
    let (folded, refused) = Fold::of(&Bound::new(&described_by(&text), &source));
    refused.iter().fold(format!("{}\n", folded.count()), |text, refusal| text + &format!("{refusal}\n"))
}

#[test]
fn what_would_be_wrong_is_not_folded() {
    compare_cases("cases/fold.txt", fold);
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
        let left = planned.left_out().iter().filter(|left| left.reason == "the diff of a folded tensor");
        assert_eq!(
            left.map(|left| &*left.name).collect::<Vec<_>>(),
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

//! Repeating a receipt's transforms on the source: proofs of outputs, and hostile receipts.

use blob_convert::transform::{Layout, Registry, SqueezeLegacy, StripDiff};
use blob_convert::verify::{self, Remark};
use blob_convert::{Options, Silent};
use blob_core::DType;
use blob_io::{Checkpoint, Format};
use serde_json::{Value, json};

use crate::support::conversion::to_file;
use crate::support::receipt::{receipt, with_receipt};
use crate::support::{data, open};
use crate::there_and_back;
use crate::transform::float;

fn source() -> Checkpoint {
    Checkpoint::open(data("caffe/net/f32_v2_diff.caffemodel")).expect("opens")
}

fn all(to: Format) -> Options {
    let options = Options::new(to).transform(StripDiff).transform(SqueezeLegacy);
    options.transform(Layout::Hwio).transform(float(DType::BF16))
}

/// The number of equal tensors, and the findings.
fn against(ours: &Checkpoint, theirs: &Checkpoint) -> (u64, Vec<String>) {
    let mut found = Vec::new();
    let equal = verify::against(ours, theirs, &Silent, &mut |remark| {
        if let Remark::Finding(finding) = remark {
            found.push(format!("{}: {}", finding.tensor, finding.message));
        }
    });
    (equal.expect("is compared").equal, found)
}

#[test]
fn transforms_are_done_again_and_compared_in_every_format_with_a_receipt() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, to) in [
        ("x.safetensors", Format::Safetensors),
        ("x.npz", Format::Npz),
        ("x.h5", Format::Hdf5),
        ("folder/", Format::Npy),
    ] {
        // HDF5 does not support bf16.
        let options = match to {
            Format::Hdf5 => Options::new(to).transform(StripDiff).transform(Layout::Hwio),
            _ => all(to),
        };
        let path = folder.path().join(name);
        there_and_back::convert(&source(), &options, &path).expect("written");
        let ours = Checkpoint::open(&path).expect("opens");
        assert_eq!(against(&ours, &source()), (ours.entries().len() as u64, vec![]), "{name}");
        // Two files with the same transforms are compared directly.
        assert_eq!(against(&ours, &ours), (ours.entries().len() as u64, vec![]), "{name}");
    }
}

#[test]
fn one_other_bit_on_either_side_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.safetensors");
    to_file(&source(), &all(Format::Safetensors), &path).expect("written");
    let bytes = std::fs::read(&path).expect("readable");
    let ours = open("x.safetensors", &bytes).expect("opens");
    let at = ours.entry("conv1/0").and_then(|entry| entry.offset()).expect("an array") as usize;
    let broken = crate::support::changed(&bytes, at + 2, &[bytes[at + 2] ^ 1]);
    let count = ours.entries().len() as u64;
    let broken = open("x.safetensors", &broken).expect("opens");
    assert_eq!(against(&broken, &source()), (count - 1, vec!["conv1/0: differs, first at [0,0,0,1]".to_owned()]));
    let theirs = std::fs::read(data("caffe/net/f32_v2_diff.caffemodel")).expect("readable");
    let at = source().entry("ip/1").and_then(|entry| entry.offset()).expect("an array") as usize;
    // Flips the sign of the first value, which no rounding hides.
    let other = open("net.caffemodel", &crate::support::changed(&theirs, at + 3, &[theirs[at + 3] ^ 0x80]));
    assert_eq!(against(&ours, &other.expect("opens")), (count - 1, vec!["ip/1: differs, first at [0]".to_owned()]));
}

#[test]
fn a_receipt_that_lies_about_its_transforms_is_a_finding() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.safetensors");
    to_file(&source(), &all(Format::Safetensors), &path).expect("written");
    let bytes = std::fs::read(&path).expect("readable");
    let honest = receipt(&open("x.safetensors", &bytes).expect("opens"));
    let said = |transforms: Value| {
        let mut receipt = honest.clone();
        receipt["transforms"] = transforms;
        let file = open("x.safetensors", &with_receipt(&bytes, &receipt, "", None)).expect("opens");
        let mut replayed = Vec::new();
        verify::replay(&file, &Registry::default(), &mut |remark| replayed.push(remark));
        against(&file, &source()).1
    };
    assert_eq!(said(honest["transforms"].clone()), [""; 0]);
    let one = |name: &str, settings: Value| json!([{ "name": name, "settings": settings }]);
    for (transforms, wanted) in [
        (json!(null), ": the receipt had no room for its transforms"),
        (json!("dtype"), ": the receipt's transforms cannot be read"),
        (json!([7]), ": the receipt's transforms cannot be read"),
        (json!(vec![json!({"name": "rgb"}); 65]), ": the receipt has too many transforms"),
        (one("melt", json!({})), ": the transform \"melt\" of the receipt is not known"),
        (
            one("dtype", json!({"to": "i8"})),
            ": the transform \"dtype\" of the receipt has settings that cannot be read",
        ),
        (one("dtype", json!(null)), ": the transform \"dtype\" of the receipt has settings that cannot be read"),
        (
            one("layout", json!({"to": ["hwio"]})),
            ": the transform \"layout\" of the receipt has settings that cannot be read",
        ),
        (
            one("fc-from", json!({"channels": u64::MAX, "height": 2, "width": 1})),
            ": the transform \"fc-from\" of the receipt has settings that cannot be read",
        ),
        (
            one("permute", json!({"tensors": ["conv1/0"], "axes": [0, 1, 1, 0]})),
            ": the transform \"permute\" of the receipt has settings that cannot be read",
        ),
        (one("permute", json!({"tensors": ["gone"], "axes": [0]})), "does not allow permute: \"gone\" is not there"),
        (
            one("fc-from", json!({"channels": 7, "height": 7, "width": 7})),
            "does not allow fc-from: no weights of an inner product have 343 inputs; \"ip/0\" has 36",
        ),
    ] {
        let found = said(transforms.clone());
        assert!(found[0].ends_with(wanted), "{transforms}: {found:?}");
    }
    // If the receipt names other transforms than those applied, the tensors differ.
    let found = said(one("dtype", json!({"to": "bf16"})));
    assert!(found.iter().any(|found| found.starts_with("conv1/0: has shape ")), "{found:?}");
    assert!(found.iter().any(|found| found.starts_with("conv1/0.diff: is missing from x.safetensors")), "{found:?}");
    let more = open("x.safetensors", &with_receipt(&bytes, &honest, "", Some("more/0"))).expect("opens");
    let missing = "more/0: is missing from what the receipt's transforms make of";
    assert!(against(&more, &source()).1[0].starts_with(missing));
}

//! A file that was converted before: the steps in the receipt count in every later step.

use blob_convert::transform::{Names, Rgb};
use blob_convert::verify::{self, Remark};
use blob_convert::{Options, Place, Silent, plan, plan_into};
use blob_core::{AnyBlob, DType, Shape};
use blob_io::{Checkpoint, Format, IfExists, Writer};
use serde_json::json;

use crate::support::conversion::to_bytes;
use crate::support::floats::{self, SAFETENSORS, bytes_of, file};
use crate::support::receipt::{receipt, with_receipt};
use crate::support::{Folder, Ran, blob};

/// The values 0, 1, 2, ….
fn counted(count: usize) -> Vec<f32> {
    (0..count).map(|i| i as f32).collect()
}

/// Writes a file without a receipt.
fn write(path: &str, format: Format, tensors: &[(&str, &[usize], &[f32])]) {
    std::fs::write(path, bytes_of(format, tensors)).expect("written");
}

/// The values of a tensor of a file.
fn values(path: &str, name: &str) -> Vec<f32> {
    floats::values(&Checkpoint::open(path).expect("opens"), name)
}

fn finding(remark: Remark) -> Option<String> {
    match remark {
        Remark::Finding(finding) => Some(finding.message),
        _ => None,
    }
}

/// The second swap gives the first file again, and the receipts of both list the same step.
#[test]
fn axes_that_are_swapped_twice_are_proved_from_the_file_between() {
    let folder = Folder::new();
    let [first, second, third] = ["a.npz", "b.npz", "c.npz"].map(|name| folder.file(name));
    write(&first, Format::Npz, &[("w", &[2, 3], &counted(6))]);
    for (from, to) in [(&first, &second), (&second, &third)] {
        blob(&["transpose", from, "w", "--perm", "1,0", "-o", to]).ok();
        blob(&["verify", to, "--against", from]).ok();
    }
    assert_eq!(values(&second, "w"), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert_eq!(values(&third, "w"), counted(6));
    // Two files of equal steps, neither made from the other, are compared directly.
    let again = folder.file("again.safetensors");
    blob(&["transpose", &first, "w", "--perm", "1,0", "-o", &again]).ok();
    let (ours, theirs) = (Checkpoint::open(&again).expect("opens"), Checkpoint::open(&second).expect("opens"));
    let mut found = Vec::new();
    let compared = verify::against(&ours, &theirs, &Silent, &mut |remark| found.extend(finding(remark)));
    assert_eq!((compared.expect("is compared").redone, found), (0, Vec::<String>::new()));
}

/// Changes to a base of HDF5 are told like changes to any other base.
#[test]
fn a_guess_on_the_way_into_hdf5_is_a_loss() {
    let weights = [("first/0", &[2, 3, 1, 1][..], &counted(6)[..])];
    let (source, base) = (file(Format::Npz, &weights), file(Format::Hdf5, &weights));
    let options = |strict| Options::new(SAFETENSORS).with(|options| options.strict = strict).transform(Rgb);
    let plan = plan_into(&source, &base, &options(false), &Place::Stdout).expect("a plan");
    let kinds: Vec<&str> = plan.changes().iter().map(|group| group.change.effect.name()).collect();
    assert_eq!(kinds, ["transformed", "guessed"]);
    let refused = plan_into(&source, &base, &options(true), &Place::Stdout).expect_err("a guess").to_string();
    assert!(refused.contains("taken for weights of the first convolution"), "{refused}");
}

/// An image of 3×4×4, a convolution to 3×2×2, a factor for each channel, and a matrix; all square.
const SQUARE: &str = r#"input: "data" input_shape { dim: 1 dim: 3 dim: 4 dim: 4 }
    layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { num_output: 3 kernel_size: 3 } }
    layer { name: "s" type: "Scale" bottom: "c" top: "x" }
    layer { name: "f" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 12 } }"#;

/// A folder with `net.prototxt`, and the weights `n.npz`: each value is its place.
fn square() -> Folder {
    let folder = Folder::new();
    folder.with("net.prototxt", SQUARE);
    folder.with("n.npz", bytes_of(Format::Npz, &square_weights()));
    folder.with("n.h5", bytes_of(Format::Hdf5, &square_weights()));
    folder
}

fn square_weights() -> [(&'static str, &'static [usize], &'static [f32]); 4] {
    static VALUES: std::sync::LazyLock<Vec<f32>> = std::sync::LazyLock::new(|| counted(144));
    let values = |count: usize| &VALUES[..count];
    [
        ("c/0", &[3, 3, 3, 3], values(81)),
        ("c/1", &[3], values(3)),
        ("f/0", &[12, 12], values(144)),
        ("s/0", &[3], values(3)),
    ]
}

/// Runs the tool on files of a folder: a word that begins with `=` is a file there.
fn with(folder: &Folder, line: &str) -> Ran {
    let words: Vec<String> =
        line.split(' ').map(|word| word.strip_prefix('=').map_or(word.to_owned(), |name| folder.file(name))).collect();
    blob(&words.iter().map(|word| &**word).collect::<Vec<&str>>())
}

/// A net names the axes of the framework, and the file has others.
#[test]
fn what_goes_along_axes_is_refused_where_the_receipt_has_others() {
    let folder = square();
    with(&folder, "convert =n.npz --layout hwio --net =net.prototxt -o =hwio.safetensors").ok();
    with(&folder, "convert =hwio.safetensors -o =later.npz").ok();
    let said = "its receipt says that weights were permuted to hwio";
    for source in ["hwio.safetensors", "later.npz"] {
        for step in ["--rgb", "--fc-from 3,2,2", "--names torch", "--squeeze-legacy"] {
            with(&folder, &format!("convert ={source} {step} --net =net.prototxt -o =x.npz")).refused(said);
        }
        with(&folder, &format!("fold ={source} --net =net.prototxt -o =x.npz")).refused(said);
        with(&folder, &format!("convert ={source} --rgb -o =x.npz")).refused(said);
    }
    // Both in one command: input channels from the last, with the axes h, w, i, o.
    with(&folder, "convert =n.npz --rgb --layout hwio --net =net.prototxt -o =x.npz").ok();
    let wanted = (0..81)
        .map(|n: usize| (n / 27, n / 9 % 3, n / 3 % 3, n % 3))
        .map(|(h, w, i, o)| (((o * 3 + (2 - i)) * 3 + h) * 3 + w) as f32);
    let wanted: Vec<f32> = wanted.collect();
    assert_eq!(values(&folder.file("x.npz"), "c/0"), wanted);
}

#[test]
fn a_tensor_that_was_transposed_is_transposed_back_before_axes_count() {
    let folder = square();
    with(&folder, "transpose =n.npz c/0 --perm 1,2,0,3 -o =p.npz").ok();
    let said = r#""c/0" has its axes permuted to 1,2,0,3, as the receipt says"#;
    for step in ["--rgb", "--layout hwio"] {
        with(&folder, &format!("convert =p.npz {step} --net =net.prototxt -o =x.npz")).refused(said);
    }
    with(&folder, "fold =p.npz --net =net.prototxt -o =x.npz").refused(said);
    with(&folder, "convert =p.npz --fc-from 3,2,2 --net =net.prototxt -o =x.npz").ok();
    // Under another name, and after another step.
    with(&folder, "rename =p.npz --sed s/^c/k/ -o =k.npz").ok();
    folder.with("k.prototxt", SQUARE.replace("\"c\"", "\"k\""));
    with(&folder, "convert =k.npz --rgb --net =k.prototxt -o =x.npz").refused(r#""k/0" has its axes permuted"#);
    with(&folder, "transpose =p.npz c/0 --perm 2,0,1,3 -o =back.npz").ok();
    with(&folder, "convert =back.npz --rgb --net =net.prototxt -o =rgb.npz").ok();
    let wanted: Vec<f32> = (0..81).map(|n| (n / 27 * 27 + (2 - n / 9 % 3) * 9 + n % 9) as f32).collect();
    assert_eq!(values(&folder.file("rgb.npz"), "c/0"), wanted);
    with(&folder, "transpose =n.npz f/0 --fc-from 3,2,2 -o =f.npz").ok();
    let again = "does not allow fc-from: its receipt says that it was permuted to channels last";
    with(&folder, "convert =f.npz --fc-from 3,2,2 --net =net.prototxt -o =x.npz --force").refused(again);
}

/// The net adds 0.25, and after `--eps` the variances are for 0.01.
#[test]
fn the_eps_of_a_conversion_counts_in_the_next_ones() {
    let text = r#"input: "data" input_shape { dim: 1 dim: 1 dim: 4 dim: 4 }
        layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { num_output: 2 kernel_size: 1 } }
        layer { name: "bn" type: "BatchNorm" bottom: "c" top: "x" batch_norm_param { eps: 0.25 } }"#;
    let variance = [0.75_f32, 2.0];
    let tensors: [(&str, &[usize], &[f32]); 5] = [
        ("c/0", &[2, 1, 1, 1], &[1.0, -3.0]),
        ("c/1", &[2], &[0.0, 0.0]),
        ("bn/0", &[2], &[0.0, 0.0]),
        ("bn/1", &[2], &variance),
        ("bn/2", &[1], &[1.0]),
    ];
    let folder = Folder::new();
    folder.with("net.prototxt", text);
    folder.with("named.prototxt", text.replace("\"bn\"", "\"norm\""));
    folder.with("n.npz", bytes_of(Format::Npz, &tensors));
    folder.with("n.h5", bytes_of(Format::Hdf5, &tensors));
    with(&folder, "convert =n.npz --bn fold-factor --eps 0.01 --net =net.prototxt -o =e.safetensors").ok();
    let is_near = |found: &[f32], wanted: [f64; 2]| {
        let near = found.iter().zip(wanted).all(|(found, wanted)| (f64::from(*found) - wanted).abs() < 1e-6);
        assert!(near && found.len() == 2, "{found:?}, not {wanted:?}");
    };
    let moved = variance.map(|value| f64::from(value) + 0.24);
    is_near(&values(&folder.file("e.safetensors"), "bn/1"), moved);
    // 1/√(0.75 + 0.25) and −3/√(2 + 0.25).
    with(&folder, "fold =e.safetensors --net =net.prototxt -o =f.npz").ok();
    is_near(&values(&folder.file("f.npz"), "c/0"), [1.0, -2.0]);
    with(&folder, "verify =f.npz --against =e.safetensors --net =net.prototxt").ok();
    with(&folder, "rename =e.safetensors --sed s/^bn/norm/ -o =named.npz").ok();
    with(&folder, "fold =named.npz --net =named.prototxt -o =f.npz --force").ok();
    is_near(&values(&folder.file("f.npz"), "c/0"), [1.0, -2.0]);
    with(&folder, "convert =e.safetensors --eps 0.01 --net =net.prototxt -o =again.npz").ok();
    is_near(&values(&folder.file("again.npz"), "bn/1"), moved);
    with(&folder, "convert =e.safetensors --names torch --net =net.prototxt -o =torch.npz").ok().stderr_has("eps 1e-2");
    let into = "convert =e.safetensors --into =n.h5 -o =into.h5";
    with(&folder, into).refused("its receipt says that they were changed by eps");
    with(&folder, "convert =e.safetensors --eps 0.25 --net =net.prototxt -o =back.npz").ok();
    is_near(&values(&folder.file("back.npz"), "bn/1"), variance.map(f64::from));
    with(&folder, "convert =back.npz --into =n.h5 -o =into.h5").ok();
    is_near(&values(&folder.file("into.h5"), "bn/1"), variance.map(f64::from));
}

/// The file of before has the values in another order, under the same names and shapes.
#[test]
fn what_got_another_order_is_turned_back_for_the_file_of_before() {
    let folder = square();
    let is_as_before = |what: &str| {
        for (name, _, before) in square_weights() {
            assert_eq!(values(&folder.file("into.h5"), name), before, "{what}: {name}");
        }
    };
    for (step, name) in [("--rgb", "rgb"), ("--layout hwio", "layout"), ("--fc-from 3,2,2", "fc-from")] {
        with(&folder, &format!("convert =n.npz {step} --net =net.prototxt -o =x.npz --force")).ok();
        with(&folder, "convert =x.npz -o =y.safetensors --force").ok();
        for source in ["x.npz", "y.safetensors"] {
            let into = format!("convert ={source} --into =n.h5 -o =into.h5 --force");
            let said = format!("its receipt says that they were changed by {name}, which cannot be undone");
            with(&folder, &into).refused(&said).stderr_has("--net can name it");
            with(&folder, &format!("{into} --net =net.prototxt --strict")).ok();
            is_as_before(&into);
        }
        // Where nobody tells of the order, nobody knows.
        with(&folder, "convert =x.npz --no-receipt --anew -o =bare.npz --force").ok();
        with(&folder, "convert =bare.npz --into =n.h5 -o =into.h5 --force").ok();
    }
    // Several steps, some in a conversion of their own.
    with(&folder, "convert =n.npz --rgb --layout hwio --net =net.prototxt -o =x.npz --force").ok();
    with(&folder, "transpose =x.npz c/0 --perm 1,0,2,3 -o =y.npz").ok();
    with(&folder, "convert =y.npz --only c/0 --net =net.prototxt --into =n.h5 -o =into.h5 --force").ok();
    is_as_before("three steps");
    with(&folder, "transpose =n.npz c/0 --perm 1,2,0,3 -o =p.npz").ok();
    with(&folder, "convert =p.npz --into =n.h5 -o =into.h5 --force").ok();
    is_as_before("permute");
    // Of other names, nothing says which tensors of the base these are.
    with(&folder, "rename =n.npz --sed s/c/d/ -o =r.npz").ok();
    with(&folder, "transpose =r.npz d/0 --perm 1,0,2,3 -o =p.npz --force").ok();
    with(&folder, "rename =p.npz --sed s/d/c/ -o =r.npz --force").ok();
    with(&folder, "convert =r.npz --into =n.h5 -o =into.h5 --force")
        .refused("changed by permute, which cannot be undone");
}

/// Tensors with names so long that a receipt has no room for all.
fn long_names(count: usize, from: &str) -> Vec<String> {
    (0..count).map(|i| format!("{from}{i:0900}")).collect()
}

/// Where a receipt has no room for the details of a step, the step itself still stands there.
#[test]
fn steps_without_room_are_not_forgotten() {
    let names = long_names(4600, "a");
    let all = names.iter().map(|name| (&**name, &[1][..], &[0.0][..]));
    let first = ("first/0", &[2, 3, 1, 1][..], &counted(6)[..]);
    let source = file(SAFETENSORS, &all.chain([first]).collect::<Vec<_>>());
    let map = Names::new(names.iter().map(|name| (name.clone(), name.replace('a', "b"))));
    let options = Options::new(SAFETENSORS).transform(Rgb).transform(map);
    let planned = plan(&source, &options, &Place::Stdout).expect("a plan");
    assert_eq!(planned.unproven(), ["names"]);
    let words = "the receipt has no room for what names did: `blob verify` cannot repeat it";
    assert!(planned.changes().iter().any(|group| group.change.is_loss() && group.to_string() == words));
    let made = Checkpoint::from_bytes("made", to_bytes(&source, &options).expect("written")).expect("opens");
    let steps = receipt(&made)["transforms"].clone();
    assert_eq!((&steps[0], &steps[1]["name"]), (&json!({"name": "rgb", "settings": {}}), &json!("names")));
    let later = Checkpoint::from_bytes("later", to_bytes(&made, &Options::new(Format::Npz)).expect("written"));
    for again in [&made, &later.expect("opens")] {
        let refused =
            plan(again, &Options::new(SAFETENSORS).transform(Rgb), &Place::Stdout).expect_err("a second time");
        assert!(refused.to_string().contains("its receipt says that it was reversed to RGB"), "{refused}");
    }
    let mut found = Vec::new();
    verify::against(&made, &source, &Silent, &mut |remark| found.extend(finding(remark))).expect("is compared");
    assert_eq!(found, [r#"the transform "names" of the receipt has settings that cannot be read"#]);
    // An older receipt, without the steps.
    let mut older = receipt(&made);
    older["transforms"] = json!(null);
    let bytes = to_bytes(&made, &Options::new(SAFETENSORS).with(|options| options.without_receipt = true));
    let older = with_receipt(&bytes.expect("written"), &older, "", None);
    let older = Checkpoint::from_bytes("older", older).expect("opens");
    let refused = plan(&older, &Options::new(SAFETENSORS).transform(Rgb), &Place::Stdout).expect_err("nobody knows");
    assert!(refused.to_string().contains("its receipt had no room for its steps"), "{refused}");
}

/// Where a receipt has no room for the changes, the shorter list says which arrays of u16 hold bf16.
#[test]
fn u16_stays_u16_beside_any_number_of_bf16() {
    let (many, few) = (long_names(5000, "m"), long_names(2, "f"));
    let renamed: Vec<String> = many.iter().map(|name| name.replace('m', "n")).collect();
    for [of_many, of_few] in [[DType::BF16, DType::U16], [DType::U16, DType::BF16]] {
        let source = elements(&[(&many, of_many), (&few, of_few)]);
        let map = Names::new(many.iter().cloned().zip(renamed.iter().cloned()));
        let made = to_bytes(&source, &Options::new(Format::Npz).transform(map)).expect("written");
        let made = Checkpoint::from_bytes("made", made).expect("opens");
        for (names, dtype) in [(&renamed, of_many), (&few, of_few)] {
            assert!(
                names.iter().all(|name| made.entry(name).and_then(|entry| entry.dtype()) == Some(dtype)),
                "{dtype}"
            );
        }
        assert!(receipt(&made)["changes"].is_null());
    }
    let others = long_names(4650, "o");
    let source = elements(&[(&many[..4650], DType::BF16), (&others, DType::U16)]);
    let refused = plan(&source, &Options::new(Format::Npz), &Place::Stdout).map(drop);
    let refused = refused.expect_err("no room").to_string();
    assert!(refused.contains("so many arrays of bf16 and of u16"), "{refused}");
}

/// A file of one element for each name.
fn elements(all: &[(&[String], DType)]) -> Checkpoint {
    let blobs = all
        .iter()
        .map(|(_, dtype)| AnyBlob::from_vec(Shape::new([1]).expect("a shape"), *dtype, vec![0, 1]).expect("a blob"));
    let blobs: Vec<AnyBlob> = blobs.collect();
    let named = all.iter().zip(&blobs).flat_map(|((names, _), blob)| names.iter().map(move |name| (name, blob)));
    let writer = named.fold(Writer::new(SAFETENSORS), |writer, (name, blob)| writer.tensor(name, blob));
    let folder = Folder::new();
    writer.write(folder.path().join("file"), IfExists::Refuse).expect("written");
    Checkpoint::from_bytes("file", std::fs::read(folder.file("file")).expect("readable")).expect("opens")
}

/// A file without a receipt cannot tell the next conversion.
#[test]
fn what_an_output_no_longer_says_is_warned_of() {
    let folder = square();
    with(&folder, "convert =n.npz --rgb --net =net.prototxt -o =rgb.safetensors").ok();
    let said = "rgb.safetensors says that values were changed by rgb, and the output does not";
    with(&folder, "merge =rgb.safetensors -o =merged.params").ok().stderr_has(said);
    with(&folder, "split =rgb.safetensors --by-layer --to params -o =parts/").ok().stderr_has(said);
    with(&folder, "convert =rgb.safetensors -o =rgb.params").ok().stderr_has(said);
    for quiet in ["convert =rgb.safetensors -o =rgb.npz", "convert =n.npz -o =n.params"] {
        assert!(!with(&folder, quiet).ok().err.contains("the output does not"));
    }
}

//! Conversions one after the other, proved from the first file: each knows its own source alone, and a net its eps.

use blob_io::{Checkpoint, Format};
use serde_json::json;

use crate::support::floats::bytes_of;
use crate::support::message::{floats, len, shape, var};
use crate::support::receipt::{receipt, with_receipt};
use crate::support::{Folder, blob, data, open};

/// Runs the tool on files of a folder: a word that begins with `=` is a file there. The last word is the output.
fn convert(folder: &Folder, line: &str) -> String {
    let words = line.split(' ').map(|word| word.strip_prefix('=').map_or(word.to_owned(), |name| folder.file(name)));
    let words: Vec<String> = words.collect();
    let args = words.iter().map(|word| &**word).chain(["--force"]);
    blob(&args.collect::<Vec<_>>()).ok();
    words.last().expect("an output").clone()
}

/// The names of a file's tensors, in the order of the file.
fn names(path: &str) -> Vec<String> {
    Checkpoint::open(path).expect("opens").names().map(str::to_owned).collect()
}

fn proves(made: &str, source: &str, what: &str) {
    let ran = blob(&["verify", made, "--against", source]);
    assert!(ran.out.contains("OK"), "{what} against {source}: {}{}", ran.out, ran.err);
    ran.ok();
}

/// `#0` of the second conversion is the first tensor of the file in between, which sorts by name, by dtype or not.
#[test]
fn a_selection_takes_the_places_of_its_own_source() {
    let folder = Folder::new();
    let arrays: [(&str, &[usize], &[f32]); 3] =
        [("b", &[2], &[0.0, 1.0]), ("a", &[3], &[2.0, 3.0, 4.0]), ("c/d", &[1], &[5.0])];
    let first = folder.with("a.npz", bytes_of(Format::Npz, &arrays));
    // An array of f16 stands behind those of f32 in safetensors.
    convert(&folder, "convert =a.npz --only b --dtype f16 -o =half.npz");
    convert(&folder, "convert =a.npz --exclude b -o =rest.npz");
    convert(&folder, "merge =half.npz =rest.npz -o =both.npz");
    let mixed = convert(&folder, "convert =both.npz --anew --no-receipt -o =mixed.npz");
    for (source, between, taken) in [
        (&first, "s.npz", "b"),
        (&first, "s.h5", "a"),
        (&first, "s.safetensors", "b"),
        (&first, "s/", "b"),
        (&mixed, "s.safetensors", "a"),
        (&mixed, "s.npz", "b"),
    ] {
        for made in ["t.npz", "t.h5", "t.safetensors"] {
            let what = format!("{between}, {made}");
            blob(&["convert", source, "-o", &folder.file(between), "--force"]).ok();
            assert_eq!(names(&folder.file(between))[0], taken, "{what}");
            let made = convert(&folder, &format!("convert ={between} --exclude #0 -o ={made}"));
            assert!(names(&made).len() == 2 && !names(&made).contains(&taken.to_owned()), "{what}");
            proves(&made, &folder.file(between), &what);
            proves(&made, source, &what);
            let again = convert(&folder, &format!("convert {made} --exclude #0 -o =u.safetensors"));
            assert_eq!(names(&again).len(), 1, "{what}");
            proves(&again, source, &what);
        }
    }
}

/// Names, places and values that an earlier conversion gave count in a later one.
#[test]
fn later_conversions_are_repeated_on_what_the_earlier_ones_made() {
    let folder = Folder::new();
    let net = data("caffe/forward/resnet.caffemodel");
    let net = net.to_str().expect("UTF-8");
    let arrays: [(&str, &[usize], &[f32]); 3] =
        [("b", &[2, 1], &[0.0, 1.0]), ("a", &[1, 2], &[2.0, 3.0]), ("c", &[1, 2], &[5.0, 7.0])];
    let small = &*folder.with("a.npz", bytes_of(Format::Npz, &arrays));
    for (source, steps) in [
        (net, &["convert IN --names torch", "convert IN --only *weight"][..]),
        (net, &["fold IN", "convert IN --only *0", "rename IN --sed s/^/x./", "convert IN --exclude #0"]),
        (net, &["convert IN --names torch", "convert IN --only *weight --dtype f16", "convert IN --dtype f64"]),
        (net, &["convert IN --layout hwio", "convert IN --only *0 --dtype bf16", "rename IN --sed s/^/x./"]),
        (small, &["transpose IN b --perm 1,0", "convert IN --exclude #0"]),
        (small, &["transpose IN a --perm 1,0", "convert IN --only #1", "transpose IN a --perm 1,0"]),
        (small, &["merge IN a c --axis 0 --into m", "convert IN --exclude #0", "convert IN --dtype f16"]),
        (small, &["split IN b --axis 0 --sizes 1,1", "convert IN --exclude #0", "convert IN --only #1"]),
    ] {
        for ending in ["safetensors", "npz"] {
            let mut from = source.to_owned();
            for (number, step) in steps.iter().enumerate() {
                let step = step.replace("IN", &from);
                from = convert(&folder, &format!("{step} -o ={number}.{ending}"));
                proves(&from, source, &format!("{steps:?} to {ending}"));
            }
            // With another selection than the last one's, other tensors are there.
            if ending == "safetensors" && steps.last().is_some_and(|step| step.contains("--exclude #0")) {
                let bytes = std::fs::read(&from).expect("there");
                let mut lie = receipt(&open("x.safetensors", &bytes).expect("opens"));
                lie["transforms"][0]["settings"]["exclude"] = json!(["#1"]);
                let lying = folder.with("lying.safetensors", with_receipt(&bytes, &lie, "", None));
                blob(&["verify", &lying, "--against", source]).no().stdout_has("is missing from");
            }
        }
    }
}

/// A layer of Caffe's, with blobs of these shapes, and settings.
fn layer(name: &str, of: &str, [bottom, top]: [&str; 2], blobs: &[&[u64]], settings: &[u8]) -> Vec<u8> {
    let texts = [(1, name), (2, of), (3, bottom), (4, top)].map(|(number, text)| len(number, text.as_bytes()));
    len(100, &[texts.concat(), blobs.iter().copied().flat_map(counted).collect(), settings.to_vec()].concat())
}

/// A blob of the values 1, 2, 3, ….
fn counted(dims: &[u64]) -> Vec<u8> {
    let values: Vec<f32> = (1..=dims.iter().product()).map(|value| value as f32).collect();
    len(7, &[shape(dims), floats(&values)].concat())
}

/// A net of Caffe's, with a net that names the axes of its matrix otherwise than most.
fn transposing() -> Vec<u8> {
    let convolution = len(106, &[var(1, 2), var(2, 0), var(11, 1), var(12, 2)].concat());
    let product = len(117, &[var(1, 5), var(2, 0), var(6, 1)].concat());
    let input = [len(3, b"data"), len(8, &[1, 3, 2, 2].map(|dim| var(1, dim)).concat())].concat();
    let conv = layer("conv", "Convolution", ["data", "c"], &[&[2, 3, 1, 2]], &convolution);
    [input, conv, layer("fc", "InnerProduct", ["c", "f"], &[&[4, 5]], &product)].concat()
}

/// The file in between has no net, so that names and shapes say which tensors are weights, and how they lie.
#[test]
fn a_later_conversion_does_not_follow_the_net_of_the_first_file() {
    let folder = Folder::new();
    let net = folder.with("n.caffemodel", transposing());
    for between in ["s.safetensors", "s.npz", "s.h5"] {
        for layout in ["hwio", "ohwi"] {
            let what = format!("{between}, {layout}");
            let plain = convert(&folder, &format!("convert =n.caffemodel -o ={between}"));
            let made = convert(&folder, &format!("convert ={between} --layout {layout} -o =t.safetensors"));
            proves(&made, &plain, &what);
            proves(&made, &net, &what);
            // From the net itself, its matrix lies otherwise.
            let direct = convert(&folder, &format!("convert =n.caffemodel --layout {layout} -o =d.safetensors"));
            proves(&direct, &net, &what);
            let of = |path: &str| Checkpoint::open(path).expect("opens").entry("fc/0").expect("there").shape().clone();
            let both = [of(&made), of(&direct)].map(|shape| shape.dims().to_vec());
            assert_eq!(both, if layout == "hwio" { [[5, 4], [4, 5]] } else { [[4, 5], [5, 4]] }, "{what}");
        }
    }
}

/// A convolution and a BatchNorm that adds an eps.
fn normalised(eps: f32) -> Vec<u8> {
    let convolution = len(106, &[var(1, 2), var(2, 0), var(4, 1)].concat());
    let norm = len(139, &[&[3 << 3 | 5][..], &eps.to_le_bytes()].concat());
    let input = [len(3, b"data"), len(8, &[1, 3, 2, 2].map(|dim| var(1, dim)).concat())].concat();
    let conv = layer("conv", "Convolution", ["data", "c"], &[&[2, 3, 1, 1]], &convolution);
    [input, conv, layer("bn", "BatchNorm", ["c", "b"], &[&[2], &[2], &[1]], &norm)].concat()
}

/// Values that are made with another eps, under a receipt that says so of a file whose own net says another.
#[test]
fn the_eps_of_the_net_in_the_source_stands_whatever_the_receipt_says() {
    let folder = Folder::new();
    let source = folder.with("n.caffemodel", normalised(0.001));
    folder.with("other.caffemodel", normalised(0.5));
    for steps in ["--fold", "--bn fold-factor --eps 0.01"] {
        let made = convert(&folder, &format!("convert =n.caffemodel {steps} -o =s.safetensors"));
        proves(&made, &source, steps);
        let other = convert(&folder, &format!("convert =other.caffemodel {steps} -o =t.safetensors"));
        let (honest, bytes) = (std::fs::read(&made).expect("there"), std::fs::read(&other).expect("there"));
        let [honest, mut lie] = [&honest, &bytes].map(|bytes| receipt(&open("x.safetensors", bytes).expect("opens")));
        lie["source"] = honest["source"].clone();
        let lying = folder.with("lying.safetensors", with_receipt(&bytes, &lie, "", None));
        let words = "the receipt says that the eps of \"bn\" was 5e-1, and the net of";
        let ran = blob(&["verify", &lying, "--against", &source]).no().stdout_has(words);
        assert!(ran.out.contains("n.caffemodel says 1e-3") && !ran.out.contains("differs"), "{}", ran.out);
        // So it is where the conversion is not the last one.
        let bytes = with_receipt(&bytes, &lie, "", None);
        folder.with("lying.safetensors", bytes);
        let renamed = convert(&folder, "rename =lying.safetensors --sed s/^/x./ -o =renamed.safetensors");
        blob(&["verify", &renamed, "--against", &source]).no().stdout_has(words);
    }
}

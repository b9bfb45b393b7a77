//! `blob merge` and `blob split`: values against NumPy's, files against their digests, what is refused, and what is left then.

use std::path::Path;
use std::process::Command;

use blob_core::{AnyBlob, DType, Shape};
use blob_io::{Checkpoint, Format, IfExists, Writer};

use crate::numpy::python;
use crate::support::{Folder, blob, data, report};

const NET: &str = "caffe/net/f32_v2_diff.caffemodel";

/// Arrays and their parts along each axis: `A.npz` has the parts beside another array, `B.npz` the whole in their place.
const SCRIPT: &str = "
import json, sys, numpy
folder = sys.argv[1]
for seed in range(int(sys.argv[2])):
    r = numpy.random.default_rng(seed)
    shape = tuple(int(n) for n in r.integers(1, 7, r.integers(1, 5)))
    dtype = ['u1', 'f2', 'f4', 'f8', '?'][seed % 5]
    whole = r.integers(0, 2 if dtype == '?' else 200, shape).astype(dtype)
    axis = int(r.integers(0, len(shape)))
    cuts = sorted(int(n) for n in r.integers(0, shape[axis] + 1, r.integers(0, 4)))
    parts = numpy.split(whole, cuts, axis)
    assert (numpy.concatenate(parts, axis) == whole).all()
    other = r.random((3, 2))
    save = [numpy.savez, numpy.savez_compressed][seed % 2]
    save(f'{folder}/{seed}a.npz', first=other, **{f'w_{i}': part for i, part in enumerate(parts)}, last=other)
    save(f'{folder}/{seed}b.npz', first=other, w=whole, last=other)
    print(json.dumps([axis - len(shape) if seed % 3 else axis, [part.shape[axis] for part in parts]]))
";

fn digest(file: &str) -> String {
    let ran = blob(&["hash", "--content", file]).ok();
    ran.out.split(' ').next().expect("a digest").to_owned()
}

fn files_of(folder: &Path) -> Vec<String> {
    let listing = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        listing.map(|e| e.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

#[test]
fn tensors_are_cut_and_joined_along_an_axis_as_numpy_does() {
    const CASES: usize = 60;
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("UTF-8");
    let run = Command::new(&python).args(["-c", SCRIPT, path, &CASES.to_string()]).output().expect("python runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let text = String::from_utf8(run.stdout).expect("UTF-8");
    for (case, line) in text.lines().enumerate() {
        let (axis, sizes): (i64, Vec<usize>) = serde_json::from_str(line).expect("JSON");
        let (a, b, axis) = (format!("{path}/{case}a.npz"), format!("{path}/{case}b.npz"), axis.to_string());
        let out = format!("{path}/out.{}", ["npz", "safetensors", "params"][case % 3]);
        let list: Vec<String> = sizes.iter().map(usize::to_string).collect();
        // MXNet's list knows no bool, and older records no empty array.
        let out = if out.ends_with("params") && (case % 5 == 4 || sizes.contains(&0)) {
            format!("{path}/out.npz")
        } else {
            out
        };
        blob(&["split", &b, "w", "--axis", &axis, "--sizes", &list.join(","), "-o", &out, "--force"]).ok();
        assert_eq!(digest(&out), digest(&a), "{line}");
        let names: Vec<String> = (0..sizes.len()).map(|i| format!("w_{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let into = ["--axis", &axis, "--into", "w", "-o", &out, "--force"];
        blob(&[&["merge", &a], &names[..], &into[..]].concat()).ok();
        assert_eq!(digest(&out), digest(&b), "{line}");
        let order: Vec<String> = Checkpoint::open(&out).expect("opens").names().map(str::to_owned).collect();
        assert!(out.ends_with("safetensors") || order == ["first", "w", "last"], "{order:?}");
    }
    report(&format!("merge, split: {CASES} arrays as numpy.concatenate and numpy.split have them"));
}

/// Longer than the buffers, with runs that are shorter and longer than they are.
#[test]
fn large_arrays_are_cut_and_joined_too() {
    let folder = Folder::new();
    for (dims, axis) in [([3, 700_001, 2], 1), ([700_001, 3, 2], 1), ([2, 3, 700_001], 2), ([4_200_006, 1, 1], 0)] {
        let bytes: Vec<u8> = (0..4_200_006u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let blob_of = AnyBlob::from_vec(Shape::new(dims).expect("fits"), DType::U8, bytes).expect("as many");
        let (whole, parts, again) = (folder.file("whole.npy"), folder.file("parts.npz"), folder.file("again.npy"));
        Writer::new(Format::Npy).tensor("x", &blob_of).write(&whole, IfExists::Replace).expect("written");
        let extent = dims[axis];
        let sizes = format!("1,{},{}", extent / 3, extent - 1 - extent / 3);
        let axis = axis.to_string();
        let ran =
            blob(&["split", &whole, "--axis", &axis, "--sizes", &sizes, "--into", "a,b,c", "-o", &parts, "--force"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        blob(&["merge", &parts, "a", "b", "c", "--axis", &axis, "--into", "x", "-o", &again, "--force"]).ok();
        assert!(std::fs::read(&again).expect("readable") == std::fs::read(&whole).expect("readable"), "{dims:?}");
    }
}

/// One file of every format, in files of its own format where that is written anew, and together again.
#[test]
fn what_is_split_merges_to_the_same_tensors() {
    let sources = [
        ("caffe/net/v0.caffemodel", "caffemodel"),
        (NET, "safetensors"),
        (NET, "caffemodel.h5"),
        ("mxnet/golden/mxnet-1.9.1/many_1000.nd", "params"),
        ("mxnet/golden/mxnet-1.9.1/dtype_bfloat16.nd", "safetensors"),
        ("other/numpy_compressed.npz", "npz"),
        ("other/mxnet2_row_sparse.npz", "npz"),
        ("other/two.safetensors", "h5"),
        ("caffe/net/f32_v2.caffemodel", "npy"),
    ];
    for (source, extension) in sources {
        for how in [&["--by-layer"][..], &["--max-size", "300"], &["--max-size", "1G"]] {
            let folder = Folder::new();
            let pattern = folder.path().join(format!("x-{{}}.{extension}"));
            if extension == "npy" && how != ["--max-size", "300"] {
                continue;
            }
            let most = if extension == "npy" { &["--max-size", "1"] } else { how };
            blob(&[&["split", source], most, &["-o", pattern.to_str().expect("UTF-8")]].concat()).ok();
            let parts: Vec<String> = files_of(folder.path());
            let paths: Vec<String> =
                parts.iter().map(|name| folder.path().join(name).to_str().expect("UTF-8").to_owned()).collect();
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let all = &folder.file("all.safetensors");
            blob(&[&["merge"], &paths[..], &["-o", all]].concat()).ok();
            if extension == "npy" {
                // The names are the files' own.
                let names: Vec<String> = Checkpoint::open(all).expect("opens").names().map(str::to_owned).collect();
                assert!(parts.iter().all(|part| names.contains(&part.replace(".npy", ""))), "{names:?}");
                continue;
            }
            assert_eq!(digest(all), digest(source), "{source} {how:?}: {parts:?}");
        }
    }
}

#[test]
fn a_folder_gets_a_file_a_layer() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("layers");
    let out_text = format!("{}/", out.to_str().expect("UTF-8"));
    let dry = blob(&["split", NET, "--by-layer", "-n", "-o", &out_text]);
    assert!(dry.code == Some(0) && dry.err.contains("would write 24 tensors") && !out.exists(), "{dry:?}");
    let ran = blob(&["split", NET, "--by-layer", "-o", &out_text, "--json"]);
    let expected = ["bn1", "conv1", "conv2", "ip", "prelu1", "scale1"].map(|layer| format!("{layer}.caffemodel"));
    assert_eq!(files_of(&out), expected, "{ran:?}");
    let line = &ran.json()[0];
    assert_eq!((line["files"][0]["tensors"].as_u64(), line["to"].as_str()), (Some(4), Some("caffemodel")), "{line}");
    blob(&["split", NET, "--by-layer", "-o", &out_text]).refused("conv1.caffemodel: exists; --force replaces it");
    assert_eq!(blob(&["split", NET, "--by-layer", "-o", &out_text, "--force"]).code, Some(0));
    // Names lead to no other folder.
    let odd = folder.path().join("odd.safetensors");
    let byte = AnyBlob::from_vec(Shape::new([1]).expect("fits"), DType::U8, vec![1]).expect("as many");
    let writer = ["../../up/w", "/abs/w", "a/b/w", "a.b/w", "nul/w"]
        .iter()
        .fold(Writer::new(Format::Safetensors), |w, n| w.tensor(*n, &byte));
    writer.write(&odd, IfExists::Refuse).expect("written");
    let out = folder.path().join("odd");
    std::fs::create_dir(&out).expect("made");
    blob(&["split", odd.to_str().expect("UTF-8"), "--by-layer", "-o", out.to_str().expect("UTF-8")]).ok();
    assert_eq!(files_of(&out).len(), 5);
    assert_eq!(files_of(folder.path()), ["layers", "odd", "odd.safetensors"]);
}

#[test]
fn all_clashes_are_told_and_nothing_is_left() {
    let folder = Folder::new();
    let out = &folder.file("x.safetensors");
    let copy = folder.path().join("copy.npz");
    assert_eq!(blob(&["convert", "caffe/net/v1.caffemodel", "-o", copy.to_str().expect("UTF-8")]).code, Some(0));
    let clash = blob(&["merge", "caffe/net/v1.caffemodel", copy.to_str().expect("UTF-8"), "-o", out]);
    assert_eq!(clash.code, Some(2), "{clash:?}");
    for name in ["conv1/0", "conv1/1", "ip/0", "ip/1"] {
        assert!(clash.err.contains(&format!("{name:?} in caffe/net/v1.caffemodel and ")), "{clash:?}");
    }
    for (args, words) in [
        (&["merge", NET, "conv1/0", "conv1/1", "--axis", "0", "--into", "w"][..], "does not fit behind"),
        (&["merge", NET, "conv1/0", "conv1/0", "--axis", "0", "--into", "w"], "is named twice"),
        (&["merge", NET, "conv1/0", "--axis", "0", "--into", "ip/0"], "there is a tensor \"ip/0\" already"),
        (&["merge", NET, "--axis", "0", "--into", "w"], "--axis needs the tensors"),
        (&["merge", NET, "no/such.npz"], "no/such.npz: cannot open"),
        (&["merge", NET, "caffe/net/truncated.caffemodel"], "truncated.caffemodel: layer #9"),
        (&["split", NET, "conv1/0", "--axis", "4", "--sizes", "1,2"], "axis 4"),
        (&["split", NET, "conv1/0", "--axis", "1", "--sizes", "1,3"], "has 3 indices on axis 1, and 1 + 3 is 4"),
        (
            &["split", NET, "conv1/0", "--axis", "1", "--sizes", "1,2", "--into", "a,a"],
            "two tensors would be called \"a\"",
        ),
        (
            &["split", NET, "conv1/0", "--axis", "1", "--sizes", "1,2", "--into", "a"],
            "--into has 1 name, and there are 2 parts",
        ),
        (&["split", NET, "--by-layer"], "would be one file, and several are written"),
        (&["split", NET, "--max-size", "0"], "would be one file, and several are written"),
    ] {
        blob(&[args, &["-o", out]].concat()).refused(words);
    }
    assert_eq!(blob(&["merge", NET, "conv9/0", "--axis", "0", "--into", "w", "-o", out]).code, Some(1), "no match");
    assert_eq!(blob(&["merge", NET, "-o", &format!("{out}.onnx")]).code, Some(2));
    assert_eq!(files_of(folder.path()), ["copy.npz"]);
    blob(&["merge", copy.to_str().expect("UTF-8"), "-o", copy.to_str().expect("UTF-8"), "--force"])
        .refused("never replaced");
}

/// One broken member: the files before it go again, and others stay.
#[test]
fn a_split_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = AnyBlob::from_vec(Shape::new([9]).expect("fits"), DType::U8, vec![7; 9]).expect("as many");
    let npz = folder.path().join("x.npz");
    Writer::new(Format::Npz).tensor("a/w", &good).tensor("b/w", &good).write(&npz, IfExists::Refuse).expect("written");
    let mut bytes = std::fs::read(&npz).expect("readable");
    let last = bytes.windows(9).rposition(|window| window == [7; 9]).expect("the values of b/w");
    bytes[last] ^= 1;
    std::fs::write(&npz, bytes).expect("writable");
    let out = folder.path().join("out");
    let npz = npz.to_str().expect("UTF-8");
    blob(&["split", npz, "--by-layer", "-o", &format!("{}/", out.to_str().expect("UTF-8"))]).refused("b/w");
    assert_eq!(files_of(folder.path()), ["x.npz"]);
    // No part is read from its array's beginning to its end, and yet the checksum counts.
    let large = AnyBlob::from_vec(Shape::new([9 << 20]).expect("fits"), DType::U8, vec![7; 9 << 20]).expect("as many");
    Writer::new(Format::Npz).tensor("w", &large).write(npz, IfExists::Replace).expect("written");
    let mut bytes = std::fs::read(npz).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(npz, bytes).expect("writable");
    let part = folder.path().join("part-{}.npy");
    let sizes = format!("{0},{0},{0}", 3 << 20);
    let ran = blob(&["split", npz, "--axis", "0", "--sizes", &sizes, "-o", part.to_str().expect("UTF-8")]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert_eq!(files_of(folder.path()), ["x.npz"]);
}

#[test]
fn a_net_keeps_its_tensors_through_every_format_that_it_is_merged_into() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = "caffe/net/v1.caffemodel";
    let mut written = 0;
    for to in Format::ALL.iter().copied().filter(|to| to.is_written()) {
        let out = folder.path().join(format!("x.{}", to.name()));
        let out = out.to_str().expect("UTF-8");
        let ran = blob(&["merge", source, "--to", to.name(), "-o", out]);
        if ran.code == Some(0) {
            let opened = Checkpoint::open(out).expect("opens");
            let len = |file: &Checkpoint| file.entries().iter().map(|e| e.byte_len()).collect::<Vec<_>>();
            let (mut found, mut expected) = (len(&opened), len(&Checkpoint::open(data(source)).expect("opens")));
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{to}");
            written += 1;
        } else {
            assert!(ran.code == Some(2) && !Path::new(out).exists(), "{to}: {ran:?}");
        }
    }
    assert!(written >= 6, "{written}");
}

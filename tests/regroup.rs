//! `blob merge` and `blob split`: values equal NumPy's, files have equal digests, a failed split leaves nothing.
//! Refusals are in `sessions/regroup.txt`.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use blob_convert::recipe::{Divide, NetFile, Recipe};
use blob_convert::transform::{Registry, Split};
use blob_convert::{Options, Place, Silent, plan};
use blob_core::{AnyBlob, DType, Shape};
use blob_io::{Checkpoint, Format, IfExists, Writer};

use crate::support::{Folder, blob, by_python, command, data, report};

const NET: &str = "caffe/net/f32_v2_diff.caffemodel";

const SCRIPT: &str = include_str!("python/regroup.py");

fn digest(file: &str) -> String {
    let ran = blob(&["hash", "--content", file]).ok();
    ran.out.split(' ').next().expect("a digest").to_owned()
}

fn files_of(folder: &Path) -> Vec<String> {
    let listing = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        listing.map(|e| e.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

fn paths_of(folder: &Path) -> Vec<String> {
    files_of(folder).iter().map(|name| folder.join(name).to_str().expect("UTF-8").to_owned()).collect()
}

#[test]
fn tensors_are_cut_and_joined_along_an_axis_as_numpy_does() {
    const CASES: usize = 60;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("UTF-8");
    let Some(text) = by_python(SCRIPT, &[path, &CASES.to_string()]) else { return };
    for (case, line) in text.lines().enumerate() {
        let (axis, sizes): (i64, Vec<usize>) = serde_json::from_str(line).expect("JSON");
        let (a, b, axis) = (format!("{path}/{case}a.npz"), format!("{path}/{case}b.npz"), axis.to_string());
        let out = format!("{path}/out.{}", ["npz", "safetensors", "params"][case % 3]);
        let list: Vec<String> = sizes.iter().map(usize::to_string).collect();
        // MXNet's list does not support bool, and older records do not support empty arrays.
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

/// A source that is written anew while the copy waits for a reader: the copy fails at the end.
#[cfg(unix)]
#[test]
fn a_source_that_changes_meanwhile_is_noticed() {
    let folder = Folder::new();
    let source = folder.file("w.safetensors");
    let blob_of =
        AnyBlob::from_vec(Shape::new([2, 1 << 22]).expect("fits"), DType::U8, vec![1; 2 << 22]).expect("fits");
    Writer::new(Format::Safetensors).tensor("w", &blob_of).write(&source, IfExists::Refuse).expect("written");
    let index = folder.file("w.safetensors.index.json");
    fs::write(&index, r#"{"weight_map": {"w": "w.safetensors"}}"#).expect("written");
    for args in [
        &["merge", "w.safetensors", "--to", "safetensors"][..],
        &["convert", "w.safetensors.index.json", "--to", "npz"],
        &["split", "w.safetensors", "w", "--axis", "0", "--sizes", "1,1", "--to", "safetensors"],
        &["extract", "w.safetensors", "w"],
    ] {
        let mut command = command(&[args, &["-o", "-"]].concat());
        let child = command.current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("runs");
        let mut out = child.stdout.take().expect("a pipe");
        out.read_exact(&mut [0; 1]).expect("begun");
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
        let changed = if args[1].ends_with(".json") { &index } else { &source };
        fs::File::open(changed).and_then(|file| file.set_modified(later)).expect("another time");
        std::io::copy(&mut out, &mut std::io::sink()).expect("read");
        let ran = child.wait_with_output().expect("ends");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success() && said.contains("was changed while it was read"), "{args:?}: {said}");
    }
}

/// Arrays longer than the buffers, with runs shorter and longer than the buffers.
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
        assert!(fs::read(&again).expect("readable") == fs::read(&whole).expect("readable"), "{dims:?}");
    }
}

/// Splits one file of every format into files of that format, if tensors alone suffice, and merges them
/// again.
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
            let (parts, paths) = (files_of(folder.path()), paths_of(folder.path()));
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let all = &folder.file("all.safetensors");
            blob(&[&["merge"], &paths[..], &["-o", all]].concat()).ok();
            if extension == "npy" {
                // The names are those in the file.
                let names: Vec<String> = Checkpoint::open(all).expect("opens").names().map(str::to_owned).collect();
                assert!(parts.iter().all(|part| names.contains(&part.replace(".npy", ""))), "{names:?}");
                continue;
            }
            assert_eq!(digest(all), digest(source), "{source} {how:?}: {parts:?}");
        }
    }
}

/// One member is broken: the files written before it are removed, and other files stay; also where they are too many to
/// wait for each other.
#[test]
fn a_split_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let npz = folder.path().join("x.npz");
    let good = AnyBlob::from_vec(Shape::new([9]).expect("fits"), DType::U8, vec![7; 9]).expect("as many");
    for layers in [2, 130] {
        let names: Vec<String> = (0..layers).map(|i| format!("l{i:03}/w")).collect();
        let all = names.iter().fold(Writer::new(Format::Npz), |writer, name| writer.tensor(name, &good));
        all.write(&npz, IfExists::Replace).expect("written");
        let mut bytes = fs::read(&npz).expect("readable");
        let last = bytes.windows(9).rposition(|window| window == [7; 9]).expect("the values of the last one");
        bytes[last] ^= 1;
        fs::write(&npz, bytes).expect("writable");
        let out = format!("{}/", folder.path().join("out").to_str().expect("UTF-8"));
        let npz = npz.to_str().expect("UTF-8");
        blob(&["split", npz, "--by-layer", "-o", &out]).refused(names.last().expect("some"));
        assert_eq!(files_of(folder.path()), ["x.npz"], "{layers} layers");
    }
    let npz = npz.to_str().expect("UTF-8");
    // Although no part reads the array from beginning to end, the checksum is verified.
    let large = AnyBlob::from_vec(Shape::new([9 << 20]).expect("fits"), DType::U8, vec![7; 9 << 20]).expect("as many");
    Writer::new(Format::Npz).tensor("w", &large).write(npz, IfExists::Replace).expect("written");
    let mut bytes = fs::read(npz).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(npz, bytes).expect("writable");
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
    for to in Format::ALL.iter().copied() {
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

#[test]
fn bf16_is_bf16_again_wherever_a_receipt_says_so() {
    let folder = Folder::new();
    let (source, npz) = (folder.file("source.safetensors"), folder.file("kept.npz"));
    let values: Vec<u8> = (0..24u8).flat_map(|i| [i.wrapping_mul(37), 0x3f]).collect();
    let tensor = |dtype| AnyBlob::from_vec(Shape::new([4, 6]).expect("fits"), dtype, values.clone()).expect("as many");
    let (bf16, whole) = (tensor(DType::BF16), tensor(DType::U16));
    let writer = Writer::new(Format::Safetensors).tensor("a.w", &bf16).tensor("b.w", &bf16).tensor("b.n", &whole);
    writer.write(&source, IfExists::Refuse).expect("written");
    let expected = digest(&source);
    blob(&["convert", &source, "-o", &npz]).ok();
    for (command, out) in [
        (&["convert", &npz][..], "1.safetensors"),
        (&["convert", &npz, "--anew"], "2.npz"),
        (&["merge", &npz], "3.safetensors"),
        (&["merge", &npz], "4.npz"),
        (&["merge", &folder.file("4.npz")], "5.npz"),
        (&["convert", &folder.file("5.npz")], "6.safetensors"),
        (&["convert", &folder.file("5.npz")], "7.h5"),
    ] {
        blob(&[command, &["-o", &folder.file(out)]].concat()).ok();
        assert_eq!(digest(&folder.file(out)), expected, "{out}");
    }
    assert_eq!(
        Checkpoint::open(folder.file("6.safetensors")).expect("opens").entry("a.w").expect("there").dtype(),
        Some(DType::BF16)
    );
    blob(&["split", &npz, "--by-layer", "-o", &folder.file("parts/")]).ok();
    let parts = paths_of(&folder.path().join("parts"));
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    blob(&[&["merge"], &parts[..], &["-o", &folder.file("8.safetensors")]].concat()).ok();
    assert_eq!(digest(&folder.file("8.safetensors")), expected, "{parts:?}");
    // The bf16 values are converted, not the bits as integers.
    blob(&["convert", &source, "--dtype", "f32", "-o", &folder.file("f32.safetensors")]).ok();
    blob(&["convert", &npz, "--dtype", "f32", "-o", &folder.file("f32.npz")]).ok();
    assert_eq!(digest(&folder.file("f32.npz")), digest(&folder.file("f32.safetensors")));
    blob(&["diff", "--exact", &npz, &source]).ok();
    // Also when merged with a tensor that was not stored as u16.
    blob(&["merge", &npz, "a.w", "b.w", "--axis", "0", "--into", "w", "-o", &folder.file("joined.safetensors")]).ok();
    let joined = Checkpoint::open(folder.file("joined.safetensors")).expect("opens");
    assert_eq!(joined.entry("w").expect("there").dtype(), Some(DType::BF16));
    assert_eq!(joined.entry("b.n").expect("there").dtype(), Some(DType::U16));
}

/// With --force, existing files stay and new ones are removed.
#[test]
fn a_split_that_fails_leaves_the_files_that_were_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let good = AnyBlob::from_vec(Shape::new([9]).expect("fits"), DType::U8, vec![7; 9]).expect("as many");
    let npz = path("x.npz");
    let layers = ["a/w", "b/w", "c/w", "d/w"];
    let writer = layers.iter().fold(Writer::new(Format::Npz), |writer, name| writer.tensor(*name, &good));
    writer.write(&npz, IfExists::Refuse).expect("written");
    let mut bytes = fs::read(&npz).expect("readable");
    let last = bytes.windows(9).rposition(|window| window == [7; 9]).expect("the values of d/w");
    bytes[last] ^= 1;
    fs::write(&npz, bytes).expect("writable");
    for old in ["out-a.npz", "out-c.npz", "out-d.npz"] {
        fs::write(path(old), old).expect("writable");
    }
    blob(&["split", &npz, "--by-layer", "-o", &path("out-{}.npz"), "--force"]).refused("d/w");
    assert_eq!(paths_of(folder.path()), ["out-a.npz", "out-c.npz", "out-d.npz", "x.npz"].map(path));
    for old in ["out-a.npz", "out-c.npz", "out-d.npz"] {
        assert_eq!(fs::read_to_string(path(old)).expect("readable"), old);
    }
}

#[test]
fn an_array_that_is_cut_is_unpacked_once() {
    let file = Checkpoint::open(data("other/numpy_compressed.npz")).expect("opens");
    let entries = file.entries().iter().filter(|entry| !entry.is_plain());
    let entry = entries.max_by_key(|entry| entry.shape().dims().last().copied()).expect("a deflated array");
    let count = *entry.shape().dims().last().expect("an axis");
    let split = Split::new(entry.name(), -1, vec![1; count], (0..count).map(|part| format!("part{part}")).collect());
    let folder = tempfile::tempdir().expect("a folder");
    let before = file.bytes_read();
    let recipe = Recipe::new("", folder.path().join("all.npz")).step(split.clone());
    recipe.plan_of(&[&file], None, &Registry::default()).expect("a plan").run(&Silent).expect("runs");
    // For the digest, for all arrays, and for the one that is cut.
    let read = file.bytes_read() - before;
    assert!(count > 2 && read <= 3 * file.file_len(), "{read} bytes for {count} parts");
    let before = file.bytes_read();
    let mut recipe = Recipe::new("", folder.path().join("part-{}.npy")).step(split);
    recipe.target.divide = Some(Divide::ByPart);
    recipe.plan_several(&file, &Registry::default()).expect("plans").run(&Silent).expect("runs");
    let read = file.bytes_read() - before;
    assert!(read <= 3 * file.file_len(), "{read} bytes for {count} files");
    assert_eq!(files_of(folder.path()).len(), count + 1);
}

#[test]
fn a_recipe_of_several_files_says_what_it_cannot_have() {
    let file = Checkpoint::open(data("caffe/net/f32_v2_diff.caffemodel")).expect("opens");
    let folder = Folder::new();
    let (pattern, net) = (folder.file("x-{}.npz"), folder.file("x-0.npz"));
    let several = |path: &str, divide| {
        let mut recipe = Recipe::new("", path);
        (recipe.target.divide, recipe.target.format) = (Some(divide), Some(Format::Npz));
        recipe
    };
    let refusal = |recipe: &Recipe| recipe.plan_several(&file, &Registry::default()).expect_err("refused").to_string();
    let mut sizes = vec![0; 100_001];
    sizes[0] = 4;
    let many = several(&pattern, Divide::ByPart).step(Split::new("conv1/0", 0, sizes, Vec::new()));
    assert!(refusal(&many).contains("100001 files"), "{}", refusal(&many));
    assert!(refusal(&several("-", Divide::ByLayer)).contains("standard output"));
    let mut sharded = several(&pattern, Divide::ByLayer);
    sharded.target.shard_size = Some(1);
    assert!(refusal(&sharded).contains("shard_size"));
    let mut into = several(&pattern, Divide::ByLayer);
    into.target.into = Some(data(NET));
    assert!(refusal(&into).contains("into"));
    // A file that is read besides the source is not replaced by a part.
    fs::write(&net, "layer { name: 'conv1' }").expect("written");
    let split = Split::new("conv1/0", 0, vec![1, 3], vec!["w".to_owned(); 2]);
    let mut read = several(&pattern, Divide::ByPart).step(split.clone());
    (read.net, read.target.if_exists) = (Some(NetFile::Prototxt(net.into())), IfExists::Replace);
    let why = refusal(&read);
    assert!(why.contains("x-0.npz") && why.contains("read"), "{why}");
    // The receipt of a part also lists the part's own tensors alone.
    let parts = several(&folder.file("y-{}.npz"), Divide::ByPart).step(split);
    let before = file.bytes_read();
    parts.plan_several(&file, &Registry::default()).expect("plans").run(&Silent).expect("runs");
    assert!(file.bytes_read() > before);
    let part = Checkpoint::open(folder.file("y-1.npz")).expect("opens");
    let (_, receipt) = part.metadata().iter().find(|(key, _)| key == "blob.receipt").expect("a receipt");
    let receipt: serde_json::Value = serde_json::from_str(receipt).expect("JSON");
    assert_eq!(receipt["left_out"], serde_json::json!([]));
    assert_eq!(receipt["transforms"][0]["name"], "select");
    blob(&["verify", &folder.file("y-1.npz"), "--against", NET]).ok();
}

/// The values of an array that must be unpacked are held for the parts of one plan, and for no other file.
#[test]
fn a_step_of_two_plans_cuts_the_values_of_each_file() {
    const NAME: &str = "@0";
    let folder = Folder::new();
    let split = Split::new(NAME, 0, vec![1, 2], vec!["a".to_owned(), "b".to_owned()]);
    let options = Options::new(Format::Npz).transform(split);
    for (name, value) in [("one", 1_u8), ("two", 2)] {
        let header = format!("{:<117}\n", "{'descr': '>u2', 'fortran_order': False, 'shape': (3,), }");
        let bytes = [b"\x93NUMPY\x01\0\x76\0", header.as_bytes(), &[0, value].repeat(3)].concat();
        let source = folder.file(&format!("{name}/x.npy"));
        fs::create_dir_all(folder.path().join(name)).expect("a folder");
        fs::write(&source, bytes).expect("written");
        let file = Checkpoint::open(&source).expect("opens");
        assert!(!file.entries()[0].is_plain());
        let out = folder.file(&format!("{name}.npz"));
        assert_eq!(file.entries()[0].name(), NAME);
        let target = Place::File { path: Path::new(&out), if_exists: IfExists::Refuse };
        plan(&file, &options, &target).expect("a plan").run(&Silent).expect("runs");
        let raw = folder.file(&format!("{name}.raw"));
        blob(&["extract", &out, "b", "-o", &raw]).ok();
        assert_eq!(fs::read(&raw).expect("readable"), [value, 0].repeat(2), "{name}");
    }
}

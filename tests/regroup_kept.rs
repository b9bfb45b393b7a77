//! What `blob merge` and `blob split` keep of a file: bf16, sparse arrays, diffs, and the files that were there before.

use std::fs;
use std::path::Path;

use blob_convert::Silent;
use blob_convert::regroup::Gatherer;
use blob_core::{AnyBlob, DType, Shape};
use blob_io::{Checkpoint, Format, IfExists, Tensor, Writer};

use crate::support::{Folder, blob, blob_with, command, data};

const NET: &str = "caffe/net/f32_v2_diff.caffemodel";
const SPARSE: &str = "mxnet/golden/mxnet-1.9.1/sparse_dtypes.nd";

fn digest(file: &str) -> String {
    let ran = blob(&["hash", "--content", file]).ok();
    ran.out.split(' ').next().expect("a digest").to_owned()
}

/// Runs the tool, which must succeed.
fn ok(args: &[&str]) {
    blob(args).ok();
}

fn files_of(folder: &Path) -> Vec<String> {
    let listing = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        listing.map(|e| e.expect("an entry").path().to_str().expect("UTF-8").to_owned()).collect();
    names.sort();
    names
}

fn bytes(file: &Checkpoint, name: &str) -> Vec<u8> {
    let entry = file.entry(name).unwrap_or_else(|| panic!("no {name:?}"));
    file.view(entry).expect("readable").into_owned()
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
    ok(&["convert", &source, "-o", &npz]);
    for (command, out) in [
        (&["convert", &npz][..], "1.safetensors"),
        (&["convert", &npz, "--anew"], "2.npz"),
        (&["merge", &npz], "3.safetensors"),
        (&["merge", &npz], "4.npz"),
        (&["merge", &folder.file("4.npz")], "5.npz"),
        (&["convert", &folder.file("5.npz")], "6.safetensors"),
        (&["convert", &folder.file("5.npz")], "7.h5"),
    ] {
        ok(&[command, &["-o", &folder.file(out)]].concat());
        assert_eq!(digest(&folder.file(out)), expected, "{out}");
    }
    assert_eq!(
        Checkpoint::open(folder.file("6.safetensors")).expect("opens").entry("a.w").expect("there").dtype(),
        Some(DType::BF16)
    );
    ok(&["split", &npz, "--by-layer", "-o", &folder.file("parts/")]);
    let parts = files_of(&folder.path().join("parts"));
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    ok(&[&["merge"], &parts[..], &["-o", &folder.file("8.safetensors")]].concat());
    assert_eq!(digest(&folder.file("8.safetensors")), expected, "{parts:?}");
    // Rounded from what they are, and not from whole numbers.
    ok(&["convert", &source, "--dtype", "f32", "-o", &folder.file("f32.safetensors")]);
    ok(&["convert", &npz, "--dtype", "f32", "-o", &folder.file("f32.npz")]);
    assert_eq!(digest(&folder.file("f32.npz")), digest(&folder.file("f32.safetensors")));
    blob(&["diff", "--exact", &npz, &source]).ok();
    // Joined with what was no u16, too.
    ok(&["merge", &npz, "a.w", "b.w", "--axis", "0", "--into", "w", "-o", &folder.file("joined.safetensors")]);
    let joined = Checkpoint::open(folder.file("joined.safetensors")).expect("opens");
    assert_eq!(joined.entry("w").expect("there").dtype(), Some(DType::BF16));
    assert_eq!(joined.entry("b.n").expect("there").dtype(), Some(DType::U16));
}

/// The file that MXNet wrote, byte for byte.
#[test]
fn sparse_arrays_stay_what_they_are() {
    let folder = Folder::new();
    let golden = fs::read(data(SPARSE)).expect("readable");
    ok(&["merge", SPARSE, "-o", &folder.file("all.params")]);
    assert!(fs::read(folder.file("all.params")).expect("readable") == golden);
    let arrays = Checkpoint::open(data(SPARSE)).expect("opens").positions();
    for (how, most) in [("--by-layer", None), ("--max-size", Some("1"))] {
        let out = folder.file(how);
        let how: Vec<&str> = [how].into_iter().chain(most).collect();
        ok(&[&["split", SPARSE], &how[..], &["-o", &format!("{out}/")]].concat());
        let parts = files_of(Path::new(&out));
        assert_eq!(parts.len(), arrays, "{how:?}");
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        ok(&[&["merge"], &parts[..], &["-o", &folder.file("again.params"), "--force"]].concat());
        // In another order where the files are those of layers.
        assert_eq!(digest(&folder.file("again.params")), digest(SPARSE));
        let again = Checkpoint::open(folder.file("again.params")).expect("opens");
        assert!(again.entries().iter().all(|entry| entry.sparse().is_some()));
    }
    for args in [
        &["split", SPARSE, "csr_int8#values", "--axis", "0", "--sizes", "2,3"][..],
        &["merge", SPARSE, "csr_int8#values", "--axis", "0", "--into", "x"],
    ] {
        blob(&[args, &["-o", &folder.file("x.params")]].concat()).refused("is a part of the sparse array");
    }
}

#[test]
fn a_diff_is_cut_and_joined_as_its_blob_is() {
    let folder = Folder::new();
    let net = Checkpoint::open(data(NET)).expect("opens");
    for (out, parts) in [("cut.npz", None), ("cut-{}.npz", Some(["cut-0.npz", "cut-1.npz"]))] {
        ok(&["split", NET, "conv1/0", "--axis", "0", "--sizes", "1,3", "--into", "x,y", "-o", &folder.file(out)]);
        let cut = |i: usize| Checkpoint::open(folder.file(parts.map_or(out, |parts| parts[i]))).expect("opens");
        for (tensor, suffix) in [("conv1/0", ""), ("conv1/0.diff", ".diff")] {
            let whole = bytes(&net, tensor);
            let (a, b) = (bytes(&cut(0), &format!("x{suffix}")), bytes(&cut(1), &format!("y{suffix}")));
            assert!(a.len() * 4 == whole.len() && [a, b].concat() == whole, "{tensor}");
        }
        assert!(cut(0).entry("conv1/0.diff").is_none());
    }
    blob(&["split", NET, "conv1/0", "--axis", "0", "--sizes", "1,3", "-o", &folder.file("x-{}.npy")])
        .ok()
        .tells("left out \"conv1/0.diff\"");
    // By a glob that matches the diffs as well, into a Caffe file, which has a diff of its blob's shape.
    let joined = folder.file("joined.caffemodel");
    ok(&["merge", NET, "conv*/1*", "--axis", "0", "--into", "conv1/1", "-o", &joined]);
    let file = Checkpoint::open(&joined).expect("opens");
    for suffix in ["", ".diff"] {
        let parts = [bytes(&net, &format!("conv1/1{suffix}")), bytes(&net, &format!("conv2/1{suffix}"))];
        assert_eq!(bytes(&file, &format!("conv1/1{suffix}")), parts.concat());
    }
    let odd = folder.file("odd.caffemodel");
    let args = ["merge", NET, "conv1/1.diff", "conv2/1.diff", "--axis", "0", "--into", "conv1/1.diff", "-o", &odd];
    blob(&args).refused("a diff has its blob's shape");
    assert!(!Path::new(&odd).exists());
}

/// With --force: those that were there stay, those that were not go again.
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
    assert_eq!(files_of(folder.path()), ["out-a.npz", "out-c.npz", "out-d.npz", "x.npz"].map(path));
    for old in ["out-a.npz", "out-c.npz", "out-d.npz"] {
        assert_eq!(fs::read_to_string(path(old)).expect("readable"), old);
    }
}

#[test]
fn an_array_that_is_cut_is_unpacked_once() {
    let file = Checkpoint::open(data("other/numpy_compressed.npz")).expect("opens");
    let entries = file.entries().iter().filter(|entry| !entry.is_plain());
    let entry = entries.max_by_key(|entry| entry.shape().dims().last().copied()).expect("a deflated array");
    let before = file.bytes_read();
    let sizes = vec![1; *entry.shape().dims().last().expect("an axis")];
    let gatherer = Gatherer::new(&file, &Silent);
    let parts = gatherer.split(entry, -1, &sizes).expect("cut");
    let mut found = 0;
    for part in parts.iter().chain(&parts) {
        let mut reader = part.reader().expect("opens");
        found += std::io::copy(&mut reader, &mut std::io::sink()).expect("readable");
    }
    assert_eq!(found, 2 * entry.byte_len());
    let read = file.bytes_read() - before;
    assert!(parts.len() > 2 && read <= file.file_len(), "{read} bytes for {} parts", parts.len());
}

#[test]
fn one_file_goes_to_standard_output_and_nothing_to_write_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let merged = command(&["merge", NET, "--to", "npz", "-o", "-"]).output().expect("runs");
    let file = path("x.npz");
    ok(&["merge", NET, "-o", &file]);
    assert!(merged.status.success() && merged.stdout == fs::read(&file).expect("readable"));
    let piped = blob_with(&["hash", "--content", "-"], &merged.stdout);
    assert_eq!(piped.out, format!("{}  -\n", digest(&file)));
    for (args, words) in [
        (&["merge", NET, "-o", "-"][..], "needs --to"),
        (&["merge", NET, "--to", "npz", "-o", "-", "--json"], "would both write to standard output"),
        (&["merge", NET, "--to", "neoml-net", "-o", "-"], "neoml-net"),
        (&["merge", NET, "--to", "npz", "-o", folder.path().to_str().expect("UTF-8")], "is a folder"),
        (&["split", NET, "--by-layer", "--to", "npz", "-o", "-"], "would be one file"),
        (&["split", NET, "--by-layer", "-n", "-o", &path("no/where/")], "is missing"),
    ] {
        blob(args).refused(words);
    }
    let empty = path("empty.safetensors");
    Writer::new(Format::Safetensors).write(&empty, IfExists::Refuse).expect("written");
    blob(&["split", &empty, "--by-layer", "-o", &path("none/")]).refused("there are no tensors");
    assert_eq!(files_of(folder.path()), ["empty.safetensors", "x.npz"].map(path));
}

/// Blobs without names are numbered in each file anew, and a blob stays with its diff.
#[test]
fn a_vector_of_blobs_is_split_and_put_together_again() {
    let folder = Folder::new();
    let vector = "caffe/misc/vector3.blobprotovector";
    for how in [&["--by-layer"][..], &["--max-size", "1"]] {
        let out = format!("{}/", folder.path().join(how[0]).to_str().expect("UTF-8"));
        ok(&[&["split", vector], how, &["-o", &out]].concat());
        let parts = files_of(Path::new(&out));
        assert_eq!(parts.len(), 3);
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let all = &folder.file("all.blobprotovector");
        ok(&[&["merge"], &parts[..], &["--to", "blobprotovector", "-o", all, "--force"]].concat());
        assert_eq!(digest(all), digest(vector));
    }
}

/// A plain HDF5 file has no layers: each dataset may go into a file of its own.
#[test]
fn datasets_of_one_group_are_parted() {
    let folder = tempfile::tempdir().expect("a folder");
    for (pattern, files) in [("{}.h5", 12), ("{}.caffemodel.h5", 6)] {
        let out = folder.path().join(pattern);
        let ran = blob(&[
            "split",
            "caffe/net/f32_v2.caffemodel",
            "--max-size",
            "1",
            "-n",
            "--json",
            "-o",
            out.to_str().expect("UTF-8"),
        ]);
        assert_eq!(ran.json()[0]["files"].as_array().map(Vec::len), Some(files), "{ran:?}");
    }
}

#[test]
fn a_caffemodels_layers_keep_their_types() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let types = |file: &str| -> Vec<(String, Option<String>)> {
        let file = Checkpoint::open(data(file)).expect("opens");
        file.entries().iter().map(|e| (e.name().to_owned(), e.layer_type().map(str::to_owned))).collect()
    };
    let (layers, merged, cut) = (path("layers/"), path("merged.caffemodel"), path("cut.caffemodel"));
    for source in [NET, "caffe/net/v1.caffemodel"] {
        ok(&["split", source, "--by-layer", "--force", "-o", &layers]);
        let files = files_of(Path::new(&layers));
        ok(&[&["merge", "--force", "-o", &merged][..], &files.iter().map(|f| &**f).collect::<Vec<_>>()].concat());
        let (mut wanted, mut found) = (types(source), types(&merged));
        assert!(wanted.iter().all(|(_, layer)| layer.as_ref().is_some_and(|layer| !layer.is_empty())), "{wanted:?}");
        wanted.sort();
        found.sort();
        assert_eq!(found, wanted);
        files.iter().for_each(|file| fs::remove_file(file).expect("removable"));
    }
    let source = Checkpoint::open(data(NET)).expect("opens");
    let rows = source.entry("ip/0").expect("a matrix").shape().dims()[0];
    let sizes = format!("1,{}", rows - 1);
    ok(&["split", NET, "ip/0", "--axis", "0", "--sizes", &sizes, "--into", "ip/0,other/0", "-o", &cut]);
    let found = types(&cut);
    assert!(found.contains(&("other/0".to_owned(), Some("InnerProduct".to_owned()))), "{found:?}");
}

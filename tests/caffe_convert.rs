//! Conversions to Caffe's files: to the same format, with `--into`, in other forms, and by the tool.

use std::fs;
use std::path::Path;

use blob_convert::transform::StripDiff;
use blob_convert::{Options, Place, Silent, plan, plan_into};
use blob_core::{AnyBlob, DType, Shape};
use blob_io::caffe::BlobForm;
use blob_io::caffe::proto::NetParameter;
use blob_io::{Checkpoint, Error, Format, IfExists, Kind, Writer};
use prost::Message as _;

use crate::caffe_splice::sources;
use crate::support::message::{floats, len, shape};
use crate::support::{Folder, blob, command, data, opened, ran, real, report};
use crate::transform::float;

/// The bytes of a file that a conversion writes.
pub(crate) fn written(source: &Checkpoint, base: Option<&Checkpoint>, options: &Options) -> Result<Vec<u8>, Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out");
    let target = Place::File { path: &path, if_exists: IfExists::Refuse };
    let done = match base {
        Some(base) => plan_into(source, base, options, &target),
        None => plan(source, options, &target),
    };
    if let Err(e) = done.and_then(|plan| plan.run(&Silent)) {
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 0, "nothing is left");
        return Err(e);
    }
    Ok(fs::read(&path).expect("written"))
}

fn read(path: impl AsRef<Path>) -> Vec<u8> {
    fs::read(path).expect("readable")
}

#[test]
fn floats_become_doubles_as_caffe_would_write_them() {
    let options = Options::new(Format::CaffeModel).transform(float(DType::F64));
    for (from, diff) in [("f32_v2", true), ("f32_v2_diff", true), ("f32_v2_diff", false), ("v1", true)] {
        let source = opened(format!("caffe/net/{from}.caffemodel"));
        let bytes = written(&source, None, &with_diffs(&options, diff)).unwrap_or_else(|e| panic!("{e}"));
        let back = Checkpoint::from_bytes("x.caffemodel", bytes.clone()).expect("opens");
        let kept: Vec<_> = source.entries().iter().filter(|entry| diff || entry.kind() != Kind::Diff).collect();
        assert_eq!((back.entries().len(), back.positions()), (kept.len(), source.positions()));
        for (one, other) in kept.iter().zip(back.entries()) {
            assert_eq!((one.name(), one.shape(), other.dtype()), (other.name(), other.shape(), Some(DType::F64)));
            let (narrow, wide) = (source.load(one).expect("loads"), back.load(other).expect("loads"));
            let narrow: Vec<f64> =
                narrow.data().elements::<f32>().expect("f32").iter().map(|v| f64::from(*v)).collect();
            assert_eq!(*wide.data().elements::<f64>().expect("f64"), narrow[..]);
        }
        // The file is as long as the net that Caffe wrote in doubles.
        if from.starts_with("f32") {
            let golden = if diff { from.replace("f32", "f64") } else { "f64_v2".to_owned() };
            assert_eq!(bytes.len(), read(data(&format!("caffe/net/{golden}.caffemodel"))).len());
        }
    }
    let (source, wanted) = (opened("caffe/net/f32_v2_diff.caffemodel"), read(data("caffe/net/f32_v2.caffemodel")));
    let dropped = written(&source, None, &with_diffs(&Options::new(Format::CaffeModel), false)).expect("held");
    assert!(dropped == wanted);
}

#[test]
fn the_form_is_as_it_is_asked_for() {
    let form = BlobForm { legacy: true, ..BlobForm::default() };
    let legacy = Options::new(Format::CaffeModel).with(|o| o.form = Some(form));
    let bytes = written(&opened("caffe/net/f32_v2.caffemodel"), None, &legacy).expect("held");
    assert!(bytes == read(data("caffe/net/v2_legacy_dims.caffemodel")));
    let v1 = Options::new(Format::CaffeModel).with(|o| o.form = Some(BlobForm { v1: true, ..BlobForm::default() }));
    let source = opened("caffe/net/v1.caffemodel");
    let bytes = written(&source, None, &v1.with(|o| o.form = Some(BlobForm { v1: true, ..form }))).expect("held");
    let back = Checkpoint::from_bytes("x.caffemodel", bytes).expect("opens");
    assert_eq!(back.dialect(), "V1 layers");
    let types =
        |file: &Checkpoint| file.entries().iter().map(|e| e.layer_type().map(str::to_owned)).collect::<Vec<_>>();
    assert!(back.names().eq(source.names()) && types(&back) == types(&source));
    let raw = Options::new(Format::BlobProto).with(|o| o.form = Some(BlobForm { raw: true, ..BlobForm::default() }));
    let half = Checkpoint::open(data("caffe/blobproto/nv_raw_f16.binaryproto")).expect("opens");
    assert!(written(&half, None, &raw).expect("held") == read(data("caffe/blobproto/nv_raw_f16.binaryproto")));
    let double = Options::new(Format::BlobProto).transform(float(DType::F64));
    let double = double.with(|o| o.form = Some(BlobForm::default()));
    let bytes = written(&half, None, &double).expect("held");
    assert_eq!(Checkpoint::from_bytes("x.binaryproto", bytes).expect("opens").entries()[0].dtype(), Some(DType::F64));
}

/// Tensors that were changed in another format are matched by name, and `--into` keeps the rest of the file.
#[test]
fn a_net_comes_back_from_another_format_into_itself() {
    let mut count = 0;
    for path in sources() {
        let source = Checkpoint::open(&path).expect("opens");
        let Ok(safetensors) = written(&source, None, &Options::new(Format::Safetensors)) else { continue };
        let others = Checkpoint::from_bytes("x.safetensors", safetensors).expect("opens");
        let bytes = written(&others, Some(&source), &Options::new(source.format()));
        let odd = source.entries().iter().any(|entry| !entry.is_plain() || entry.segments().len() > 1);
        match bytes {
            Ok(bytes) if !odd => assert!(bytes == read(&path), "{}", path.display()),
            // Values that were stored in pieces are written as one.
            Ok(_) => assert!(odd),
            Err(e) => assert!(source.entries().iter().any(|e| e.byte_len() == 0) || odd, "{}: {e}", path.display()),
        }
        count += 1;
    }
    assert!(count > 40, "{count}");
    report(&format!("caffe: {count} files put into themselves again from safetensors"));
}

#[test]
fn what_has_no_place_in_the_other_file_is_refused_with_its_names() {
    let (source, base) = (opened("caffe/net/f32_v2.caffemodel"), opened("caffe/net/v1.caffemodel"));
    let error = written(&source, Some(&base), &Options::new(Format::CaffeModel)).expect_err("refused").to_string();
    assert!(error.contains("does not fit into") && error.contains("\"bn1/0\" is not there"), "{error}");
    let other = Checkpoint::open(data("other/two.safetensors")).expect("opens");
    let error = written(&source, Some(&other), &Options::new(Format::CaffeModel)).expect_err("refused").to_string();
    assert!(error.contains("arrays are put into files of Caffe, NeoML, HDF5 and ONNX only"), "{error}");
    let error = written(&other, None, &Options::new(Format::CaffeModel)).expect_err("refused").to_string();
    assert!(error.contains("names that do not fit"), "{error}");
}

/// Caffe's loader copies layer by layer into the one parameter that layers share by name, so that the last wins.
#[test]
fn a_shared_parameter_is_replaced_in_every_layer() {
    let layer = |name: &str, params: &[&str], blobs: &[[f32; 2]]| {
        let params: Vec<u8> = params.iter().flat_map(|name| len(6, &len(1, name.as_bytes()))).collect();
        let blobs: Vec<u8> = blobs.iter().flat_map(|blob| len(7, &[floats(blob), shape(&[2])].concat())).collect();
        len(100, &[len(1, name.as_bytes()), len(2, b"InnerProduct"), params, blobs].concat())
    };
    let shared = [
        layer("a", &["w"], &[[1.0, 2.0], [3.0, 4.0]]),
        // The first parameter belongs to the layer alone.
        layer("b", &["", "w"], &[[5.0, 6.0], [1.0, 2.0]]),
        layer("c", &["v"], &[[7.0, 8.0]]),
    ];
    let base = Checkpoint::from_bytes("base.caffemodel", [len(1, b"net"), shared.concat()].concat()).expect("opens");
    let new = AnyBlob::from_vec(Shape::new([2]).expect("fits"), DType::F32, floats_of(&[9.0, 9.5])).expect("as many");
    let folder = Folder::new();
    let path = folder.file("new.npz");
    for name in ["a/0", "b/1"] {
        Writer::new(Format::Npz).tensor(name, &new).write(&path, IfExists::Replace).expect("written");
        let source = Checkpoint::open(&path).expect("opens");
        let out = written(&source, Some(&base), &Options::new(Format::CaffeModel)).expect("written");
        let out = NetParameter::decode(&out[..]).expect("a net");
        let values: Vec<Vec<Vec<f32>>> =
            out.layer.iter().map(|layer| layer.blobs.iter().map(|blob| blob.data.clone()).collect()).collect();
        let expected: [&[[f32; 2]]; 3] = [&[[9.0, 9.5], [3.0, 4.0]], &[[5.0, 6.0], [9.0, 9.5]], &[[7.0, 8.0]]];
        assert_eq!(values, expected, "{name}");
    }
}

/// The order of the groups shows in plans and messages.
#[test]
fn shared_parameters_come_in_one_order() {
    let layer = |group: usize, copy: usize| {
        let name = format!("l{group}_{copy}");
        let param = len(6, &len(1, format!("w{group}").as_bytes()));
        let blob = len(7, &[floats(&[1.0]), shape(&[1])].concat());
        len(100, &[len(1, name.as_bytes()), len(2, b"InnerProduct"), param, blob].concat())
    };
    let layers: Vec<u8> = (0..8).rev().flat_map(|group| [layer(group, 1), layer(group, 2)].concat()).collect();
    let base = Checkpoint::from_bytes("base.caffemodel", [len(1, b"net"), layers].concat()).expect("opens");
    let net = base.net().expect("reads").expect("a net");
    let first: Vec<String> = net.copies().map(|group| group[0].to_string()).collect();
    assert_eq!(first, (0..8).map(|group| format!("l{group}_1/0")).collect::<Vec<_>>());
}

fn floats_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// The second layer of a name is called by position, which a reader counts anew when the first one goes.
#[test]
fn the_first_of_two_layers_of_one_name_is_not_renamed_alone() {
    let layer = |blob: f32| {
        let blob = len(7, &[floats(&[blob]), shape(&[1])].concat());
        len(100, &[len(1, b"c"), len(2, b"InnerProduct"), blob].concat())
    };
    let folder = Folder::new();
    let twins = folder.with("twins.caffemodel", [layer(1.0), layer(2.0)].concat());
    let out = folder.file("out.caffemodel");
    blob(&["rename", &twins, "--sed", "s,^c/,e/,", "-o", &out])
        .refused("\"c@1\" would be called \"c\" where that is \"e\": rename both");
    blob(&["rename", &twins, "--sed", "s,^c,e,", "--sed", "s,^e@1,f,", "-o", &out]).ok();
    let names: Vec<String> = Checkpoint::open(&out).expect("opens").names().map(str::to_owned).collect();
    assert_eq!(names, ["e/0", "f/0"]);
}

/// A change of the source by another process is detected at the latest when all is read.
#[test]
fn a_source_that_changes_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (from, out) = (folder.path().join("x.caffemodel"), folder.path().join("out.caffemodel"));
    let changes = [(true, Format::CaffeModel), (false, Format::CaffeModel), (false, Format::Npz)];
    for (cut, to) in changes {
        fs::write(&from, read(data("caffe/net/f32_v2.caffemodel"))).expect("written");
        let source = Checkpoint::open(&from).expect("opens");
        let target = Place::File { path: &out, if_exists: IfExists::Refuse };
        let plan = plan(&source, &Options::new(to), &target).expect("planned");
        if cut {
            fs::write(&from, "x").expect("written")
        } else {
            // As long as before. Waits, because the file system's timestamps can be coarse.
            std::thread::sleep(std::time::Duration::from_millis(20));
            fs::write(&from, vec![0; read(&from).len()]).expect("written");
        }
        let error = plan.run(&Silent).expect_err("changed").to_string();
        assert!(error.contains("was changed while") || error.contains("became shorter"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1, "nothing is left");
    }
}

/// A folder and a set of shards ask all files, and a folder to write asks the source.
#[test]
fn a_file_of_several_that_changes_is_noticed() {
    let folder = Folder::new();
    let [npz, dir, out, index] =
        ["x.npz", "dir", "out", "x.safetensors.index.json"].map(|name| folder.path().join(name));
    let model = "caffe/net/f32_v2.caffemodel";
    blob(&["convert", model, "-o", &folder.file("x.npz")]).ok();
    blob(&["convert", model, "-o", &folder.file("dir/")]).ok();
    blob(&["convert", model, "--shard-size", "500", "-o", &folder.file("x.safetensors")]).ok();
    let listing = fs::read_dir(folder.path()).expect("listed").map(|file| file.expect("a file").path());
    let last = listing.filter(|path| path.extension().is_some_and(|end| end == "safetensors")).max();
    let last = last.expect("a shard");
    for (source, changed) in [(&npz, npz.clone()), (&dir, dir.join("conv1/1.npy")), (&index, last)] {
        for (to, target) in
            [(Format::Npz, Place::File { path: &out, if_exists: IfExists::Refuse }), (Format::Npy, folder_target(&out))]
        {
            let source = Checkpoint::open(source).expect("opens");
            let plan = plan(&source, &Options::new(to), &target).expect("planned");
            // Of the same bytes, so that only the time tells.
            std::thread::sleep(std::time::Duration::from_millis(20));
            let bytes = read(&changed);
            fs::write(&changed, bytes).expect("written");
            let error = plan.run(&Silent).expect_err("changed").to_string();
            assert!(error.contains("was changed while"), "{changed:?}: {error}");
            assert!(!out.exists(), "{changed:?}");
        }
    }
}

fn folder_target(path: &Path) -> Place<'_> {
    Place::Folder { path, if_exists: IfExists::Refuse }
}

/// The same for the base of `--into`, for the source, and for a source that a receipt restores.
#[test]
fn a_file_that_changes_is_noticed_on_the_way_back_and_into_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let [model, carrier, out] = ["m.caffemodel", "x.safetensors", "out"].map(|name| folder.path().join(name));
    let net = opened("caffe/net/f32_v2.caffemodel");
    let bytes = written(&net, None, &Options::new(Format::Safetensors)).expect("held");
    for (changed, into, cut) in [
        (&carrier, false, true),
        (&carrier, false, false),
        (&carrier, true, true),
        (&carrier, true, false),
        (&model, true, true),
        (&model, true, false),
    ] {
        fs::write(&model, read(data("caffe/net/f32_v2.caffemodel"))).expect("written");
        fs::write(&carrier, &bytes).expect("written");
        let (source, base) = (Checkpoint::open(&carrier).expect("opens"), Checkpoint::open(&model).expect("opens"));
        let target = Place::File { path: &out, if_exists: IfExists::Refuse };
        let options = Options::new(Format::CaffeModel);
        let plan = if into { plan_into(&source, &base, &options, &target) } else { plan(&source, &options, &target) };
        let plan = plan.expect("planned");
        assert_eq!(plan.notes(), [""; 0]);
        std::thread::sleep(std::time::Duration::from_millis(20));
        let len = if cut { 1 } else { read(changed).len() };
        fs::write(changed, vec![0; len]).expect("written");
        let error = plan.run(&Silent).expect_err("changed").to_string();
        assert!(error.contains("was changed while") || error.contains("became shorter"), "{error}");
        assert!(error.contains(&*changed.to_string_lossy()), "{error}");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 2, "nothing is left");
    }
}

/// If the tool is killed, the disk is full, or the target cannot be written, the old file stays.
#[cfg(unix)]
#[test]
fn nothing_is_lost_when_the_work_breaks_off() {
    let folder = Folder::new();
    let (model, out) = (folder.file("m.caffemodel"), folder.file("out.caffemodel"));
    // 24 MB of one blob.
    let spec =
        blob_io::layout::TensorSpec::new("a/0", DType::F32, blob_core::Shape::new([6_000_000]).expect("a shape"));
    let message = blob_io::caffe::Message::named(Format::CaffeModel, ["a/0"], &[]).expect("named");
    let layout = blob_io::layout::Layout::new(
        std::slice::from_ref(&spec),
        blob_io::layout::Frame::Caffe { message: &message, form: BlobForm::default() },
    )
    .expect("held");
    let big = crate::caffe_write::assembled(&layout, &[&vec![1; 24_000_000]], &[]);
    fs::write(&model, &big).expect("written");
    let carrier = folder.file("x.safetensors");
    assert_eq!(blob(&["convert", &model, "-o", &carrier]).code, Some(0));
    // A copy, a splice, and a restoration by the receipt.
    for args in [&[&*model][..], &[&carrier, "--into", &model], &[&carrier]] {
        let args: Vec<&str> = [&["convert", "--force", "-o", &out], args].concat();
        broken_off(&args, Path::new(&out), &big);
    }
    let left: Vec<_> =
        fs::read_dir(folder.path()).expect("listed").map(|entry| entry.expect("listed").file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(read(&model) == big);
    let missing = blob(&["convert", &model, "-o", "/proc/none/x.caffemodel"]);
    assert_eq!(missing.code, Some(2), "{missing:?}");
}

/// Runs conversions to `out` that are killed at several moments, and one on a disk that becomes full.
fn broken_off(args: &[&str], out: &Path, big: &[u8]) {
    fs::write(out, "old").expect("written");
    let mut killed = 0;
    for step in 0..12 {
        let mut child = command(args).spawn().expect("starts");
        std::thread::sleep(std::time::Duration::from_millis(step * 4));
        child.kill().expect("killed");
        let status = child.wait().expect("ends");
        let found = read(out);
        if status.success() {
            assert!(found == big);
            fs::write(out, "old").expect("written");
        } else {
            assert!(found == b"old" || found == big, "{} bytes", found.len());
            killed += 1;
        }
    }
    assert!(killed > 0);
    fs::write(out, "old").expect("written");
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -f 1000; trap '' XFSZ; exec \"$0\" \"$@\""]).arg(crate::support::tool());
    limited.args(args);
    let full = ran(limited, b"");
    assert_eq!((full.code, read(out)), (Some(2), b"old".to_vec()), "{full:?}");
}

#[test]
fn real_models_are_changed_in_one_layer() {
    let Some(folder) = real("caffe/real") else { return report("NOT TESTED: changes to real Caffe models") };
    let path = folder.join("mtcnn_det1.caffemodel");
    let model = Checkpoint::open(&path).expect("opens");
    let folder = tempfile::tempdir().expect("a folder");
    let part = folder.path().join("part.npz");
    let first = model.tensor(&model.entries()[0]).expect("a tensor");
    blob_io::Writer::new(Format::Npz)
        .tensor(model.entries()[0].name(), &first)
        .write(&part, IfExists::Refuse)
        .expect("held");
    let part = Checkpoint::open(&part).expect("opens");
    assert!(written(&part, Some(&model), &Options::new(Format::CaffeModel)).expect("held") == read(&path));
}

/// The options, with or without --strip-diff.
fn with_diffs(options: &Options, diffs: bool) -> Options {
    if diffs { options.clone() } else { options.clone().transform(StripDiff) }
}

/// A hostile name can have tens of kilobytes; a message quotes only some of the characters.
#[test]
fn long_names_that_do_not_fit_are_cut() {
    let folder = Folder::new();
    let (source, out) = (folder.file("x.safetensors"), folder.file("out"));
    let names: Vec<String> = (0..30).map(|i| format!("{i}{}", "n".repeat(50_000))).collect();
    let one = AnyBlob::new(Shape::new([1]).expect("fits"), DType::F32).expect("a blob");
    let writer = Writer::new(Format::Safetensors);
    let writer = names.iter().fold(writer, |writer, name| writer.tensor(name, &one));
    writer.write(&source, IfExists::Refuse).expect("written");
    for base in ["caffe/net/f32_v2.caffemodel", "hdf5/tiny/earliest.h5"] {
        let ran = blob(&["convert", &source, "--into", base, "-o", &out]).refused("does not fit into");
        assert!(
            ran.err.len() < 8_000
                && ran.err.contains("n\"… is not there (the same of ")
                && ran.err.contains("and 27 more")
        );
    }
}

/// Decoded by `prost`, a net in which `blob rename` has renamed a layer differs only in that name.
#[test]
fn a_layer_of_a_caffe_net_is_called_otherwise_and_every_other_byte_stays() {
    let folder = Folder::new();
    let out = folder.file("out.caffemodel");
    for name in ["caffe/net/f32_v2_diff.caffemodel", "caffe/net/v1.caffemodel"] {
        blob(&["rename", name, "--sed", "s/^conv1/eins/", "--force", "-o", &out]).ok();
        let decoded = |path: &Path| NetParameter::decode(&*read(path)).expect("a net");
        let (mut wanted, found) = (decoded(&data(name)), decoded(Path::new(&out)));
        assert!(wanted != found);
        let names = wanted.layer.iter_mut().map(|layer| &mut layer.name);
        let names = names.chain(wanted.layers.iter_mut().map(|layer| &mut layer.name));
        names.filter(|name| name.as_deref() == Some("conv1")).for_each(|name| *name = Some("eins".to_owned()));
        assert!(wanted == found, "{name}");
    }
}

//! The tool from outside: its verdicts, and the files that it writes.

use std::fs;

use blob_io::Checkpoint;

use crate::support::{Folder, blob, blob_with, command, data, files, report};

const NET: &str = "caffe/net/v1.caffemodel";

/// Arguments, exit code, and what is said on standard output.
const VERDICTS: &[(&[&str], i32, &str)] = &[
    (&[NET], 0, "OK   Caffe NetParameter, V1 layers: 4 tensors, 371 values"),
    (&[NET, "--finite"], 0, "all values finite"),
    (&["caffe/net/truncated.caffemodel"], 1, "at byte 2732 of 2767 in layer #9 \"loss\": "),
    (&["caffe/net/truncated.caffemodel"], 1, "are whole"),
    (&["caffe/net/empty.caffemodel"], 1, "this is empty (0 bytes)"),
    (&["caffe/blobproto/count_short.binaryproto"], 1, "at byte 2 of 28 in array \"@0\": data: expected 6"),
    (&["caffe/blobproto/f32_special.binaryproto", "--finite"], 1, "1 NaN and 2 Inf among 12 values, the first at [0]"),
    (&["caffe/blobproto/f32_special.binaryproto"], 0, "OK"),
    (&["caffe/blobproto/float_and_double.binaryproto"], 0, "note: "),
    (&["caffe/blobproto/float_and_double.binaryproto", "--strict"], 1, "stored more than once"),
    (&[NET, "--sha256", "0000000000000000000000000000000000000000000000000000000000000000"], 1, "expected 0000"),
    (&[NET, "--against", "caffe/net/v0.caffemodel"], 0, "4 tensors bit for bit as in"),
    (&[NET, "--against", "caffe/net/f32_v2.caffemodel"], 1, "\"bn1/0\" is missing from caffe/net/v1.caffemodel"),
    (&[NET, "--against", NET], 0, "4 tensors bit for bit as in"),
    (&["no/such.file"], 2, ""),
    (&[NET, "--sha256", "12"], 2, ""),
    (&[NET, NET, "--against", NET], 2, ""),
];

#[test]
fn verify_answers_with_its_exit_code() {
    for (args, code, words) in VERDICTS {
        let verify = blob(&[&["verify"], *args].concat());
        assert_eq!(verify.code, Some(*code), "{args:?}: {verify:?}");
        assert!(verify.out.contains(words), "{args:?}: {verify:?}");
    }
    let several = blob(&["verify", "--json", NET, "caffe/net/empty.caffemodel", "no/such.file"]);
    assert_eq!((several.code, several.out.lines().count()), (Some(2), 3));
    let verdicts: Vec<bool> = several.json().iter().filter_map(|v| v["ok"].as_bool()).collect();
    assert_eq!(verdicts, [true, false]);
}

#[test]
fn the_digest_that_is_expected_is_found() {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(fs::read(data(NET)).unwrap());
    let hex: String = digest.iter().map(|b| format!("{b:02X}")).collect();
    blob(&["verify", NET, "--sha256", &hex]).ok();
}

/// Every golden that opens, to each written format and back: the tool itself proves that nothing changed.
#[test]
fn every_golden_converts_and_proves_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut count, mut refused) = (0, Vec::new());
    for from in ["caffe/net", "caffe/blobproto", "caffe/misc", "mxnet/golden/mxnet-1.9.1", "hdf5/tiny"] {
        let skip = [".json", ".tsv", ".f32", ".f64", ".md", ".txt"];
        for path in files(&data(from), |name| !skip.iter().any(|s| name.ends_with(s))) {
            let path = path.to_str().unwrap();
            if blob(&["ls", path]).code != Some(0) {
                continue;
            }
            for extension in ["safetensors", "npz", "h5"] {
                let out = folder.path().join(format!("x.{extension}"));
                let out = out.to_str().unwrap();
                let convert = blob(&["convert", path, "-o", out, "--force"]);
                if (extension, convert.code) == ("h5", Some(2)) {
                    refused.push(path.rsplit_once('/').unwrap().1.to_owned());
                    continue;
                }
                assert_eq!(convert.code, Some(0), "{path}: {convert:?}");
                assert!(convert.err.contains("✔ ") && convert.out.is_empty(), "{convert:?}");
                blob(&["verify", out, "--against", path]).ok();
                count += 1;
            }
        }
    }
    assert!(count > 150, "{count}");
    assert_eq!(refused, ["slash_name.caffemodel", "names.nd", "names_npshape.nd"]);
    report(&format!("cli: {count} conversions verified bit for bit"));
}

#[test]
fn sparse_arrays_made_dense_are_recognised() {
    let folder = Folder::new();
    let path = "mxnet/golden/mxnet-1.9.1/sparse_list_mixed.nd";
    let out = &folder.file("dense.safetensors");
    assert_eq!(blob(&["convert", path, "--dense", "-o", out]).code, Some(0));
    for args in [[out, path], [path, out]] {
        let verify = blob(&["verify", args[0], "--against", args[1]]).ok();
        assert!(verify.out.contains("compared as dense"), "{verify:?}");
    }
}

#[test]
fn an_existing_file_is_kept_unless_forced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npz");
    let out = path.to_str().unwrap();
    fs::write(&path, "mine").unwrap();
    let refused = blob(&["convert", NET, "-o", out]);
    assert_eq!((refused.code, fs::read(&path).unwrap()), (Some(2), b"mine".to_vec()));
    assert!(refused.err.contains("--force"), "{refused:?}");
    let dry = blob(&["convert", NET, "-o", out, "--force", "-n"]);
    assert_eq!((dry.code, fs::read(&path).unwrap()), (Some(0), b"mine".to_vec()));
    assert!(dry.out.contains("conv1/0") && dry.err.contains("would write 4 tensors"), "{dry:?}");
    let forced = blob(&["convert", NET, "-o", out, "--force", "--json", "--sha256"]);
    let facts = &forced.json()[0];
    assert_eq!(forced.out.find("\"schema\":\"blob.convert/1\""), Some(1));
    assert_eq!(facts["bytes_out"], fs::metadata(&path).unwrap().len());
    assert_eq!(facts["blake3"].as_str().map(str::len), Some(64));
    assert_eq!(facts["sha256"].as_str().map(str::len), Some(64));
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "no temporary is left");
}

#[test]
fn a_folder_and_a_pipe_are_targets_too() {
    let folder = tempfile::tempdir().unwrap();
    let out = format!("{}/weights/", folder.path().to_str().unwrap());
    assert_eq!(blob(&["convert", NET, "-o", &out]).code, Some(0));
    let file = Checkpoint::open(format!("{out}conv1/0.npy")).unwrap();
    assert_eq!(file.entries()[0].shape().dims(), [4, 3, 3, 3]);
    let mut piped = command(&["convert", NET, "-o", "-", "--to", "safetensors"]);
    let bytes = piped.output().unwrap().stdout;
    blob_with(&["verify", "-", "--against", NET], &bytes).ok();
    for (out, help) in [("x.foo", "--to"), ("-", "formats: caffemodel"), ("x.npy", "npz")] {
        blob(&["convert", NET, "-o", out]).refused(help);
    }
}

#[test]
fn a_tensor_is_extracted_in_each_format() {
    let folder = tempfile::tempdir().unwrap();
    let file = Checkpoint::open(data(NET)).unwrap();
    let expected = file.view(&file.entries()[0]).unwrap();
    for (name, to) in [("x.npy", "npy"), ("x.raw", "raw"), ("x.csv", "csv")] {
        let path = folder.path().join(name);
        blob(&["extract", NET, "conv1/0", "-o", path.to_str().unwrap()]).ok();
        let bytes = fs::read(&path).unwrap();
        let piped = command(&["extract", NET, "#0", "-o", "-", "--to", to]).output().unwrap();
        assert_eq!(piped.stdout, bytes);
        let values = match to {
            "csv" => {
                let text = String::from_utf8(bytes).unwrap();
                assert_eq!(text.lines().count(), 36);
                let numbers = text.split([',', '\n']).filter(|s| !s.is_empty());
                numbers.flat_map(|n| n.parse::<f32>().unwrap().to_le_bytes()).collect()
            }
            "npy" => bytes[bytes.len() - expected.len()..].to_vec(),
            _ => bytes,
        };
        assert_eq!(values, *expected, "{to}");
    }
    blob(&["extract", NET, "conv1/0", "-o", folder.path().to_str().unwrap(), "--to", "npy"])
        .refused("writes one file, and this is a folder");
    let again = blob(&["extract", NET, "conv1/0", "-o", folder.path().join("x.npy").to_str().unwrap()]);
    assert_eq!(again.code, Some(2), "{again:?}");
}

#[test]
fn receipts_do_not_grow_from_conversion_to_conversion() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |i: usize| {
        let extension = if i.is_multiple_of(2) { "npz" } else { "safetensors" };
        let path = folder.path().join(format!("{i}.{extension}"));
        path.to_str().expect("UTF-8").to_owned()
    };
    let mut from = data(NET).to_str().expect("UTF-8").to_owned();
    for i in 0..20 {
        blob(&["convert", &from, "-o", &path(i)]).ok();
        from = path(i);
    }
    let last = Checkpoint::open(&from).expect("opens");
    let (_, text) = &last.metadata()[0];
    assert!(text.len() < 8 << 10, "{}", text.len());
    let receipt: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let history = receipt["history"].as_array().expect("a list");
    let first = blake3::hash(&fs::read(data(NET)).expect("readable"));
    assert_eq!(history.len(), 19);
    assert_eq!(history[0]["blake3"], first.to_hex().to_string());
    assert_eq!(history[0]["name"], "v1.caffemodel");
    assert_eq!(history[1]["format"], "npz");
    assert!(history[18]["tool"].as_str().expect("words").starts_with("blob "));
    assert_eq!(receipt["source"]["name"], "18.npz");
    assert!(receipt["source"]["metadata"].get(blob_convert::RECEIPT_KEY).is_none());
    let info = blob(&["info", &from]);
    assert!(info.out.contains("from 18.npz (npz, "), "{info:?}");
}

#[test]
fn a_dry_run_fails_where_the_real_one_would() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path().to_str().expect("UTF-8");
    let existing = format!("{home}/there.npz");
    fs::write(&existing, "mine").expect("writable");
    let plain = format!("{home}/there.npz/");
    let missing = format!("{home}/no/x.npz");
    let missing_folder = format!("{home}/no/x/");
    let unknown = format!("{home}/out.onnx");
    let written = format!("{home}/written/");
    assert_eq!(blob(&["convert", NET, "-o", &written]).code, Some(0));
    let foreign = format!("{home}/foreign/");
    fs::create_dir(&foreign).expect("writable");
    fs::write(format!("{foreign}NOTES.md"), "mine").expect("writable");
    for (to, words) in [
        (existing.as_str(), "exists; --force replaces it"),
        (&missing, "/no is missing"),
        (&missing_folder, "/no is missing"),
        (&plain, "is a file, not a folder"),
        (home, "holds other files"),
        ("/", "no folder that can be made"),
        (&unknown, "blob writes no .onnx files"),
        (&written, "exists; --force replaces it"),
        (&foreign, "which are never replaced: NOTES.md"),
    ] {
        let real = blob(&["convert", NET, "-o", to]);
        let dry = blob(&["convert", NET, "-o", to, "-n"]);
        assert_eq!((real.code, dry.code), (Some(2), Some(2)), "{to}: {dry:?}");
        assert_eq!(real.err, dry.err, "{to}");
        assert!(dry.err.contains(words) && dry.out.is_empty(), "{dry:?}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 3);
    assert_eq!(fs::read(&existing).expect("readable"), b"mine");
}

#[test]
fn only_what_can_be_proved_is_offered_and_extract_says_what_it_wrote() {
    let folder = Folder::new();
    let convert = |from: &str, to: &str| {
        let ran = blob(&["convert", from, "-o", to, "--force"]).ok();
        ran.err
    };
    let npz = folder.file("self.npz");
    assert!(convert(NET, &npz).contains("prove it"));
    assert_eq!(blob(&["verify", &npz, "--against", NET]).code, Some(0));
    let mut null = command(&["convert", NET, "-o", "/dev/null", "--to", "npz"]);
    let null = null.output().expect("runs");
    assert!(null.status.success() && !String::from_utf8_lossy(&null.stderr).contains("prove it"));
    let odd = folder.file("o\nn'.npz");
    let said = convert(NET, &odd);
    let line = said.lines().find_map(|line| line.split_once("prove it:  blob "));
    let line = line.expect("offered").1;
    assert!(line.contains("$'"), "{line}");
    // A shell takes the words for the files.
    let mut shell = std::process::Command::new("bash");
    let shell = shell.args(["-c", &format!("printf '%s|' {line}")]).output();
    if let Ok(shell) = shell {
        let words = String::from_utf8(shell.stdout).expect("UTF-8");
        assert_eq!(words, format!("verify|{odd}|--against|{NET}|"));
    } else {
        report("NOT TESTED: the words that a shell makes of the offered command (no bash)");
    }
    let npy = folder.file("x.npy");
    let extract = blob(&["extract", NET, "conv1/0", "-o", &npy]);
    assert!(extract.err.contains("conv1/0") && extract.err.contains("x.npy"), "{extract:?}");
    assert_eq!(extract.err.lines().count(), 1);
}

/// A record of V0 has no mark, so only `--from` tells what it is.
#[test]
fn the_offered_proof_names_a_format_that_hides() {
    let folder = Folder::new();
    let offered = |args: &[&str]| {
        let ran = blob(&[&["convert"], args].concat()).ok();
        ran.err.lines().find_map(|line| line.split_once("prove it:  blob ").map(|(_, line)| line.to_owned()))
    };
    let (npy, v0, v2, copy) =
        (folder.file("a.npy"), folder.file("v0.rec"), folder.file("v2.rec"), folder.file("copy.npz"));
    assert_eq!(blob(&["extract", NET, "conv1/0", "-o", &npy]).code, Some(0));
    for (version, record, from) in [("0", &v0, " --from mxnet-record"), ("2", &v2, "")] {
        let args = [&*npy, "--to", "mxnet-record", "--params-version", version, "-o", record];
        let line = offered(&args).expect("offered");
        assert_eq!(line, format!("verify {record}{from} --against {npy}"));
        blob(&line.split(' ').collect::<Vec<_>>()).ok();
    }
    assert_eq!(blob(&["ls", &v0]).code, Some(2));
    // `verify` detects what it compares with: a source that hides cannot be named.
    assert_eq!(offered(&["--from", "mxnet-record", &v0, "-o", &copy]), None);
    let again = offered(&["--from", "mxnet-record", &v2, "-o", &copy, "--force"]).expect("offered");
    assert_eq!(again, format!("verify {copy} --against {v2}"));
}

/// MXNet's files and a single npy have no place for a receipt: `--json` has what it would hold.
#[test]
fn a_receipt_is_spoken_of_only_where_there_is_one() {
    let folder = Folder::new();
    // 25 blobs of a BlobProtoVector, each with a shape in both ways, which is odd.
    let legacy = [0x08, 1, 0x10, 1, 0x18, 1, 0x20, 1];
    let one = [&[0x0A, 19][..], &legacy, &[0x3A, 3, 0x0A, 1, 1], &[0x2A, 4, 0, 0, 0x80, 0x3F]].concat();
    let odd = folder.file("odd.vector");
    fs::write(&odd, one.repeat(25)).expect("writable");
    let convert = ["convert", "--from", "blobprotovector", &odd, "-o"];
    for (to, rest) in [("x.npz", "the receipt has them all"), ("x.params", "--dry-run --json prints them all")] {
        blob(&[&convert[..], &[&folder.file(to)]].concat()).ok().tells(&format!("and 5 more; {rest}\n"));
    }
    let dry = blob(&[&convert[..], &[&folder.file("y.params"), "--dry-run", "--json"]].concat());
    assert_eq!(dry.json()[0]["warnings"].as_array().map(Vec::len), Some(25));
    let npy = folder.file("a.npy");
    assert_eq!(blob(&["extract", NET, "conv1/0", "-o", &npy]).code, Some(0));
    for to in ["sha.params", "sha.npy"] {
        let out = folder.file(to);
        for dry in [&[][..], &["--dry-run"]] {
            blob(&[&["convert", &npy, "--sha256", "-o", &out], dry].concat()).refused("--json prints the digest");
            assert!(fs::metadata(&out).is_err());
        }
        let told = blob(&["convert", &npy, "--sha256", "--json", "-o", &out]);
        assert_eq!(told.json()[0]["sha256"].as_str().map(str::len), Some(64), "{told:?}");
    }
    for to in ["sha.npz", "sha/"] {
        assert_eq!(blob(&["convert", &npy, "--sha256", "-o", &folder.file(to)]).code, Some(0));
    }
}

/// A link, a hard link, another spelling, a member of a folder, the folder around it: all are the source.
#[test]
#[cfg(unix)]
fn a_source_is_never_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (file, weights, member) = (path("a.npz"), path("weights/"), path("weights/conv1/0.npy"));
    for out in [&file, &weights] {
        assert_eq!(blob(&["convert", NET, "-o", out]).code, Some(0));
    }
    let (soft, hard, long) = (path("soft.npz"), path("hard.npz"), path("weights/../a.npz"));
    let soft_folder = path("soft");
    std::os::unix::fs::symlink(&file, &soft).expect("a link");
    std::os::unix::fs::symlink(&weights, &soft_folder).expect("a link");
    fs::hard_link(&file, &hard).expect("a link");
    let before = [&file, &member].map(|path| fs::read(path).expect("readable"));
    let (copy, inside) = ("a source is never replaced by its copy", "lies in");
    for (from, to, words) in [
        (&file, &file, copy),
        (&file, &soft, copy),
        (&soft, &file, copy),
        (&file, &hard, copy),
        (&file, &long, copy),
        (&weights, &weights, copy),
        (&soft_folder, &weights, copy),
        (&member, &weights, inside),
        (&weights, &member, inside),
    ] {
        blob(&["convert", "--force", from, "-o", to]).refused(words);
        let unforced = blob(&["convert", from, "-o", to]);
        assert!(unforced.code == Some(2) && (words == inside || unforced.err.contains("beside it")), "{unforced:?}");
        let extract = blob(&["extract", "--force", from, "#0", "--to", "npy", "-o", to]);
        let words = if to == &weights { "this is a folder" } else { words };
        assert!(extract.code == Some(2) && extract.err.contains(words), "{from} to {to}: {extract:?}");
    }
    assert_eq!([&file, &member].map(|path| fs::read(path).expect("readable")), before);
    assert!(fs::read_link(&soft).is_ok() && blob(&["verify", &weights]).code == Some(0));
}

#[test]
#[cfg(unix)]
fn a_pipe_whose_reader_leaves_is_trouble() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("runs").success());
    let one = folder.path().join("one.caffemodel");
    // More than a pipe holds.
    let data = vec![0u8; 1 << 20];
    let blob_proto = [&[0x3A, 0x05, 0x0A, 0x03, 0x80, 0x80, 0x10, 0x2A, 0x80, 0x80, 0x40][..], &data].concat();
    fs::write(&one, &blob_proto).expect("writable");
    let (one, to) = (one.to_str().expect("UTF-8"), pipe.to_str().expect("UTF-8"));
    for args in [
        &["convert", "--from", "binaryproto", one, "--to", "npz", "-o", to][..],
        &["extract", "--from", "binaryproto", one, "--to", "csv", "-o", to],
    ] {
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || {
                use std::io::Read;
                let mut few = [0; 10];
                fs::File::open(pipe).expect("opens").read_exact(&mut few).expect("a beginning");
            }
        });
        let ran = blob(args);
        reader.join().expect("reads");
        assert!(ran.code == Some(2) && ran.err.contains("cannot write"), "{ran:?}");
    }
}

//! `verify --against` plans the conversion again: each field of the receipt that the conversion determines is the one
//! that it gives again. The lies are those of a user with an editor: words, counts and lists that nothing else
//! contradicts.

use blob_convert::verify::{self, By, Compared, Remark};
use blob_convert::{RECEIPT_KEY, Silent};
use blob_io::Checkpoint;
use serde_json::{Value, json};

use crate::edited_receipt::remarks;
use crate::support::receipt::{deflated, inflated, receipt, with_receipt};
use crate::support::{Folder, blob, data, find, open};

/// An edit of a receipt; `false` where the receipt has nothing to edit.
struct Lie {
    name: &'static str,
    edit: fn(&mut Value) -> bool,
}

fn remove(object: &mut Value, key: &str) -> bool {
    object.as_object_mut().is_some_and(|fields| fields.remove(key).is_some())
}

fn set(receipt: &mut Value, path: &str, value: Value) -> bool {
    receipt.pointer_mut(path).map(|field| *field = value).is_some()
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

fn reverse(receipt: &mut Value, path: &str) -> bool {
    receipt.pointer_mut(path).and_then(Value::as_array_mut).map(|list| list.reverse()).is_some()
}

const HISTORY: &str = "no room for the history";

const LIES: &[Lie] = &[
    Lie { name: "no changes", edit: |r| !is_empty(&r["changes"]) && set(r, "/changes", json!([])) },
    Lie { name: "no room for changes", edit: |r| !is_empty(&r["changes"]) && set(r, "/changes", Value::Null) },
    Lie { name: HISTORY, edit: |r| !is_empty(&r["history"]) && set(r, "/history", Value::Null) },
    Lie { name: "other words", edit: |r| set(r, "/changes/0/changes/0", json!("indices 0 to 2 of axis 1")) },
    Lie { name: "one word more", edit: |r| set(r, "/changes/0/changes", json!(["written as f16", "and more"])) },
    Lie {
        name: "a change more",
        edit: |r| {
            let name = r["contents"][0]["name"].clone();
            is_empty(&r["changes"]) && set(r, "/changes", json!([{"name": name, "changes": ["was \"x\""]}]))
        },
    },
    Lie { name: "bits of another", edit: |r| set(r, "/changes/0/bits_of", json!("bf16")) || add_bits(r) },
    Lie { name: "warnings", edit: |r| set(r, "/warnings", json!(["the source is corrupt"])) },
    Lie { name: "a warning less", edit: |r| !is_empty(&r["warnings"]) && set(r, "/warnings", json!([])) },
    Lie { name: "no lost values", edit: |r| remove(r, "lost_values") },
    Lie { name: "no zeroed values", edit: |r| remove(r, "zeroed_values") },
    Lie {
        name: "lost values of no step",
        edit: |r| {
            let has_steps = r["transforms"].is_array();
            r["lost_values"] = json!(0);
            !has_steps
        },
    },
    Lie { name: "no contents", edit: |r| set(r, "/contents", Value::Null) },
    Lie {
        name: "another order",
        edit: |r| r["contents"].as_array_mut().map(|all| all.reverse()).is_some() && digest_of_contents(r),
    },
    Lie { name: "no metadata", edit: |r| r.pointer_mut("/source").is_some_and(|of| remove(of, "metadata")) },
    Lie { name: "sources in another order", edit: |r| r["sources"].as_array_mut().map(|all| all.reverse()).is_some() },
    Lie { name: "why left out", edit: |r| set(r, "/left_out/0/reason", json!("it was empty")) },
    Lie {
        name: "left out twice",
        edit: |r| {
            let first = r["left_out"][0].clone();
            r["left_out"].as_array_mut().filter(|all| !all.is_empty()).map(|all| all.push(first)).is_some()
        },
    },
    Lie { name: "prefixed", edit: |r| r["prefixed"].as_bool().is_some_and(|is| set(r, "/prefixed", json!(!is))) },
    Lie { name: "another prefix", edit: |r| set(r, "/sources/1/prefix", json!("zz")) },
    Lie { name: "no prefix", edit: |r| r.pointer_mut("/sources/0").is_some_and(|source| remove(source, "prefix")) },
    Lie { name: "no name of one", edit: |r| r.pointer_mut("/sources/0").is_some_and(|source| remove(source, "name")) },
    Lie { name: "no name", edit: |r| r.pointer_mut("/source").is_some_and(|source| remove(source, "name")) },
    Lie { name: "no frame", edit: |r| remove(r, "frame_left_out") },
    Lie {
        name: "a part",
        edit: |r| {
            let is_part = r["part"] == true;
            r["part"] = json!(true);
            !is_part && r["source"].is_object()
        },
    },
    Lie { name: "no part", edit: |r| remove(r, "part") },
    Lie { name: "why no frame", edit: |r| set(r, "/frame_left_out", json!("there was no room for it")) },
    Lie { name: "a net's digest", edit: |r| set(r, "/transforms/0/settings/net/blake3", json!("0".repeat(64))) },
    Lie {
        name: "a step without its net",
        edit: |r| r.pointer_mut("/transforms/0/settings").is_some_and(|of| remove(of, "net")),
    },
    Lie { name: "changes in another order", edit: |r| reverse(r, "/changes") },
    Lie { name: "left out in another order", edit: |r| reverse(r, "/left_out") },
    Lie { name: "settings of before", edit: |r| set(r, "/history/0/transforms/0/settings", Value::Null) },
    Lie { name: "a source by another name", edit: |r| set(r, "/source/name", json!("other")) },
];

/// The digest of all digests goes by the names, whatever the order of the list.
fn digest_of_contents(receipt: &Value) -> bool {
    receipt["contents"].as_array().is_some_and(|all| all.len() > 1)
}

fn add_bits(receipt: &mut Value) -> bool {
    let first = receipt.pointer_mut("/changes/0").and_then(Value::as_object_mut);
    first.map(|fields| fields.insert("bits_of".to_owned(), json!("bf16"))).is_some()
}

/// The findings and notes of every check, and the comparison with the sources.
fn said(file: &Checkpoint, sources: &[Checkpoint]) -> (Vec<String>, Compared) {
    let mut all = remarks(file, None);
    all.retain(|remark| !remark.contains("no transforms"));
    let compared = verify::against_all(file, sources, &By::default(), &Silent, &mut |remark| match remark {
        Remark::Finding(finding) | Remark::Unproven(finding) => all.push(finding.message),
        Remark::Note(note) => all.push(note),
        _ => {}
    });
    (all, compared.expect("compared"))
}

#[test]
fn a_receipt_is_the_one_that_the_conversion_gives_again() {
    let folder = Folder::new();
    let golden = data("caffe/net/f32_v2_diff.caffemodel");
    let golden = golden.to_str().expect("UTF-8");
    let [first, second, out] = ["a.npz", "b.npz", "o.safetensors"].map(|name| folder.file(name));
    blob(&["convert", golden, "--exclude", "*.diff", "-o", &first]).ok();
    blob(&["rename", &first, "--sed", "s/^/z./", "-o", &second]).ok();
    let ran: [(&[&str], &[&str]); 8] = [
        (&["convert", golden], &[golden]),
        (&["convert", golden, "--dtype", "f16", "--strip-diff"], &[golden]),
        (&["convert", golden, "--names", "torch"], &[golden]),
        (&["convert", golden, "--only", "conv1"], &[golden]),
        (&["split", &first, "conv1/0", "--axis", "0", "--sizes", "1,3"], &[&first]),
        (&["merge", &first, "conv1/1", "bn1/0", "--axis", "0", "--into", "q"], &[&first]),
        (&["merge", &first, &second], &[&first, &second]),
        (&["merge", &first, golden, "--prefix", "--exclude", "conv1/*"], &[&first, golden]),
    ];
    let mut noticed = 0;
    for (args, of) in ran {
        blob(&[args, &["-o", &out, "--force"]].concat()).ok();
        let sources: Vec<Checkpoint> = of.iter().map(|path| Checkpoint::open(path).expect("opens")).collect();
        let bytes = std::fs::read(&out).expect("written");
        let honest = receipt(&open("x.safetensors", &bytes).expect("opens"));
        let told = |receipt: &Value| {
            said(&open("x.safetensors", &with_receipt(&bytes, receipt, "", None)).expect("opens"), &sources)
        };
        let (remarks, compared) = told(&honest);
        assert_eq!((remarks, compared.receipt), (Vec::new(), true), "{args:?}: {honest}");
        // A prefix that no name has is not told: files may be called anything, as `-` and `.`.
        let is_prefixed = args.contains(&"--prefix");
        for source in honest["sources"].as_array().into_iter().flatten() {
            assert_eq!(source["prefix"] != "", is_prefixed, "{args:?}: {source}");
        }
        for Lie { name, edit } in LIES {
            let mut lie = honest.clone();
            if edit(&mut lie) && lie != honest {
                let said = told(&lie).0;
                assert!(!said.is_empty(), "{args:?}: {name} is not noticed: {lie}");
                let is_found = said.iter().any(|said| said.contains("says that history is null"));
                assert_eq!(is_found, *name == HISTORY, "{args:?}: {name}: {said:?}");
                noticed += 1;
            }
        }
    }
    assert!(noticed > 70, "{noticed}");
}

/// Another version may have other words; the dtype of stored bits is a fact in every version.
#[test]
fn words_of_another_version_are_a_note() {
    let folder = Folder::new();
    let golden = data("caffe/net/f32_v2_diff.caffemodel");
    let (golden, out) = (golden.to_str().expect("UTF-8"), folder.file("o.safetensors"));
    blob(&["convert", golden, "--dtype", "f16", "--strip-diff", "-o", &out]).ok();
    let bytes = std::fs::read(&out).expect("written");
    let mut lie = receipt(&open("x.safetensors", &bytes).expect("opens"));
    lie["tool"] = json!("blob 99.0.0");
    let told = |lie: &Value| {
        let file = open("x.safetensors", &with_receipt(&bytes, lie, "", None)).expect("opens");
        said(&file, &[Checkpoint::open(golden).expect("opens")]).0
    };
    // Nothing else is believed because of the name.
    let words = "words not compared: made by blob 99.0.0";
    assert_eq!(told(&lie), [words]);
    for path in ["/changes/0/changes", "/warnings", "/left_out/0/reason"] {
        *lie.pointer_mut(path).expect("there") = if path.ends_with("reason") { json!("x") } else { json!(["x"]) };
    }
    assert_eq!(told(&lie), [words]);
    lie["changes"][0]["bits_of"] = json!("bf16");
    assert!(told(&lie).iter().any(|said| said.contains("the change of")), "{:?}", told(&lie));
    for (path, value, said) in [
        (
            "/frame",
            json!({"format": "caffemodel", "bytes": 1, "holes": [], "blake3": "00", "deflate": ""}),
            "says that frame",
        ),
        ("/transforms/0/name", json!("squeeze-legacy"), "is missing from"),
        ("/left_out", json!([]), "does not say that"),
        ("/source/metadata", json!({}), "source.metadata"),
    ] {
        let before = lie.clone();
        *lie.pointer_mut(path).expect("there") = value;
        assert!(told(&lie).iter().any(|found| found.contains(said)), "{path}: {:?}", told(&lie));
        lie = before;
    }
}

/// A receipt whose only edits are in claims that nothing proves: each is said to be unchecked.
#[test]
fn claims_that_nothing_proves_are_said_to_be_unchecked() {
    let folder = Folder::new();
    let golden = data("caffe/net/f32_v2_diff.caffemodel");
    let (golden, out) = (golden.to_str().expect("UTF-8"), folder.file("o.safetensors"));
    blob(&["convert", golden, "--dtype", "f16", "--strip-diff", "-o", &out]).ok();
    let bytes = std::fs::read(&out).expect("written");
    let honest = receipt(&open("x.safetensors", &bytes).expect("opens"));
    let steps = honest["transforms"].as_array().expect("steps").clone();
    let twice: Value = steps.iter().chain(steps.last()).cloned().collect();
    for (path, value, said) in [
        (
            "/source/name",
            json!("other.caffemodel"),
            "not checked: the name of the source, which is \"other.caffemodel\"",
        ),
        ("/transforms", twice, "not checked: steps that change no tensor: dtype"),
        ("/tool", json!("blob 0.0.9"), "words not compared: made by blob 0.0.9"),
    ] {
        let mut lie = honest.clone();
        *lie.pointer_mut(path).expect("there") = value;
        let lie = folder.with("lie.safetensors", with_receipt(&bytes, &lie, "", None));
        blob(&["verify", &lie, "--against", golden]).ok().stdout_has(said);
        let ran = blob(&["verify", &lie, "--against", golden, "--json"]).ok();
        assert!(ran.json()[0]["notes"].to_string().contains(&said[..20]), "{path}: {ran:?}");
    }
}

/// The net that lies beside a source tells which values count otherwise than stored. The receipt names the net, so that
/// a net that has come or gone since is no contradiction.
#[test]
fn a_net_that_tells_of_values_is_named() {
    let folder = Folder::new();
    let block = data("mxnet/forward/block-0000.params");
    let (block, bytes) = (block.to_str().expect("UTF-8"), std::fs::read(&block).expect("there"));
    let [out, without] = ["o.npz", "w.npz"].map(|name| folder.file(name));
    blob(&["convert", block, "-o", &out]).ok().stderr_has("fix_gamma");
    let told = receipt(&Checkpoint::open(&out).expect("opens"));
    assert_eq!((&told["told_by"]["from"], &told["told_by"]["name"]), (&json!("beside"), &json!("block-symbol.json")));
    let again = "its receipt made again, file names and versions aside";
    blob(&["verify", &out, "--against", block]).ok().stdout_has(again);
    let alone = folder.with("alone-0000.params", &bytes);
    let ran = blob(&["verify", &out, "--against", &alone]).ok();
    let ran = ran.stdout_has("was not compared with the conversion made again: the net of block-symbol.json");
    assert!(!ran.out.contains(again), "{ran:?}");
    let symbol = data("mxnet/forward/block-symbol.json");
    let symbol = symbol.to_str().expect("UTF-8");
    blob(&["verify", &out, "--against", &alone, "--symbol", symbol]).ok().stdout_has(again);
    blob(&["convert", &alone, "-o", &without]).ok();
    blob(&["verify", &without, "--against", block]).ok().stdout_has(again);
    // Merged files name a net each.
    blob(&["merge", block, &folder.with("z.npy", NPY), "-o", &out, "--force"]).ok();
    let merged = receipt(&Checkpoint::open(&out).expect("opens"));
    assert_eq!(merged["sources"][0]["told_by"]["name"], "block-symbol.json", "{merged}");
    let files = ["--against", &folder.file("z.npy")];
    blob(&[&["verify", &out, "--against", block][..], &files].concat()).ok().stdout_has(again);
    let ran = blob(&[&["verify", &out, "--against", &alone][..], &files].concat()).ok();
    ran.stdout_has("was not compared with the merge made again");
}

/// One byte as NumPy writes it.
const NPY: &[u8] = b"\x93NUMPY\x01\0\x46\0{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }            \n\x07";

/// The frame of a packed file is proved by the digest of the unpacked bytes, whatever the two lengths are.
#[test]
fn a_frame_of_a_packed_file_is_proved() {
    let folder = Folder::new();
    let net = std::fs::read(data("caffe/net/f32_v2.caffemodel")).expect("a golden");
    let gzip = |name: usize| {
        let header = flate2::GzBuilder::new().filename(vec![b'n'; name]);
        let mut file = header.write(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut file, &net).expect("memory");
        file.finish().expect("memory")
    };
    let short = gzip(1);
    // A name in the header makes both of one length.
    let padded = gzip(net.len() - short.len() + 1);
    assert_eq!(padded.len(), net.len());
    let [copy, second, back] = ["c.safetensors", "d.npz", "back.caffemodel"].map(|name| folder.file(name));
    for packed in [short, padded] {
        let source = folder.with("net.caffemodel.gz", &packed);
        blob(&["convert", &source, "--force", "-o", &copy]).ok();
        let bytes = std::fs::read(&copy).expect("written");
        let honest = receipt(&open("x.safetensors", &bytes).expect("opens"));
        assert_eq!(honest["source"]["unpacked_blake3"], blake3::hash(&net).to_string());
        for file in [&source, &folder.with("net.caffemodel", &net)] {
            let ran = blob(&["verify", &copy, "--strict", "--against", file]).ok();
            let ran = ran.stdout_has("its receipt made again");
            assert!(!ran.out.contains("not compared"), "{ran:?}");
        }
        blob(&["convert", &copy, "--force", "-o", &second]).ok();
        for file in [&copy, &second] {
            let ran = blob(&["convert", file, "--force", "-o", &back]).ok();
            assert!(!ran.err.contains("packed") && std::fs::read(&back).expect("written") == net, "{ran:?}");
        }
        let mut middle = inflated(honest["frame"]["deflate"].as_str().expect("text"));
        let at = find(&middle, b"golden");
        middle[at] = b'G';
        let mut lie = honest.clone();
        lie["frame"]["deflate"] = json!(deflated(&middle));
        lie["frame"]["blake3"] = json!(blake3::hash(&middle).to_string());
        let lying = folder.with("lying.safetensors", with_receipt(&bytes, &lie, "", None));
        blob(&["verify", &lying]).no().stdout_has("has a frame that is not of the file");
        blob(&["convert", &lying, "--force", "-o", &back]).refused("are not those of the file that it names");
        remove(&mut lie["source"], "unpacked_blake3");
        let untold = folder.with("untold.safetensors", with_receipt(&bytes, &lie, "", None));
        let ran = blob(&["convert", &untold, "--force", "-o", &back]).ok();
        ran.stderr_has("the receipt has no digest of the unpacked file");
        blob(&["verify", &untold, "--against", &source]).no().stdout_has("source.unpacked_blake3 is null");
        assert!(open("x.safetensors", &bytes).expect("opens").metadata().iter().any(|(key, _)| key == RECEIPT_KEY));
    }
}

/// A folder of one array has a receipt that names another file first, so that its own frame proves nothing.
#[test]
fn a_folder_of_one_array_hands_on_no_frame_of_its_own() {
    let folder = Folder::new();
    let source = data("caffe/blobproto/legacy_2_3_4_5.binaryproto");
    let [first, second] = ["first/", "second.npz"].map(|name| folder.file(name));
    blob(&["convert", source.to_str().expect("UTF-8"), "--dtype", "f64", "-o", &first]).ok();
    blob(&["convert", &first, "-o", &second]).ok();
    let receipt = receipt(&Checkpoint::open(&second).expect("opens"));
    assert_eq!((receipt["frame"].is_null(), receipt["history"].as_array().map(Vec::len)), (true, Some(1)), "{receipt}");
    blob(&["verify", &second, "--against", &first]).ok().stdout_has("its receipt made again");
}

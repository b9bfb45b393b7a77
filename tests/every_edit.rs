//! Receipts of many conversions with one field edited, each field in each way: removed, `null`, another value of its
//! kind, swapped with its neighbour, a key more, a list emptied or with an item twice. `verify --against` notices each
//! edit but those that leave the claim as it is; without the source, every field that is removed is noticed.

use blob_convert::verify::{self, By, Remark};
use blob_convert::{Silent, recipe::NetFile};
use blob_io::Checkpoint;
use serde_json::{Value, json};

use crate::edited_receipt::remarks;
use crate::support::receipt::{receipt, with_receipt};
use crate::support::{Folder, blob, data, open, report};

/// The fields that are there only where there is something to say, so that their absence says nothing; and those about
/// how the source is stored, which the source alone tells.
const OPTIONAL: &[&str] = &[
    "/recipe", "/part", "/select", "/told_by", "/salvaged", "/transforms", "/source/sha256", "/source/compression",
    "/source/member", "/source/unpacked_bytes", "/source/unpacked_blake3",
];

/// The fields of an earlier source that may be absent.
const OF_ORIGIN: &[&str] = &["/dialect", "/transforms", "/several"];

/// Whether a field may be absent, as far as a file without its source tells.
fn may_be_absent(path: &str) -> bool {
    let of_settings = path.contains("/settings/");
    // Of free values the file alone tells nothing: metadata of other people, items of lists, names of tensors.
    let is_item = path.rsplit('/').next().is_some_and(|key| key.parse::<usize>().is_ok());
    OPTIONAL.contains(&path)
        || path.starts_with("/source/metadata/")
        || is_item
        || path.ends_with("/bits_of")
        || path.ends_with("/told_by/blake3")
        || path.ends_with("/told_by")
        || path.starts_with("/history/") && (of_settings || OF_ORIGIN.iter().any(|end| path.ends_with(end)))
        // Which net was followed, the source tells; a map or a step has what the user wrote.
        || of_settings && (path.contains("/net") || path.contains("/map/") || path.contains("/channels"))
        || of_settings && (path.contains("/height") || path.contains("/width") || path.contains("/tensors"))
        || of_settings && ["/torch", "/matrices", "/factor"].iter().any(|end| path.ends_with(end))
        || of_settings && (path.ends_with("/part") || path.ends_with("/unpacked") || path.ends_with("/eps"))
}

/// Whether an edit leaves what the receipt claims as it is, though the text is another one.
fn is_same_claim(path: &str, how: &str) -> bool {
    let of_settings = path.contains("/settings/");
    // The digest of the source is not asked for; steps may be listed in another order, or not, with the same tensors;
    // so may layers, norms and patterns; a diff follows its array.
    path == "/source/sha256" && matches!(how, "removed" | "null")
        || path.starts_with("/transforms/") && matches!(how, "swapped" | "removed")
        || of_settings && matches!(how, "swapped" | "doubled" | "null")
        || path == "/transforms" && how == "other"
        || path == "/transforms" && how == "doubled"
        // How the same net was found.
        || path.ends_with("/net/from") || path.ends_with("/told_by/from")
        // Settings without effect: of a gamma or a factor that the layer lacks, of tensors that the file lacks, and of
        // a pattern that both kinds read alike.
        || of_settings && how == "other" && WITHOUT_EFFECT.iter().any(|end| path.ends_with(end))
}

/// The settings that have no effect in the conversions here.
const WITHOUT_EFFECT: &[&str] = &["/scale_layer", "/fix_gamma", "/factor", "/regex", "/map/bn1~12", "/map/prelu1~11"];

/// How many edits leave a claim as it is: steps in another order, settings without effect, items twice. Each was read.
const SAME: usize = 39;

/// A way to edit a value at a path; `None` where it does not apply.
type Edit = fn(&Value, &str) -> Option<Value>;

const EDITS: &[(&str, Edit)] = &[
    ("removed", |receipt, path| with_parent(receipt, path, |parent, key| remove(parent, key).is_some())),
    ("null", |receipt, path| replaced(receipt, path, |_| Value::Null)),
    ("other", |receipt, path| replaced(receipt, path, other)),
    ("swapped", |receipt, path| with_parent(receipt, path, swap)),
    ("added", |receipt, path| {
        receipt.pointer(path)?.as_object()?;
        replaced(receipt, path, |object| {
            let mut more = object.clone();
            more["strange"] = json!(1);
            more
        })
    }),
    ("emptied", |receipt, path| {
        receipt.pointer(path)?.as_array()?;
        replaced(receipt, path, |_| json!([]))
    }),
    ("doubled", |receipt, path| {
        receipt.pointer(path)?.as_array()?;
        replaced(receipt, path, |list| {
            list.as_array().map(|all| all.iter().chain(all.first()).cloned().collect::<Value>()).unwrap_or_default()
        })
    }),
];

fn replaced(receipt: &Value, path: &str, with: impl Fn(&Value) -> Value) -> Option<Value> {
    let mut lie = receipt.clone();
    let field = lie.pointer_mut(path)?;
    *field = with(field);
    (lie != *receipt).then_some(lie)
}

fn with_parent(receipt: &Value, path: &str, edit: impl Fn(&mut Value, &str) -> bool) -> Option<Value> {
    let (parent, key) = path.rsplit_once('/')?;
    let mut lie = receipt.clone();
    let is_edited = edit(lie.pointer_mut(parent)?, &key.replace("~1", "/").replace("~0", "~"));
    (is_edited && lie != *receipt).then_some(lie)
}

fn remove(parent: &mut Value, key: &str) -> Option<Value> {
    match parent {
        Value::Object(fields) => fields.remove(key),
        Value::Array(items) => Some(items.remove(key.parse().ok()?)),
        _ => None,
    }
}

/// Swaps a value with its neighbour of the same kind.
fn swap(parent: &mut Value, key: &str) -> bool {
    let is_alike = |one: &Value, other: &Value| std::mem::discriminant(one) == std::mem::discriminant(other);
    match parent {
        Value::Object(fields) => {
            let next = fields.keys().skip_while(|other| *other != key).nth(1).cloned();
            let Some(next) = next.filter(|next| is_alike(&fields[key], &fields[next])) else { return false };
            let (one, other) = (fields[key].clone(), fields[&next].clone());
            (fields[key], fields[&next]) = (other, one);
        }
        Value::Array(items) => {
            let place: usize = key.parse().expect("a place");
            if place + 1 >= items.len() || !is_alike(&items[place], &items[place + 1]) {
                return false;
            }
            items.swap(place, place + 1);
        }
        _ => return false,
    }
    true
}

/// Another value of the same kind.
fn other(value: &Value) -> Value {
    match value {
        Value::String(text) if text.len() == 64 => {
            let digit = if text.starts_with('0') { '1' } else { '0' };
            json!(format!("{digit}{}", &text[1..]))
        }
        Value::String(text) if text.starts_with("blob ") => json!("blob 0.0.9"),
        Value::String(text) => json!(format!("{text}x")),
        Value::Number(n) if n.is_u64() => json!(n.as_u64().expect("a number") + 1),
        Value::Number(n) => json!(n.as_f64().expect("a number") * 2.0 + 1.0),
        Value::Bool(is) => json!(!is),
        Value::Array(items) => items.iter().skip(1).cloned().collect(),
        Value::Object(fields) => fields.iter().skip(1).map(|(key, value)| (key.clone(), value.clone())).collect(),
        Value::Null => json!("x"),
    }
}

/// The paths of all values in a receipt; of a list the first two items and the last.
fn paths(value: &Value, path: &str, found: &mut Vec<String>) {
    let mut at = |key: &str, value: &Value| {
        let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
        found.push(path.clone());
        paths(value, &path, found);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| at(key, value)),
        Value::Array(items) => {
            (0..items.len())
                .filter(|place: &usize| *place < 2 || *place + 1 == items.len())
                .for_each(|place| at(&place.to_string(), &items[place]));
        }
        _ => {}
    }
}

/// A conversion: the words of the command, its sources, and the net.
struct Case {
    args: Vec<String>,
    sources: Vec<String>,
    net: Option<String>,
}

fn cases(folder: &Folder) -> Vec<Case> {
    let file = |path: &str| data(path).to_str().expect("UTF-8").to_owned();
    let made = |args: &[&str], name: &str| {
        let out = folder.file(name);
        blob(&[args, &["-o", &out]].concat()).ok();
        out
    };
    let net = file("caffe/net/f32_v2_diff.caffemodel");
    let [resnet, resnet_net] = ["caffe/forward/resnet.caffemodel", "caffe/forward/resnet.prototxt"].map(file);
    let [lenet, block] = ["caffe/forward/lenet.caffemodel", "mxnet/forward/block-0000.params"].map(file);
    let first = made(&["convert", &net, "--exclude", "*.diff"], "a.npz");
    let second = made(&["rename", &first, "--sed", "s/^/z./"], "b.safetensors");
    let torch = made(&["convert", &net, "--names", "torch"], "t.npz");
    let half = made(&["convert", &torch, "--dtype", "f16"], "h.npz");
    let sparse = file("mxnet/golden/mxnet-1.9.1/sparse_list_mixed.nd");
    let solver = file("caffe/misc/state.solverstate");
    let bf16 = made(&["convert", &file("mxnet/golden/mxnet-1.9.1/checkpoints/bf16_mixed-0000.params")], "bf.npz");
    let of = |args: &[&str], sources: &[&String], net: Option<&String>| Case {
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        sources: sources.iter().map(|source| (*source).clone()).collect(),
        net: net.cloned(),
    };
    vec![
        of(&["convert", &net, "--sha256"], &[&net], None),
        of(&["fold", &resnet, "--net", &resnet_net], &[&resnet], Some(&resnet_net)),
        of(&["convert", &net, "--names", "torch"], &[&net], None),
        of(&["convert", &net, "--strip-diff", "--dtype", "f16"], &[&net], None),
        of(&["convert", &lenet, "--layout", "hwio"], &[&lenet], None),
        of(&["convert", &block, "--fix-gamma", "auto"], &[&block], None),
        of(&["convert", &block], &[&block], None),
        of(
            &["convert", &resnet, "--net", &resnet_net, "--bn", "fold-factor", "--eps", "1e-3"],
            &[&resnet],
            Some(&resnet_net),
        ),
        of(&["rename", &net, "--sed", "s/conv1/c/"], &[&net], None),
        of(&["transpose", &net, "--perm", "1,0,2,3", "conv1/0"], &[&net], None),
        of(&["convert", &net, "--only", "conv1"], &[&net], None),
        of(&["merge", &first, &second, "--prefix"], &[&first, &second], None),
        of(&["merge", &first, "conv1/1", "bn1/0", "--axis", "0", "--into", "q"], &[&first], None),
        of(&["split", &first, "conv1/0", "--axis", "0", "--sizes", "1,3"], &[&first], None),
        of(&["convert", &solver], &[&solver], None),
        of(&["convert", &sparse], &[&sparse], None),
        of(&["convert", &sparse, "--dense"], &[&sparse], None),
        of(&["convert", &bf16, "--anew"], &[&bf16], None),
        of(&["convert", &half], &[&half], None),
        of(
            &["convert", &file("other/st_fp8.safetensors"), "--skip-unsupported", "--anew"],
            &[&file("other/st_fp8.safetensors")],
            None,
        ),
    ]
}

#[test]
fn every_edit_that_changes_a_claim_is_noticed() {
    let folder = Folder::new();
    let out = folder.file("o.safetensors");
    let (mut count, mut same, mut believed) = (0, 0, Vec::new());
    for Case { args, sources, net } in cases(&folder) {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        blob(&[&words[..], &["-o", &out, "--force"]].concat()).ok();
        let sources: Vec<Checkpoint> = sources.iter().map(|path| Checkpoint::open(path).expect("opens")).collect();
        let net = net.map(|path| NetFile::Prototxt(path.into()).read().expect("a net"));
        let by = By { net, ..By::default() };
        let bytes = std::fs::read(&out).expect("written");
        let honest = receipt(&open("x.safetensors", &bytes).expect("opens"));
        let alone = |receipt: &Value| {
            let mut all =
                remarks(&open("x.safetensors", &with_receipt(&bytes, receipt, "", None)).expect("opens"), None);
            all.retain(|remark| !remark.contains("no transforms"));
            all
        };
        let told = |receipt: &Value| {
            let file = open("x.safetensors", &with_receipt(&bytes, receipt, "", None)).expect("opens");
            let mut all = alone(receipt);
            let compared = verify::against_all(&file, &sources, &by, &Silent, &mut |remark| match remark {
                Remark::Finding(finding) | Remark::Unproven(finding) => all.push(finding.message),
                Remark::Note(note) => all.push(note),
                _ => {}
            });
            all.extend(compared.err().map(|e| e.to_string()));
            all
        };
        let before = told(&honest);
        assert!(
            before.iter().all(|said| ["not checked: steps", "left out: it is", "compared as dense"]
                .iter()
                .any(|s| said.contains(s))),
            "{args:?}: {before:?}"
        );
        let mut found = Vec::new();
        paths(&honest, "", &mut found);
        for (path, (how, edit)) in found.iter().flat_map(|path| EDITS.iter().map(move |edit| (path, edit))) {
            let Some(lie) = edit(&honest, path) else { continue };
            count += 1;
            if *how == "removed" && !may_be_absent(path) && alone(&lie).is_empty() {
                believed.push(format!("{args:?}: {path} {how}, without the source"));
            }
            if told(&lie) != before {
                continue;
            }
            if is_same_claim(path, how) {
                same += 1;
            } else {
                believed.push(format!("{args:?}: {path} {how}"));
            }
        }
    }
    assert!(same <= SAME, "{same} edits count as the same claim, and {SAME} were read");
    assert!(believed.is_empty(), "{} of {count} edits are believed:\n{}", believed.len(), believed.join("\n"));
    report(&format!(
        "receipts: {count} edits of 20 conversions' receipts, each noticed but {same} that claim the same"
    ));
}

//! Random receipts: transforms with random settings on shapes of odd extents, and receipts with random bytes. None
//! causes a panic or much memory.
//!
//! `BLOB_RECEIPT_CASES` is how many are tried, 2,000 by default; `BLOB_RECEIPT_SEED` is where they begin.

use blob_convert::transform::Registry;
use blob_convert::verify;
use blob_convert::{Options, RECEIPT_KEY, Silent};
use blob_io::{Checkpoint, Format, work};
use serde_json::{Value, json};

use crate::support::archive::safetensors;
use crate::support::conversion::to_bytes;
use crate::support::random::{Random, number, on_threads};
use crate::support::receipt::receipt;
use crate::support::{alloc, data, open, report};

const NAMES: [&str; 6] = ["a", "b", "c", "a.diff", "conv/0", "gone"];
const EXTENTS: [u64; 9] = [0, 1, 1, 2, 3, 4, 1 << 32, 1 << 62, u64::MAX];

/// Settings that a receipt may state, most of them for tensors of the file.
fn settings(random: &mut Random) -> Value {
    let mut name = || json!(random.one(&NAMES));
    let (names, maybe) = ([name(), name()], [name(), name(), name(), name()]);
    let mut number = || json!(*random.one(&EXTENTS));
    let [c, h, w] = [number(), number(), number()];
    let side = random.one(&[json!("first"), json!("last"), json!({"second": {"groups": c}})]).clone();
    let optional: Vec<Value> =
        (0..6).map(|_| if random.below(3) == 0 { Value::Null } else { random.one(&maybe).clone() }).collect();
    let axes = random.one(&[json!([1, 0]), json!([0]), json!([2, 0, 1]), json!([0, 1, 2, 3]), json!([3, 3])]).clone();
    let (word, is) = (random.one(&["hwio", "ohwi", "f16", "bf16", "f64", "i8", ""]), random.below(2) == 0);
    let layer = json!({
        "layer": "l", "scale_layer": null, "weight": names[0], "bias": names[1], "has_bias": is, "side": side, "eps": 1e-5,
        "mean": optional[0], "variance": optional[1], "factor": optional[2], "gamma": optional[3], "fix_gamma": is,
        "beta": optional[4], "scale": optional[5], "shift": null,
    });
    json!({
        "layers": [layer, {"mean": names[0], "variance": names[1], "factor": maybe[0]}], "with_ones": is,
        "gammas": names, "gates": [names[0]], "second_biases": [[names[1], "new"]], "transposed": [maybe[1]],
        "slopes": [maybe[2]], "channels": c, "height": h, "width": w, "tensors": names, "axes": axes, "to": word,
        "map": {(NAMES[random.below(6)]): (NAMES[random.below(6)])},
    })
}

/// The layers of `fold` alone, or of `bn` alone, as the step needs them.
fn step(random: &mut Random) -> Value {
    const STEPS: [&str; 12] = [
        "strip-diff", "squeeze-legacy", "fold", "bn", "fix-gamma", "torch-layout", "rgb", "fc-from", "permute",
        "layout", "dtype", "names",
    ];
    let name = *random.one(&STEPS);
    let mut settings = settings(random);
    match name {
        "fold" => settings["layers"] = json!([settings["layers"][0]]),
        "bn" => settings["layers"] = json!([settings["layers"][1]]),
        _ => {}
    }
    json!({"name": name, "settings": settings})
}

/// A safetensors file of a few tensors with small or empty shapes of odd extents, and this metadata.
fn small(random: &mut Random, metadata: &Value) -> Vec<u8> {
    let (mut tensors, mut at) = (serde_json::Map::new(), 0);
    tensors.insert("__metadata__".to_owned(), metadata.clone());
    for name in &NAMES[..5] {
        let mut dims: Vec<u64> = (0..random.below(5)).map(|_| *random.one(&EXTENTS)).collect();
        let product = dims.iter().try_fold(1u64, |product, extent| product.checked_mul(*extent));
        if product.is_none_or(|count| count > 64) {
            dims.iter_mut().for_each(|extent| *extent = (*extent).min(2));
        }
        let dtype = random.below(3);
        let bytes = dims.iter().product::<u64>() * [4, 2, 8][dtype];
        tensors.insert(
            (*name).to_owned(),
            json!({"dtype": (["F32", "F16", "I64"][dtype]), "shape": dims, "data_offsets": [at, at + bytes]}),
        );
        at += bytes;
    }
    let values: Vec<u8> = (0..at).map(|_| random.below(256) as u8).collect();
    safetensors(&json!(tensors).to_string(), &values)
}

/// The file with other metadata.
fn with_metadata(file: &[u8], metadata: Value) -> Vec<u8> {
    let len = u64::from_le_bytes(file[..8].try_into().expect("eight")) as usize;
    let mut header: Value = serde_json::from_slice(&file[8..8 + len]).expect("JSON");
    header["__metadata__"] = metadata;
    safetensors(&header.to_string(), &file[8 + len..])
}

/// A receipt of random transforms, or the honest one with a few characters changed.
fn random_receipt(random: &mut Random, honest: &str) -> String {
    if random.once_in(2) {
        let steps: Vec<Value> = (0..=random.below(3)).map(|_| step(random)).collect();
        return json!({"schema": "blob.receipt/1", "source": {}, "sparse": [], "transforms": steps}).to_string();
    }
    let mut bytes = honest.as_bytes().to_vec();
    for _ in 0..=random.below(4) {
        random.slip(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The counts of a run of cases: with transforms repeated, and the most memory and work of one.
#[derive(Default)]
struct Totals {
    redone: u64,
    memory: u64,
    work: u64,
}

/// Tries as many receipts. `golden` is a file with an honest one.
fn tries(random: &mut Random, cases: u64, golden: &[u8]) -> Totals {
    let honest = receipt(&open("x.safetensors", golden).expect("opens")).to_string();
    let mut most = Totals::default();
    for _ in 0..cases {
        let at = random.state();
        let metadata = json!({ RECEIPT_KEY: random_receipt(random, &honest) });
        let source = small(random, &json!({}));
        let ours = match random.below(4) {
            0 => small(random, &metadata),
            1 => with_metadata(golden, metadata),
            // The same tensors, so that the steps' results may fit.
            _ => with_metadata(&source, metadata),
        };
        let len = ours.len() + source.len();
        let (Ok(ours), Ok(source)) = (open("x.safetensors", &ours), open("s.safetensors", &source)) else { continue };
        let mut visited = work::Work::default();
        let peak = alloc::peak(|| {
            visited = work::measure(|| {
                verify::claims(&ours, &mut |_| {});
                drop(verify::receipt(&ours, &Silent, &mut |_| {}));
                verify::replay(&ours, &Registry::default(), &mut |_| {});
                let compared = verify::against(&ours, &source, &Silent, &mut |_| {});
                most.redone += u64::from(compared.is_ok_and(|compared| compared.redone > 0));
                for to in [Format::Npz, Format::MxnetList, Format::CaffeModel] {
                    drop(blob_convert::plan(&ours, &Options::new(to), &blob_convert::Place::Stdout));
                }
            })
            .1;
        });
        let work = visited.sum().div_ceil(len as u64);
        assert!(peak < 16 << 20, "state {at}: {peak} bytes");
        assert!(work < MAX_WORK, "state {at}: {work} visits for each byte of the files");
        (most.memory, most.work) = (most.memory.max(peak), most.work.max(work));
    }
    most
}

/// The bytes and items that may be visited for each byte of a file and of its source.
const MAX_WORK: u64 = 256;

/// Tries random transforms on random shapes, and receipts with random bytes. Run millions with
/// `BLOB_RECEIPT_CASES=8000000 cargo test -p blob-tests --test it -- random_receipt`.
#[test]
fn random_receipts_cause_neither_a_panic_nor_much_memory() {
    let cases = number("BLOB_RECEIPT_CASES").unwrap_or(2_000);
    let seed = number("BLOB_RECEIPT_SEED").unwrap_or(1);
    let params = data("mxnet/golden/mxnet-1.9.1/checkpoints/bf16_mixed-0000.params");
    let golden = to_bytes(&Checkpoint::open(params).expect("opens"), &Options::new(Format::Safetensors));
    let golden = golden.expect("converts");
    let all = on_threads(cases, seed, |mut random, cases| tries(&mut random, cases, &golden));
    let redone: u64 = all.iter().map(|one| one.redone).sum();
    let most = |of: fn(&Totals) -> u64| all.iter().map(of).max().unwrap_or(0);
    let (memory, work) = (most(|one| one.memory), most(|one| one.work));
    report(&format!(
        "receipts: {cases} at random, {redone} with transforms repeated; at most {memory} bytes, and {work} visits a byte"
    ));
}

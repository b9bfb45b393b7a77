//! Conversions, comparisons and divisions of files made to cost most: the work, which is counted, and the
//! memory grow linearly with the file. The words on such a file stay few.

use blob_convert::diff::{Tolerance, diff};
use blob_convert::recipe::Divide;
use blob_convert::transform::{FcFrom, Registry};
use blob_convert::{Options, Place, Plan, RECEIPT_KEY, Recipe, Silent, Step, plan};
use blob_core::DType;
use blob_io::{Checkpoint, Error, Format, IfExists};
use serde_json::json;

use crate::fold_net::{layer, net};
use crate::support::alloc::peak;
use crate::support::archive::safetensors;
use crate::support::message::{len, var};
use crate::support::tensors::{Tensor, writer, written};
use crate::support::work::broken_bounds;
use crate::support::{Folder, open, report};

/// All that may be said of one file, in bytes.
const SAID: usize = 4 << 10;

fn is_linear(name: &str, make: impl Fn(usize) -> Vec<u8>, run: impl Fn(&Checkpoint)) {
    let file = if make(0).starts_with(b"\n") { "x.caffemodel" } else { "x.safetensors" };
    let broken = broken_bounds(name, make, |bytes| run(&open(file, bytes).expect("opens")));
    assert_eq!(broken, [""; 0]);
}

/// The plan of a recipe with one step, whose changes are short.
fn planned(source: &Checkpoint, step: Step) -> usize {
    let recipe = Recipe::new("x", "x.safetensors").step(step);
    let plan = recipe.plan_of(&[source], None, &Registry::default()).expect("a plan");
    let said: usize = plan.changes().iter().map(|group| group.to_string().len()).sum();
    assert!(said < SAID, "{said} bytes are said: {:?}", plan.notes().first());
    plan.notes().len()
}

/// Tensors of one f32 each, under names of six digits behind `stem`.
fn ones(stem: &str, count: usize) -> Vec<u8> {
    let tensors = (0..count).map(|i: usize| {
        format!(r#""{stem}{i:06}/0":{{"dtype":"F32","shape":[1,1],"data_offsets":[{},{}]}}"#, 4 * i, 4 * i + 4)
    });
    let tensors: Vec<String> = tensors.collect();
    safetensors(&format!("{{{}}}", tensors.join(",")), &vec![0; 4 * count])
}

/// The plan, the layout and the second look at the output take a few times the file.
#[test]
fn many_small_tensors_take_little_memory() {
    let tensor = |i: usize| Tensor::new(&format!("arg:layer{i:06}_weight"), DType::F32, &[1], &[0; 4]);
    let list = written(Format::MxnetList, &(0..60_000).map(tensor).collect::<Vec<_>>(), &[]);
    let folder = Folder::new();
    let path = folder.path().join("x.npz");
    let target = Place::File { path: &path, if_exists: IfExists::Refuse };
    let planned = peak(|| {
        let file = open("x.params", &list).expect("opens");
        plan(&file, &Options::new(Format::Npz), &target).expect("a plan");
    });
    let tensors: Vec<Tensor> = (0..60_000).map(tensor).collect();
    let writer = writer(Format::Npz, &tensors, &[]);
    let written = peak(|| writer.write(&path, IfExists::Refuse).expect("written"));
    let len = list.len() as u64;
    report(&format!("memory: of 60,000 tensors in a file of {len}, {planned} bytes planned, {written} written"));
    // A compressor of 300 KB stays with the thread, too.
    assert!(
        planned <= 13 * len + (1 << 20) && written <= 10 * len,
        "a file of {len}: {planned} planned, {written} written"
    );
}

/// A receipt of many permuted tensors, and then of thousands of steps that rename none of them.
#[test]
fn empty_renames_move_no_names() {
    is_linear(
        "renames",
        |size: usize| {
            let origin = |place: usize, transforms: serde_json::Value| {
                json!({"name": "a", "bytes": 1, "blake3": format!("{place:064}"), "format": "npz",
                "transforms": transforms})
            };
            let names: Vec<String> = (0..size / 400).map(|i| format!("t{i:06}")).collect();
            let permute = json!([{"name": "permute", "settings": {"tensors": names, "axes": [1, 0]}}]);
            let rename = json!({"name": "names", "settings": {"map": {}}});
            let steps = (0..60).map(|i| origin(i + 1, json!(vec![rename.clone(); (size >> 15).min(64)])));
            let history: Vec<_> = std::iter::once(origin(0, permute)).chain(steps).collect();
            let receipt = json!({"schema": "blob.receipt/1", "tool": "x", "tensors": 1,
            "source": origin(99, json!([])), "history": history});
            let metadata = json!({RECEIPT_KEY: receipt.to_string(), "pad": " ".repeat(size / 4)});
            let tensor = json!({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]});
            safetensors(&json!({"__metadata__": metadata, "w": tensor}).to_string(), &[0; 4])
        },
        |file| {
            plan(file, &Options::new(Format::MxnetList), &Place::Stdout).expect("a plan");
        },
    );
}

/// BatchNorms behind as many layers of another kind, and one that is folded.
#[test]
fn refusals_of_a_fold_are_grouped() {
    is_linear(
        "refusals",
        |size: usize| {
            let no_bias = len(106, &[var(1, 2), var(2, 0), var(4, 1)].concat());
            let norm = |name: &str, bottom: &str, top: &str| {
                layer(name, "BatchNorm", bottom, top, &[&[0.5, 0.5], &[1.0, 4.0], &[1.0]], &[])
            };
            let first = layer("c", "Convolution", "data", "c", &[&[1.0, 2.0]], &no_bias);
            net(&[
                first,
                norm("n", "c", "d"),
                (0..size / 160)
                    .flat_map(|i: usize| {
                        let (relu, read) = (format!("r{i}"), format!("b{i}"));
                        [layer(&relu, "ReLU", "d", &relu, &[], &[]), norm(&read, &relu, &read)].concat()
                    })
                    .collect(),
            ])
        },
        |file| assert!(planned(file, Step::fold()) < 30),
    );
}

/// BatchNorms each with another eps.
#[test]
fn modules_of_many_eps_are_one_line() {
    is_linear(
        "eps",
        |size: usize| {
            net(&[(0..size / 260)
                .flat_map(|i: usize| {
                    let (name, eps) = (format!("b{i}"), f32::from_bits(1e-3_f32.to_bits() + i as u32));
                    let eps = len(139, &[&[3 << 3 | 5], &eps.to_le_bytes()[..]].concat());
                    layer(&name, "BatchNorm", "data", &name, &[&[0.5; 20], &[1.0; 20], &[1.0]], &eps)
                })
                .collect()])
        },
        |file| assert!(planned(file, Step::torch_names()) < 30),
    );
}

#[test]
fn equal_tensors_under_new_names_are_paired() {
    is_linear(
        "pairs",
        |size| ones("a", size / 80),
        |file| {
            let others = open("y.safetensors", &ones("b", file.entries().len())).expect("opens");
            let tally = diff(file, &others, Tolerance::Exact, &Silent, &mut |_| {}, &mut |_| Ok::<(), Error>(()))
                .expect("read");
            assert_eq!(tally.renamed, file.entries().len() as u64);
        },
    );
}

#[test]
fn each_named_inner_product_is_found_at_once() {
    is_linear(
        "fc-from",
        |size| ones("a", size / 80),
        |file| {
            let all = file.names().map(|name| FcFrom::new(1, 1, 1).expect("extents").layer(name)).reduce(FcFrom::and);
            let options = all.into_iter().fold(Options::new(Format::Npz), Options::transform);
            plan(file, &options, &Place::Stdout).expect("a plan");
        },
    );
}

#[test]
fn a_file_for_each_layer_is_planned_from_its_tensors() {
    // A plan with a receipt takes a hundred times the bytes that name one of these tensors.
    is_linear(
        "layers",
        |size| ones("a", size / 3200),
        |file| {
            let mut recipe = Recipe::new("x", "no-such-folder-{}.safetensors");
            recipe.target.divide = Some(Divide::ByLayer);
            let plans = recipe.plan_several(file, &Registry::default()).expect("plans");
            assert_eq!(plans.plans().iter().map(Plan::tensors).map(<[_]>::len).sum::<usize>(), file.entries().len());
        },
    );
}

/// Convolutions, each with a BatchNorm and a Scale that are folded, as an ONNX model.
#[test]
fn a_folded_net_becomes_a_model_in_linear_work() {
    is_linear(
        "folded models",
        |size: usize| {
            let (no_bias, with_bias) = (len(106, &[var(1, 2), var(2, 0), var(4, 1)].concat()), len(142, &var(4, 1)));
            // A net has more bytes of weights than of layers.
            net(&[
                (0..size / 600)
                    .flat_map(|i: usize| {
                        let (read, conv, norm) = (format!("s{i}"), format!("c{}", i + 1), format!("b{}", i + 1));
                        let scale = format!("s{}", i + 1);
                        [
                            layer(&conv, "Convolution", &read, &conv, &[&[1.0, 2.0, 3.0, 4.0]], &no_bias),
                            layer(&norm, "BatchNorm", &conv, &norm, &[&[0.5, 0.5], &[1.0, 4.0], &[1.0]], &[]),
                            layer(&scale, "Scale", &norm, &scale, &[&[2.0, 3.0], &[0.0, 1.0]], &with_bias),
                        ]
                        .concat()
                    })
                    .collect(),
                len(201, &vec![0; size * 3 / 5]),
            ])
        },
        |file| {
            let mut recipe = Recipe::new("x", "x.onnx").step(Step::fold());
            let mut onnx = blob_convert::recipe::Onnx::default();
            onnx.inputs.insert("s0".to_owned(), vec![1, 2, 1, 1]);
            recipe.target.onnx = Some(onnx);
            let plan = recipe.plan_of(&[file], None, &Registry::default()).expect("a plan");
            let model = plan.model().expect("a model");
            assert_eq!(
                (model.nodes.len(), model.initializers.len()),
                (file.entries().len() / 6, file.entries().len() / 3)
            );
        },
    );
}

//! A recipe is data: a recipe written as JSON is read again; other bytes are an error, whatever they are; its
//! steps are done in one order.

use std::path::Path;

use blob_convert::recipe::{NetFile, Recipe, Source, Target};
use blob_convert::transform::{Dtype, FcFrom, Layout, Names, Permute, Registry, Rgb, StripDiff};
use blob_convert::{Selection, Silent, Step};
use blob_core::DType;
use blob_io::caffe::BlobForm;
use blob_io::mxnet::Version;
use blob_io::{Checkpoint, Format, IfExists, Output};
use serde_json::json;

use crate::support::data;
use crate::support::random::Random;

/// A recipe with every field set, and every step that has settings.
fn full() -> Recipe {
    let mut recipe = Recipe::new("a.caffemodel", "b.npz")
        .step(Selection::matching(["conv1", "#3"]))
        .step(StripDiff)
        .step(Step::fold())
        .step(Step::eps(1e-5))
        .step(Rgb)
        .step(FcFrom::new(2, 3, 3).expect("extents").layer("fc"))
        .step(Layout::Hwio)
        .step(Permute::new(vec!["a".to_owned()], vec![1, 0]).expect("axes"))
        .step(Dtype::new(DType::F16).expect("floats"))
        .step(Names::new([("a".to_owned(), "b".to_owned())]));
    let mut source = Source::new("b");
    source.format = Some(Format::Npz);
    recipe.sources.push(source);
    recipe.net = Some(NetFile::Prototxt("deploy.prototxt".into()));
    recipe.target.format = Some(Format::MxnetList);
    recipe.target.if_exists = IfExists::Replace;
    recipe.target.into = Some("model".into());
    recipe.target.form = Some(BlobForm { legacy: true, raw: false, v1: true });
    (recipe.target.params_version, recipe.target.shard_size) = (Some(Version::V3), Some(7));
    (recipe.target.dense, recipe.target.strict, recipe.target.receipt) = (true, true, false);
    recipe
}

#[test]
fn a_recipe_is_read_as_it_was_written() {
    let full = full();
    let text = full.to_json().expect("JSON");
    assert_eq!(Recipe::read("full", &text).expect("a recipe"), full, "{text}");
    assert_eq!(Recipe::read("none", "{}").expect("a recipe"), Recipe::default());
    assert_eq!(Recipe::default().target, Target::default());
}

#[test]
fn what_is_no_recipe_is_an_error() {
    let text = full().to_json().expect("JSON");
    let (mut random, mut read) = (Random::new(7), 0);
    for _ in 0..2000 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] = *random.one(b"\"{}[]:,0-9truefalsenull ");
        }
        bytes.truncate(if random.once_in(4) { random.below(bytes.len()) } else { bytes.len() });
        let Ok(text) = String::from_utf8(bytes) else { continue };
        match Recipe::read("changed", &text) {
            Ok(recipe) => {
                assert_eq!(Recipe::read("again", &recipe.to_json().expect("JSON")).expect("a recipe"), recipe);
                read += 1;
            }
            Err(error) => assert!(error.to_string().starts_with("changed: is no recipe: "), "{error}"),
        }
    }
    assert!(read > 0);
}

/// The steps of a receipt, which are exact, and the wishes that they were made from do the same.
#[test]
fn a_receipt_has_the_steps_of_its_recipe() {
    let source = Checkpoint::open(data("caffe/forward/resnet.caffemodel")).expect("opens");
    let folder = tempfile::tempdir().expect("a folder");
    let written = |name: &str, steps: Vec<Step>| {
        let path = folder.path().join(name);
        let mut recipe = Recipe::new("", &path);
        recipe.steps = steps;
        recipe.plan_of(&[&source], None, &Registry::default()).expect("a plan").run(&Silent).expect("runs");
        Checkpoint::open(path).expect("opens")
    };
    let wished = vec![Step::torch_names(), Dtype::new(DType::F16).expect("floats").into(), Step::fold()];
    let first = written("first.safetensors", wished);
    let receipt = first.metadata().iter().find(|(key, _)| key == blob_convert::RECEIPT_KEY).expect("a receipt");
    let receipt: serde_json::Value = serde_json::from_str(&receipt.1).expect("JSON");
    let steps: Vec<Step> = serde_json::from_value(receipt["transforms"].clone()).expect("steps");
    let names: Vec<&str> = steps.iter().map(|step| &*step.name).collect();
    assert_eq!(names, ["squeeze-legacy", "fold", "dtype", "names"]);
    let second = written("second.safetensors", steps);
    assert!(first.names().eq(second.names()));
    for (one, other) in first.entries().iter().zip(second.entries()) {
        assert_eq!((one.dtype(), one.shape()), (other.dtype(), other.shape()), "{}", one.name());
        assert!(first.view(one).expect("read") == second.view(other).expect("read"), "{}", one.name());
    }
}

/// The error for a tensor that a step's settings name and the file does not have.
const NOT_THERE: &str = "the step \"eps\" names \"bn/1\", which is not there";

#[test]
fn what_a_step_does_not_know_is_refused() {
    let source = Checkpoint::open(data("caffe/forward/resnet.caffemodel")).expect("opens");
    for (name, settings, why) in [
        ("fold", json!({"deep": true}), "unknown field `deep`"),
        ("eps", json!({"to": -1}), "an eps is a number of 0 or more"),
        ("names", json!({}), "needs either to, file or map"),
        ("names", json!({"to": "torch", "keep": ["rgb"]}), "does not bring \"rgb\" with it"),
        ("layout", json!({"to": "hwio", "matrix": true}), "has no setting \"matrix\""),
        ("select", json!({"patterns": "conv1"}), "has settings that cannot be read"),
        ("eps", json!({"to": -1, "norms": []}), "has -1e0, and an eps is a number of 0 or more"),
        ("eps", json!({"to": 1e-5, "norms": [{"variance": "bn_conv1/1", "eps": -2}]}), "has -2e0, and an eps"),
        ("eps", json!({"to": 1e-5, "norms": [{"variance": "bn/1", "eps": 1e-3}]}), NOT_THERE),
        ("bn", json!({"with_ones": false, "layers": [{"mean": "m", "variance": "v", "factor": "f"}]}), "\"m\", which"),
        ("fix-gamma", json!({"gammas": ["bn_gamma"]}), "names \"bn_gamma\", which is not there"),
        ("torch-layout", json!({"gates": [], "second_biases": [], "slopes": ["s"]}), "names \"s\", which"),
        ("layout", json!({"to": "hwio", "matrices": "no"}), "has settings that cannot be read"),
        ("rgb", json!(5), "whose settings are no JSON object"),
        ("strip-diff", json!([]), "whose settings are no JSON object"),
    ] {
        let recipe = Recipe::new("", Path::new("out.npz")).step(Step::new(name, settings.clone()));
        let refused = recipe.plan_of(&[&source], None, &Registry::default()).expect_err("refused").to_string();
        assert!(refused.contains(why), "{name} {settings}: {refused}");
    }
}

/// Steps without a word about matrices are of older receipts, which had convolutions alone.
#[test]
fn layout_says_that_matrices_stay() {
    let source = Checkpoint::open(data("caffe/net/f32_v2.caffemodel")).expect("opens");
    for (settings, notes) in [
        (json!({"to": "hwio"}), 1),
        (json!({"to": "oihw"}), 0),
        (json!({"to": "hwio", "matrices": false}), 0),
        (json!({"to": "hwio", "matrices": true}), 0),
    ] {
        let recipe = Recipe::new("", Path::new("out.npz")).step(Step::new("layout", settings.clone()));
        let plan = recipe.plan_of(&[&source], None, &Registry::default()).expect("a plan");
        let said = plan.notes().iter().filter(|note| note.contains("matrices of inner products stay")).count();
        assert_eq!(said, notes, "{settings}: {:?}", plan.notes());
    }
}

#[test]
fn a_recipe_writes_the_format_of_the_model_that_it_changes() {
    let source = Checkpoint::open(data("caffe/net/f32_v2.caffemodel")).expect("opens");
    let mut recipe = Recipe::new("", "out.caffemodel");
    recipe.target.format = Some(Format::Npz);
    let planned = |recipe: &Recipe| recipe.plan_of(&[&source], Some(&source), &Registry::default()).map(|_| ());
    let refused = planned(&recipe).expect_err("refused").to_string();
    assert!(refused.contains("is caffemodel, and the recipe's output is npz"), "{refused}");
    recipe.target.format = Some(Format::CaffeModel);
    planned(&recipe).expect("the same format");
}

/// A file that is made for a check changes the folder, even if the check removes the file.
#[test]
fn planning_writes_nothing() {
    let source = Checkpoint::open(data("mxnet/forward/block-0000.params")).expect("opens");
    let folder = tempfile::tempdir().expect("a folder");
    let changed = || std::fs::metadata(folder.path()).and_then(|meta| meta.modified()).expect("a folder");
    let before = changed();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let output = folder.path().join("out-0000.params");
    let recipe = Recipe::new("", &output).step(Step::fold());
    let planned = recipe.plan_of(&[&source], None, &Registry::default()).expect("a plan");
    let symbol = planned.symbol().expect("a symbol");
    assert_eq!(changed(), before);
    std::fs::write(symbol, "").expect("written");
    let exists = format!("{}: exists", symbol.display());
    assert_eq!(planned.check(&Silent).expect_err("refused").to_string(), exists);
    assert_eq!(planned.run(&Silent).expect_err("refused").to_string(), exists);
    let again = recipe.plan_of(&[&source], None, &Registry::default());
    assert_eq!(again.expect_err("refused").to_string(), exists);
}

/// A folded net, with the symbol read from its file and given as text: the tensors and the new symbol are the same.
#[test]
fn a_net_s_text_stands_for_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = Checkpoint::open(data("mxnet/forward/block-0000.params")).expect("a golden file");
    let symbol = data("mxnet/forward/block-symbol.json");
    let recipe = |net: &Path, out: &Path| {
        let mut recipe = Recipe::new("block-0000.params", out).step(Step::fold());
        recipe.net = Some(NetFile::Symbol(net.to_owned()));
        recipe
    };
    let by_file = recipe(&symbol, &folder.path().join("a-0000.params"));
    by_file.plan_of(&[&source], None, &Registry::default()).expect("a plan").run(&Silent).expect("a conversion");

    let text = std::fs::read(&symbol).expect("the symbol");
    let by_text = recipe(Path::new("nowhere/block-symbol.json"), Path::new("b-0000.params"));
    by_text.plan_of(&[&source], None, &Registry::default()).expect_err("there is no such file");
    let by_text = by_text.net_text(text);
    let plan = by_text.plan_of(&[&source], None, &Registry::default()).expect("a plan");
    let place = folder.path().join("place");
    let output = Output::to_sink("b-0000.params", Box::new(std::fs::File::create_new(&place).expect("a file")));
    plan.run_into(output, &Silent).expect("a conversion");

    let read = |name: &str| std::fs::read(folder.path().join(name)).expect(name);
    assert_eq!(read("place"), read("a-0000.params"));
    assert_eq!(plan.symbol_text().map(str::as_bytes), Some(&*read("a-symbol.json")));
}

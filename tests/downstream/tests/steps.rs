//! Conversions of a user: recipes of the library's steps, and a step of the user's own, whose receipt verifies.

use std::path::{Path, PathBuf};

use blob_convert::recipe::Recipe;
use blob_convert::transform::{
    Compute, Context, Inputs, Made, Misfit, Outcome, Registry, Spec, Stream, Transform, computed, ready,
};
use blob_convert::verify::{By, Remark, against, against_by};
use blob_convert::{Silent, Step};
use blob_core::{DType, Shape};
use blob_io::layout::TensorSpec;
use blob_io::{Checkpoint, Error};
use serde_json::{Value, json};

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data").join(path)
}

#[test]
fn fold_and_names_of_pytorch_are_one_conversion() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.safetensors");
    let recipe = Recipe::new(data("caffe/forward/resnet.caffemodel"), &path);
    let recipe = recipe.step(Step::fold()).step(Step::torch_names());
    let files = recipe.open().unwrap();
    let plan = recipe.plan(&files).unwrap();
    assert_eq!(plan.fold().unwrap().count(), 3);
    plan.run(&Silent).unwrap();
    let written = Checkpoint::open(&path).unwrap();
    let mut names: Vec<&str> = written.names().collect();
    names.sort_unstable();
    let modules =
        ["conv1", "res_branch2a", "res_branch2b"].map(|module| [format!("{module}.bias"), format!("{module}.weight")]);
    assert_eq!(names, modules.concat());
    let compared = against(&written, &files.sources[0], &Silent, &mut |_| {}).unwrap();
    assert_eq!((compared.equal, compared.redone), (6, 3));
}

/// Multiplies all floats.
#[derive(Debug)]
struct Scale(f64);

impl Scale {
    fn read(settings: &Value) -> Option<Self> {
        settings["by"].as_f64().map(Self)
    }
}

impl Transform for Scale {
    fn name(&self) -> &'static str {
        "scale"
    }

    fn settings(&self) -> Value {
        json!({ "by": self.0 })
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            let tensor = spec.tensor.clone();
            Made::computed(tensor, vec![place], Times(self.0)).with_change(format!("times {}", self.0))
        });
        Ok(made.collect::<Outcome>().with_notice("all floats are scaled"))
    }

    fn only_once(&self) -> Option<String> {
        Some(format!("scaled by {}", self.0))
    }
}

#[derive(Debug)]
struct Times(f64);

impl Compute for Times {
    fn open<'a>(&'a self, inputs: Inputs<'a>) -> Result<Box<dyn Stream + 'a>, Error> {
        let values: Vec<f64> = inputs.floats(0)?.iter().map(|value| value * self.0).collect();
        Ok(ready(inputs.rounded(&values)))
    }
}

#[test]
fn a_computation_is_tested_on_its_own() {
    let spec = TensorSpec::new("x", DType::F16, Shape::new([2]).unwrap());
    // 1 and 32768 as halves: twice the second one is no half.
    let (values, found) = computed(&Times(2.0), &spec, &[(spec.clone(), vec![0x00, 0x3C, 0x00, 0x78])]).unwrap();
    assert_eq!(values, [0x00, 0x40, 0x00, 0x7C]);
    assert_eq!(found[0].to_string(), "\"x\": 1 value became infinite as f16");
}

#[test]
fn a_step_of_ones_own_is_planned_without_a_file_being_written() {
    let source = Checkpoint::open(data("other/two.safetensors")).unwrap();
    let entry = source.entry("w").unwrap();
    let spec = Spec::new(TensorSpec::new("w", entry.dtype().unwrap(), entry.shape().clone()), entry);
    let outcome = Scale(2.0).plan(&[spec], &Context::new(&source, None)).unwrap();
    assert_eq!(outcome.made[0].changes, ["times 2"]);
}

#[test]
fn the_receipt_of_a_step_of_ones_own_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::default().with("scale", Scale::read);
    let source = Checkpoint::open(data("caffe/net/v1.caffemodel")).unwrap();
    let path = folder.path().join("twice.safetensors");
    let text = Recipe::new("", &path).step(Scale(2.0)).to_json().unwrap();
    let recipe = Recipe::read("twice.json", &text).unwrap();
    recipe.plan_of(&[&source], None, &registry).unwrap().run(&Silent).unwrap();
    let twice = Checkpoint::open(&path).unwrap();
    let by = By { registry: registry.clone(), ..By::default() };
    let mut said = Vec::new();
    let compared = against_by(&twice, &source, &by, &Silent, &mut |remark| said.push(remark)).unwrap();
    assert_eq!((compared.equal as usize, compared.redone), (source.entries().len(), 1));
    assert!(matches!(&said[..], [Remark::Redone(step)] if step.transform == "scale"), "{said:?}");
    // Without the registry nobody knows the step, and a second time is refused.
    let mut found = Vec::new();
    against(&twice, &source, &Silent, &mut |remark| found.push(remark)).unwrap();
    assert!(
        matches!(&found[..], [Remark::Finding(finding)] if finding.message.contains("\"scale\" of the receipt is not known")),
        "{found:?}"
    );
    let again = Recipe::new("", folder.path().join("again.npz")).step(Scale(3.0));
    let refused = again.plan_of(&[&twice], None, &registry).unwrap_err().to_string();
    assert!(refused.contains("its receipt says that it was scaled by 2"), "{refused}");
}

//! Steps of a conversion on small files and nets, as rows of text: the changes, the words, the losses or the refusal of
//! each. The head of `cases/steps.txt` says how a row is read.

use std::fmt::Write;
use std::sync::Arc;

use blob_convert::transform::{
    BatchNorm, Bound, Dtype, Eps, FcFrom, FixGamma, Fold, Layout, Names, Rgb, Selection, SqueezeLegacy, Topology,
    TorchLayout,
};
use blob_convert::{LeftOut, Options, Place, Silent, plan};
use blob_core::DType;
use blob_io::{Checkpoint, Format, IfExists};

use crate::support::floats::{file, values};
use crate::support::{Folder, compare_cases, data, open};

/// The source of a row, and the net that the layers make, if there are any.
fn read(row: &str) -> (Checkpoint, Option<Arc<Topology>>) {
    let (mut text, mut tensors) = (String::new(), Vec::new());
    for item in row.split("; ") {
        if let Some((name, rest)) = item.split_once('[') {
            let (dims, rest) = rest.split_once(']').expect("extents");
            let dims: Vec<usize> = dims.split_terminator(',').map(|n| n.parse().expect("an extent")).collect();
            let count = dims.iter().product();
            let given: Vec<f32> = rest.split_whitespace().map(|value| value.parse().expect("a number")).collect();
            let values = if given.is_empty() { (0..count).map(|i| i as f32).collect() } else { given };
            tensors.push((name, dims, values));
        } else if item.starts_with("input: ") {
            text = item.to_owned() + "\n";
        } else if let [name, kind, bottom, top, ref more @ ..] = *item.splitn(5, ' ').collect::<Vec<_>>() {
            let wires = [("bottom", bottom), ("top", top)].into_iter().filter(|(_, of)| *of != "-");
            let wires: String = wires.map(|(side, of)| format!("{side}: {of:?} ")).collect();
            let _ = writeln!(text, "layer {{ name: {name:?} type: {kind:?} {wires} {} }}", more.concat());
        } else {
            return (open(item, &std::fs::read(data(item)).expect("readable")).expect("opens"), None);
        }
    }
    let tensors: Vec<_> = tensors.iter().map(|(name, dims, values)| (*name, &**dims, &**values)).collect();
    let is_mxnet = tensors.iter().any(|(name, ..)| name.starts_with("arg:"));
    let format = if is_mxnet { Format::MxnetList } else { Format::Npz };
    (
        file(format, &tensors),
        (!text.is_empty())
            .then(|| Arc::new(Topology::prototxt("net.prototxt", text.as_bytes()).unwrap_or_else(|e| panic!("{e}")))),
    )
}

/// The options of a conversion; `said` gets the words of a fold before it.
fn options(words: &str, source: &Checkpoint, net: Option<&Arc<Topology>>, said: &mut String) -> Options {
    let bound = net.map(|net| Bound::new(net.net(), source));
    let wired = || bound.as_ref().expect("a net");
    let followed = Options::new(Format::Safetensors);
    let mut options = net.map_or(followed.clone(), |net| followed.follow(Arc::clone(net)));
    for word in words.split(' ') {
        let (step, setting) = word.split_once('=').unwrap_or((word, ""));
        options = match step {
            "only" => options.transform(Selection::matching(setting.split('+'))),
            "bn" => options.transform(BatchNorm::of(wired())),
            "eps" => options.transform(Eps::of(wired(), setting.parse().expect("a number"))),
            "fix-gamma" => options.transform(FixGamma::of(bound.as_ref(), source)),
            "fold" => {
                let (fold, refused) = Fold::of(wired());
                let _ = writeln!(said, "{} folded, {} of them without statistics", fold.count(), fold.scales());
                *said += &refused.iter().map(|refusal| format!("{refusal}\n")).collect::<String>();
                options.transform(fold)
            }
            "rgb" => options.transform(Rgb),
            "fc" => options.transform(setting.split('+').map(products).reduce(FcFrom::and).expect("one")),
            "oihw" => options.transform(Layout::Oihw),
            "hwio" => options.transform(Layout::Hwio),
            "squeeze" => options.transform(SqueezeLegacy),
            "torch" => options.transform(Names::torch(bound.as_ref(), source)),
            "torch-layout" => options.transform(TorchLayout::of(wired())),
            "names" => {
                let lines = setting.replace(':', " ").replace(',', "\n");
                options.transform(Names::from_file(&lines, source.names()).expect("a map"))
            }
            "npz" => options.with(|options| options.to = Format::Npz),
            "strict" => options.with(|options| options.strict = true),
            dtype => options.transform(Dtype::new(dtype.parse::<DType>().expect("a step")).expect("of floats")),
        };
    }
    options
}

/// The inner products of `2,3,4`, or of one layer, `LAYER:2,3,4`.
fn products(text: &str) -> FcFrom {
    let (layer, extents) = text.split_once(':').unwrap_or(("", text));
    let extents: Vec<usize> = extents.split(',').map(|n| n.parse().expect("an extent")).collect();
    let from = FcFrom::new(extents[0], extents[1], extents[2]).expect("extents");
    if layer.is_empty() { from } else { from.layer(layer) }
}

/// The lines of one conversion, and the file written, if there is one.
fn converted(source: &Checkpoint, options: &Options, said: &mut String) -> Option<Checkpoint> {
    let folder = Folder::new();
    let path = folder.path().join("out.safetensors");
    let target = Place::File { path: &path, if_exists: IfExists::Refuse };
    let done = plan(source, options, &target).and_then(|plan| {
        let mark = |is_loss| if is_loss { "lost: " } else { "" };
        for group in plan.changes().iter().filter(|group| group.change.effect.name() != "left-out") {
            let _ = writeln!(said, "{}{group}", mark(group.change.is_loss()));
        }
        for LeftOut { name, reason, is_asked, .. } in plan.left_out() {
            let _ = writeln!(said, "{}{name} is left out: {reason}", mark(!is_asked));
        }
        for found in plan.run(&Silent)?.found {
            let _ = writeln!(said, "found: {found}");
        }
        Ok(plan)
    });
    match done {
        Err(refused) => {
            let _ = writeln!(said, "{refused}");
            assert!(!path.exists());
            None
        }
        Ok(plan) => {
            let out = open("out.safetensors", &std::fs::read(&path).expect("readable")).expect("opens");
            for tensor in plan.tensors() {
                let dims: Vec<String> = tensor.spec.shape.dims().iter().map(usize::to_string).collect();
                let _ = write!(said, "{}[{}]", tensor.spec.name, dims.join(","));
                if tensor.spec.shape.count() <= 8 && tensor.spec.dtype == DType::F32 {
                    let values = values(&out, &tensor.spec.name);
                    *said += &values.iter().map(|value| format!(" {value}")).collect::<String>();
                }
                *said += if tensor.changes.is_empty() { "\n" } else { " *\n" };
            }
            Some(out)
        }
    }
}

#[test]
fn small_files_are_changed_as_asked_for() {
    compare_cases("cases/steps.txt", |row| {
        let (file, conversions) = row.split_once(" | ").expect("steps");
        let mut said = String::new();
        for chain in conversions.split(" / ") {
            let (mut source, net) = read(file);
            let from = said.len();
            for words in chain.split(" | ") {
                said.truncate(from);
                let options = options(words, &source, net.as_ref(), &mut said);
                match converted(&source, &options, &mut said) {
                    Some(out) => source = out,
                    None => break,
                }
            }
        }
        said
    });
}

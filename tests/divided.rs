//! One conversion to several files: each is proved by a receipt of its own, whatever steps made the tensors, and the
//! facts about the source are found once.

use std::fs;
use std::sync::Arc;

use blob_convert::recipe::{Divide, NetFile};
use blob_convert::transform::{Dtype, Permute, Registry, Split, Topology};
use blob_convert::verify::{self, Remark};
use blob_convert::{Recipe, Silent, Step};
use blob_core::DType;
use blob_io::{Checkpoint, Format, IfExists, Limits, OpenOptions, work};
use serde_json::{Value, json};
use zip::CompressionMethod;

use crate::channels_last::{DATA, params, symbol_text};
use crate::support::Folder;
use crate::support::archive::{npy, safetensors, theirs};
use crate::support::floats::values;
use crate::support::random::Random;
use crate::support::receipt::receipt;

/// The recipe of several safetensors files called after `{}` in the folder.
fn divided(folder: &Folder, divide: Divide) -> Recipe {
    let mut recipe = Recipe::new("", folder.file("part-{}.safetensors"));
    (recipe.target.divide, recipe.target.format) = (Some(divide), Some(Format::Safetensors));
    recipe
}

/// Writes the files, and returns them in the order of the names.
fn written(recipe: &Recipe, source: &Checkpoint, folder: &Folder) -> Vec<Checkpoint> {
    recipe.plan_several(source, &Registry::default()).expect("plans").run(&Silent).expect("runs");
    let mut paths: Vec<_> =
        fs::read_dir(folder.path()).expect("listed").map(|file| file.expect("a file").path()).collect();
    paths.retain(|path| path.to_string_lossy().contains("part-"));
    paths.sort();
    paths.iter().map(|path| Checkpoint::open(path).expect("opens")).collect()
}

/// The findings of a comparison with the source, and the equal tensors.
fn proved(file: &Checkpoint, source: &Checkpoint, net: Option<&Arc<Topology>>) -> (Vec<String>, u64) {
    let mut found = Vec::new();
    let by = verify::By { net: net.cloned(), ..verify::By::default() };
    let compared = verify::against_by(file, source, &by, &Silent, &mut |remark| {
        if let Remark::Finding(finding) = remark {
            found.push(format!("{} {}", finding.tensor, finding.message));
        }
    });
    (found, compared.expect("compared").equal)
}

/// A symbol of two convolutions, each with a BatchNorm.
fn normed() -> String {
    let (conv, norm) = ("kernel=(1, 1); num_filter=3; no_bias=True", "fix_gamma=False; eps=0.01");
    symbol_text(
        &[
            DATA,
            ("null", "c_weight", "", &[]),
            ("Convolution", "c", conv, &[0, 1]),
            ("null", "n_gamma", "", &[]),
            ("null", "n_beta", "", &[]),
            ("null", "n_moving_mean", "", &[]),
            ("null", "n_moving_var", "", &[]),
            ("BatchNorm", "n", norm, &[2, 3, 4, 5, 6]),
            ("null", "d_weight", "", &[]),
            ("Convolution", "d", conv, &[7, 8]),
            ("null", "m_gamma", "", &[]),
            ("null", "m_beta", "", &[]),
            ("null", "m_moving_mean", "", &[]),
            ("null", "m_moving_var", "", &[]),
            ("BatchNorm", "m", norm, &[9, 10, 11, 12, 13]),
        ],
        &[14],
    )
}

#[test]
fn each_file_of_a_folded_net_is_proved_alone() {
    let folder = Folder::new();
    let symbol = folder.with("net-symbol.json", normed());
    let vectors = ["arg:n_gamma", "arg:n_beta", "aux:n_moving_mean", "arg:m_gamma", "arg:m_beta", "aux:m_moving_mean"];
    let mut tensors: Vec<(&str, &[usize])> = vec![("arg:c_weight", &[3, 3, 1, 1]), ("arg:d_weight", &[3, 3, 1, 1])];
    tensors.extend(vectors.map(|name| (name, &[3][..])));
    let raw = params(&tensors);
    // Variances are no random values.
    let mut steps: Vec<(String, Vec<usize>, Vec<f32>)> = raw
        .entries()
        .iter()
        .map(|entry| (entry.name().to_owned(), entry.shape().dims().to_vec(), values(&raw, entry.name())))
        .collect();
    steps.extend(["aux:n_moving_var", "aux:m_moving_var"].map(|name| (name.to_owned(), vec![3], vec![1.0, 2.0, 0.5])));
    let all: Vec<(&str, &[usize], &[f32])> =
        steps.iter().map(|(name, dims, values)| (&**name, &**dims, &**values)).collect();
    let source = crate::support::floats::file(Format::MxnetList, &all);
    let net = Arc::new(Topology::symbol("net-symbol.json", normed().as_bytes()).expect("reads"));
    let named = |mut recipe: Recipe| {
        recipe.net = Some(NetFile::Symbol(symbol.clone().into()));
        recipe.step(Step::fold()).step(Dtype::new(DType::F16).expect("floats"))
    };
    let whole = {
        let recipe = named(Recipe::new("", folder.file("whole.safetensors")));
        recipe.plan_of(&[&source], None, &Registry::default()).expect("plans").run(&Silent).expect("runs");
        Checkpoint::open(folder.file("whole.safetensors")).expect("opens")
    };
    assert_eq!(whole.entries().len(), 4, "two weights and two biases");
    for divide in [Divide::ByLayer, Divide::MaxSize(24)] {
        let folder = Folder::new();
        let files = written(&named(divided(&folder, divide)), &source, &folder);
        let names: Vec<Vec<&str>> = files.iter().map(|file| file.names().collect()).collect();
        assert_eq!(files.len(), 2, "{divide:?}: a folded layer is no file: {names:?}");
        for file in &files {
            let (found, equal) = proved(file, &source, Some(&net));
            assert_eq!((found, equal), (Vec::new(), file.entries().len() as u64), "{divide:?}: {names:?}");
            for name in file.names() {
                let bytes = |of: &Checkpoint| of.view(of.entry(name).expect("there")).expect("a tensor").to_vec();
                assert_eq!(bytes(file), bytes(&whole), "{name}");
            }
        }
    }
}

#[test]
fn steps_that_name_tensors_are_not_divided_by_layers() {
    let folder = Folder::new();
    let source = params(&[("a_weight", &[2, 3]), ("b_weight", &[2, 3])]);
    let permuted = Permute::new(vec!["a_weight".to_owned()], vec![1, 0]).expect("a permutation");
    let refused = divided(&folder, Divide::ByLayer).step(permuted).plan_several(&source, &Registry::default());
    let refused = refused.map(|_| ()).expect_err("refused").to_string();
    assert!(refused.contains("permute names tensors that one file alone has"), "{refused}");
}

/// The parts of a tensor are called alike, each in a file of its own.
#[test]
fn each_part_tells_its_own_lost_values() {
    let folder = Folder::new();
    let source = crate::support::floats::file(Format::Npz, &[("w", &[4], &[1.0, 1e9, 1e-30, 2.0])]);
    let split = Split::new("w", 0, vec![1, 1, 2], vec!["w".to_owned(); 3]);
    let recipe = divided(&folder, Divide::ByPart).step(split).step(Dtype::new(DType::F16).expect("floats"));
    let files = written(&recipe, &source, &folder);
    let told = |file: &Checkpoint| [&receipt(file)["lost_values"], &receipt(file)["zeroed_values"]].map(Value::as_u64);
    let told: Vec<_> = files.iter().map(told).collect();
    assert_eq!(told, [[Some(0), Some(0)], [Some(1), Some(0)], [Some(0), Some(1)]]);
    files.iter().for_each(|file| assert_eq!(proved(file, &source, None).0, [""; 0]));
}

/// An array and its diff, both deflated: without room for both, the diff is unpacked for each part.
#[test]
fn unpacked_values_are_held_within_one_limit() {
    const LEN: usize = 256 << 10;
    let folder = Folder::new();
    let mut random = Random::new(5);
    let values: Vec<u8> = (0..LEN).map(|_| random.below(256) as u8).collect();
    let array = npy("'|u1'", &format!("({LEN},)"), &values);
    let file = theirs(CompressionMethod::Deflated, &[("w.npy", &array), ("w.diff.npy", &array)]);
    let path = folder.with("w.npz", file);
    let mut recipe = divided(&folder, Divide::ByPart).step(Split::new("w", 0, vec![LEN / 4; 4], Vec::new()));
    recipe.target.if_exists = IfExists::Replace;
    let [narrow, wide] = [LEN + LEN / 2, 2 * LEN].map(|max_alloc: usize| {
        let limits = Limits { max_alloc: max_alloc as u64, ..Limits::default() };
        let source = OpenOptions::new().limits(limits).open(&path).expect("opens");
        let before = source.bytes_read();
        let files = written(&recipe, &source, &folder);
        assert_eq!(*files[3].view(&files[3].entries()[1]).expect("a diff"), values[LEN / 4 * 3..]);
        source.bytes_read() - before
    });
    assert!(narrow > wide + LEN as u64, "{narrow} {wide}");
}

#[test]
fn the_receipt_of_a_source_is_read_once_for_all_files() {
    let source = |layers: usize| {
        let mut header = serde_json::Map::new();
        for layer in 0..layers {
            let place = [layer, layer + 1];
            header.insert(format!("l{layer}.w"), json!({"dtype": "U8", "shape": [1], "data_offsets": place}));
        }
        let origin = json!({"name": "n".repeat(20 * layers), "bytes": 1, "blake3": "0".repeat(64), "format": "npz"});
        let receipt = json!({"schema": "blob.receipt/1", "tool": "x", "source": origin, "history": []}).to_string();
        header.insert("__metadata__".to_owned(), json!({ blob_convert::RECEIPT_KEY: receipt }));
        Checkpoint::from_bytes("x.safetensors", safetensors(&json!(header).to_string(), &vec![1; layers]))
            .expect("opens")
    };
    let folder = Folder::new();
    let recipe = divided(&folder, Divide::ByLayer);
    let work = |layers: usize| {
        let source = source(layers);
        let (plans, work) =
            work::measure(|| recipe.plan_several(&source, &Registry::default()).map(|plans| plans.plans().len()));
        assert_eq!(plans.expect("plans"), layers);
        work.sum()
    };
    let works = [32, 64, 128, 256].map(work);
    assert!(works.windows(2).all(|pair| pair[1] * 10 <= pair[0] * 22), "{works:?}");
}

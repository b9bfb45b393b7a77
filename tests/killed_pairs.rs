//! Two files of one net, replaced by those of another net, by a process that is killed anywhere: both files stay of one
//! net. Every call that changes the disk is broken off in turn in `blob_io`'s own tests; here the tool is killed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use blob_io::Checkpoint;

use crate::support::message::{floats, len, shape, var};
use crate::support::random::Random;
use crate::support::{Folder, blob, command, data, report};

/// A net of one inner product, every value of which is `value`: 1,600 bytes of weights, and a bias of 16.
fn caffe(folder: &Folder, value: f32) -> String {
    let texts = [(1, "fc"), (2, "InnerProduct"), (3, "d"), (4, "fc")];
    let texts = texts.iter().flat_map(|(number, text)| len(*number, text.as_bytes()));
    let blobs: [(&[u64], usize); 2] = [(&[4, 100], 400), (&[4], 4)];
    let blobs = blobs.iter().flat_map(|(dims, count)| len(7, &[floats(&vec![value; *count]), shape(dims)].concat()));
    let settings = len(117, &var(1, 4));
    let layer = [texts.collect(), blobs.collect(), settings].concat();
    folder.with(&format!("{value}.caffemodel"), len(100, &layer))
}

/// The inodes of the files that are there.
fn inodes(files: &[String]) -> Vec<Option<u64>> {
    files.iter().map(|file| fs::metadata(file).ok().map(|meta| meta.ino())).collect()
}

/// The moment at which a process is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    After(Duration),
    /// When one of the files has another name, or is gone.
    Renamed,
}

/// Waits for the moment, and kills. Returns whether the process was killed before its end.
fn kill(mut child: Child, files: &[String], moment: Moment) -> bool {
    let (begun, before) = (Instant::now(), inodes(files));
    while !(match moment {
        Moment::After(time) => begun.elapsed() >= time,
        Moment::Renamed => inodes(files) != before,
    }) && child.try_wait().expect("a child").is_none()
    {
        std::hint::spin_loop();
    }
    child.kill().expect("killed");
    !child.wait().expect("ended").success()
}

/// Writes the files of one net and then, time after time, those of the other, killed at some moment. `of` says of which
/// net the files are, in words that no two nets share.
fn stay_of_one_net(files: &[String], lines: &[Vec<&str>; 2], of: impl Fn() -> String, nets: [&str; 2]) {
    blob(&lines[0]).ok();
    let begun = Instant::now();
    blob(&lines[1]).ok();
    let took = begun.elapsed();
    assert_eq!(of(), nets[1]);
    let (mut random, mut kills, mut found) = (Random::new(5), 0, [0, 0]);
    for round in 0..40 {
        let time = Duration::from_micros(random.below(took.as_micros() as usize + 1) as u64);
        let moment = if round % 2 == 0 { Moment::Renamed } else { Moment::After(time) };
        let to = if of() == nets[0] { 1 } else { 0 };
        let child = command(&lines[to]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the tool runs");
        kills += u32::from(kill(child, files, moment));
        let now = of();
        let net = nets.iter().position(|net| *net == now);
        found[net.unwrap_or_else(|| panic!("{round}, {moment:?}: {now}"))] += 1;
    }
    blob(&lines[0]).ok();
    assert_eq!(of(), nets[0]);
    let home = Path::new(&files[0]).parent().expect("a folder");
    let left = fs::read_dir(home).expect("listed").map(|file| file.expect("listed").file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("blob-tmp")).collect();
    assert!(kills > 8 && left.is_empty(), "{kills} kills, {left:?}");
    report(&format!("kills: {kills} of a pair, then {} with old files and {} with new ones", found[0], found[1]));
}

#[test]
fn a_killed_process_leaves_a_model_with_its_own_values() {
    let folder = Folder::new();
    let (one, other) = (caffe(&folder, 1.0), caffe(&folder, 2.0));
    fs::create_dir(folder.path().join("out")).expect("a folder");
    let out = folder.file("out/x.onnx");
    let line = |source| ["convert", source, "--input", "d=1,100", "--external-data", "--force", "-o", &out].to_vec();
    stay_of_one_net(
        &[out.clone(), format!("{out}.data")],
        &[line(&one), line(&other)],
        || {
            let file = Checkpoint::open(&out).unwrap_or_else(|e| panic!("{e}"));
            let mut values = Vec::new();
            for entry in file.entries() {
                values.extend(file.view(entry).unwrap_or_else(|e| panic!("{e}")).chunks(4).map(<[u8]>::to_vec));
            }
            assert_eq!((values.len(), file.shards().len()), (404, 1));
            values.dedup();
            let values: Vec<f32> =
                values.iter().map(|four| f32::from_le_bytes(four[..].try_into().expect("4"))).collect();
            format!("{values:?}")
        },
        ["[1.0]", "[2.0]"],
    );
}

/// Weights without a symbol are whole, but a symbol is never beside the weights of another net.
#[test]
fn a_killed_process_leaves_weights_with_their_own_symbol() {
    let folder = Folder::new();
    let symbol = fs::read_to_string(data("mxnet/forward/block-symbol.json")).expect("a golden");
    let mut sources = Vec::new();
    // Other weights come of another eps, and another symbol of another activation.
    for (name, eps, activation) in [("one", "0.25", "relu"), ("two", "0.5", "tanh")] {
        fs::create_dir(folder.path().join(name)).expect("a folder");
        let weights = fs::read(data("mxnet/forward/block-0000.params")).expect("a golden");
        sources.push(folder.with(&format!("{name}/net-0000.params"), weights));
        let mut text: serde_json::Value = serde_json::from_str(&symbol).expect("JSON");
        for node in text["nodes"].as_array_mut().expect("nodes") {
            if let Some(own) = node.pointer_mut("/attrs/eps") {
                *own = eps.into();
            }
            if node["op"] == "Activation" {
                node["attrs"]["act_type"] = activation.into();
            }
        }
        folder.with(&format!("{name}/net-symbol.json"), text.to_string());
    }
    fs::create_dir(folder.path().join("out")).expect("a folder");
    let (out, beside) = (folder.file("out/net-0000.params"), folder.file("out/net-symbol.json"));
    let line = |source: usize| ["fold", &*sources[source], "--force", "-o", &out].to_vec();
    let made = |source: usize| {
        blob(&line(source)).ok();
        (fs::read(&out).expect("weights"), fs::read(&beside).expect("a symbol"))
    };
    let (one, two) = (made(0), made(1));
    assert!(one.0 != two.0 && one.1 != two.1, "the nets differ in both files");
    stay_of_one_net(
        &[out.clone(), beside.clone()],
        &[line(0), line(1)],
        || {
            let (weights, symbol) = (fs::read(&out).expect("weights"), fs::read(&beside).ok());
            let is_of =
                |net: &(Vec<u8>, Vec<u8>)| weights == net.0 && symbol.as_ref().is_none_or(|symbol| *symbol == net.1);
            match (is_of(&one), is_of(&two)) {
                (true, false) => "one".to_owned(),
                (false, true) => "two".to_owned(),
                _ => format!("a mix: symbol there {}", symbol.is_some()),
            }
        },
        ["one", "two"],
    );
}

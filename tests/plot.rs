//! `blob plot`: the pixels of the PNG files equal NumPy's; output to a terminal and a pipe; refusals.

use std::fs;

use crate::support::{Folder, archive, blob, by_python, on_terminal, report};

const NET: &str = "caffe/net/f32_v2.caffemodel";

const SCRIPT: &str = include_str!("python/plot.py");

#[test]
fn the_points_are_those_of_numpy() {
    let folder = Folder::new();
    let run = |what: &str| by_python(SCRIPT, &[what, folder.path().to_str().expect("UTF-8")]);
    if run("draw").is_none() {
        return;
    }
    for (array, flags, picture) in [
        ("filters.npy", &["--filters"][..], "filters.png"),
        ("filters.npy", &["--filters", "--bgr"], "bgr.png"),
        ("planes.npy", &["--filters"], "planes.png"),
        ("mean.npy", &["--image", "--bgr"], "mean.png"),
        ("grey.npy", &["--image"], "grey.png"),
        ("signed.npy", &[], "signed.png"),
        ("large.npy", &["--heatmap"], "large.png"),
        ("vector.npy", &[], "vector.png"),
        ("odd.npy", &[], "odd.png"),
    ] {
        let ran = blob(&[&["plot", &folder.file(array), "-o", &folder.file(picture)], flags].concat());
        assert_eq!((ran.code, ran.out.as_str()), (Some(0), ""), "{ran:?}");
    }
    assert_eq!(run("check").as_deref(), Some("ok\n"));
    // Caffe's files have blue first.
    let (caffe, rgb) = (folder.file("mean.binaryproto"), folder.file("rgb.png"));
    assert_eq!(blob(&["convert", &folder.file("mean.npy"), "-o", &caffe]).code, Some(0));
    assert_eq!(blob(&["plot", &caffe, "--image", "-o", &rgb]).code, Some(0));
    assert!(fs::read(rgb).expect("readable") == fs::read(folder.file("mean.png")).expect("readable"));
    report("plot: 9 pictures as NumPy draws them");
}

/// 64 values of f32, the last 62 infinite, as open_nsfw's variances in f16.
fn overflowed(folder: &Folder) -> String {
    let values: Vec<u8> = [1.5f32, 2.5].into_iter().chain([f32::INFINITY; 62]).flat_map(f32::to_le_bytes).collect();
    let header = r#"{"w":{"dtype":"F32","shape":[8,1,2,4],"data_offsets":[0,256]}}"#;
    folder.with("w.safetensors", archive::safetensors(header, &values))
}

#[test]
fn each_picture_says_what_is_not_finite() {
    let folder = Folder::new();
    let file = overflowed(&folder);
    for kind in ["--hist", "--heatmap", "--filters"] {
        blob(&["plot", &file, kind]).ok().stdout_has("8×1×2×4 f32, 64 values, 62 Inf, mean 2.000");
        let line = &blob(&["plot", &file, kind, "--json"]).json()[0];
        assert_eq!((&line["nan"], &line["inf"]), (&0.into(), &62.into()), "{kind}: {line}");
        for out in ["x.svg", "x.png"].iter().filter(|out| !(kind == "--hist" && out.ends_with("png"))) {
            let out = folder.file(out);
            blob(&["plot", &file, kind, "-o", &out, "--force"]).ok().stderr_has("; 62 Inf");
            let bytes = fs::read(&out).expect("readable");
            assert!(String::from_utf8_lossy(&bytes).contains("62 Inf"), "{kind} {out}");
        }
    }
    // In a picture without colour they are question marks: two rows of four filters of 2×4, two points a character.
    let drawn = blob(&["plot", &file, "--heatmap"]).ok().out;
    assert!(drawn.matches('?').count() > 50, "{drawn}");
}

#[test]
fn a_shard_is_not_replaced_by_a_picture_of_the_set() {
    let folder = Folder::new();
    let shard = folder.file("a.svg");
    fs::rename(overflowed(&folder), &shard).expect("renamed");
    let index = folder.file("model.safetensors.index.json");
    fs::write(&index, r#"{"metadata":{"total_size":256},"weight_map":{"w":"a.svg"}}"#).expect("written");
    assert_eq!(blob(&["plot", &index, "w"]).code, Some(0), "the set can be drawn");
    blob(&["plot", &index, "w", "-o", &shard, "--force"]).refused("this is a.svg, which is read");
}

#[test]
fn a_plot_keeps_to_the_width_of_a_terminal() {
    let Some(narrow) = on_terminal(60, &format!("plot {NET} ip/0 --heatmap"), &[("NO_COLOR", "1")]) else {
        return report("NOT TESTED: plots on a terminal (no `script`)");
    };
    assert!(narrow.lines().all(|line| line.chars().count() <= 60) && !narrow.contains('\x1b'), "{narrow}");
}

#[test]
fn an_empty_tensor_is_drawn_or_refused() {
    let folder = Folder::new();
    // Empty tensors have nothing to draw, and must not cause a division by zero.
    for shape in ["[0]", "[0,3]", "[3,0]", "[2,0,3,3]", "[2,3,0,3]", "[1099511627776,1099511627776,0,1]", "[]"] {
        let data = if shape == "[]" { 1 } else { 0 };
        let header = format!(r#"{{"w":{{"dtype":"U8","shape":{shape},"data_offsets":[0,{data}]}}}}"#);
        let bytes = archive::safetensors(&header, &[7][..data]);
        let file = folder.file("empty.safetensors");
        fs::write(&file, bytes).expect("written");
        for kind in ["--hist", "--heatmap", "--filters", "--image"] {
            let ran = blob(&["plot", &file, kind]);
            assert!(matches!(ran.code, Some(0 | 2)), "{shape} {kind}: {ran:?}");
            let out = folder.file(if kind == "--hist" { "e.svg" } else { "e.png" });
            let ran = blob(&["plot", &file, kind, "-o", &out, "--force"]);
            assert!(matches!(ran.code, Some(0 | 2)), "{shape} {kind}: {ran:?}");
        }
    }
}

//! `blob report`: the content of the page, its size, and that it has no markup from a file and no external links.

use std::fs;

use crate::support::archive::named;
use crate::support::{Folder, blob};

const NET: &str = "caffe/net/f32_v2_diff.caffemodel";

/// Asserts that a page loads nothing and contains no script.
fn is_closed(page: &str) {
    let (head, body) = page.split_once("<body>").expect("a head and a body");
    // Text has its `<` and `"` escaped, so the tags are the page's own.
    let tags: Vec<&str> = body.split('<').skip(1).filter_map(|rest| rest.split('>').next()).collect();
    for word in ["script", "img", "link", "iframe", "src", "href", "url(", "@import", "on"] {
        assert!(!tags.iter().any(|tag| tag.split([' ', '=']).any(|part| part == word)), "{word} in the body");
        assert!(
            word == "on" || !head.replace("default-src", "").replace("style-src", "").contains(word),
            "{word} in the head"
        );
    }
    let known = ["h1", "h2", "p", "table", "tr", "th", "td", "ul", "li", "div", "svg", "path", "body", "html"];
    let name = |tag: &str| tag.trim_start_matches('/').split([' ', '\n']).next().unwrap_or_default().to_owned();
    assert!(
        tags.iter().all(|tag| known.contains(&&*name(tag))),
        "{:?}",
        tags.iter().find(|t| !known.contains(&&*name(t)))
    );
    assert!(page.contains("default-src 'none'; style-src 'unsafe-inline'\""));
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
}

#[test]
fn a_page_tells_what_the_commands_tell() {
    let folder = Folder::new();
    let (copy, out) = (folder.file("copy.safetensors"), folder.file("x.html"));
    assert_eq!(blob(&["convert", NET, "-o", &copy]).code, Some(0));
    let ran = blob(&["report", &copy, NET, "-o", &out, "--json"]);
    let line = &ran.json()[0];
    assert_eq!((ran.code, line["tensors"].as_u64(), line["differ"].as_u64()), (Some(0), Some(24), Some(0)), "{ran:?}");
    let page = fs::read_to_string(&out).expect("readable");
    is_closed(&page);
    for words in ["conv1/0.diff", "converted from</th><td>f32_v2_diff.caffemodel", "24 equal", "4×3×3×3"] {
        assert!(page.contains(words), "{words}");
    }
    let stats = blob(&["stats", &copy, "conv1/0", "--json"]);
    let stats = &stats.json()[0]["tensors"][0];
    let min = stats["min"].as_f64().expect("a number");
    let row = page.lines().find(|line| line.contains(">conv1/0<")).expect("a row");
    assert!(row.contains(&format!(">{min:.3}<")) && row.contains("<svg "), "{row}");
    // The same input gives the same bytes, on standard output too.
    assert_eq!(blob(&["report", &copy, NET, "-o", "-"]).out, page);
    blob(&["report", &copy, "-o", &out]).refused("--force replaces it");
    assert_eq!(blob(&["report", &copy, "-o", &copy, "--force"]).code, Some(2), "its own source");
    let changed = blob(&["report", NET, "caffe/net/v1.caffemodel", "-o", &out, "--force", "--json"]);
    let page = fs::read_to_string(&out).expect("readable");
    assert!(changed.json()[0]["differ"].as_u64() > Some(0) && page.contains(">removed<"), "{changed:?}");
}

#[test]
fn a_page_tells_what_conversions_did() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (first, second) = (path("first.safetensors"), path("second.npz"));
    assert_eq!(blob(&["convert", NET, "--strip-diff", "--layout", "hwio", "-o", &first]).code, Some(0));
    assert_eq!(blob(&["convert", &first, "--dtype", "f16", "-o", &second]).code, Some(0));
    let page = blob(&["report", &first, "-o", "-"]).out;
    is_closed(&page);
    for row in [
        "<td class=\"n\">1</td><td class=\"\">strip-diff</td><td class=\"name\"></td>",
        "<td class=\"n\">2</td><td class=\"\">layout</td><td class=\"name\">{&quot;to&quot;:&quot;hwio&quot;}</td>",
        "<tr><th>left out</th><td>12 tensors</td></tr>",
        "<tr><th>lost by rounding</th><td>0 values</td></tr>",
    ] {
        assert!(page.contains(row), "{row}: {page}");
    }
    // The changes and the numbers of tensors are those in the receipt.
    let file = blob_io::Checkpoint::open(&first).expect("opens");
    let changes = crate::support::receipt::receipt(&file)["changes"].clone();
    let changed: Vec<&str> = changes.as_array().expect("a list").iter().filter_map(|c| c["name"].as_str()).collect();
    assert!(changed.len() > 1);
    let row = format!("</td><td class=\"n\">{}</td><td class=\"name\">{}", changed.len(), changed[..2].join(", "));
    assert!(page.contains(&row), "{row}: {page}");
    let page = blob(&["report", &second, "-o", "-"]).out;
    is_closed(&page);
    for words in [
        "<h2>History</h2>",
        ">f32_v2_diff.caffemodel<",
        "strip-diff, layout {&quot;to&quot;:&quot;hwio&quot;}",
        ">dtype<",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    // A receipt can have any content.
    let bytes = fs::read(&first).expect("readable");
    let mut receipt = crate::support::receipt::receipt(&file);
    receipt["transforms"] = serde_json::json!([{"name": "<script>", "settings": {"x": "<img src=x>"}}]);
    receipt["changes"] = serde_json::json!([{"name": "<b>", "changes": ["<i>"]}]);
    fs::write(&first, crate::support::receipt::with_receipt(&bytes, &receipt, "", None)).expect("written");
    let page = blob(&["report", &first, "-o", "-"]).out;
    is_closed(&page);
    assert!(page.contains("&lt;script&gt;") && page.contains("&lt;i&gt;"), "{page}");
}

#[test]
fn what_is_wrong_with_the_values_is_told() {
    blob(&["report", "caffe/blobproto/f32_special.binaryproto", "-o", "-"])
        .ok()
        .stdout_has("<li>@0: 1 NaN, 2 Inf</li>");
    let broken = blob(&["report", "other/broken-deflate.npz", "-o", "-"]);
    assert_eq!(broken.code, Some(2), "{broken:?}");
    assert!(broken.out.contains("cannot be read") && broken.out.ends_with("</html>\n"), "{broken:?}");
    assert!(broken.err.contains("array \"b\""), "{broken:?}");
    for file in ["other/st_fp8.safetensors", "mxnet/golden/mxnet-1.9.1/many_1000.nd", "other/mxnet2_row_sparse.npz"] {
        let ran = blob(&["report", file, "-o", "-"]).ok();
        is_closed(&ran.out);
        let listed = blob(&["ls", file]).out.lines().count();
        assert_eq!(ran.out.matches("<td class=\"name\">").count(), listed, "{file}");
    }
    assert_eq!(blob(&["report", "caffe/net/truncated.caffemodel", "-o", "-"]).code, Some(2));
    assert_eq!(blob(&["report", NET, "no/such.npz", "-o", "-"]).code, Some(2));
    assert_eq!(blob(&["report", NET, "-o", "-", "--json"]).code, Some(2));
}

#[test]
fn hostile_names_stay_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.safetensors");
    let names = [
        "</td><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "\"><svg onload=alert(1)>",
        "&lt;b&gt;",
        "a\u{202e}b\u{0}",
        "' onclick='x",
        &"n".repeat(60_000),
    ];
    named(&path, &names.map(str::to_owned));
    let out = blob(&["report", path.to_str().expect("UTF-8"), "-o", "-"]).out;
    is_closed(&out);
    assert!(out.contains("&lt;img src=x onerror=alert(1)&gt;") && out.contains("&amp;lt;b&amp;gt;"), "{out}");
    assert!(out.contains("a\\u{202e}b\\0") && out.len() < 20_000, "{}", out.len());
}

/// A page of 60,000 tensors has the rows of 4,096; all are measured, in bounded memory.
#[test]
fn a_page_stays_small() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.safetensors");
    named(&path, &(0..60_000).map(|i| format!("layer{i}/weight")).collect::<Vec<_>>());
    let (path, out) = (path.to_str().expect("UTF-8"), folder.path().join("x.html"));
    let ran = blob(&["report", path, "-o", out.to_str().expect("UTF-8"), "--json"]);
    assert_eq!(ran.json()[0]["shown"], 4096, "{ran:?}");
    let page = fs::read_to_string(&out).expect("readable");
    assert!(page.contains("55,904 more tensors in the file") && page.len() < 4 << 20, "{}", page.len());
}

//! `blob report`: the content of the page, the size, and that there is no markup from a file and no external links.

use std::fs;

use crate::support::archive::named;
use crate::support::{Folder, blob};

const NET: &str = "caffe/net/f32_v2_diff.caffemodel";

/// Asserts that a page loads nothing and contains no script.
fn is_closed(page: &str) {
    let (head, body) = page.split_once("<body>").expect("a head and a body");
    // In text `<` and `"` are escaped, so the tags are the page's own.
    let tags: Vec<&str> = body.split('<').skip(1).filter_map(|rest| rest.split('>').next()).collect();
    // Links stay within the page.
    assert!(tags.iter().filter(|tag| tag.contains("href")).all(|tag| tag.starts_with("a href=\"#")), "{tags:?}");
    for word in ["script", "img", "link", "iframe", "src", "url(", "@import", "on"] {
        assert!(!tags.iter().any(|tag| tag.split([' ', '=']).any(|part| part == word)), "{word} in the body");
        assert!(
            word == "on" || !head.replace("default-src", "").replace("style-src", "").contains(word),
            "{word} in the head"
        );
    }
    let known = [
        "a", "span", "thead", "tbody", "h1", "h2", "p", "table", "tr", "th", "td", "ul", "li", "div", "svg", "path",
        "body", "html",
    ];
    let name = |tag: &str| tag.trim_start_matches('/').split([' ', '\n']).next().unwrap_or_default().to_owned();
    assert!(
        tags.iter().all(|tag| known.contains(&&*name(tag))),
        "{:?}",
        tags.iter().find(|t| !known.contains(&&*name(t)))
    );
    assert!(page.contains("default-src 'none'; style-src 'unsafe-inline'\""));
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
}

/// `1,724`
fn thousands(n: u64) -> String {
    if n < 1000 { n.to_string() } else { format!("{},{:03}", thousands(n / 1000), n % 1000) }
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
    // The answer comes first, each of its links leads somewhere, and each header names its column.
    let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("no {words}"));
    assert!(at("no NaN, no Inf in 1,008 values") < at("equal to ") && at("equal to ") < at("<table"), "{page}");
    for link in page.split("href=\"#").skip(1).map(|rest| rest.split('"').next().expect("an end")) {
        assert!(page.contains(&format!(" id=\"{link}\"")), "{link}");
    }
    assert!(page.split("<th").skip(1).all(|rest| rest.starts_with(" scope=\"") || rest.starts_with("ead>")), "{page}");
    assert_eq!(page.matches("<svg ").count(), page.matches("role=\"img\" aria-label=\"values from ").count());
    // Exact sizes, the layers' types, and the file's digest, as other commands tell them.
    let length = fs::metadata(&copy).expect("there").len();
    assert!(page.contains(&format!("({} bytes)", thousands(length))), "{length}");
    assert!(page.contains(blob(&["hash", &copy]).out.split(' ').next().expect("a digest")));
    let source = blob(&["report", NET, "-o", "-"]).out;
    assert!(source.contains(">Convolution<") && source.contains(">432<"), "{source}");
    // The same input gives the same bytes, on standard output too.
    assert_eq!(blob(&["report", &copy, NET, "-o", "-"]).out, page);
    blob(&["report", &copy, "-o", &out]).refused("--force replaces it");
    blob(&["report", &copy, "-o", &folder.file("x.pdf")]).refused("a report is an HTML page");
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
        "<td class=\"n\">2</td><td class=\"\">layout</td><td class=\"name\">{&quot;matrices&quot;:true,&quot;net&quot;:{",
        "&quot;to&quot;:&quot;hwio&quot;}</td></tr>",
        "<th scope=\"row\">left out</th><td>12 tensors</td></tr>",
        "<th scope=\"row\">lost by rounding</th><td>0 values</td></tr>",
    ] {
        assert!(page.contains(row), "{row}: {page}");
    }
    // The changes and the numbers of tensors are those in the receipt.
    let file = blob_io::Checkpoint::open(&first).expect("opens");
    let changes = crate::support::receipt::receipt(&file)["changes"].clone();
    let changes = changes.as_array().expect("a list");
    // Those that were changed as the first was: a dense layer is changed in another way.
    let alike = changes.iter().filter(|change| change["changes"] == changes[0]["changes"]);
    let changed: Vec<&str> = alike.filter_map(|change| change["name"].as_str()).collect();
    assert!(changed.len() > 1);
    let row = format!("</td><td class=\"n\">{}</td><td class=\"name\">{}", changed.len(), changed[..2].join(", "));
    assert!(page.contains(&row), "{row}: {page}");
    let page = blob(&["report", &second, "-o", "-"]).out;
    is_closed(&page);
    for words in
        [">History</h2>", ">f32_v2_diff.caffemodel<", "strip-diff, layout {&quot;matrices&quot;:true", ">dtype<"]
    {
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
        .stdout_has("<a href=\"#not-finite\">1 of 1 tensor with NaN or Inf</a>: 1 NaN, 2 Inf among 12 values")
        .stdout_has("<td class=\"n bad\">1</td><td class=\"n bad\">2</td><td class=\"n\">12</td>");
    let broken = blob(&["report", "other/broken-deflate.npz", "-o", "-"]);
    assert_eq!(broken.code, Some(2), "{broken:?}");
    assert!(broken.out.contains("cannot be read") && broken.out.ends_with("</html>\n"), "{broken:?}");
    assert!(broken.err.contains("array \"b\"") && broken.out.contains("<a href=\"#broken\">1 array"), "{broken:?}");
    assert!(!broken.err.contains('✔'), "{broken:?}");
    for file in ["other/st_fp8.safetensors", "mxnet/golden/mxnet-1.9.1/many_1000.nd", "other/mxnet2_row_sparse.npz"] {
        let ran = blob(&["report", file, "-o", "-"]).ok();
        is_closed(&ran.out);
        // Without the header.
        let listed = blob(&["ls", file]).out.lines().skip(1).count();
        assert_eq!(ran.out.matches("<tr id=\"t").count(), listed, "{file}");
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

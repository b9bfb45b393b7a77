//! `cargo xtask report-check`: the pages of `blob report` in headless Chromium, light and dark, and at the widths of a
//! phone, a tablet and a desk.
//! A page's own policy forbids every request and script, and the browser's console tells each attempt: so the console
//! stays empty. A copy without the policy shows the geometry: nothing scrolls sideways, no text is over another, rows
//! are cards where there is little room, and the headers of tables stay in sight where there is more.
//! Where there is no browser, that is said. `BLOB_BROWSER` names another one, `BLOB_TOOL` a tool that is built already.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::shell;

const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome"];

/// The names in the second file are chosen to look like others, and like markup.
const REPORTS: &[&[&str]] = &[
    &["tests/data/caffe/net/f32_v2_diff.caffemodel"],
    &["tests/data/other/escape-collision.safetensors", "tests/data/other/zw.safetensors"],
    &["tests/data/mxnet/golden/mxnet-1.9.1/many_1000.nd", "tests/data/caffe/blobproto/f32_special.binaryproto"],
    &["tests/data/caffe/blobproto/f32_special.binaryproto", "{converted}"],
    &["{converted}", "tests/data/caffe/net/v1.caffemodel"],
];

/// Where the file lies that a conversion made: a path longer than a phone is wide, without a space.
const CONVERTED: &str =
    "a-folder-whose-name-is-longer-than-any-line-of-a-page-on-a-phone/converted-from-a-caffemodel.safetensors";

/// The widths in pixels of the windows that a page fits.
const WIDTHS: [u32; 3] = [390, 768, 1280];

/// Runs in a copy of a page, and tells the frame around the page the width and the faults.
const GEOMETRY: &str = include_str!("report_check.js");

/// A page with a line that is too wide and another one over that line, and a table without any style.
const MISFIT: &str = "<!DOCTYPE html><body><div style=\"width: 2000px\">wide</div><p>under</p><p style=\"margin-top: -2em\">over</p>\
    <table class=\"rows\"><thead><tr><th>NAME</th></tr></thead><tbody>{rows}</tbody></table></body>";

/// A row of that table, which has many.
const ROW: &str = "<tr><td class=\"name\">a</td><td>value</td></tr>";

/// A page that asks for a forbidden address: the check must see that.
const CONTROL: &str = "<!DOCTYPE html><meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'\">\
                       <img src=\"http://127.0.0.1:9/x.png\"><script>1</script>";

/// The browser's name for each scheme.
const SCHEMES: [(&str, &str); 2] = [("dark", "0"), ("light", "1")];

/// Makes the pages, opens each twice, and fails where the console has a word.
pub(crate) fn run(_: &[&str]) -> Result<()> {
    let Some(browser) = browser() else {
        println!("report-check: NOT TESTED: no Chromium on the path (apt-get install chromium, or BLOB_BROWSER)");
        return Ok(());
    };
    let tool = shell::tool()?;
    let folder = shell::target_directory()?.join("report-check");
    let control = folder.join("control.html");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(&control, CONTROL)?;
    let (said, _) = opened(&browser, &control, "1", &folder)?;
    ensure!(said.len() == 2, "the console of a page that loads an image and runs a script says {said:?}");
    let misfits = geometry(&browser, &MISFIT.replace("{rows}", &ROW.repeat(100)), &folder)?;
    let tables = ["a row is no card", "a row is no card", "a header scrolls away"];
    let are_told = misfits.iter().zip(tables).all(|(line, table)| {
        line.contains("2000") && line.contains("\"over\" is over \"under\"") && line.contains(table)
    });
    ensure!(misfits.len() == WIDTHS.len() && are_told, "a page that fits nowhere says {misfits:?}");
    let converted = folder.join(CONVERTED);
    std::fs::create_dir_all(converted.parent().context("a file lies in a folder")?)?;
    let blob = || shell::program(&tool);
    let net = "tests/data/caffe/net/f32_v2_diff.caffemodel";
    shell::run(blob().args(["convert", net, "--layout", "hwio", "--force", "-o"]).arg(&converted))?;
    for (i, files) in REPORTS.iter().enumerate() {
        let page = folder.join(format!("{i}.html"));
        let files = files.iter().map(|file| file.replace("{converted}", &converted.display().to_string()));
        shell::run(blob().arg("report").args(files).arg("--force").arg("-o").arg(&page))?;
        let mut pictures = Vec::new();
        for (scheme, setting) in SCHEMES {
            let (said, picture) = opened(&browser, &page, setting, &folder)?;
            ensure!(said.is_empty(), "{}, {scheme}: the console says {said:?}", page.display());
            pictures.push(picture);
        }
        ensure!(pictures[0] != pictures[1], "{} looks the same in dark and light", page.display());
        let found = geometry(&browser, &std::fs::read_to_string(&page)?, &folder)?;
        let fit = WIDTHS.iter().all(|width| found.contains(&format!("{width} fits")));
        ensure!(fit && found.len() == WIDTHS.len(), "{}: {found:#?}", page.display());
    }
    println!(
        "report-check: {} pages in {}, light and dark, nothing on the console; all fits at {WIDTHS:?} pixels",
        REPORTS.len(),
        browser.display()
    );
    Ok(())
}

/// The geometry of a page, a line for each width. The copy that is asked has no policy, because
/// that allows no script. Each width is a frame: a window of a browser has a least width, a frame has none.
fn geometry(browser: &Path, page: &str, folder: &Path) -> Result<Vec<String>> {
    let open = page.replacen("<meta http-equiv=\"Content-Security-Policy\"", "<meta name=\"policy\"", 1);
    let asking = open.replacen("</body>", &format!("<script>{GEOMETRY}</script></body>"), 1);
    std::fs::write(folder.join("asked.html"), asking)?;
    let frames = WIDTHS.map(|width| {
        format!("<iframe src=\"asked.html\" width=\"{width}\" height=\"900\" style=\"border: 0\"></iframe>")
    });
    let frames = frames.concat();
    let listen = "onmessage = (told) => document.getElementById('found').append(told.data + '\\n')";
    let asked = folder.join("frames.html");
    std::fs::write(&asked, format!("<!DOCTYPE html><pre id=\"found\"></pre><script>{listen}</script>{frames}"))?;
    let output = headless(browser, folder)
        .args(["--virtual-time-budget=30000", "--dump-dom"])
        .arg(format!("file://{}", asked.display()))
        .output()
        .with_context(|| format!("cannot start {}", browser.display()))?;
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = dom.split_once("<pre id=\"found\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (found, _) = found.context("the browser does not tell the page's content")?;
    Ok(found.lines().map(str::to_owned).collect())
}

fn headless(browser: &Path, folder: &Path) -> Command {
    let mut command = Command::new(browser);
    // Tests run as root, where Chromium has no sandbox; the page is our own.
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]);
    command.arg(format!("--user-data-dir={}", folder.join("profile").display())).stdin(Stdio::null());
    command
}

/// The first browser that there is.
pub(crate) fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("BLOB_BROWSER").map(PathBuf::from);
    named.or_else(|| {
        BROWSERS.iter().find(|name| Command::new(name).arg("--version").output().is_ok()).map(PathBuf::from)
    })
}

/// The console's lines while a page is shown, and the page's picture.
fn opened(browser: &Path, page: &Path, scheme: &str, folder: &Path) -> Result<(Vec<String>, Vec<u8>)> {
    let picture = folder.join("page.png");
    let _ = std::fs::remove_file(&picture);
    let mut command = headless(browser, folder);
    command.arg(format!("--blink-settings=preferredColorScheme={scheme}"));
    command.arg(format!("--screenshot={}", picture.display())).arg(format!("file://{}", page.display()));
    let output = command.output();
    let output = output.with_context(|| format!("cannot start {}", browser.display()))?;
    ensure!(output.status.success(), "{} ends with {}", browser.display(), output.status);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = text.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect();
    Ok((said, std::fs::read(&picture).context("the browser takes no picture")?))
}

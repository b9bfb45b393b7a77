//! `cargo xtask report-check`: the pages of `blob report` in headless Chromium, light and dark.
//! A page's own policy forbids every request and script, and the browser's console tells each attempt: so the console
//! stays empty. Where there is no browser, that is said. `BLOB_BROWSER` names another one. It is no step of `cargo
//! xtask ci`.

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
];

/// A page that asks for what is forbidden: the check must see that.
const CONTROL: &str = "<!DOCTYPE html><meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'\">\
                       <img src=\"http://127.0.0.1:9/x.png\"><script>1</script>";

/// The browser's name for each scheme.
const SCHEMES: [(&str, &str); 2] = [("dark", "0"), ("light", "1")];

/// Makes the pages, opens each of them twice, and fails where the console has a word.
pub(crate) fn run(_: &[&str]) -> Result<()> {
    let Some(browser) = browser() else {
        println!("report-check: NOT TESTED: no Chromium on the path (apt-get install chromium, or BLOB_BROWSER)");
        return Ok(());
    };
    shell::run(&mut shell::cargo("build -q -p blob-cli"))?;
    let target = shell::target_directory()?;
    let folder = target.join("report-check");
    let control = folder.join("control.html");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(&control, CONTROL)?;
    let (said, _) = opened(&browser, &control, "1", &folder)?;
    ensure!(said.len() == 2, "the console of a page that loads an image and runs a script says {said:?}");
    for (i, files) in REPORTS.iter().enumerate() {
        let page = folder.join(format!("{i}.html"));
        let mut report = shell::program(target.join("debug/blob"));
        shell::run(report.arg("report").args(*files).arg("--force").arg("-o").arg(&page))?;
        let mut pictures = Vec::new();
        for (scheme, setting) in SCHEMES {
            let (said, picture) = opened(&browser, &page, setting, &folder)?;
            ensure!(said.is_empty(), "{}, {scheme}: the console says {said:?}", page.display());
            pictures.push(picture);
        }
        ensure!(pictures[0] != pictures[1], "{} looks the same in dark and light", page.display());
    }
    println!("report-check: {} pages in {}, light and dark, nothing on the console", REPORTS.len(), browser.display());
    Ok(())
}

/// The first browser that there is.
fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("BLOB_BROWSER").map(PathBuf::from);
    let starts = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    named.or_else(|| BROWSERS.iter().find(starts).map(PathBuf::from))
}

/// What the console says while a page is shown, and its picture.
fn opened(browser: &Path, page: &Path, scheme: &str, folder: &Path) -> Result<(Vec<String>, Vec<u8>)> {
    let picture = folder.join("page.png");
    let _ = std::fs::remove_file(&picture);
    let mut command = Command::new(browser);
    // Tests run as root, where Chromium has no sandbox; the page is our own.
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]);
    command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    command.arg(format!("--blink-settings=preferredColorScheme={scheme}"));
    command.arg(format!("--screenshot={}", picture.display())).arg(format!("file://{}", page.display()));
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {}", browser.display()))?;
    ensure!(output.status.success(), "{} ends with {}", browser.display(), output.status);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = text.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect();
    Ok((said, std::fs::read(&picture).context("the browser takes no picture")?))
}

//! `cargo xtask page-check [FILE ...]`: the page in real browsers, driven by WebDriver, against the tool: each golden
//! file is listed as `blob ls --json` does, or refused with its words; each conversion has the bytes of the tool's by
//! the same recipe; nothing is asked for but the page's own files, and the worker can ask for nothing. A browser that
//! is not here is said. `--every N` takes each Nth golden, as `ci` does: all take some minutes. `BLOB_TOOL` names a
//! tool that is built already, `BLOB_PAGE` a folder with the page. `--bars FILE` measures instead.

mod bars;
mod conversions;
mod files;
mod forms;
mod goes_on;
mod hands;
mod memory;
mod places;
mod reports;
mod steps;
mod table;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::serve::Server;
use crate::webdriver::{Browser, KINDS, Session};
use crate::{page, shell, targets};

/// The ways of a worker to another machine. Each must fail, whatever the address.
const REACHES: &[(&str, &str)] = &[
    ("fetch", "await fetch(address)"),
    ("fetch of the page's host", "await fetch(own)"),
    (
        "XMLHttpRequest",
        "await new Promise((ok, no) => { const x = new XMLHttpRequest(); x.onload = ok; x.onerror = () => no(new Error('error')); \
         x.open('GET', own); x.send(); })",
    ),
    (
        "WebSocket",
        "await new Promise((ok, no) => { const w = new WebSocket(address.replace('http', 'ws')); w.onopen = ok; \
         w.onerror = () => no(new Error('error')); })",
    ),
    (
        "EventSource",
        "await new Promise((ok, no) => { const e = new EventSource(own); e.onopen = ok; e.onerror = () => no(new Error('error')); })",
    ),
    ("importScripts", "importScripts(own)"),
    ("import()", "await import(own)"),
];

/// The page's words for a shape past 32 bits, which the module cannot count: the tool goes on, or says another fault.
/// And of values in a file beside a model, which the tool looks for.
const NARROW: &[&str] = &["a shape whose size fits", "of 0 to 2147483647", "or the file that holds them beside it"];

/// The hosts that browsers ask for things of their own, with an empty page too.
const VENDORS: &[&str] =
    &["google.com", "googleapis.com", "gvt1.com", "mozilla.com", "mozilla.org", "mozilla.net", "firefox.com"];

/// The files of the pictures: the second has names that are markup, and is compared with.
const SHOWN: &[&str] =
    &["tests/data/caffe/net/f32_v2_diff.caffemodel", "tests/data/other/escape-collision.safetensors"];

/// The widths of the windows in pixels: a phone, a tablet, a desk.
const WIDTHS: &[u32] = &[390, 768, 1280];

/// Each part of the page, the action there, and the sign of its end.
const TABS: &[(&str, &str, &str)] = &[
    ("summary", "", "document.querySelector('dl dd')"),
    (
        "tensors",
        "setTimeout(() => document.querySelector('.rows .name').click(), 300);",
        "document.querySelector('.detail canvas, .detail .bars svg') && document.querySelector('.values').textContent !== ''",
    ),
    ("verify", "$('verify').click();", "$('verdict').querySelector('.good, .bad')"),
    ("diff", "$('compare').click();", "$('difference').querySelector('table')"),
    ("convert", "", "$('said').querySelector('#changes')"),
];

/// The findings of a check in one browser.
#[derive(Default)]
struct Counts {
    listed: usize,
    refused: usize,
    converted: usize,
    unconverted: usize,
}

pub(crate) fn run(named: &[&str]) -> Result<()> {
    let built = std::env::var_os("BLOB_PAGE").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    if built.is_none()
        && let Err(why) = targets::for_wasm(&mut Command::new("cargo"))
    {
        return said(&format!("NOT TESTED: the page, and the libraries for WebAssembly: no std can be had: {why:#}"));
    }
    let folder = built.map_or_else(page::build, Ok)?;
    if KINDS.iter().all(|kind| !kind.is_here()) {
        return said("NOT TESTED: the page in a browser: neither chromedriver nor geckodriver is on the path");
    }
    let tool = shell::tool()?;
    let measured = named.strip_prefix(&["--bars"]);
    let files = files::files(if measured.is_some() { &[] } else { named })?;
    let server = Server::begin(&folder, 0)?;
    for kind in KINDS {
        let (work, saved, proxy) =
            (shell::target_directory()?.join("page-check"), hands::saves()?, server.address.to_string());
        let start = |is_private| Browser::start(kind, &Session { proxy: &proxy, saved: &saved, is_private });
        let Some(browser) = start(false)? else {
            said(&format!("NOT TESTED: the page in {}: its driver is not on the path", kind.name))?;
            continue;
        };
        let mut check = Check { kind: kind.name, browser, server: &server, tool: &tool, work, saved: saved.clone() };
        if let Some(measured) = measured {
            let [file] = measured else { bail!("--bars takes one file") };
            return bars::bars(&check, &folder, Path::new(file));
        }
        check.begin()?;
        check.worker_reaches_nothing()?;
        goes_on::goes_on(&check)?;
        table::table(&check).context("the table")?;
        reports::streams(&check).context("a tensor by a stream")?;
        hands::hands(&check)?;
        forms::panel(&check).context("the panel of a tensor")?;
        forms::forms(&check)?;
        let mut counts = Counts::default();
        for file in &files {
            check.file(file, &mut counts).with_context(|| format!("{}: {}", kind.name, file.display()))?;
        }
        check.fits(kind.name)?;
        places::places(&check)?;
        check.nothing_was_asked_for()?;
        check.browser = start(true)?.context("the driver has gone")?;
        let private = places::private(&check).context("a private window")?;
        check.nothing_was_asked_for()?;
        let Counts { listed, refused, converted, unconverted } = counts;
        said(&format!(
            "the page in {}: {listed} files listed and {refused} refused, {converted} conversions and {unconverted} \
             refusals of one, as by the tool; a private window has {private}; no request but for the page's own files",
            kind.name
        ))?;
    }
    Ok(())
}

/// Says a line, and tells `cargo xtask ci`.
fn said(line: &str) -> Result<()> {
    println!("page-check: {line}");
    targets::report(line)
}

struct Check<'a> {
    /// The browser's name.
    kind: &'static str,
    browser: Browser,
    server: &'a Server,
    tool: &'a Path,
    work: PathBuf,
    /// The folder of what the browser saves.
    saved: PathBuf,
}

impl Check<'_> {
    fn begin(&self) -> Result<()> {
        self.browser.open(&format!("http://{}/", self.server.address))?;
        self.browser.until("document.body.dataset.ready === 'yes'")
    }

    /// The tool's answer, or its error, in the folder of the file.
    fn tool(&self, file: &Path, arguments: &[&str]) -> Result<Value> {
        let folder = file.parent().context("a file lies in a folder")?;
        let output = Command::new(self.tool).current_dir(folder).arg("--json").args(arguments).output()?;
        let text = String::from_utf8(output.stdout)?;
        serde_json::from_str(text.lines().next().unwrap_or_default()).with_context(|| format!("{arguments:?}: {text}"))
    }

    /// Runs the tool in a folder, and fails where it does.
    fn told(&self, folder: &Path, arguments: &[&str]) -> Result<()> {
        let done = Command::new(self.tool).current_dir(folder).arg("-q").args(arguments).output()?;
        ensure!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    }

    /// Gives the page a file, and waits until it is open or refused.
    fn give(&self, file: &Path) -> Result<()> {
        let before = self.browser.script("return document.body.dataset.opened ?? '0';", &json!([]))?;
        self.browser.choose("#files", &[&file.display().to_string()])?;
        self.browser.until(&format!("(document.body.dataset.opened ?? '0') !== {before}"))
    }

    fn file(&self, source: &Path, counts: &mut Counts) -> Result<()> {
        let name = source.file_name().and_then(|name| name.to_str()).context("a name that is no text")?;
        self.give(source)?;
        // The tool sees as much as the page does: no symbol beside the file.
        let alone = self.work.join("alone");
        let _ = std::fs::remove_dir_all(&alone);
        std::fs::create_dir_all(&alone)?;
        let file = &alone.join(name);
        std::fs::copy(source, file)?;
        let wanted = self.tool(file, &["ls", name])?;
        let last =
            "const f = files.at(-1); return f && f.key === Number(document.body.dataset.opened) ? f.list : null;";
        let found = self.browser.script(last, &json!([]))?;
        if wanted["schema"] == "blob.error/1" || found.is_null() {
            let said = self.browser.script("return $('alerts').firstChild?.textContent ?? null;", &json!([]))?;
            let message = wanted["error"]["message"].as_str().unwrap_or_default();
            let wanted = self.browser.script("return visible(arguments[0]);", &json!([message]))?;
            let is_same = said == wanted || is_narrow(&said);
            ensure!(found.is_null() && is_same, "the page says {said}, the tool {wanted}");
            if !is_narrow(&said) {
                reports::verdict(self, file, name)?;
            }
            counts.refused += 1;
            return Ok(());
        }
        match differ(&wanted, &found) {
            Err(_) if is_narrow(&found) => {
                counts.refused += 1;
                return self.browser.script("remove(files.at(-1));", &json!([])).map(drop);
            }
            done => done?,
        }
        counts.listed += 1;
        self.table(&wanted)?;
        reports::verdict(self, file, name).context("the verdict")?;
        reports::summary(self, file, name).context("the summary")?;
        reports::tensors(self, file, name, &wanted)?;
        let is_empty = wanted["tensors"].as_array().is_none_or(Vec::is_empty);
        conversions::all(self, file, name, is_empty, counts)?;
        self.browser.script("remove(files.at(-1));", &json!([])).map(drop)
    }

    /// The table of the document has the rows.
    fn table(&self, list: &Value) -> Result<()> {
        self.browser.script("show('tensors');", &json!([]))?;
        let rows = list["tensors"].as_array().context("no tensors")?;
        self.browser.until(&format!(
            "document.querySelector('.table')?.getAttribute('aria-rowcount') === '{}'",
            rows.len() + 1
        ))?;
        let seen = self.browser.script(
            "return [...document.querySelectorAll('.rows .name')].map((cell) => cell.textContent);",
            &json!([]),
        )?;
        let seen = seen.as_array().context("no rows")?;
        ensure!(seen.len() >= rows.len().min(3), "{} of {} rows are there", seen.len(), rows.len());
        for (cell, row) in seen.iter().zip(rows) {
            let wanted = self.browser.script("return visible(arguments[0]);", &json!([row["name"]]))?;
            ensure!(*cell == wanted, "the table has {cell}, not {wanted}");
        }
        Ok(())
    }

    /// A worker of the page's kind, with each way to reach another machine. The same script in a worker of a page
    /// without a policy reaches our server, or the check could not fail.
    fn worker_reaches_nothing(&self) -> Result<()> {
        let own = format!("http://{}/icon.svg", self.server.address);
        for (name, code) in REACHES {
            let script = format!(
                "const address = {own:?}; const own = address; (async () => {{ {code}; }})()\
                 .then(() => postMessage('reached'), (e) => postMessage('refused: ' + (e?.message ?? e)));"
            );
            let told = self.browser.awaited(
                "return await new Promise((ok) => { const url = URL.createObjectURL(new Blob([args[0]], { type: 'text/javascript' })); \
                   const w = new Worker(url); w.onmessage = (told) => ok(told.data); w.onerror = (e) => ok('refused: ' + e.message); });",
                &json!([script]),
            )?;
            let is_refused = told.as_str().is_some_and(|told| told.starts_with("refused"));
            ensure!(is_refused, "a worker of the page has {name}: {told}");
        }
        drop(self.browser.console());
        let asked: Vec<String> = self.own_requests(false);
        ensure!(asked.is_empty(), "the worker asked for {asked:?}");
        Ok(())
    }

    /// Each part of the page at each width, light and dark: nothing is wider than the window. The pictures lie in
    /// `target/page-check`.
    fn fits(&self, name: &str) -> Result<()> {
        if name != "Chromium" {
            return Ok(());
        }
        for file in SHOWN {
            self.give(&shell::root().join(file))?;
        }
        for (width, scheme) in WIDTHS.iter().flat_map(|width| ["light", "dark"].map(|scheme| (*width, scheme))) {
            let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
            self.browser.devtools("Emulation.setDeviceMetricsOverride", &size)?;
            let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
            self.browser.devtools("Emulation.setEmulatedMedia", &media)?;
            for (tab, act, done) in TABS {
                self.browser.script(&format!("choose(files[0]); show('{tab}'); {act}"), &json!([]))?;
                self.browser.until(done)?;
                let picture = self.browser.picture()?;
                std::fs::write(self.work.join(format!("{tab}-{width}-{scheme}.png")), page::from_base64(&picture)?)?;
                let wide = "const e = document.documentElement; return e.scrollWidth - e.clientWidth;";
                let over = self.browser.script(wide, &json!([]))?;
                ensure!(over == 0, "{tab} at {width} pixels is {over} too wide");
                let lines = "return new Set([...$('tabs').children].map((one) => one.offsetTop)).size;";
                let lines = self.browser.script(lines, &json!([]))?;
                ensure!(lines == 1, "the tabs stand in {lines} lines at {width} pixels in {tab}");
            }
        }
        Ok(())
    }

    /// The requests for the page's own files, or all others.
    fn own_requests(&self, is_own: bool) -> Vec<String> {
        let own = format!("http://{}/", self.server.address);
        let files: BTreeSet<&str> = ["", "index.html", "sw.js", "manifest.webmanifest", "icon.svg"].into();
        let requests = self.server.requests().into_iter().filter(|request| !is_vendors(request));
        let requests = requests.filter(|request| {
            let target = request.strip_prefix("GET ").unwrap_or_default();
            let path = target.strip_prefix(&own).or_else(|| target.strip_prefix('/'));
            path.is_some_and(|path| files.contains(path)) == is_own
        });
        requests.collect()
    }

    fn nothing_was_asked_for(&self) -> Result<()> {
        // Firefox gives no log. The lines of the worker's own refusals were read before.
        let said = self.browser.console().unwrap_or_default();
        ensure!(said.is_empty(), "the console says {said:#?}");
        let asked = self.own_requests(false);
        ensure!(asked.is_empty(), "the browser asked for {asked:#?}");
        Ok(())
    }
}

/// Whether a request is for a host that a browser asks for things of its own.
fn is_vendors(request: &str) -> bool {
    let host = request.split(' ').nth(1).unwrap_or_default();
    let host = host.split_once("://").map_or(host, |(_, rest)| rest).split(['/', ':']).next().unwrap_or_default();
    VENDORS.iter().any(|vendor| host.ends_with(vendor))
}

/// Whether an answer is one of those that the page's 32 bits make.
fn is_narrow(found: &Value) -> bool {
    NARROW.iter().any(|narrow| found.to_string().contains(narrow))
}

/// Says where two answers differ.
fn differ(wanted: &Value, found: &Value) -> Result<()> {
    let Some(fields) = wanted.as_object() else { bail!("the tool says {wanted}") };
    for (name, value) in fields {
        if found[name] == *value {
            continue;
        }
        if let (Some(ours), Some(theirs)) = (value.as_array(), found[name].as_array()) {
            let first = ours.iter().zip(theirs).find(|(ours, theirs)| ours != theirs);
            bail!(
                "{name}: the tool has {} items, the page {}; the first that differ: {first:?}",
                ours.len(),
                theirs.len()
            );
        }
        bail!("{name}: the tool has {value}, the page {}", found[name]);
    }
    Ok(())
}

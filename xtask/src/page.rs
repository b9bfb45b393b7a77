//! `cargo xtask page [--serve | --elsewhere]`: the page in the browser, built into `target/page`: the module as
//! WebAssembly, packed into the one document with its scripts and styles, so that the document's policy names each
//! script and allows no connection. Twice the same bytes, which `--elsewhere` proves by a copy of the tree in another
//! folder. Where rustup has no std for WebAssembly, the one of `targets` is built.

pub(crate) mod rustc;

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use sha2::{Digest, Sha256};
use zopfli::{Format, Options};

use crate::serve::Server;
use crate::{shell, targets};

const TARGET: &str = "wasm32-unknown-unknown";

/// The kernels use vectors of 128 bits, which browsers have since 2021 (Safari since 2023).
const VECTORS: &str = "-Ctarget-feature=+simd128";

/// The most bytes of the module, packed.
const MOST: usize = 1_500_000;

/// The files beside the document, which are taken unchanged.
const BESIDE: &[&str] = &["manifest.webmanifest", "icon.svg"];

pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let is_known = matches!(arguments, [] | ["--serve" | "--elsewhere"]);
    ensure!(is_known, "page takes --serve or --elsewhere alone, not {arguments:?}");
    let folder = build()?;
    match arguments {
        [] => return Ok(()),
        ["--elsewhere"] => return elsewhere(&folder),
        _ => {}
    }
    let server = Server::begin(&folder, 8000)?;
    println!("page: http://{}/ until you stop this", server.address);
    loop {
        std::thread::park();
    }
}

/// Builds the page; gives the folder.
pub(crate) fn build() -> Result<PathBuf> {
    build_in(&shell::root(), &shell::target_directory()?)
}

/// Builds the page of a copy of the tree in another folder, with nothing built before: that page has the same bytes.
fn elsewhere(folder: &Path) -> Result<()> {
    let (root, other) = (shell::root(), std::env::temp_dir().join(format!("blob-page-{}", std::process::id())));
    let (copy, here) = (other.join("a copy/of it"), contents(folder)?);
    for name in shell::files(&root)? {
        let to = copy.join(&name);
        fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
        fs::copy(root.join(&name), to).with_context(|| name)?;
    }
    let there = contents(&build_in(&copy, &other.join("built"))?)?;
    let differ: Vec<&String> =
        here.keys().chain(there.keys()).filter(|name| here.get(*name) != there.get(*name)).collect();
    ensure!(differ.is_empty(), "{differ:?} have other bytes when the page is built in {}", copy.display());
    println!("page: {} files have the same bytes when they are built in {}", here.len(), copy.display());
    Ok(fs::remove_dir_all(&other)?)
}

/// The files of a folder by name.
fn contents(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let entries = fs::read_dir(folder)?.map(|entry| {
        let entry = entry?;
        Ok((entry.file_name().display().to_string(), fs::read(entry.path())?))
    });
    entries.collect()
}

/// Builds the page of a tree, in a folder for what is built.
fn build_in(root: &Path, target: &Path) -> Result<PathBuf> {
    let work = target.join("page-module");
    let mut cargo = shell::cargo("build -q --release --locked --manifest-path web/Cargo.toml -p blob-web --target");
    cargo.current_dir(root).arg(TARGET).env("CARGO_TARGET_DIR", &work);
    targets::for_wasm(&mut cargo)?;
    rustc::through_us(&mut cargo)?;
    let folders = folders(root, target)?;
    let flags = folders.iter().zip(0..).map(|(folder, i)| format!("--remap-path-prefix={}=/{i}", folder.display()));
    let flags = flags.chain([VECTORS.to_owned()]).collect::<Vec<_>>();
    // One flag holds no space, whatever the folder is called.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    shell::run(&mut cargo)?;
    let mut bindgen = shell::cargo("run -q --locked --manifest-path web/Cargo.toml -p blob-web-bindgen --");
    bindgen.current_dir(root);
    let module = work.join(TARGET).join("release/blob_web.wasm");
    names_no_folder(&fs::read(&module)?, &folders)?;
    shell::run(bindgen.env("CARGO_TARGET_DIR", target.join("page-build")).arg(module).arg(work.join("bound")))?;
    let folder = target.join("page");
    let len = assemble(&root.join("web"), &work.join("bound"), &folder)?;
    println!("page: {}, the module {len} bytes packed", folder.display());
    ensure!(len <= MOST, "the module has {len} bytes packed, and at most {MOST} are allowed");
    Ok(folder)
}

/// The folders of this machine that sources lie in: panics name files, and the page is the same wherever it is built.
/// A folder inside another one comes later, as the last flag that fits counts.
fn folders(root: &Path, target: &Path) -> Result<Vec<PathBuf>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo"))).context("cargo has no home")?;
    let sysroot = shell::read(std::process::Command::new("rustc").args(["--print", "sysroot"]))?;
    // A std that is built lies in our target folder, wherever the page is built.
    let std = shell::target_directory()?.join("debian");
    Ok(vec![home, PathBuf::from(sysroot.trim()), root.to_owned(), target.to_owned(), std])
}

/// A module that names a folder of this machine would be another one elsewhere.
fn names_no_folder(module: &[u8], folders: &[PathBuf]) -> Result<()> {
    for folder in folders {
        let name = folder.as_os_str().as_encoded_bytes();
        let is_named = !name.is_empty() && module.windows(name.len()).any(|bytes| bytes == name);
        ensure!(!is_named, "the module names {}, and would have other bytes elsewhere", folder.display());
    }
    Ok(())
}

/// The length of the packed module in a page that is built.
pub(crate) fn module_len(folder: &Path) -> Result<usize> {
    let document = fs::read_to_string(folder.join("index.html"))?;
    let (_, module) = document.split_once("id=\"module\">").context("the document has no module")?;
    Ok(from_base64(module.split('<').next().unwrap_or_default())?.len())
}

/// Puts the document together; gives the length of the packed module.
fn assemble(web: &Path, bound: &Path, folder: &Path) -> Result<usize> {
    let read = |path: PathBuf| fs::read_to_string(&path).with_context(|| path.display().to_string());
    let own = |name: &str| read(web.join(name));
    let module = packed(&fs::read(bound.join("blob_web_bg.wasm"))?)?;
    let scripts = own("words.js")? + &own("page.js")?;
    let styles = own("page.css")?;
    let worker = own("words.js")? + &read(bound.join("blob_web.js"))? + &own("worker.js")?;
    for text in [&scripts, &styles, &worker] {
        let breaks = ["</script", "<!--", "</style"].into_iter().find(|end| text.to_lowercase().contains(end));
        ensure!(breaks.is_none(), "{breaks:?} would end a part of the document");
    }
    let document = filled(
        &own("index.html")?,
        &[
            ("@SCRIPTS@", &source(&scripts)),
            ("@STYLES@", &source(&styles)),
            ("@page.css@", &styles),
            ("@module@", &BASE64_STANDARD.encode(&module)),
            ("@worker.js@", &worker),
            ("@words.js@@page.js@", &scripts),
        ],
    )?;
    let version: String = Sha256::digest(&document).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    fs::create_dir_all(folder)?;
    fs::write(folder.join("index.html"), document)?;
    fs::write(folder.join("sw.js"), filled(&own("sw.js")?, &[("@VERSION@", &version)])?)?;
    for name in BESIDE {
        fs::write(folder.join(name), own(name)?)?;
    }
    Ok(module.len())
}

/// The text with each mark, which stands there once, replaced.
fn filled(text: &str, marks: &[(&str, &str)]) -> Result<String> {
    let mut parts: Vec<(usize, &str, &str)> = Vec::new();
    for (mark, with) in marks {
        ensure!(text.matches(mark).count() == 1, "{mark} does not stand in the text once");
        parts.push((text.find(mark).context("the mark is gone")?, mark, with));
    }
    parts.sort_unstable();
    let (mut out, mut done) = (String::new(), 0);
    for (at, mark, with) in parts {
        out.push_str(&text[done..at]);
        out.push_str(with);
        done = at + mark.len();
    }
    Ok(out + &text[done..])
}

/// A script or a style as a policy names it.
fn source(text: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(text)))
}

/// Zopfli packs 4 % closer than zlib's best level does; more than one iteration gains nothing to speak of.
fn packed(bytes: &[u8]) -> Result<Vec<u8>> {
    let (mut packed, once) = (Vec::new(), Options { iteration_count: NonZeroU64::MIN, ..Options::default() });
    zopfli::compress(once, Format::Gzip, bytes, &mut packed)?;
    Ok(packed)
}

/// The bytes of a text that a browser gives.
pub(crate) fn from_base64(text: &str) -> Result<Vec<u8>> {
    BASE64_STANDARD.decode(text.trim()).ok().context("not base64")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash that the specification of policies has as its example.
    #[test]
    fn scripts_are_named_as_a_policy_names_them() {
        assert_eq!(source("alert('Hello, world.');"), "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='");
    }

    /// The std's own paths have one name for a page of this tree and for one that is built elsewhere.
    #[test]
    fn the_folder_of_std_is_known_wherever_the_page_is_built() {
        let std = shell::target_directory().unwrap().join("debian");
        for target in [shell::target_directory().unwrap(), PathBuf::from("/elsewhere")] {
            assert_eq!(folders(&shell::root(), &target).unwrap().last(), Some(&std));
        }
    }

    #[test]
    fn a_module_that_names_a_folder_is_refused() {
        let folders = ["/cargo", "/src"].map(PathBuf::from);
        assert!(names_no_folder(b"\0asm /0/registry /1/lib.rs", &folders).is_ok());
        let refusal = names_no_folder(b"\0asm /src/lib.rs", &folders).unwrap_err().to_string();
        assert!(refusal.starts_with("the module names /src,"), "{refusal}");
    }

    #[test]
    fn the_length_of_the_module_is_read_from_the_page() {
        let document =
            format!("<script type=\"text/plain\" id=\"module\">{}</script>", BASE64_STANDARD.encode([7; 1000]));
        let folder = std::env::temp_dir().join(format!("blob-page-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("index.html"), document).unwrap();
        assert_eq!(module_len(&folder).unwrap(), 1000);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// The bars of the page's size, blank lines counted.
    #[test]
    fn the_page_is_small() {
        let lines = |ends: &[&str]| -> usize {
            let files = shell::files(&shell::root()).unwrap();
            let ours =
                files.iter().filter(|name| name.starts_with("web/") && ends.iter().any(|end| name.ends_with(end)));
            ours.map(|name| fs::read_to_string(shell::root().join(name)).unwrap().lines().count()).sum()
        };
        let (rust, page) = (lines(&[".rs"]), lines(&[".js", ".html", ".css"]));
        assert!((1..=1200).contains(&rust) && (1..=1500).contains(&page), "{rust} of Rust, {page} of the page");
    }

    /// Every text for a person stands in `words.js`: elsewhere no literal has two words but classes and keys of CSS.
    #[test]
    fn the_texts_are_in_one_file() {
        for name in ["page.js", "worker.js"] {
            let text = fs::read_to_string(shell::root().join("web").join(name)).unwrap();
            for (line, number) in text.lines().zip(1..) {
                let is_code =
                    !line.trim_start().starts_with("//") && !line.contains("className") && line != "\"use strict\";";
                let literals = line.split('"').skip(1).step_by(2).filter(|_| is_code);
                let is_text = |literal: &&str| literal.split(' ').filter(|word| word.chars().count() > 1).count() > 1;
                let found: Vec<&str> = literals.filter(is_text).collect();
                assert!(found.is_empty(), "{name}:{number}: {found:?}");
            }
        }
    }

    #[test]
    fn a_mark_stands_in_the_text_once() {
        assert_eq!(filled("a@x@b@y@", &[("@y@", "@x@"), ("@x@", "1")]).unwrap(), "a1b@x@");
        assert!(filled("a", &[("@x@", "")]).is_err());
        assert!(filled("@x@@x@", &[("@x@", "")]).is_err());
    }
}

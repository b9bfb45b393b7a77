//! The compiler as cargo calls it for the page, with hashes that know no folder: cargo's own `-C metadata` of a crate
//! outside the workspace of `web` covers the crate's whole path, and the order of functions follows it.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// The variable that makes us the compiler.
const ASKED: &str = "BLOB_PAGE_RUSTC";

/// Lets a build by cargo call us for the compiler.
pub(super) fn through_us(cargo: &mut Command) -> Result<()> {
    cargo.env("RUSTC_WRAPPER", std::env::current_exe()?).env(ASKED, "1");
    Ok(())
}

/// Where cargo called us for the compiler: how that ended.
pub(crate) fn asked() -> Option<Result<ExitCode>> {
    std::env::var_os(ASKED).map(|_| compile(std::env::args_os().skip(1).collect()))
}

fn compile(arguments: Vec<OsString>) -> Result<ExitCode> {
    let package = ["CARGO_PKG_NAME", "CARGO_PKG_VERSION"].map(|name| std::env::var(name).unwrap_or_default());
    let mut words = with_plain_hash(arguments, &package.join(" ")).into_iter();
    let status = Command::new(words.next().context("no compiler is named")?).args(words).status()?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// The arguments with a hash of the package, the crate, the kind and the features in place of cargo's.
fn with_plain_hash(arguments: Vec<OsString>, package: &str) -> Vec<OsString> {
    let texts: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let after =
        |name: &str| texts.windows(2).filter(|two| two[0] == name).map(|two| two[1].to_owned()).collect::<Vec<_>>();
    let mut known =
        [after("--crate-name"), after("--crate-type"), after("--cfg"), after("--target")].map(|mut words| {
            words.sort();
            words.join(",")
        });
    // A target is the name of a file where a workspace has a private one.
    known[3] = (!known[3].is_empty()).to_string();
    let hash = Sha256::digest(format!("{package} {}", known.join(" ")));
    let hash: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let plain = arguments.into_iter().map(|word| match word.to_str() {
        Some(text) if text.starts_with("metadata=") => format!("metadata={hash}").into(),
        _ => word,
    });
    plain.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_has_one_hash_in_all_folders() {
        let hash = |line: &str, package: &str| {
            let words = with_plain_hash(line.split(' ').map(OsString::from).collect(), package);
            let last = words.last().unwrap().to_str().unwrap().to_owned();
            assert_eq!(words.len(), line.split(' ').count());
            assert!(last.starts_with("metadata=") && last.len() == 25, "{last}");
            last
        };
        let line = |name: &str, feature: &str, kind: &str, folder: &str, theirs: &str| {
            format!(
                "rustc --crate-name {name} {folder}/lib.rs --crate-type {kind} --cfg {feature} -C metadata={theirs}"
            )
        };
        let one = hash(&line("a", "x", "lib", "/one", "0123"), "a 1.0.0");
        assert_eq!(one, hash(&line("a", "x", "lib", "/two/three", "4567"), "a 1.0.0"));
        for other in [
            line("b", "x", "lib", "/one", "0123"),
            line("a", "y", "lib", "/one", "0123"),
            line("a", "x", "bin", "/one", "0123"),
        ] {
            assert_ne!(one, hash(&other, "a 1.0.0"), "{other}");
        }
        assert_ne!(one, hash(&line("a", "x", "lib", "/one", "0123"), "a 2.0.0"));
    }
}

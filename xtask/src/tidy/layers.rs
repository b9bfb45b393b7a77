//! Rule 1: dependencies between our packages point one way, whatever their kind: normal, dev or build.
//! The table is the drawing of the architecture page. A new package, or a new edge upwards, is a finding until it stands here.
//! A library has no build script: it would run a foreign program, or look at the machine. The driver for tests has one: it names a file.

use super::{Finding, Tree};

/// Each package, from the bottom up, with those that it may depend on.
pub(crate) const LAYERS: &[(&str, &[&str])] = &[
    ("synced-mem", &[]),
    ("blob-core", &["synced-mem"]),
    ("blob-ops", &["blob-core", "synced-mem"]),
    ("blob-io", &["blob-core", "synced-mem"]),
    ("blob-convert", &["blob-io", "blob-ops", "blob-core", "synced-mem"]),
    ("blob-cli", &["blob-convert", "blob-io", "blob-ops", "blob-core", "synced-mem"]),
    ("xtask", &[]),
    ("fake-cuda", &[]),
    ("blob-tests", &["fake-cuda", "blob-cli", "blob-convert", "blob-io", "blob-ops", "blob-core", "synced-mem"]),
    ("blob-gpu", &["fake-cuda", "blob-ops", "blob-core", "synced-mem"]),
    ("blob-benches", &["blob-cli", "blob-convert", "blob-io", "blob-ops", "blob-core", "synced-mem"]),
];

/// No library of ours: its build script gives it the name under which programs ask for a driver, and does nothing else.
const NAMES_ITSELF: &str = "fake-cuda";

/// Every package is known, depends only on what lies below it, and has no build script.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, manifest) in tree.texts().filter(|(path, _)| is_ours(path)) {
        let value = |key: &str| manifest.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_prefix('='));
        let name = value("name").map_or("", |name| name.trim().trim_matches('"'));
        let Some((_, below)) = LAYERS.iter().find(|(known, _)| *known == name) else {
            findings.push(Finding::new(path, 1, format!("{name:?} stands in no layer")));
            continue;
        };
        for (index, line) in manifest.lines().enumerate() {
            let key = line.split([' ', '.', '=']).next().unwrap_or_default();
            let names = |package: &str| key == package || line.contains(&format!("package = \"{package}\""));
            let ours = LAYERS.iter().map(|(package, _)| *package).find(|package| names(package));
            if let Some(dependency) = ours.filter(|dependency| !below.contains(dependency)) {
                let message = format!("{name} may not depend on {dependency}; it may on {below:?}");
                findings.push(Finding::new(path, index + 1, message));
            }
        }
        if name == NAMES_ITSELF {
            continue;
        }
        if value("build").is_some() || tree.text(&path.replace("Cargo.toml", "build.rs")).is_some() {
            findings.push(Finding::new(path, 1, format!("{name} has a build script")));
        }
    }
    findings
}

/// Whether the file is the manifest of a package of this workspace.
fn is_ours(path: &str) -> bool {
    let folder = path.strip_suffix("/Cargo.toml").unwrap_or_default();
    ["xtask", "tests", "tests/fake-cuda", "benches", "benches/gpu"].contains(&folder) || folder.starts_with("crates/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, more: &str) -> Vec<Finding> {
        let manifest = format!("[package]\nname = \"{name}\"\n{more}\n");
        check(&Tree::from_texts([("crates/a/Cargo.toml".to_string(), manifest)]))
    }

    #[test]
    fn an_edge_upwards_or_sideways_is_found() {
        for edge in
            ["blob-io blob-ops", "blob-ops blob-io", "synced-mem blob-core", "xtask blob-io", "blob-convert blob-cli"]
        {
            let (name, dependency) = edge.split_once(' ').unwrap();
            for line in ["D.workspace = true", "D = { path = \"x\" }", "d = { package = \"D\", version = \"1\" }"] {
                let line = line.replace('D', dependency);
                let found = findings(name, &format!("[dependencies]\nhalf = \"2\"\n{line}"));
                assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [5], "{edge} {line}");
            }
        }
        assert_eq!(findings("blob-io", "[dependencies]\nblob-core.workspace = true\nprost = \"1\""), []);
    }

    #[test]
    fn the_table_has_no_cycle() {
        for (at, (name, below)) in LAYERS.iter().enumerate() {
            let earlier = LAYERS[..at].iter().map(|(name, _)| name);
            assert!(below.iter().all(|package| earlier.clone().any(|name| name == package)), "{name}");
        }
    }

    #[test]
    fn an_unknown_package_and_a_build_script_are_found() {
        assert_eq!(findings("blob-utils", "").len(), 1);
        assert_eq!(findings("blob-io", "build = \"make.rs\"").len(), 1);
        let files = [("crates/a/Cargo.toml", "name = \"blob-io\"\n"), ("crates/a/build.rs", "fn main() {}\n")];
        let files = files.map(|(path, text)| (path.to_string(), text.to_string()));
        assert_eq!(check(&Tree::from_texts(files)).len(), 1);
    }
}

//! Rule 1: dependencies between our packages point one way, whatever their kind: normal, dev or build.
//! The table is the drawing of the architecture page. A new package, or a new edge upwards, is a finding until it stands here.
//! A library has no build script: it would run a foreign program, or look at the machine.

use super::{Finding, Tree};

/// Each package, from the bottom up, with those that it may depend on.
const LAYERS: &[(&str, &[&str])] = &[
    ("synced-mem", &[]),
    ("blob-core", &["synced-mem"]),
    ("blob-ops", &["blob-core", "synced-mem"]),
    ("blob-io", &["blob-core", "synced-mem"]),
    ("blob-convert", &["blob-io", "blob-ops", "blob-core", "synced-mem"]),
    ("blob-cli", &["blob-convert", "blob-io", "blob-ops", "blob-core", "synced-mem"]),
    ("xtask", &[]),
    ("blob-tests", &["blob-cli", "blob-convert", "blob-io", "blob-ops", "blob-core", "synced-mem"]),
    ("blob-benches", &["blob-cli", "blob-convert", "blob-io", "blob-ops", "blob-core", "synced-mem"]),
];

/// Every package is known, depends only on what lies below it, and has no build script.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        let mut push = |message: String| findings.push(Finding::new(&package.manifest, 1, message));
        let Some((name, below)) = LAYERS.iter().find(|(name, _)| *name == package.name) else {
            push(format!("{} stands in no layer", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let ours = LAYERS.iter().any(|(name, _)| name == dependency);
            if ours && !below.contains(&dependency.as_str()) {
                push(format!("{name} may not depend on {dependency}; it may on {below:?}"));
            }
        }
        if package.build_script {
            push(format!("{name} has a build script"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::Package;

    fn findings(package: Package) -> Vec<Finding> {
        let mut tree = Tree::from_texts([]);
        tree.packages = vec![package];
        check(&tree)
    }

    #[test]
    fn an_edge_upwards_or_sideways_is_found() {
        for (name, dependency) in [
            ("blob-io", "blob-ops"),
            ("blob-ops", "blob-io"),
            ("blob-core", "blob-ops"),
            ("synced-mem", "blob-core"),
            ("xtask", "blob-io"),
            ("blob-convert", "blob-cli"),
        ] {
            let found = findings(Package::sample(name, &["half", dependency]));
            assert_eq!(found.len(), 1, "{name} → {dependency}");
            assert!(found[0].message.contains(dependency));
        }
        assert_eq!(findings(Package::sample("blob-io", &["blob-core", "prost"])), []);
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
        assert_eq!(findings(Package::sample("blob-utils", &[])).len(), 1);
        let package = Package { build_script: true, ..Package::sample("blob-io", &[]) };
        assert_eq!(findings(package).len(), 1);
    }
}

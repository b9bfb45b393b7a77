//! Rules 1 and 4 as cargo's metadata shows them: which package depends on which, whatever the kind: normal, dev or
//! build. The table is the drawing of the architecture page. A new package, or a new edge upwards, is a finding until
//! it stands here. A library has no build script: a script may run a foreign program, or look at the machine.

use serde_json::Value;

use super::{Finding, Tree};

/// Each package, from the bottom up, with the packages that may be below.
pub(crate) const LAYERS: &[(&str, &[&str])] = &[
    ("synced-mem", &[]),
    ("blob-core", &["synced-mem"]),
    ("blob-ops", &["blob-core", "synced-mem"]),
    ("blob-io", &["blob-core", "synced-mem"]),
    ("blob-graph", &["blob-io", "blob-core", "synced-mem"]),
    ("blob-convert", &["blob-graph", "blob-io", "blob-ops", "blob-core", "synced-mem"]),
    ("blob-cli", &["blob-convert", "blob-graph", "blob-io", "blob-ops", "blob-core", "synced-mem"]),
    ("xtask", &[]),
    ("fake-cuda", &[]),
    (
        "blob-tests",
        &["fake-cuda", "blob-cli", "blob-convert", "blob-graph", "blob-io", "blob-ops", "blob-core", "synced-mem"],
    ),
    ("blob-gpu", &["fake-cuda", "blob-io", "blob-ops", "blob-core", "synced-mem"]),
    ("blob-benches", &["blob-cli", "blob-convert", "blob-graph", "blob-io", "blob-ops", "blob-core", "synced-mem"]),
];

/// The package whose build script gives the library the name under which programs ask for a driver, and no more.
const NAMES_ITSELF: &str = "fake-cuda";

/// The packages that may depend on cudarc; none of them does in a default build.
const CUDA: &[&str] = &["blob-ops", "synced-mem"];

/// Every package is known, depends only on packages below, and has no build script.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        let name = package["name"].as_str().unwrap_or_default();
        let mut push = |message: String| findings.push(Finding::new(name, 1, message));
        let Some((_, below)) = LAYERS.iter().find(|(known, _)| *known == name) else {
            push("the package stands in no layer".to_string());
            continue;
        };
        for dependency in list(&package["dependencies"]) {
            let on = dependency["name"].as_str().unwrap_or_default();
            let is_allowed = match on {
                "cudarc" => CUDA.contains(&name) && dependency["optional"] == true,
                _ => below.contains(&on) || LAYERS.iter().all(|(ours, _)| *ours != on),
            };
            if !is_allowed {
                push(format!("may not depend on {on}; it may on {below:?}, and {CUDA:?} on cudarc as an option"));
            }
        }
        let mut defaults = list(&package["features"]["default"]).iter().filter_map(Value::as_str);
        if CUDA.contains(&name) && defaults.any(|feature| feature.contains("cuda")) {
            push("cudarc in the default build".to_string());
        }
        let mut kinds = list(&package["targets"]).iter().flat_map(|target| list(&target["kind"]));
        if name != NAMES_ITSELF && kinds.any(|kind| kind == "custom-build") {
            push("has a build script".to_string());
        }
    }
    findings
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn messages(package: Value) -> Vec<String> {
        let mut tree = Tree::default();
        tree.packages.push(package);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn an_edge_upwards_or_sideways_is_found() {
        for (name, on) in [
            ("blob-io", "blob-ops"),
            ("blob-ops", "blob-io"),
            ("synced-mem", "blob-core"),
            ("xtask", "blob-io"),
            ("blob-convert", "blob-cli"),
            ("blob-io", "cudarc"),
            ("synced-mem", "cudarc"),
        ] {
            let found = messages(json!({"name": name, "dependencies": [{"name": "half"}, {"name": on}]}));
            assert!(found.len() == 1 && found[0].contains(&format!("may not depend on {on};")), "{name}: {found:?}");
        }
        let allowed = json!([{"name": "blob-core"}, {"name": "half"}, {"name": "cudarc", "optional": true}]);
        assert!(messages(json!({"name": "blob-ops", "dependencies": allowed})).is_empty());
    }

    #[test]
    fn an_unknown_package_a_build_script_and_a_default_of_cuda_are_found() {
        assert_eq!(messages(json!({"name": "blob-utils"})).len(), 1);
        assert_eq!(messages(json!({"name": "blob-io", "targets": [{"kind": ["custom-build"]}]})).len(), 1);
        assert_eq!(messages(json!({"name": "blob-ops", "features": {"default": ["cuda"]}})).len(), 1);
    }
}

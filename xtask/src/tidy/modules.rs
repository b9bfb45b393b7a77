//! A file that no module names is not compiled, and nothing else says so: rustc reads the modules alone, and git the
//! files.

use super::source::Source;
use super::{Finding, Tree};

/// Each file below a `src` that no file of its folders declares.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let strays = tree.sources.iter().filter(|source| !is_declared(tree, source));
    let message = "no module has this file: it is not compiled";
    strays.map(|source| Finding::new(&source.path, 1, message)).collect()
}

fn is_declared(tree: &Tree, source: &Source) -> bool {
    let Some((folder, file)) = source.path.rsplit_once('/').filter(|(folder, _)| is_in_src(folder)) else {
        return true;
    };
    if file == "lib.rs" || file == "main.rs" {
        return true;
    }
    let declarations = ["mod ", "mod r#"].map(|word| format!("{word}{}", file.trim_end_matches(".rs")));
    // A module with braces is in the file of a folder above.
    let mut folders = std::iter::successors(Some(folder), |at| at.rsplit_once('/').map(|(above, _)| above));
    folders.any(|at| {
        let own = [format!("{at}.rs"), format!("{at}/lib.rs"), format!("{at}/main.rs")];
        let mut parents = tree.sources.iter().filter(|parent| own.contains(&parent.path));
        parents.any(|parent| {
            let mut ends = parent.code.iter().map(|line| line.trim_end_matches([';', ' ', '{']));
            ends.any(|end| declarations.iter().any(|declaration| end.ends_with(declaration.as_str())))
                || parent.text.lines().any(|line| line.contains("path = ") && line.contains(&format!("/{file}\"")))
        })
    })
}

fn is_in_src(folder: &str) -> bool {
    folder.split('/').any(|part| part == "src") && !folder.ends_with("/bin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_no_module_names_is_found() {
        let files = [
            ("crates/a/src/lib.rs", "mod b;\npub(crate) mod r#in;\n// mod d;\n#[path = \"b/g.rs\"]\nmod b;\n"),
            ("crates/a/src/b.rs", "mod tests {\n    mod c;\n}\n"),
            ("crates/a/src/in.rs", ""),
            ("crates/a/src/b/tests/c.rs", ""),
            ("crates/a/src/b/g.rs", ""),
            ("crates/a/src/d.rs", ""),
            ("crates/a/src/bin/e.rs", ""),
            ("crates/a/tests/f.rs", ""),
        ];
        let tree = Tree::from_texts(files.map(|(path, text)| (path.to_owned(), text.to_owned())));
        let strays: Vec<String> = check(&tree).into_iter().map(|finding| finding.file).collect();
        assert_eq!(strays, ["crates/a/src/d.rs"]);
    }
}

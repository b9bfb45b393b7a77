//! What the rules look at: the workspace's text files, its Rust files as syntax and as a flat list of tokens,
//! and its packages. Comments and string literals are no code here: the tokens hold a literal whole, with its quotes.
//! Reads only; judges nothing.

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{Attribute, Item};

use crate::shell;

/// Where our own Rust code lies.
const CODE: &[&str] = &["crates/", "xtask/", "tests/", "benches/"];

/// Everything that the rules may look at.
pub(crate) struct Tree {
    texts: Vec<(String, String)>,
    /// Our Rust files that parse.
    pub(super) sources: Vec<Source>,
    /// Those that do not, with the line and the parser's message.
    pub(super) unparsed: Vec<(String, usize, String)>,
    /// The packages of the workspace.
    pub(super) packages: Vec<Package>,
}

/// One Rust file.
pub(super) struct Source {
    /// From the workspace's root, with `/`.
    pub(super) path: String,
    pub(super) text: String,
    pub(super) syntax: syn::File,
    pub(super) tokens: Vec<Token>,
    test_modules: Vec<RangeInclusive<usize>>,
}

/// A token with its line; a group is its opening token, what it holds, its closing token.
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
}

/// A package of the workspace, as far as the rules care.
pub(super) struct Package {
    pub(super) name: String,
    pub(super) manifest: String,
    pub(super) dependencies: Vec<String>,
    pub(super) build_script: bool,
}

impl Tree {
    /// Reads the tree: all files that belong to the workspace.
    pub(crate) fn read(root: &Path) -> Result<Tree> {
        // A file that is not text has nothing to check.
        let texts = shell::files(root)?.into_iter().filter_map(|path| {
            let text = std::fs::read_to_string(root.join(&path)).ok()?;
            Some((path, text))
        });
        let mut tree = Tree::from_texts(texts);
        tree.packages = packages(root)?;
        Ok(tree)
    }

    /// A tree of these files, without packages.
    pub(super) fn from_texts(texts: impl IntoIterator<Item = (String, String)>) -> Tree {
        let mut tree = Tree {
            texts: texts.into_iter().collect(),
            sources: Vec::new(),
            unparsed: Vec::new(),
            packages: Vec::new(),
        };
        for (path, text) in &tree.texts {
            if !path.ends_with(".rs") || !CODE.iter().any(|folder| path.starts_with(folder)) {
                continue;
            }
            match Source::parse(path, text) {
                Ok(source) => tree.sources.push(source),
                Err(error) => {
                    let line = error.span().start().line;
                    tree.unparsed.push((path.clone(), line, error.to_string()));
                }
            }
        }
        tree
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        let (_, text) = self.texts.iter().find(|(name, _)| name == path)?;
        Some(text)
    }

    /// All text files, Rust or not, with their paths.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }
}

impl Source {
    fn parse(path: &str, text: &str) -> syn::Result<Source> {
        let syntax = syn::parse_file(text)?;
        let mut tokens = Vec::new();
        flatten(text.parse()?, &mut tokens);
        let test_modules = syntax.items.iter().filter_map(test_module).collect();
        Ok(Source { path: path.to_string(), text: text.to_string(), syntax, tokens, test_modules })
    }

    /// Whether the file is one of these, each given without `.rs`; a folder of that name counts as the file.
    pub(super) fn is_one_of(&self, files: &[&str]) -> bool {
        files.iter().any(|file| match self.path.strip_prefix(file) {
            Some(rest) => rest == ".rs" || rest.starts_with('/'),
            None => false,
        })
    }

    /// Whether the whole file is test code: it is part of no library and no tool.
    pub(super) fn is_test(&self) -> bool {
        let folders = ["tests", "benches", "examples"];
        self.path.ends_with("/tests.rs") || self.path.split('/').any(|component| folders.contains(&component))
    }

    /// Whether the file is the root of a library, or of a program.
    pub(super) fn is_crate_root(&self) -> bool {
        self.is_library_root() || self.path.ends_with("/src/main.rs")
    }

    /// Whether the file is the root of a library.
    pub(super) fn is_library_root(&self) -> bool {
        self.path.ends_with("/src/lib.rs")
    }

    /// Whether the line lies inside a test module.
    pub(super) fn tests_hold(&self, line: usize) -> bool {
        self.test_modules.iter().any(|lines| lines.contains(&line))
    }

    /// How many lines the file has without its test modules.
    pub(super) fn lines_without_tests(&self) -> usize {
        let tests: usize = self.test_modules.iter().map(|lines| lines.clone().count()).sum();
        self.text.lines().count() - tests
    }

    /// The lines at which these tokens stand one after the other.
    pub(super) fn find<'a>(&'a self, pattern: &'a [&str]) -> impl Iterator<Item = usize> + 'a {
        find(&self.tokens, pattern)
    }
}

/// The lines at which these tokens stand one after the other.
pub(super) fn find<'a>(tokens: &'a [Token], pattern: &'a [&str]) -> impl Iterator<Item = usize> + 'a {
    tokens
        .windows(pattern.len())
        .filter(move |window| window.iter().zip(pattern).all(|(token, text)| token.text == *text))
        .map(|window| window[0].line)
}

/// Writes a stream as flat tokens.
pub(super) fn flatten(stream: TokenStream, out: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        let TokenTree::Group(group) = tree else {
            let text = tree.to_string();
            out.push(Token { text, line });
            continue;
        };
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::None => ("", ""),
        };
        out.push(Token { text: open.to_string(), line });
        flatten(group.stream(), out);
        let line = group.span_close().start().line;
        out.push(Token { text: close.to_string(), line });
    }
}

/// Whether an attribute is `#[cfg(test)]`, or a `cfg` that holds only in tests: `all(test, …)`.
pub(super) fn is_cfg_test(attribute: &Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    let mut tokens = Vec::new();
    flatten(list.tokens.clone(), &mut tokens);
    let texts: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
    list.path.is_ident("cfg") && matches!(texts[..], ["test"] | ["all", "(", "test", ..])
}

/// The lines of a test module that is written out in its parent.
fn test_module(item: &Item) -> Option<RangeInclusive<usize>> {
    let Item::Mod(module) = item else { return None };
    let (braces, _) = module.content.as_ref()?;
    module.attrs.iter().find(|attribute| is_cfg_test(attribute))?;
    let first = module.attrs.first()?.pound_token.spans[0].start().line;
    Some(first..=braces.span.close().end().line)
}

fn packages(root: &Path) -> Result<Vec<Package>> {
    let metadata = shell::metadata()?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    packages.iter().map(|package| Package::from_metadata(package, root)).collect()
}

impl Package {
    fn from_metadata(package: &serde_json::Value, root: &Path) -> Result<Package> {
        let text = |key: &str| package[key].as_str().with_context(|| format!("a package without {key}"));
        let list = |key: &str| package[key].as_array().with_context(|| format!("a package without {key}"));
        let manifest = Path::new(text("manifest_path")?);
        let manifest = manifest.strip_prefix(root).unwrap_or(manifest);
        let dependencies = list("dependencies")?.iter();
        let is_script = |target: &serde_json::Value| target["kind"][0] == "custom-build";
        Ok(Package {
            name: text("name")?.to_string(),
            manifest: manifest.to_string_lossy().replace('\\', "/"),
            dependencies: dependencies
                .filter_map(|dependency| Some(dependency["name"].as_str()?.to_string()))
                .collect(),
            build_script: list("targets")?.iter().any(is_script),
        })
    }

    /// A package for a test.
    #[cfg(test)]
    pub(super) fn sample(name: &str, dependencies: &[&str]) -> Package {
        Package {
            name: name.to_string(),
            manifest: format!("crates/{name}/Cargo.toml"),
            dependencies: dependencies.iter().map(|name| name.to_string()).collect(),
            build_script: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::parse(path, text).unwrap()
    }

    #[test]
    fn tokens_are_code_and_not_words_in_text() {
        let file = source("crates/a/src/b.rs", "/// unsafe\nfn f() {\n    g(\"unsafe\"); // unsafe\n}\n");
        assert_eq!(file.find(&["unsafe"]).count(), 0);
        let file = source("crates/a/src/b.rs", "fn f() {\n    vec![\n        unsafe { 1 }];\n}\n");
        assert_eq!(file.find(&["unsafe", "{"]).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_test_module_is_not_counted() {
        let text = "//! A.\nfn f() {}\n\n/// Why.\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        let file = source("crates/a/src/b.rs", text);
        assert_eq!(file.lines_without_tests(), 3);
        assert!(file.tests_hold(4) && file.tests_hold(8) && !file.tests_hold(3));
        // Only `test` counts: code that is there without the tests too is no test module.
        let file = source("crates/a/src/b.rs", "#[cfg(any(test, unix))]\nmod tests {\n}\n");
        assert_eq!(file.lines_without_tests(), 3);
    }

    #[test]
    fn a_folder_counts_as_the_file_of_its_name() {
        let doors = ["crates/a/src/cuda"];
        assert!(source("crates/a/src/cuda.rs", "").is_one_of(&doors));
        assert!(source("crates/a/src/cuda/event.rs", "").is_one_of(&doors));
        assert!(!source("crates/a/src/cuda_more.rs", "").is_one_of(&doors));
        assert!(!source("crates/b/src/cuda.rs", "").is_one_of(&doors));
    }

    #[test]
    fn the_real_packages_are_found() {
        let packages = packages(&shell::root()).unwrap();
        let xtask = packages.iter().find(|package| package.name == "xtask").unwrap();
        assert_eq!(xtask.manifest, "xtask/Cargo.toml");
        assert!(xtask.dependencies.contains(&"syn".to_string()));
        assert!(!xtask.build_script);
    }
}

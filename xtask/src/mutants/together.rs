//! Many breakages in one build. A function that rows break gets one more body for each row, and the variable
//! `BLOB_BREAKAGE` chooses a body when the program starts: one build serves all rows, each costs one run of its test.
//! Relies on syn for the places of bodies. Reads and writes no file, runs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use syn::visit::{self, Visit};

use crate::breakages::Mutant;

/// The variable that holds the number of the row to break; without it the program is whole.
pub(super) const CHOICE: &str = "BLOB_BREAKAGE";

/// Read once, so that the question costs a load wherever it stands.
const CHOOSER: &str = r#"
/// Whether this is the breakage that the variable names.
#[doc(hidden)]
#[allow(dead_code)]
pub fn breakage(row: usize) -> bool {
    static CHOICE: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
    *CHOICE.get_or_init(|| std::env::var("BLOB_BREAKAGE").ok()?.parse().ok()) == Some(row)
}
"#;

/// Files with several bodies for some functions.
#[derive(Debug, Default)]
pub(super) struct Together {
    /// Each changed file and its new text.
    pub(super) texts: BTreeMap<String, String>,
    /// Where each row's body stands in the new text of its file.
    bodies: Vec<Body>,
}

/// The body that one row breaks.
#[derive(Debug)]
struct Body {
    row: usize,
    file: String,
    bytes: Range<usize>,
}

/// One edit of a row: these bytes of the old text get another text.
struct Edit<'a> {
    row: usize,
    bytes: Range<usize>,
    new: &'a str,
}

impl Together {
    /// Places each row that can be placed: its edit lies within the body of a function that is not `const`, in a crate
    /// of the workspace. `text` gives a file's text.
    pub(super) fn new<'a>(
        rows: impl Iterator<Item = (usize, &'a Mutant)>,
        text: impl Fn(&str) -> Option<&'a str>,
    ) -> Self {
        let mut of_file: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
        for (row, mutant) in rows.filter(|(_, mutant)| root(&mutant.file, &text).is_some()) {
            of_file.entry(&mutant.file).or_default().push((row, mutant));
        }
        let mut together = Together::default();
        for (file, rows) in of_file {
            if let Some(old) = text(file) {
                together.place(file, old, &rows);
            }
        }
        let roots: BTreeSet<String> = together.texts.keys().filter_map(|file| root(file, &text)).collect();
        for file in roots {
            let new = together.texts.remove(&file).or_else(|| text(&file).map(str::to_string)).unwrap_or_default();
            together.texts.insert(file, new + CHOOSER);
        }
        together
    }

    /// The rows that have a body.
    pub(super) fn rows(&self) -> BTreeSet<usize> {
        self.bodies.iter().map(|body| body.row).collect()
    }

    /// The row whose body holds this byte of a changed file.
    pub(super) fn row_at(&self, file: &str, byte: usize) -> Option<usize> {
        self.bodies.iter().find(|body| body.file == file && body.bytes.contains(&byte)).map(|body| body.row)
    }

    fn place(&mut self, file: &str, old: &str, rows: &[(usize, &Mutant)]) {
        let Ok(parsed) = syn::parse_file(old) else { return };
        let mut functions = Functions::default();
        functions.visit_file(&parsed);
        let mut groups: BTreeMap<(usize, usize), Vec<Edit>> = BTreeMap::new();
        for edit in rows.iter().filter_map(|(row, mutant)| edit(*row, mutant, old)) {
            if let Some(body) = functions.innermost(&edit.bytes) {
                groups.entry((body.start, body.end)).or_default().push(edit);
            }
        }
        let bodies: Vec<(usize, usize)> = groups.keys().copied().collect();
        let mut new = String::new();
        let mut copied = 0;
        for outer in bodies.iter().filter(|body| !bodies.iter().any(|other| is_within(**body, *other))) {
            new.push_str(&old[copied..outer.0]);
            new.push_str("{ ");
            let edits = groups.iter().filter(|(body, _)| **body == *outer || is_within(**body, *outer));
            for edit in edits.flat_map(|(_, edits)| edits) {
                new.push_str(&format!("if crate::breakage({}) ", edit.row));
                let start = new.len();
                new.push_str(&old[outer.0..edit.bytes.start]);
                new.push_str(edit.new);
                new.push_str(&old[edit.bytes.end..outer.1]);
                self.bodies.push(Body { row: edit.row, file: file.to_string(), bytes: start..new.len() });
                new.push_str(" else ");
            }
            new.push_str(&old[outer.0..outer.1]);
            new.push_str(" }");
            copied = outer.1;
        }
        if copied > 0 {
            new.push_str(&old[copied..]);
            self.texts.insert(file.to_string(), new);
        }
    }
}

/// The root of the crate that a file belongs to.
fn root<'a>(file: &str, text: &impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let (package, rest) = file.split_once("/src/")?;
    let is_ours = package.starts_with("crates/") || package == "tests/fake-cuda";
    let roots = ["lib.rs", "main.rs"].map(|name| format!("{package}/src/{name}"));
    roots.into_iter().find(|root| is_ours && rest.ends_with(".rs") && text(root).is_some())
}

/// The change of a row, without the common beginning and end of its two texts.
fn edit<'a>(row: usize, mutant: &'a Mutant, old: &str) -> Option<Edit<'a>> {
    let at = old.find(&mutant.old)?;
    let (before, after) = (mutant.old.as_str(), mutant.new.as_str());
    let pairs = before.char_indices().zip(after.chars());
    let start = pairs.take_while(|((_, old), new)| old == new).last().map_or(0, |((at, old), _)| at + old.len_utf8());
    let pairs = before[start..].chars().rev().zip(after[start..].chars().rev());
    let end: usize = pairs.take_while(|(old, new)| old == new).map(|(old, _)| old.len_utf8()).sum();
    Some(Edit { row, bytes: at + start..at + before.len() - end, new: &after[start..after.len() - end] })
}

fn is_within(inner: (usize, usize), outer: (usize, usize)) -> bool {
    outer.0 < inner.0 && inner.1 < outer.1
}

/// The bodies of a file's functions, with the braces.
#[derive(Default)]
struct Functions {
    bodies: Vec<Range<usize>>,
    /// A `const fn` cannot ask at run time.
    constant: Vec<Range<usize>>,
}

impl Functions {
    /// The innermost body around these bytes, if its function can ask at run time.
    fn innermost(&self, bytes: &Range<usize>) -> Option<Range<usize>> {
        let around = self.bodies.iter().filter(|body| body.start < bytes.start && bytes.end < body.end);
        let body = around.max_by_key(|body| body.start)?;
        (!self.constant.contains(body)).then(|| body.clone())
    }

    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let body = block.brace_token.span.join().byte_range();
        self.constant.extend(signature.constness.as_ref().map(|_| body.clone()));
        self.bodies.push(body);
    }
}

impl<'a> Visit<'a> for Functions {
    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'a syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.add(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "crates/a/src/b.rs";

    fn placed(old: &str, rows: &[(&str, &str)]) -> (Together, String) {
        let row = |(old, new): &(&str, &str)| Mutant {
            file: FILE.into(),
            old: old.to_string(),
            new: new.to_string(),
            ..Mutant::default()
        };
        let rows: Vec<Mutant> = rows.iter().map(row).collect();
        let text = |file: &str| match file {
            FILE => Some(old),
            "crates/a/src/lib.rs" => Some("mod b;"),
            _ => None,
        };
        let together = Together::new((1..).zip(&rows), text);
        let new = together.texts.get(FILE).cloned().unwrap_or_default();
        (together, new)
    }

    #[test]
    fn a_function_gets_a_body_for_each_row() {
        let (together, new) = placed("// é\nfn f() -> u8 { a + b }\n", &[("a + b", "a - b"), ("{ a + b }", "{ b }")]);
        let bodies = "if crate::breakage(1) { a - b } else if crate::breakage(2) { b } else { a + b }";
        assert_eq!(new, format!("// é\nfn f() -> u8 {{ {bodies} }}\n"));
        assert!(together.texts["crates/a/src/lib.rs"].contains(CHOICE));
        let row_of = |text| together.row_at(FILE, new.find(text).unwrap());
        assert_eq!(
            [row_of("a - b"), row_of("b } else {"), row_of("a + b"), row_of("fn f")],
            [Some(1), Some(2), None, None]
        );
    }

    #[test]
    fn a_function_within_another_is_broken_with_it() {
        let (_, new) = placed("fn f() { fn g() { x } y }", &[("x", "w"), ("y", "z")]);
        let f = "if crate::breakage(2) { fn g() { x } z } else if crate::breakage(1) { fn g() { w } y } else { fn g() { x } y }";
        assert_eq!(new, format!("fn f() {{ {f} }}"));
    }

    #[test]
    fn what_cannot_ask_at_run_time_has_no_body() {
        let old =
            "const A: u8 = 1; const fn f() -> u8 { 2 } fn g(n: u8) { 3 } m! { fn h() { 4 } } trait T { fn t() { 5 } }";
        let rows = [("1", "10"), ("2", "20"), ("n: u8", "m: u8"), ("4", "40"), ("5", "50"), ("3", "30")];
        let (together, _) = placed(old, &rows);
        assert_eq!(together.rows(), BTreeSet::from([5, 6]));
    }
}

//! A closure that is bound to a name and used once sends the reader back for it: it stands where it is used, or is a
//! function. Relies on rustfmt's indents to know where a block ends. Does not see a name that is bound again in the
//! same block.

use super::source::Source;
use super::{Finding, Tree};

/// Each such closure outside the test modules of our Rust files.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources.iter().flat_map(of_file).collect()
}

fn of_file(source: &Source) -> Vec<Finding> {
    let lines: Vec<(usize, &str)> = source.main_flow().collect();
    let mut found = Vec::new();
    for (place, (number, line)) in lines.iter().enumerate() {
        let next = lines.get(place + 1).map_or("", |(_, next)| next.trim_start());
        let Some(name) = bound(line, next) else { continue };
        let block = lines[place + 1..].iter().map(|(_, line)| *line);
        let block = block.take_while(|inner| inner.is_empty() || indent(inner) >= indent(line));
        if block.map(|line| uses(line, name)).sum::<usize>() == 1 {
            let message = format!("the closure `{name}` is used once: write it there, or make it a function");
            found.push(Finding::new(&source.path, *number, message));
        }
    }
    found
}

/// The name that a line binds a closure to, which may begin in the next line.
fn bound<'a>(line: &'a str, next: &'a str) -> Option<&'a str> {
    let (name, value) = line.trim_start().strip_prefix("let ")?.split_once('=')?;
    let value = if value.is_empty() { next } else { value.trim_start() };
    let is_closure = value.starts_with('|') || value.starts_with("move |");
    let name = name.trim().trim_start_matches("mut ");
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    (is_closure && is_name).then_some(name)
}

/// How often a line uses a variable: a field or a method of that name is another thing, and so is a function's path, or
/// a parameter.
fn uses(line: &str, name: &str) -> usize {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let places = line.match_indices(name).filter(|(at, _)| {
        let (before, after) = (&line[..*at], &line[at + name.len()..]);
        let is_declared = after.starts_with(':') && !after.starts_with("::");
        !before.ends_with(is_of_word) && !after.starts_with(is_of_word) && !is_member(before) && !is_declared
    });
    places.count()
}

/// Whether the next word is a member of the one before: `a.b`, not the end of a range, `a..b`; or `a::b`.
fn is_member(before: &str) -> bool {
    before.ends_with("::") || before.ends_with('.') && !before.ends_with("..")
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closure_of_one_use_is_found_by_name() {
        let file = "fn f() {\n    let once = |a| a;\n    let twice = |a| a;\n    let late =\n        move |a| a;\n    \
                    let mut changes = || b += 1;\n    once(twice(twice(late(1))));\n    changes();\n}\nfn g() {\n    \
                    once(2);\n}\nfn i() {\n    let len = |a| b.len();\n    self.len(c::len).map(len);\n}\nfn j() {\n    let at = |a| a;\n    D { at: at(1) };\n}\n#[cfg(test)]\nmod tests {\n    fn h() {\n        let own = |a| a;\n        own(1);\n    \
                    }\n}\n";
        let lines = |path: &str| -> Vec<usize> {
            let tree = Tree::from_texts([(path.to_owned(), file.to_owned())]);
            check(&tree).iter().map(|finding| finding.line).collect()
        };
        for path in ["crates/a/src/b.rs", "crates/a/tests/b.rs", "benches/b.rs", "web/src/b.rs", "fuzz/src/b.rs"] {
            assert_eq!(lines(path), [2, 4, 6, 14, 18], "{path}");
        }
    }
}

//! The rows of deliberate breakages, and whether the text that each breaks is still there. Runs no breakage.

/// The folder of the rows; the README there says how to write one.
pub(crate) const LISTS: &str = "xtask/breakages/";

/// A deliberate breakage, and the test that has to notice it.
#[derive(Debug, Default)]
pub(crate) struct Mutant {
    /// The row's place: the list, and a line that counts from 1.
    pub(crate) list: String,
    pub(crate) line: usize,
    pub(crate) name: String,
    pub(crate) file: String,
    /// The arguments of `cargo test`.
    pub(crate) test: Vec<String>,
    /// A text that stands in the file exactly once, and the text in its place.
    pub(crate) old: String,
    pub(crate) new: String,
}

/// The rows of all lists among these files, each a path and a text.
pub(crate) fn rows<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Mutant> {
    let lists = files.filter(|(path, _)| path.starts_with(LISTS) && path.ends_with(".txt"));
    lists.flat_map(|(path, text)| parse(path, text)).collect()
}

fn parse(list: &str, text: &str) -> Vec<Mutant> {
    let lines: Vec<(usize, &str)> = text.lines().enumerate().collect();
    let rows = lines.split(|(_, line)| line.is_empty()).filter(|row| !row.is_empty());
    rows.map(|row| mutant(list, row)).collect()
}

/// The row of these lines of a list, each with its number, which counts from 0.
fn mutant(list: &str, row: &[(usize, &str)]) -> Mutant {
    let mut words = row.get(1).map_or("", |(_, line)| line).split(' ').map(str::to_string);
    let side = |sign: char| {
        let lines = row.iter().skip(2).filter(|(_, line)| line.starts_with([sign, ' ']));
        lines.map(|(_, line)| line.get(2..).unwrap_or_default()).collect::<Vec<_>>().join("\n")
    };
    let (line, name) = (row[0].0 + 1, row[0].1.to_string());
    let (file, test) = (words.next().unwrap_or_default(), words.collect());
    Mutant { list: list.to_string(), line, name, file, test, old: side('-'), new: side('+') }
}

/// Why a row breaks nothing, if so; `text` gives the text of a file.
pub(crate) fn stale<'a>(mutant: &Mutant, text: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let Mutant { name, file, old, new, .. } = mutant;
    match text(file).map(|text| text.matches(old.as_str()).count()) {
        None => Some(format!("{name:?}: there is no {file}")),
        Some(1) if mutant.test.is_empty() => Some(format!("{name:?}: no test is named")),
        Some(1) if old == new => Some(format!("{name:?}: the new text is the old one")),
        Some(1) => None,
        Some(count) => Some(format!("{name:?}: its old text stands {count} times in {file}, not once")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str =
        "\nsign, \"quoted\"\na.rs -p a --test b\n- f(a + b,\n-     \"c\");\n+ f(a - b,\n+\n    }\n\nlast\nb.rs\n- x\n";

    #[test]
    fn a_row_has_its_lines_and_quotes() {
        let rows = parse("xtask/breakages/a.txt", ROW);
        let Mutant { line, name, file, test, old, new, .. } = &rows[0];
        assert_eq!((*line, name.as_str(), file.as_str()), (2, "sign, \"quoted\"", "a.rs"));
        assert_eq!(test, &["-p", "a", "--test", "b"]);
        assert_eq!((old.as_str(), new.as_str()), ("f(a + b,\n    \"c\");\n  }", "f(a - b,\n\n  }"));
        assert_eq!((rows.len(), rows[1].line, rows[1].old.as_str(), rows[1].new.as_str()), (2, 10, "x", ""));
    }

    #[test]
    fn a_stale_row_is_found() {
        let stale_in = |row: &str, text| stale(&parse("", row)[0], |file| (file == "a.rs").then_some(text));
        let row = "sign\na.rs -p a\n- a + b\n+ a - b\n";
        assert_eq!(stale_in(row, "a + b"), None);
        assert!(stale_in(row, "a * b").unwrap().contains("0 times"));
        assert!(stale_in(row, "a + b + a + b").unwrap().contains("2 times"));
        assert!(stale_in(&row.replace("a.rs", "b.rs"), "a + b").unwrap().contains("there is no b.rs"));
        for idle in [row.replace(" -p a", ""), row.replace("a - b", "a + b")] {
            assert!(stale_in(&idle, "a + b").is_some(), "{idle}");
        }
    }
}

//! Every call that changes the disk fails in turn, once or with all later calls, as when the process is killed: the
//! target is the old or the new one, whole, and the next run leaves nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::notes::FOLDER_LIST;
use crate::output::disk;
use crate::output::disk::failing::{Fails, with};
use crate::output::nameless::ways::{self, Way};
use crate::output::{Complete, IfExists, Output, OutputDir};

/// A way to write `text` below a folder, and to read what a user finds there.
struct Case {
    name: &'static str,
    write: fn(&Path, IfExists, &str) -> Result<(), Error>,
    read: fn(&Path) -> Option<String>,
}

const CASES: [Case; 7] = [
    Case { name: "file", write: file, read: |home| fs::read_to_string(home.join("x")).ok() },
    Case { name: "folder", write: folder, read: |home| whole(&home.join("out"), &["a/x.npy", "y.npy"]) },
    Case { name: "set", write: set, read: indexed },
    Case { name: "pair", write: pair, read: paired },
    Case { name: "divided", write: divided, read: with_values },
    Case { name: "divided, after one", write: divided_after_one, read: with_values },
    Case { name: "all", write: all, read: |home| whole(home, &ALL) },
];

/// Files that are named together.
const ALL: [&str; 3] = ["1", "2", "3"];

fn all(home: &Path, if_exists: IfExists, text: &str) -> Result<(), Error> {
    let complete = ALL.iter().map(|name| {
        let mut output = Output::create(home.join(name), if_exists)?;
        output.write_all(text.as_bytes())?;
        output.complete()
    });
    Complete::publish_all(complete.collect::<Result<_, Error>>()?)
}

fn file(home: &Path, if_exists: IfExists, text: &str) -> Result<(), Error> {
    let mut output = Output::create(home.join("x"), if_exists)?;
    output.set_len(text.len() as u64)?;
    output.write_all(text.as_bytes())?;
    output.finish()
}

fn folder(home: &Path, if_exists: IfExists, text: &str) -> Result<(), Error> {
    let dir = OutputDir::create(home.join("out"), if_exists)?;
    let listed =
        r#"{"contents":[{"name":"n","file":"a/x.npy","file_bytes":3},{"name":"m","file":"y.npy","file_bytes":3}]}"#;
    for (path, content) in [("a/x.npy", text), ("y.npy", text), (FOLDER_LIST, listed)] {
        let mut output = dir.file(path)?;
        output.write_all(content.as_bytes())?;
        output.finish()?;
    }
    dir.finish()
}

/// The one text that all these files hold; `None` if a file is missing, "a mix" if the texts differ.
fn whole(folder: &Path, files: &[&str]) -> Option<String> {
    let texts: Option<BTreeSet<String>> = files.iter().map(|file| fs::read_to_string(folder.join(file)).ok()).collect();
    let mut texts = texts?.into_iter();
    let text = texts.next()?;
    Some(texts.next().map_or(text, |_| "a mix".to_owned()))
}

/// Three files and an index of the names, a line for each.
fn set(home: &Path, if_exists: IfExists, text: &str) -> Result<(), Error> {
    let index = home.join("index");
    let complete = |name: &str, text: &str| {
        let mut output = Output::create_for(&index, home.join(name), if_exists)?;
        output.write_all(text.as_bytes())?;
        output.complete()
    };
    let files: Vec<Complete> = ["1", "2", "3"].iter().map(|name| complete(name, text)).collect::<Result<_, Error>>()?;
    complete("index", "1\n2\n3")?.publish_with(files, &renamed)
}

/// Weights, and the symbol of the same net.
fn pair(home: &Path, if_exists: IfExists, text: &str) -> Result<(), Error> {
    let complete = |name: &str| {
        let mut output = Output::create(home.join(name), if_exists)?;
        output.write_all(text.as_bytes())?;
        output.complete()
    };
    let symbol = complete("symbol")?;
    symbol.publish_after(complete("weights")?)
}

/// Weights without a symbol are whole: nothing says that the weights are of other layers.
fn paired(home: &Path) -> Option<String> {
    let weights = fs::read_to_string(home.join("weights")).ok()?;
    let symbol = fs::read_to_string(home.join("symbol")).unwrap_or_else(|_| weights.clone());
    Some(if symbol == weights { weights } else { "a mix".to_owned() })
}

/// A model, and the file of its values, written as one. The model has its text, and the name of the values.
fn divided(home: &Path, if_exists: IfExists, text: &str) -> Result<(), Error> {
    let create = |name: &str| Output::create(home.join(name), if_exists);
    let model = |values: &str| format!("{text}\n{values}");
    let at = model("values").len() as u64;
    let mut output = create("model")?.divided(at, create("values")?)?;
    output.set_len(at + text.len() as u64)?;
    output.write_all(&[model("values").as_bytes(), text.as_bytes()].concat())?;
    let mut complete = output.complete()?;
    if let Some(values) = complete.name_meanwhile().map(model) {
        let mut output = create("model")?;
        output.write_all(values.as_bytes())?;
        complete = complete.with_meanwhile(output.complete()?)?;
    }
    complete.publish()
}

/// A model that has its values within, and later one with a file of values.
fn divided_after_one(home: &Path, if_exists: IfExists, text: &str) -> Result<(), Error> {
    if text != "old" {
        return divided(home, if_exists, text);
    }
    let mut output = Output::create(home.join("model"), if_exists)?;
    output.write_all(text.as_bytes())?;
    output.finish()
}

/// A model is one with the values that it names, or one that names none.
fn with_values(home: &Path) -> Option<String> {
    let model = fs::read_to_string(home.join("model")).ok()?;
    let Some((text, values)) = model.split_once('\n') else { return Some(model) };
    let values = fs::read_to_string(home.join(values)).unwrap_or_else(|_| "no values".to_owned());
    Some(if values == text { values } else { format!("a model of {text}, with {values}") })
}

fn renamed(index: &[u8], names: &BTreeMap<String, String>) -> Option<Vec<u8>> {
    let index = std::str::from_utf8(index).ok()?;
    let lines: Vec<&str> = index.lines().map(|line| names.get(line).map_or(line, |other| other)).collect();
    Some(lines.join("\n").into_bytes())
}

fn indexed(home: &Path) -> Option<String> {
    let index = fs::read_to_string(home.join("index")).ok()?;
    Some(whole(home, &index.lines().collect::<Vec<_>>()).unwrap_or_else(|| "a file is missing".to_owned()))
}

/// The names below a folder, without temporary ones.
fn names(home: &Path) -> (BTreeSet<String>, usize) {
    let listing = fs::read_dir(home).expect("listed");
    let all = listing.map(|entry| entry.expect("listed").file_name().into_string().expect("text"));
    let (temporary, named): (BTreeSet<_>, _) = all.partition(|name| name.contains("blob-tmp"));
    (named, temporary.len())
}

/// Whether the system exchanges the names of two folders here.
fn exchanges(home: &Path) -> bool {
    let folders = ["one", "other"].map(|name| home.join(name));
    folders.iter().for_each(|folder| fs::create_dir(folder).expect("made"));
    let is_done = disk::exchange(&folders[0], &folders[1]).is_ok();
    folders.iter().for_each(|folder| fs::remove_dir(folder).expect("removed"));
    is_done
}

/// A case with one failure, from a new state.
fn fails(case: &Case, fails: Fails, if_exists: IfExists) -> bool {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    let about = format!("{}, {fails:?}, {if_exists:?}", case.name);
    let old = (if_exists == IfExists::Replace).then(|| "old".to_owned());
    if old.is_some() {
        (case.write)(home, IfExists::Refuse, "old").expect("written");
    }
    let (before, _) = names(home);
    let (done, failed) = with(fails, || (case.write)(home, if_exists, "new"));
    let mut found = (case.read)(home);
    if found.is_none() && old.is_some() {
        // Killed between two renames: the next run gives the old folder the target's name back, also where that run
        // replaces nothing. Where names are exchanged, the first call that fails is that one.
        let is_in_two = match fails {
            Fails::From(_) => !exchanges(home),
            Fails::Then(..) => true,
            Fails::Once(_) => false,
        };
        assert!(case.name == "folder" && is_in_two, "{about}");
        OutputDir::create(home.join("out"), IfExists::Refuse).expect_err("it is back");
        found = (case.read)(home);
    }
    let is_new = found.as_deref() == Some("new");
    // Of several files without an index, a killed process leaves each whole, the old or the new one.
    let is_mixed = case.name == "all" && matches!(fails, Fails::From(_)) && found.as_deref() == Some("a mix");
    assert!(is_new || found == old || is_mixed, "{about}: {found:?}, {done:?}");
    let (after, temporary) = names(home);
    if let Fails::Once(_) = fails {
        assert_eq!(done.is_ok(), is_new, "{about}: {done:?}");
        assert!(is_new || after == before, "{about}: {after:?}");
        assert!(is_new || temporary <= 1, "{about}: {temporary} temporary files");
    }
    // A killed process may have named some files where there were none; these are replaced only when asked.
    (case.write)(home, IfExists::Replace, "now").unwrap_or_else(|e| panic!("{about}: {e}"));
    assert_eq!((case.read)(home).as_deref(), Some("now"), "{about}");
    assert_eq!(names(home).1, 0, "{about}: {:?}", names(home));
    failed
}

#[test]
fn whatever_fails_the_old_or_the_new_is_whole_and_the_next_run_cleans_up() {
    let all = CASES.iter().flat_map(|case| Way::ALL.map(|way| (case, way)));
    // A folder has its files under their names from the start.
    for (case, way) in all.filter(|(case, way)| case.name != "folder" || *way == Way::Nameless) {
        for if_exists in [IfExists::Refuse, IfExists::Replace] {
            for kind in [Fails::Once, Fails::From] {
                let calls = (0..200).take_while(|call| ways::with(way, || fails(case, kind(*call), if_exists)));
                let calls = calls.count();
                assert!((3..199).contains(&calls), "{}: {calls}", case.name);
                println!("{}, {way:?}, {if_exists:?}: {calls} calls fail", case.name);
            }
        }
    }
}

/// A folder takes the other's name in two steps where the names cannot be exchanged, and may be killed between these.
#[test]
fn a_folder_that_is_killed_between_two_renames_comes_back() {
    let Some(case) = CASES.iter().find(|case| case.name == "folder") else { return };
    let calls = (0..200).take_while(|first| fails(case, Fails::Once(*first), IfExists::Replace)).count();
    for first in 0..calls {
        let _ = (first + 1..200).take_while(|then| fails(case, Fails::Then(first, *then), IfExists::Replace)).count();
    }
}

/// A set that replaces one whose third file the user has removed.
fn incomplete(fails: Fails) -> bool {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    set(home, IfExists::Refuse, "old").expect("written");
    fs::remove_file(home.join("3")).expect("there");
    let (_, failed) = with(fails, || set(home, IfExists::Replace, "new"));
    assert_ne!(indexed(home).as_deref(), Some("a mix"), "{fails:?}");
    failed
}

#[test]
fn an_index_of_a_missing_file_never_names_a_new_one_beside_old_ones() {
    for way in Way::ALL {
        let incomplete = |fails| ways::with(way, || incomplete(fails));
        let mut pairs = 0;
        for first in (0..200).take_while(|first| incomplete(Fails::Once(*first))) {
            pairs += (first + 1..200).take_while(|then| incomplete(Fails::Then(first, *then))).count();
        }
        assert!(pairs > 100, "{way:?}: {pairs}");
    }
}

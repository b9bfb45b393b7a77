//! Stored names that look like those that blob gives, or like a selection by index: each is taken for itself, in every
//! command.

use blob_io::{Checkpoint, Format};

use crate::support::floats::{bytes_of, values};
use crate::support::{Folder, blob};

const NAMES: [&str; 12] =
    ["z", "@0", "name@5", "x#values", "x.diff", "x", "#0", "#1-2", "@9", "a/@0", "#99", "x#indices"];

/// The tensor called `NAMES[i]` has two elements of value `i`.
fn source(folder: &Folder) -> String {
    let numbers: Vec<[f32; 2]> = (0..NAMES.len()).map(|i| [i as f32; 2]).collect();
    let tensors: Vec<(&str, &[usize], &[f32])> =
        NAMES.iter().zip(&numbers).map(|(name, values)| (*name, &[2][..], &values[..])).collect();
    folder.with("odd.safetensors", bytes_of(Format::Safetensors, &tensors))
}

/// The tensors of a file: names and first values.
fn tensors(path: &str) -> Vec<(String, f32)> {
    let file = Checkpoint::open(path).expect("opens");
    file.names().map(|name| (name.to_owned(), values(&file, name)[0])).collect()
}

#[test]
fn a_name_that_looks_like_one_of_ours_selects_its_own_tensor() {
    let folder = Folder::new();
    let source = &*source(&folder);
    for (place, name) in NAMES.iter().copied().enumerate() {
        let own = (name.to_owned(), place as f32);
        for command in ["ls", "show", "stats"] {
            let said = &blob(&[command, "--json", source, name]).ok().json()[0];
            let found = said["tensors"]
                .as_array()
                .map_or_else(|| vec![&said["name"]], |all| all.iter().map(|tensor| &tensor["name"]).collect());
            assert_eq!(found, [name], "{command}");
        }
        for command in ["info", "verify"] {
            let said = &blob(&[command, "--json", source, "--only", name]).ok().json()[0];
            assert_eq!(said["tensors"], 1, "{command} {name}");
        }
        let said = &blob(&["diff", "--json", "--all", source, source, "--only", name]).ok().json()[0];
        assert_eq!((&said["tensors"][0]["name"], &said["equal"]), (&name.into(), &1.into()));
        let plot = &blob(&["plot", "--json", source, name]).ok().json()[0];
        assert_eq!(plot["name"], name);
        let out = folder.file("out.safetensors");
        let to = |args: &[&str]| {
            blob(&[args, &["-o", &out, "--force", "-q"]].concat()).ok();
            tensors(&out)
        };
        assert_eq!(to(&["convert", source, "--only", name]), std::slice::from_ref(&own));
        assert_eq!(
            blob(&["hash", "--content", &out]).out[..70],
            blob(&["hash", "--content", source, "--only", name]).out[..70]
        );
        let rest = to(&["convert", source, "--exclude", name]);
        assert!(rest.len() == NAMES.len() - 1 && !rest.contains(&own), "{name}: {rest:?}");
        let alone = folder.file("out.npy");
        blob(&["extract", source, name, "-o", &alone, "--force", "-q"]).ok();
        assert_eq!(tensors(&alone), [("@0".to_owned(), place as f32)]);
        let renamed = to(&["rename", source, name, "--sed", "s/$/Q/"]);
        assert!(renamed.contains(&(format!("{name}Q"), place as f32)), "{name}: {renamed:?}");
        // A map has comments, which begin with `#`.
        let map = folder.with("map.txt", format!("# z y\n{name} new\n"));
        let renamed = to(&["rename", source, "--map", &map]);
        assert!(renamed.contains(&("new".to_owned(), place as f32)), "{name}: {renamed:?}");
        assert!(name == "z" || renamed.iter().any(|(name, _)| name == "z"), "{renamed:?}");
        let merged = to(&["merge", source, name, if place == 0 { "x" } else { "z" }, "--axis", "0", "--into", "both"]);
        assert!(merged.contains(&("both".to_owned(), place as f32)), "{name}: {merged:?}");
        let parts = to(&["split", source, name, "--axis", "0", "--sizes", "1,1", "--into", "one,two"]);
        assert!(parts.contains(&("one".to_owned(), place as f32)), "{name}: {parts:?}");
    }
}

//! `blob batch --make`: a job for each file of tensors that a glob matches.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use blob_convert::Recipe;
use blob_convert::recipe::{NetFile, Source};
use blob_convert::report::json;
use blob_io::words::listed;
use blob_io::{Error, Format, Nets};
use globset::GlobBuilder;

use crate::args::Batch;
use crate::context::Context;
use crate::convert::{text_of, warn};
use crate::failure::{Failure, Status};
use crate::ls::Files;
use crate::open::{name, open_to_list};
use crate::output::{Out, signals};
use crate::render::Render;
use crate::units;

/// How many files a warning, or a note, names.
const NAMED: usize = 3;

pub(super) fn run(args: &Batch, mut recipe: Recipe, context: &Context) -> Result<Status, Failure> {
    let (Some(glob), Some(to), Some(folder)) = (&args.make, args.to, &args.output) else {
        return Err(Failure::new("--make needs --to and -o"));
    };
    recipe.target.strict = args.transforms.strict;
    let root = root_of(glob);
    let matcher = GlobBuilder::new(&whole(glob, &root)).literal_separator(true).build();
    let matcher = matcher.map_err(|e| Failure::new(format!("{glob:?} is no glob: {}", e.kind())))?.compile_matcher();
    let (sources, others) = sources(&root, &|path| matcher.is_match(path), context)?;
    let (sources, own) = without_outputs(sources, &root, folder, to);
    if sources.is_empty() {
        return Err(Failure::no(format!("no file of tensors matches {glob:?}")));
    }
    let (mut lines, mut nets) = (Vec::new(), NetsBeside::default());
    for (source, output) in sources.iter().zip(outputs(&sources, &root, folder, to)) {
        let mut recipe = recipe.clone();
        if to.holds().net == Nets::Graph && recipe.net.is_none() {
            recipe.net = nets.of(source);
        }
        let mut read = Source::new(text_of(source)?);
        read.format = context.global.from;
        recipe.sources.push(read);
        text_of(&output)?;
        (recipe.target.path, recipe.target.format) = (Some(output), Some(to));
        lines.push(Line(recipe));
    }
    lines.iter().try_for_each(|line| context.print(line))?;
    warn(nets.unsaid, "--net names one for all jobs", context);
    let passed_over = [(others, "without tensors"), (own, "of earlier outputs")];
    let passed_over = passed_over.iter().filter(|(files, _)| !files.is_empty());
    let passed_over = passed_over.map(|(files, what)| {
        let count = units::plural(files.len() as u64, "file");
        let files: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
        format!("; {count} {what} passed over: {}", context.terminal.text(&listed(NAMED, &files)))
    });
    let passed_over: String = passed_over.collect();
    context.terminal.note(format!("{}{passed_over}", units::plural(sources.len() as u64, "job")));
    Ok(Status::Yes)
}

/// The descriptions of nets beside the sources, for models that are made of nets.
#[derive(Default)]
struct NetsBeside {
    /// Why jobs have no net, a line for each.
    unsaid: Vec<String>,
}

impl NetsBeside {
    /// The prototxt beside a source: `NAME.prototxt`, `NAME_deploy.prototxt` or `deploy.prototxt`; else the only one.
    /// MXNet's symbol is found when the job is done.
    fn of(&mut self, source: &Path) -> Option<NetFile> {
        if source.extension().is_none_or(|extension| extension != "caffemodel") {
            return None;
        }
        let stem = source.file_stem()?.to_string_lossy();
        let usual = [format!("{stem}.prototxt"), format!("{stem}_deploy.prototxt"), "deploy.prototxt".to_owned()];
        let usual = usual.iter().map(|name| source.with_file_name(name)).find(|path| path.is_file());
        if let Some(path) = usual {
            return Some(NetFile::Prototxt(path));
        }
        let beside =
            fs::read_dir(source.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")));
        let beside = beside.into_iter().flatten().filter_map(|file| Some(file.ok()?.file_name()));
        let mut beside: Vec<PathBuf> =
            beside.map(PathBuf::from).filter(|name| name.extension().is_some_and(|of| of == "prototxt")).collect();
        beside.sort();
        match &beside[..] {
            [one] => return Some(NetFile::Prototxt(source.with_file_name(one))),
            [] => self
                .unsaid
                .push(format!("{}: no prototxt lies beside it, and its own layers are taken", source.display())),
            several => {
                let names: Vec<_> = several.iter().map(|name| name.to_string_lossy()).collect();
                let names = listed(NAMED, &names);
                self.unsaid.push(format!("{}: its net could be any of {names}", source.display()));
            }
        }
        None
    }
}

/// The folder, or the file, before the first wildcard of a glob.
fn root_of(glob: &str) -> PathBuf {
    let parts = glob.split('/');
    let plain: Vec<&str> = parts.take_while(|part| !part.contains(['*', '?', '[', '{', '\\'])).collect();
    match &*plain.join("/") {
        "" if glob.starts_with('/') => PathBuf::from("/"),
        "" => PathBuf::from("."),
        root => PathBuf::from(root),
    }
}

/// A glob that names a folder means all files below that folder. Paths below `.` begin with `./`.
fn whole(glob: &str, root: &Path) -> String {
    let glob = if root == Path::new(".") && !glob.starts_with("./") { format!("./{glob}") } else { glob.to_owned() };
    if root.is_dir() && root == Path::new(&glob) { format!("{}/**", glob.trim_end_matches('/')) } else { glob }
}

/// The files of tensors that match, in order, and the others that do. A file that is broken is a job that fails.
fn sources(
    root: &Path,
    matches: &dyn Fn(&Path) -> bool,
    context: &Context,
) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Failure> {
    let (mut sources, mut others) = (Vec::new(), Vec::new());
    let mut files = Files::of(root);
    while let Some(path) = files.next() {
        signals::check()?;
        let path = path?;
        let opened = open_to_list(&path, &context.global);
        if path.is_dir() && opened.as_ref().map_or(true, |folder| folder.entries().is_empty()) {
            files.enter(&path)?;
            continue;
        }
        let is_member = path.ancestors().skip(1).any(Path::is_file);
        if !(is_member || matches(&path)) {
            continue;
        }
        match opened {
            Err(Error::NotTensors { .. }) => others.push(path),
            Err(Error::Several { file, members, more, .. }) => {
                if more > 0 {
                    let more = units::plural(more, "more tensor file");
                    return Err(Failure::new(format!("{}: holds {more} than are listed; unpack it", name(&path))));
                }
                files.insert(members.iter().map(|member| Path::new(&file).join(member)).collect());
            }
            _ => sources.push(path),
        }
    }
    Ok((sources, others))
}

/// The sources without the outputs of an earlier run, and these: files in the folder of the outputs, unless sources are
/// there; then files with the name of another source's output.
fn without_outputs(sources: Vec<PathBuf>, root: &Path, folder: &Path, to: Format) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let [root_real, folder_real] = [root, folder].map(real);
    if root_real.starts_with(&folder_real) {
        let outputs: HashSet<PathBuf> = outputs(&sources, root, folder, to)
            .iter()
            .zip(&sources)
            .filter(|(output, source)| output != source)
            .map(|(output, _)| real(output))
            .collect();
        sources.into_iter().partition(|source| !outputs.contains(&real(source)))
    } else {
        sources.into_iter().partition(|source| !real(source).starts_with(&folder_real))
    }
}

/// The output of each source: in the same place below `folder`, with the format's extension in place of its own, or
/// behind it where two outputs would have one name.
fn outputs(sources: &[PathBuf], root: &Path, folder: &Path, to: Format) -> Vec<PathBuf> {
    let extension = to.extensions().first().copied().unwrap_or_default();
    let below = |source: &PathBuf| {
        let below = source.strip_prefix(root).ok().filter(|below| !below.as_os_str().is_empty());
        below.map_or_else(|| source.file_name().unwrap_or_default().into(), Path::to_owned)
    };
    let full = |source: &PathBuf| {
        let mut name = below(source).into_os_string();
        name.push(".");
        name.push(extension);
        PathBuf::from(name)
    };
    let mut names: Vec<PathBuf> = sources.iter().map(|source| below(source).with_extension(extension)).collect();
    // A long name may be the short one of a third source. Long names differ as the sources do, so this ends.
    loop {
        let mut count: HashMap<PathBuf, usize> = HashMap::new();
        names.iter().for_each(|name| *count.entry(name.clone()).or_default() += 1);
        let mut is_changed = false;
        for (name, source) in names.iter_mut().zip(sources).filter(|(name, _)| count[*name] > 1) {
            is_changed |= *name != full(source);
            *name = full(source);
        }
        if !is_changed {
            return names.iter().map(|name| folder.join(name)).collect();
        }
    }
}

/// A job.
struct Line(Recipe);

impl Render for &Line {
    fn json(self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        let recipe = serde_json::to_value(&self.0).map_err(|e| Failure::new(format!("a job has no JSON: {e}")))?;
        Ok(json::plain_line(out, &recipe)?)
    }

    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        self.json(context, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_of_a_glob_is_before_its_wildcards() {
        for (glob, root) in [
            ("models/**", "models"),
            ("a/b/*.npz", "a/b"),
            ("*.npz", "."),
            ("/**", "/"),
            ("/a/{b,c}/d", "/a"),
            ("a.npz", "a.npz"),
        ] {
            assert_eq!(root_of(glob), Path::new(root), "{glob}");
        }
    }

    #[test]
    fn sources_of_one_name_keep_their_extensions() {
        let sources = ["m/a.npz", "m/a.params", "m/x/a.npz", "m/b"].map(PathBuf::from);
        let named = outputs(&sources, Path::new("m"), Path::new("out"), Format::Safetensors);
        let expected = ["a.npz.safetensors", "a.params.safetensors", "x/a.safetensors", "b.safetensors"];
        assert_eq!(named, expected.map(|name| Path::new("out").join(name)));
        // The long name of the first is the short one of the third.
        let sources = ["m/a.npz", "m/a.params", "m/a.npz.h5"].map(PathBuf::from);
        let named = outputs(&sources, Path::new("m"), Path::new("out"), Format::Safetensors);
        let expected = ["a.npz.safetensors", "a.params.safetensors", "a.npz.h5.safetensors"];
        assert_eq!(named, expected.map(|name| Path::new("out").join(name)));
        let one = outputs(&sources[..1], Path::new("m/a.npz"), Path::new("out/"), Format::Npz);
        assert_eq!(one, [Path::new("out/a.npz")]);
    }
}

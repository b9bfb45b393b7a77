//! What the tests share: where the data lie, checksums, and the report of what ran.

pub(crate) mod alloc;
pub(crate) mod archive;
pub(crate) mod blobs;
pub(crate) mod conversion;
pub(crate) mod hdf5;
pub(crate) mod message;
pub(crate) mod neoml;
pub(crate) mod receipt;
pub(crate) mod schemas;
pub(crate) mod tensors;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use blob_io::{Bytes, Checkpoint, Error};
use sha2::{Digest, Sha256};

/// A file or folder under `tests/data`.
pub(crate) fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(path)
}

/// A file or folder of the data that stay outside the repository (`caffe/real`, …), where they are at hand.
pub(crate) fn real(path: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("BLOB_REAL_DATA")?).join(path);
    folder.exists().then_some(folder)
}

/// The files of a folder, sorted, whose names the filter takes.
pub(crate) fn files(folder: &Path, take: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let listing = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut found: Vec<PathBuf> = listing
        .map(|entry| entry.expect("a folder can be listed").path())
        .filter(|path| path.is_file())
        .filter(|path| take(&path.file_name().expect("a file has a name").to_string_lossy()))
        .collect();
    found.sort();
    found
}

/// The checksum of bytes, in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where a text stands in bytes for the first time.
pub(crate) fn find(bytes: &[u8], text: &[u8]) -> usize {
    bytes.windows(text.len()).position(|window| window == text).unwrap_or_else(|| panic!("there is no {text:?}"))
}

/// The bytes with others written over them from `at`.
pub(crate) fn changed(bytes: &[u8], at: usize, change: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[at..at + change.len()].copy_from_slice(change);
    changed
}

/// A file of these bytes.
pub(crate) fn open(name: &str, bytes: &[u8]) -> Result<Checkpoint, Error> {
    Checkpoint::from_source(name, Box::new(Bytes(bytes.to_vec())))
}

/// Why a file of these bytes does not open.
pub(crate) fn refusal(name: &str, bytes: &[u8]) -> String {
    open(name, bytes).expect_err("it is broken").to_string()
}

/// Why a file of these bytes does not open or, where it does, its first array does not load.
pub(crate) fn trouble(name: &str, bytes: &[u8]) -> String {
    let opened = open(name, bytes);
    opened.and_then(|file| file.load(&file.entries()[0]).map(drop)).expect_err("it is broken").to_string()
}

/// Goes through a file of cases, one a line, below which stands, two columns in, what comes of it; lines of `#` and
/// empty ones are for readers. `UPDATE_EXPECT=1` writes what comes of them anew; read the difference before it goes in.
pub(crate) fn retell(file: &str, tell: impl Fn(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut told = String::new();
    for line in text.lines().filter(|line| !line.starts_with("  ")) {
        told += &format!("{line}\n");
        if !line.is_empty() && !line.starts_with('#') {
            // A mark shows blanks at an end, and an empty line.
            told.extend(tell(line).split_terminator('\n').map(|said| match said.trim_end() {
                "" if said.is_empty() => "  .\n".to_owned(),
                text if text.len() < said.len() => format!("  {said}⏎\n"),
                said => format!("  {said}\n"),
            }));
        }
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(path, told).expect("the cases can be written");
        return;
    }
    // A line is easier to read than the difference of two long texts.
    let lines = told.lines().map(Some).chain([None]).zip(text.lines().map(Some).chain([None]));
    for ((found, expected), number) in lines.zip(1..) {
        assert_eq!(found, expected, "{file}, line {number}; UPDATE_EXPECT=1 writes it anew");
    }
}

/// Says what ran ("caffe: 78 files, 14 real") or was not tested ("NOT TESTED: …"): on standard output, and in the file
/// that `BLOB_TEST_REPORT` names, which `cargo xtask ci` prints at its end.
pub(crate) fn report(line: &str) {
    println!("{line}");
    if let Some(path) = std::env::var_os("BLOB_TEST_REPORT") {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).expect("the report can be written");
        writeln!(file, "{line}").expect("the report can be written");
    }
}

/// The rows of a tab-separated table, without its `#` lines.
pub(crate) fn rows(path: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}

/// A folder that is removed at the end of a test.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// The path of a file in it, as an argument of the tool.
    pub(crate) fn file(&self, name: &str) -> String {
        self.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// A file of this content; returns its path.
    pub(crate) fn with(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.file(name);
        fs::write(&path, content).expect("written");
        path
    }
}

impl std::ops::Deref for Folder {
    type Target = tempfile::TempDir;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// What a run of the tool left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Asserts that the answer is yes.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Asserts that the answer is no.
    #[track_caller]
    pub(crate) fn no(self) -> Self {
        assert_eq!(self.code, Some(1), "{self:?}");
        self
    }

    /// Asserts that the tool could not answer, and says these words about it.
    #[track_caller]
    pub(crate) fn refused(self, words: &str) -> Self {
        assert_eq!(self.code, Some(2), "{self:?}");
        self.tells(words)
    }

    /// Asserts that these words are among the messages.
    #[track_caller]
    pub(crate) fn tells(self, words: &str) -> Self {
        assert!(self.err.contains(words), "{words:?}: {self:?}");
        self
    }

    /// Asserts that these words are on standard output.
    #[track_caller]
    pub(crate) fn shows(self, words: &str) -> Self {
        assert!(self.out.contains(words), "{words:?}: {self:?}");
        self
    }

    /// Standard output as lines of JSON, each of them of its schema.
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        let line = |l: &str| {
            let line = serde_json::from_str(l).unwrap_or_else(|e| panic!("{e} in {l}"));
            schemas::check(&line);
            line
        };
        self.out.lines().map(line).collect()
    }
}

/// The tool, built once for this run of the tests, in the profile and the folder of the tests themselves.
pub(crate) fn tool() -> &'static Path {
    static TOOL: OnceLock<PathBuf> = OnceLock::new();
    TOOL.get_or_init(|| {
        // `<target>/<profile>/deps/it-…`
        let tests = std::env::current_exe().expect("a running test has a file");
        let profile = tests.parent().and_then(Path::parent).expect("tests lie in deps");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "-q", "-p", "blob-cli", "--bin", "blob"]);
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.arg("--target-dir").arg(profile.parent().expect("a profile lies in a target"));
        let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status();
        assert!(built.expect("cargo runs").success(), "the tool cannot be built");
        profile.join(format!("blob{}", std::env::consts::EXE_SUFFIX))
    })
}

/// The tool's command, in `tests/data`, in a UTF-8 locale, with no variable that changes its colours.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(tool());
    command.args(args).current_dir(data(""));
    in_locale(&mut command);
    command
}

/// Gives a command a UTF-8 locale, and no variable that changes colours.
pub(crate) fn in_locale(command: &mut Command) {
    for name in ["CI", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LANG", "LC_CTYPE"] {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C.UTF-8");
}

/// Runs the tool to its end.
pub(crate) fn blob(args: &[&str]) -> Ran {
    blob_with(args, b"")
}

/// Runs the tool with these bytes as its standard input.
pub(crate) fn blob_with(args: &[&str], input: &[u8]) -> Ran {
    ran(command(args), input)
}

/// What the tool prints on a terminal of this width, which `script` provides; without `script` there is none.
pub(crate) fn on_terminal(columns: usize, args: &str, environment: &[(&str, &str)]) -> Option<String> {
    on_terminal_after(":", columns, args, environment)
}

/// The same, with a command of the shell run before it.
pub(crate) fn on_terminal_after(
    first: &str,
    columns: usize,
    args: &str,
    environment: &[(&str, &str)],
) -> Option<String> {
    let mut script = Command::new("script");
    // The shell sets COLUMNS itself when it has run `stty`.
    let set: Vec<String> = environment.iter().map(|(name, value)| format!("{name}='{value}'")).collect();
    let line =
        format!("{first}; stty cols {columns} rows 50; exec env {} '{}' {args}", set.join(" "), tool().display());
    script.args(["-qec", &line, "/dev/null"]).current_dir(data("")).stdin(Stdio::null());
    script
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm")
        // Colour shows in the logs of continuous integration, whatever the terminal.
        .env_remove("CI")
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS");
    let output = script.output().ok()?;
    Some(without_bar(&String::from_utf8(output.stdout).expect("output is UTF-8").replace('\r', "")))
}

/// What is left when a bar that work of half a second gets is wiped: on a busy machine any work may take that long.
fn without_bar(shown: &str) -> String {
    let mut parts = shown.split("\x1b[2K");
    let first = parts.next().unwrap_or_default();
    format!("{first}{}", parts.last().unwrap_or_default())
}

#[test]
fn a_bar_that_is_wiped_is_not_seen() {
    assert_eq!(without_bar("a\nb"), "a\nb");
    assert_eq!(without_bar("a\n\x1b[2K1 of 2\x1b[2K2 of 2\x1b[2Kb"), "a\nb");
}

/// A Python with NumPy, if one is at hand.
pub(crate) fn python() -> Option<String> {
    let python = std::env::var("BLOB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut asked = Command::new(&python);
    let asked = asked.args(["-c", "import numpy"]).output();
    let found = asked.is_ok_and(|output| output.status.success());
    if !found {
        report("NOT TESTED: what needs NumPy (no python3 with numpy; BLOB_PYTHON names one)");
    }
    found.then_some(python)
}

/// Runs any command to its end. It must not panic.
pub(crate) fn ran(mut command: Command, input: &[u8]) -> Ran {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the command starts");
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    let output = std::thread::scope(|scope| {
        // A tool that does not read its input closes it early.
        scope.spawn(move || stdin.write_all(input).ok());
        child.wait_with_output().expect("the command ends")
    });
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    let ran = Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
    assert!(!ran.err.contains("panicked"), "{ran:?}");
    ran
}

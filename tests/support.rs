//! Helpers that the tests share: paths of the data, checksums, runs of the tool, and the report of the files tested.

pub(crate) mod alloc;
pub(crate) mod archive;
pub(crate) mod blobs;
pub(crate) mod conversion;
pub(crate) mod floats;
pub(crate) mod hdf5;
pub(crate) mod message;
pub(crate) mod neoml;
pub(crate) mod onnx;
pub(crate) mod random;
pub(crate) mod receipt;
pub(crate) mod schemas;
pub(crate) mod tensors;
pub(crate) mod work;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use blob_io::{Bytes, Checkpoint, Error, Format, OpenOptions};
use sha2::{Digest, Sha256};

/// A file or folder under `tests/data`.
pub(crate) fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(path)
}

/// Opens a golden: the path of a file, or a path under `tests/data`.
pub(crate) fn opened(path: impl AsRef<Path>) -> Checkpoint {
    open_any(path).unwrap_or_else(|e| panic!("{e}"))
}

/// Opens a file that may be broken, or a golden. A bare V0 record has no magic number, so the format is given.
pub(crate) fn open_any(path: impl AsRef<Path>) -> Result<Checkpoint, Error> {
    let path = data("").join(path);
    let is_bare = path.ends_with("mxnet-0.9.5-2/raw_record.bin");
    let options = if is_bare { OpenOptions::new().from(Format::MxnetRecord) } else { OpenOptions::new() };
    options.open(&path)
}

/// A file or folder of the data outside the repository (`caffe/real`, …); `None` if not available.
pub(crate) fn real(path: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("BLOB_REAL_DATA")?).join(path);
    folder.exists().then_some(folder)
}

/// The files of a folder whose names the filter accepts, sorted.
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

/// The SHA-256 of bytes in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The offset of the first occurrence of a text in bytes.
pub(crate) fn find(bytes: &[u8], text: &[u8]) -> usize {
    bytes.windows(text.len()).position(|window| window == text).unwrap_or_else(|| panic!("there is no {text:?}"))
}

/// The bytes, overwritten with others from offset `at`.
pub(crate) fn changed(bytes: &[u8], at: usize, change: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[at..at + change.len()].copy_from_slice(change);
    changed
}

/// Opens a file of these bytes.
pub(crate) fn open(name: &str, bytes: &[u8]) -> Result<Checkpoint, Error> {
    Checkpoint::from_source(name, Box::new(Bytes(bytes.to_vec())))
}

/// The error for a file of these bytes that does not open.
pub(crate) fn refusal(name: &str, bytes: &[u8]) -> String {
    open(name, bytes).expect_err("it is broken").to_string()
}

/// The error for a file of these bytes that does not open, or whose first array does not load.
pub(crate) fn trouble(name: &str, bytes: &[u8]) -> String {
    let opened = open(name, bytes);
    opened.and_then(|file| file.load(&file.entries()[0]).map(drop)).expect_err("it is broken").to_string()
}

/// Compares the result of each case in a file with the expected one. A case is a line; the expected result follows it,
/// indented by two spaces. Empty lines and those that begin with `#` are comments. `UPDATE_EXPECT=1` rewrites the
/// results; review the difference before you commit it.
pub(crate) fn compare_cases(file: &str, result: impl Fn(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut actual = String::new();
    for line in text.lines().filter(|line| !line.starts_with("  ")) {
        actual += &format!("{line}\n");
        if !line.is_empty() && !line.starts_with('#') {
            // Marks make an empty line and trailing spaces visible.
            actual.extend(result(line).split_terminator('\n').map(|line| match line.trim_end() {
                "" if line.is_empty() => "  .\n".to_owned(),
                text if text.len() < line.len() => format!("  {line}⏎\n"),
                line => format!("  {line}\n"),
            }));
        }
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(path, actual).expect("the cases can be written");
        return;
    }
    // The first line that differs is easier to read than the difference of two long texts.
    let lines = actual.lines().map(Some).chain([None]).zip(text.lines().map(Some).chain([None]));
    for ((found, expected), number) in lines.zip(1..) {
        assert_eq!(found, expected, "{file}, line {number}; UPDATE_EXPECT=1 writes it anew");
    }
}

/// The bytes of a text with the escapes `\n`, `\r` and `\xHH`. Panics on others.
pub(crate) fn unescaped(text: &str) -> Vec<u8> {
    let mut parts = text.split('\\');
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        let (escape, rest) = part.split_at(if part.starts_with('x') { 3 } else { 1 });
        bytes.push(match escape {
            "n" => b'\n',
            "r" => b'\r',
            hex => u8::from_str_radix(&hex[1..], 16).unwrap(),
        });
        bytes.extend(rest.as_bytes());
    }
    bytes
}

/// Reports the files tested ("caffe: 78 files, 14 real") or the tests that did not run ("NOT TESTED: …"): prints a
/// line, and appends it to the file `BLOB_TEST_REPORT`, which `cargo xtask ci` prints at the end.
pub(crate) fn report(line: &str) {
    println!("{line}");
    if let Some(path) = std::env::var_os("BLOB_TEST_REPORT") {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).expect("the report can be written");
        writeln!(file, "{line}").expect("the report can be written");
    }
}

/// The rows of a tab-separated table, without comments and empty lines.
pub(crate) fn rows(path: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}

/// A temporary folder, removed at the end of a test.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// The path of a file in the folder, as an argument for the tool.
    pub(crate) fn file(&self, name: &str) -> String {
        self.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Writes a file with this content and returns its path.
    pub(crate) fn with(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.file(name);
        fs::write(&path, content).expect("written");
        path
    }
}

/// A folder with links to the goldens.
#[cfg(unix)]
pub(crate) fn goldens() -> Folder {
    let folder = Folder::new();
    for golden in fs::read_dir(data("")).expect("goldens") {
        let golden = golden.expect("a golden");
        std::os::unix::fs::symlink(golden.path(), folder.path().join(golden.file_name())).expect("a link");
    }
    folder
}

impl std::ops::Deref for Folder {
    type Target = tempfile::TempDir;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The exit code and the output of a run of the tool.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Asserts that the exit code is 0.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Asserts that the exit code is 1.
    #[track_caller]
    pub(crate) fn no(self) -> Self {
        assert_eq!(self.code, Some(1), "{self:?}");
        self
    }

    /// Asserts that the exit code is 2 and that standard error contains these words.
    #[track_caller]
    pub(crate) fn refused(self, words: &str) -> Self {
        assert_eq!(self.code, Some(2), "{self:?}");
        self.stderr_has(words)
    }

    /// Asserts that standard error contains these words.
    #[track_caller]
    pub(crate) fn stderr_has(self, words: &str) -> Self {
        assert!(self.err.contains(words), "{words:?}: {self:?}");
        self
    }

    /// Asserts that standard output contains these words.
    #[track_caller]
    pub(crate) fn stdout_has(self, words: &str) -> Self {
        assert!(self.out.contains(words), "{words:?}: {self:?}");
        self
    }

    /// Parses standard output as lines of JSON, and checks each against the schema.
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        let line = |l: &str| {
            let line = serde_json::from_str(l).unwrap_or_else(|e| panic!("{e} in {l}"));
            schemas::check(&line);
            line
        };
        self.out.lines().map(line).collect()
    }
}

/// The path of the tool: `BLOB_TOOL`, or built once per run, in the profile and target folder of the tests.
pub(crate) fn tool() -> &'static Path {
    static TOOL: OnceLock<PathBuf> = OnceLock::new();
    TOOL.get_or_init(|| {
        if let Some(built) = std::env::var_os("BLOB_TOOL") {
            return PathBuf::from(built);
        }
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

/// A command that runs the tool in `tests/data`, in a UTF-8 locale, without environment variables that change colours.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(tool());
    command.args(args).current_dir(data(""));
    in_locale(&mut command);
    command
}

/// Sets a UTF-8 locale for a command, and removes the environment variables that change colours.
pub(crate) fn in_locale(command: &mut Command) {
    for name in ["CI", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LANG", "LC_CTYPE"] {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C.UTF-8");
}

/// Runs the tool to the end.
pub(crate) fn blob(args: &[&str]) -> Ran {
    blob_with(args, b"")
}

/// Runs the tool with these bytes as standard input.
/// The tool's commands, as listed in the help.
pub(crate) fn commands() -> Vec<String> {
    let help = blob(&["--help"]).out;
    let listed =
        help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest).lines().take_while(|line| !line.is_empty());
    // A further line of a description is indented more.
    let names = listed.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    let names: Vec<String> = names.filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect();
    assert!(names.len() > 20 && names.contains(&"convert".to_owned()), "{help}");
    names
}

pub(crate) fn blob_with(args: &[&str], input: &[u8]) -> Ran {
    ran(command(args), input)
}

/// The output of the tool on a terminal of this width, which the command `script` provides; `None` without `script`.
pub(crate) fn on_terminal(columns: usize, args: &str, environment: &[(&str, &str)]) -> Option<String> {
    on_terminal_after(":", columns, args, environment)
}

/// Like [`on_terminal`], with a shell command that runs before the tool.
pub(crate) fn on_terminal_after(
    first: &str,
    columns: usize,
    args: &str,
    environment: &[(&str, &str)],
) -> Option<String> {
    let mut script = Command::new("script");
    // The shell sets COLUMNS itself after it has run `stty`, so variables are set by `env`.
    let set: Vec<String> = environment.iter().map(|(name, value)| format!("{name}='{value}'")).collect();
    let line =
        format!("{first}; stty cols {columns} rows 50; exec env {} '{}' {args}", set.join(" "), tool().display());
    script.args(["-qec", &line, "/dev/null"]).current_dir(data("")).stdin(Stdio::null());
    script
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm")
        // With CI set, the tool prints colours on any terminal.
        .env_remove("CI")
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS");
    let output = script.output().ok()?;
    Some(without_bar(&String::from_utf8(output.stdout).expect("output is UTF-8").replace('\r', "")))
}

/// Removes a progress bar that was drawn and cleared. It appears after half a second, which any work can take on a busy
/// machine.
fn without_bar(shown: &str) -> String {
    let mut parts = shown.split("\x1b[2K");
    let first = parts.next().unwrap_or_default();
    format!("{first}{}", parts.last().unwrap_or_default())
}

#[test]
fn a_cleared_progress_bar_is_removed() {
    assert_eq!(without_bar("a\nb"), "a\nb");
    assert_eq!(without_bar("a\n\x1b[2K1 of 2\x1b[2K2 of 2\x1b[2Kb"), "a\nb");
}

/// The output of a Python with NumPy for a script and arguments; `None` without such a Python. `BLOB_PYTHON` names one,
/// otherwise `python3` is tried.
pub(crate) fn by_python(script: &str, args: &[&str]) -> Option<String> {
    let python = std::env::var("BLOB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let import = Command::new(&python).args(["-c", "import numpy"]).output();
    if !import.is_ok_and(|output| output.status.success()) {
        report("NOT TESTED: what needs NumPy (no python3 with numpy; BLOB_PYTHON names one)");
        return None;
    }
    let run = Command::new(&python).args(["-c", script]).args(args).output().expect("python runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    Some(String::from_utf8(run.stdout).expect("UTF-8"))
}

/// Runs any command to the end, and asserts that there was no panic.
pub(crate) fn ran(mut command: Command, input: &[u8]) -> Ran {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the command starts");
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    let output = std::thread::scope(|scope| {
        // The write fails if the command ends without reading the input.
        scope.spawn(move || stdin.write_all(input).ok());
        child.wait_with_output().expect("the command ends")
    });
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    let ran = Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
    assert!(!ran.err.contains("panicked"), "{ran:?}");
    ran
}

//! The notes after `blob --help`, which are also sections of the manual, and the manual's environment section.

/// Title and text of each note.
pub(crate) const NOTES: [(&str, &str); 6] = [
    (
        "FILES",
        "`blob FILE` is `blob info FILE`. FILE may be `-` for standard input; a file that is called like a command is \
         reached with `./`. What a file is, its content says, not its name; --from overrides that.",
    ),
    (
        "PATTERNS",
        "PATTERN selects tensors: a name, a glob whose `*` matches any characters (also `/`), or `#3` for the tensor with \
         index 3, the first column of `ls`. Names with `@` are given by blob where a file has none of its own, or has one \
         twice: `@0` is a name and works as one; `#0` counts, whatever the names are.",
    ),
    (
        "NAMES",
        "In what people and line tools read, a backslash in a name is `\\\\`, and every character that shows nothing or \
         moves text is spelled out: `\\0`, `\\n`, `\\r`, `\\t`, `\\u{1b}`, `\\u{200b}`; a space at either end is `\\u{20}`. So \
         names that differ print differently, and each can be read back. With --ascii every character outside ASCII is \
         `\\u{…}`. JSON has the names themselves.",
    ),
    (
        "WIDTH",
        "On a terminal, tables obey its width: columns leave, then names are cut so that no two look alike. A name as it \
         is shown selects its tensor, and so does `#3`. These columns leave first, in this order. ls: OFFSET, PIECES, \
         LAYER TYPE, PARAMS, KIND, BYTES, DTYPE, SHAPE, WARNINGS. stats: L1, L2, DTYPE, SHAPE, ZERO, STD, MEAN, MIN, \
         MAX, NaN, Inf. \
         convert --dry-run: DTYPE, SHAPE, BYTES, CHANGES. formats: WHAT, READ, WRITE, EXTENSIONS, TESTED AGAINST. --wide \
         cuts and leaves out nothing.",
    ),
    (
        "PIPES",
        "To a pipe or a file, ls, stats, diff and graph, whose tables have a row a tensor or a layer, print lines for \
         programs: a header, then a line a row, separated by tabs, with exact numbers; the help of each names its \
         fields, which are stable: new ones come at the end. The other commands print there what a terminal shows, cut \
         nowhere. --table prints to a pipe what a terminal shows; --json prints JSON lines. A reader that leaves, as \
         `| head` does, has seen enough of a listing: exit code 0; what -o - writes it then lacks: 2. Errors, warnings and what \
         was written go to standard error. Binary data is never written to a terminal.",
    ),
    ("EXIT STATUS", EXIT),
];

const EXIT: &str = "0 yes; 1 the answer is no (a finding of verify, no tensor matched); 2 trouble (usage, a file that is \
                    broken or cannot be read); 130 interrupted. `verify` exits 1 for a broken file, 2 only for one that \
                    cannot be read.";

/// The environment variables that are read.
pub(crate) const ENVIRONMENT: [(&str, &str); 5] = [
    ("COLUMNS", "The width of tables on a terminal and with --table; without it, the terminal's own, else 80."),
    ("NO_COLOR", "If it is not empty, nothing is coloured, unless --color always is given."),
    ("CLICOLOR_FORCE", "If it is set and not 0, output is coloured also in a pipe; CLICOLOR=0 is like NO_COLOR."),
    ("TERM", "dumb means no colour."),
    (
        "LC_ALL, LC_CTYPE, LANG",
        "The first that is set says whether the terminal shows UTF-8; if not, output is as with --ascii.",
    ),
];

/// The notes after `blob --help`.
pub(crate) fn more() -> String {
    NOTES
        .map(|(title, text)| if title == "EXIT STATUS" { format!("Exit codes: {text}") } else { text.to_owned() })
        .join("\n\n")
}

//! The fields of every schema, in the order in which they are printed, each with a sentence for people.

use super::Is::{Either, Flag, List, Map, Nested, Object, OneOf, Real, Text, Whole};
use super::Presence::{Always, OrNull, Sometimes};
use super::{Field, Is, Presence, Schema};

const fn field(name: &'static str, is: Is, says: &'static str) -> Field {
    let presence = Always;
    Field { name, is, presence, says }
}

const fn with(name: &'static str, is: Is, presence: Presence, says: &'static str) -> Field {
    Field { name, is, presence, says }
}

const FILE: Field = field("file", Text, "the file as it was named; `standard input` for `-`");
const FORMAT: Field = field("format", Text, "the format's short name: `blob formats`");
const DIALECT: Field = field("dialect", Text, "its generation in words, empty where there is one");
const FILE_BYTES: Field = field("file_bytes", Whole, "the file's size");
const BYTES_READ: Field = field("bytes_read", Whole, "how much of it was read so far");
const NAME: Field = field("name", Text, "the tensor's name, unique in the file");
const SHAPE: Is = List(&Whole);
const DTYPE: Field = with("dtype", Text, OrNull, "the element type; `null` without one");
const WORDS: Is = List(&Text);

/// What went wrong.
const ERROR: &[Field] = &[
    field("reason", Text, "why, as a stable code"),
    with("subject", Text, OrNull, "the array or layer concerned, in words"),
    with("offset", Whole, OrNull, "the byte where it breaks"),
    field("message", Text, "why, in words"),
    with("help", Text, OrNull, "what can be done about it"),
];

const KINDS: &[&str] = &["data", "diff", "values", "indices", "indptr", "none"];

pub(super) const SCHEMAS: &[Schema] = &[
    Schema {
        name: "blob.error/1",
        command: "any command --json",
        says: "in place of a command's own line, where it has no answer for a file",
        fields: &[
            field("command", Text, "the command's name"),
            with("file", Text, OrNull, "the file, where it is about one"),
            field("error", Object(ERROR), "what went wrong"),
        ],
    },
    Schema {
        name: "blob.info/1",
        command: "blob info --json FILE...",
        says: "what a file is, from its headers",
        fields: &[
            FILE,
            FORMAT,
            DIALECT,
            FILE_BYTES,
            with(
                "gzip_bytes",
                Whole,
                OrNull,
                "the length of a gzip file as it is stored; file_bytes and offsets are those of what it unpacks to",
            ),
            field("tensors", Whole, "how many tensors it lists"),
            field("parameters", Whole, "their values, without diffs and indices"),
            field("tensor_bytes", Whole, "their bytes once loaded"),
            field("dtypes", Map(&Whole), "how many tensors of each dtype"),
            field("layers", Whole, "layers or records, with tensors or without"),
            field("diffs", Whole, "tensors that are diffs"),
            field("sparse", Whole, "sparse arrays"),
            field("none", Whole, "places without an array"),
            field("broken", Whole, "arrays that cannot be read"),
            with("largest", Object(LARGEST), OrNull, "the largest tensor"),
            field("metadata", Map(&Text), "what the file says of itself beside its tensors"),
            field("warnings", WORDS, "what is odd, the first 20"),
            field("warning_count", Whole, "how many there are"),
            field("errors", List(&Object(ERROR)), "why arrays cannot be read, the first 20"),
            BYTES_READ,
        ],
    },
    Schema {
        name: "blob.ls/1",
        command: "blob ls --json FILE [PATTERN...]",
        says: "the tensors of a file, from its headers",
        fields: &[
            FILE,
            FORMAT,
            DIALECT,
            FILE_BYTES,
            field("tensors_in_file", Whole, "how many there are, chosen or not"),
            field("warnings", WORDS, "what is odd about the file as a whole"),
            field("tensors", List(&Object(LISTED)), "the tensors that were chosen"),
            BYTES_READ,
        ],
    },
    Schema {
        name: "blob.show/1",
        command: "blob show --json FILE [TENSOR]",
        says: "the values of one tensor",
        fields: &[
            FILE,
            NAME,
            field("dtype", Text, "the element type"),
            field("stored_shape", SHAPE, "the tensor's shape"),
            with("slice", Text, OrNull, "the slice that was asked for"),
            field("shape", SHAPE, "the shape of the values below"),
            field(
                "values",
                Nested,
                "the values, as deep as the shape; NaN and Inf are strings. Cut short where `error` is set",
            ),
            with("error", Object(ERROR), OrNull, "why the values end too early"),
        ],
    },
    Schema {
        name: "blob.stats/1",
        command: "blob stats --json FILE [PATTERN...]",
        says: "what the values of tensors add up to",
        fields: &[
            FILE,
            FORMAT,
            with("axis", Whole, OrNull, "the axis of --per-channel"),
            field("tensors", List(&Either(MEASURED, NOT_MEASURED)), "each tensor, or each channel of it"),
            field("skipped", List(&Object(SKIPPED)), "tensors with nothing to measure"),
            with("error", Object(ERROR), OrNull, "what stopped the work before its end"),
        ],
    },
    Schema {
        name: "blob.verify/1",
        command: "blob verify --json FILE...",
        says: "whether a file is whole. A file that is not read is a line of `blob.error/1`",
        fields: &[
            FILE,
            with("format", Text, OrNull, "the format's short name; `null` where the file does not open"),
            with("file_bytes", Whole, OrNull, "the file's size"),
            field("tensors", Whole, "how many tensors it lists"),
            field("parameters", Whole, "their values"),
            field("findings", List(&Object(FINDING)), "what is wrong: the first 20, with --all all of them"),
            field("finding_count", Whole, "how many there are"),
            field("ok", Flag, "whether there are none and all was checked"),
            field("held", WORDS, "what was checked beyond the structure, and held"),
            field("notes", WORDS, "what is odd and not wrong, the first 20"),
            field("note_count", Whole, "how many there are"),
            with("help", Text, OrNull, "what can be done about it"),
            with("error", Object(ERROR), OrNull, "what kept the check from its end"),
        ],
    },
    Schema {
        name: "blob.convert/1",
        command: "blob convert --json IN -o OUT",
        says: "what was written",
        fields: &[
            FILE,
            field("output", Text, "where to"),
            field("from", Text, "the format that was read"),
            field("to", Text, "the format that was written"),
            field("dry_run", Flag, "whether nothing was written"),
            field("tensors", Whole, "how many tensors"),
            field("bytes_in", Whole, "the input's size"),
            field("changes", List(&Object(CHANGED)), "what was changed about tensors"),
            field("left_out", List(&Object(LEFT_OUT)), "what was not written"),
            field("warnings", WORDS, "what is odd about the input"),
            field("bytes_out", Whole, "the output's size"),
            with("blake3", Text, Sometimes, "the input's BLAKE3; not in a dry run"),
            with("sha256", Text, Sometimes, "the input's SHA-256, with --sha256"),
            with("seconds", Real, Sometimes, "how long it took"),
        ],
    },
    Schema {
        name: "blob.extract/1",
        command: "blob extract --json FILE [TENSOR] -o OUT",
        says: "which tensor was written",
        fields: &[
            FILE,
            field("output", Text, "where to"),
            field("to", OneOf(&["npy", "raw", "csv"]), "the format that was written"),
            NAME,
            field("dtype", Text, "the element type"),
            field("shape", SHAPE, "its shape"),
            field("bytes", Whole, "its bytes, without a header"),
        ],
    },
    Schema {
        name: "blob.formats/1",
        command: "blob formats --json",
        says: "what is read and written",
        fields: &[field("formats", List(&Object(FORMATS)), "each format")],
    },
];

const LARGEST: &[Field] = &[NAME, DTYPE, field("shape", SHAPE, "its shape"), field("bytes", Whole, "its bytes")];

const LISTED: &[Field] = &[
    field("index", Whole, "its place in the file: `#3`"),
    NAME,
    field("kind", OneOf(KINDS), "what it is"),
    with("layer_type", Text, OrNull, "the type of its layer, where it has one"),
    field("position", Whole, "the place of its layer or record"),
    DTYPE,
    with("shape", SHAPE, OrNull, "its shape; `null` without an array that can be read"),
    field("elements", Whole, "how many values"),
    field("bytes", Whole, "how many bytes once loaded"),
    with("offset", Whole, OrNull, "where its bytes begin in the file"),
    field("pieces", Whole, "in how many runs of bytes it lies; 0 where it is compressed"),
    with("sparse", Object(SPARSE), Sometimes, "the sparse array that it is a part of"),
    field("warnings", WORDS, "what is odd about it"),
    with("error", Object(ERROR), OrNull, "why it cannot be read"),
];

const SPARSE: &[Field] = &[
    field("kind", OneOf(&["row_sparse", "csr"]), "how it is stored"),
    field("name", Text, "the whole array's name"),
    field("shape", SHAPE, "its dense shape"),
];

const CHANNEL: Field = with("channel", Whole, Sometimes, "the index on the axis of --per-channel");

const MEASURED: &[Field] = &[
    NAME,
    field("dtype", Text, "the element type"),
    field("shape", SHAPE, "the whole tensor's shape"),
    CHANNEL,
    field("count", Whole, "values, NaN and Inf among them"),
    with("min", Real, OrNull, "the smallest value but NaN; exact for integers"),
    with("max", Real, OrNull, "the largest one"),
    with("mean", Real, OrNull, "the mean of the finite values"),
    with("std", Real, OrNull, "their standard deviation, the population's"),
    field("l1", Real, "the sum of their sizes"),
    field("l2", Real, "the root of the sum of their squares"),
    field("zeros", Whole, "how many are 0"),
    field("nan", Whole, "how many are NaN"),
    field("inf", Whole, "how many are infinite"),
    with("histogram", Object(HISTOGRAM), Sometimes, "with --hist, where a value is finite"),
];

const HISTOGRAM: &[Field] = &[
    field("min", Real, "the smallest finite value"),
    field("max", Real, "the largest one"),
    field("counts", List(&Whole), "values in bins of one width between the two"),
    field("left_out", Whole, "values that are NaN or Inf, in no bin"),
];

const NOT_MEASURED: &[Field] = &[
    NAME,
    DTYPE,
    with("shape", SHAPE, OrNull, "the tensor's shape, where it is known"),
    with("error", Object(ERROR), Always, "why it cannot be measured"),
];

const SKIPPED: &[Field] = &[
    NAME,
    field("shape", SHAPE, "its shape"),
    field(
        "reason",
        OneOf(&["no-array", "unsupported", "no-axis"]),
        "it has no array, a dtype that is not read, or not the axis",
    ),
];

const FINDING: &[Field] = &[
    field("reason", Text, "what is wrong, as a stable code"),
    with("tensor", Text, OrNull, "the tensor's name, where it is about one"),
    with("subject", Text, OrNull, "the array or layer concerned, in words"),
    with("offset", Whole, OrNull, "the byte where it breaks"),
    field("message", Text, "what is wrong, in words"),
];

const CHANGED: &[Field] = &[NAME, field("changes", WORDS, "what was changed")];

const LEFT_OUT: &[Field] = &[NAME, field("reason", Text, "why, in words")];

const FORMATS: &[Field] = &[
    field("name", Text, "its short name, for --from and --to"),
    field("title", Text, "what it is"),
    field("extensions", WORDS, "file names end so"),
    field("read", Flag, "whether it is read"),
    field("write", Flag, "whether it is written"),
    field("tested_against", Text, "whose files and readers"),
];

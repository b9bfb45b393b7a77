//! Malformed MXNet files: each has a stated outcome, an error with its place or a documented acceptance.
//!
//! What real MXNet does with them (it crashes, hangs, or takes gigabytes) stands beside their originals, in RESULTS-*.tsv.

use blob_io::{Checkpoint, Entry, Kind};

use crate::support::{data, files, report};

/// What a malformed file must give.
enum Outcome {
    /// An error at this byte, whose message holds this text.
    Error(u64, &'static str),
    /// No list of MXNet at all: a message that holds this text.
    Other(&'static str),
    /// This listing, with a warning or a context that holds this text, where one is given. Each has its reason.
    Listing(&'static str, &'static str),
    /// It opens, as in MXNet; making the array dense fails at this byte with this text, where MXNet crashes or checks.
    Dense(u64, &'static str),
}

use Outcome::{Dense, Error, Listing, Other};

const TWO: &str = "a f32 2×3, b i32 4";
const CSR: &str = "c#values f32 3, c#indptr i64 4, c#indices i64 3";
const ROWS: &str = "r#values f32 2×2, r#indices i64 2";
const STALE: &str = "stale";
const COUNT: &str = "a number of arrays that the file can hold";
const KEYS: &str = "no keys, or one for each array";
const RECORD: &str = "a record (0xF993FAC8";
const AXES: &str = "the number of axes: expected 0 to 32";
const MANY: &str = "at most 32 axes";
const STYPE: &str = "the storage type: expected 0 (dense)";
const FLAG: &str = "the type flag: expected 0 to 12";
const SIZE: &str = "a shape whose size fits 63 bits";
const DIM: &str = "axis 0: expected a dimension of 0 to";
const COLUMN: &str = "column numbers that ascend";
const ROW: &str = "row numbers that ascend";
const LEFT: &str = "bytes are left at the end";

/// Every file in `data/mxnet/malformed`.
const MALFORMED: &[(&str, Outcome)] = &[
    // Type flag 7 with bytes other than 0 and 1: kept, as MXNet keeps them.
    ("bool_not01", Listing("a bool 2×3, b i32 4", "")),
    ("count_0", Error(24, KEYS)),
    ("count_1000", Error(16, COUNT)),
    ("count_1048576", Error(16, COUNT)),
    ("count_1099511627776", Error(16, COUNT)),
    ("count_144115188075855872", Error(16, COUNT)),
    ("count_18446744073709551615", Error(16, COUNT)),
    ("count_2305843009213693952", Error(16, COUNT)),
    ("count_3", Error(160, "the number of keys needs 8 bytes, but 2 are left")),
    ("count_4294967296", Error(16, COUNT)),
    ("csr_1d", Dense(100, "two axes of the array")),
    ("csr_3d", Dense(116, "two axes of the array")),
    ("csr_aux_shape_neg", Error(84, DIM)),
    ("csr_aux_type_99", Error(76, "an index array's type flag: expected 0 to 12, found 99")),
    ("csr_idx_dup", Dense(144, COLUMN)),
    ("csr_idx_neg", Dense(160, COLUMN)),
    ("csr_idx_oob", Dense(168, COLUMN)),
    ("csr_idx_unsorted", Dense(144, COLUMN)),
    ("csr_indptr_decreasing", Dense(136, "never descend")),
    ("csr_indptr_first1", Dense(120, "begin at 0")),
    ("csr_indptr_neg", Dense(128, "never descend")),
    ("csr_indptr_past", Dense(144, "nor pass the number of values, found 99 as element 3")),
    ("csr_indptr_short", Dense(108, "a row pointer for each row, and one more")),
    // The first extent of a storage shape is never believed; -3 loads in MXNet 1.0 only.
    ("csr_sshape_2e40", Listing(CSR, STALE)),
    ("csr_sshape_neg", Listing(CSR, STALE)),
    ("csr_sshape_too_big", Listing(CSR, STALE)),
    ("csr_sshape_too_small", Listing(CSR, STALE)),
    // Devices are shown, never obeyed and never validated, as in MXNet; cpu(n) is not worth showing.
    ("devid_-5", Listing(TWO, "")),
    ("devid_17", Listing(TWO, "")),
    ("devtype_-1", Listing(TWO, "device type -1(0)")),
    ("devtype_0", Listing(TWO, "device type 0(0)")),
    ("devtype_2", Listing(TWO, "gpu(0)")),
    ("devtype_2147483647", Listing(TWO, "device type 2147483647(0)")),
    ("devtype_3", Listing(TWO, "cpu_pinned(0)")),
    ("devtype_6", Listing(TWO, "device type 6(0)")),
    ("devtype_7", Listing(TWO, "device type 7(0)")),
    ("header_byteswapped", Other("big-endian")),
    // Python's MXNet fails on keys that are not UTF-8 and drops repeated ones; the arrays are all there.
    ("key_badutf8", Listing("\\xFF\\xFE f32 2×3, b i32 4", "")),
    ("key_dup", Listing("a f32 2×3, a@1 i32 4", "used before")),
    ("key_empty", Listing(" f32 2×3, b i32 4", "")),
    ("keylen_0", Error(160, "its key needs 353 bytes, but 2 are left")),
    ("keylen_1099511627776", Error(152, "its key needs 1099511627776 bytes")),
    ("keylen_4611686018427387904", Error(152, "its key needs 4611686018427387904 bytes")),
    // An unnamed list with bytes behind it, as in MXNet.
    ("nkeys_0", Listing("@0 f32 2×3, @1 i32 4", LEFT)),
    ("nkeys_1048576", Error(136, KEYS)),
    ("nkeys_1099511627776", Error(136, KEYS)),
    ("nkeys_3", Error(136, KEYS)),
    // None arrays of the old writers, which MXNet 1.5 and later cannot read any more.
    ("none_v0", Listing("a none scalar, b f32 2×3", "")),
    ("none_v1", Listing("a none scalar, b f32 2×3", "")),
    // No writer stores an ndim of -1, and MXNet's loader overflows on it.
    ("none_v1_m1", Error(28, "found -1")),
    ("none_v2_m1", Error(32, "found -1")),
    ("none_v2_undef", Error(28, "found -1 (undefined)")),
    // MXNet's C loader reads it.
    ("none_v3_dim_m1", Listing("a none scalar, b f32 2×3", "")),
    ("none_v3_undef_m1", Error(28, "expected 0 (dense), found -1")),
    ("ok_sparse", Listing("c#values f32 3, c#indptr i64 4, c#indices i64 3, r#values f32 2×2, r#indices i64 2", "")),
    ("ok_v0", Listing(TWO, "")),
    ("ok_v1", Listing(TWO, "")),
    ("ok_v3", Listing("a f32 2×3, s f32 scalar, z f32 0×3", "")),
    ("only_header", Error(16, "the number of arrays needs 8 bytes, but 0 are left")),
    ("poc_ndim_minus1_64k", Error(32, "found -1")),
    ("recmagic_00000005", Error(64, KEYS)),
    ("recmagic_01000000", Error(24, RECORD)),
    ("recmagic_10000000", Error(24, RECORD)),
    ("recmagic_deadbeef", Error(24, "found 0xDEADBEEF")),
    ("recmagic_f993facb", Error(24, RECORD)),
    ("recmagic_ffffffff", Error(24, RECORD)),
    ("reserved_nonzero", Listing(TWO, "at byte 8: the reserved word is not 0")),
    ("rsp_idx_dup", Dense(124, ROW)),
    ("rsp_idx_unsorted", Dense(124, ROW)),
    ("rsp_more_rows_than_shape", Dense(116, ROW)),
    ("rsp_sshape_stale0", Listing(ROWS, STALE)),
    ("rsp_sshape_stale0x2", Listing(ROWS, STALE)),
    ("short_7", Error(0, "the list magic needs 8 bytes, but 7 are left")),
    ("stype_-1", Error(28, "found -1 (undefined)")),
    ("stype_-2", Error(28, STYPE)),
    ("stype_-2147483648", Error(28, STYPE)),
    ("stype_127", Error(28, STYPE)),
    ("stype_2", Error(72, FLAG)),
    ("stype_3", Error(28, STYPE)),
    ("sweepbase_v1", Listing(TWO, "")),
    ("sweepbase_v2", Listing(TWO, "")),
    ("sweepbase_v3", Listing("a f32 2×3, s f32 scalar, z f32 0×3", "")),
    ("trailing_garbage", Listing(TWO, "at byte 162: 35 bytes are left")),
    ("two_lists_concat", Listing(TWO, "at byte 162: 162 bytes are left")),
    ("typeflag_-1", Error(60, FLAG)),
    ("typeflag_-2147483648", Error(60, FLAG)),
    ("typeflag_12", Listing("a bf16 2×3, b i32 4", "")),
    ("typeflag_13", Error(60, FLAG)),
    ("typeflag_2147483647", Error(60, FLAG)),
    // MXNet 2 reads and writes 8 to 11.
    ("typeflag_8", Listing("a i16 2×3, b i32 4", "")),
    ("typeflag_9", Listing("a u16 2×3, b i32 4", "")),
    ("v0_dims_huge2", Error(28, SIZE)),
    ("v0_dims_u32max", Error(44, "the data needs 17179869180 bytes, but 86 are left")),
    ("v1_ndim_-2", Error(28, AXES)),
    // The bytes are a none array, a V0 one, no keys, and 94 more; the old MXNet reads them so, too.
    ("v1_ndim_0", Listing("@0 none scalar, @1 f32 0×3", LEFT)),
    ("v1_ndim_1048576", Error(28, MANY)),
    ("v1_ndim_2147483647", Error(28, MANY)),
    ("v2_dims_1e12", Error(56, "the data needs 4000000000000 bytes")),
    ("v2_dims_2e31", Error(56, "the data needs 8589934592 bytes")),
    ("v2_dims_2e62", Error(36, SIZE)),
    ("v2_dims_i64max", Error(36, SIZE)),
    ("v2_dims_neg1", Error(36, "found -1")),
    ("v2_dims_neg6", Error(36, DIM)),
    ("v2_dims_negneg", Error(36, DIM)),
    ("v2_dims_ovf_bytes", Error(36, SIZE)),
    ("v2_dims_ovf_to_six", Error(36, SIZE)),
    ("v2_dims_ovf_to_zero", Error(36, SIZE)),
    ("v2_dims_wrap_to_6_x19", Error(36, SIZE)),
    // An array without elements whose other extent is huge needs nothing.
    ("v2_dims_zero_ok", Listing("a f32 0×4611686018427387904, b i32 4", "")),
    ("v2_dims_zerohuge", Error(68, KEYS)),
    ("v2_ndim_-2", Error(32, AXES)),
    ("v2_ndim_-3", Error(32, AXES)),
    // As v1_ndim_0; MXNet's C loader reads it so.
    ("v2_ndim_0", Listing("@0 none scalar, @1 f32 0×3", LEFT)),
    ("v2_ndim_1", Error(72, RECORD)),
    ("v2_ndim_100000", Error(32, MANY)),
    ("v2_ndim_1048576", Error(32, MANY)),
    ("v2_ndim_2147483647", Error(32, MANY)),
    ("v2_ndim_268435456", Error(32, "found 268435456, which is 16 on a big-endian machine")),
    ("v3_dims_2e31", Error(56, "the data needs 8589934592 bytes")),
    ("v3_dims_2e62", Error(36, SIZE)),
    ("v3_dims_i64max", Error(36, SIZE)),
    // A dim of -1 ends a V3 record; what follows is no record.
    ("v3_dims_neg1", Error(68, FLAG)),
    ("v3_dims_neg2", Error(36, DIM)),
    ("v3_dims_neg6", Error(36, DIM)),
    ("v3_dims_negneg", Error(36, DIM)),
    ("v3_dims_ovf_bytes", Error(36, SIZE)),
    ("v3_dims_ovf_to_six", Error(36, SIZE)),
    ("v3_dims_ovf_to_zero", Error(36, SIZE)),
    ("v3_dims_wrap_to_6_x11", Error(36, SIZE)),
    ("v3_dims_zero", Error(68, KEYS)),
    ("v3_ndim_-2", Error(32, AXES)),
    ("v3_ndim_0", Error(49, RECORD)),
];

#[test]
fn every_malformed_file_has_its_stated_outcome() {
    let found = files(&data("mxnet/malformed"), |name| name.ends_with(".nd"));
    let names: Vec<_> = found.iter().map(|path| path.file_stem().unwrap().to_str().unwrap()).collect();
    let stated: Vec<_> = MALFORMED.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, stated, "the table has a line for each file, in order");
    for (path, (name, outcome)) in found.iter().zip(MALFORMED) {
        match (Checkpoint::open(path), outcome) {
            (Err(e), Error(offset, text)) => stated_error(name, &e, Some(*offset), text),
            (Err(e), Other(text)) => stated_error(name, &e, None, text),
            (Ok(file), Listing(listing, told)) => {
                let lines: Vec<_> = file.entries().iter().map(listed).collect();
                assert_eq!(lines.join(", "), *listing, "{name}");
                stated_oddity(name, &file, told);
                for entry in file.entries().iter().filter(|e| e.kind() != Kind::None) {
                    file.load(entry).unwrap_or_else(|e| panic!("{e}"));
                }
            }
            (Ok(file), Dense(offset, text)) => {
                for entry in file.entries() {
                    file.load(entry).unwrap_or_else(|e| panic!("{e}"));
                    let error = file.load_dense(entry).unwrap_err();
                    stated_error(name, &error, Some(*offset), text);
                }
            }
            (Ok(_), _) => panic!("{name} opens"),
            (Err(e), _) => panic!("{e}"),
        }
    }
    report(&format!("mxnet: {} malformed files", found.len()));
}

fn stated_error(name: &str, error: &blob_io::Error, offset: Option<u64>, text: &str) {
    let message = error.to_string();
    assert_eq!(error.offset(), offset, "{message}");
    assert!(message.contains(text), "{name}: {text:?} is not in {message:?}");
}

/// The one oddity that a listing is told with, or none.
fn stated_oddity(name: &str, file: &Checkpoint, told: &str) {
    let of_entries = file.entries().iter().flat_map(Entry::warnings).map(|w| w.to_string());
    let of_file = file.warnings().iter().map(ToString::to_string);
    let contexts = file.metadata().iter().map(|(_, value)| value.clone());
    let all: Vec<_> = of_file.chain(of_entries).chain(contexts).collect();
    match told {
        "" => assert!(all.is_empty(), "{name}: {all:?}"),
        told => assert!(all.iter().any(|line| line.contains(told)), "{name}: {all:?}"),
    }
}

fn listed(entry: &Entry) -> String {
    let dtype = entry.dtype().map_or("none", |d| d.name());
    format!("{} {dtype} {}", entry.name(), entry.shape())
}

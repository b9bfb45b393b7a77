//! Attacks that once got through, under the names that they were given then: small files that cost gigabytes, lying
//! receipts, files taken for others. Each is held off by a test of its own; this table prints which.

use std::fs;

use crate::support::message::{floats, len, shape};
use crate::support::{Folder, blob, report};
use crate::{hdf5_links, hostile_receipt, told_apart, work};

/// The name of each attack, and the failure where it gets through.
const ATTACKS: [(&str, fn()); 13] = [
    ("neoml_quadratic", work::neoml_net_of_false_layers::does_linear_work_in_linear_memory),
    ("hdf5_links", hdf5_links::many_names_of_one_dataset_share_its_chunks),
    ("hdf5_unwritten", hdf5_links::what_was_never_written_is_bounded_over_all_names),
    ("fold_names", a_refusal_to_fold_names_few_of_many_readers),
    ("receipt_alloc", hostile_receipt::a_receipt_of_transforms_on_shapes_without_values_computes_nothing),
    ("receipt_panic", hostile_receipt::a_receipt_of_transforms_on_shapes_without_values_computes_nothing),
    ("receipt_pickle", hostile_receipt::no_receipt_makes_a_pickle),
    ("receipt_npz", hostile_receipt::a_frame_of_an_npz_holds_its_tensors_alone),
    ("tar_by_from", told_apart::the_callers_format_wins_over_a_checksum),
    ("tar_by_chance", told_apart::values_that_add_up_to_zero_are_no_tar),
    ("sums", hdf5_links::sums_of_sizes_never_wrap),
    ("zip_size", told_apart::a_member_that_inflates_to_nothing_is_refused_whatever_its_size),
    ("private_mode", a_private_file_is_replaced_by_one_that_is_private_from_the_start),
];

#[test]
fn every_attack_by_name_is_held_off() {
    for (name, fails_where_it_gets_through) in ATTACKS {
        fails_where_it_gets_through();
        report(&format!("{name}: held"));
    }
}

/// A thousand BatchNorms of long names read one value: the refusal of each once named all others.
fn a_refusal_to_fold_names_few_of_many_readers() {
    let layer = |name: &str, kind: &[u8], ends: &[(u64, &str)]| {
        let ends = ends.iter().flat_map(|(field, end)| len(*field, end.as_bytes()));
        [len(1, name.as_bytes()), len(2, kind), ends.collect()].concat()
    };
    let weights = len(7, &[shape(&[1, 1]), floats(&[1.0])].concat());
    let product = [layer("c", b"InnerProduct", &[(3, "x"), (4, "y")]), weights].concat();
    let mut net = [len(1, b"n"), len(100, &layer("in", b"Input", &[(4, "x")])), len(100, &product)].concat();
    for i in 0..1000 {
        net.extend(len(100, &layer(&format!("{i:b>300}"), b"BatchNorm", &[(3, "y"), (4, &format!("t{i}"))])));
    }
    let folder = Folder::new();
    let refused = blob(&["fold", "-n", &folder.with("names.caffemodel", net), "-o", &folder.file("x.caffemodel")]);
    assert_eq!(refused.code, Some(2), "{}", &refused.err[..refused.err.len().min(1000)]);
    assert!(refused.err.len() < 64 << 10, "{} bytes are said", refused.err.len());
}

/// A file that only its owner can read is replaced by one that the owner alone can read, even while it is written.
#[cfg(unix)]
fn a_private_file_is_replaced_by_one_that_is_private_from_the_start() {
    use std::os::unix::fs::PermissionsExt;

    use blob_io::{IfExists, Output};

    let folder = Folder::new();
    let target = folder.with("private.npz", "old");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).expect("its owner may");
    let output = Output::create(&target, IfExists::Replace).expect("begun");
    for file in fs::read_dir(folder.path()).expect("a folder").map(|file| file.expect("a file")) {
        let mode = file.metadata().expect("a file").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", file.file_name());
    }
    output.finish().expect("complete");
    assert_eq!(fs::metadata(&target).expect("a file").permissions().mode() & 0o777, 0o600);
}

#[cfg(not(unix))]
fn a_private_file_is_replaced_by_one_that_is_private_from_the_start() {}

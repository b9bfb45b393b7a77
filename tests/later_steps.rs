//! A file that was converted before: what its receipt says was done counts in every later step.

use blob_convert::transform::Rgb;
use blob_convert::verify::{self, Remark};
use blob_convert::{Options, Silent, Target, plan_into};
use blob_io::{Checkpoint, Format};

use crate::folds::{SAFETENSORS, bytes_of, file};
use crate::support::{Folder, blob};

/// The values 0, 1, 2, ….
fn counted(count: usize) -> Vec<f32> {
    (0..count).map(|i| i as f32).collect()
}

/// Writes a file without a receipt.
fn write(path: &str, format: Format, tensors: &[(&str, &[usize], &[f32])]) {
    std::fs::write(path, bytes_of(format, tensors)).expect("written");
}

/// The values of a tensor of a file.
fn values(path: &str, name: &str) -> Vec<f32> {
    let file = Checkpoint::open(path).expect("opens");
    let bytes = file.view(file.entry(name).unwrap_or_else(|| panic!("no {name:?} in {path}"))).expect("views");
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four"))).collect()
}

/// The second swap gives the first file again, and the receipts of both list the same step.
#[test]
fn axes_that_are_swapped_twice_are_proved_from_the_file_between() {
    let folder = Folder::new();
    let [first, second, third] = ["a.npz", "b.npz", "c.npz"].map(|name| folder.file(name));
    write(&first, Format::Npz, &[("w", &[2, 3], &counted(6))]);
    for (from, to) in [(&first, &second), (&second, &third)] {
        blob(&["transpose", from, "w", "--perm", "1,0", "-o", to]).ok();
        blob(&["verify", to, "--against", from]).ok();
    }
    assert_eq!(values(&second, "w"), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert_eq!(values(&third, "w"), counted(6));
    // Two files of equal steps, neither made from the other, are compared as they are.
    let again = folder.file("again.safetensors");
    blob(&["transpose", &first, "w", "--perm", "1,0", "-o", &again]).ok();
    let (ours, theirs) = (Checkpoint::open(&again).expect("opens"), Checkpoint::open(&second).expect("opens"));
    let mut found = Vec::new();
    let compared = verify::against(&ours, &theirs, &Silent, &mut |remark| {
        if let Remark::Finding(finding) = remark {
            found.push(finding.message);
        }
    });
    assert_eq!((compared.expect("is compared").redone, found), (0, vec![]));
}

/// What a base of HDF5 gets is told like what any other base gets.
#[test]
fn a_guess_on_the_way_into_hdf5_is_a_loss() {
    let weights = [("first/0", &[2, 3, 1, 1][..], &counted(6)[..])];
    let (source, base) = (file(Format::Npz, &weights), file(Format::Hdf5, &weights));
    let options = |strict| Options::new(SAFETENSORS).with(|options| options.strict = strict).transform(Rgb);
    let plan = plan_into(&source, &base, &options(false), &Target::Stdout).expect("a plan");
    let kinds: Vec<&str> = plan.changes().iter().map(|group| group.change.effect.name()).collect();
    assert_eq!(kinds, ["transformed", "guessed"]);
    let refused = plan_into(&source, &base, &options(true), &Target::Stdout).expect_err("a guess").to_string();
    assert!(refused.contains("taken for weights of the first convolution"), "{refused}");
}

//! Members of an archive with one name, and one that is called `.`.

use std::fs;

use crate::archives::{TINY, alone, contents, header};
use crate::support::{data, open, refusal};

/// `tar cf x.tar a a` writes the file, then a hard link to itself.
#[test]
fn a_file_that_tar_was_given_twice_is_read_and_a_dot_is_a_name() {
    let params = fs::read(data(TINY)).expect("readable");
    let file = |name: &str| {
        let size = format!("{:011o}\0", params.len());
        let header = header("x", b'0', |bytes| {
            bytes[124..136].copy_from_slice(size.as_bytes());
            bytes[0] = name.as_bytes()[0];
        });
        [header, params.clone(), vec![0; params.len().next_multiple_of(512) - params.len()]].concat()
    };
    let link = |kind: u8| header("a", kind, |bytes| bytes[157] = b'a');
    let twice = [file("a"), link(b'1'), vec![0; 1024]].concat();
    assert_eq!(contents(&open("x.tar", &twice).expect("opens")), alone(TINY));
    // A symbolic link to itself leads nowhere.
    assert!(open("x.tar", &[file("a"), link(b'2'), vec![0; 1024]].concat()).is_err());
    let said = refusal("x.tar", &[file("."), file("b"), vec![0; 1024]].concat());
    assert!(said.contains("x.tar/.") || said.contains("\".\""), "{said}");
}

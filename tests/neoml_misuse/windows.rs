//! The rows about windows: misuses, and correct uses that fail only in NeoML.

use blob_core::{Error, Part, Window};

use super::{METHOD, Outcome, REFERENCE, UNSIGNED, ints};
use crate::support::blobs::{counting, shape};
use Outcome::{Impossible, Ordinary, Refused};

pub(super) fn refused(case: &str) -> Option<Outcome> {
    Some(match case {
        "window: longer than the parent" => Refused(
            || counting(&[3, 2]).make_window(4).unwrap_err(),
            |e| matches!(e, Error::StepsOutOfRange { start: 0, end: 4, extent: 3, .. }),
        ),
        "window: SetParentPos past the end" => Refused(
            || counting(&[3, 2]).make_window(2).unwrap().set_pos(2).unwrap_err(),
            |e| matches!(e, Error::StepsOutOfRange { start: 2, end: 4, extent: 3, .. }),
        ),
        "window: SetParentPos(-1), then read" | "window: SetParentPos(-1), then write" => Refused(
            || counting(&[3, 2]).make_window(2).unwrap().shift(-1).unwrap_err(),
            |e| matches!(e, Error::StepsOutOfRange { start: -1, end: 1, extent: 3, .. }),
        ),
        "window: size -1" => Impossible(UNSIGNED),
        "window: of a null parent" => Impossible(REFERENCE),
        "window: GetParentPos of a blob that is no window" | "window: SetParentPos of a blob that is no window" => {
            Impossible(METHOD)
        }
        "window: ReinterpretDimensions" => Impossible("a window has no such method; its copy does"),
        "window: Serialize (store)" => Impossible("what writes files takes blobs; a window's copy is one"),
        _ => return None,
    })
}

pub(super) fn ordinary(case: &str) -> Option<Outcome> {
    Some(Ordinary(match case {
        "window: size 0" => || {
            let window = counting(&[3, 2]).make_window(0).unwrap();
            assert_eq!((window.as_ref().shape().dims(), window.as_ref().to_blob().unwrap().count()), (&[0, 2][..], 0));
        },
        "window: kept after the last pointer to the parent is gone" => || {
            let window = counting(&[3, 2]).make_window(2).unwrap();
            assert_eq!(*window.part(Part::Data).elements::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0]);
        },
        "window: parent move-assigned from another blob (frees the parent's memory), then read through the window" => {
            || {
                let mut blob = counting(&[3, 2]);
                let window = blob.make_window(1).unwrap();
                blob = ints(&[1]);
                assert_eq!(blob.data().elements::<i32>().unwrap().len(), 1);
                assert_eq!(*window.part(Part::Data).elements::<f32>().unwrap(), [0.0, 1.0]);
            }
        }
        "window: parent moved out, the new owner destroyed, then read through the window" => || {
            let blob = counting(&[3, 2]);
            let window = blob.make_window(1).unwrap();
            drop(Box::new(blob));
            assert_eq!(*window.part(Part::Data).elements::<f32>().unwrap(), [0.0, 1.0]);
        },
        "window of window: outer shifted after the inner was made, inner stays where it was" => || {
            let mut outer = counting(&[10]).make_window(4).unwrap();
            let inner = outer.make_window(1).unwrap();
            outer.shift(3).unwrap();
            assert_eq!(*inner.part(Part::Data).elements::<f32>().unwrap(), [3.0]);
        },
        "window: parent reinterpreted to one step, then the window moved" => || {
            let mut blob = counting(&[3, 2]);
            let mut window = blob.make_window(2).unwrap();
            blob.reinterpret(shape(&[1, 6])).unwrap();
            window.set_pos(1).unwrap();
            assert_eq!(*window.part(Part::Data).elements::<f32>().unwrap(), [2.0, 3.0, 4.0, 5.0]);
            assert!(window.set_pos(2).is_err());
        },
        "window: TransferDataToThisThread" => || {
            let mut window = counting(&[3, 2]).make_window(1).unwrap();
            assert_eq!(
                std::thread::spawn(move || {
                    window.shift(2).unwrap();
                    window.part(Part::Data).elements::<f32>().unwrap().to_vec()
                })
                .join()
                .unwrap(),
                [4.0, 5.0]
            );
        },
        "window: GetCopy and GetClone are ordinary blobs" => || {
            let blob = counting(&[3, 2]);
            let window: Window = blob.make_window(1).unwrap();
            let mut copy = window.as_ref().to_blob().unwrap();
            copy.reinterpret(shape(&[2, 1])).unwrap();
            copy.data_mut().elements::<f32>().unwrap().fill(9.0);
            assert!(!copy.memory(Part::Data).ptr_eq(blob.memory(Part::Data)));
            assert_eq!(blob.data().elements::<f32>().unwrap()[0], 0.0);
        },
        _ => return None,
    }))
}

//! Compares windows bit for bit with the table that the real NeoML wrote: reads at every position, a fill through a
//! window, a fill through a window of that window, and the blob after it.

use blob_core::{Element, Part, Window};
use serde_json::Value;

use crate::support::neoml::{expect, inputs, number, table};
use crate::support::report;

/// The values with which the table's writer filled a window, and the window in it.
trait Cell: Element {
    const FILLS: [Self; 2];
}

impl Cell for f32 {
    const FILLS: [f32; 2] = [2.5, -1.25];
}

impl Cell for i32 {
    const FILLS: [i32; 2] = [-7, 99];
}

#[test]
fn windows_are_neomls() {
    let rows = table("cpp/windows.jsonl");
    let (mut reads, mut nested) = (0, 0);
    for row in &rows {
        let (row_reads, row_nested) = match row["type"].as_str() {
            Some("float") => check_row::<f32>(row),
            _ => check_row::<i32>(row),
        };
        reads += row_reads;
        nested += row_nested;
    }
    assert_eq!((rows.len(), reads, nested), (54, 216, 37));
    let rows = rows.len();
    report(&format!(
        "neoml windows: {rows} rows, {reads} reads, {rows} fills and {nested} through a window of a window"
    ));
}

/// Checks a row: reads at every position, fills, fills through a window in the window, and compares the blob. Returns
/// the number of reads, and of windows in the window.
fn check_row<T: Cell>(row: &Value) -> (usize, usize) {
    let blob = inputs(row).remove(0);
    let mut window = blob.make_window(number(&row["size"])).unwrap();
    let steps = row["steps"].as_array().unwrap();
    for step in steps {
        window.set_pos(number(&step["pos"])).unwrap();
        let copy = window.as_ref().to_blob().unwrap();
        expect(&copy, &step["window"], row);
        assert_eq!(window.part(Part::Data).elements::<T>().unwrap()[..], copy.data().elements::<T>().unwrap()[..]);
    }
    window.set_pos(number(&row["fill_pos"])).unwrap();
    window.part_mut(Part::Data).elements::<T>().unwrap().fill(T::FILLS[0]);
    let nested = &row["nested"];
    if !nested.is_null() {
        fill_nested::<T>(&window, nested);
    }
    expect(&blob, &row["parent_after"], row);
    (steps.len(), usize::from(!nested.is_null()))
}

fn fill_nested<T: Cell>(window: &Window, row: &Value) {
    let mut inner = window.make_window(number(&row["size"])).unwrap();
    inner.set_pos(number(&row["pos"])).unwrap();
    inner.part_mut(Part::Data).overwrite::<T>().unwrap().fill(T::FILLS[1]);
    assert_eq!(inner.parent().is_some(), row["parent_is_window"].as_bool().unwrap());
    assert!(row["owner_is_root"].as_bool().unwrap() && window.parent().is_none());
    assert!(inner.as_ref().owner().memory(Part::Data).ptr_eq(window.as_ref().owner().memory(Part::Data)));
    assert_eq!(inner.as_ref().steps().start, window.pos() + inner.pos());
}

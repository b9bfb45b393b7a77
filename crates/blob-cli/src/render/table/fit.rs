//! Which columns of a table are shown in a width, and how wide each is. Pure.
//!
//! Columns leave before names are cut, and further ones before two names would look alike.

use super::{GAP, Kind, LAST, MIN_TEXT};

/// A column as the cells would have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) kind: Kind,
    pub(super) title: usize,
    pub(super) width: usize,
    /// The widest word of a text.
    pub(super) word: usize,
    pub(super) drop_order: Option<u8>,
}

/// The width of each column in a table of at most `most` columns; `None` for one that leaves. `distinct` says whether
/// the names still differ when cut to a width.
pub(super) fn fit(columns: &[Asked], most: usize, distinct: &mut dyn FnMut(usize) -> bool) -> Vec<Option<usize>> {
    let word = columns.iter().map(|column| column.word).max().unwrap_or_default();
    // Columns leave so that no word of a text is broken, if that helps.
    let (mut shown, mut text) = without(columns, most, MIN_TEXT.max(word));
    if total(columns, &shown, text) > most {
        (shown, text) = without(columns, most, MIN_TEXT);
    }
    let name = columns.iter().position(|column| matches!(column.kind, Kind::Name(_)));
    let mut room = usize::MAX;
    if total(columns, &shown, text) > most {
        text = 0;
        match name {
            None => while total(columns, &shown, text) > most && drop_next(columns, &mut shown, u8::MAX) {},
            Some(name) => (room, text) = room_for_names(columns, name, &mut shown, most, distinct),
        }
    }
    let spare = most.saturating_sub(total_with(columns, &shown, text, room));
    let widths = columns.iter().zip(&shown).map(|(column, shown)| {
        let spare = if column.kind == Kind::Text { spare } else { 0 };
        shown.then(|| column.width.min(column.least(text, room).saturating_add(spare)))
    });
    widths.collect()
}

/// The columns that are left where texts are wrapped to `text`, before any name is cut.
fn without(columns: &[Asked], most: usize, text: usize) -> (Vec<bool>, usize) {
    let mut shown = vec![true; columns.len()];
    while total(columns, &shown, text) > most && drop_next(columns, &mut shown, LAST) {}
    (shown, text)
}

/// Drops columns until the names have enough room to differ. Returns that room, and the width that texts are wrapped
/// to.
fn room_for_names(
    columns: &[Asked],
    name: usize,
    shown: &mut [bool],
    most: usize,
    distinct: &mut dyn FnMut(usize) -> bool,
) -> (usize, usize) {
    let Kind::Name(least) = columns[name].kind else { return (usize::MAX, 0) };
    loop {
        let room = |shown: &[bool], text| most.saturating_sub(total_with(columns, shown, text, 0));
        for text in [MIN_TEXT, 0] {
            let room = room(shown, text);
            if room >= least.min(columns[name].width) && distinct(room) {
                return (room, text);
            }
        }
        if !drop_next(columns, shown, u8::MAX) {
            return (room(shown, 0).max(1), 0);
        }
    }
}

/// Drops the shown column of the lowest order up to `last`, if there is one. The names stay.
fn drop_next(columns: &[Asked], shown: &mut [bool], last: u8) -> bool {
    let order = |at: &usize| columns[*at].drop_order.filter(|order| *order < last || last == u8::MAX);
    let next = (0..columns.len()).filter(|at| shown[*at] && order(at).is_some()).min_by_key(order);
    next.inspect(|at| shown[*at] = false).is_some()
}

fn total(columns: &[Asked], shown: &[bool], text: usize) -> usize {
    total_with(columns, shown, text, usize::MAX)
}

/// The width of the table with texts wrapped to `text` columns and names cut to `room`.
fn total_with(columns: &[Asked], shown: &[bool], text: usize, room: usize) -> usize {
    let shown = columns.iter().zip(shown).filter(|(_, shown)| **shown);
    shown.map(|(column, _)| column.least(text, room) + GAP).sum::<usize>().saturating_sub(GAP)
}

impl Asked {
    /// The column's needed width, where texts are wrapped to `text` or to the title's width, and names cut to `room`.
    fn least(&self, text: usize, room: usize) -> usize {
        match self.kind {
            Kind::Name(_) => self.width.min(room),
            Kind::Text => self.width.min(text.max(self.title)),
            _ => self.width,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(kind: Kind, width: usize, drop_order: impl Into<Option<u8>>) -> Asked {
        Asked { kind, title: 4, width, word: 0, drop_order: drop_order.into() }
    }

    #[test]
    fn columns_leave_before_names_are_cut_and_more_where_two_would_be_alike() {
        let columns = [
            asked(Kind::Right, 3, None),
            asked(Kind::Name(8), 30, None),
            asked(Kind::Left, 10, LAST),
            asked(Kind::Left, 10, 2),
            asked(Kind::Left, 10, 1),
        ];
        let fitted = |most| fit(&columns, most, &mut |room| room >= 20);
        assert_eq!(fitted(71), [Some(3), Some(30), Some(10), Some(10), Some(10)]);
        assert_eq!(fitted(70), [Some(3), Some(30), Some(10), Some(10), None]);
        assert_eq!(fitted(47), [Some(3), Some(30), Some(10), None, None]);
        // 20 columns tell the names apart.
        assert_eq!(fitted(46), [Some(3), Some(29), Some(10), None, None]);
        assert_eq!(fitted(37), [Some(3), Some(20), Some(10), None, None]);
        assert_eq!(fitted(36), [Some(3), Some(30), None, None, None]);
        assert_eq!(fitted(24), [Some(3), Some(19), None, None, None]);
    }

    #[test]
    fn columns_leave_before_a_word_is_broken_if_that_keeps_it_whole() {
        let text = Asked { word: 38, ..asked(Kind::Text, 90, u8::MAX) };
        let columns = [asked(Kind::Name(8), 40, None), asked(Kind::Left, 10, 1), text];
        let fitted = |most| fit(&columns, most, &mut |_| true);
        assert_eq!(fitted(100), [Some(40), Some(10), Some(46)]);
        assert_eq!(fitted(91), [Some(40), None, Some(49)]);
        assert_eq!(fitted(80), [Some(40), None, Some(38)]);
        assert_eq!(fitted(79), [Some(40), Some(10), Some(25)]);
    }
}

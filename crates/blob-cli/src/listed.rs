//! The first of many things, and the number of all: a hostile file makes any list long.

/// At most `MOST` things, and how many there were.
pub(crate) struct Listed<T, const MOST: usize> {
    pub(crate) first: Vec<T>,
    pub(crate) count: u64,
}

impl<T, const MOST: usize> Default for Listed<T, MOST> {
    fn default() -> Self {
        Self { first: Vec::new(), count: 0 }
    }
}

impl<T, const MOST: usize> Listed<T, MOST> {
    /// Counts a thing, and keeps the thing if among the first.
    pub(crate) fn push(&mut self, thing: impl FnOnce() -> T) {
        self.count += 1;
        if self.first.len() < MOST {
            self.first.push(thing());
        }
    }

    /// The number of things that are not among the first.
    pub(crate) fn more(&self) -> u64 {
        self.count - self.first.len() as u64
    }
}

impl<T, const MOST: usize> FromIterator<T> for Listed<T, MOST> {
    fn from_iter<I: IntoIterator<Item = T>>(things: I) -> Self {
        let mut listed = Self::default();
        things.into_iter().for_each(|thing| listed.push(|| thing));
        listed
    }
}

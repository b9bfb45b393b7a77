//! How long new names may become: rules that repeat what they match grow names without end.

/// The longest name that blob reads again.
const LONGEST: usize = 1 << 16;

/// All new names together: the longest header of safetensors, 100 MB.
const TOGETHER: usize = 100_000_000;

/// The room that is left for new names.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    left: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { left: TOGETHER }
    }
}

impl Room {
    /// The most bytes of the next name.
    #[must_use]
    pub fn most(&self) -> usize {
        LONGEST.min(self.left)
    }

    /// Takes a name; `None` where that is too long.
    pub fn take(&mut self, name: &str) -> Option<()> {
        self.left = self.left.checked_sub(name.len()).filter(|_| name.len() <= LONGEST)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_all_names_have_an_end() {
        let (mut room, long) = (Room::default(), "x".repeat(LONGEST));
        assert_eq!((room.take(&(long.clone() + "x")), room.most()), (None, LONGEST));
        let taken = (0..).take_while(|_| room.take(&long).is_some()).count();
        assert_eq!(taken, TOGETHER / LONGEST);
        assert!(room.most() < LONGEST && room.take("b").is_some());
    }
}

//! Names that occur once: ONNX has one namespace for inputs, weights and all values in between.

use std::collections::HashMap;

/// The names so far.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// How many names each name has led to.
    taken: HashMap<String, u32>,
}

impl Names {
    /// The name, or where the name is taken, the name with a colon and the first number from 2 on that is free.
    pub(crate) fn claim(&mut self, name: &str) -> String {
        let Some(count) = self.taken.get(name).copied() else {
            self.taken.insert(name.to_owned(), 1);
            return name.to_owned();
        };
        let free = (count + 1..).map(|number| (number, format!("{name}:{number}")));
        let (number, own) = free.into_iter().find(|(_, own)| !self.taken.contains_key(own)).unwrap_or_default();
        self.taken.insert(name.to_owned(), number);
        self.taken.insert(own.clone(), 1);
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_once() {
        let mut names = Names::default();
        let given = ["a", "a:2", "a", "a", "a:2"].map(|name| names.claim(name));
        assert_eq!(given, ["a", "a:2", "a:3", "a:4", "a:2:2"]);
    }
}

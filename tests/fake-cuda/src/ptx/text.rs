//! Splits the text into words and punctuation marks, each with the line, and gives a cursor. Dots, dollars
//! and percent signs are parts of words.

/// A word or a mark.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Word(String),
    Mark(char),
}

/// Reads the tokens one after the other.
pub(crate) struct Cursor {
    tokens: Vec<(Token, u32)>,
    at: usize,
}

impl Cursor {
    pub(crate) fn new(text: &str) -> Result<Cursor, String> {
        let mut tokens = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split("//").next().unwrap_or_default();
            if line.contains("/*") {
                return Err(format!("line {}: a comment over lines", index + 1));
            }
            let mut rest = line.trim_start();
            while let Some(first) = rest.chars().next() {
                let is_word = |c: char| c.is_ascii_alphanumeric() || "._$%".contains(c);
                let len = if first == '"' {
                    rest[1..].find('"').map_or(rest.len(), |end| end + 2)
                } else if is_word(first) {
                    rest.find(|c| !is_word(c)).unwrap_or(rest.len())
                } else {
                    first.len_utf8()
                };
                let token = if is_word(first) || first == '"' {
                    Token::Word(rest[..len].to_string())
                } else {
                    Token::Mark(first)
                };
                tokens.push((token, index as u32 + 1));
                rest = rest[len..].trim_start();
            }
        }
        Ok(Cursor { tokens, at: 0 })
    }

    /// The line of the token that comes next, or of the last one.
    pub(crate) fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |(_, line)| *line)
    }

    /// An error at this line.
    pub(crate) fn error<T>(&self, text: impl std::fmt::Display) -> Result<T, String> {
        Err(format!("line {}: {text}", self.line()))
    }

    pub(crate) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    /// Whether the token after the next one is this mark.
    pub(crate) fn is_followed_by(&self, mark: char) -> bool {
        self.tokens.get(self.at + 1).is_some_and(|(token, _)| *token == Token::Mark(mark))
    }

    pub(crate) fn is_at(&self, mark: char) -> bool {
        self.peek() == Some(&Token::Mark(mark))
    }

    /// Consumes the mark if that is next.
    pub(crate) fn take(&mut self, mark: char) -> bool {
        let is_next = self.is_at(mark);
        self.at += usize::from(is_next);
        is_next
    }

    /// Consumes a mark that must be next.
    pub(crate) fn expect(&mut self, mark: char) -> Result<(), String> {
        if self.take(mark) { Ok(()) } else { self.error(format!("`{mark}` expected, not {:?}", self.peek())) }
    }

    /// The word that comes next.
    pub(crate) fn peek_word(&self) -> Option<&str> {
        match self.peek() {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// Consumes a word that must be next.
    pub(crate) fn word(&mut self) -> Result<String, String> {
        match self.peek_word().map(str::to_string) {
            Some(word) => {
                self.at += 1;
                Ok(word)
            }
            None => self.error(format!("a word expected, not {:?}", self.peek())),
        }
    }

    /// Consumes an integer, or a float whose bits are written as `0f…` or `0d…`.
    pub(crate) fn number(&mut self) -> Result<u64, String> {
        let is_negative = self.take('-');
        let word = self.word()?;
        match number(&word) {
            Some(value) if is_negative => Ok(value.wrapping_neg()),
            Some(value) => Ok(value),
            None => self.error(format!("a number expected, not `{word}`")),
        }
    }
}

/// The value of a number's text.
pub(crate) fn number(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches('U');
    let hexadecimal = ["0x", "0f", "0F", "0d", "0D"].iter().find_map(|start| digits.strip_prefix(start));
    match hexadecimal {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    }
}

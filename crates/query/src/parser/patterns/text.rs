//! Text of a PATTERN: variables, sequences, alternations and quantifiers.

use crate::error::{Error, Result};
use entresol_streams::{PATTERN_VARIABLES_MAX, Pattern};

/// Greatest number in a quantifier.
const TIMES_MAX: u32 = 10_000;

/// Text of a pattern; in parentheses if it has parts and is one itself.
pub(super) fn written(pattern: &Pattern, variables: &[String], is_part: bool) -> String {
    let joined = |parts: &[Pattern], separator: &str| {
        let parts: Vec<String> = parts.iter().map(|part| written(part, variables, true)).collect();
        let text = parts.join(separator);
        if is_part { format!("({text})") } else { text }
    };
    match pattern {
        Pattern::Variable(variable) => variables.get(*variable).cloned().unwrap_or_default(),
        Pattern::Sequence(parts) => joined(parts, " "),
        Pattern::Alternation(parts) => joined(parts, " | "),
        Pattern::Repetition { of, least, most, is_reluctant } => {
            let times = match (least, most) {
                (0, None) => "*".to_owned(),
                (1, None) => "+".to_owned(),
                (0, Some(1)) => "?".to_owned(),
                (least, None) => format!("{{{least},}}"),
                (least, Some(most)) => format!("{{{least},{most}}}"),
            };
            let reluctant = if *is_reluctant { "?" } else { "" };
            format!("{}{times}{reluctant}", written(of, variables, true))
        }
    }
}

/// Parser of the text of a pattern.
pub(super) struct PatternText {
    parts: Vec<char>,
    at: usize,
    variables: Vec<String>,
}

impl PatternText {
    pub(super) fn new(text: &str) -> PatternText {
        PatternText { parts: text.chars().collect(), at: 0, variables: Vec::new() }
    }

    pub(super) fn parse(mut self) -> Result<(Pattern, Vec<String>)> {
        let pattern = self.alternation()?;
        if let Some(other) = self.peek() {
            return Err(wrong(&format!("\"{other}\"")));
        }
        if pattern.matches_empty() {
            return Err(Error::unsupported("a PATTERN that matches no rows at all"));
        }
        if pattern.repeats_empty() {
            return Err(Error::unsupported(
                "a PATTERN with a quantifier of a part that matches no rows at all: (A?)* is A*",
            ));
        }
        Ok((pattern, self.variables))
    }

    /// Next character that is no space.
    fn peek(&mut self) -> Option<char> {
        while self.parts.get(self.at).is_some_and(|part| part.is_whitespace()) {
            self.at += 1;
        }
        self.parts.get(self.at).copied()
    }

    fn takes(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        self.at += usize::from(is_next);
        is_next
    }

    fn alternation(&mut self) -> Result<Pattern> {
        let mut parts = vec![self.sequence()?];
        while self.takes('|') {
            parts.push(self.sequence()?);
        }
        Ok(if parts.len() == 1 { parts.swap_remove(0) } else { Pattern::Alternation(parts) })
    }

    fn sequence(&mut self) -> Result<Pattern> {
        let mut parts = Vec::new();
        while self.peek().is_some_and(|next| next != '|' && next != ')') {
            parts.push(self.repetition()?);
        }
        match parts.len() {
            0 => Err(wrong("an empty part")),
            1 => Ok(parts.swap_remove(0)),
            _ => Ok(Pattern::Sequence(parts)),
        }
    }

    fn repetition(&mut self) -> Result<Pattern> {
        let of = if self.takes('(') {
            let inner = self.alternation()?;
            if !self.takes(')') {
                return Err(wrong("a parenthesis that is not closed"));
            }
            inner
        } else {
            Pattern::Variable(self.variable()?)
        };
        let Some((least, most)) = self.quantifier()? else { return Ok(of) };
        let is_reluctant = self.takes('?');
        Ok(Pattern::Repetition { of: Box::new(of), least, most, is_reluctant })
    }

    /// Least and greatest number of times.
    fn quantifier(&mut self) -> Result<Option<(u32, Option<u32>)>> {
        for (sign, times) in [('*', (0, None)), ('+', (1, None)), ('?', (0, Some(1)))] {
            if self.takes(sign) {
                return Ok(Some(times));
            }
        }
        if !self.takes('{') {
            return Ok(None);
        }
        let least = self.number()?;
        let most = if self.takes(',') { self.number()? } else { least };
        if !self.takes('}') || (least.is_none() && most.is_none()) {
            return Err(wrong("a quantifier other than ?, *, +, {n}, {n,}, {n,m} and {,m}"));
        }
        let least = least.unwrap_or(0);
        if most.is_some_and(|most| most < least || most == 0) {
            return Err(wrong(&format!("the quantifier {{{least},{}}}", most.unwrap_or_default())));
        }
        Ok(Some((least, most)))
    }

    fn number(&mut self) -> Result<Option<u32>> {
        let mut digits = String::new();
        while let Some(digit) = self.peek().filter(char::is_ascii_digit) {
            digits.push(digit);
            self.at += 1;
        }
        if digits.is_empty() {
            return Ok(None);
        }
        let number = digits.parse().ok().filter(|number| *number <= TIMES_MAX);
        number
            .map(Some)
            .ok_or_else(|| wrong(&format!("the number {digits} in a quantifier, at most {TIMES_MAX},")))
    }

    /// Number of the variable that is named next.
    fn variable(&mut self) -> Result<usize> {
        let is_quoted = self.takes('"');
        let is_part =
            |part: &char| if is_quoted { *part != '"' } else { part.is_alphanumeric() || *part == '_' };
        let rest = self.parts.get(self.at..).unwrap_or_default();
        let name: String = rest.iter().copied().take_while(is_part).collect();
        if name.is_empty() {
            let found = rest.first().map_or_else(|| "its end".to_owned(), |other| format!("\"{other}\""));
            return Err(wrong(&found));
        }
        self.at += name.chars().count() + usize::from(is_quoted);
        let name = if is_quoted { name } else { name.to_lowercase() };
        if let Some(known) = self.variables.iter().position(|known| *known == name) {
            return Ok(known);
        }
        if self.variables.len() == PATTERN_VARIABLES_MAX {
            return Err(wrong(&format!("more than {PATTERN_VARIABLES_MAX} variables")));
        }
        self.variables.push(name);
        Ok(self.variables.len() - 1)
    }
}

/// Refusal of a pattern.
fn wrong(found: &str) -> Error {
    Error::Syntax(format!(
        "syntax error: PATTERN with {found}: there are variables, sequences, |, parentheses, and quantifiers with or without ?"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_parsed() {
        let parse = |text: &str| PatternText::new(text).parse();
        let (pattern, variables) = parse("a (B | \"C d\"+?){2,} a?").unwrap();
        assert_eq!(variables, ["a", "b", "C d"]);
        let of = Pattern::Repetition {
            of: Box::new(Pattern::Alternation(vec![
                Pattern::Variable(1),
                Pattern::Repetition {
                    of: Box::new(Pattern::Variable(2)),
                    least: 1,
                    most: None,
                    is_reluctant: true,
                },
            ])),
            least: 2,
            most: None,
            is_reluctant: false,
        };
        let end = Pattern::Repetition {
            of: Box::new(Pattern::Variable(0)),
            least: 0,
            most: Some(1),
            is_reluctant: false,
        };
        assert_eq!(written(&pattern, &variables, false), "a (b | C d+?){2,} a?");
        assert_eq!(pattern, Pattern::Sequence(vec![Pattern::Variable(0), of, end]));
        for (text, expected) in [
            ("", "an empty part"),
            ("a | ", "an empty part"),
            ("(a", "not closed"),
            ("a)", "\")\""),
            ("a{}", "a quantifier other than"),
            ("a{3,2}", "the quantifier {3,2}"),
            ("a{20000}", "the number 20000"),
            ("^ a", "\"^\""),
            ("a*", "matches no rows at all"),
            ("(a?)* b", "(A?)* is A*"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

//! Automaton of a pattern: the sequences of variables that it matches, in the order of preference.
//!
//! A pattern is compiled into instructions, and run over rows by threads in the order of preference: a greedy
//! quantifier prefers one more row, a reluctant one none, an alternation its first branch. A thread that reaches the end
//! is the match if no thread before it lives on. So each row is looked at once for each thread, and nothing is tried
//! again. The automaton knows neither rows nor conditions: its caller says which threads a row takes on.

use std::collections::HashSet;

/// Maximum of the instructions of a pattern: counted quantifiers are copies.
pub(crate) const INSTRUCTIONS_MAX: usize = 4096;

/// Pattern of variables, each of which matches one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// Row that the condition of a variable, by its number, accepts.
    Variable(usize),
    /// Patterns one after another.
    Sequence(Vec<Pattern>),
    /// One of several patterns, the first that matches.
    Alternation(Vec<Pattern>),
    /// Repeated pattern.
    Repetition {
        /// Pattern that is repeated.
        of: Box<Pattern>,
        /// Least number of times.
        least: u32,
        /// Greatest number of times; none has no bound.
        most: Option<u32>,
        /// True if fewer times are preferred.
        is_reluctant: bool,
    },
}

impl Pattern {
    /// Tells whether it matches no rows at all.
    pub fn matches_empty(&self) -> bool {
        match self {
            Pattern::Variable(_) => false,
            Pattern::Sequence(parts) => parts.iter().all(Pattern::matches_empty),
            Pattern::Alternation(parts) => parts.iter().any(Pattern::matches_empty),
            Pattern::Repetition { of, least, .. } => *least == 0 || of.matches_empty(),
        }
    }

    /// Tells whether a quantifier may repeat a pattern that matches no rows: whether one more time is preferred to none
    /// would have no meaning.
    pub fn repeats_empty(&self) -> bool {
        match self {
            Pattern::Variable(_) => false,
            Pattern::Sequence(parts) | Pattern::Alternation(parts) => {
                parts.iter().any(Pattern::repeats_empty)
            }
            Pattern::Repetition { of, least, most, .. } => {
                (of.matches_empty() && *most != Some(*least)) || of.repeats_empty()
            }
        }
    }

    /// Greatest number of a variable.
    pub(crate) fn last_variable(&self) -> usize {
        match self {
            Pattern::Variable(variable) => *variable,
            Pattern::Sequence(parts) | Pattern::Alternation(parts) => {
                parts.iter().map(Pattern::last_variable).max().unwrap_or(0)
            }
            Pattern::Repetition { of, .. } => of.last_variable(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Instruction {
    /// Takes a row of a variable, and goes on behind it.
    Row(usize),
    /// Goes on at one of these, the first preferred.
    Split(Vec<usize>),
    Match,
}

/// Compiled pattern.
#[derive(Debug)]
pub(crate) struct Automaton {
    instructions: Vec<Instruction>,
}

/// Place where a thread goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Instruction that takes a row of a variable.
    Row {
        /// Number of the instruction.
        at: usize,
        /// Variable of the row.
        variable: usize,
    },
    /// The pattern has matched.
    Match,
}

impl Automaton {
    /// Compiles a pattern; an error says why it cannot be.
    pub(crate) fn new(pattern: &Pattern) -> Result<Automaton, String> {
        if pattern.matches_empty() {
            return Err("the pattern matches no rows at all".to_owned());
        }
        if pattern.repeats_empty() {
            return Err("a quantifier repeats a part of the pattern that matches no rows at all".to_owned());
        }
        let mut automaton = Automaton { instructions: Vec::new() };
        automaton.compile(pattern)?;
        automaton.add(Instruction::Match)?;
        Ok(automaton)
    }

    fn add(&mut self, instruction: Instruction) -> Result<usize, String> {
        if self.instructions.len() == INSTRUCTIONS_MAX {
            return Err(format!(
                "the pattern has more than {INSTRUCTIONS_MAX} parts; quantifiers count as copies"
            ));
        }
        self.instructions.push(instruction);
        Ok(self.instructions.len() - 1)
    }

    fn compile(&mut self, pattern: &Pattern) -> Result<(), String> {
        match pattern {
            Pattern::Variable(variable) => self.add(Instruction::Row(*variable)).map(drop),
            Pattern::Sequence(parts) => parts.iter().try_for_each(|part| self.compile(part)),
            Pattern::Alternation(parts) => self.alternate(parts),
            Pattern::Repetition { of, least, most, is_reluctant } => {
                (0..*least).try_for_each(|_| self.compile(of))?;
                match most {
                    None => self.repeat(of, *is_reluctant),
                    Some(most) => self.optional(of, most.saturating_sub(*least), *is_reluctant),
                }
            }
        }
    }

    /// Branches one of which is taken; each ends with a jump behind the last.
    fn alternate(&mut self, parts: &[Pattern]) -> Result<(), String> {
        let split = self.add(Instruction::Split(Vec::new()))?;
        let (mut branches, mut ends) = (Vec::new(), Vec::new());
        for part in parts {
            branches.push(self.instructions.len());
            self.compile(part)?;
            ends.push(self.add(Instruction::Split(Vec::new()))?);
        }
        let behind = self.instructions.len();
        self.instructions[split] = Instruction::Split(branches);
        for end in ends {
            self.instructions[end] = Instruction::Split(vec![behind]);
        }
        Ok(())
    }

    /// Loop without a bound.
    fn repeat(&mut self, of: &Pattern, is_reluctant: bool) -> Result<(), String> {
        let split = self.add(Instruction::Split(Vec::new()))?;
        self.compile(of)?;
        self.add(Instruction::Split(vec![split]))?;
        self.instructions[split] = self.choice(split + 1, is_reluctant);
        Ok(())
    }

    /// Copies each of which may be left out, with those behind it.
    fn optional(&mut self, of: &Pattern, times: u32, is_reluctant: bool) -> Result<(), String> {
        let mut splits = Vec::new();
        for _ in 0..times {
            splits.push(self.add(Instruction::Split(Vec::new()))?);
            self.compile(of)?;
        }
        for split in splits {
            self.instructions[split] = self.choice(split + 1, is_reluctant);
        }
        Ok(())
    }

    /// Choice between an instruction and the end of what is compiled.
    fn choice(&self, first: usize, is_reluctant: bool) -> Instruction {
        let behind = self.instructions.len();
        Instruction::Split(if is_reluctant { vec![behind, first] } else { vec![first, behind] })
    }

    /// Places where a match begins, in the order of preference.
    pub(crate) fn begin(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        self.follow(0, &mut HashSet::new(), &mut targets);
        targets
    }

    /// Places behind an instruction that has taken a row, in the order of preference; those in `seen` are left out.
    pub(crate) fn after(&self, at: usize, seen: &mut HashSet<usize>) -> Vec<Target> {
        let mut targets = Vec::new();
        self.follow(at + 1, seen, &mut targets);
        targets
    }

    fn follow(&self, from: usize, seen: &mut HashSet<usize>, targets: &mut Vec<Target>) {
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            if !seen.insert(at) {
                continue;
            }
            match &self.instructions[at] {
                Instruction::Row(variable) => targets.push(Target::Row { at, variable: *variable }),
                Instruction::Split(next) => open.extend(next.iter().rev()),
                Instruction::Match => targets.push(Target::Match),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated(of: Pattern, least: u32, most: Option<u32>) -> Pattern {
        Pattern::Repetition { of: Box::new(of), least, most, is_reluctant: false }
    }

    /// Longest-lived run over rows that are of one variable each: the number of rows of the match.
    fn matched(pattern: &Pattern, rows: &[usize]) -> Option<usize> {
        let automaton = Automaton::new(pattern).unwrap();
        let (mut threads, mut best) = (automaton.begin(), None);
        for (number, row) in rows.iter().enumerate() {
            let (mut next, mut seen) = (Vec::new(), HashSet::new());
            'threads: for thread in &threads {
                let Target::Row { at, variable } = thread else { continue };
                if variable == row {
                    for target in automaton.after(*at, &mut seen) {
                        if target == Target::Match {
                            best = Some(number + 1);
                            break 'threads;
                        }
                        next.push(target);
                    }
                }
            }
            threads = next;
        }
        best
    }

    #[test]
    fn preferred_matches_are_found() {
        use Pattern::{Alternation, Sequence, Variable};
        let (a, b, c) = (Variable(0), Variable(1), Variable(2));
        let greedy = Sequence(vec![a.clone(), repeated(b.clone(), 0, None), c.clone()]);
        assert_eq!(matched(&greedy, &[0, 1, 1, 2, 2]), Some(4));
        assert_eq!(matched(&greedy, &[0, 2]), Some(2));
        assert_eq!(matched(&greedy, &[0, 1, 0]), None);
        let some = repeated(a.clone(), 2, Some(3));
        assert_eq!(
            [1, 2, 3, 4].map(|times| matched(&some, &vec![0; times])),
            [None, Some(2), Some(3), Some(3)]
        );
        let reluctant =
            Pattern::Repetition { of: Box::new(a.clone()), least: 1, most: None, is_reluctant: true };
        assert_eq!(matched(&reluctant, &[0, 0, 0]), Some(1));
        let first = Alternation(vec![a.clone(), Sequence(vec![a.clone(), b.clone()])]);
        assert_eq!(matched(&first, &[0, 1]), Some(1));
        let nested = Sequence(vec![repeated(repeated(a.clone(), 1, Some(2)), 0, None), b.clone()]);
        assert_eq!(matched(&nested, &[0, 0, 0, 1]), Some(4));
        for (pattern, expected) in [
            (repeated(a.clone(), 0, None), "matches no rows"),
            (Sequence(vec![]), "matches no rows"),
            (Sequence(vec![repeated(repeated(a.clone(), 0, Some(1)), 0, None), b]), "repeats a part"),
            (repeated(a, 5000, None), "more than 4096 parts"),
        ] {
            assert!(Automaton::new(&pattern).unwrap_err().contains(expected));
        }
    }
}

//! Parser of CREATE SEQUENCE and ALTER SEQUENCE: DataFusion's parser accepts the options in one order only,
//! and no ALTER.
//!
//! SequenceOptions come in any order, each once, as in PostgreSQL. Those of identity columns are put into the
//! order that DataFusion's parser knows.

use crate::error::{Error, Result};
use crate::parser::names::table_name;
use crate::parser::own::words::{Words, number};
use crate::parser::text::tokens::is_word;
use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, SequenceOptions as ParsedOptions, UnaryOperator, Value as Literal,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use entresol_tables::SequenceType;
use std::fmt;

/// CREATE SEQUENCE or ALTER SEQUENCE statement.
#[derive(Debug, Clone)]
pub(crate) struct SequenceStatement {
    /// True for CREATE, false for ALTER.
    pub(crate) creates: bool,
    /// True for CREATE IF NOT EXISTS and ALTER IF EXISTS.
    pub(crate) lenient: bool,
    pub(crate) name: String,
    pub(crate) options: SequenceOptions,
}

/// SequenceOptions of a sequence in a statement; `None` is unspecified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SequenceOptions {
    pub(crate) data_type: Option<SequenceType>,
    pub(crate) increment: Option<i64>,
    /// `Some(None)` is NO MINVALUE.
    pub(crate) min_value: Option<Option<i64>>,
    pub(crate) max_value: Option<Option<i64>>,
    pub(crate) start: Option<i64>,
    /// `Some(None)` is RESTART without a value.
    pub(crate) restart: Option<Option<i64>>,
    pub(crate) cache: Option<i64>,
    pub(crate) cycle: Option<bool>,
    /// Owning table and column; `Some(None)` is OWNED BY NONE.
    pub(crate) owner: Option<Option<(String, String)>>,
}

/// Formats the options in the order that DataFusion's parser takes.
impl fmt::Display for SequenceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = |value: Option<Option<i64>>, word: &str| match value {
            None => String::new(),
            Some(None) => format!(" NO {word}"),
            Some(Some(value)) => format!(" {word} {value}"),
        };
        let number = |value: Option<i64>, words: &str| {
            value.map_or(String::new(), |value| format!(" {words} {value}"))
        };
        f.write_str(&number(self.increment, "INCREMENT BY"))?;
        f.write_str(&bound(self.min_value, "MINVALUE"))?;
        f.write_str(&bound(self.max_value, "MAXVALUE"))?;
        f.write_str(&number(self.start, "START WITH"))?;
        f.write_str(&number(self.cache, "CACHE"))?;
        match self.cycle {
            None => Ok(()),
            Some(true) => f.write_str(" CYCLE"),
            Some(false) => f.write_str(" NO CYCLE"),
        }
    }
}

impl SequenceOptions {
    /// SequenceOptions of an identity column as parsed by DataFusion's parser.
    pub(crate) fn of_parsed(parsed: &[ParsedOptions]) -> Result<SequenceOptions> {
        let mut options = SequenceOptions::default();
        for option in parsed {
            match option {
                ParsedOptions::IncrementBy(value, _) => options.increment = Some(integer(value)?),
                ParsedOptions::MinValue(value) => {
                    options.min_value = Some(value.as_ref().map(integer).transpose()?)
                }
                ParsedOptions::MaxValue(value) => {
                    options.max_value = Some(value.as_ref().map(integer).transpose()?)
                }
                ParsedOptions::StartWith(value, _) => options.start = Some(integer(value)?),
                ParsedOptions::Cache(value) => options.cache = Some(integer(value)?),
                ParsedOptions::Cycle(no) => options.cycle = Some(!no),
            }
        }
        Ok(options)
    }
}

fn integer(expr: &Expr) -> Result<i64> {
    let (sign, literal) = match expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => ("-", expr.as_ref()),
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => ("", expr.as_ref()),
        other => ("", other),
    };
    if let Expr::Value(value) = literal
        && let Literal::Number(digits, _) = &value.value
    {
        return number(sign, digits);
    }
    Err(Error::Syntax(format!("syntax error: {expr} is not a number")))
}

/// Returns true if tokens behind CREATE or ALTER begin a statement on a sequence.
pub(crate) fn is_sequence(tokens: &[TokenWithSpan]) -> bool {
    let is = |at: usize, wanted: &str| tokens.get(at).is_some_and(|token| is_word(&token.token, wanted));
    let temporary = is(1, "temporary") || is(1, "temp") || is(1, "unlogged");
    is(1 + usize::from(temporary), "sequence")
}

/// Parses a CREATE SEQUENCE or ALTER SEQUENCE; `words` has neither blanks nor the semicolon.
pub(crate) fn parse(words: &[&Token]) -> Result<SequenceStatement> {
    let mut words = Words(words);
    let creates = words.word("create");
    if !creates {
        words.expect("alter")?;
    }
    if !words.word("sequence") {
        return Err(Error::unsupported("TEMPORARY in CREATE SEQUENCE"));
    }
    let lenient = words.word("if");
    if lenient {
        if creates {
            words.expect("not")?;
        }
        words.expect("exists")?;
    }
    let name = table_name(&ObjectName::from(words.name()?))?;
    let options = words.options()?;
    match (creates, &options) {
        (true, SequenceOptions { restart: Some(_), .. }) => {
            Err(Error::Syntax("syntax error at or near \"RESTART\"".into()))
        }
        (false, none) if *none == SequenceOptions::default() => Err(words.unexpected()),
        _ => Ok(SequenceStatement { creates, lenient, name, options }),
    }
}

/// SequenceOptions of an identity column in the order of DataFusion's parser; `words` are the tokens between
/// the parentheses.
pub(crate) fn ordered(words: &[&Token]) -> Result<String> {
    let options = Words(words).options()?;
    if options.data_type.is_some() || options.owner.is_some() || options.restart.is_some() {
        Err(Error::Syntax("syntax error: option not allowed for identity columns".into()))
    } else {
        Ok(options.to_string())
    }
}

impl Words<'_> {
    fn options(&mut self) -> Result<SequenceOptions> {
        let mut options = SequenceOptions::default();
        while !self.0.is_empty() {
            let again = self.option(&mut options)?;
            if again {
                return Err(Error::coded("42601", "conflicting or redundant options"));
            }
        }
        Ok(options)
    }

    /// Parses one option; true if it is a duplicate.
    fn option(&mut self, options: &mut SequenceOptions) -> Result<bool> {
        let refused = |what: &str| Err(Error::unsupported(format!("{what} in ALTER SEQUENCE")));
        Ok(if self.word("as") {
            options.data_type.replace(self.data_type()?).is_some()
        } else if self.word("increment") {
            let _ = self.word("by");
            options.increment.replace(self.number()?).is_some()
        } else if self.word("minvalue") {
            options.min_value.replace(Some(self.number()?)).is_some()
        } else if self.word("maxvalue") {
            options.max_value.replace(Some(self.number()?)).is_some()
        } else if self.word("no") {
            if self.word("minvalue") {
                options.min_value.replace(None).is_some()
            } else if self.word("maxvalue") {
                options.max_value.replace(None).is_some()
            } else {
                self.expect("cycle")?;
                options.cycle.replace(false).is_some()
            }
        } else if self.word("start") {
            let _ = self.word("with");
            options.start.replace(self.number()?).is_some()
        } else if self.word("restart") {
            let with = self.word("with");
            let value = if with || self.is_number() { Some(self.number()?) } else { None };
            options.restart.replace(value).is_some()
        } else if self.word("cache") {
            options.cache.replace(self.number()?).is_some()
        } else if self.word("cycle") {
            options.cycle.replace(true).is_some()
        } else if self.word("owned") {
            self.expect("by")?;
            let owner = if self.word("none") { None } else { Some(self.owner()?) };
            options.owner.replace(owner).is_some()
        } else if self.word("rename") {
            return refused("RENAME");
        } else if self.word("owner") {
            return refused("OWNER TO");
        } else if self.word("set") {
            return refused("SET");
        } else {
            return Err(self.unexpected());
        })
    }

    fn data_type(&mut self) -> Result<SequenceType> {
        let types = [
            ("smallint", SequenceType::SmallInt),
            ("int2", SequenceType::SmallInt),
            ("int", SequenceType::Int),
            ("integer", SequenceType::Int),
            ("int4", SequenceType::Int),
            ("bigint", SequenceType::BigInt),
            ("int8", SequenceType::BigInt),
        ];
        let found = types.iter().find(|(name, _)| self.word(name));
        found
            .map(|(_, known)| *known)
            .ok_or_else(|| Error::coded("22023", "sequence type must be smallint, integer, or bigint"))
    }

    fn owner(&mut self) -> Result<(String, String)> {
        let mut parts = self.name()?;
        match parts.pop() {
            Some(column) if !parts.is_empty() => {
                Ok((table_name(&ObjectName::from(parts))?, crate::parser::names::identifier(&column)))
            }
            _ => Err(Error::coded(
                "42601",
                "invalid OWNED BY option: use OWNED BY table.column or OWNED BY NONE",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::command::Command;
    use crate::parser::statement::parse as parse_text;
    use crate::parser::text::tokens::{BEGINNING, tokenize};

    fn statement(sql: &str) -> Result<SequenceStatement> {
        match parse_text(sql)?.pop() {
            Some(Command::Sequence(statement)) => Ok(*statement),
            other => panic!("{sql}: {other:?}"),
        }
    }

    fn parsed(sql: &str) -> SequenceStatement {
        statement(sql).unwrap()
    }

    fn refused(sql: &str) -> String {
        statement(sql).unwrap_err().to_string()
    }

    #[test]
    fn options_come_in_any_order() {
        let all = "create sequence if not exists Public.\"A\"\"b\" cache 5 no cycle start 7 owned by t.\"C\" \
                   as int no maxvalue minvalue -3 increment by 2";
        let statement = parsed(all);
        assert!(statement.creates && statement.lenient);
        assert_eq!(statement.name, "A\"b");
        let expected = SequenceOptions {
            data_type: Some(SequenceType::Int),
            increment: Some(2),
            min_value: Some(Some(-3)),
            max_value: Some(None),
            start: Some(7),
            restart: None,
            cache: Some(5),
            cycle: Some(false),
            owner: Some(Some(("t".into(), "C".into()))),
        };
        assert_eq!(statement.options, expected);
        let altered = parsed("ALTER SEQUENCE s RESTART OWNED BY NONE").options;
        assert_eq!((altered.restart, altered.owner), (Some(None), Some(None)));
        assert_eq!(parsed("ALTER SEQUENCE IF EXISTS s RESTART WITH -5").options.restart, Some(Some(-5)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(refused("CREATE SEQUENCE").contains("end of input"));
        assert!(refused("CREATE SEQUENCE s START").contains("end of input"));
        assert!(refused("CREATE SEQUENCE s START x").contains("\"x\""));
        assert!(refused("CREATE SEQUENCE s START 1 START 2").contains("redundant"));
        assert!(refused("CREATE SEQUENCE s RESTART").contains("RESTART"));
        assert!(refused("CREATE SEQUENCE s AS text").contains("sequence type"));
        assert!(refused("CREATE SEQUENCE s OWNED BY t").contains("OWNED BY"));
        assert!(refused("CREATE SEQUENCE s CACHE 99999999999999999999").contains("out of range"));
        assert!(refused("CREATE SEQUENCE s START 1.5").contains("\"1.5\""));
        assert!(refused("CREATE TEMP SEQUENCE s").contains("TEMPORARY"));
        assert!(refused("ALTER SEQUENCE s").contains("end of input"));
        assert!(refused("ALTER SEQUENCE s RENAME TO r").contains("RENAME"));
    }

    #[test]
    fn identity_options_are_put_in_order() {
        let ordered = |text| {
            let tokens = tokenize(text, BEGINNING).unwrap();
            ordered(&tokens.iter().map(|token| &token.token).collect::<Vec<_>>())
        };
        assert_eq!(
            ordered("START WITH 10 NO CYCLE INCREMENT 5").unwrap(),
            " INCREMENT BY 5 START WITH 10 NO CYCLE"
        );
        assert_eq!(ordered("").unwrap(), "");
        assert!(ordered("RESTART").is_err());
        assert!(ordered("START 1 1").is_err());
    }
}

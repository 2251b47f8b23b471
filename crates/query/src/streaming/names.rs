//! Names in the FROM of a step: sources, streams of the topology, windows over them, changes of tables.
//!
//! | FROM | relation |
//! | --- | --- |
//! | `s` | source or stream, if there is one of the name, else a table |
//! | `TUMBLE(s, time, size)` | its columns, `window_start` and `window_end` |
//! | `HOP(s, time, slide, size)`, `CUMULATE(s, time, step, size)` | the same, with each row in several windows |
//! | `SESSION(s, time, gap)` | the same; rows of a group less than a gap apart are of one window |
//! | `s MATCH_RECOGNIZE (...)` | the partition columns and measures of the matches ([`super::pattern`]) |
//! | `CHANGES(t) [FOR EACH {ROW | COMMIT}]` | changes that steps of the topology make in table `t`: each, or that of each key at the commit; of another table the logged changes, in transactions of their own |

use crate::error::{Error, Result};
use crate::parser::durations::interval_of;
use crate::parser::names::{identifier, relation_in, table_name};
use crate::parser::patterns::pattern_function;
use crate::parser::refusals::check_joins;
use crate::parser::text::tokens::is_word;
use crate::parser::visit::{walk, walk_mut};
use crate::parser::windows::{WindowCall, expressions};
use crate::planner::patterns::planning::PlannedPattern;
use crate::schema_names::STREAMS_CATALOG;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, Ident, ObjectName, ObjectNamePart, Query, Select, Statement, TableAlias, TableFactor,
    Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use entresol_streams::WindowKind;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Schema of the relations in their catalog.
pub(crate) const STREAMS_SCHEMA: &str = "public";
/// Name by which the parser knows `CHANGES(t) FOR EACH ROW`.
const CHANGES_EACH_ROW: &str = "changes_each_row";

/// Relation that a step reads.
#[derive(Debug, Clone)]
pub(crate) enum Reference {
    /// Source or stream of this name.
    Named(String),
    /// Windows over a source or stream.
    Windows { of: String, time: String, kind: WindowKind },
    Changes {
        table: String,
        each_row: bool,
        /// True if rows before, change types and deleted rows are read, of a table that the topology changes.
        with_before: bool,
    },
    /// Matches of a pattern in a source or stream.
    Pattern {
        of: String,
        /// Number of the pattern in its step.
        number: usize,
        planned: Option<Arc<PlannedPattern>>,
    },
}

impl Reference {
    /// Name of the source, stream or table.
    pub(crate) fn name(&self) -> &str {
        match self {
            Reference::Named(name) => name,
            Reference::Windows { of, .. } | Reference::Pattern { of, .. } => of,
            Reference::Changes { table, .. } => table,
        }
    }
}

/// Takes FOR EACH ROW and FOR EACH COMMIT behind CHANGES(...) out of the tokens of a step.
pub(crate) fn take_triggers(tokens: &mut Vec<TokenWithSpan>) {
    let is =
        |token: Option<&TokenWithSpan>, word: &str| token.is_some_and(|token| is_word(&token.token, word));
    let mut at = 0;
    while at < tokens.len() {
        let close =
            tokens[at..].iter().position(|token| token.token == Token::RParen).map(|close| at + close);
        if let Some(close) = close.filter(|_| is(tokens.get(at), "changes"))
            && is(tokens.get(close + 1), "for")
            && is(tokens.get(close + 2), "each")
        {
            let each_row = is(tokens.get(close + 3), "row");
            if each_row || is(tokens.get(close + 3), "commit") {
                tokens.drain(close + 1..close + 4);
            }
            if each_row {
                tokens[at].token = Token::make_word(CHANGES_EACH_ROW, None);
            }
        }
        at += 1;
    }
}

/// Replaces the streams in a statement's FROMs by relations of [`STREAMS_CATALOG`]; returns them by name.
/// `is_stream` knows the names of sources and streams.
pub(crate) fn resolve(
    statement: &mut Statement,
    is_stream: impl FnMut(&str) -> bool,
) -> Result<BTreeMap<String, Reference>> {
    let mut names = Names { is_stream, found: BTreeMap::new() };
    match walk_mut(statement, &mut names) {
        ControlFlow::Continue(()) => Ok(names.found),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Relations that a statement reads, those of its WITHs left out.
pub(crate) fn relations_in(statement: &mut Statement) -> Result<BTreeMap<String, Reference>> {
    let mut with = WithNames(Vec::new());
    let _ = walk(statement, &mut with);
    resolve(statement, |name| !with.0.iter().any(|of_with| of_with == name))
}

/// Names of the queries behind WITH of a statement.
struct WithNames(Vec<String>);

impl Visitor for WithNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.0.extend(names_of_with(query));
        ControlFlow::Continue(())
    }
}

fn names_of_with(query: &Query) -> impl Iterator<Item = String> {
    query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| identifier(&cte.alias.name))
}

struct Names<F> {
    is_stream: F,
    found: BTreeMap<String, Reference>,
}

impl<F: FnMut(&str) -> bool> VisitorMut for Names<F> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        for name in names_of_with(query) {
            if (self.is_stream)(&name) {
                let message = format!("WITH {name}, the name of a source or stream: take another name");
                return ControlFlow::Break(Error::unsupported(message));
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        check_joins(select).map_or_else(ControlFlow::Break, ControlFlow::Continue)
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        match self.replace(factor) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl<F: FnMut(&str) -> bool> Names<F> {
    fn replace(&mut self, factor: &mut TableFactor) -> Result<()> {
        let TableFactor::Table { name, alias, args, .. } = factor else { return Ok(()) };
        let is_qualified = name.0.len() > 1;
        let Ok(called) = table_name(name) else { return Ok(()) };
        let (reference, shown) = match args {
            None if (self.is_stream)(&called) => (Reference::Named(called.clone()), called),
            None => return Ok(()),
            Some(_) if is_qualified => return Ok(()),
            Some(args) => match self.function(&called, &args.args)? {
                Some(found) => found,
                None => return Ok(()),
            },
        };
        let relation = match &reference {
            Reference::Named(name) => name.clone(),
            _ => format!("{shown} {}", self.found.len()),
        };
        let part = |name: &str| ObjectNamePart::Identifier(Ident::with_quote('"', name));
        *name = ObjectName(vec![part(STREAMS_CATALOG), part(STREAMS_SCHEMA), part(&relation)]);
        *args = None;
        alias.get_or_insert_with(|| TableAlias {
            explicit: false,
            name: Ident::with_quote('"', &shown),
            columns: Vec::new(),
            at: None,
        });
        self.found.insert(relation, reference);
        Ok(())
    }

    /// Relation of a function in FROM, and the name that it has without an alias.
    fn function(&mut self, called: &str, args: &[FunctionArg]) -> Result<Option<(Reference, String)>> {
        if let Some(call) = WindowCall::of(called, args)? {
            return self.windows(&call).map(Some);
        }
        let args = expressions(args);
        match called {
            called if called == pattern_function() => self.pattern(&args).map(Some),
            "changes" | CHANGES_EACH_ROW => {
                let [table] = args.as_slice() else { return Err(wrong("CHANGES(table)")) };
                let table = relation_in(table).ok_or_else(|| wrong("CHANGES(table)"))?;
                let each_row = called == CHANGES_EACH_ROW;
                let changes = Reference::Changes { table: table.clone(), each_row, with_before: false };
                Ok(Some((changes, table)))
            }
            _ => Ok(None),
        }
    }

    /// Relation of the matches of a pattern, and the name that it has without an alias.
    fn pattern(&mut self, args: &[&Expr]) -> Result<(Reference, String)> {
        let [Expr::Identifier(of), number] = args else {
            return Err(Error::unsupported(
                "MATCH_RECOGNIZE of anything but the name of a source or stream in a step: make it a CREATE STREAM before",
            ));
        };
        let number = interval_of(number).and_then(|number| number.parse().ok());
        let (of, number) = (identifier(of), number.ok_or_else(|| wrong("MATCH_RECOGNIZE"))?);
        if !(self.is_stream)(&of) {
            return Err(Error::coded("42P01", format!("source or stream \"{of}\" does not exist")));
        }
        Ok((Reference::Pattern { of: of.clone(), number, planned: None }, of))
    }

    /// Relation of a window function, and the name that it has without an alias.
    fn windows(&mut self, call: &WindowCall<'_>) -> Result<(Reference, String)> {
        let Some(of) = relation_in(call.of) else {
            return Err(Error::unsupported(format!(
                "windows over {} in a step: CREATE STREAM of it, and take its name",
                call.of
            )));
        };
        if !(self.is_stream)(&of) {
            return Err(Error::coded("42P01", format!("source or stream \"{of}\" does not exist")));
        }
        Ok((Reference::Windows { of: of.clone(), time: call.time.clone(), kind: call.kind }, of))
    }
}

fn wrong(expected: &str) -> Error {
    Error::Syntax(format!("syntax error: expected {expected}"))
}

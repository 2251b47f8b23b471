//! MERGE: its clauses as PostgreSQL has them, beyond those that sqlparser knows.
//!
//! ```text
//! THEN DO NOTHING                          THEN UPDATE SET "\u{1}nothing" = NULL, or
//!                                          THEN INSERT ("\u{1}nothing") VALUES (NULL)
//! INSERT DEFAULT VALUES                    INSERT VALUES (DEFAULT)
//! INSERT OVERRIDING USER VALUE VALUES (…)  INSERT VALUES (…) WHERE "\u{1}overriding user"
//! INTO ONLY t, USING ONLY t, t *           t: tables have no descendants
//! ```
//!
//! [`rewrite`] does this with tokens, and [`MergeStatement`] reads it back from the tree. No identifier of a
//! statement has the character U+0001.

use crate::error::{Error, Result};
use crate::parser::names::refuse;
use crate::parser::text::tokens::is_word;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Expr, Ident, Merge, MergeAction, MergeClause, MergeClauseKind,
    MergeInsertExpr, MergeInsertKind, ObjectName, OutputClause, Query, SelectItem, SetExpr, Statement,
    TableFactor, TableWithJoins, With,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Verb of MERGE.
pub(crate) const MERGE: &str = "MERGE";
/// Column in place of DO NOTHING.
const NOTHING: &str = "\u{1}nothing";
/// Conditions in place of OVERRIDING.
const OVERRIDING_SYSTEM: &str = "\u{1}overriding system";
const OVERRIDING_USER: &str = "\u{1}overriding user";

/// MERGE statement, or an UPDATE or DELETE of the rows that join with those of other relations.
pub(crate) struct MergeStatement<'s> {
    /// MERGE, UPDATE or DELETE.
    pub(crate) verb: &'static str,
    pub(crate) with: Option<&'s With>,
    pub(crate) target: &'s TableFactor,
    /// Source of a MERGE; the first relation of the FROM or USING of the others.
    pub(crate) source: &'s TableFactor,
    /// FROM of an UPDATE, USING of a DELETE; empty for MERGE.
    pub(crate) from: &'s [TableWithJoins],
    /// Condition of a MERGE, or the WHERE of the others.
    pub(crate) on: &'s Expr,
    pub(crate) whens: Vec<WhenClause<'s>>,
    pub(crate) returning: Option<&'s [SelectItem]>,
}

/// WHEN clause.
pub(crate) struct WhenClause<'s> {
    pub(crate) kind: Match,
    pub(crate) condition: Option<&'s Expr>,
    pub(crate) action: Action<'s>,
}

/// Rows of the join for which a WHEN clause is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    /// Row of the target beside one of the source.
    Matched,
    /// Row of the source alone.
    ByTarget,
    /// Row of the target alone.
    BySource,
}

impl Match {
    pub(crate) const ALL: [Match; 3] = [Match::Matched, Match::ByTarget, Match::BySource];
}

/// Action of a WHEN clause.
pub(crate) enum Action<'s> {
    Update(&'s [Assignment]),
    Delete,
    Insert {
        /// Empty if the clause has no list.
        columns: &'s [ObjectName],
        overriding: Option<Overriding>,
        values: &'s [Expr],
    },
    Nothing,
}

/// Treatment of values that are given for identity columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overriding {
    /// They are taken, also by columns GENERATED ALWAYS.
    System,
    /// They are ignored.
    User,
}

impl<'s> MergeStatement<'s> {
    /// MERGE of a query around it.
    pub(crate) fn of(query: &'s Query) -> Result<MergeStatement<'s>> {
        match query.body.as_ref() {
            SetExpr::Merge(Statement::Merge(merge)) => MergeStatement::new(query.with.as_ref(), merge),
            other => Err(Error::Internal(format!("{other} is not a MERGE"))),
        }
    }

    fn new(with: Option<&'s With>, merge: &'s Merge) -> Result<MergeStatement<'s>> {
        if !merge.into {
            return Err(Error::Syntax("syntax error: MERGE without INTO".to_owned()));
        }
        if merge.clauses.is_empty() {
            return Err(Error::Syntax("syntax error: MERGE without WHEN".to_owned()));
        }
        let whens: Vec<WhenClause<'s>> = merge.clauses.iter().map(WhenClause::new).collect::<Result<_>>()?;
        for kind in Match::ALL {
            let mut of_kind = whens.iter().filter(|when| when.kind == kind);
            if of_kind.any(|when| when.condition.is_none()) && of_kind.next().is_some() {
                let message = "unreachable WHEN clause specified after unconditional WHEN clause";
                return Err(Error::coded("42601", message));
            }
        }
        let returning = match &merge.output {
            None => None,
            Some(OutputClause::Returning { select_items, .. }) => Some(select_items.as_slice()),
            Some(OutputClause::Output { .. }) => return Err(Error::unsupported("OUTPUT in MERGE")),
        };
        let (target, source, on) = (&merge.table, &merge.source, merge.on.as_ref());
        Ok(MergeStatement { verb: MERGE, with, target, source, from: &[], on, whens, returning })
    }

    /// Returns true if there is a clause for these rows.
    pub(crate) fn has(&self, kind: Match) -> bool {
        self.whens.iter().any(|when| when.kind == kind)
    }
}

impl<'s> WhenClause<'s> {
    fn new(clause: &'s MergeClause) -> Result<WhenClause<'s>> {
        let kind = match clause.clause_kind {
            MergeClauseKind::Matched => Match::Matched,
            MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget => Match::ByTarget,
            MergeClauseKind::NotMatchedBySource => Match::BySource,
        };
        let action = match &clause.action {
            MergeAction::Delete { .. } => Action::Delete,
            MergeAction::Update(update) => {
                refuse(
                    "UPDATE of MERGE",
                    &[
                        (update.update_predicate.is_some(), "WHERE"),
                        (update.delete_predicate.is_some(), "DELETE WHERE"),
                    ],
                )?;
                match update.assignments.as_slice() {
                    [Assignment { target: AssignmentTarget::ColumnName(name), .. }] if is_nothing(name) => {
                        Action::Nothing
                    }
                    assignments => Action::Update(assignments),
                }
            }
            MergeAction::Insert(insert) if insert.columns.iter().any(is_nothing) => Action::Nothing,
            MergeAction::Insert(insert) => inserted(insert)?,
        };
        Ok(WhenClause { kind, condition: clause.predicate.as_ref(), action })
    }
}

fn is_nothing(name: &ObjectName) -> bool {
    matches!(name.0.as_slice(), [part] if part.as_ident().is_some_and(|ident| ident.value == NOTHING))
}

fn inserted(insert: &MergeInsertExpr) -> Result<Action<'_>> {
    let overriding = match &insert.insert_predicate {
        None => None,
        Some(Expr::Identifier(ident)) if ident.value == OVERRIDING_SYSTEM => Some(Overriding::System),
        Some(Expr::Identifier(ident)) if ident.value == OVERRIDING_USER => Some(Overriding::User),
        Some(_) => return Err(Error::unsupported("WHERE in INSERT of MERGE")),
    };
    let values = match &insert.kind {
        MergeInsertKind::Values(values) => values.rows.as_slice(),
        MergeInsertKind::Row => &[],
    };
    let [values] = values else {
        return Err(Error::Syntax("syntax error: INSERT of MERGE has one row of VALUES".to_owned()));
    };
    Ok(Action::Insert { columns: &insert.columns, overriding, values })
}

/// Query around a MERGE, with its WITH, if the statement is one.
pub(crate) fn merge_query(statement: &Statement) -> Option<Query> {
    match statement {
        Statement::Merge(merge) => Some(around(merge.clone())),
        Statement::Query(query) if is_merge(query) => Some(query.as_ref().clone()),
        _ => None,
    }
}

/// Returns true if a query is a MERGE with its WITH.
pub(crate) fn is_merge(query: &Query) -> bool {
    matches!(query.body.as_ref(), SetExpr::Merge(Statement::Merge(_)))
}

/// Query around a MERGE without WITH.
pub(crate) fn around(merge: Merge) -> Query {
    Query {
        with: None,
        body: Box::new(SetExpr::Merge(Statement::Merge(merge))),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

/// Name by which the rest of a MERGE refers to its source; `None` if it has none.
pub(crate) fn source_name(source: &TableFactor) -> Result<Option<Ident>> {
    let alias = match source {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. } => alias,
        other => {
            return Err(Error::unsupported(format!("MERGE USING {other}: write USING (SELECT …) AS name")));
        }
    };
    let own = match source {
        TableFactor::Table { name, .. } | TableFactor::Function { name, .. } => {
            name.0.last().and_then(|part| part.as_ident()).cloned()
        }
        _ => None,
    };
    Ok(alias.as_ref().map(|alias| alias.name.clone()).or(own))
}

/// Rewrites the tokens of a MERGE, wherever it stands in the statement.
pub(crate) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let begins = |pair: &[TokenWithSpan]| is_word(&pair[0].token, "merge") && is_word(&pair[1].token, "into");
    let Some(merge) = tokens.windows(2).position(begins) else { return };
    let rest = tokens.split_off(merge + 2);
    let mut rewriting = MergeRewriter::default();
    let mut at = 0;
    while at < rest.len() && rewriting.depth >= 0 {
        at += rewriting.next(&rest[at..], tokens);
    }
    tokens.extend_from_slice(&rest[at..]);
}

/// State of a pass over the tokens behind MERGE INTO.
#[derive(Default)]
struct MergeRewriter {
    /// Open parentheses, and CASEs outside of them.
    depth: isize,
    cases: usize,
    /// True behind ON.
    joined: bool,
    /// True in a clause whose action may be an INSERT.
    inserts: bool,
    /// Condition to put behind the VALUES of the INSERT at hand.
    overriding: Option<&'static str>,
}

impl MergeRewriter {
    /// Appends what the first of the tokens become; returns their number.
    fn next(&mut self, rest: &[TokenWithSpan], out: &mut Vec<TokenWithSpan>) -> usize {
        let span = rest[0].span;
        let begins = out.last().is_some_and(begins_relation);
        let mut put = |tokens: &[Token]| {
            out.extend(tokens.iter().map(|token| TokenWithSpan { token: token.clone(), span }));
        };
        let keyword = Token::make_keyword;
        let hidden = |name: &str| Token::make_word(name, Some('"'));
        let is = |words: &[&str]| {
            rest.len() >= words.len()
                && words.iter().zip(rest).all(|(word, token)| is_word(&token.token, word))
        };
        match rest[0].token {
            Token::LParen => self.depth += 1,
            Token::RParen => {
                self.depth -= 1;
                // That of the columns comes before OVERRIDING.
                if self.depth == 0
                    && let Some(condition) = self.overriding.take()
                {
                    put(&[Token::RParen, keyword("WHERE"), hidden(condition)]);
                    return 1;
                }
            }
            Token::Mul if self.depth == 0 && !self.joined => return 1,
            _ if self.depth > 0 => {}
            _ if is(&["case"]) => self.cases += 1,
            _ if is(&["end"]) => self.cases = self.cases.saturating_sub(1),
            _ if self.cases > 0 => {}
            _ if is(&["only"]) && !self.joined && begins => return 1,
            _ if is(&["on"]) => self.joined = true,
            _ if is(&["when", "not", "matched", "by", "source"]) => self.inserts = false,
            _ if is(&["when", "not", "matched"]) => self.inserts = true,
            _ if is(&["when", "matched"]) => self.inserts = false,
            _ if is(&["then", "do", "nothing"]) && self.inserts => {
                put(&[keyword("THEN"), keyword("INSERT"), Token::LParen, hidden(NOTHING), Token::RParen]);
                put(&[keyword("VALUES"), Token::LParen, keyword("NULL"), Token::RParen]);
                return 3;
            }
            _ if is(&["then", "do", "nothing"]) => {
                put(&[keyword("THEN"), keyword("UPDATE"), keyword("SET")]);
                put(&[hidden(NOTHING), Token::Eq, keyword("NULL")]);
                return 3;
            }
            _ if is(&["then", "insert", "default", "values"]) => {
                put(&[keyword("THEN"), keyword("INSERT"), keyword("VALUES")]);
                put(&[Token::LParen, keyword("DEFAULT"), Token::RParen]);
                return 4;
            }
            _ if self.inserts && is(&["overriding", "system", "value", "values"]) => {
                self.overriding = Some(OVERRIDING_SYSTEM);
                return 3;
            }
            _ if self.inserts && is(&["overriding", "user", "value", "values"]) => {
                self.overriding = Some(OVERRIDING_USER);
                return 3;
            }
            _ => {}
        }
        put(&[rest[0].token.clone()]);
        1
    }
}

fn begins_relation(token: &TokenWithSpan) -> bool {
    ["into", "using"].iter().any(|word| is_word(&token.token, word))
}

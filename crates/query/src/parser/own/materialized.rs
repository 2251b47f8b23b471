//! Statements on materialized views.
//!
//! ```text
//! CREATE MATERIALIZED VIEW [IF NOT EXISTS] name [(columns)] [WITH (option = value, ...)] AS query [EMIT ...] [LATE ROWS ...]
//! DROP MATERIALIZED VIEW [IF EXISTS] name, ...                           sqlparser's
//! REFRESH MATERIALIZED VIEW name
//! EXPLAIN [ANALYZE] MATERIALIZED VIEW name
//! ```
//!
//! A query may be over tables, or over streams: the names in its FROM decide, when the statement runs. So it is parsed as
//! both: by sqlparser, and as the step of a topology, which may have clauses that sqlparser does not know.

use crate::error::{Error, Result};
use crate::parser::names::table_name;
use crate::parser::own::streaming::{
    CreateTopology, ErrorClause, StreamOption, names_between_commas, with_options,
};
use crate::parser::own::words::Words;
use crate::parser::text::tokens::{is_word, shown};
use datafusion::sql::sqlparser::ast::{CreateView, ObjectName};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use entresol_transactions::Isolation;

/// Options of a materialized view over streams that are not those of its topology.
const OPTIONS_OF_VIEWS: [&str; 4] = ["changes", "history", "refresh", "refresh_interval"];

/// Parsed statement on materialized views.
#[derive(Debug, Clone)]
pub(crate) enum MaterializedStatement {
    Create(Box<CreateMaterialized>),
    Drop {
        if_exists: bool,
        names: Vec<ObjectName>,
        cascade: bool,
    },
    Refresh(String),
    /// Way of its maintenance; ANALYZE shows what is stored.
    Explain {
        name: String,
        analyze: bool,
    },
}

/// CREATE MATERIALIZED VIEW.
#[derive(Debug, Clone)]
pub(crate) struct CreateMaterialized {
    /// Statement with a query of tables; none if it has clauses of steps.
    pub(crate) over_tables: Option<CreateView>,
    /// Statement with a query of streams; none if it has clauses that views over streams do not have.
    pub(crate) over_streams: Option<CreateTopology>,
}

/// Clauses of a materialized view over streams.
#[derive(Debug, Clone)]
pub(crate) struct ViewClause {
    /// Names behind that of the view, of its first columns.
    pub(crate) columns: Vec<String>,
    /// Options that are not those of the topology.
    pub(crate) options: Vec<StreamOption>,
}

impl MaterializedStatement {
    /// Command tag.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            MaterializedStatement::Create(_) => "CREATE MATERIALIZED VIEW",
            MaterializedStatement::Drop { .. } => "DROP MATERIALIZED VIEW",
            MaterializedStatement::Refresh(_) => "REFRESH MATERIALIZED VIEW",
            MaterializedStatement::Explain { .. } => "EXPLAIN",
        }
    }

    /// Parses REFRESH.
    pub(crate) fn refresh(words: &[&Token]) -> Result<MaterializedStatement> {
        match words {
            [_, materialized, view, Token::Word(name)]
                if is_word(materialized, "materialized") && is_word(view, "view") =>
            {
                let quoted = name.quote_style.is_some();
                let name = if quoted { name.value.clone() } else { name.value.to_lowercase() };
                Ok(MaterializedStatement::Refresh(name))
            }
            _ => Err(Error::Syntax(format!(
                "syntax error: {}: expected REFRESH MATERIALIZED VIEW name",
                shown(words)
            ))),
        }
    }
}

/// Tells whether tokens begin with EXPLAIN [ANALYZE] MATERIALIZED VIEW.
pub(crate) fn is_explanation(tokens: &[TokenWithSpan]) -> bool {
    let is = |at: usize, word: &str| tokens.get(at).is_some_and(|token| is_word(&token.token, word));
    let kind = if is(1, "analyze") { 2 } else { 1 };
    is(0, "explain") && is(kind, "materialized") && is(kind + 1, "view")
}

/// Parses the words of a statement for which [`is_explanation`] is true.
pub(crate) fn explanation(words: &[&Token]) -> Result<MaterializedStatement> {
    let mut words = Words(words);
    words.expect("explain")?;
    let analyze = words.word("analyze");
    words.expect("materialized")?;
    words.expect("view")?;
    let name = table_name(&ObjectName::from(words.name()?))?;
    words.end()?;
    Ok(MaterializedStatement::Explain { name, analyze })
}

/// Tells whether tokens begin with CREATE [OR REPLACE] MATERIALIZED VIEW.
pub(crate) fn is_creation(tokens: &[TokenWithSpan]) -> bool {
    let is = |at: usize, word: &str| tokens.get(at).is_some_and(|token| is_word(&token.token, word));
    let kind = if is(1, "or") && is(2, "replace") { 3 } else { 1 };
    is(0, "create") && is(kind, "materialized") && is(kind + 1, "view")
}

/// Parses the tokens of a CREATE MATERIALIZED VIEW, of this text, as a topology whose step is the query.
pub(crate) fn over_streams(tokens: &[TokenWithSpan], text: &str) -> Result<CreateTopology> {
    let all: Vec<&Token> = tokens.iter().map(|token| &token.token).collect();
    let mut words = Words(&all);
    words.expect("create")?;
    let replaces = words.phrase(&["or", "replace"]);
    words.expect("materialized")?;
    words.expect("view")?;
    let if_not_exists = words.phrase(&["if", "not", "exists"]);
    let name = table_name(&ObjectName::from(words.name()?))?;
    let mut rest = &tokens[tokens.len() - words.0.len()..];
    let mut columns = Vec::new();
    if rest.first().is_some_and(|token| token.token == Token::LParen) {
        (columns, rest) = names_between_commas(rest)?;
    }
    let (options, rest) = with_options(rest)?;
    let [as_word, query @ ..] = rest else { return Err(Words(&[]).unexpected()) };
    if !is_word(&as_word.token, "as") {
        return Err(Words(&[&as_word.token]).unexpected());
    }
    let is_of_view = |(option, _): &StreamOption| OPTIONS_OF_VIEWS.contains(&option.as_str());
    let (of_view, options) = options.into_iter().partition(is_of_view);
    Ok(CreateTopology {
        name,
        if_not_exists,
        replaces,
        boundaries: Vec::new(),
        isolation: Isolation::default(),
        on_error: ErrorClause::Stop,
        errors_into: None,
        options,
        steps: vec![query.to_vec()],
        sink: None,
        view: Some(ViewClause { columns, options: of_view }),
        text: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::command::Command;
    use crate::parser::statement::parse as parse_text;

    fn created(sql: &str) -> CreateMaterialized {
        match parse_text(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).pop() {
            Some(Command::Materialized(statement)) => match *statement {
                MaterializedStatement::Create(create) => *create,
                other => panic!("{sql}: {other:?}"),
            },
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn a_view_is_parsed_over_tables_and_over_streams() {
        let sql = "CREATE MATERIALIZED VIEW IF NOT EXISTS public.\"V\" (a, \"B\") WITH (changes = '1 hour', durability = 'none') \
                   AS SELECT x, count(*) FROM s GROUP BY x";
        let CreateMaterialized { over_tables, over_streams } = created(sql);
        assert!(over_tables.is_some());
        let topology = over_streams.unwrap();
        assert_eq!(
            (topology.name.as_str(), topology.if_not_exists, topology.text.as_str()),
            ("V", true, sql)
        );
        assert_eq!(topology.options, [("durability".to_owned(), "none".to_owned())]);
        let clause = topology.view.unwrap();
        assert_eq!((clause.columns, clause.options.len()), (vec!["a".to_owned(), "B".to_owned()], 1));
    }

    #[test]
    fn clauses_of_steps_are_of_streams_alone() {
        for query in [
            "SELECT x, count(*) FROM s GROUP BY x EMIT CHANGES",
            "SELECT window_start, count(*) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(at), INTERVAL '1 minute')) GROUP BY window_start LATE ROWS INTO late",
            "SELECT * FROM CHANGES(t) FOR EACH ROW",
        ] {
            let create = created(&format!("CREATE MATERIALIZED VIEW v AS {query}"));
            assert!(create.over_tables.is_none() && create.over_streams.is_some(), "{query}");
        }
        for wrong in [
            "CREATE MATERIALIZED VIEW v AS SELECT a FROM t WHERE",
            "CREATE MATERIALIZED VIEW v SELECT 1",
            "CREATE MATERIALIZED VIEW v (emit AS SELECT 1",
        ] {
            assert!(parse_text(wrong).is_err(), "{wrong}");
        }
    }
}

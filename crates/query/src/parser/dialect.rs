//! PostgreSQL's dialect with time travel: `FROM t FOR SYSTEM_TIME AS OF time`.
//!
//! The syntax is that of SQL:2011, also found in MariaDB, SQL Server and Db2; `TRANSACTION n` in place of a time is
//! MariaDB's. PostgreSQL has none. DataFusion's parser knows the clause for other dialects only, and with it keywords
//! that would reserve names from PostgreSQL's (`FROM t at`): so this dialect is used only for query texts that have the
//! word `system_time`.

use std::any::TypeId;

use datafusion::sql::sqlparser::ast::{Expr, Ident};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// Word that selects this dialect.
const WORD: &str = "system_time";
/// Word in front of the number of a commit.
pub(crate) const TRANSACTION: &str = "transaction";

const POSTGRESQL: PostgreSqlDialect = PostgreSqlDialect {};

/// Dialect in which a query text is to be parsed.
pub fn dialect_of(sql: &str) -> &'static dyn Dialect {
    let has_word = sql.as_bytes().windows(WORD.len()).any(|word| word.eq_ignore_ascii_case(WORD.as_bytes()));
    if has_word { &TimeTravelDialect } else { &POSTGRESQL }
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct TimeTravelDialect;

/// Forwards methods to PostgreSQL's dialect.
macro_rules! as_postgresql {
    ($($name:ident)*) => {
        $(fn $name(&self) -> bool {
            POSTGRESQL.$name()
        })*
    };
}

impl Dialect for TimeTravelDialect {
    fn dialect(&self) -> TypeId {
        POSTGRESQL.dialect()
    }

    fn supports_table_versioning(&self) -> bool {
        true
    }

    /// Parses `TRANSACTION n`.
    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        let is_word = matches!(&parser.peek_token_ref().token,
            Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(TRANSACTION));
        let number = parser.peek_nth_token_ref(1);
        if !is_word || !matches!(number.token, Token::Number(..) | Token::Placeholder(_)) {
            return None;
        }
        parser.next_token();
        let value = parser.parse_value().map(|value| Box::new(Expr::Value(value)));
        Some(value.map(|value| Expr::Prefixed { prefix: Ident::new(TRANSACTION), value }))
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        POSTGRESQL.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        POSTGRESQL.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        POSTGRESQL.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        POSTGRESQL.is_identifier_part(ch)
    }

    fn is_reserved_for_identifier(&self, kw: Keyword) -> bool {
        POSTGRESQL.is_reserved_for_identifier(kw)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        POSTGRESQL.is_custom_operator_part(ch)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        POSTGRESQL.get_next_precedence(parser)
    }

    fn prec_value(&self, prec: Precedence) -> u8 {
        POSTGRESQL.prec_value(prec)
    }

    as_postgresql! {
        supports_unicode_string_literal
        supports_filter_during_aggregation
        supports_group_by_expr
        allow_extract_custom
        allow_extract_single_quotes
        supports_create_index_with_clause
        supports_explain_with_utility_options
        supports_listen_notify
        supports_factorial_operator
        supports_bitwise_shift_operators
        supports_comment_on
        supports_load_extension
        supports_named_fn_args_with_colon_operator
        supports_named_fn_args_with_expr_name
        supports_empty_projections
        supports_nested_comments
        supports_string_escape_constant
        supports_numeric_literal_underscores
        supports_array_typedef_with_brackets
        supports_geometric_types
        supports_set_names
        supports_alter_column_type_using
        supports_notnull_operator
        supports_interval_options
        supports_insert_table_alias
        supports_create_table_like_parenthesized
        supports_select_wildcard_with_alias
        supports_comma_separated_trim
        supports_xml_expressions
        supports_comment_optimizer_hint
    }
}

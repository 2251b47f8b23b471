//! Classification: what sqlparser returns, sorted into commands.

use crate::error::{Error, Result};
use crate::parser::command::Command;
use crate::parser::merge::{around, is_merge};
use crate::parser::names::{column_name, identifier};
use crate::parser::own::materialized::{CreateMaterialized, MaterializedStatement};
use datafusion::sql::parser::{ResetStatement, Statement as DFStatement};
use datafusion::sql::sqlparser::ast::{
    CloseCursor, ContextModifier, Declare, DeclareType, Expr, Ident, ObjectType, Set, Statement,
    Value as Literal,
};

/// Prefix of the names of DataFusion's options.
const DATAFUSION_OPTIONS: &str = "datafusion";
/// Setting that SQL spells TIME ZONE.
const TIME_ZONE: &str = "TimeZone";

pub(crate) fn classify(statement: DFStatement) -> Result<Command> {
    match statement {
        DFStatement::Statement(statement) => classify_sql(*statement),
        DFStatement::Explain(explain) => {
            let is_query = matches!(
                explain.statement.as_ref(),
                DFStatement::Statement(statement) if matches!(**statement, Statement::Query(_))
            );
            if explain.options.analyze || !is_query {
                let command = classify((*explain.statement).clone())?;
                if !command.is_rows() {
                    return Err(Error::unsupported(format!("EXPLAIN of {}", command.verb())));
                }
                if explain.options.analyze && command.writes_rows() {
                    return Ok(Command::ExplainWrite {
                        explain: Box::new(explain),
                        command: Box::new(command),
                    });
                }
            }
            Ok(Command::Query(Box::new(DFStatement::Explain(explain))))
        }
        DFStatement::Reset(ResetStatement::Variable(ref name)) => {
            let name = name.to_string();
            Ok(match name.to_ascii_lowercase().as_str() {
                "all" => Command::ResetAll,
                option if is_datafusion_option(option) => Command::DataFusion(Box::new(statement)),
                // The parser joins words like the parts of a name.
                "time.zone" => Command::Set { name: TIME_ZONE.into(), value: None, local: false },
                "session.authorization" | "transaction.isolation.level" => {
                    return Err(Error::unsupported(format!("RESET {}", name.replace('.', " "))));
                }
                _ => Command::Set { name, value: None, local: false },
            })
        }
        other @ (DFStatement::CreateExternalTable(_) | DFStatement::CopyTo(_)) => Err(unsupported(&other)),
    }
}

fn classify_sql(statement: Statement) -> Result<Command> {
    Ok(match statement {
        Statement::StartTransaction { modes, ref statements, modifier: None, .. }
            if statements.is_empty() =>
        {
            Command::Begin(modes)
        }
        Statement::Commit { chain: false, .. } => Command::Commit,
        Statement::Rollback { chain: false, savepoint: None } => Command::Rollback,
        Statement::Rollback { chain: false, savepoint: Some(name) } => Command::RollbackTo(identifier(&name)),
        Statement::Savepoint { name } => Command::Savepoint(identifier(&name)),
        Statement::ReleaseSavepoint { name } => Command::Release(identifier(&name)),
        Statement::CreateTable(create) => Command::CreateTable(Box::new(create)),
        Statement::Drop { object_type: ObjectType::Table, if_exists, names, cascade, .. } => {
            Command::DropTable { if_exists, names, cascade }
        }
        Statement::CreateView(create) if create.materialized => {
            // The tokens say whether it may be over streams too.
            let create = CreateMaterialized { over_tables: Some(create), over_streams: None };
            Command::Materialized(Box::new(MaterializedStatement::Create(Box::new(create))))
        }
        Statement::Drop { object_type: ObjectType::MaterializedView, if_exists, names, cascade, .. } => {
            Command::Materialized(Box::new(MaterializedStatement::Drop { if_exists, names, cascade }))
        }
        define @ (Statement::CreateIndex(_)
        | Statement::AlterTable(_)
        | Statement::CreateView(_)
        | Statement::Comment { if_exists: false, .. }
        | Statement::Drop {
            object_type: ObjectType::Index | ObjectType::View | ObjectType::Sequence,
            ..
        }) => Command::Define(Box::new(define)),
        Statement::Insert(insert) => Command::Insert(Box::new(insert)),
        Statement::Update(update) => Command::Update(Box::new(update)),
        Statement::Delete(delete) => Command::Delete(Box::new(delete)),
        Statement::Merge(merge) => Command::Merge(Box::new(around(merge))),
        Statement::Query(query) if is_merge(&query) => Command::Merge(query),
        Statement::Truncate(truncate) => Command::Truncate(Box::new(truncate)),
        Statement::Analyze(analyze) => Command::Analyze(Box::new(analyze)),
        Statement::Set(set) => return classify_set(set),
        Statement::ShowVariable { ref variable } if !is_datafusion_option(&words(variable)) => {
            match words(variable).as_str() {
                "all" => Command::ShowAll,
                name => Command::Show(name.to_owned()),
            }
        }
        Statement::Discard { object_type } => Command::Discard(object_type),
        Statement::UNLISTEN { .. } => Command::Unlisten,
        Statement::Prepare { name, data_types, statement } => Command::Prepare {
            name: identifier(&name),
            types: data_types,
            text_bytes: statement.to_string().len(),
            command: Box::new(preparable(classify_sql(*statement)?)?),
        },
        Statement::Execute { name: Some(name), parameters, immediate: false, using, into, .. }
            if using.is_empty() && into.is_empty() =>
        {
            Command::Execute { name: column_name(&name)?, arguments: parameters }
        }
        Statement::Deallocate { name, .. } => Command::Deallocate(unless_all(&name)),
        Statement::Declare { mut stmts } if stmts.len() == 1 => {
            let (name, query) = declared_cursor(stmts.swap_remove(0))?;
            Command::Declare { name, query }
        }
        Statement::Close { cursor: CloseCursor::All } => Command::Close(None),
        Statement::Close { cursor: CloseCursor::Specific { name } } => {
            Command::Close(Some(identifier(&name)))
        }
        query @ (Statement::Query(_)
        | Statement::ShowTables { .. }
        | Statement::ShowColumns { .. }
        | Statement::ShowVariable { .. }
        | Statement::ShowFunctions { .. }
        | Statement::ExplainTable { .. }) => {
            Command::Query(Box::new(DFStatement::Statement(Box::new(query))))
        }
        other => return Err(unsupported(&other)),
    })
}

/// Name, unless it is ALL.
fn unless_all(name: &Ident) -> Option<String> {
    let all = name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all");
    (!all).then(|| identifier(name))
}

/// Returns the command if PREPARE accepts it.
fn preparable(command: Command) -> Result<Command> {
    if command.is_rows() {
        Ok(command)
    } else {
        Err(Error::unsupported(format!("PREPARE of {}", command.verb())))
    }
}

/// The name and the query of a DECLARE.
fn declared_cursor(declare: Declare) -> Result<(String, Box<DFStatement>)> {
    let Declare { names, declare_type, binary, scroll, hold, for_query, .. } = declare;
    let (Some(query), [name], Some(DeclareType::Cursor)) = (for_query, names.as_slice(), declare_type) else {
        return Err(Error::unsupported("DECLARE of anything but a cursor"));
    };
    for (present, clause) in [(binary, "BINARY"), (scroll, "SCROLL"), (hold, "WITH HOLD")] {
        if present == Some(true) {
            return Err(Error::unsupported(format!("{clause} in DECLARE CURSOR")));
        }
    }
    Ok((identifier(name), Box::new(DFStatement::Statement(Box::new(Statement::Query(query))))))
}

/// Name that SHOW or RESET is given as words, which the parser takes for the parts of one: of settings that PostgreSQL writes so,
/// and of those with points.
fn words(variable: &[Ident]) -> String {
    let words: Vec<String> = variable.iter().map(|word| word.value.to_lowercase()).collect();
    match words.join(".").as_str() {
        "time.zone" => TIME_ZONE.to_owned(),
        "transaction.isolation.level" => "transaction_isolation".to_owned(),
        // The parser drops SESSION.
        "authorization" => "session_authorization".to_owned(),
        name => name.to_owned(),
    }
}

fn is_datafusion_option(name: &str) -> bool {
    let prefix = name.split('.').next().unwrap_or_default();
    prefix.eq_ignore_ascii_case(DATAFUSION_OPTIONS) && prefix.len() < name.len()
}

fn classify_set(set: Set) -> Result<Command> {
    match set {
        Set::SingleAssignment { ref variable, .. } if is_datafusion_option(&variable.to_string()) => {
            Ok(Command::DataFusion(Box::new(DFStatement::Statement(Box::new(Statement::Set(set))))))
        }
        Set::SingleAssignment { scope, hivevar: false, variable, values } => {
            let default = matches!(values.as_slice(), [value] if is_default(value));
            let values: Vec<String> = values.iter().map(setting_value).collect();
            Ok(Command::Set {
                name: variable.to_string().replace('"', ""),
                value: (!default).then(|| values.join(", ")),
                local: scope == Some(ContextModifier::Local),
            })
        }
        Set::SetTimeZone { local, value } => {
            let value = setting_value(&value);
            let default = value.eq_ignore_ascii_case("default") || value.eq_ignore_ascii_case("local");
            Ok(Command::Set { name: TIME_ZONE.into(), value: (!default).then_some(value), local })
        }
        Set::SetNames { charset_name, collation_name: None } => {
            Ok(Command::Set { name: "client_encoding".into(), value: Some(charset_name.value), local: false })
        }
        Set::SetTransaction { modes, snapshot: None, session } => {
            Ok(Command::SetTransaction { modes, session })
        }
        other => Err(unsupported(&Statement::Set(other))),
    }
}

/// Tells whether a value is the word DEFAULT.
fn is_default(value: &Expr) -> bool {
    let Expr::Identifier(word) = value else { return false };
    word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default")
}

/// String of a value: 'string', number, or word.
fn setting_value(value: &Expr) -> String {
    match value {
        Expr::Value(value) => match &value.value {
            Literal::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        Expr::Identifier(word) => word.value.clone(),
        other => other.to_string(),
    }
}

/// Error for an unsupported statement, named by its first words.
fn unsupported(statement: &impl std::fmt::Display) -> Error {
    const SHOWN_CHARS: usize = 60;
    let text = statement.to_string();
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    Error::unsupported(format!("statement {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::statement::parse;

    fn one(sql: &str) -> Command {
        parse(sql).unwrap().pop().unwrap()
    }

    #[test]
    fn statements_go_to_their_part_of_the_session() {
        assert!(matches!(one("BEGIN"), Command::Begin(_)));
        assert!(matches!(one("start transaction"), Command::Begin(_)));
        assert!(matches!(one("COMMIT"), Command::Commit));
        assert!(matches!(one("END"), Command::Commit));
        assert!(matches!(one("ROLLBACK"), Command::Rollback));
        assert!(matches!(one("ROLLBACK TO SAVEPOINT A"), Command::RollbackTo(name) if name == "a"));
        assert!(
            matches!(one("DROP TABLE IF EXISTS a, b"), Command::DropTable { if_exists: true, names, cascade: false } if names.len() == 2)
        );
        let set = |sql: &str| match one(sql) {
            Command::Set { name, value, local } => (name, value.unwrap_or("DEFAULT".into()), local),
            other => panic!("{sql}: {other:?}"),
        };
        let is = |name: &str, value: &str, local| (name.to_owned(), value.to_owned(), local);
        assert_eq!(set("SET durability = 'group:10ms'"), is("durability", "group:10ms", false));
        assert_eq!(set("SET LOCAL Durability TO none"), is("Durability", "none", true));
        assert_eq!(set("SET search_path TO a, \"B\""), is("search_path", "a, B", false));
        assert_eq!(set("SET TIME ZONE 'UTC'"), is("TimeZone", "UTC", false));
        assert_eq!(set("SET SESSION extra_float_digits = -3"), is("extra_float_digits", "-3", false));
        assert_eq!(set("SET NAMES 'utf8'"), is("client_encoding", "utf8", false));
        assert_eq!(set("RESET DateStyle"), is("DateStyle", "DEFAULT", false));
        assert_eq!(set("RESET TIME ZONE"), is("TimeZone", "DEFAULT", false));
        assert!(matches!(one("RESET ALL"), Command::ResetAll));
        assert!(matches!(one("SHOW durability"), Command::Show(name) if name == "durability"));
        assert!(matches!(one("SHOW ALL"), Command::ShowAll));
        assert!(
            matches!(one("SHOW TRANSACTION ISOLATION LEVEL"), Command::Show(name) if name == "transaction_isolation")
        );
        assert!(matches!(one("SHOW datafusion.execution.batch_size"), Command::Query(_)));
        assert!(matches!(one("SET datafusion.execution.batch_size = 7"), Command::DataFusion(_)));
        assert!(matches!(
            one("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"),
            Command::SetTransaction { session: true, .. }
        ));
        assert!(matches!(one("EXPLAIN SELECT 1"), Command::Query(_)));
        assert_eq!(parse("SELECT 1; SELECT 2;").unwrap().len(), 2);
        assert_eq!(parse(" ; -- nothing\n").unwrap().len(), 0);
    }
}

//! PostgreSQL's spellings that the engine's planner does not know, in its own: on the parsed statement, in one place.
//!
//! | written | planned |
//! | --- | --- |
//! | `pg_catalog.f(x)` | `f(x)` |
//! | `x OPERATOR(pg_catalog.~) y`, `x COLLATE c` | `x ~ y`, `x` |
//! | `x::pg_catalog.text`, `x::oid`, `x::"char"` | casts to TEXT, INT UNSIGNED, TEXT |
//! | `'t'::regclass` | `regclass('t')`, a number; `regclass_name('t')` where its text is wanted |
//! | `x = ANY('{a,b}')`, `x <> ALL(list)` | `x IN ('a', 'b')`, `NOT array_has(list, x)` |
//! | `'{1,2}'::int[]` | `ARRAY[1, 2]` with casts |
//! | `ARRAY(SELECT …)` | a subquery with `array_agg` |
//! | `information_schema.t` | ours: the engine has its own, for SHOW |
//! | `generate_series(a, b)` of columns, `pg_catalog.unnest(x)`, `pg_get_keywords()` in FROM | subqueries, a table |
//! | `(row).field` | `get_field(row, 'field')` |
//! | `f(x) AS t` in FROM, `unnest(x) WITH ORDINALITY` | subqueries |
//! | `polroles = '{0}'`, `indisprimary = 'f'` | comparisons with `ARRAY[0]`, `false` |
//! | two columns of one name | an invisible difference in the second name |
//!
//! The texts of casts to alias types are wanted in the outermost SELECT list, in casts to text and beside `||`;
//! elsewhere they are compared with numbers.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, ArrayElemTypeDef, BinaryOperator, CastKind, DataType as SqlType, ExactNumberInfo,
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    ObjectNamePart, Query, Select, SelectItem, SetExpr, Statement, Subscript, TableAlias, TableFactor,
    TimezoneInfo, UnaryOperator, Value as Literal, VisitMut, VisitorMut,
};

use super::resolve::Alias;
use super::{INFORMATION_INNER, INFORMATION_SCHEMA, PG_CATALOG, relation};
use crate::schemas::CATALOG;
use crate::statement::{identifier, query_of};

/// Lists that PostgreSQL counts from 0.
const VECTORS: [&str; 5] = ["indkey", "indclass", "indcollation", "indoption", "proargtypes"];
/// Functions whose result is rows, and here a list.
const ROWS: [&str; 2] = ["pg_partition_ancestors", "_pg_expandarray"];

/// Translates a statement.
pub(crate) fn translate(statement: &mut EngineStatement) {
    match statement {
        EngineStatement::Statement(statement) => {
            if let Statement::Query(query) = statement.as_mut() {
                shown(&mut query.body);
            }
            let visited = statement.visit(&mut Spelling);
            debug_assert!(visited.is_continue());
        }
        EngineStatement::Explain(explain) => translate(&mut explain.statement),
        _ => {}
    }
}

/// In the outermost SELECT list alias types are shown by name, and vectors without braces.
fn shown(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => select.projection.iter_mut().for_each(shown_item),
        SetExpr::SetOperation { left, right, .. } => {
            shown(left);
            shown(right);
        }
        SetExpr::Query(query) => shown(&mut query.body),
        _ => {}
    }
}

fn shown_item(item: &mut SelectItem) {
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { return };
    let (call, name) = match expr {
        Expr::Cast { expr: inner, data_type, .. } => match alias_of(data_type) {
            Some(alias) => {
                (call(&format!("{}_name", alias.name()), vec![(**inner).clone()]), alias.name().to_owned())
            }
            None => return,
        },
        vector if is_vector(vector) => {
            let name = column_of(vector).map(identifier).unwrap_or_default();
            (call("array_to_string", vec![vector.clone(), text(" ")]), name)
        }
        _ => return,
    };
    let alias = match item {
        SelectItem::ExprWithAlias { alias, .. } => alias.clone(),
        _ => Ident::with_quote('"', name),
    };
    *item = SelectItem::ExprWithAlias { expr: call, alias };
}

struct Spelling;

impl VisitorMut for Spelling {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        name_apart(&mut select.projection);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        table(factor);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Collate { expr: inner, .. } => *expr = std::mem::replace(inner, null()),
            Expr::BinaryOp { left, op, right } => {
                if let BinaryOperator::PGCustomBinaryOperator(name) = op
                    && let Some(known) = name.last().and_then(|symbol| operator(symbol))
                {
                    *op = known;
                }
                match op {
                    BinaryOperator::StringConcat => {
                        by_name(left);
                        by_name(right);
                    }
                    BinaryOperator::Eq | BinaryOperator::NotEq if is_list(left) => list_of_literal(right),
                    BinaryOperator::Eq | BinaryOperator::NotEq if is_list(right) => list_of_literal(left),
                    BinaryOperator::Eq | BinaryOperator::NotEq if has_type(left, |word| word == "bool") => {
                        flag_of_literal(right);
                    }
                    _ => {}
                }
            }
            Expr::Cast { .. } => cast(expr),
            Expr::Function(_) => function(expr),
            Expr::AnyOp { .. } | Expr::AllOp { .. } => quantified(expr),
            Expr::CompoundIdentifier(parts) => {
                if parts.len() > 2 && parts[0].value.eq_ignore_ascii_case(INFORMATION_SCHEMA) {
                    parts.remove(0);
                }
            }
            Expr::CompoundFieldAccess { access_chain, .. }
                if access_chain
                    .iter()
                    .all(|access| matches!(access, AccessExpr::Dot(Expr::Identifier(_)))) =>
            {
                fields(expr);
            }
            Expr::CompoundFieldAccess { root, access_chain } if is_vector(root) => {
                for access in access_chain {
                    if let AccessExpr::Subscript(Subscript::Index { index }) = access {
                        *index = sum(std::mem::replace(index, null()), 1);
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn null() -> Expr {
    Expr::value(Literal::Null)
}

fn number(value: i64) -> Expr {
    Expr::value(Literal::Number(value.to_string(), false))
}

fn text(value: &str) -> Expr {
    Expr::value(Literal::SingleQuotedString(value.to_owned()))
}

fn sum(left: Expr, right: i64) -> Expr {
    let (op, right) = match right < 0 {
        true => (BinaryOperator::Minus, number(-right)),
        false => (BinaryOperator::Plus, number(right)),
    };
    Expr::Nested(Box::new(Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }))
}

fn cast_to(expr: Expr, data_type: SqlType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

/// `name(arguments)`
fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let args =
        arguments.into_iter().map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

fn operator(symbol: &str) -> Option<BinaryOperator> {
    Some(match symbol {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "||" => BinaryOperator::StringConcat,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "%" => BinaryOperator::Modulo,
        _ => return None,
    })
}

/// The last part of a name; without a schema, or with one of PostgreSQL's.
fn system_name(name: &ObjectName) -> Option<String> {
    let parts: Vec<&Ident> = name.0.iter().filter_map(ObjectNamePart::as_ident).collect();
    match parts.as_slice() {
        [name] => Some(identifier(name)),
        [schema, name] if is_system(&schema.value) => Some(identifier(name)),
        _ => None,
    }
}

fn is_system(schema: &str) -> bool {
    schema.eq_ignore_ascii_case(PG_CATALOG) || schema.eq_ignore_ascii_case(INFORMATION_SCHEMA)
}

fn alias_of(data_type: &SqlType) -> Option<Alias> {
    match data_type {
        SqlType::Regclass => Some(Alias::Class),
        SqlType::Custom(name, arguments) if arguments.is_empty() => Alias::named(&system_name(name)?),
        _ => None,
    }
}

/// The type that the engine knows; `None`: it is one.
fn known_type(data_type: &SqlType) -> Option<SqlType> {
    let name = match data_type {
        SqlType::Array(ArrayElemTypeDef::SquareBracket(element, size)) => {
            let element = known_type(element)?;
            return Some(SqlType::Array(ArrayElemTypeDef::SquareBracket(Box::new(element), *size)));
        }
        SqlType::JSON | SqlType::JSONB | SqlType::Uuid => return Some(SqlType::Text),
        SqlType::Custom(name, _) => system_name(name)?,
        _ => return None,
    };
    let array = |of: SqlType| SqlType::Array(ArrayElemTypeDef::SquareBracket(Box::new(of), None));
    Some(match name.as_str() {
        "text" | "name" | "char" | "bpchar" | "varchar" | "cstring" | "json" | "jsonb" | "unknown"
        | "aclitem" | "pg_node_tree" | "sql_identifier" | "character_data" | "yes_or_no" => SqlType::Text,
        "oid" | "xid" | "cid" => SqlType::IntUnsigned(None),
        "int4" | "integer" | "cardinal_number" => SqlType::Int(None),
        "int2" | "smallint" => SqlType::SmallInt(None),
        "int8" | "bigint" => SqlType::BigInt(None),
        "float4" | "real" => SqlType::Real,
        "float8" => SqlType::Double(ExactNumberInfo::None),
        "bool" | "boolean" => SqlType::Boolean,
        "numeric" => SqlType::Numeric(ExactNumberInfo::None),
        "date" => SqlType::Date,
        "timestamp" => SqlType::Timestamp(None, TimezoneInfo::None),
        "timestamptz" => SqlType::Timestamp(None, TimezoneInfo::WithTimeZone),
        "bytea" => SqlType::Bytea,
        "int2vector" => array(SqlType::SmallInt(None)),
        "oidvector" => array(SqlType::IntUnsigned(None)),
        _ => return None,
    })
}

fn is_text(data_type: &SqlType) -> bool {
    matches!(
        data_type,
        SqlType::Text | SqlType::Varchar(_) | SqlType::CharacterVarying(_) | SqlType::String(_)
    )
}

/// `regclass(x)` becomes `regclass_name(x)`.
fn by_name(expr: &mut Expr) {
    if let Expr::Function(function) = expr
        && let Some(alias) = system_name(&function.name).and_then(|name| Alias::named(&name))
    {
        function.name = ObjectName::from(vec![Ident::new(format!("{}_name", alias.name()))]);
    }
}

fn cast(expr: &mut Expr) {
    let Expr::Cast { expr: inner, data_type, .. } = expr else { return };
    if let Some(alias) = alias_of(data_type) {
        *expr = call(alias.name(), vec![std::mem::replace(inner, null())]);
        return;
    }
    if let Some(known) = known_type(data_type) {
        *data_type = known;
    }
    if is_text(data_type) {
        by_name(inner);
    }
    if let SqlType::Array(ArrayElemTypeDef::SquareBracket(element, _)) = data_type
        && let Some(elements) = list_literal(inner)
    {
        let cast =
            |word: Option<String>| cast_to(word.map_or_else(null, |word| text(&word)), (**element).clone());
        let elem: Vec<Expr> = elements.into_iter().map(cast).collect();
        if !elem.is_empty() {
            *expr = Expr::Array(Array { elem, named: true });
        }
    }
}

/// `(row).a.b` becomes `get_field(get_field(row, 'a'), 'b')`.
fn fields(expr: &mut Expr) {
    let Expr::CompoundFieldAccess { root, access_chain } = expr else { return };
    let mut value = std::mem::replace(root.as_mut(), null());
    for access in access_chain {
        if let AccessExpr::Dot(Expr::Identifier(name)) = access {
            value = call("get_field", vec![value, text(&identifier(name))]);
        }
    }
    *expr = value;
}

/// The elements of `'{a,"b c",NULL}'`.
fn list_literal(expr: &Expr) -> Option<Vec<Option<String>>> {
    let Expr::Value(value) = expr else { return None };
    let Literal::SingleQuotedString(text) = &value.value else { return None };
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut elements = Vec::new();
    if inner.trim().is_empty() {
        return Some(elements);
    }
    let mut chars = inner.chars();
    let (mut word, mut quoted, mut was_quoted) = (String::new(), false, false);
    let mut finish = |word: &mut String, was_quoted: &mut bool| {
        let element = if *was_quoted { std::mem::take(word) } else { std::mem::take(word).trim().to_owned() };
        let is_null = !*was_quoted && element.eq_ignore_ascii_case("null");
        elements.push((!is_null).then_some(element));
        *was_quoted = false;
    };
    while let Some(c) = chars.next() {
        match c {
            '\\' => word.extend(chars.next()),
            '"' => (quoted, was_quoted) = (!quoted, true),
            ',' if !quoted => finish(&mut word, &mut was_quoted),
            // Lists of lists are not read.
            '{' | '}' if !quoted => return None,
            c => word.push(c),
        }
    }
    finish(&mut word, &mut was_quoted);
    Some(elements)
}

/// `x op ANY(list)`, `x op ALL(list)` for = and <>.
fn quantified(expr: &mut Expr) {
    let (left, op, right, wanted, negated) = match expr {
        Expr::AnyOp { left, compare_op, right, .. } => (left, compare_op, right, BinaryOperator::Eq, false),
        Expr::AllOp { left, compare_op, right } => (left, compare_op, right, BinaryOperator::NotEq, true),
        _ => return,
    };
    if let BinaryOperator::PGCustomBinaryOperator(name) = op
        && let Some(known) = name.last().and_then(|symbol| operator(symbol))
    {
        *op = known;
    }
    if *op != wanted || matches!(**right, Expr::Subquery(_)) {
        return;
    }
    let list = match right.as_mut() {
        Expr::Nested(inner) => inner.as_mut(),
        other => other,
    };
    let elements = if let Expr::Array(Array { elem, .. }) = list {
        Some(std::mem::take(elem))
    } else {
        list_literal(list)
            .map(|words| words.into_iter().map(|word| word.map_or_else(null, |word| text(&word))).collect())
    };
    let left = std::mem::replace(left.as_mut(), null());
    *expr = match elements {
        Some(elements) if elements.is_empty() => Expr::value(Literal::Boolean(negated)),
        Some(list) => Expr::InList { expr: Box::new(left), list, negated },
        None => {
            let has = call("array_has", vec![std::mem::replace(list, null()), left]);
            match negated {
                true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(has) },
                false => has,
            }
        }
    };
}

fn function(expr: &mut Expr) {
    let Expr::Function(function) = expr else { return };
    let Some(name) = system_name(&function.name) else { return };
    if function.name.0.len() > 1 {
        function.name = ObjectName::from(vec![Ident::new(&name)]);
    }
    if name == "array"
        && let FunctionArguments::Subquery(query) = &function.args
    {
        if let Some(list) = list_of_rows(query) {
            *expr = list;
        }
        return;
    }
    let FunctionArguments::List(list) = &mut function.args else { return };
    if name == "generate_subscripts" {
        if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(array))) = list.args.first() {
            let length = cast_to(call("array_length", vec![array.clone()]), SqlType::BigInt(None));
            let last = call("coalesce", vec![length, number(0)]);
            let (first, last) = if is_vector(array) { (0, sum(last, -1)) } else { (1, last) };
            *expr = call("unnest", vec![call("generate_series", vec![number(first), last])]);
        }
    } else if ROWS.contains(&name.as_str()) {
        let inner = std::mem::replace(expr, null());
        *expr = call("unnest", vec![inner]);
    }
}

/// `ARRAY(query)`
fn list_of_rows(query: &Query) -> Option<Expr> {
    let text = "SELECT array_agg(\"rows\".\"x\") FROM (SELECT 1) AS \"rows\"(\"x\")";
    let EngineStatement::Statement(statement) = query_of(text).ok()? else { return None };
    let Statement::Query(mut outer) = *statement else { return None };
    let SetExpr::Select(select) = outer.body.as_mut() else { return None };
    let TableFactor::Derived { subquery, .. } = &mut select.from.first_mut()?.relation else { return None };
    *subquery = Box::new(query.clone());
    Some(Expr::Subquery(outer))
}

/// The name of a column.
fn column_of(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(parts) => parts.last(),
        _ => None,
    }
}

fn is_vector(expr: &Expr) -> bool {
    column_of(expr).is_some_and(|name| VECTORS.iter().any(|vector| name.value.eq_ignore_ascii_case(vector)))
}

/// Whether the catalog has a column of this name whose values are lists.
fn is_list(expr: &Expr) -> bool {
    has_type(expr, |word| word.ends_with("[]"))
}

/// Whether the catalog has a column of this name with such a type. Short names may be anybody's.
fn has_type(expr: &Expr, fits: fn(&str) -> bool) -> bool {
    let Some(name) = column_of(expr) else { return false };
    name.value.len() > 5
        && relation::all().any(|(_, relation)| {
            relation.columns().any(|(column, word)| fits(word) && name.value.eq_ignore_ascii_case(column))
        })
}

/// `'t'` and `'f'` beside a flag.
fn flag_of_literal(expr: &mut Expr) {
    let Expr::Value(value) = expr else { return };
    let Literal::SingleQuotedString(text) = &value.value else { return };
    let flag = match text.as_str() {
        "t" | "true" => true,
        "f" | "false" => false,
        _ => return,
    };
    *expr = Expr::value(Literal::Boolean(flag));
}

/// `'{1,2}'` as a list.
fn list_of_literal(expr: &mut Expr) {
    let Some(words) = list_literal(expr) else { return };
    let element = |word: Option<String>| match word {
        None => null(),
        Some(word) => word.parse().map_or_else(|_| text(&word), number),
    };
    let elem: Vec<Expr> = words.into_iter().map(element).collect();
    if !elem.is_empty() {
        *expr = Expr::Array(Array { elem, named: true });
    }
}

fn alias_named(name: &str) -> TableAlias {
    TableAlias { explicit: true, name: Ident::with_quote('"', name), columns: Vec::new(), at: None }
}

/// Tables of the catalog's schemas, and functions in FROM.
fn table(factor: &mut TableFactor) {
    if let TableFactor::UNNEST { with_ordinality: true, .. } = factor {
        numbered(factor);
        return;
    }
    let TableFactor::Table { name, alias, args, .. } = factor else { return };
    let qualified = name.0.first().and_then(ObjectNamePart::as_ident);
    if name.0.len() == 3 && qualified.is_some_and(|first| first.value.eq_ignore_ascii_case(CATALOG)) {
        name.0.remove(0);
    }
    let schema = (name.0.len() == 2).then(|| name.0[0].as_ident()).flatten();
    let in_information = schema.is_some_and(|schema| schema.value.eq_ignore_ascii_case(INFORMATION_SCHEMA));
    match args {
        None if in_information => {
            let Some(last) = system_name(name) else { return };
            name.0[0] = ObjectNamePart::Identifier(Ident::with_quote('"', INFORMATION_INNER));
            alias.get_or_insert_with(|| alias_named(&last));
        }
        None => {}
        Some(arguments) => {
            let Some(function) = system_name(name) else { return };
            if function == "pg_get_keywords" {
                *name = ObjectName::from(vec![Ident::new(PG_CATALOG), Ident::new(&function)]);
                *args = None;
                return;
            }
            *name = ObjectName::from(vec![Ident::new(&function)]);
            let constant = arguments.args.iter().all(|argument| {
                let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = argument else { return false };
                match value {
                    Expr::UnaryOp { expr, .. } => matches!(**expr, Expr::Value(_)),
                    value => matches!(value, Expr::Value(_)),
                }
            });
            let list = arguments.args.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let value = match function.as_str() {
                "generate_series" if !constant => format!("unnest(generate_series({list}))"),
                "unnest" => format!("unnest({list})"),
                // The engine's own.
                "generate_series" | "range" => return,
                // One row with its value.
                other => format!("{other}({list})"),
            };
            let shown = alias.as_ref().map_or(function, |alias| identifier(&alias.name));
            let column = alias.as_ref().and_then(|alias| alias.columns.first());
            let column = column.map_or_else(|| shown.clone(), |column| identifier(&column.name));
            let quoted = |name: &str| Ident::with_quote('"', name).to_string();
            let (shown, column) = (quoted(&shown), quoted(&column));
            let text = format!("SELECT 1 FROM (SELECT {value} AS {column}) AS {shown}");
            if let Some(derived) = first_factor(&text) {
                *factor = derived;
            }
        }
    }
}

/// `unnest(a, b) WITH ORDINALITY t(x, y, n)`
fn numbered(factor: &mut TableFactor) {
    let TableFactor::UNNEST { alias: Some(alias), array_exprs, .. } = factor else { return };
    let Some(first) = array_exprs.first() else { return };
    let quoted = |name: &str| Ident::with_quote('"', name).to_string();
    let named = |at: usize, otherwise: &str| {
        let column = alias.columns.get(at).map(|column| identifier(&column.name));
        quoted(&column.unwrap_or_else(|| otherwise.to_owned()))
    };
    let table = identifier(&alias.name);
    let values =
        array_exprs.iter().enumerate().map(|(at, list)| format!("unnest({list}) AS {}", named(at, &table)));
    let mut items: Vec<String> = values.collect();
    let places = format!("unnest(generate_series(1, CAST(array_length({first}) AS BIGINT)))");
    items.push(format!("{places} AS {}", named(array_exprs.len(), "ordinality")));
    if let Some(derived) =
        first_factor(&format!("SELECT 1 FROM (SELECT {}) AS {}", items.join(", "), quoted(&table)))
    {
        *factor = derived;
    }
}

/// What stands behind FROM.
fn first_factor(text: &str) -> Option<TableFactor> {
    let EngineStatement::Statement(statement) = query_of(text).ok()? else { return None };
    let Statement::Query(mut query) = *statement else { return None };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    (!select.from.is_empty()).then(|| select.from.swap_remove(0).relation)
}

/// Gives columns that would have the same name others, which clients see as the same.
fn name_apart(projection: &mut [SelectItem]) {
    let wild = projection
        .iter()
        .any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
    let mut seen: Vec<String> = Vec::new();
    for item in projection {
        let (shown, expr, named) = match item {
            // As it will be written.
            SelectItem::UnnamedExpr(expr) => (expr.to_string().replace("pg_catalog.", ""), expr, false),
            SelectItem::ExprWithAlias { expr, alias } => (identifier(alias), expr, true),
            _ => continue,
        };
        let is_column = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
        let repeated = seen.iter().filter(|other| **other == shown).count();
        seen.push(shown);
        // A column beside `t.*` is there twice.
        let repeats = repeated + usize::from(wild && is_column && !named);
        if repeats == 0 {
            continue;
        }
        let name = match item {
            SelectItem::ExprWithAlias { alias, .. } => identifier(alias),
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => identifier(name),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                parts.last().map(identifier).unwrap_or_default()
            }
            SelectItem::UnnamedExpr(Expr::Function(function)) => {
                system_name(&function.name).unwrap_or_default()
            }
            _ => "?column?".to_owned(),
        };
        let alias = Ident::with_quote('"', format!("{name}{}", "\0".repeat(repeats)));
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            *item = SelectItem::ExprWithAlias { expr: std::mem::replace(expr, null()), alias };
        }
    }
}

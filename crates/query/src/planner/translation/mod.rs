//! PostgreSQL's syntax that DataFusion's planner does not know, rewritten into syntax that it does, in the
//! syntax tree.
//!
//! | written | planned |
//! | --- | --- |
//! | `pg_catalog.f(x)` | `f(x)` |
//! | `x OPERATOR(pg_catalog.~) y`, `x COLLATE c` | `x ~ y`, `x` |
//! | `x::pg_catalog.text`, `x::oid`, `x::"char"` | casts to TEXT, INT UNSIGNED, TEXT |
//! | `'t'::regclass` | `regclass('t')`, a number; `regclass_name('t')` where the name is wanted |
//! | `(a, b) IN (SELECT …)`, `(a, b) = (SELECT …)` | EXISTS, a subquery, see [`membership`] |
//! | `(a, b) < (c, d)`, `-2 ^ 2`, `@ x`, BETWEEN SYMMETRIC, LIKE … ESCAPE, … | see [`operators`] |
//! | `FETCH FIRST 2 ROWS ONLY`, `WITH TIES` | `LIMIT 2`, a condition on `rank()`, see [`fetch`] |
//! | `array_remove(a, x)`, `array_replace(a, x, y)` | `array_remove_all`, `array_replace_all` |
//! | `variance(x)`, `every(x)`, `sign(x)` | `var_samp(x)`, `bool_and(x)`, `signum(x)` |
//! | `VALUES (date '2020-01-01'), ('2020-01-02')`, `generate_series(t, '…', '1 day')` | literals of one type, see [`values`] |
//! | `x SIMILAR TO 'a%'` | `x ~ similar_to_escape('a%')` |
//! | `x = ANY('{a,b}')`, `x <> ALL(list)` | `x IN ('a', 'b')`, `NOT array_has(list, x)` |
//! | `'{1,2}'::int[]` | `ARRAY[1, 2]` with casts |
//! | `ARRAY(SELECT …)` | a subquery with `array_agg` |
//! | `information_schema.t` | our own: DataFusion has one of its own, for SHOW |
//! | `generate_series(a, b)` of columns, `pg_catalog.unnest(x)`, `pg_get_keywords()` in FROM | subqueries, a table |
//! | `generate_series(1, t.n)` behind `t` in FROM | a LATERAL subquery, see [`laterals`] |
//! | `generate_series(1, 3)` in a SELECT list | `unnest(generate_series(1, 3))`: rows |
//! | `current_schema`, `localtimestamp`, `clock_timestamp()` | calls, casts of them |
//! | `interval '1 day 04:05:06'`, `'P1D'::interval`, `interval '1' day` | in units, see [`crate::postgres::intervals`] |
//! | `make_interval(days => 3)` | `make_interval(0, 0, 0, 3, 0, 0, 0)` |
//! | `x::varchar(3)`, `x::char(3)`, `x::uuid`, `x::bytea` | functions: casts that truncate, check or parse |
//! | `x::json`, `x::jsonb`, `json '…'` | `json_in(x)`, `jsonb_in(x)` |
//! | `json_agg(x)`, `json_object_agg(k, v)` | `json_agg_list(array_agg(to_json(x)))`, of pairs |
//! | `j #> '{a,0}'` | `j #> ARRAY['a', '0']` |
//! | `mod(a, b)`, `to_date(text, template)`, `to_timestamp(text, template)` | `a % b`, casts of a local time |
//! | `(row).field`, `(jsonb_each(j)).key` | `get_field(row, 'field')`, see [`rows`] |
//! | `substring(x FROM a FOR b)`, `make_timestamptz(…)` | `substr(x, a, b)`, a cast of `make_timestamp(…)` |
//! | `div(a, b)`, `array_upper(a, 1)`, `mode() WITHIN GROUP (ORDER BY x)`, … | see [`calls`] |
//! | `f(x) AS t` in FROM, `unnest(x) WITH ORDINALITY` | subqueries |
//! | `polroles = '{0}'`, `indisprimary = 'f'` | comparisons with `ARRAY[0]`, `false` |
//! | `time AT TIME ZONE zone` | `timezone(zone, time)` |
//! | items without a name: `count(*)`, `c::type`, `1 + 1` | `AS count`, `AS c`, `AS "?column?"`, see [`names`] |
//! | ASOF JOIN | LEFT JOIN with a mark, see [`crate::planner::rules::asof`] |
//! | `l.id` where RIGHT or FULL JOIN … USING merges `id` | marked, see [`crate::planner::join_using`] |
//! | `sum(a)`, `sum(a::numeric)` in one SELECT | other names, see [`casts`] |
//! | nested queries of one name in WITH | other names, see [`with_names`] |
//! | `x::numeric`, `date 'today'` | see [`conversions`] |
//! | `c.tableoid` of a relation of `pg_catalog` | its number, see [`table_numbers`] |
//! | two columns of one name | an invisible difference in the second name |
//!
//! Casts to alias types give names in the outermost SELECT list, in casts to strings and beside `||`;
//! elsewhere numbers, for comparisons.

mod asof;
mod build;
mod calls;
mod casts;
mod conversions;
mod fetch;
mod from;
mod laterals;
mod lists;
mod membership;
mod names;
mod operators;
mod recursive;
mod rows;
mod special_times;
mod table_numbers;
mod types;
mod values;
mod with_names;

use crate::parser::visit::{visit_expressions, walk_mut};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, DataType as SqlType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, ObjectName, Query, Select, SelectItem, SetExpr, Statement, Subscript, TableFactor, TimezoneInfo,
    UnaryOperator, Visit, VisitorMut,
};
use std::ops::ControlFlow;

pub(crate) use self::build::call;
use self::build::{cast_to, null, number, sum, text};
use self::casts::tell_apart;
use self::conversions::{by_name, cast, interval, negated_interval, typed_literal};
use self::fetch::limit_fetch;
pub(crate) use self::from::first_factor;
use self::from::{SERIES_COLUMN, table};
use self::lists::{
    column_of, flag_of_literal, has_type, is_list, is_vector, list_of_literal, quantified, texts_of_literal,
};
pub(crate) use self::names::{column_name, shown_name};
use self::names::{name_items, order_items, set_apart};
use self::rows::{ROWS, list_of, unnested};
pub(crate) use self::types::system_name;
use self::types::{alias_of, operator, timestamp};
use crate::parser::names::identifier;
use crate::parser::statement::query_of;
use crate::planner::join_using;
use crate::postgres::functions::CLOCK;
use crate::postgres::intervals::MAKE_INTERVAL;
use crate::postgres::json::JsonType;
use crate::postgres::similar::SIMILAR;
use crate::postgres::to_char::TIME_OF_TEXT;
use crate::schema_names::INFORMATION_SCHEMA;

/// Functions of PostgreSQL, and DataFusion's that do the same.
const RENAMED: [(&str, &str); 9] = [
    ("array_remove", "array_remove_all"),
    ("array_replace", "array_replace_all"),
    ("array_to_json", "to_json"),
    ("ceiling", "ceil"),
    ("every", "bool_and"),
    ("gen_random_uuid", "uuid"),
    ("row_to_json", "to_json"),
    ("sign", "signum"),
    ("variance", "var_samp"),
];

/// Functions whose names are reserved words, which the parser takes for columns where they have no parentheses.
const WORDS: [&str; 2] = ["current_schema", "current_role"];

/// Type of an aggregate that collects JSON.
fn aggregate_of_json(name: &str) -> Option<JsonType> {
    match name {
        "json_agg" | "json_object_agg" => Some(JsonType::Json),
        "jsonb_agg" | "jsonb_object_agg" => Some(JsonType::Jsonb),
        _ => None,
    }
}

/// Rewrites a statement.
pub(crate) fn translate(statement: &mut DFStatement) {
    match statement {
        DFStatement::Statement(statement) => {
            if let Statement::Query(query) = statement.as_mut() {
                shown(&mut query.body);
            }
            with_names::set_apart(statement.as_mut());
            let names_value = names_value(statement.as_ref());
            let mut visitor = SpellingVisitor { names_value, ..SpellingVisitor::default() };
            let visited = walk_mut(statement, &mut visitor);
            debug_assert!(visited.is_continue());
            if visitor.has_lists {
                lists::call_lists(statement);
            }
        }
        DFStatement::Explain(explain) => translate(&mut explain.statement),
        _ => {}
    }
}

/// Returns true if a statement names a column `value`: DataFusion's name of the column of `generate_series`.
fn names_value(tree: &impl Visit) -> bool {
    let found = visit_expressions(tree, |expr| match column_of(expr) {
        Some(name) if identifier(name) == SERIES_COLUMN => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Rewrites an expression.
pub(crate) fn translate_expr(expr: &mut Expr) {
    let mut visitor = SpellingVisitor { names_value: names_value(expr), ..SpellingVisitor::default() };
    let visited = walk_mut(expr, &mut visitor);
    debug_assert!(visited.is_continue());
    if visitor.has_lists {
        lists::call_lists(expr);
    }
}

/// Rewrites the outermost SELECT list: alias types are shown by name, and vectors without braces.
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
            // The column itself may be needed beside it: clients do not see the difference.
            let name = column_of(vector).map(identifier).unwrap_or_default() + "\0";
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

#[derive(Default)]
struct SpellingVisitor {
    /// Number of queries around.
    depth: usize,
    /// True if a column `value` is named anywhere.
    names_value: bool,
    /// True if a list is written out.
    has_lists: bool,
}

impl VisitorMut for SpellingVisitor {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        limit_fetch(query);
        if let SetExpr::Values(values) = query.body.as_mut() {
            values::type_strings(values);
        }
        query.with.iter_mut().for_each(recursive::number_first_terms);
        order_items(query);
        join_using::mark_order(query);
        set_apart(&mut query.body, false);
        tell_apart(query, self.depth > 1);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        asof::mark(select);
        laterals::functions(select, self.names_value);
        table_numbers::resolve(select);
        join_using::mark(select);
        select.selection.iter_mut().for_each(membership::conditions);
        name_items(&mut select.projection, self.depth > 1);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: Some(arguments), .. } = factor
            && system_name(name).is_some_and(|name| name == "generate_series")
        {
            values::type_series(&mut expressions(&mut arguments.args));
        }
        table(factor, self.names_value);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } = expr {
            rows_of_list(right);
        }
        self.has_lists |= matches!(expr, Expr::Array(_));
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
                    BinaryOperator::HashArrow
                    | BinaryOperator::HashLongArrow
                    | BinaryOperator::HashMinus
                    | BinaryOperator::QuestionPipe
                    | BinaryOperator::QuestionAnd => texts_of_literal(right),
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
            Expr::Identifier(name) if name.quote_style.is_none() => word(expr),
            Expr::Interval(_) => interval(expr),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => {
                if let Some(literal) = negated_interval(inner) {
                    *expr = literal;
                }
            }
            Expr::Cast { .. } => cast(expr),
            Expr::TypedString(_) => typed_literal(expr),
            Expr::Function(_) => function(expr),
            Expr::AtTimeZone { timestamp, time_zone } => {
                let time = std::mem::replace(&mut **timestamp, null());
                let zone = std::mem::replace(&mut **time_zone, null());
                *expr = call("timezone", vec![zone, time]);
            }
            Expr::AnyOp { .. } | Expr::AllOp { .. } => quantified(expr),
            Expr::SimilarTo { .. } => similar(expr),
            Expr::Substring { .. } => substring(expr),
            Expr::InSubquery { .. } => membership::value(expr),
            Expr::CompoundIdentifier(parts)
                if parts.len() > 2 && parts[0].value.eq_ignore_ascii_case(INFORMATION_SCHEMA) =>
            {
                parts.remove(0);
            }
            Expr::CompoundFieldAccess { access_chain, .. }
                if access_chain
                    .iter()
                    .all(|access| matches!(access, AccessExpr::Dot(Expr::Identifier(_)))) =>
            {
                fields(expr);
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                subscripts(root, access_chain);
                if let Some(element) = element_of_aggregate(root, access_chain) {
                    *expr = element;
                }
            }
            _ => {}
        }
        if let Expr::BinaryOp { left, op, right } = expr
            && let Some(compared) = membership::comparison(left, op, right)
        {
            *expr = compared;
        }
        operators::rewrite(expr);
        ControlFlow::Continue(())
    }
}

/// Rewrites SIMILAR TO into a match of a regular expression.
fn similar(expr: &mut Expr) {
    let Expr::SimilarTo { negated, expr: tested, pattern, escape_char } = expr else { return };
    let op = if *negated { BinaryOperator::PGRegexNotMatch } else { BinaryOperator::PGRegexMatch };
    let pattern = std::mem::replace(pattern.as_mut(), null());
    let escape = escape_char.take().map(Expr::Value);
    let right = call(SIMILAR, std::iter::once(pattern).chain(escape).collect());
    let left = Box::new(std::mem::replace(tested.as_mut(), null()));
    *expr = Expr::Nested(Box::new(Expr::BinaryOp { left, op, right: Box::new(right) }));
}

/// Rewrites `substring(x FROM a FOR b)` into a call, of characters by place or of a pattern.
fn substring(expr: &mut Expr) {
    let Expr::Substring { expr: of, substring_from, substring_for, .. } = expr else { return };
    let mut arguments = vec![std::mem::replace(of.as_mut(), null())];
    arguments.push(substring_from.take().map_or_else(|| number(1), |from| *from));
    arguments.extend(substring_for.take().map(|behind| *behind));
    *expr = call("substr", arguments);
}

/// Rewrites one of [`WORDS`] without parentheses into a call.
fn word(expr: &mut Expr) {
    let Expr::Identifier(name) = expr else { return };
    if let Some(known) = WORDS.iter().find(|known| name.value.eq_ignore_ascii_case(known)) {
        *expr = call(known, Vec::new());
    }
}

/// Rewrites subscripts: `indkey[0]` is the first element of a vector.
fn subscripts(root: &Expr, access_chain: &mut [AccessExpr]) {
    let mut within_vector = is_vector(root);
    for access in access_chain {
        match access {
            AccessExpr::Dot(field) => within_vector = is_vector(field),
            AccessExpr::Subscript(Subscript::Index { index }) if within_vector => {
                *index = sum(std::mem::replace(index, null()), 1);
            }
            AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, .. }) => {
                bound(lower_bound, 1, 1);
                bound(upper_bound, i64::from(i32::MAX), 0);
            }
            AccessExpr::Subscript(_) => {}
        }
    }
}

/// Element of `array_agg`: of a subscript DataFusion makes an aggregate that takes one order in a query.
fn element_of_aggregate(root: &Expr, access_chain: &[AccessExpr]) -> Option<Expr> {
    let [AccessExpr::Subscript(Subscript::Index { index })] = access_chain else { return None };
    let mut list = root;
    while let Expr::Nested(inner) = list {
        list = inner;
    }
    is_call(list, "array_agg").then(|| call("array_element", vec![list.clone(), index.clone()]))
}

/// Bound of a slice where there is none, or a negative number: elements are not counted from the end.
fn bound(written: &mut Option<Expr>, open: i64, negative: i64) {
    match written {
        None => *written = Some(number(open)),
        Some(Expr::UnaryOp { op: UnaryOperator::Minus, .. }) => *written = Some(number(negative)),
        Some(_) => {}
    }
}

/// Rewrites `(row).a.b` into `get_field(get_field(row, 'a'), 'b')`.
fn fields(expr: &mut Expr) {
    let Expr::CompoundFieldAccess { root, access_chain } = expr else { return };
    let mut value = std::mem::replace(root.as_mut(), null());
    for access in access_chain {
        if let AccessExpr::Dot(Expr::Identifier(name)) = access {
            let name = identifier(name);
            value = rows::field(&value, &name).unwrap_or_else(|| call("get_field", vec![value, text(&name)]));
        }
    }
    *expr = value;
}

fn function(expr: &mut Expr) {
    let Expr::Function(function) = expr else { return };
    let Some(name) = system_name(&function.name) else { return };
    if function.name.0.len() > 1 {
        function.name = ObjectName::from(vec![Ident::new(&name)]);
    }
    match name.as_str() {
        "clock_timestamp" => {
            *expr = cast_to(call(CLOCK, Vec::new()), timestamp(TimezoneInfo::WithTimeZone));
            return;
        }
        "localtimestamp" if matches!(function.args, FunctionArguments::None) => {
            *expr = cast_to(call("now", Vec::new()), timestamp(TimezoneInfo::None));
            return;
        }
        "transaction_timestamp" | "statement_timestamp" => {
            *expr = call("now", Vec::new());
            return;
        }
        _ => {}
    }
    if name == "array"
        && let FunctionArguments::Subquery(query) = &function.args
    {
        if let Some(list) = list_of_rows(query) {
            *expr = list;
        }
        return;
    }
    if let Some(of) = calls::replaced(&name, function) {
        *expr = of;
        return;
    }
    if let Some((_, known)) = RENAMED.iter().find(|(written, _)| *written == name) {
        function.name = ObjectName::from(vec![Ident::new(*known)]);
        return;
    }
    let FunctionArguments::List(list) = &mut function.args else { return };
    if let Some(of) = computed(&name, &list.args) {
        *expr = of;
    } else if name == MAKE_INTERVAL {
        fill_fields(&mut list.args);
    } else if name == "log" && list.args.len() == 1 {
        // DataFusion's of any base is not exact for powers of ten.
        function.name = ObjectName::from(vec![Ident::new("log10")]);
    } else if name == "jsonb_set" {
        if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(path))) = list.args.get_mut(1) {
            texts_of_literal(path);
        }
    } else if name == "generate_series" {
        values::type_series(&mut expressions(&mut list.args));
        let series = std::mem::replace(expr, null());
        *expr = call("unnest", vec![series]);
    } else if name == "age" && list.args.len() == 1 {
        // From then until midnight of today.
        let today = cast_to(call("now", Vec::new()), SqlType::Date);
        list.args.insert(0, FunctionArg::Unnamed(FunctionArgExpr::Expr(today)));
    } else if name == "unnest" {
        // Nested set-returning functions: `generate_series` was rewritten already.
        if let [FunctionArg::Unnamed(FunctionArgExpr::Expr(inner))] = list.args.as_mut_slice()
            && is_call(inner, "unnest")
        {
            *expr = std::mem::replace(inner, null());
        }
    } else if name == "array_length" {
        // The list whose rows were to be numbered.
        if let [FunctionArg::Unnamed(FunctionArgExpr::Expr(inner))] = list.args.as_mut_slice()
            && let Some(of) = list_of(inner)
        {
            *inner = of.clone();
        }
    } else if name == "generate_subscripts" {
        if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(array))) = list.args.first() {
            let length = cast_to(call("array_length", vec![array.clone()]), SqlType::BigInt(None));
            let last = call("coalesce", vec![length, number(0)]);
            let (first, last) = if is_vector(array) { (0, sum(last, -1)) } else { (1, last) };
            *expr = call("unnest", vec![call("generate_series", vec![number(first), last])]);
        }
    } else if let Some(json) = aggregate_of_json(&name) {
        json_aggregate(expr, json);
    } else if ROWS.contains(&name.as_str()) {
        if let [FunctionArg::Unnamed(FunctionArgExpr::Expr(json))] = list.args.as_mut_slice()
            && let Some(typed) = rows::typed(&name, json)
        {
            *json = typed;
        }
        let list = std::mem::replace(expr, null());
        *expr = unnested(&name, list);
    }
}

/// Expression of a call of two arguments that DataFusion lacks, or means otherwise.
fn computed(name: &str, arguments: &[FunctionArg]) -> Option<Expr> {
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(one)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(other)),
    ] = arguments
    else {
        return None;
    };
    let time = || call(TIME_OF_TEXT, vec![one.clone(), other.clone()]);
    let nested = |expr: &Expr| Box::new(Expr::Nested(Box::new(expr.clone())));
    Some(match name {
        "to_date" => cast_to(time(), SqlType::Date),
        "to_timestamp" => cast_to(time(), timestamp(TimezoneInfo::WithTimeZone)),
        "mod" => {
            let remainder =
                Expr::BinaryOp { left: nested(one), op: BinaryOperator::Modulo, right: nested(other) };
            Expr::Nested(Box::new(remainder))
        }
        _ => return None,
    })
}

/// Arguments of a call that are expressions.
fn expressions(arguments: &mut [FunctionArg]) -> Vec<&mut Expr> {
    let arguments = arguments.iter_mut().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    arguments.collect()
}

/// Names of the arguments of `make_interval`, in their order.
const INTERVAL_FIELDS: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];

/// Puts the arguments of `make_interval` in their order, zeros for those that are not given.
fn fill_fields(arguments: &mut Vec<FunctionArg>) {
    let mut fields: Vec<Option<FunctionArgExpr>> = vec![None; INTERVAL_FIELDS.len()];
    for (at, argument) in arguments.iter().enumerate() {
        let (at, value) = match argument {
            FunctionArg::Unnamed(value) => (Some(at), value),
            FunctionArg::Named { name, arg, .. } => (field_at(&identifier(name)), arg),
            FunctionArg::ExprNamed { name: Expr::Identifier(name), arg, .. } => {
                (field_at(&identifier(name)), arg)
            }
            FunctionArg::ExprNamed { .. } => return,
        };
        // An unknown name, or one that is given twice, is left to the planner to refuse.
        match at.and_then(|at| fields.get_mut(at)) {
            Some(field @ None) => *field = Some(value.clone()),
            _ => return,
        }
    }
    let zero = || FunctionArgExpr::Expr(number(0));
    *arguments = fields.into_iter().map(|field| FunctionArg::Unnamed(field.unwrap_or_else(zero))).collect();
}

fn field_at(name: &str) -> Option<usize> {
    INTERVAL_FIELDS.iter().position(|field| *field == name)
}

/// Rewrites `json_agg(x)` and `json_object_agg(k, v)` into lists of JSON, which `array_agg` makes.
fn json_aggregate(expr: &mut Expr, json: JsonType) {
    let Expr::Function(function) = expr else { return };
    let FunctionArguments::List(list) = &mut function.args else { return };
    let values: Option<Vec<Expr>> = list
        .args
        .iter()
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
            _ => None,
        })
        .collect();
    let name = json.name();
    let (element, collector) = match values {
        Some(values) if values.len() == 1 => {
            (call(&format!("to_{name}"), values), format!("{name}_agg_list"))
        }
        Some(values) if values.len() == 2 => {
            (call(&format!("{name}_pair"), values), format!("{name}_object_agg_list"))
        }
        _ => return,
    };
    list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(element))];
    function.name = ObjectName::from(vec![Ident::new("array_agg")]);
    let collected = std::mem::replace(expr, null());
    *expr = call(&collector, vec![collected]);
}

fn is_call(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Function(function) if system_name(&function.name).is_some_and(|called| called == name))
}

/// Replaces `ARRAY(query)` behind ANY or ALL by its rows.
fn rows_of_list(list: &mut Expr) {
    let query = match &*list {
        Expr::Function(function) if is_call(list, "array") => match &function.args {
            FunctionArguments::Subquery(query) => query.clone(),
            _ => return,
        },
        Expr::Nested(inner) => {
            let mut inner = (**inner).clone();
            rows_of_list(&mut inner);
            if matches!(inner, Expr::Subquery(_)) {
                *list = inner;
            }
            return;
        }
        _ => return,
    };
    *list = Expr::Subquery(query);
}

/// `ARRAY(query)`; its order matters, which DataFusion preserves only with a LIMIT.
fn list_of_rows(query: &Query) -> Option<Expr> {
    let ordered = query.order_by.is_some() && query.limit_clause.is_none() && query.fetch.is_none();
    let all = if ordered { format!(" LIMIT {}", i64::MAX >> 1) } else { String::new() };
    let text =
        format!("SELECT list_or_empty(array_agg(\"rows\".\"x\")) FROM ({query}{all}) AS \"rows\"(\"x\")");
    let DFStatement::Statement(statement) = query_of(&text).ok()? else { return None };
    let Statement::Query(outer) = *statement else { return None };
    Some(Expr::Subquery(outer))
}

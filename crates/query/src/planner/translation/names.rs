//! Names of columns that a SELECT does not name, as in PostgreSQL: a column's, a function's, a type's, or
//! `?column?`. DataFusion would use the expression itself.
//!
//! DataFusion requires distinct names. Equal names, and names that could be a column's beside them, get zero
//! characters behind them, which clients do not see.

use super::build::{null, number};
use super::lists::column_of;
use crate::parser::names::identifier;
use crate::parser::visit::visit_expressions;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, DataType as SqlType, Expr, FunctionArguments, Ident, ObjectName,
    OrderByKind, Query, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, SetOperator, TimezoneInfo,
    TrimWhereField, Value as Literal,
};
use std::ops::ControlFlow;

/// Name of a column whose expression gives it none.
const NAMELESS: &str = "?column?";

/// The name of the column of an expression.
pub(crate) fn column_name(expr: &Expr) -> String {
    figured(expr).map_or_else(|| NAMELESS.to_owned(), |figured| figured.name)
}

/// A column's name as clients see it.
pub(crate) fn shown_name(name: &str) -> String {
    name.replace('\0', "")
}

struct ColumnName {
    name: String,
    /// True if a cast does not replace it.
    is_strong: bool,
}

fn strong(name: impl Into<String>) -> Option<ColumnName> {
    Some(ColumnName { name: name.into(), is_strong: true })
}

fn weak(name: impl Into<String>) -> Option<ColumnName> {
    Some(ColumnName { name: name.into(), is_strong: false })
}

fn figured(expr: &Expr) -> Option<ColumnName> {
    match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => strong(column_of(expr).map(identifier)?),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => figured(inner),
        Expr::Function(function) => match function.args {
            FunctionArguments::Subquery(_) => strong("array"),
            _ => strong(last_part(&function.name)?),
        },
        Expr::Cast { expr: inner, data_type, .. } => {
            figured(inner).filter(|inner| inner.is_strong).or_else(|| weak(type_name(data_type)))
        }
        Expr::TypedString(typed) => weak(type_name(&typed.data_type)),
        Expr::Interval(_) => weak("interval"),
        Expr::Case { else_result, .. } => {
            let otherwise = else_result.as_deref().and_then(figured);
            otherwise.filter(|otherwise| otherwise.is_strong).or_else(|| weak("case"))
        }
        Expr::Extract { .. } => strong("extract"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::Position { .. } => strong("position"),
        Expr::Substring { .. } => strong("substring"),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::Trim { trim_where, .. } => strong(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            Some(TrimWhereField::Both) | None => "btrim",
        }),
        Expr::AtTimeZone { .. } => strong("timezone"),
        Expr::Exists { .. } => strong("exists"),
        Expr::Array(_) => strong("array"),
        Expr::Tuple(_) => strong("row"),
        Expr::CompoundFieldAccess { root, access_chain } => {
            let field = access_chain.iter().rev().find_map(|access| match access {
                AccessExpr::Dot(Expr::Identifier(field)) => Some(identifier(field)),
                _ => None,
            });
            field.map_or_else(|| figured(root), strong)
        }
        Expr::Subquery(query) => match query.body.as_ref() {
            SetExpr::Select(select) => match select.projection.as_slice() {
                [SelectItem::UnnamedExpr(item)] => figured(item),
                [SelectItem::ExprWithAlias { alias, .. }] => strong(identifier(alias)),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

fn last_part(name: &ObjectName) -> Option<String> {
    name.0.last()?.as_ident().map(identifier)
}

/// Name of a type in the catalog.
fn type_name(data_type: &SqlType) -> String {
    let known = match data_type {
        SqlType::Boolean | SqlType::Bool => "bool",
        SqlType::TinyInt(_) | SqlType::SmallInt(_) | SqlType::Int2(_) => "int2",
        SqlType::Int(_) | SqlType::Integer(_) | SqlType::Int4(_) => "int4",
        SqlType::BigInt(_) | SqlType::Int8(_) => "int8",
        SqlType::Real | SqlType::Float4 => "float4",
        SqlType::Double(_) | SqlType::DoublePrecision | SqlType::Float(_) | SqlType::Float8 => "float8",
        SqlType::Numeric(_) | SqlType::Decimal(_) | SqlType::Dec(_) => "numeric",
        SqlType::Varchar(_) | SqlType::CharacterVarying(_) | SqlType::CharVarying(_) => "varchar",
        SqlType::Text | SqlType::String(_) => "text",
        SqlType::Timestamp(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => "timestamptz",
        SqlType::Timestamp(..) | SqlType::Datetime(_) => "timestamp",
        SqlType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => return type_name(element),
        SqlType::Custom(name, _) => return last_part(name).unwrap_or_default(),
        other => {
            let text = other.to_string().to_lowercase();
            return text.split([' ', '(']).next().unwrap_or_default().to_owned();
        }
    };
    known.to_owned()
}

/// Name that an item has by itself.
pub(super) fn own_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => column_of(expr).map(identifier),
        SelectItem::ExprWithAlias { alias, .. } => Some(identifier(alias)),
        _ => None,
    }
}

/// Returns true if a name is the last part of another, qualified one.
fn is_end(name: &str, of: &str) -> bool {
    of.strip_suffix(name).is_some_and(|before| before.ends_with('.'))
}

/// Wildcards of a SELECT list.
struct Wildcards {
    has_all: bool,
    /// Relations of which all columns are listed.
    of: Vec<String>,
    /// True if the SELECT is a subquery, whose columns other queries name.
    is_nested: bool,
}

impl Wildcards {
    fn of(projection: &[SelectItem], is_nested: bool) -> Wildcards {
        let relation = |item: &SelectItem| match item {
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                last_part(name)
            }
            _ => None,
        };
        let of = projection.iter().filter_map(relation).collect();
        let has_all = projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
        Wildcards { has_all, of, is_nested }
    }

    /// Tells whether a column is, or must be taken to be, among theirs. A column without a relation's name beside
    /// `t.*` in a subquery is not: it can be named only if it is another's.
    fn have_column(&self, expr: &Expr) -> bool {
        let relation = match expr {
            Expr::CompoundIdentifier(parts) => parts.iter().rev().nth(1).map(identifier),
            _ => None,
        };
        match relation {
            Some(relation) => self.has_all || self.of.contains(&relation),
            None => self.has_all || !self.of.is_empty() && !self.is_nested,
        }
    }

    /// Tells whether the name of an expression is taken to be one of theirs.
    fn have_name(&self) -> bool {
        !self.is_nested && (self.has_all || !self.of.is_empty())
    }
}

/// Names items that have no name, and makes equal names distinct; `is_nested` tells that the SELECT is a subquery.
pub(super) fn name_items(projection: &mut [SelectItem], is_nested: bool) {
    let wildcards = Wildcards::of(projection, is_nested);
    let mut taken: Vec<String> = projection.iter().filter_map(own_name).collect();
    let aliases = projection.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
        _ => None,
    });
    let mut given: Vec<String> = aliases.collect();
    // Columns and aliases, as they will be written: `a.id` and `b.id` differ.
    let mut written: Vec<String> = Vec::new();
    for item in projection {
        let (name, repeats) = match (own_name(item), &*item) {
            (Some(name), item) => {
                let (shown, is_repeated) = match item {
                    SelectItem::UnnamedExpr(expr) => {
                        (expr.to_string().replace("pg_catalog.", ""), wildcards.have_column(expr))
                    }
                    _ => (name.clone(), false),
                };
                // `id` may be the column that `t.id` is.
                let same = |other: &String| *other == shown || is_end(other, &shown) || is_end(&shown, other);
                let repeated = written.iter().filter(|other| same(other)).count();
                written.push(shown);
                let repeats = repeated + usize::from(is_repeated);
                if repeats == 0 {
                    continue;
                }
                (name, repeats)
            }
            (None, SelectItem::UnnamedExpr(expr)) => {
                let name = column_name(expr);
                let repeats =
                    taken.iter().filter(|other| **other == name).count() + usize::from(wildcards.have_name());
                taken.push(name.clone());
                (name, repeats)
            }
            _ => continue,
        };
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            let mut name = name + &"\0".repeat(repeats);
            while given.contains(&name) {
                name.push('\0');
            }
            given.push(name.clone());
            let alias = Ident::with_quote('"', name);
            *item = SelectItem::ExprWithAlias { expr: std::mem::replace(expr, null()), alias };
        }
    }
}

/// Makes equal column names distinct in the operands of INTERSECT and EXCEPT, which DataFusion joins by name.
pub(super) fn set_apart(body: &mut SetExpr, is_joined: bool) {
    match body {
        SetExpr::SetOperation { left, right, op, .. } => {
            let joins =
                is_joined || matches!(op, SetOperator::Intersect | SetOperator::Except | SetOperator::Minus);
            set_apart(left, joins);
            set_apart(right, joins);
        }
        SetExpr::Select(select) if is_joined => {
            let mut taken: Vec<String> = Vec::new();
            for item in &mut select.projection {
                let Some(name) = own_name(item) else { continue };
                let repeats = taken.iter().filter(|other| **other == name).count();
                taken.push(name.clone());
                if let (SelectItem::UnnamedExpr(expr), 1..) = (&*item, repeats) {
                    let alias = Ident::with_quote('"', name + &"\0".repeat(repeats));
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                }
            }
        }
        _ => {}
    }
}

/// Returns true for a number, which selects an item by position.
fn is_number(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Literal::Number(..)))
}

/// Resolves `ORDER BY count` and `ORDER BY count(*)` to the item with this name or expression. If a column of
/// such a name is part of a sort key, the item gets another name: DataFusion looks among items first.
pub(super) fn order_items(query: &mut Query) {
    let (SetExpr::Select(select), Some(order)) = (query.body.as_mut(), &mut query.order_by) else { return };
    let OrderByKind::Expressions(order) = &mut order.kind else { return };
    for at in 0..select.projection.len() {
        let (name, written) = match &select.projection[at] {
            SelectItem::UnnamedExpr(expr) if column_of(expr).is_none() => {
                (column_name(expr), expr.to_string())
            }
            _ => continue,
        };
        for by in order.iter_mut().filter(|by| by.expr.to_string() == written && !is_number(&by.expr)) {
            by.expr = number(at as i64 + 1);
        }
        let is_ours = |own: &Ident| identifier(own) == name;
        if select.projection.iter().any(|item| own_name(item).as_ref() == Some(&name)) {
            continue;
        }
        let mut is_part = false;
        for by in order.iter_mut() {
            if matches!(&by.expr, Expr::Identifier(own) if is_ours(own)) {
                by.expr = number(at as i64 + 1);
                continue;
            }
            let _: ControlFlow<()> = visit_expressions(&by.expr, |part| {
                is_part |= column_of(part).is_some_and(is_ours);
                ControlFlow::Continue(())
            });
        }
        if is_part && let SelectItem::UnnamedExpr(expr) = &mut select.projection[at] {
            let alias = Ident::with_quote('"', name + "\0");
            select.projection[at] =
                SelectItem::ExprWithAlias { expr: std::mem::replace(expr, null()), alias };
        }
    }
}

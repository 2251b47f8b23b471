//! Constructors of small expressions in the syntax tree.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType as SqlType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, Value as Literal,
};

pub(super) fn null() -> Expr {
    Expr::value(Literal::Null)
}

pub(super) fn number(value: i64) -> Expr {
    Expr::value(Literal::Number(value.to_string(), false))
}

pub(super) fn text(value: &str) -> Expr {
    Expr::value(Literal::SingleQuotedString(value.to_owned()))
}

pub(super) fn sum(left: Expr, right: i64) -> Expr {
    let (op, right) = if right < 0 {
        (BinaryOperator::Minus, number(-right))
    } else {
        (BinaryOperator::Plus, number(right))
    };
    Expr::Nested(Box::new(Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }))
}

pub(super) fn cast_to(expr: Expr, data_type: SqlType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

/// `name(arguments)`
pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
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

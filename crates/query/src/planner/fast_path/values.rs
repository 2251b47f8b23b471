//! Values that statements on the fast path assign: literals, parameters, columns, and sums of two of them.
//!
//! # Invariants
//!
//! - A value is exactly of its column's type, or there is none and the planned path converts or refuses it.
//! - A sum that overflows has no value: the planned path reports it.

use crate::parser::names::identifier;
use crate::planner::parameters::{Types, alone, column_value};
use crate::postgres::time_zones::Zone;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value as Literal};
use entresol_tables::{Column, DataType, Row, Table, Value, arrow_type};

/// Relation name of the row that an INSERT proposes.
const EXCLUDED: &str = "excluded";

/// Value that is known at planning, or a parameter.
#[derive(Debug, Clone)]
pub(crate) enum Operand {
    Value(Value),
    Parameter(usize),
}

/// Operand, or column of a row.
#[derive(Debug)]
pub(crate) enum Term {
    Operand(Operand),
    /// Column of the stored row.
    Old(usize),
    /// Column of the row that an INSERT proposes.
    Proposed(usize),
}

/// Right-hand side of an assignment.
#[derive(Debug)]
pub(crate) enum NewValue {
    Is(Term),
    /// Sum or difference of two numbers of one type.
    Sum {
        left: Term,
        right: Term,
        negated: bool,
    },
}

/// Names of the rows that an assignment can read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'s> {
    pub(crate) table: &'s Table,
    /// Name of the stored row.
    pub(crate) name: &'s str,
    /// True for DO UPDATE, which has a proposed row too; columns without the name of a row are ambiguous there.
    pub(crate) proposes: bool,
}

impl Scope<'_> {
    /// Position of a visible column.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.table.schema().visible_columns().iter().position(|column| column.name == name)
    }

    fn column(&self, at: usize) -> &Column {
        &self.table.schema().columns()[at]
    }

    /// Column that an expression names.
    fn named(&self, expr: &Expr) -> Option<Term> {
        match expr {
            Expr::Nested(inner) => self.named(inner),
            Expr::Identifier(name) if !self.proposes => self.position(&identifier(name)).map(Term::Old),
            Expr::CompoundIdentifier(parts) => {
                let [row, name] = parts.as_slice() else { return None };
                let (row, column) = (identifier(row), self.position(&identifier(name))?);
                match row.as_str() {
                    row if row == self.name => Some(Term::Old(column)),
                    EXCLUDED if self.proposes => Some(Term::Proposed(column)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Term of the type of a target column. The proposed row is not yet what the table would store: columns
    /// that change strings, or round, are left to the planned path.
    fn column_term(&self, target: usize, expr: &Expr) -> Option<Term> {
        let term = self.named(expr)?;
        let (Term::Old(at) | Term::Proposed(at)) = term else { return None };
        let (target, found) = (self.column(target), self.column(at));
        let alike = found.data_type == target.data_type && found.modifier == target.modifier;
        (alike && found.modifier == entresol_tables::Modifier::None).then_some(term)
    }

    /// Value that an expression assigns to a column; `None` if it needs planning.
    pub(crate) fn new_value(&self, target: usize, expr: &Expr) -> Option<NewValue> {
        let data_type = self.column(target).data_type;
        if let Some(operand) = operand(expr, data_type) {
            return Some(NewValue::Is(Term::Operand(operand)));
        }
        let (left, negated, right) = match expr {
            Expr::Nested(inner) => return self.new_value(target, inner),
            Expr::BinaryOp { left, op: BinaryOperator::Plus, right } => (left, false, right),
            Expr::BinaryOp { left, op: BinaryOperator::Minus, right } => (left, true, right),
            other => return self.column_term(target, other).map(NewValue::Is),
        };
        if !matches!(data_type, DataType::Int | DataType::BigInt | DataType::Double) {
            return None;
        }
        let term = |expr| {
            let column = self.column_term(target, expr);
            column.or_else(|| number(expr, data_type).map(Term::Operand))
        };
        let (left, right) = (self.column_term(target, left)?, term(right)?);
        Some(NewValue::Sum { left, right, negated })
    }
}

impl NewValue {
    /// Adds the types of its parameters: that of the column that it is assigned to.
    pub(crate) fn add_types(&self, column: &Column, types: &mut Types, zone: &Zone) {
        let terms = match self {
            NewValue::Is(term) => [Some(term), None],
            NewValue::Sum { left, right, .. } => [Some(left), Some(right)],
        };
        for term in terms.into_iter().flatten() {
            if let Term::Operand(Operand::Parameter(index)) = term {
                types.add(*index, arrow_type(column.data_type, zone.name()));
            }
        }
    }

    /// New value for a stored row, beside the row that an INSERT proposes; `None` if it does not fit.
    pub(crate) fn of(
        &self,
        old: &Row,
        proposed: Option<&Row>,
        data_type: DataType,
        parameters: &[ScalarValue],
    ) -> Option<Value> {
        let value = |term: &Term| match term {
            Term::Operand(operand) => operand.value(data_type, parameters),
            Term::Old(column) => old.get(*column).cloned(),
            Term::Proposed(column) => proposed?.get(*column).cloned(),
        };
        match self {
            NewValue::Is(term) => value(term),
            NewValue::Sum { left, right, negated } => sum(value(left)?, value(right)?, *negated),
        }
    }
}

/// Sum or difference; `None` if it overflows, or if the types are different.
fn sum(left: Value, right: Value, negated: bool) -> Option<Value> {
    Some(match (left, right) {
        (Value::Null, _) | (_, Value::Null) => Value::Null,
        (Value::Int(a), Value::Int(b)) => {
            Value::Int(if negated { a.checked_sub(b)? } else { a.checked_add(b)? })
        }
        (Value::BigInt(a), Value::BigInt(b)) => {
            Value::BigInt(if negated { a.checked_sub(b)? } else { a.checked_add(b)? })
        }
        (Value::Double(a), Value::Double(b)) => {
            let sum = if negated { a - b } else { a + b };
            // The planned path reports it.
            if sum.is_infinite() && a.is_finite() && b.is_finite() {
                return None;
            }
            Value::Double(sum)
        }
        _ => return None,
    })
}

/// Literal of exactly this type, or parameter.
pub(crate) fn operand(expr: &Expr, data_type: DataType) -> Option<Operand> {
    if let Some(index) = alone(expr) {
        return Some(Operand::Parameter(index));
    }
    let value = match expr {
        Expr::Nested(inner) => return operand(inner, data_type),
        Expr::Value(value) => match (&value.value, data_type) {
            (Literal::Null, _) => Value::Null,
            (Literal::Boolean(value), DataType::Boolean) => Value::Boolean(*value),
            (Literal::SingleQuotedString(text), DataType::Varchar) => Value::varchar(text.as_str()),
            (Literal::Number(..), _) => integer(expr, data_type)?,
            _ => return None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, .. } => integer(expr, data_type)?,
        _ => return None,
    };
    Some(Operand::Value(value))
}

/// Operand of a sum with a column of this type: a DOUBLE takes decimal literals too.
fn number(expr: &Expr, data_type: DataType) -> Option<Operand> {
    match expr {
        Expr::Nested(inner) => number(inner, data_type),
        Expr::Value(value) if data_type == DataType::Double => match &value.value {
            Literal::Number(text, _) if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') => {
                Some(Operand::Value(Value::Double(text.parse().ok()?)))
            }
            Literal::Placeholder(_) => Some(Operand::Parameter(alone(expr)?)),
            _ => None,
        },
        // A sum with NULL has a type of the planner's choice.
        Expr::Value(value) if value.value == Literal::Null => None,
        _ => operand(expr, data_type),
    }
}

/// Integer literal, perhaps negative, of an INT or BIGINT column.
fn integer(expr: &Expr, data_type: DataType) -> Option<Value> {
    let (sign, literal) = match expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => ("-", expr.as_ref()),
        expr => ("", expr),
    };
    let Expr::Value(value) = literal else { return None };
    let Literal::Number(text, _) = &value.value else { return None };
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match data_type {
        DataType::SmallInt => format!("{sign}{text}").parse().ok().map(|value: i16| Value::Int(value.into())),
        DataType::Int => format!("{sign}{text}").parse().ok().map(Value::Int),
        DataType::BigInt => format!("{sign}{text}").parse().ok().map(Value::BigInt),
        _ => None,
    }
}

impl Operand {
    /// Value for a column of this type; `None` if it would have to be converted.
    pub(crate) fn value(&self, data_type: DataType, parameters: &[ScalarValue]) -> Option<Value> {
        match self {
            Operand::Value(value) => Some(value.clone()),
            Operand::Parameter(index) => exact(parameters.get(*index)?, data_type),
        }
    }
}

/// Value of a scalar for a column of this type; `None` if it would have to be converted.
pub(crate) fn exact(scalar: &ScalarValue, data_type: DataType) -> Option<Value> {
    let scales_differ = match (scalar, data_type) {
        (
            ScalarValue::Decimal128(Some(value), _, scale),
            DataType::Decimal { precision, scale: expected },
        ) => i16::from(*scale) != i16::from(expected) || !entresol_tables::decimal::fits(*value, precision),
        _ => false,
    };
    if let (
        ScalarValue::TimestampMicrosecond(Some(time), zone),
        DataType::Timestamp | DataType::TimestampTz,
    ) = (scalar, data_type)
    {
        return (zone.is_some() == (data_type == DataType::TimestampTz)).then_some(Value::Timestamp(*time));
    }
    match (column_value(scalar)?, data_type) {
        _ if scales_differ => None,
        (Value::Int(value), DataType::SmallInt) => i16::try_from(value).ok().map(|_| Value::Int(value)),
        (Value::BigInt(value), DataType::SmallInt) => {
            i16::try_from(value).ok().map(|value| Value::Int(value.into()))
        }
        // A value that is no REAL, or perhaps not exactly this one, is left to the planned path to round.
        (Value::Double(_), DataType::Real) => match scalar {
            ScalarValue::Float32(_) => column_value(scalar),
            _ => None,
        },
        (Value::BigInt(value), DataType::Int) => i32::try_from(value).ok().map(Value::Int),
        (Value::Int(value), DataType::BigInt) => Some(Value::BigInt(value.into())),
        (value, data_type) => value.is_of(data_type).then_some(value),
    }
}

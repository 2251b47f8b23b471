//! Expressions of MATCH_RECOGNIZE: which rows of a match they read.
//!
//! | expression | value |
//! | --- | --- |
//! | `A.x`, `LAST(A.x)`, `LAST(A.x, n)` | of the last row of A, or of the one n rows of A before it |
//! | `FIRST(A.x)`, `FIRST(A.x, n)` | of the first row of A, or of the one n rows of A behind it |
//! | `PREV(A.x)`, `PREV(A.x, n)` | of the row 1 or n rows before the last of A in its partition |
//! | `count(A.x)`, `sum(A.x)` and other aggregates | over all rows of A |
//! | `x`, `FIRST(x)`, `sum(x)` ... | the same of all rows of the match; the last of a condition is the row that it is asked about |

use crate::error::{Error, Result};
use crate::parser::names::identifier;
use crate::parser::visit::walk_mut;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart, Value, VisitorMut,
};
use entresol_streams::Navigation;
use std::ops::ControlFlow;

/// Greatest number of rows that FIRST, LAST and PREV go.
const OFFSET_MAX: usize = 1000;

/// Rows that an expression reads, and what it reads of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Read {
    pub(crate) navigation: Navigation,
    /// Expression over the columns of a row, or an aggregate of them.
    pub(crate) argument: Expr,
}

/// Name of the column that stands for a read.
pub(crate) fn read_name(number: usize) -> String {
    format!("read {number}")
}

/// Replacement of the reads of an expression by columns.
pub(crate) struct Navigator<'v> {
    pub(crate) variables: &'v [String],
    /// Variable of the condition; none of a measure.
    pub(crate) condition_of: Option<usize>,
    pub(crate) is_aggregate: &'v dyn Fn(&str) -> bool,
    pub(crate) reads: Vec<Read>,
}

impl Navigator<'_> {
    /// Replaces all reads of an expression; they are added to `reads`.
    pub(crate) fn replace(&mut self, expr: &mut Expr) -> Result<()> {
        match walk_mut(expr, self) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// Tells whether all reads are of the row that a condition is asked about, and of rows before it.
    pub(crate) fn reads_row_alone(&self) -> bool {
        let is_of_row = |read: &Read| matches!(read.navigation, Navigation::Previous { variable: None, .. });
        self.reads.iter().all(is_of_row)
    }

    /// Column that stands for a read.
    fn column(&mut self, navigation: Navigation, argument: Expr) -> Expr {
        let read = Read { navigation: self.of_row(navigation), argument };
        let known = self.reads.iter().position(|known| *known == read);
        let number = known.unwrap_or_else(|| {
            self.reads.push(read);
            self.reads.len() - 1
        });
        Expr::Identifier(Ident::with_quote('"', read_name(number)))
    }

    /// Navigation of a condition that is one from the row that it is asked about.
    fn of_row(&self, navigation: Navigation) -> Navigation {
        let Some(own) = self.condition_of else { return navigation };
        match navigation {
            Navigation::Last { variable, offset: 0 } if variable.is_none_or(|of| of == own) => {
                Navigation::Previous { variable: None, offset: 0 }
            }
            Navigation::Previous { variable, offset } if variable.is_none_or(|of| of == own) => {
                Navigation::Previous { variable: None, offset }
            }
            other => other,
        }
    }

    fn variable(&self, ident: &Ident) -> Result<usize> {
        let name = identifier(ident);
        let known = self.variables.iter().position(|variable| *variable == name);
        known.ok_or_else(|| Error::coded("42P01", format!("the pattern has no variable \"{name}\"")))
    }

    /// Takes the variables off the columns of an argument; returns the one that they are of.
    fn unqualified(&self, argument: &mut Expr) -> Result<Option<usize>> {
        let mut qualifiers = Qualifiers { navigator: self, found: Vec::new() };
        match walk_mut(argument, &mut qualifiers) {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => match qualifiers.found.as_slice() {
                [] => Ok(None),
                [first, others @ ..] if others.iter().all(|other| other == first) => Ok(*first),
                _ => Err(Error::unsupported(format!(
                    "columns of several variables of the pattern in {argument}"
                ))),
            },
        }
    }

    /// Column that stands for a call of FIRST, LAST or PREV.
    fn navigated(&mut self, name: &str, function: &Function) -> Result<Expr> {
        let args = plain_arguments(function).unwrap_or_default();
        let (argument, offset) = match args.as_slice() {
            [argument] => (*argument, None),
            [argument, offset] => (*argument, Some(*offset)),
            _ => {
                return Err(Error::Syntax(format!(
                    "syntax error: expected {name}(column) or {name}(column, n)"
                )));
            }
        };
        let offset = offset.map(|offset| number(name, offset)).transpose()?;
        let mut argument = argument.clone();
        let variable = self.unqualified(&mut argument)?;
        let navigation = match name {
            "first" => Navigation::First { variable, offset: offset.unwrap_or(0) },
            "last" => Navigation::Last { variable, offset: offset.unwrap_or(0) },
            _ => Navigation::Previous { variable, offset: offset.unwrap_or(1) },
        };
        Ok(self.column(navigation, argument))
    }

    /// Column that stands for an aggregate.
    fn aggregated(&mut self, function: &Function) -> Result<Expr> {
        let mut function = function.clone();
        let mut of_wildcard = None;
        if let FunctionArguments::List(list) = &mut function.args {
            for arg in &mut list.args {
                if let FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) = arg
                    && let [ObjectNamePart::Identifier(variable)] = name.0.as_slice()
                {
                    of_wildcard = Some(self.variable(variable)?);
                    *arg = FunctionArg::Unnamed(FunctionArgExpr::Wildcard);
                }
            }
        }
        let mut argument = Expr::Function(function);
        let variable = self.unqualified(&mut argument)?.or(of_wildcard);
        Ok(self.column(Navigation::All { variable }, argument))
    }

    fn replaced(&mut self, expr: &Expr) -> Result<Option<Expr>> {
        match expr {
            Expr::Function(function) => {
                let name = match function.name.0.as_slice() {
                    [ObjectNamePart::Identifier(ident)] => identifier(ident),
                    _ => return Ok(None),
                };
                match name.as_str() {
                    "first" | "last" | "prev" => self.navigated(&name, function).map(Some),
                    "next" => Err(Error::unsupported(
                        "NEXT() in MATCH_RECOGNIZE: there are FIRST, LAST, PREV and aggregates",
                    )),
                    "classifier" | "match_number" => Err(Error::unsupported(format!(
                        "{}() in an expression of MATCH_RECOGNIZE: make it a measure of its own, without an argument, and compute \
                         with that in the query around",
                        name.to_uppercase()
                    ))),
                    _ if (self.is_aggregate)(&name) => self.aggregated(function).map(Some),
                    _ => Ok(None),
                }
            }
            Expr::CompoundIdentifier(parts) => {
                let [variable, column] = parts.as_slice() else { return Ok(None) };
                let variable = Some(self.variable(variable)?);
                let column = Expr::Identifier(column.clone());
                Ok(Some(self.column(Navigation::Last { variable, offset: 0 }, column)))
            }
            Expr::Identifier(_) => {
                Ok(Some(self.column(Navigation::Last { variable: None, offset: 0 }, expr.clone())))
            }
            _ => Ok(None),
        }
    }
}

impl VisitorMut for Navigator<'_> {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match self.replaced(expr) {
            Ok(None) => {}
            // A column has nothing in it that would be visited.
            Ok(Some(column)) => *expr = column,
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

/// Variables of the columns of an expression.
struct Qualifiers<'n> {
    navigator: &'n Navigator<'n>,
    found: Vec<Option<usize>>,
}

impl VisitorMut for Qualifiers<'_> {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match expr {
            Expr::Identifier(_) => self.found.push(None),
            Expr::CompoundIdentifier(parts) => {
                let [variable, column] = parts.as_slice() else { return ControlFlow::Continue(()) };
                match self.navigator.variable(variable) {
                    Ok(variable) => self.found.push(Some(variable)),
                    Err(error) => return ControlFlow::Break(error),
                }
                *expr = Expr::Identifier(column.clone());
            }
            Expr::Function(function) => {
                let name = function.name.to_string().to_lowercase();
                if ["first", "last", "prev", "next"].contains(&name.as_str()) {
                    let message = format!("{}() in another of its kind or an aggregate", name.to_uppercase());
                    return ControlFlow::Break(Error::unsupported(message));
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Arguments of a call that are expressions.
fn plain_arguments(function: &Function) -> Option<Vec<&Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let args = list.args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    args.collect()
}

/// Number of rows that a call goes.
fn number(name: &str, expr: &Expr) -> Result<usize> {
    let number = match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => number.parse().ok(),
            _ => None,
        },
        _ => None,
    };
    number.filter(|number| *number <= OFFSET_MAX).ok_or_else(|| {
        Error::unsupported(format!(
            "{}(column, {expr}): a number from 0 to {OFFSET_MAX}",
            name.to_uppercase()
        ))
    })
}

//! PostgreSQL's result types of functions, operators, CASE and UNION, where DataFusion's are others, or are known only
//! after its type coercion: clients are told of them before.
//!
//! | written | here, and in PostgreSQL |
//! | --- | --- |
//! | `date - date` | INT |
//! | `real + int`, `real * numeric` | DOUBLE |
//! | `array_length(a, 1)`, `cardinality(a)`, `array_position(a, x)`, `regexp_count(s, p)`, `ntile(2)` | INT |
//! | `gcd(int, int)`, `lcm(int, int)` | INT |
//! | `ceil(numeric)` and its like, `double::numeric` | [`crate::postgres::numeric_functions`] |
//! | `length(bytea)` | its number of bytes |
//! | `concat('a', true)` | `at`: a BOOLEAN is `t` or `f` |
//! | `to_hex(-1)` | `ffffffff`: an INT has 32 bits |
//! | `a[-1]` | NULL: elements are not counted from the end |
//! | CASE, COALESCE, UNION and VALUES of several numeric types | the type of all; REAL or DOUBLE beside exact numbers |

use crate::postgres::bytes::octet_length;
use crate::postgres::floats::narrowed;
use crate::postgres::numbers::CHOICES;
use crate::postgres::numeric_functions::{from_float, rounded};
use crate::postgres::regular_expressions::over_lines;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, Result as DFResult, ScalarValue};
use datafusion::functions::expr_fn::nullif;
use datafusion::logical_expr::expr::{Case, Cast, ScalarFunction, WindowFunction};
use datafusion::logical_expr::type_coercion::other::get_coerce_type_for_case_expression;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Projection, Union, WindowFunctionDefinition,
    bitwise_and, cast, lit, when,
};
use datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter;
use std::sync::Arc;

/// Functions that return a number of elements, or a position.
const COUNTS: [&str; 7] = [
    "array_length",
    "array_ndims",
    "array_position",
    "cardinality",
    "regexp_count",
    "regexp_instr",
    "strpos",
];
/// Functions of these that are NULL where there are no elements.
const LENGTHS: [&str; 1] = ["array_length"];
/// Functions whose result has the type of their arguments.
const OF_ARGUMENTS: [&str; 2] = ["gcd", "lcm"];
/// Functions of DataFusion whose second argument is a regular expression.
const PATTERNS: [&str; 3] = ["regexp_replace", "regexp_like", "regexp_count"];
/// Least scale of the DECIMAL that DataFusion makes of a REAL, or a DOUBLE.
const FLOAT_SCALE_MIN: i8 = 7;
/// Functions that join their arguments to a string.
const JOINING: [&str; 3] = ["concat", "concat_ws", "format"];

/// Call of a function with its result type.
pub(crate) fn function(mut call: ScalarFunction, schema: &DFSchema) -> DFResult<Expr> {
    let name = call.func.name();
    let of = |expr: &Expr| expr.get_type(schema).ok();
    if let Some(DataType::Decimal128(..)) = call.args.first().and_then(of)
        && let Some(rounded) = rounded(&call)
    {
        return Ok(rounded);
    }
    let is_count = COUNTS.contains(&name)
        || OF_ARGUMENTS.contains(&name) && call.args.iter().all(|arg| of(arg) == Some(DataType::Int32));
    if is_count {
        let is_length = LENGTHS.contains(&name);
        let mut call = Expr::ScalarFunction(call);
        if is_length {
            // A list without elements has no bounds.
            let zero = ScalarValue::new_zero(&call.get_type(schema)?)?;
            call = nullif(call, Expr::Literal(zero, None));
        }
        let is_int = matches!(call.get_type(schema), Ok(DataType::Int32 | DataType::Null));
        return Ok(if is_int { call } else { cast(call, DataType::Int32) });
    }
    if name == "character_length" && call.args.first().and_then(of) == Some(DataType::Binary) {
        return Ok(octet_length(std::mem::take(&mut call.args[0])));
    }
    if name == "to_hex" && matches!(call.args.first().and_then(of), Some(DataType::Int16 | DataType::Int32)) {
        let number = cast(std::mem::take(&mut call.args[0]), DataType::Int64);
        call.args[0] = bitwise_and(number, lit(i64::from(u32::MAX)));
        return Ok(Expr::ScalarFunction(call));
    }
    if name == "array_element"
        && let [list, place] = call.args.as_mut_slice()
        && matches!(of(list), Some(DataType::List(_)))
    {
        let is_counted = |number: &ScalarValue| number.cast_to(&DataType::Int64).ok() >= Some(0_i64.into());
        match place {
            Expr::Literal(number, _) if number.is_null() || is_counted(number) => {}
            Expr::Literal(..) => *place = lit(0_i64),
            Expr::Case(_) => {}
            _ => *place = when(place.clone().gt(lit(0_i64)), place.clone()).end()?,
        }
        return Ok(Expr::ScalarFunction(call));
    }
    if let Some(pattern) = call.args.get_mut(1)
        && PATTERNS.contains(&name)
        && of(pattern) == Some(DataType::Utf8)
    {
        *pattern = over_lines(std::mem::take(pattern));
        return Ok(Expr::ScalarFunction(call));
    }
    if CHOICES.contains(&name) {
        let types: Vec<DataType> = call.args.iter().filter_map(of).collect();
        if types.iter().any(DataType::is_floating) {
            convert(call.args.iter_mut().collect(), &types);
        }
        return Ok(Expr::ScalarFunction(call));
    }
    if JOINING.contains(&name) {
        for argument in &mut call.args {
            match of(argument) {
                Some(DataType::Boolean) => {
                    let flag = std::mem::take(argument);
                    let negation = Expr::Not(Box::new(flag.clone()));
                    *argument = when(flag, lit("t")).when(negation, lit("f")).end()?;
                }
                Some(other) if !is_joined_as_it_is(&other) => {
                    *argument = cast(std::mem::take(argument), DataType::Utf8);
                }
                _ => {}
            }
        }
    }
    Ok(Expr::ScalarFunction(call))
}

/// Gives the value and the default of `lag` and `lead` the type of both, if that is another one.
pub(crate) fn default_of_window(function: &mut WindowFunction, schema: &DFSchema) -> DFResult<()> {
    let WindowFunctionDefinition::WindowUDF(of) = &function.fun else { return Ok(()) };
    let [value, _, default] = function.params.args.as_mut_slice() else { return Ok(()) };
    if !matches!(of.name(), "lag" | "lead") {
        return Ok(());
    }
    let types = [value.get_type(schema)?, default.get_type(schema)?];
    // An integer fits any number.
    if types[0] == types[1] || types[1].is_integer() {
        return Ok(());
    }
    convert(vec![value, default], &types);
    Ok(())
}

/// Tells whether the text of a value is DataFusion's.
fn is_joined_as_it_is(of: &DataType) -> bool {
    !(of.is_floating() || matches!(of, DataType::List(_) | DataType::Struct(_) | DataType::Binary))
}

/// Arithmetic with its result type.
pub(crate) fn operation(left: Box<Expr>, op: Operator, right: Box<Expr>, schema: &DFSchema) -> Expr {
    let operation = |left, right| Expr::BinaryExpr(BinaryExpr { left, op, right });
    let Ok(other) = right.get_type(schema) else { return operation(left, right) };
    // The type of a long sum is not asked for at each of its terms.
    let is_chain =
        matches!(*left, Expr::BinaryExpr(_)) && !matches!(other, DataType::Date32 | DataType::Float32);
    let one = if is_chain { DataType::Null } else { left.get_type(schema).unwrap_or(DataType::Null) };
    if op == Operator::Minus && one == DataType::Date32 && other == DataType::Date32 {
        return cast(operation(left, right), DataType::Int32);
    }
    let is_exact = |of: &DataType| of.is_integer() || of.is_decimal();
    let is_mixed =
        one == DataType::Float32 && is_exact(&other) || is_exact(&one) && other == DataType::Float32;
    if is_mixed {
        let double = |expr: Box<Expr>| Box::new(cast(*expr, DataType::Float64));
        return operation(double(left), double(right));
    }
    operation(left, right)
}

/// Cast of a DOUBLE or REAL to NUMERIC, or of a DOUBLE to REAL; `None` for other casts.
pub(crate) fn cast_of_float(of: &Cast, schema: &DFSchema) -> Option<Expr> {
    let to = of.field.data_type();
    if !matches!(to, DataType::Float32 | DataType::Decimal128(..)) {
        return None;
    }
    let from = of.expr.get_type(schema).ok()?;
    match *to {
        DataType::Float32 if from == DataType::Float64 => Some(narrowed((*of.expr).clone())),
        DataType::Decimal128(precision, scale) if from.is_floating() && scale >= 0 => {
            Some(from_float((*of.expr).clone(), precision, scale))
        }
        _ => None,
    }
}

/// CASE whose values have one type.
pub(crate) fn case(mut case: Case, schema: &DFSchema) -> Expr {
    let otherwise = case.else_expr.iter_mut().map(|value| value.as_mut());
    let values: Vec<&mut Expr> =
        case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut()).chain(otherwise).collect();
    let types: Vec<DataType> = values.iter().filter_map(|value| value.get_type(schema).ok()).collect();
    convert(values, &types);
    Expr::Case(case)
}

/// Type of a choice between numbers of several types, and NULLs; `None` if they have one type, or are not all numbers.
fn common_number(types: &[DataType]) -> Option<DataType> {
    let known: Vec<DataType> = types.iter().filter(|of| !of.is_null()).cloned().collect();
    if !known.iter().all(DataType::is_numeric) || known.windows(2).all(|pair| pair[0] == pair[1]) {
        return None;
    }
    // A REAL or DOUBLE beside an exact number is one.
    let float = [DataType::Float64, DataType::Float32].into_iter().find(|float| known.contains(float));
    float.or_else(|| get_coerce_type_for_case_expression(&known, None))
}

/// Gives values of these types the common one, if all are numbers.
fn convert(values: Vec<&mut Expr>, types: &[DataType]) {
    if values.len() != types.len() {
        return;
    }
    let Some(common) = common_number(types) else { return };
    for (value, _) in values.into_iter().zip(types).filter(|(_, of)| **of != common) {
        *value = cast(std::mem::take(value), common.clone());
    }
}

/// Rows of VALUES without DataFusion's casts of DOUBLEs to DECIMALs, in columns that have both: these are DOUBLEs.
pub(crate) fn values(mut rows: Vec<Vec<Expr>>) -> DFResult<Vec<Vec<Expr>>> {
    let none = DFSchema::empty();
    let width = rows.first().map_or(0, Vec::len);
    for at in 0..width {
        let cells: Vec<&mut Expr> = rows.iter_mut().filter_map(|row| row.get_mut(at)).collect();
        let mut types = Vec::with_capacity(cells.len());
        for cell in &cells {
            types.push(before_cast(cell).get_type(&none)?);
        }
        if !types.iter().any(DataType::is_floating) || !types.iter().any(DataType::is_decimal) {
            continue;
        }
        let Some(common) = common_number(&types) else { continue };
        for (cell, of) in cells.into_iter().zip(types) {
            let before = before_cast(cell).clone();
            *cell = if of == common { before } else { cast(before, common.clone()) };
        }
    }
    Ok(rows)
}

/// Operand of a cast to a DECIMAL of the digits that DataFusion gives DOUBLEs and numbers beside them; else the expression.
fn before_cast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(Cast { expr: inner, field }) if matches!(field.data_type(), DataType::Decimal128(_, scale) if *scale >= FLOAT_SCALE_MIN) => {
            inner
        }
        other => other,
    }
}

/// Inputs of a UNION with the common types of their numbers, where one is a DOUBLE or REAL.
pub(crate) fn inputs(inputs: Vec<Arc<LogicalPlan>>) -> DFResult<Vec<Arc<LogicalPlan>>> {
    let Some(first) = inputs.first() else { return Ok(inputs) };
    let width = first.schema().fields().len();
    if inputs.iter().any(|input| input.schema().fields().len() != width) {
        return Ok(inputs);
    }
    let common = |at: usize| {
        let types: Vec<DataType> =
            inputs.iter().map(|input| input.schema().field(at).data_type().clone()).collect();
        common_number(&types).filter(DataType::is_floating)
    };
    let common: Vec<Option<DataType>> = (0..width).map(common).collect();
    if common.iter().all(Option::is_none) {
        return Ok(inputs);
    }
    let converted = inputs.into_iter().map(|input| -> DFResult<Arc<LogicalPlan>> {
        let schema = Arc::clone(input.schema());
        let columns = schema.iter().zip(&common).map(|((relation, field), common)| {
            let column = Expr::Column(Column::new(relation.cloned(), field.name()));
            match common {
                Some(common) if common != field.data_type() => {
                    cast(column, common.clone()).alias_qualified(relation.cloned(), field.name())
                }
                _ => column,
            }
        });
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(columns.collect(), input)?)))
    });
    converted.collect()
}

/// UNION whose columns have the types of all inputs.
pub(crate) fn union(union: Union) -> DFResult<LogicalPlan> {
    let differs = |input: &LogicalPlan| {
        let own = union.schema.fields().iter().zip(input.schema().fields());
        own.into_iter().any(|(one, other)| one.data_type() != other.data_type())
    };
    if union.inputs.iter().any(|input| differs(input)) {
        return TypeCoercionRewriter::coerce_union(union);
    }
    Ok(LogicalPlan::Union(union))
}

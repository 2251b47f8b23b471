//! Functions whose results may be much larger than their arguments: `repeat`, `lpad`, `replace`,
//! `generate_series`, `||` and others; and those that take long on large arguments: regular expressions, `levenshtein`,
//! functions of lists.
//!
//! DataFusion computes them for an entire batch at once, without a bound on memory. Here the size of a result is
//! computed first, or the number of steps where it grows with a product: a result that is larger than its share of
//! a statement's memory ([`RESULT_SHARE`]) is refused, with 54000 if one value is too large by itself and 53200 if
//! all values of a batch are. What `replace` would make is counted piece by piece: the count ends as soon as it is
//! too much, or the statement is cancelled.
//!
//! Calls end within seconds, most within milliseconds. One with large values ([`LONG_VALUE_BYTES`]) runs
//! on a thread of its own, for which a cancelled statement does not wait ([`crate::planner::blocking`]); of small
//! ones a batch is computed slice by slice ([`crate::planner::slices`]). Memory of a call is reserved as the
//! statement's while it runs.

use crate::error::{Error, external};
use crate::planner::blocking::interruptible;
use crate::postgres::concatenation;
use crate::postgres::wrapped::{CallWrapper, WrappedFunction};
use crate::session::cancellation::RunningStatement;
use crate::session::query_memory::bytes_of_array;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool};
use datafusion::logical_expr::{ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF};
use datafusion::prelude::SessionContext;
use memchr::memmem::Finder;
use std::sync::Arc;

/// Share of a statement's memory that the result of one call may take: one in so many.
const RESULT_SHARE: usize = 4;
/// Maximum bytes of a result if the memory has no limit, and in any case.
const RESULT_BYTES_MAX: usize = 64 << 20;
/// Maximum number of steps of a call whose time grows with the product of two arguments.
const STEPS_MAX: f64 = 1e8;
/// Bytes of one value from which on a call runs on a thread of its own.
const LONG_VALUE_BYTES: usize = 256 << 10;
/// Bytes counted for an array element whose size is not computed.
const ELEMENT_BYTES: usize = 16;
/// Maximum bytes of a character.
const CHARACTER_BYTES: usize = 4;
/// Number of matches of `replace` that are counted between two checks.
const MATCHES_COUNTED: usize = 1 << 14;
const NANOSECONDS_PER_DAY: f64 = 86_400e9;
const DAYS_PER_MONTH: f64 = 28.0;

/// Upper bound on the bytes of the result for a row.
type Size = fn(&Arguments, usize) -> f64;

/// Functions with the sizes of their results.
const SIZED: [(&str, Size); 11] = [
    ("repeat", |of, row| of.bytes(0, row) as f64 * of.count(1, row)),
    ("lpad", padded),
    ("rpad", padded),
    ("replace", replaced),
    ("concat", joined),
    ("concat_ws", |of, row| joined(of, row) + of.bytes(0, row) as f64 * of.columns.len() as f64),
    ("array_repeat", |of, row| of.count(1, row) * (of.bytes(0, row).max(ELEMENT_BYTES)) as f64),
    ("array_resize", |of, row| of.count(1, row) * ELEMENT_BYTES as f64),
    ("range", series),
    ("generate_series", series),
    ("format", formatted),
];

/// Plan whose functions outlive the statements of the session: `running` alone cancels them.
pub(crate) fn outliving(plan: LogicalPlan, running: &Arc<RunningStatement>) -> DFResult<LogicalPlan> {
    let detached = |expr: Expr| {
        let Expr::ScalarFunction(call) = &expr else { return Ok(Transformed::no(expr)) };
        let Some((inner, calls)) = bounded(&call.func) else { return Ok(Transformed::no(expr)) };
        let calls = BoundedCalls { running: Arc::clone(running), ..calls.clone() };
        Ok(Transformed::yes(WrappedFunction::of(Arc::clone(inner), calls).call(call.args.clone())))
    };
    plan.transform_up_with_subqueries(|node| {
        // The name of a call is that of the function, as it was.
        node.map_expressions(|expr| expr.transform_up(detached))
    })
    .data()
}

/// Function within bounds that a function is, and its bounds.
fn bounded(function: &ScalarUDF) -> Option<(&Arc<ScalarUDF>, &BoundedCalls)> {
    function.inner().downcast_ref::<WrappedFunction<BoundedCalls>>().map(WrappedFunction::parts)
}

/// Functions with the numbers of their steps.
const STEPPED: [(&str, Size); 3] = [
    ("levenshtein", |of, row| of.bytes(0, row) as f64 * of.bytes(1, row) as f64),
    ("array_has_all", |of, row| of.elements(0, row) * of.elements(1, row)),
    ("array_has_any", |of, row| of.elements(0, row) * of.elements(1, row)),
];

/// Functions whose results are no larger than their arguments, by a small factor, and which read all of them.
const LINEAR: [&str; 61] = [
    "array_append",
    "array_concat",
    "array_distinct",
    "array_except",
    "array_intersect",
    "array_length",
    "array_max",
    "array_min",
    "array_position",
    "array_positions",
    "array_prepend",
    "array_remove",
    "array_remove_all",
    "array_remove_n",
    "array_replace",
    "array_replace_all",
    "array_replace_n",
    "array_reverse",
    "array_sort",
    "array_to_string",
    "array_union",
    "btrim",
    "byteain",
    "character_length",
    "decode",
    "encode",
    "find_in_set",
    "flatten",
    "initcap",
    "json_array_length",
    "json_in",
    "jsonb_array_length",
    "jsonb_in",
    "left",
    "lower",
    "ltrim",
    "md5",
    "overlay",
    "quote_ident",
    "quote_literal",
    "regexp_count",
    "regexp_instr",
    "regexp_match",
    "regexp_matches",
    "regexp_replace",
    "regexp_split_to_array",
    "regexp_split_to_table",
    "regexp_substr",
    "reverse",
    "right",
    "rtrim",
    "sha256",
    "sha512",
    "similar_to_escape",
    "split_part",
    "string_to_array",
    "strpos",
    "substr_index",
    "to_json",
    "translate",
    "upper",
];

/// Replaces DataFusion's functions, or those of another session, by the bounded ones.
pub(crate) fn register(context: &SessionContext, running: &Arc<RunningStatement>) {
    let memory = Arc::clone(&context.runtime_env().memory_pool);
    let sized = SIZED.map(|(name, size)| (name, Bound::Bytes(size)));
    let stepped = STEPPED.map(|(name, steps)| (name, Bound::Steps(steps)));
    let linear = LINEAR.map(|name| (name, Bound::Linear));
    for (name, bound) in sized.into_iter().chain(stepped).chain(linear) {
        if let Ok(found) = context.udf(name) {
            let inner = bounded(&found).map_or_else(|| Arc::clone(&found), |(inner, _)| Arc::clone(inner));
            let calls = BoundedCalls::new(inner.name(), bound, running, &memory);
            context.register_udf(WrappedFunction::of(inner, calls));
        }
    }
}

/// Function of `||` within bounds.
pub(crate) fn concatenation(running: &Arc<RunningStatement>, memory: &Arc<dyn MemoryPool>) -> Arc<ScalarUDF> {
    let calls = BoundedCalls::new("||", Bound::Bytes(joined), running, memory);
    Arc::new(WrappedFunction::of(Arc::new(concatenation::function()), calls))
}

/// Bound on a call.
#[derive(Debug, Clone, Copy)]
enum Bound {
    /// Of bytes that the result would have.
    Bytes(Size),
    /// Of steps that it would take.
    Steps(Size),
    /// Size of its arguments.
    Linear,
}

/// Calls of a function within bounds.
#[derive(Debug, Clone)]
struct BoundedCalls {
    name: String,
    bound: Bound,
    bytes_max: usize,
    running: Arc<RunningStatement>,
    memory: Arc<dyn MemoryPool>,
}

impl BoundedCalls {
    fn new(
        name: &str,
        bound: Bound,
        running: &Arc<RunningStatement>,
        memory: &Arc<dyn MemoryPool>,
    ) -> BoundedCalls {
        let bytes_max = match memory.memory_limit() {
            MemoryLimit::Finite(bytes) => (bytes / RESULT_SHARE).min(RESULT_BYTES_MAX),
            _ => RESULT_BYTES_MAX,
        };
        let (name, running, memory) = (name.to_owned(), Arc::clone(running), Arc::clone(memory));
        BoundedCalls { name, bound, bytes_max, running, memory }
    }

    /// Bytes that all results have, as far as they are known; an error if they would be too many.
    fn check(&self, arguments: &ScalarFunctionArgs) -> Result<f64, Error> {
        self.running.check()?;
        let (mut all, max) = (0.0, self.bytes_max as f64);
        let size = match self.bound {
            Bound::Linear => return Ok(0.0),
            Bound::Bytes(size) => size,
            Bound::Steps(steps) => return self.check_steps(steps, arguments),
        };
        let of = Arguments::new(arguments, max, &self.running)?;
        if std::ptr::fn_addr_eq(size, joined as Size) && of.bytes_of_all() <= max {
            return Ok(of.bytes_of_all());
        }
        for row in 0..of.rows {
            let bytes = size(&of, row);
            self.running.check()?;
            if bytes > max {
                return Err(Error::coded("54000", self.message("a result", bytes)));
            }
            all += bytes;
            if all > max {
                return Err(Error::MemoryLimit(self.message("results for one batch of rows", all)));
            }
        }
        Ok(all)
    }

    fn check_steps(&self, steps: Size, arguments: &ScalarFunctionArgs) -> Result<f64, Error> {
        let of = Arguments::new(arguments, STEPS_MAX, &self.running)?;
        match (0..of.rows).map(|row| steps(&of, row)).find(|steps| *steps > STEPS_MAX) {
            None => Ok(0.0),
            Some(steps) => {
                let message =
                    format!("{}: its arguments take {steps:.0} steps, at most {STEPS_MAX:.0}", self.name);
                Err(Error::coded("54000", message))
            }
        }
    }

    fn message(&self, what: &str, bytes: f64) -> String {
        format!(
            "{}: {what} of at least {bytes:.0} bytes exceeds the maximum of {} bytes; request less or increase the memory of statements",
            self.name, self.bytes_max
        )
    }
}

/// Bytes of arguments over all rows, and the number of rows for which they are computed.
fn size_of_arguments(arguments: &ScalarFunctionArgs) -> (usize, usize) {
    let bytes = |value: &ColumnarValue| match value {
        ColumnarValue::Scalar(value) => match value {
            ScalarValue::Utf8(Some(text)) => text.len(),
            ScalarValue::Binary(Some(bytes)) => bytes.len(),
            ScalarValue::List(list) => list.get_array_memory_size(),
            _ => 0,
        },
        ColumnarValue::Array(array) if array.data_type().is_primitive() => 0,
        ColumnarValue::Array(array) => array.to_data().get_slice_memory_size().unwrap_or_default(),
    };
    let is_constant = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
    let rows = if arguments.args.iter().all(is_constant) { 1 } else { arguments.number_rows.max(1) };
    (arguments.args.iter().map(bytes).sum(), rows)
}

impl CallWrapper for BoundedCalls {
    const MAY_SIMPLIFY: bool = false;

    fn call(&self, inner: &Arc<ScalarUDF>, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let results = self.check(&arguments).map_err(external)?;
        let (bytes, rows) = size_of_arguments(&arguments);
        let bytes = bytes.saturating_add(results as usize);
        if bytes / rows < LONG_VALUE_BYTES {
            return inner.invoke_with_args(arguments);
        }
        let reserved = MemoryConsumer::new(self.name.as_str()).register(&self.memory);
        reserved.try_grow(bytes)?;
        let function = Arc::clone(inner);
        let call = move || {
            let result = function.invoke_with_args(arguments);
            drop(reserved);
            result
        };
        interruptible(&self.running, call).map_err(external)?
    }
}

/// Arguments of a call.
struct Arguments {
    columns: Vec<Column>,
    /// Number of rows; one if all arguments are constant.
    rows: usize,
    /// Bytes that one result may have.
    bytes_max: f64,
    running: Arc<RunningStatement>,
}

/// One argument.
struct Column {
    /// Values of the argument, one if it is constant.
    values: ArrayRef,
    /// Values as numbers, if they are numeric.
    numbers: Option<Int64Array>,
    constant: bool,
}

impl Arguments {
    fn new(
        arguments: &ScalarFunctionArgs,
        bytes_max: f64,
        running: &Arc<RunningStatement>,
    ) -> Result<Arguments, Error> {
        let column = |argument: &ColumnarValue| {
            let constant = matches!(argument, ColumnarValue::Scalar(_));
            let values = argument.to_array(1)?;
            let numbers = if values.data_type().is_integer() {
                Some(cast(&values, &DataType::Int64)?.as_primitive().clone())
            } else {
                None
            };
            Ok(Column { values, numbers, constant })
        };
        let columns = arguments.args.iter().map(column).collect::<Result<Vec<Column>, Error>>()?;
        let constant = columns.iter().all(|column| column.constant);
        let rows = if constant { 1 } else { arguments.number_rows };
        Ok(Arguments { columns, rows, bytes_max, running: Arc::clone(running) })
    }

    /// Returns true if no more has to be known of a result of at least so many bytes.
    fn is_decided(&self, bytes: f64) -> bool {
        bytes > self.bytes_max || self.running.check().is_err()
    }

    fn at(&self, column: usize, row: usize) -> Option<(&Column, usize)> {
        let column = self.columns.get(column)?;
        let row = if column.constant { 0 } else { row };
        column.values.is_valid(row).then_some((column, row))
    }

    /// Value of an argument as a string.
    fn text(&self, column: usize, row: usize) -> Option<&str> {
        let (column, row) = self.at(column, row)?;
        Some(match column.values.data_type() {
            DataType::Utf8 => column.values.as_string::<i32>().value(row),
            DataType::LargeUtf8 => column.values.as_string::<i64>().value(row),
            DataType::Utf8View => column.values.as_string_view().value(row),
            _ => return None,
        })
    }

    /// Bytes of an argument in a row.
    fn bytes(&self, column: usize, row: usize) -> usize {
        if let Some(text) = self.text(column, row) {
            return text.len();
        }
        let Some((column, row)) = self.at(column, row) else { return 0 };
        match column.values.data_type() {
            DataType::Binary => column.values.as_binary::<i32>().value(row).len(),
            // A slice of nested values counts the memory of their elements.
            data_type if data_type.is_nested() => {
                column.values.slice(row, 1).to_data().get_slice_memory_size().unwrap_or(0)
            }
            _ => ELEMENT_BYTES,
        }
    }

    /// Bytes of an argument over all rows, without visiting each.
    fn bytes_of_all(&self) -> f64 {
        let bytes = |column: &Column| {
            if column.constant {
                bytes_of_array(&column.values) as f64 * self.rows as f64
            } else {
                bytes_of_array(&column.values) as f64
            }
        };
        self.columns.iter().map(bytes).sum()
    }

    /// Elements of a list in a row.
    fn elements(&self, column: usize, row: usize) -> f64 {
        let Some((column, row)) = self.at(column, row) else { return 0.0 };
        match column.values.data_type() {
            DataType::List(_) => column.values.as_list::<i32>().value_length(row) as f64,
            _ => 0.0,
        }
    }

    fn number(&self, column: usize, row: usize) -> Option<f64> {
        let (column, row) = self.at(column, row)?;
        column.numbers.as_ref().map(|numbers| numbers.value(row) as f64)
    }

    /// Repetition count given by an argument.
    fn count(&self, column: usize, row: usize) -> f64 {
        self.number(column, row).unwrap_or(0.0).max(0.0)
    }

    /// Position on a numeric scale on which steps are measured too.
    fn place(&self, column: usize, row: usize) -> Option<f64> {
        if let Some(number) = self.number(column, row) {
            return Some(number);
        }
        let (column, row) = self.at(column, row)?;
        match ScalarValue::try_from_array(&column.values, row).ok()? {
            ScalarValue::Date32(Some(days)) => Some(f64::from(days) * NANOSECONDS_PER_DAY),
            ScalarValue::Date64(Some(ms)) | ScalarValue::TimestampMillisecond(Some(ms), _) => {
                Some(ms as f64 * 1e6)
            }
            ScalarValue::TimestampSecond(Some(s), _) => Some(s as f64 * 1e9),
            ScalarValue::TimestampMicrosecond(Some(us), _) => Some(us as f64 * 1e3),
            ScalarValue::TimestampNanosecond(Some(ns), _) => Some(ns as f64),
            ScalarValue::IntervalYearMonth(Some(months)) => {
                Some(f64::from(months) * DAYS_PER_MONTH * NANOSECONDS_PER_DAY)
            }
            ScalarValue::IntervalDayTime(Some(step)) => {
                Some(f64::from(step.days) * NANOSECONDS_PER_DAY + f64::from(step.milliseconds) * 1e6)
            }
            ScalarValue::IntervalMonthDayNano(Some(step)) => {
                let days = f64::from(step.months) * DAYS_PER_MONTH + f64::from(step.days);
                Some(days * NANOSECONDS_PER_DAY + step.nanoseconds as f64)
            }
            _ => None,
        }
    }
}

fn padded(of: &Arguments, row: usize) -> f64 {
    let ascii = |column| of.text(column, row).is_none_or(str::is_ascii);
    let width = if ascii(0) && ascii(2) { 1 } else { CHARACTER_BYTES };
    of.count(1, row) * width as f64
}

fn replaced(of: &Arguments, row: usize) -> f64 {
    let (Some(text), Some(from), Some(to)) = (of.text(0, row), of.text(1, row), of.text(2, row)) else {
        return 0.0;
    };
    if from.is_empty() || to.len() <= from.len() {
        return text.len() as f64;
    }
    let grown = |matches: usize| text.len() as f64 + matches as f64 * (to.len() - from.len()) as f64;
    let mut matches = 0;
    for _ in Finder::new(from).find_iter(text.as_bytes()) {
        matches += 1;
        if matches % MATCHES_COUNTED == 0 && of.is_decided(grown(matches)) {
            break;
        }
    }
    grown(matches)
}

fn joined(of: &Arguments, row: usize) -> f64 {
    (0..of.columns.len()).map(|column| of.bytes(column, row) as f64).sum()
}

/// Size of a string by its template: each specifier may take the longest argument, and a width.
fn formatted(of: &Arguments, row: usize) -> f64 {
    let Some(template) = of.text(0, row) else { return 0.0 };
    let specifiers = template.matches('%').count() as f64;
    let digits = template.split(|c: char| !c.is_ascii_digit());
    let fixed: f64 = digits.filter_map(|digits| digits.parse::<f64>().ok()).sum();
    let arguments = (1..of.columns.len()).map(|column| of.bytes(column, row) as f64);
    let longest = arguments.fold(0.0, f64::max);
    let widths = if template.contains('*') {
        let width = |column| of.text(column, row).and_then(|text| text.trim().parse::<f64>().ok());
        (1..of.columns.len()).filter_map(width).map(f64::abs).fold(0.0, f64::max)
    } else {
        0.0
    };
    // Quoting doubles a character at most.
    template.len() as f64 + fixed + specifiers * (2.0 * longest + 3.0 + widths)
}

/// Size of a series from a start, or 0, to an end in steps.
fn series(of: &Arguments, row: usize) -> f64 {
    let (start, end) = match of.columns.len() {
        1 => (Some(0.0), of.place(0, row)),
        _ => (of.place(0, row), of.place(1, row)),
    };
    let step = match of.columns.len() {
        3.. => of.place(2, row),
        _ => Some(1.0),
    };
    match (start, end, step) {
        (Some(start), Some(end), Some(step)) if step != 0.0 => {
            ((end - start) / step + 1.0).max(0.0) * ELEMENT_BYTES as f64
        }
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use entresol_transactions::{Cancellation, Interrupt};

    fn of(values: Vec<ScalarValue>) -> Arguments {
        let column = |value: &ScalarValue| {
            let values = value.to_array().unwrap();
            let is_number = values.data_type().is_integer();
            let number = || cast(&values, &DataType::Int64).unwrap().as_primitive().clone();
            Column { numbers: is_number.then(number), values, constant: true }
        };
        let columns = values.iter().map(column).collect();
        Arguments { columns, rows: 1, bytes_max: f64::INFINITY, running: Arc::default() }
    }

    fn size(name: &str, values: Vec<ScalarValue>) -> f64 {
        let (_, size) = SIZED.iter().chain(&STEPPED).find(|(function, _)| *function == name).unwrap();
        size(&of(values), 0)
    }

    #[test]
    fn matches_are_counted_until_they_are_too_many() {
        let mut arguments = of(vec!["a".repeat(100 * MATCHES_COUNTED).into(), "a".into(), "bb".into()]);
        assert_eq!(replaced(&arguments, 0), 200.0 * MATCHES_COUNTED as f64);
        arguments.bytes_max = 101.5 * MATCHES_COUNTED as f64;
        assert_eq!(replaced(&arguments, 0), 102.0 * MATCHES_COUNTED as f64);
        let cancelled = Arc::new(Cancellation::new(None));
        cancelled.interrupt(Interrupt::Requested);
        arguments.bytes_max = f64::INFINITY;
        arguments.running.begin(cancelled);
        assert_eq!(replaced(&arguments, 0), 101.0 * MATCHES_COUNTED as f64);
    }

    #[test]
    fn sizes_are_those_of_the_results() {
        assert_eq!(size("repeat", vec!["abc".into(), 5_i64.into()]), 15.0);
        assert_eq!(size("repeat", vec!["abc".into(), (-5_i64).into()]), 0.0);
        assert_eq!(size("lpad", vec!["a".into(), 7_i64.into()]), 7.0);
        assert_eq!(size("rpad", vec!["a".into(), 7_i64.into(), "ü".into()]), 28.0);
        assert_eq!(size("replace", vec!["banana".into(), "a".into(), "123".into()]), 12.0);
        assert_eq!(size("replace", vec!["banana".into(), "".into(), "123".into()]), 6.0);
        assert_eq!(size("concat", vec!["ab".into(), "c".into()]), 3.0);
        assert_eq!(size("range", vec![10_i64.into()]), 11.0 * ELEMENT_BYTES as f64);
        assert_eq!(size("generate_series", vec![10_i64.into(), 1_i64.into(), (-3_i64).into()]), 64.0);
        assert_eq!(size("generate_series", vec![10_i64.into(), 1_i64.into(), 0_i64.into()]), 0.0);
        assert_eq!(size("repeat", vec![ScalarValue::Utf8(None), 5_i64.into()]), 0.0);
        assert_eq!(size("levenshtein", vec!["abc".into(), "abcd".into()]), 12.0);
    }
}

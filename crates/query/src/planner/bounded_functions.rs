//! Functions whose results may be much larger than their arguments: `repeat`, `lpad`, `replace`,
//! `generate_series` and others.
//!
//! DataFusion computes them for an entire batch at once, without a bound on memory. Here the size is computed
//! first: a result that is larger than its share of a statement's memory ([`RESULT_SHARE`]) is refused, with
//! 54000 if one value is too large by itself and 53200 if all values of a batch are. So every call ends soon
//! enough for cancellation, which prevents further calls. What `replace` would make is counted piece by piece: the
//! count ends as soon as it is too much, or the statement is cancelled.

use crate::error::{Error, external};
use crate::session::cancellation::Running;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result as EngineResult, ScalarValue};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, LogicalPlan, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::prelude::SessionContext;
use memchr::memmem::Finder;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Share of a statement's memory that the result of one call may take: one in so many.
const RESULT_SHARE: usize = 4;
/// Maximum bytes of a result if the memory has no limit, and in any case.
const RESULT_BYTES_MAX: usize = 64 << 20;
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

/// Bounded functions with the sizes of their results.
const FUNCTIONS: [(&str, Size); 10] = [
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
];

/// Plan whose functions outlive the statements of the session: `running` alone cancels them.
pub(crate) fn outliving(plan: LogicalPlan, running: &Arc<Running>) -> EngineResult<LogicalPlan> {
    let detached = |expr: Expr| {
        let Expr::ScalarFunction(call) = &expr else { return Ok(Transformed::no(expr)) };
        let Some(bounded) = call.func.inner().downcast_ref::<BoundedFunction>() else {
            return Ok(Transformed::no(expr));
        };
        let function = ScalarUDF::from(BoundedFunction { running: Arc::clone(running), ..bounded.clone() });
        Ok(Transformed::yes(function.call(call.args.clone())))
    };
    plan.transform_up_with_subqueries(|node| {
        // The name of a call is that of the function, as it was.
        node.map_expressions(|expr| expr.transform_up(detached))
    })
    .data()
}

/// Replaces DataFusion's functions, or those of another session, by the bounded ones.
pub(crate) fn register(context: &SessionContext, running: &Arc<Running>) {
    let bytes_max = match context.runtime_env().memory_pool.memory_limit() {
        MemoryLimit::Finite(bytes) => (bytes / RESULT_SHARE).min(RESULT_BYTES_MAX),
        _ => RESULT_BYTES_MAX,
    };
    for (name, size) in FUNCTIONS {
        if let Ok(found) = context.udf(name) {
            let bounded = found.inner().downcast_ref::<BoundedFunction>();
            let inner = bounded.map_or_else(|| Arc::clone(&found), |bounded| Arc::clone(&bounded.inner));
            let running = Arc::clone(running);
            context.register_udf(ScalarUDF::from(BoundedFunction { inner, size, bytes_max, running }));
        }
    }
}

/// A function with a bounded result.
#[derive(Debug, Clone)]
struct BoundedFunction {
    inner: Arc<ScalarUDF>,
    size: Size,
    bytes_max: usize,
    running: Arc<Running>,
}

impl PartialEq for BoundedFunction {
    fn eq(&self, other: &BoundedFunction) -> bool {
        self.inner == other.inner && self.bytes_max == other.bytes_max
    }
}

impl Eq for BoundedFunction {}

impl Hash for BoundedFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl BoundedFunction {
    /// Returns an error if the result would be too large.
    fn check(&self, arguments: &ScalarFunctionArgs) -> Result<(), Error> {
        self.running.check()?;
        let (mut all, max) = (0.0, self.bytes_max as f64);
        let of = Arguments::new(arguments, max, &self.running)?;
        if std::ptr::fn_addr_eq(self.size, joined as Size) && of.bytes_of_all() <= max {
            return Ok(());
        }
        for row in 0..of.rows {
            let bytes = (self.size)(&of, row);
            self.running.check()?;
            if bytes > max {
                return Err(Error::coded("54000", self.message("a result", bytes)));
            }
            all += bytes;
            if all > max {
                return Err(Error::MemoryLimit(self.message("results for one batch of rows", all)));
            }
        }
        Ok(())
    }

    fn message(&self, what: &str, bytes: f64) -> String {
        format!(
            "{}: {what} of at least {bytes:.0} bytes exceeds the maximum of {} bytes; request less or increase the memory of statements",
            self.inner.name(),
            self.bytes_max
        )
    }
}

impl ScalarUDFImpl for BoundedFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> EngineResult<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> EngineResult<FieldRef> {
        self.inner.return_field_from_args(arguments)
    }

    fn coerce_types(&self, types: &[DataType]) -> EngineResult<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn placement(&self, arguments: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.inner().placement(arguments)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> EngineResult<ColumnarValue> {
        self.check(&arguments).map_err(external)?;
        self.inner.invoke_with_args(arguments)
    }
}

/// Arguments of a call.
struct Arguments {
    columns: Vec<Column>,
    /// Number of rows; one if all arguments are constant.
    rows: usize,
    /// Bytes that one result may have.
    bytes_max: f64,
    running: Arc<Running>,
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
        running: &Arc<Running>,
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
                column.values.get_array_memory_size() as f64 * self.rows as f64
            } else {
                column.values.get_array_memory_size() as f64
            }
        };
        self.columns.iter().map(bytes).sum()
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
        let (_, size) = FUNCTIONS.iter().find(|(function, _)| *function == name).unwrap();
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
    }
}

//! EXTRACT and `date_part` of dates and timestamps with PostgreSQL's types: NUMERIC with as many digits as the part
//! has, and DOUBLE.
//!
//! | part | computed from |
//! | --- | --- |
//! | year, month, day, hour, minute, week, … | DataFusion's integer; a cast, which its rules can turn into ranges |
//! | second, milliseconds | microseconds of the minute, with six and three digits |
//! | epoch | seconds as a DOUBLE, exact to the microsecond for some 280 years from 1970; six digits of timestamps |
//! | decade, century, millennium | the year |

use crate::postgres::numeric_functions::with_scale;
use datafusion::arrow::array::{ArrayRef, AsArray, Int32Array};
use datafusion::arrow::compute::cast as cast_array;
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::common::{Result as DFResult, ScalarValue, exec_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast, lit,
};
use std::sync::Arc;

/// Type of a part that is an integer.
const WHOLE: DataType = DataType::Decimal128(10, 0);

/// Part of a time of type `of`, given DataFusion's call of `date_part`.
pub(crate) fn extracted(call: ScalarFunction, of: Option<&DataType>, is_double: bool) -> Expr {
    let unit = match call.args.first() {
        Some(Expr::Literal(ScalarValue::Utf8(Some(unit)), _)) => unit.to_ascii_lowercase(),
        _ => return Expr::ScalarFunction(call),
    };
    let named = |name: &str| {
        let mut call = call.clone();
        if let Some(unit) = call.args.first_mut() {
            *unit = lit(name);
        }
        Expr::ScalarFunction(call)
    };
    let is_date = matches!(of, Some(DataType::Date32 | DataType::Date64));
    let exact = match unit.trim_end_matches('s') {
        "second" | "sec" => with_scale(named("microsecond"), 6),
        "millisecond" | "msec" => with_scale(named("microsecond"), 3),
        "epoch" if is_date => with_scale(named("epoch"), 0),
        "epoch" => with_scale(named("epoch"), 6),
        "decade" => YearSpan::Decade.of(named("year")),
        "century" | "centurie" => YearSpan::Century.of(named("year")),
        "millennium" | "millennia" => YearSpan::Millennium.of(named("year")),
        _ if is_double => return cast(Expr::ScalarFunction(call), DataType::Float64),
        _ => return cast(Expr::ScalarFunction(call), WHOLE),
    };
    if is_double { cast(exact, DataType::Float64) } else { exact }
}

/// Span of years that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum YearSpan {
    Decade,
    Century,
    Millennium,
}

impl YearSpan {
    /// Number of the span in which a year lies.
    fn of(self, year: Expr) -> Expr {
        let signature = Signature::any(1, Volatility::Immutable);
        cast(ScalarUDF::from(SpanOfYear { span: self, signature }).call(vec![year]), WHOLE)
    }

    fn number(self, year: i32) -> i32 {
        // There is no year 0: centuries begin with a year 1, decades with a year that 10 divides.
        let counted = |years: i32| if year > 0 { (year - 1) / years + 1 } else { -(-year / years) - 1 };
        match self {
            YearSpan::Decade => year.div_euclid(10),
            YearSpan::Century => counted(100),
            YearSpan::Millennium => counted(1_000),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SpanOfYear {
    span: YearSpan,
    signature: Signature,
}

impl ScalarUDFImpl for SpanOfYear {
    fn name(&self) -> &str {
        match self.span {
            YearSpan::Decade => "decade",
            YearSpan::Century => "century",
            YearSpan::Millennium => "millennium",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Int32)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let [years] = arguments.args.as_slice() else { return exec_err!("{} expects a year", self.name()) };
        let array = cast_array(&years.to_array(1)?, &DataType::Int32)?;
        let numbers: Int32Array = array.as_primitive::<Int32Type>().unary(|year| self.span.number(year));
        let numbers: ArrayRef = Arc::new(numbers);
        Ok(match years {
            ColumnarValue::Scalar(_) => ColumnarValue::Scalar(ScalarValue::try_from_array(&numbers, 0)?),
            ColumnarValue::Array(_) => ColumnarValue::Array(numbers),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn centuries_begin_with_a_year_one() {
        for (year, decade, century, millennium) in
            [(2000, 200, 20, 2), (2001, 200, 21, 3), (2019, 201, 21, 3), (1, 0, 1, 1), (100, 10, 1, 1)]
        {
            let found = [YearSpan::Decade, YearSpan::Century, YearSpan::Millennium].map(|of| of.number(year));
            assert_eq!(found, [decade, century, millennium], "{year}");
        }
    }
}

//! `pg_sleep(seconds)` and `pg_sleep_for(interval)`: wait, and end at once when their statement is cancelled or its time is
//! over. In an interval months have 30 days and days 24 hours.
//!
//! It waits in slices of [`SLICE`], between which it looks for cancellation. A session has one statement at a time, so
//! as many calls wait as there are sessions.

use crate::error::{Error, external};
use crate::planner::blocking::in_place;
use crate::postgres::intervals::{INTERVAL, nanoseconds};
use crate::session::cancellation::RunningStatement;
use datafusion::arrow::array::{Array, AsArray, Float64Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Float64Type, IntervalMonthDayNanoType};
use datafusion::common::{Result as DFResult, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time until a cancellation is seen.
const SLICE: Duration = Duration::from_millis(5);

/// The functions of a session.
pub(crate) fn functions(running: &Arc<RunningStatement>) -> [ScalarUDF; 2] {
    [false, true].map(|takes_interval| {
        let argument = if takes_interval { INTERVAL } else { DataType::Float64 };
        let signature = Signature::exact(vec![argument], Volatility::Volatile);
        ScalarUDF::from(Sleep { takes_interval, signature, running: Arc::clone(running) })
    })
}

#[derive(Debug)]
struct Sleep {
    takes_interval: bool,
    signature: Signature,
    running: Arc<RunningStatement>,
}

impl PartialEq for Sleep {
    fn eq(&self, other: &Sleep) -> bool {
        self.takes_interval == other.takes_interval && Arc::ptr_eq(&self.running, &other.running)
    }
}

impl Eq for Sleep {}

impl Hash for Sleep {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.signature.hash(state);
    }
}

impl Sleep {
    fn sleep(&self, seconds: f64) -> DFResult<()> {
        let time = Duration::try_from_secs_f64(seconds.max(0.0));
        let end = time.ok().and_then(|time| Instant::now().checked_add(time));
        let end = end.ok_or_else(|| {
            external(Error::coded("22003", format!("{}({seconds}) is out of range", self.name())))
        })?;
        loop {
            self.running.check().map_err(external)?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(SLICE));
        }
    }
}

impl ScalarUDFImpl for Sleep {
    fn name(&self) -> &str {
        if self.takes_interval { "pg_sleep_for" } else { "pg_sleep" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let [time] = arguments.args.as_slice() else {
            return internal_err!("{} expects a time", self.name());
        };
        let time = time.to_array(arguments.number_rows)?;
        let seconds: Float64Array = match time.as_primitive_opt::<IntervalMonthDayNanoType>() {
            Some(intervals) => intervals.unary(|interval| nanoseconds(interval) as f64 / 1e9),
            None => time.as_primitive::<Float64Type>().clone(),
        };
        let all = || seconds.iter().flatten().try_for_each(|seconds| self.sleep(seconds));
        in_place(all)?;
        // PostgreSQL shows a result of type void as an empty string.
        let shown = (0..seconds.len()).map(|row| seconds.is_valid(row).then_some(""));
        Ok(ColumnarValue::Array(Arc::new(shown.collect::<StringArray>())))
    }
}

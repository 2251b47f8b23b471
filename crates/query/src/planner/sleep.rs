//! `pg_sleep(seconds)`: waits, and ends at once when its statement is cancelled or its time is over.
//!
//! It waits in slices of [`SLICE`], between which it looks for cancellation. A session has one statement at a time, so
//! as many calls wait as there are sessions.

use crate::error::{Error, external};
use crate::planner::blocking::in_place;
use crate::session::cancellation::RunningStatement;
use datafusion::arrow::array::{Array, AsArray, StringArray};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result as DFResult, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time until a cancellation is seen.
const SLICE: Duration = Duration::from_millis(5);

/// The function of a session.
pub(crate) fn function(running: &Arc<RunningStatement>) -> ScalarUDF {
    let signature = Signature::exact(vec![DataType::Float64], Volatility::Volatile);
    ScalarUDF::from(Sleep { signature, running: Arc::clone(running) })
}

#[derive(Debug)]
struct Sleep {
    signature: Signature,
    running: Arc<RunningStatement>,
}

impl PartialEq for Sleep {
    fn eq(&self, other: &Sleep) -> bool {
        Arc::ptr_eq(&self.running, &other.running)
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
        let end = end
            .ok_or_else(|| external(Error::coded("22003", format!("pg_sleep({seconds}) is out of range"))))?;
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
        "pg_sleep"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let [seconds] = arguments.args.as_slice() else { return internal_err!("pg_sleep expects a number") };
        let seconds = seconds.to_array(arguments.number_rows)?;
        let seconds = seconds.as_primitive::<Float64Type>();
        let all = || seconds.iter().flatten().try_for_each(|seconds| self.sleep(seconds));
        in_place(all)?;
        // PostgreSQL shows a result of type void as an empty string.
        let shown = (0..seconds.len()).map(|row| seconds.is_valid(row).then_some(""));
        Ok(ColumnarValue::Array(Arc::new(shown.collect::<StringArray>())))
    }
}

//! `now()` in microseconds, which are what timestamps have here.
//!
//! DataFusion's counts nanoseconds, and those end in 2262: a comparison would convert a column's times to them, and fail
//! on the year 9999, which stands for "no end" in many tables.

use super::UTC;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result as DFResult, ScalarValue, internal_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

/// Time at which the statement began, in the session's zone; a constant once it is planned.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Now {
    signature: Signature,
    aliases: Vec<String>,
    zone: Arc<str>,
}

impl Now {
    pub(super) fn new(zone: &str) -> Now {
        Now {
            signature: Signature::nullary(Volatility::Stable),
            aliases: vec!["current_timestamp".to_owned()],
            zone: zone.into(),
        }
    }
}

impl ScalarUDFImpl for Now {
    fn name(&self) -> &str {
        "now"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(&self.zone))))
    }

    fn simplify(&self, arguments: Vec<Expr>, context: &SimplifyContext) -> DFResult<ExprSimplifyResult> {
        let Some(began) = context.query_execution_start_time() else {
            return Ok(ExprSimplifyResult::Original(arguments));
        };
        let now =
            ScalarValue::TimestampMicrosecond(Some(began.timestamp_micros()), Some(Arc::clone(&self.zone)));
        Ok(ExprSimplifyResult::Simplified(Expr::Literal(now, None)))
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        internal_err!("now() is a constant of each plan")
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        Some(Now::new(config.execution.time_zone.as_deref().unwrap_or(UTC)).into())
    }
}

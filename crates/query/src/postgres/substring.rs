//! `substring` of a string, from a character on or by a pattern.
//!
//! | written | result |
//! | --- | --- |
//! | `substring(s from n for m)`, `substr(s, n, m)` | characters by their places: DataFusion's function |
//! | `substring(s from p)` | match of a regular expression, or its first group |
//! | `substring(s from p for e)` | part between two `e"` of a pattern of SIMILAR TO that `s` matches, or all of it |
//!
//! NULL where nothing matches. Regular expressions are those of [`crate::postgres::regular_expressions`].

use crate::error::{Error, external};
use crate::postgres::regular_expressions::compiled;
use crate::postgres::similar::substring_expression;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DFResult, ScalarValue, internal_err};
use datafusion::functions::unicode;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use regex::Regex;
use std::sync::Arc;

#[derive(Debug, PartialEq, Eq, Hash)]
struct SubstringFunction {
    /// DataFusion's function of places.
    places: Arc<ScalarUDF>,
    signature: Signature,
}

/// Function of this module.
pub(crate) fn function() -> ScalarUDF {
    let places = unicode::substr();
    let mut forms = match &places.signature().type_signature {
        TypeSignature::OneOf(forms) => forms.clone(),
        other => vec![other.clone()],
    };
    forms.extend([2, 3].map(|count| TypeSignature::Exact(vec![DataType::Utf8; count])));
    let signature = Signature::one_of(forms, Volatility::Immutable);
    ScalarUDF::from(SubstringFunction { places, signature })
}

impl ScalarUDFImpl for SubstringFunction {
    fn name(&self) -> &str {
        self.places.name()
    }

    fn aliases(&self) -> &[String] {
        self.places.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        match arguments.first() {
            Some(string) => Ok(string.clone()),
            None => internal_err!("substring expects a string"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        if !arguments.args.get(1).is_some_and(|from| from.data_type().is_string()) {
            return self.places.invoke_with_args(arguments);
        }
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let columns: Vec<ArrayRef> =
            arguments.args.iter().map(|value| value.to_array(rows)).collect::<DFResult<_>>()?;
        let strings: Vec<&StringArray> = columns.iter().map(|column| column.as_string::<i32>()).collect();
        let parts: ArrayRef = Arc::new(matched(&strings, rows).map_err(external)?);
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&parts, 0)?)
        } else {
            ColumnarValue::Array(parts)
        })
    }
}

/// Parts of strings that match patterns, whose escape characters are the third column.
fn matched(columns: &[&StringArray], rows: usize) -> Result<StringArray, Error> {
    let mut parts = StringBuilder::new();
    // Expression compiled last, with its pattern and escape character.
    let mut last: Option<(&str, Option<&str>, Regex)> = None;
    for row in 0..rows {
        if columns.iter().any(|column| column.is_null(row)) {
            parts.append_null();
            continue;
        }
        let (string, pattern) = (columns[0].value(row), columns[1].value(row));
        let escape = columns.get(2).map(|escapes| escapes.value(row));
        let regex = match &last {
            Some((known, with, regex)) if *known == pattern && *with == escape => regex.clone(),
            _ => match escape {
                None => compiled(pattern, "")?,
                Some(escape) => compiled(&substring_expression(pattern, escape)?, "")?,
            },
        };
        let group = usize::from(regex.captures_len() > 1);
        let part = regex.captures(string).and_then(|captures| captures.get(group));
        parts.append_option(part.map(|part| part.as_str()));
        last = Some((pattern, escape, regex));
    }
    Ok(parts.finish())
}

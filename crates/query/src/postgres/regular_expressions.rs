//! Functions of regular expressions that DataFusion lacks.
//!
//! | function | result |
//! | --- | --- |
//! | `regexp_match(s, p [, flags])` | the groups of the first match, of which some may be NULL; the match where there are no groups |
//! | `regexp_matches(s, p [, flags])` | rows: the groups of the first match, of all with `g`; the match where there are no groups |
//! | `regexp_split_to_array(s, p [, flags])`, `regexp_split_to_table` | the strings between matches, as a list, as rows |
//! | `regexp_substr(s, p [, start [, n [, flags [, group]]]])` | the n-th match from a character on, or a group of it |
//!
//! Expressions are those of Rust, as in all other functions of them: no back references, no looking around (2201B). As in
//! PostgreSQL a point matches a new line, unless a flag `n` or `p` says otherwise, and an empty match at an end of the string
//! or behind another splits nothing.
//!
//! Memory: a compiled expression has at most [`COMPILED_BYTES_MAX`]; results are no larger than their arguments.

use crate::error::{Error, external};
use crate::postgres::type_names::no_function;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::{Result as DFResult, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    binary_expr, lit,
};
use regex::{Captures, Regex, RegexBuilder};
use std::sync::Arc;

/// Maximum bytes of a compiled expression.
const COMPILED_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Op {
    Match,
    Matches,
    SplitToArray,
    SplitToTable,
    Substr,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    op: Op,
    signature: Signature,
}

/// Functions of this module.
pub(crate) fn functions() -> [ScalarUDF; 5] {
    [Op::Match, Op::Matches, Op::SplitToArray, Op::SplitToTable, Op::Substr]
        .map(|op| ScalarUDF::from(Function { op, signature: Signature::user_defined(Volatility::Immutable) }))
}

fn strings() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        match self.op {
            Op::Match => "regexp_match",
            Op::Matches => "regexp_matches",
            Op::SplitToArray => "regexp_split_to_array",
            Op::SplitToTable => "regexp_split_to_table",
            Op::Substr => "regexp_substr",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        let wanted: &[DataType] = match self.op {
            Op::Substr => &[
                DataType::Utf8,
                DataType::Utf8,
                DataType::Int64,
                DataType::Int64,
                DataType::Utf8,
                DataType::Int64,
            ],
            _ => &[DataType::Utf8, DataType::Utf8, DataType::Utf8],
        };
        let fits = |(found, wanted): (&DataType, &DataType)| match wanted {
            DataType::Int64 => found.is_integer() || found.is_null(),
            _ => found.is_string() || found.is_null(),
        };
        if !(2..=wanted.len()).contains(&arguments.len()) || !arguments.iter().zip(wanted).all(fits) {
            return Err(no_function(self.name(), arguments));
        }
        Ok(wanted[..arguments.len()].to_vec())
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(match self.op {
            Op::Matches => DataType::List(Arc::new(Field::new_list_field(strings(), true))),
            Op::Match | Op::SplitToArray | Op::SplitToTable => strings(),
            Op::Substr => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        let columns = arguments.args.iter().map(|value| value.to_array(rows));
        let call = Call { columns: columns.collect::<DFResult<_>>()?, compiled: None };
        let result = match self.op {
            Op::Match => call.first_match(rows),
            Op::Matches => call.matches(rows),
            Op::SplitToArray | Op::SplitToTable => call.split(rows),
            Op::Substr => call.substr(rows),
        };
        let result = result.map_err(external)?;
        if result.len() != rows {
            return internal_err!("{}: {} results for {rows} rows", self.name(), result.len());
        }
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)
        } else {
            ColumnarValue::Array(result)
        })
    }
}

/// Arguments of a call.
struct Call {
    columns: Vec<ArrayRef>,
    /// Expression that was compiled last, with its pattern and flags.
    compiled: Option<(String, String, Regex)>,
}

impl Call {
    /// Returns true if an argument of the row is NULL, so that the result is.
    fn is_null(&self, row: usize) -> bool {
        self.columns.iter().any(|column| column.is_null(row))
    }

    fn text(&self, column: usize, row: usize) -> &str {
        self.columns.get(column).map_or("", |column| column.as_string::<i32>().value(row))
    }

    /// Integer of an argument, 1 without it, at least `min`.
    fn integer(&self, (column, name): (usize, &str), row: usize, min: usize) -> Result<usize, Error> {
        let Some(column) = self.columns.get(column) else { return Ok(min) };
        let given = column.as_primitive::<Int64Type>().value(row);
        match usize::try_from(given) {
            Ok(valid) if valid >= min => Ok(valid),
            _ => Err(Error::coded("22023", format!("invalid value for parameter \"{name}\": {given}"))),
        }
    }

    /// Expression of a row, by the column of its flags; true if these ask for all matches.
    fn compile(&mut self, flags: usize, row: usize) -> Result<(Regex, bool), Error> {
        let (pattern, flags) = (self.text(1, row), self.text(flags, row));
        let global = flags.contains('g');
        if let Some((known, with, regex)) = &self.compiled
            && known == pattern
            && with == flags
        {
            return Ok((regex.clone(), global));
        }
        let regex = compiled(pattern, flags)?;
        self.compiled = Some((pattern.to_owned(), flags.to_owned(), regex.clone()));
        Ok((regex, global))
    }

    fn matches(mut self, rows: usize) -> Result<ArrayRef, Error> {
        let mut found = ListBuilder::new(ListBuilder::new(StringBuilder::new()));
        for row in 0..rows {
            if self.is_null(row) {
                found.append(false);
                continue;
            }
            let (regex, global) = self.compile(2, row)?;
            let groups = regex.captures_len();
            for captures in regex.captures_iter(self.text(0, row)).take(if global { usize::MAX } else { 1 }) {
                append_groups(&captures, groups, found.values());
            }
            found.append(true);
        }
        Ok(Arc::new(found.finish()))
    }

    fn first_match(mut self, rows: usize) -> Result<ArrayRef, Error> {
        let mut found = ListBuilder::new(StringBuilder::new());
        for row in 0..rows {
            if self.is_null(row) {
                found.append(false);
                continue;
            }
            let (regex, global) = self.compile(2, row)?;
            if global {
                let message = "regexp_match() does not support the \"global\" option";
                return Err(Error::coded("22023", message));
            }
            match regex.captures(self.text(0, row)) {
                Some(captures) => append_groups(&captures, regex.captures_len(), &mut found),
                None => found.append(false),
            }
        }
        Ok(Arc::new(found.finish()))
    }

    fn split(mut self, rows: usize) -> Result<ArrayRef, Error> {
        let mut parts = ListBuilder::new(StringBuilder::new());
        for row in 0..rows {
            if self.is_null(row) {
                parts.append(false);
                continue;
            }
            let (regex, global) = self.compile(2, row)?;
            if global {
                let message = "regexp_split does not support the \"global\" option";
                return Err(Error::coded("22023", message));
            }
            let text = self.text(0, row);
            let mut from = 0;
            for found in regex.find_iter(text) {
                let splits_nothing = [0, from, text.len()].contains(&found.start());
                if found.is_empty() && splits_nothing {
                    continue;
                }
                parts.values().append_value(&text[from..found.start()]);
                from = found.end();
            }
            parts.values().append_value(&text[from..]);
            parts.append(true);
        }
        Ok(Arc::new(parts.finish()))
    }

    fn substr(mut self, rows: usize) -> Result<ArrayRef, Error> {
        let mut parts = StringBuilder::new();
        for row in 0..rows {
            if self.is_null(row) {
                parts.append_null();
                continue;
            }
            let start = self.integer((2, "start"), row, 1)?;
            let nth = self.integer((3, "n"), row, 1)?;
            let group = self.integer((5, "subexpr"), row, 0)?;
            let (regex, global) = self.compile(4, row)?;
            if global {
                let message = "regexp_substr() does not support the \"global\" option";
                return Err(Error::coded("22023", message));
            }
            let text = self.text(0, row);
            let from = text.char_indices().map(|(at, _)| at).nth(start - 1);
            let part = from.and_then(|from| nth_match(&regex, text, from, nth, group));
            parts.append_option(part);
        }
        Ok(Arc::new(parts.finish()))
    }
}

/// Appends the list of the groups of a match, or of the match where the expression has no groups.
fn append_groups(captures: &Captures<'_>, groups: usize, lists: &mut ListBuilder<StringBuilder>) {
    for group in usize::from(groups > 1)..groups {
        lists.values().append_option(captures.get(group).map(|group| group.as_str()));
    }
    lists.append(true);
}

/// Group of the n-th match from a byte on.
fn nth_match<'t>(regex: &Regex, text: &'t str, from: usize, nth: usize, group: usize) -> Option<&'t str> {
    let mut at = from;
    for _ in 1..nth {
        let found = regex.find_at(text, at)?;
        at = found.end();
        if found.is_empty() {
            // The next one begins behind a character.
            at += text[at..].chars().next()?.len_utf8();
        }
    }
    Some(regex.captures_at(text, at)?.get(group)?.as_str())
}

/// Pattern of DataFusion's operators and functions, whose point matches no new line unless the pattern says so.
pub(crate) fn over_lines(pattern: Expr) -> Expr {
    const MODE: &str = "(?s)";
    match pattern {
        Expr::Literal(ScalarValue::Utf8(Some(text)), metadata) if !text.starts_with(MODE) => {
            Expr::Literal(ScalarValue::Utf8(Some(format!("{MODE}{text}"))), metadata)
        }
        Expr::Literal(..) => pattern,
        other => binary_expr(lit(MODE), Operator::StringConcat, other),
    }
}

/// Expression of a pattern with PostgreSQL's flags.
pub(super) fn compiled(pattern: &str, flags: &str) -> Result<Regex, Error> {
    let is_literal = flags.contains('q');
    let escaped = if is_literal { regex::escape(pattern) } else { pattern.to_owned() };
    let mut builder = RegexBuilder::new(&escaped);
    builder.dot_matches_new_line(true).size_limit(COMPILED_BYTES_MAX);
    for flag in flags.chars() {
        match flag {
            'g' | 't' | 'e' | 'q' => {}
            'c' => {
                builder.case_insensitive(false);
            }
            'i' => {
                builder.case_insensitive(true);
            }
            's' => {
                builder.dot_matches_new_line(true).multi_line(false);
            }
            'n' | 'm' => {
                builder.dot_matches_new_line(false).multi_line(true);
            }
            'p' => {
                builder.dot_matches_new_line(false);
            }
            'w' => {
                builder.multi_line(true);
            }
            'x' => {
                builder.ignore_whitespace(true);
            }
            other => {
                let message = format!("invalid regular expression option: \"{other}\"");
                return Err(Error::coded("22023", message));
            }
        }
    }
    builder.build().map_err(|error| Error::coded("2201B", format!("invalid regular expression: {error}")))
}

//! Functions that take JSON apart, for the planner and by name.

use super::edit;
use super::json_type::{JsonType, failed};
use crate::error::{Error, external};
use crate::postgres::type_names;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Int32Array, ListBuilder, StringArray, StringBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result as DFResult, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use entresol_tables::json::{self, Json, JsonValue, contains, parse};
use std::borrow::Cow;
use std::sync::Arc;

/// Operation on JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Op {
    /// String as JSON, checked.
    In(JsonType),
    Get,
    GetText,
    Path,
    PathText,
    ExtractPath(JsonType),
    ExtractPathText(JsonType),
    Contains,
    HasKey,
    HasAny,
    HasAll,
    Concat,
    Delete,
    DeletePath,
    /// Another value at the end of a path, `jsonb_set`.
    Set,
    TypeOf(JsonType),
    ArrayLength(JsonType),
    Elements(JsonType),
    ElementsText(JsonType),
    ObjectKeys(JsonType),
    /// Fields of an object.
    Fields(JsonType, FieldPart, FieldValue),
    /// JSON that loses its type in a list.
    Typed(JsonType),
    /// Bytes that order as JSONB does.
    OrderKey,
}

/// Part of a field of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FieldPart {
    Key,
    Value,
    /// Both, as PostgreSQL shows a record.
    Record,
}

/// Form of the value of a field of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FieldValue {
    Json,
    String,
}

/// Kinds of results.
enum Output {
    Json,
    Text,
    Boolean,
    Integer,
    List,
    Bytes,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    op: Op,
    name: String,
    signature: Signature,
}

/// Functions that SQL, or a translation of it, can name.
pub(super) fn named() -> impl Iterator<Item = ScalarUDF> {
    let of = |json| {
        [
            Op::In(json),
            Op::TypeOf(json),
            Op::ArrayLength(json),
            Op::Elements(json),
            Op::ElementsText(json),
            Op::ObjectKeys(json),
            Op::ExtractPath(json),
            Op::ExtractPathText(json),
            Op::Typed(json),
        ]
    };
    let parts = [FieldPart::Key, FieldPart::Value, FieldPart::Record];
    let of_fields = [JsonType::Json, JsonType::Jsonb].into_iter().flat_map(move |json| {
        [FieldValue::Json, FieldValue::String]
            .into_iter()
            .flat_map(move |value| parts.map(|part| Op::Fields(json, part, value)))
    });
    let both = [JsonType::Json, JsonType::Jsonb].into_iter().flat_map(of);
    both.chain(of_fields).chain([Op::Set]).map(Op::function)
}

/// Bytes by which JSONB is compared.
pub(crate) fn order_key(json: Expr) -> Expr {
    Op::OrderKey.call(vec![json])
}

impl Op {
    fn function(self) -> ScalarUDF {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(Function { op: self, name: self.name(), signature })
    }

    pub(super) fn call(self, arguments: Vec<Expr>) -> Expr {
        self.function().call(arguments)
    }

    fn name(self) -> String {
        let prefixed = |json: JsonType, name: &str| format!("{}_{name}", json.name());
        let plain = match self {
            Op::In(json) => return prefixed(json, "in"),
            Op::TypeOf(json) => return prefixed(json, "typeof"),
            Op::ArrayLength(json) => return prefixed(json, "array_length"),
            Op::Elements(json) => return prefixed(json, "array_elements"),
            Op::ElementsText(json) => return prefixed(json, "array_elements_text"),
            Op::ObjectKeys(json) => return prefixed(json, "object_keys"),
            Op::ExtractPath(json) => return prefixed(json, "extract_path"),
            Op::ExtractPathText(json) => return prefixed(json, "extract_path_text"),
            Op::Typed(json) => return prefixed(json, "typed"),
            Op::Fields(json, part, value) => {
                let end = match part {
                    FieldPart::Key => "_keys",
                    FieldPart::Value => "_values",
                    FieldPart::Record => "",
                };
                return prefixed(json, &format!("{}{end}", each(value)));
            }
            Op::Get => "json_get",
            Op::GetText => "json_get_text",
            Op::Path => "json_path",
            Op::PathText => "json_path_text",
            Op::Contains => "jsonb_contains",
            Op::HasKey => "jsonb_exists",
            Op::HasAny => "jsonb_exists_any",
            Op::HasAll => "jsonb_exists_all",
            Op::Concat => "jsonb_concat",
            Op::Delete => "jsonb_delete",
            Op::DeletePath => "jsonb_delete_path",
            Op::Set => "jsonb_set",
            Op::OrderKey => "jsonb_key",
        };
        plain.to_owned()
    }

    fn output(self) -> Output {
        match self {
            Op::In(_)
            | Op::Typed(_)
            | Op::Get
            | Op::Path
            | Op::ExtractPath(_)
            | Op::Concat
            | Op::Delete
            | Op::DeletePath
            | Op::Set => Output::Json,
            Op::GetText | Op::PathText | Op::ExtractPathText(_) | Op::TypeOf(_) => Output::Text,
            Op::Contains | Op::HasKey | Op::HasAny | Op::HasAll => Output::Boolean,
            Op::ArrayLength(_) => Output::Integer,
            Op::Elements(_) | Op::ElementsText(_) | Op::ObjectKeys(_) | Op::Fields(..) => Output::List,
            Op::OrderKey => Output::Bytes,
        }
    }

    /// Type of the second argument, from what was found; `None` if it is none.
    fn second_type(self, found: &DataType) -> Option<DataType> {
        let is_text = is_text(found);
        match self {
            Op::Get | Op::GetText | Op::Delete if found.is_integer() => Some(DataType::Int64),
            Op::Get | Op::GetText | Op::Delete | Op::HasKey | Op::Contains | Op::Concat if is_text => {
                Some(DataType::Utf8)
            }
            Op::Path | Op::PathText | Op::HasAny | Op::HasAll | Op::DeletePath | Op::Set => match found {
                DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) | DataType::Null => {
                    Some(texts_type())
                }
                _ => None,
            },
            _ => None,
        }
    }
}

fn is_text(of: &DataType) -> bool {
    matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null)
}

/// End of the name of the function of the fields of an object.
fn each(value: FieldValue) -> &'static str {
    match value {
        FieldValue::Json => "each",
        FieldValue::String => "each_text",
    }
}

/// Record of a key and a value, in quotes where they need them.
fn record(key: &str, value: Option<&str>) -> String {
    let mut record = String::with_capacity(key.len() + value.map_or(0, str::len) + 3);
    for (mark, field) in [('(', Some(key)), (',', value)] {
        record.push(mark);
        let Some(field) = field else { continue };
        let is_special = |c: char| c.is_whitespace() || "\"\\(),".contains(c);
        if field.is_empty() || field.contains(is_special) {
            record.push('"');
            record.push_str(&field.replace('\\', "\\\\").replace('"', "\"\""));
            record.push('"');
        } else {
            record.push_str(field);
        }
    }
    record.push(')');
    record
}

fn texts_type() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DFResult<Vec<DataType>> {
        let types = match (self.op, arguments) {
            (Op::ExtractPath(_) | Op::ExtractPathText(_), [_, ..]) if arguments.iter().all(is_text) => {
                Some(vec![DataType::Utf8; arguments.len()])
            }
            (op @ Op::Set, [json, path, value, rest @ ..])
                if is_text(json)
                    && is_text(value)
                    && rest.len() <= 1
                    && rest.iter().all(|create| matches!(create, DataType::Boolean | DataType::Null)) =>
            {
                op.second_type(path).map(|path| {
                    let mut types = vec![DataType::Utf8, path, DataType::Utf8];
                    types.extend(rest.iter().map(|_| DataType::Boolean));
                    types
                })
            }
            (_, [json]) if is_text(json) => Some(vec![DataType::Utf8]),
            (op, [json, second]) if is_text(json) => {
                op.second_type(second).map(|second| vec![DataType::Utf8, second])
            }
            _ => None,
        };
        types.ok_or_else(|| match self.op {
            Op::In(json) => {
                let found = type_names::listed(arguments);
                external(Error::coded("42846", format!("cannot cast type {found} to {}", json.name())))
            }
            _ => type_names::no_function(&self.name, arguments),
        })
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(match self.op.output() {
            Output::Json | Output::Text => DataType::Utf8,
            Output::Boolean => DataType::Boolean,
            Output::Integer => DataType::Int32,
            Output::List => texts_type(),
            Output::Bytes => DataType::Binary,
        })
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> DFResult<FieldRef> {
        let json = match self.op {
            Op::In(json) | Op::Typed(json) | Op::ExtractPath(json) => json,
            Op::Get | Op::Path => {
                let of_first = arguments.arg_fields.first().and_then(|field| JsonType::of_field(field));
                of_first.unwrap_or(JsonType::Json)
            }
            Op::Concat | Op::Delete | Op::DeletePath | Op::Set => JsonType::Jsonb,
            _ => return Ok(Arc::new(Field::new(&self.name, self.return_type(&[])?, true))),
        };
        Ok(json.field(&self.name))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let rows = arguments.number_rows;
        let arrays: Vec<ArrayRef> =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<DFResult<_>>()?;
        let Some(first) = arrays.first() else { return internal_err!("{} expects JSON", self.name) };
        let rows = Rows { op: self.op, name: &self.name, texts: first.as_string(), arrays: &arrays, rows };
        Ok(ColumnarValue::Array(match self.op.output() {
            Output::Json | Output::Text => Arc::new(rows.texts()?),
            Output::Boolean => Arc::new(rows.each(Rows::truth)?.into_iter().collect::<BooleanArray>()),
            Output::Integer => Arc::new(rows.each(Rows::length)?.into_iter().collect::<Int32Array>()),
            Output::List => rows.lists()?,
            Output::Bytes => {
                let keys = rows.each(|rows, row| json::order_key(rows.texts.value(row)).map_err(failed))?;
                Arc::new(keys.iter().map(Option::as_deref).collect::<BinaryArray>())
            }
        }))
    }
}

/// Arguments of all rows.
struct Rows<'a> {
    op: Op,
    name: &'a str,
    /// The JSON.
    texts: &'a StringArray,
    arrays: &'a [ArrayRef],
    rows: usize,
}

impl<'a> Rows<'a> {
    fn is_null(&self, row: usize) -> bool {
        self.arrays.iter().any(|array| array.is_null(row))
    }

    /// Results of rows without NULL.
    fn each<T>(&self, of: impl Fn(&Rows<'a>, usize) -> DFResult<T>) -> DFResult<Vec<Option<T>>> {
        (0..self.rows).map(|row| (!self.is_null(row)).then(|| of(self, row)).transpose()).collect()
    }

    fn json(&self, row: usize) -> DFResult<Json<'a>> {
        parse(self.texts.value(row)).map_err(failed)
    }

    fn text_at(&self, argument: usize, row: usize) -> &'a str {
        self.arrays[argument].as_string::<i32>().value(row)
    }

    /// Strings of a list; none for NULL among them.
    fn list(&self, row: usize) -> Option<Vec<String>> {
        let list = self.arrays[1].as_list::<i32>().value(row);
        list.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()
    }

    fn texts(&self) -> DFResult<StringArray> {
        let mut builder = StringBuilder::new();
        for row in 0..self.rows {
            if self.is_null(row) {
                builder.append_null();
            } else {
                builder.append_option(self.text(row)?);
            }
        }
        Ok(builder.finish())
    }

    fn text(&self, row: usize) -> DFResult<Option<Cow<'a, str>>> {
        let text = self.texts.value(row);
        match self.op {
            Op::In(JsonType::Json) => return parse(text).map(|_| Some(text.into())).map_err(failed),
            Op::Typed(_) => return Ok(Some(text.into())),
            Op::In(JsonType::Jsonb) => return json::normal(text).map(Some).map_err(failed),
            Op::Concat => {
                return edit::concatenated(text, self.text_at(1, row)).map(|text| Some(text.into()));
            }
            _ => {}
        }
        let json = self.json(row)?;
        let found = match self.op {
            Op::TypeOf(_) => return Ok(Some(json.kind().into())),
            Op::Delete => {
                let keys = self.arrays[1].as_primitive_opt::<Int64Type>();
                let edited = match keys {
                    Some(places) => edit::without_element(&json, places.value(row))?,
                    None => edit::without_key(&json, self.text_at(1, row))?,
                };
                return Ok(Some(edited.into()));
            }
            Op::DeletePath => {
                let Some(path) = self.list(row) else { return Ok(None) };
                return edit::without_path(&json, &path).map(|text| Some(text.into()));
            }
            Op::Set => {
                let Some(path) = self.list(row) else { return Ok(None) };
                let value = parse(self.text_at(2, row)).map_err(failed)?;
                let creates = self.arrays.get(3).is_none_or(|creates| creates.as_boolean().value(row));
                return edit::with_path(&json, &path, value.text, creates).map(|text| Some(text.into()));
            }
            Op::Get | Op::GetText => match self.arrays[1].as_primitive_opt::<Int64Type>() {
                Some(places) => json.element(places.value(row)),
                None => json.field(self.text_at(1, row)),
            },
            Op::Path | Op::PathText => {
                let Some(path) = self.list(row) else { return Ok(None) };
                json.at_path(path.iter().map(String::as_str))
            }
            _ => json.at_path((1..self.arrays.len()).map(|argument| self.text_at(argument, row))),
        };
        let Some(found) = found else { return Ok(None) };
        match self.op {
            Op::GetText | Op::PathText | Op::ExtractPathText(_) => {
                let text = found.as_text().map_err(failed)?;
                Ok(text.map(|text| Cow::Owned(text.into_owned())))
            }
            _ => Ok(Some(Cow::Borrowed(found.text))),
        }
    }

    fn truth(&self, row: usize) -> DFResult<bool> {
        let json = self.json(row)?;
        let keys = || self.list(row).unwrap_or_default();
        match self.op {
            Op::Contains => {
                let part = parse(self.text_at(1, row)).map_err(failed)?;
                contains(&json, &part).map_err(failed)
            }
            Op::HasAny => Ok(keys().iter().any(|key| json.has_key(key))),
            Op::HasAll => Ok(keys().iter().all(|key| json.has_key(key))),
            _ => Ok(json.has_key(self.text_at(1, row))),
        }
    }

    fn length(&self, row: usize) -> DFResult<i32> {
        let json = self.json(row)?;
        match &json.value {
            // A string has fewer elements than bytes.
            JsonValue::Array(elements) => Ok(elements.len() as i32),
            JsonValue::Object(_) => Err(wrong_kind("cannot get array length of a non-array")),
            _ => Err(wrong_kind("cannot get array length of a scalar")),
        }
    }

    fn lists(&self) -> DFResult<ArrayRef> {
        let mut lists = ListBuilder::new(StringBuilder::new());
        for row in 0..self.rows {
            if self.is_null(row) {
                lists.append_null();
                continue;
            }
            self.fill(&self.json(row)?, lists.values())?;
            lists.append(true);
        }
        Ok(Arc::new(lists.finish()))
    }

    fn fill(&self, json: &Json<'_>, list: &mut StringBuilder) -> DFResult<()> {
        match (self.op, &json.value) {
            (Op::ObjectKeys(_), JsonValue::Object(fields)) => {
                fields.iter().for_each(|(key, _)| list.append_value(key));
                Ok(())
            }
            (Op::ObjectKeys(_), of) => {
                let kind = if matches!(of, JsonValue::Array(_)) { "an array" } else { "a scalar" };
                Err(wrong_kind(format!("cannot call {} on {kind}", self.name)))
            }
            (Op::Fields(_, part, value), JsonValue::Object(fields)) => {
                fields.iter().try_for_each(|(key, of_key)| {
                    let value = match value {
                        FieldValue::Json => Some(Cow::Borrowed(of_key.text)),
                        FieldValue::String => of_key.as_text().map_err(failed)?,
                    };
                    match part {
                        FieldPart::Key => list.append_value(key),
                        FieldPart::Value => list.append_option(value),
                        FieldPart::Record => list.append_value(record(key, value.as_deref())),
                    }
                    Ok(())
                })
            }
            (Op::Fields(json, _, value), of) => Err(wrong_kind(match (json, of) {
                (JsonType::Json, JsonValue::Array(_)) => {
                    "cannot deconstruct an array as an object".to_owned()
                }
                (JsonType::Json, _) => "cannot deconstruct a scalar".to_owned(),
                (JsonType::Jsonb, _) => format!("cannot call jsonb_{} on a non-object", each(value)),
            })),
            (Op::ElementsText(_), JsonValue::Array(elements)) => elements.iter().try_for_each(|element| {
                list.append_option(element.as_text().map_err(failed)?);
                Ok(())
            }),
            (_, JsonValue::Array(elements)) => {
                elements.iter().for_each(|element| list.append_value(element.text));
                Ok(())
            }
            (_, JsonValue::Object(_)) => Err(wrong_kind("cannot extract elements from an object")),
            _ => Err(wrong_kind("cannot extract elements from a scalar")),
        }
    }
}

pub(super) fn wrong_kind(message: impl Into<String>) -> datafusion::error::DataFusionError {
    external(Error::coded("22023", message))
}

//! JSONB with other parts: `||`, `-`, `#-` and `jsonb_set`. Results are in the normal form.

use super::functions::wrong_kind;
use super::json_type::failed;
use crate::error::{Error, external};
use datafusion::common::Result as DFResult;
use entresol_tables::json::{Json, JsonValue, normal, parse, write_string};

/// Two objects as one, of which the second has precedence; two arrays, or values in arrays, one after the other.
pub(super) fn concatenated(left: &str, right: &str) -> DFResult<String> {
    let (left, right) = (parse(left).map_err(failed)?, parse(right).map_err(failed)?);
    let joined = match (&left.value, &right.value) {
        (JsonValue::Object(one), JsonValue::Object(other)) => {
            object(one.iter().chain(other).map(|(key, value)| (&**key, value.text)))
        }
        _ => array(elements(&left).chain(elements(&right))),
    };
    normalised(&joined)
}

/// Elements of an array, or the value itself.
fn elements<'j>(json: &'j Json<'_>) -> Box<dyn Iterator<Item = &'j str> + 'j> {
    match &json.value {
        JsonValue::Array(elements) => Box::new(elements.iter().map(|element| element.text)),
        _ => Box::new(std::iter::once(json.text)),
    }
}

fn array<'j>(elements: impl Iterator<Item = &'j str>) -> String {
    format!("[{}]", elements.collect::<Vec<_>>().join(","))
}

fn object<'j>(fields: impl Iterator<Item = (&'j str, &'j str)>) -> String {
    let mut out = String::from("{");
    for (at, (key, value)) in fields.enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_string(key, &mut out);
        out.push(':');
        out.push_str(value);
    }
    out.push('}');
    out
}

fn normalised(text: &str) -> DFResult<String> {
    normal(text).map(|text| text.into_owned()).map_err(failed)
}

/// JSONB without a key of an object, or without the elements of an array that are this string.
pub(super) fn without_key(json: &Json<'_>, key: &str) -> DFResult<String> {
    let is_key = |element: &Json<'_>| matches!(&element.value, JsonValue::String(text) if text == key);
    let rest = match &json.value {
        JsonValue::Object(fields) => {
            object(fields.iter().filter(|(name, _)| name != key).map(|(name, value)| (&**name, value.text)))
        }
        JsonValue::Array(elements) => {
            array(elements.iter().filter(|element| !is_key(element)).map(|element| element.text))
        }
        _ => return Err(wrong_kind("cannot delete from scalar")),
    };
    normalised(&rest)
}

/// JSONB without an element of an array, counted from its end if the number is negative.
pub(super) fn without_element(json: &Json<'_>, at: i64) -> DFResult<String> {
    match &json.value {
        JsonValue::Array(elements) => {
            let at = if at < 0 { at.saturating_add(elements.len() as i64) } else { at };
            let others = elements.iter().enumerate().filter(|(place, _)| i64::try_from(*place) != Ok(at));
            normalised(&array(others.map(|(_, element)| element.text)))
        }
        JsonValue::Object(_) => Err(wrong_kind("cannot delete from object using integer index")),
        _ => Err(wrong_kind("cannot delete from scalar")),
    }
}

/// JSONB without the value at the end of a path.
pub(super) fn without_path(json: &Json<'_>, path: &[String]) -> DFResult<String> {
    match &json.value {
        JsonValue::Object(_) | JsonValue::Array(_) => normalised(&pruned(json, path)),
        _ => Err(wrong_kind("cannot delete path in scalar")),
    }
}

/// Recursion is as deep as the value, which is bounded.
fn pruned(json: &Json<'_>, path: &[String]) -> String {
    let Some((step, rest)) = path.split_first() else { return json.text.to_owned() };
    match &json.value {
        JsonValue::Object(fields) => {
            let fields: Vec<(&str, String)> = fields
                .iter()
                .filter(|(key, _)| !(rest.is_empty() && key == step))
                .map(|(key, value)| {
                    (&**key, if key == step { pruned(value, rest) } else { value.text.to_owned() })
                })
                .collect();
            object(fields.iter().map(|(key, value)| (*key, value.as_str())))
        }
        JsonValue::Array(elements) => {
            let at = step.trim().parse::<i64>().ok();
            let at = at.map(|at| if at < 0 { at.saturating_add(elements.len() as i64) } else { at });
            let is_step = |place: usize| at == i64::try_from(place).ok();
            let rest_of: Vec<String> = elements
                .iter()
                .enumerate()
                .filter(|(place, _)| !(rest.is_empty() && is_step(*place)))
                .map(
                    |(place, element)| {
                        if is_step(place) { pruned(element, rest) } else { element.text.to_owned() }
                    },
                )
                .collect();
            array(rest_of.iter().map(String::as_str))
        }
        _ => json.text.to_owned(),
    }
}

/// JSONB with another value at the end of a path. Where nothing is there, it is added if `creates`: a key to an object,
/// an element to the end of an array that its number is behind, or before the first.
pub(super) fn with_path(json: &Json<'_>, path: &[String], value: &str, creates: bool) -> DFResult<String> {
    match &json.value {
        JsonValue::Object(_) | JsonValue::Array(_) => {
            normalised(&Replacement { value, creates }.made(json, path, 1)?)
        }
        _ => Err(wrong_kind("cannot set path in scalar")),
    }
}

/// Value that takes the place of another.
struct Replacement<'a> {
    value: &'a str,
    creates: bool,
}

impl Replacement<'_> {
    /// JSON with the value; `position` counts the steps of the path. Recursion is as deep as the value, which is
    /// bounded.
    fn made(&self, json: &Json<'_>, path: &[String], position: usize) -> DFResult<String> {
        let Some((step, rest)) = path.split_first() else { return Ok(json.text.to_owned()) };
        let replaced = |old: &Json<'_>| match rest {
            [] => Ok(self.value.to_owned()),
            _ => self.made(old, rest, position + 1),
        };
        let adds = rest.is_empty() && self.creates;
        match &json.value {
            JsonValue::Object(fields) => {
                let mut made = Vec::with_capacity(fields.len() + 1);
                for (key, old) in fields {
                    made.push((&**key, if key == step { replaced(old)? } else { old.text.to_owned() }));
                }
                if adds && fields.iter().all(|(key, _)| key != step) {
                    made.push((step, self.value.to_owned()));
                }
                Ok(object(made.iter().map(|(key, value)| (*key, value.as_str()))))
            }
            JsonValue::Array(elements) => {
                let Ok(at) = step.trim().parse::<i64>() else {
                    let message =
                        format!("path element at position {position} is not an integer: \"{step}\"");
                    return Err(external(Error::coded("22P02", message)));
                };
                let at = if at < 0 { at.saturating_add(elements.len() as i64) } else { at };
                let place = usize::try_from(at).ok();
                let mut made = Vec::with_capacity(elements.len() + 1);
                for (number, old) in elements.iter().enumerate() {
                    made.push(if place == Some(number) { replaced(old)? } else { old.text.to_owned() });
                }
                match place {
                    None if adds => made.insert(0, self.value.to_owned()),
                    Some(place) if adds && place >= elements.len() => made.push(self.value.to_owned()),
                    _ => {}
                }
                Ok(array(made.iter().map(String::as_str)))
            }
            _ => Ok(json.text.to_owned()),
        }
    }
}

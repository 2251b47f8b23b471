//! PostgreSQL's names of Arrow's types, in messages and for `pg_typeof`.

use crate::error::{Error, external};
use crate::postgres::pg_types;
use crate::postgres::types::column_of;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::error::DataFusionError;

/// Name of the type of a field.
pub(crate) fn of_field(field: &Field) -> String {
    let name = match field.data_type() {
        DataType::Null => "unknown",
        DataType::Interval(_) | DataType::Duration(_) => "interval",
        DataType::Time32(_) | DataType::Time64(_) => "time without time zone",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "bytea",
        DataType::List(element) => return format!("{}[]", of_field(element)),
        other => match column_of(field) {
            Some(column) => pg_types::of(&column).0.long_name,
            None => return other.to_string().to_lowercase(),
        },
    };
    name.to_owned()
}

/// Names of types, with commas between them.
pub(crate) fn listed(types: &[DataType]) -> String {
    let name = |data_type: &DataType| of_field(&Field::new("", data_type.clone(), true));
    types.iter().map(name).collect::<Vec<String>>().join(", ")
}

/// Error of a function that does not take arguments of these types.
pub(crate) fn no_function(name: &str, arguments: &[DataType]) -> DataFusionError {
    let message = format!("function {name}({}) does not exist", listed(arguments));
    external(Error::coded("42883", message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::TimeUnit;

    #[test]
    fn names_are_postgresqls() {
        let list = DataType::new_list(DataType::Int32, true);
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        let types = [DataType::Utf8, DataType::Int64, DataType::Null, list, time, DataType::Binary];
        assert_eq!(listed(&types), "text, bigint, unknown, integer[], timestamp without time zone, bytea");
        let error = no_function("age", &[DataType::Boolean, DataType::Decimal128(4, 2)]).to_string();
        assert!(error.contains("function age(boolean, numeric) does not exist"), "{error}");
    }
}

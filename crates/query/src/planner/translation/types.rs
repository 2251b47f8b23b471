//! PostgreSQL's names of types, alias types and operators.

use crate::catalog::resolve::Alias;
use crate::parser::names::identifier;
use crate::schema_names::{INFORMATION_SCHEMA, PG_CATALOG};
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, DataType as SqlType, ExactNumberInfo, Ident, ObjectName,
    ObjectNamePart, TimezoneInfo,
};

pub(super) fn operator(symbol: &str) -> Option<BinaryOperator> {
    Some(match symbol {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "||" => BinaryOperator::StringConcat,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "%" => BinaryOperator::Modulo,
        _ => return None,
    })
}

/// Last part of a name without a schema or with one of PostgreSQL's.
pub(crate) fn system_name(name: &ObjectName) -> Option<String> {
    let parts: Vec<&Ident> = name.0.iter().filter_map(ObjectNamePart::as_ident).collect();
    match parts.as_slice() {
        [name] => Some(identifier(name)),
        [schema, name] if is_system(&schema.value) => Some(identifier(name)),
        _ => None,
    }
}

pub(super) fn is_system(schema: &str) -> bool {
    schema.eq_ignore_ascii_case(PG_CATALOG) || schema.eq_ignore_ascii_case(INFORMATION_SCHEMA)
}

pub(super) fn alias_of(data_type: &SqlType) -> Option<Alias> {
    match data_type {
        SqlType::Regclass => Some(Alias::Class),
        SqlType::Custom(name, arguments) if arguments.is_empty() => Alias::named(&system_name(name)?),
        _ => None,
    }
}

/// Equivalent type that DataFusion knows; `None` if it knows the type itself.
pub(super) fn known_type(data_type: &SqlType) -> Option<SqlType> {
    let name = match data_type {
        SqlType::Array(ArrayElemTypeDef::SquareBracket(element, size)) => {
            let element = known_type(element)?;
            return Some(SqlType::Array(ArrayElemTypeDef::SquareBracket(Box::new(element), *size)));
        }
        SqlType::Timestamp(None, zone) => return Some(timestamp(*zone)),
        SqlType::Custom(name, _) => system_name(name)?,
        _ => return None,
    };
    let array = |of: SqlType| SqlType::Array(ArrayElemTypeDef::SquareBracket(Box::new(of), None));
    Some(match name.as_str() {
        "uuid" => SqlType::Uuid,
        "text" | "name" | "char" | "bpchar" | "varchar" | "cstring" | "unknown" | "aclitem"
        | "pg_node_tree" | "sql_identifier" | "character_data" | "yes_or_no" => SqlType::Text,
        "oid" | "xid" | "cid" => SqlType::IntUnsigned(None),
        "int4" | "integer" | "cardinal_number" => SqlType::Int(None),
        "int2" | "smallint" => SqlType::SmallInt(None),
        "int8" | "bigint" => SqlType::BigInt(None),
        "float4" | "real" => SqlType::Real,
        "float8" => SqlType::Double(ExactNumberInfo::None),
        "bool" | "boolean" => SqlType::Boolean,
        "numeric" => SqlType::Numeric(ExactNumberInfo::None),
        "date" => SqlType::Date,
        "timestamp" => timestamp(TimezoneInfo::None),
        "timestamptz" => timestamp(TimezoneInfo::WithTimeZone),
        "bytea" => SqlType::Bytea,
        "int2vector" => array(SqlType::SmallInt(None)),
        "oidvector" => array(SqlType::IntUnsigned(None)),
        _ => return None,
    })
}

/// Type of timestamps, in microseconds as PostgreSQL's: DataFusion's own are nanoseconds, which end in 2262.
pub(super) fn timestamp(zone: TimezoneInfo) -> SqlType {
    SqlType::Timestamp(Some(6), zone)
}

pub(super) fn is_text(data_type: &SqlType) -> bool {
    matches!(
        data_type,
        SqlType::Text | SqlType::Varchar(_) | SqlType::CharacterVarying(_) | SqlType::String(_)
    )
}

//! Types with PostgreSQL's numbers and names: those of columns here, and those that tools look up.

use entresol_tables::{Column, DataType, Modifier};

/// A row of `pg_type`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PgType {
    pub(crate) oid: i64,
    /// `typname`.
    pub(crate) name: &'static str,
    /// Name shown by `format_type`.
    pub(crate) long_name: &'static str,
    /// Bytes; -1 if they vary.
    pub(crate) length: i64,
    pub(crate) category: &'static str,
    /// `typtype`: b for base, p for pseudo.
    pub(crate) kind: &'static str,
    /// Element type, if it is a list.
    pub(crate) element: i64,
    /// Array type of this type.
    pub(crate) array: i64,
}

const fn base(
    oid: i64,
    name: &'static str,
    long_name: &'static str,
    length: i64,
    category: &'static str,
    array: i64,
) -> PgType {
    PgType { oid, name, long_name, length, category, kind: "b", element: 0, array }
}

const fn pseudo(oid: i64, name: &'static str) -> PgType {
    PgType { oid, name, long_name: name, length: 4, category: "P", kind: "p", element: 0, array: 0 }
}

const fn array(oid: i64, name: &'static str, long_name: &'static str, element: i64) -> PgType {
    PgType { oid, name, long_name, length: -1, category: "A", kind: "b", element, array: 0 }
}

/// All types.
pub(crate) const TYPES: &[PgType] = &[
    base(16, "bool", "boolean", 1, "B", 1000),
    base(17, "bytea", "bytea", -1, "U", 1001),
    base(18, "char", "\"char\"", 1, "Z", 1002),
    base(19, "name", "name", 64, "S", 1003),
    base(20, "int8", "bigint", 8, "N", 1016),
    base(21, "int2", "smallint", 2, "N", 1005),
    array(22, "int2vector", "int2vector", 21),
    base(23, "int4", "integer", 4, "N", 1007),
    base(24, "regproc", "regproc", 4, "N", 1008),
    base(25, "text", "text", -1, "S", 1009),
    base(26, "oid", "oid", 4, "N", 1028),
    base(28, "xid", "xid", 4, "U", 1011),
    array(30, "oidvector", "oidvector", 26),
    base(114, "json", "json", -1, "U", 199),
    base(700, "float4", "real", 4, "N", 1021),
    base(701, "float8", "double precision", 8, "N", 1022),
    PgType {
        oid: 705,
        name: "unknown",
        long_name: "unknown",
        length: -2,
        category: "X",
        kind: "p",
        element: 0,
        array: 0,
    },
    base(1033, "aclitem", "aclitem", 16, "U", 1034),
    base(1042, "bpchar", "character", -1, "S", 1014),
    base(1043, "varchar", "character varying", -1, "S", 1015),
    base(1082, "date", "date", 4, "D", 1182),
    base(1083, "time", "time without time zone", 8, "D", 1183),
    base(1114, "timestamp", "timestamp without time zone", 8, "D", 1115),
    base(1184, "timestamptz", "timestamp with time zone", 8, "D", 1185),
    base(1186, "interval", "interval", 16, "T", 1187),
    base(1700, "numeric", "numeric", -1, "N", 1231),
    base(2205, "regclass", "regclass", 4, "N", 2210),
    base(2206, "regtype", "regtype", 4, "N", 2211),
    base(2950, "uuid", "uuid", 16, "U", 2951),
    base(3802, "jsonb", "jsonb", -1, "U", 3807),
    array(1000, "_bool", "boolean[]", 16),
    array(1001, "_bytea", "bytea[]", 17),
    array(1002, "_char", "\"char\"[]", 18),
    array(1003, "_name", "name[]", 19),
    array(1005, "_int2", "smallint[]", 21),
    array(1007, "_int4", "integer[]", 23),
    array(1008, "_regproc", "regproc[]", 24),
    array(1009, "_text", "text[]", 25),
    array(1011, "_xid", "xid[]", 28),
    array(1014, "_bpchar", "character[]", 1042),
    array(1015, "_varchar", "character varying[]", 1043),
    array(1016, "_int8", "bigint[]", 20),
    array(1021, "_float4", "real[]", 700),
    array(1022, "_float8", "double precision[]", 701),
    array(1028, "_oid", "oid[]", 26),
    array(1034, "_aclitem", "aclitem[]", 1033),
    array(199, "_json", "json[]", 114),
    array(1115, "_timestamp", "timestamp without time zone[]", 1114),
    array(1182, "_date", "date[]", 1082),
    array(1183, "_time", "time without time zone[]", 1083),
    array(1185, "_timestamptz", "timestamp with time zone[]", 1184),
    array(1187, "_interval", "interval[]", 1186),
    array(1231, "_numeric", "numeric[]", 1700),
    array(2210, "_regclass", "regclass[]", 2205),
    array(2211, "_regtype", "regtype[]", 2206),
    array(2951, "_uuid", "uuid[]", 2950),
    array(3807, "_jsonb", "jsonb[]", 3802),
    pseudo(2249, "record"),
    pseudo(2275, "cstring"),
    pseudo(2276, "any"),
    pseudo(2277, "anyarray"),
    pseudo(2278, "void"),
    pseudo(2283, "anyelement"),
];

/// Type with this number.
pub(crate) fn by_oid(oid: i64) -> Option<&'static PgType> {
    TYPES.iter().find(|of| of.oid == oid)
}

/// Type with this short or long name; `int2[]` and `_int2` are the same.
pub(crate) fn named(name: &str) -> Option<&'static PgType> {
    let name = name.trim().trim_start_matches("pg_catalog.");
    let direct = TYPES.iter().find(|of| of.name == name || of.long_name == name);
    direct.or_else(|| {
        let element = named(name.strip_suffix("[]")?)?;
        by_oid(element.array)
    })
}

/// The type `text`.
pub(crate) fn text() -> &'static PgType {
    by_oid(25).unwrap_or(&TYPES[0])
}

/// The type and modifier of a column.
pub(crate) fn of(column: &Column) -> (&'static PgType, i64) {
    let (oid, modifier) = match column.modifier {
        Modifier::Varchar(length) => (1043, i64::from(length) + 4),
        Modifier::Char(length) => (1042, i64::from(length) + 4),
        Modifier::Exact => (1700, -1),
        Modifier::Json => (114, -1),
        Modifier::Jsonb => (3802, -1),
        Modifier::None => plain(column.data_type),
    };
    (by_oid(oid).unwrap_or(text()), modifier)
}

fn plain(data_type: DataType) -> (i64, i64) {
    match data_type {
        DataType::SmallInt => (21, -1),
        DataType::Real => (700, -1),
        DataType::Boolean => (16, -1),
        DataType::Int => (23, -1),
        DataType::BigInt => (20, -1),
        DataType::Double => (701, -1),
        DataType::Decimal { precision, scale } => (1700, (i64::from(precision) << 16 | i64::from(scale)) + 4),
        DataType::Date => (1082, -1),
        DataType::Timestamp => (1114, -1),
        DataType::TimestampTz => (1184, -1),
        DataType::Interval => (1186, -1),
        DataType::Varchar => (25, -1),
    }
}

/// Formats a type as definitions show it: `numeric(10,2)`.
pub(crate) fn format(oid: i64, modifier: Option<i64>) -> String {
    let Some(of) = by_oid(oid) else {
        return if oid == 0 { "-".to_owned() } else { "???".to_owned() };
    };
    match (of.name, modifier) {
        ("numeric", Some(modifier)) if modifier >= 4 => {
            format!("numeric({},{})", (modifier - 4) >> 16, (modifier - 4) & 0x7ff)
        }
        ("varchar" | "bpchar", Some(modifier)) if modifier >= 4 => {
            format!("{}({})", of.long_name, modifier - 4)
        }
        _ => of.long_name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_their_numbers_once_and_their_arrays() {
        for (at, of) in TYPES.iter().enumerate() {
            assert!(
                TYPES[..at].iter().all(|other| other.oid != of.oid && other.name != of.name),
                "{}",
                of.name
            );
            assert!(
                of.array == 0 || by_oid(of.array).is_some_and(|array| array.element == of.oid),
                "{}",
                of.name
            );
        }
        assert_eq!(named("int2[]").map(|of| of.oid), Some(1005));
        assert_eq!(named("pg_catalog.text").map(|of| of.oid), Some(25));
        let (of, modifier) = of(&Column::new("c", DataType::Decimal { precision: 10, scale: 2 }));
        assert_eq!(format(of.oid, Some(modifier)), "numeric(10,2)");
    }
}

//! Every type in both formats, both ways.

use crate::support::{Served, code, texts};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// The bytes of a value, whatever its type.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Bytes(Vec<u8>);

impl<'a> FromSql<'a> for Bytes {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Bytes, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Bytes(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl ToSql for Bytes {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut bytes::BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

#[tokio::test(flavor = "multi_thread")]
async fn types_in_text_and_in_binary() {
    let served = Served::start().await;
    let client = served.client().await;
    let cases: &[(&str, Type, &str, &[u8])] = &[
        ("true", Type::BOOL, "t", &[1]),
        ("CAST(-5 AS SMALLINT)", Type::INT2, "-5", &[0xff, 0xfb]),
        ("CAST(7 AS INT)", Type::INT4, "7", &[0, 0, 0, 7]),
        ("CAST(8 AS BIGINT)", Type::INT8, "8", &[0, 0, 0, 0, 0, 0, 0, 8]),
        ("CAST(0.5 AS REAL)", Type::FLOAT4, "0.5", &[0x3f, 0, 0, 0]),
        ("CAST(-0.5 AS DOUBLE PRECISION)", Type::FLOAT8, "-0.5", &[0xbf, 0xe0, 0, 0, 0, 0, 0, 0]),
        (
            "CAST('1e300' AS DOUBLE PRECISION)",
            Type::FLOAT8,
            "1e+300",
            &[0x7e, 0x37, 0xe4, 0x3c, 0x88, 0x00, 0x75, 0x9c],
        ),
        (
            "CAST(-12.50 AS DECIMAL(10,2))",
            Type::NUMERIC,
            "-12.50",
            &[0, 2, 0, 0, 0x40, 0, 0, 2, 0, 12, 0x13, 0x88],
        ),
        ("'grün'", Type::TEXT, "grün", "grün".as_bytes()),
        ("DATE '2000-01-02'", Type::DATE, "2000-01-02", &[0, 0, 0, 1]),
        ("TIME '00:00:01'", Type::TIME, "00:00:01", &[0, 0, 0, 0, 0, 0x0f, 0x42, 0x40]),
        (
            "CAST('2000-01-01 00:00:01.5' AS TIMESTAMP)",
            Type::TIMESTAMP,
            "2000-01-01 00:00:01.5",
            &[0, 0, 0, 0, 0, 0x16, 0xe3, 0x60],
        ),
        (
            "INTERVAL '1 month 2 days 3 seconds'",
            Type::INTERVAL,
            "1 mon 2 days 00:00:03",
            &[0, 0, 0, 0, 0, 0x2d, 0xc6, 0xc0, 0, 0, 0, 2, 0, 0, 0, 1],
        ),
        ("'{\"b\":1}'::json", Type::JSON, "{\"b\":1}", b"{\"b\":1}"),
        ("'{\"b\":1}'::jsonb", Type::JSONB, "{\"b\": 1}", b"\x01{\"b\": 1}"),
        ("'{\"b\":[1]}'::jsonb -> 'b'", Type::JSONB, "[1]", b"\x01[1]"),
        ("arrow_cast('ab', 'Binary')", Type::BYTEA, "\\x6162", b"ab"),
        (
            "make_array(CAST(1 AS INT), NULL)",
            Type::INT4_ARRAY,
            "{1,NULL}",
            &[
                0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 23, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1, 255,
                255, 255, 255,
            ],
        ),
        ("arrow_cast(5, 'UInt64')", Type::NUMERIC, "5", &[0, 1, 0, 0, 0, 0, 0, 0, 0, 5]),
        ("arrow_cast('x', 'Utf8View')", Type::TEXT, "x", b"x"),
        ("arrow_cast('x', 'Dictionary(Int32, Utf8)')", Type::TEXT, "x", b"x"),
    ];
    for (sql, of, text, binary) in cases {
        let row = client.query_one(&format!("SELECT {sql} AS v"), &[]).await;
        let row = row.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        assert_eq!(row.columns()[0].type_(), of, "{sql}");
        assert_eq!(row.get::<_, Bytes>(0), Bytes(binary.to_vec()), "{sql} in binary");
        let texts = texts(&client, &format!("SELECT {sql} AS v")).await;
        assert_eq!(texts[0][0].as_deref(), Some(*text), "{sql} in text");
    }
    assert_eq!(texts(&client, "SELECT NULL AS a, CAST(NULL AS INT) AS b").await, [[None, None]]);
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_column_type_comes_back_as_it_was_sent() {
    let served = Served::start().await;
    let client = served.client().await;
    client
        .batch_execute(
            "CREATE TABLE t (id INT PRIMARY KEY, b BOOLEAN, i INT, l BIGINT, d DOUBLE PRECISION, n DECIMAL(12,3), \
             day DATE, at TIMESTAMP, s VARCHAR)",
        )
        .await
        .unwrap();
    let insert = client.prepare("INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)").await.unwrap();
    let types: Vec<&Type> = insert.params().iter().collect();
    let expected = [
        Type::INT4,
        Type::BOOL,
        Type::INT4,
        Type::INT8,
        Type::FLOAT8,
        Type::NUMERIC,
        Type::DATE,
        Type::TIMESTAMP,
        Type::TEXT,
    ];
    assert_eq!(types, expected.iter().collect::<Vec<_>>());
    // 12.5 with three digits for display.
    let number = Bytes(vec![0, 2, 0, 0, 0, 0, 0, 3, 0, 12, 0x13, 0x88]);
    let (day, at) = (Bytes(vec![0, 0, 0x20, 0]), Bytes(vec![0, 2, 0, 0, 0, 0, 0, 1]));
    let sent: [&(dyn ToSql + Sync); 9] =
        [&1i32, &true, &i32::MIN, &i64::MAX, &0.1f64, &number, &day, &at, &"it's \\ \u{1f600}"];
    assert_eq!(client.execute(&insert, &sent).await.unwrap(), 1);
    let nulls: [&(dyn ToSql + Sync); 9] = [
        &2i32,
        &None::<bool>,
        &None::<i32>,
        &None::<i64>,
        &None::<f64>,
        &None::<Bytes>,
        &None::<Bytes>,
        &None::<Bytes>,
        &None::<&str>,
    ];
    assert_eq!(client.execute(&insert, &nulls).await.unwrap(), 1);
    let row = client.query_one("SELECT * FROM t WHERE id = $1", &[&1i32]).await.unwrap();
    assert!(row.get::<_, bool>(1));
    assert_eq!((row.get::<_, i32>(2), row.get::<_, i64>(3), row.get::<_, f64>(4)), (i32::MIN, i64::MAX, 0.1));
    assert_eq!((row.get::<_, Bytes>(5), row.get::<_, Bytes>(6), row.get::<_, Bytes>(7)), (number, day, at));
    assert_eq!(row.get::<_, &str>(8), "it's \\ \u{1f600}");
    let row = client.query_one("SELECT * FROM t WHERE id = $1", &[&2i32]).await.unwrap();
    assert!((1..9).all(|at| row.get::<_, Option<Bytes>>(at).is_none()));
    // A value that does not fit its column.
    let wide = Bytes(vec![0, 1, 0, 5, 0, 0, 0, 0, 0, 1]);
    let update = client.execute("UPDATE t SET n = $1 WHERE id = 1", &[&wide]).await;
    assert_eq!(code(update), "22003");
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_decimals_have_one_scale() {
    let served = Served::start().await;
    let client = served.client().await;
    client
        .batch_execute(
            "CREATE TABLE t (id INT PRIMARY KEY, n DECIMAL(10,2)); INSERT INTO t VALUES (1, 1.50), (2, 1.51), \
             (3, 15.05)",
        )
        .await
        .unwrap();
    // 1.50 and 1.505, which is no 15.05.
    let mut list = vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x06, 0xa4, 0, 0, 0, 2, 0, 0, 0, 1];
    list.extend([0, 0, 0, 12, 0, 2, 0, 0, 0, 0, 0, 2, 0, 1, 0x13, 0x88]);
    list.extend([0, 0, 0, 12, 0, 2, 0, 0, 0, 0, 0, 3, 0, 1, 0x13, 0xba]);
    let found = client.prepare("SELECT id FROM t WHERE n = ANY($1) ORDER BY id").await.unwrap();
    assert_eq!(found.params(), [Type::NUMERIC_ARRAY]);
    let rows = client.query(&found, &[&Bytes(list)]).await.unwrap();
    let ids: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
    assert!(ids.contains(&1) && !ids.contains(&3), "{ids:?}");
    drop(client);
    served.stop().await;
}

//! Time zones: the parameter of clients, and the output and input of timestamptz.

use crate::raw::{Raw, message, shorts, startup};
use crate::support::{Served, code, one, texts};
use tokio_postgres::types::Type;

#[tokio::test(flavor = "multi_thread")]
async fn instants_are_shown_in_the_zone_of_the_session() {
    let served = Served::start().await;
    let client = served.client().await;
    let moments = "SELECT '2024-07-01 10:00:00+00'::TIMESTAMPTZ AS summer, \
                   '2024-01-01 10:00:00.5+00'::TIMESTAMPTZ AS winter, TIMESTAMP '2024-07-01 10:00:00' AS plain, \
                   make_array('2024-07-01 10:00:00+00'::TIMESTAMPTZ) AS list";
    for (zone, expected) in [
        ("UTC", ["2024-07-01 10:00:00+00", "2024-01-01 10:00:00.5+00", "{\"2024-07-01 10:00:00+00\"}"]),
        (
            "Europe/Berlin",
            ["2024-07-01 12:00:00+02", "2024-01-01 11:00:00.5+01", "{\"2024-07-01 12:00:00+02\"}"],
        ),
        (
            "Asia/Kolkata",
            ["2024-07-01 15:30:00+05:30", "2024-01-01 15:30:00.5+05:30", "{\"2024-07-01 15:30:00+05:30\"}"],
        ),
    ] {
        client.batch_execute(&format!("SET TIME ZONE '{zone}'")).await.unwrap();
        assert_eq!(one(&client, "SHOW TimeZone").await, zone);
        let [summer, winter, list] = expected;
        let row = [summer, winter, "2024-07-01 10:00:00", list].map(|text| Some(text.to_owned()));
        assert_eq!(texts(&client, moments).await, [row], "{zone}");
    }
    // Within a text, too.
    let both = "SET TIME ZONE 'UTC'; SELECT '2024-07-01 10:00:00+00'::TIMESTAMPTZ AS at";
    assert_eq!(texts(&client, both).await, [[Some("2024-07-01 10:00:00+00".to_owned())]]);
    assert_eq!(code(client.batch_execute("SET TIME ZONE 'Europe/Nowhere'").await), "22023");
    assert_eq!(client.query_one("SELECT now()", &[]).await.unwrap().columns()[0].type_(), &Type::TIMESTAMPTZ);
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_say_their_zone_when_they_connect() {
    let served = Served::start().await;
    let mut raw = Raw::open(served.address).await;
    raw.send(&startup(&[("user", "anna"), ("TimeZone", "Europe/Nowhere")])).await;
    assert_eq!(shorts(&raw.until_ready().await).last().unwrap(), "E FATAL 22023");
    let mut raw = Raw::open(served.address).await;
    raw.send(&startup(&[("user", "anna"), ("TimeZone", "GMT-02:00")])).await;
    let told = ('S', b"TimeZone\0+02:00\0".to_vec());
    assert!(raw.until_ready().await.contains(&told));
    raw.send(&message('Q', b"SET TimeZone = 'europe/berlin'\0")).await;
    let told = ('S', b"TimeZone\0Europe/Berlin\0".to_vec());
    assert!(raw.until_ready().await.contains(&told));
    drop(raw);
    served.stop().await;
}

/// Strings without a zone are in the session's; binary values are instants.
#[tokio::test(flavor = "multi_thread")]
async fn instants_are_read_in_the_zone_of_the_session() {
    let served = Served::start().await;
    let mut raw = Raw::start(served.address).await;
    raw.query("SET TimeZone = 'Europe/Berlin'").await;
    // Parse with parameter type TIMESTAMPTZ (1184).
    let mut bytes = message('P', b"\0SELECT CAST($1 AS TIMESTAMP) AS a, $1 AS b\0\0\x01\0\0\x04\xa0");
    let text = b"2024-07-01 12:00:00";
    let mut bind = b"\0\0\0\0\0\x01\0\0\0\x13".to_vec();
    bind.extend_from_slice(text);
    bind.extend_from_slice(b"\0\0");
    bytes.extend(message('B', &bind));
    bytes.extend(message('E', b"\0\0\0\0\0"));
    // The same instant in binary: microseconds from 2000.
    let moment = (1_719_828_000_i64 - 946_684_800) * 1_000_000;
    let mut bind = b"\0\0\0\x01\0\x01\0\x01\0\0\0\x08".to_vec();
    bind.extend_from_slice(&moment.to_be_bytes());
    bind.extend_from_slice(b"\0\0");
    bytes.extend(message('B', &bind));
    bytes.extend(message('E', b"\0\0\0\0\0"));
    bytes.extend(message('S', b""));
    raw.send(&bytes).await;
    let answer = raw.until_ready().await;
    let row = b"\0\x02\0\0\0\x132024-07-01 12:00:00\0\0\0\x162024-07-01 12:00:00+02".to_vec();
    let rows: Vec<_> = answer.iter().filter(|(kind, _)| *kind == 'D').collect();
    assert_eq!(rows, [&('D', row.clone()), &('D', row)], "{:?}", shorts(&answer));
    drop(raw);
    served.stop().await;
}

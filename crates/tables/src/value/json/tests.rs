//! JSON against PostgreSQL's results, and random values against their own strings.

use super::*;
use proptest::prelude::*;

/// Expected strings from PostgreSQL 15.
#[test]
fn jsonb_is_in_normal_form() {
    for (text, expected) in [
        ("{\"b\":1,\"a\":2}", "{\"a\": 2, \"b\": 1}"),
        (" { \"bb\" : 1 , \"a\" : [ 1 ,2 ] , \"a\":3 } ", "{\"a\": 3, \"bb\": 1}"),
        ("{\"aa\":1,\"b\":2,\"\":0}", "{\"\": 0, \"b\": 2, \"aa\": 1}"),
        (
            "[1.10, 1e2, 1.5e-3, -0, 1E+1, 1.50e1, 12345678901234567890.123]",
            "[1.10, 100, 0.0015, 0, 10, 15.0, 12345678901234567890.123]",
        ),
        ("-0.0", "0.0"),
        ("0e5", "0"),
        ("1e0", "1"),
        ("\"\\u00e4\\n\\/\\u0001\"", "\"ä\\n/\\u0001\""),
        ("\"\\ud83d\\ude00\"", "\"😀\""),
        ("[ ]", "[]"),
        ("{ }", "{}"),
        ("null", "null"),
        (" true ", "true"),
    ] {
        assert_eq!(normal(text).unwrap(), expected, "{text}");
        assert!(matches!(normal(expected), Ok(Cow::Borrowed(_))), "{expected}");
    }
}

#[test]
fn other_strings_are_no_json() {
    for (text, detail) in [
        ("", "The input string ended unexpectedly."),
        ("{\"a\":", "The input string ended unexpectedly."),
        ("{a:1}", "Token \"a\" is invalid."),
        ("[1,]", "Expected JSON value, but found \"]\"."),
        ("{\"a\" 1}", "Expected \":\", but found \"1\"."),
        ("[1 2]", "Expected \",\" or \"]\", but found \"2\"."),
        ("{\"a\":1,}", "Expected string, but found \"}\"."),
        ("{1:2}", "Expected string or \"}\", but found \"1\"."),
        ("1 2", "Expected end of input, but found \"2\"."),
        ("01", "Token \"01\" is invalid."),
        ("1.", "Token \"1.\" is invalid."),
        ("+1", "Token \"+1\" is invalid."),
        ("NaN", "Token \"NaN\" is invalid."),
        ("'a'", "Token \"'\" is invalid."),
        ("\"a", "The input string ended unexpectedly."),
        ("\"\\x\"", "Escape sequence \"\\x\" is invalid."),
        ("\"\\u12\"", "\"\\u\" must be followed by four hexadecimal digits."),
        ("\"\\ud800x\"", "Unicode low surrogate must follow a high surrogate."),
        ("\"a\nb\"", "Character with value 0x0a must be escaped."),
        ("truee", "Token \"truee\" is invalid."),
    ] {
        assert_eq!(parse(text), Err(JsonError::Syntax(detail.to_owned())), "{text}");
    }
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(parse(&nested(DEPTH_MAX + 1)), Err(JsonError::Depth));
    assert_eq!(normal("\"\\u0000\""), Err(JsonError::Zero));
    assert!(parse("\"\\u0000\"").is_ok());
    for number in ["1e1001", "1e-1001", "1e99999999999999999999"] {
        assert!(matches!(normal(number), Err(JsonError::Number(_))), "{number}");
    }
}

#[test]
fn parts_are_found_and_keep_their_strings() {
    let json = parse("{\"a\": [1, {\"b\" :  2}], \"a\": [10, {\"b\" :  \"x\\ty\"}], \"n\": null}").unwrap();
    let text = |path: &[&str]| json.at_path(path.iter().copied()).map(|json| json.text);
    assert_eq!(text(&["a"]), Some("[10, {\"b\" :  \"x\\ty\"}]"));
    assert_eq!(text(&["a", "1"]), Some("{\"b\" :  \"x\\ty\"}"));
    assert_eq!(text(&["a", "-1", "b"]), Some("\"x\\ty\""));
    assert_eq!((text(&["a", "x"]), text(&["a", "2"]), text(&["z"])), (None, None, None));
    assert_eq!(json.at_path(["a", "1", "b"]).unwrap().as_text(), Ok(Some("x\ty".into())));
    assert_eq!(json.field("n").unwrap().as_text(), Ok(None));
    assert!(json.has_key("n") && !json.has_key("b") && parse("[\"n\"]").unwrap().has_key("n"));
}

/// Expected results from PostgreSQL 15.
#[test]
fn containment_is_that_of_postgresql() {
    for (whole, part, expected) in [
        ("{\"a\":1,\"b\":{\"c\":[1,2,3]}}", "{\"b\":{\"c\":[3,1]}}", true),
        ("{\"a\":1}", "{\"a\":1.0}", true),
        ("{\"a\":1}", "{\"a\":10}", false),
        ("[1,2,[3,4]]", "[[3]]", true),
        ("[1,2,[3,4]]", "[3]", false),
        ("[\"foo\",\"bar\"]", "\"bar\"", true),
        ("\"bar\"", "[\"bar\"]", false),
        ("{\"a\":[\"x\"]}", "{\"a\":\"x\"}", false),
        ("[]", "[]", true),
        ("{}", "{}", true),
        ("[]", "{}", false),
        ("[{\"a\":1,\"b\":2}]", "[{\"a\":1}]", true),
        ("0", "-0.0", true),
    ] {
        assert_eq!(contains(&parse(whole).unwrap(), &parse(part).unwrap()), Ok(expected), "{whole} {part}");
    }
}

/// Order of PostgreSQL 15, in the collation C.
#[test]
fn keys_order_as_in_postgresql() {
    let ordered = [
        "[]",
        "null",
        "\"\"",
        "\"a\"",
        "\"ab\"",
        "\"b\"",
        "-10",
        "-2.5",
        "-0.25",
        "0",
        "0.01",
        "1",
        "1.5",
        "10",
        "1e3",
        "false",
        "true",
        "[null]",
        "[1]",
        "[[]]",
        "[{}]",
        "[1, 2]",
        "{}",
        "{\"a\": 1}",
        "{\"a\": 2}",
        "{\"b\": 0}",
        "{\"a\": 1, \"b\": 1}",
    ];
    let keys: Vec<Vec<u8>> = ordered.iter().map(|text| order_key(text).unwrap()).collect();
    for (at, pair) in keys.windows(2).enumerate() {
        assert!(pair[0] < pair[1], "{} {}", ordered[at], ordered[at + 1]);
    }
    for (one, other) in
        [("1", "1.00"), ("-0", "0.0"), ("1e2", "100"), ("{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":5,\"a\":1.0}")]
    {
        assert_eq!(order_key(one), order_key(other), "{one} {other}");
    }
}

/// Random JSON, with blanks and keys that come twice.
fn json_text() -> impl Strategy<Value = String> {
    let number = (any::<i32>(), 0u32..100, -9i32..9)
        .prop_map(|(whole, part, power)| format!("{whole}.{part}e{power}"));
    let text = "[a-c\u{e4}\\PC]{0,3}".prop_map(|text| {
        let mut out = String::new();
        write_string(&text, &mut out);
        out
    });
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| value.to_string()),
        number,
        text.clone(),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|of| format!("[ {} ]", of.join(" ,"))),
            proptest::collection::vec((text.clone(), inner), 0..4).prop_map(|of| {
                let fields: Vec<String> =
                    of.into_iter().map(|(key, value)| format!("{key} :{value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn the_normal_form_is_equal_and_stays(text in json_text()) {
        let normal_text = normal(&text).unwrap();
        prop_assert_eq!(normal(&normal_text).unwrap(), normal_text.clone());
        prop_assert_eq!(order_key(&normal_text), order_key(&text));
        let (json, of_normal) = (parse(&text).unwrap(), parse(&normal_text).unwrap());
        prop_assert_eq!(json.text, text.trim());
        prop_assert_eq!(contains(&json, &of_normal), Ok(true));
        prop_assert_eq!(contains(&of_normal, &json), Ok(true));
    }

    #[test]
    fn no_string_makes_it_panic(text in "[\\[\\]{}\":,\\\\u0-9a-eE.+ \\-truefalsn]{0,24}") {
        let _ = normal(&text);
        let _ = order_key(&text);
    }
}

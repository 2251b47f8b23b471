use super::*;
use datafusion::logical_expr::{col, in_list, lit};
use entresol_tables::Column;
use proptest::prelude::*;

fn schema() -> Schema {
    let columns = vec![
        Column::new("a", DataType::Int).not_null(),
        Column::new("b", DataType::Int).not_null(),
        Column::new("c", DataType::Int).not_null(),
        Column::new("v", DataType::Varchar),
    ];
    Schema::new(columns, &["a", "b", "c"]).unwrap()
}

fn access(filters: &[Expr]) -> (String, Vec<Coverage>) {
    let analysis = analyse(&schema(), filters);
    (analysis.access.to_string(), analysis.coverage)
}

#[test]
fn equality_on_the_whole_key_is_a_point() {
    let filters = [col("c").eq(lit(3)), col("a").eq(lit(1)), lit(2).eq(col("b"))];
    assert_eq!(access(&filters), ("point".into(), vec![Coverage::Exact; 3]));
}

#[test]
fn sets_multiply_and_an_interval_ends_the_prefix() {
    let set = |name| in_list(col(name), vec![lit(2), lit(1), lit(2)], false);
    assert_eq!(access(&[set("a"), set("b"), set("c")]), ("keys(8)".into(), vec![Coverage::Exact; 3]));
    let filters = [set("a"), col("b").gt(lit(5)), col("c").eq(lit(1))];
    assert_eq!(access(&filters), ("range(2)".into(), vec![Coverage::Exact, Coverage::Exact, Coverage::None]));
    assert_eq!(access(&[col("b").eq(lit(1))]), ("full".into(), vec![Coverage::None]));
    assert_eq!(access(&[col("v").eq(lit("x"))]), ("full".into(), vec![Coverage::None]));
}

#[test]
fn contradictions_read_nothing() {
    assert_eq!(access(&[col("a").gt(lit(5)), col("a").lt(lit(5))]).0, "keys(0)");
    assert_eq!(access(&[col("a").eq(lit(5)), col("a").eq(lit(6))]).0, "keys(0)");
    assert_eq!(access(&[col("a").eq(lit(ScalarValue::Int32(None)))]).0, "keys(0)");
    assert_eq!(access(&[in_list(col("a"), vec![], false)]).0, "keys(0)");
}

#[test]
fn negations_and_lossy_literals_stay_with_the_filter() {
    assert_eq!(access(&[in_list(col("a"), vec![lit(1)], true)]), ("full".into(), vec![Coverage::None]));
    assert_eq!(access(&[col("a").not_eq(lit(1))]), ("full".into(), vec![Coverage::None]));
    assert_eq!(access(&[col("a").eq(lit(1.5))]), ("full".into(), vec![Coverage::None]));
    assert_eq!(access(&[col("a").eq(lit(1i64 << 40))]), ("full".into(), vec![Coverage::None]));
    assert_eq!(access(&[col("a").eq(lit(1i64))]), ("range".into(), vec![Coverage::Exact]));
}

#[test]
fn too_many_keys_fall_back_to_a_span() {
    let many = |name, count: i32| in_list(col(name), (0..count).map(lit).collect(), false);
    let (text, coverage) = access(&[many("a", 9000), col("b").eq(lit(1))]);
    assert_eq!((text.as_str(), coverage), ("range", vec![Coverage::Partial, Coverage::None]));
    let (text, coverage) = access(&[many("a", 100), many("b", 100)]);
    assert_eq!((text.as_str(), coverage), ("range(100)", vec![Coverage::Exact, Coverage::Partial]));
}

#[derive(Debug, Clone)]
enum Filter {
    Compare(usize, Operator, i32),
    In(usize, Vec<i32>),
    Between(usize, i32, i32),
    Either(usize, i32, i32),
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Filter {
    fn expr(&self) -> Expr {
        match self {
            Filter::Compare(column, op, value) => {
                Expr::BinaryExpr(BinaryExpr::new(Box::new(col(NAMES[*column])), *op, Box::new(lit(*value))))
            }
            Filter::In(column, values) => {
                in_list(col(NAMES[*column]), values.iter().map(|&value| lit(value)).collect(), false)
            }
            Filter::Between(column, low, high) => col(NAMES[*column]).between(lit(*low), lit(*high)),
            Filter::Either(column, one, other) => {
                col(NAMES[*column]).eq(lit(*one)).or(col(NAMES[*column]).eq(lit(*other)))
            }
        }
    }

    fn passes(&self, key: &[i32; 3]) -> bool {
        match self {
            Filter::Compare(column, op, value) => match op {
                Operator::Eq => key[*column] == *value,
                Operator::Lt => key[*column] < *value,
                Operator::LtEq => key[*column] <= *value,
                Operator::Gt => key[*column] > *value,
                _ => key[*column] >= *value,
            },
            Filter::In(column, values) => values.contains(&key[*column]),
            Filter::Between(column, low, high) => (*low..=*high).contains(&key[*column]),
            Filter::Either(column, one, other) => key[*column] == *one || key[*column] == *other,
        }
    }
}

fn filter() -> impl Strategy<Value = Filter> {
    let op =
        prop::sample::select(vec![Operator::Eq, Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq]);
    prop_oneof![
        (0..3usize, op, 0..4i32).prop_map(|(column, op, value)| Filter::Compare(column, op, value)),
        (0..3usize, prop::collection::vec(0..4i32, 0..3))
            .prop_map(|(column, values)| Filter::In(column, values)),
        (0..3usize, 0..4i32, 0..4i32).prop_map(|(column, low, high)| Filter::Between(column, low, high)),
        (0..3usize, 0..4i32, 0..4i32).prop_map(|(column, one, other)| Filter::Either(column, one, other)),
    ]
}

fn values(key: &[i32]) -> Row {
    key.iter().map(|&value| Value::Int(value)).collect()
}

fn in_range((lower, upper): &KeyBounds, key: &Row) -> bool {
    let above = match lower {
        Bound::Unbounded => true,
        Bound::Included(bound) => key[..bound.len()] >= bound[..],
        Bound::Excluded(bound) => key[..bound.len()] > bound[..],
    };
    let below = match upper {
        Bound::Unbounded => true,
        Bound::Included(bound) => key[..bound.len()] <= bound[..],
        Bound::Excluded(bound) => key[..bound.len()] < bound[..],
    };
    above && below
}

/// Counts how often the access reaches a key.
fn visits(access: &Access, key: &Row) -> usize {
    match access {
        Access::Full => 1,
        Access::Point(point) => usize::from(point == key),
        Access::Keys(keys) => keys.iter().filter(|candidate| *candidate == key).count(),
        Access::Ranges(ranges) => ranges.iter().filter(|range| in_range(range, key)).count(),
        Access::Index { .. } => unreachable!("the table has none"),
    }
}

proptest! {
    #[test]
    fn the_access_covers_what_passes_and_only_what_exact_filters_pass(
        filters in prop::collection::vec(filter(), 0..6),
    ) {
        let exprs: Vec<Expr> = filters.iter().map(Filter::expr).collect();
        let analysis = analyse(&schema(), &exprs);
        for number in 0..64 {
            let key = [number / 16, number / 4 % 4, number % 4];
            let seen = visits(&analysis.access, &values(&key));
            prop_assert!(seen <= 1);
            if filters.iter().all(|filter| filter.passes(&key)) {
                prop_assert_eq!(seen, 1);
            }
            let exact = filters.iter().zip(&analysis.coverage).filter(|(_, coverage)| **coverage == Coverage::Exact);
            for (filter, _) in exact {
                prop_assert!(seen == 0 || filter.passes(&key), "{:?} at {:?}", filter, key);
            }
        }
        // Invariant that allows the optimizer to ask in several passes.
        for first in 0..exprs.len() {
            let alone = analyse(&schema(), &exprs[first..]);
            for (at, coverage) in alone.coverage.iter().enumerate() {
                if *coverage == Coverage::Exact {
                    prop_assert_eq!(analysis.coverage[first + at], Coverage::Exact);
                }
            }
        }
        if let Access::Keys(keys) = &analysis.access {
            prop_assert!(keys.is_sorted());
        }
    }
}

//! Rules beside those of DataFusion: plans that are right where its own are not, or use what it does not know
//! of.

pub(crate) mod asof;
pub(crate) mod barriers;
pub(crate) mod computed_keys;
pub(crate) mod correlated;
pub(crate) mod date_bounds;
pub(crate) mod extremes;
pub(crate) mod group_keys;
pub(crate) mod index_order;
pub(crate) mod integer_sums;
pub(crate) mod lateral;
pub(crate) mod multisets;
pub(crate) mod rows_of_row;
pub(crate) mod scan_filters;
pub(crate) mod sessions;
pub(crate) mod single_rows;
pub(crate) mod subqueries;
pub(crate) mod truth_tests;

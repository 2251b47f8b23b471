//! PostgreSQL's types, settings, time zones, arithmetic and functions, over DataFusion.
//!
//! Rules and functions by which values are those of PostgreSQL: they depend on the parser at most, and on no
//! session.

pub(crate) mod arrays;
pub(crate) mod bound_operands;
pub(crate) mod buckets;
pub(crate) mod bytes;
pub(crate) mod char_padding;
pub(crate) mod comparison_keys;
pub(crate) mod concatenation;
pub(crate) mod decimal_division;
pub(crate) mod floats;
pub(crate) mod functions;
pub(crate) mod grouped_keys;
pub(crate) mod guards;
pub(crate) mod integer_sums;
pub(crate) mod intervals;
pub(crate) mod json;
pub(crate) mod math;
pub(crate) mod named_row;
pub(crate) mod null_counts;
pub(crate) mod number_types;
pub(crate) mod numbers;
pub(crate) mod numeric_casts;
pub(crate) mod numeric_functions;
pub(crate) mod optional;
pub(crate) mod ordered_sets;
pub(crate) mod overflow;
pub(crate) mod pg_types;
pub(crate) mod plan_expressions;
pub(crate) mod ranks;
pub(crate) mod refused_types;
pub(crate) mod regular_expressions;
pub(crate) mod result_types;
pub(crate) mod rewriting;
pub(crate) mod scales;
pub(crate) mod settings;
pub(crate) mod similar;
pub(crate) mod strings_in_order;
pub(crate) mod substring;
pub(crate) mod text_output;
pub(crate) mod time_constructors;
pub(crate) mod time_parts;
pub(crate) mod time_zones;
pub(crate) mod to_char;
pub(crate) mod type_names;
pub(crate) mod types;
pub(crate) mod untyped_literals;
pub(crate) mod wrapped;

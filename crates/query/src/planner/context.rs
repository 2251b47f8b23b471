//! DataFusion as a session has it: its configuration, rules, functions and schemas.

use crate::catalog::view::Source;
use crate::parser::refusals;
use crate::planner::bounded_functions;
use crate::planner::coded_groups::CodedGroups;
use crate::planner::counts::CountedRows;
use crate::planner::formatted;
use crate::planner::join_using;
use crate::planner::key_filters::KeyFilters;
use crate::planner::lookup::LookupJoins;
use crate::planner::patterns::{PlannerOfQueries, RowPatternPlanner};
use crate::planner::rules::asof::{self, AsofJoins};
use crate::planner::rules::barriers::{self, Barriers};
use crate::planner::rules::computed_keys::ComputedKeys;
use crate::planner::rules::correlated::{CorrelatedSubqueries, StateHandle};
use crate::planner::rules::date_bounds::DateBounds;
use crate::planner::rules::extremes::Extremes;
use crate::planner::rules::group_keys::GroupKeys;
use crate::planner::rules::index_order::IndexOrder;
use crate::planner::rules::integer_sums::IntegerSums;
use crate::planner::rules::lateral::LateralJoins;
use crate::planner::rules::multisets::Multisets;
use crate::planner::rules::scan_filters::ScanFilters;
use crate::planner::rules::sessions::Sessions;
use crate::planner::rules::single_rows::SingleRows;
use crate::planner::rules::subqueries::{LiftedSubqueries, Membership};
use crate::planner::rules::truth_tests::TruthTests;
use crate::planner::sampling;
use crate::planner::scans::scan::BATCH_ROWS;
use crate::planner::schemas::SessionCatalog;
use crate::planner::sleep;
use crate::planner::star::rule::StarJoins;
use crate::planner::views::Views;
use crate::planner::windows;
use crate::planner::yielding::Interruptible;
use crate::postgres::arrays;
use crate::postgres::bound_operands::{self, BoundOperands};
use crate::postgres::buckets;
use crate::postgres::bytes;
use crate::postgres::char_padding::{BlankPadded, TruncatingCast};
use crate::postgres::comparison_keys::ComparisonKeys;
use crate::postgres::functions;
use crate::postgres::intervals::{self, IntervalOperators};
use crate::postgres::json::{self, JsonOperators};
use crate::postgres::named_row;
use crate::postgres::null_counts;
use crate::postgres::numbers::DoubleBesideDecimal;
use crate::postgres::numeric_casts;
use crate::postgres::ordered_sets;
use crate::postgres::overflow::{CheckedArithmetic, CheckedConstants};
use crate::postgres::ranks;
use crate::postgres::regular_expressions;
use crate::postgres::scales;
use crate::postgres::similar;
use crate::postgres::strings_in_order;
use crate::postgres::substring;
use crate::postgres::time_constructors;
use crate::postgres::time_zones::{self, DatesBesideTimes, LocalTimes};
use crate::postgres::to_char;
use crate::postgres::untyped_literals::UntypedLiterals;
use crate::schema_names::{CATALOG, SCHEMA};
use crate::session::cancellation::RunningStatement;
use crate::session::core::SessionOptions;
use datafusion::common::config::Dialect;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::{SessionStateBuilder, SessionStateDefaults};
use datafusion::logical_expr::ScalarUDF;
use datafusion::optimizer::{Analyzer, Optimizer};
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext};
use std::sync::Arc;

/// Rules of DataFusion that are left out. The first two find the columns of a condition again by name, and
/// take another where a join has two of one name; what can move has moved before, scans take conditions by
/// [`ScanFilters`], and none of ours takes one that changes while it runs. The third fails on aggregates of aggregates of nothing, and knows no
/// count of rows that is exact.
const LEFT_OUT: [&str; 3] = ["FilterPushdown", "FilterPushdown(Post)", "aggregate_statistics"];

/// Least stack of a function that may recurse deeply, DataFusion's among them: with less left, it gets another.
const STACK_MIN_BYTES: usize = 1 << 20;

/// Registers our functions, some over DataFusion's of the same name.
fn register_functions(context: &SessionContext, running: &Arc<RunningStatement>) {
    context.register_udf(join_using::function());
    context.register_udf(asof::function());
    ranks::functions().into_iter().for_each(|function| context.register_udwf(function));
    let own = time_zones::functions().into_iter().chain(TruncatingCast::both()).chain(functions::functions());
    let own = own
        .chain(sampling::functions())
        .chain(intervals::functions())
        .chain(json::functions())
        .chain([refusals::uuid_function()])
        .chain(similar::functions());
    let own = own.chain(to_char::functions());
    let mut own: Vec<ScalarUDF> = own.collect();
    own.extend(bytes::functions());
    own.extend(sleep::functions(running));
    own.extend(null_counts::functions());
    own.extend(scales::functions());
    own.extend(time_constructors::functions());
    own.extend(bound_operands::functions());
    own.extend(regular_expressions::functions());
    own.extend(ordered_sets::functions());
    own.extend(windows::functions());
    own.extend([
        numeric_casts::function(),
        formatted::function(),
        buckets::function(),
        substring::function(),
        named_row::function(),
    ]);
    own.extend(arrays::functions());
    own.into_iter().for_each(|function| context.register_udf(function));
    if let Ok(list) = context.udf("string_to_array") {
        context.register_udf(list.as_ref().clone().with_aliases(["string_to_table"]));
    }
    intervals::overloads::functions().into_iter().for_each(|function| context.register_udf(function));
    intervals::overloads::aggregates().into_iter().for_each(|function| context.register_udaf(function));
    context.register_udaf(strings_in_order::aggregate());
}

/// DataFusion context of a session, with the database's tables.
pub(crate) fn context(
    source: &Source,
    options: &SessionOptions,
    running: &Arc<RunningStatement>,
) -> SessionContext {
    recursive::set_minimum_stack_size(STACK_MIN_BYTES);
    let mut config = SessionConfig::new()
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(true)
        .with_batch_size(BATCH_ROWS);
    if let Some(partitions) = options.target_partitions {
        config = config.with_target_partitions(partitions.max(1));
    }
    config.options_mut().execution.time_zone = Some(time_zones::UTC.to_owned());
    // It refuses plans in which DataFusion's two ideas of what may be NULL differ.
    config.options_mut().execution.skip_physical_aggregate_schema_check = true;
    config.options_mut().optimizer.enable_dynamic_filter_pushdown = false;
    let parser = &mut config.options_mut().sql_parser;
    parser.dialect = Dialect::PostgreSQL;
    parser.map_string_types_to_utf8view = false;
    // 0.1 is a decimal: it must not lose digits on its way into a DECIMAL column.
    parser.parse_float_as_decimal = true;
    let handle = StateHandle::default();
    let mut analyzer = Analyzer::new().rules;
    analyzer.insert(0, Arc::new(DoubleBesideDecimal));
    analyzer.insert(0, Arc::new(DatesBesideTimes));
    analyzer.insert(0, Arc::new(ComparisonKeys::Windows));
    analyzer.insert(0, Arc::new(CorrelatedSubqueries::new(Arc::clone(&handle), &source.current)));
    analyzer.insert(0, Arc::new(Membership));
    analyzer.insert(0, Arc::new(LiftedSubqueries));
    analyzer.insert(0, Arc::new(LateralJoins));
    analyzer.insert(0, Arc::new(Multisets));
    analyzer.insert(0, Arc::new(BlankPadded));
    analyzer.insert(0, Arc::new(AsofJoins));
    analyzer.insert(0, Arc::new(Sessions));
    analyzer.insert(0, Arc::new(BoundOperands));
    analyzer.push(Arc::new(LocalTimes));
    analyzer.push(Arc::new(ComparisonKeys::Values));
    let runtime = options.runtime.clone().unwrap_or_default();
    let concatenation = bounded_functions::concatenation(running, &runtime.memory_pool);
    analyzer.push(Arc::new(CheckedConstants { concatenation }));
    analyzer.push(Arc::new(TruthTests));
    analyzer.push(Arc::new(SingleRows));
    let mut physical = PhysicalOptimizer::new().rules;
    physical.retain(|rule| !LEFT_OUT.contains(&rule.name()));
    StarJoins::insert(&mut physical);
    let sorts = physical.iter().position(|rule| rule.name() == barriers::BEFORE).unwrap_or_default();
    physical.insert(sorts, Arc::new(Barriers));
    let mut planners = SessionStateDefaults::default_expr_planners();
    planners.insert(0, Arc::new(IntervalOperators));
    planners.push(Arc::new(UntypedLiterals));
    planners.insert(0, Arc::new(JsonOperators));
    let mut logical = Optimizer::new().rules;
    GroupKeys::replace(&mut logical);
    DateBounds::insert(&mut logical);
    // Before common parts of arguments become columns.
    logical.insert(0, Arc::new(IntegerSums));
    logical.push(Arc::new(Extremes));
    logical.push(Arc::new(ComputedKeys));
    let builder = SessionStateBuilder::new()
        .with_runtime_env(runtime)
        .with_config(config)
        .with_default_features()
        .with_analyzer_rules(analyzer)
        .with_expr_planners(planners)
        .with_relation_planners(vec![Arc::new(RowPatternPlanner { state: Arc::clone(&handle) })])
        .with_query_planner(Arc::new(PlannerOfQueries))
        .with_optimizer_rules(logical)
        .with_physical_optimizer_rules(physical)
        .with_physical_optimizer_rule(Arc::new(IndexOrder))
        .with_physical_optimizer_rule(Arc::new(LookupJoins))
        .with_physical_optimizer_rule(Arc::new(KeyFilters))
        .with_physical_optimizer_rule(Arc::new(CountedRows))
        .with_physical_optimizer_rule(Arc::new(CheckedArithmetic))
        .with_physical_optimizer_rule(Arc::new(ScanFilters))
        .with_physical_optimizer_rule(Arc::new(CodedGroups))
        .with_physical_optimizer_rule(Arc::new(Interruptible::new(running)));
    let context = SessionContext::new_with_state(builder.build());
    register_functions(&context, running);
    let views = Views::new(&source.catalog, &context);
    let _ = source.views.set(Arc::new(views.clone()));
    context.register_catalog(CATALOG, Arc::new(SessionCatalog::new(source, views)));
    // It is the first to set it.
    let _ = handle.set(context.state_weak_ref());
    context
}

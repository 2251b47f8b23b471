//! Row patterns over a stream, as MATCH_RECOGNIZE.

use crate::UTC;
use crate::graph::{OperatorArguments, Writer};
use crate::operators::Operator;
use crate::operators::pattern::automaton::{Automaton, Pattern};
use crate::operators::pattern::buffer::PatternBuffer;
use crate::operators::pattern::match_numbers::MatchNumbers;
use crate::operators::pattern::matcher::{PatternMatcher, VariableConditions};
use crate::operators::pattern::partition::{MatchGuard, PartitionMatcher};
use crate::operators::pattern::path::{Navigation, PatternExpression, PatternMeasure};
use crate::operators::pattern::rows::PatternRows;
use crate::operators::pattern::{PatternMatches, PatternOperator};
use crate::operators::ranking::LateRows;
use crate::operators::stored_watermark::StoredWatermark;
use crate::operators::to_table::ToTableOperator;
use crate::operators::window_aggregate::SourceTimes;
use crate::ranking::free_name;
use crate::stream::Stream;
use crate::windowed::edge_type_of;
use arrow_schema::SchemaRef;
use entresol_tables::{Column, DataType, Schema, arrow_schema};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Maximum of the variables of a pattern.
pub const PATTERN_VARIABLES_MAX: usize = 64;

/// Pattern of rows, and what is sent of its matches; see [`Stream::match_pattern`].
pub struct RowPattern {
    /// Pattern, whose variables are numbers of `variables`.
    pub pattern: Pattern,
    /// Conditions of the variables.
    pub variables: Vec<PatternVariable>,
    /// Columns of the output.
    pub measures: Vec<(Column, PatternMeasure)>,
    /// True if each row of a match is sent, with the measures as of that row; else one row for each match.
    pub all_rows: bool,
    /// Columns with equal values in the rows of a partition; NULL is a value.
    pub partition: Vec<usize>,
    /// Column of the event time, by which rows are ordered. Rows with equal times are in the order in which they came.
    pub time: usize,
    /// Greatest time from the first to the last row of a match.
    pub within: Duration,
    /// True if the next match begins behind the last row of one, else behind its first.
    pub skips_match: bool,
    /// Allowed lateness.
    pub lateness: Duration,
    /// Maximum time ahead of the clock of an event time that moves the watermark.
    pub future_limit: Duration,
    /// Table of the rows that are buffered, which only this operator may write.
    pub state_table: String,
    /// Table of late rows, and the columns that it gets.
    pub late: Option<(String, Vec<usize>)>,
}

/// Variable of a pattern; a row is of it if its conditions are true.
#[derive(Default)]
pub struct PatternVariable {
    /// Condition on the row, which reads nothing but [`Navigation::Previous`]. It is asked once for each row.
    pub of_row: Option<PatternExpression>,
    /// Condition on the rows of the match so far, of which the row is the last. It is asked for each way in which a match
    /// may go on.
    pub of_match: Option<PatternExpression>,
}

impl RowPattern {
    fn check(&self, stream: &Stream) -> Result<(), String> {
        let late = self.late.iter().flat_map(|(_, columns)| columns.iter().copied());
        let mut read = self.partition.iter().copied().chain(late).chain([self.time]);
        if let Some(wrong) = read.find(|at| *at >= stream.columns().len()) {
            return Err(format!("there is no column {wrong}"));
        }
        let time = &stream.columns()[self.time];
        edge_type_of(time.data_type).ok_or_else(|| format!("column {} is not a time", time.name))?;
        check_variables(&self.pattern, &self.variables)
    }

    /// Table of the numbers of matches, and its schema; none if no measure reads them.
    fn numbers(&self, stream: &Stream) -> Result<Option<(String, Schema)>, String> {
        if !self.measures.iter().any(|(_, measure)| matches!(measure, PatternMeasure::MatchNumber)) {
            return Ok(None);
        }
        let mut columns = vec![
            Column::new("number", DataType::BigInt).not_null(),
            Column::new("matches", DataType::BigInt).not_null(),
        ];
        for &at in &self.partition {
            let column = &stream.columns()[at];
            let name = free_name(&column.name, &columns);
            columns.push(Column { nullable: true, ..Column::new(name, column.data_type) });
        }
        let schema = Schema::new(columns, &["number"]).map_err(|error| error.to_string())?;
        Ok(Some((numbers_table(&self.state_table), schema)))
    }

    /// Schema of the state table.
    fn state_schema(&self, stream: &Stream) -> Result<Schema, String> {
        let mut columns = vec![
            Column::new("at", DataType::Timestamp).not_null(),
            Column::new("number", DataType::BigInt).not_null(),
            Column::new("passed", DataType::Boolean).not_null(),
        ];
        for column in stream.columns() {
            let name = free_name(&format!("row_{}", column.name), &columns);
            columns.push(Column { nullable: true, ..Column::new(name, column.data_type) });
        }
        Schema::new(columns, &["at", "number"]).map_err(|error| error.to_string())
    }
}

/// Refuses variables that are too many or missing, and conditions on a row that read others.
fn check_variables(pattern: &Pattern, variables: &[PatternVariable]) -> Result<(), String> {
    if variables.len() > PATTERN_VARIABLES_MAX {
        let found = variables.len();
        return Err(format!("a pattern of {found} variables, at most {PATTERN_VARIABLES_MAX}"));
    }
    if pattern.last_variable() >= variables.len() {
        return Err(format!("there is no variable {}", pattern.last_variable()));
    }
    let is_of_row = |navigation: &Navigation| matches!(navigation, Navigation::Previous { .. });
    let conditions = variables.iter().filter_map(|variable| variable.of_row.as_ref());
    if conditions.flat_map(|condition| &condition.navigations).any(|read| !is_of_row(read)) {
        return Err("a condition of a row reads other rows of the match".to_owned());
    }
    Ok(())
}

/// Number of rows before another that expressions read.
fn look_back<'m>(
    variables: &'m [PatternVariable],
    measures: impl Iterator<Item = &'m PatternMeasure>,
) -> usize {
    let conditions = variables.iter().flat_map(|variable| [&variable.of_row, &variable.of_match]);
    let measures = measures.flat_map(PatternMeasure::navigations);
    let all = conditions.flatten().flat_map(|expression| &expression.navigations).chain(measures);
    let offsets = all.map(|navigation| match navigation {
        Navigation::Previous { offset, .. } => *offset,
        Navigation::First { .. } | Navigation::Last { .. } | Navigation::All { .. } => 0,
    });
    offsets.max().unwrap_or(0)
}

fn conditions_of(variables: Vec<PatternVariable>) -> Vec<VariableConditions> {
    let conditions = variables
        .into_iter()
        .map(|variable| VariableConditions { of_row: variable.of_row, of_match: variable.of_match });
    conditions.collect()
}

fn micros_of(limit: Duration) -> i64 {
    i64::try_from(limit.as_micros()).unwrap_or(i64::MAX)
}

/// Pattern over rows that are given partition by partition, each in its order.
pub struct PartitionPattern {
    /// Pattern, whose variables are numbers of `variables`.
    pub pattern: Pattern,
    /// Conditions of the variables.
    pub variables: Vec<PatternVariable>,
    /// Values of the columns of the output.
    pub measures: Vec<PatternMeasure>,
    /// Columns of the output.
    pub output: SchemaRef,
    /// True if each row of a match is sent, with the measures as of that row; else one row for each match.
    pub all_rows: bool,
    /// Greatest time from the first to the last row of a match; none has no bound.
    pub within: Option<Duration>,
    /// True if the next match begins behind the last row of one, else behind its first.
    pub skips_match: bool,
}

impl PartitionPattern {
    /// Matcher of this pattern over rows with these columns; `operator` is its name in errors.
    pub fn matcher(
        self,
        operator: &str,
        columns: &SchemaRef,
        guard: Box<dyn MatchGuard>,
    ) -> crate::Result<PartitionMatcher> {
        let refused = |reason| crate::Error::Tuple { operator: operator.to_owned(), reason };
        check_variables(&self.pattern, &self.variables).map_err(refused)?;
        let look_back = look_back(&self.variables, self.measures.iter());
        let matcher = PatternMatcher {
            name: operator.to_owned(),
            automaton: Automaton::new(&self.pattern).map_err(refused)?,
            conditions: conditions_of(self.variables),
            measures: self.measures,
            all_rows: self.all_rows,
            within_us: self.within.map(micros_of),
            skips_match: self.skips_match,
            schema: self.output,
            rows: Arc::new(PatternRows::new(operator.to_owned(), columns.clone())?),
            complete: VecDeque::new(),
        };
        Ok(PartitionMatcher::new(matcher, look_back, guard))
    }
}

/// Table of the numbers of the matches of a pattern, beside its state table.
pub fn numbers_table(state_table: &str) -> String {
    format!("{state_table}_numbers")
}

impl Stream {
    /// Finds the matches of a pattern in each partition; one row for each or for each of its rows, of the measures.
    /// Late rows are counted, and dropped or stored.
    pub fn match_pattern(&self, pattern: RowPattern) -> Stream {
        self.check_appended("MATCH_RECOGNIZE");
        let table = pattern.state_table.clone();
        match self.try_match(pattern) {
            Ok(stream) => stream,
            Err(reason) => {
                self.report(format!("pattern with state {table}: {reason}"));
                self.clone()
            }
        }
    }

    fn try_match(&self, pattern: RowPattern) -> Result<Stream, String> {
        pattern.check(self)?;
        let automaton = Automaton::new(&pattern.pattern)?;
        self.plan_state(&pattern.state_table, pattern.state_schema(self)?)?;
        let numbers = pattern.numbers(self)?;
        if let Some((table, schema)) = &numbers {
            self.plan_state(table, schema.clone())?;
        }
        let numbers = numbers.map(|(table, _)| table);
        let of_numbers = numbers.clone();
        let state_table = pattern.state_table.clone();
        let late = self.plan_late_rows(pattern.late.as_ref())?;
        let measures = pattern.measures.iter().map(|(_, measure)| measure);
        let look_back = look_back(&pattern.variables, measures);
        let (columns, measures): (Vec<Column>, Vec<PatternMeasure>) = pattern.measures.into_iter().unzip();
        let (schema, stored) = (arrow_schema(&columns, UTC), arrow_schema(&self.columns, UTC));
        let conditions = conditions_of(pattern.variables);
        let (partition, table) = (pattern.partition, state_table.clone());
        let (within_us, skips_match, time) = (micros_of(pattern.within), pattern.skips_match, pattern.time);
        let all_rows = pattern.all_rows;
        let (lateness_us, future_us) = (micros_of(pattern.lateness), micros_of(pattern.future_limit));
        let matched = self.add(format!("match {table}"), columns.into(), move |made| {
            let name = made.name.to_owned();
            let memory = made.memory;
            let rows = Arc::new(PatternRows::new(name.clone(), stored.clone())?);
            let stored_in = made.catalog.table(&table)?;
            let buffer = PatternBuffer::new(name.clone(), stored_in, (&rows, &stored), partition, memory)?;
            let numbers = match &of_numbers {
                Some(table) => Some(MatchNumbers::new(name.clone(), made.catalog.table(table)?, memory)?),
                None => None,
            };
            let watermark = StoredWatermark::new(made.watermarks, made.topology, &table);
            let late = late.map(|late| late.operator(made, &name)).transpose()?;
            let matcher = PatternMatcher {
                name,
                automaton,
                conditions,
                measures,
                all_rows,
                within_us: Some(within_us),
                skips_match,
                schema,
                rows,
                complete: VecDeque::new(),
            };
            Ok(Box::new(PatternOperator {
                matcher,
                numbers,
                within_us,
                look_back,
                time,
                lateness_us,
                future_us,
                buffer,
                watermark,
                progress: SourceTimes::new(made.sources),
                late,
                matching: PatternMatches::default(),
            }) as Box<dyn Operator>)
        });
        for table in [Some(state_table), numbers].into_iter().flatten() {
            let writer = Writer { table, node: matched.node, is_to_table: false };
            self.graph.borrow_mut().writers.push(writer);
        }
        Ok(matched)
    }

    /// Plans the table of late rows, if it is missing.
    pub(crate) fn plan_late_rows(
        &self,
        late: Option<&(String, Vec<usize>)>,
    ) -> Result<Option<PlannedLateRows>, String> {
        let Some((table, places)) = late else { return Ok(None) };
        let columns: Vec<Column> = places.iter().map(|&column| self.columns[column].clone()).collect();
        let mut graph = self.graph.borrow_mut();
        if graph.schema(&self.catalog, table).is_none() {
            let schema = Schema::new(columns.clone(), &[] as &[&str]).map_err(|error| error.to_string())?;
            graph.planned.insert(table.clone(), schema);
        }
        Ok(Some(PlannedLateRows { table: table.clone(), places: places.clone(), columns }))
    }
}

/// Table of late rows that an operator will write.
pub(crate) struct PlannedLateRows {
    table: String,
    places: Vec<usize>,
    columns: Vec<Column>,
}

impl PlannedLateRows {
    /// Writer of late rows of an operator.
    pub(crate) fn operator(self, made: &OperatorArguments<'_>, operator: &str) -> crate::Result<LateRows> {
        let name = format!("late tuples of {operator}");
        let write = ToTableOperator::new(made, name, &self.table, self.columns, true, None)?;
        Ok(LateRows { columns: self.places, write })
    }
}

//! Reader of the rows of a scan: it collects rows as they are stored, leaves out those that filters do not let pass, and
//! decodes the others.
//!
//! ```text
//!   cursor ─▶ stored rows ─▶ columns of a filter ─▶ condition ─▶ rows that pass ─▶ next filter ... ─▶ other columns ─▶ batch
//! ```
//!
//! - Without filters rows are a batch once they are as many, with filters once half as many have passed, or there are no
//!   more. So batches do not get small where few rows pass, and no array is copied to make them larger.
//! - A column that a filter has decoded is not decoded again if the rows of one evaluation make a batch. If they are
//!   fewer, most were left out, and what is left is decoded with those that follow.
//! - A reader that finds few rows yields after [`TURN_MAX`].

use crate::error::{Error, Result, external};
use crate::planner::running_query::RunningQuery;
use crate::planner::scans::access::Access;
use crate::planner::scans::scan::EntresolScan;
use crate::planner::scans::scan::filters::ScanFilter;
use crate::planner::turns::TURN_MAX;
use datafusion::arrow::array::{Array, ArrayRef, BooleanArray};
use datafusion::arrow::compute::FilterBuilder;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result as DFResult;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, MetricBuilder};
use entresol_tables::workload::{RecordedScan, RowOperation};
use entresol_tables::{Cursor, Direction, IndexBounds, IndexCursor, Row, RowView, StoredRows, Table};
use entresol_transactions::Transaction;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Records that a scan begins, and the index that it uses.
fn note_access(scan: &EntresolScan) {
    if let Some(recorded) = &scan.recorded {
        recorded.begin();
    } else if let Access::Point(_) | Access::Keys(_) = &scan.access {
        let rows = scan.access.rows_max().unwrap_or(0) as u64;
        scan.table.workload().note_rows(RowOperation::Read, rows);
    }
    if let Some(index) = scan.access.index() {
        scan.table.workload().note_index(index);
    }
}

/// Rows still to be read.
enum RemainingRows {
    Keys(std::vec::IntoIter<Row>),
    /// Cursors over ranges, the next one last.
    Ranges(Vec<Cursor>),
    Index {
        name: String,
        bounds: Vec<IndexBounds>,
        cursor: Option<IndexCursor>,
    },
}

/// Reader of one batch after another.
pub(super) struct Reader {
    table: Arc<Table>,
    transaction: Arc<Transaction>,
    rest: RemainingRows,
    direction: Direction,
    /// Positions of the table's columns in batches.
    projection: Vec<usize>,
    /// Filters, in the order in which they are evaluated.
    filters: Vec<ScanFilter>,
    /// Filters that are not looked at yet: they are known when rows are asked for.
    dynamic: Vec<ScanFilter>,
    rows: StoredRows,
    /// Number of the first rows that have passed the filters.
    passed: usize,
    /// Columns of the table that filters have decoded of all rows.
    decoded: Vec<(usize, ArrayRef)>,
    batch_rows: usize,
    /// Maximum number of rows still to be returned.
    rows_left: usize,
    metrics: BaselineMetrics,
    /// Rows that were read, if filters may leave some out.
    rows_read: Option<Count>,
    query: Option<Arc<RunningQuery>>,
    recorded: Option<Arc<RecordedScan>>,
}

impl Reader {
    /// Reader of a partition of a scan, in batches of about so many rows.
    pub(super) fn new(
        scan: &EntresolScan,
        transaction: &Arc<Transaction>,
        partition: usize,
        batch_rows: usize,
    ) -> Reader {
        let rest = match &scan.access {
            Access::Point(key) => RemainingRows::Keys(vec![key.clone()].into_iter()),
            Access::Keys(keys) => {
                let mut keys = keys.clone();
                if scan.direction == Direction::Backward {
                    keys.reverse();
                }
                RemainingRows::Keys(keys.into_iter())
            }
            Access::Index { name, within } => {
                RemainingRows::Index { name: name.clone(), bounds: within.index_bounds(), cursor: None }
            }
            access => {
                let mut cursors: Vec<Cursor> = match &scan.parts {
                    Some(parts) => {
                        parts[partition].iter().map(|range| scan.table.scan_within(range.clone())).collect()
                    }
                    None => access.scan_ranges().into_iter().map(|range| scan.table.scan(range)).collect(),
                };
                if scan.direction == Direction::Forward {
                    cursors.reverse();
                }
                RemainingRows::Ranges(
                    cursors.into_iter().map(|cursor| cursor.directed(scan.direction)).collect(),
                )
            }
        };
        if partition == 0 {
            note_access(scan);
        }
        let capacity = scan.rows_max().unwrap_or(batch_rows).min(batch_rows);
        let rows = StoredRows::new(
            scan.table.name(),
            scan.table.schema(),
            &scan.projection,
            Arc::clone(&scan.schema),
            capacity,
        );
        let filters = || scan.filters.iter().chain(&scan.dynamic);
        let rows_read =
            filters().next().map(|_| MetricBuilder::new(&scan.metrics).counter("rows_read", partition));
        Reader {
            table: Arc::clone(&scan.table),
            transaction: Arc::clone(transaction),
            rest,
            direction: scan.direction,
            projection: scan.projection.clone(),
            filters: scan.filters.clone(),
            dynamic: scan.dynamic.clone(),
            rows: filters().fold(rows, |rows, filter| rows.reading(filter.columns())),
            passed: 0,
            decoded: Vec::new(),
            batch_rows,
            rows_left: scan.limit.unwrap_or(usize::MAX),
            metrics: BaselineMetrics::new(&scan.metrics, partition),
            rows_read,
            query: scan.query.clone(),
            recorded: scan.recorded.clone(),
        }
    }

    /// Maximum number of rows to collect: as many as are to be returned, unless filters may leave some out.
    fn rows_wanted(&self) -> usize {
        if self.filters.is_empty() { self.rows_left } else { usize::MAX }
    }

    /// Collects rows; false once there are no more.
    fn step(&mut self) -> entresol_tables::Result<bool> {
        let rows_end = self.rows_wanted();
        let rows_max = (self.batch_rows - self.rows.len()).min(rows_end);
        let rows = &mut self.rows;
        let push = |row: RowView<'_>| {
            if rows.len() < rows_end {
                rows.push_view(&row);
            }
        };
        match &mut self.rest {
            RemainingRows::Keys(keys) => {
                let chunk: Vec<Row> = keys.by_ref().take(self.batch_rows).collect();
                let mut push = push;
                self.table.get_many_with(&self.transaction, &chunk, |_, row| push(row))?;
                Ok(!chunk.is_empty())
            }
            RemainingRows::Index { name, bounds, cursor } => {
                let open = match cursor {
                    Some(open) => open,
                    None => {
                        let index = self
                            .table
                            .index(name)
                            .ok_or_else(|| entresol_tables::Error::NoSuchIndex { index: name.clone() })?;
                        let bounds = std::mem::take(bounds);
                        let found = self.table.index_scan(&self.transaction, index, bounds)?;
                        cursor.insert(found.directed(self.direction))
                    }
                };
                open.next_batch(&self.transaction, rows_max, push)
            }
            RemainingRows::Ranges(cursors) => {
                let Some(open) = cursors.last_mut() else { return Ok(false) };
                if !open.next_stored(&self.transaction, rows, rows_end)? {
                    cursors.pop();
                }
                Ok(true)
            }
        }
    }

    /// Collects rows until they are enough for a batch; false once there are no more.
    fn collect(&mut self) -> Result<bool> {
        while !self.rows.is_batch(self.batch_rows.min(self.rows_wanted())) {
            // There may be many steps to a row: dead rows are skipped.
            self.query.as_ref().map_or(Ok(()), |query| query.check())?;
            if !self.step()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes the dynamic filters as they are now.
    fn take_dynamic(&mut self) -> DFResult<()> {
        for filter in std::mem::take(&mut self.dynamic) {
            let filter = filter.current()?;
            match filter.constant() {
                Some(true) => {}
                Some(false) => self.rest = RemainingRows::Keys(Vec::new().into_iter()),
                None => self.filters.push(filter),
            }
        }
        Ok(())
    }

    /// Evaluates the filters on the rows that have not passed yet, and removes those that do not.
    fn filter(&mut self) -> DFResult<()> {
        let first = self.passed;
        if let Some(rows_read) = &self.rows_read {
            rows_read.add(self.rows.len() - first);
        }
        let mut decoded: Vec<(usize, ArrayRef)> = Vec::new();
        for (at, filter) in self.filters.iter().enumerate() {
            let rows = self.rows.len() - first;
            if rows == 0 {
                break;
            }
            let is_known = |column: usize| decoded.iter().any(|(known, _)| *known == column);
            let columns = filter.columns().iter().enumerate();
            let missing = columns.filter(|(_, column)| !is_known(**column));
            let missing: Vec<_> = missing.map(|(at, &column)| (column, filter.data_type(at))).collect();
            let arrays = self.rows.columns_from(first, &missing);
            let arrays = arrays.map_err(|error| external(Error::from(error)))?;
            decoded.extend(missing.iter().map(|(column, _)| *column).zip(arrays));
            let array = |column: &usize| decoded.iter().find(|(known, _)| known == column);
            let arrays = filter.columns().iter().filter_map(array).map(|(_, array)| Arc::clone(array));
            let passing = filter.passing(arrays.collect(), rows)?;
            let wanted = |column: &usize| {
                self.projection.contains(column)
                    || self.filters[at + 1..].iter().any(|filter| filter.columns().contains(column))
            };
            decoded.retain(|(column, _)| wanted(column));
            if passing.count_set_bits() < rows {
                self.rows.retain_from(first, &passing);
                let selection = FilterBuilder::new(&BooleanArray::new(passing, None)).optimize().build();
                for (_, array) in &mut decoded {
                    *array = selection.filter(array.as_ref())?;
                }
            }
        }
        self.passed = self.rows.len();
        self.decoded = if first == 0 { decoded } else { Vec::new() };
        Ok(())
    }

    /// Next batch, the inner none if there is none yet; none at the end.
    fn advance(&mut self) -> DFResult<Option<Option<RecordBatch>>> {
        let elapsed = self.metrics.elapsed_compute().clone();
        let _timer = elapsed.timer();
        self.take_dynamic()?;
        if self.rows_left == 0 {
            return Ok(None);
        }
        let has_more = self.collect().map_err(external)?;
        if !self.filters.is_empty() {
            self.filter()?;
            let enough = (self.batch_rows / 2).max(1).min(self.rows_left);
            if has_more && !self.rows.is_batch(enough) {
                return Ok(Some(None));
            }
            self.rows.truncate(self.rows_left);
        } else if let Some(rows_read) = &self.rows_read {
            rows_read.add(self.rows.len());
        }
        let rows = self.rows.len();
        if rows == 0 {
            return Ok(None);
        }
        let known = |column: &usize| {
            let (_, array) = self.decoded.iter().find(|(known, _)| known == column)?;
            Some(array.slice(0, rows))
        };
        let known: Vec<Option<ArrayRef>> = self.projection.iter().map(known).collect();
        self.rows_left -= rows;
        self.passed = 0;
        self.decoded.clear();
        let batch = self.rows.finish_with(&known).map_err(|error| external(Error::from(error)))?;
        self.metrics.record_output(rows);
        Ok(Some(Some(batch)))
    }

    /// Next batch of the stream.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<DFResult<RecordBatch>>> {
        let began = Instant::now();
        loop {
            match self.advance() {
                Ok(Some(Some(batch))) => return Poll::Ready(Some(Ok(batch))),
                Ok(Some(None)) if began.elapsed() < TURN_MAX => {}
                Ok(Some(None)) => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(None) => return Poll::Ready(None),
                Err(error) => {
                    self.rows_left = 0;
                    self.rows.clear();
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(recorded) = &self.recorded {
            let elapsed = Duration::from_nanos(self.metrics.elapsed_compute().value() as u64);
            let rows = self.rows_read.as_ref().map_or(self.metrics.output_rows().value(), Count::value);
            recorded.end(rows as u64, elapsed);
        }
    }
}

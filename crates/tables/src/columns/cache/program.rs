//! Linear programs that find shares: for each time a variable that is at least each of its lines (epigraph form).
//!
//! ```text
//!   minimise  sum of t            subject to  t_i >= line_ij(x)  for all i, j
//!                                             sum of x_c bytes_c <= budget,  0 <= x <= 1
//! ```
//!
//! The second goal has the roles of time and memory changed. Both prefer, among solutions as good, the one with
//! less memory or less time. Size: the columns and three rows per column of a pipeline, of which there are at most
//! [`super::advisor::PIPELINES_MAX`]; a solution takes milliseconds.

use super::model::{Proportions, Workload};
use clarabel::algebra::CscMatrix;
use clarabel::solver::{DefaultSettingsBuilder, DefaultSolver, IPSolver, SolverStatus, SupportedConeT};

/// Weight of what is not asked for, so that it decides only among solutions that are as good.
const TIE_WEIGHT: f64 = 1e-5;
/// Proportions this near to none or all are that.
const NEAR: f64 = 1e-4;
/// Maximum iterations, and seconds, of a solution.
const ITERATIONS_MAX: u32 = 100;
const SECONDS_MAX: f64 = 2.0;

/// Rows `a z <= b`, as the entries of `a` and `b`.
#[derive(Default)]
struct Rows {
    entries: Vec<(usize, usize, f64)>,
    bounds: Vec<f64>,
}

impl Rows {
    fn push(&mut self, entries: impl IntoIterator<Item = (usize, f64)>, bound: f64) {
        let row = self.bounds.len();
        self.entries.extend(entries.into_iter().map(|(column, value)| (row, column, value)));
        self.bounds.push(bound);
    }

    /// Values of the variables that minimise `cost`; none if the solver finds none.
    fn minimise(mut self, cost: &[f64]) -> Option<Vec<f64>> {
        self.entries.sort_unstable_by_key(|(row, column, _)| (*column, *row));
        let (rows, columns) = (self.bounds.len(), cost.len());
        let mut starts = vec![0; columns + 1];
        self.entries.iter().for_each(|(_, column, _)| starts[column + 1] += 1);
        (0..columns).for_each(|column| starts[column + 1] += starts[column]);
        let row_of = self.entries.iter().map(|(row, _, _)| *row).collect();
        let values = self.entries.iter().map(|(_, _, value)| *value).collect();
        let matrix = CscMatrix::new(rows, columns, starts, row_of, values);
        let quadratic = CscMatrix::zeros((columns, columns));
        let cones = [SupportedConeT::NonnegativeConeT(rows)];
        let settings = DefaultSettingsBuilder::default()
            .verbose(false)
            .max_iter(ITERATIONS_MAX)
            .time_limit(SECONDS_MAX)
            .build()
            .ok()?;
        let mut solver = DefaultSolver::new(&quadratic, cost, &matrix, &self.bounds, &cones, settings);
        solver.solve();
        let is_solved = matches!(solver.solution.status, SolverStatus::Solved | SolverStatus::AlmostSolved);
        is_solved.then_some(solver.solution.x)
    }
}

/// Program in units of its own: time of all pipelines without a cache, bytes of all columns.
struct Program {
    /// Share of each column in the bytes of all.
    sizes: Vec<f64>,
    times: usize,
    rows: Rows,
    seconds: f64,
}

impl Program {
    /// Rows of times, of the budget and of the bounds of proportions; none if nothing is read.
    fn new(workload: &Workload, budget_bytes: f64) -> Option<Program> {
        let sizes: Vec<f64> = workload.columns().into_values().collect();
        let (bytes, seconds): (f64, f64) = (sizes.iter().sum(), workload.seconds(&Proportions::new()));
        if !(bytes > 0.0 && seconds > 0.0 && bytes.is_finite() && seconds.is_finite()) {
            return None;
        }
        let sizes: Vec<f64> = sizes.into_iter().map(|size| size / bytes).collect();
        let (mut rows, columns) = (Rows::default(), sizes.len());
        let times = workload.times();
        for (at, lines) in times.iter().enumerate() {
            for line in lines {
                let slopes = line.slopes.iter().map(|(column, slope)| (*column, slope / seconds));
                rows.push(slopes.chain([(columns + at, -1.0)]), -line.constant / seconds);
            }
        }
        rows.push(sizes.iter().copied().enumerate(), budget_bytes / bytes);
        for column in 0..columns {
            rows.push([(column, 1.0)], 1.0);
            rows.push([(column, -1.0)], 0.0);
        }
        Some(Program { sizes, times: times.len(), rows, seconds })
    }

    /// Costs of the variables: proportions, then times.
    fn costs(&self, of_memory: f64, of_time: f64) -> Vec<f64> {
        let sizes = self.sizes.iter().map(|size| of_memory * size);
        sizes.chain(std::iter::repeat_n(of_time, self.times)).collect()
    }
}

/// Proportions of a solution, within the budget also where the solver was not exact.
fn proportions(workload: &Workload, budget_bytes: f64, solution: &[f64]) -> Proportions {
    let near = |value: f64| match value {
        value if value < NEAR => 0.0,
        value if value > 1.0 - NEAR => 1.0,
        value => value,
    };
    let columns = workload.columns().into_keys().zip(solution);
    let mut found: Proportions = columns.map(|(column, value)| (column, near(*value))).collect();
    let bytes = workload.cached_bytes(&found);
    if bytes > budget_bytes {
        found.values_mut().for_each(|value| *value *= budget_bytes / bytes);
    }
    found
}

/// Proportions with which the pipelines take the least time within a budget of memory; none if nothing is read.
pub fn least_time(workload: &Workload, budget_bytes: f64) -> Option<Proportions> {
    let program = Program::new(workload, budget_bytes)?;
    let costs = program.costs(TIE_WEIGHT, 1.0);
    let solution = program.rows.minimise(&costs)?;
    Some(proportions(workload, budget_bytes, &solution))
}

/// Proportions that take the least memory while the pipelines take at most `1 + slowdown` times the least time
/// within the budget.
pub fn least_memory(workload: &Workload, budget_bytes: f64, slowdown: f64) -> Option<Proportions> {
    let fastest = least_time(workload, budget_bytes)?;
    let mut program = Program::new(workload, budget_bytes)?;
    let columns = program.sizes.len();
    let seconds_max = workload.seconds(&fastest) * (1.0 + slowdown) / program.seconds;
    program.rows.push((0..program.times).map(|at| (columns + at, 1.0)), seconds_max);
    let costs = program.costs(1.0, TIE_WEIGHT);
    let solution = program.rows.minimise(&costs)?;
    Some(proportions(workload, budget_bytes, &solution))
}

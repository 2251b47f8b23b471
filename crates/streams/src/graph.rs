//! The graph of a topology while it is built.
//!
//! - Nodes are numbered as they are added; data edges go from lower to higher numbers, except those into
//!   TO_STREAM, which come from the writers of its table. [`Graph::order`] finds a topological order, or a
//!   node of a cycle (a continuation that writes the table it reads changes of).
//! - The first error is stored and returned by `build`, so that the builder's calls can be chained.

use crate::error::Result;
use crate::execution::rejects_table;
use crate::operators::Operator;
use crate::operators::to_stream::Trigger;
use crate::operators::window::WindowSpan;
use crate::operators::written_rows::SentForm;
use crate::sources::Source;
use entresol_memory::Durability;
use entresol_memory::budget::MemoryBudget;
use entresol_tables::{Catalog, Column, Schema, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Name of projections, up to the place of each.
pub(crate) const PROJECTION: &str = "projection";

/// Arguments for the construction of an operator.
pub(crate) struct OperatorArguments<'a> {
    pub(crate) topology: &'a str,
    /// Name of the node.
    pub(crate) name: &'a str,
    pub(crate) catalog: &'a Catalog,
    pub(crate) watermarks: &'a Arc<Table>,
    /// Durability of the topology's commits.
    pub(crate) durability: Durability,
    /// Threads that the topology may use.
    pub(crate) parallelism: usize,
    /// Memory out of which the state of the topology is reserved.
    pub(crate) memory: Option<&'a Arc<MemoryBudget>>,
    /// The same for state that may leave DRAM.
    pub(crate) memory_of_caches: Option<Arc<MemoryBudget>>,
    /// Form in which each tuple of the node's table is sent from its TO_TABLEs to its TO_STREAMs.
    pub(crate) sent: SentForm,
    /// Numbers of the sources whose tuples reach the node.
    pub(crate) sources: &'a [usize],
    /// The same per input.
    pub(crate) sources_of_inputs: &'a [&'a [usize]],
}

pub(crate) type OperatorFactory = Box<dyn FnOnce(&OperatorArguments<'_>) -> Result<Box<dyn Operator>>>;

/// Operator of a topology that is not started, and its inputs.
#[derive(Debug, Clone)]
pub struct TopologyOperator {
    /// Its name, as in the counters of a run.
    pub name: String,
    /// Description of what it does, if its name does not say it.
    pub detail: Option<String>,
    /// True if it sends each tuple with other columns, and does nothing else.
    pub is_projection: bool,
    /// Places of the operators whose tuples it receives, and of those behind which it runs at a commit.
    pub inputs: Vec<usize>,
    /// Tables of its state.
    pub state_tables: Vec<String>,
}

pub(crate) enum NodeKind {
    Source,
    Operator(OperatorFactory),
}

pub(crate) struct GraphNode {
    pub(crate) name: String,
    /// Description of what it does, if its name does not say it.
    pub(crate) detail: Option<String>,
    pub(crate) kind: NodeKind,
    /// Label of the step that it is of, if that has one.
    pub(crate) step: Option<Arc<str>>,
    /// Nodes whose tuples it receives.
    pub(crate) inputs: Vec<usize>,
    /// Nodes that must see a punctuation before it.
    pub(crate) after: Vec<usize>,
}

pub(crate) struct GraphSource {
    pub(crate) name: String,
    pub(crate) source: Box<dyn Source>,
    pub(crate) columns: Rc<[Column]>,
    pub(crate) node: usize,
    pub(crate) event_time: Option<usize>,
    /// Silence after which it is not waited for.
    pub(crate) idle: Duration,
    /// Table of the records that are no tuples.
    pub(crate) rejects_table: Option<String>,
}

/// A node that writes a table.
pub(crate) struct Writer {
    pub(crate) table: String,
    pub(crate) node: usize,
    /// True if it can send each tuple.
    pub(crate) is_to_table: bool,
}

/// A TO_STREAM, or another operator that reads the changes of a table.
pub(crate) struct Listener {
    pub(crate) table: String,
    pub(crate) node: usize,
    pub(crate) trigger: Trigger,
    /// True if it reads rows before, change types and deletes.
    pub(crate) with_before: bool,
}

/// A window over a source's event time.
pub(crate) struct WindowNode {
    pub(crate) span: WindowSpan,
    pub(crate) time: String,
}

#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<GraphNode>,
    pub(crate) sources: Vec<GraphSource>,
    pub(crate) writers: Vec<Writer>,
    pub(crate) listeners: Vec<Listener>,
    /// Nodes that read tables at the commit, behind those that write any of them.
    pub(crate) readers: Vec<(usize, Vec<String>)>,
    pub(crate) windows: Vec<WindowNode>,
    /// Tables to be created.
    pub(crate) planned: BTreeMap<String, Schema>,
    /// Planned tables of which rows may stand in pages.
    pub(crate) paged: BTreeSet<String>,
    /// State tables that count as not there.
    pub(crate) removed: Vec<String>,
    /// Label of the step whose nodes are added.
    pub(crate) step: Option<Arc<str>>,
    pub(crate) mistake: Option<String>,
}

impl Graph {
    pub(crate) fn add(&mut self, name: String, inputs: Vec<usize>, kind: NodeKind) -> usize {
        let step = self.step.clone();
        self.nodes.push(GraphNode { name, detail: None, kind, step, inputs, after: Vec::new() });
        self.nodes.len() - 1
    }

    /// Describes what a node does, behind what is said of it before.
    pub(crate) fn describe(&mut self, node: usize, detail: &str) {
        let before = &mut self.nodes[node].detail;
        *before =
            Some(before.take().map_or_else(|| detail.to_owned(), |before| format!("{before}, {detail}")));
    }

    /// Operators with their inputs, once listeners are connected.
    pub(crate) fn operators(&self) -> Vec<TopologyOperator> {
        let states_of = |node: usize| {
            let writers =
                self.writers.iter().filter(move |writer| writer.node == node && !writer.is_to_table);
            writers.map(|writer| writer.table.clone()).collect()
        };
        let nodes = self.nodes.iter().enumerate();
        nodes
            .map(|(at, node)| TopologyOperator {
                name: node.name.clone(),
                detail: node.detail.clone(),
                is_projection: node.name.starts_with(PROJECTION),
                inputs: [node.inputs.as_slice(), &node.after].concat(),
                state_tables: states_of(at),
            })
            .collect()
    }

    /// Stores the first error.
    pub(crate) fn report(&mut self, reason: impl Into<String>) {
        self.mistake.get_or_insert_with(|| reason.into());
    }

    /// Returns the schema of a table that exists or will be created.
    pub(crate) fn schema(&self, catalog: &Catalog, table: &str) -> Option<Arc<Schema>> {
        match catalog.table(table) {
            Ok(found) if self.removed.iter().all(|removed| removed != table) => {
                Some(Arc::clone(found.schema()))
            }
            _ => self.planned.get(table).cloned().map(Arc::new),
        }
    }

    /// Plans a table of bad records, or checks the existing one.
    pub(crate) fn plan_rejects(&mut self, catalog: &Catalog, table: &str) {
        match (self.schema(catalog, table), rejects_table::schema()) {
            (None, Ok(schema)) => drop(self.planned.insert(table.to_owned(), schema)),
            (Some(found), _) if rejects_table::has_columns(found.visible_columns()) => {}
            _ => self.report(format!(
                "table {table} has not the columns source, line, reason, record, topology and byte_offset"
            )),
        }
    }

    /// Connects each TO_STREAM with the writers of its table, or those of its tables.
    pub(crate) fn connect_listeners(&mut self) -> Result<(), String> {
        for (reader, tables) in &self.readers {
            let writers = self.writers.iter().filter(|writer| tables.contains(&writer.table));
            let writers: Vec<usize> = writers.map(|writer| writer.node).collect();
            if writers.is_empty() {
                return Err(format!(
                    "a query at its commits reads {}, of which no step of this topology writes any",
                    tables.join(", ")
                ));
            }
            self.nodes[*reader].after.extend(writers);
        }
        for listener in &self.listeners {
            let writers: Vec<&Writer> = self.writers.iter().filter(|w| w.table == listener.table).collect();
            if writers.is_empty() {
                return Err(format!(
                    "it reads the changes of table {}, which no step of this topology writes",
                    listener.table
                ));
            }
            if listener.trigger == Trigger::EachTuple && writers.iter().any(|writer| !writer.is_to_table) {
                return Err(format!(
                    "table {} is operator state: its TO_STREAM needs the trigger OnCommit",
                    listener.table
                ));
            }
            let nodes: Vec<usize> = writers.iter().map(|writer| writer.node).collect();
            let node = &mut self.nodes[listener.node];
            match listener.trigger {
                Trigger::EachTuple => node.inputs = nodes,
                Trigger::OnCommit => node.after.extend(nodes),
            }
        }
        Ok(())
    }

    /// Form in which each tuple of the table of a writer or TO_STREAM is sent.
    pub(crate) fn sent_form(&self, node: usize) -> SentForm {
        let written = self.writers.iter().find(|writer| writer.node == node && writer.is_to_table);
        let written = written.map(|writer| &writer.table);
        let read = self.listeners.iter().find(|listener| listener.node == node);
        let table = written.or(read.map(|listener| &listener.table));
        let is_of =
            |listener: &&Listener| listener.trigger == Trigger::EachTuple && Some(&listener.table) == table;
        let with_before = self.listeners.iter().filter(is_of).map(|listener| listener.with_before).max();
        match with_before {
            None => SentForm::Nothing,
            Some(false) => SentForm::Rows,
            Some(true) => SentForm::Changes,
        }
    }

    /// Returns the numbers of the sources that reach each node, given the topological order.
    pub(crate) fn sources_by_node(&self, order: &[usize]) -> Vec<Vec<usize>> {
        let mut reaching: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (number, source) in self.sources.iter().enumerate() {
            reaching[source.node].push(number);
        }
        for &node in order {
            for &from in self.nodes[node].inputs.iter().chain(&self.nodes[node].after) {
                let before = reaching[from].clone();
                reaching[node].extend(before);
            }
            reaching[node].sort_unstable();
            reaching[node].dedup();
        }
        reaching
    }

    /// Returns the nodes in topological order.
    pub(crate) fn order(&self) -> Result<Vec<usize>, String> {
        let mut waits: Vec<usize> =
            self.nodes.iter().map(|node| node.inputs.len() + node.after.len()).collect();
        let mut behind: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (next, spec) in self.nodes.iter().enumerate() {
            spec.inputs.iter().chain(&spec.after).for_each(|&from| behind[from].push(next));
        }
        let mut order: Vec<usize> = (0..self.nodes.len()).filter(|&node| waits[node] == 0).collect();
        let mut done = 0;
        while done < order.len() {
            for &next in &behind[order[done]] {
                waits[next] -= 1;
                if waits[next] == 0 {
                    order.push(next);
                }
            }
            done += 1;
        }
        if order.len() < self.nodes.len() {
            return Err("a step writes the table whose changes it reads".to_owned());
        }
        Ok(order)
    }
}

//! Candidates for a better design: of the conditions that queries have.

use crate::advice::Change;
use crate::advice::model::{ModelledClass, WorkloadModel, may_have};
use crate::catalog::NewLayout;
use crate::cost::{Design, ElfDesign, IndexDesign};
use crate::schema::clustering::{ClusteringDefinition, Dimension};
use crate::schema::definition::{INDEX_COLUMNS_MAX, INDEXES_MAX, TableLayout};
use crate::schema::elf::ELF_INDEXES_MAX;
use crate::table::Table;
use crate::workload::ConditionKind;

/// Maximum number of columns of an Elf that is proposed: further ones narrow a search little.
const ELF_COLUMNS_WANTED: usize = 6;
/// Maximum number of dimensions that are proposed: each takes bits from the others.
const DIMENSIONS_WANTED: usize = 3;

/// Designs that differ from one by a change.
pub(super) fn candidates(table: &Table, model: &WorkloadModel<'_>, design: &Design) -> Vec<(Change, Design)> {
    let mut all = Vec::new();
    let with_conditions = model.classes.iter().filter(|class| !class.class.conditions.is_empty());
    for class in with_conditions {
        all.extend(index(class, model, design));
        all.extend(elf(class, model, design));
    }
    all.extend(layouts(table, model, design));
    all
}

/// Indexes that no query used and that no constraint needs.
pub(super) fn unused_indexes(table: &Table, design: &Design) -> Vec<(Change, Design)> {
    let is_unused = |index: &&IndexDesign| {
        let definition = table.index(&index.name).map(|index| index.definition());
        let is_free = definition.is_some_and(|definition| !definition.unique && !definition.constraint);
        is_free && table.workload().index_uses(&index.name) == 0
    };
    let without = |name: &String| {
        let mut next = design.clone();
        next.indexes.retain(|index| index.name != *name);
        next.elves.retain(|elf| elf.name != *name);
        (Change::DropIndex(name.clone()), next)
    };
    let unused = design.indexes.iter().filter(is_unused).map(|index| &index.name);
    let has_elf = |elf: &&ElfDesign| table.elf(&elf.name).is_some();
    let is_unused = |elf: &&ElfDesign| has_elf(elf) && table.workload().index_uses(&elf.name) == 0;
    let elves = design.elves.iter().filter(is_unused).map(|elf| &elf.name);
    unused.chain(elves).map(without).collect()
}

/// Columns with conditions of a class: those with equalities first, then the most selective ones.
fn ordered_columns(class: &ModelledClass, model: &WorkloadModel<'_>) -> Vec<usize> {
    let mut columns: Vec<(bool, f64, usize)> = Vec::new();
    for (column, kind) in &class.class.conditions {
        if *kind != ConditionKind::Null && !columns.iter().any(|(_, _, known)| known == column) {
            let distinct = model.statistics.columns.get(*column).map_or(1.0, |known| known.distinct);
            let share = if kind.fixes_values() { 1.0 / distinct } else { class.range_share(*column) };
            columns.push((!kind.fixes_values(), share, *column));
        }
    }
    columns.sort_by(|(range, share, _), (other, more, _)| range.cmp(other).then(share.total_cmp(more)));
    columns.into_iter().map(|(_, _, column)| column).collect()
}

impl ModelledClass {
    /// Mean share of the rows that conditions on a column leave.
    fn range_share(&self, column: usize) -> f64 {
        let sum: f64 = self.profiles.iter().map(|profile| profile.share_on(column)).sum();
        sum / self.profiles.len().max(1) as f64
    }
}

/// btree index of the columns with equalities, and the first of the others.
fn index(class: &ModelledClass, model: &WorkloadModel<'_>, design: &Design) -> Option<(Change, Design)> {
    if design.indexes.len() >= INDEXES_MAX {
        return None;
    }
    let fixes = |column: &usize| {
        class.class.conditions.iter().any(|(known, kind)| known == column && kind.fixes_values())
    };
    let ordered = ordered_columns(class, model);
    let fixed = ordered.iter().take_while(|column| fixes(column)).count();
    let columns: Vec<usize> = ordered.into_iter().take((fixed + 1).min(INDEX_COLUMNS_MAX)).collect();
    let is_there =
        design.key == columns || design.indexes.iter().any(|index| index.columns.starts_with(&columns));
    if columns.is_empty() || is_there {
        return None;
    }
    let mut next = design.clone();
    next.indexes.push(IndexDesign {
        name: String::new(),
        columns: columns.clone(),
        unique: false,
        hashed: false,
    });
    Some((Change::CreateIndex(columns), next))
}

/// Elf of the columns with conditions.
fn elf(class: &ModelledClass, model: &WorkloadModel<'_>, design: &Design) -> Option<(Change, Design)> {
    if design.layout == TableLayout::Rows || design.elves.len() >= ELF_INDEXES_MAX {
        return None;
    }
    let columns: Vec<usize> = ordered_columns(class, model).into_iter().take(ELF_COLUMNS_WANTED).collect();
    if columns.is_empty() || design.elves.iter().any(|elf| elf.columns.starts_with(&columns)) {
        return None;
    }
    let mut next = design.clone();
    next.elves.push(ElfDesign { name: String::new(), columns: columns.clone() });
    Some((Change::CreateElf(columns), next))
}

/// Other layouts that the table can have.
pub(super) fn layouts(table: &Table, model: &WorkloadModel<'_>, design: &Design) -> Vec<(Change, Design)> {
    let definition = table.definition();
    if definition.layout != design.layout || Design::of(table).dimensions != design.dimensions {
        // One change of the layout is enough.
        return Vec::new();
    }
    // Of `elf` the model knows neither the bytes nor the time to make a page: a statement alone chooses it.
    let is_proposed = |layout: &TableLayout| !matches!(layout, TableLayout::Clustered | TableLayout::Elf);
    let is_other = |layout: &TableLayout| *layout != design.layout && is_proposed(layout);
    // An Elf would have to be dropped first.
    let has_room = |layout: &TableLayout| *layout != TableLayout::Rows || design.elves.is_empty();
    let is_possible = |layout: &TableLayout| may_have(table, &(*layout).into());
    let others = TableLayout::ALL.into_iter().filter(is_other).filter(has_room).filter(is_possible);
    let next = |layout| {
        let next = Design { layout, dimensions: Vec::new(), ..design.clone() };
        (Change::SetLayout(layout), next)
    };
    let mut all: Vec<(Change, Design)> = others.map(next).collect();
    let declared = definition.clustering.iter().map(|of| of.dimensions.iter().map(|of| of.column).collect());
    let mut known: Vec<Vec<usize>> = Vec::new();
    for dimensions in declared.chain(dimensions(model, design)) {
        let is_new = design.layout != TableLayout::Clustered || dimensions != design.dimensions;
        if !is_new || known.contains(&dimensions) || !may_have(table, &clustered_by(table, &dimensions)) {
            continue;
        }
        let layout = TableLayout::Clustered;
        let next = Design { layout, dimensions: dimensions.clone(), ..design.clone() };
        all.push((Change::Cluster(dimensions.clone()), next));
        known.push(dimensions);
    }
    all
}

/// Layout `clustered` by dimensions, with the options that the definition has for them.
pub(super) fn clustered_by(table: &Table, dimensions: &[usize]) -> NewLayout {
    let is_it = |of: &&ClusteringDefinition| of.dimensions.iter().map(|of| &of.column).eq(dimensions);
    let declared = table.definition().clustering.as_ref().filter(is_it).cloned();
    let plain = || {
        let dimension = |column: &usize| Dimension { column: *column, bits: None };
        ClusteringDefinition::new(dimensions.iter().map(dimension).collect())
    };
    declared.unwrap_or_else(plain).into()
}

/// One to some of the columns that queries have conditions on, those of the dearest queries first.
fn dimensions(model: &WorkloadModel<'_>, design: &Design) -> Vec<Vec<usize>> {
    let mut weights: Vec<(f64, usize)> = Vec::new();
    for class in &model.classes {
        let ns = class.runs * class.query_ns(model.statistics, design);
        for (column, kind) in &class.class.conditions {
            if *kind == ConditionKind::Null || design.key.first() == Some(column) {
                continue;
            }
            match weights.iter_mut().find(|(_, known)| known == column) {
                Some((weight, _)) => *weight += ns,
                None => weights.push((ns, *column)),
            }
        }
    }
    weights.sort_by(|(first, _), (second, _)| second.total_cmp(first));
    let ordered: Vec<usize> = weights.into_iter().map(|(_, column)| column).collect();
    (1..=ordered.len().min(DIMENSIONS_WANTED)).map(|count| ordered[..count].to_vec()).collect()
}

//! Bytes of a table's definition in the catalog, described at [`TableDefinition::to_bytes`].

use crate::error::{Error, Result};
use crate::schema::clustering::ClusteringDefinition;
use crate::schema::definition::{
    Check, DEFINITION_BYTES_MAX, IndexDefinition, Retention, StatesBeside, TableDefinition, TableLayout,
};
use crate::schema::elf::{self, ElfLayout};
use crate::schema::parts::{Reader, put_text};
use crate::schema::versions::SchemaVersions;
use crate::schema::{Schema, invalid};
use entresol_structures::IndexStructure;
use entresol_transactions::TierChoice;

const SECTION_SCHEMA: u8 = 1;
const SECTION_SCHEMA_VERSIONS: u8 = 2;
const SECTION_DEFAULTS: u8 = 3;
const SECTION_KEY_NAME: u8 = 4;
const SECTION_CHECKS: u8 = 5;
const SECTION_INDEXES: u8 = 6;
const SECTION_PLACEMENT: u8 = 7;
const SECTION_OWNER: u8 = 8;
const SECTION_CHANGES: u8 = 9;
const SECTION_LAYOUT: u8 = 10;
const SECTION_ELVES: u8 = 11;
const SECTION_CLUSTERING: u8 = 12;
const SECTION_AUTO_LAYOUT: u8 = 13;
const SECTION_STRUCTURE: u8 = 14;
const SECTION_VERSION_SLOTS: u8 = 15;
const SECTION_PAGES: u8 = 16;
const SECTION_STRUCTURE_REASON: u8 = 17;
const SECTION_NODE_BYTES: u8 = 18;
const SECTION_ELF_LAYOUT: u8 = 19;
const SECTION_OBJECT_STORE: u8 = 20;
const SECTION_INDEX_REASONS: u8 = 21;
const SECTIONS: usize = SECTION_INDEX_REASONS as usize + 1;

/// Content of the section of a layout that follows the workload, and of that of pages.
const AUTO_LAYOUT: u8 = 1;
const PAGES: u8 = 1;

const LAYOUT_COLUMNS: u8 = 1;
const LAYOUT_CLUSTERED: u8 = 2;
const LAYOUT_ELF: u8 = 3;

const FLAG_UNIQUE: u8 = 1;
const FLAG_CONSTRAINT: u8 = 2;
const FLAG_PRIMARY: u8 = 4;
const FLAG_HASHED: u8 = 8;
const FLAGS_MASK: u8 = (1 << STRUCTURE_SHIFT) - 1;
/// Shift of the structure of an index beside its flags.
const STRUCTURE_SHIFT: u8 = 4;

impl TableDefinition {
    /// Encodes the definition for the catalog: sections, each of a tag (1), a length (4) and bytes,
    /// little-endian.
    ///
    /// | tag | bytes |
    /// | --- | --- |
    /// | 1 | the schema, as [`Schema::to_bytes`] gives it |
    /// | 2 | the schema versions; absent if columns were never added or dropped |
    /// | 3 | per default: column (2), SQL text |
    /// | 4 | the name of the PRIMARY KEY constraint; absent if it is generated |
    /// | 5 | per check: name, SQL text |
    /// | 6 | per index: name, flags (1: 1 unique, 2 constraint, 4 primary key, 8 hashed; the structure's number in the high 4 bits), state (4), number of columns (1), columns (2 each) |
    /// | 7 | placement (1 byte): 1 `dram`, 2 `pmem`, 3 `disk`; absent: `auto` |
    /// | 8 | name of the owner; absent if all may write |
    /// | 9 | state of the change log (4), retention in nanoseconds (8); absent if there is no log |
    /// | 10 | layout (1): 1 `columns`, 2 `clustered`, 3 `elf`; state of the row groups (4), that of the places (4; of 1 and 3 may be absent); absent: `rows` |
    /// | 11 | per Elf index: name, number (2), order of dimensions (1: 0 written, 1 auto), number of columns (1), columns (2 each) |
    ///
    /// | 12 | clustering: interleave (1), split (1), block bytes (4), per dimension: column (2), bits (1; 0: chosen) |
    /// | 13 | 1 (1) if the layout follows the workload; else absent |
    /// | 14 | number of the structure of the rows' index (1); absent: `fptree` |
    /// | 15 | version slots of the rows (1); absent: as many as the database's |
    /// | 16 | 1 (1) if rows may stand in pages; else absent |
    /// | 17 | reason of the structure |
    /// | 18 | bytes of nodes (2; 0: as many as the structure takes) of the rows' index and of each index; absent: all take them |
    /// | 19 | Elf of the layout `elf`, as one of 11; absent: it is the default |
    /// | 20 | URL of the object store; absent: row groups are in the pool |
    /// | 21 | per index: reason of its structure, which is empty where it was not chosen; absent: none was |
    ///
    /// A string is its length (4) and its UTF-8. Sections without content are absent.
    pub(crate) fn to_bytes(&self, states: &StatesBeside) -> Result<Vec<u8>> {
        assert_eq!(states.indexes.len(), self.indexes.len(), "every index has a state");
        assert_eq!(states.change_log.is_some(), self.changes.is_some(), "a change log has a state");
        assert_eq!(states.columns.is_some(), self.layout.has_row_groups(), "row groups have a state");
        assert!(states.places.is_some() || self.clustered_by().is_none(), "places of rows have a state");
        let mut bytes = Vec::with_capacity(128);
        section(&mut bytes, SECTION_SCHEMA, &self.schema.to_bytes());
        if !self.schema.schema_versions().is_plain() {
            section(&mut bytes, SECTION_SCHEMA_VERSIONS, &self.schema.schema_versions().to_bytes());
        }
        let mut part = Vec::new();
        for (column, default) in self.defaults.iter().enumerate() {
            if let Some(default) = default {
                part.extend_from_slice(&(column as u16).to_le_bytes());
                put_text(&mut part, default);
            }
        }
        section(&mut bytes, SECTION_DEFAULTS, &part);
        if let Some(name) = &self.key_name {
            section(&mut bytes, SECTION_KEY_NAME, name.as_bytes());
        }
        part.clear();
        for check in &self.checks {
            put_text(&mut part, &check.name);
            put_text(&mut part, &check.expression);
        }
        section(&mut bytes, SECTION_CHECKS, &part);
        section(&mut bytes, SECTION_INDEXES, &self.indexes_to_bytes(&states.indexes));
        section(&mut bytes, SECTION_PLACEMENT, placement_code(self.placement).as_slice());
        section(&mut bytes, SECTION_OWNER, self.owner.as_deref().unwrap_or_default().as_bytes());
        if let (Some(state), Some(retention)) = (states.change_log, self.changes) {
            part.clear();
            part.extend_from_slice(&state.to_le_bytes());
            part.extend_from_slice(&retention.nanoseconds().to_le_bytes());
            section(&mut bytes, SECTION_CHANGES, &part);
        }
        if let Some(state) = states.columns {
            part.clear();
            part.push(match self.layout {
                TableLayout::Clustered => LAYOUT_CLUSTERED,
                TableLayout::Elf => LAYOUT_ELF,
                TableLayout::Rows | TableLayout::Columns => LAYOUT_COLUMNS,
            });
            part.extend_from_slice(&state.to_le_bytes());
            states.places.iter().for_each(|places| part.extend_from_slice(&places.to_le_bytes()));
            section(&mut bytes, SECTION_LAYOUT, &part);
        }
        section(&mut bytes, SECTION_ELVES, &elf::to_bytes(&self.elves));
        if let Some(clustering) = &self.clustering {
            section(&mut bytes, SECTION_CLUSTERING, &clustering.to_bytes());
        }
        if self.elf_layout != ElfLayout::default() {
            section(&mut bytes, SECTION_ELF_LAYOUT, &self.elf_layout.to_bytes());
        }
        if self.auto_layout {
            section(&mut bytes, SECTION_AUTO_LAYOUT, &[AUTO_LAYOUT]);
        }
        self.add_structures(&mut bytes);
        if let Some(slots) = self.version_slots {
            section(&mut bytes, SECTION_VERSION_SLOTS, &[slots]);
        }
        section(
            &mut bytes,
            SECTION_OBJECT_STORE,
            self.object_store.as_deref().unwrap_or_default().as_bytes(),
        );
        if self.pages {
            section(&mut bytes, SECTION_PAGES, &[PAGES]);
        }
        if bytes.len() > DEFINITION_BYTES_MAX {
            return Err(invalid(format!(
                "the definition takes {} bytes, at most {DEFINITION_BYTES_MAX} are possible",
                bytes.len()
            )));
        }
        Ok(bytes)
    }

    /// Adds the sections of the structures of all indexes: which, their nodes, and the reasons.
    fn add_structures(&self, bytes: &mut Vec<u8>) {
        if self.structure != IndexStructure::default() {
            section(bytes, SECTION_STRUCTURE, &[self.structure.number()]);
        }
        let of_indexes = self.indexes.iter().map(|index| index.node_bytes);
        let sizes: Vec<Option<u16>> = std::iter::once(self.node_bytes).chain(of_indexes).collect();
        if sizes.iter().any(Option::is_some) {
            let sizes = sizes.into_iter().flat_map(|size| size.unwrap_or(0).to_le_bytes());
            section(bytes, SECTION_NODE_BYTES, &sizes.collect::<Vec<u8>>());
        }
        if let Some(reason) = &self.structure_reason {
            section(bytes, SECTION_STRUCTURE_REASON, reason.as_bytes());
        }
        if self.indexes.iter().any(|index| index.structure_reason.is_some()) {
            let mut part = Vec::new();
            let reasons = self.indexes.iter().map(|index| index.structure_reason.as_deref());
            reasons.for_each(|reason| put_text(&mut part, reason.unwrap_or_default()));
            section(bytes, SECTION_INDEX_REASONS, &part);
        }
    }

    /// Section of the indexes, each with its state.
    fn indexes_to_bytes(&self, states: &[u32]) -> Vec<u8> {
        let mut part = Vec::new();
        for (index, state) in self.indexes.iter().zip(states) {
            put_text(&mut part, &index.name);
            let unique = if index.unique { FLAG_UNIQUE } else { 0 };
            let primary = if index.primary { FLAG_PRIMARY } else { 0 };
            let structure = index.structure.number() << STRUCTURE_SHIFT;
            let hashed = if index.hashed { FLAG_HASHED } else { 0 };
            let constraint = if index.constraint { FLAG_CONSTRAINT } else { 0 };
            part.push(structure | unique | primary | constraint | hashed);
            part.extend_from_slice(&state.to_le_bytes());
            part.push(index.columns.len() as u8);
            index.columns.iter().for_each(|column| part.extend_from_slice(&(*column as u16).to_le_bytes()));
        }
        part
    }

    /// Decodes the bytes of [`TableDefinition::to_bytes`]; others are `Corrupt`.
    pub(crate) fn from_bytes(table: &str, bytes: &[u8]) -> Result<(TableDefinition, StatesBeside)> {
        let corrupt =
            || Error::corrupt(format!("definition of table {table} in the catalog"), "malformed bytes");
        let (definition, states) = read(bytes).ok_or_else(corrupt)??;
        definition.check(table).map_err(|error| {
            Error::corrupt(format!("definition of table {table} in the catalog"), error.to_string())
        })?;
        Ok((definition, states))
    }
}

fn section(bytes: &mut Vec<u8>, tag: u8, part: &[u8]) {
    if !part.is_empty() {
        bytes.push(tag);
        bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
        bytes.extend_from_slice(part);
    }
}

fn placement_code(placement: TierChoice) -> Option<u8> {
    match placement {
        TierChoice::Auto => None,
        TierChoice::Dram => Some(1),
        TierChoice::Pmem => Some(2),
        TierChoice::Disk => Some(3),
    }
}

/// Sections of a definition by their tags; `None` if the bytes are malformed.
fn sections_of(bytes: &[u8]) -> Option<[Option<&[u8]>; SECTIONS]> {
    let mut sections: [Option<&[u8]>; SECTIONS] = [None; SECTIONS];
    let mut reader = Reader(bytes);
    while !reader.0.is_empty() {
        let tag = reader.byte()?;
        let length = reader.number()? as usize;
        let place = sections.get_mut(usize::from(tag))?;
        if place.replace(reader.take(length)?).is_some() {
            return None;
        }
    }
    Some(sections)
}

/// Definition of an index, and the number of its state; `None` if the bytes are malformed.
fn read_index(reader: &mut Reader<'_>) -> Option<(IndexDefinition, u32)> {
    let (name, flags) = (reader.text()?, reader.byte()?);
    let structure = IndexStructure::from_number(flags >> STRUCTURE_SHIFT)?;
    if flags & FLAGS_MASK & !(FLAG_UNIQUE | FLAG_CONSTRAINT | FLAG_PRIMARY | FLAG_HASHED) != 0 {
        return None;
    }
    let state = reader.number()?;
    let count = usize::from(reader.byte()?);
    let columns: Option<Vec<usize>> = (0..count).map(|_| reader.short()).collect();
    let has = |flag: u8| flags & flag != 0;
    let definition = IndexDefinition {
        name,
        columns: columns?,
        unique: has(FLAG_UNIQUE),
        constraint: has(FLAG_CONSTRAINT),
        primary: has(FLAG_PRIMARY),
        structure,
        structure_reason: None,
        node_bytes: None,
        hashed: has(FLAG_HASHED),
    };
    Some((definition, state))
}

/// Layout of a table with row groups; their state, and that of the places, come into `states`.
fn read_layout(section: &[u8], states: &mut StatesBeside) -> Option<TableLayout> {
    let mut reader = Reader(section);
    let layout = reader.byte()?;
    states.columns = Some(reader.number()?);
    match layout {
        LAYOUT_COLUMNS | LAYOUT_ELF => {
            states.places = if reader.0.is_empty() { None } else { Some(reader.number()?) };
            Some(if layout == LAYOUT_ELF { TableLayout::Elf } else { TableLayout::Columns })
        }
        LAYOUT_CLUSTERED => {
            states.places = Some(reader.number()?);
            Some(TableLayout::Clustered)
        }
        _ => None,
    }
}

/// Reads the bytes of the nodes of the rows' index, and of each index.
fn read_node_bytes(section: &[u8], definition: &mut TableDefinition) -> Option<()> {
    let mut reader = Reader(section);
    let mut size = || reader.short().map(|bytes| (bytes > 0).then_some(bytes as u16));
    definition.node_bytes = size()?;
    for index in &mut definition.indexes {
        index.node_bytes = size()?;
    }
    reader.0.is_empty().then_some(())
}

/// Reads the reasons of the structures of the indexes.
fn read_index_reasons(section: &[u8], definition: &mut TableDefinition) -> Option<()> {
    let mut reader = Reader(section);
    for index in &mut definition.indexes {
        let reason = reader.text()?;
        index.structure_reason = (!reason.is_empty()).then_some(reason);
    }
    reader.0.is_empty().then_some(())
}

/// Value of a section that is there with one content, or not at all.
fn read_flag(section: Option<&[u8]>, content: u8) -> Option<bool> {
    match section {
        None => Some(false),
        Some(bytes) => (bytes == [content]).then_some(true),
    }
}

/// `None` if the bytes are malformed, `Some(Err)` if they break a rule.
fn read(bytes: &[u8]) -> Option<Result<(TableDefinition, StatesBeside)>> {
    let sections = sections_of(bytes)?;
    let part = |tag: u8| sections[usize::from(tag)];
    let schema = match Schema::from_bytes(part(SECTION_SCHEMA)?) {
        Ok(schema) => schema,
        Err(error) => return Some(Err(error)),
    };
    let schema = match part(SECTION_SCHEMA_VERSIONS) {
        None => schema,
        Some(history) => match schema
            .with_schema_versions(SchemaVersions::from_bytes(schema.visible_columns(), history)?)
        {
            Ok(schema) => schema,
            Err(error) => return Some(Err(error)),
        },
    };
    let mut definition = TableDefinition::plain(schema);
    if let Some(code) = part(SECTION_PLACEMENT) {
        let is_meant = |choice: &TierChoice| placement_code(*choice).as_slice() == code;
        definition.placement = TierChoice::ALL.into_iter().find(is_meant)?;
    }
    if let Some(owner) = part(SECTION_OWNER) {
        definition.owner = Some(std::str::from_utf8(owner).ok()?.to_owned());
    }
    let mut reader = Reader(part(SECTION_DEFAULTS).unwrap_or_default());
    while !reader.0.is_empty() {
        let column = reader.short()?;
        *definition.defaults.get_mut(column)? = Some(reader.text()?);
    }
    if let Some(name) = part(SECTION_KEY_NAME) {
        definition.key_name = Some(std::str::from_utf8(name).ok()?.to_owned());
    }
    let mut reader = Reader(part(SECTION_CHECKS).unwrap_or_default());
    while !reader.0.is_empty() {
        definition.checks.push(Check { name: reader.text()?, expression: reader.text()? });
    }
    let mut reader = Reader(part(SECTION_INDEXES).unwrap_or_default());
    let mut states = StatesBeside::default();
    while !reader.0.is_empty() {
        let (index, state) = read_index(&mut reader)?;
        definition.indexes.push(index);
        states.indexes.push(state);
    }
    if let Some(part) = part(SECTION_CHANGES) {
        let mut reader = Reader(part);
        states.change_log = Some(reader.number()?);
        let retention = u64::from_le_bytes(reader.0.try_into().ok()?);
        definition.changes = Some(Retention::from_nanoseconds(retention));
    }
    if let Some(part) = part(SECTION_LAYOUT) {
        definition.layout = read_layout(part, &mut states)?;
    }
    if let Some(part) = part(SECTION_STRUCTURE) {
        let [number] = *part else { return None };
        definition.structure = IndexStructure::from_number(number)?;
    }
    if let Some(sizes) = part(SECTION_NODE_BYTES) {
        read_node_bytes(sizes, &mut definition)?;
    }
    if let Some(reason) = part(SECTION_STRUCTURE_REASON) {
        definition.structure_reason = Some(std::str::from_utf8(reason).ok()?.to_owned());
    }
    if let Some(reasons) = part(SECTION_INDEX_REASONS) {
        read_index_reasons(reasons, &mut definition)?;
    }
    if let Some(part) = part(SECTION_VERSION_SLOTS) {
        let [slots] = *part else { return None };
        definition.version_slots = Some(slots);
    }
    if let Some(part) = part(SECTION_CLUSTERING) {
        definition.clustering = Some(ClusteringDefinition::from_bytes(part)?);
    }
    if let Some(part) = part(SECTION_ELF_LAYOUT) {
        definition.elf_layout = ElfLayout::from_bytes(part)?;
    }
    if let Some(url) = part(SECTION_OBJECT_STORE) {
        definition.object_store = Some(std::str::from_utf8(url).ok()?.to_owned());
    }
    definition.pages = read_flag(part(SECTION_PAGES), PAGES)?;
    definition.auto_layout = read_flag(part(SECTION_AUTO_LAYOUT), AUTO_LAYOUT)?;
    definition.elves = elf::from_bytes(part(SECTION_ELVES).unwrap_or_default())?;
    Some(Ok((definition, states)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Column;
    use crate::schema::definition::tests::definition;
    use crate::schema::elf::{DimensionOrder, ElfCaching, ElfDefinition};
    use crate::value::DataType;

    fn beside() -> StatesBeside {
        StatesBeside { indexes: vec![7, 8], change_log: Some(9), ..StatesBeside::default() }
    }

    #[test]
    fn a_definition_is_read_as_it_was_written() {
        let bytes = definition().to_bytes(&beside()).unwrap();
        assert_eq!(TableDefinition::from_bytes("t", &bytes).unwrap(), (definition(), beside()));
        let plain =
            TableDefinition::plain(Schema::new(vec![Column::new("a", DataType::Int)], &[""; 0]).unwrap());
        let bytes = plain.to_bytes(&StatesBeside::default()).unwrap();
        assert_eq!(
            TableDefinition::from_bytes("t", &bytes).unwrap(),
            (plain.clone(), StatesBeside::default())
        );
        for structure in IndexStructure::ALL {
            let other = TableDefinition { structure, ..plain.clone() };
            let other_bytes = other.to_bytes(&StatesBeside::default()).unwrap();
            let read = TableDefinition::from_bytes("t", &other_bytes).unwrap();
            assert_eq!(read, (other, StatesBeside::default()));
            let is_default = structure == IndexStructure::default();
            assert_eq!(other_bytes == bytes, is_default, "as earlier releases wrote it");
            for size in structure.node_sizes().iter().skip(1) {
                let sized = TableDefinition { node_bytes: Some(*size), structure, ..plain.clone() };
                let sized_bytes = sized.to_bytes(&StatesBeside::default()).unwrap();
                let read = TableDefinition::from_bytes("t", &sized_bytes).unwrap();
                assert_eq!(read, (sized, StatesBeside::default()));
            }
        }
        for placement in TierChoice::ALL {
            let placed = TableDefinition { placement, ..plain.clone() };
            let placed_bytes = placed.to_bytes(&StatesBeside::default()).unwrap();
            assert_eq!(
                TableDefinition::from_bytes("t", &placed_bytes).unwrap(),
                (placed, StatesBeside::default())
            );
            assert_eq!(placed_bytes == bytes, placement == TierChoice::Auto, "as earlier releases wrote it");
        }
    }

    /// Definition of the other layout, with Elf indexes.
    fn by_columns() -> (TableDefinition, StatesBeside) {
        let elf = |name: &str, columns: &[usize], order, caching, number| ElfDefinition {
            name: name.into(),
            columns: columns.to_vec(),
            order,
            caching,
            number,
        };
        let mut definition = definition();
        (definition.indexes, definition.changes) = (Vec::new(), None);
        (definition.layout, definition.auto_layout) = (TableLayout::Columns, true);
        definition.object_store = Some("file:///data/objects".into());
        let policy = "levels:2+lla".parse().unwrap();
        let lists = ElfCaching::Lists { policy, percent: 3, mono_lists: true };
        definition.elves = vec![
            elf("e", &[2, 0], DimensionOrder::Auto, ElfCaching::Whole, 7),
            elf("f", &[1], DimensionOrder::Written, lists, 300),
        ];
        (definition, StatesBeside { columns: Some(4), ..StatesBeside::default() })
    }

    #[test]
    fn elves_are_read_as_they_were_written_and_damage_never_panics() {
        let (definition, beside) = by_columns();
        definition.check("t").unwrap();
        let bytes = definition.to_bytes(&beside).unwrap();
        assert_eq!(TableDefinition::from_bytes("t", &bytes).unwrap(), (definition, beside.clone()));
        let mut of_elf = by_columns().0;
        (of_elf.layout, of_elf.auto_layout) = (TableLayout::Elf, false);
        let caching = of_elf.elves[1].caching;
        for elf_layout in [ElfLayout::default(), ElfLayout { dimensions: vec![2, 0], caching }] {
            let of_elf = TableDefinition { elf_layout, ..of_elf.clone() };
            for places in [None, Some(11)] {
                let beside = StatesBeside { places, ..beside.clone() };
                let bytes = of_elf.to_bytes(&beside).unwrap();
                assert_eq!(TableDefinition::from_bytes("t", &bytes).unwrap(), (of_elf.clone(), beside));
            }
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                match TableDefinition::from_bytes("t", &damaged) {
                    Ok((read, _)) => read.check("t").unwrap(),
                    Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "{error}"),
                }
            }
        }
        let broken = |change: fn(&mut TableDefinition)| {
            let mut definition = by_columns().0;
            change(&mut definition);
            definition.check("t").unwrap_err().to_string()
        };
        assert!(broken(|d| d.elves[1].columns = vec![9]).contains("index f: column 9"));
        assert!(broken(|d| d.elves[1].columns = vec![1, 1]).contains("name appears twice"));
        assert!(broken(|d| d.elves[1].columns = (0..65).collect()).contains("1 to 64 columns, not 65"));
        assert!(broken(|d| d.elves[1].number = 7).contains("index f: another one has its number"));
        assert!(broken(|d| d.elves[1].name = "e".into()).contains("\"e\""));
        assert!(broken(|d| d.object_store = Some("ftp://x".into())).contains("no store for \"ftp\""));
        assert!(broken(|d| d.layout = TableLayout::Rows).contains("USING btree"));
        assert!(broken(|d| d.elf_layout.dimensions = vec![0]).contains("of layout 'columns' has elf_by"));
        let of_elf = |dimensions: Vec<usize>| {
            let mut definition = by_columns().0;
            (definition.layout, definition.elf_layout.dimensions) = (TableLayout::Elf, dimensions);
            definition.check("t").unwrap_err().to_string()
        };
        assert!(of_elf(vec![9]).contains("elf_by of table t: column 9"));
        assert!(of_elf(vec![1, 1]).contains("elf_by of table t: column name appears twice"));
    }

    #[test]
    fn damaged_bytes_never_panic() {
        let bytes = definition().to_bytes(&beside()).unwrap();
        for at in 0..bytes.len() {
            assert!(TableDefinition::from_bytes("t", &bytes[..at]).is_err() || at > 0);
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                match TableDefinition::from_bytes("t", &damaged) {
                    Ok((read, _)) => read.check("t").unwrap(),
                    Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "{error}"),
                }
            }
        }
    }
}

//! The tables' definitions, from `schema.sql`.

use super::swap::loading_name;
use crate::Layout;

const SCHEMA: &str = include_str!("../../schema.sql");

/// Clause of CREATE TABLE for a layout.
fn layout_clause(layout: Layout) -> &'static str {
    match layout {
        Layout::Rows => "",
        Layout::Columns => " WITH (layout = 'columns')",
    }
}

/// CREATE TABLE of one of the tables, under its name while it is loaded.
pub(super) fn create_table(table: &str, layout: Layout) -> String {
    let beginning = format!("CREATE TABLE {table} (");
    let (_, rest) = SCHEMA.split_once(&beginning).expect("schema.sql has all tables");
    let (columns, _) = rest.split_once("\n);").expect("a table in schema.sql ends with a line );");
    format!("CREATE TABLE {} ({columns}\n){}", loading_name(table), layout_clause(layout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TABLES;

    #[test]
    fn all_tables_are_defined_with_their_layout() {
        let columns = TABLES.map(|table| {
            let plain = create_table(table, Layout::Rows);
            assert!(plain.starts_with("CREATE TABLE ssb_loading_") && plain.ends_with("\n)"), "{plain}");
            assert_eq!(create_table(table, Layout::Columns), format!("{plain} WITH (layout = 'columns')"));
            assert_eq!(plain.contains("PRIMARY KEY"), table != "lineorder");
            plain.matches("NOT NULL").count()
        });
        assert_eq!(columns, [8, 7, 9, 17, 17]);
    }
}

//! CREATE, ALTER, DROP, and the maintenance of relations: VACUUM, ANALYZE, TRUNCATE, BACKUP.

pub(crate) mod alter;
pub(crate) mod backup;
pub(crate) mod clustering;
pub(crate) mod comments;
pub(crate) mod create_table;
mod elf;
pub(crate) mod elf_layout;
pub(crate) mod generated;
pub(crate) mod layout;
pub(crate) mod maintenance;
pub(crate) mod owned_tables;
pub(crate) mod ownership;
pub(crate) mod restored_definition;
pub(crate) mod sequences;
pub(crate) mod statements;
pub(crate) mod stored_topologies;
pub(crate) mod table_definition;
pub(crate) mod table_options;
pub(crate) mod vacuum;
pub(crate) mod views;

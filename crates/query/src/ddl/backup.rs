//! `BACKUP TO 'directory'`: a backup of the open database, while other sessions go on writing.
//!
//! Only outside of a transaction block; [`entresol_tables::Catalog::backup`] documents its contents.

use crate::error::Result;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::result::StatementResult;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) async fn run(session: &SessionCore, destination: PathBuf) -> Result<StatementResult> {
    let catalog = Arc::clone(&session.catalog);
    blocking(move || catalog.backup(&destination)).await??;
    Ok(StatementResult::Done { verb: "BACKUP" })
}

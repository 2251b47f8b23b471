//! `BACKUP TO 'directory'`: a backup of the open database, while other sessions go on writing.
//!
//! Only outside of a transaction block; [`entresol_memory::Pool::backup`] documents its contents.

use crate::error::Result;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::result::StatementResult;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) async fn run(session: &SessionCore, destination: PathBuf) -> Result<StatementResult> {
    let pool = Arc::clone(session.catalog.context().pool());
    blocking(move || pool.backup(&destination)).await?.map_err(entresol_tables::Error::from)?;
    Ok(StatementResult::Done { verb: "BACKUP" })
}

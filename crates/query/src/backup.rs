//! `BACKUP TO 'directory'`: a backup of the open database, while others go on writing.
//!
//! Outside of a transaction only; what it holds is said at [`entresol_memory::Pool::backup`].

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::Result;
use crate::result::StatementResult;
use crate::session::{Session, blocking};

pub(crate) async fn run(session: &Session, destination: PathBuf) -> Result<StatementResult> {
    let pool = Arc::clone(session.catalog.context().pool());
    blocking(move || pool.backup(&destination)).await?.map_err(entresol_tables::Error::from)?;
    Ok(StatementResult::Done { verb: "BACKUP" })
}

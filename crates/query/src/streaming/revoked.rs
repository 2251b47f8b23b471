//! Topologies that end because their owners lost a privilege that they need.
//!
//! They end behind the statement that revokes it, with their open transaction, and are shown as failed; nothing of that is
//! stored. RESUME starts them again once the privilege is there, as opening the database does.

use crate::ddl::stored_topologies;
use crate::error::Result;
use crate::session::authority::DENIED;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::owners;
use crate::streaming::starting::parse;
use crate::streaming::steps;

/// Ends the topologies that run and whose owners may no longer do what they do: behind a statement that revokes privileges.
pub(crate) async fn stop_denied(session: &SessionCore) -> Result<()> {
    let topologies = session.options.topologies.clone();
    let _changing = topologies.changing().await;
    if owners::all(&session.catalog)?.is_empty() {
        return Ok(());
    }
    for stored in stored_topologies::topologies(&session.catalog)? {
        let name = stored.name;
        if !topologies.is_running(&name) {
            continue;
        }
        let Err(error) = steps::plan(session, &parse(&stored.text)?).await else { continue };
        if error.sqlstate() != DENIED {
            continue;
        }
        tracing::warn!(topology = name, %error, "a topology ends: its owner lost a privilege");
        let (topologies, reason) = (topologies.clone(), error.to_string());
        blocking(move || {
            topologies.pause(&name);
            topologies.fail(&name, reason);
        })
        .await?;
    }
    Ok(())
}

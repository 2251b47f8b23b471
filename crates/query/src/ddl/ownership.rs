//! Check that a statement on a source, stream, topology or materialized view is one of its owner, or of a superuser.

use crate::error::Result;
use crate::session::authority::denied;
use crate::session::core::SessionCore;
use crate::session::materialized::streamed_by;
use crate::session::owners::{OwnedObject, owner_of};

/// Refuses a statement on an object of another role. One that is not there is left to the statement.
pub(crate) fn check_owner(session: &SessionCore, (object, name): (OwnedObject, &str)) -> Result<()> {
    let authority = &session.variables.authority;
    let catalog = &session.catalog;
    if authority.is_superuser() || !object.exists(catalog, &*catalog.begin()?, name)? {
        return Ok(());
    }
    if owner_of(catalog, object, name)? == authority.owner() {
        return Ok(());
    }
    let topologies = &session.options.topologies;
    let noun = match object {
        OwnedObject::Topology if topologies.is_sink(name) => "sink",
        OwnedObject::Topology if topologies.is_view(name) => OwnedObject::MaterializedView.noun(),
        object => object.noun(),
    };
    Err(denied(format!("must be owner of {noun} {name}")))
}

/// Refuses a statement on a materialized view of another role.
pub(crate) fn check_view_owner(session: &SessionCore, name: &str) -> Result<()> {
    let table = session.catalog.table(name);
    let is_over_streams =
        session.options.topologies.is_view(name) || table.is_ok_and(|table| streamed_by(&table).is_some());
    let object = if is_over_streams { OwnedObject::Topology } else { OwnedObject::MaterializedView };
    check_owner(session, (object, name))
}

//! ALTER … OWNER TO: what an object is, and its next owner.

use crate::ddl::stored_topologies;
use crate::error::{Error, Result};
use crate::materialized::deferred;
use crate::parser::own::owner::OwnerTarget;
use crate::parser::own::streaming::StreamObject;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::materialized::maintained_by;
use crate::session::owners::{self, OwnedObject};
use crate::streaming::starting::stored;
use crate::streaming::stream_views;
use entresol_tables::RelationKind;
use std::sync::Arc;

/// Gives an object to a role; none: to the superusers. A running topology goes on, also with what
/// its next owner may not do: the caller stops those.
pub(crate) async fn change_owner(
    session: &SessionCore,
    (target, name): (OwnerTarget, &str),
    to: Option<&str>,
) -> Result<()> {
    let _topologies = session.options.topologies.changing().await;
    let _views = session.options.materialized.changing().await;
    match owned_object(session, target, name)? {
        Some(object) => {
            let (catalog, name, to) = (Arc::clone(&session.catalog), name.to_owned(), to.map(str::to_owned));
            blocking(move || owners::set(&catalog, (object, &name), to.as_deref())).await?
        }
        None => to.map_or(Ok(()), |role| {
            Err(Error::unsupported(format!(
                "{name} of role {role}, who lacks SUPERUSER: tables, views and sequences belong to the superusers, and privileges on them are granted"
            )))
        }),
    }
}

/// Object that a statement means; none if it is one that only superusers own. Errors: 42704 or 42P01 if it is not there, 42809 if
/// it is of another kind.
fn owned_object(session: &SessionCore, target: OwnerTarget, name: &str) -> Result<Option<OwnedObject>> {
    let catalog = &session.catalog;
    let missing = |noun: &str| Error::coded("42704", format!("{noun} \"{name}\" does not exist"));
    let topology = |object| {
        stored(session, name, object)?;
        let is_deferred = deferred::is_deferred(catalog, name)?;
        Ok(Some(if is_deferred { OwnedObject::MaterializedView } else { OwnedObject::Topology }))
    };
    match target {
        OwnerTarget::Source => {
            let source = stored_topologies::source(catalog, name)?;
            source.map(|_| Some(OwnedObject::Source)).ok_or_else(|| missing("source"))
        }
        OwnerTarget::Stream => {
            let step = stored_topologies::stream(catalog, name)?.ok_or_else(|| missing("stream"))?;
            stream_views::check_kind(&step, name, "stream")?;
            Ok(Some(OwnedObject::Stream))
        }
        OwnerTarget::Topology => topology(StreamObject::Topology),
        OwnerTarget::Sink => topology(StreamObject::Sink),
        OwnerTarget::MaterializedView if session.options.topologies.is_view(name) => {
            Ok(Some(OwnedObject::Topology))
        }
        OwnerTarget::MaterializedView | OwnerTarget::Table | OwnerTarget::View | OwnerTarget::Sequence => {
            relation(session, target, name)
        }
    }
}

/// Object of a relation: a view over streams and a materialized view may have an owner.
fn relation(session: &SessionCore, target: OwnerTarget, name: &str) -> Result<Option<OwnedObject>> {
    let catalog = &session.catalog;
    if target == OwnerTarget::View && stored_topologies::stream(catalog, name)?.is_some() {
        return Ok(Some(OwnedObject::Stream));
    }
    let (wanted, noun) = match target {
        OwnerTarget::View => (RelationKind::View, "view"),
        OwnerTarget::Sequence => (RelationKind::Sequence, "sequence"),
        OwnerTarget::MaterializedView => (RelationKind::Table, "materialized view"),
        _ => (RelationKind::Table, "table"),
    };
    let is_materialized = catalog.table(name).is_ok_and(|table| maintained_by(&table) == Some(name));
    match catalog.relation_kind(name) {
        None => Err(Error::coded("42P01", format!("relation \"{name}\" does not exist"))),
        Some(kind) if kind != wanted => Err(Error::coded("42809", format!("\"{name}\" is not a {noun}"))),
        Some(_) if is_materialized => Ok(Some(OwnedObject::MaterializedView)),
        Some(_) if target == OwnerTarget::MaterializedView => {
            Err(Error::coded("42809", format!("\"{name}\" is not a {noun}")))
        }
        Some(_) => Ok(None),
    }
}

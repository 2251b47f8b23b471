//! All relations of `pg_catalog` and `information_schema`.

use super::relation::{Registry, Relation, empty, relation};
use super::rows::activity;
use super::rows::comments;
use super::rows::information;
use super::rows::loads;
use super::rows::materialized;
use super::rows::named;
use super::rows::relations;
use super::rows::server;
use super::rows::statistics;
use super::rows::vacuum;
use crate::schema_names::{INFORMATION_SCHEMA, PG_CATALOG};

/// Relations by schema.
pub(crate) static REGISTRY: Registry =
    Registry(&[(PG_CATALOG, RELATIONS), (INFORMATION_SCHEMA, information::RELATIONS)]);

/// The relations of `pg_catalog`.
static RELATIONS: &[Relation] = &[
    relation(
        1259,
        "pg_class",
        "oid oid, relname name, relnamespace oid, reltype oid, reloftype oid, relowner oid, relam oid, \
         relfilenode oid, reltablespace oid, relpages int4, reltuples float4, relallvisible int4, \
         reltoastrelid oid, relhasindex bool, relisshared bool, relpersistence char, relkind char, \
         relnatts int2, relchecks int2, relhasrules bool, relhastriggers bool, relhassubclass bool, \
         relrowsecurity bool, relforcerowsecurity bool, relispopulated bool, relreplident char, \
         relispartition bool, relrewrite oid, relfrozenxid xid, relminmxid xid, relacl text[], \
         reloptions text[], relpartbound text",
        relations::classes,
    ),
    relation(
        1249,
        "pg_attribute",
        "attrelid oid, attname name, atttypid oid, attlen int2, attnum int2, attcacheoff int4, \
         atttypmod int4, attndims int2, attbyval bool, attalign char, attstorage char, attcompression char, \
         attnotnull bool, atthasdef bool, atthasmissing bool, attidentity char, attgenerated char, \
         attisdropped bool, attislocal bool, attinhcount int2, attstattarget int2, attcollation oid, \
         attacl text[], attoptions text[], attfdwoptions text[], attmissingval text[]",
        relations::attributes,
    ),
    relation(
        2610,
        "pg_index",
        "indexrelid oid, indrelid oid, indnatts int2, indnkeyatts int2, indisunique bool, \
         indnullsnotdistinct bool, indisprimary bool, indisexclusion bool, indimmediate bool, \
         indisclustered bool, indisvalid bool, indcheckxmin bool, indisready bool, indislive bool, \
         indisreplident bool, indkey int2[], indcollation oid[], indclass oid[], indoption int2[], \
         indexprs text, indpred text",
        relations::indexes,
    ),
    relation(
        2606,
        "pg_constraint",
        "oid oid, conname name, connamespace oid, contype char, condeferrable bool, condeferred bool, \
         convalidated bool, conrelid oid, contypid oid, conindid oid, conparentid oid, confrelid oid, \
         confupdtype char, confdeltype char, confmatchtype char, conislocal bool, coninhcount int2, \
         connoinherit bool, conkey int2[], confkey int2[], conpfeqop oid[], conppeqop oid[], \
         conffeqop oid[], confdelsetcols int2[], conexclop oid[], conbin text",
        relations::constraints,
    ),
    relation(2604, "pg_attrdef", "oid oid, adrelid oid, adnum int2, adbin text", relations::defaults),
    relation(
        0,
        "pg_tables",
        "schemaname name, tablename name, tableowner name, tablespace name, hasindexes bool, \
         hasrules bool, hastriggers bool, rowsecurity bool",
        relations::tables,
    ),
    relation(
        0,
        "pg_indexes",
        "schemaname name, tablename name, indexname name, tablespace name, indexdef text",
        relations::index_definitions,
    ),
    relation(
        0,
        "pg_stat_user_tables",
        "relid oid, schemaname name, relname name, seq_scan int8, idx_scan int8, n_live_tup int8, \
         n_dead_tup int8, last_vacuum timestamptz, last_analyze timestamptz",
        relations::user_tables,
    ),
    relation(0, "pg_stat_activity", activity::COLUMNS, activity::activities),
    relation(2615, "pg_namespace", "oid oid, nspname name, nspowner oid, nspacl text[]", server::namespaces),
    relation(
        1262,
        "pg_database",
        "oid oid, datname name, datdba oid, encoding int4, datlocprovider char, datistemplate bool, \
         datallowconn bool, datconnlimit int4, datfrozenxid xid, datminmxid xid, dattablespace oid, \
         datcollate text, datctype text, daticulocale text, daticurules text, datcollversion text, \
         datacl text[]",
        server::databases,
    ),
    relation(
        1260,
        "pg_authid",
        "oid oid, rolname name, rolsuper bool, rolinherit bool, rolcreaterole bool, rolcreatedb bool, \
         rolcanlogin bool, rolreplication bool, rolbypassrls bool, rolconnlimit int4, rolpassword text, \
         rolvaliduntil timestamptz",
        server::authids,
    ),
    relation(
        0,
        "pg_roles",
        "rolname name, rolsuper bool, rolinherit bool, rolcreaterole bool, rolcreatedb bool, \
         rolcanlogin bool, rolreplication bool, rolconnlimit int4, rolpassword text, \
         rolvaliduntil timestamptz, rolbypassrls bool, rolconfig text[], oid oid",
        server::roles,
    ),
    relation(
        0,
        "pg_user",
        "usename name, usesysid oid, usecreatedb bool, usesuper bool, userepl bool, usebypassrls bool, \
         passwd text, valuntil timestamptz, useconfig text[]",
        server::users,
    ),
    relation(
        0,
        "pg_settings",
        "name text, setting text, unit text, category text, short_desc text, extra_desc text, \
         context text, vartype text, source text, min_val text, max_val text, enumvals text[], \
         boot_val text, reset_val text, sourcefile text, sourceline int4, pending_restart bool",
        server::settings,
    ),
    relation(2601, "pg_am", "oid oid, amname name, amhandler regproc, amtype char", server::access_methods),
    relation(
        1247,
        "pg_type",
        "oid oid, typname name, typnamespace oid, typowner oid, typlen int2, typbyval bool, typtype char, \
         typcategory char, typispreferred bool, typisdefined bool, typdelim char, typrelid oid, \
         typsubscript regproc, typelem oid, typarray oid, typinput regproc, typoutput regproc, \
         typreceive regproc, typsend regproc, typmodin regproc, typmodout regproc, typanalyze regproc, \
         typalign char, typstorage char, typnotnull bool, typbasetype oid, typtypmod int4, typndims int4, \
         typcollation oid, typdefaultbin text, typdefault text, typacl text[]",
        server::types,
    ),
    relation(
        1255,
        "pg_proc",
        "oid oid, proname name, pronamespace oid, proowner oid, prolang oid, procost float4, \
         prorows float4, provariadic oid, prosupport regproc, prokind char, prosecdef bool, \
         proleakproof bool, proisstrict bool, proretset bool, provolatile char, proparallel char, \
         pronargs int2, pronargdefaults int2, prorettype oid, proargtypes oid[], proallargtypes oid[], \
         proargmodes text[], proargnames text[], proargdefaults text, protrftypes oid[], prosrc text, \
         probin text, prosqlbody text, proconfig text[], proacl text[]",
        server::functions,
    ),
    relation(
        3456,
        "pg_collation",
        "oid oid, collname name, collnamespace oid, collowner oid, collprovider char, \
         collisdeterministic bool, collencoding int4, collcollate text, collctype text, \
         colliculocale text, collicurules text, collversion text",
        server::collations,
    ),
    relation(
        1213,
        "pg_tablespace",
        "oid oid, spcname name, spcowner oid, spcacl text[], spcoptions text[]",
        server::tablespaces,
    ),
    relation(
        2612,
        "pg_language",
        "oid oid, lanname name, lanowner oid, lanispl bool, lanpltrusted bool, lanplcallfoid oid, \
         laninline oid, lanvalidator oid, lanacl text[]",
        server::languages,
    ),
    relation(
        2616,
        "pg_opclass",
        "oid oid, opcmethod oid, opcname name, opcnamespace oid, opcowner oid, opcfamily oid, \
         opcintype oid, opcdefault bool, opckeytype oid",
        server::operator_classes,
    ),
    empty(2753, "pg_opfamily", "oid oid, opfmethod oid, opfname name, opfnamespace oid, opfowner oid"),
    relation(0, "pg_get_keywords", "word text, catcode char, barelabel bool, catdesc text", server::keywords),
    relation(0, "pg_views", "schemaname name, viewname name, viewowner name, definition text", named::views),
    relation(
        0,
        "pg_matviews",
        "schemaname name, matviewname name, matviewowner name, tablespace name, hasindexes bool, \
         ispopulated bool, definition text",
        materialized::views,
    ),
    relation(
        0,
        "pg_sequences",
        "schemaname name, sequencename name, sequenceowner name, data_type text, start_value int8, \
         min_value int8, max_value int8, increment_by int8, cycle bool, cache_size int8, last_value int8",
        named::sequences,
    ),
    relation(
        2224,
        "pg_sequence",
        "seqrelid oid, seqtypid oid, seqstart int8, seqincrement int8, seqmax int8, seqmin int8, \
         seqcache int8, seqcycle bool",
        named::sequence_rows,
    ),
    relation(
        2609,
        "pg_description",
        "objoid oid, classoid oid, objsubid int4, description text",
        comments::descriptions,
    ),
    empty(2396, "pg_shdescription", "objoid oid, classoid oid, description text"),
    empty(3501, "pg_enum", "oid oid, enumtypid oid, enumsortorder float4, enumlabel name"),
    empty(
        3541,
        "pg_range",
        "rngtypid oid, rngsubtype oid, rngmultitypid oid, rngcollation oid, rngsubopc oid, \
         rngcanonical regproc, rngsubdiff regproc",
    ),
    empty(2611, "pg_inherits", "inhrelid oid, inhparent oid, inhseqno int4, inhdetachpending bool"),
    empty(
        2620,
        "pg_trigger",
        "oid oid, tgrelid oid, tgparentid oid, tgname name, tgfoid oid, tgtype int2, tgenabled char, \
         tgisinternal bool, tgconstrrelid oid, tgconstrindid oid, tgconstraint oid, tgdeferrable bool, \
         tginitdeferred bool, tgnargs int2, tgattr int2[], tgargs text, tgqual text, tgoldtable name, \
         tgnewtable name",
    ),
    empty(
        3466,
        "pg_event_trigger",
        "oid oid, evtname name, evtevent name, evtowner oid, evtfoid oid, evtenabled char, evttags text[]",
    ),
    empty(
        3256,
        "pg_policy",
        "oid oid, polname name, polrelid oid, polcmd char, polpermissive bool, polroles oid[], polqual text, \
         polwithcheck text",
    ),
    empty(
        0,
        "pg_policies",
        "schemaname name, tablename name, policyname name, permissive text, roles text[], cmd text, \
         qual text, with_check text",
    ),
    empty(
        6104,
        "pg_publication",
        "oid oid, pubname name, pubowner oid, puballtables bool, pubinsert bool, pubupdate bool, \
         pubdelete bool, pubtruncate bool, pubviaroot bool",
    ),
    empty(6106, "pg_publication_rel", "oid oid, prpubid oid, prrelid oid, prqual text, prattrs int2[]"),
    empty(6237, "pg_publication_namespace", "oid oid, pnpubid oid, pnnspid oid"),
    empty(
        0,
        "pg_publication_tables",
        "pubname name, schemaname name, tablename name, attnames text[], rowfilter text",
    ),
    empty(
        6100,
        "pg_subscription",
        "oid oid, subdbid oid, subname name, subowner oid, subenabled bool, subconninfo text",
    ),
    empty(
        3381,
        "pg_statistic_ext",
        "oid oid, stxrelid oid, stxname name, stxnamespace oid, stxowner oid, stxstattarget int4, \
         stxkeys int2[], stxkind text[], stxexprs text",
    ),
    // The last two are not PostgreSQL's.
    relation(
        0,
        "pg_stats",
        "schemaname name, tablename name, attname name, inherited bool, null_frac float4, avg_width int4, \
         n_distinct float4, most_common_vals text[], most_common_freqs text[], histogram_bounds text[], \
         least_value text, greatest_value text",
        statistics::columns,
    ),
    relation(
        0,
        "pg_stat_progress_copy",
        "pid int4, datid oid, datname name, relid oid, command text, type text, bytes_processed int8, \
         bytes_total int8, tuples_processed int8, tuples_excluded int8",
        loads::copies,
    ),
    relation(
        0,
        "pg_stat_progress_vacuum",
        "pid int4, datid oid, datname name, relid oid, phase text, heap_blks_total int8, heap_blks_scanned int8, \
         heap_blks_vacuumed int8, index_vacuum_count int8, max_dead_tuples int8, num_dead_tuples int8",
        vacuum::running,
    ),
    empty(3118, "pg_foreign_table", "ftrelid oid, ftserver oid, ftoptions text[]"),
    empty(
        1417,
        "pg_foreign_server",
        "oid oid, srvname name, srvowner oid, srvfdw oid, srvtype text, srvversion text, srvacl text[], \
         srvoptions text[]",
    ),
    empty(
        2328,
        "pg_foreign_data_wrapper",
        "oid oid, fdwname name, fdwowner oid, fdwhandler oid, fdwvalidator oid, fdwacl text[], \
         fdwoptions text[]",
    ),
    empty(
        1261,
        "pg_auth_members",
        "oid oid, roleid oid, member oid, grantor oid, admin_option bool, \
         inherit_option bool, set_option bool",
    ),
    empty(2964, "pg_db_role_setting", "setdatabase oid, setrole oid, setconfig text[]"),
    empty(
        2618,
        "pg_rewrite",
        "oid oid, rulename name, ev_class oid, ev_type char, ev_enabled char, is_instead bool, \
         ev_qual text, ev_action text",
    ),
    empty(0, "pg_rules", "schemaname name, tablename name, rulename name, definition text"),
    empty(
        2608,
        "pg_depend",
        "classid oid, objid oid, objsubid int4, refclassid oid, refobjid oid, refobjsubid int4, deptype char",
    ),
    empty(
        1214,
        "pg_shdepend",
        "dbid oid, classid oid, objid oid, objsubid int4, refclassid oid, refobjid oid, deptype char",
    ),
    empty(
        3079,
        "pg_extension",
        "oid oid, extname name, extowner oid, extnamespace oid, extrelocatable bool, extversion text, \
         extconfig oid[], extcondition text[]",
    ),
    empty(
        0,
        "pg_available_extensions",
        "name name, default_version text, installed_version text, comment text",
    ),
    empty(
        2605,
        "pg_cast",
        "oid oid, castsource oid, casttarget oid, castfunc oid, castcontext char, castmethod char",
    ),
    empty(
        2607,
        "pg_conversion",
        "oid oid, conname name, connamespace oid, conowner oid, conforencoding int4, contoencoding int4, \
         conproc regproc, condefault bool",
    ),
    empty(
        2617,
        "pg_operator",
        "oid oid, oprname name, oprnamespace oid, oprowner oid, oprkind char, oprcanmerge bool, \
         oprcanhash bool, oprleft oid, oprright oid, oprresult oid, oprcom oid, oprnegate oid, \
         oprcode regproc, oprrest regproc, oprjoin regproc",
    ),
    empty(2600, "pg_aggregate", "aggfnoid oid, aggkind char, aggnumdirectargs int2"),
    empty(
        826,
        "pg_default_acl",
        "oid oid, defaclrole oid, defaclnamespace oid, defaclobjtype char, defaclacl text[]",
    ),
    empty(
        3350,
        "pg_partitioned_table",
        "partrelid oid, partstrat char, partnatts int2, partdefid oid, \
         partattrs int2[], partclass oid[], partcollation oid[], partexprs text",
    ),
    empty(3596, "pg_seclabel", "objoid oid, classoid oid, objsubid int4, provider text, label text"),
    empty(
        0,
        "pg_locks",
        "locktype text, database oid, relation oid, page int4, tuple int2, virtualxid text, \
         transactionid xid, classid oid, objid oid, objsubid int2, virtualtransaction text, pid int4, \
         mode text, granted bool, fastpath bool, waitstart timestamptz",
    ),
    empty(
        0,
        "pg_prepared_xacts",
        "transaction xid, gid text, prepared timestamptz, owner name, database name",
    ),
    empty(0, "pg_timezone_names", "name text, abbrev text, is_dst bool"),
];

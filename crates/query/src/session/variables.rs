//! Functions of session variables: `version()`, `current_setting('TimeZone')`, `current_user` and the like.
//!
//! They read what the session shares with them, [`SessionVariables`], when they are called; so a plan that
//! has one is optimised each time it runs ([`crate::execution::prepared`]).

use crate::error::{Error, Result, external};
use crate::postgres::settings::{self, SERVER_VERSION, Setting, Settings};
use crate::schema_names::{CATALOG, SCHEMA};
use crate::session::authority::Authority;
use crate::session::messages::Notice;
use crate::session::search_path;
use crate::session::sequence_functions::SequenceValues;
use datafusion::arrow::array::{Array, AsArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
    create_udf,
};
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Client of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// User name, `current_user`.
    pub user: String,
    /// Number of the session, `pg_backend_pid()`.
    pub process_id: i32,
    /// True if the user has all privileges, `is_superuser`.
    pub administrator: bool,
}

impl Default for Client {
    fn default() -> Client {
        Client { user: CATALOG.to_owned(), process_id: 0, administrator: true }
    }
}

/// Session variables, shared between a session and its functions.
#[derive(Debug)]
pub(crate) struct SessionVariables {
    /// Settings, shared with the savepoints that restore them; copied on change.
    settings: Mutex<Arc<Settings>>,
    pub(crate) client: Mutex<Client>,
    pub(crate) authority: Authority,
    /// Number of changes.
    pub(crate) changes: AtomicU64,
    /// The setting `default_transaction_read_only`, for statements that begin without a look at the others.
    read_only: AtomicBool,
    /// True if the setting `search_path` has the schema of the tables.
    has_public: AtomicBool,
    /// Values that the session got from sequences.
    pub(crate) sequence_values: Mutex<SequenceValues>,
    /// Longest times that the server allows, in milliseconds, by the names of their settings.
    limits: Mutex<BTreeMap<String, u64>>,
    /// Notices to be sent to the client.
    pub(crate) notices: Mutex<Vec<Notice>>,
}

impl SessionVariables {
    /// Variables whose settings have these initial values.
    pub(crate) fn new(initial: &[(&str, String)]) -> Arc<SessionVariables> {
        let mut settings = Settings::default();
        for (name, value) in initial {
            if let Ok(setting) = settings::find(name) {
                settings.set_initial(&setting, value.clone());
            }
        }
        let settings = Mutex::new(Arc::new(settings));
        Arc::new(SessionVariables {
            settings,
            client: Mutex::default(),
            authority: Authority::default(),
            changes: AtomicU64::new(0),
            read_only: AtomicBool::new(false),
            has_public: AtomicBool::new(true),
            sequence_values: Mutex::default(),
            limits: Mutex::default(),
            notices: Mutex::default(),
        })
    }

    /// Current settings.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.lock())
    }

    /// Changes settings.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.settings.lock();
        change(Arc::make_mut(&mut settings));
        self.changed_to(&settings);
    }

    /// Restores earlier settings; false if they are unchanged.
    pub(crate) fn restore(&self, before: Arc<Settings>) -> bool {
        let mut settings = self.settings.lock();
        if Arc::ptr_eq(&settings, &before) {
            return false;
        }
        *settings = before;
        self.changed_to(&settings);
        true
    }

    /// Notes that the settings are these now.
    fn changed_to(&self, settings: &Settings) {
        let is_read_only = settings.value("default_transaction_read_only") == "on";
        self.read_only.store(is_read_only, Ordering::Relaxed);
        let has_public = search_path::schemas(settings.value("search_path")).contains(&SCHEMA);
        self.has_public.store(has_public, Ordering::Relaxed);
        self.changed();
    }

    /// Schemas of the search path that exist, in its order.
    pub(crate) fn search_path(&self) -> Vec<&'static str> {
        search_path::schemas(self.settings().value("search_path"))
    }

    /// Returns true if names without a schema mean the tables of `public`.
    pub(crate) fn has_public(&self) -> bool {
        self.has_public.load(Ordering::Relaxed)
    }

    /// Returns true if transactions are READ ONLY by default.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Value of a setting, except for those of the open block.
    pub(crate) fn value(&self, setting: &Setting) -> String {
        match &*setting.name {
            "session_authorization" => self.client.lock().user.clone(),
            "is_superuser" => if self.client.lock().administrator { "on" } else { "off" }.to_owned(),
            name => {
                let value = self.settings.lock().get(setting).to_owned();
                match self.limit(name) {
                    Some(limit_ms) if limit_ms < longest(&value) => settings::shown_time(limit_ms),
                    _ => value,
                }
            }
        }
    }

    /// Setting of this name, if it has one of ours or the application has set it.
    pub(crate) fn known(&self, name: &str) -> Result<Cow<'static, Setting>> {
        let setting = settings::find(name)?;
        if self.settings.lock().has(&setting) { Ok(setting) } else { Err(settings::unrecognized(name)) }
    }

    /// Longest time of a setting that the server allows.
    fn limit(&self, name: &str) -> Option<u64> {
        self.limits.lock().get(name).copied()
    }

    /// Limits the time of a setting.
    pub(crate) fn set_limit(&self, setting: &Setting, limit_ms: u64) {
        self.limits.lock().insert(setting.name.to_string(), limit_ms);
        self.changed();
    }

    /// Limit of a time that is set to more than the server allows, as it is shown.
    pub(crate) fn exceeded_limit(&self, setting: &Setting, value: &str) -> Option<String> {
        self.limit(&setting.name).filter(|&limit_ms| limit_ms < longest(value)).map(settings::shown_time)
    }
}

/// Milliseconds of a time, 0 of which are no limit.
fn longest(value: &str) -> u64 {
    settings::milliseconds(value).filter(|&time_ms| time_ms > 0).unwrap_or(u64::MAX)
}

impl SessionVariables {
    /// Client of the session.
    pub(crate) fn client(&self) -> Client {
        self.client.lock().clone()
    }
}

/// Registers the functions with DataFusion.
pub(crate) fn register(context: &SessionContext, variables: &Arc<SessionVariables>) {
    let user: fn(&SessionVariables) -> String = |variables| variables.client.lock().user.clone();
    type Text = fn(&SessionVariables) -> String;
    let texts: [(&str, &'static str, Text); 7] = [
        ("version", "pg_catalog.version", |_| format!("PostgreSQL {SERVER_VERSION}")),
        ("current_database", "pg_catalog.current_database", |_| CATALOG.to_owned()),
        ("current_catalog", "pg_catalog.current_catalog", |_| CATALOG.to_owned()),
        ("current_user", "pg_catalog.current_user", user),
        ("current_role", "pg_catalog.current_role", user),
        ("session_user", "pg_catalog.session_user", user),
        ("user", "pg_catalog.user", user),
    ];
    for (name, alias, of) in texts {
        let variables = Arc::clone(variables);
        let value = move || ScalarValue::Utf8(Some(of(&variables)));
        context.register_udf(nullary(name, alias, DataType::Utf8, value));
    }
    let path = Arc::clone(variables);
    let schema = move || ScalarValue::Utf8(path.search_path().first().map(|&schema| schema.to_owned()));
    context.register_udf(nullary("current_schema", "pg_catalog.current_schema", DataType::Utf8, schema));
    let client = Arc::clone(variables);
    let pid = move || ScalarValue::Int32(Some(client.client.lock().process_id));
    context.register_udf(nullary("pg_backend_pid", "pg_catalog.pg_backend_pid", DataType::Int32, pid));
    let no = || ScalarValue::Boolean(Some(false));
    let recovery = nullary("pg_is_in_recovery", "pg_catalog.pg_is_in_recovery", DataType::Boolean, no);
    context.register_udf(recovery);
    for kind in [SettingCall::Current, SettingCall::Set] {
        context.register_udf(ScalarUDF::from(SettingFunction::new(kind, variables)));
    }
}

/// Function without arguments.
fn nullary(
    name: &str,
    alias: &'static str,
    data_type: DataType,
    value: impl Fn() -> ScalarValue + Send + Sync + 'static,
) -> ScalarUDF {
    let call = move |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(value()));
    create_udf(name, Vec::new(), data_type, Volatility::Stable, Arc::new(call)).with_aliases([alias])
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SettingCall {
    /// `current_setting(name [, missing_ok])`
    Current,
    /// `set_config(name, value, is_local)`
    Set,
}

/// Function on settings.
#[derive(Debug)]
struct SettingFunction {
    kind: SettingCall,
    signature: Signature,
    aliases: Vec<String>,
    variables: Arc<SessionVariables>,
}

impl SettingFunction {
    fn new(kind: SettingCall, variables: &Arc<SessionVariables>) -> SettingFunction {
        let text = DataType::Utf8;
        let (signature, alias) = match kind {
            SettingCall::Current => {
                let one = TypeSignature::Exact(vec![text.clone()]);
                let two = TypeSignature::Exact(vec![text, DataType::Boolean]);
                (Signature::one_of(vec![one, two], Volatility::Stable), "pg_catalog.current_setting")
            }
            SettingCall::Set => {
                let types = vec![text.clone(), text, DataType::Boolean];
                (Signature::exact(types, Volatility::Volatile), "pg_catalog.set_config")
            }
        };
        SettingFunction { kind, signature, aliases: vec![alias.to_owned()], variables: Arc::clone(variables) }
    }

    fn current(&self, name: &str, missing_ok: bool) -> DFResult<Option<String>> {
        match self.variables.known(name) {
            Ok(setting) => Ok(Some(self.variables.value(&setting))),
            Err(_) if missing_ok => Ok(None),
            Err(error) => Err(external(error)),
        }
    }

    fn set(&self, name: &str, value: &str, local: bool) -> DFResult<Option<String>> {
        let setting = settings::find(name).map_err(external)?;
        let value = setting.check(value).map_err(external)?;
        if !setting.is_only_a_value() {
            let message = format!("set_config of \"{}\": use SET", setting.name);
            return Err(external(Error::coded("0A000", message)));
        }
        self.variables.settings().check_room(&setting).map_err(external)?;
        self.variables.change(|settings| settings.set(&setting, Some(value.clone()), local));
        Ok(Some(value))
    }
}

impl PartialEq for SettingFunction {
    fn eq(&self, other: &SettingFunction) -> bool {
        self.kind == other.kind && Arc::ptr_eq(&self.variables, &other.variables)
    }
}

impl Eq for SettingFunction {}

impl Hash for SettingFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
        Arc::as_ptr(&self.variables).hash(state);
    }
}

impl ScalarUDFImpl for SettingFunction {
    fn name(&self) -> &str {
        match self.kind {
            SettingCall::Current => "current_setting",
            SettingCall::Set => "set_config",
        }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let rows = arguments.number_rows;
        let arrays: Vec<_> =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<DFResult<_>>()?;
        let text = |at: usize, row: usize| {
            let array = arrays[at].as_string::<i32>();
            array.is_valid(row).then(|| array.value(row))
        };
        let flag = |at: usize, row: usize| {
            arrays.get(at).is_some_and(|array| array.is_valid(row) && array.as_boolean().value(row))
        };
        let answers = (0..rows).map(|row| match (self.kind, text(0, row)) {
            (_, None) => Ok(None),
            (SettingCall::Current, Some(name)) => self.current(name, flag(1, row)),
            (SettingCall::Set, Some(name)) => self.set(name, text(1, row).unwrap_or_default(), flag(2, row)),
        });
        let answers: StringArray = answers.collect::<DFResult<Vec<Option<String>>>>()?.into();
        Ok(ColumnarValue::Array(Arc::new(answers)))
    }
}

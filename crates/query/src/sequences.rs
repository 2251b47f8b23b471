//! Sequences in SQL: CREATE, ALTER and DROP SEQUENCE, `nextval` and its siblings.
//!
//! - Drawing is not transactional: what a statement drew stays drawn, whatever becomes of it. A session remembers what it
//!   drew last of each sequence (`currval`) and of all (`lastval`).
//! - A statement that draws for many rows draws for a batch of them at once.
//! - Each reservation of values waits for the disk if the session's commits do; [`entresol_tables::Sequence`] has the
//!   reasons. It does so on the thread that runs the statement, once per 32 values or more.
//!
//! Memory: two numbers per sequence that a session used.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType as ArrowType, Int64Type};
use datafusion::common::{Result as EngineResult, ScalarValue};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::ObjectName;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use entresol_memory::Durability;
use entresol_tables::{
    Catalog, Error as TableError, Position, RelationKind, Sequence, SequenceDefinition, SequenceType, Table,
    TableDefinition, Verify,
};

use crate::error::{Error, Result, external};
use crate::functions::Facts;
use crate::generated;
use crate::sequence_text::{Options, SequenceStatement};
use crate::session::{Session, StatementResult, blocking};
use crate::statement::table_name;
use crate::view_definition::drop_all;

/// What a session drew.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    /// By the sequences' numbers, the last value.
    values: HashMap<u64, i64>,
    /// The sequence of the last `nextval`.
    last: Option<u64>,
}

impl Drawn {
    /// DISCARD SEQUENCES.
    pub(crate) fn clear(&mut self) {
        *self = Drawn::default();
    }
}

/// Runs a CREATE SEQUENCE or ALTER SEQUENCE.
pub(crate) async fn run(session: &Session, statement: &SequenceStatement) -> Result<StatementResult> {
    let (catalog, name) = (Arc::clone(&session.catalog), statement.name.clone());
    let options = statement.options.clone();
    if statement.creates {
        const DONE: StatementResult = StatementResult::Done { verb: "CREATE SEQUENCE" };
        if statement.lenient && catalog.relation_kind(&name).is_some() {
            return Ok(DONE);
        }
        let mut definition = declared(&options, SequenceType::BigInt)?;
        own(&catalog, &options, &mut definition)?;
        blocking(move || catalog.create_sequence(&name, definition).map(drop)).await??;
        return Ok(DONE);
    }
    const DONE: StatementResult = StatementResult::Done { verb: "ALTER SEQUENCE" };
    let old = match catalog.sequence(&name) {
        Err(TableError::NoSuchRelation { .. }) if statement.lenient => return Ok(DONE),
        old => old?.definition(),
    };
    if options.owner.is_some() && old.owner.is_some_and(|owner| owner.identity.is_some()) {
        return Err(Error::coded("0A000", "cannot change ownership of identity sequence"));
    }
    let mut owner = old;
    own(&catalog, &options, &mut owner)?;
    blocking(move || {
        catalog.alter_sequence(&name, |definition, position| {
            change(&options, definition, position);
            if options.owner.is_some() {
                definition.owner = owner.owner;
            }
            Ok(())
        })
    })
    .await??;
    Ok(DONE)
}

/// The definition of a new sequence.
pub(crate) fn declared(options: &Options, default_type: SequenceType) -> Result<SequenceDefinition> {
    let data_type = options.data_type.unwrap_or(default_type);
    let increment = options.increment.unwrap_or(1);
    let (min_value, max_value) = default_bounds(data_type, increment);
    let min_value = options.min_value.flatten().unwrap_or(min_value);
    let max_value = options.max_value.flatten().unwrap_or(max_value);
    let start = options.start.unwrap_or(if increment > 0 { min_value } else { max_value });
    let definition = SequenceDefinition {
        data_type,
        increment,
        min_value,
        max_value,
        start,
        cache: options.cache.unwrap_or(1),
        cycle: options.cycle.unwrap_or(false),
        owner: None,
    };
    definition.check()?;
    Ok(definition)
}

/// The bounds of a sequence that names none.
fn default_bounds(data_type: SequenceType, increment: i64) -> (i64, i64) {
    let (least, greatest) = data_type.bounds();
    if increment < 0 { (least, -1) } else { (1, greatest) }
}

/// What an ALTER SEQUENCE changes.
fn change(options: &Options, definition: &mut SequenceDefinition, position: &mut Position) {
    let old_bounds = definition.data_type.bounds();
    definition.increment = options.increment.unwrap_or(definition.increment);
    definition.data_type = options.data_type.unwrap_or(definition.data_type);
    let (min_value, max_value) = default_bounds(definition.data_type, definition.increment);
    // Bounds that were those of the old type become those of the new one.
    let retyped = options.data_type.is_some();
    if let Some(min) = options.min_value.or((retyped && definition.min_value == old_bounds.0).then_some(None))
    {
        definition.min_value = min.unwrap_or(min_value);
    }
    if let Some(max) = options.max_value.or((retyped && definition.max_value == old_bounds.1).then_some(None))
    {
        definition.max_value = max.unwrap_or(max_value);
    }
    definition.start = options.start.unwrap_or(definition.start);
    definition.cache = options.cache.unwrap_or(definition.cache);
    definition.cycle = options.cycle.unwrap_or(definition.cycle);
    if let Some(restart) = options.restart {
        *position = Position { last: restart.unwrap_or(definition.start), called: false };
    }
}

/// OWNED BY.
fn own(catalog: &Catalog, options: &Options, definition: &mut SequenceDefinition) -> Result<()> {
    match &options.owner {
        None => {}
        Some(None) => definition.owner = None,
        Some(Some((table, column))) => {
            let table = catalog.table(table)?;
            let columns = table.schema().visible_columns();
            let place = columns.iter().position(|known| known.name == *column);
            let place = place.ok_or_else(|| TableError::NoSuchColumn {
                table: table.name().to_owned(),
                column: column.clone(),
            })?;
            definition.owner = Catalog::owner(&table, place);
        }
    }
    Ok(())
}

/// DROP SEQUENCE. Defaults that draw from it go with it if CASCADE, in a commit before.
pub(crate) async fn drop_sequences(
    session: &Session,
    if_exists: bool,
    names: &[ObjectName],
    cascade: bool,
) -> Result<StatementResult> {
    for name in names {
        let name = table_name(name)?;
        if session.catalog.relation_kind(&name) != Some(RelationKind::Sequence) {
            continue;
        }
        for (table, column) in generated::columns_drawing_from(&session.catalog, &name)? {
            let shown = &table.schema().columns()[column].name;
            let cannot =
                |why: String| Error::coded("2BP01", format!("cannot drop sequence {name} because {why}"));
            if generated::identity(&session.catalog, &table, column).is_ok_and(|identity| identity.is_some())
            {
                return Err(cannot(format!("column {shown} of table {} requires it", table.name())));
            }
            if !cascade {
                return Err(cannot(format!(
                    "other objects depend on it: default value for column {shown} of table {} depends on sequence {name}",
                    table.name()
                )));
            }
            drop_default(session, &table, column).await?;
        }
    }
    drop_all(session, RelationKind::Sequence, if_exists, names, cascade).await?;
    Ok(StatementResult::Done { verb: "DROP SEQUENCE" })
}

async fn drop_default(session: &Session, table: &Arc<Table>, column: usize) -> Result<()> {
    let (catalog, table) = (Arc::clone(&session.catalog), table.name().to_owned());
    blocking(move || {
        let drop_it = |definition: &mut TableDefinition| {
            definition.defaults[column] = None;
            Ok(())
        };
        catalog.redefine(&table, None::<Verify<'_, Error>>, drop_it).map(drop)
    })
    .await?
}

/// The name of a relation that is written as a text.
pub(crate) fn relation_name(text: &str) -> Result<String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if !text.is_empty() && text.bytes().all(plain) {
        return Ok(text.to_owned());
    }
    let invalid = || Error::coded("42602", format!("invalid name syntax: {text}"));
    let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(text).map_err(|_| invalid())?;
    let name = parser.parse_object_name(false).map_err(|_| invalid())?;
    match parser.peek_token().token {
        datafusion::sql::sqlparser::tokenizer::Token::EOF => table_name(&name),
        _ => Err(invalid()),
    }
}

/// Makes the functions known to the engine.
pub(crate) fn register(context: &SessionContext, catalog: &Arc<Catalog>, facts: &Arc<Facts>) {
    for kind in [Kind::Next, Kind::Current, Kind::Last, Kind::Set] {
        context.register_udf(ScalarUDF::from(Function::new(kind, catalog, facts)));
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Next => "nextval",
            Kind::Current => "currval",
            Kind::Last => "lastval",
            Kind::Set => "setval",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// `nextval(sequence)`
    Next,
    /// `currval(sequence)`
    Current,
    /// `lastval()`
    Last,
    /// `setval(sequence, value [, is_called])`
    Set,
}

/// The functions on sequences.
#[derive(Debug)]
struct Function {
    kind: Kind,
    signature: Signature,
    aliases: Vec<String>,
    catalog: Arc<Catalog>,
    facts: Arc<Facts>,
}

impl Function {
    fn new(kind: Kind, catalog: &Arc<Catalog>, facts: &Arc<Facts>) -> Function {
        let (text, number) = (ArrowType::Utf8, ArrowType::Int64);
        let signature = match kind {
            Kind::Next | Kind::Current => TypeSignature::Exact(vec![text]),
            Kind::Last => TypeSignature::Nullary,
            Kind::Set => TypeSignature::OneOf(vec![
                TypeSignature::Exact(vec![text.clone(), number.clone()]),
                TypeSignature::Exact(vec![text, number, ArrowType::Boolean]),
            ]),
        };
        let mut function = Function {
            kind,
            signature: Signature::new(signature, Volatility::Volatile),
            aliases: Vec::new(),
            catalog: Arc::clone(catalog),
            facts: Arc::clone(facts),
        };
        function.aliases.push(format!("pg_catalog.{}", kind.name()));
        function
    }

    fn durability(&self) -> Durability {
        self.facts.settings.lock().value("durability").parse().unwrap_or_default()
    }

    fn sequence(&self, name: &str) -> Result<Arc<Sequence>> {
        Ok(self.catalog.sequence(&relation_name(name)?)?)
    }

    fn next(&self, name: &str, count: u64) -> Result<Vec<i64>> {
        draw(&self.catalog, &self.facts, &*self.sequence(name)?, count, self.durability())
    }

    fn current(&self, name: &str) -> Result<i64> {
        let sequence = self.sequence(name)?;
        let value = self.facts.drawn.lock().values.get(&sequence.id()).copied();
        value.ok_or_else(|| {
            let name = sequence.name();
            Error::coded(
                "55000",
                format!("currval of sequence \"{name}\" is not yet defined in this session"),
            )
        })
    }

    fn last(&self) -> Result<i64> {
        let drawn = self.facts.drawn.lock();
        let value = drawn.last.and_then(|id| drawn.values.get(&id).copied());
        value.ok_or_else(|| Error::coded("55000", "lastval is not yet defined in this session"))
    }

    fn set(&self, name: &str, value: i64, called: bool) -> Result<i64> {
        let sequence = self.sequence(name)?;
        let SequenceDefinition { min_value, max_value, .. } = sequence.definition();
        if !(min_value..=max_value).contains(&value) {
            let bounds = format!("({min_value}..{max_value})");
            let message = format!(
                "setval: value {value} is out of bounds for sequence \"{}\" {bounds}",
                sequence.name()
            );
            return Err(Error::coded("22003", message));
        }
        self.catalog.set_position(&sequence, Position { last: value, called }, self.durability())?;
        if called {
            self.facts.drawn.lock().values.insert(sequence.id(), value);
        }
        Ok(value)
    }
}

/// The function `nextval` of an engine.
pub(crate) fn nextval(state: &SessionState) -> Option<Arc<ScalarUDF>> {
    state.scalar_functions().get(Kind::Next.name()).cloned()
}

/// So many values of `nextval(name)`.
pub(crate) fn next_values(nextval: &ScalarUDF, name: &str, count: usize) -> Result<ArrayRef> {
    let function = nextval.inner().downcast_ref::<Function>();
    let function = function.ok_or_else(|| Error::Internal("nextval is another function".into()))?;
    Ok(Arc::new(Int64Array::from(function.next(name, count as u64)?)))
}

/// Draws values, and remembers for the session that it did.
pub(crate) fn draw(
    catalog: &Catalog,
    facts: &Facts,
    sequence: &Sequence,
    count: u64,
    durability: Durability,
) -> Result<Vec<i64>> {
    let values = catalog.next_values(sequence, count, durability)?;
    if let Some(&last) = values.last() {
        let mut drawn = facts.drawn.lock();
        drawn.values.insert(sequence.id(), last);
        drawn.last = Some(sequence.id());
    }
    Ok(values)
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.kind == other.kind && Arc::ptr_eq(&self.facts, &other.facts)
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
        Arc::as_ptr(&self.facts).hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[ArrowType]) -> EngineResult<ArrowType> {
        Ok(ArrowType::Int64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> EngineResult<ColumnarValue> {
        let rows = arguments.number_rows;
        if let (Kind::Next, [ColumnarValue::Scalar(ScalarValue::Utf8(Some(name)))]) =
            (self.kind, &arguments.args[..])
        {
            let values = self.next(name, rows as u64).map_err(external)?;
            return Ok(ColumnarValue::Array(Arc::new(Int64Array::from(values))));
        }
        let arrays: Vec<_> =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<EngineResult<_>>()?;
        let value = |row: usize| -> Result<Option<i64>> {
            if arrays.iter().any(|array| array.is_null(row)) {
                return Ok(None);
            }
            let name = || arrays[0].as_string::<i32>().value(row);
            Ok(Some(match self.kind {
                Kind::Next => self.next(name(), 1)?[0],
                Kind::Current => self.current(name())?,
                Kind::Last => self.last()?,
                Kind::Set => {
                    let called = arrays.get(2).is_none_or(|called| called.as_boolean().value(row));
                    self.set(name(), arrays[1].as_primitive::<Int64Type>().value(row), called)?
                }
            }))
        };
        let values: Vec<Option<i64>> = (0..rows).map(value).collect::<Result<_>>().map_err(external)?;
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from(values))))
    }
}

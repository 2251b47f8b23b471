//! The beginning of a connection: encryption, the startup packet, the password.
//!
//! No client is trusted before the end of it: packets are short, and all of it has [`Limits::startup`] time.
//!
//! [`Limits::startup`]: crate::Limits::startup

use crate::clients::{Client, ClientRegistration};
use crate::error::{Outcome, Report};
use crate::metrics::add;
use crate::security::roles::{self, Role};
use crate::security::scram::{self, Exchange, Verifier};
use crate::server::{Phase, ServerState};
use crate::session::settings::{Settings, options};
use crate::socket::{End, Socket, violation};
use crate::wire::backend::{Output, Status};
use crate::wire::frontend::{self, FirstPacket, Frontend};
use bytes::{Bytes, BytesMut};
use entresol::memory::budget::{MemoryConsumer, MemoryReservation};
use pgwire::messages::startup::{Authentication, SecretKey};
use pgwire::tokio::server::MaybeTls;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest message of a client that is not authenticated.
const AUTHENTICATION_BYTES_MAX: usize = 16 << 10;
/// Memory that a connection counts for: its session with DataFusion's registries, its buffers, its stack.
const CONNECTION_BYTES: u64 = 512 << 10;
/// The newest minor version of protocol 3 that is spoken.
const MINOR_MAX: u16 = 2;
/// The first byte of a client that begins with TLS at once.
const TLS_HANDSHAKE: u8 = 0x16;

/// An authenticated client.
pub(crate) struct StartedConnection {
    pub(crate) socket: Socket,
    pub(crate) registered: ClientRegistration,
    pub(crate) role: Role,
    pub(crate) settings: Settings,
    pub(crate) session: entresol::query::Session,
    /// Share of the memory budget, until the connection ends.
    pub(crate) memory: MemoryReservation,
}

/// Starts a connection; `None` if it ended: a cancel request, a wrong password, bytes that are no protocol.
pub(crate) async fn start(
    io: TcpStream,
    shared: &Arc<ServerState>,
    has_place: bool,
) -> Option<StartedConnection> {
    let address = io.peer_addr().ok();
    let mut input = BytesMut::new();
    let (mut io, encrypted, first) = match encryption(io, &mut input, shared).await {
        Ok(opened) => opened,
        Err(None) => return None,
        Err(Some(RefusedConnection { mut io, reason })) => {
            refuse(&mut io, Report::fatal("08P01", reason)).await;
            return None;
        }
    };
    let first = match first {
        Some(first) => first,
        None => match next_first(&mut io, &mut input).await {
            Ok(first) => first?,
            Err(reason) => {
                refuse(&mut io, Report::fatal("08P01", reason)).await;
                return None;
            }
        },
    };
    let (minor, parameters) = match first {
        FirstPacket::Cancel { pid, key } => {
            shared.clients.cancel(pid, &key);
            return None;
        }
        FirstPacket::Startup { minor, parameters } => (minor, parameters),
        FirstPacket::Ssl | FirstPacket::GssEncryption => {
            refuse(&mut io, Report::fatal("08P01", "unexpected request for encryption")).await;
            return None;
        }
    };
    if let Some(report) = refusal(shared, has_place, encrypted) {
        refuse(&mut io, report).await;
        return None;
    }
    let mut socket = Socket::new(io, input, Arc::clone(shared));
    match authenticated(&mut socket, shared, minor, parameters, address).await {
        Ok((registered, role, settings, session, memory)) => {
            Some(StartedConnection { socket, registered, role, settings, session, memory })
        }
        Err(end) => {
            if let End::Fatal(report) = end {
                socket.out.report(&report);
                socket.close().await;
            }
            None
        }
    }
}

/// Reason why no client, or not this one, can connect now.
fn refusal(shared: &ServerState, has_place: bool, encrypted: bool) -> Option<Report> {
    if *shared.phase.borrow() != Phase::Running {
        return Some(Report::fatal("57P03", "the database system is shutting down"));
    }
    if !has_place {
        let hint = format!("The maximum is {} connections.", shared.limits.connections);
        return Some(Report::fatal("53300", "sorry, too many clients already").hint(hint));
    }
    if shared.tls_required && !encrypted {
        let report = Report::fatal("28000", "this server accepts encrypted connections only");
        return Some(report.hint("Connect with sslmode=require."));
    }
    None
}

/// A connection that ends before it has a [`Socket`].
struct RefusedConnection {
    io: MaybeTls,
    reason: String,
}

async fn refuse(io: &mut MaybeTls, report: Report) {
    let mut out = Output::default();
    out.report(&report);
    let _ = io.write_all(&out.bytes).await;
    let _ = io.shutdown().await;
}

/// Reads until there is a first packet; `None` if the client went away.
async fn next_first(
    io: &mut (impl AsyncReadExt + Unpin),
    input: &mut BytesMut,
) -> Result<Option<FirstPacket>, String> {
    loop {
        if let Some(first) = frontend::next_first(input).map_err(|frontend::Violation(reason)| reason)? {
            return Ok(Some(first));
        }
        match io.read_buf(input).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) => {}
        }
    }
}

/// A socket, its encryption state, and the first packet if it has been read already.
type OpenedSocket = (MaybeTls, bool, Option<FirstPacket>);

/// Encrypts if the client asks for it and the server can.
async fn encryption(
    mut io: TcpStream,
    input: &mut BytesMut,
    shared: &ServerState,
) -> Result<OpenedSocket, Option<RefusedConnection>> {
    let mut first = [0];
    if io.peek(&mut first).await.map_err(|_| None)? == 0 {
        return Err(None);
    }
    if first[0] == TLS_HANDSHAKE {
        let acceptor = shared.tls.as_ref().ok_or(None)?;
        let stream = acceptor.accept(io).await.map_err(|_| None)?;
        // A client that speaks HTTP by mistake, or by an attacker's will, does not name it.
        if stream.get_ref().1.alpn_protocol() != Some(b"postgresql") {
            return Err(None);
        }
        return Ok((MaybeTls::Tls(Box::new(stream)), true, None));
    }
    // Each kind of encryption may be asked for once.
    for _ in 0..2 {
        let next = match next_first(&mut io, input).await {
            Ok(Some(next)) => next,
            Ok(None) => return Err(None),
            Err(reason) => return Err(Some(RefusedConnection { io: MaybeTls::Plain(io), reason })),
        };
        if !matches!(next, FirstPacket::Ssl | FirstPacket::GssEncryption) {
            return Ok((MaybeTls::Plain(io), false, Some(next)));
        }
        let acceptor = shared.tls.as_ref().filter(|_| next == FirstPacket::Ssl);
        let mut out = Output::default();
        out.encryption(acceptor.is_some());
        io.write_all(&out.bytes).await.map_err(|_| None)?;
        if let Some(acceptor) = acceptor {
            if !input.is_empty() {
                // Sent in clear before the encryption, perhaps by an attacker in between: it must not be
                // trusted.
                let reason = "received unencrypted data after SSL request".to_owned();
                return Err(Some(RefusedConnection { io: MaybeTls::Plain(io), reason }));
            }
            let stream = acceptor.accept(io).await.map_err(|_| None)?;
            return Ok((MaybeTls::Tls(Box::new(stream)), true, None));
        }
    }
    Ok((MaybeTls::Plain(io), false, None))
}

type AuthenticatedClient = (ClientRegistration, Role, Settings, entresol::query::Session, MemoryReservation);

/// Authenticates the client and sends it the session's parameters.
async fn authenticated(
    socket: &mut Socket,
    shared: &Arc<ServerState>,
    minor: u16,
    parameters: Vec<(String, String)>,
    address: Option<SocketAddr>,
) -> Result<AuthenticatedClient, End> {
    let fatal = |code, message: String| End::Fatal(Report::fatal(code, message));
    let (extensions, parameters): (Vec<_>, Vec<_>) =
        parameters.into_iter().partition(|(name, _)| name.starts_with("_pq_."));
    if minor > MINOR_MAX || !extensions.is_empty() {
        let unsupported = extensions.into_iter().map(|(name, _)| name).collect();
        socket.out.negotiate((3 << 16) | i32::from(minor.min(MINOR_MAX)), unsupported);
    }
    let mut settings = Vec::new();
    let mut user = None;
    for (name, value) in parameters {
        match name.as_str() {
            "user" => user = Some(value),
            "replication" if value != "false" && value != "off" && value != "0" => {
                return Err(fatal("0A000", "replication is not supported".to_owned()));
            }
            // There is one database, whatever name the client gives it.
            "database" | "replication" => {}
            "options" => settings.extend(options(&value)),
            _ => settings.push((name, value)),
        }
    }
    let user = user.filter(|user| !user.is_empty());
    let user =
        user.ok_or_else(|| fatal("28000", "no PostgreSQL user name specified in startup packet".into()))?;
    let roles_exist = roles::exist(&shared.db).map_err(|error| fatal("XX000", error.to_string()))?;
    let role = if roles_exist {
        password(socket, shared, &user).await?
    } else {
        // There are no passwords. A server that others reach began with roles.
        if !shared.is_local {
            let message = "there are no roles any more, and the server listens on more than this machine: create one \
                           with `entresol role add`";
            return Err(fatal("28000", message.to_owned()));
        }
        Role { name: user, administrator: true, grants: Default::default() }
    };
    let memory = shared.db.reserve_memory(MemoryConsumer::Connections, CONNECTION_BYTES);
    let memory = memory.map_err(|error| End::Fatal(Report::from(error).into_fatal()))?;
    let session = shared.db.server_session(shared.limits.statement_memory_bytes);
    let mut session = session.map_err(|error| End::Fatal(Report::from(error).into_fatal()))?;
    let limits = &shared.limits;
    for (name, limit) in [
        ("statement_timeout", limits.statement),
        ("idle_in_transaction_session_timeout", limits.idle_in_transaction),
    ] {
        if let Some(limit) = limit {
            session.limit_time(name, limit).map_err(|error| End::Fatal(Report::from(error).into_fatal()))?;
        }
    }
    for (name, value) in settings {
        initial(&mut session, &name, &value).map_err(|report| End::Fatal(report.into_fatal()))?;
    }
    let registered = shared.clients.register(address);
    let registered =
        registered.ok_or_else(|| fatal("XX000", "the system provides no random numbers".to_owned()))?;
    session.set_client(entresol::query::Client {
        user: role.name.clone(),
        process_id: registered.client.pid,
        administrator: role.administrator,
    });
    session.set_connection(Arc::<Client>::clone(&registered.client));
    socket.out.authentication(Authentication::Ok);
    let mut settings = Settings::default();
    settings.report_changes(&session, &mut socket.out);
    let key = Bytes::copy_from_slice(&registered.client.key);
    socket.out.key(registered.client.pid, SecretKey::Bytes(key));
    socket.out.ready(Status::Idle);
    socket.flush().await?;
    Ok((registered, role, settings, session, memory))
}

/// Applies an initial setting. Unknown names are those of other servers, and of extensions.
fn initial(session: &mut entresol::query::Session, name: &str, value: &str) -> Outcome<()> {
    match session.set_initial(name, value) {
        Err(error) if error.sqlstate() == "42704" => Ok(()),
        set => Ok(set?),
    }
}

/// Asks for the password.
async fn password(socket: &mut Socket, shared: &ServerState, user: &str) -> Result<Role, End> {
    let found = roles::find(&shared.db, user);
    let found = found.map_err(|error| End::Fatal(Report::fatal("XX000", error.to_string())))?;
    let (role, verifier) = match found {
        Some((role, Some(verifier))) => (Some(role), verifier),
        // Goes on as if there were one: the client must not learn which names exist.
        _ => (None, Verifier::made_up(user, &shared.secret)),
    };
    socket.out.authentication(Authentication::SASL(vec![scram::MECHANISM.to_owned()]));
    socket.flush().await?;
    let malformed = |scram::ScramError(reason)| {
        End::Fatal(Report::fatal("08P01", format!("malformed SCRAM message: {reason}")))
    };
    let first = sasl_initial(answer(socket).await?).map_err(malformed)?;
    let nonce = scram::random::<18>().map(|bytes| scram::printable(&bytes));
    let nonce =
        nonce.ok_or_else(|| End::Fatal(Report::fatal("XX000", "the system provides no random numbers")))?;
    let (exchange, reply) = Exchange::begin(verifier, &first, &nonce).map_err(malformed)?;
    socket.out.authentication(Authentication::SASLContinue(Bytes::from(reply)));
    socket.flush().await?;
    let last = answer(socket).await?;
    let last =
        std::str::from_utf8(&last).map_err(|_| malformed(scram::ScramError("the message is not UTF-8")))?;
    match (exchange.finish(last).map_err(malformed)?, role) {
        (Some(signature), Some(role)) => {
            socket.out.authentication(Authentication::SASLFinal(Bytes::from(signature)));
            Ok(role)
        }
        _ => {
            add(&shared.metrics.authentication_failures_total, 1);
            let message = format!("password authentication failed for user \"{user}\"");
            Err(End::Fatal(Report::fatal("28P01", message)))
        }
    }
}

/// The next message, which must be an answer to the question for a password.
async fn answer(socket: &mut Socket) -> Result<Bytes, End> {
    let packet = socket.packet(AUTHENTICATION_BYTES_MAX).await?;
    match frontend::decode(packet).map_err(|frontend::Violation(reason)| violation(reason))? {
        Frontend::Password(bytes) => Ok(bytes),
        Frontend::Terminate => Err(End::Gone),
        _ => Err(violation("expected a SASL response".to_owned())),
    }
}

/// Mechanism and first message of the client.
pub(crate) fn sasl_initial(bytes: Bytes) -> Result<String, scram::ScramError> {
    let broken = |_| scram::ScramError("the message ends early");
    let mut body = frontend::Body(bytes);
    let mechanism = body.string().map_err(broken)?;
    if mechanism != scram::MECHANISM {
        return Err(scram::ScramError("the mechanism is not SCRAM-SHA-256"));
    }
    let length = body.i32().map_err(broken)?;
    if usize::try_from(length).ok() != Some(body.0.len()) {
        return Err(scram::ScramError("the length of the message differs"));
    }
    String::from_utf8(body.0.to_vec()).map_err(|_| scram::ScramError("the message is not UTF-8"))
}

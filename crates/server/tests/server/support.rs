//! A server for a test.

use entresol::{Database, Options};
use entresol_server::{Counts, Limits, Server, ServerOptions};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

/// Nothing here takes longer, or it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) metrics: SocketAddr,
    pub(crate) db: Database,
    counts: Box<dyn Fn() -> Counts + Send + Sync>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

pub(crate) fn options() -> ServerOptions {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let limits = Limits { shutdown: Duration::from_millis(500), ..Limits::default() };
    ServerOptions { listen: any, metrics: Some(any), limits, ..ServerOptions::default() }
}

impl Served {
    pub(crate) async fn start() -> Served {
        Served::with(options()).await
    }

    pub(crate) async fn with(options: ServerOptions) -> Served {
        let database = Options::default().query_memory_bytes_max(64 << 20).worker_threads(2);
        Served::on(Database::volatile(database).unwrap(), options).await
    }

    pub(crate) async fn on(db: Database, options: ServerOptions) -> Served {
        let server = Server::bind(db.clone(), options).await.unwrap();
        let (address, metrics) = (server.address().unwrap(), server.metrics_address().unwrap());
        let counts = Box::new(server.counts());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Served { address, metrics, db, counts, stop, task }
    }

    pub(crate) fn config(&self) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.address.port()).user("test").dbname("test");
        config.connect_timeout(PATIENCE);
        config
    }

    pub(crate) async fn client(&self) -> Client {
        self.connect(&self.config()).await.unwrap()
    }

    pub(crate) async fn connect(
        &self,
        config: &tokio_postgres::Config,
    ) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(client)
    }

    pub(crate) fn counts(&self) -> Counts {
        (self.counts)()
    }

    /// Waits until a count is as it must be.
    pub(crate) async fn eventually(&self, what: &str, is: impl Fn(Counts) -> bool) {
        let start = Instant::now();
        while !is(self.counts()) {
            assert!(start.elapsed() < PATIENCE, "{what}: {:?}", self.counts());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Asserts that no query holds memory; parts of one that was stopped release it a little later, on their
    /// threads.
    pub(crate) async fn memory_is_back(&self) {
        let start = Instant::now();
        while self.db.query_memory_bytes() > 0 {
            assert!(start.elapsed() < PATIENCE, "{} bytes of queries are left", self.db.query_memory_bytes());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// A value of the metrics.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let text = self.http("/metrics").await;
        let line =
            text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
        let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    pub(crate) async fn http(&self, path: &str) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut socket = tokio::net::TcpStream::connect(self.metrics).await.unwrap();
        socket.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Ends the server and checks that everything was released.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        tokio::time::timeout(PATIENCE, self.task).await.expect("server shutting down").unwrap();
        let counts = (self.counts)();
        assert_eq!((counts.connections, counts.open_transactions), (0, 0));
    }
}

/// The SQLSTATE of a failure.
pub(crate) fn code<T>(result: Result<T, tokio_postgres::Error>) -> String {
    match result {
        Ok(_) => "00000".to_owned(),
        Err(error) => match error.code() {
            Some(code) => code.code().to_owned(),
            None => panic!("no SQLSTATE: {error:?}"),
        },
    }
}

/// Rows of a simple query as text.
pub(crate) async fn texts(client: &Client, sql: &str) -> Vec<Vec<Option<String>>> {
    let messages = client.simple_query(sql).await.unwrap();
    let rows = messages.into_iter().filter_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect())
        }
        _ => None,
    });
    rows.collect()
}

/// The one value of a simple query.
pub(crate) async fn one(client: &Client, sql: &str) -> String {
    texts(client, sql).await[0][0].clone().unwrap()
}

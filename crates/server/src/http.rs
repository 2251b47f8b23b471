//! `GET /metrics` and `GET /healthz`: the little of HTTP that a collector and a probe need.
//!
//! One request per connection, at most [`REQUEST_BYTES_MAX`] long, answered within [`REQUEST_TIME_MAX`].

use crate::server::ServerState;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

const REQUEST_BYTES_MAX: usize = 8 << 10;
const REQUEST_TIME_MAX: Duration = Duration::from_secs(5);
/// Requests at a time; more wait to be accepted.
const REQUESTS_MAX: usize = 16;

/// Answers requests until the future is dropped.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<ServerState>) {
    let permits = Arc::new(Semaphore::new(REQUESTS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((socket, _)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    // A client that asks too slowly or disconnects gets no answer.
                    let _ = tokio::time::timeout(REQUEST_TIME_MAX, answer(socket, &shared)).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for metrics");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(mut socket: TcpStream, shared: &ServerState) -> std::io::Result<()> {
    let mut request = Vec::with_capacity(1024);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
        if socket.read_buf(&mut request).await? == 0 {
            break;
        }
    }
    let line = String::from_utf8_lossy(&request);
    let mut words = line.lines().next().unwrap_or("").split(' ');
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET" | "HEAD"), Some("/metrics")) => {
            ("200 OK", shared.metrics.text(&shared.db, &shared.clients))
        }
        (Some("GET" | "HEAD"), Some("/healthz")) => match shared.health() {
            Ok(()) => ("200 OK", "ok\n".to_owned()),
            Err(reason) => ("503 Service Unavailable", format!("{reason}\n")),
        },
        (Some("GET" | "HEAD"), _) => ("404 Not Found", "there are /metrics and /healthz\n".to_owned()),
        _ => ("405 Method Not Allowed", "GET only\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).await?;
    if !line.starts_with("HEAD") {
        socket.write_all(body.as_bytes()).await?;
    }
    socket.shutdown().await
}

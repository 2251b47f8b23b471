//! Server with as much of the protocol of S3 as a test needs, in the memory of the test.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Behaviour of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Works = 0,
    /// Answers 503 Slow Down.
    Refuses = 1,
    /// Takes requests and does not answer.
    Hangs = 2,
}

/// Running server.
#[derive(Clone)]
pub(crate) struct S3Server {
    shared: Arc<Shared>,
    pub(crate) port: u16,
}

#[derive(Default)]
struct Shared {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    mode: AtomicU8,
    requests: AtomicU64,
}

impl S3Server {
    pub(crate) fn start() -> S3Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared: Arc<Shared> = Arc::default();
        let server = S3Server { shared: Arc::clone(&shared), port };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream, &shared));
            }
        });
        server
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        self.shared.mode.store(mode as u8, Ordering::SeqCst);
    }

    pub(crate) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Paths of the objects, with the bucket.
    pub(crate) fn objects(&self) -> Vec<String> {
        self.shared.objects.lock().unwrap().keys().cloned().collect()
    }
}

struct Request {
    method: String,
    path: String,
    query: String,
    range: Option<(usize, usize)>,
    body: Vec<u8>,
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let mut parts = line.split_whitespace();
    let (method, target) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let (mut length, mut range) = (0, None);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok().filter(|bytes| *bytes > 0)?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if let Some(value) = header.strip_prefix("range: bytes=") {
            let (first, last) = value.split_once('-')?;
            range = Some((first.parse().ok()?, last.parse::<usize>().ok()? + 1));
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let path = path.trim_matches('/').to_owned();
    Some(Request { method, path, query: query.to_owned(), range, body })
}

fn serve(stream: &TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader) {
        shared.requests.fetch_add(1, Ordering::SeqCst);
        let mode = shared.mode.load(Ordering::SeqCst);
        if mode == Mode::Hangs as u8 {
            std::thread::sleep(Duration::from_secs(30));
            return;
        }
        let (status, headers, body) = match mode {
            0 => answer(&request, shared),
            _ => ("503 Slow Down", String::new(), b"<Error><Code>SlowDown</Code></Error>".to_vec()),
        };
        let body_sent: &[u8] = if request.method == "HEAD" { &[] } else { &body };
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
        let mut out = stream;
        if out.write_all(head.as_bytes()).and_then(|()| out.write_all(body_sent)).is_err() {
            return;
        }
    }
}

const META: &str = "etag: \"1\"\r\nlast-modified: Fri, 27 Nov 2026 10:00:00 GMT\r\n";

fn answer(request: &Request, shared: &Shared) -> (&'static str, String, Vec<u8>) {
    let mut objects = shared.objects.lock().unwrap();
    let missing = || ("404 Not Found", String::new(), b"<Error><Code>NoSuchKey</Code></Error>".to_vec());
    match (&request.method[..], request.query.contains("list-type=2")) {
        ("PUT", _) => {
            objects.insert(request.path.clone(), request.body.clone());
            ("200 OK", META.to_owned(), Vec::new())
        }
        ("GET", true) => {
            let prefix = request.query.split('&').find_map(|pair| pair.strip_prefix("prefix="));
            let prefix = prefix.unwrap_or_default().replace("%2F", "/");
            let bucket = format!("{}/", request.path);
            let contents: String = objects
                .iter()
                .filter_map(|(path, bytes)| Some((path.strip_prefix(&bucket)?, bytes.len())))
                .filter(|(key, _)| key.starts_with(&prefix))
                .map(|(key, bytes)| {
                    format!(
                        "<Contents><Key>{key}</Key><Size>{bytes}</Size><ETag>1</ETag>\
                         <LastModified>2026-11-27T10:00:00.000Z</LastModified></Contents>"
                    )
                })
                .collect();
            let body =
                format!("<ListBucketResult>{contents}<IsTruncated>false</IsTruncated></ListBucketResult>");
            ("200 OK", String::new(), body.into_bytes())
        }
        ("GET" | "HEAD", false) => {
            let Some(bytes) = objects.get(&request.path) else { return missing() };
            match request.range {
                Some((first, _)) if first >= bytes.len() => {
                    ("416 Range Not Satisfiable", String::new(), Vec::new())
                }
                Some((first, end)) => {
                    let end = end.min(bytes.len());
                    let range = format!("content-range: bytes {first}-{}/{}\r\n", end - 1, bytes.len());
                    ("206 Partial Content", format!("{META}{range}"), bytes[first..end].to_vec())
                }
                None => ("200 OK", META.to_owned(), bytes.clone()),
            }
        }
        ("DELETE", _) => {
            objects.remove(&request.path);
            ("204 No Content", String::new(), Vec::new())
        }
        // Many at once.
        ("POST", _) => {
            let text = String::from_utf8_lossy(&request.body).into_owned();
            let keys: Vec<&str> =
                text.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()).collect();
            let deleted: String = keys
                .iter()
                .map(|key| {
                    objects.remove(&format!("{}/{key}", request.path));
                    format!("<Deleted><Key>{key}</Key></Deleted>")
                })
                .collect();
            ("200 OK", String::new(), format!("<DeleteResult>{deleted}</DeleteResult>").into_bytes())
        }
        _ => ("405 Method Not Allowed", String::new(), Vec::new()),
    }
}

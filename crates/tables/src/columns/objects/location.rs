//! URLs of object stores, as the option `object_store` of a table has them.
//!
//! | URL | store |
//! | --- | --- |
//! | `file:///directory` | files in a directory, which has to exist: one that is not mounted is no empty store |
//! | `s3://bucket/prefix` | Amazon S3, or what speaks its protocol |
//!
//! Parameters follow behind `?`, as `s3://lake/sales?endpoint=http://127.0.0.1:9000&region=local`: `endpoint`, `region` and
//! `anonymous=true` of S3, and `timeout`, the seconds of a request. Credentials are those of the environment
//! (`AWS_ACCESS_KEY_ID` and what else the clients of S3 read); a URL with some is refused, since catalogs show it.

use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Maximum bytes of a URL.
const URL_BYTES_MAX: usize = 1024;
/// Time of a request, if the URL has none.
const TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT_SECONDS_MAX: u64 = 3600;
/// Repetitions of a request that a store answers by an error of its own.
const RETRIES_MAX: usize = 3;
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// URL of an object store; see the [module](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreLocation {
    url: String,
    kind: StoreKind,
    timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum StoreKind {
    Directory(PathBuf),
    Bucket {
        bucket: String,
        prefix: String,
        endpoint: Option<String>,
        region: Option<String>,
        is_anonymous: bool,
    },
}

impl StoreLocation {
    /// Parses a URL; the error says what is wrong with it.
    pub(crate) fn parse(url: &str) -> Result<StoreLocation, String> {
        if url.len() > URL_BYTES_MAX {
            return Err(format!("it has {} bytes, at most {URL_BYTES_MAX} are possible", url.len()));
        }
        let parsed = Url::parse(url).map_err(|error| error.to_string())?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("credentials are taken from the environment, not from the URL".to_owned());
        }
        let (mut endpoint, mut region, mut is_anonymous, mut timeout) = (None, None, false, TIMEOUT);
        let is_bucket = parsed.scheme() == "s3";
        for (name, value) in parsed.query_pairs() {
            match &*name {
                "endpoint" if is_bucket => endpoint = Some(value.into_owned()),
                "region" if is_bucket => region = Some(value.into_owned()),
                "anonymous" if is_bucket => is_anonymous = value == "true",
                "timeout" => timeout = timeout_of(&value)?,
                name => return Err(format!("unknown parameter {name:?}")),
            }
        }
        let kind = match parsed.scheme() {
            "file" => {
                let path = parsed.to_file_path().map_err(|()| "it names no directory".to_owned())?;
                StoreKind::Directory(path)
            }
            "s3" => {
                let bucket = parsed.host_str().filter(|host| !host.is_empty()).ok_or("it names no bucket")?;
                let prefix = parsed.path().trim_matches('/').to_owned();
                StoreKind::Bucket { bucket: bucket.to_owned(), prefix, endpoint, region, is_anonymous }
            }
            scheme => return Err(format!("there is no store for {scheme:?}; take file:// or s3://")),
        };
        Ok(StoreLocation { url: url.to_owned(), kind, timeout })
    }

    /// The URL as it was given.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Longest time of a request, its repetitions not included.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Directory of a store of files.
    pub(crate) fn directory(&self) -> Option<&Path> {
        match &self.kind {
            StoreKind::Directory(path) => Some(path),
            StoreKind::Bucket { .. } => None,
        }
    }

    /// Opens the store, which sends nothing; and the prefix of all names in it.
    pub(crate) fn open(&self) -> object_store::Result<(Arc<dyn ObjectStore>, ObjectPath)> {
        match &self.kind {
            StoreKind::Directory(path) => {
                Ok((Arc::new(LocalFileSystem::new_with_prefix(path)?), ObjectPath::default()))
            }
            StoreKind::Bucket { bucket, prefix, endpoint, region, is_anonymous } => {
                let backoff = BackoffConfig { init_backoff: RETRY_PAUSE, ..BackoffConfig::default() };
                let retry = RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: self.timeout };
                let client = ClientOptions::new()
                    .with_timeout(self.timeout)
                    .with_connect_timeout(self.timeout.min(TIMEOUT))
                    .with_allow_http(endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http:")));
                let mut builder = AmazonS3Builder::from_env()
                    .with_bucket_name(bucket)
                    .with_retry(retry)
                    .with_client_options(client);
                if *is_anonymous {
                    builder = builder.with_skip_signature(true);
                }
                if let Some(endpoint) = endpoint {
                    builder = builder.with_endpoint(endpoint);
                }
                if let Some(region) = region {
                    builder = builder.with_region(region);
                }
                Ok((Arc::new(builder.build()?), ObjectPath::parse(prefix)?))
            }
        }
    }
}

fn timeout_of(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=TIMEOUT_SECONDS_MAX).contains(seconds));
    let seconds =
        seconds.ok_or_else(|| format!("timeout {text:?} is not 1 to {TIMEOUT_SECONDS_MAX} seconds"))?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_or_refused_with_the_reason() {
        let local = StoreLocation::parse("file:///data/a%20b").unwrap();
        assert_eq!(local.directory(), Some(Path::new("/data/a b")));
        assert_eq!(local.timeout(), TIMEOUT);
        let bucket =
            "s3://lake/sales/2026?endpoint=http://127.0.0.1:9000&region=local&anonymous=true&timeout=2";
        let bucket = StoreLocation::parse(bucket).unwrap();
        assert_eq!((bucket.directory(), bucket.timeout()), (None, Duration::from_secs(2)));
        let (_, prefix) = bucket.open().unwrap();
        assert_eq!(prefix.as_ref(), "sales/2026");
        for (url, reason) in [
            ("data", "relative URL"),
            ("ftp://host/x", "no store for \"ftp\""),
            ("s3:///prefix", "names no bucket"),
            ("s3://key:secret@bucket", "credentials"),
            ("file:///data?region=x", "unknown parameter \"region\""),
            ("s3://b?timeout=0", "timeout \"0\""),
        ] {
            let error = StoreLocation::parse(url).unwrap_err();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}

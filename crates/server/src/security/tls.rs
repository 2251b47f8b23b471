//! Encryption: the server's certificate and key.

use crate::options::TlsOptions;
use pgwire::tokio::TlsAcceptor;
use pgwire::tokio::tokio_rustls::rustls::ServerConfig;
use pgwire::tokio::tokio_rustls::rustls::pki_types::pem::PemObject;
use pgwire::tokio::tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::sync::Arc;

/// Reads certificate and key. Errors name the file.
pub(crate) fn acceptor(options: &TlsOptions) -> io::Result<TlsAcceptor> {
    let in_file = |path: &std::path::Path, error: String| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {error}", path.display()))
    };
    let certificates = CertificateDer::pem_file_iter(&options.certificate)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
        .map_err(|error| in_file(&options.certificate, error.to_string()))?;
    if certificates.is_empty() {
        return Err(in_file(&options.certificate, "no certificate found".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(&options.key)
        .map_err(|error| in_file(&options.key, error.to_string()))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| in_file(&options.key, error.to_string()))?;
    // Clients that begin with TLS at once name the protocol that they mean.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

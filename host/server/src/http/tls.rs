//! TLS on accepted connections, from PEM files. Knows rustls; offers HTTP/2 and HTTP/1.1 by ALPN.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::Tls;

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read as PEM.
    #[error("{} is no PEM file that can be used", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// The certificate file holds no certificate.
    #[error("{} holds no certificate", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key do not fit.
    #[error("the certificate and its key cannot be used")]
    Unusable(#[from] rustls::Error),
}

/// The acceptor for these files.
///
/// # Errors
/// When a file is not readable PEM, or key and certificate do not belong together.
pub fn acceptor(files: &Tls) -> Result<TlsAcceptor, TlsError> {
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|source| TlsError::Pem { path: files.key.clone(), source })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fault = |source| TlsError::Pem { path: path.into(), source };
    let chain = CertificateDer::pem_file_iter(path)
        .map_err(fault)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(fault)?;
    if chain.is_empty() { Err(TlsError::Empty { path: path.into() }) } else { Ok(chain) }
}

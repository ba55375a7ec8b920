//! Certificates for encrypted connections, for tests.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore};

/// An authority that signs certificates.
pub struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new one.
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Writes the folder of a server.
    pub fn equip(&self, folder: &Path) {
        let (certificate, key) = self.sign("localhost");
        fs::write(folder.join("ca-cert.pem"), self.certificate.pem()).unwrap();
        fs::write(folder.join("server-cert.pem"), certificate.pem()).unwrap();
        fs::write(folder.join("server-key.pem"), key.serialize_pem()).unwrap();
        fs::set_permissions(folder.join("server-key.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// The configuration of a client that trusts this authority and shows a certificate of `signer`.
    pub fn client(&self, signer: Option<&Authority>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match signer {
            None => builder.with_no_client_auth(),
            Some(signer) => {
                let (certificate, key) = signer.sign("client");
                let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
                let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        })
    }
}

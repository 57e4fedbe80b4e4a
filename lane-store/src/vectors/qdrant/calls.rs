//! Calls of the server's points service: key, deadline, one more try.
//!
//! What must always hold: every request carries the key and a deadline; a call is over when its deadline is,
//! whatever the connection does. Every request of the store may be sent twice: it names points by id and says
//! all of them, so a broken connection is tried again once, at once.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use qdrant_client::qdrant::points_client::PointsClient;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Response, Status};

use super::super::VectorError;
use super::credential::Credential;
use super::failure::{failure, is_broken, is_refusal};

/// Answers may hold a page of vectors: 256 of 4096 dimensions are 4 MiB.
const MOST_ANSWER_BYTES: usize = 64 * 1024 * 1024;
const CONNECT: Duration = Duration::from_secs(3);
/// A peer that vanished without a word is found out within two of these.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// See the module.
#[derive(Debug)]
pub(super) struct Calls {
    channel: Channel,
    credential: Credential,
}

impl Calls {
    /// Connects with the first call and again whenever the connection is lost. Fails for a URL or a certificate
    /// that can never work.
    pub(super) fn new(url: &str, ca_file: Option<&PathBuf>, credential: Credential) -> Result<Self, VectorError> {
        let unusable = |why: String| VectorError::Storage(format!("the server's address: {why}"));
        let mut endpoint = Endpoint::from_shared(url.to_owned())
            .map_err(|_| unusable("must be a URL, http://host:6334 or https://host:6334".into()))?
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .tcp_nodelay(true);
        match endpoint.uri().scheme_str() {
            Some("http") if ca_file.is_none() => {}
            Some("http") => return Err(unusable("a CA is given, so it must begin with https://".into())),
            Some("https") => {
                let mut tls = ClientTlsConfig::new();
                tls = match ca_file {
                    Some(file) => {
                        let pem = std::fs::read(file)
                            .map_err(|error| unusable(format!("the CA {}: {error}", file.display())))?;
                        tls.ca_certificate(Certificate::from_pem(pem))
                    }
                    None => tls.with_native_roots(),
                };
                endpoint = endpoint.tls_config(tls).map_err(|error| unusable(format!("TLS: {error}")))?;
            }
            _ => return Err(unusable("must begin with http:// or https://".into())),
        }
        Ok(Self { channel: endpoint.connect_lazy(), credential })
    }

    fn client(&self) -> PointsClient<Channel> {
        PointsClient::new(self.channel.clone()).max_decoding_message_size(MOST_ANSWER_BYTES)
    }

    /// One call.
    pub(super) async fn call<M, R, F>(
        &self,
        limit: Duration,
        message: M,
        send: impl Fn(PointsClient<Channel>, Request<M>) -> F,
    ) -> Result<R, VectorError>
    where
        M: Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        tokio::time::timeout(limit, self.attempts(limit, message, send))
            .await
            .unwrap_or_else(|_| Err(VectorError::Unavailable(format!("no answer within {limit:?}"))))
    }

    async fn attempts<M, R, F>(
        &self,
        limit: Duration,
        message: M,
        send: impl Fn(PointsClient<Channel>, Request<M>) -> F,
    ) -> Result<R, VectorError>
    where
        M: Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let mut key = self.credential.key().await?;
        let (mut renewed, mut reconnected) = (false, false);
        loop {
            let mut request = Request::new(message.clone());
            // So that a server does not go on with what nobody waits for.
            request.set_timeout(limit);
            if let Some(key) = &key {
                key.put(request.metadata_mut());
            }
            let status = match send(self.client(), request).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            if is_refusal(&status) && !renewed {
                renewed = true;
                if let Some(refused) = &key
                    && let Some(other) = self.credential.instead_of(refused).await
                {
                    key = Some(other);
                    continue;
                }
            }
            if is_broken(&status) && !reconnected {
                reconnected = true;
                continue;
            }
            return Err(failure(&status));
        }
    }
}

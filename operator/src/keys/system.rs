//! Makes the release's own secrets where they are missing, and renews the query service's certificate.
//!
//! 1. Master key and CA are created if absent; two replicas that try end with one.
//! 2. The CA's certificate alone goes into a ConfigMap, for callers.
//! 3. The query service's certificate is issued, and issued anew in time.
//!
//! All of it stays when the chart is uninstalled (`helm.sh/resource-policy: keep`).

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use lanekeeper_core::cluster::{self, key, label, system};

use super::{Authority, Keys, certificate};
use crate::apply::{Ownership, apply};
use crate::build::secret::CERTIFICATE;
use crate::error::{Error, is_missing};

/// The keys, and when to come again.
pub async fn ensure(client: &Client, namespace: &str, now: Timestamp) -> Result<(Keys, Timestamp), Error> {
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let master = get_or_make(&secrets, namespace, system::MASTER, || {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| Error::Keys { reason: error.to_string() })?;
        Ok([(key::MASTER, bytes.to_vec()), (key::MASTER_VERSION, b"1".to_vec())].into())
    })
    .await?;
    let authority = get_or_make(&secrets, namespace, system::CA, || {
        let (certificate, private) = Authority::make(now)?;
        Ok([(key::TLS_CERTIFICATE, certificate.into_bytes()), (key::TLS_KEY, private.into_bytes())].into())
    })
    .await?;
    let keys = Keys::read(&master, &authority)?;
    let here = Ownership { label: label::NAME, value: label::LANEKEEPER };
    let ca = ConfigMap {
        metadata: metadata(namespace, system::CA),
        data: Some([(key::CA_CERTIFICATE.to_owned(), keys.authority.certificate().to_owned())].into()),
        ..ConfigMap::default()
    };
    apply(client, ca, None, here).await?;
    let due = query_certificate(client, &secrets, namespace, &keys, now, here).await?;
    Ok((keys, due))
}

async fn query_certificate(
    client: &Client,
    secrets: &Api<Secret>,
    namespace: &str,
    keys: &Keys,
    now: Timestamp,
    here: Ownership<'_>,
) -> Result<Timestamp, Error> {
    let stored = match secrets.get(system::QUERY_TLS).await {
        Ok(stored) => Some(stored),
        Err(error) if is_missing(&error) => None,
        Err(error) => return Err(Error::api("get", format!("Secret {namespace}/{}", system::QUERY_TLS))(error)),
    };
    let names = cluster::query_dns_names(namespace);
    let wanted = certificate::Wanted { names: &names, authority: &keys.authority, now, renew: true };
    let data = stored.as_ref().and_then(|stored| stored.data.as_ref());
    let part = |name: &str| data.and_then(|data| data.get(name)).map(|bytes| bytes.0.as_slice());
    let stamp = stored.as_ref().and_then(|stored| stored.metadata.annotations.as_ref()?.get(CERTIFICATE));
    let kept = part(key::TLS_CERTIFICATE).zip(part(key::TLS_KEY));
    let pair = certificate::keep_or_issue(&wanted, kept, stamp.map(String::as_str))?;
    let mut metadata = metadata(namespace, system::QUERY_TLS);
    metadata.annotations.get_or_insert_default().insert(CERTIFICATE.to_owned(), pair.stamp);
    let data = [
        (key::TLS_CERTIFICATE, pair.certificate),
        (key::TLS_KEY, pair.key),
        (key::CA_CERTIFICATE, keys.authority.certificate().as_bytes().to_vec()),
    ];
    let secret = Secret {
        metadata,
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data.into_iter().map(|(name, bytes)| (name.to_owned(), ByteString(bytes))).collect()),
        ..Secret::default()
    };
    apply(client, secret, stored.as_ref(), here).await?;
    Ok(pair.due)
}

fn metadata(namespace: &str, name: &str) -> ObjectMeta {
    let labels = [(label::MANAGED_BY, label::LANEKEEPER), (label::NAME, label::LANEKEEPER)];
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        labels: Some(labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()),
        annotations: Some([("helm.sh/resource-policy".to_owned(), "keep".to_owned())].into()),
        ..ObjectMeta::default()
    }
}

async fn get_or_make(
    secrets: &Api<Secret>,
    namespace: &str,
    name: &str,
    make: impl FnOnce() -> Result<BTreeMap<&'static str, Vec<u8>>, Error>,
) -> Result<Secret, Error> {
    let object = || format!("Secret {namespace}/{name}");
    match secrets.get(name).await {
        Ok(found) => return Ok(found),
        Err(error) if is_missing(&error) => {}
        Err(error) => return Err(Error::api("get", object())(error)),
    }
    let data = make()?;
    let secret = Secret {
        metadata: metadata(namespace, name),
        type_: Some("Opaque".to_owned()),
        data: Some(data.into_iter().map(|(name, bytes)| (name.to_owned(), ByteString(bytes))).collect()),
        ..Secret::default()
    };
    match secrets.create(&PostParams::default(), &secret).await {
        Ok(made) => {
            tracing::info!(secret = name, "made");
            Ok(made)
        }
        // Somebody was faster: theirs is the one.
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            secrets.get(name).await.map_err(Error::api("get", object()))
        }
        Err(error) => Err(Error::api("create", object())(error)),
    }
}

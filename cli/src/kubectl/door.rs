//! The way to the query service from outside: a token of a ServiceAccount (TokenRequest) and a port of this machine
//! that leads to a replica through the API server.
//!
//! What must always hold: TLS is between this process and the replica, whose certificate must be signed by the
//! release's own authority; the API server in between carries bytes it cannot read. The token is made for
//! `lanekeeper` alone (the API server would not take it) and lives ten minutes.

use std::net::SocketAddr;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use lanekeeper_core::LaneName;
use lanekeeper_core::cluster::{TOKEN_AUDIENCE, key, label, port, system};
use lanekeeper_core::secret::Secret;
use lanekeeper_crds::Lane;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::cluster::{Cluster, Part, asked, words};
use crate::client::Through;
use crate::failure::Failure;

/// The shortest that the API server gives.
const TOKEN_SECONDS: i64 = 600;

/// Ends when it is dropped.
#[derive(Debug)]
pub(super) struct Door {
    task: JoinHandle<()>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens it, asking as `account`, or as the only ServiceAccount that `lane` lets in.
pub(super) async fn open(
    cluster: &Cluster,
    account: Option<&LaneName>,
    lane: Option<&LaneName>,
) -> Result<(Door, Through), Failure> {
    let account = match (account, lane) {
        (Some(account), _) => account.clone(),
        (None, Some(lane)) => only_account(lane, &cluster.lane(lane).await?)?,
        (None, None) => return Err(Failure::usage("name a lane with --lane, or with --account whom to ask as")),
    };
    let token = token(cluster, &account).await?;
    let authorities = authorities(cluster).await?;
    let (address, task) = forward(cluster).await?;
    let url = format!("https://{}.{}.svc:{}", system::QUERY, cluster.system, address.port());
    let url = url.parse().map_err(|error| Failure::usage(format!("--system-namespace is no name: {error}")))?;
    Ok((Door { task }, Through { url, address, authorities, token }))
}

/// The one ServiceAccount in the lane's access. With several it is for the person to say.
fn only_account(name: &LaneName, lane: &Lane) -> Result<LaneName, Failure> {
    let accounts: Vec<LaneName> = lane
        .spec
        .access
        .iter()
        .filter_map(|entry| entry.service_account.as_ref())
        .filter_map(|account| format!("{}/{}", account.namespace, account.name).parse().ok())
        .collect();
    match accounts.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Failure::usage(format!(
            "the access of lane {name} lets no ServiceAccount in: --account says whom to ask as"
        ))),
        several => {
            let names: Vec<String> = several.iter().map(ToString::to_string).collect();
            Err(Failure::usage(format!("lane {name} lets several in; choose with --account: {}", names.join(", "))))
        }
    }
}

async fn token(cluster: &Cluster, account: &LaneName) -> Result<Secret<String>, Failure> {
    let accounts = Api::<ServiceAccount>::namespaced(cluster.client.clone(), account.namespace());
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![TOKEN_AUDIENCE.to_owned()],
            expiration_seconds: Some(TOKEN_SECONDS),
            bound_object_ref: None,
        },
        ..TokenRequest::default()
    };
    let made = accounts
        .create_token_request(account.name(), &PostParams::default(), &request)
        .await
        .map_err(|error| asked(&format!("a token of the ServiceAccount {account}"), error))?;
    let token = made.status.map(|status| status.token).filter(|token| !token.is_empty());
    token.map(Secret::new).ok_or_else(|| Failure::refused("the API server answered without a token"))
}

async fn authorities(cluster: &Cluster) -> Result<Vec<u8>, Failure> {
    let what = || format!("the ConfigMap {} in {}", system::CA, cluster.system);
    let missing = || {
        Failure::refused(format!("there is no {}: is the release in another namespace (--system-namespace)?", what()))
    };
    match cluster.part::<ConfigMap>(&cluster.system, system::CA).await {
        Part::Found(map) => {
            map.data.and_then(|mut data| data.remove(key::CA_CERTIFICATE)).map(String::into_bytes).ok_or_else(missing)
        }
        Part::Missing => Err(missing()),
        Part::Unseen(why) => Err(Failure::refused(format!("cannot get {}: {why}", what()))),
    }
}

/// Listens on this machine. Each connection is one of its own to a replica that was ready when the command began.
async fn forward(cluster: &Cluster) -> Result<(SocketAddr, JoinHandle<()>), Failure> {
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), &cluster.system);
    let replicas = ListParams::default().labels(&format!("{}={}", label::NAME, system::QUERY));
    let listed = pods.list(&replicas).await.map_err(|error| asked("the pods of the query service", error))?;
    let Some(pod) = listed.items.iter().find(|pod| is_ready(pod)).map(|pod| pod.name_any()) else {
        return Err(Failure::Unreachable(format!("no pod of {} in {} is ready", system::QUERY, cluster.system)));
    };
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .map_err(|error| Failure::because("cannot listen on this machine", &error))?;
    let address = listener.local_addr().map_err(|error| Failure::because("cannot listen on this machine", &error))?;
    let task = tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (pods, pod) = (pods.clone(), pod.clone());
            tokio::spawn(async move {
                let mut forwarder = match pods.portforward(&pod, &[port::QUERY]).await {
                    Ok(forwarder) => forwarder,
                    // The client sees a server that hangs up; the reason is here alone.
                    Err(error) => {
                        crate::output::complain(&format!("cannot forward a port to pod {pod}: {}", words(&error)));
                        return;
                    }
                };
                if let Some(mut far) = forwarder.take_stream(port::QUERY) {
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                }
                forwarder.abort();
            });
        }
    });
    Ok((address, task))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|found| found.iter().any(|found| found.type_ == "Ready" && found.status == "True"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lane(access: serde_json::Value) -> Lane {
        let spec = json!({"kind": "corpus", "access": access});
        serde_json::from_value(json!({
            "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "Lane", "metadata": {"name": "docs"}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn the_account_is_the_only_one_or_named() {
        let name: LaneName = "team/docs".parse().unwrap();
        let entry = |name: &str| json!({"serviceAccount": {"namespace": "team", "name": name}, "role": "reader"});
        let only = lane(json!([entry("agent"), {"user": "bob", "role": "admin"}]));
        assert_eq!(only_account(&name, &only).unwrap().to_string(), "team/agent");
        let several = format!("{:?}", only_account(&name, &lane(json!([entry("one"), entry("two")]))));
        assert!(several.contains("team/one, team/two"), "{several}");
        assert!(only_account(&name, &lane(json!([]))).is_err());
    }
}

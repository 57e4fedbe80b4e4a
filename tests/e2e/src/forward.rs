//! A port of this machine that leads to a pod, through the API server. For clusters whose pods cannot be
//! reached from here.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Forward {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens it to one port of one pod. Each connection is one of its own to the pod.
pub(crate) async fn open(pods: Api<Pod>, pod: String, port: u16) -> Result<Forward> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("listen on this machine")?;
    let address = listener.local_addr()?;
    let task = tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (pods, pod) = (pods.clone(), pod.clone());
            tokio::spawn(async move {
                // A connection that fails looks to the caller like a server that hangs up, which it is.
                let Ok(mut forwarder) = pods.portforward(&pod, &[port]).await else { return };
                if let Some(mut far) = forwarder.take_stream(port) {
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                }
                forwarder.abort();
            });
        }
    });
    Ok(Forward { address, task })
}

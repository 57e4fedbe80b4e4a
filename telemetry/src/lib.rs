//! Logs (JSON, on stderr, filtered by `RUST_LOG`), and traces where an OTLP endpoint is configured.
//!
//! What must always hold: a collector that does not answer delays nothing but the end of the program. What this does
//! not do: decide what may be in a span. Spans carry routes, ids and names of objects, never a text.

use async_trait::async_trait;
use bytes::Bytes;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt};

/// Sends spans on the program's own runtime: the exporter's thread has none.
#[derive(Debug, Clone)]
struct OnRuntime {
    client: reqwest::Client,
    runtime: tokio::runtime::Handle,
}

#[async_trait]
impl HttpClient for OnRuntime {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move {
            let answer = client.execute(request.try_into()?).await?;
            let status = answer.status();
            let mut response = Response::new(answer.bytes().await?);
            *response.status_mut() = status;
            Ok::<_, reqwest::Error>(response)
        });
        Ok(sent.await??)
    }
}

/// Ends the traces when dropped.
#[derive(Debug)]
#[must_use = "what is not sent yet is lost without it"]
pub struct Guard(Option<SdkTracerProvider>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(provider) = self.0.take() {
            // What cannot be sent now is lost; the program ends.
            let _ = provider.shutdown();
        }
    }
}

/// Sets up logs and traces of the program `service`. Call once, within a runtime of several threads; fails where
/// another subscriber is set, or where `otlp_endpoint` is no URL.
pub fn start(service: &'static str, otlp_endpoint: Option<&str>) -> anyhow::Result<Guard> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let provider = otlp_endpoint.map(|endpoint| provider(service, endpoint)).transpose()?;
    let traces = provider.as_ref().map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer(service)));
    let logs = fmt::layer().json().with_writer(std::io::stderr);
    tracing_subscriber::registry().with(filter).with(logs).with(traces).try_init()?;
    Ok(Guard(provider))
}

fn provider(service: &'static str, endpoint: &str) -> anyhow::Result<SdkTracerProvider> {
    let client = OnRuntime {
        client: reqwest::Client::builder().timeout(std::time::Duration::from_secs(10)).build()?,
        runtime: tokio::runtime::Handle::current(),
    };
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .build()?;
    let resource = opentelemetry_sdk::Resource::builder().with_service_name(service).build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::post;
    use tokio::sync::mpsc;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn spans_reach_the_collector_before_the_program_ends() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (sent, mut received) = mpsc::unbounded_channel();
        let collect = move |body: bytes::Bytes| async move { _ = sent.send(body) };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/", listener.local_addr().unwrap());
        let router = Router::new().route("/v1/traces", post(collect));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let guard = super::start("lanekeeper-of-a-test", Some(&endpoint)).unwrap();
        tracing::info_span!("a span of the test").in_scope(|| {});
        tokio::task::spawn_blocking(move || drop(guard)).await.unwrap();
        let body = received.recv().await.unwrap();
        for text in ["lanekeeper-of-a-test", "a span of the test"] {
            assert!(body.windows(text.len()).any(|part| part == text.as_bytes()), "{text}");
        }
    }
}

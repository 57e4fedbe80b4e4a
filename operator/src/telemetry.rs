//! Logs, and traces where an OTLP endpoint is configured.

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

/// Sets up logs (JSON, filtered by `RUST_LOG`) and traces. Call once, within a runtime.
pub fn start(otlp_endpoint: Option<&str>) -> anyhow::Result<Guard> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let provider = otlp_endpoint.map(provider).transpose()?;
    let traces = provider
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer("lanekeeper-operator")));
    tracing_subscriber::registry().with(filter).with(fmt::layer().json()).with(traces).try_init()?;
    Ok(Guard(provider))
}

fn provider(endpoint: &str) -> anyhow::Result<SdkTracerProvider> {
    let client = OnRuntime {
        client: reqwest::Client::builder().timeout(std::time::Duration::from_secs(10)).build()?,
        runtime: tokio::runtime::Handle::current(),
    };
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .build()?;
    let resource = opentelemetry_sdk::Resource::builder().with_service_name("lanekeeper-operator").build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

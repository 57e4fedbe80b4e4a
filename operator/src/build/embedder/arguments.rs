//! Command lines of the runtimes.
//!
//! builtin is our own server and runs in every test of a cluster. tei and llamacpp are generated from their manuals
//! and held by snapshots; neither was run here, for want of their images (docs/embedders.md says so).

use lanekeeper_core::cluster::{port, program};
use lanekeeper_crds::embedder::Runtime;

use super::EmbedderPlan;

/// Where the weights' volume is mounted.
pub const CACHE: &str = "/cache";

/// Program and arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// Left out: the image's own.
    pub command: Vec<String>,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// The command line of a runtime that runs here; `None` for an external one.
#[must_use]
pub fn command_line(plan: &EmbedderPlan<'_>) -> Option<CommandLine> {
    match plan.spec.runtime {
        Runtime::Builtin => Some(builtin(plan)),
        Runtime::Tei => Some(tei(plan)),
        Runtime::Llamacpp => Some(llamacpp(plan)),
        Runtime::External => None,
    }
}

fn builtin(plan: &EmbedderPlan<'_>) -> CommandLine {
    CommandLine {
        command: vec![program::EMBEDDER.to_owned()],
        arguments: vec![
            format!("--model={}", plan.spec.model),
            format!("--listen=[::]:{}", port::EMBEDDER),
            format!("--metrics=[::]:{}", port::METRICS),
        ],
    }
}

/// text-embeddings-inference's `text-embeddings-router`. Its image starts it by itself.
fn tei(plan: &EmbedderPlan<'_>) -> CommandLine {
    let spec = plan.spec;
    let mut arguments = vec![
        format!("--model-id={}", spec.model),
        format!("--served-model-name={}", spec.model),
        "--hostname=::".to_owned(),
        format!("--port={}", port::EMBEDDER),
        format!("--prometheus-port={}", port::METRICS),
        // A text over the limit is refused, never cut: cut text would be another text under the same name.
        "--auto-truncate=false".to_owned(),
        "--max-client-batch-size=64".to_owned(),
    ];
    if let Some(revision) = &spec.revision {
        arguments.push(format!("--revision={revision}"));
    }
    if let Some(dtype) = spec.dtype.as_deref().and_then(tei_dtype) {
        arguments.push(format!("--dtype={dtype}"));
    }
    if spec.cache.is_some() {
        arguments.push(format!("--huggingface-hub-cache={CACHE}"));
    }
    CommandLine { command: Vec::new(), arguments }
}

/// It knows two number types; another is left to it.
fn tei_dtype(dtype: &str) -> Option<&'static str> {
    match dtype {
        "f32" | "float32" => Some("float32"),
        "f16" | "float16" => Some("float16"),
        _ => None,
    }
}

/// llama.cpp's `llama-server`. The model is a repository of a model hub (`owner/name`, with `:quantisation` behind
/// it where one is meant) or, if it begins with `/`, a file.
fn llamacpp(plan: &EmbedderPlan<'_>) -> CommandLine {
    let spec = plan.spec;
    let model = if spec.model.starts_with('/') {
        format!("--model={}", spec.model)
    } else {
        format!("--hf-repo={}", spec.model)
    };
    let mut arguments = vec![
        "--embedding".to_owned(),
        model,
        format!("--alias={}", spec.model),
        "--host=::".to_owned(),
        format!("--port={}", port::EMBEDDER),
        "--metrics".to_owned(),
    ];
    if let Some(tokens) = spec.max_tokens {
        // A text is read in one piece, so a batch must hold the longest.
        arguments.extend([
            format!("--ctx-size={tokens}"),
            format!("--batch-size={tokens}"),
            format!("--ubatch-size={tokens}"),
        ]);
    }
    if spec.gpu.is_some() {
        // All layers.
        arguments.push("--n-gpu-layers=999".to_owned());
    }
    CommandLine { command: Vec::new(), arguments }
}

//! Writes the model as an ordinary ONNX graph, for comparisons with other runtimes:
//! `export_plain model.safetensors OUT.onnx`.

use anyhow::Context;
use lanekeeper_embedder::{Attention, convert};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(weights), Some(out)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("export_plain model.safetensors OUT.onnx");
    };
    let weights = std::fs::read(&weights).with_context(|| format!("cannot read {}", weights.display()))?;
    std::fs::write(&out, convert(&weights, Attention::Plain)?)
        .with_context(|| format!("cannot write {}", out.display()))
}

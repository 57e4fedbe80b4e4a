//! The chart as text: helm's own lint, what it renders to (kept in tests/e2e/snapshots; UPDATE=1 writes them
//! anew), and values that it refuses.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::chart::{RELEASE, SYSTEM};
use crate::shell;
use crate::world::World;

const WITHIN: Duration = Duration::from_secs(60);

/// A name, the values, and a reason why these.
fn renderings() -> [(&'static str, Value); 3] {
    [
        ("default", json!({})),
        (
            "qdrant",
            json!({
                "image": {"repository": "registry.example/lanekeeper", "digest": format!("sha256:{}", "0".repeat(64)),
                    "pullSecrets": ["pull"]},
                "qdrant": {"url": "http://qdrant.vectors.svc:6334", "secretName": "key"},
                "networkPolicies": {"apiServer": {"cidrs": ["10.0.0.1/32"], "ports": [6443]},
                    "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
                    "external": [{"cidr": "192.0.2.7/32", "port": 443}]},
                "tracing": {"otlpEndpoint": "http://collector.observability.svc:4318"},
            }),
        ),
        (
            "least",
            json!({
                "crds": {"install": false}, "networkPolicies": {"enabled": false}, "test": {"enabled": false},
                "operator": {"retainVolumes": false, "replicas": 1},
                "query": {"podDisruptionBudget": {"enabled": false}, "topologySpread": {"enabled": false}, "replicas": 1},
            }),
        ),
    ]
}

/// Values that must be refused, and a word of the refusal.
fn refused() -> [(Value, &'static str); 8] {
    [
        (json!({"imag": {"tag": "1"}}), "imag"),
        (json!({"query": {"replica": 3}}), "replica"),
        (json!({"query": {"replicas": "3"}}), "replicas"),
        (json!({"image": {"pullPolicy": "Sometimes"}}), "pullPolicy"),
        (json!({"image": {"digest": "sha256:abc"}}), "digest"),
        (json!({"query": {"podLabels": {"lanekeeper.dev/lane": "x"}}}), "podLabels"),
        (json!({"qdrant": {"url": "http://user:secret@qdrant:6334"}}), "url"),
        (json!({"qdrant": {"url": "http://qdrant:6334", "trial": {"enabled": true}}}), "qdrant"),
    ]
}

pub(super) async fn run(world: &World) -> Result<()> {
    let chart = world.root.join("charts/lanekeeper");
    shell::run(&world.helm, ["lint".as_ref(), "--strict".as_ref(), chart.as_os_str()], WITHIN).await?;
    for (name, values) in renderings() {
        let text = render(world, &chart, &values).await.with_context(|| format!("render {name}"))?;
        compare(&world.root.join(format!("tests/e2e/snapshots/{name}.yaml")), &text)?;
        check(&text).with_context(|| format!("the rendering {name}"))?;
    }
    for (values, word) in refused() {
        match render(world, &chart, &values).await {
            Ok(_) => bail!("taken: {values}"),
            Err(error) => ensure!(format!("{error:#}").contains(word), "{values} is refused without {word}: {error:#}"),
        }
    }
    Ok(())
}

async fn render(world: &World, chart: &Path, values: &Value) -> Result<String> {
    let file = world.scratch.join("rendered-values.json");
    std::fs::write(&file, values.to_string())?;
    let arguments = [
        "template".as_ref(),
        RELEASE.as_ref(),
        chart.as_os_str(),
        "--namespace".as_ref(),
        SYSTEM.as_ref(),
        "--kube-version".as_ref(),
        "1.33.0".as_ref(),
        "--values".as_ref(),
        file.as_os_str(),
    ];
    shell::run(&world.helm, arguments, WITHIN).await
}

fn compare(file: &Path, text: &str) -> Result<()> {
    // The kinds have snapshots of their own.
    let documents = text.split("\n---\n").filter(|document| !document.contains("kind: CustomResourceDefinition"));
    let text = documents.collect::<Vec<_>>().join("\n---\n");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(file.parent().context("no folder")?)?;
        return std::fs::write(file, text).with_context(|| format!("write {}", file.display()));
    }
    let kept = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    if let Some((number, (old, new))) = kept.lines().zip(text.lines()).enumerate().find(|(_, (old, new))| old != new) {
        bail!("{} line {} was {old:?} and is {new:?}; UPDATE=1 takes it over", file.display(), number + 1);
    }
    ensure!(kept.len() == text.len(), "{} is longer or shorter; UPDATE=1 takes it over", file.display());
    Ok(())
}

/// What every rendering must hold, whatever its snapshot says.
fn check(text: &str) -> Result<()> {
    for document in text.split("\n---\n") {
        let is = |kind: &str| document.lines().any(|line| line == format!("kind: {kind}"));
        if is("CustomResourceDefinition") {
            ensure!(document.contains("helm.sh/resource-policy: keep"), "a kind would go with the chart: {document}");
        }
        if is("Deployment") || is("Job") || is("StatefulSet") {
            for must in [
                "runAsNonRoot: true",
                "readOnlyRootFilesystem: true",
                "allowPrivilegeEscalation: false",
                "drop: [ALL]",
                "type: RuntimeDefault",
            ] {
                ensure!(document.contains(must), "{must} is missing in {document}");
            }
        }
        ensure!(
            !document.contains("resources: [\"*\"]") && !document.contains("verbs: [\"*\"]"),
            "a rule for all: {document}"
        );
    }
    Ok(())
}

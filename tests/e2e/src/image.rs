//! The image of the tests, made from the programs that were built, without an image builder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::node::Node;
use crate::shell;

/// Every program of the image (docs/cluster-contract.md).
const PROGRAMS: [&str; 5] =
    ["lanekeeper", "lanekeeper-operator", "lanekeeper-query", "lanekeeper-store", "lanekeeper-embedder"];
const PACK: Duration = Duration::from_secs(300);

/// Names of the images in the cluster.
#[derive(Debug, Clone)]
pub(crate) struct Images {
    /// The product's.
    pub(crate) product: String,
    /// The product's with this program beside it, for pods that test from inside; `None` on a cluster that is
    /// not ours.
    pub(crate) inside: Option<String>,
}

/// Packs the programs and loads them. The tag is new each time, so that a pod never runs an older build.
pub(crate) async fn build(root: &Path, target: &Path, node: &Node) -> Result<Images> {
    let debug = target.join("debug");
    let work = target.join("e2e/image");
    if work.exists() {
        std::fs::remove_dir_all(&work).context("clear the image's folder")?;
    }
    std::fs::create_dir_all(&work).context("make the image's folder")?;
    let programs = PROGRAMS.map(|program| debug.join(program));
    for program in &programs {
        ensure!(program.is_file(), "{} is not built; `make e2e` builds it", program.display());
    }
    let model = model_folder()?;
    let rootfs = work.join("product");
    let mut arguments = vec![rootfs.clone().into_os_string(), "--model".into(), model.clone().into_os_string()];
    arguments.extend(programs.iter().map(|program| program.clone().into_os_string()));
    shell::run_in(root, "image/rootfs.sh", &arguments, PACK).await?;
    let tag = format!("{}", jiff::Timestamp::now().as_millisecond());
    let product = format!("localhost/lanekeeper:{tag}");
    load(root, node, &product, &rootfs, &work.join("product.tar"), &model).await?;

    let inside = format!("localhost/lanekeeper-e2e:{tag}");
    let rootfs = work.join("inside");
    let own = std::env::current_exe().context("find this program")?;
    let arguments =
        vec![rootfs.clone().into_os_string(), own.into_os_string(), debug.join("lanekeeper").into_os_string()];
    shell::run_in(root, "image/rootfs.sh", &arguments, PACK).await?;
    load(root, node, &inside, &rootfs, &work.join("inside.tar"), &model).await?;
    std::fs::remove_dir_all(&work).context("clear the image's folder")?;
    Ok(Images { product, inside: Some(inside) })
}

async fn load(root: &Path, node: &Node, name: &str, rootfs: &Path, archive: &Path, model: &Path) -> Result<()> {
    let model = model.file_name().context("the model's folder has no name")?.to_string_lossy().into_owned();
    let model = format!("LANEKEEPER_MODEL_DIR=/models/{model}");
    let arguments = [name.as_ref(), rootfs.as_os_str(), archive.as_os_str(), "--env".as_ref(), model.as_ref()];
    shell::run_in(root, "image/archive.sh", arguments, PACK).await?;
    node.load(archive).await
}

/// Where `lanekeeper model fetch` put it.
fn model_folder() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = variable("LANEKEEPER_MODEL_DIR") {
        return Ok(folder);
    }
    let cache = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    let folder = cache.context("neither HOME nor XDG_CACHE_HOME is set")?.join("lanekeeper/models/all-MiniLM-L6-v2");
    ensure!(
        folder.join("manifest.json").is_file(),
        "the model is not in {}; `make model` fetches it",
        folder.display()
    );
    Ok(folder)
}

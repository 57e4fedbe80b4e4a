//! Cases: what they are called, what they need, and how a run goes through them.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::node::Node;
use crate::world::World;
use crate::{Run, bench, cases, chart, evidence, image};

/// What a case runs.
pub(crate) type Steps = for<'a> fn(&'a World) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// What must be there for a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The kinds, and nothing that acts on them.
    Kinds,
    /// The whole product.
    Product,
    /// The whole product, on a cluster that we booted and may do anything with.
    OwnCluster,
}

/// One case.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// As cases.md numbers it, or a word of its own.
    pub(crate) number: &'static str,
    /// What is right, as a name.
    pub(crate) name: &'static str,
    pub(crate) need: Need,
    pub(crate) steps: Steps,
}

/// Runs what was asked for. False if a case failed.
pub(crate) async fn run(arguments: Run) -> Result<bool> {
    let chosen = choose(&arguments.only)?;
    if arguments.list {
        for case in &chosen {
            println!("e2e::{}", case.name);
        }
        return Ok(true);
    }
    let root = repository()?;
    let target = if arguments.target.is_absolute() { arguments.target.clone() } else { root.join(&arguments.target) };
    let needs_product = chosen.iter().any(|case| case.need != Need::Kinds);
    let world = tokio::select! {
        world = prepare(&arguments, &root, &target, needs_product) => world,
        () = interrupted() => bail!("interrupted"),
    };
    let world = match world {
        Ok(world) => world,
        Err(error) => {
            end(&root, arguments.kubeconfig.is_none() && !arguments.keep).await?;
            return Err(error);
        }
    };
    let work = async {
        if arguments.bench {
            return bench::run(&world).await.map(|()| true);
        }
        println!("running {} cases", chosen.len());
        all(&world, &chosen, arguments.keep).await
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        () = interrupted() => Err(anyhow::anyhow!("interrupted")),
    };
    // For `cargo xtask rbac-used`, which runs when the cluster is gone.
    if let Some(node) = &world.node {
        std::fs::copy(node.path("audit").await?, world.scratch.join("audit.log")).context("keep the audit log")?;
    }
    end(&root, world.node.is_some() && !arguments.keep).await?;
    outcome
}

async fn prepare(arguments: &Run, root: &Path, target: &Path, needs_product: bool) -> Result<World> {
    let (kubeconfig, node, images) = match &arguments.kubeconfig {
        Some(kubeconfig) => {
            let images = match (&arguments.image, needs_product) {
                (Some(product), true) => Some(image::Images { product: product.clone(), inside: None }),
                (None, true) => bail!("on a cluster that is not ours --image must name an image it can pull"),
                (_, false) => None,
            };
            (kubeconfig.clone(), None, images)
        }
        None => {
            let node = Node::boot(root).await?;
            let images = if needs_product { Some(image::build(root, target, &node).await?) } else { None };
            (node.path("kubeconfig").await?, Some(node), images)
        }
    };
    let world = World::connect(root.to_owned(), target, kubeconfig, node, images).await?;
    if let Err(error) = chart::install(&world, &chart::values(&world)).await {
        let folder = evidence::keep(&world, "install", &[]).await;
        return Err(error.context(format!("install the chart; what was seen is in {}", folder.display())));
    }
    Ok(world)
}

async fn end(root: &Path, ours: bool) -> Result<()> {
    if ours { Node::at(root).down().await } else { Ok(()) }
}

async fn all(world: &World, chosen: &[Case], keep: bool) -> Result<bool> {
    let (mut passed, mut failed, mut ignored) = (0_usize, Vec::new(), 0_usize);
    for case in chosen {
        let name = case.name;
        if case.need == Need::OwnCluster && world.node.is_none() {
            println!("test e2e::{name} ... ignored: it does things to the cluster that only one of our own is for");
            ignored += 1;
            continue;
        }
        let began = Instant::now();
        let mut outcome = (case.steps)(world).await;
        let namespaces = world.take_made();
        if let Err(error) = &mut outcome {
            let folder = evidence::keep(world, name, &namespaces).await;
            println!("{error:#}\nwhat was seen is in {}", folder.display());
        }
        let cleaned = if keep && outcome.is_err() { Ok(()) } else { world.clean(&namespaces).await };
        if let (Err(error), Ok(())) = (&cleaned, &outcome) {
            let folder = evidence::keep(world, name, &namespaces).await;
            println!("{error:#}\nwhat was seen is in {}", folder.display());
        }
        let took = began.elapsed().as_secs_f32();
        // The outcome stands last on its line: what reads these lines looks at the end.
        if outcome.is_ok() && cleaned.is_ok() {
            println!("test e2e::{name} ... {took:.1} s ok");
            passed += 1;
        } else {
            println!("test e2e::{name} ... {took:.1} s FAILED");
            failed.push(name);
        }
    }
    println!("\ne2e: {passed} passed, {} failed, {ignored} ignored", failed.len());
    for name in &failed {
        println!("    {name}");
    }
    Ok(failed.is_empty())
}

fn choose(only: &[String]) -> Result<Vec<Case>> {
    let wanted: Vec<String> =
        only.iter().map(|word| word.trim().to_lowercase()).filter(|word| !word.is_empty()).collect();
    let all = cases::ALL;
    if wanted.is_empty() {
        return Ok(all.to_vec());
    }
    for word in &wanted {
        if !all.iter().any(|case| is_meant(case, word)) {
            let known: Vec<&str> = all.iter().map(|case| case.number).collect();
            bail!("there is no case {word}; there are {}", known.join(", "));
        }
    }
    Ok(all.iter().filter(|case| wanted.iter().any(|word| is_meant(case, word))).copied().collect())
}

fn is_meant(case: &Case, word: &str) -> bool {
    case.number.eq_ignore_ascii_case(word) || case.name == word || case.name.strip_prefix("e2e::") == Some(word)
}

/// The folder of the repository, wherever the program is started from.
fn repository() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map(Path::to_owned).context("the crate does not lie in tests/e2e")
}

async fn interrupted() {
    let mut terminate = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(_) => return std::future::pending().await,
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

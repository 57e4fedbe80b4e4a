//! The steps of the control test, and the part of this program that runs in a pod, with nothing but the token
//! that was projected into it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::api::{Caller, texts};
use crate::wait::{Seen, until};

/// The control test from a pod.
#[derive(Debug, Args)]
pub(crate) struct Inside {
    /// The lane that the token is for.
    #[arg(long)]
    lane: String,
    /// A lane that it is not for.
    #[arg(long)]
    other: String,
    /// The query service's name.
    #[arg(long)]
    host: String,
    /// The projected token.
    #[arg(long)]
    token_file: PathBuf,
    /// The certificate to trust.
    #[arg(long)]
    ca_file: PathBuf,
}

impl Inside {
    /// Saves, recalls, and is refused where it should be.
    pub(crate) async fn run(self) -> Result<()> {
        let token = std::fs::read_to_string(&self.token_file).context("read the token")?.trim().to_owned();
        let ca = std::fs::read_to_string(&self.ca_file).context("read the certificate")?;
        let found: Vec<SocketAddr> =
            tokio::net::lookup_host((self.host.as_str(), 443)).await.context("find the query service")?.collect();
        let address = *found.first().context("the query service has no address")?;
        let caller = Caller::new(&self.host, address, &ca, token, None)?;
        let marker = marker(9);
        caller
            .save(&self.lane, "inside", &[&format!("the boiler room key hangs behind {marker}")])
            .await?
            .expect(201)?;
        recalled(&caller, "where is the key of the boiler room", &self.lane, &marker).await?;
        let refused = caller.recall("where is the key", json!({"lanes": [self.other]})).await?;
        ensure!(refused.status == 404, "another's lane answers {} and not 404", refused.status);
        let refused = caller.save(&self.other, "inside", &["nothing"]).await?;
        ensure!(refused.status == 404, "a save into another's lane answers {} and not 404", refused.status);
        Ok(())
    }
}

/// `saver` saves a marker into `lane`, `reader` recalls it there by a question without it, and `other`, whose
/// lane is `foreign`, finds nothing of it and counts as many events as before.
pub(crate) async fn control(
    lane: &str,
    foreign: &str,
    saver: &Caller,
    reader: &Caller,
    other: &Caller,
    number: usize,
) -> Result<()> {
    let marker = marker(number);
    other.save(foreign, "s", &[&format!("the weather on day {number} is fine")]).await?.expect(201)?;
    let before = events(&other.recall("release plan", json!({})).await?.expect(200)?)?;
    saver.save(lane, "s", &[&format!("release plan number {number} names {marker}")]).await?.expect(201)?;
    recalled(reader, &format!("what does release plan number {number} name"), lane, &marker).await?;
    let question = format!("release plan {marker}");
    let after = other.recall(&question, json!({"explain": true})).await?.expect(200)?;
    ensure!(!after["hits"].to_string().contains(&marker), "{marker} was found in {foreign}: {after}");
    let lanes = after["coverage"]["lanes"].as_array().map_or(0, Vec::len);
    ensure!(lanes == 1, "{lanes} lanes were asked for a caller of one: {after}");
    let count = events(&after)?;
    ensure!(count == before, "{foreign} had {before} events and has {count}");
    Ok(())
}

/// A word that stands nowhere else.
fn marker(number: usize) -> String {
    format!("MARKER-{number}-{}", &uuid::Uuid::new_v4().simple().to_string()[..8])
}

/// Recalled at once, and with every arm once its vectors are made.
async fn recalled(caller: &Caller, question: &str, lane: &str, marker: &str) -> Result<()> {
    let answer = caller.recall(question, json!({"lanes": [lane]})).await?.expect(200)?;
    ensure!(texts(&answer).iter().any(|text| text.contains(marker)), "{marker} is not found at once: {answer}");
    until("an answer that lacks nothing", Duration::from_secs(60), || async {
        let answer = caller.recall(question, json!({"lanes": [lane]})).await?.expect(200)?;
        ensure!(texts(&answer).iter().any(|text| text.contains(marker)), "{marker} is lost: {answer}");
        Ok(if answer["coverage"]["complete_corpus"] == true {
            Seen::Yes(())
        } else {
            Seen::NotYet(answer["coverage"].to_string())
        })
    })
    .await
}

fn events(answer: &Value) -> Result<u64> {
    answer["coverage"]["lanes"][0]["counts"]["events"].as_u64().with_context(|| format!("no count of events: {answer}"))
}

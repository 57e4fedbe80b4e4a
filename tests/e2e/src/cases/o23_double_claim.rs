//! O23: two Lanes of a namespace claim one collection at the same moment, 100 times: exactly one writer each time,
//! and the loser says who holds it. The winner is deleted: the collection that the other declares stays.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use lanekeeper_crds::{FederationRecord, Lane};
use serde_json::{Value, json};

use crate::lanes::{in_words, personal, with};
use crate::wait::{Seen, until};
use crate::world::World;

const ROUNDS: usize = 100;
const WITHIN: Duration = Duration::from_secs(60);

pub(super) async fn run(world: &World) -> Result<()> {
    world.volumes(2).await?;
    let space = world.namespace("o23").await?;
    for round in 0..ROUNDS {
        // Suspended: the claim is what is tested, and a hundred stores would only make it slow.
        let spec = claim(&space, round, true);
        let (a, b) = (format!("a-{round}"), format!("b-{round}"));
        // Which of the two is sent first changes from round to round.
        let (first, second) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let (one, other) = tokio::join!(world.lane(&space, first, spec.clone()), world.lane(&space, second, spec));
        let (one, other) = (one?, other?);
        let winner = decided(world, &space, round, &one, &other).await?;
        let loser = if winner == one.name_any() { &other } else { &one };
        told(world, &space, &loser.name_any(), &winner).await?;
    }
    // The winner goes, with its memory: what the other declares does not go with it.
    let record = world.system::<FederationRecord>().get(&name(&space, 0)).await?;
    let (winner, loser) = if record.spec.writer.name == "a-0" { ("a-0", "b-0") } else { ("b-0", "a-0") };
    world.change(&space, loser, json!({"spec": {"suspend": false}})).await?;
    world.delete_lane(&space, winner, true).await?;
    world.lane_gone(&space, winner, WITHIN).await?;
    until("a record that names the other lane", WITHIN, || async {
        let record = world.system::<FederationRecord>().get_opt(&name(&space, 0)).await?;
        Ok(match record {
            Some(record) if record.spec.writer.name == loser => Seen::Yes(()),
            Some(record) => Seen::NotYet(format!("it names {}", record.spec.writer.name)),
            None => Seen::NotYet("there is none".to_owned()),
        })
    })
    .await?;
    world.ready(&space, loser, Duration::from_secs(120)).await?;
    let caller = world.caller(&space, "agent").await?;
    caller.save(&format!("{space}/{loser}"), "s", &["the second claimant writes now"]).await?.expect(201)?;
    Ok(())
}

fn claim(space: &str, round: usize, suspend: bool) -> Value {
    with(personal("bob", space, "agent"), json!({"collection": format!("shared-{round}"), "suspend": suspend}))
}

fn name(space: &str, round: usize) -> String {
    format!("{space}.shared-{round}")
}

/// Waits for the record and for its writer to be one of the two. Returns the writer's name.
async fn decided(world: &World, space: &str, round: usize, one: &Lane, other: &Lane) -> Result<String> {
    let record = until(&format!("the record of round {round}"), WITHIN, || async {
        Ok(match world.system::<FederationRecord>().get_opt(&name(space, round)).await? {
            Some(record) => Seen::Yes(record),
            None => Seen::NotYet("there is none".to_owned()),
        })
    })
    .await?;
    let writer = &record.spec.writer;
    let named =
        [one, other].into_iter().find(|lane| lane.name_any() == writer.name).context("the record names a third")?;
    ensure!(named.uid().as_deref() == Some(writer.uid.0.as_str()), "the record names another UID");
    Ok(writer.name.clone())
}

/// Waits until the loser says who holds the collection, and checks that the winner is not told the same.
async fn told(world: &World, space: &str, loser: &str, winner: &str) -> Result<()> {
    let held = format!("{space}/{winner}");
    until(&format!("{loser} to say that {winner} holds it"), WITHIN, || async {
        let lane = world.lanes(space).get(loser).await?;
        let all = lane.status.iter().flat_map(|status| &status.conditions);
        let said = all.clone().any(|found| found.status == "False" && found.message.contains(&held));
        Ok(if said { Seen::Yes(()) } else { Seen::NotYet(in_words(&lane)) })
    })
    .await?;
    let lane = world.lanes(space).get(winner).await?;
    let told = lane
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .any(|found| found.message.contains(&format!("{space}/{loser}")));
    ensure!(!told, "the winner is told that the loser holds it: {}", in_words(&lane));
    Ok(())
}

//! Whether Qdrant enforces the fence, proven with a lane's own token: what should be refused is tried.

use super::{Connection, Fault};
use crate::qdrant::token::LaneToken;
use crate::status::{Finding, Reason};
use lanekeeper_core::Epoch;
use lanekeeper_core::cluster::qdrant::FENCES;

/// How long the tokens of the proof are good, seconds.
const PROOF_S: i64 = 120;

/// Tries five things. The lane's fence and collection must be there.
pub async fn prove(connection: &Connection, lane: &LaneToken, now_s: i64) -> Result<Finding, Fault> {
    let (collections, api_key) = (&connection.collections, connection.api_key.expose());
    let exp = now_s.saturating_add(PROOF_S);
    let own = lane.physical(lane.generation);
    let token = lane.mint(api_key, exp);
    if !collections.admits(Some(&token), &own).await? {
        let message = "Qdrant refuses a lane's own token: is JWT access control on, and are the clocks right?";
        return Ok(Finding::no(Reason::QdrantAuthOff, message));
    }
    let foreign = LaneToken { epoch: Epoch(lane.epoch.0.wrapping_add(1)), ..lane.clone() }.mint(api_key, exp);
    let forged = lane.mint(&format!("{api_key}-forged"), exp);
    for (what, token, name) in [
        ("a request without a key", None, own.as_str()),
        ("a token under another key", Some(forged.as_str()), own.as_str()),
        ("a token of another epoch", Some(foreign.as_str()), own.as_str()),
        ("a foreign collection", Some(token.as_str()), FENCES),
    ] {
        if collections.admits(token, name).await? {
            let message = format!("Qdrant does not enforce the fence: it admits {what}");
            return Ok(Finding::no(Reason::QdrantAuthOff, message));
        }
    }
    Ok(Finding::yes(Reason::Enforced, "Qdrant refuses a wrong token, a foreign collection and a wrong epoch"))
}

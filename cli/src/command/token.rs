//! `lanekeeper token`
//!
//! Works beside a running server: it only reads. A token is for what the lane's manifest allows when it is
//! used, not when it is minted; a principal with no role at all gets none.

use std::path::{Path, PathBuf};

use clap::Args;
use jiff::SignedDuration;
use lanekeeper_core::clock::{Clock as _, SystemClock};
use lanekeeper_core::lane::LaneView;
use lanekeeper_core::scope::{Action, Decision, EffectiveScope, SHARED_OWNER, Scope, ScopePath};
use lanekeeper_core::secret::Secret;
use lanekeeper_core::{LaneName, Principal};
use lanekeeper_query_service::{MAX_LIFETIME_S, MintRequest, mint};

use crate::failure::Failure;
use crate::local::data::Layout;
use crate::local::lane_file;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Token {
    /// The server's data folder.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// For which lane.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    lane: LaneName,
    /// For whom: user:NAME or sa:NAMESPACE/NAME. Must stand in the lane's access, or be its owner.
    #[arg(long)]
    principal: Principal,
    /// For how long, such as 15m or 8h; at most 24h.
    #[arg(long, default_value = "1h", value_parser = lifetime)]
    ttl: i64,
    /// A JSON file with a scope that narrows what the role allows.
    #[arg(long, value_name = "FILE")]
    scope_file: Option<PathBuf>,
}

impl Token {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let token = self.mint()?;
        output::print(&format!("{}\n", token.expose()))
    }

    fn mint(&self) -> Result<Secret<String>, Failure> {
        let layout = Layout::existing(&self.data).map_err(|error| Failure::because("no token", &error))?;
        let view = lane(&layout, &self.lane)?;
        let Some(role) = view.scope_of(&self.principal).map_err(|error| Failure::because("no token", &error))? else {
            return Err(Failure::refused(format!(
                "{} has no role in lane {}: add it to spec.access of the lane's manifest first",
                self.principal, self.lane
            )));
        };
        let scope = self.scope_file.as_deref().map(narrowing).transpose()?;
        if let Some(scope) = &scope {
            refuse_empty(&view, &self.principal, role, scope)?;
        }
        let issuer = layout
            .issuer()
            .map_err(|error| Failure::because("the token key", &error))?
            .ok_or_else(|| Failure::refused("there is no token key yet: start the server once"))?;
        let request = MintRequest {
            principal: self.principal.clone(),
            lane: view.uid,
            now_ms: SystemClock.now_ms(),
            lifetime_s: self.ttl,
            scope,
        };
        mint(&issuer, &request).map_err(|error| Failure::because("no token", &error))
    }
}

/// `90s`, `15m`, `1h30m`, in seconds.
fn lifetime(text: &str) -> Result<i64, String> {
    let rule = || format!("must be 1s to {}h, such as 15m or 8h", MAX_LIFETIME_S / 3600);
    let seconds = text.parse::<SignedDuration>().map_err(|_| rule())?.as_secs();
    if (1..=MAX_LIFETIME_S).contains(&seconds) { Ok(seconds) } else { Err(rule()) }
}

/// The lane as the data folder knows it now.
fn lane(layout: &Layout, name: &LaneName) -> Result<LaneView, Failure> {
    let found = lane_file::live(layout).map_err(|error| Failure::because("no token", &error))?;
    let mut of_name = found.into_iter().filter(|found| found.lane == *name);
    let Some(found) = of_name.next() else {
        return Err(Failure::refused(format!("there is no lane {name} in {}", layout.root().display())));
    };
    if of_name.next().is_some() {
        return Err(Failure::refused(format!("lane {name} has several folders in {}", layout.lanes().display())));
    }
    let file = found.file.map_err(|error| Failure::because("no token", &error))?;
    file.manifest.to_view(file.uid, file.embedding.fingerprint()).map_err(|error| Failure::because("no token", &error))
}

/// Reads a scope. `budget_usd` must be null or left out: nothing counts money yet.
fn narrowing(path: &Path) -> Result<Scope, Failure> {
    let refuse = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let mut value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|error| refuse(format!("is no JSON: {error}")))?;
    let budget = value.as_object_mut().and_then(|fields| fields.shift_remove("budget_usd"));
    if budget.is_some_and(|budget| !budget.is_null()) {
        return Err(refuse("budget_usd must be null".into()));
    }
    serde_json::from_value(value).map_err(|error| refuse(format!("is no scope: {error}")))
}

/// A token that opens nothing is a mistake in the scope, most often another lane's UID in a path.
fn refuse_empty(view: &LaneView, principal: &Principal, granted: Scope, narrowed: &Scope) -> Result<(), Failure> {
    let scope = EffectiveScope { granted, narrowed: Some(narrowed.clone()) };
    let memory = |owner: &str| ScopePath::memory(&view.name, view.uid, owner).ok();
    let paths =
        [Some(ScopePath::events(&view.name, view.uid)), memory(&principal.owner_segment()), memory(SHARED_OWNER)];
    let opens_something = paths
        .iter()
        .flatten()
        .any(|path| Action::ALL.iter().any(|action| scope.evaluate(path, *action) == Decision::Auto));
    if opens_something {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the scope allows nothing in lane {}: its paths start with /lanes/{}/{}@{}/",
        view.name,
        view.name.namespace(),
        view.name.name(),
        view.uid
    )))
}

#[cfg(test)]
mod tests {
    use lanekeeper_core::fingerprint::FingerprintFields;
    use lanekeeper_core::{Hash32, LogId};

    use super::*;
    use crate::local::data::DataFolder;
    use crate::local::lane_file::LaneFile;
    use crate::local::lane_file::tests::manifest;

    const UID: &str = "01939a00-0000-7000-8000-000000000001";

    /// A data folder with one lane, as a server leaves it.
    fn data() -> (tempfile::TempDir, PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let data = temp.path().join("data");
        let folder = DataFolder::open(&data).unwrap();
        folder.issuer().unwrap();
        let name: LaneName = "team/bob".parse().unwrap();
        let lane = manifest(
            "apiVersion: lanekeeper.dev/v1alpha1\nkind: Lane\nmetadata: {name: bob, namespace: team}\nspec: {kind: personal, owner: bob, access: [{user: ada, role: reader}]}",
        );
        let uid = UID.parse().unwrap();
        let file = LaneFile::new(
            name.clone(),
            uid,
            LogId(Hash32::from_bytes([1; 32])),
            FingerprintFields::builtin(),
            lane,
            "bob.yaml".into(),
        );
        std::fs::create_dir(folder.layout.lane(&name, uid)).unwrap();
        file.write(&folder.layout.lane(&name, uid)).unwrap();
        (temp, data)
    }

    fn token(data: &Path, lane: &str, principal: &str) -> Token {
        Token {
            data: data.to_owned(),
            lane: lane.parse().unwrap(),
            principal: principal.parse().unwrap(),
            ttl: 60,
            scope_file: None,
        }
    }

    fn refusal(token: &Token) -> String {
        match token.mint() {
            Err(Failure::Refused(why) | Failure::Usage(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_whom_the_lane_names_gets_a_token() {
        let (_temp, data) = data();
        for principal in ["user:bob", "user:ada"] {
            assert_eq!(token(&data, "team/bob", principal).mint().unwrap().expose().split('.').count(), 3);
        }
        for principal in ["user:eve", "sa:team/bob", "sa:team/ada"] {
            assert!(refusal(&token(&data, "team/bob", principal)).contains("spec.access"), "{principal}");
        }
        assert!(refusal(&token(&data, "team/ada", "user:bob")).contains("there is no lane"));
        assert!(refusal(&token(&data.join("nowhere"), "team/bob", "user:bob")).contains("lanekeeper local"));
    }

    #[test]
    fn a_token_is_minted_while_the_server_holds_the_folder() {
        let (_temp, data) = data();
        let _server = DataFolder::open(&data).unwrap();
        assert!(token(&data, "team/bob", "user:bob").mint().is_ok());
    }

    #[test]
    fn a_scope_narrows_and_one_that_opens_nothing_is_refused() {
        let (temp, data) = data();
        let with = |scope: serde_json::Value| {
            let path = temp.path().join("scope.json");
            std::fs::write(&path, scope.to_string()).unwrap();
            Token { scope_file: Some(path), ..token(&data, "team/bob", "user:bob") }
        };
        let events = format!("/lanes/team/bob@{UID}/events");
        let scope = |change: &[(&str, serde_json::Value)]| {
            let mut scope = serde_json::json!({"may_touch": [events], "auto_actions": ["recall"]});
            for (name, value) in change {
                scope[*name] = value.clone();
            }
            scope
        };
        assert!(with(scope(&[])).mint().is_ok());
        assert!(with(scope(&[("budget_usd", serde_json::Value::Null)])).mint().is_ok());
        assert!(refusal(&with(scope(&[("budget_usd", 5.into())]))).contains("budget_usd"));
        assert!(refusal(&with(scope(&[("may_tuch", 5.into())]))).contains("no scope"));
        let other = serde_json::json!([events.replace(UID, "01939a00-0000-7000-8000-000000000002")]);
        assert!(refusal(&with(scope(&[("may_touch", other)]))).contains(UID));
        assert!(refusal(&with(scope(&[("auto_actions", serde_json::json!([]))]))).contains("allows nothing"));
    }

    #[test]
    fn a_life_is_a_day_at_most() {
        for (text, seconds) in [("1h", 3600), ("90s", 90), ("15m", 900), ("24h", 86_400), ("1h30m", 5400)] {
            assert_eq!(lifetime(text), Ok(seconds), "{text}");
        }
        for bad in ["0s", "25h", "-1h", "1", "", "day", "24h1s"] {
            assert!(lifetime(bad).is_err(), "{bad}");
        }
    }
}

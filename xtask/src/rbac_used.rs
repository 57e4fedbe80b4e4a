//! `cargo xtask rbac-used`: the chart's RBAC rules against what a run of `make e2e` really asked for, both ways.
//!
//! A right that nobody used fails, unless its comment says `Not seen in a run` and why; one that was excused so
//! and was used fails too, because the comment is wrong (`Not in every run` allows both). A request that was refused
//! fails: something is missing. Only what was asked while an uninstall had taken the account's rights away is passed
//! over. A rule without a reason fails.
//!
//! Rules are read from the templates as text, since their reasons are comments. That holds them to one form
//! (`- apiGroups: […]`, `resources: […]`, `verbs: […]`), and whatever is of another form is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::sources;

/// What to compare.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The audit log, JSON lines; `make e2e` keeps it here.
    #[arg(long, default_value = "target/e2e/audit.log")]
    audit: PathBuf,
    /// Namespace of the release.
    #[arg(long, default_value = "lanekeeper-system")]
    system: String,
}

/// Templates with rules for an account of ours.
const TEMPLATES: [&str; 2] =
    ["charts/lanekeeper/templates/operator/rbac.yaml", "charts/lanekeeper/templates/query/rbac.yaml"];
const EXCUSE: &str = "Not seen in a run";
const SELDOM: &str = "Not in every run";

/// One right: a verb on a kind of object, everywhere or in the system namespace only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    account: String,
    everywhere: bool,
    group: String,
    /// With its subresource behind a slash.
    resource: String,
    verb: String,
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { account, everywhere, group, resource, verb } = self;
        let group = if group.is_empty() { "core" } else { group };
        let place = if *everywhere { "everywhere" } else { "in the system namespace" };
        write!(f, "{account}: {verb} {resource} ({group}) {place}")
    }
}

/// A rule as its template has it.
#[derive(Debug, PartialEq, Eq)]
struct Rule {
    account: String,
    everywhere: bool,
    reason: String,
    groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
    line: usize,
}

impl Rule {
    fn rights(&self) -> Vec<Right> {
        let Self { account, everywhere, reason: _, groups, resources, verbs, line: _ } = self;
        let mut rights = Vec::new();
        for group in groups {
            for resource in resources {
                for verb in verbs {
                    let (account, group) = (account.clone(), group.clone());
                    let (resource, verb) = (resource.clone(), verb.clone());
                    rights.push(Right { account, everywhere: *everywhere, group, resource, verb });
                }
            }
        }
        rights
    }

    /// Whether the comment says this phrase of this verb: of all of them, or of those in parentheses behind it.
    fn says(&self, phrase: &str, verb: &str) -> bool {
        let Some((_, rest)) = self.reason.split_once(phrase) else { return false };
        match rest.trim_start().strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            Some((verbs, _)) => verbs.split(',').any(|named| named.trim() == verb),
            None => true,
        }
    }
}

/// `[a, b]` as its words.
fn list(text: &str) -> Result<Vec<String>> {
    let inner = text.trim().strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let inner = inner.with_context(|| format!("{text:?} is no list in brackets"))?;
    Ok(inner.split(',').map(|word| word.trim().trim_matches('"').to_owned()).collect())
}

/// The rules of one template.
fn rules(text: &str) -> Result<Vec<Rule>> {
    let (mut kind, mut name, mut in_rules) = (String::new(), String::new(), false);
    let mut reason: Vec<String> = Vec::new();
    let mut found: Vec<Rule> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let at = || format!("line {}", index + 1);
        let trimmed = line.trim();
        if line == "---" {
            (kind, name, in_rules) = (String::new(), String::new(), false);
            reason.clear();
        } else if let Some(value) = line.strip_prefix("kind: ") {
            value.clone_into(&mut kind);
        } else if let Some(value) = line.strip_prefix("  name: ") {
            value.clone_into(&mut name);
        } else if line == "rules:" {
            in_rules = true;
            reason.clear();
        } else if !in_rules || trimmed.starts_with("{{") {
            // Conditions of the template: a rule counts whether or not a value leaves it out.
        } else if let Some(comment) = trimmed.strip_prefix('#') {
            reason.push(comment.trim().to_owned());
        } else if let Some(groups) = trimmed.strip_prefix("- apiGroups:") {
            found.push(Rule {
                account: name.clone(),
                everywhere: kind == "ClusterRole",
                reason: std::mem::take(&mut reason).join(" "),
                groups: list(groups).with_context(at)?,
                resources: Vec::new(),
                verbs: Vec::new(),
                line: index + 1,
            });
        } else if let (Some(resources), Some(rule)) = (trimmed.strip_prefix("resources:"), found.last_mut()) {
            rule.resources = list(resources).with_context(at)?;
        } else if let (Some(verbs), Some(rule)) = (trimmed.strip_prefix("verbs:"), found.last_mut()) {
            rule.verbs = list(verbs).with_context(at)?;
        } else {
            bail!("{}: {trimmed:?} is not of the form that can be read here", at());
        }
    }
    for rule in &found {
        ensure!(!rule.resources.is_empty() && !rule.verbs.is_empty(), "line {}: the rule is not whole", rule.line);
        ensure!(!rule.verbs.iter().any(|verb| verb == "*"), "line {}: every verb at once is no rule", rule.line);
    }
    Ok(found)
}

/// What an account asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Asked {
    account: String,
    group: String,
    resource: String,
    verb: String,
    namespace: String,
}

/// Requests of the accounts `system:serviceaccount:SYSTEM:NAME`: those allowed and those refused.
fn asked(log: &str, system: &str, accounts: &BTreeSet<String>) -> Result<(BTreeSet<Asked>, BTreeMap<Asked, usize>)> {
    let prefix = format!("system:serviceaccount:{system}:");
    let (mut allowed, mut refused) = (BTreeSet::new(), BTreeMap::new());
    // Accounts that an uninstall has left without rights: their last words are refused.
    let mut bare: BTreeSet<String> = BTreeSet::new();
    for (index, line) in log.lines().enumerate() {
        let event: Value =
            serde_json::from_str(line).with_context(|| format!("line {} of the audit log", index + 1))?;
        if let Some(name) = event["objectRef"]["name"].as_str()
            && event["objectRef"]["apiGroup"] == "rbac.authorization.k8s.io"
            && event["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300)
        {
            match event["verb"].as_str() {
                Some("delete") => _ = bare.insert(name.to_owned()),
                Some("create" | "patch" | "update") => _ = bare.remove(name),
                Some(_) | None => {}
            }
        }
        let user = event["user"]["username"].as_str().unwrap_or_default();
        let Some(account) = user.strip_prefix(&prefix).filter(|account| accounts.contains(*account)) else { continue };
        let object = &event["objectRef"];
        // Paths such as /version are nobody's objects.
        let Some(resource) = object["resource"].as_str() else { continue };
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let resource = match object["subresource"].as_str() {
            Some(subresource) => format!("{resource}/{subresource}"),
            None => resource.to_owned(),
        };
        let asked = Asked {
            account: account.to_owned(),
            group: word(&object["apiGroup"]),
            resource,
            verb: word(&event["verb"]),
            namespace: word(&object["namespace"]),
        };
        match event["annotations"]["authorization.k8s.io/decision"].as_str() {
            Some("allow") => {
                // An apply that made its object: the server asked for the right to create as well, unlogged.
                if event["responseStatus"]["code"] == 201 && asked.verb != "create" {
                    allowed.insert(Asked { verb: "create".to_owned(), ..asked.clone() });
                }
                allowed.insert(asked);
            }
            Some(_) if bare.contains(&asked.account) => {}
            Some(_) => *refused.entry(asked).or_default() += 1,
            // Not authenticated, or cut off before it was decided.
            None => {}
        }
    }
    Ok((allowed, refused))
}

fn covers(right: &Right, asked: &Asked, system: &str) -> bool {
    right.account == asked.account
        && right.group == asked.group
        && right.resource == asked.resource
        && right.verb == asked.verb
        && (right.everywhere || asked.namespace == system)
}

/// Everything that is not as it should be.
fn compare(rules: &[Rule], allowed: &BTreeSet<Asked>, refused: &BTreeMap<Asked, usize>, system: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for rule in rules {
        if rule.reason.is_empty() {
            findings.push(format!("{} line {}: the rule has no reason", rule.account, rule.line));
        }
        for right in rule.rights() {
            // A right in the system namespace is what is used there, if both it and one everywhere would do.
            let used = allowed.iter().any(|asked| covers(&right, asked, system));
            if rule.says(SELDOM, &right.verb) {
                continue;
            }
            match (used, rule.says(EXCUSE, &right.verb)) {
                (false, false) => findings.push(format!("never used: {right}")),
                (true, true) => {
                    findings.push(format!("used, although its comment says it is not seen in a run: {right}"))
                }
                (true, false) | (false, true) => {}
            }
        }
    }
    for (asked, times) in refused {
        let Asked { account, group, resource, verb, namespace } = asked;
        findings.push(format!("refused {times} times: {account}: {verb} {resource} ({group}) in {namespace:?}"));
    }
    findings
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let root = sources::root()?;
    let mut all = Vec::new();
    for template in TEMPLATES {
        let text = std::fs::read_to_string(root.join(template)).with_context(|| format!("read {template}"))?;
        all.extend(rules(&text).with_context(|| template.to_owned())?);
    }
    let accounts: BTreeSet<String> = all.iter().map(|rule| rule.account.clone()).collect();
    let log = std::fs::read_to_string(&arguments.audit)
        .with_context(|| format!("read {}; `make e2e` writes it", arguments.audit.display()))?;
    let (allowed, refused) = asked(&log, &arguments.system, &accounts)?;
    for account in &accounts {
        // An empty log would find every right unused, or, with excuses, nothing wrong at all.
        ensure!(allowed.iter().any(|asked| asked.account == *account), "{account} asked for nothing in this run");
    }
    let findings = compare(&all, &allowed, &refused, &arguments.system);
    for finding in &findings {
        println!("{finding}");
    }
    let rights: usize = all.iter().map(|rule| rule.rights().len()).sum();
    println!("rbac-used: {} rules, {rights} rights, {} findings", all.len(), findings.len());
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = "\
apiVersion: v1
kind: ServiceAccount
metadata:
  name: ours
---
kind: ClusterRole
metadata:
  name: ours
rules:
  # Lanes are what it is for.
  - apiGroups: [lanekeeper.dev]
    resources: [lanes, lanes/status]
    verbs: [get, patch]
  {{- if .Values.x }}
  # Not seen in a run (delete): nobody does it twice.
  - apiGroups: [\"\"]
    resources: [secrets]
    verbs: [get, delete]
  {{- end }}
---
kind: Role
metadata:
  name: ours
rules:
  - apiGroups: [\"\"]
    resources: [configmaps]
    verbs: [get]
";

    fn event(verb: &str, group: &str, resource: &str, namespace: &str, decision: &str) -> String {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let mut event = serde_json::json!({
            "verb": verb, "user": {"username": "system:serviceaccount:sys:ours"},
            "objectRef": {"resource": resource, "apiGroup": group, "namespace": namespace},
            "annotations": {"authorization.k8s.io/decision": decision},
        });
        if !subresource.is_empty() {
            event["objectRef"]["subresource"] = subresource.into();
        }
        event.to_string()
    }

    fn findings(events: &[String]) -> Vec<String> {
        let rules = rules(TEMPLATE).unwrap();
        let (allowed, refused) = asked(&events.join("\n"), "sys", &BTreeSet::from(["ours".to_owned()])).unwrap();
        compare(&rules, &allowed, &refused, "sys")
    }

    fn all_used() -> Vec<String> {
        let mut events = Vec::new();
        for resource in ["lanes", "lanes/status"] {
            for verb in ["get", "patch"] {
                events.push(event(verb, "lanekeeper.dev", resource, "team", "allow"));
            }
        }
        events.push(event("get", "", "secrets", "team", "allow"));
        events.push(event("get", "", "configmaps", "sys", "allow"));
        events
    }

    #[test]
    fn rules_and_their_reasons_are_read() {
        let rules = rules(TEMPLATE).unwrap();
        assert_eq!(rules.len(), 3);
        assert_eq!(rules[0].reason, "Lanes are what it is for.");
        assert!(rules[0].everywhere && !rules[2].everywhere);
        assert!(rules[1].says(EXCUSE, "delete") && !rules[1].says(EXCUSE, "get"));
    }

    #[test]
    fn a_rule_without_a_reason_is_found() {
        assert_eq!(findings(&all_used()), ["ours line 25: the rule has no reason"]);
    }

    #[test]
    fn an_unused_right_and_a_refused_request_are_found() {
        let mut events = all_used();
        events.remove(0);
        events.push(event("delete", "", "pods", "team", "forbid"));
        let found = findings(&events);
        assert!(found.iter().any(|found| found.starts_with("never used: ours: get lanes ")), "{found:?}");
        assert!(found.iter().any(|found| found.starts_with("refused 1 times: ours: delete pods")), "{found:?}");
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn last_words_after_an_uninstall_are_passed_over_and_nothing_else() {
        let role = |verb: &str| {
            let object =
                serde_json::json!({"resource": "roles", "apiGroup": "rbac.authorization.k8s.io", "name": "ours"});
            serde_json::json!({"verb": verb, "user": {"username": "admin"}, "objectRef": object, "responseStatus": {"code": 200}})
                .to_string()
        };
        let refused = || event("get", "", "leases", "sys", "forbid");
        let mut events = [all_used(), vec![role("delete"), refused(), role("create")]].concat();
        assert_eq!(findings(&events).len(), 1);
        events.push(refused());
        assert!(findings(&events).iter().any(|found| found.starts_with("refused 1 times: ours: get leases")));
    }

    #[test]
    fn what_is_not_in_every_run_may_be_in_one() {
        let rules = rules(&TEMPLATE.replace(EXCUSE, SELDOM)).unwrap();
        for extra in [vec![], vec![event("delete", "", "secrets", "team", "allow")]] {
            let log = [all_used(), extra].concat().join("\n");
            let (allowed, refused) = asked(&log, "sys", &BTreeSet::from(["ours".to_owned()])).unwrap();
            assert_eq!(compare(&rules, &allowed, &refused, "sys").len(), 1);
        }
    }

    #[test]
    fn an_excuse_that_is_wrong_is_found() {
        let mut events = all_used();
        events.push(event("delete", "", "secrets", "team", "allow"));
        assert!(findings(&events).iter().any(|found| found.starts_with("used, although")));
    }

    #[test]
    fn a_right_of_the_system_namespace_is_not_shown_by_another_one() {
        let mut events = all_used();
        events.pop();
        events.push(event("get", "", "configmaps", "team", "allow"));
        assert!(findings(&events).iter().any(|found| found.starts_with("never used: ours: get configmaps")));
    }

    #[test]
    fn another_form_is_an_error() {
        let block = TEMPLATE.replace("    verbs: [get]\n", "    verbs:\n      - get\n");
        assert!(rules(&block).is_err());
        assert!(rules(&TEMPLATE.replace("verbs: [get]", "verbs: [\"*\"]")).is_err());
    }

    #[test]
    fn the_charts_own_rules_can_be_read() {
        let root = sources::root().unwrap();
        for template in TEMPLATES {
            let found = rules(&std::fs::read_to_string(root.join(template)).unwrap()).unwrap();
            assert!(found.iter().all(|rule| !rule.reason.is_empty()), "{template}: a rule has no reason");
        }
    }
}

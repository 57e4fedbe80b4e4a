//! What a failed case leaves behind for a person: lanes, pods, Events and the parts' own logs, in files.

use std::path::PathBuf;
use std::time::Duration;

use crate::chart::SYSTEM;
use crate::shell;
use crate::world::World;

/// Writes what kubectl can say about the case's namespaces and the system into a folder of its own. Never fails:
/// what cannot be had is said in the file.
pub(crate) async fn keep(world: &World, case: &str, namespaces: &[String]) -> PathBuf {
    let folder = world.scratch.join("evidence").join(case);
    let _ = std::fs::remove_dir_all(&folder);
    let _ = std::fs::create_dir_all(&folder);
    let kinds = "lanes,statefulsets,pods,persistentvolumeclaims,services,networkpolicies,serviceaccounts";
    let mut questions: Vec<(String, Vec<String>)> = vec![
        (
            "system.txt".to_owned(),
            words(&format!("get federationrecords,deployments,pods,services,secrets -n {SYSTEM} -o wide")),
        ),
        ("records.yaml".to_owned(), words(&format!("get federationrecords -n {SYSTEM} -o yaml"))),
        ("embedders.yaml".to_owned(), words("get embedders -o yaml")),
        ("volumes.txt".to_owned(), words("get persistentvolumes -o wide")),
        ("system-events.txt".to_owned(), words(&format!("get events -n {SYSTEM} --sort-by=.lastTimestamp"))),
        ("operator.log".to_owned(), logs(SYSTEM, "lanekeeper-operator")),
        ("query.log".to_owned(), logs(SYSTEM, "lanekeeper-query")),
        ("embedder.log".to_owned(), logs(SYSTEM, "embedder")),
        ("check.log".to_owned(), logs(SYSTEM, "lanekeeper-test")),
        ("system-stores.log".to_owned(), logs(SYSTEM, "lane-store")),
        ("system-lanes.yaml".to_owned(), words(&format!("get lanes -n {SYSTEM} -o yaml"))),
    ];
    for namespace in namespaces {
        questions.push((format!("{namespace}.txt"), words(&format!("get {kinds} -n {namespace} -o wide"))));
        questions.push((format!("{namespace}-lanes.yaml"), words(&format!("get lanes -n {namespace} -o yaml"))));
        questions.push((format!("{namespace}-pods.txt"), words(&format!("describe pods -n {namespace}"))));
        questions.push((
            format!("{namespace}-events.txt"),
            words(&format!("get events -n {namespace} --sort-by=.lastTimestamp")),
        ));
        questions.push((format!("{namespace}-stores.log"), logs(namespace, "lane-store")));
    }
    for (file, mut question) in questions {
        question.push("--kubeconfig".to_owned());
        question.push(world.kubeconfig.to_string_lossy().into_owned());
        let said = match shell::run(&world.kubectl, &question, Duration::from_secs(20)).await {
            Ok(text) => text,
            Err(error) => format!("{error:#}\n"),
        };
        let _ = std::fs::write(folder.join(file), said);
    }
    folder
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn logs(namespace: &str, name: &str) -> Vec<String> {
    words(&format!(
        "logs -n {namespace} -l app.kubernetes.io/name={name} --prefix --tail=2000 --all-containers --ignore-errors"
    ))
}

//! The program as a process: started, spoken to over HTTP, killed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A running `lanekeeper local`.
#[derive(Debug)]
pub struct Server {
    program: PathBuf,
    pub root: PathBuf,
    pub url: String,
    pub metrics: String,
    child: Child,
    reader: Option<std::thread::JoinHandle<()>>,
}

/// reqwest needs a process-wide provider, as the program's own main installs it.
pub fn client() -> reqwest::Client {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    reqwest::Client::builder().timeout(Duration::from_secs(30)).pool_max_idle_per_host(32).build().unwrap()
}

/// Writes one personal Lane of `owner`.
pub fn write_lane(root: &Path, name: &str, owner: &str, extra: &str) {
    let folder = root.join("manifests");
    std::fs::create_dir_all(&folder).unwrap();
    let text = format!(
        "apiVersion: lanekeeper.dev/v1alpha1\nkind: Lane\nmetadata:\n  namespace: team\n  name: {name}\nspec:\n  kind: personal\n  owner: {owner}\n{extra}"
    );
    std::fs::write(folder.join(format!("{name}.yaml")), text).unwrap();
}

/// A free port of this machine. Taken for a moment, then given back.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    /// Starts it over `root/manifests` and `root/data` and waits until it listens. Output goes to
    /// `root/stdout.log` and `root/stderr.log`, appended.
    pub fn start(
        program: &str,
        root: &Path,
        arguments: &[String],
        environment: &[(&str, String)],
    ) -> Result<Self, String> {
        let append = |name: &str| std::fs::OpenOptions::new().create(true).append(true).open(root.join(name)).unwrap();
        let metrics = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(program);
        command
            .args(["local", "--listen", "127.0.0.1:0", "--metrics-listen", &metrics])
            .arg("--lanes")
            .arg(root.join("manifests"))
            .arg("--data")
            .arg(root.join("data"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(append("stderr.log"));
        for (name, value) in environment {
            command.env(name, value);
        }
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut log = append("stdout.log");
        let mut url = None;
        for line in lines.by_ref() {
            let line = line.map_err(|error| error.to_string())?;
            use std::io::Write;
            let _ = writeln!(log, "{line}");
            if let Some(found) = line.strip_prefix("lanekeeper listening on ") {
                url = Some(found.trim().to_owned());
                break;
            }
        }
        let Some(url) = url else {
            let status = child.wait().map_err(|error| error.to_string())?;
            return Err(format!("it ended before it listened: {status}"));
        };
        let reader = std::thread::spawn(move || {
            use std::io::Write;
            for line in lines.map_while(Result::ok) {
                let _ = writeln!(log, "{line}");
            }
        });
        let metrics = format!("http://{metrics}/metrics");
        Ok(Self { program: program.into(), root: root.to_owned(), url, metrics, child, reader: Some(reader) })
    }

    /// Prints a token with the program itself.
    pub fn token(&self, lane: &str, principal: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let output = Command::new(&self.program)
                .args(["token", "--lane", lane, "--principal", principal, "--data"])
                .arg(self.root.join("data"))
                .output()
                .unwrap();
            if output.status.success() {
                return String::from_utf8(output.stdout).unwrap().trim().to_owned();
            }
            assert!(Instant::now() < deadline, "{}", String::from_utf8_lossy(&output.stderr));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// kill -9.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.join();
    }

    /// Whether it has ended by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// SIGTERM; gives the status and how long it took.
    pub fn stop(&mut self) -> (ExitStatus, Duration) {
        let from = Instant::now();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let status = self.child.wait().unwrap();
        self.join();
        (status, from.elapsed())
    }

    fn join(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// POST with a token; `Err` where no answer came.
pub async fn post(
    client: &reqwest::Client,
    url: &str,
    token: &str,
    key: Option<&str>,
    body: &Value,
) -> Result<(u16, Value), String> {
    let mut request =
        client.post(url).bearer_auth(token).header("content-type", "application/json").body(body.to_string());
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let response = request.send().await.map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let text = response.text().await.map_err(|error| error.to_string())?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
}

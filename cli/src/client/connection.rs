//! The arguments every client command has, and the server they lead to.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lanekeeper_core::LaneName;
#[cfg(feature = "kubectl")]
use lanekeeper_core::secret::Secret;
use reqwest::Url;
use reqwest::redirect::Policy;

use super::{Server, token};
use crate::failure::Failure;

const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Where the server is and what opens it.
#[derive(Debug, Args)]
pub(crate) struct Connection {
    /// Where the server is.
    #[arg(
        long,
        env = "LANEKEEPER_URL",
        default_value = "http://127.0.0.1:7070",
        value_name = "URL",
        help_heading = "Server"
    )]
    url: Url,
    /// Read the token from this file; else from LANEKEEPER_TOKEN.
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    token_file: Option<PathBuf>,
    /// Read the token from the first line of stdin.
    #[arg(long, conflicts_with = "token_file", help_heading = "Server")]
    token_stdin: bool,
    /// Send the token over plain HTTP to another machine, readable to whoever is in between.
    #[arg(long, help_heading = "Server")]
    allow_plain_http: bool,
    /// Print the server's answer as it came.
    #[arg(long)]
    pub(crate) json: bool,
    /// Instead of all of that but `json`: a way that the program has opened itself.
    #[cfg(feature = "kubectl")]
    #[arg(skip)]
    pub(crate) through: Option<Through>,
}

/// A way to a server that is not reached by its own name: through a port of this machine, as `kubectl lane` opens it.
#[cfg(feature = "kubectl")]
#[derive(Debug)]
pub(crate) struct Through {
    /// The server's own URL. Its certificate must be for this host.
    pub(crate) url: Url,
    /// Where the connection really goes.
    pub(crate) address: std::net::SocketAddr,
    /// Who may have signed the certificate, PEM; nobody else.
    pub(crate) authorities: Vec<u8>,
    /// For this server.
    pub(crate) token: Secret<String>,
}

#[cfg(feature = "kubectl")]
impl Through {
    fn open(&self, raw: bool) -> Result<Server, Failure> {
        let authorities = reqwest::Certificate::from_pem_bundle(&self.authorities)
            .map_err(|error| Failure::because("cannot read the authority of the server's certificate", &error))?;
        let http = reqwest::Client::builder()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_WAIT)
            .no_proxy()
            .resolve(self.url.host_str().unwrap_or_default(), self.address)
            .tls_certs_only(authorities)
            .build()
            .map_err(|error| Failure::because("cannot make an HTTP client", &error))?;
        Ok(Server { http, base: self.url.clone(), token: self.token.clone(), raw })
    }
}

/// For commands that are about one lane.
#[derive(Debug, Args)]
pub(crate) struct OneLane {
    /// Which lane; default: the one that the token is for.
    #[arg(long, env = "LANEKEEPER_LANE", value_name = "NAMESPACE/NAME")]
    pub(crate) lane: Option<LaneName>,
}

impl Connection {
    /// Reads the token and makes the client. Sends nothing yet.
    pub(crate) fn open(&self) -> Result<Server, Failure> {
        #[cfg(feature = "kubectl")]
        if let Some(through) = &self.through {
            return through.open(self.json);
        }
        let plain = check_url(&self.url)?;
        let on_this_machine = is_loopback(&self.url);
        if plain && !on_this_machine && !self.allow_plain_http {
            return Err(Failure::usage(format!(
                "{} is on another machine and has no TLS: the token could be read on the way. Use https, or --allow-plain-http",
                self.url
            )));
        }
        let token = token::read(self.token_file.as_deref(), self.token_stdin)?;
        let mut http = reqwest::Client::builder().redirect(Policy::none()).connect_timeout(CONNECT_WAIT);
        if on_this_machine {
            // A proxy from the environment would get the token.
            http = http.no_proxy();
        }
        if plain {
            // No certificate is ever checked, so a machine without a certificate store is fine.
            http = http.tls_certs_only([]);
        }
        let http = http.build().map_err(|error| Failure::because("cannot make an HTTP client", &error))?;
        Ok(Server { http, base: self.url.clone(), token, raw: self.json })
    }
}

/// Whether the URL is plain HTTP; anything that is no address of a server is refused.
fn check_url(url: &Url) -> Result<bool, Failure> {
    let plain = match url.scheme() {
        "http" => true,
        "https" => false,
        _ => return Err(Failure::usage(format!("{url} is no http or https address"))),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Failure::usage("the address must not hold a user name or password"));
    }
    if url.query().is_some() || url.fragment().is_some() || url.cannot_be_a_base() {
        return Err(Failure::usage(format!("{url} must end with its path")));
    }
    Ok(plain)
}

fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn loopback_is_this_machine_and_nothing_else() {
        for here in ["http://127.0.0.1:7070", "http://localhost:1", "http://[::1]:7070/base"] {
            assert!(is_loopback(&url(here)), "{here}");
        }
        for elsewhere in ["http://127.0.0.1.example", "http://10.0.0.1", "http://localhost.example", "http://[::2]"] {
            assert!(!is_loopback(&url(elsewhere)), "{elsewhere}");
        }
    }

    #[test]
    fn an_address_holds_no_secret_and_no_query() {
        assert!(check_url(&url("http://127.0.0.1:7070")).unwrap());
        assert!(!check_url(&url("https://memory.example/base")).unwrap());
        for bad in ["ftp://a", "http://u@a", "http://:p@a", "http://a?x=1", "http://a#x", "mailto:x"] {
            assert!(check_url(&url(bad)).is_err(), "{bad}");
        }
    }
}

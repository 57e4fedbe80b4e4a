//! `lanekeeper local`

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::local::embedders::GivenEmbedder;
use crate::local::{Options, serve};

#[derive(Debug, Args)]
pub(crate) struct Local {
    /// A folder of Lane manifests (*.yaml, *.yml, *.json). Changes are followed.
    #[arg(long, value_name = "DIR")]
    lanes: PathBuf,
    /// Where memory is kept; made if it is not there.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Where to listen; port 0 for any.
    #[arg(long, default_value = "127.0.0.1:7070", value_name = "ADDR")]
    listen: SocketAddr,
    /// Where to serve /metrics; default: nowhere.
    #[arg(long, value_name = "ADDR")]
    metrics_listen: Option<SocketAddr>,
    /// Listen on addresses that other machines reach, without TLS.
    #[arg(long)]
    allow_remote: bool,
    /// Base URL of a server with the OpenAI embeddings API, for lanes made from now on that name no Embedder.
    /// Default: the built-in model.
    #[arg(
        long,
        value_name = "URL",
        requires = "embedder_model",
        requires = "embedder_dimension",
        help_heading = "Embedder"
    )]
    embedder: Option<String>,
    /// Its model.
    #[arg(long, value_name = "NAME", requires = "embedder", help_heading = "Embedder")]
    embedder_model: Option<String>,
    /// The length of its vectors.
    #[arg(long, value_name = "N", requires = "embedder", help_heading = "Embedder", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    embedder_dimension: Option<u32>,
    /// A file with its token; read at every request.
    #[arg(long, value_name = "FILE", requires = "embedder", help_heading = "Embedder")]
    embedder_token_file: Option<PathBuf>,
}

impl Local {
    fn options(self) -> Options {
        let embedder = match (self.embedder, self.embedder_model, self.embedder_dimension) {
            (Some(url), Some(model), Some(dimension)) => {
                Some(GivenEmbedder { url, model, dimension, token_file: self.embedder_token_file })
            }
            // Anything in between was refused with the arguments.
            (_, _, _) => None,
        };
        Options {
            manifests: self.lanes,
            data: self.data,
            listen: self.listen,
            metrics_listen: self.metrics_listen,
            allow_remote: self.allow_remote,
            embedder,
        }
    }

    pub(crate) async fn run(self) -> Result<(), Failure> {
        serve(self.options()).await
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::arguments::{Arguments, Command};

    fn options(arguments: &[&str]) -> Result<crate::local::Options, String> {
        let all = ["lanekeeper", "local", "--lanes", "l", "--data", "d"].iter().chain(arguments);
        let parsed = Arguments::try_parse_from(all).map_err(|error| error.to_string())?;
        let Command::Local(local) = parsed.command else { panic!("another command") };
        Ok(local.options())
    }

    #[test]
    fn the_defaults_are_loopback_and_the_built_in_model() {
        let options = options(&[]).unwrap();
        assert_eq!(options.listen.to_string(), "127.0.0.1:7070");
        assert!(options.metrics_listen.is_none() && options.embedder.is_none() && !options.allow_remote);
    }

    #[test]
    fn an_embedder_is_given_whole_or_not_at_all() {
        let whole = ["--embedder", "http://127.0.0.1:9", "--embedder-model", "m", "--embedder-dimension", "8"];
        let embedder = options(&whole).unwrap().embedder.unwrap();
        assert_eq!(
            (embedder.url.as_str(), embedder.model.as_str(), embedder.dimension),
            ("http://127.0.0.1:9", "m", 8)
        );
        for part in [&whole[..2], &whole[..4], &whole[2..4], &whole[2..], &["--embedder-token-file", "f"]] {
            assert!(options(part).is_err(), "{part:?}");
        }
        assert!(options(&["--embedder", "u", "--embedder-model", "m", "--embedder-dimension", "0"]).is_err());
    }
}

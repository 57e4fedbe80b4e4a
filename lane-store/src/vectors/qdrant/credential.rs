//! The lane's key for the server, from a file that changes under the running store.
//!
//! What must always hold: the key is in no `Debug`, error or log; a file that is there and holds no usable key
//! sends no request at all (a server that asks for no key would otherwise be asked as nobody).
//! The operator renews the file at half its life. It is looked at once a second at most, and at once when the
//! server refuses the key.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lanekeeper_core::secret::Secret;
use tokio::sync::Mutex;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

use super::super::VectorError;

/// Where Qdrant looks for a key.
const HEADER: &str = "api-key";
/// A JWT for a lane has about 500 bytes.
const MOST_BYTES: u64 = 16 * 1024;
/// How often the file's stamp is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// A key as it is sent.
#[derive(Debug, Clone)]
pub(super) struct Key(Secret<MetadataValue<Ascii>>);

impl Key {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let mut value = MetadataValue::try_from(text).ok()?;
        value.set_sensitive(true);
        Some(Self(Secret::new(value)))
    }

    fn is(&self, other: &Self) -> bool {
        self.0.expose().as_bytes() == other.0.expose().as_bytes()
    }

    /// Adds the key to a request's headers.
    pub(super) fn put(&self, headers: &mut MetadataMap) {
        headers.insert(HEADER, self.0.expose().clone());
    }
}

/// Tells one content of the file from the next: Secrets are renewed by exchanging a link.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    length: u64,
}

#[derive(Debug, Default)]
struct Held {
    key: Option<Key>,
    stamp: Option<Stamp>,
    looked: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Credential {
    /// `None`: the server asks for no key.
    file: Option<PathBuf>,
    held: Mutex<Held>,
}

impl Credential {
    pub(super) fn new(file: Option<PathBuf>) -> Self {
        Self { file, held: Mutex::new(Held::default()) }
    }

    /// The key to send; `None` where none is asked for.
    pub(super) async fn key(&self) -> Result<Option<Key>, VectorError> {
        let Some(file) = &self.file else { return Ok(None) };
        let mut held = self.held.lock().await;
        if held.key.is_none() || held.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            held.looked = Some(Instant::now());
            let stamp = stamp(file).await;
            // A file that is gone for a moment does not take away a key that may still be good.
            if stamp.is_some() && (stamp != held.stamp || held.key.is_none()) {
                held.take(file, stamp).await;
            }
        }
        held.key.clone().map(Some).ok_or_else(|| {
            VectorError::Refused("its file cannot be read, or holds no key (one line of visible ASCII)".into())
        })
    }

    /// After the server refused `refused`: the key that is there now, if it is another one.
    pub(super) async fn instead_of(&self, refused: &Key) -> Option<Key> {
        let file = self.file.as_ref()?;
        let mut held = self.held.lock().await;
        if held.key.as_ref().is_none_or(|key| key.is(refused)) {
            held.looked = Some(Instant::now());
            let stamp = stamp(file).await;
            if stamp.is_some() {
                held.take(file, stamp).await;
            }
        }
        held.key.clone().filter(|key| !key.is(refused))
    }
}

impl Held {
    /// Reads the file. What holds no key leaves the one that is held.
    async fn take(&mut self, file: &Path, stamp: Option<Stamp>) {
        let read = tokio::fs::read(file).await.ok();
        if let Some(key) = read.as_deref().and_then(Key::parse) {
            self.key = Some(key);
            self.stamp = stamp;
        } else {
            tracing::warn!(file = %file.display(), "the vector engine's key file holds no key");
        }
    }
}

async fn stamp(file: &Path) -> Option<Stamp> {
    let found = tokio::fs::metadata(file).await.ok().filter(|found| found.is_file() && found.len() <= MOST_BYTES)?;
    Some(Stamp {
        device: found.dev(),
        inode: found.ino(),
        modified: (found.mtime(), found.mtime_nsec()),
        length: found.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(key: &Key) -> String {
        let mut headers = MetadataMap::new();
        key.put(&mut headers);
        headers.get(HEADER).unwrap().to_str().unwrap().to_owned()
    }

    fn exchange(file: &Path, content: &[u8]) {
        let new = file.with_extension("new");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(new, file).unwrap();
    }

    #[tokio::test]
    async fn a_renewed_file_is_read_when_the_old_key_is_refused_and_not_before_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("qdrant.jwt");
        exchange(&file, b"first\n");
        let credential = Credential::new(Some(file.clone()));
        let first = credential.key().await.unwrap().unwrap();
        assert_eq!(sent(&first), "first");
        assert!(credential.instead_of(&first).await.is_none(), "the same key is no reason to ask again");
        exchange(&file, b"second");
        assert_eq!(sent(&credential.instead_of(&first).await.unwrap()), "second");
        assert_eq!(sent(&credential.key().await.unwrap().unwrap()), "second");
        // Another call that was refused with the first one gets the second without reading.
        assert_eq!(sent(&credential.instead_of(&first).await.unwrap()), "second");
    }

    #[tokio::test]
    async fn a_new_stamp_is_seen_without_a_refusal() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        exchange(&file, b"first");
        let credential = Credential::new(Some(file.clone()));
        credential.key().await.unwrap();
        exchange(&file, b"second");
        credential.held.lock().await.looked = Some(Instant::now().checked_sub(LOOK).unwrap());
        assert_eq!(sent(&credential.key().await.unwrap().unwrap()), "second");
    }

    #[tokio::test]
    async fn a_file_without_a_key_sends_nothing_and_takes_nothing_away() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        let credential = Credential::new(Some(file.clone()));
        for content in [None, Some(&b""[..]), Some(b" \n"), Some(b"two words"), Some(b"caf\xc3\xa9"), Some(b"\xff")] {
            if let Some(content) = content {
                exchange(&file, content);
            }
            let refused = credential.key().await.unwrap_err();
            assert_eq!(refused.reason(), "vector_engine_refused", "{content:?}");
        }
        exchange(&file, b"good");
        let good = credential.key().await.unwrap().unwrap();
        std::fs::remove_file(&file).unwrap();
        credential.held.lock().await.looked = None;
        assert_eq!(sent(&credential.key().await.unwrap().unwrap()), "good", "it may still be in force");
        assert!(credential.instead_of(&good).await.is_none());
        exchange(&file, &vec![b'x'; 20_000]);
        assert!(credential.instead_of(&good).await.is_none(), "too long to be a key");
    }

    #[tokio::test]
    async fn no_debug_shows_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        exchange(&file, b"s3cret-token");
        let credential = Credential::new(Some(file));
        let key = credential.key().await.unwrap().unwrap();
        let mut headers = MetadataMap::new();
        key.put(&mut headers);
        let shown = format!("{credential:?} {key:?} {headers:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(Credential::new(None).key().await.unwrap().is_none());
    }
}

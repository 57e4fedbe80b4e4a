//! The frames of a backup: named entries, each with its length and hash, and a hash of the whole.
//!
//! What must always hold: a reader that reaches the end mark has seen every byte that the writer wrote, in
//! order, unchanged; whatever else happens it says which entry is wrong. Lengths are never trusted for
//! memory: bytes are copied as they come.
//! What it does not do: compress, or encrypt. A backup holds a lane's whole memory, so whoever keeps it
//! keeps it as a secret.

use std::io::{ErrorKind, Read, Write};

use lanekeeper_core::Hash32;
use sha2::{Digest, Sha256};

use crate::error::StoreError;

const MAGIC: [u8; 8] = *b"LKBACKUP";
const VERSION: u32 = 1;
const ENTRY: u8 = 1;
const END: u8 = 2;
const NAME_BYTES: usize = 1024;
const BUFFER: usize = 64 * 1024;

/// Writes an archive.
#[derive(Debug)]
pub(super) struct ArchiveWriter<W> {
    out: W,
    whole: Sha256,
    entries: u32,
}

impl<W: Write> ArchiveWriter<W> {
    pub(super) fn begin(out: W) -> std::io::Result<Self> {
        let mut writer = Self { out, whole: Sha256::new(), entries: 0 };
        writer.put(&MAGIC)?;
        writer.put(&VERSION.to_be_bytes())?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.whole.update(bytes);
        self.out.write_all(bytes)
    }

    /// Writes `length` bytes of `content` under a name. Fewer are an error: the source shrank.
    pub(super) fn entry(&mut self, name: &str, length: u64, content: &mut impl Read) -> std::io::Result<()> {
        let name_length = u16::try_from(name.len())
            .ok()
            .filter(|length| usize::from(*length) <= NAME_BYTES)
            .ok_or_else(|| std::io::Error::new(ErrorKind::InvalidInput, "a name is too long for a backup"))?;
        let mut head = vec![ENTRY];
        head.extend(name_length.to_be_bytes());
        head.extend(name.as_bytes());
        head.extend(length.to_be_bytes());
        // The hash covers the head too, so that a changed name or length is found at its own entry.
        let mut hasher = Sha256::new();
        hasher.update(&head);
        self.put(&head)?;
        let mut left = length;
        let mut buffer = vec![0_u8; BUFFER];
        while left > 0 {
            let most = usize::try_from(left).map_or(BUFFER, |left| left.min(BUFFER));
            let got = content.read(&mut buffer[..most])?;
            if got == 0 {
                return Err(std::io::Error::new(ErrorKind::UnexpectedEof, "a file shrank while it was backed up"));
            }
            hasher.update(&buffer[..got]);
            self.put(&buffer[..got])?;
            left -= got as u64;
        }
        self.put(&hasher.finalize())?;
        self.entries += 1;
        Ok(())
    }

    /// The end mark.
    pub(super) fn finish(mut self) -> std::io::Result<W> {
        let entries = self.entries.to_be_bytes();
        self.put(&[END])?;
        self.put(&entries)?;
        let whole = self.whole.finalize();
        self.out.write_all(&whole)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Reads an archive.
#[derive(Debug)]
pub(super) struct ArchiveReader<R> {
    input: R,
    whole: Sha256,
    entries: u32,
}

/// The head of an entry; its bytes come next.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) length: u64,
    hasher: Sha256,
}

fn damaged(why: impl Into<String>) -> StoreError {
    StoreError::BackupDamaged { why: why.into() }
}

impl<R: Read> ArchiveReader<R> {
    pub(super) fn begin(input: R) -> Result<Self, StoreError> {
        let mut reader = Self { input, whole: Sha256::new(), entries: 0 };
        let magic: [u8; 8] = reader.take("its first bytes")?;
        if magic != MAGIC {
            return Err(damaged("it does not begin as a backup does"));
        }
        let version = u32::from_be_bytes(reader.take("its version")?);
        if version != VERSION {
            return Err(damaged(format!("its format is version {version}, and this program reads {VERSION}")));
        }
        Ok(reader)
    }

    fn read(&mut self, buffer: &mut [u8], what: &str) -> Result<(), StoreError> {
        self.input.read_exact(buffer).map_err(|error| {
            if error.kind() == ErrorKind::UnexpectedEof {
                damaged(format!("it is cut short in {what}"))
            } else {
                StoreError::Io { action: "read", path: "the backup".into(), source: error }
            }
        })
    }

    fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N], StoreError> {
        let mut bytes = [0_u8; N];
        self.read(&mut bytes, what)?;
        self.whole.update(bytes);
        Ok(bytes)
    }

    /// The next entry; `None` after an end mark that proves the whole.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, StoreError> {
        let place = format!("the head of entry {}", self.entries + 1);
        let [mark] = self.take(&place)?;
        match mark {
            ENTRY => {}
            END => return self.end().map(|()| None),
            other => return Err(damaged(format!("entry {} begins with an unknown mark {other}", self.entries + 1))),
        }
        let name_length: [u8; 2] = self.take(&place)?;
        let length = usize::from(u16::from_be_bytes(name_length));
        if length == 0 || length > NAME_BYTES {
            return Err(damaged(format!("the name of entry {} has {length} bytes", self.entries + 1)));
        }
        let mut name = vec![0_u8; length];
        self.read(&mut name, &place)?;
        self.whole.update(&name);
        let content_length: [u8; 8] = self.take(&place)?;
        let mut hasher = Sha256::new();
        hasher.update([ENTRY]);
        hasher.update(name_length);
        hasher.update(&name);
        hasher.update(content_length);
        let name = String::from_utf8(name)
            .map_err(|_| damaged(format!("the name of entry {} is not UTF-8", self.entries + 1)))?;
        self.entries += 1;
        Ok(Some(Entry { name, length: u64::from_be_bytes(content_length), hasher }))
    }

    /// Copies an entry's bytes and checks them. What was written to `out` counts only after `Ok`.
    pub(super) fn copy(
        &mut self,
        entry: Entry,
        out: &mut impl Write,
        path: &std::path::Path,
    ) -> Result<(), StoreError> {
        let Entry { name, length, mut hasher } = entry;
        let what = format!("entry {name:?}");
        let mut left = length;
        let mut buffer = vec![0_u8; BUFFER];
        while left > 0 {
            let most = usize::try_from(left).map_or(BUFFER, |left| left.min(BUFFER));
            self.read(&mut buffer[..most], &what)?;
            self.whole.update(&buffer[..most]);
            hasher.update(&buffer[..most]);
            out.write_all(&buffer[..most]).map_err(|error| StoreError::io("write", path, error))?;
            left -= most as u64;
        }
        let declared: [u8; 32] = self.take(&what)?;
        if declared == <[u8; 32]>::from(hasher.finalize()) {
            Ok(())
        } else {
            Err(damaged(format!("{what} does not match its hash")))
        }
    }

    fn end(&mut self) -> Result<(), StoreError> {
        let entries = u32::from_be_bytes(self.take("its end")?);
        let whole = Hash32::from_bytes(self.whole.clone().finalize().into());
        let mut declared = [0_u8; 32];
        self.read(&mut declared, "its end")?;
        if entries != self.entries {
            return Err(damaged(format!("it should hold {entries} entries and holds {}", self.entries)));
        }
        if declared != *whole.as_bytes() {
            return Err(damaged("the whole does not match the hash at its end"));
        }
        let mut more = [0_u8; 1];
        match self.input.read(&mut more) {
            Ok(0) => Ok(()),
            Ok(_) => Err(damaged("something follows its end")),
            Err(error) => Err(StoreError::Io { action: "read", path: "the backup".into(), source: error }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn archive() -> Vec<u8> {
        let mut writer = ArchiveWriter::begin(Vec::new()).unwrap();
        for (name, content) in [("manifest.json", "{}"), ("lane.db", "database"), ("memory/bob/MEMORY.md", "")] {
            writer.entry(name, content.len() as u64, &mut content.as_bytes()).unwrap();
        }
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let mut reader = ArchiveReader::begin(bytes)?;
        let mut found = Vec::new();
        while let Some(entry) = reader.next()? {
            let name = entry.name.clone();
            let mut content = Vec::new();
            reader.copy(entry, &mut content, Path::new("x"))?;
            found.push((name, content));
        }
        Ok(found)
    }

    #[test]
    fn what_goes_in_comes_out() {
        let found = read(&archive()).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!(found[1], ("lane.db".to_owned(), b"database".to_vec()));
        assert_eq!(found[2].1, b"");
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let good = archive();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let error = read(&bad).unwrap_err();
                assert!(matches!(error, StoreError::BackupDamaged { .. }), "byte {at} bit {bit}: {error}");
            }
            assert!(matches!(read(&good[..at]), Err(StoreError::BackupDamaged { .. })), "cut at {at}");
        }
        let mut longer = good;
        longer.push(0);
        assert!(read(&longer).is_err());
    }

    #[test]
    fn an_entry_that_is_wrong_is_named() {
        let good = archive();
        let at = good.windows(8).position(|window| window == b"database").unwrap();
        let mut bad = good;
        bad[at] ^= 0x20;
        assert!(read(&bad).unwrap_err().to_string().contains("lane.db"));
    }

    #[test]
    fn a_source_that_shrinks_is_an_error() {
        let mut writer = ArchiveWriter::begin(Vec::new()).unwrap();
        assert!(writer.entry("lane.db", 5, &mut b"abc".as_slice()).is_err());
    }
}

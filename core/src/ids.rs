//! Ids. Each kind is its own type; none converts into another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Why a text is not the id it claims to be. The message states the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule}")]
pub struct IdError {
    /// The rule that was broken, in words for the caller.
    pub rule: String,
}

impl IdError {
    pub(crate) fn new(rule: impl Into<String>) -> Self {
        Self { rule: rule.into() }
    }
}

macro_rules! text_serde {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize<'de>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use text_serde;

/// A DNS label as Kubernetes has it: lower-case letters, digits and `-`, at most `max` characters.
pub(crate) fn dns_label(text: &str, max: usize, what: &str) -> Result<(), IdError> {
    let good = !text.is_empty()
        && text.len() <= max
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    if good {
        Ok(())
    } else {
        Err(IdError::new(format!(
            "{what} must be 1 to {max} lower-case letters, digits or '-', not starting or ending with '-'"
        )))
    }
}

/// A lane's name: `namespace/name`. Bound to a [`LaneUid`] before it grants anything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneName {
    namespace: String,
    name: String,
}

impl LaneName {
    /// Checks both parts as Kubernetes does, with the Lane's own limit of 40 characters on the name.
    pub fn new(namespace: &str, name: &str) -> Result<Self, IdError> {
        dns_label(namespace, 63, "a namespace")?;
        dns_label(name, crate::limits::LANE_NAME_CHARS, "a lane's name")?;
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name within the namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for LaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for LaneName {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let (namespace, name) = text.split_once('/').ok_or_else(|| IdError::new("a lane is written namespace/name"))?;
        Self::new(namespace, name)
    }
}
text_serde!(LaneName);

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);
        impl $name {
            /// Wraps a UUID that is known to be one of this kind.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self { Self(uuid) }
            /// The UUID.
            #[must_use]
            pub const fn as_uuid(&self) -> Uuid { self.0 }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.hyphenated().fmt(f) }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                // Only the hyphenated form, so that one id has one spelling in logs and keys.
                match Uuid::try_parse(text) {
                    Ok(uuid) if text.len() == 36 => Ok(Self(uuid)),
                    _ => Err(IdError::new("must be a UUID in its hyphenated form")),
                }
            }
        }
        text_serde!($name);
    };
}

uuid_id!(
    /// A Lane object's UID: what a name is bound to. A re-created name has another.
    LaneUid
);
uuid_id!(
    /// An event's id, a UUIDv7 made by the store.
    EventId
);

impl EventId {
    /// The last 8 hex digits, as the projection's header names an event. The first 8 of a UUIDv7
    /// are time and identify nothing.
    #[must_use]
    pub fn tail8(&self) -> String {
        let text = self.0.simple().to_string();
        text[24..].to_owned()
    }
}

/// 32 bytes, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash32([u8; 32]);

impl Hash32 {
    /// Wraps 32 bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// From a slice, if it has 32 bytes.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Hash32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash32 {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let rule = || IdError::new("must be 64 lower-case hex digits");
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            return Err(rule());
        }
        let mut bytes = [0_u8; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).map_err(|_| rule())?;
        }
        Ok(Self(bytes))
    }
}
text_serde!(Hash32);

/// The identity of one log: 32 random bytes made before the store's first start. The first event's
/// `prev_hash` comes from it, so rows of another log never fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogId(pub Hash32);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl FromStr for LogId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        text.parse().map(Self)
    }
}
text_serde!(LogId);

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);
        impl $name {
            /// The one after this.
            #[must_use]
            pub const fn next(self) -> Self { Self(self.0 + 1) }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }
    };
}

counter!(
    /// An event's place in its log; the first is 1, an empty log's head is 0.
    Seq
);
counter!(
    /// Raised by every change of writer; an append carries the one it was written under.
    Epoch
);
counter!(
    /// Which physical collection of a lane: raised by hand-over, rebuild and erase.
    Generation
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_name_is_two_dns_labels() {
        for good in ["team/bob", "a/b", "default/acme-corp"] {
            assert_eq!(good.parse::<LaneName>().unwrap().to_string(), good);
        }
        for bad in ["bob", "a/b/c", "A/b", "a/b_c", "a/b%", "a/", "/b", "a/-b", "a/b.c", "../x"] {
            assert!(bad.parse::<LaneName>().is_err(), "{bad}");
        }
        assert!(LaneName::new("a", &"x".repeat(40)).is_ok());
        assert!(LaneName::new("a", &"x".repeat(41)).unwrap_err().rule.contains("40"));
    }

    #[test]
    fn ids_have_one_spelling() {
        let id = EventId::from_uuid(Uuid::now_v7());
        assert_eq!(id.to_string().parse::<EventId>().unwrap(), id);
        assert!(id.as_uuid().simple().to_string().parse::<EventId>().is_err());
        assert_eq!(id.tail8().len(), 8);
        let hash = Hash32::from_bytes([0xab; 32]);
        assert_eq!(hash.to_string().parse::<Hash32>().unwrap(), hash);
        assert!(hash.to_string().to_uppercase().parse::<Hash32>().is_err());
    }
}

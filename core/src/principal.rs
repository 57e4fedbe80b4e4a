//! Who asks: a person or a Kubernetes ServiceAccount.

use std::fmt;
use std::str::FromStr;

use crate::ids::{IdError, dns_label, text_serde};

/// A caller as the credential names it: `user:NAME` or `sa:NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Principal {
    /// A person.
    User(String),
    /// A ServiceAccount.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl Principal {
    /// A person; the name is a DNS label so that an owner segment is one path segment.
    pub fn user(name: &str) -> Result<Self, IdError> {
        dns_label(name, 63, "a user's name")?;
        Ok(Self::User(name.to_owned()))
    }

    /// A ServiceAccount.
    pub fn service_account(namespace: &str, name: &str) -> Result<Self, IdError> {
        dns_label(namespace, 63, "a namespace")?;
        dns_label(name, 63, "a service account's name")?;
        Ok(Self::ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// The segment under `memory/` that belongs to this principal: `NAME` or `sa.NAMESPACE.NAME`.
    /// No dot can stand in a label, so the two forms never meet.
    #[must_use]
    pub fn owner_segment(&self) -> String {
        match self {
            Self::User(name) => name.clone(),
            Self::ServiceAccount { namespace, name } => format!("sa.{namespace}.{name}"),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user:{name}"),
            Self::ServiceAccount { namespace, name } => write!(f, "sa:{namespace}/{name}"),
        }
    }
}

impl FromStr for Principal {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        if let Some(name) = text.strip_prefix("user:") {
            return Self::user(name);
        }
        if let Some((namespace, name)) = text.strip_prefix("sa:").and_then(|rest| rest.split_once('/')) {
            return Self::service_account(namespace, name);
        }
        Err(IdError::new("a principal is written user:NAME or sa:NAMESPACE/NAME"))
    }
}
text_serde!(Principal);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_has_one_spelling_and_one_owner_segment() {
        for (text, segment) in [("user:bob", "bob"), ("sa:team/agent", "sa.team.agent")] {
            let principal: Principal = text.parse().unwrap();
            assert_eq!(principal.to_string(), text);
            assert_eq!(principal.owner_segment(), segment);
        }
        for bad in ["bob", "user:", "user:a.b", "user:_shared", "sa:x", "sa:a/b/c", "user:a/b", "User:bob"] {
            assert!(bad.parse::<Principal>().is_err(), "{bad}");
        }
    }
}

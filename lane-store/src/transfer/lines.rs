//! The lines of an export, written and read: a header, one line a turn, an end line.
//!
//! What must always hold: every line that an export writes is read again by an import, and gives the same
//! text, `at` and `at_ms`. A refusal names the field and the rule and never the value: what was refused may
//! be somebody's memory.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use lanekeeper_core::lane::LaneKind;
use lanekeeper_core::time::parse_rfc3339_ms;
use lanekeeper_core::wire::events::{Head, Turn, TurnRole, check_session};
use lanekeeper_core::{EventId, Hash32, LaneError, LaneName, LogId, Principal, limits};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The format's version.
pub(super) const VERSION: u64 = 1;
/// Longest line. A turn's text fits a request body, and the other fields add less than 64 KiB, so whatever
/// could be saved can be exported and imported again.
pub(super) const LINE_BYTES: usize = limits::BODY_BYTES + 64 * 1024;
/// Longest id of a row that comes from elsewhere.
const ID_BYTES: usize = 128;
/// 0000-01-01T00:00:00Z: RFC 3339 has no year before it.
const FIRST_MS: i64 = -62_167_219_200_000;
const SIGNATURE_TAG: &[u8] = b"lanekeeper/export/v1";

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    /// The format's version.
    pub(super) lanekeeper_export: u64,
    /// The log that the ids are of.
    pub(super) log_id: LogId,
    /// The lane that was exported.
    pub(super) lane: LaneName,
    /// Its kind: what was personal does not become shared by accident.
    pub(super) kind: LaneKind,
    /// When, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exported_at: Option<String>,
    /// The log's head at the start of the export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) head: Option<Head>,
    /// True: rows may lack a principal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unattributed: bool,
    /// `not_included`, so that nobody takes an export for a backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) curated_memory: Option<String>,
}

/// Where a turn that was imported was first logged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Origin {
    pub(super) log_id: LogId,
    pub(super) id: String,
}

/// A turn as an export writes it. `at` stands there as null where none was sent.
#[derive(Debug, Serialize)]
pub(super) struct TurnLine {
    pub(super) id: EventId,
    pub(super) session: String,
    pub(super) role: TurnRole,
    pub(super) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) speaker: Option<String>,
    pub(super) at: Option<String>,
    pub(super) at_ms: i64,
    pub(super) principal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) origin: Option<Origin>,
}

/// The last line: without it a file that was cut short would look whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndLine {
    /// The format's version.
    pub(super) lanekeeper_export_end: u64,
    /// Turn lines before it.
    pub(super) turns: u64,
    /// Rows of the log that did not hold and were left out.
    #[serde(default)]
    pub(super) damaged: u64,
    /// SHA-256 of every byte before this line. Left out in a file made by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<Hash32>,
    /// The lane's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) public_key: Option<Hash32>,
    /// Ed25519 over tag, turns, damaged and sha256; 128 hex digits in two halves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) signature: Option<[Hash32; 2]>,
}

fn signed_bytes(turns: u64, damaged: u64, sha256: Hash32) -> Vec<u8> {
    let mut bytes = SIGNATURE_TAG.to_vec();
    bytes.extend(turns.to_be_bytes());
    bytes.extend(damaged.to_be_bytes());
    bytes.extend(sha256.as_bytes());
    bytes
}

impl EndLine {
    /// The end of an export, signed.
    pub(super) fn sign(key: &SigningKey, turns: u64, damaged: u64, sha256: Hash32) -> Self {
        let signature = key.sign(&signed_bytes(turns, damaged, sha256)).to_bytes();
        let half = |range: std::ops::Range<usize>| Hash32::from_slice(&signature[range]);
        Self {
            lanekeeper_export_end: VERSION,
            turns,
            damaged,
            sha256: Some(sha256),
            public_key: Some(Hash32::from_bytes(key.verifying_key().to_bytes())),
            signature: half(0..32).zip(half(32..64)).map(|(first, second)| [first, second]),
        }
    }

    /// Whether the key it names signed it; `None` where it is not signed at all.
    pub(super) fn signature_holds(&self) -> Option<bool> {
        let (sha256, public_key, [first, second]) = (self.sha256?, self.public_key?, self.signature?);
        let mut bytes = [0_u8; 64];
        bytes[..32].copy_from_slice(first.as_bytes());
        bytes[32..].copy_from_slice(second.as_bytes());
        let message = signed_bytes(self.turns, self.damaged, sha256);
        Some(
            VerifyingKey::from_bytes(public_key.as_bytes())
                .is_ok_and(|key| key.verify_strict(&message, &Signature::from_bytes(&bytes)).is_ok()),
        )
    }

    /// What is wrong with the end line of a file with these turn lines and this hash before it.
    pub(super) fn against(&self, turns: u64, sha256: Hash32) -> Result<(), Refusal> {
        if self.lanekeeper_export_end != VERSION {
            return Err(Refusal::new(
                "lanekeeper_export_end",
                format!("must be {VERSION}: the file is of another version"),
            ));
        }
        if self.turns != turns {
            return Err(Refusal::new(
                "turns",
                format!(
                    "must be the number of turn lines before it, which is {turns}: lines are missing or were added"
                ),
            ));
        }
        if self.sha256.is_some_and(|declared| declared != sha256) {
            return Err(Refusal::new(
                "sha256",
                "must be the SHA-256 of all bytes before this line: the file was changed",
            ));
        }
        Ok(())
    }
}

/// Why a line is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) field: String,
    pub(super) rule: String,
}

impl Refusal {
    pub(super) fn new(field: &str, rule: impl Into<String>) -> Self {
        Self { field: field.to_owned(), rule: rule.into() }
    }
}

/// A turn line, checked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// Where the turn was first logged, and its id there.
    pub(super) origin_log: LogId,
    pub(super) origin_id: String,
    pub(super) principal: Option<String>,
    pub(super) session: String,
    pub(super) turn: Turn,
    pub(super) at_ms: i64,
}

/// Whether a line calls itself the end.
pub(super) fn is_end(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"{\"lanekeeper_export_end\"")
}

/// The first line, or a refusal of the whole file.
pub(super) fn header(line: &[u8]) -> Result<Header, LaneError> {
    let header: Header = parse(line, &HEADER_FIELDS).map_err(|Refusal { field, rule }| {
        let field = if field.is_empty() { "lanekeeper_export".to_owned() } else { field };
        LaneError::invalid(field, format!("{rule} (the first line is the header of an export)"))
    })?;
    if header.lanekeeper_export != VERSION {
        return Err(LaneError::invalid(
            "lanekeeper_export",
            format!("must be {VERSION}: the file is of another version"),
        ));
    }
    Ok(header)
}

/// The end line.
pub(super) fn end(line: &[u8]) -> Result<EndLine, Refusal> {
    parse(line, &END_FIELDS)
}

const HEADER_FIELDS: [&str; 8] =
    ["lanekeeper_export", "log_id", "lane", "kind", "exported_at", "head", "unattributed", "curated_memory"];
const END_FIELDS: [&str; 6] = ["lanekeeper_export_end", "turns", "damaged", "sha256", "public_key", "signature"];
const TURN_FIELDS: [&str; 10] =
    ["id", "session", "role", "text", "speaker", "at", "at_ms", "principal", "metadata", "origin"];

/// Parses a line; the message of a refusal is made here, for serde's own quotes what it met.
fn parse<'de, T: Deserialize<'de>>(line: &'de [u8], fields: &[&str]) -> Result<T, Refusal> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let field = fields.iter().find(|known| path.split(['.', '[']).next() == Some(**known)).copied().unwrap_or("");
        let error = error.into_inner();
        let rule = match error.classify() {
            // Fixed sentences with a place, such as "lone leading surrogate in hex escape at line 1 column 9".
            serde_json::error::Category::Syntax | serde_json::error::Category::Eof => format!("must be JSON: {error}"),
            serde_json::error::Category::Io | serde_json::error::Category::Data if field.is_empty() => {
                format!("must be one object with no fields but {}, each at most once", fields.join(", "))
            }
            serde_json::error::Category::Io | serde_json::error::Category::Data => {
                "must be of the documented form".to_owned()
            }
        };
        Refusal::new(field, rule)
    })?;
    json.end().map_err(|_| Refusal::new("", "must hold nothing after its object"))?;
    Ok(parsed)
}

/// A turn line before its fields are looked at one by one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Loose {
    id: Option<Value>,
    session: Option<Value>,
    role: Option<Value>,
    text: Option<Value>,
    speaker: Option<Value>,
    at: Option<Value>,
    at_ms: Option<Value>,
    principal: Option<Value>,
    metadata: Option<Value>,
    origin: Option<Value>,
}

fn optional_text(field: &str, value: Option<Value>) -> Result<Option<String>, Refusal> {
    match value {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(Refusal::new(field, "must be a string"))
        }
    }
}

fn text(field: &str, value: Option<Value>) -> Result<String, Refusal> {
    optional_text(field, value)?.ok_or_else(|| Refusal::new(field, "is required"))
}

/// An id stays readable after a forget, so it must not be able to hold a sentence.
fn id(field: &str, text: String) -> Result<String, Refusal> {
    let good = (1..=ID_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-'));
    if good {
        Ok(text)
    } else {
        Err(Refusal::new(field, format!("must be 1 to {ID_BYTES} ASCII letters, digits, '.', '_', ':' or '-'")))
    }
}

/// One turn line. `now_ms` bounds its time as it does for a save.
pub(super) fn row(line: &[u8], header: &Header, now_ms: i64) -> Result<Row, Refusal> {
    let Loose { id: own_id, session, role, text: said, speaker, at, at_ms, principal, metadata, origin } =
        parse(line, &TURN_FIELDS)?;
    let own_id = id("id", text("id", own_id)?)?;
    let session = text("session", session)?;
    check_session("session", &session).map_err(|error| from_check(&error, "session"))?;
    let role = text("role", role)?
        .parse::<TurnRole>()
        .map_err(|()| Refusal::new("role", "must be user, assistant, tool or system"))?;
    let metadata = match metadata {
        None => None,
        Some(Value::Object(map)) => Some(map),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            return Err(Refusal::new("metadata", "must be an object"));
        }
    };
    let turn = Turn {
        role,
        text: text("text", said)?,
        speaker: optional_text("speaker", speaker)?,
        at: optional_text("at", at)?,
        metadata,
    };
    turn.check("", now_ms).map_err(|error| from_check(&error, "metadata"))?;
    let at_ms = instant(turn.at.as_deref(), at_ms, now_ms)?;
    let principal = match optional_text("principal", principal)? {
        Some(text) => {
            let principal: Principal = text
                .parse()
                .map_err(|_| Refusal::new("principal", "must be written user:NAME or sa:NAMESPACE/NAME"))?;
            Some(principal.to_string())
        }
        None if header.unattributed => None,
        None => return Err(Refusal::new("principal", "is required in a file whose header does not say unattributed")),
    };
    let (origin_log, origin_id) = match origin {
        None => (header.log_id, own_id),
        Some(origin) => {
            let Origin { log_id, id: origin_id } = serde_json::from_value(origin)
                .map_err(|_| Refusal::new("origin", "must be an object of log_id (64 hex digits) and id"))?;
            (log_id, id("origin.id", origin_id)?)
        }
    };
    Ok(Row { origin_log, origin_id, principal, session, turn, at_ms })
}

/// The instant of a turn. What was sent and what was computed from it must agree.
fn instant(at: Option<&str>, at_ms: Option<Value>, now_ms: i64) -> Result<i64, Refusal> {
    let stated = match at_ms {
        None => None,
        Some(value) => Some(value.as_i64().ok_or_else(|| Refusal::new("at_ms", "must be an integer"))?),
    };
    let sent = at.map(parse_rfc3339_ms).transpose().map_err(|error| Refusal::new("at", error.rule))?;
    match (sent, stated) {
        (Some(sent), Some(stated)) if sent != stated => {
            Err(Refusal::new("at_ms", "must be the instant that at names, in milliseconds since 1970"))
        }
        (Some(sent), Some(_) | None) => Ok(sent),
        (None, Some(stated)) if stated < FIRST_MS => Err(Refusal::new("at_ms", "must not lie before the year 0")),
        (None, Some(stated)) if stated > now_ms.saturating_add(limits::AT_AHEAD_MS) => {
            Err(Refusal::new("at_ms", "must not lie more than 24 h ahead"))
        }
        (None, Some(stated)) => Ok(stated),
        (None, None) => Err(Refusal::new("at", "one of at and at_ms is required")),
    }
}

/// The checks of a save name fields as `.text`; their rules quote no value.
fn from_check(error: &LaneError, fallback: &str) -> Refusal {
    if let LaneError::Invalid { field, rule } = error {
        return Refusal::new(field.trim_start_matches('.'), rule.clone());
    }
    if let LaneError::TooLarge { what, limit } = error {
        return Refusal::new(what.trim_start_matches('.'), format!("must not be over {limit} bytes"));
    }
    Refusal::new(fallback, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(unattributed: bool) -> Header {
        Header {
            lanekeeper_export: 1,
            log_id: LogId(Hash32::from_bytes([7; 32])),
            lane: "team/acme".parse().unwrap(),
            kind: LaneKind::Personal,
            exported_at: None,
            head: None,
            unattributed,
            curated_memory: None,
        }
    }

    const NOW: i64 = 1_800_000_000_000;
    const GOOD: &str = r#"{"id":"a-1","session":"s","role":"user","text":"secretword","at":"1970-01-01T00:00:01Z","at_ms":1000,"principal":"user:bob"}"#;

    #[test]
    fn a_good_line_is_read() {
        let row = row(GOOD.as_bytes(), &head(false), NOW).unwrap();
        assert_eq!((row.at_ms, row.turn.text.as_str(), row.origin_id.as_str()), (1000, "secretword", "a-1"));
        assert_eq!(row.origin_log, head(false).log_id);
    }

    #[test]
    fn each_bad_line_names_its_field_and_never_its_text() {
        let log = "11".repeat(32);
        let cases = [
            (r#"{"id":"a-1""#, r#"{"id":"a b""#, "id"),
            (r#""id":"a-1","#, "", "id"),
            (r#""id":"a-1","#, r#""id":"a-1","id":"a-2","#, ""),
            (r#""session":"s""#, r#""session":"  ""#, "session"),
            (r#""session":"s""#, r#""session":7"#, "session"),
            (r#""role":"user""#, r#""role":"secretword""#, "role"),
            (r#""text":"secretword""#, r#""text":" \n""#, "text"),
            (r#""text":"secretword""#, r#""text":"secretword\ud800""#, "text"),
            (r#""text":"secretword""#, r#""text":["secretword"]"#, "text"),
            (r#""text":"secretword""#, r#""text":"x","secretword":1"#, ""),
            (r#""text":"secretword""#, r#""text":"x","speaker":"secretword:""#, "speaker"),
            (r#""text":"secretword""#, r#""text":"x","metadata":"secretword""#, "metadata"),
            ("1970-01-01T00:00:01Z", "1970-01-01T00:00:01", "at"),
            ("1970-01-01T00:00:01Z", "2099-01-01T00:00:01Z", "at"),
            (r#""at_ms":1000"#, r#""at_ms":1001"#, "at_ms"),
            (r#""at_ms":1000"#, r#""at_ms":1.5"#, "at_ms"),
            (r#""at":"1970-01-01T00:00:01Z","at_ms":1000"#, r#""at":null"#, "at"),
            (r#""at":"1970-01-01T00:00:01Z","at_ms":1000"#, r#""at":null,"at_ms":-62167219200001"#, "at_ms"),
            (r#""at":"1970-01-01T00:00:01Z","at_ms":1000"#, r#""at":null,"at_ms":1800086400001"#, "at_ms"),
            ("user:bob", "Bob secretword", "principal"),
            (r#","principal":"user:bob""#, "", "principal"),
            (r#""user:bob"}"#, r#""user:bob","origin":{"log_id":"x","id":"y"}}"#, "origin"),
            (
                r#""user:bob"}"#,
                &format!(r#""user:bob","origin":{{"log_id":"{log}","id":"secretword here"}}}}"#),
                "origin.id",
            ),
            (r#""user:bob"}"#, r#""user:bob"} secretword"#, ""),
            (r#""user:bob"}"#, r#""user:bob""#, ""),
            (GOOD, "", ""),
            (GOOD, "[]", ""),
            (GOOD, "secretword", ""),
        ];
        for (from, to, field) in cases {
            let line = GOOD.replacen(from, to, 1);
            assert_ne!(line, GOOD, "{from}");
            let refusal = row(line.as_bytes(), &head(false), NOW).unwrap_err();
            assert_eq!(refusal.field, field, "{line}: {refusal:?}");
            assert!(!refusal.rule.contains("secretword") && !refusal.field.contains("secretword"), "{refusal:?}");
        }
        let large =
            GOOD.replacen("secretword", &format!(r#"x","metadata":{{"a":"{}"}},"speaker":"b"#, "y".repeat(17_000)), 1);
        assert_eq!(row(large.as_bytes(), &head(false), NOW).unwrap_err().field, "metadata");
    }

    #[test]
    fn a_row_without_a_principal_needs_the_headers_word() {
        let line = GOOD.replacen(r#","principal":"user:bob""#, r#","principal":null"#, 1);
        assert_eq!(row(line.as_bytes(), &head(true), NOW).unwrap().principal, None);
        assert!(row(line.as_bytes(), &head(false), NOW).is_err());
    }

    #[test]
    fn an_end_line_is_signed_and_counts() {
        let key = SigningKey::from_bytes(&[3; 32]);
        let hash = Hash32::from_bytes([1; 32]);
        let end = EndLine::sign(&key, 5, 0, hash);
        let json = serde_json::to_string(&end).unwrap();
        assert!(is_end(json.as_bytes()));
        let end = super::end(json.as_bytes()).unwrap();
        assert_eq!(end.signature_holds(), Some(true));
        assert!(end.against(5, hash).is_ok());
        assert_eq!(end.against(4, hash).unwrap_err().field, "turns");
        assert_eq!(end.against(5, Hash32::from_bytes([2; 32])).unwrap_err().field, "sha256");
        let mut forged = end.clone();
        forged.turns = 4;
        assert_eq!(forged.signature_holds(), Some(false));
        let by_hand = super::end(br#"{"lanekeeper_export_end":1,"turns":5}"#).unwrap();
        assert!(by_hand.against(5, hash).is_ok());
        assert_eq!(by_hand.signature_holds(), None);
    }

    #[test]
    fn a_header_of_another_version_or_form_refuses_the_file() {
        let good = serde_json::to_string(&head(false)).unwrap();
        assert!(header(good.as_bytes()).is_ok());
        for (bad, field) in [
            (good.replacen(":1,", ":2,", 1), "lanekeeper_export"),
            (good.replacen("personal", "secretword", 1), "kind"),
            (good.replacen("0707", "07", 1), "log_id"),
            (good.replacen('{', r#"{"secretword":1,"#, 1), "lanekeeper_export"),
            (GOOD.to_owned(), "lanekeeper_export"),
            (String::new(), "lanekeeper_export"),
        ] {
            let error = header(bad.as_bytes()).unwrap_err();
            assert!(matches!(&error, LaneError::Invalid { field: found, .. } if found == field), "{bad}: {error}");
            assert!(!error.to_string().contains("secretword"), "{error}");
        }
    }
}

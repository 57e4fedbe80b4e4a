//! The caller's filter as SQL conditions and as the engine's filter.
//!
//! Values are bound as JSON arrays: literal, whatever they hold, and the SQL text never changes.

use lanekeeper_core::LaneError;
use lanekeeper_core::time::parse_rfc3339_ms;
use lanekeeper_core::wire::events::TurnRole;
use lanekeeper_core::wire::recall::Filter;
use sqlx::Sqlite;
use sqlx::sqlite::SqliteArguments;

use crate::keys::Keys;
use crate::vectors::VectorFilter;

/// Conditions on `turns t`, bound by [`TurnFilter::bind`] as the five parameters that follow the caller's
/// own. Turns without a principal are never found.
macro_rules! conditions {
    () => {
        " AND t.principal IS NOT NULL
          AND (?2 IS NULL OR t.session IN (SELECT value FROM json_each(?2)))
          AND (?3 IS NULL OR t.role IN (SELECT value FROM json_each(?3)))
          AND (?4 IS NULL OR t.speaker IN (SELECT value FROM json_each(?4)))
          AND (?5 IS NULL OR t.at_ms >= ?5)
          AND (?6 IS NULL OR t.at_ms < ?6) "
    };
}
pub(crate) use conditions;

/// A filter, ready to be bound.
#[derive(Debug, Clone)]
pub(crate) struct TurnFilter {
    pub(crate) admits_turns: bool,
    pub(crate) admits_memory: bool,
    roles: Vec<TurnRole>,
    sessions_json: Option<String>,
    roles_json: Option<String>,
    speakers_json: Option<String>,
    at_gte_ms: Option<i64>,
    at_lt_ms: Option<i64>,
    pub(crate) engine: VectorFilter,
}

fn json<T: serde::Serialize>(values: &[T]) -> Result<Option<String>, LaneError> {
    if values.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(values).map(Some).map_err(LaneError::internal)
}

impl TurnFilter {
    pub(crate) fn new(filter: &Filter, keys: &Keys) -> Result<Self, LaneError> {
        filter.check()?;
        let Filter { session, role, speaker, kind, at_gte, at_lt } = filter;
        let time = |field: &str, value: &Option<String>| {
            value
                .as_deref()
                .map(parse_rfc3339_ms)
                .transpose()
                .map_err(|error| LaneError::invalid(format!("filter.{field}"), error.rule))
        };
        let (at_gte_ms, at_lt_ms) = (time("at_gte", at_gte)?, time("at_lt", at_lt)?);
        let of_turns = session.is_empty() && role.is_empty() && speaker.is_empty();
        Ok(Self {
            admits_turns: kind.is_empty() || kind.iter().any(|kind| kind == "turn"),
            // A paragraph has no session, role or speaker: a filter on one of them admits none.
            admits_memory: of_turns && (kind.is_empty() || kind.iter().any(|kind| kind == "memory")),
            roles: role.clone(),
            sessions_json: json(session)?,
            roles_json: json(role)?,
            speakers_json: json(speaker)?,
            at_gte_ms,
            at_lt_ms,
            engine: VectorFilter {
                sessions: session.clone(),
                roles: role.iter().map(|role| role.as_str().to_owned()).collect(),
                speakers: speaker.iter().map(|speaker| keys.speaker(speaker)).collect(),
                at_gte_ms,
                at_lt_ms,
            },
        })
    }

    /// Whether a role passes.
    pub(crate) fn admits_role(&self, role: TurnRole) -> bool {
        self.roles.is_empty() || self.roles.contains(&role)
    }

    /// Whether a time passes.
    pub(crate) fn admits_time(&self, at_ms: i64) -> bool {
        self.at_gte_ms.is_none_or(|from| at_ms >= from) && self.at_lt_ms.is_none_or(|to| at_ms < to)
    }

    /// Binds ?2 to ?6.
    pub(crate) fn bind<'q>(
        &'q self,
        query: sqlx::query::Query<'q, Sqlite, SqliteArguments>,
    ) -> sqlx::query::Query<'q, Sqlite, SqliteArguments> {
        query
            .bind(self.sessions_json.as_deref())
            .bind(self.roles_json.as_deref())
            .bind(self.speakers_json.as_deref())
            .bind(self.at_gte_ms)
            .bind(self.at_lt_ms)
    }
}

//! Every limit a caller can meet, in one place, so that docs, checks and messages agree.

/// Largest request body of the query API, bytes.
pub const BODY_BYTES: usize = 1024 * 1024;
/// Largest `metadata` of one turn, bytes of its canonical JSON.
pub const METADATA_BYTES: usize = 16 * 1024;
/// Most turns in one save.
pub const TURNS_PER_SAVE: usize = 256;
/// Longest session name, characters.
pub const SESSION_CHARS: usize = 256;
/// Longest speaker name, characters.
pub const SPEAKER_CHARS: usize = 128;
/// Longest Idempotency-Key, bytes; visible ASCII only.
pub const IDEMPOTENCY_KEY_BYTES: usize = 255;
/// How long an Idempotency-Key is remembered, milliseconds (7 days).
pub const IDEMPOTENCY_MS: i64 = 7 * 24 * 3600 * 1000;
/// How far ahead of the clock a turn's `at` may lie, milliseconds (24 h).
pub const AT_AHEAD_MS: i64 = 24 * 3600 * 1000;
/// Hits of a recall when `top_k` is not given.
pub const TOP_K_DEFAULT: u32 = 5;
/// Most hits of a recall.
pub const TOP_K_MAX: u32 = 50;
/// Candidates each arm holds: valid, with distinct content.
pub const ARM_POOL: usize = 100;
/// Pages an arm reads before it gives up filling its pool.
pub const ARM_PAGES: usize = 10;
/// A recall query is cut to this many characters, head and tail kept.
pub const QUERY_CHARS: usize = 3072;
/// Most `[[wikilinks]]` followed.
pub const HOP_BUDGET_MAX: u32 = 8;
/// Longest Lane name, characters (with the prefix it must fit a StatefulSet's 52).
pub const LANE_NAME_CHARS: usize = 40;
/// Lanes named in one recall.
pub const LANES_PER_RECALL: usize = 64;
/// Values in one filter list.
pub const FILTER_VALUES: usize = 64;
/// Largest curated memory of one owner, bytes.
pub const MEMORY_BYTES: usize = 256 * 1024;
/// Window of the projection, characters.
pub const WINDOW_CHARS: usize = 512;
/// Overlap of two windows, characters.
pub const WINDOW_OVERLAP_CHARS: usize = 100;
/// Tokens the built-in model reads.
pub const MODEL_TOKENS: usize = 256;
/// Time for the query's embedding before recall goes on by text, milliseconds.
pub const EMBED_BUDGET_MS: u64 = 4_000;
/// Time for a whole recall, milliseconds.
pub const RECALL_BUDGET_MS: u64 = 8_000;
/// A fence confirmation older than this refuses writes, milliseconds.
pub const FENCE_FRESH_MS: i64 = 15_000;

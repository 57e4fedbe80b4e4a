-- Everything below `events`, `meta` and `checkpoints` can be made again from the log alone.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

-- The log. Rows are never updated but for a forget, which sets salt and body to NULL.
CREATE TABLE events (
    seq        INTEGER PRIMARY KEY,
    id         BLOB    NOT NULL UNIQUE,
    at_ms      INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    principal  TEXT,
    session    TEXT,
    epoch      INTEGER NOT NULL,
    salt       BLOB,
    body       BLOB,
    commitment BLOB    NOT NULL,
    prev_hash  BLOB    NOT NULL,
    hash       BLOB    NOT NULL
);
CREATE INDEX events_session ON events (session, seq) WHERE kind = 'turn';
CREATE INDEX events_kind ON events (kind, seq) WHERE kind <> 'turn';

CREATE TABLE checkpoints (
    seq       INTEGER PRIMARY KEY,
    hash      BLOB    NOT NULL,
    purged    INTEGER NOT NULL,
    at_ms     INTEGER NOT NULL,
    signature BLOB    NOT NULL
);

-- Which event was forgotten by which forget event.
CREATE TABLE purged (
    seq        INTEGER PRIMARY KEY,
    forget_seq INTEGER NOT NULL
);

-- One row a turn that is not forgotten.
CREATE TABLE turns (
    seq         INTEGER PRIMARY KEY,
    event_id    BLOB    NOT NULL,
    session     TEXT    NOT NULL,
    role        TEXT    NOT NULL,
    speaker     TEXT,
    principal   TEXT,
    at_ms       INTEGER NOT NULL,
    content     BLOB    NOT NULL,
    turn_len    INTEGER NOT NULL,
    window_len  INTEGER NOT NULL,
    chunks      INTEGER NOT NULL
);
CREATE INDEX turns_content ON turns (content, seq);
CREATE INDEX turns_session ON turns (session, seq);
CREATE INDEX turns_role ON turns (role);
CREATE INDEX turns_speaker ON turns (speaker) WHERE speaker IS NOT NULL;

-- N and the sums of lengths for BM25, kept by triggers so that no reader has to scan.
CREATE TABLE text_stats (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    turns        INTEGER NOT NULL,
    turn_sum     INTEGER NOT NULL,
    window_sum   INTEGER NOT NULL,
    unattributed INTEGER NOT NULL
);
INSERT INTO text_stats VALUES (1, 0, 0, 0, 0);
CREATE TRIGGER turns_added AFTER INSERT ON turns BEGIN
    UPDATE text_stats SET turns = turns + 1, turn_sum = turn_sum + new.turn_len, window_sum = window_sum + new.window_len,
        unattributed = unattributed + (new.principal IS NULL);
END;
CREATE TRIGGER turns_removed AFTER DELETE ON turns BEGIN
    UPDATE text_stats SET turns = turns - 1, turn_sum = turn_sum - old.turn_len, window_sum = window_sum - old.window_len,
        unattributed = unattributed - (old.principal IS NULL);
END;
CREATE TRIGGER turns_changed AFTER UPDATE OF window_len ON turns BEGIN
    UPDATE text_stats SET window_sum = window_sum - old.window_len + new.window_len;
END;

-- Tokens are made and encoded in Rust; secure-delete is set in code, for it is a stored option.
CREATE VIRTUAL TABLE fts_turn   USING fts5 (tokens, tokenize = 'unicode61');
CREATE VIRTUAL TABLE fts_window USING fts5 (tokens, tokenize = 'unicode61');
INSERT INTO fts_turn   (fts_turn,   rank) VALUES ('secure-delete', 1);
INSERT INTO fts_window (fts_window, rank) VALUES ('secure-delete', 1);
CREATE VIRTUAL TABLE fts_turn_terms   USING fts5vocab (fts_turn,   'row');
CREATE VIRTUAL TABLE fts_window_terms USING fts5vocab (fts_window, 'row');

-- The claim ledger: content is owned by the lowest surviving seq.
CREATE TABLE claims (
    content       BLOB    NOT NULL,
    task          TEXT    NOT NULL,
    task_version  INTEGER NOT NULL,
    fingerprint   TEXT    NOT NULL,
    state         TEXT    NOT NULL CHECK (state IN ('RUNNING', 'COMPLETE')),
    token         BLOB    NOT NULL,
    owner_seq     INTEGER NOT NULL,
    points        INTEGER NOT NULL DEFAULT 0,
    payload_stale INTEGER NOT NULL DEFAULT 0,
    attempts      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (content, task, task_version, fingerprint)
) WITHOUT ROWID;
CREATE INDEX claims_open ON claims (owner_seq) WHERE state = 'RUNNING' OR payload_stale = 1;
CREATE INDEX claims_owner ON claims (owner_seq);

CREATE TABLE claim_events (
    content BLOB    NOT NULL,
    seq     INTEGER NOT NULL,
    PRIMARY KEY (content, seq)
) WITHOUT ROWID;

-- Idempotency: a keyed hash of the body and ids, never text. body_mac is NULL once an event was forgotten.
CREATE TABLE idempotency (
    id         INTEGER PRIMARY KEY,
    principal  TEXT    NOT NULL,
    route      TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    body_mac   BLOB,
    answer     TEXT    NOT NULL,
    created_ms INTEGER NOT NULL,
    UNIQUE (principal, route, key)
);
CREATE INDEX idempotency_age ON idempotency (created_ms);
CREATE TABLE idempotency_events (
    seq INTEGER NOT NULL,
    id  INTEGER NOT NULL REFERENCES idempotency (id) ON DELETE CASCADE,
    PRIMARY KEY (seq, id)
) WITHOUT ROWID;
CREATE INDEX idempotency_events_id ON idempotency_events (id);

-- Vectors that must go. A row survives restarts until the engine has deleted them durably.
CREATE TABLE purge_outbox (
    event_id BLOB PRIMARY KEY,
    made_ms  INTEGER NOT NULL
) WITHOUT ROWID;

-- Curated memory: the last written file of each owner, and its paragraphs.
CREATE TABLE memory_files (
    owner     TEXT PRIMARY KEY,
    sha256    BLOB    NOT NULL,
    event_seq INTEGER NOT NULL,
    -- 1 from the commit of the event until the file on disk is renamed and synced.
    unwritten INTEGER NOT NULL DEFAULT 0,
    -- While unwritten: the hash of what the event replaces on disk (NULL: no file). Anything else that is
    -- found there was written by hand since.
    replaces  BLOB,
    -- While unwritten: the conflict event whose bytes are still to be put beside the file.
    conflict_seq INTEGER
) WITHOUT ROWID;
-- Whose version each memory event is; a forgotten one has no body to say so.
CREATE TABLE memory_versions (
    seq   INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    cause TEXT NOT NULL
);
CREATE INDEX memory_versions_owner ON memory_versions (owner, seq);
CREATE TABLE memory_paragraphs (
    id        INTEGER PRIMARY KEY,
    para_id   TEXT    NOT NULL UNIQUE,
    owner     TEXT    NOT NULL,
    position  INTEGER NOT NULL,
    event_seq INTEGER NOT NULL,
    event_id  BLOB    NOT NULL,
    at_ms     INTEGER NOT NULL,
    principal TEXT,
    -- Encoded tokens of the text. One caller sees few paragraphs, so they are scored one by one, over what
    -- this caller may read alone.
    tokens    TEXT    NOT NULL,
    text      TEXT    NOT NULL
);
CREATE INDEX memory_paragraphs_owner ON memory_paragraphs (owner, position);

-- Imported rows: what came from where.
CREATE TABLE origins (
    origin_log TEXT    NOT NULL,
    origin_id  TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (origin_log, origin_id)
) WITHOUT ROWID;
CREATE INDEX origins_seq ON origins (seq);

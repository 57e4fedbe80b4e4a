//! Verification: walks rows and names the first that does not hold.
//!
//! Pure: rows are pushed in, a [`Report`] comes out, so that the live store, the offline command and the
//! tests walk by the same rules. An empty body is accepted only if a later `forget` event names its seq,
//! so the answer on purged rows is known at the end of the walk alone.

use std::collections::BTreeSet;

use lanekeeper_core::hooks::guard;
use lanekeeper_core::{Epoch, Hash32, LogId, Seq};

use super::checkpoint::Checkpoint;
use super::row::{BindingBody, EventRow, ForgetBody, Kind, commitment, root};

/// The first row that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Which.
    pub seq: Seq,
    /// What is wrong, in words.
    pub reason: String,
}

/// The outcome of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Rows walked.
    pub events: u64,
    /// Rows without body, each named by a later forget.
    pub purged: u64,
    /// The first bad one.
    pub bad: Option<BadRow>,
    /// The highest valid checkpoint.
    pub signed_up_to: Seq,
    /// The last row.
    pub head: (Seq, Hash32),
    /// The lane the log is bound to at its head.
    pub binding: Option<BindingBody>,
}

/// A walk in progress.
#[derive(Debug)]
pub struct Walk {
    next: Seq,
    prev: Hash32,
    epoch: Epoch,
    events: u64,
    empty: BTreeSet<u64>,
    named: u64,
    bad: Option<BadRow>,
    binding: Option<BindingBody>,
    public_keys: Vec<(Seq, Hash32)>,
    checkpoints: Vec<Checkpoint>,
    signed_up_to: Seq,
    // Rows before the start of a partial walk may be named by forgets in it.
    start: Seq,
}

impl Walk {
    /// A walk over the whole log. `checkpoints` ascending by seq.
    #[must_use]
    pub fn whole(log_id: LogId, checkpoints: Vec<Checkpoint>) -> Self {
        Self::from(Seq(0), root(log_id), Epoch(0), None, checkpoints)
    }

    /// A walk that starts after a row that is known to hold (its hash was signed).
    #[must_use]
    pub fn from(
        seq: Seq,
        hash: Hash32,
        epoch: Epoch,
        binding: Option<BindingBody>,
        checkpoints: Vec<Checkpoint>,
    ) -> Self {
        let public_keys = binding.iter().map(|body| (Seq(0), body.public_key)).collect();
        Self {
            next: seq.next(),
            prev: hash,
            epoch,
            events: 0,
            empty: BTreeSet::new(),
            named: 0,
            bad: None,
            binding,
            public_keys,
            checkpoints,
            signed_up_to: Seq(0),
            start: seq,
        }
    }

    /// Takes the next row, in ascending order. After a bad row only the count goes on.
    pub fn push(&mut self, row: &EventRow) {
        self.events += 1;
        if self.bad.is_some() {
            return;
        }
        if let Err(reason) = self.check(row) {
            self.bad = Some(BadRow { seq: row.seq, reason });
            return;
        }
        self.prev = row.hash;
        self.next = row.seq.next();
        self.epoch = row.epoch;
        self.check_checkpoints(row);
    }

    /// Takes a row that could not even be read as one.
    pub fn push_unreadable(&mut self, seq: Seq, reason: String) {
        self.events += 1;
        if self.bad.is_none() {
            self.bad = Some(BadRow { seq, reason });
        }
    }

    fn check(&mut self, row: &EventRow) -> Result<(), String> {
        if row.seq != self.next {
            return Err(format!("the row before it is missing: expected seq {}", self.next));
        }
        if row.prev_hash != self.prev {
            return Err(if row.seq == Seq(1) {
                "its prev_hash does not come from this log's id".into()
            } else {
                "its prev_hash is not the hash of the row before it".into()
            });
        }
        if row.computed_hash() != row.hash {
            return Err("its hash does not match its fields".into());
        }
        if row.epoch < self.epoch {
            return Err("its epoch is lower than that of the row before it".into());
        }
        match (&row.salt, &row.body) {
            (Some(salt), Some(body)) => {
                if commitment(salt, body) != row.commitment {
                    return Err("its body does not match its commitment".into());
                }
                self.read_body(row, body)
            }
            (None, None) => {
                if row.kind.parse::<Kind>().is_ok_and(|kind| !kind.forgettable()) {
                    return Err("its body is gone and its kind cannot be forgotten".into());
                }
                self.empty.insert(row.seq.0);
                Ok(())
            }
            (Some(_), None) | (None, Some(_)) => Err("only one of its salt and body is gone".into()),
        }
    }

    fn read_body(&mut self, row: &EventRow, body: &[u8]) -> Result<(), String> {
        match row.kind.parse::<Kind>() {
            Ok(Kind::Forget) => {
                let forget: ForgetBody = serde_json::from_slice(body).map_err(|_| "its forget body cannot be read")?;
                for seq in forget.seqs {
                    if seq >= row.seq.0 {
                        return Err("it forgets a row that comes after it".into());
                    }
                    if self.empty.remove(&seq) || seq <= self.start.0 {
                        self.named += 1;
                    } else {
                        return Err(format!("it forgets seq {seq}, whose body is still there"));
                    }
                }
                Ok(())
            }
            Ok(Kind::Opened | Kind::Adopted | Kind::Restored) => {
                let binding: BindingBody =
                    serde_json::from_slice(body).map_err(|_| "its binding body cannot be read")?;
                self.public_keys.push((row.seq, binding.public_key));
                self.binding = Some(binding);
                Ok(())
            }
            Ok(Kind::Turn | Kind::Memory | Kind::Imported) | Err(()) => Ok(()),
        }
    }

    fn check_checkpoints(&mut self, row: &EventRow) {
        while let Some(checkpoint) = self.checkpoints.first().filter(|checkpoint| checkpoint.seq <= row.seq).cloned() {
            self.checkpoints.remove(0);
            let signed = checkpoint.seq == row.seq
                && checkpoint.hash == row.hash
                && self.public_keys.iter().any(|(_, key)| checkpoint.is_signed_by(*key));
            if signed {
                self.signed_up_to = row.seq;
            } else if self.bad.is_none() {
                self.bad = Some(BadRow { seq: row.seq, reason: "a checkpoint that names it does not hold".into() });
            }
        }
    }

    /// Ends the walk: rows still empty were named by no forget.
    #[must_use]
    pub fn finish(mut self) -> Report {
        if self.bad.is_none()
            && guard("verify_empty_body")
            && let Some(seq) = self.empty.first()
        {
            self.bad = Some(BadRow { seq: Seq(*seq), reason: "its body is gone and no forget names it".into() });
        }
        if self.bad.is_none()
            && let Some(checkpoint) = self.checkpoints.first()
        {
            self.bad =
                Some(BadRow { seq: checkpoint.seq, reason: "a checkpoint names a row that is not there".into() });
        }
        let head = Seq(self.next.0.saturating_sub(1));
        Report {
            events: self.events,
            purged: self.named,
            bad: self.bad,
            signed_up_to: self.signed_up_to,
            head: (head, self.prev),
            binding: self.binding,
        }
    }
}

//! Texts as the model's tokens: how a question is cut, how a passage is put together.
//!
//! What always holds: no more than [`MODEL_TOKENS`] ids, special ones included; byte offsets are
//! those of the text that was composed; a chunk is never cut. What a text spells, even `[SEP]`, is
//! text and never a special token.
//!
//! What it deliberately does not do: use the padding and truncation that `tokenizer.json` ships
//! (both to 128: every question would cost 128 tokens and long chunks would be cut).

use std::ops::Range;

use lanekeeper_core::encoder::{Passage, context_end};
use lanekeeper_core::limits::MODEL_TOKENS;
use tokenizers::{Encoding, Tokenizer};

/// Ids that a text's own tokens may take: `[CLS]` and `[SEP]` take the other two.
const OWN_TOKENS: usize = MODEL_TOKENS - 2;
/// More of a question is not read, for the same reason.
const QUERY_BYTES: usize = 16 * 1024;

/// Why a tokenizer cannot be used. It needs another file.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file is no tokenizer.
    #[error("cannot read the tokenizer: {0}")]
    Load(String),
    /// The file is a tokenizer of another kind of model.
    #[error("the tokenizer knows no token {token}")]
    NoSpecialToken {
        /// The token.
        token: &'static str,
    },
}

/// A text ready for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// `[CLS]`, the text's tokens, `[SEP]`.
    pub(crate) ids: Vec<u32>,
    /// Byte ranges of the text's own tokens, so one for each of `ids[1..len − 1]`.
    pub(crate) offsets: Vec<(u32, u32)>,
}

/// A passage ready for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PassageTokens {
    /// `[CLS]`, as much of the context as fits, header, chunk, `[SEP]`.
    pub(crate) ids: Vec<u32>,
    /// Which of `ids` are pooled.
    pub(crate) pooled: Range<usize>,
}

/// The tokenizer, set up as the model needs it.
pub(crate) struct Vocabulary {
    tokenizer: Tokenizer,
    first: u32,
    last: u32,
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary").finish_non_exhaustive()
    }
}

impl Vocabulary {
    /// Reads a `tokenizer.json`.
    pub(crate) fn from_json(json: &[u8]) -> Result<Self, TokenizerError> {
        let load = |error: tokenizers::Error| TokenizerError::Load(error.to_string());
        let mut tokenizer = Tokenizer::from_bytes(json).map_err(load)?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(load)?;
        tokenizer.set_encode_special_tokens(true);
        let special = |token| tokenizer.token_to_id(token).ok_or(TokenizerError::NoSpecialToken { token });
        let (first, last) = (special("[CLS]")?, special("[SEP]")?);
        Ok(Self { tokenizer, first, last })
    }

    /// The tokens of a question, cut on the right.
    pub(crate) fn query(&self, text: &str) -> Result<Tokens, TokenizerError> {
        let encoding = self.encode(&text[..text.floor_char_boundary(QUERY_BYTES)])?;
        let count = encoding.len().min(OWN_TOKENS);
        Ok(Tokens { ids: self.framed(&encoding.get_ids()[..count]), offsets: narrow(&encoding.get_offsets()[..count]) })
    }

    /// The tokens of `context ␠ header ␠ chunk`, the context cut from the left by whole words until
    /// all fits; `None` if header and chunk alone do not fit.
    pub(crate) fn passage(&self, passage: &Passage) -> Result<Option<PassageTokens>, TokenizerError> {
        let Passage { context, header, chunk } = passage;
        let context = context_end(context);
        let mut text = String::with_capacity(context.len() + header.len() + chunk.len() + 2);
        for part in [context, header] {
            text.push_str(part);
            if !part.is_empty() {
                text.push(' ');
            }
        }
        let chunk_start = text.len();
        // The blank belongs to the context: what starts behind it is header or chunk.
        let header_start = if context.is_empty() { 0 } else { context.len() + 1 };
        text.push_str(chunk);

        let encoding = self.encode(&text)?;
        let offsets = encoding.get_offsets();
        let starts_at = |byte: usize| offsets.partition_point(|&(start, _)| start < byte);
        let Some(first) = first_kept(&encoding, starts_at(header_start)) else { return Ok(None) };
        let ids = self.framed(&encoding.get_ids()[first..]);
        // A chunk of nothing but control characters has no token of its own: its header stands for
        // it, and if that has none either, the special tokens do, as for an empty text.
        let own = [starts_at(chunk_start), starts_at(header_start)].into_iter().find(|&token| token < offsets.len());
        let pooled = match own {
            Some(token) => 1 + token - first..ids.len() - 1,
            None => 0..ids.len(),
        };
        Ok(Some(PassageTokens { ids, pooled }))
    }

    /// One text, alone and whole, all its ids pooled: how the model was trained, and how its
    /// reference vectors were made.
    #[cfg(test)]
    pub(crate) fn sentence(&self, text: &str) -> Result<PassageTokens, TokenizerError> {
        let Tokens { ids, offsets: _ } = self.query(text)?;
        Ok(PassageTokens { pooled: 0..ids.len(), ids })
    }

    /// Without special tokens; offsets in bytes.
    fn encode(&self, text: &str) -> Result<Encoding, TokenizerError> {
        self.tokenizer.encode(text, false).map_err(|error| TokenizerError::Load(error.to_string()))
    }

    fn framed(&self, ids: &[u32]) -> Vec<u32> {
        let mut framed = Vec::with_capacity(ids.len() + 2);
        framed.push(self.first);
        framed.extend_from_slice(ids);
        framed.push(self.last);
        framed
    }
}

/// The first token that is kept so that the rest fits: the start of a word of the context, or the
/// first token behind the context. `None` if not even that fits.
fn first_kept(encoding: &Encoding, context_tokens: usize) -> Option<usize> {
    let surplus = encoding.len().saturating_sub(OWN_TOKENS);
    if surplus == 0 {
        return Some(0);
    }
    let words = encoding.get_word_ids();
    // Only at the start of a word: half a word has other word pieces than the whole one had.
    (surplus..context_tokens)
        .find(|&token| words[token] != words[token - 1])
        .or((surplus <= context_tokens).then_some(context_tokens))
}

fn narrow(offsets: &[(usize, usize)]) -> Vec<(u32, u32)> {
    // Texts are cut to 16 KiB before they come here.
    offsets.iter().map(|&(start, end)| (start as u32, end as u32)).collect()
}

//! The vector arm: pools the question with the lane's own idf, searches page by page until the pool holds
//! enough valid, distinct contents, and counts what dangles.

use std::collections::HashMap;

use lanekeeper_core::encoder::QueryEncoding;
use lanekeeper_core::limits::ARM_PAGES;
use lanekeeper_core::{EventId, LaneError, Seq};
use sqlx::Row;

use super::filter::conditions;
use super::terms::turn_df;
use super::{Pool, Question, distinct, pool_size};
use crate::error::statement;
use crate::store::LaneStore;
use crate::text::bm25::idf;
use crate::text::pool::{IdfPooling, idf_pooled, idf_tokens, mean_pooled};
use crate::vectors::VectorError;

/// Why the arm gave nothing.
enum Trouble {
    Engine(VectorError),
    Lane(LaneError),
}

impl LaneStore {
    /// The question's vector, the pool, and how many found points have no turn any more.
    pub(crate) async fn vector_arm(
        &self,
        encoding: &QueryEncoding,
        question: &Question,
        idf_pooling: bool,
    ) -> Result<(Vec<f32>, Pool, u64), String> {
        let vector = self.question_vector(encoding, question, idf_pooling).await.map_err(|error| {
            tracing::warn!(code = error.code(), "the question was not pooled");
            "embedding_unusable".to_owned()
        })?;
        let outcome = self.vector_pool(vector.clone(), question).await;
        let reason = match outcome {
            Ok((pool, dangling)) => {
                self.state.set_vector_trouble(None);
                return Ok((vector, pool, dangling));
            }
            Err(Trouble::Engine(error)) => {
                tracing::warn!(%error, "the vector arm failed");
                error.reason()
            }
            Err(Trouble::Lane(error)) => {
                tracing::warn!(code = error.code(), "the vector arm failed");
                "vector_engine_unavailable"
            }
        };
        self.state.set_vector_trouble(Some(reason));
        Err(reason.into())
    }

    async fn question_vector(
        &self,
        encoding: &QueryEncoding,
        question: &Question,
        idf_pooling: bool,
    ) -> Result<Vec<f32>, LaneError> {
        let dimension = self.encoder.dimension();
        if !idf_pooling {
            return mean_pooled(encoding, dimension).map_err(LaneError::internal);
        }
        let tokens = idf_tokens(encoding, question.language);
        let mut conn = self.reader().await?;
        let df = turn_df(&mut conn, &tokens).await?;
        let rows: i64 = sqlx::query_scalar("SELECT turns FROM text_stats WHERE id = 1")
            .fetch_one(&mut *conn)
            .await
            .map_err(statement)?;
        let rows = rows.cast_unsigned();
        let pooling = IdfPooling {
            language: question.language,
            speakers: &question.speakers,
            prefix_bytes: 0,
            idf: |token: &str| idf(df.get(token).copied().unwrap_or(0), rows),
        };
        idf_pooled(encoding, dimension, &pooling).map_err(LaneError::internal)
    }

    async fn vector_pool(&self, vector: Vec<f32>, question: &Question) -> Result<(Pool, u64), Trouble> {
        let page = pool_size();
        let mut found: Vec<([u8; 32], Seq)> = Vec::new();
        let mut contents = std::collections::HashSet::new();
        let mut seen = std::collections::HashSet::new();
        let mut dangling = 0;
        for number in 0..ARM_PAGES {
            let listing = self
                .vectors
                .search(vector.clone(), question.filter.engine.clone(), page, number * page)
                .await
                .map_err(Trouble::Engine)?;
            let last = listing.len() < page;
            let fresh: Vec<EventId> =
                listing.into_iter().map(|point| point.event_id).filter(|event| seen.insert(*event)).collect();
            let owners = self.owners(&fresh).await.map_err(Trouble::Lane)?;
            dangling += fresh.iter().filter(|event| !owners.contains_key(event)).count() as u64;
            let holders = self
                .newest_holders(owners.values().map(|(content, _)| *content), question)
                .await
                .map_err(Trouble::Lane)?;
            for event in fresh {
                let Some((content, _)) = owners.get(&event) else { continue };
                // No holder passes the filters: the engine's filter is by lists, the store's by row.
                if let Some((seq, _)) = holders.get(content) {
                    contents.insert(*content);
                    found.push((*content, *seq));
                }
            }
            if last || contents.len() >= page {
                break;
            }
        }
        Ok((distinct(found, |seq| self.state.is_bad(seq)), dangling))
    }

    /// Content and seq of events that are not forgotten.
    async fn owners(&self, events: &[EventId]) -> Result<HashMap<EventId, ([u8; 32], Seq)>, LaneError> {
        let ids: Vec<String> = events.iter().map(|event| event.as_uuid().simple().to_string()).collect();
        let json = serde_json::to_string(&ids).map_err(LaneError::internal)?;
        let mut conn = self.reader().await?;
        let rows = sqlx::query(
            "SELECT e.id, t.content, t.seq FROM json_each(?) j CROSS JOIN events e ON e.id = unhex(j.value)
             CROSS JOIN turns t ON t.seq = e.seq",
        )
        .bind(json)
        .fetch_all(&mut *conn)
        .await
        .map_err(statement)?;
        let mut owners = HashMap::with_capacity(rows.len());
        for row in rows {
            let id: Vec<u8> = row.try_get(0).map_err(statement)?;
            let content: Vec<u8> = row.try_get(1).map_err(statement)?;
            let seq: i64 = row.try_get(2).map_err(statement)?;
            if let (Ok(id), Ok(content)) = (uuid::Uuid::from_slice(&id), content.try_into()) {
                owners.insert(EventId::from_uuid(id), (content, Seq(seq.cast_unsigned())));
            }
        }
        Ok(owners)
    }

    /// For each content the newest holder that passes the filters, and how many do.
    pub(crate) async fn newest_holders(
        &self,
        contents: impl Iterator<Item = [u8; 32]>,
        question: &Question,
    ) -> Result<HashMap<[u8; 32], (Seq, u32)>, LaneError> {
        let hex: Vec<String> =
            contents.map(|content| lanekeeper_core::Hash32::from_bytes(content).to_string()).collect();
        let json = serde_json::to_string(&hex).map_err(LaneError::internal)?;
        let mut conn = self.reader().await?;
        const SQL: &str = concat!(
            "SELECT t.content, max(t.seq), count(*) FROM json_each(?1) j CROSS JOIN turns t ON t.content = unhex(j.value) WHERE TRUE",
            conditions!(),
            "GROUP BY t.content"
        );
        let rows = question.filter.bind(sqlx::query(SQL).bind(json)).fetch_all(&mut *conn).await.map_err(statement)?;
        let mut holders = HashMap::with_capacity(rows.len());
        for row in rows {
            let content: Vec<u8> = row.try_get(0).map_err(statement)?;
            let seq: i64 = row.try_get(1).map_err(statement)?;
            let count: u32 = row.try_get(2).map_err(statement)?;
            if let Ok(content) = content.try_into() {
                holders.insert(content, (Seq(seq.cast_unsigned()), count));
            }
        }
        Ok(holders)
    }
}

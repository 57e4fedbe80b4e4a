//! The exchange of a lane's collection for a newly filled one, and the end of a lane's collections.
//!
//! 1. The store asks for generation + 1 in the record's status: that collection is made.
//! 2. The store says that it is filled: the alias is pointed at it in one change,
//! 3. *then* the record's generation is raised,
//! 4. *then* what is older is dropped.
//!
//! A crash between any two is healed by doing it again: each step looks at what is there.

use lanekeeper_core::Generation;
use lanekeeper_core::cluster::qdrant::physical_prefix;

use super::token::LaneToken;
use super::{Collections, Fault, generation_of};

/// What the record wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// Nothing.
    None,
    /// The store waits for this collection.
    Make(Generation),
    /// The store has filled this one.
    Swap(Generation),
}

/// From the generations that the record's spec and status name. A store may only ask for the next one.
#[must_use]
pub fn exchange(generation: i64, wanted: Option<i64>, filled: Option<i64>) -> Exchange {
    let next = generation.saturating_add(1);
    let Ok(number) = u64::try_from(next) else { return Exchange::None };
    match (wanted == Some(next), filled == Some(next)) {
        (true, true) => Exchange::Swap(Generation(number)),
        (true, false) => Exchange::Make(Generation(number)),
        (false, _) => Exchange::None,
    }
}

/// Step 4: drops what is older than the record's generation and no longer reached through the alias.
pub async fn drop_older(collections: &dyn Collections, lane: &LaneToken) -> Result<(), Fault> {
    let reached = collections.alias(&lane.collection).await?;
    for name in collections.names(&physical_prefix(&lane.collection)).await? {
        let older = generation_of(lane, &name).is_some_and(|generation| generation < lane.generation);
        if older && reached.as_deref() != Some(name.as_str()) {
            collections.drop_collection(&name).await?;
        }
    }
    Ok(())
}

/// Erases all there is of a collection: first the fence, so that nobody writes any more.
pub async fn erase(collections: &dyn Collections, collection: &str) -> Result<(), Fault> {
    collections.drop_fence(collection).await?;
    collections.drop_alias(collection).await?;
    for name in collections.names(&physical_prefix(collection)).await? {
        collections.drop_collection(&name).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_next_generation_is_made_and_only_a_filled_one_is_swapped_in() {
        let next = Generation(4);
        assert_eq!(exchange(3, None, None), Exchange::None);
        assert_eq!(exchange(3, Some(4), None), Exchange::Make(next));
        assert_eq!(exchange(3, Some(4), Some(3)), Exchange::Make(next));
        assert_eq!(exchange(3, Some(4), Some(4)), Exchange::Swap(next));
        assert_eq!(exchange(4, Some(4), Some(4)), Exchange::None);
        assert_eq!(exchange(3, Some(9), Some(9)), Exchange::None);
        assert_eq!(exchange(3, None, Some(4)), Exchange::None);
    }
}

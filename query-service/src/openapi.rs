//! The OpenAPI document: the wire's authority. Made from the handlers themselves, so it cannot drift.

use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Components, RefOr, Response};

use crate::problem::Problem;
use crate::routes;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Lanekeeper",
        description = "Memory for AI agents: scoped save, recall and forget. Every error is application/problem+json with a stable `code`. Times are RFC 3339 with an offset. Unknown fields and parameters are refused. A request may carry `x-request-id`; every answer does.",
        license(name = "Apache-2.0")
    ),
    components(schemas(Problem)),
    tags(
        (name = "lane", description = "One lane, named in the path"),
        (name = "recall", description = "Across all lanes a token reaches"),
        (name = "service", description = "Public")
    )
)]
struct Head;

/// Name of the security scheme that every route under `/v1` has.
const TOKEN: &str = "token";

/// The document.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    let (_, mut document) = routes::api().split_for_parts();
    let token = SecurityScheme::Http(
        Http::builder()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("JWT")
            .description(Some("A token of `lanekeeper token`: for one lane, and the lanes it reads"))
            .build(),
    );
    document.components.get_or_insert_with(Components::new).add_security_scheme(TOKEN, token);
    document
}

/// What the document starts from.
pub(crate) fn head() -> utoipa::openapi::OpenApi {
    Head::openapi()
}

/// Errors that any route behind a token can answer.
pub(crate) struct Problems;

impl utoipa::IntoResponses for Problems {
    fn responses() -> std::collections::BTreeMap<String, RefOr<Response>> {
        let problem = |description: &str| {
            let reference = RefOr::Ref(utoipa::openapi::Ref::from_schema_name("Problem"));
            let content = utoipa::openapi::content::ContentBuilder::new().schema(Some(reference)).build();
            RefOr::T(Response::builder().description(description).content("application/problem+json", content).build())
        };
        [
            ("400", "`invalid_field`, with the field and the rule in `errors`"),
            ("401", "`missing_token`, `invalid_token` or `expired_token`"),
            ("403", "`gate_required`, `human_required` or `single_private_owner_required`"),
            ("404", "`not_found`: there is no such thing for this token"),
            ("409", "`head_mismatch`, `idempotency_conflict`, `lane_suspended`, `log_damaged` and other states that a retry does not change"),
            ("408", "`body_not_read`: it ended early or did not come in time"),
            ("413", "`too_large`, with the limit"),
            ("415", "`unsupported_media_type`"),
            ("429", "`overloaded`: retry after the seconds in Retry-After"),
            ("500", "`internal`: the cause is in the log under the request id"),
            ("503", "`overloaded`, `unavailable`, `commit_unknown` or `fence_unconfirmed`: retry after the seconds in Retry-After"),
            ("504", "`deadline`"),
            ("507", "`disk_full`"),
        ]
        .into_iter()
        .map(|(status, description)| (status.to_owned(), problem(description)))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_document_is_what_it_was() {
        insta::assert_json_snapshot!("openapi", super::document());
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = serde_json::to_value(super::document()).unwrap();
        let mut open = vec![&document];
        let mut seen = 0;
        while let Some(value) = open.pop() {
            if let Some(reference) = value.get("$ref").and_then(|reference| reference.as_str()) {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{reference}");
                seen += 1;
            }
            open.extend(value.as_object().into_iter().flat_map(|object| object.values()));
            open.extend(value.as_array().into_iter().flatten());
        }
        assert!(seen > 100);
    }
}

//! C10: every route × no token, garbage, expired, wrong lane, right lane; the routes come from openapi.json.

use axum::body::Body;
use http::{Request, StatusCode};
use serde_json::Value;

use super::fake::{Answer, BOB, EVE, NOW_MS, World, request};

const PUBLIC: [&str; 3] = ["/healthz", "/readyz", "/openapi.json"];

struct Route {
    method: String,
    path: String,
    success: StatusCode,
    content_type: Option<String>,
    example: Option<Value>,
    secured: bool,
}

/// Every route of the document, with the one success it documents.
async fn routes(world: &World) -> Vec<Route> {
    let document = world.send(request("GET", "/openapi.json", None, None)).await.json();
    let mut routes = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let successes: Vec<u16> = operation["responses"]
                .as_object()
                .unwrap()
                .keys()
                .filter_map(|status| status.parse().ok().filter(|status| (200..300).contains(status)))
                .collect();
            assert_eq!(successes.len(), 1, "{method} {path}: one success is documented");
            let content = operation["requestBody"]["content"].as_object();
            let content = content.and_then(|content| content.iter().next());
            routes.push(Route {
                method: method.to_uppercase(),
                path: path.clone(),
                success: StatusCode::from_u16(successes[0]).unwrap(),
                content_type: content.map(|(name, _)| name.clone()),
                example: content.map(|(_, media)| media["example"].clone()).filter(|example| !example.is_null()),
                secured: operation["security"].is_array(),
            });
        }
    }
    routes
}

impl Route {
    fn request(&self, token: Option<&str>, lane: &str) -> Request<Body> {
        let (namespace, name) = lane.split_once('/').unwrap();
        let path = self.path.replace("{namespace}", namespace).replace("{name}", name);
        let mut example = self.example.clone();
        if self.path == "/v1/recall" {
            example.as_mut().unwrap()["lanes"] = serde_json::json!([lane]);
        }
        let mut request = request(&self.method, &path, token, example);
        if let Some(content_type) = &self.content_type {
            request.headers_mut().insert("content-type", content_type.parse().unwrap());
        }
        request
    }

    async fn call(&self, world: &World, token: Option<&str>, lane: &str) -> Answer {
        world.send(self.request(token, lane)).await
    }
}

#[tokio::test]
async fn every_route_asks_for_the_right_token() {
    let world = World::new();
    let routes = routes(&world).await;
    assert!(routes.len() >= 16, "{} routes", routes.len());
    let bob = world.token("user:bob", BOB);
    let eve = world.token("user:eve", EVE);
    let expired = world.token_with("user:bob", BOB, NOW_MS - 3_600_000, None);
    for route in routes {
        let at = format!("{} {}", route.method, route.path);
        let right = route.call(&world, Some(&bob), "team/bob").await;
        assert_eq!(right.status, route.success, "{at}: {}", right.text);
        if PUBLIC.contains(&route.path.as_str()) {
            assert_eq!(route.call(&world, None, "team/bob").await.status, route.success, "{at}");
            continue;
        }
        assert!(route.secured, "{at}: the document asks for no token");
        world.bob.calls.lock().unwrap().clear();
        for (token, code) in
            [(None, "missing_token"), (Some("garbage"), "invalid_token"), (Some(expired.as_str()), "expired_token")]
        {
            let refused = route.call(&world, token, "team/bob").await;
            assert_eq!((refused.status, refused.code().as_str()), (StatusCode::UNAUTHORIZED, code), "{at}");
            assert!(refused.header("www-authenticate").unwrap().starts_with("Bearer "), "{at}");
        }
        let wrong = route.call(&world, Some(&eve), "team/bob").await;
        if route.path == "/v1/lanes" {
            let lanes: Vec<String> = wrong.json()["lanes"]
                .as_array()
                .unwrap()
                .iter()
                .map(|lane| lane["lane"].as_str().unwrap().to_owned())
                .collect();
            assert_eq!(lanes, ["team/eve"]);
        } else {
            assert_eq!((wrong.status, wrong.code().as_str()), (StatusCode::NOT_FOUND, "not_found"), "{at}");
        }
        assert_eq!(world.bob.called(), Vec::<&str>::new(), "{at}: the lane was asked");
        // What does not exist looks the same.
        let absent = route.call(&world, Some(&eve), "team/nobody").await;
        let strip = |answer: &Answer| {
            let mut json = answer.json();
            json["request_id"] = Value::Null;
            json
        };
        assert_eq!(strip(&absent), strip(&wrong), "{at}");
    }
}

#[tokio::test]
async fn each_role_may_do_its_actions_and_no_more() {
    use lanekeeper_core::scope::Role;
    let world = World::new();
    let roles = [
        ("user:rea", Role::Reader),
        ("user:wri", Role::Writer),
        ("user:cur", Role::Curator),
        ("user:adm", Role::Admin),
    ];
    world.change("team/bob", |view| {
        view.access = roles.iter().map(|(who, role)| super::fake::access(who, *role)).collect()
    });
    let mut table = String::new();
    for route in routes(&world).await.into_iter().filter(|route| route.path.starts_with("/v1/")) {
        let mut row = format!("{} {}:", route.method, route.path);
        for (who, role) in roles {
            let answer = route.call(&world, Some(&world.token(who, BOB)), "team/bob").await;
            let outcome = if answer.status == route.success { "yes".to_owned() } else { answer.code() };
            row.push_str(&format!(" {}={outcome}", format!("{role:?}").to_lowercase()));
        }
        table.push_str(&row);
        table.push('\n');
    }
    insta::assert_snapshot!("roles", table);
}

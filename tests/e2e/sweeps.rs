//! What must hold of every declared route, read from the description that the server publishes: a new primitive is covered
//! without anyone asking.

use charter_tests::{Tenant, World, on_both};
use serde_json::{Value, json};

const NOBODY: &str = "0197c0de-0000-7000-8000-000000000000";

/// One operation of a primitive, at the company mount.
struct Route {
    method: String,
    path: String,
    primitive: String,
    operation: Value,
}

/// Every operation of an installed primitive that takes a key.
fn routes(world: &World) -> Vec<Route> {
    let described = world.anonymous().get("/openapi.json").expect(200);
    let listed = world.operator().get("/v1/operator/components").expect(200);
    let names: Vec<&str> = listed["components"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    let mut found = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap_or_default();
            let Some(primitive) = names.iter().find(|name| id.split('.').next() == Some(**name)) else { continue };
            if path.starts_with("/v1/users/") || path.starts_with("/v1/projects/") || !path.starts_with("/v1/") {
                continue;
            }
            found.push(Route {
                method: method.to_uppercase(),
                path: path.clone(),
                primitive: (*primitive).to_owned(),
                operation: operation.clone(),
            });
        }
    }
    assert!(found.len() > 10, "only {} routes are described", found.len());
    found
}

/// The path with every parameter replaced by something that names nothing.
fn concrete(path: &str) -> String {
    let mut text = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        text.push_str(NOBODY);
        rest = after.split_once('}').map_or("", |(_, rest)| rest);
    }
    text + rest
}

fn body_schema(route: &Route) -> Option<&Value> {
    let schema = &route.operation["requestBody"]["content"]["application/json"]["schema"];
    schema.is_object().then_some(schema)
}

fn call(tenant: &Tenant, route: &Route, below: &str, body: &Value) -> charter_tests::Answer {
    let call = tenant.client.call(&route.method, below);
    if body_schema(route).is_some() { call.json(body).send() } else { call.send() }
}

on_both! {
    fn nobody_gets_in_without_a_credential(world) {
        for route in routes(world) {
            let answer = world.anonymous().call(&route.method, &concrete(&route.path)).send();
            assert_eq!(answer.status, 401, "{answer}");
            answer.expect_error(401, "unauthorized");
        }
    }

    fn a_kit_switches_a_primitive_off(world) {
        let tenant = world.register();
        for route in routes(world) {
            let name = charter_tests::tenant::unique("off");
            let kit = tenant.kit(&name, json!({ route.primitive.clone(): {"enabled": false} }));
            let user = tenant.user_with_kit("off", &kit);
            let below = concrete(&route.path).replacen("/v1/", &format!("/v1/users/{user}/"), 1);
            let error = call(&tenant, &route, &below, &json!({})).expect_error(403, "forbidden");
            assert_eq!(error["details"]["reason"], "primitive_disabled_by_kit", "{below}");
        }
    }

    fn a_revoked_user_changes_nothing_and_still_reads(world) {
        let tenant = world.register();
        let user = tenant.user("revoked");
        tenant.client.post(&format!("/v1/users/{user}/revoke"), &json!({})).expect(200);
        for route in routes(world) {
            let below = concrete(&route.path).replacen("/v1/", &format!("/v1/users/{user}/"), 1);
            let answer = call(&tenant, &route, &below, &json!({}));
            if route.method == "GET" {
                assert_ne!(answer.status, 403, "{answer}");
            } else {
                assert_eq!(answer.expect_error(403, "forbidden")["reason"], "profile_revoked", "{answer}");
            }
        }
    }

    fn another_organizations_user_does_not_exist(world) {
        let (tenant, stranger) = (world.register(), world.register());
        for route in routes(world) {
            let below = concrete(&route.path).replacen("/v1/", &format!("/v1/users/{}/", stranger.user), 1);
            let answer = call(&tenant, &route, &below, &json!({}));
            assert_eq!(answer.status, 404, "{answer}");
        }
    }

    fn a_wrong_type_in_any_body_field_is_named(world) {
        let tenant = world.register();
        let mut tried = 0;
        for route in routes(world) {
            let Some(schema) = body_schema(&route) else { continue };
            for field in schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name) {
                // No field of any primitive takes every kind of JSON at its top level; an object of nonsense fits none.
                let answer = call(&tenant, &route, &concrete(&route.path), &json!({ field.clone(): {"nonsense": true} }));
                if answer.status == 501 {
                    continue;
                }
                let free = schema["properties"][field].get("type").is_none() && schema["properties"][field].get("anyOf").is_none();
                if free {
                    continue;
                }
                let error = answer.error();
                assert_eq!(answer.status, 400, "{field}: {answer}");
                let faults = error["details"]["faults"].to_string();
                let named = error["param"].as_str().is_some_and(|param| param.starts_with(field.as_str())) || faults.contains(field.as_str());
                assert!(named, "{field} is not named in {answer}");
                tried += 1;
            }
        }
        assert!(tried > 5, "only {tried} fields were tried");
    }

    fn an_unknown_query_parameter_and_a_wrong_method_are_named(world) {
        let tenant = world.register();
        for route in routes(world) {
            let path = format!("{}?no_such_parameter=1", concrete(&route.path));
            let answer = call(&tenant, &route, &path, &json!({}));
            if answer.status == 501 {
                continue;
            }
            let error = answer.error();
            assert!(error.to_string().contains("no_such_parameter"), "{path}: {error}");
        }
        let answer = tenant.client.call("PATCH", "/health").send();
        answer.expect_error(405, "method_not_allowed");
        assert!(answer.header("allow").is_some_and(|allow| allow.contains("GET")), "{answer}");
    }
}

//! The promises of every declared route, read from the description that the server publishes: a new
//! primitive is covered without anyone asking.

use std::collections::BTreeSet;

use charter_tests::client::Call;
use charter_tests::tenant::id;
use charter_tests::{Client, Tenant, World, cases, on_both};
use serde_json::{Value, json};

use crate::replay::fits;

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
    let names: Vec<&str> = listed["components"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    let mut found = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap_or_default();
            let Some(primitive) = names.iter().find(|name| id.split('.').next() == Some(**name))
            else {
                continue;
            };
            if path.starts_with("/v1/users/")
                || path.starts_with("/v1/projects/")
                || !path.starts_with("/v1/")
            {
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

/// All that a refused action must leave as it was: the user's accounts, the organization's credit,
/// the holds and the lists.
fn standing(client: &Client, user: &str, lists: &[String]) -> Vec<Value> {
    let own = ["ledger/accounts".to_owned(), "payments".to_owned()];
    let mut seen: Vec<Value> = own
        .iter()
        .chain(lists)
        .map(|path| client.get(&format!("/v1/users/{user}/{path}")).json())
        .collect();
    seen.push(client.get("/v1/governance/holds?state=held").json());
    seen.push(client.get("/v1/governance/holds?state=captured").json());
    seen
}

/// Sends a regulated request under everything that forbids it; answers what of that did not refuse
/// it, or wrote something.
fn forbidden(call: &Call<'_>, user: &str, primitive: &str, action: &str) -> Vec<String> {
    let admin = call.client().without("X-Service-User-Id");
    let listed = vec![primitive.to_owned()];
    let before = standing(&admin, user, &listed);
    let mut wrong = Vec::new();
    let mut under = |name: &str, reason: &[&str], forbid: &dyn Fn(), allow: &dyn Fn()| {
        forbid();
        let answer = call.clone().send();
        allow();
        let told = if answer.status >= 400 { answer.json()["error"].clone() } else { Value::Null };
        let said = [&told["reason"], &told["details"]["reason"]]
            .iter()
            .any(|said| reason.iter().any(|why| **said == *why));
        if answer.status != 403 || !said {
            wrong.push(format!("{} {} {name}: {answer}", call.method(), call.path()));
        } else if standing(&admin, user, &listed) != before {
            wrong.push(format!("{} {} {name}: something was written", call.method(), call.path()));
        }
    };
    let post = |path: String| drop(admin.post(&path, &json!({})).expect(200));
    under("revoked", &["profile_revoked"], &|| post(format!("/v1/users/{user}/revoke")), &|| {
        post(format!("/v1/users/{user}/restore"))
    });
    let kit = id(&admin.get("/v1/kits").expect(200)["kits"][0]);
    let switch = |on: bool| {
        let primitives =
            admin.get(&format!("/v1/kits/{kit}")).expect(200)["kit"]["primitives"].clone();
        let mut primitives = primitives;
        primitives[primitive]["enabled"] = on.into();
        admin.patch(&format!("/v1/kits/{kit}"), &json!({ "primitives": primitives })).expect(200);
    };
    under("switched off", &["primitive_disabled_by_kit"], &|| switch(false), &|| switch(true));
    let rules = |rules: Value| {
        drop(admin.put("/v1/governance/policy", &json!({ "rules": rules })).expect(200))
    };
    under(
        "denied",
        &["policy_denied"],
        &|| rules(json!([{ "id": "no", "effect": "deny", "actions": [action] }])),
        &|| rules(json!([])),
    );
    let limits = |limits: Value| {
        drop(admin.put("/v1/governance/limits", &json!({ "limits": limits })).expect(200))
    };
    under(
        "over its limit",
        &["limit_exceeded"],
        &|| {
            limits(
                json!([{ "id": "none", "actions": [action], "period": "total", "max_amount_micro_usd": 0 }]),
            )
        },
        &|| limits(json!([])),
    );
    wrong
}

on_both! {
    fn every_regulated_operation_is_refused_and_writes_nothing_where_it_is_forbidden(world) {
        let regulated: Vec<(Route, String)> = routes(world)
            .into_iter()
            // The biller asks only before it charges a payment method, and no case has one.
            .filter(|route| route.primitive != "billing")
            .filter_map(|route| Some((route.operation["x-regulated-action"].as_str()?.to_owned(), route)))
            .map(|(action, route)| (route, action))
            .collect();
        assert!(regulated.len() >= 5, "only {} operations are regulated", regulated.len());
        let mut seen = BTreeSet::new();
        let mut wrong = Vec::new();
        for (_, path) in cases::all() {
            cases::run_through(world, &path, "user", &mut |call| {
                let Some((user, below)) = call.path().strip_prefix("/v1/users/").and_then(|rest| rest.split_once('/')) else {
                    return call.send();
                };
                let (user, company) = (user.to_owned(), format!("/v1/{below}"));
                let found = regulated.iter().find(|(route, _)| route.method == call.method() && fits(&route.path, &company));
                let Some((route, action)) = found.filter(|(route, _)| !seen.contains(&route.path)) else { return call.send() };
                let told = match call.client().get(&format!("/v1/users/{user}")).status {
                    200 => forbidden(&call, &user, &route.primitive, action),
                    _ => Vec::new(),
                };
                let answer = call.send();
                if (200..300).contains(&answer.status) {
                    seen.insert(route.path.clone());
                    wrong.extend(told);
                }
                answer
            });
        }
        assert_eq!(wrong, Vec::<String>::new());
        let unseen: Vec<&str> = regulated.iter().map(|(route, _)| route.path.as_str()).filter(|path| !seen.contains(*path)).collect();
        assert_eq!(unseen, Vec::<&str>::new(), "no case makes these succeed");
    }

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
                // No field of any primitive takes every kind of JSON at its top level; an object of
                // nonsense fits none.
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

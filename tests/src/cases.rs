//! Runs the cases that lie beside each primitive; `tests/CASES.md` describes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Map, Value, json};
use xtask::test::CASES;

use crate::World;
use crate::answer::Answer;
use crate::artefacts::Artefacts;
use crate::client::Call;
use crate::double::Reply;
use crate::provider::{self, Page};
use crate::tenant::unique;

/// Every case of every primitive, or of the one that [`CASES`] names, with the primitive's name.
pub fn all() -> Vec<(String, PathBuf)> {
    let plugins = Artefacts::get().root.join("plugins");
    let mut found = Vec::new();
    for primitive in folders(&plugins) {
        let name = primitive.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for case in folders(&primitive.join("cases")) {
            if case.extension().is_some_and(|extension| extension == "json") {
                found.push((name.clone(), case));
            }
        }
    }
    if let Some(only) = std::env::var_os(CASES) {
        found.retain(|(name, _)| only == *name.as_str());
    }
    found.sort();
    found
}

fn folders(path: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Runs one case at one mount (`company` or `user`).
pub fn run(world: &World, path: &Path, mount: &str) {
    run_through(world, path, mount, &mut |call| call.send());
}

/// The same, with each request sent by `send`; what it answers is what the case looks at.
pub fn run_through(
    world: &World,
    path: &Path,
    mount: &str,
    send: &mut dyn FnMut(Call<'_>) -> Answer,
) {
    let text = std::fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let case: Value = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{} is no JSON: {error}", path.display()));
    let (owner, stranger) = (world.register(), world.register());
    let other = owner.user("other");
    let mut saved = BTreeMap::from([
        ("user".to_owned(), json!(owner.user)),
        ("other".to_owned(), json!(other)),
        ("unique".to_owned(), json!(unique("case"))),
    ]);
    if let Some(pages) = case.get("web").and_then(Value::as_array) {
        let address = provider::serve(pages.iter().map(|page| self::page(None, page)).collect());
        saved.insert("web".into(), json!(format!("http://{address}")));
    }
    if let Some(bindings) = case.get("bind").and_then(Value::as_object) {
        for (name, binding) in bindings {
            bind(world, &owner.organization, name, &fill(binding, &saved));
        }
    }
    if let Some(cents) = case["fund"].as_i64() {
        world.fund(&owner, cents);
    }
    for (number, step) in case["steps"].as_array().into_iter().flatten().enumerate() {
        let title = case["title"].as_str().unwrap_or_default();
        let place =
            format!("{} at the {mount} mount, step {}: {title}", path.display(), number + 1);
        let client = match step["as"].as_str().unwrap_or("owner") {
            "owner" => owner.client.clone(),
            "other" => owner.client.with("X-Service-User-Id", &other),
            "stranger" => stranger.client.clone(),
            "nobody" => world.anonymous(),
            other => panic!("{place}: unknown `as` {other}"),
        };
        let request = fill(&step["request"], &saved);
        let (method, below) = request
            .as_str()
            .and_then(|text| text.split_once(' '))
            .unwrap_or_else(|| panic!("{place}: no request"));
        let user = match step["as"].as_str() {
            Some("stranger") => &stranger.user,
            Some("other") => &other,
            _ => &owner.user,
        };
        let target = if mount == "user" {
            format!("/v1/users/{user}{below}")
        } else {
            format!("/v1{below}")
        };
        let mut call = client.call(method, &target);
        for (name, value) in step["headers"].as_object().into_iter().flatten() {
            call = call.header(name, fill(value, &saved).as_str().unwrap_or_default());
        }
        if let Some(body) = step.get("body") {
            call = call.json(&fill(body, &saved));
        }
        // Two rows of one millisecond are in no order.
        let earlier = unix_ms();
        while unix_ms() == earlier {
            std::thread::yield_now();
        }
        let answer = send(call);
        assert_eq!(json!(answer.status), step["status"], "{place}\n{answer}");
        if let Some(expected) = step.get("expect") {
            let expected = fill(expected, &saved);
            if let Err(fault) = matches(&expected, Some(&answer.json()), "") {
                panic!("{place}: {fault}\n{answer}");
            }
        }
        for text in step["lacks"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            assert!(!answer.text().contains(text), "{place}: the answer holds {text:?}\n{answer}");
        }
        for (name, path) in step["save"].as_object().into_iter().flatten() {
            let value = path.as_str().unwrap_or_default().split('.').fold(
                answer.json(),
                |value, member| match member.parse::<usize>() {
                    Ok(index) if value.is_array() => value[index].clone(),
                    _ => value[member].clone(),
                },
            );
            assert!(!value.is_null(), "{place}: there is no {path} to save\n{answer}");
            saved.insert(name.clone(), value);
        }
    }
}

fn page(method: Option<&str>, told: &Value) -> Page {
    let mut headers: Vec<(String, String)> = told["headers"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    let body = match (&told["json"], told["text"].as_str(), told["base64"].as_str()) {
        (Value::Null, Some(text), _) => text.as_bytes().to_vec(),
        (Value::Null, None, Some(encoded)) => {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD
                .decode(encoded)
                .unwrap_or_else(|error| panic!("base64: {error}"))
        }
        (Value::Null, None, None) => Vec::new(),
        (json, ..) => {
            headers.push(("content-type".into(), "application/json".into()));
            json.to_string().into_bytes()
        }
    };
    let status =
        told["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(200);
    Page {
        method: method.map(str::to_owned),
        path: told["path"].as_str().unwrap_or_default().to_owned(),
        reply: Reply { status, headers, body },
    }
}

fn bind(world: &World, organization: &str, name: &str, binding: &Value) {
    let pages = binding["serve"].as_array().into_iter().flatten().map(|told| {
        let (method, path) =
            told["request"].as_str().and_then(|text| text.split_once(' ')).unwrap_or(("GET", "/"));
        Page { path: path.to_owned(), ..page(Some(method), told) }
    });
    let address = provider::serve(pages.collect());
    let options = binding.get("options").cloned().unwrap_or_else(|| json!({}));
    let body = json!({
        "kind": binding["kind"], "url": format!("http://{address}"), "options": options,
        "scope": { "organization": organization },
    });
    world.operator().put(&format!("/v1/operator/providers/{name}"), &body).expect(200);
}

/// Puts what was saved in place of `{{name}}`.
fn fill(value: &Value, saved: &BTreeMap<String, Value>) -> Value {
    match value {
        Value::String(text) => {
            let whole = text.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
            if let Some(found) = whole.and_then(|name| saved.get(name)) {
                return found.clone();
            }
            let mut text = text.clone();
            for (name, value) in saved {
                let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                text = text.replace(&format!("{{{{{name}}}}}"), &shown);
            }
            Value::String(text)
        }
        Value::Array(items) => items.iter().map(|item| fill(item, saved)).collect(),
        Value::Object(members) => Value::Object(
            members
                .iter()
                .map(|(name, value)| (name.clone(), fill(value, saved)))
                .collect::<Map<_, _>>(),
        ),
        other => other.clone(),
    }
}

/// Whether the answer looks as expected; otherwise where it does not.
fn matches(expected: &Value, found: Option<&Value>, path: &str) -> Result<(), String> {
    let shown =
        |found: Option<&Value>| found.map_or_else(|| "nothing".to_owned(), Value::to_string);
    let fault = |wanted: &str| Err(format!("{path}: expected {wanted}, found {}", shown(found)));
    if expected == "$absent" {
        return if found.is_none() { Ok(()) } else { fault("nothing") };
    }
    let Some(value) = found else { return fault(&expected.to_string()) };
    match expected {
        Value::Object(members) => members.iter().try_for_each(|(name, member)| {
            matches(member, value.get(name), &format!("{path}.{name}"))
        }),
        Value::Array(items) => {
            let same = value.as_array().is_some_and(|values| values.len() == items.len());
            if !same {
                return fault(&format!("{} elements", items.len()));
            }
            items
                .iter()
                .enumerate()
                .try_for_each(|(at, item)| matches(item, value.get(at), &format!("{path}.{at}")))
        }
        Value::String(text) if text.starts_with('$') => {
            let fits = match text.as_str() {
                "$any" => true,
                "$null" => value.is_null(),
                "$string" => value.is_string(),
                "$integer" => value.is_i64() || value.is_u64(),
                "$boolean" => value.is_boolean(),
                "$array" => value.is_array(),
                "$object" => value.is_object(),
                "$uuid" => value.as_str().is_some_and(is_uuid),
                "$time" => value.as_str().is_some_and(|text| {
                    text.len() == 24 && text.ends_with('Z') && &text[10..11] == "T"
                }),
                other => match other.strip_prefix("$contains:") {
                    Some(part) => value.as_str().is_some_and(|text| text.contains(part)),
                    None => return Err(format!("{path}: {other} is no expectation")),
                },
            };
            if fits { Ok(()) } else { fault(text) }
        }
        other if other == value => Ok(()),
        other => fault(&other.to_string()),
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.char_indices().all(|(at, c)| {
            if matches!(at, 8 | 13 | 18 | 23) { c == '-' } else { c.is_ascii_hexdigit() }
        })
}

fn unix_ms() -> u128 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis())
}

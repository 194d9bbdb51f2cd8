//! Layers, and faults by key.

use super::*;

fn layers(file: &str, environment: &[(&str, &str)]) -> Layers {
    Layers {
        file: Some(("charter.toml".into(), file.into())),
        environment: environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        flags: Vec::new(),
    }
}

#[test]
fn a_flag_beats_the_environment_and_the_environment_beats_the_file() {
    let file = "[http]\nlisten = \"127.0.0.1:1\"\nconnections_max = 7\nheaders_max = 50";
    let mut layers = layers(
        file,
        &[("CHARTER_HTTP_LISTEN", "127.0.0.1:2"), ("CHARTER_HTTP_CONNECTIONS_MAX", "8")],
    );
    layers.flags.push(("http.listen", "--listen", "127.0.0.1:3".into()));
    let config = Config::read(layers).expect("no faults");
    assert_eq!(
        (config.http.listen.port(), config.http.connections_max, config.http.headers_max),
        (3, 8, 50)
    );
}

#[test]
fn every_fault_is_named_by_the_key_that_was_written() {
    let file = "[http]\nlisten = 7.5\nlisen = \"x\"\n[tls]\nkey = \"k.pem\"\n[htttp]\na = 1\n[auth]\nregistration = \"maybe\"";
    let faults = Config::read(layers(
        file,
        &[("CHARTER_EGRESS_ALLOW", "10.0.0.0/99"), ("CHARTER_OPERATR_TOKEN", "x")],
    ))
    .expect_err("faults");
    let keys: Vec<&str> = faults.iter().map(|fault| fault.key.as_str()).collect();
    for key in [
        "http.listen",
        "http.lisen",
        "tls.certificate",
        "[htttp]",
        "auth.registration",
        "CHARTER_EGRESS_ALLOW",
        "CHARTER_OPERATR_TOKEN",
    ] {
        assert!(keys.contains(&key), "{key} is missing in {keys:?}");
    }
    let misspelt = faults.iter().find(|fault| fault.key == "http.lisen").expect("is there");
    assert!(misspelt.message.contains("http.listen"), "{misspelt}");
}

#[test]
fn trusted_proxies_are_ranges_from_any_layer_and_none_by_default() {
    let shown = |layers: Layers| {
        let config = Config::read(layers).expect("no faults");
        config.http.trusted_proxies.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let file = "[http]\ntrusted_proxies = [\"10.0.0.0/8\", \"192.0.2.7\"]";
    assert!(shown(layers("", &[])).is_empty());
    assert_eq!(shown(layers(file, &[])), ["10.0.0.0/8", "192.0.2.7/32"]);
    let mut over =
        layers(file, &[("CHARTER_HTTP_TRUSTED_PROXIES", "172.16.0.0/12, 2001:db8::/32")]);
    assert_eq!(shown(over.clone()), ["172.16.0.0/12", "2001:db8::/32"]);
    over.flags.push(("http.trusted_proxies", "--trusted-proxies", "127.0.0.0/8".into()));
    assert_eq!(shown(over.clone()), ["127.0.0.0/8"]);
    over.flags.push(("http.trusted_proxies", "--trusted-proxies", "everybody".into()));
    let faults = Config::read(over).expect_err("no range");
    assert_eq!(faults[0].key, "--trusted-proxies");
    assert!(faults[0].message.contains("everybody"), "{}", faults[0]);
}

#[test]
fn a_binding_comes_from_the_file_and_its_credential_from_the_environment() {
    let file = "[providers.web-search]\nkind = \"searxng\"\nurl = \"http://127.0.0.1:9/\"\noptions = { language = \"en\" }";
    let environment = [
        ("CHARTER_PROVIDERS_WEB_SEARCH_CREDENTIAL", "s3cret"),
        ("CHARTER_PROVIDERS_OTHER_ONE_URL", "https://a.example"),
    ];
    let config = Config::read(layers(file, &environment)).expect("no faults");
    let search = &config.providers["web-search"];
    assert_eq!(
        (search.kind.as_str(), search.credential.as_ref().map(Secret::reveal)),
        ("searxng", Some("s3cret"))
    );
    assert_eq!(config.providers["other.one"].kind, "http");
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn a_dotted_binding_is_a_section_within_a_section() {
    let config =
        Config::read(layers("[providers.weather.station]\nurl = \"http://127.0.0.1:9/\"", &[]))
            .expect("no faults");
    assert!(config.providers.contains_key("weather.station"), "{:?}", config.providers.keys());
}

#[test]
fn what_is_set_of_a_primitive_comes_from_the_file_and_the_environment() {
    let file = "[primitives.notes]\nsize_max = 3\nkinds = [{ id = \"a\" }]\n[primitives.two-words.limits]\nday = 1";
    let environment = [
        ("CHARTER_PRIMITIVES_NOTES", r#"{"size_max": 4}"#),
        ("CHARTER_PRIMITIVES_TWO_WORDS", r#"{"depth": 2}"#),
    ];
    let config = Config::read(layers(file, &environment)).expect("no faults");
    let set = |primitive: &str, key: &str| config.primitives.get(primitive, key).cloned();
    assert_eq!(set("notes", "size_max"), Some(serde_json::json!(4)));
    assert_eq!(set("notes", "kinds"), Some(serde_json::json!([{ "id": "a" }])));
    assert_eq!(set("two-words", "limits"), Some(serde_json::json!({ "day": 1 })));
    assert_eq!(set("two-words", "depth"), Some(serde_json::json!(2)));
    assert_eq!(set("notes", "depth"), None);
    let odd = [("CHARTER_PRIMITIVES_OTHER", "3")];
    let faults = Config::read(layers("[primitives]\nnotes = 3", &odd)).expect_err("no sections");
    let keys: Vec<&str> = faults.iter().map(|fault| fault.key.as_str()).collect();
    assert_eq!(keys, ["primitives.notes", "CHARTER_PRIMITIVES_OTHER"]);
}

#[test]
fn a_weak_operator_token_is_refused() {
    let faults =
        Config::read(layers("", &[("CHARTER_OPERATOR_TOKEN", "hunter2")])).expect_err("weak");
    assert_eq!(faults[0].key, "CHARTER_OPERATOR_TOKEN");
    assert!(!faults[0].message.contains("hunter2"));
}

#[test]
fn the_reference_names_every_setting_once() {
    let entries = Config::reference();
    let mut keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    let all = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), all);
    assert!(all > 50);
}

//! The rows of lists: several organizations, projects and users have rows, and each
//! described operation that answers with rows is asked by several principals under several names and
//! held against `tests/lists.tsv`. Streams and webhooks are listened to.
//!
//! Every row carries a mark of whose it is, in a name, a text or its id. So an answer tells by its
//! text alone whose rows it holds, whatever its shape.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use charter_tests::artefacts::Artefacts;
use charter_tests::double::{self, Reply};
use charter_tests::patience::until;
use charter_tests::stream::Stream;
use charter_tests::tenant::{PASSWORD, id, unique};
use charter_tests::world::Builder;
use charter_tests::{Client, Database, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;
use crate::governance::in_an_hour;
use crate::rules::{play, sights};

const TABLE: &str = include_str!("../lists.tsv");

/// The kinds of owners of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Organization,
    Project,
    User,
}

/// An organization, a project or a user, whose rows carry its marks.
struct Party {
    name: &'static str,
    kind: Kind,
    tenant: usize,
    /// Itself, or where a user is; absent for an organization.
    project: Option<String>,
    user: Option<String>,
    mark: String,
    /// Texts that only its rows have.
    marks: Vec<String>,
    /// Ids that a path can be filled with.
    things: BTreeMap<&'static str, String>,
}

impl Party {
    fn new(name: &'static str, kind: Kind, tenant: usize) -> Self {
        let mark = unique(&format!("mark-{name}"));
        let marks = vec![format!("{mark}.")];
        let (project, user, things) = (None, None, BTreeMap::new());
        Self { name, kind, tenant, project, user, mark, marks, things }
    }

    /// A text that carries the mark, and is no beginning of another one's.
    fn text(&self) -> String {
        format!("{}.", self.mark)
    }

    fn keep(&mut self, thing: &'static str, id: &str) {
        self.marks.push(id.to_owned());
        self.things.insert(thing, id.to_owned());
    }
}

/// Two organizations: one with two projects and three users, and a stranger.
struct Bed {
    tenants: Vec<Tenant>,
    parties: Vec<Party>,
}

impl Bed {
    fn new(world: &World) -> Self {
        let mut bed =
            Self { tenants: vec![world.register(), world.register()], parties: Vec::new() };
        for tenant in 0..2 {
            bed.organization(world, tenant);
        }
        let second =
            bed.tenants[0].client.post("/v1/projects", &json!({ "name": "x" })).expect(201);
        let projects = [
            ("p1", 0, bed.tenants[0].project.clone()),
            ("p2", 0, id(&second["project"])),
            ("q1", 1, bed.tenants[1].project.clone()),
        ];
        for (name, tenant, project) in &projects {
            bed.project(name, *tenant, project);
        }
        for (name, at) in [("a", 0), ("b", 0), ("c", 1), ("s", 2)] {
            bed.user(name, projects[at].1, &projects[at].2);
        }
        bed
    }

    fn webhook(&self, client: &Client, party: &mut Party) {
        let url = format!("http://127.0.0.1:9/{}", party.text());
        let made =
            client.post("/v1/webhooks", &json!({ "url": url, "eventTypes": ["script.told"] }));
        let webhook = id(&made.expect(201));
        client.post(&format!("/v1/webhooks/{webhook}/test"), &json!({})).expect(202);
        party.keep("webhook", &webhook);
    }

    fn key(&self, party: &mut Party, pins: Value) {
        let mut wish = pins;
        wish["name"] = party.text().into();
        let made = self.tenants[party.tenant].client.post("/v1/auth/keys", &wish).expect(201);
        party.marks.push(id(&made));
    }

    fn organization(&mut self, world: &World, tenant: usize) {
        let mut party = Party::new(["o", "other"][tenant], Kind::Organization, tenant);
        let own = &self.tenants[tenant];
        let (client, text) = (&own.client, party.text());
        let credit =
            json!({ "organization_id": own.organization, "amount_cents": 100_000, "memo": text });
        world.operator().post("/v1/operator/credits", &credit).expect(201);
        // A rule and a limit that decided are named beside what they decided; the marked ones never do.
        let rule = |id: &str, action: &str| json!({ "id": id, "effect": "require_approval", "actions": [action] });
        let rules = [rule("ask", "script.send"), rule(&text, "script.spend_nothing")];
        client.put("/v1/governance/policy", &json!({ "rules": rules })).expect(200);
        let limit = json!({ "id": text, "actions": ["script.spend_nothing"], "period": "day", "max_count": 90 });
        client.put("/v1/governance/limits", &json!({ "limits": [limit] })).expect(200);
        let email = format!("{}@example.com", party.mark);
        party.marks.push(email.clone());
        client
            .post("/v1/organization/members", &json!({ "email": email, "role": "viewer" }))
            .expect(201);
        self.webhook(client, &mut party);
        self.key(&mut party, json!({}));
        self.parties.push(party);
    }

    fn project(&mut self, name: &'static str, tenant: usize, project: &str) {
        let mut party = Party::new(name, Kind::Project, tenant);
        party.project = Some(project.to_owned());
        let within = self.tenants[tenant].client.with("x-service-project-id", project);
        let name = json!({ "name": party.text() });
        within.patch(&format!("/v1/projects/{project}"), &name).expect(200);
        within.post("/v1/kits", &name).expect(201);
        self.webhook(&within, &mut party);
        self.key(&mut party, json!({ "project_id": project }));
        self.parties.push(party);
    }

    fn user(&mut self, name: &'static str, tenant: usize, project: &str) {
        let mut party = Party::new(name, Kind::User, tenant);
        let within = self.tenants[tenant].client.with("x-service-project-id", project);
        let text = party.text();
        let user = id(&within.post("/v1/users", &json!({ "name": text })).expect(201)["user"]);
        (party.project, party.user) = (Some(project.to_owned()), Some(user.clone()));
        let own = within.with("x-service-user-id", &user);
        self.webhook(&own, &mut party);
        self.key(&mut party, json!({ "user_id": user, "project_id": project }));
        let grant = json!({ "user_id": user, "actions": ["script.guess"], "until": in_an_hour(&within), "reason": text });
        within.post("/v1/governance/grants", &grant).expect(201);
        own.post("/v1/queue", &json!({ "name": text })).expect(201);
        own.put(&format!("/v1/vault/{text}"), &json!({ "value": "x" })).expect(200);
        let card = own.post("/v1/cards", &json!({ "label": text })).expect(201);
        party.keep("card", &id(&card["card"]));
        let funds =
            json!({ "to_user_id": user, "amount_cents": 100, "source": "credit", "memo": text });
        own.post("/v1/payments/transfer", &funds).expect(201);
        let payer = id(&within.get("/v1/users/default").expect(200)["user"]);
        let ask = json!({ "from_user_id": payer, "amount_cents": 100, "description": text });
        own.post("/v1/payments/requests", &ask).expect(201);
        let steps = json!([
            { "open": text }, { "note": "note", "slug": text },
            { "leave": "script.spend", "amount": 1, "as": "p", "title": text }, { "capture": "p", "amount": 1 },
            { "enqueue": [], "public": true },
        ]);
        party.keep("job", sights(&play(&own, steps)).last().unwrap().as_str().unwrap());
        let waits =
            json!([{ "leave": "script.send", "as": "p", "title": text }, { "cancel": "p" }]);
        party.keep("approval", play(&own, waits).expect(202)["approval_id"].as_str().unwrap());
        self.parties.push(party);
    }

    fn party(&self, name: &str) -> &Party {
        self.parties.iter().find(|party| party.name == name).unwrap()
    }
}

/// A principal that asks, and the names that it gives.
struct Inquiry<'b> {
    name: String,
    client: Client,
    tenant: usize,
    pinned: Option<&'b Party>,
    project: Option<&'b Party>,
    user: Option<&'b Party>,
}

impl Inquiry<'_> {
    /// Whether its pins let it see the party.
    fn sees(&self, party: &Party) -> bool {
        party.tenant == self.tenant
            && match self.pinned {
                None => true,
                Some(pin) if pin.kind == Kind::Project => pin.project == party.project,
                Some(pin) => pin.name == party.name,
            }
    }

    /// Whether the party is in scope, among those that it sees.
    fn within(&self, scope: &str, bed: &Bed, party: &Party) -> bool {
        let pinned_user = self.pinned.filter(|pin| pin.kind == Kind::User);
        let pinned_project = self.pinned.and_then(|pin| pin.project.as_ref());
        let user = self.user.or(pinned_user);
        let of_user = user.is_some_and(|user| user.name == party.name);
        let named = self.project.and_then(|project| project.project.as_ref()).or(pinned_project);
        let selected = named.unwrap_or(&bed.tenants[self.tenant].project);
        let of_project = party.project.as_ref() == Some(selected);
        self.sees(party)
            && match scope {
                "user" => of_user,
                "project" => of_project,
                "desk" if user.is_some() => of_user,
                "desk" if named.is_some() => of_project,
                "desk" | "organization" | "pins" | "reach" => true,
                "nobody" => false,
                other => panic!("{other} is no scope"),
            }
    }
}

fn inquiries<'b>(world: &World, bed: &'b Bed) -> Vec<Inquiry<'b>> {
    let key = |tenant: usize, wishes: Value| bed.tenants[tenant].key(wishes);
    let plain = |name: &str, tenant, client| Inquiry {
        name: name.to_owned(),
        client,
        tenant,
        pinned: None,
        project: None,
        user: None,
    };
    let mut all = Vec::new();
    let session = browser(world, &bed.tenants[0].email, PASSWORD).0;
    for (name, client) in [("viewer", key(0, json!({ "role": "viewer" }))), ("session", session)] {
        all.push(plain(name, 0, client.clone()));
        for user in ["a", "c"] {
            let user = bed.party(user);
            let named = client.with("x-service-user-id", user.user.as_ref().unwrap());
            let named = named.with("x-service-project-id", user.project.as_ref().unwrap());
            let project = Some(user).map(|user| {
                let own =
                    |party: &&Party| party.kind == Kind::Project && party.project == user.project;
                bed.parties.iter().find(own).unwrap()
            });
            let name = format!("{name} naming {}", user.name);
            all.push(Inquiry { user: Some(user), project, ..plain(&name, 0, named) });
        }
        let project = bed.party("p2");
        let named = client.with("x-service-project-id", project.project.as_ref().unwrap());
        let name = format!("{name} naming p2");
        all.push(Inquiry { project: Some(project), ..plain(&name, 0, named) });
    }
    for pin in ["p1", "p2", "a", "c"] {
        let pinned = bed.party(pin);
        let pins = json!({ "project_id": pinned.project, "user_id": pinned.user, "role": "admin" });
        let name = format!("key of {pin}");
        all.push(Inquiry { pinned: Some(pinned), ..plain(&name, 0, key(0, pins)) });
    }
    let stranger = bed.tenants[1].client.clone();
    all.push(plain("stranger", 1, stranger));
    all
}

/// One line of the table.
struct Line {
    with: &'static str,
    scope: &'static str,
    shows: Vec<Kind>,
}

fn table() -> BTreeMap<&'static str, Line> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#')).skip(1);
    let line = |line: &'static str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let [operation, with, scope, shows] = cells[..] else { panic!("{line}") };
        let kind = |word: &str| match word {
            "organization" => Some(Kind::Organization),
            "project" => Some(Kind::Project),
            "user" => Some(Kind::User),
            "-" => None,
            other => panic!("{other} has no rows"),
        };
        (operation, Line { with, scope, shows: shows.split(',').filter_map(kind).collect() })
    };
    lines.map(line).collect()
}

/// The described operations that answer with rows: a list in the answer, or no JSON at all.
fn lists(world: &World) -> BTreeMap<String, String> {
    let described = world.anonymous().get("/openapi.json").expect(200);
    let resolved = |schema: &Value| match schema["$ref"].as_str() {
        Some(place) => described.pointer(place.trim_start_matches('#')).unwrap().clone(),
        None => schema.clone(),
    };
    let mut found = BTreeMap::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        let operation = &methods["get"];
        let class = operation["x-authority"].as_str().unwrap_or("open");
        if ["open", "inbound", "operator"].contains(&class)
            || path.starts_with("/v1/users/{user_id}/")
        {
            continue;
        }
        let content = operation["responses"]["200"]["content"].as_object().unwrap();
        let holds_rows = content.iter().any(|(media, body)| {
            let schema = resolved(&body["schema"]);
            let members = schema["properties"].as_object().into_iter().flatten();
            let is_list = |(_, member): (_, &Value)| {
                let member = resolved(member);
                let inner = member["properties"].as_object().into_iter().flatten();
                member["type"] == "array"
                    || inner.into_iter().any(|(_, member)| resolved(member)["type"] == "array")
            };
            media != "application/json" || members.into_iter().any(is_list)
        });
        // A path that ends with an id is one thing's.
        if holds_rows && !path.ends_with('}') {
            found.insert(operation["operationId"].as_str().unwrap().to_owned(), path.clone());
        }
    }
    found
}

/// The names of those whose marks a text holds.
fn holders<'b>(bed: &'b Bed, text: &str) -> BTreeSet<&'b str> {
    let marked = |party: &&Party| party.marks.iter().any(|mark| text.contains(mark.as_str()));
    bed.parties.iter().filter(marked).map(|party| party.name).collect()
}

/// The paths to ask, each with whose it is where it is somebody's.
fn paths<'b>(bed: &'b Bed, path: &str, line: &Line) -> Vec<(String, Option<&'b Party>)> {
    match line.with.split_once('=') {
        Some(("id", thing)) => {
            let filled = |party: &'b Party| {
                let id = party.things.get(thing)?;
                Some((path.replace("{id}", id), Some(party)))
            };
            bed.parties.iter().filter_map(filled).collect()
        }
        Some((query, "script.{mark}")) => {
            let users = bed.parties.iter().filter(|party| party.kind == Kind::User);
            users
                .map(|party| (format!("{path}{query}=script.{}", party.text()), Some(party)))
                .collect()
        }
        _ if line.with == "team" => {
            let users = bed.parties.iter().filter(|party| party.kind == Kind::User);
            let filled = |party: &'b Party| {
                let (project, user) =
                    (party.project.as_ref().unwrap(), party.user.as_ref().unwrap());
                (path.replace("{team}", project).replace("{tenant_user_id}", user), Some(party))
            };
            users.map(filled).collect()
        }
        _ => vec![(format!("{path}{}", line.with.trim_start_matches('-')), None)],
    }
}

/// The faults of one list, asked by one principal; none where it may not ask at all.
fn faults(
    bed: &Bed,
    by: &Inquiry,
    id: &str,
    path: &str,
    line: &Line,
    asked: &mut usize,
) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, whose) in paths(bed, path, line) {
        let answer = by.client.get(&path);
        if answer.status == 403 && answer.error()["reason"] != "key_project_mismatch" {
            return faults;
        }
        *asked += 1;
        let mut fault =
            |told: String| faults.push(format!("{id} by {}: {told}\n  {answer}", by.name));
        if let Some(party) = whose {
            let there = by.within(line.scope, bed, party);
            if (answer.status == 200) != there || !matches!(answer.status, 200 | 403 | 404) {
                fault(format!("{} of {}, in scope: {there}", answer.status, party.name));
            }
        }
        if answer.status != 200 {
            continue;
        }
        let held = holders(bed, &answer.text());
        let beyond: Vec<&&str> = held.iter().filter(|name| !by.sees(bed.party(name))).collect();
        if !beyond.is_empty() {
            fault(format!("holds rows of {beyond:?}, whom it does not see"));
        }
        let of_kind = |party: &&Party| line.shows.contains(&party.kind);
        let shown = bed.parties.iter().filter(of_kind);
        let expected = shown.filter(|party| by.within(line.scope, bed, party));
        let expected: BTreeSet<&str> = expected.map(|party| party.name).collect();
        let told: BTreeSet<&str> =
            held.into_iter().filter(|name| of_kind(&bed.party(name))).collect();
        if !line.shows.is_empty() && told != expected {
            fault(format!("holds rows of {told:?}, not of {expected:?}"));
        }
    }
    faults
}

fn builder() -> Builder {
    Builder::new().environment("CHARTER_EGRESS_ALLOW", "127.0.0.0/8")
}

#[test]
fn a_list_holds_what_a_read_by_id_would_have_found_and_nothing_else() {
    let world = builder().start(Database::Sqlite);
    world.install("script", &Artefacts::get().fixture("script"));
    let (bed, table, lists) = (Bed::new(&world), table(), lists(&world));
    let described: Vec<&str> = lists.keys().map(String::as_str).collect();
    let tabled: Vec<&str> = table.keys().copied().collect();
    assert_eq!(described, tabled, "each list has its line");
    let jobs = |name: &str| {
        let user = bed.party(name).user.as_ref().unwrap();
        let jobs = bed.tenants[0].client.get(&format!("/v1/users/{user}/jobs"));
        jobs.status == 200 && jobs.json()["jobs"][0]["status"] == "succeeded"
    };
    until("the jobs have run", || ["a", "b"].iter().all(|name| jobs(name)));
    let inquiries = inquiries(&world, &bed);
    let mut wrong = Vec::new();
    for (operation, path) in lists {
        let line = &table[operation.as_str()];
        if line.scope == "stream" {
            continue;
        }
        let mut asked = 0;
        for by in &inquiries {
            wrong.extend(faults(&bed, by, &operation, &path, line, &mut asked));
        }
        assert!(asked > 0, "nobody may ask for {operation}");
    }
    let shown = wrong.iter().take(30).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} wrong answers:\n{shown}", wrong.len());
}

/// A receiver that keeps the texts of what it is told.
fn receiver() -> (String, Arc<Mutex<BTreeSet<String>>>) {
    let heard = Arc::new(Mutex::new(BTreeSet::new()));
    let own = heard.clone();
    let address = double::listen(move |request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        own.lock().unwrap().insert(body["data"]["text"].as_str().unwrap_or_default().to_owned());
        Reply { status: 200, headers: Vec::new(), body: Vec::new() }
    });
    (format!("http://{address}/hook"), heard)
}

on_both! {
    fn a_webhook_and_a_stream_hear_of_those_that_their_maker_sees(world: builder().bare()) {
        world.install("script", &Artefacts::get().fixture("script"));
        let (tenant, stranger) = (world.register(), world.register());
        let second = tenant.client.post("/v1/projects", &json!({ "name": "second" })).expect(201);
        let second = id(&second["project"]);
        let elsewhere = tenant.client.with("x-service-project-id", &second);
        let [one, two] = [tenant.user("one"), tenant.user("two")];
        let three = id(&elsewhere.post("/v1/users", &json!({ "name": "three" })).expect(201)["user"]);
        let makers = [
            (tenant.client.clone(), vec!["one", "three", "two"]),
            (tenant.key(json!({ "role": "developer", "project_id": tenant.project })), vec!["one", "two"]),
            (tenant.key(json!({ "role": "admin", "project_id": second })), vec!["three"]),
            (tenant.key(json!({ "role": "admin", "user_id": one })), vec!["one"]),
            (tenant.client.with("x-service-user-id", &two), vec!["two"]),
        ];
        let hearing: Vec<_> = makers.into_iter().map(|(maker, expected)| {
            let (url, heard) = receiver();
            maker.post("/v1/webhooks", &json!({ "url": url, "eventTypes": ["*"] })).expect(201);
            (heard, expected)
        }).collect();
        let live = Stream::open(tenant.client.call("GET", "/v1/events"));
        let say = |client: &Client, text: &str| drop(play(client, json!([{ "emit": text }])).expect(200));
        say(&stranger.client, "strange");
        say(&tenant.client.with("x-service-user-id", &one), "one");
        say(&tenant.client.with("x-service-user-id", &two), "two");
        say(&elsewhere.with("x-service-user-id", &three), "three");
        for (heard, expected) in &hearing {
            until("the webhook hears of all of its own", || expected.iter().all(|text| heard.lock().unwrap().contains(*text)));
        }
        let texts = |stream: &Stream| -> Vec<String> {
            let text = |_| stream.next_of("script.told").data;
            let told = (0..3).map(text).map(|data| serde_json::from_str::<Value>(&data).unwrap());
            told.map(|data| data["payload"]["text"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(texts(&live), ["one", "two", "three"]);
        let replayed = Stream::open(tenant.client.call("GET", "/v1/events?after=0"));
        assert_eq!(texts(&replayed), ["one", "two", "three"]);
        let others = Stream::open(stranger.client.call("GET", "/v1/events").header("last-event-id", "0"));
        assert!(others.next_of("script.told").data.contains("strange"));
        // The last of them was told: anything not heard by now never will be.
        for (heard, expected) in &hearing {
            let heard: Vec<String> = heard.lock().unwrap().iter().cloned().collect();
            assert_eq!(heard, *expected);
        }
    }
}

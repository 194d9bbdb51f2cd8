//! Foreigners: every operation whose path names a thing, asked for a real one by those who see
//! nothing of it, with a request that is right in everything else. Each is told what the table of
//! authority says, and where that lets it pass, that there is no such thing. Afterwards the victim
//! reads what it read before, to the byte.
//!
//! Three parts: the things, by where a path names them ([`Victim`]), those who ask ([`foreigners`])
//! and what they are told ([`foreseen`]). An operation whose path names what the victim lacks is a
//! fault, and so is one whose body has to say something that [`body`] does not know.

use std::collections::BTreeMap;
use std::thread;

use charter_tests::artefacts::Artefacts;
use charter_tests::double::{self, Reply};
use charter_tests::patience::until;
use charter_tests::tenant::{PASSWORD, id, unique};
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Database, World};
use serde_json::{Value, json};

use super::assert_none;
use super::bed::{Bed, Naming, Principal, between};
use super::matrix::{Expected, Matrix, Operation, expectation, operations};
use crate::accounts::browser;
use crate::governance::in_an_hour;
use crate::rules::{play, sights};

/// Writes to a name that is the caller's own to choose: a foreigner makes a thing of its own, and
/// nothing of the victim's is touched.
const PUT: &str = "vault.put";
/// The parameters that name a project: another one than a key's own is told so.
const PROJECTS: [&str; 2] = ["/v1/projects/{id}", "/v1/teams/{team}"];
/// All that the victim reads of its things beside each by its id.
const LISTS: [&str; 9] = [
    "/v1/auth/keys?limit=100",
    "/v1/governance/grants",
    "/v1/governance/holds?limit=100",
    "/v1/ledger/accounts",
    "/v1/organization/invitations",
    "/v1/payments/balance",
    "/v1/queue",
    "/v1/users?limit=100",
    "/v1/vault",
];

/// A user of a project of an organization, each with something of every kind that a path can name.
struct Victim {
    /// An admin's key of the organization, naming the user.
    client: Client,
    /// The session of the organization's owner.
    session: Client,
    /// The id that a path names behind each of these.
    things: BTreeMap<&'static str, String>,
    /// The receipt of the message among them.
    receipt: String,
}

impl Victim {
    fn new(world: &World, bed: &Bed) -> Self {
        world.fund(&bed.tenant, 100_000);
        let client = bed.tenant.client.with("x-service-user-id", &bed.other_user);
        let (session, opened) = browser(world, &bed.tenant.email, PASSWORD);
        let mut victim = Self { client, session, things: BTreeMap::new(), receipt: String::new() };
        victim.keep("/v1/auth/sessions", &opened["session"]["id"]);
        victim.keep_of_organization(world, bed);
        victim.keep_of_primitives(bed);
        victim.keep_a_message();
        victim.keep_a_delivery();
        victim.keep_what_is_governed(bed);
        victim
    }

    fn keep(&mut self, place: &'static str, id: &Value) {
        self.things.insert(place, id.as_str().unwrap().to_owned());
    }

    fn keep_of_organization(&mut self, world: &World, bed: &Bed) {
        let (user, project) = (&bed.other_user, &bed.tenant.project);
        let own = &bed.tenant.client;
        let made = |path: &str, body: Value| own.post(path, &body).expect(201);
        for (place, id) in [
            ("/v1/users", user),
            ("/v1/projects", project),
            ("/v1/teams", project),
            ("/v1/teams/{team}/tenants", user),
        ] {
            self.things.insert(place, id.clone());
        }
        self.things.insert("/v1/organization/members", bed.member(world, "developer").1);
        let email = format!("{}@example.com", unique("kept"));
        let invited = made("/v1/organization/members", json!({ "email": email, "role": "viewer" }));
        self.keep("/v1/organization/invitations", &invited["invitation"]["id"]);
        self.keep("/v1/kits", &made("/v1/kits", json!({ "name": "kept" }))["kit"]["id"]);
        let key = json!({ "name": "kept", "user_id": user, "project_id": project });
        self.keep("/v1/auth/keys", &made("/v1/auth/keys", key)["id"]);
        let (what, end) = (["script.guess"], in_an_hour(own));
        let leave = json!({ "user_id": user, "actions": what, "until": end, "reason": "kept" });
        let given = made("/v1/governance/grants", leave);
        self.keep("/v1/governance/grants", &given["grant"]["id"]);
    }

    fn keep_of_primitives(&mut self, bed: &Bed) {
        let (client, payer) = (self.client.clone(), &bed.tenant.user);
        let made = |path: &str, body: Value| client.post(path, &body).expect(201);
        let funds = json!({ "to_user_id": payer, "amount_cents": 1_000, "source": "credit" });
        made("/v1/payments/transfer", funds);
        let charge = json!({ "customer": payer, "amount_cents": 100 });
        self.keep("/v1/payments", &made("/v1/payments/charge", charge)["payment"]["id"]);
        let ask = json!({ "from_user_id": payer, "amount_cents": 100 });
        let asked = made("/v1/payments/requests", ask);
        self.keep("/v1/payments/requests", &asked["payment_request"]["id"]);
        let card = id(&made("/v1/cards", json!({ "label": "kept" }))["card"]);
        let amount = json!({ "amount_cents": 1_000 });
        client.post(&format!("/v1/cards/{card}/top-up"), &amount).expect(200);
        let payment = json!({ "amount_cents": 100, "merchant": "books" });
        let authorized = made(&format!("/v1/cards/{card}/authorizations"), payment);
        self.keep("/v1/cards/{id}/authorizations", &authorized["authorization"]["id"]);
        self.things.insert("/v1/cards", card);
        let credit = json!({ "amount_cents": 500, "invoice": true });
        let bought = client.post("/v1/billing/topup", &credit).expect(200);
        self.keep("/v1/billing/invoices", &bought["invoice"]["id"]);
        client.put("/v1/vault/kept", &json!({ "value": "kept secret" })).expect(200);
        self.things.insert("/v1/vault", "kept".to_owned());
    }

    /// It is held for longer than a test runs: no read of its queue tells a growing age.
    fn keep_a_message(&mut self) {
        let client = self.client.clone();
        let queue = id(&client.post("/v1/queue", &json!({ "name": "kept" })).expect(201)["queue"]);
        let sent = json!({ "messages": [{ "body": "kept" }] });
        client.post(&format!("/v1/queue/{queue}/messages"), &sent).expect(201);
        let wish = json!({ "visibility_timeout_seconds": 43_200 });
        let taken = client.post(&format!("/v1/queue/{queue}/receive"), &wish).expect(200);
        let message = &taken["messages"][0];
        self.things.insert("/v1/queue", queue);
        self.keep("/v1/queue/{id}/messages", &message["id"]);
        self.receipt = message["receipt"].as_str().unwrap().to_owned();
    }

    /// It has arrived, and changes no more.
    fn keep_a_delivery(&mut self) {
        let client = self.client.clone();
        let address =
            double::listen(|_| Reply { status: 200, headers: Vec::new(), body: Vec::new() });
        let url = format!("http://{address}/");
        let wish = json!({ "url": url, "eventTypes": ["script.told"] });
        let webhook = id(&client.post("/v1/webhooks", &wish).expect(201));
        let tested = client.post(&format!("/v1/webhooks/{webhook}/test"), &json!({})).expect(202);
        let listed = format!("/v1/webhooks/{webhook}/deliveries");
        until("the test is delivered", || {
            client.get(&listed).expect(200)["deliveries"][0]["ended_at"].is_string()
        });
        self.things.insert("/v1/webhooks", webhook);
        self.keep("/v1/webhooks/{id}/deliveries", &tested["delivery"]["id"]);
    }

    fn keep_what_is_governed(&mut self, bed: &Bed) {
        let client = self.client.clone();
        let listed = client.get("/v1/governance/holds").expect(200);
        let mut holds = listed["holds"].as_array().unwrap().iter();
        let held = holds.find(|hold| hold["action"] == "cards.authorize").unwrap();
        self.keep("/v1/governance/holds", &held["id"]);
        let ask = json!({ "id": "ask", "effect": "require_approval", "actions": ["cards.top_up"] });
        let policy = json!({ "rules": [ask] });
        bed.tenant.client.put("/v1/governance/policy", &policy).expect(200);
        let top_up = format!("/v1/cards/{}/top-up", self.things["/v1/cards"]);
        let waiting = client.post(&top_up, &json!({ "amount_cents": 100 })).expect(202);
        self.keep("/v1/approvals", &waiting["approval_id"]);
        let seen = sights(&play(&client, json!([{ "enqueue": [], "public": true }])));
        self.keep("/v1/jobs", &seen[0]);
        let job = format!("/v1/jobs/{}", self.things["/v1/jobs"]);
        until("the job has run", || client.get(&job).expect(200)["job"]["status"] == "succeeded");
    }

    /// All that it reads of its things, with the path of each.
    fn read(&self, swept: &[Swept]) -> Vec<(String, String)> {
        let told = |path: &str, answer: Answer| {
            answer.expect(200);
            (path.to_owned(), answer.text())
        };
        let by_id = swept.iter().filter(|one| one.operation.method == "GET");
        let by_id = by_id.filter(|one| !one.operation.user_mount).map(|one| one.path.as_str());
        let mut all: Vec<(String, String)> =
            by_id.chain(LISTS).map(|path| told(path, self.client.get(path))).collect();
        let (secret, sessions) = ("/v1/vault/kept/reveal", "/v1/auth/sessions");
        all.push(told(secret, self.client.post(secret, &json!({}))));
        all.push(told(sessions, self.session.get(sessions)));
        all
    }
}

/// The path with the victim's things in it; a fault where there is none for a parameter.
fn fill(path: &str, things: &BTreeMap<&'static str, String>) -> Result<String, String> {
    let (mut place, mut filled) = (String::new(), String::new());
    for segment in path.split('/').skip(1) {
        let told = match segment.starts_with('{') {
            true => things.get(place.as_str()).map(String::as_str).ok_or_else(|| {
                format!("{path}: the victim has nothing that is named behind {place}")
            })?,
            false => segment,
        };
        filled = format!("{filled}/{told}");
        place = format!("{place}/{segment}");
    }
    Ok(filled)
}

/// All that a request says, where it has to say something or else would change nothing.
fn body(name: &str, receipt: &str) -> Option<Value> {
    Some(match name {
        "cards.authorize" => json!({ "amount_cents": 1, "merchant": "taken" }),
        "cards.top_up" => json!({ "amount_cents": 1 }),
        "cards.update" => json!({ "label": "taken" }),
        "governance.holds.resolve" => json!({ "outcome": "voided", "reason": "taken" }),
        "kits.update" | "projects.update" | "users.update" => json!({ "name": "taken" }),
        "members.update" => json!({ "role": "viewer" }),
        "queue.ack" | "queue.extend" | "queue.nack" => json!({ "receipt": receipt }),
        "queue.send" => json!({ "messages": [{ "body": "taken" }] }),
        "vault.put" => json!({ "value": "taken" }),
        "webhooks.update" => json!({ "active": false }),
        _ => return None,
    })
}

/// An operation whose path names a thing, with the victim's in its path of the company mount.
struct Swept {
    operation: Operation,
    path: String,
    body: Value,
}

/// Every such operation that asks for an organization's credential. The fixture's logs are streams,
/// and named by whoever writes them.
fn swept(described: &[Operation], victim: &Victim) -> Result<Vec<Swept>, Vec<String>> {
    let (mut swept, mut faults) = (Vec::new(), Vec::new());
    let within =
        |operation: &&Operation| operation.is_within() && operation.name() != "script.follow";
    for operation in described.iter().filter(within) {
        let path =
            operation.path.replacen("/users/{user_id}", "", usize::from(operation.user_mount));
        if !path.contains('{') {
            continue;
        }
        let (name, body) = (operation.name(), body(operation.name(), &victim.receipt));
        let asks = operation.body["required"].as_array().is_some_and(|names| !names.is_empty());
        if asks && body.is_none() {
            faults.push(format!("{name} has to be told {}", operation.body["required"]));
        }
        let (operation, body) = (operation.clone(), body.unwrap_or_else(|| json!({})));
        match fill(&path, &victim.things) {
            Ok(path) => swept.push(Swept { operation, path, body }),
            Err(fault) => faults.push(fault),
        }
    }
    for place in victim.things.keys() {
        let parameter = format!("{place}/{{");
        if !described.iter().any(|operation| operation.path.starts_with(&parameter)) {
            faults.push(format!("no path names anything behind {place}"));
        }
    }
    if faults.is_empty() { Ok(swept) } else { Err(faults) }
}

/// A principal that sees nothing of the victim's.
struct Foreigner {
    by: Principal,
    /// As it sees it: its own organization is the tenant's.
    bed: Bed,
    namings: Vec<Naming>,
}

/// Two of another organization, and those of the same one that are pinned elsewhere. Somebody who is not
/// pinned sees all of its organization, and is none of them.
fn foreigners(world: &World, bed: &Bed) -> Vec<Foreigner> {
    let victim = (bed.other_user.as_str(), bed.tenant.project.as_str());
    let stranger = |column: &'static str, role: &'static str, client: Client| Foreigner {
        by: Principal {
            name: format!("a stranger, {role} by {column}"),
            client,
            column,
            role,
            project: None,
            user: None,
            sparse: false,
        },
        bed: bed.of_stranger(),
        namings: between((bed.stranger.user.as_str(), bed.stranger.project.as_str()), victim),
    };
    // Pinned to one user of a project, or to that project.
    let pinned = |column: &'static str, role: &'static str, own: (&str, &str)| {
        let user = (column == "user").then(|| own.0.to_owned());
        let wishes = json!({ "role": role, "project_id": own.1, "user_id": user });
        let by = Principal {
            name: format!("{role} by {column}"),
            client: bed.tenant.key(wishes),
            column,
            role,
            project: Some(own.1.to_owned()),
            user,
            sparse: false,
        };
        Foreigner { by, bed: bed.clone(), namings: between(own, victim) }
    };
    let neighbour = (bed.user.as_str(), bed.tenant.project.as_str());
    let elsewhere = (bed.user_elsewhere.as_str(), bed.other_project.as_str());
    vec![
        stranger("key", "admin", bed.stranger.client.clone()),
        stranger("session", "owner", browser(world, &bed.stranger.email, PASSWORD).0),
        pinned("project", "admin", elsewhere),
        pinned("user", "admin", elsewhere),
        pinned("user", "admin", neighbour),
        pinned("user", "developer", neighbour),
    ]
}

/// All that a foreigner is told: what the table says, and where that lets it pass, that there is no
/// such thing; of another project than its own, that it is another one.
fn foreseen(
    matrix: &Matrix,
    foreigner: &Foreigner,
    operation: &Operation,
    naming: &Naming,
) -> Expected {
    let Foreigner { by, bed, .. } = foreigner;
    let said = expectation(matrix, bed, operation, by, naming);
    let is_projects = PROJECTS.iter().any(|place| operation.path.starts_with(*place));
    let is_elsewhere = by.project.as_ref().is_some_and(|own| *own == bed.other_project);
    match said {
        Expected::Admitted if operation.name() == PUT => Expected::Admitted,
        Expected::Admitted if is_projects && is_elsewhere => {
            Expected::Forbidden(&["key_project_mismatch"])
        }
        Expected::Admitted => Expected::Absent,
        cut => cut,
    }
}

fn call(foreigner: &Foreigner, one: &Swept, naming: &Naming) -> Answer {
    let method = &one.operation.method;
    let mut call = foreigner.by.client.call(method, &naming.mount(&one.path));
    for (name, value) in &naming.headers {
        call = call.header(name, value);
    }
    if method == "GET" { call.send() } else { call.json(&one.body).send() }
}

/// These operations, by one foreigner, under every name; the wrong answers.
fn wrong_answers(matrix: &Matrix, swept: &[&Swept], foreigner: &Foreigner) -> Vec<String> {
    let mut wrong = Vec::new();
    for one in swept {
        let fits = |naming: &&Naming| one.operation.user_mount == naming.path_user.is_some();
        for naming in foreigner.namings.iter().filter(fits) {
            let expected = foreseen(matrix, foreigner, &one.operation, naming);
            let answer = call(foreigner, one, naming);
            let is_right = match &expected {
                Expected::Admitted => answer.status == 200,
                refused => refused.fits(&answer),
            };
            if !is_right {
                let (name, by) = (one.operation.name(), &foreigner.by.name);
                wrong.push(format!(
                    "{name} by {by} naming {}: {expected:?}, not {answer}",
                    naming.name
                ));
            }
        }
    }
    wrong
}

/// The same of all foreigners at once.
fn wrong_answers_to_all(
    matrix: &Matrix,
    swept: &[&Swept],
    foreigners: &[Foreigner],
) -> Vec<String> {
    thread::scope(|scope| {
        let asking: Vec<_> = foreigners
            .iter()
            .map(|foreigner| scope.spawn(move || wrong_answers(matrix, swept, foreigner)))
            .collect();
        asking.into_iter().flat_map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn nobody_reaches_a_thing_of_others_by_its_id_and_none_of_them_is_changed() {
    let builder = Builder::new().environment("CHARTER_EGRESS_ALLOW", "127.0.0.0/8");
    let world = builder.start(Database::Sqlite);
    world.install("script", &Artefacts::get().fixture("script"));
    let (bed, matrix) = (Bed::new(&world), Matrix::read());
    let described = operations(&world, &matrix).unwrap_or_else(|faults| panic!("{faults:?}"));
    let victim = Victim::new(&world, &bed);
    let foreigners = foreigners(&world, &bed);
    let swept = swept(&described, &victim);
    let swept = swept.unwrap_or_else(|faults| panic!("{}", faults.join("\n")));
    assert!(swept.len() > 80, "only {} operations name a thing", swept.len());

    let before = victim.read(&swept);
    let is_read = |id: &str| before.iter().any(|(_, text)| text.contains(id));
    let unread = victim.things.iter().filter(|(_, id)| !is_read(id.as_str()));
    let unread: Vec<&str> = unread.map(|(place, _)| *place).collect();
    // A message is shown to who takes it; in the end the victim acknowledges this one.
    assert_eq!(unread, ["/v1/queue/{id}/messages"], "these may not be the victim's");

    let (puts, others): (Vec<&Swept>, Vec<&Swept>) =
        swept.iter().partition(|one| one.operation.name() == PUT);
    let mut wrong = wrong_answers_to_all(&matrix, &others, &foreigners);
    // Only then: a foreigner that has put something under the name finds its own.
    wrong.extend(foreigners.iter().flat_map(|one| wrong_answers(&matrix, &puts, one)));
    assert_none(&wrong);

    let after = victim.read(&swept);
    let changed: Vec<_> = before.iter().zip(&after).filter(|(was, is)| was != is).collect();
    assert!(changed.is_empty(), "the victim reads something else: {changed:#?}");
    let (queue, message) = (&victim.things["/v1/queue"], &victim.things["/v1/queue/{id}/messages"]);
    let acknowledged = json!({ "receipt": victim.receipt });
    let path = format!("/v1/queue/{queue}/messages/{message}/ack");
    victim.client.post(&path, &acknowledged).expect(200);
}

#[test]
fn a_parameter_that_nothing_of_the_victims_fills_is_found() {
    let things = BTreeMap::from([("/v1/cards", "card".to_owned())]);
    let filled = fill("/v1/cards/{id}/freeze", &things);
    assert_eq!(filled.as_deref(), Ok("/v1/cards/card/freeze"));
    let fault = fill("/v1/cards/{id}/authorizations/{authorization_id}", &things).unwrap_err();
    assert!(fault.ends_with("behind /v1/cards/{id}/authorizations"), "{fault}");
}

//! Deferred work has the power that it was asked with, cut by later revocations: one table of every
//! way to run later against everything that can be taken away meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use charter_tests::artefacts::Artefacts;
use charter_tests::double::{self, Reply};
use charter_tests::patience::{PATIENCE, look_for, until};
use charter_tests::tenant::{PASSWORD, id, unique};
use charter_tests::world::Builder;
use charter_tests::{Client, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;
use crate::members::join;
use crate::rules::{play, sights};

/// A host whose scripts reach a peer of the test's.
fn reaching() -> Builder {
    Builder::new().bare().environment("CHARTER_EGRESS_ALLOW", "127.0.0.0/8")
}

/// One job at a time, so that one that waits for a peer holds up all others.
fn builder() -> Builder {
    // The job at the gate holds the only place for as long as the test takes.
    let patient = reaching()
        .environment("CHARTER_JOBS_DEADLINE_MS", "600000")
        .environment("CHARTER_EGRESS_TIMEOUT_MS", "600000");
    patient.environment("CHARTER_JOBS_CONCURRENCY", "1")
}

/// A way to run later.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// A job that changes what its primitive keeps.
    Plain,
    /// A job that takes a regulated action.
    Regulated,
    /// A job that has another operation take one.
    Nested,
    /// A job whose regulated action people approve.
    Parked,
    /// A request that people approve.
    Approved,
    /// A stranger's call of a hook, which its primitive is told of in its turn.
    Called,
}

const WAYS: [Way; 6] =
    [Way::Plain, Way::Regulated, Way::Nested, Way::Parked, Way::Approved, Way::Called];

/// Those whose run can be long, and what is taken away meanwhile acts on.
const LONG: [Way; 5] = [Way::Plain, Way::Regulated, Way::Nested, Way::Parked, Way::Approved];

/// A power taken away between asking and running.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Nothing,
    KeyRevoked,
    MakerDemoted,
    MakerDemotedAndRemoved,
    MakerRemoved,
    UserRevoked,
    KitSwitchedOff,
}

const LOSSES: [Loss; 7] = [
    Loss::Nothing,
    Loss::KeyRevoked,
    Loss::MakerDemoted,
    Loss::MakerDemotedAndRemoved,
    Loss::MakerRemoved,
    Loss::UserRevoked,
    Loss::KitSwitchedOff,
];

/// How it ends: nothing where it succeeds, else the code or reason of its failure.
fn expected(way: Way, loss: Loss) -> Option<&'static str> {
    match (loss, way) {
        // A profile that a person has made is the organization's, and plain work the profile's.
        (Loss::Nothing | Loss::MakerRemoved, _) => None,
        (
            Loss::KeyRevoked | Loss::MakerDemoted | Loss::MakerDemotedAndRemoved,
            Way::Plain | Way::Called,
        ) => None,
        (Loss::KeyRevoked, _) => Some("unauthorized"),
        (Loss::MakerDemoted | Loss::MakerDemotedAndRemoved, _) => Some("role_insufficient"),
        (Loss::UserRevoked, _) => Some("profile_revoked"),
        (Loss::KitSwitchedOff, _) => Some("primitive_disabled_by_kit"),
    }
}

/// A peer that answers once it is told to; until then it holds up the one job that calls it.
struct Gate {
    open: Arc<AtomicBool>,
    reached: Arc<AtomicBool>,
}

impl Gate {
    fn shut(world: &World) -> Self {
        let (open, reached) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (waits, heard) = (open.clone(), reached.clone());
        let address = double::listen(move |_| {
            heard.store(true, Ordering::SeqCst);
            while !waits.load(Ordering::SeqCst) {
                std::thread::park_timeout(std::time::Duration::from_millis(10));
            }
            Reply { status: 200, headers: Vec::new(), body: b"{}".to_vec() }
        });
        let blocker = world.register();
        let binding = json!({
            "kind": "http", "url": format!("http://{address}"), "options": {},
            "scope": { "organization": blocker.organization },
        });
        let bound = world.operator().put("/v1/operator/providers/script.peer", &binding);
        assert!(matches!(bound.status, 200 | 201), "{bound}");
        let steps = json!([{ "enqueue": [{ "fetch": "POST", "path": "/" }], "attempts": 1 }]);
        play(&blocker.client, steps).expect(200);
        let gate = Self { open, reached };
        until("a job holds the only place", || gate.reached.load(Ordering::SeqCst));
        gate
    }

    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

/// A peer of everybody's scripts that lets those who ask it wait while it is told to.
struct Peer {
    holds: Arc<AtomicBool>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Peer {
    fn listen(world: &World) -> Self {
        let (holds, heard) =
            (Arc::new(AtomicBool::new(true)), Arc::<Mutex<Vec<String>>>::default());
        let (waits, hears) = (holds.clone(), heard.clone());
        let address = double::listen(move |heard| {
            hears.lock().unwrap().push(heard.target);
            while heard.method == "GET" && waits.load(Ordering::SeqCst) {
                std::thread::park_timeout(std::time::Duration::from_millis(10));
            }
            Reply { status: 200, headers: Vec::new(), body: b"{}".to_vec() }
        });
        let binding = json!({ "kind": "http", "url": format!("http://{address}"), "options": {} });
        world.operator().put("/v1/operator/providers/script.peer", &binding).expect(200);
        Self { holds, heard }
    }

    fn hold(&self, holds: bool) {
        self.holds.store(holds, Ordering::SeqCst);
    }

    fn has_heard(&self, path: &str, agent: &str) -> bool {
        let target = format!("{path}{agent}");
        self.heard.lock().unwrap().contains(&target)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.hold(false);
    }
}

/// A tenant with an agent, for which a member's key asks.
struct Case {
    way: Way,
    loss: Loss,
    tenant: Tenant,
    owner: Client,
    agent: String,
    asks: Client,
    key: String,
    member: String,
    /// The job, or the approval.
    asked: String,
}

impl Case {
    fn new(world: &World, way: Way, loss: Loss) -> Self {
        let tenant = world.register();
        let owner = browser(world, &tenant.email, PASSWORD).0;
        let (person, member) = join(world, &tenant, &owner, "developer");
        let made = person.post("/v1/auth/keys", &json!({ "name": unique("key") })).expect(201);
        let asks = world.anonymous().bearer(made["key"].as_str().unwrap());
        if matches!(way, Way::Parked | Way::Approved) {
            let rule =
                json!({ "id": "ask", "effect": "require_approval", "actions": ["script.send"] });
            tenant.client.put("/v1/governance/policy", &json!({ "rules": [rule] })).expect(200);
        }
        let kit = tenant.kit("agents", json!({ "script": { "enabled": true } }));
        let agent = tenant.user_with_kit("agent", &kit);
        let asks = asks.with("x-service-user-id", &agent);
        Self { way, loss, tenant, owner, agent, asks, key: id(&made), member, asked: String::new() }
    }

    fn ask(&mut self) {
        self.ask_for(
            json!([{ "note": "note" }]),
            json!([{ "leave": "script.send", "as": "p" }, { "capture": "p", "amount": 0 }]),
        );
    }

    /// The same, with a peer that is asked in the middle and told of the effect.
    fn ask_at_length(&mut self) {
        let (asked, told) = (format!("/asked/{}", self.agent), format!("/told/{}", self.agent));
        let (ask, tell) =
            (json!({ "fetch": "GET", "path": asked }), json!({ "fetch": "POST", "path": told }));
        let leave = json!({ "leave": "script.send", "as": "p" });
        self.ask_for(
            json!([{ "note": "note" }, ask, tell]),
            json!([leave, ask, { "dispatch": "p" }, tell, { "capture": "p", "amount": 0 }]),
        );
    }

    /// Asks for plain work or a regulated action, as its way is.
    fn ask_for(&mut self, plain: Value, act: Value) {
        let job = |steps: Value| {
            let enqueue = json!([{ "enqueue": steps, "public": true, "attempts": 1 }]);
            sights(&play(&self.asks, enqueue))[0].as_str().unwrap().to_owned()
        };
        self.asked = match self.way {
            Way::Plain => job(plain),
            Way::Regulated | Way::Parked => job(act),
            Way::Nested => job(json!([{ "call": "script.play", "body": { "steps": act } }])),
            Way::Approved => {
                play(&self.asks, act).expect(202)["approval_id"].as_str().unwrap().to_owned()
            }
            // The job is due after the call: its end shows that the turn of the call has come.
            Way::Called => {
                self.call_hook();
                job(plain)
            }
        };
    }

    /// Opens a hook, and calls it as a stranger. Its run leaves an audit row, which is read
    /// whatever the kit says.
    fn call_hook(&self) {
        let open = json!([{ "note": "note", "slug": "doc" }, { "hook": "none", "slug": "doc" }]);
        let told = sights(&play(&self.asks, open));
        let outside = self.asks.without("authorization").without("x-service-user-id");
        let path = told[1]["url"].as_str().unwrap().strip_prefix(outside.base()).unwrap();
        let called = json!({ "steps": [{ "audit": "script.called" }] });
        outside.post(path, &called).expect(200);
    }

    /// How many audit rows of an action there are, as far as they can be read by now.
    fn rows(&self, action: &str) -> usize {
        let listed = self.tenant.client.get(&format!("/v1/logs?action={action}")).expect(200);
        listed["logs"].as_array().unwrap().len()
    }

    /// Whether the call left no row. A row of now shows that all earlier ones can be read.
    fn is_untold(&self) -> bool {
        play(&self.tenant.client, json!([{ "audit": "script.looked" }])).expect(200);
        until("the row of now can be read", || self.rows("script.looked") > 0);
        self.rows("script.called") == 0
    }

    fn lose(&self) {
        let (admin, agent, member) = (&self.tenant.client, &self.agent, &self.member);
        let lost = match self.loss {
            Loss::Nothing => return,
            Loss::KeyRevoked => admin.delete(&format!("/v1/auth/keys/{}", self.key)),
            Loss::MakerDemoted | Loss::MakerDemotedAndRemoved => {
                let (path, role) =
                    (format!("/v1/organization/members/{member}"), json!({ "role": "viewer" }));
                let demoted = self.owner.patch(&path, &role);
                match self.loss {
                    Loss::MakerDemoted => demoted,
                    _ => self.owner.delete(&path),
                }
            }
            Loss::MakerRemoved => self.owner.delete(&format!("/v1/organization/members/{member}")),
            Loss::UserRevoked => admin.post(&format!("/v1/users/{agent}/revoke"), &json!({})),
            Loss::KitSwitchedOff => {
                let kit =
                    admin.get(&format!("/v1/users/{agent}")).expect(200)["user"]["kit_id"].clone();
                let off = json!({ "primitives": { "script": { "enabled": false } } });
                admin.patch(&format!("/v1/kits/{}", kit.as_str().unwrap()), &off)
            }
        };
        lost.expect(200);
    }

    /// The job's row: reads answer whatever was revoked.
    fn job(&self) -> Value {
        let path = format!("/v1/users/{}/jobs/{}", self.agent, self.asked);
        self.tenant.client.get(&path).expect(200)["job"].clone()
    }

    /// The approval that it waits for, once it does.
    fn approval(&self) -> String {
        if self.way == Way::Approved {
            return self.asked.clone();
        }
        let parked = look_for(PATIENCE, "it is parked", || {
            let job = self.job();
            if job["approval_id"].is_string() { Ok(job) } else { Err(job) }
        });
        parked["approval_id"].as_str().unwrap().to_owned()
    }

    fn approve(&self, approval: &str) {
        self.owner.post(&format!("/v1/approvals/{approval}/approve"), &json!({})).expect(200);
    }

    /// How it ended: nothing, or why it failed.
    fn end(&self) -> Option<String> {
        let path = format!("/v1/approvals/{}", self.asked);
        let ended = look_for(PATIENCE, "it ends", || {
            let shown = match self.way {
                Way::Approved => self.tenant.client.get(&path).expect(200)["approval"].clone(),
                _ => self.job(),
            };
            match shown["status"].as_str() {
                Some("succeeded" | "failed") => Ok(shown),
                _ => Err(shown),
            }
        });
        let error = &ended["error"];
        let reason = error["reason"].as_str().or(error["code"].as_str()).unwrap_or_default();
        let failed = (ended["status"] == "failed").then(|| reason.to_owned());
        match (self.way, failed) {
            (Way::Called, None) => {
                until("the call is told", || self.rows("script.called") > 0);
                None
            }
            (Way::Called, Some(_)) if !self.is_untold() => Some("told all the same".into()),
            (_, failed) => failed,
        }
    }
}

on_both! {
    fn what_runs_later_has_the_power_it_was_asked_with_cut_by_what_was_revoked_since(world: builder()) {
        world.install("script", &Artefacts::get().fixture("script"));
        let cases = |of: &dyn Fn(Way) -> bool| -> Vec<Case> {
            let ways = WAYS.into_iter().filter(|way| of(*way));
            ways.flat_map(|way| LOSSES.map(|loss| Case::new(world, way, loss))).collect()
        };
        // An approval's work loses its power before people approve; the rest while it waits for its
        // turn.
        let mut approved = cases(&|way| way == Way::Approved);
        let mut parked = cases(&|way| way == Way::Parked);
        let mut waiting = cases(&|way| ![Way::Approved, Way::Parked].contains(&way));
        approved.iter_mut().chain(&mut parked).for_each(Case::ask);
        let approvals: Vec<String> =
            approved.iter().chain(&parked).map(Case::approval).collect();
        // It holds for half a minute: nobody is registered meanwhile.
        let gate = Gate::shut(world);
        waiting.iter_mut().for_each(Case::ask);
        for case in approved.iter().chain(&parked).chain(&waiting) {
            case.lose();
        }
        for (case, approval) in approved.iter().chain(&parked).zip(&approvals) {
            case.approve(approval);
        }
        gate.open();
        let mut wrong = Vec::new();
        for case in approved.iter().chain(&parked).chain(&waiting) {
            let (ended, expected) = (case.end(), expected(case.way, case.loss));
            if ended.as_deref() != expected {
                wrong.push(format!("{:?} after {:?}: {ended:?}, not {expected:?}", case.way, case.loss));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        world.books_agree();
    }

    fn a_power_that_is_lost_amid_what_runs_later_lets_nothing_leave(world: reaching()) {
        world.install("script", &Artefacts::get().fixture("script"));
        let peer = Peer::listen(world);
        let mut wrong = Vec::new();
        for loss in LOSSES {
            peer.hold(true);
            let mut cases: Vec<Case> =
                LONG.into_iter().map(|way| Case::new(world, way, loss)).collect();
            for case in &mut cases {
                case.ask_at_length();
                if matches!(case.way, Way::Parked | Way::Approved) {
                    case.approve(&case.approval());
                }
            }
            for case in &cases {
                until("it asks the peer", || peer.has_heard("/asked/", &case.agent));
                case.lose();
            }
            peer.hold(false);
            for case in &cases {
                let (ended, expected) = (case.end(), expected(case.way, case.loss));
                let is_told = peer.has_heard("/told/", &case.agent);
                if ended.as_deref() != expected || is_told != expected.is_none() {
                    wrong.push(format!("{:?} amid {loss:?}: {ended:?}, not {expected:?}, told: {is_told}", case.way));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        world.books_agree();
    }

    fn a_nested_call_goes_on_beside_a_new_password_where_its_session_does(world: reaching()) {
        world.install("script", &Artefacts::get().fixture("script"));
        let peer = Peer::listen(world);
        let tenant = world.register();
        let [own, other] = [(); 2].map(|()| browser(world, &tenant.email, PASSWORD).0);
        let asking = |client: &Client, path: &str| {
            let steps = json!([{ "fetch": "GET", "path": path }, { "call": "script.notes" }]);
            client.post("/v1/script/peek", &json!({ "steps": steps }))
        };
        std::thread::scope(|scope| {
            let kept = scope.spawn(|| asking(&own, "/own"));
            let ended = scope.spawn(|| asking(&other, "/other"));
            until("both ask the peer", || peer.has_heard("/own", "") && peer.has_heard("/other", ""));
            let change = json!({ "password": PASSWORD, "new_password": "an entirely different password" });
            own.put("/v1/auth/password", &change).expect(200);
            peer.hold(false);
            assert_eq!(sights(&kept.join().unwrap())[1]["status"], 200);
            ended.join().unwrap().expect_error(401, "unauthorized");
        });
    }

    fn who_only_reads_has_nothing_regulated_done_later(world: Builder::new().bare()) {
        world.install("script", &Artefacts::get().fixture("script"));
        let tenant = world.register();
        let act = json!([{ "leave": "script.send", "as": "p" }, { "capture": "p", "amount": 0 }]);
        let nested = json!([{ "call": "script.play", "body": { "steps": [{ "note": "note" }] } }]);
        let ask = |client: &Client, steps: &Value| {
            let steps = json!({ "steps": [{ "enqueue": steps, "public": true, "attempts": 1, "answer": true }] });
            client.post("/v1/script/peek", &steps)
        };
        for steps in [&act, &nested] {
            for role in ["viewer", "approver"] {
                let reads = tenant.key(json!({ "role": role }));
                assert_eq!(ask(&reads, steps).expect_error(403, "forbidden")["reason"], "role_insufficient", "{role}");
            }
            ask(&tenant.key(json!({ "role": "developer" })), steps).expect(200);
        }
    }

    fn a_strangers_call_changes_what_its_primitive_keeps_and_no_more(world: Builder::new().bare()) {
        world.install("script", &Artefacts::get().fixture("script"));
        let tenant = world.register();
        let told = sights(&play(&tenant.client, json!([
            { "note": "note", "slug": "doc" }, { "hook": "none", "slug": "doc" },
            { "leave": "script.send", "as": "kept" }, { "keep": "kept", "seconds": 600 },
        ])));
        let (hook, held) = (told[1].clone(), told[2].clone());
        let act = json!([{ "leave": "script.send", "as": "p" }, { "capture": "p", "amount": 0 }]);
        let steps = json!([
            { "note": "note" },
            { "try": act[0] },
            { "try": { "call": "script.notes" } },
            { "try": { "call": "script.play", "body": { "steps": [] } } },
            { "enqueue": act, "public": true, "attempts": 1 },
        ]);
        let money = json!([
            { "try": { "move": 1, "from": "own", "to": "credit" } },
            { "try": { "freeze": "own", "frozen": true } },
            { "try": { "cap": "one", "amount": 1 } },
            { "try": { "reopen": held, "as": "p" } },
        ]);
        let path = hook["url"].as_str().unwrap().strip_prefix(tenant.client.base()).unwrap().to_owned();
        let tell = |steps: &Value, count: usize| {
            world.anonymous().post(&path, &json!({ "steps": steps })).expect(200);
            let prefix = format!("hook {} ", hook["id"].as_str().unwrap());
            let heard = || -> Vec<Value> {
                let listed = tenant.client.get("/v1/script/notes").expect(200);
                let kinds = listed["notes"].as_array().unwrap().iter().filter_map(|note| note["kind"].as_str());
                let told = kinds.filter_map(|kind| kind.strip_prefix(&prefix)?.split_once(' '));
                told.map(|(_, saw)| serde_json::from_str(saw).unwrap()).collect()
            };
            look_for(PATIENCE, "the call is told", || Some(heard()).filter(|told| told.len() == count).ok_or("not yet"))
        };
        let refused = json!({ "failure": "forbidden", "reason": "role_insufficient" });
        let saw = &tell(&steps, 1)[0];
        assert_eq!((&saw[1], &saw[2]["status"], &saw[3]), (&refused, &json!(200), &refused), "{saw}");
        assert!(tell(&money, 2).contains(&json!([refused, refused, refused, refused])));
        let job = format!("/v1/jobs/{}", saw[4].as_str().unwrap());
        let job = look_for(PATIENCE, "the job fails", || {
            let job = tenant.client.get(&job).expect(200)["job"].clone();
            if job["status"] == "failed" { Ok(job) } else { Err(job) }
        });
        assert_eq!(job["error"]["reason"], "role_insufficient", "{job}");
    }
}

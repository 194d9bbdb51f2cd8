//! The rules of jobs and schedules, over a real store: bounds, keys, power, and what may wait.

use charter_kernel::id::{ProjectId, UserId};
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Principal, Scope};
use charter_kernel::unit::Space;
use serde_json::json;

use super::*;
use crate::call::{Call, Signal};
use crate::config::EngineConfig;
use crate::job::{primitive_of, sharer_of};
use crate::run::bed::{Bed, handle, id, key, long, scope, shop, user};

fn job(name: &str) -> Job {
    Job {
        name: name.into(),
        payload: "{}".into(),
        run_at: None,
        key: None,
        attempts_max: 3,
        deadline_ms: None,
        public: false,
    }
}

fn job_of_key(key: &str) -> Job {
    Job { key: Some(key.into()), ..job("count") }
}

async fn enqueue(bed: &Bed, by: &Scope, job: Job) -> Result<String, String> {
    bed.by(by.clone(), async |guest| guest.enqueue(job).await).await
}

async fn record(bed: &Bed, by: &Scope, id: &str) -> Option<JobRecord> {
    let row = bed.row(&Key::new(&by.narrowest(), &jobs(), id)).await?;
    Some(serde_json::from_str(&row.body).unwrap())
}

#[tokio::test]
async fn a_job_beyond_its_bounds_is_refused() {
    let bed = Bed::new().await;
    let deep = "[".repeat(200) + &"]".repeat(200);
    for (job, word) in [
        (job(""), "invalid_input:job"),
        (job(&long(201)), "invalid_input:job"),
        (job("a\0b"), "invalid_input:job"),
        (job_of_key(""), "invalid_input:job"),
        (job_of_key(&long(201)), "invalid_input:job"),
        (job_of_key("a\0b"), "invalid_input:job"),
        (Job { payload: long((256 << 10) + 1), ..job("a") }, "payload_too_large"),
        (Job { payload: "{".into(), ..job("a") }, "invalid_input:payload"),
        (Job { payload: deep, ..job("a") }, "invalid_input:payload"),
    ] {
        let name = job.name.clone();
        assert_eq!(enqueue(&bed, &user(3), job).await, Err(word.into()), "{name}");
    }
    let most = Job { key: Some(long(200)), ..job(&long(200)) };
    assert!(enqueue(&bed, &user(3), most).await.is_ok());
}

#[tokio::test]
async fn what_a_guest_asks_of_a_job_is_brought_within_bounds() {
    let bed = Bed::new().await;
    let most = (Some(u32::MAX), Some(900_000));
    for (given, attempts, at, (asked, deadline)) in [
        (Job { attempts_max: 0, run_at: Some(i64::MIN), ..job("a") }, 1, Instant(0), (None, None)),
        (Job { attempts_max: 7, run_at: Some(5), ..job("a") }, 7, Instant(5), (Some(7), Some(7))),
        (
            Job { attempts_max: u32::MAX, run_at: Some(i64::MAX), ..job("a") },
            100,
            Instant::LAST,
            most,
        ),
    ] {
        let given = Job { deadline_ms: asked, ..given };
        let id = enqueue(&bed, &user(3), given).await.unwrap();
        let record = record(&bed, &user(3), &id).await.unwrap();
        assert_eq!((record.attempts_max, record.run_at), (attempts, at));
        assert_eq!(record.deadline_ms, deadline);
    }
}

#[tokio::test]
async fn a_job_runs_as_who_asked_for_it_without_more_power_and_a_schedule_outlives_the_key() {
    let bed = Bed::new().await;
    let owner = scope(key(Role::Owner), 1, Some(2), Some(3));
    let id = enqueue(&bed, &owner, job("a")).await.unwrap();
    let asked = record(&bed, &owner, &id).await.unwrap().asked.unwrap();
    assert_eq!((asked.actor.kind, asked.role), (ActorKind::System, Some(Role::Developer)));
    assert_eq!(asked.credential.map(|actor| actor.id), Some("k".into()));
    let schedule = Schedule {
        key: "daily".into(),
        cron: "0 0 * * *".into(),
        time_zone: "UTC".into(),
        job: job("a"),
    };
    bed.by(owner.clone(), async |guest| guest.set_schedule(schedule).await).await.unwrap();
    let row = bed.row(&Key::new(&owner.narrowest(), &schedules(), "shop/daily")).await.unwrap();
    let record: ScheduleRecord = serde_json::from_str(&row.body).unwrap();
    let asked = record.job.asked.unwrap();
    assert_eq!((asked.role, asked.credential), (Some(Role::Developer), None));
}

#[tokio::test]
async fn a_key_names_one_live_job_of_a_user_and_a_primitive() {
    let mut bed = Bed::new().await;
    let first = enqueue(&bed, &user(3), job_of_key("k")).await.unwrap();
    assert_eq!(enqueue(&bed, &user(3), job_of_key("k")).await, Ok(first.clone()));
    assert_ne!(enqueue(&bed, &user(4), job_of_key("k")).await, Ok(first.clone()));
    let mut other = shop();
    other["name"] = "other".into();
    bed.beside(other);
    let cancel = async |bed: &Bed, by: Scope, id: &str| {
        bed.by(by, async |guest| guest.cancel(id.to_owned()).await).await
    };
    assert_eq!(cancel(&bed, user(3), &first).await, Ok(false), "another primitive's");
    assert_ne!(enqueue(&bed, &user(3), job_of_key("k")).await, Ok(first.clone()));
    bed.beside(shop());
    assert_eq!(cancel(&bed, user(4), &first).await, Ok(false), "another user's");
    assert_eq!(cancel(&bed, user(3), "nothing").await, Ok(false));
    assert_eq!(cancel(&bed, user(3), &first).await, Ok(true));
    assert_eq!(cancel(&bed, user(3), &first).await, Ok(false));
    let second = enqueue(&bed, &user(3), job_of_key("k")).await.unwrap();
    assert_ne!(second, first, "the key is free again");
    let cancel_key =
        async |by: Scope| bed.by(by, async |guest| guest.cancel_key("k".into()).await).await;
    assert_eq!(cancel_key(user(3)).await, Ok(true));
    assert_eq!(cancel_key(user(3)).await, Ok(false));
    assert_eq!(record(&bed, &user(3), &second).await, None);
    assert_eq!(cancel_key(user(4)).await, Ok(true), "its own still stood");
}

#[tokio::test]
async fn progress_is_a_fraction_and_a_short_note_and_keeps_the_key() {
    let bed = Bed::new().await;
    let id = enqueue(&bed, &user(3), job_of_key("k")).await.unwrap();
    let progress = async |by: Scope, fraction: f32, note: String| {
        bed.by(by, async |guest| guest.progress(id.clone(), fraction, note).await).await
    };
    for (given, kept) in
        [(0.5, 0.5), (-1.0, 0.0), (7.0, 1.0), (f32::NAN, 0.0), (f32::INFINITY, 0.0)]
    {
        progress(user(3), given, "ü".repeat(300)).await.unwrap();
        let record = record(&bed, &user(3), &id).await.unwrap();
        assert_eq!(record.fraction, Some(kept), "{given}");
        assert_eq!(record.note.unwrap().chars().count(), 200);
    }
    assert_eq!(progress(user(4), 0.5, String::new()).await, Err("not_found".into()));
    assert_eq!(enqueue(&bed, &user(3), job_of_key("k")).await, Ok(id.clone()));
}

async fn set(bed: &Bed, by: &Scope, key: &str, cron: &str, zone: &str) -> Result<i64, String> {
    let schedule =
        Schedule { key: key.into(), cron: cron.into(), time_zone: zone.into(), job: job("tick") };
    bed.by(by.clone(), async |guest| guest.set_schedule(schedule).await).await
}

#[tokio::test]
async fn a_schedule_is_one_that_comes_due_under_a_key_of_its_own() {
    let bed = Bed::new().await;
    let over = long(201);
    for (key, cron, zone, word) in [
        ("", "* * * * *", "UTC", "invalid_input:key"),
        (over.as_str(), "* * * * *", "UTC", "invalid_input:key"),
        ("k", "", "UTC", "invalid_input:cron"),
        ("k", "* * * * * *", "UTC", "invalid_input:cron"),
        ("k", "61 * * * *", "UTC", "invalid_input:cron"),
        ("k", "0 0 30 2 *", "UTC", "invalid_input:cron"),
        ("k", "* * * * *", "Mars/Olympus", "invalid_input:tz"),
        ("k", "* * * * *", "", "invalid_input:tz"),
    ] {
        let said = set(&bed, &user(3), key, cron, zone).await;
        assert_eq!(said, Err(word.into()), "{key} {cron} {zone}");
    }
    let hidden = set(&bed, &user(3), "a\0b", "* * * * *", "UTC").await;
    assert!(hidden.is_err_and(|word| word.starts_with("commit:")));
    let now = bed.store().now().0;
    let next = set(&bed, &user(3), "k", "* * * * *", "UTC").await.unwrap();
    assert!(next > now && next <= now + 61_000 && next % 60_000 == 0, "{next}");
    let daily = set(&bed, &user(3), "k", "0 0 * * *", "UTC").await.unwrap();
    assert!(daily % 86_400_000 == 0, "the second takes the first one's place");
    let remove =
        async |by: Scope| bed.by(by, async |guest| guest.remove_schedule("k".into()).await).await;
    assert_eq!(remove(user(4)).await, Ok(false));
    assert_eq!(remove(user(3)).await, Ok(true));
    assert_eq!(remove(user(3)).await, Ok(false));
}

#[tokio::test]
async fn what_waits_of_one_organization_is_bounded_and_leaves_room_for_others() {
    let config = EngineConfig { jobs_waiting_max: 3, schedules_max: 2, ..EngineConfig::default() };
    let bed = Bed::with(config).await;
    let elsewhere = scope(key(Role::Developer), 9, Some(8), Some(7));
    for n in 3..6 {
        enqueue(&bed, &user(n), job("a")).await.unwrap();
    }
    let full = Err("rate_limited:jobs_full".to_owned());
    assert_eq!(enqueue(&bed, &user(6), job("a")).await, full);
    assert!(enqueue(&bed, &elsewhere, job("a")).await.is_ok());
    // Within one request as well, and all of it or nothing.
    let other = elsewhere.clone();
    let said = bed.by(other, async |guest| {
        for _ in 0..3 {
            guest.enqueue(job("a")).await?;
        }
        Ok(())
    });
    assert_eq!(said.await, full.clone().map(drop));
    for _ in 0..2 {
        assert!(
            enqueue(&bed, &elsewhere, job("a")).await.is_ok(),
            "the refused ones count no more"
        );
    }
    assert_eq!(enqueue(&bed, &elsewhere, job("a")).await, full);
    for key in ["a", "b", "b"] {
        assert!(set(&bed, &user(3), key, "* * * * *", "UTC").await.is_ok());
    }
    let said = set(&bed, &user(4), "c", "* * * * *", "UTC").await;
    assert_eq!(said, Err("state_conflict:schedules_full".into()));
    assert!(set(&bed, &elsewhere, "c", "* * * * *", "UTC").await.is_ok());
}

#[tokio::test]
async fn jobs_of_agents_and_jobs_for_later_leave_room_for_others() {
    use crate::bindings::charter::primitive::documents::Host as _;
    let bed = Bed::with(EngineConfig { jobs_waiting_max: 20, ..EngineConfig::default() }).await;
    let later = || Job { run_at: Some(4_000_000_000_000), ..job("later") };
    let pinned = Principal { user: UserId::parse(&id(3)), ..key(Role::Developer) };
    let agent = scope(pinned, 1, Some(2), Some(3));
    for _ in 0..5 {
        let id = enqueue(&bed, &agent, later()).await.unwrap();
        let group = record(&bed, &agent, &id).await.unwrap().group();
        let [user, project] = [agent.user().unwrap().as_str(), agent.project().unwrap().as_str()];
        let kind = format!("shop/pinned/{project}/{user}");
        assert_eq!(group, charter_kernel::lease::group(agent.lane(), &kind), "beside others'");
        assert_eq!(primitive_of(&kind), "shop");
        assert_eq!((sharer_of(&kind), sharer_of("shop")), (Some((project, user)), None));
    }
    let full = Err("rate_limited:jobs_full".to_owned());
    assert_eq!(enqueue(&bed, &agent, job("due")).await, full, "half is for those who govern it");
    let pinned = Principal { user: UserId::parse(&id(5)), ..key(Role::Developer) };
    let next = scope(pinned, 1, Some(2), Some(5));
    for _ in 0..3 {
        enqueue(&bed, &next, later()).await.unwrap();
    }
    assert_eq!(enqueue(&bed, &next, later()).await, full, "and of the other half it leaves some");
    let pinned = Principal { project: ProjectId::parse(&id(2)), ..key(Role::Developer) };
    let of_project = scope(pinned, 1, Some(2), Some(4));
    for _ in 0..4 {
        enqueue(&bed, &of_project, job("due")).await.unwrap();
    }
    assert_eq!(enqueue(&bed, &of_project, job("due")).await, full);
    for _ in 0..6 {
        enqueue(&bed, &user(3), later()).await.unwrap();
    }
    assert_eq!(enqueue(&bed, &user(4), later()).await, full);
    assert_eq!(enqueue(&bed, &user(3), job("due")).await, full, "who cannot loosen anything");
    let owner = scope(key(Role::Owner), 1, Some(2), Some(3));
    assert_eq!(enqueue(&bed, &owner, later()).await, full);
    for _ in 0..2 {
        assert!(enqueue(&bed, &owner, job("due")).await.is_ok());
    }
    assert_eq!(enqueue(&bed, &owner, job("due")).await, full);
    // A run leaves one in its own place, and what else it leaves is whose it was; a provider's word is told.
    let of_owner = |by: Principal| Principal { user: UserId::parse(&id(3)), ..by };
    let of = |by: Principal| scope(of_owner(by), 1, Some(2), Some(3));
    let hook = |role| Principal { role, ..Principal::of(Actor::new(ActorKind::Hook, "h")) };
    let (word, anybodys) = (of(hook(None)), of(hook(Some(Role::Developer))));
    assert_eq!(enqueue(&bed, &anybodys, job("due")).await, full);
    assert!(enqueue(&bed, &word, later()).await.is_ok());
    let run = of(agent.principal().hand_on());
    assert_eq!(enqueue(&bed, &run, job("due")).await, full, "a call that it has others do");
    let signal = Signal { kind: "job".into(), payload: "{}".into(), blob: None };
    let call = || Call { entry: Entry::React(signal.clone()), ..bed.call(run.clone()) };
    let both = async |guest: &mut State| {
        guest.enqueue(job("next")).await?;
        guest.enqueue(job("beside")).await
    };
    assert_eq!(bed.play(call(), both).await, full);
    // The run's place is its own until it ends: a portion that is committed before leaves none.
    let portion = async |guest: &mut State| {
        guest.enqueue(job("next")).await?;
        guest.checkpoint().await
    };
    assert_eq!(bed.play(call(), portion).await, full.clone().map(drop));
    let next = async |guest: &mut State| guest.enqueue(job("next")).await;
    let next = bed.play(call(), next).await.unwrap();
    assert!(record(&bed, &run, &next).await.unwrap().pinned, "as what had been asked for");
    let next = async |guest: &mut State| guest.enqueue(job("next")).await;
    assert_eq!(bed.play(call(), next).await, full);
}

#[tokio::test]
async fn schedules_of_agents_leave_some_to_others() {
    let bed = Bed::with(EngineConfig { schedules_max: 20, ..EngineConfig::default() }).await;
    let agent = |n| {
        let pinned = Principal { user: UserId::parse(&id(n)), ..key(Role::Developer) };
        scope(pinned, 1, Some(2), Some(n))
    };
    let fill = async |by: Scope| {
        let mut count = 0;
        while set(&bed, &by, &count.to_string(), "0 0 1 1 *", "UTC").await.is_ok() {
            count += 1;
        }
        count
    };
    assert_eq!(fill(agent(3)).await, 5);
    assert_eq!(fill(agent(4)).await, 3);
    assert_eq!(fill(user(6)).await, 12, "the rest is for those who govern them");
}

/// The jobs and the schedules of the organization of [`user`].
async fn standing(bed: &Bed) -> (u64, u64) {
    let groups = charter_kernel::lease::groups_of(user(3).lane());
    let of = async |space: Space| bed.store().in_groups(&space, &groups, 100).await.unwrap();
    (of(jobs()).await, of(schedules()).await)
}

#[tokio::test]
async fn calls_that_asked_early_count_what_others_have_committed_since() {
    let config =
        EngineConfig { jobs_waiting_max: 11, schedules_max: 10, ..EngineConfig::default() };
    let bed = Bed::with(config).await;
    let schedule = |n: u32| Schedule {
        key: n.to_string(),
        cron: "0 0 1 1 *".into(),
        time_zone: "UTC".into(),
        job: job("tick"),
    };
    let mut guests: Vec<State> = (3..6).map(|n| bed.attempt(bed.call(user(n)))).collect();
    for guest in &mut guests {
        guest.enqueue(job("a")).await.unwrap();
        guest.set_schedule(schedule(0)).await.unwrap();
    }
    for mut guest in guests {
        for n in 1..20 {
            let _ = guest.enqueue(job("a")).await;
            let _ = guest.set_schedule(schedule(n)).await;
        }
        bed.end(guest, true).await.unwrap();
    }
    assert_eq!(standing(&bed).await, (10, 10), "the eleventh job is for those who govern");
}

#[tokio::test]
async fn jobs_of_a_checkpoint_count_however_the_request_ends() {
    use crate::bindings::charter::primitive::documents::Host as _;
    let config = EngineConfig { jobs_waiting_max: 4, ..EngineConfig::default() };
    let bed = Bed::with(config).await;
    let mut first = bed.attempt(bed.call(user(3)));
    for _ in 0..2 {
        first.enqueue(job("a")).await.unwrap();
        first.checkpoint().await.unwrap();
    }
    first.enqueue(job("a")).await.unwrap();
    drop(first);
    let said = bed.by(user(4), async |guest| {
        for _ in 0..3 {
            guest.enqueue(job("a")).await?;
        }
        Ok(())
    });
    assert_eq!(said.await, Err("rate_limited:jobs_full".into()), "two wait already");
}

#[tokio::test]
async fn who_may_not_change_things_has_nothing_done_later() {
    let bed = Bed::new().await;
    let viewer = scope(key(Role::Viewer), 1, Some(2), Some(3));
    let reads = || Call { mutates: false, entry: handle("shop.look"), ..bed.call(user(3)) };
    for (call, word) in
        [(bed.call(viewer), "forbidden:role_insufficient"), (reads(), "internal_error:UNDECLARED")]
    {
        let said = bed.play(call, async |guest| guest.enqueue(job("a")).await).await;
        assert_eq!(said, Err(word.into()));
    }
    let payload = json!({ "n": 1 }).to_string();
    let id = enqueue(&bed, &user(3), Job { payload, ..job("a") }).await.unwrap();
    assert_eq!(record(&bed, &user(3), &id).await.unwrap().payload.value(), json!({ "n": 1 }));
}

#[tokio::test]
async fn payloads_of_one_request_are_its_own_memory() {
    let config = EngineConfig { guest_memory_bytes_max: 1 << 20, ..EngineConfig::default() };
    let bed = Bed::with(config).await;
    let payload = || format!("\"{}\"", long(200 << 10));
    let jobs = bed.by(user(3), async |guest| {
        for _ in 0..100 {
            guest.enqueue(Job { payload: payload(), ..job("a") }).await?;
        }
        Ok(())
    });
    assert_eq!(jobs.await, Err("payload_too_large:too_much_held".into()));
    let schedules = bed.by(user(3), async |guest| {
        for n in 0..100 {
            let job = Job { payload: payload(), ..job("a") };
            let (cron, time_zone) = ("* * * * *".into(), "UTC".into());
            guest.set_schedule(Schedule { key: n.to_string(), cron, time_zone, job }).await?;
        }
        Ok(())
    });
    assert_eq!(schedules.await, Err("payload_too_large:too_much_held".into()));
}

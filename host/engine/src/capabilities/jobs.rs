//! `jobs`: rows of `host.jobs` and `host.schedules`, written with the request's commit and run by
//! the server's workers.
//!
//! A guest sees the jobs of its own primitive and scope only.

use charter_kernel::limits::DEADLINE_MS_MAX;
use charter_kernel::refusal::Failure as Refused;
use charter_kernel::role::Role;
use charter_kernel::scope::{ActorKind, Behind};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Claim, Draft, Key, Reach};

use crate::backlog::{Kind, Verdict};
use crate::bindings::charter::primitive::jobs::{Host, Job, Schedule};
use crate::bindings::charter::primitive::types::Failure;
use crate::call::Entry;
use crate::failure::{failure, invalid, jobs_full, not_found, unread, write_failure};
use crate::job::room::{Part, Waiting, ordinary_part_of, part_of, with_beyond};
use crate::job::{JobRecord, NAME, Owner, ScheduleRecord, UNIQUE_KEY, jobs, schedules};
use crate::state::{State, Work};

/// Runs of one job.
const ATTEMPTS_MAX: u32 = 100;
/// Bytes of a job's payload.
pub(super) const PAYLOAD_BYTES_MAX: usize = 256 << 10;
/// Bytes of a job's name and key.
const NAME_BYTES_MAX: usize = 200;

/// Whether a text is a name or a key that a job has.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.contains('\0')
}

fn name_fault() -> Failure {
    invalid("job", format!("a job's name and key have 1 to {NAME_BYTES_MAX} bytes")).into()
}

impl Work {
    fn unique(&self, key: &str) -> String {
        format!("{}/{key}", self.component.manifest.name)
    }

    fn record(&self, job: Job) -> Result<JobRecord, Failure> {
        if !is_name(&job.name) || !job.key.as_deref().is_none_or(is_name) {
            return Err(name_fault());
        }
        if job.payload.len() > PAYLOAD_BYTES_MAX {
            return Err(failure(
                "payload_too_large",
                format!("a job's payload has at most {PAYLOAD_BYTES_MAX} bytes"),
            )
            .into());
        }
        Ok(JobRecord {
            name: job.name,
            payload: super::events::json("payload", &job.payload)?.into(),
            key: job.key,
            attempts_max: job.attempts_max.clamp(1, ATTEMPTS_MAX),
            deadline_ms: job.deadline_ms.map(|ms| ms.min(DEADLINE_MS_MAX)),
            public: job.public,
            // A moment without a timestamp could be written and never read again.
            run_at: Instant(job.run_at.unwrap_or(self.now.0)).clamp(Instant(0), Instant::LAST),
            request: Some(self.call.request_id.clone()),
            ..self.own_record()
        })
    }

    /// A job that the call asks for, which says no more yet than whose it is.
    fn own_record(&self) -> JobRecord {
        let scope = &self.call.scope;
        let owner = Owner {
            organization: scope.lane().to_owned(),
            project: scope.project().map_or_else(String::new, |id| id.as_str().to_owned()),
            user: scope.user().map(|id| id.as_str().to_owned()),
            root: scope.principal().root.clone(),
        };
        JobRecord {
            asked: Some(scope.principal().hand_on()),
            pinned: scope.principal().behind() != Behind::Organization,
            ..JobRecord::of_signal(&self.component.manifest.name, "job", owner, self.now)
        }
    }

    /// The group of the jobs that the call asks for.
    pub(super) fn own_group(&self) -> String {
        self.own_record().group()
    }

    /// Counts one more job that waits, or one more schedule, where this part has room for it.
    async fn admit_to_backlog(
        &mut self,
        kind: Kind,
        organization: &str,
        part: &Part,
    ) -> Result<(), Failure> {
        let config = &self.shared.config;
        // Counted as far as anybody may have: who may have less relies on the same count.
        let (space, all) = match kind {
            Kind::Job => (jobs(), with_beyond(config.jobs_waiting_max)),
            Kind::Schedule => (schedules(), config.schedules_max),
        };
        let is_admitted = match self.asked.ask(kind, organization, part) {
            Verdict::Admitted => true,
            Verdict::Full => false,
            Verdict::Unknown(start) => {
                let counted = Waiting::count(&self.shared.store, &space, organization, all).await;
                let counted = counted.map_err(|error| unread(&error))?;
                self.asked.ask_by_count(kind, organization, (start, counted), part)
            }
        };
        if is_admitted {
            return Ok(());
        }
        let (max, shares) = (part.max(), part.sharer().is_some());
        Err(match kind {
            Kind::Job if shares => jobs_full(format!(
                "of the {max} jobs that leave room for this one, who asks has as many as the organization has free"
            )),
            Kind::Job => jobs_full(format!(
                "{max} jobs of the organization wait, as many as leave room for this one"
            )),
            Kind::Schedule => Refused {
                reason: Some("schedules_full".into()),
                hint: Some("remove some".into()),
                ..failure("state_conflict", match shares {
                    true => format!(
                        "of the {max} schedules that leave room for this one, who asks has as many as the \
                         organization has free"
                    ),
                    false => format!("an organization has at most {max} schedules"),
                })
            },
        }
        .into())
    }

    /// The part of the room for jobs that this one finds.
    ///
    /// One who governs the organization finds all of it: what others ask for keeps nobody from that. Jobs
    /// for later leave a part, because what is due makes room by itself. Jobs of runs that no agent has
    /// asked for govern the rest, and a provider's word has happened: neither may wait until there is
    /// room, or there never is.
    fn part_for(&self, record: &JobRecord, all: u64) -> u64 {
        let by = self.call.scope.principal();
        if record.signal == NAME {
            return part_of(all, Behind::Stranger);
        }
        let is_run = matches!(self.call.entry, Entry::React(_));
        // The host itself has no role.
        let governs = by.role.is_none_or(Role::loosens);
        match (by.actor.kind, by.behind()) {
            (ActorKind::Hook, Behind::Organization) => with_beyond(all),
            (ActorKind::System, Behind::Organization) if is_run => with_beyond(all),
            (_, behind) if record.run_at > self.now || !governs => ordinary_part_of(all, behind),
            (_, behind) => part_of(all, behind),
        }
    }

    /// Finds room for a job. Beyond its part of it, the first one that a run leaves takes the run's
    /// place, or chains of jobs would break where others wait: with the run's own end, and with no
    /// portion of it before.
    async fn find_room(&mut self, record: &JobRecord) -> Result<(), Failure> {
        let all = self.shared.config.jobs_waiting_max;
        let (group, organization) = (record.group(), &record.owner.organization);
        let part = Part::of_group(self.part_for(record, all), &group);
        let found = self.admit_to_backlog(Kind::Job, organization, &part).await;
        let is_run = matches!(self.call.entry, Entry::React(_))
            && self.call.scope.principal().actor.kind == ActorKind::System;
        if found.is_err() && is_run && !self.has_enqueued && record.signal != NAME {
            let beyond = Part::whole(with_beyond(all));
            self.admit_to_backlog(Kind::Job, organization, &beyond).await?;
            self.in_runs_place = true;
            return Ok(());
        }
        found
    }

    /// Writes a job's row; answers its id.
    pub(super) async fn put_job(&mut self, record: JobRecord) -> Result<String, Failure> {
        self.find_room(&record).await?;
        self.has_enqueued = true;
        let id = self.fresh_id()?;
        let reach = match (
            &record.owner.user,
            record.owner.project.as_str(),
            record.owner.organization.as_str(),
        ) {
            (Some(user), _, _) => Reach::user(user),
            (None, "", "") => Reach::deployment(),
            (None, "", organization) => Reach::organization(organization),
            (None, project, _) => Reach::project(project),
        };
        let draft = Draft {
            user: record.owner.user.clone(),
            unique: record.key.iter().map(|key| (UNIQUE_KEY.into(), self.unique(key))).collect(),
            index: record.index(),
            lease: Some((record.group(), record.run_at)),
            body: body(&record)?,
            ..Draft::default()
        };
        self.txn
            .insert(Key::new(&reach, &jobs(), &*id), draft)
            .await
            .map_err(|error| write_failure(&error))?;
        Ok(id)
    }

    /// The live job under a key.
    async fn find_live(&mut self, key: &str) -> Result<Option<Key>, Failure> {
        let claim =
            Claim::unique(&self.call.scope.narrowest(), &jobs(), UNIQUE_KEY, &self.unique(key));
        Ok(self.txn.lookup(&claim).await.map_err(|error| unread(&error))?)
    }

    /// A job of this primitive, by its id.
    async fn job(&mut self, id: &str) -> Result<Option<(Key, JobRecord)>, Failure> {
        let key = Key::new(&self.call.scope.narrowest(), &jobs(), id);
        let Some(row) = self.txn.get(&key).await.map_err(|error| unread(&error))? else {
            return Ok(None);
        };
        let record: JobRecord = serde_json::from_str(&row.body)
            .map_err(|_| failure("internal_error", "the job cannot be read"))?;
        Ok((record.primitive == self.component.manifest.name).then_some((key, record)))
    }
}

fn body<T: serde::Serialize>(record: &T) -> Result<String, Failure> {
    serde_json::to_string(record)
        .map_err(|_| failure("internal_error", "the record cannot be written").into())
}

/// The bytes of a job's texts.
fn bytes(job: &Job) -> usize {
    job.name.len() + job.payload.len() + job.key.as_ref().map_or(0, String::len)
}

impl Host for State {
    async fn enqueue(&mut self, job: Job) -> Result<String, Failure> {
        self.hold(bytes(&job))?;
        let work = self.mutation()?;
        if !job.key.as_deref().is_none_or(is_name) {
            return Err(name_fault());
        }
        if let Some(key) = &job.key
            && let Some(live) = work.find_live(key).await?
        {
            return Ok(live.id);
        }
        let record = work.record(job)?;
        work.put_job(record).await
    }

    async fn cancel(&mut self, id: String) -> Result<bool, Failure> {
        self.hold(id.len())?;
        let work = self.mutation()?;
        let Some((key, record)) = work.job(&id).await? else { return Ok(false) };
        if record.state != "queued" {
            return Ok(false);
        }
        // A run that is under way loses its lease with the row, and with it its commit.
        Ok(work.txn.remove(&key, None).await.map_err(|error| write_failure(&error))?)
    }

    async fn cancel_key(&mut self, key: String) -> Result<bool, Failure> {
        self.hold(key.len())?;
        let work = self.mutation()?;
        if !is_name(&key) {
            return Ok(false);
        }
        let Some(live) = work.find_live(&key).await? else { return Ok(false) };
        Ok(work.txn.remove(&live, None).await.map_err(|error| write_failure(&error))?)
    }

    async fn progress(&mut self, id: String, fraction: f32, note: String) -> Result<(), Failure> {
        self.hold(id.len() + note.len())?;
        let work = self.mutation()?;
        let Some((key, mut record)) = work.job(&id).await? else {
            return Err(not_found("the job").into());
        };
        record.fraction = Some(if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 });
        record.note = Some(note.chars().take(NAME_BYTES_MAX).collect());
        let unique = record.key.iter().map(|key| (UNIQUE_KEY.into(), work.unique(key))).collect();
        let draft =
            Draft { unique, index: record.index(), body: body(&record)?, ..Draft::default() };
        work.txn.replace(key, draft, None).await.map_err(|error| write_failure(&error))?;
        Ok(())
    }

    async fn set_schedule(&mut self, schedule: Schedule) -> Result<i64, Failure> {
        let Schedule { key, cron, time_zone, job } = &schedule;
        self.hold(key.len() + cron.len() + time_zone.len() + bytes(job))?;
        let work = self.mutation()?;
        if schedule.key.is_empty() || schedule.key.len() > NAME_BYTES_MAX {
            return Err(invalid(
                "key",
                format!("a schedule's key has 1 to {NAME_BYTES_MAX} bytes"),
            )
            .into());
        }
        let next = charter_kernel::schedule::next_occurrence(
            &schedule.cron,
            &schedule.time_zone,
            work.now,
        )
        .map_err(|fault| invalid(&fault.path, fault.message))?
        .ok_or_else(|| invalid("cron", "this schedule never comes due"))?;
        let mut job = work.record(schedule.job)?;
        job.run_at = next;
        job.asked = Some(work.call.scope.principal().hand_over());
        let record = ScheduleRecord {
            key: schedule.key,
            cron: schedule.cron,
            time_zone: schedule.time_zone,
            job,
        };
        let key = Key::new(&work.call.scope.narrowest(), &schedules(), work.unique(&record.key));
        if work.txn.get(&key).await.map_err(|error| unread(&error))?.is_none() {
            let (all, by) = (work.shared.config.schedules_max, work.call.scope.principal());
            let part = Part::of_group(part_of(all, by.behind()), &record.job.group());
            work.admit_to_backlog(Kind::Schedule, &record.job.owner.organization, &part).await?;
        }
        let draft = Draft {
            user: record.job.owner.user.clone(),
            lease: Some((record.job.group(), next)),
            body: body(&record)?,
            ..Draft::default()
        };
        work.txn.put(key, draft).await.map_err(|error| write_failure(&error))?;
        Ok(next.0)
    }

    async fn remove_schedule(&mut self, key: String) -> Result<bool, Failure> {
        self.hold(key.len())?;
        let work = self.mutation()?;
        let key = Key::new(&work.call.scope.narrowest(), &schedules(), work.unique(&key));
        Ok(work.txn.remove(&key, None).await.map_err(|error| write_failure(&error))?)
    }
}

#[cfg(test)]
mod tests;

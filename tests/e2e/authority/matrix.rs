//! The table of authority as tests read it, the operations that a server describes beside those
//! that are listed, and what the table says of one of them, by one principal, under one name.
//! Sends nothing.

use std::collections::{BTreeMap, BTreeSet};

use charter_tests::{Answer, World};
use serde_json::Value;

use super::bed::{Bed, Naming, Principal};

const TABLE: &str = include_str!("../../authority.tsv");
const OPERATIONS: &str = include_str!("../../operations.tsv");
/// Names nothing.
pub const NOBODY: &str = "0197c0de-0000-7000-8000-000000000000";
/// The classes of operations that take no credential of an organization.
const OUTSIDE: [&str; 3] = ["open", "inbound", "operator"];

/// The cells of each class, by column.
#[derive(Clone)]
pub struct Matrix(BTreeMap<String, BTreeMap<String, String>>);

impl Matrix {
    /// The table as it is.
    pub fn read() -> Self {
        let mut lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        let columns: Vec<&str> = lines.next().unwrap().split('\t').skip(1).collect();
        let row = |line: &str| {
            let mut cells = line.split('\t').map(str::to_owned);
            let class = cells.next().unwrap();
            (class, columns.iter().map(|&column| column.to_owned()).zip(cells).collect())
        };
        Self(lines.map(row).collect())
    }

    /// The same with another cell.
    pub fn with(&self, class: &str, column: &str, cell: &str) -> Self {
        let mut changed = self.clone();
        let row = changed.0.get_mut(class).unwrap();
        assert_ne!(row.insert(column.to_owned(), cell.to_owned()), Some(cell.to_owned()));
        changed
    }

    /// The same without a row.
    pub fn without(&self, class: &str) -> Self {
        let mut changed = self.clone();
        assert!(changed.0.remove(class).is_some());
        changed
    }

    fn cell(&self, class: &str, column: &str) -> &str {
        &self.0[class][column]
    }
}

/// Whether a role is admitted by a cell of an operation that may ask for an admin besides.
fn admits(cell: &str, admin_only: bool, by: &Principal) -> bool {
    let admin = ["admin", "owner"].contains(&by.role);
    let by_cell = match cell {
        "viewer" => true,
        "developer" => admin || by.role == "developer",
        "approver" => admin || by.role == "approver",
        "admin" => admin,
        _ => false,
    };
    by_cell && (!admin_only || (admin && !by.is_pinned()))
}

/// One operation as it is described.
#[derive(Clone, Debug)]
pub struct Operation {
    pub id: String,
    pub method: String,
    pub path: String,
    pub class: String,
    pub admin_only: bool,
    /// Below `/v1/users/{user_id}`.
    pub user_mount: bool,
    /// The host's own.
    pub is_hosts: bool,
    /// The schema of its JSON body; null where it has none.
    pub body: Value,
}

impl Operation {
    /// Its id, the same at whatever mount it is described.
    pub fn name(&self) -> &str {
        self.id.strip_suffix(".user").filter(|_| self.user_mount).unwrap_or(&self.id)
    }

    /// Whether it takes a credential of an organization.
    pub fn is_within(&self) -> bool {
        !OUTSIDE.contains(&self.class.as_str())
    }
}

/// Every described operation. One without a class, or of a class without a row, is a fault.
pub fn operations(world: &World, matrix: &Matrix) -> Result<Vec<Operation>, Vec<String>> {
    let described = world.anonymous().get("/openapi.json").expect(200);
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let text = |member: &str| operation[member].as_str().unwrap_or_default().to_owned();
            let class = text("x-authority");
            if !matrix.0.contains_key(&class) {
                faults.push(format!("{method} {path}: no row for {class:?}"));
            }
            found.push(Operation {
                id: text("operationId"),
                method: method.to_uppercase(),
                path: path.clone(),
                class,
                admin_only: operation["x-role"] == "admin",
                user_mount: path.starts_with("/v1/users/{user_id}/"),
                is_hosts: operation["tags"][0] == "host",
                body: operation["requestBody"]["content"]["application/json"]["schema"].clone(),
            });
        }
    }
    assert!(found.len() > 100, "only {} operations are described", found.len());
    if faults.is_empty() { Ok(found) } else { Err(faults) }
}

/// The class of each operation as it is listed, and the role that it asks for besides, by id.
#[derive(Clone)]
pub struct Listed(BTreeMap<String, (String, String)>);

impl Listed {
    /// The list as it is.
    pub fn read() -> Self {
        let line = |line: &str| {
            let cells: Vec<&str> = line.split('\t').collect();
            let [id, class, role] = cells[..] else { panic!("not three cells: {line:?}") };
            (id.to_owned(), (class.to_owned(), role.to_owned()))
        };
        let lines = OPERATIONS.lines().filter(|line| !line.starts_with('#')).skip(1);
        let mut read = BTreeMap::new();
        for (id, said) in lines.map(line) {
            assert!(read.insert(id.clone(), said).is_none(), "{id} has two lines");
        }
        Self(read)
    }

    /// The same with this line in the place of the one that an operation has or lacks.
    pub fn with(&self, id: &str, class: &str, role: &str) -> Self {
        let (mut changed, said) = (self.clone(), (class.to_owned(), role.to_owned()));
        assert_ne!(changed.0.insert(id.to_owned(), said.clone()), Some(said));
        changed
    }

    /// The same without a line.
    pub fn without(&self, id: &str) -> Self {
        let mut changed = self.clone();
        assert!(changed.0.remove(id).is_some());
        changed
    }

    /// The lines that are missing, say something else or are of nothing that is described.
    pub fn faults(&self, described: &[Operation]) -> Vec<String> {
        let (mut faults, mut seen) = (Vec::new(), BTreeSet::new());
        for operation in described {
            // One operation has one line, at whatever mounts it is served.
            let id = operation.name();
            let role = if operation.admin_only { "admin" } else { "-" };
            let (class, path) = (operation.class.as_str(), &operation.path);
            match self.0.get(id) {
                None => faults.push(format!("{id} ({path}) has no line")),
                Some((listed, asked)) if (listed.as_str(), asked.as_str()) != (class, role) => {
                    let told = format!("described as {class} {role}, listed as {listed} {asked}");
                    faults.push(format!("{id} ({path}) is {told}"));
                }
                Some(_) => {}
            }
            seen.insert(id);
        }
        let gone = self.0.keys().filter(|id| !seen.contains(id.as_str()));
        faults.extend(gone.map(|id| format!("{id} has a line and is not described")));
        faults
    }
}

/// The answer that a request should get.
#[derive(Debug, PartialEq)]
pub enum Expected {
    /// Authority lets it pass.
    Admitted,
    /// 401.
    Nobody,
    /// 404.
    Absent,
    /// 403, for one of these reasons.
    Forbidden(&'static [&'static str]),
}

impl Expected {
    /// Whether this answer is that.
    pub fn fits(&self, answer: &Answer) -> bool {
        match self {
            // Malformed, or impossible here: authority has let it pass.
            Self::Admitted => matches!(answer.status, 400 | 402 | 415 | 501),
            Self::Nobody => answer.status == 401,
            Self::Absent => answer.status == 404,
            Self::Forbidden(reasons) => {
                let error = if answer.status == 403 { answer.error() } else { Value::Null };
                error["reason"].as_str().is_some_and(|reason| reasons.contains(&reason))
            }
        }
    }
}

/// The answer that the table foresees.
pub fn expectation(
    matrix: &Matrix,
    bed: &Bed,
    operation: &Operation,
    by: &Principal,
    naming: &Naming,
) -> Expected {
    let plain = matrix.cell(&operation.class, by.column);
    match plain {
        "nobody" => return Expected::Nobody,
        "anyone" | "operator" => return Expected::Admitted,
        _ => {}
    }
    if let Some(beyond) = beyond(bed, by, naming) {
        return beyond;
    }
    let named = naming.user();
    let level = match (named.is_some() || by.user.is_some(), naming.project()) {
        (true, _) => "profile",
        (false, Some(_)) => "project",
        (false, None) if by.project.is_some() => "project",
        (false, None) => "organization",
    };
    let class = match (operation.class.as_str(), level) {
        ("desk_read", "project") => "project_read",
        ("desk_read", "organization") => "organization_read",
        ("desk_change", "project") => "project_change",
        ("desk_change", "organization") => "organization_change",
        (class, _) => class,
    };
    let cell = matrix.cell(class, by.column);
    if !admits(cell, operation.admin_only, by) {
        return match cell {
            "-" => Expected::Forbidden(&[
                "pinned",
                "key_required",
                "session_required",
                "person_required",
            ]),
            _ if operation.admin_only && by.is_pinned() => Expected::Forbidden(&["pinned"]),
            _ => Expected::Forbidden(&["role_insufficient"]),
        };
    }
    let subject = named.filter(|user| !["me", "default"].contains(user)).or(by.user.as_deref());
    match subject == Some(&bed.revoked) && operation.method != "GET" {
        true => Expected::Forbidden(&["profile_revoked"]),
        false => Expected::Admitted,
    }
}

/// The answer to a name beyond the credential's organization or pins.
fn beyond(bed: &Bed, by: &Principal, naming: &Naming) -> Option<Expected> {
    let project = match naming.project() {
        Some(named) if named == bed.stranger.project => return Some(Expected::Absent),
        Some(named) => {
            if by.project.as_deref().is_some_and(|pinned| pinned != named) {
                return Some(Expected::Forbidden(&["key_project_mismatch"]));
            }
            named
        }
        None => by.project.as_deref().unwrap_or(&bed.tenant.project),
    };
    let user = naming.user().filter(|user| !["me", "default"].contains(user))?;
    let is_pinned_elsewhere = by.user.as_deref().is_some_and(|pinned| pinned != user);
    let absent = is_pinned_elsewhere || bed.project_of(user) != Some(project);
    absent.then_some(Expected::Absent)
}

//! Two organizations, with every kind of principal and every way to name a subject.

use charter_tests::patience::until;
use charter_tests::tenant::{PASSWORD, id, unique};
use charter_tests::{Client, Tenant, World};
use serde_json::{Value, json};

use super::matrix::NOBODY;
use crate::accounts::browser;
use crate::members::join;

/// A credential, with what it is pinned to.
pub struct Principal {
    pub name: String,
    pub client: Client,
    pub column: &'static str,
    pub role: &'static str,
    pub project: Option<String>,
    pub user: Option<String>,
    /// Whether each operation is tried under one name only, another for each.
    pub sparse: bool,
}

impl Principal {
    /// Whether it acts in one project, or for one user, only.
    pub fn is_pinned(&self) -> bool {
        self.project.is_some() || self.user.is_some()
    }
}

/// An organization with a second project and users in each, and a stranger's.
#[derive(Clone)]
pub struct Bed {
    pub tenant: Tenant,
    pub stranger: Tenant,
    pub other_project: String,
    pub user: String,
    pub other_user: String,
    pub revoked: String,
    pub user_elsewhere: String,
    owner: Client,
}

impl Bed {
    pub fn new(world: &World) -> Self {
        let (tenant, stranger) = (world.register(), world.register());
        let made = tenant.client.post("/v1/projects", &json!({ "name": "second" })).expect(201);
        let other_project = id(&made["project"]);
        let (user, other_user) = (tenant.user("own"), tenant.user("other"));
        let within = tenant.client.with("x-service-project-id", &other_project);
        let made = within.post("/v1/users", &json!({ "name": "elsewhere" })).expect(201);
        let user_elsewhere = id(&made["user"]);
        let revoked = tenant.user("revoked");
        let owner = browser(world, &tenant.email, PASSWORD).0;
        Self { tenant, stranger, other_project, user, other_user, revoked, user_elsewhere, owner }
    }

    /// The same as the stranger sees it: at home in its own organization, which has one user.
    pub fn of_stranger(&self) -> Self {
        let [other_user, revoked, user_elsewhere] = [(); 3].map(|()| NOBODY.to_owned());
        let (tenant, stranger) = (self.stranger.clone(), self.tenant.clone());
        let user = tenant.user.clone();
        Self { tenant, stranger, user, other_user, revoked, user_elsewhere, ..self.clone() }
    }

    /// The project of one of the users.
    pub fn project_of(&self, user: &str) -> Option<&str> {
        let here = [&self.user, &self.other_user, &self.revoked];
        if here.iter().any(|own| *own == user) {
            return Some(&self.tenant.project);
        }
        (user == self.user_elsewhere).then_some(&self.other_project)
    }

    /// A new member; answers a browser, and the account's id.
    pub fn member(&self, world: &World, role: &str) -> (Client, String) {
        join(world, &self.tenant, &self.owner, role)
    }

    /// Every principal of the table. Only what is done after they are made is seen by them.
    pub fn principals(&self, world: &World) -> Vec<Principal> {
        let mut all = self.living(world);
        all.extend(self.dead(world));
        let revoke = format!("/v1/users/{}/revoke", self.revoked);
        self.tenant.client.post(&revoke, &json!({})).expect(200);
        all
    }

    fn living(&self, world: &World) -> Vec<Principal> {
        let (here, elsewhere) = (&self.tenant.project, &self.other_project);
        let principal = |column, role, client| Principal {
            name: format!("{role} by {column}"),
            client,
            column,
            role,
            project: None,
            user: None,
            sparse: false,
        };
        let key = |role, wishes: Value| {
            let mut wishes = wishes;
            (wishes["name"], wishes["role"]) = (unique("key").into(), json!(role));
            let made = self.owner.post("/v1/auth/keys", &wishes).expect(201);
            world.anonymous().bearer(made["key"].as_str().unwrap())
        };
        let in_project = |role, project: &str| Principal {
            project: Some(project.to_owned()),
            ..principal("project", role, key(role, json!({ "project_id": project })))
        };
        // A key that is pinned to a user is pinned to that user's project too, named or not.
        let of_user = |role, user: &str, project: &str, both: bool| {
            let pins = match both {
                true => json!({ "user_id": user, "project_id": project }),
                false => json!({ "user_id": user }),
            };
            let client = key(role, pins);
            let mut by = principal("user", role, client);
            by.name.push_str(if both { " and its project" } else { "" });
            Principal { project: Some(project.to_owned()), user: Some(user.to_owned()), ..by }
        };
        let mut all = vec![principal("session", "owner", self.owner.clone())];
        // Nobody makes a key that owns.
        for role in ["viewer", "developer", "approver", "admin"] {
            all.push(principal("key", role, key(role, json!({}))));
            all.push(in_project(role, here));
            all.push(of_user(role, &self.user, here, false));
            all.push(principal("session", role, self.member(world, role).0));
        }
        let (maker, account) = self.member(world, "developer");
        let left = maker.post("/v1/auth/keys", &json!({ "name": unique("left") })).expect(201);
        let left = world.anonymous().bearer(left["key"].as_str().unwrap());
        self.owner.delete(&format!("/v1/organization/members/{account}")).expect(200);
        all.push(of_user("developer", &self.user, here, true));
        all.push(of_user("admin", &self.user_elsewhere, elsewhere, true));
        let mut sparse = vec![
            in_project("admin", elsewhere),
            of_user("admin", &self.revoked, here, false),
            Principal {
                name: "a key whose maker has left".into(),
                ..principal("key", "developer", left)
            },
        ];
        sparse.iter_mut().for_each(|principal| principal.sparse = true);
        all.extend(sparse);
        all
    }

    /// Credentials that do not count, and those that count nowhere in an organization.
    fn dead(&self, world: &World) -> Vec<Principal> {
        let anonymous = world.anonymous();
        let key = |client: &Client, wishes: Value| {
            let mut wishes = wishes;
            wishes["name"] = unique("key").into();
            let made = client.post("/v1/auth/keys", &wishes).expect(201);
            (anonymous.bearer(made["key"].as_str().unwrap()), made)
        };
        let (revoked, made) = key(&self.owner, json!({ "role": "admin" }));
        let descendant = key(&revoked, json!({ "role": "admin" })).0;
        self.owner.delete(&format!("/v1/auth/keys/{}", id(&made))).expect(200);
        let soon = charter_kernel::time::Instant::parse(made["created_at"].as_str().unwrap());
        let soon = soon.unwrap().plus_ms(3_000).to_string();
        let expired = key(&self.owner, json!({ "role": "admin", "expires_at": soon })).0;
        let (removed, account) = self.member(world, "admin");
        self.owner.delete(&format!("/v1/organization/members/{account}")).expect(200);
        until("the key has ended", || expired.get("/v1/organization").status == 401);
        let named = [
            ("anonymous", "anonymous", anonymous.clone()),
            ("nonsense", "dead", anonymous.bearer("sk_live_nonsense")),
            ("a revoked key", "dead", revoked),
            ("a key that a revoked key made", "dead", descendant),
            ("an expired key", "dead", expired),
            ("the session of a removed member", "dead", removed),
            ("the operator", "operator", world.operator()),
        ];
        let principal = |(name, column, client): (&str, _, _)| Principal {
            name: name.to_owned(),
            client,
            column,
            role: "",
            project: None,
            user: None,
            sparse: true,
        };
        named.map(principal).into()
    }
}

/// How a request names its subject, and what that makes of it.
pub struct Naming {
    pub name: &'static str,
    /// The user in the path, where the operation is served there.
    pub path_user: Option<String>,
    pub headers: Vec<(&'static str, String)>,
    /// The project that stands before the path.
    pub prefix: Option<String>,
}

impl Naming {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| *own == name).map(|(_, id)| id.as_str())
    }

    /// The user that it names: by the path, whatever a header says.
    pub fn user(&self) -> Option<&str> {
        self.path_user.as_deref().or_else(|| self.header(BY_USER))
    }

    /// The project that it names: before the path, whatever a header says.
    pub fn project(&self) -> Option<&str> {
        self.prefix.as_deref().or_else(|| self.header(BY_PROJECT))
    }

    /// A path of the company mount where this names its subject.
    pub fn mount(&self, path: &str) -> String {
        let user = self.path_user.iter().map(|user| format!("/v1/users/{user}/"));
        let project = self.prefix.iter().map(|project| format!("/v1/projects/{project}/"));
        let below = |path: String, mount: String| path.replacen("/v1/", &mount, 1);
        user.chain(project).fold(path.to_owned(), below)
    }
}

const BY_USER: &str = "x-service-user-id";
const BY_PROJECT: &str = "x-service-project-id";

fn nobody() -> Naming {
    Naming { name: "nobody", path_user: None, headers: Vec::new(), prefix: None }
}

fn user(name: &'static str, value: &str) -> Naming {
    Naming { name, path_user: Some(value.to_owned()), ..nobody() }
}

fn headers(name: &'static str, named: &[(&'static str, &str)]) -> Naming {
    let headers = named.iter().map(|(header, value)| (*header, (*value).to_owned())).collect();
    Naming { name, headers, ..nobody() }
}

fn prefix(name: &'static str, value: &str) -> Naming {
    Naming { name, prefix: Some(value.to_owned()), ..nobody() }
}

/// Every way.
pub fn namings(bed: &Bed) -> Vec<Naming> {
    let stranger = &bed.stranger;
    let header = |name, header, value: &str| headers(name, &[(header, value)]);
    let mut all = vec![
        nobody(),
        user("default", "default"),
        user("me", "me"),
        user("own", &bed.user),
        user("other", &bed.other_user),
        user("revoked", &bed.revoked),
        user("elsewhere", &bed.user_elsewhere),
        user("stranger", &stranger.user),
        header("header me", BY_USER, "me"),
        header("header default", BY_USER, "default"),
        header("header own", BY_USER, &bed.user),
        header("header other", BY_USER, &bed.other_user),
        header("header revoked", BY_USER, &bed.revoked),
        header("header elsewhere", BY_USER, &bed.user_elsewhere),
        header("header stranger", BY_USER, &stranger.user),
        header("header project", BY_PROJECT, &bed.tenant.project),
        header("header other project", BY_PROJECT, &bed.other_project),
        header("header stranger's project", BY_PROJECT, &stranger.project),
        prefix("prefix", &bed.tenant.project),
        prefix("other prefix", &bed.other_project),
        prefix("stranger's prefix", &stranger.project),
    ];
    all.extend(of_both(bed));
    all
}

/// Those that name a project and a user, and those that contradict themselves.
fn of_both(bed: &Bed) -> Vec<Naming> {
    let (other, elsewhere) = (&bed.other_project, &bed.user_elsewhere);
    let both = [(BY_PROJECT, other.as_str()), (BY_USER, elsewhere.as_str())];
    let other_prefix = Some(other.to_owned());
    vec![
        headers("headers other project, elsewhere", &both),
        Naming { prefix: other_prefix.clone(), ..user("other prefix, elsewhere", elsewhere) },
        // The user is not of the project.
        Naming { prefix: other_prefix, ..user("other prefix, own", &bed.user) },
        // The path counts, and no header beside it.
        Naming {
            prefix: Some(bed.tenant.project.clone()),
            ..headers("prefix, headers other project, elsewhere", &both)
        },
        Naming {
            path_user: Some(bed.user.clone()),
            ..headers("own, header stranger", &[(BY_USER, &bed.stranger.user)])
        },
    ]
}

/// The ways in which a user names itself and another one; of each its id and its project's.
pub fn between(own: (&str, &str), other: (&str, &str)) -> Vec<Naming> {
    let at = |project: &str, naming: Naming| Naming { prefix: Some(project.to_owned()), ..naming };
    vec![
        nobody(),
        user("me", "me"),
        user("own", own.0),
        user("victim", other.0),
        headers("header own", &[(BY_USER, own.0)]),
        headers("header victim", &[(BY_USER, other.0)]),
        headers("header own project", &[(BY_PROJECT, own.1)]),
        headers("header victim's project", &[(BY_PROJECT, other.1)]),
        headers("headers victim's project, victim", &[(BY_PROJECT, other.1), (BY_USER, other.0)]),
        prefix("own prefix", own.1),
        prefix("victim's prefix", other.1),
        at(own.1, user("own prefix, own", own.0)),
        at(other.1, user("victim's prefix, victim", other.0)),
    ]
}

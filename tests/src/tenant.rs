//! One organization with the key that its registration returned, and what tests make in it.

use serde_json::{Value, json};

use crate::client::Client;

/// The password of every account under test.
pub const PASSWORD: &str = "correct horse battery staple";

/// An organization.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// A client with the organization's first key, which is an admin's.
    pub client: Client,
    /// The organization's id.
    pub organization: String,
    /// Its default project's id.
    pub project: String,
    /// Its default user's id.
    pub user: String,
    /// The key itself.
    pub key: String,
    /// The account's address.
    pub email: String,
}

impl Tenant {
    /// The time at the server, in seconds since 1970, by the newest id that it has made.
    pub fn seconds(&self) -> i64 {
        let id = self.user("clock").replace('-', "");
        i64::from_str_radix(&id[..12], 16).expect("an id begins with its time") / 1_000
    }

    /// Registers an organization that no other test knows.
    #[track_caller]
    pub fn register(anonymous: &Client) -> Self {
        let email = format!("{}@example.com", unique("someone"));
        let answer = anonymous.post(
            "/v1/auth/register",
            &json!({"email": email, "password": PASSWORD, "company_name": "Tests"}),
        );
        let made = answer.expect(201);
        let text = |value: &Value| {
            value.as_str().unwrap_or_else(|| panic!("an id is missing in {answer}")).to_owned()
        };
        let key = text(&made["api_key"]["key"]);
        Self {
            client: anonymous.bearer(&key),
            organization: text(&made["organization"]["id"]),
            project: text(&made["project"]["id"]),
            user: text(&made["user"]["id"]),
            key,
            email,
        }
    }

    /// The same tenant at another server.
    pub fn at(&self, base: &str) -> Self {
        Self { client: self.client.at(base), ..self.clone() }
    }

    /// A new user; answers its id.
    #[track_caller]
    pub fn user(&self, name: &str) -> String {
        id(&self.client.post("/v1/users", &json!({ "name": name })).expect(201)["user"])
    }

    /// A new user with a kit; answers its id.
    #[track_caller]
    pub fn user_with_kit(&self, name: &str, kit: &str) -> String {
        id(
            &self.client.post("/v1/users", &json!({ "name": name, "kit_id": kit })).expect(201)["user"],
        )
    }

    /// A new kit; answers its id.
    #[track_caller]
    pub fn kit(&self, name: &str, primitives: Value) -> String {
        id(&self
            .client
            .post("/v1/kits", &json!({ "name": name, "primitives": primitives }))
            .expect(201)["kit"])
    }

    /// A new key; answers a client with it.
    #[track_caller]
    pub fn key(&self, wishes: Value) -> Client {
        let mut body = json!({ "name": unique("key") });
        if let (Some(body), Value::Object(wishes)) = (body.as_object_mut(), wishes) {
            body.extend(wishes);
        }
        let made = self.client.post("/v1/auth/keys", &body).expect(201);
        self.client.bearer(made["key"].as_str().unwrap_or_else(|| panic!("no key in {made}")))
    }
}

/// The id of a resource.
#[track_caller]
pub fn id(resource: &Value) -> String {
    resource["id"].as_str().unwrap_or_else(|| panic!("no id in {resource}")).to_owned()
}

/// A name that no other test of any process uses on the same database.
pub fn unique(stem: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{stem}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

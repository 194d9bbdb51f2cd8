//! The vault: secrets of one profile. A value goes in by `PUT`, comes out by `reveal` alone, and is
//! nowhere else: not in lists, events, audit rows or logs.
//!
//! Values lie in the host's encrypted secrets; beside each one a document holds what may be shown:
//! name, version, time.

#[cfg(test)]
mod tests;

use charter_sdk::{events, prelude::*, secrets};

/// The part of a secret that may be shown.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Entry {
    name: String,
}

const ENTRIES: Collection<Entry> = Collection::new("entries").unique(&["name"]);

/// A secret's name.
#[derive(Deserialize, JsonSchema)]
struct ByName {
    /// Letters, digits, `.`, `_` and `-`.
    #[schemars(length(min = 1, max = 128), regex(pattern = "^[A-Za-z0-9._-]+$"))]
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct NewSecret {
    /// At most 64 KiB of text; anything binary as base64.
    #[schemars(length(max = 65_536))]
    value: String,
}

/// A secret, without its value.
#[derive(Serialize, JsonSchema)]
struct Secret {
    name: String,
    /// 1 at first, one more each time it is set.
    version: u64,
    updated_at: Instant,
}

#[derive(Serialize, JsonSchema)]
struct SecretAnswer {
    secret: Secret,
}

#[derive(Serialize, JsonSchema)]
struct SecretList {
    secrets: Vec<Secret>,
    /// Whether there are more behind this page.
    has_more: bool,
}

#[derive(Serialize, JsonSchema)]
struct Revealed {
    name: String,
    value: String,
}

fn show(entry: Doc<Entry>) -> Secret {
    Secret { version: entry.version, updated_at: entry.updated_at, name: entry.body.name }
}

fn find(name: &str) -> Result<Option<Doc<Entry>>> {
    ENTRIES.lookup("name", name)
}

/// Bytes of a value.
const VALUE_BYTES_MAX: usize = 64 * 1024;

fn put_secret(
    Path(ByName { name }): Path<ByName>,
    Body(new): Body<NewSecret>,
) -> Result<SecretAnswer> {
    // The schema counts characters; what is kept is bytes.
    if new.value.len() > VALUE_BYTES_MAX {
        return Err(Failure::too_large("value", "a value has at most 64 KiB"));
    }
    secrets::put(&name, new.value.as_bytes())?;
    let entry = match find(&name)? {
        Some(entry) => ENTRIES.replace(entry.at(), entry.body)?,
        None => ENTRIES.insert(Entry { name })?,
    };
    Ok(SecretAnswer { secret: show(entry) })
}

fn list(Query(page): Query<Offset>) -> Result<SecretList> {
    let found = ENTRIES.all().page(page)?;
    Ok(SecretList {
        has_more: found.has_more,
        secrets: found.items.into_iter().map(show).collect(),
    })
}

fn reveal(Path(ByName { name }): Path<ByName>) -> Result<Revealed> {
    let entry = find(&name)?.or_not_found("secret")?;
    let value = secrets::get(&name)?.or_not_found("secret")?;
    events::audit("vault.reveal", "secret", &name, &json!({ "version": entry.version }))?;
    let value = String::from_utf8(value).map_err(|_| Failure::internal("the value is no text"))?;
    Ok(Revealed { name, value })
}

fn remove(Path(ByName { name }): Path<ByName>) -> Result<Done> {
    let entry = find(&name)?.or_not_found("secret")?;
    ENTRIES.remove(&entry.id)?;
    secrets::remove(&name)?;
    Ok(Done::new())
}

/// The primitive.
pub fn primitive() -> Primitive {
    Primitive::new("vault", env!("CARGO_PKG_VERSION"))
        .title("Vault")
        .summary("Secrets of a profile: encrypted at rest, listed by name, revealed under audit.")
        .uses("secrets")
        .uses("events")
        .collection(&ENTRIES)
        .operation(
            put("vault.put", "/vault/{name}", put_secret)
                .summary("Set a secret; each time makes a new version")
                .no_tool(),
        )
        .operation(get("vault.list", "/vault", list).summary("List the names of secrets"))
        .operation(
            post("vault.reveal", "/vault/{name}/reveal", reveal)
                .summary("Reveal a secret's value")
                .description("Each reveal is a row in the audit log, without the value.")
                .authority(Authority::ProfileSecret)
                .no_tool(),
        )
        .operation(delete("vault.delete", "/vault/{name}", remove).summary("Delete a secret"))
}

charter_sdk::export!(primitive);

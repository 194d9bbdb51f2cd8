//! `GET /v1/events`: what happens in the organization, as it happens.

use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use serde_json::{Value, json};

use crate::app::App;
use crate::events::Position;
use crate::pipeline::follow::Source;
use crate::reply::Reply;
use crate::request::HostRequest;

/// The header by which a reader resumes (WHATWG, Server-sent events).
const LAST_EVENT_ID: &str = "last-event-id";

/// The query.
pub fn query() -> Value {
    let after = json!({"type": "string", "pattern": "^[0-9]{1,20}$", "x-words": "must be the id of an event of this stream"});
    json!({"type": "object", "properties": {"after": after}, "additionalProperties": false})
}

/// The stream, from what `Last-Event-ID` or `after` names on, else from now on.
///
/// # Errors
/// 403 for a key that is pinned to a user, 400 for a position that is none.
pub async fn stream(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let organization = request.place()?.organization.id.as_str();
    let now = Position::now(&app.store, organization).await?;
    let header = request.headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    let (name, given) = match header {
        Some(text) => ("Last-Event-ID", Some(text)),
        None => ("after", request.query_text("after")),
    };
    let from = match given {
        None | Some("") => now,
        Some(text) => {
            let number = text
                .parse()
                .map_err(|_| Refusal::invalid(name, "must be the id of an event of this stream"))?;
            let position = Position::of(number);
            if position.event > now.event || position.audit > now.audit {
                return Err(Refusal::invalid(
                    name,
                    "names what has not happened: it is not an id of this stream",
                ));
            }
            position
        }
    };
    Ok(Reply::follow(Source::Events(organization.to_owned(), from)))
}

//! `GET /v1/events`: what happens in the organization, as it happens.

use charter_kernel::authority::Class;
use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use schemars::JsonSchema;
use serde::Deserialize;

use super::shape::Optional;
use crate::app::App;
use crate::events::{Position, Source};
use crate::handler;
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::Params;

/// The header by which a reader resumes (WHATWG, Server-sent events).
const LAST_EVENT_ID: &str = "last-event-id";
/// The rule of positions, in words.
const POSITION_WORDS: &str = "must be the id of an event of this stream";

/// The row of this route.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(
            Class::OrganizationRead,
            "events.stream",
            "/events",
            handler!(stream_events),
        )
        .summary("What happens in the organization, as it happens")
        .produces("text/event-stream"),
    ]
}

/// The query.
#[derive(Deserialize, JsonSchema)]
pub struct EventQuery {
    /// The id of the last event that the reader has.
    #[schemars(regex(pattern = "^[0-9]{1,20}$"), extend("x-words" = POSITION_WORDS))]
    after: Optional<String>,
}

/// The stream, from what `Last-Event-ID` or `after` names on, else from now on.
///
/// # Errors
/// 403 for a key that is pinned to a user, 400 for a position that is none.
pub async fn stream_events(
    app: &App,
    request: &HostRequest,
    _: &mut Txn,
    Params(asked): Params<EventQuery>,
) -> Result<Reply, Refusal> {
    let organization = request.place()?.organization().id.as_str();
    let now = Position::now(&app.store, organization).await?;
    let header = request.headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    let (name, given) = match header {
        Some(text) => ("Last-Event-ID", Some(text)),
        None => ("after", asked.after.0.as_deref()),
    };
    let from = match given {
        None | Some("") => now,
        Some(text) => {
            let number = text.parse().map_err(|_| Refusal::invalid(name, POSITION_WORDS))?;
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

//! The double of the outside world: what the test scripted, else nobody is there.

use super::state::with;
use crate::http::{Error, Request, Response};

pub(crate) fn send(request: &Request) -> Result<Response, Error> {
    let outside = with(|state| state.outside.clone());
    let response = outside.iter().find_map(|answer| answer(request));
    let response =
        response.ok_or_else(|| Error::Unreachable(format!("nothing answers {}", request.url)))?;
    if response.body.len() > request.body_bytes_max {
        return Err(Error::TooLarge);
    }
    Ok(response)
}

//! One request over `wasi:http`. Child resources are dropped before their parents, as the host
//! demands.

use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    Fields, FutureIncomingResponse, IncomingBody, Method, OutgoingBody, OutgoingRequest,
    RequestOptions, Scheme,
};
use wasip2::io::streams::{InputStream, StreamError};

use super::code::error;
use super::{Error, Request, Response};

/// Bytes that one `blocking-write-and-flush` takes at most.
const WRITE_BYTES_MAX: usize = 4_096;
/// Bytes that one read asks for.
const READ_BYTES: u64 = 64 * 1024;

pub(super) fn send(request: &Request) -> Result<Response, Error> {
    let outgoing = prepare(request)?;
    let options = RequestOptions::new();
    let timeout_ns = Some(u64::from(request.timeout_ms) * 1_000_000);
    // A host that cannot bound one of the three still has its own deadline.
    let _ = options.set_connect_timeout(timeout_ns);
    let _ = options.set_first_byte_timeout(timeout_ns);
    let _ = options.set_between_bytes_timeout(timeout_ns);
    let body = outgoing.body().map_err(|()| Error::BadUrl)?;
    let future = outgoing_handler::handle(outgoing, Some(options)).map_err(error)?;
    write(body, &request.body)?;
    receive(&future, request.body_bytes_max)
}

fn prepare(request: &Request) -> Result<OutgoingRequest, Error> {
    let (scheme, rest) = request.url.split_once("://").ok_or(Error::BadUrl)?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "https" => Scheme::Https,
        "http" => Scheme::Http,
        _ => return Err(Error::BadUrl),
    };
    let rest = rest.split('#').next().unwrap_or(rest);
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let headers: Vec<_> = request
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), value.clone().into_bytes()))
        .collect();
    let outgoing = OutgoingRequest::new(Fields::from_list(&headers).map_err(|_| Error::BadUrl)?);
    let method = match request.method.as_str() {
        "GET" => Method::Get,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "PATCH" => Method::Patch,
        "DELETE" => Method::Delete,
        other => Method::Other(other.into()),
    };
    outgoing.set_method(&method).map_err(|()| Error::BadUrl)?;
    outgoing.set_scheme(Some(&scheme)).map_err(|()| Error::BadUrl)?;
    outgoing.set_authority(Some(authority)).map_err(|()| Error::BadUrl)?;
    outgoing.set_path_with_query(Some(&path)).map_err(|()| Error::BadUrl)?;
    Ok(outgoing)
}

fn write(body: OutgoingBody, bytes: &[u8]) -> Result<(), Error> {
    if !bytes.is_empty() {
        let stream =
            body.write().map_err(|()| Error::Unreachable("the request has no body".into()))?;
        for chunk in bytes.chunks(WRITE_BYTES_MAX) {
            // A server that answers early closes its side; what it answered is read below.
            if stream.blocking_write_and_flush(chunk).is_err() {
                break;
            }
        }
    }
    // The same: an early answer makes finishing fail.
    let _ = OutgoingBody::finish(body, None);
    Ok(())
}

fn receive(future: &FutureIncomingResponse, bytes_max: usize) -> Result<Response, Error> {
    let response = loop {
        match future.get() {
            Some(Ok(outcome)) => break outcome.map_err(error)?,
            Some(Err(())) => {
                return Err(Error::Unreachable("the response was taken already".into()));
            }
            None => future.subscribe().block(),
        }
    };
    let text = |value: Vec<u8>| {
        String::from_utf8(value)
            .unwrap_or_else(|bytes| bytes.as_bytes().iter().map(|b| char::from(*b)).collect())
    };
    let headers = response.headers().entries().into_iter();
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), text(value))).collect();
    let status = response.status();
    let body =
        response.consume().map_err(|()| Error::Unreachable("the response has no body".into()))?;
    let bytes = read(
        &body.stream().map_err(|()| Error::Unreachable("the body was taken already".into()))?,
        bytes_max,
    )?;
    drop(IncomingBody::finish(body));
    Ok(Response { status, headers, body: bytes })
}

fn read(stream: &InputStream, bytes_max: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(READ_BYTES) {
            Ok(chunk) => bytes.extend_from_slice(&chunk),
            Err(StreamError::Closed) => return Ok(bytes),
            Err(StreamError::LastOperationFailed(failed)) => {
                let code = wasip2::http::types::http_error_code(&failed);
                return Err(code
                    .map_or_else(|| Error::Unreachable("the connection was lost".into()), error));
            }
        }
        if bytes.len() > bytes_max {
            return Err(Error::TooLarge);
        }
    }
}

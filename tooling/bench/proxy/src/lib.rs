//! The component that `wasmtime serve` runs beside Charter: the same bytes from a fresh instance,
//! and nothing else.

#[cfg(target_arch = "wasm32")]
mod proxy {
    use wasip2::http::types::{
        Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam,
    };

    struct Proxy;
    wasip2::http::proxy::export!(Proxy);

    impl wasip2::exports::http::incoming_handler::Guest for Proxy {
        #[expect(
            clippy::disallowed_methods,
            reason = "a guest's environment is how its body is handed in"
        )]
        fn handle(_: IncomingRequest, out: ResponseOutparam) {
            let body = std::env::var("BODY").unwrap_or_default();
            let headers = Fields::new();
            let _ = headers.append("content-type", b"application/json");
            let _ = headers.append("content-length", body.len().to_string().as_bytes());
            let response = OutgoingResponse::new(headers);
            let Ok(outgoing) = response.body() else { return };
            ResponseOutparam::set(out, Ok(response));
            if let Ok(stream) = outgoing.write() {
                let _ = stream.blocking_write_and_flush(body.as_bytes());
            }
            let _ = OutgoingBody::finish(outgoing, None);
        }
    }
}

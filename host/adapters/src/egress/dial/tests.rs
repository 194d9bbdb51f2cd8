//! Exchanges over HTTP/2 with a server that writes its frames by hand.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::*;

/// Bytes that the server sends at most.
const SENT_MAX: usize = 4 * AHEAD_BYTES_MAX;

/// A frame of stream 1 that holds a whole head (RFC 9113, section 6.2).
fn head(flags: u8, fields: &[u8]) -> Vec<u8> {
    let length = u32::try_from(fields.len()).unwrap().to_be_bytes();
    let stream = [0, 0, 0, 1];
    [&length[1..], &[1, flags], &stream[..], fields].concat()
}

/// An interim answer with four thousand bytes of hints: `:status: 103` and `x`, both as literals
/// (RFC 7541, section 6.2.2).
fn hints() -> Vec<u8> {
    let status = [0x08, 3, b'1', b'0', b'3'];
    let name = [0x00, 1, b'x', 0x7f, 0xa1, 0x1e];
    head(0x04, &[&status[..], &name, &[b'y'; 4_000]].concat())
}

/// Greets the client and reads what it sends up to its request.
async fn receive_request(stream: &mut DuplexStream) {
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    stream.read_exact(&mut [0; 24]).await.unwrap();
    loop {
        let mut frame = [0; 9];
        stream.read_exact(&mut frame).await.unwrap();
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
        if frame[3] == 1 {
            return;
        }
    }
}

async fn ask(stream: DuplexStream) -> Result<http::StatusCode, EgressError> {
    let body = Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync();
    let mut request = http::Request::new(body);
    *request.uri_mut() = "https://peer.test/".parse().unwrap();
    let answer = connect_http2(stream).await?.send(request).await?;
    Ok(answer.status())
}

#[tokio::test]
async fn interim_answers_over_http2_are_few_or_the_exchange_is_over() {
    let (near, mut far) = tokio::io::duplex(64 << 10);
    let server = tokio::spawn(async move {
        receive_request(&mut far).await;
        far.write_all(&hints().repeat(3)).await.unwrap();
        // `:status: 204`, and the end of the stream.
        far.write_all(&head(0x05, &[0x89])).await.unwrap();
        far
    });
    assert_eq!(ask(near).await.unwrap(), 204);
    drop(server.await.unwrap());

    let (near, mut far) = tokio::io::duplex(64 << 10);
    let server = tokio::spawn(async move {
        receive_request(&mut far).await;
        let (hints, mut sent) = (hints(), 0);
        while sent < SENT_MAX && far.write_all(&hints).await.is_ok() {
            sent += hints.len();
        }
        sent
    });
    let refused = ask(near).await;
    assert!(matches!(refused, Err(EgressError::Connection)), "{refused:?}");
    let sent = server.await.unwrap();
    assert!(sent < SENT_MAX, "{sent} bytes were listened to");
}

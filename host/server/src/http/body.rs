//! Bodies: what the pipeline answers with, and the bounded reading of what a client sends.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use crate::bounds::room::Hold;
use crate::bounds::{self, memory::Full};

/// The most of a held answer that is handed on at once: as it is read, so much less is unread.
const PIECE_BYTES: usize = 64 << 10;

/// An answer's body: whole, or written piece by piece through a bounded channel.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Whole(Bytes),
    Held(Bytes, Arc<Hold>),
    Pieces(mpsc::Receiver<Bytes>),
}

impl Body {
    /// No bytes.
    pub fn empty() -> Self {
        Self(Kind::Whole(Bytes::new()))
    }
    /// These bytes.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self(Kind::Whole(bytes.into()))
    }
    /// These bytes, which take up their room until they are read.
    pub fn with_hold(bytes: Bytes, hold: Hold) -> Self {
        let hold = Arc::new(hold);
        Self(Kind::Held(bounds::keep(bytes, hold.clone()), hold))
    }
    /// A body of the pieces that arrive on the channel, until it closes.
    pub fn pieces(channel: mpsc::Receiver<Bytes>) -> Self {
        Self(Kind::Pieces(channel))
    }
    /// The bytes of a whole body; `None` for one that is still being written.
    pub fn as_whole(&self) -> Option<&Bytes> {
        match &self.0 {
            Kind::Whole(bytes) | Kind::Held(bytes, _) => Some(bytes),
            Kind::Pieces(_) => None,
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Kind::Whole(bytes) | Kind::Held(bytes, _) if bytes.is_empty() => Poll::Ready(None),
            Kind::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Held(bytes, hold) => {
                // hyper asks for a piece once the client has taken those before.
                let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
                hold.advance(piece.len());
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Kind::Pieces(channel) => {
                channel.poll_recv(cx).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }
    fn is_end_stream(&self) -> bool {
        self.as_whole().is_some_and(Bytes::is_empty)
    }
    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) | Kind::Held(bytes, _) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Pieces(_) => SizeHint::default(),
        }
    }
}

/// Why a request's body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// More bytes than allowed.
    TooLarge,
    /// Not all of it came in time.
    TooSlow,
    /// The client broke off, or sent what is no HTTP body.
    Broken,
    /// There is no room for it now.
    NoRoom(Full),
    /// It was slow, and has given way to others.
    GaveWay,
}

/// Bytes of a body after which others come before more of it: to take in so many is quick.
const TURN_BYTES: usize = 64 << 10;

/// Reads a whole body: at most `size_max` bytes, within `time_max`, where `hold` has room for it.
///
/// # Errors
/// See [`Unread`].
pub async fn read<B>(
    mut body: B,
    size_max: usize,
    time_max: Duration,
    hold: Option<&Hold>,
) -> Result<Bytes, Unread>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let declared = body.size_hint().lower();
    if declared > size_max as u64 {
        if declared <= 2 * size_max as u64 {
            // A client that is still writing may not hear the answer: a body that is not much too
            // long is let finish, and thrown away.
            let finish = async { while let Some(Ok(_)) = body.frame().await {} };
            let _ = tokio::time::timeout(time_max, finish).await;
        }
        return Err(Unread::TooLarge);
    }
    let reading = async {
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        let mut since_turn = 0;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
            if first.len() + rest.len() + data.len() > size_max {
                return Err(Unread::TooLarge);
            }
            if let Some(hold) = hold {
                hold.grow(data.len()).map_err(Unread::NoRoom)?;
                since_turn += data.len();
                if since_turn >= TURN_BYTES {
                    since_turn = 0;
                    hold.take_turn().await;
                }
            }
            if first.is_empty() && rest.is_empty() {
                first = data;
            } else {
                if rest.is_empty() {
                    rest.extend_from_slice(&std::mem::take(&mut first));
                }
                rest.extend_from_slice(&data);
            }
        }
        Ok(if rest.is_empty() { first } else { rest.freeze() })
    };
    let reading = tokio::time::timeout(time_max, reading);
    let read = match hold {
        Some(hold) => hold.giving_way(reading).await.ok_or(Unread::GaveWay)?,
        None => reading.await,
    };
    read.unwrap_or(Err(Unread::TooSlow))
}

#[cfg(test)]
mod tests {
    use http_body_util::{Channel, Full};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_body_is_read_whole_up_to_its_limit() {
        assert_eq!(
            read(Full::new(Bytes::from_static(b"12345")), 5, LONG, None).await,
            Ok(Bytes::from_static(b"12345"))
        );
        assert_eq!(
            read(Full::new(Bytes::from_static(b"123456")), 5, LONG, None).await,
            Err(Unread::TooLarge)
        );
        assert_eq!(read(Full::<Bytes>::default(), 0, LONG, None).await, Ok(Bytes::new()));
    }

    #[tokio::test]
    async fn pieces_are_joined_and_counted_without_a_declared_length() {
        let (mut sender, body) = Channel::<Bytes, Infallible>::new(4);
        for piece in ["ab", "cd", "ef"] {
            sender.send_data(Bytes::from_static(piece.as_bytes())).await.unwrap();
        }
        drop(sender);
        assert_eq!(read(body, 6, LONG, None).await, Ok(Bytes::from_static(b"abcdef")));
        let (mut sender, body) = Channel::<Bytes, Infallible>::new(4);
        for piece in ["abc", "def"] {
            sender.send_data(Bytes::from_static(piece.as_bytes())).await.unwrap();
        }
        assert_eq!(read(body, 5, LONG, None).await, Err(Unread::TooLarge));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_is_given_up() {
        let (_sender, body) = Channel::<Bytes, Infallible>::new(1);
        assert_eq!(read(body, 5, LONG, None).await, Err(Unread::TooSlow));
    }
}

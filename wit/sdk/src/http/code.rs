//! The error codes of `wasi:http` in plain words: what a caller reads says what happened, and
//! nothing of how it is coded.

use wasip2::http::types::ErrorCode;

use super::Error;

/// The error that a code means to the asking primitive.
pub(super) fn error(code: ErrorCode) -> Error {
    let why = match code {
        ErrorCode::HttpRequestUriInvalid | ErrorCode::HttpRequestUriTooLong => {
            return Error::BadUrl;
        }
        ErrorCode::HttpRequestDenied => {
            return Error::Denied("the host refuses this request".into());
        }
        ErrorCode::DestinationIpProhibited | ErrorCode::DestinationIpUnroutable => {
            return Error::Denied("the address is not a public one".into());
        }
        // The one code that has room for words: the host says here why it does not let the request
        // out.
        ErrorCode::InternalError(Some(why)) => return Error::Denied(why),
        ErrorCode::DnsTimeout
        | ErrorCode::ConnectionTimeout
        | ErrorCode::ConnectionReadTimeout
        | ErrorCode::ConnectionWriteTimeout
        | ErrorCode::HttpResponseTimeout => return Error::Timeout,
        ErrorCode::HttpResponseBodySize(_) => return Error::TooLarge,
        ErrorCode::DnsError(_) => "the name was not found",
        ErrorCode::DestinationNotFound => "nobody is at this address",
        ErrorCode::DestinationUnavailable => "the server is not available",
        ErrorCode::ConnectionRefused => "the connection was refused",
        ErrorCode::ConnectionTerminated => "the connection was refused or lost",
        ErrorCode::ConnectionLimitReached => "too many connections are open at once",
        ErrorCode::TlsProtocolError | ErrorCode::TlsAlertReceived(_) => {
            "no secure connection could be made (TLS)"
        }
        ErrorCode::TlsCertificateError => "the server's certificate is not valid",
        ErrorCode::HttpRequestLengthRequired => {
            "the server wants to know the request's length first"
        }
        ErrorCode::HttpRequestBodySize(_) => "the request is larger than admitted",
        ErrorCode::HttpRequestMethodInvalid => "the request's method is not admitted",
        ErrorCode::HttpRequestHeaderSectionSize(_)
        | ErrorCode::HttpRequestHeaderSize(_)
        | ErrorCode::HttpRequestTrailerSectionSize(_)
        | ErrorCode::HttpRequestTrailerSize(_) => "the request's headers are larger than admitted",
        ErrorCode::HttpResponseIncomplete => "the answer broke off",
        ErrorCode::HttpResponseHeaderSectionSize(_)
        | ErrorCode::HttpResponseHeaderSize(_)
        | ErrorCode::HttpResponseTrailerSectionSize(_)
        | ErrorCode::HttpResponseTrailerSize(_) => "the answer's headers are larger than admitted",
        ErrorCode::HttpResponseTransferCoding(_) | ErrorCode::HttpResponseContentCoding(_) => {
            "the answer is encoded in a way that cannot be read"
        }
        ErrorCode::HttpUpgradeFailed | ErrorCode::HttpProtocolError => {
            "the server does not speak proper HTTP"
        }
        ErrorCode::LoopDetected => "the request goes round in a circle",
        ErrorCode::ConfigurationError => "the host is not set up for this request",
        ErrorCode::InternalError(None) => "the host could not send the request",
    };
    Error::Unreachable(why.into())
}

#[cfg(test)]
mod tests {
    use wasip2::http::types::{DnsErrorPayload, FieldSizePayload, TlsAlertReceivedPayload};

    use super::*;
    use crate::failure::Failure;

    #[test]
    fn every_code_reads_as_a_plain_sentence() {
        let dns = || DnsErrorPayload { rcode: Some("not found".into()), info_code: None };
        let alert = || TlsAlertReceivedPayload {
            alert_id: Some(40),
            alert_message: Some("handshake_failure".into()),
        };
        let field =
            || FieldSizePayload { field_name: Some("set-cookie".into()), field_size: Some(70_000) };
        let late = "no answer in time";
        for (code, said) in [
            (ErrorCode::DnsTimeout, late),
            (ErrorCode::DnsError(dns()), "no answer: the name was not found"),
            (ErrorCode::ConnectionRefused, "no answer: the connection was refused"),
            (ErrorCode::ConnectionTerminated, "no answer: the connection was refused or lost"),
            (ErrorCode::ConnectionTimeout, late),
            (ErrorCode::ConnectionWriteTimeout, late),
            (ErrorCode::HttpResponseTimeout, late),
            (ErrorCode::ConnectionLimitReached, "no answer: too many connections are open at once"),
            (ErrorCode::TlsProtocolError, "no answer: no secure connection could be made (TLS)"),
            (
                ErrorCode::TlsAlertReceived(alert()),
                "no answer: no secure connection could be made (TLS)",
            ),
            (ErrorCode::TlsCertificateError, "no answer: the server's certificate is not valid"),
            (ErrorCode::HttpResponseBodySize(Some(9)), "the answer is larger than admitted"),
            (
                ErrorCode::HttpResponseHeaderSize(field()),
                "no answer: the answer's headers are larger than admitted",
            ),
            (
                ErrorCode::HttpResponseContentCoding(Some("br".into())),
                "no answer: the answer is encoded in a way that cannot be read",
            ),
            (ErrorCode::HttpProtocolError, "no answer: the server does not speak proper HTTP"),
            (ErrorCode::HttpRequestUriInvalid, "the URL cannot be requested"),
            (ErrorCode::InternalError(None), "no answer: the host could not send the request"),
            (
                ErrorCode::InternalError(Some("because".into())),
                "the request is not let out: because",
            ),
        ] {
            let failure = Failure::from(error(code));
            assert_eq!(failure.message(), said);
            assert_eq!(
                failure.code(),
                if said == late { "deadline_exceeded" } else { "provider_error" }
            );
        }
    }
}

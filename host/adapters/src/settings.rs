//! The operator's settings of the world outside.

use charter_tenancy::secret::Secret;
use ipnet::IpNet;
use serde_json::Value;

/// The adapters' settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The addresses that outbound requests may reach beyond the public internet, and the limits of
    /// those requests.
    pub egress: Egress,
    /// The settings of the host's own mail.
    pub mail: Mail,
    /// The address that clients use, where the operator says so.
    pub public_url: Option<String>,
    /// Whether the host's own listener speaks TLS.
    pub tls: bool,
}

/// `[egress]`
#[derive(Clone, Debug)]
pub struct Egress {
    /// Ranges that are reachable although they are private or special.
    pub allow: Vec<IpNet>,
    /// Time to connect.
    pub connect_timeout_ms: u64,
    /// Time of one whole exchange.
    pub timeout_ms: u64,
    /// Bytes of one answer.
    pub response_bytes_max: u64,
    /// Outbound requests at once of one organization.
    pub tenant_connections_max: u32,
}

/// `[providers.<name>]`: one binding.
#[derive(Clone, Debug)]
pub struct Provider {
    /// The protocol it speaks.
    pub kind: String,
    /// Its address; requests stay at its origin and below its path.
    pub url: String,
    /// The credential that the host adds to each request.
    pub credential: Option<Secret>,
    /// The secret that signs the provider's own calls.
    pub webhook_secret: Option<Secret>,
    /// The secret that signed them before, while it is rotated.
    pub webhook_secret_previous: Option<Secret>,
    /// Further members that the protocol asks for, a table.
    pub options: Value,
}

/// `[mail]`
#[derive(Clone, Debug)]
pub struct Mail {
    /// Domains whose mail this deployment itself receives, in their ASCII form; their sub-domains
    /// are meant too.
    pub hosted_domains: Vec<String>,
    /// Mails that one organization causes in an hour.
    pub organization_per_hour: u32,
    /// Mails that organizations send to one address in an hour, and beside them as many that are asked for
    /// at the address.
    pub recipient_per_hour: u32,
}

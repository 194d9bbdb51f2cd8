//! The host's own mail: its limits, and the addresses to which no link ever goes.

use charter_adapters::mail::domains;
use charter_adapters::settings::Mail;

use super::source::Section;

/// `[mail]`
pub(super) fn read(mut of: Section<'_>) -> Mail {
    let domains: Vec<String> = of.take(
        "hosted_domains",
        Vec::new(),
        "domains, sub-domains included, whose mail this deployment receives: no link is mailed there, since an agent could read it",
    );
    let mut hosted_domains = Vec::new();
    for domain in domains {
        match domains::ascii(&domain) {
            Some(domain) => hosted_domains.push(domain),
            None => of.fault(
                "hosted_domains",
                format!("holds {domain:?}, which is no domain such as mail.example.com"),
            ),
        }
    }
    let told = "mails that one organization causes in an hour; further approvals are told of in one summary to each person";
    Mail {
        hosted_domains,
        organization_per_hour: of.within("organization_per_hour", 100, (1, 100_000), told),
        recipient_per_hour: of.within(
            "recipient_per_hour",
            30,
            (1, 10_000),
            "mails that organizations send to one address in an hour, and beside them as many links that are asked for there",
        ),
    }
}

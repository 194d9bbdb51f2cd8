//! A provider, or a part of the public web, that answers what it was told: a page for each path, on
//! loopback.

use std::net::SocketAddr;

use crate::double::{self, Heard, Reply};

/// The answer of one path.
#[derive(Clone, Debug)]
pub struct Page {
    /// `GET`, or absent for any method.
    pub method: Option<String>,
    /// The path, without the query.
    pub path: String,
    /// The body.
    pub reply: Reply,
}

impl Page {
    fn fits(&self, heard: &Heard) -> bool {
        let path = heard.target.split('?').next().unwrap_or_default();
        self.path == path && self.method.as_ref().is_none_or(|wanted| *wanted == heard.method)
    }
}

/// Serves the pages until the process ends, and 404 elsewhere; answers where.
pub fn serve(pages: Vec<Page>) -> SocketAddr {
    double::listen(move |heard| {
        let page = pages.iter().find(|page| page.fits(&heard));
        page.map_or(Reply { status: 404, headers: Vec::new(), body: Vec::new() }, |page| {
            page.reply.clone()
        })
    })
}

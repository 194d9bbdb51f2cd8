//! The host's own routes, which no primitive serves.

use std::sync::Arc;

use charter_kernel::manifest::Mount;
use charter_kernel::route::Template;

use super::template_at;

/// The routes of the host as clients see them: method and template. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Reserved(Arc<[(&'static str, Template)]>);

impl Reserved {
    /// The host's routes, each at each of its mounts. A path that is no template reserves nothing.
    pub fn new(routes: impl IntoIterator<Item = (&'static str, Mount, &'static str)>) -> Self {
        let seen = routes.into_iter().filter_map(|(method, mount, path)| {
            Some((method, Template::parse(&template_at(mount, path)).ok()?))
        });
        Self(seen.collect())
    }

    /// The host's route that serves what this one would, if any. Compared as clients see them: a
    /// primitive's route below `/v1/users/{user_id}` can meet a host's that is written so.
    pub(super) fn overlapping(
        &self,
        mount: Mount,
        method: &str,
        template: &Template,
    ) -> Option<String> {
        let seen = Template::parse(&template_at(mount, &template.to_string())).ok()?;
        let mut same = self.0.iter().filter(|(known, _)| *known == method);
        same.find(|(_, host)| host.overlaps(&seen)).map(|(_, host)| host.to_string())
    }
}

//! Names of lease groups: whose rows fall due in one, and of which kind. Workers take rows of each
//! organization in turn by them.

/// Between the organization and the kind.
const SLASH: char = '/';

/// The group of an organization's rows of a kind; work of the deployment's own has an empty name.
pub fn group(organization: &str, kind: &str) -> String {
    groups_of(organization) + kind
}

/// The prefix of all groups of an organization.
pub fn groups_of(organization: &str) -> String {
    format!("{organization}{SLASH}")
}

/// The organization of a group, and the kind of its rows. A name without an organization, such as
/// earlier builds have written, is one for each kind, whoever's rows it holds.
pub fn organization_and_kind(group: &str) -> (&str, &str) {
    group.split_once(SLASH).unwrap_or((group, group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_says_whose_rows_it_holds_and_of_which_kind() {
        assert_eq!(organization_and_kind(&group("org-1", "shelf")), ("org-1", "shelf"));
        assert_eq!(organization_and_kind(&group("", "shelf")), ("", "shelf"));
        // Of rows that an earlier build has written.
        assert_eq!(organization_and_kind("shelf"), ("shelf", "shelf"));
        assert!("org-1/shelf".starts_with(&groups_of("org-1")));
        assert!(!"org-10/shelf".starts_with(&groups_of("org-1")));
    }
}

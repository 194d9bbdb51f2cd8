//! Each way of naming a project and a user, under each pin of a credential: where it leads, or how
//! it is refused.

use charter_kernel::id::OrganizationId;
use charter_kernel::role::Role;
use charter_kernel::scope::{Principal, Subject};
use charter_tenancy::place::Named;

use crate::bed::{Bed, House, principal, random, short};

/// The place of a request, in the house's own words, and how much of it the request is about.
async fn placed(bed: &Bed, house: &House, asks: &Principal, named: Named<'_>) -> String {
    let organization = &house.organization.id;
    match bed.directory.place(asks.clone(), organization, named).await {
        Err(refusal) => short(&refusal),
        Ok(place) => {
            let estate = if place.project().id == house.main.project.id { "main" } else { "side" };
            let user = match (place.scope().user(), [&house.main, &house.side]) {
                (None, _) => "nobody",
                (Some(id), estates) if estates.iter().any(|at| at.own.id == *id) => "own",
                (Some(_), _) => "agent",
            };
            assert_eq!(place.scope().organization(), Some(organization));
            assert_eq!(place.scope().project(), Some(&place.project().id));
            assert_eq!(place.scope().user(), place.user().map(|user| &user.id));
            assert_eq!(place.scope().principal(), asks, "no way of naming changes who asks");
            let (subject, level) = (place.scope().subject().as_str(), place.scope().level());
            format!("{estate} {user} by {subject}: {level:?}")
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_pin_a_request_is_about_what_it_names_and_no_more() {
    let bed = Bed::new().await;
    let (house, other) = (bed.house().await, bed.house().await);
    let wide = principal(Role::Admin, None, None);
    let (main, side) = (house.main.project.id.as_str(), house.side.project.id.as_str());
    let (agent, aside) = (house.main.agent.id.as_str(), house.side.agent.id.as_str());
    let foreign = (other.main.project.id.as_str(), other.main.agent.id.as_str());
    let nowhere = OrganizationId::new(bed.now(), random()).into_string();
    for (project, user, wanted) in [
        (None, None, "main own by default: Organization"),
        (Some(main), None, "main own by default: Project"),
        (Some(side), None, "side own by default: Project"),
        (None, Some("me"), "main own by path: User"),
        (None, Some("default"), "main own by path: User"),
        (Some(side), Some("default"), "side own by path: User"),
        (None, Some(agent), "main agent by path: User"),
        (Some(main), Some(agent), "main agent by path: User"),
        (Some(side), Some(aside), "side agent by path: User"),
        // A user is found in the project alone that was resolved.
        (None, Some(aside), "NotFound"),
        (Some(side), Some(agent), "NotFound"),
        // Another organization's ids, ids of nothing, and no ids at all read the same.
        (Some(foreign.0), None, "NotFound"),
        (Some(foreign.0), Some(foreign.1), "NotFound"),
        (None, Some(foreign.1), "NotFound"),
        (Some(nowhere.as_str()), None, "NotFound"),
        (None, Some(nowhere.as_str()), "NotFound"),
        (Some("main"), None, "NotFound"),
        (None, Some("agent"), "NotFound"),
        (None, Some(""), "NotFound"),
    ] {
        let named = Named { project, user: user.map(|user| (user, Subject::Path)) };
        assert_eq!(placed(&bed, &house, &wide, named).await, wanted, "{project:?} {user:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_one_project_is_refused_the_others_and_sees_no_foreign_ones() {
    let bed = Bed::new().await;
    let (house, other) = (bed.house().await, bed.house().await);
    let pinned = principal(Role::Developer, Some(&house.side.project), None);
    let (main, side) = (house.main.project.id.as_str(), house.side.project.id.as_str());
    let (agent, aside) = (house.main.agent.id.as_str(), house.side.agent.id.as_str());
    for (project, user, wanted) in [
        (None, None, "side own by default: Project"),
        (Some(side), None, "side own by default: Project"),
        (None, Some("me"), "side own by path: User"),
        (None, Some(aside), "side agent by path: User"),
        (None, Some(agent), "NotFound"),
        (Some(main), None, "Forbidden key_project_mismatch"),
        (Some(main), Some(agent), "Forbidden key_project_mismatch"),
        // Another organization has no projects, as far as anybody can tell.
        (Some(other.main.project.id.as_str()), None, "NotFound"),
        (Some("side"), None, "NotFound"),
    ] {
        let named = Named { project, user: user.map(|user| (user, Subject::Path)) };
        assert_eq!(placed(&bed, &house, &pinned, named).await, wanted, "{project:?} {user:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_one_user_is_about_that_user_however_it_names_anybody() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let main = &house.main;
    let by_user = principal(Role::Developer, None, Some(&main.agent));
    let by_both = principal(Role::Developer, Some(&main.project), Some(&main.agent));
    let (own, agent) = (main.own.id.as_str(), main.agent.id.as_str());
    let itself = "main agent by credential: User";
    for asks in [&by_user, &by_both] {
        for subject in [Subject::Path, Subject::Header] {
            for (user, wanted) in [
                (None, itself),
                (Some("me"), itself),
                (Some("default"), itself),
                (Some(agent), itself),
                (Some(own), "NotFound"),
                (Some(house.side.agent.id.as_str()), "NotFound"),
            ] {
                let named = Named { project: None, user: user.map(|user| (user, subject)) };
                assert_eq!(placed(&bed, &house, asks, named).await, wanted, "{user:?}");
                let project = Some(main.project.id.as_str());
                let named = Named { project, ..named };
                assert_eq!(placed(&bed, &house, asks, named).await, wanted, "{user:?}");
            }
        }
    }
    let side = Named { project: Some(house.side.project.id.as_str()), user: None };
    assert_eq!(placed(&bed, &house, &by_user, side).await, "NotFound");
    assert_eq!(placed(&bed, &house, &by_both, side).await, "Forbidden key_project_mismatch");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_may_be_written_in_capitals() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let pinned = principal(Role::Developer, Some(&house.main.project), Some(&house.main.agent));
    let user = house.main.agent.id.as_str().to_uppercase();
    let project = house.main.project.id.as_str().to_uppercase();
    let named = Named { project: Some(&project), user: Some((&user, Subject::Path)) };
    assert_eq!(placed(&bed, &house, &pinned, named).await, "main agent by credential: User");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_whose_default_profile_is_gone_has_nobody_to_act_for() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    bed.remove(&charter_tenancy::records::Record::key(&house.main.own)).await;
    let wide = principal(Role::Admin, None, None);
    let none = placed(&bed, &house, &wide, Named::default()).await;
    assert_eq!(none, "main nobody by none: Organization");
    let named = Named { project: None, user: Some(("default", Subject::Path)) };
    assert_eq!(placed(&bed, &house, &wide, named).await, "NotFound");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_user_who_is_gone_leaves_the_key_nobody() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let pinned = principal(Role::Developer, None, Some(&house.main.agent));
    bed.remove(&charter_tenancy::records::Record::key(&house.main.agent)).await;
    for user in [None, Some(("me", Subject::Path)), Some(("default", Subject::Header))] {
        let named = Named { project: None, user };
        assert_eq!(placed(&bed, &house, &pinned, named).await, "NotFound", "{user:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_of_an_organization_that_is_gone_is_no_credential() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    bed.remove(&charter_tenancy::records::Record::key(&house.organization)).await;
    let wide = principal(Role::Owner, None, None);
    assert_eq!(placed(&bed, &house, &wide, Named::default()).await, "Unauthorized");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_test_project_makes_a_test_of_a_request() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    for (estate, test) in [(&house.main, false), (&house.side, true)] {
        let named = Named { project: Some(estate.project.id.as_str()), user: None };
        let wide = principal(Role::Admin, None, None);
        let place = bed.directory.place(wide, &house.organization.id, named).await.unwrap();
        assert_eq!(place.scope().is_test(), test);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_profile_is_still_placed_and_says_that_it_is_revoked() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    bed.revoke_user(&house.main.agent).await;
    let named = Named { project: None, user: Some((house.main.agent.id.as_str(), Subject::Path)) };
    let wide = principal(Role::Admin, None, None);
    let place = bed.directory.place(wide, &house.organization.id, named).await.unwrap();
    assert!(!place.user().unwrap().active, "reads still answer, so the caller has to ask");
    assert_eq!(short(&charter_tenancy::directory::profile_revoked()), "Forbidden profile_revoked");
}

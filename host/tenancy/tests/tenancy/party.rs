//! The owner of work that runs later: as much of a place as its record names, or what is gone.

use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, Level, Naming, Principal, Subject};
use charter_tenancy::place::{Owner, Party, Unplaced};
use charter_tenancy::records::Record as _;

use crate::bed::{Bed, principal};

fn worker() -> Principal {
    Principal::of(Actor::system("job"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_party_is_as_much_of_a_place_as_its_owner_names() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (organization, project) = (house.organization.id.as_str(), house.side.project.id.as_str());
    let agent = house.side.agent.id.as_str();
    for (owner, named) in [
        (Owner { organization: "", project: "", user: None }, 0),
        (Owner { organization, project: "", user: None }, 1),
        (Owner { organization, project, user: None }, 2),
        (Owner { organization, project, user: Some(agent) }, 3),
        // A holder of a name is known by its user alone; the project is looked for.
        (Owner { organization, project: "", user: Some(agent) }, 3),
    ] {
        let party = bed.directory.party(worker(), owner).await.unwrap();
        let scope = party.scope();
        assert_eq!(scope.organization().is_some(), named >= 1, "{owner:?}");
        assert_eq!(scope.project().is_some(), named >= 2, "{owner:?}");
        assert_eq!(scope.user().is_some(), named >= 3, "{owner:?}");
        assert_eq!(party.organization().is_some(), named >= 1, "{owner:?}");
        assert_eq!(party.project().map(|found| found.id.to_string()), {
            (named >= 2).then(|| project.to_owned())
        });
        assert_eq!(party.user().map(|found| found.id.to_string()), {
            (named >= 3).then(|| agent.to_owned())
        });
        assert_eq!(party.kit().is_some(), named >= 2, "{owner:?}");
        assert_eq!(scope.is_test(), named >= 2, "{owner:?}");
        let level = if named == 3 { Level::User } else { Level::Organization };
        assert_eq!(scope.level(), level, "{owner:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_made_again_names_whom_it_named() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let owner = Owner {
        organization: house.organization.id.as_str(),
        project: house.main.project.id.as_str(),
        user: Some(house.main.own.id.as_str()),
    };
    let free = principal(Role::Developer, None, None);
    for (project, user, level) in [
        (false, Subject::Default, Level::Organization),
        (true, Subject::Default, Level::Project),
        (false, Subject::Header, Level::User),
        (true, Subject::Path, Level::User),
    ] {
        let naming = Naming { project, user };
        let party = bed.directory.party_of_request(free.clone(), owner, naming).await.unwrap();
        assert_eq!((party.scope().level(), party.scope().naming()), (level, naming));
        assert_eq!(party.scope().user(), Some(&house.main.own.id), "{naming:?}");
    }
    // Pins count whatever is said to have been named.
    let pinned = principal(Role::Developer, None, Some(&house.main.own));
    let naming = Naming { project: false, user: Subject::Default };
    let party = bed.directory.party_of_request(pinned, owner, naming).await.unwrap();
    assert_eq!(party.scope().level(), Level::User);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_whose_owner_is_gone_or_anothers_has_no_party() {
    let bed = Bed::new().await;
    let (house, other) = (bed.house().await, bed.house().await);
    let (organization, project) = (house.organization.id.as_str(), house.main.project.id.as_str());
    let (agent, aside) = (house.main.agent.id.as_str(), house.side.agent.id.as_str());
    let foreign = (other.main.project.id.as_str(), other.main.agent.id.as_str());
    let gone = Unplaced::Gone;
    for (owner, wanted) in [
        (Owner { organization: "x", project, user: None }, gone("organization")),
        (Owner { organization: project, project, user: None }, gone("organization")),
        (Owner { organization: "", project, user: None }, gone("organization")),
        (Owner { organization: "", project: "", user: Some(agent) }, gone("organization")),
        (Owner { organization, project: foreign.0, user: None }, gone("project")),
        (Owner { organization, project: foreign.0, user: Some(foreign.1) }, gone("project")),
        (Owner { organization, project: "", user: Some(foreign.1) }, gone("project")),
        (Owner { organization, project, user: Some(aside) }, gone("user")),
        (Owner { organization, project, user: Some(foreign.1) }, gone("user")),
        (Owner { organization, project, user: Some("me") }, gone("user")),
    ] {
        let party = bed.directory.party(worker(), owner).await;
        assert_eq!(party.map(Party::into_scope).unwrap_err(), wanted, "{owner:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_record_that_goes_takes_the_party_with_it() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (organization, project) = (house.organization.id.as_str(), house.main.project.id.as_str());
    let owner = Owner { organization, project, user: Some(house.main.agent.id.as_str()) };
    assert!(bed.directory.party(worker(), owner).await.is_ok());
    for (key, what) in [
        (house.main.agent.key(), "user"),
        (house.main.project.key(), "project"),
        (house.organization.key(), "organization"),
    ] {
        bed.remove(&key).await;
        let party = bed.directory.party(worker(), owner).await;
        assert_eq!(party.map(Party::into_scope).unwrap_err(), Unplaced::Gone(what));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_user_is_a_party_that_is_not_active() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    bed.revoke_user(&house.main.agent).await;
    let owner = Owner {
        organization: house.organization.id.as_str(),
        project: house.main.project.id.as_str(),
        user: Some(house.main.agent.id.as_str()),
    };
    let party = bed.directory.party(worker(), owner).await.unwrap();
    assert!(!party.user().unwrap().active);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_users_project_is_found_behind_many_others() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    // More projects than one look reads, all made after the user's own.
    for _ in 0..120 {
        let project = charter_tenancy::records::project::Project {
            id: charter_kernel::id::ProjectId::new(bed.now(), crate::bed::random()),
            ..house.side.project.clone()
        };
        bed.put(&project).await;
    }
    let late = charter_tenancy::records::project::Project {
        id: charter_kernel::id::ProjectId::new(bed.now().plus_ms(9), crate::bed::random()),
        ..house.side.project.clone()
    };
    bed.put(&late).await;
    let user = charter_tenancy::records::user::User {
        project: late.id.clone(),
        id: charter_kernel::id::UserId::new(bed.now(), crate::bed::random()),
        ..house.side.agent.clone()
    };
    bed.put(&user).await;
    let organization = house.organization.id.as_str();
    let owner = Owner { organization, project: "", user: Some(user.id.as_str()) };
    let party = bed.directory.party(worker(), owner).await.unwrap();
    assert_eq!(party.project().unwrap().id, late.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_word_about_a_deleted_user_names_it_without_a_record() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let owner = Owner {
        organization: house.organization.id.as_str(),
        project: house.main.project.id.as_str(),
        user: Some(house.main.agent.id.as_str()),
    };
    bed.remove(&house.main.agent.key()).await;
    bed.remove(&house.main.project.key()).await;
    for test in [false, true] {
        let asks = principal(Role::Developer, None, None);
        let party = bed.directory.party_of_deleted(asks.clone(), owner, test).await.unwrap();
        assert_eq!(party.scope().user(), Some(&house.main.agent.id));
        assert_eq!(party.scope().project(), Some(&house.main.project.id));
        assert_eq!(party.scope().is_test(), test);
        assert_eq!(party.scope().principal(), &asks);
        assert!(party.user().is_none() && party.kit().is_none());
    }
    for (broken, what) in [
        (Owner { user: None, ..owner }, "user"),
        (Owner { user: Some("me"), ..owner }, "user"),
        (Owner { project: "", ..owner }, "project"),
        (Owner { organization: "x", ..owner }, "organization"),
    ] {
        let party = bed.directory.party_of_deleted(worker(), broken, false).await;
        let told = party.map(Party::into_scope).unwrap_err();
        assert_eq!(told, Unplaced::Gone(what), "{broken:?}");
    }
    bed.remove(&house.organization.key()).await;
    let party = bed.directory.party_of_deleted(worker(), owner, false).await;
    assert_eq!(party.map(Party::into_scope).unwrap_err(), Unplaced::Gone("organization"));
}

//! The records of a scope that was proven before, read again; and the same principal about another
//! user.

use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, Principal, Subject};
use charter_tenancy::place::{Named, of_deployment};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::organization::{Loosening, Organization};

use crate::bed::{Bed, House, principal, short};

async fn agents_place(bed: &Bed, house: &House, asks: Principal) -> charter_tenancy::place::Place {
    let named = Named { project: None, user: Some((house.main.agent.id.as_str(), Subject::Path)) };
    bed.directory.place(asks, &house.organization.id, named).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_read_again_has_the_same_scope_and_the_records_of_now() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let before = agents_place(&bed, &house, principal(Role::Developer, None, None)).await;
    bed.revoke_user(&house.main.agent).await;
    let after = bed.directory.place_again(before.scope()).await.unwrap();
    assert_eq!(after.scope(), before.scope());
    assert!(before.user().unwrap().active && !after.user().unwrap().active);
    assert_eq!(after.kit().unwrap().id, house.main.kit.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_read_again_asks_for_a_session_where_the_organization_does_or_did() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let before = agents_place(&bed, &house, principal(Role::Admin, None, None)).await;
    assert!(before.may_loosen().is_ok());
    let rule = async |loosening| {
        bed.put(&Organization { loosening, ..house.organization.clone() }).await;
    };
    rule(Loosening::Session).await;
    let cut = bed.directory.place_again(before.scope()).await.unwrap();
    assert_eq!(short(&cut.may_loosen().unwrap_err()), "Forbidden loosening_not_allowed");
    assert_eq!(cut.scope().power(), Some(Role::Developer), "guests are told so");
    assert!(cut.of_organization().may_loosen().is_err());
    rule(Loosening::Key).await;
    let again = bed.directory.place_again(cut.scope()).await.unwrap();
    assert!(again.may_loosen().is_err() && again.of_organization().may_loosen().is_err());
    assert!(bed.directory.place_again(before.scope()).await.unwrap().may_loosen().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_of_which_anything_is_gone_is_no_place() {
    for gone in ["organization", "project", "user"] {
        let bed = Bed::new().await;
        let house = bed.house().await;
        let place = agents_place(&bed, &house, principal(Role::Developer, None, None)).await;
        bed.remove(&match gone {
            "organization" => house.organization.key(),
            "project" => house.main.project.key(),
            _ => house.main.agent.key(),
        })
        .await;
        let again = bed.directory.place_again(place.scope()).await;
        assert_eq!(again.map_err(|refusal| short(&refusal)).unwrap_err(), "NotFound", "{gone}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deployments_own_scope_has_no_place() {
    let bed = Bed::new().await;
    let scope = of_deployment(Actor::system("sweep"));
    assert_eq!((scope.organization(), scope.project(), scope.user()), (None, None, None));
    assert_eq!(short(&bed.directory.place_again(&scope).await.unwrap_err()), "NotFound");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_asks_about_another_user_with_the_pins_of_who_asks() {
    let bed = Bed::new().await;
    let (house, other) = (bed.house().await, bed.house().await);
    let (main, side) = (&house.main, &house.side);
    let wide = principal(Role::Viewer, None, None);
    let of_main = principal(Role::Viewer, Some(&main.project), None);
    let of_agent = principal(Role::Viewer, None, Some(&main.agent));
    for (asks, estate, user, wanted) in [
        (&wide, main, &main.own, ""),
        (&wide, side, &side.agent, ""),
        (&wide, side, &main.agent, "NotFound"),
        (&wide, &other.main, &other.main.agent, "NotFound"),
        (&of_main, main, &main.own, ""),
        (&of_main, side, &side.agent, "Forbidden key_project_mismatch"),
        (&of_agent, main, &main.agent, ""),
        (&of_agent, main, &main.own, "NotFound"),
        (&of_agent, side, &side.agent, "NotFound"),
    ] {
        let place = agents_place(&bed, &house, asks.clone()).await;
        let about = bed.directory.place_of_user(&place, &estate.project.id, &user.id).await;
        let told = about.as_ref().err().map(short).unwrap_or_default();
        assert_eq!(told, wanted, "{asks:?} about {}", user.id);
        if let Ok(about) = about {
            assert_eq!(about.scope().principal(), asks);
            assert_eq!(about.scope().user(), Some(&user.id));
        }
    }
}

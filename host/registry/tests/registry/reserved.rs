//! The host's own routes, which no primitive takes: each at its mounts, compared as clients see
//! them.

use std::sync::Arc;

use charter_kernel::manifest::Mount;
use charter_registry::served::{Live, Primitive, Reserved, Served};

use crate::bed::Bed;
use crate::fixture::fixture;

#[tokio::test(flavor = "multi_thread")]
async fn a_route_is_taken_where_a_client_could_mean_both() {
    let bed = Bed::new().await;
    let component = bed.engine.stage(fixture("hostile").into()).await.unwrap();
    let active = Arc::new(Served::new(component).unwrap());
    for (method, mount, path, taken) in [
        ("GET", Mount::Company, "/hostile/good", true),
        ("GET", Mount::Company, "/hostile/{id}", true),
        ("GET", Mount::Company, "/{family}/good", true),
        ("GET", Mount::User, "/hostile/good", true),
        // Below `/v1/users/{user_id}` the host's own path and the mount are one address.
        ("GET", Mount::Company, "/users/{user_id}/hostile/{id}", true),
        ("DELETE", Mount::Company, "/hostile/good", false),
        ("GET", Mount::Company, "/hostile", false),
        ("GET", Mount::Company, "/hostile/good/{id}", false),
        ("GET", Mount::Root, "/hostile/good", false),
        ("GET", Mount::Operator, "/hostile/good", false),
        ("GET", Mount::Root, "/v1/hostile/good", true),
        // A path that is no template reserves nothing.
        ("GET", Mount::Company, "hostile/{", false),
    ] {
        let own = Primitive { name: "hostile".into(), active: active.clone(), others: vec![] };
        let live = Live::new(1, &Reserved::new([(method, mount, path)]), vec![own], []);
        assert_eq!(live.is_err(), taken, "{method} {mount:?} {path}");
        for fault in live.err().into_iter().flatten() {
            assert!(fault.message.contains("which the host serves"), "{fault}");
        }
    }
}

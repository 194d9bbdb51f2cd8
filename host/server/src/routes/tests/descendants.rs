//! Keys that keys have made, however many there are.

use charter_kernel::id::UserId;

use super::*;

/// More than a batch of the workers, and than a commit that ended them one by one once took.
const MANY: usize = 450;

impl Bed {
    /// So many keys like this one, with the secrets `<name> 0`, `<name> 1`, ….
    async fn put_keys(&self, count: usize, like: &ApiKey, name: &str) -> Vec<ApiKey> {
        let mut txn = self.app().store.begin(self.organization.as_str());
        let mut made = Vec::new();
        for n in 0..count {
            let secret = format!("{name} {n}");
            let key = ApiKey {
                id: KeyId::new(NOW, stored::random().unwrap()),
                digest: Plain::from_client(&secret).digest().hex(),
                name: secret,
                ..like.clone()
            };
            keys::insert(&mut txn, &key).await.unwrap();
            made.push(key);
        }
        txn.commit().await.unwrap();
        made
    }

    async fn makes_key(&self, request: &HostRequest) -> Result<Value, Refusal> {
        called(self.app(), request, crate::handler!(keys::create_key)).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_dead_with_one_small_commit_however_many_it_has_made() {
    let bed = Bed::new().await;
    let own = bed.stored_key(&bed.key).await;
    let maker = bed.put_keys(1, &own, "maker").await.remove(0);
    let child = ApiKey { ancestors: vec![maker.id.clone()], ..own };
    let children = bed.put_keys(MANY, &child, "child").await;
    let parameters = vec![("id".to_owned(), maker.id.to_string())];
    let request = HostRequest { parameters, ..bed.by_key().await };
    let counts = async |key: &ApiKey| bed.app().directory.key(&key.name).await.unwrap().is_some();
    let txn = begun(bed.app(), &request, crate::handler!(keys::revoke_key)).await;
    let writes = txn.unit().writes.len();
    assert!(writes < 10, "{writes}");
    assert!(counts(&maker).await && counts(&children[0]).await, "nothing was committed yet");
    txn.commit().await.unwrap();
    assert!(!counts(&maker).await);
    for key in &children {
        assert!(!counts(key).await, "{}", key.name);
    }
    assert!(names(&bed).await.iter().all(|name| name == "Registration"));
    for key in &children {
        bed.sees_gone(key).await;
    }
    assert_eq!(names(&bed).await, ["Registration"]);
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_a_user_makes_so_many_and_the_organization_more() {
    let bed = Bed::new().await;
    let user = bed.by_key().await.place.unwrap().user().unwrap().clone();
    let (project, user): (_, UserId) = (user.project.clone(), user.id.clone());
    let own = bed.stored_key(&bed.key).await;
    let pinned = ApiKey { project: Some(project), user: Some(user.clone()), ..own };
    let pinned = bed.put_keys(98, &pinned, "pinned").await.remove(0);
    let identity = Identity::Key(Arc::new(record(&pinned)));
    let asks = HostRequest { body: json!({"name": "one more"}), ..bed.request(identity).await };
    let beside = begun(bed.app(), &asks, crate::handler!(keys::create_key)).await;
    let last = bed.makes_key(&asks).await.unwrap();
    assert!(beside.commit().await.is_err(), "another came in between");
    let beside = begun(bed.app(), &asks, crate::handler!(keys::create_key)).await;
    let body = json!({"name": "of the organization", "user_id": user});
    let free = HostRequest { body, ..bed.by_key().await };
    let extra = bed.makes_key(&free).await.unwrap();
    assert!(beside.commit().await.is_ok(), "keys that others make are not in its way");
    let refused = bed.makes_key(&asks).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.reason.as_deref()),
        (Code::StateConflict, Some("too_many_keys"))
    );
    let more = bed.makes_key(&free).await.unwrap();
    for made in [last, extra, more] {
        let parameters = vec![("id".to_owned(), made["id"].as_str().unwrap().to_owned())];
        let request = HostRequest { parameters, ..bed.by_key().await };
        called(bed.app(), &request, crate::handler!(keys::revoke_key)).await.unwrap();
    }
    assert!(bed.makes_key(&asks).await.is_ok(), "those that were revoked count no more");
    bed.end().await;
}

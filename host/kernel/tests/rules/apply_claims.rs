//! Unique values and names: one holder at a time, taken along by the row that holds them.

use charter_kernel::unit::{Claim, Draft, Key, Refused, Write};

use crate::bed::{Database, draft, insert, key, reach, space};

fn slugged(id: &str, slug: Option<&str>) -> Draft {
    let unique = slug.map(|slug| ("slug".to_owned(), slug.to_owned())).into_iter().collect();
    Draft { unique, ..draft(&format!("{{\"id\":\"{id}\"}}")) }
}

fn new(id: &str, slug: &str) -> Write {
    Write::Insert { key: key(id), draft: slugged(id, Some(slug)) }
}

fn replace(id: &str, slug: Option<&str>) -> Write {
    Write::Replace { key: key(id), draft: slugged(id, slug), expected: None }
}

fn remove(id: &str) -> Write {
    Write::Remove { key: key(id), expected: None }
}

fn slug(value: &str) -> Claim {
    Claim::unique(&reach(), &space(), "slug", value)
}

fn name(value: &str) -> Claim {
    Claim::name("mailbox", value)
}

fn claim(value: &str, holder: &str) -> Write {
    Write::Claim { claim: name(value), holder: key(holder) }
}

fn lost(claim: Claim, holder: &str) -> Refused {
    Refused::ClaimLost { claim, holder: key(holder) }
}

fn holders(database: &Database) -> Vec<(&str, &str)> {
    database.claims.iter().map(|(claim, key)| (claim.name.as_str(), key.id.as_str())).collect()
}

#[test]
fn a_unique_value_has_one_holder() {
    let mut database = Database::with(vec![new("a", "x")]);
    assert_eq!(database.refuse(vec![new("b", "x")]), lost(slug("x"), "a"));
    database.run(vec![new("b", "y")]).unwrap();
    assert_eq!(database.refuse(vec![replace("b", Some("x"))]), lost(slug("x"), "a"));
    assert_eq!(holders(&database), [("x", "a"), ("y", "b")]);
}

#[test]
fn a_value_is_unique_in_its_field_whatever_other_fields_have() {
    let of = |id: &str, fields: &[&str]| {
        let unique = fields.iter().map(|field| ((*field).to_owned(), "x".to_owned())).collect();
        Write::Put { key: key(id), draft: Draft { unique, ..draft("{}") } }
    };
    let mut database = Database::with(vec![of("a", &["slug"])]);
    database.run(vec![of("a", &["slug", "email"])]).unwrap();
    let email = Claim::unique(&reach(), &space(), "email", "x");
    assert_eq!(database.refuse(vec![of("b", &["email"])]), lost(email, "a"));
}

#[test]
fn a_row_may_have_a_value_that_was_claimed_for_it() {
    let mut database = Database::default();
    let ahead = Write::Claim { claim: slug("x"), holder: key("a") };
    database.run(vec![ahead, new("a", "x")]).unwrap();
    assert_eq!(holders(&database), [("x", "a")]);
}

#[test]
fn a_value_is_free_once_its_row_gives_it_up() {
    let mut database = Database::with(vec![new("a", "x")]);
    database.run(vec![replace("a", Some("z")), new("b", "x")]).unwrap();
    assert_eq!(holders(&database), [("x", "b"), ("z", "a")]);
    database.run(vec![remove("b"), replace("a", Some("x"))]).unwrap();
    assert_eq!(holders(&database), [("x", "a")]);
    database.run(vec![replace("a", None)]).unwrap();
    assert_eq!(holders(&database), []);
}

#[test]
fn two_rows_of_one_unit_do_not_share_a_value() {
    let mut database = Database::default();
    assert_eq!(database.refuse(vec![new("a", "x"), new("b", "x")]), lost(slug("x"), "a"));
}

#[test]
fn a_value_is_unique_within_its_reach_alone() {
    let elsewhere = Key::new(&charter_kernel::unit::Reach::user("other"), &space(), "a");
    let write = Write::Insert { key: elsewhere, draft: slugged("a", Some("x")) };
    let database = Database::with(vec![new("a", "x"), write]);
    assert_eq!(database.claims.len(), 2);
}

#[test]
fn a_name_is_claimed_once_in_the_deployment() {
    let mut database = Database::with(vec![insert("a", "{}"), insert("b", "{}")]);
    database.run(vec![claim("ada", "a")]).unwrap();
    assert_eq!(database.refuse(vec![claim("ada", "b")]), lost(name("ada"), "a"));
    database.run(vec![claim("ada", "a")]).unwrap();
    assert_eq!(holders(&database), [("ada", "a")]);
}

#[test]
fn a_name_may_be_claimed_before_its_row_and_needs_it_in_the_end() {
    let mut database = Database::default();
    database.run(vec![claim("ada", "a"), insert("a", "{}")]).unwrap();
    assert_eq!(holders(&database), [("ada", "a")]);
    assert_eq!(database.refuse(vec![claim("bob", "b")]), Refused::Missing { key: key("b") });
    assert_eq!(
        database.refuse(vec![claim("bob", "a"), remove("a"), claim("bob", "a")]),
        Refused::Missing { key: key("a") }
    );
}

#[test]
fn a_row_takes_its_names_along() {
    let mut database = Database::with(vec![insert("a", "{}"), insert("b", "{}")]);
    database.run(vec![claim("ada", "a"), claim("bob", "a")]).unwrap();
    assert_eq!(database.rows[&key("a")].names, [name("ada"), name("bob")]);
    assert_eq!(database.row(&key("a")).version, 1, "its readers see no difference");
    database.run(vec![remove("a")]).unwrap();
    assert_eq!(holders(&database), []);
    database.run(vec![claim("ada", "b")]).unwrap();
    assert_eq!(holders(&database), [("ada", "b")]);
}

#[test]
fn a_name_is_given_up_by_its_holder_alone() {
    let mut database = Database::with(vec![insert("a", "{}"), insert("b", "{}")]);
    database.run(vec![claim("ada", "a")]).unwrap();
    let unclaim = |holder: &str| Write::Unclaim { claim: name("ada"), holder: key(holder) };
    database.run(vec![unclaim("b")]).unwrap();
    assert_eq!(holders(&database), [("ada", "a")]);
    database.run(vec![unclaim("a")]).unwrap();
    assert_eq!(holders(&database), []);
    assert_eq!(database.rows[&key("a")].names, []);
    assert!(database.run(vec![unclaim("a")]).is_ok(), "nothing is given up twice");
}

#[test]
fn a_claim_knows_its_field_where_it_has_one() {
    assert_eq!(slug("x").field(), Some("slug"));
    assert_eq!(name("ada").field(), None);
    assert_eq!(Claim::name("odd#name", "x").field(), None);
}

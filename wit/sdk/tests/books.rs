//! The example of docs/write-a-primitive.md: what an index, a unique field, full text, an expected
//! version and a delete do.

use charter_double::Host;
use charter_sdk::prelude::*;

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Book {
    isbn: String,
    title: String,
    shelf: String,
}

const BOOKS: Collection<Book> = Collection::new("books")
    .index(&[Index::text("shelf")])
    .unique(&["isbn"])
    .searchable(&["title"]);

#[derive(Serialize, JsonSchema)]
struct Shown {
    id: String,
    version: u64,
    #[serde(flatten)]
    book: Book,
}

#[derive(Serialize, JsonSchema)]
struct BookAnswer {
    book: Shown,
}

#[derive(Serialize, JsonSchema)]
struct Books {
    books: Vec<Shown>,
    has_more: bool,
}

#[derive(Deserialize, JsonSchema)]
struct OnShelf {
    shelf: String,
    #[serde(flatten)]
    page: Offset,
}

#[derive(Deserialize, JsonSchema)]
struct ByIsbn {
    isbn: String,
}

#[derive(Deserialize, JsonSchema)]
struct Words {
    q: String,
}

#[derive(Deserialize, JsonSchema)]
struct Change {
    title: String,
    expected_version: Option<u64>,
}

fn shown(book: Doc<Book>) -> Shown {
    Shown { id: book.id, version: book.version, book: book.body }
}

fn put_in(Body(book): Body<Book>) -> Result<Created<BookAnswer>> {
    Ok(Created(BookAnswer { book: shown(BOOKS.insert(book)?) }))
}

fn on_shelf(Query(asked): Query<OnShelf>) -> Result<Books> {
    let found = BOOKS.matching("shelf", asked.shelf).page(asked.page)?;
    Ok(Books { has_more: found.has_more, books: found.items.into_iter().map(shown).collect() })
}

fn by_isbn(Path(ByIsbn { isbn }): Path<ByIsbn>) -> Result<BookAnswer> {
    Ok(BookAnswer { book: shown(BOOKS.lookup("isbn", &isbn)?.or_not_found("book")?) })
}

fn titled(Query(asked): Query<Words>) -> Result<Books> {
    Ok(Books {
        has_more: false,
        books: BOOKS.search(&asked.q, 20)?.into_iter().map(shown).collect(),
    })
}

fn change(Path(ById { id }): Path<ById>, Body(change): Body<Change>) -> Result<BookAnswer> {
    let book = BOOKS.get(&id)?.or_not_found("book")?;
    let expected = change.expected_version.unwrap_or(book.version);
    let body = Book { title: change.title, ..book.body };
    Ok(BookAnswer { book: shown(BOOKS.replace_expected(&id, expected, body)?) })
}

fn remove(Path(ById { id }): Path<ById>) -> Result<NoContent> {
    BOOKS.remove(&id)?.then_some(NoContent).or_not_found("book")
}

fn primitive() -> Primitive {
    Primitive::new("books", "0.1.0")
        .title("Books")
        .collection(&BOOKS)
        .operation(post("books.put_in", "/books", put_in).summary("Put a book in"))
        .operation(get("books.on_shelf", "/books", on_shelf).summary("List a shelf, oldest first"))
        .operation(get("books.titled", "/books/titled", titled).summary("Search titles"))
        .operation(
            get("books.by_isbn", "/books/isbn/{isbn}", by_isbn).summary("Find a book by its ISBN"),
        )
        .operation(patch("books.change", "/books/{id}", change).summary("Change a book"))
        .operation(delete("books.remove", "/books/{id}", remove).summary("Remove a book"))
}

#[test]
fn the_example_does_what_it_says() {
    let host = Host::new(primitive);
    let book = json!({ "isbn": "1", "title": "A quick fox", "shelf": "red" });
    let made = host.post("/books", book.clone()).unwrap().body;
    let path = format!("/books/{}", made["book"]["id"].as_str().unwrap());
    let taken = host.post("/books", book).unwrap_err();
    assert_eq!(taken.code(), "duplicate_record");
    assert_eq!(host.get("/books?shelf=red").unwrap().body["books"][0], made["book"]);
    assert_eq!(host.get("/books/isbn/1").unwrap().body, made);
    assert_eq!(host.get("/books/titled?q=fox").unwrap().body["books"][0], made["book"]);
    let changed =
        host.patch(&path, json!({ "title": "A slow fox", "expected_version": 1 })).unwrap().body;
    assert_eq!(changed["book"]["version"], 2);
    let late = host.patch(&path, json!({ "title": "Another", "expected_version": 1 })).unwrap_err();
    assert_eq!(late.code(), "version_conflict");
    assert_eq!(host.delete(&path).unwrap().status, 204);
    assert_eq!(host.delete(&path).unwrap_err().code(), "not_found");
}

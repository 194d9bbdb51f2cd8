//! Search against the double of the host: a scripted engine, model and web.

use charter_double::Host;
use charter_sdk::http::Response;
use charter_sdk::serde_json::{Value, json};

use crate::primitive;

fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Response {
    let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Response { status, headers, body: body.into() }
}

/// A host whose web has one page of this type.
fn web(content_type: &'static str, body: &'static [u8]) -> Host {
    let host = Host::new(primitive);
    host.outside(move |request| {
        (request.url == "https://example.com/page")
            .then(|| answer(200, &[("content-type", content_type)], body))
    });
    host
}

fn read(host: &Host) -> Value {
    host.post("/search/url", json!({ "url": "https://example.com/page" })).unwrap().body
}

const ARTICLE: &str = "<html><head><title>The whale</title></head><body><nav><a href='/home'>Home</a></nav><article><h1>The whale</h1>\
    <p>Call me Ishmael. Some years ago, never mind how long precisely, having little or no money in my purse, and nothing particular to \
    interest me on shore, I thought I would sail about a little and see the watery part of the world.</p><p>It is a way I have of driving \
    off the spleen, and regulating the circulation; see <a href='../spleen?x=1#y'>the <b>spleen</b></a>.</p><p>Whenever I find myself \
    growing grim about the mouth; whenever it is a damp, drizzly November in my soul.</p></article><script>evil()</script></body></html>";

#[test]
fn an_article_becomes_markdown_with_absolute_links() {
    let host = web("text/html; charset=utf-8", ARTICLE.as_bytes());
    let page = read(&host);
    assert_eq!(
        (&page["url"], &page["title"]),
        (&json!("https://example.com/page"), &json!("The whale"))
    );
    let markdown = page["markdown"].as_str().unwrap();
    assert!(
        markdown.contains("Call me Ishmael") && markdown.contains("https://example.com/spleen?x=1"),
        "{markdown}"
    );
    assert!(!markdown.contains("evil") && !markdown.contains("<p>"), "{markdown}");
    let expected = json!([
        { "text": "Home", "url": "https://example.com/home" },
        { "text": "the spleen", "url": "https://example.com/spleen?x=1" },
    ]);
    assert_eq!(page["links"], expected);
}

#[test]
fn a_small_page_is_read_whole_in_its_charset() {
    let page = read(&web(
        "text/html",
        b"<meta charset=iso-8859-1><title>Caf\xe9</title><h1>Caf\xe9</h1><p>Zut.</p>",
    ));
    assert_eq!(page["title"], json!("Café"));
    assert!(page["markdown"].as_str().unwrap().contains("Zut."), "{page}");
}

#[test]
fn other_texts_are_kept_and_other_media_refused() {
    assert_eq!(read(&web("text/markdown", b"# Title\n\ntext"))["title"], json!("Title"));
    assert_eq!(
        read(&web("application/problem+json", b"{\"a\":1}"))["markdown"],
        json!("```json\n{\"a\":1}\n```\n")
    );
    assert_eq!(read(&web("text/plain", b"just text"))["markdown"], json!("just text"));
    let refusal = web("image/png", b"\x89PNG")
        .post("/search/url", json!({ "url": "https://example.com/page" }))
        .unwrap_err();
    assert_eq!((refusal.code(), refusal.param_text()), ("unsupported_media_type", Some("url")));
}

#[test]
fn a_page_that_is_encoded_is_no_page() {
    let encoded = |encoding: &'static str, body: &'static [u8]| {
        let host = Host::new(primitive);
        host.outside(move |request| {
            assert!(request.headers.contains(&("accept-encoding".into(), "identity".into())));
            Some(answer(
                200,
                &[("content-type", "text/html"), ("content-encoding", encoding)],
                body,
            ))
        });
        host.post("/search/url", json!({ "url": "https://example.com/page" }))
    };
    for encoding in ["gzip", "br", "identity, deflate"] {
        let refusal = encoded(encoding, b"\x1f\x8b\x08\x00").unwrap_err();
        assert_eq!(
            (refusal.code(), refusal.reason_text()),
            ("provider_error", Some("content_encoding")),
            "{encoding}"
        );
    }
    for encoding in ["", "Identity"] {
        assert_eq!(
            encoded(encoding, b"<p>plain").unwrap().body["markdown"],
            json!("plain"),
            "{encoding}"
        );
    }
}

/// The markdown of a page, or the code and the reason why there is none.
fn markdown(html: String) -> Result<String, (String, String)> {
    let host = web("text/html", html.leak().as_bytes());
    let answer = host.post("/search/url", json!({ "url": "https://example.com/page" }));
    let text = |reply: charter_double::Reply| {
        reply.body["markdown"].as_str().unwrap_or_default().to_owned()
    };
    answer.map(text).map_err(|refusal| {
        (refusal.code().to_owned(), refusal.reason_text().unwrap_or_default().to_owned())
    })
}

fn each(count: usize, html: impl Fn(usize) -> String) -> String {
    (0..count).map(html).collect()
}

#[test]
fn a_page_that_is_made_to_cost_is_refused() {
    for (what, html) in [
        ("bytes", "x".repeat(2 * 1024 * 1024 + 1)),
        ("elements", "<b>x</b>".repeat(150_000)),
        ("depth", "<div>".repeat(100_000)),
        ("tags that do not close themselves", "<div/>".repeat(2_500)),
        ("tags that close nothing", "<div></x>".repeat(3_000)),
        (
            "tags that close nothing, looked for in a deep page",
            "<span>".repeat(450) + &"</x>".repeat(400_000),
        ),
        (
            "formatting that is opened again",
            each(1_000, |id| format!("<b id={id}></x>")) + &"<p>x".repeat(30_000),
        ),
        (
            "formatting that is opened in each paragraph",
            each(400, |id| format!("<p><font id={id}></p>")) + &"<p>x</p>".repeat(30_000),
        ),
        (
            "formatting that is compared",
            each(450, |id| format!("<b id={id} {}>", each(30, |n| format!("a{n} ")))),
        ),
        ("unclosed formatting", each(30_000, |id| format!("<font color={id}>x"))),
        ("unclosed links around blocks", "<a><p>x".repeat(60_000)),
        ("misnested formatting", "<i><b><u><s><div></i>".repeat(20_000)),
        ("tables in tables", "<table><tr><td>".repeat(1_500)),
        ("lists in lists", "<ul><li>".repeat(1_500)),
        ("quotes in quotes", "<blockquote>".repeat(90) + "<pre>" + &"\n".repeat(80_000)),
        ("drawings in drawings", "<svg><g>".repeat(5_000)),
        ("attributes", format!("<a {}>x", each(150_000, |n| format!("a{n}=1 ")))),
        (
            "attributes in a comment's shadow",
            format!("<!-- <a b=\" --><a {}>x", each(150_000, |n| format!("a{n}=1 "))),
        ),
        (
            "attributes that are copied",
            format!("<p><b {}></p>", each(500, |n| format!("a{n} "))) + &"<p>x</p>".repeat(20_000),
        ),
        (
            "lines below a deep stack",
            "<b>".to_owned() + &"<div>".repeat(450) + &"\n&amp;".repeat(300_000),
        ),
    ] {
        let start = std::time::Instant::now();
        let answer = markdown(html);
        assert_eq!(
            answer.map(|text| text.len()),
            Err(("payload_too_large".into(), "page_too_large".into())),
            "{what}"
        );
        assert!(start.elapsed().as_secs() < 20, "{what}: {:?}", start.elapsed());
    }
}

#[test]
fn a_page_that_is_large_deep_or_careless_is_read() {
    for (what, html) in [
        ("depth", "<div>".repeat(500) + "text"),
        ("items", "<li>text<br>".repeat(5_000)),
        ("unclosed links", each(20_000, |n| format!("<a href=/{n}>text"))),
        ("unclosed formatting", "<b>text<p>".repeat(500)),
        ("a table that is none", "<table>".repeat(1_500) + &"<a>".repeat(1_000) + "text"),
        ("lists in lists", "<ul><li>text".repeat(40)),
        ("quotes in quotes", "<blockquote>text".repeat(40)),
        ("a drawing", format!("<svg><path d='{}'/></svg>text", "1 2 3 ".repeat(50_000))),
        (
            "a script",
            format!("<script>for (i=0;i<n;i++) x = [{}]</script>text", "1, ".repeat(50_000)),
        ),
        (
            "a large image in place",
            format!("<img src='data:image/png;base64,{}'>text", "A/b+".repeat(100_000)),
        ),
        (
            "an article",
            format!(
                "<article>{}</article>",
                "<p>Much text, and then some more of the text.</p>".repeat(4_000)
            ),
        ),
        (
            "cards",
            each(3_000, |n| {
                format!(
                    "<div class=\"card c{n}\" id=\"i{n}\" data-x=\"{n}\"><a class=link href=\"/item/{n}?a=1&amp;b=2\"><img src=\"/{n}.jpg\" \
                     alt=p></a><h3><a href=\"/item/{n}\">text</a></h3><p>{}</p><ul><li><span>a</span></li><li>b</li></ul></div>\n",
                    "Lorem ipsum dolor sit amet. ".repeat(10)
                )
            }),
        ),
    ] {
        let answer = markdown(html);
        assert!(
            answer.as_ref().is_ok_and(|text| text.contains("text")),
            "{what}: {:?}",
            answer.map(|text| text.len())
        );
    }
}

#[test]
fn redirects_are_followed_but_not_for_ever() {
    let host = Host::new(primitive);
    host.outside(|request| {
        let step: usize = request.url.strip_prefix("https://example.com/")?.parse().ok()?;
        let next = (step + 1).to_string();
        Some(if step == 5 {
            answer(200, &[("content-type", "text/plain")], "there")
        } else {
            answer(302, &[("location", &next)], "")
        })
    });
    let page = host.post("/search/url", json!({ "url": "https://example.com/0" })).unwrap().body;
    assert_eq!(
        (&page["url"], &page["markdown"]),
        (&json!("https://example.com/5"), &json!("there"))
    );
    let endless = Host::new(primitive);
    endless.outside(|_| Some(answer(301, &[("location", "/again")], "")));
    assert_eq!(
        endless.post("/search/url", json!({ "url": "http://example.com/" })).unwrap_err().code(),
        "provider_error"
    );
}

#[test]
fn what_is_no_page_is_refused() {
    let host = web("text/html", b"");
    for url in ["ftp://example.com/", "example.com", "http://user:pass@example.com/"] {
        let refusal = host.post("/search/url", json!({ "url": url })).unwrap_err();
        assert_eq!((refusal.code(), refusal.param_text()), ("invalid_input", Some("url")), "{url}");
    }
    assert_eq!(
        host.post("/search/url", json!({ "url": "https://nowhere.example/" })).unwrap_err().code(),
        "provider_error"
    );
}

fn bound(model: Option<Value>) -> Host {
    let host = web("text/html", ARTICLE.as_bytes());
    host.bind("search.engine", "searxng", json!({}));
    host.outside(|request| {
        let results = json!({ "results": [
            { "title": "Dead", "url": "https://dead.example/", "content": "gone" },
            { "title": "Whale", "url": "https://example.com/page", "content": " Call\n me " },
            { "title": "Whale again", "url": "https://example.com/page" },
            { "title": "No page", "url": "magnet:x" },
        ] });
        let wanted = "https://search.engine.binding/search?q=white%20whale&format=json";
        (request.url == wanted).then(|| answer(200, &[], results.to_string()))
    });
    if let Some(options) = model {
        host.bind("llm.upstream", "openai", options);
        host.outside(|request| {
            let body: Value = charter_sdk::serde_json::from_slice(&request.body).ok()?;
            let prompt = body["messages"][1]["content"].as_str()?;
            let said = if prompt.contains("Call me Ishmael") && body["model"] == "small" {
                "He is called Ishmael [1]."
            } else {
                "?"
            };
            let message =
                json!({ "choices": [{ "message": { "role": "assistant", "content": said } }] });
            (request.url == "https://llm.upstream.binding/v1/chat/completions")
                .then(|| answer(200, &[], message.to_string()))
        });
    }
    host
}

#[test]
fn the_engine_s_results_come_each_once() {
    let found =
        bound(None).post("/search", json!({ "query": "white whale", "limit": 10 })).unwrap().body;
    assert_eq!(found["source"], json!("searxng"));
    assert_eq!(found["results"].as_array().unwrap().len(), 2);
    assert_eq!(
        found["results"][1],
        json!({ "title": "Whale", "url": "https://example.com/page", "snippet": "Call me" })
    );
}

#[test]
fn research_cites_the_pages_that_could_be_read() {
    let host = bound(Some(json!({ "model": "small" })));
    let answer = host.post("/search/research", json!({ "query": "white whale" })).unwrap().body;
    assert_eq!(
        (&answer["answer"], &answer["model"]),
        (&json!("He is called Ishmael [1]."), &json!("small"))
    );
    assert_eq!(
        answer["citations"],
        json!([{ "number": 1, "title": "The whale", "url": "https://example.com/page" }])
    );
}

#[test]
fn without_a_model_research_says_what_is_missing() {
    let refusal =
        bound(None).post("/search/research", json!({ "query": "white whale" })).unwrap_err();
    assert_eq!(
        (refusal.code(), refusal.details_json()),
        ("not_configured", Some(json!({ "missing": ["llm.upstream"] })))
    );
    let nameless = bound(Some(json!({})))
        .post("/search/research", json!({ "query": "white whale" }))
        .unwrap_err();
    assert_eq!(nameless.code(), "not_configured");
}

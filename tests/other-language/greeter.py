"""A primitive in Python: greetings, kept for each user, listed newest first.

Built from `wit/primitive.wit` by `build.py`. `wit_world` and `componentize_py_types` are generated from it.
"""

import json
from datetime import datetime, timezone

from componentize_py_types import Err
from wit_world import Answer, AnswerBody_Json
from wit_world.imports import documents, log
from wit_world.imports.types import Failure

GREETING = {
    "type": "object",
    "required": ["id", "name", "text", "created_at"],
    "properties": {
        "id": {"type": "string"},
        "name": {"type": "string"},
        "text": {"type": "string", "description": "The greeting itself."},
        "created_at": {"type": "string", "format": "date-time"},
    },
}

MANIFEST = {
    "name": "greeter-py",
    "version": "0.1.0",
    "title": "Greeter",
    "summary": "Greetings, written in Python.",
    "capabilities": ["documents"],
    "collections": [{
        "name": "greetings",
        "body": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
    }],
    "operations": [
        {
            "id": "greeter-py.greet",
            "method": "POST",
            "path": "/greetings",
            "access": "write",
            "status": 201,
            "summary": "Greet somebody",
            "body": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "minLength": 1, "maxLength": 100, "description": "Whom to greet."},
                },
            },
            "answer": {"type": "object", "required": ["greeting"], "properties": {"greeting": GREETING}},
        },
        {
            "id": "greeter-py.list",
            "method": "GET",
            "path": "/greetings",
            "access": "read",
            "summary": "List greetings, newest first",
            "paging": "offset",
            "answer": {
                "type": "object",
                "required": ["greetings", "has_more"],
                "properties": {
                    "greetings": {"type": "array", "items": GREETING},
                    "has_more": {"type": "boolean", "description": "Whether there are more behind this page."},
                },
            },
        },
    ],
}


def shown(document):
    """A greeting as the caller sees it."""
    name = json.loads(document.body)["name"]
    created_at = datetime.fromtimestamp(document.created_at / 1000, timezone.utc)
    return {
        "id": document.id,
        "name": name,
        "text": f"Hello, {name}!",
        "created_at": created_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }


def greet(request):
    name = json.loads(request.body)["name"].strip()
    if not name:
        raise Err(Failure("invalid_input", "a name is more than white space", None, None, "name", None, None))
    document = documents.insert("greetings", json.dumps({"name": name}), None)
    log.write(log.Level.INFO, "somebody was greeted", [("id", document.id)])
    return {"greeting": shown(document)}


def list_greetings(request):
    page = json.loads(request.query)
    query = documents.Query(
        collection="greetings",
        matching=[],
        order=documents.Order.NEWEST,
        limit=page["limit"],
        after=None,
        offset=page.get("offset", 0),
        relaxed=True,
    )
    found = documents.find(query)
    return {"greetings": [shown(document) for document in found.items], "has_more": found.has_more}


HANDLERS = {"greeter-py.greet": greet, "greeter-py.list": list_greetings}


class WitWorld:
    """What the component exports."""

    def describe(self):
        return json.dumps(MANIFEST)

    def handle(self, request):
        body = HANDLERS[request.operation](request)
        return Answer(status=None, headers=[], body=AnswerBody_Json(json.dumps(body)))

    def react(self, caller, signal):
        return None

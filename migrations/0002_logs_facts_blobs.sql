-- What is only ever added to: logs, facts, component binaries.
CREATE TABLE logs (
    reach TEXT {bytewise} NOT NULL,
    log TEXT {bytewise} NOT NULL,
    head BIGINT NOT NULL,
    was BIGINT NOT NULL,
    closed BIGINT NOT NULL,
    PRIMARY KEY (reach, log)
) {clustered_hot};

CREATE TABLE log_entries (
    reach TEXT {bytewise} NOT NULL,
    log TEXT {bytewise} NOT NULL,
    sequence BIGINT NOT NULL,
    at BIGINT NOT NULL,
    name TEXT NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (reach, log, sequence)
) {clustered};

-- Facts are committed without a sequence and get it right behind, in the order of `ordinal`; only those that have it are shown.
CREATE TABLE facts (
    ordinal {ordinal},
    id TEXT {bytewise} NOT NULL,
    organization TEXT {bytewise} NOT NULL,
    kind TEXT {bytewise} NOT NULL,
    at BIGINT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    sequence BIGINT
);

CREATE UNIQUE INDEX facts_sequence ON facts (organization, kind, sequence) WHERE sequence IS NOT NULL;
CREATE INDEX facts_pending ON facts (ordinal) WHERE sequence IS NULL;

CREATE TABLE blobs (
    digest TEXT {bytewise} NOT NULL,
    part BIGINT NOT NULL,
    bytes {blob} NOT NULL,
    PRIMARY KEY (digest, part)
);
